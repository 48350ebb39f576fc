"""Run the command line: in this process where that is enough, as a program where signals or imports matter."""

import json
import os
import subprocess
import sys

from typer.testing import CliRunner

from probssl.cli import app

ENVIRONMENT = {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
COLLAPSING = [
    *["--set", "plan.optimiser=sgd", "--set", "plan.weight_decay=2", "--set", "plan.warmup=0"],
    *["--lr", "0.1", "--steps", "60"],
]


def probssl(*args):
    """The result of a command: exit_code, stdout, stderr; an exception that is not meant for the shell is raised."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="probssl", env=ENVIRONMENT)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def succeed(*args):
    result = probssl(*args)
    assert result.exit_code == 0, result.stderr
    return result


def document(*args):
    """What `--json` prints, after checking that it is the only thing on standard output."""
    return json.loads(succeed(*args, "--json").stdout, parse_constant=lambda name: 1 / 0)


def refusal(*args, code=2):
    """The sentence on standard error, after checking that it is one and that nothing else was said."""
    result = probssl(*args)
    assert result.exit_code == code, (result.stdout, result.stderr)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    return lines[0]


def start(*args, **options):
    """The command line as a program of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "probssl", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
        **options,
    )
