"""Help fits 80 columns, shows an example and the defaults, and comes at once."""

import itertools
import json
import os
import subprocess
import sys

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from probssl.cli import app
from tests.cli.shell import ENVIRONMENT, probssl, succeed

COMMANDS = [
    *[
        "",
        "fit",
        "parts",
        "compare",
        "embed",
        "evaluate",
        "doctor",
        "report",
        "runs",
        "export",
        "sample",
        "impute",
        "ood",
    ],
    *["reproduce", "data", "data list", "data fetch"],
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_and_has_an_example(command):
    shown = succeed(*command.split(), "--help").stdout
    assert max(map(len, shown.splitlines())) <= 80
    word = "Start with" if command == "" else "Example"
    example = [line for line in shown.splitlines() if f"{word}: probssl" in line]
    assert len(example) == 1
    assert "…" not in example[0]


def test_paragraphs_of_help_are_broken_where_the_terminal_ends():
    for command in COMMANDS:
        text = [line.strip() for line in succeed(*command.split(), "--help").stdout.splitlines()]
        prose = text[: next(number for number, line in enumerate(text) if line.startswith("╭"))]
        for line, following in itertools.pairwise(prose):
            assert not line or not following or len(f"{line} {following.split()[0]}") > 78


def test_a_part_is_explained_as_a_whole_in_80_columns():
    shown = succeed("parts", "objective", "infonce").stdout
    assert max(map(cell_len, shown.splitlines())) <= 80
    assert all(f'- `"{name}"`' in shown for name in ("batch", "originals", "two-view", "given", "batch-and-given"))
    assert "  corrected to 1/(n − 1))" in shown, "what belongs to an item stands below its beginning"
    assert "flat prior of ψ (`mean_variance` None) the last is" in " ".join(
        (simvae := succeed("parts", "objective", "simvae").stdout).split()
    )
    assert "\n    log p(z) = −(1/2σ²)" in simvae


def test_the_plan_is_listed_and_explained():
    assert "\nplan\n" in succeed("parts").stdout
    shown = succeed("parts", "plan").stdout
    assert "--set plan.warmup=…  whole number  (default: 100)" in shown
    assert json.loads(succeed("parts", "plan", "--json").stdout)["settings"]["optimiser"]["default"] == "adam"


def test_every_command_is_listed():
    shown = succeed("--help").stdout
    assert all(f"│ {command} " in shown for command in COMMANDS if command and " " not in command)


def test_every_part_can_be_chosen():
    from probssl.parts.recipe import SLOTS

    shown = succeed("fit", "--help").stdout
    assert all(f"--{slot} " in shown for slot in SLOTS)
    assert "PART.SETTING=VALUE" in shown


def test_shells_complete_names(monkeypatch):
    for words, expected in {
        "probssl fit x.csv --objective sn": ["snl"],
        "probssl fit x.csv --pairing mask": ["mask-and-noise"],
        "probssl fit x.csv --set pl": ["plan."],
        "probssl fit x.csv --set plan.war": ["plan.warmup="],
        "probssl fit x.csv --objective spectral --set objective.": ["objective.squared_radius=", "objective.pair="],
        "probssl fit x.csv --set objective.sampler.step": ["objective.sampler.steps=", "objective.sampler.step_size="],
        "probssl parts enc": ["encoder"],
        "probssl parts energy co": ["cosine"],
    }.items():
        given = {"_PROBSSL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        result = CliRunner().invoke(app, [], prog_name="probssl", env={**ENVIRONMENT, **given})
        assert result.stdout.split() == expected


def test_version():
    assert succeed("--version").stdout == "probssl 0.1.0\n"


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["nope"], "nope"),
        (["fit", "--nope"], "--nope"),
        (["embed", "run"], "DATA"),
        (["embed", "run", "x.csv"], "--out"),
        (["fit", "x.csv", "--steps", "many"], "--steps"),
        (["data", "fetch"], "NAME"),
    ],
)
def test_wrong_usage(args, named):
    result = probssl(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert named in result.stderr
    assert "--help" in result.stderr


def test_lists_need_nothing_heavy():
    """Help, names and lists come at once: what takes seconds to import is not imported."""
    code = """
import sys
from typer.testing import CliRunner
from probssl.cli import app
for words in (["--help"], ["fit", "--help"], ["parts"], ["parts", "objective"], ["data", "list", "--json"]):
    assert CliRunner().invoke(app, words).exit_code == 0, words
    heavy = {"torch", "sklearn", "matplotlib", "scipy", "pandas"} & sys.modules.keys()
    assert not heavy or words[0] == "data", (words, heavy)
print("torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **ENVIRONMENT}, check=False
    )
    assert done.stdout == "False\n", done.stderr
