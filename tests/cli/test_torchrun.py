"""`torchrun -m probssl fit`: one run, one voice, however many processes."""

import json
import os
import signal
import subprocess
import sys

import pytest

from probssl.runs import Run
from tests.cli.shell import ENVIRONMENT, document
from tests.cli.test_stopping import training, wait_for

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="gloo and signals")


def torchrun(*args):
    """Two processes of the command line."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "probssl"]
    return subprocess.Popen(
        [*launcher, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    )


def test_a_run_is_complete_and_said_once(table, scratch):
    process = torchrun("fit", table, "--label", "kind", "--steps", 30, "--set", "plan.precision=bfloat16", "--json")
    stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 0, stderr
    told = json.loads(stdout)
    run = Run(scratch / told["run"])
    assert told["steps"] == run.log[-1]["step"] == 30
    names = {path.name for path in run.folder.iterdir()}
    assert names >= {"recipe.toml", "source.json", "model.safetensors", "metrics.json", "projection.npz", "report.html"}
    assert run.recipe.plan["precision"] == "bfloat16"
    assert document("doctor", run.folder)["healthy"] in (True, False)


def test_stopped_with_two_processes_and_resumed_with_one(table, scratch):
    order = ["fit", table, "--label", "kind", "--steps", 1500, "--out", scratch / "run"]
    process = torchrun(*order, "-q")
    wait_for(training(scratch / "run"), process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=100)
    assert stderr.count("with a checkpoint; resume with: probssl fit --resume") == 1
    stopped = sorted((scratch / "run/checkpoints").iterdir())[-1].name
    assert not (scratch / "run/model.safetensors").exists()
    told = document("fit", "--resume", "--out", scratch / "run")
    assert told["steps"] == 1500
    assert stopped < "step-00001500"
    assert (scratch / "run/report.html").exists()
