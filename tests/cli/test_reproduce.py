"""`probssl reproduce`: the list with what is there, a study with its numbers, exports, stopping and going on."""

import json
import os
import shutil
import signal
import time

import pytest

from probssl.studies import Store, circles, experiments
from tests.cli.shell import document, probssl, refusal, start, succeed
from tests.grids.cheap import COUNT, Cheap

SMOKE = ["reproduce", "siamese/circles", "--budget", "smoke", "--jobs", "1"]


@pytest.fixture
def cheap(monkeypatch):
    """A study of milliseconds among the others."""
    monkeypatch.setitem(experiments.CATALOGUE, Cheap.name, "tests.grids.cheap:Cheap")
    for text in ("paper", "laptop"):
        monkeypatch.setattr(Cheap, text, "none")
    return ["reproduce", Cheap.name, "--budget", "smoke", "--jobs", "1"]


def test_list(scratch, cheap):
    listed = {entry["name"]: entry for entry in document("reproduce")["experiments"]}
    assert list(listed)[:3] == ["siamese/circles", "siamese/linear-theory", "siamese/deaugmenting"]
    assert set(listed["siamese/circles"]) == {"name", "paper", "claim", "laptop", "budget", "trials"}
    assert listed["siamese/circles"]["trials"] == {"total": 30, "done": 0, "failed": 0, "older": 0, "problem": None}
    assert list(scratch.iterdir()) == []
    succeed(*cheap, "-q")
    shown = succeed("reproduce", "--budget", "smoke").stdout
    assert "12 of 12" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    (trials,) = [
        e["trials"] for e in document("reproduce", "--budget", "smoke")["experiments"] if e["name"] == Cheap.name
    ]
    assert (trials["done"], trials["total"]) == (12, 12)
    assert "10 of 150" in succeed("reproduce").stdout  # the budgets share their first two cohorts


def test_list_says_what_is_of_older_code_and_what_is_broken(scratch, cheap, monkeypatch):
    succeed(*cheap, "-q")
    with monkeypatch.context() as patch:
        patch.setattr(experiments, "code_version", lambda modules: "another")
        shown = succeed("reproduce", "--budget", "smoke").stdout
    assert "0 of 12" in shown
    assert "12 older" in shown
    assert "not used" in shown
    (scratch / "reproduced" / Cheap.name / "store.sqlite").write_text("damaged " * 999)
    result = succeed("reproduce")
    assert "not readable" in result.stdout
    assert "store.sqlite is damaged" in result.stderr


def test_a_study(monkeypatch, scratch):
    monkeypatch.setitem(circles.SCALE, "smoke", (1, 3))
    found = document(*SMOKE)
    shutil.copytree("reproduced/siamese/circles", "again")
    shown = succeed(*SMOKE, "--out", "again", "--quiet")
    assert {"experiment", "budget", "seconds", "trials", "failures", "rows"} <= set(found)
    assert found["page"] == "reproduced/siamese/circles/index.html"
    assert json.loads((scratch / "reproduced/siamese/circles/result.json").read_text()) == found
    assert shown.stdout.rstrip().endswith((scratch / "again" / "index.html").as_uri())
    assert shown.stderr == ""
    assert max(map(len, shown.stdout.splitlines()[:-1])) <= 80


def test_a_second_time_is_at_once_and_fresh_is_not(cheap, scratch, monkeypatch):
    log = scratch / "log"
    monkeypatch.setenv("CHEAP_LOG", str(log))
    first = document(*cheap)
    assert document(*cheap)["rows"] == first["rows"]
    assert len(log.read_text().splitlines()) == COUNT["smoke"]
    document(*cheap, "--fresh")
    assert len(log.read_text().splitlines()) == 2 * COUNT["smoke"]


def test_failures_are_told_and_tried_again(cheap, scratch, monkeypatch):
    (scratch / "broken").touch()
    monkeypatch.setenv("CHEAP_BROKEN", str(scratch / "broken"))
    result = probssl(*cheap, "-q")
    assert result.exit_code == 1
    assert "index.html" in result.stdout
    assert result.stderr == (
        "error: 1 of 12 trials failed; run the same command to retry them; the first (number 7, draws 40): "
        "RuntimeError: number 7 is broken\n"
    )
    told = json.loads(probssl(*cheap, "--json").stdout)["failures"]
    assert told == [{"config": {"number": 7, "draws": 40}, "message": "RuntimeError: number 7 is broken"}]
    assert "1 failed" in succeed("reproduce", "--budget", "smoke").stdout
    (scratch / "broken").unlink()
    assert document(*cheap)["failures"] == []


def test_export(cheap, scratch):
    assert "run it first" in refusal(*cheap, "--export", "t.csv")
    succeed(*cheap, "-q")
    assert document(*cheap, "--export", "deep/t.csv") == {"out": "deep/t.csv", "trials": 12}
    assert "12 trials" in succeed(*cheap, "--export", "t.parquet").stdout
    assert (scratch / "deep" / "t.csv").read_text().startswith("number,draws,mean,parts.first,parts.rest,odd,study")
    assert "t.xlsx must end in" in refusal(*cheap, "--export", "t.xlsx")
    assert "NAME" in refusal("reproduce", "--export", "t.csv")


def trials_in(folder):
    if not (folder / "store.sqlite").exists():
        return 0
    with Store(folder / "store.sqlite", read_only=True) as store:
        return len(list(store.trials()))


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(scratch):
    """In a terminal all processes get the signal, the workers too."""
    out = ["--out", "my study"]
    process = start("reproduce", "siamese/circles", "--jobs", 2, *out, start_new_session=True)
    until = time.monotonic() + 90
    while trials_in(scratch / "my study") == 0:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    before = trials_in(scratch / "my study")
    os.killpg(process.pid, signal.SIGINT)
    said, complaint = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "")
    assert "Traceback" not in complaint
    kept = trials_in(scratch / "my study")
    assert before <= kept < 30
    assert complaint.splitlines()[-1] == (
        f"stopped after {kept} of 30 trials; resume with: probssl reproduce siamese/circles --out 'my study' --jobs 2"
    )


def test_refusals(scratch):
    (scratch / "file").write_text("mine")
    (scratch / "full").mkdir()
    (scratch / "full" / "index.html").write_text("mine")
    assert "siamese/circles" in refusal("reproduce", "nope")
    assert "'tiny'" in refusal("reproduce", "siamese/circles", "--budget", "tiny")
    assert "'slurm'" in refusal(*SMOKE, "--backend", "slurm")
    assert "--address" in refusal(*SMOKE, "--address", "tcp://x:1")
    assert "file is a file" in refusal(*SMOKE, "--out", "file")
    assert "file" in refusal(*SMOKE, "--out", "file/x")
    assert "other files" in refusal(*SMOKE, "--out", "full")
    assert (scratch / "full" / "index.html").read_text() == "mine"
    assert not (scratch / "reproduced").exists()
