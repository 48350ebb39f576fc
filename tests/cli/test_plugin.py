"""Parts of another package: found by entry points, trained by name, and never imported because a file says so."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from probssl.model import Model
from probssl.parts.registry import KINDS
from probssl.runs import Run
from tests.cli.shell import document, refusal, succeed

PLUGIN = Path(__file__).parent.parent / "plugin"


@pytest.fixture(scope="module", autouse=True)
def installed():
    """The package on the path, as pip would have put it there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PLUGIN)
        importlib.invalidate_caches()
        for registry in KINDS.values():
            registry.__dict__.pop("entries", None)
        yield
    for registry in KINDS.values():
        registry.__dict__.pop("entries", None)


@pytest.fixture(scope="module")
def trained(installed, table, tmp_path_factory):
    """A run of parts that are all of the other package."""
    folder = tmp_path_factory.mktemp("plugin") / "run"
    parts = ["--objective", "hinge", "--energy", "taxicab", "--pairing", "flipped"]
    settings = ["objective.margin=2.5", "energy.scale=0.5", "pairing.chance=0.2"]
    words = [word for setting in settings for word in ("--set", setting)]
    found = document("fit", table, "--label", "kind", *parts, *words, "--steps", 5, "--out", folder)
    return folder, found


def test_parts_of_another_package_train_by_name(trained):
    folder, found = trained
    recipe = Run(folder).recipe
    assert (recipe.objective.name, recipe.objective.settings) == ("hinge", {"margin": 2.5})
    assert (recipe.energy.name, recipe.energy.settings) == ("taxicab", {"scale": 0.5})
    assert (recipe.pairing.name, recipe.pairing.settings) == ("flipped", {"chance": 0.2})
    assert 0 <= found["rows"]["trained encoder"]["linear_probe"] <= 1
    assert {"near", "far"} <= Run(folder).rows[-1].keys()


def test_they_are_listed_and_explained():
    assert document("parts", "objective")["objective"]["hinge"] == "from the package ringed"
    assert "self-normalised" in document("parts", "objective")["objective"]["snl"], "a name of ours stays ours"
    shown = succeed("parts", "objective", "hinge").stdout
    assert "related rows near" in shown
    assert "--set objective.margin=…  number  (default: 1.0)" in shown
    assert "how far others have to be" in shown


def test_wrong_settings_are_refused_by_name(table, scratch):
    fit = ["fit", table, "--label", "kind", "--objective", "hinge"]
    said = refusal(*fit, "--set", "objective.margn=2")
    assert all(part in said for part in ("'hinge'", "'margn'", "did you mean 'margin'"))
    assert "margin must be positive" in refusal(*fit, "--set", "objective.margin=-1")
    assert "ringed.nowhere:Net" in refusal("fit", table, "--label", "kind", "--encoder", "gone")
    assert not list(scratch.iterdir())


def test_a_file_alone_never_imports_them(trained, table, scratch):
    folder, _ = trained
    for command in (["embed", folder, table, "--out", "z.npy"], ["evaluate", folder]):
        assert "the objective 'hinge' comes from another package" in refusal(*command)
    named = [word for part in ("objective=hinge", "energy=taxicab", "pairing=flipped") for word in ("--part", part)]
    assert document("embed", folder, table, *named, "--out", "z.npy")["rows"] == 60
    assert document("doctor", folder, *named)["facts"]["loss"] > 0
    assert "--part takes PART=NAME" in refusal("embed", folder, table, "--part", "hinge", "--out", "q.npy")
    assert "'objektive'" in refusal("embed", folder, table, "--part", "objektive=hinge", "--out", "q.npy")


def test_resuming_takes_them_by_name_again(trained, table):
    folder, _ = trained
    parts = ["--objective", "hinge", "--energy", "taxicab", "--pairing", "flipped"]
    assert document("fit", "--resume", "--out", folder, *parts, "--steps", 8)["steps"] == 8


def test_an_encoder_of_any_module(table, scratch):
    words = ["--encoder", "ringed:Net", "--set", "encoder.width=6", "--steps", 3, "--evaluate", "full"]
    found = document("fit", table, "--drop", "kind", *words, "--out", "r")
    assert found["rows"]["trained encoder"]["numerical_rank"] == 3
    assert 'name = "ringed:Net"' in (scratch / "r" / "recipe.toml").read_text()
    said = refusal("embed", "r", table, "--out", "z.npy")
    assert "ringed:Net" in said
    assert "another package" in said
    told = document("embed", "r", table, "--part", "encoder=ringed:Net", "--out", "z.npy")
    assert told == {"out": "z.npy", "rows": 60, "dim": 3}
    model = Model.load(scratch / "r", encoder="ringed:Net")
    np.testing.assert_array_equal(np.load("z.npy"), model.embed(str(table)))
    assert model.backbone.layers[0].out_features == 6


def test_found_in_a_process_of_its_own():
    """Nothing but the path tells the command line of the package, as after pip install."""
    code = f"import sys; sys.path.insert(0, {str(PLUGIN)!r}); sys.argv = ['probssl', 'parts', 'energy', '--json']; "
    code += "from probssl.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["energy"]["taxicab"] == "from the package ringed"
