"""Ctrl-C, SIGTERM, kill -9 and --resume, on real processes."""

import os
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file

from probssl.runs import Run
from tests.cli.shell import ENVIRONMENT, document, probssl, refusal, start, succeed

LONG = ["--label", "kind", "--steps", "500000"]


def wait_for(condition, process, seconds=90):
    limit = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.01)


def training(folder):
    log = folder / "log.jsonl"
    return lambda: log.is_file() and log.read_text().count('"loss"') >= 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption(number, table, scratch):
    out = scratch / "my run"
    process = start("fit", table, *LONG, "--out", out, "--json")
    wait_for(training(out), process)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout == ""
    steps = Run(out).log[-1]["step"]
    assert f"resume with: probssl fit --resume --out '{out}'" in stderr
    assert "Traceback" not in stderr
    assert list((out / "checkpoints").glob("step-*"))
    assert not (out / "model.safetensors").exists()
    assert steps > 0
    told = document("doctor", out)
    assert told["healthy"] is False
    assert [finding["kind"] for finding in told["findings"]] == ["unfinished"]
    assert "no finished model" in refusal("embed", out, table, "--out", "z.npy")
    assert (
        "What is wrong"
        in (scratch / succeed("report", out, "--out", "p.html").stdout.split("/")[-1].strip()).read_text()
    )


@pytest.mark.parametrize(
    ("objective", "kept"),
    [
        (["snl", "--steps", "600"], "objective.bias"),
        (
            ["gedi", "--steps", "300", "--set", "objective.clusters=2", "--set", "objective.sampler.steps=2"],
            "objective.buffer.",
        ),
    ],
)
def test_killed_and_resumed_is_the_run_that_was_not_killed(objective, kept, table, scratch):
    options = ["--label", "kind", "--objective", *objective]
    process = start("fit", table, *options, "--out", scratch / "killed", "--quiet")
    checkpoints = scratch / "killed" / "checkpoints"
    wait_for(lambda: len(list(checkpoints.glob("step-*.safetensors"))) > 1, process)
    process.kill()
    process.communicate()
    assert not (scratch / "killed" / "model.safetensors").exists()
    succeed("fit", "--resume", "--out", "killed", "-q")
    succeed("fit", table, *options, "--out", "whole", "-q")
    killed, whole = (load_file(scratch / name / "model.safetensors") for name in ("killed", "whole"))
    assert killed.keys() == whole.keys()
    assert all(killed[name].equal(whole[name]) for name in whole)
    assert any(name.startswith(kept) for name in whole), "what the objective remembers is among it"
    logs = [[{**row, "seconds": 0} for row in Run(scratch / name).log] for name in ("killed", "whole")]
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--lr", "0.5"], "plan.lr = 0.01"),
        (["--objective", "snl"], "objective.name = infonce"),
        (["--set", "pairing.noise=0.5"], "pairing.noise = 0.25"),
        (["--steps", "20"], "plan.steps = 30"),
        (["--test", "0.5"], "--test 0.2"),
        (["--ids", "a"], "--ids"),
        (["--label", "a"], "--label kind"),
        (["--drop", "a"], "--drop"),
        (["--kind", "a=category"], "--kind"),
        (["--missing", "x"], "--missing"),
        (["--encoding", "latin-1"], "--encoding"),
        (["--overwrite"], "--overwrite"),
        (["--recipe", "other.toml"], "plan.lr = 0.01"),
    ],
)
def test_resume_refuses_to_change_the_run(options, named, run, scratch):
    (scratch / "other.toml").write_text("[plan]\nlr = 31\n")
    before = (run / "model.safetensors").read_bytes()
    said = refusal("fit", "--resume", "--out", run, "-q", *options)
    assert named in said
    assert (run / "model.safetensors").read_bytes() == before


def test_resume_refuses_other_data(run):
    assert "sklearn:iris" in refusal("fit", "sklearn:iris", "--resume", "--out", run)


def test_resuming_what_is_not_there(table):
    assert "no run to resume" in refusal("fit", "--resume", "--out", "nope")
    succeed("fit", table, "--label", "kind", "--steps", 2, "--resume", "--out", "new", "-q")


def test_more_steps_extend_a_finished_run(copy):
    before = load_file(copy / "model.safetensors")
    told = document("fit", "--resume", "--out", copy, "--steps", 45)
    assert told["steps"] == 45
    run = Run(copy)
    assert [row["step"] for row in run.rows] == sorted({row["step"] for row in run.rows})
    assert run.rows[0]["step"] < 30 < run.rows[-1]["step"] == run.steps == 45
    after = load_file(copy / "model.safetensors")
    assert not all(before[name].equal(after[name]) for name in before)
    assert run.comparison.rows["trained encoder"] == told["rows"]["trained encoder"]
    assert document("runs", copy)["runs"][0]["step"] == 45


def test_resuming_a_finished_run_changes_nothing(copy):
    before = load_file(copy / "model.safetensors")
    succeed("fit", "--resume", "--out", copy, "-q")
    after = load_file(copy / "model.safetensors")
    assert all(before[name].equal(after[name]) for name in before)


def test_ctrl_c_while_evaluating_says_how_to_go_on(table, monkeypatch):
    from probssl.runs import workflow

    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(workflow, "assess", stop)
    result = probssl("fit", table, "--label", "kind", "--steps", 2, "--out", "r", "-q")
    assert result.exit_code == 130
    assert "probssl fit --resume --out r" in result.stderr


STOPPED = """
import os, signal, sys
import {module} as module

real = module.{name}

def stopped(*arguments, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    return real(*arguments, **options)

module.{name} = stopped
from probssl.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("module", "name", "command"),
    [
        ("probssl.runs.reading", "load", ["fit", "table.csv", "--steps", "2", "-q"]),
        ("probssl.runs.workflow", "assess", ["evaluate", "run", "-q"]),
        ("probssl.model.model", "load_tensors", ["embed", "run", "table.csv", "--out", "z.npy"]),
        ("probssl.report.run_page", "render", ["report", "run"]),
        ("probssl.runs.doctor", "examine", ["doctor", "run"]),
        ("typer", "Typer", ["doctor", "run"]),
    ],
)
def test_sigterm_anywhere_ends_as_ctrl_c_does(module, name, command, room):
    place = [str(room / word) if word in ("run", "table.csv") else word for word in command]
    program = [sys.executable, "-c", STOPPED.format(module=module, name=name), *place]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120, env={**os.environ, **ENVIRONMENT})
    assert ended.returncode == 130, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr == "stopped\n"
