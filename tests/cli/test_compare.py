"""`probssl compare`: what it shows, that it keeps its time, and that an interruption loses nothing finished."""

import csv
import math
import os
import signal
import time

import numpy as np
import pytest
from PIL import Image

from probssl.comparing import schedule
from probssl.comparing.grid import COMPARED
from probssl.grids.store import Store
from probssl.runs import Run
from tests.cli.shell import document, probssl, refusal, start, succeed

FEW = ["--objectives", "infonce,spectral", "--energies", "cosine,euclidean", "--dims", "2"]


@pytest.fixture
def quick(monkeypatch):
    """Rounds of a few steps."""
    monkeypatch.setattr(schedule, "LENGTHS", {math.inf: (5, 10, 20)})


def test_what_it_shows_and_writes(table, scratch, quick):
    shown = succeed("compare", table, "--label", "kind", "--minutes", 0.5, *FEW)
    lines = shown.stdout.splitlines()
    folder = scratch / "compared" / "table"
    assert max(map(len, lines[:-4])) <= 80  # the last four are paths
    assert f"{folder.relative_to(scratch)}/best" in shown.stdout
    assert (folder / "index.html").as_uri() in shown.stdout
    assert "rows kept aside" in shown.stdout
    assert "Traceback" not in shown.stderr
    for name in ("leaderboard.csv", "leaderboard.json", "store.sqlite", "index.html", "best/model.safetensors"):
        assert (folder / name).is_file()
    for command in (["evaluate"], ["doctor"], ["report"]):
        succeed(*command, folder / "best")
    assert document("embed", folder / "best", table, "--out", "z.npy")["rows"] == 60
    again = document("compare", table, "--drop", "kind", "--minutes", 0.5, *FEW, "--quiet")
    assert again["page"] == "compared/table-2/index.html"
    assert again["label"] is None
    assert again["criterion"] == "recovered"
    assert again["test"]["rows"] == 12


def test_the_document(table, quick):
    found = document("compare", table, "--label", "kind", "--minutes", 0.5, *FEW, "--out", "c", "--seed", 3)
    assert found["rows"] == 60
    assert found["configurations"] == len(found["leaderboard"]) == 9
    assert found["winner"] == found["leaderboard"][0]
    assert found["test"]["rows"] == 12
    assert set(found["test"]["baselines"]) == set(found["test"]["ahead_of"])
    assert {p["score"] for p in found["predictors"]} <= {"recovered", "rankme", "clid", "alignment", "uniformity"}
    assert found["seconds"] <= 30
    assert "already holds a comparison" in refusal("compare", table, "--minutes", 0.5, "--drop", "kind", "--out", "c")
    document("compare", table, "--drop", "kind", "--minutes", 0.5, *FEW, "--out", "c", "--overwrite")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--minutes", "0.1"], "0.25 minutes"),
        (["--objectives", "nope"], "'nope'"),
        (["--objectives", "infonce,latent-regression"], "--objectives latent-regression"),
        (["--objectives", ","], "--objectives"),
        (["--energies", "cosine,nope"], "'nope'"),
        (["--pairings", "nope"], "'nope'"),
        (["--objectives", "fisher", "--pairings", "scarf"], "the pairing scarf"),
        (["--encoder", "conv"], "conv is for images"),
        (["--size", "8"], "--size"),
        (["--dims", "two"], "--dims"),
        (["--dims", "0"], "0"),
        (["--label", "nope"], "'nope'"),
        (["--drop", "nope"], "'nope'"),
        (["--seed", "-1"], "seed"),
        (["--trials", "0"], "--trials"),
        (["--trials", "5", "--minutes", "1"], "give one of them"),
        (["--resume"], "--out"),
        (["--jobs", "0"], "--jobs"),
    ],
)
def test_refusals(options, named, table, scratch):
    before = set(scratch.iterdir())
    label = [] if "--label" in options else ["--label", "kind"]
    assert named in refusal("compare", table, *label, *options)
    assert set(scratch.iterdir()) == before


def stored(folder):
    """Configurations of the finished trainings."""
    if not (folder / "store.sqlite").is_file():
        return []
    with Store(folder / "store.sqlite", read_only=True) as store:
        return [trial.config for trial in store.trials()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_writes_what_was_finished(number, table, scratch):
    out = scratch / "c"
    process = start("compare", table, "--label", "kind", "--minutes", "5", *FEW, "--out", out, start_new_session=True)
    limit = time.monotonic() + 90
    while not stored(out):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.02)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does it: to the worker processes too
    else:
        process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    with (out / "leaderboard.csv").open() as file:
        board = list(csv.DictReader(file))
    assert len(board) == len({(t["objective"], t["energy"], t["dim"], t["pairing"]) for t in stored(out)}) > 0
    assert "Interrupted" in stdout
    assert probssl("doctor", out / "best").exit_code == 0
    assert (out / "index.html").is_file()


def test_images_and_worlds(scratch, quick):
    folder = scratch / "faces"
    chance = np.random.default_rng(0)
    for name in range(40):
        path = folder / ("dark" if name % 2 else "bright") / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(chance.integers(0, 120, (8, 8), dtype=np.uint8) + 120 * (name % 2 == 0)).save(path)
    few = ["--objectives", "infonce,fisher", "--energies", "cosine", "--trials", 2, "--jobs", 1]
    shown = " ".join(
        succeed("compare", folder.name, *few, "--dims", 4, "--encoder", "mlp", "--out", "c").stdout.split()
    )
    assert "faces 40 images, 1 × 8 × 8, 2 classes" in shown
    assert "siamese-digits" in shown
    assert "raw pixels" in shown
    assert "linear_probe" in Run("c/best").comparison.rows["trained encoder"]
    found = document("compare", "world:normal3", *few[:1], "infonce", *few[2:], "--out", "w")
    assert found["criterion"] == "r2"
    assert {"r2", "mcc"} <= set(found["winner"])
    assert set(found["test"]["baselines"]) == {"PCA to 3", "raw features", "untrained encoder to 3"}
    assert found["winner"]["pairing"] is None
    assert document("evaluate", "w/best")["rows"]["trained encoder"]["linear_r2"] <= 1


def test_help_offers_what_it_takes():
    shown = " ".join(succeed("compare", "--help").stdout.split())
    assert "world:sphere10" in shown
    assert "folder of images" in shown
    assert "a dozen" in shown
    assert len(COMPARED) == 12
