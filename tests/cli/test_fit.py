"""`probssl fit`: what it writes and prints, on data of every shape, and what it refuses."""

import json

import numpy as np
import pytest

from probssl.parts.recipe import Recipe
from probssl.runs import Run
from tests.cli.shell import document, probssl, refusal, succeed

FILES = {
    "model.safetensors",
    "recipe.toml",
    "source.json",
    "log.jsonl",
    "metrics.json",
    "projection.npz",
    "report.html",
    ".lock",
    "checkpoints",
}


def test_run_folder_and_output(table, scratch):
    result = succeed("fit", table, "--label", "kind", "--steps", 12, "--dim", 3, "--seed", 4)
    out = scratch / "runs" / "table-infonce-euclidean"
    assert {path.name for path in out.iterdir()} == FILES
    assert "runs/table-infonce-euclidean" in result.stdout
    assert (out / "report.html").as_uri() in result.stdout
    assert "Nearest-neighbour accuracy" in result.stdout
    assert "…" not in result.stdout
    assert max(map(len, result.stdout.splitlines()[:-1])) <= 80
    assert "12/12" in result.stderr
    recipe = Recipe.from_toml(out / "recipe.toml")
    assert (recipe.plan["steps"], recipe.seed) == (12, 4)
    assert (recipe.encoder.settings["dim"], recipe.encoder.settings["hidden"]) == (3, [8])
    assert "12 rows that training never saw" in result.stdout


def test_second_run_gets_a_folder_of_its_own(table):
    first, second = (document("fit", table, "--drop", "kind", "--steps", 2)["run"] for _ in range(2))
    assert second == f"{first}-2"


def test_json(table, scratch):
    found = document("fit", table, "--label", "kind", "--steps", 5, "--out", "r")
    about = {"source", "rows", "protocols", "loss", "deaugmenting", "judged", "verdict", "targets"}
    assert {"run", "report", "steps", "seconds", "collapsed", *about} == set(found)
    assert found["loss"]["optimum"]["mean"] < found["loss"]["constant"]["mean"]
    assert list(found["deaugmenting"]) == ["trained encoder", "untrained encoder"]
    assert (found["run"], found["steps"], found["collapsed"]) == ("r", 5, {})
    assert list(found["rows"]) == ["trained encoder", "PCA to 2", "raw features", "untrained encoder"]
    assert found["rows"] == json.loads((scratch / "r" / "metrics.json").read_text())["rows"]


def test_json_and_quiet_leave_standard_error_empty(table):
    assert succeed("fit", table, "--drop", "kind", "--steps", 2, "--out", "r", "--json").stderr == ""
    assert succeed("fit", table, "--label", "kind", "--steps", 2, "--out", "q", "--quiet").stderr == ""


HARD = "--pairing hard-negatives --set pairing.positives=mask-and-noise --set pairing.negatives=gaussian-noise"
CHOICES = (
    "--set objective.pair=augmented --set objective.candidates=two-view",
    "--set objective.anchor=symmetric --energy anisotropic --set energy.initial=5,2",
    "--objective nce --set objective.prior=0.3",
    "--objective spectral --set objective.squared_radius=5",
    "--objective snl --set objective.bias=network --set objective.bias.hidden=3",
    "--objective tricl",
    "--objective align-uniform --set objective.alpha=0.3",
    "--set pairing.preservation=0.2,0.4,0.6,0.8 --set pairing.noise=0.1,0.2,0.3,0.4",
    f"{HARD} --set pairing.negatives.std=1 --set pairing.count=2 --set objective.candidates=batch-and-given",
    "--objective ensemble --set objective.objectives=infonce,snl --pairing in-turn "
    "--set pairing.pairings=mask-and-noise,columns",
)


@pytest.mark.parametrize("words", CHOICES)
def test_what_the_papers_choose_can_be_said(words, table):
    run = document("fit", table, "--label", "kind", "--steps", 2, "--evaluate", "none", "--out", "r", *words.split())
    assert run["steps"] == 2
    assert document("fit", "--resume", "--out", "r", "--steps", 3, "--evaluate", "none")["steps"] == 3


def test_negatives_of_worlds_are_left_out_of_evaluation(scratch):
    found = document(
        "fit", "world:sphere3", "--set", "objective.candidates=batch-and-given", "--steps", 2, "--out", "r"
    )
    assert found["loss"] is None


def test_devices(table, scratch):
    assert "there is no device cuda:99 on this machine" in refusal("fit", table, "--device", "cuda:99")
    assert "'gpu' is not a device: choose cpu" in refusal("fit", table, "--device", "gpu")
    assert not (scratch / "runs").exists()


@pytest.mark.parametrize(
    "text",
    ["a,b\n1,2\n3,1\n4,7\n", "a\n1\n3\n4\n7\n", "a,b\n1,5\n1,6\n"],
    ids=["three rows", "one feature", "two rows, one constant"],
)
def test_tiny_tables(text, scratch):
    (scratch / "t.csv").write_text(text)
    found = document("fit", "t.csv", "--steps", 3, "--out", "r")
    assert "linear_probe" not in found["rows"]["trained encoder"]
    assert found["judged"].endswith(f"splits of {len(text.splitlines()) - 1} rows"), "too few to set some aside"


@pytest.mark.parametrize("name", ["sklearn:wine", "toy:moons"])
def test_named_data(name):
    found = document("fit", name, "--steps", 5, "--out", "r", "--seed", 2**40)
    assert found["source"] == name
    assert 0 <= found["rows"]["trained encoder"]["linear_probe"] <= 1


def test_wide_random_array(scratch):
    np.save(scratch / "x.npy", np.random.default_rng(0).normal(size=(1000, 200)))
    found = document("fit", "x.npy", "--steps", 3, "--dim", 4, "--set", "encoder.hidden=8", "--out", "r")
    assert found["rows"]["trained encoder"]["rankme"] > 1


def test_recipe_file_is_the_start_and_options_override_it(table, scratch):
    (scratch / "mine.toml").write_text('objective = "snl"\n[plan]\nsteps = 3\nlr = 0.002\n[pairing]\nnoise = 0.5\n')
    options = ["--steps", 4, "--set", "pairing.preservation=0.9", "--evaluate", "none"]
    succeed("fit", table, "--label", "kind", "--recipe", "mine.toml", *options, "--out", "r", "-q")
    recipe = Run(scratch / "r").recipe
    assert (recipe.objective.name, recipe.plan["steps"], recipe.plan["lr"]) == ("snl", 4, 0.002)
    assert recipe.pairing.settings == {"noise": 0.5, "preservation": 0.9}
    assert not (scratch / "r" / "metrics.json").exists(), "nothing was to be measured"
    assert (scratch / "r" / "report.html").exists()


BAD_TABLES = {
    "a,b\n1,2\n3\n": ["line 3", "1 field"],
    "a,b\n1,2\n1,2\n": ["no feature left"],
    "a,b\n1,2\n": ["1 row"],
    "a,a\n1,2\n3,4\n": ["'a' (1 and 2)"],
    "": ["empty"],
}


@pytest.mark.parametrize("text", BAD_TABLES)
@pytest.mark.parametrize("flags", [[], ["--json"], ["--out", "r"]], ids=["plain", "json", "out"])
def test_bad_tables_leave_nothing_behind(text, flags, scratch):
    (scratch / "bad.csv").write_text(text)
    said = refusal("fit", "bad.csv", "--steps", 5, *flags)
    assert all(part in said for part in ["bad.csv", *BAD_TABLES[text]]), said
    assert [path.name for path in scratch.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--label", "knd"], ["'knd'", "'kind'"]),
        (["--drop", "nope"], ["'nope'"]),
        (["--drop", "a", "--drop", "b", "--drop", "c", "--drop", "d"], ["no feature left"]),
        (["--objective", "infonc"], ["objective", "'infonce'"]),
        (["--energy", "best"], ["energy 'best'", "cosine"]),
        (["--pairing", "mask"], ["pairing 'mask'", "did you mean 'mask-and-noise'"]),
        (["--objective", "mocov2", "--head", "best"], ["head 'best'", "moco-v2"]),
        (["--objective", "spectral", "--energy", "dot"], ["'spectral'", "energy"]),
        (["--set", "encoder.hidden=8,x"], ["encoder.hidden", "'x'"]),
        (["--set", "encoder.hidden=0"], ["widths", "[0]"]),
        (["--set", "encoder.hiden=8"], ["encoder 'mlp'", "'hiden'", "'hidden'"]),
        (["--set", "objective.clusters=3"], ["objective 'infonce'", "'clusters'", "candidates"]),
        (["--set", "objective.energy.temperature=3"], ["objective.energy", "which energy"]),
        (["--set", "energy.temperature=3"], ["energy 'euclidean'", "'temperature'"]),
        (["--energy", "cosine", "--set", "energy.temperature=hot"], ["energy.temperature", "'hot'", "number"]),
        (["--energy", "cosine", "--set", "energy.temperature=-1"], ["temperature", "-1"]),
        (["--set", "head.layers=3"], ["head"]),
        (["--set", "plan.stepz=3"], ["plan", "'stepz'", "'steps'"]),
        (["--set", "encodr.dim=3"], ["'encodr.dim'", "encoder.dim"]),
        (["--set", "dim=3"], ["--set", "PART.SETTING=VALUE", "'dim=3'"]),
        (["--set", "encoder.dim"], ["--set", "PART.SETTING=VALUE"]),
        (["--evaluate", "some"], ["--evaluate", "some"]),
        (["--test", "1.5"], ["1.5"]),
        (["--test", "nope.csv"], ["'nope.csv'"]),
        (["--ids", "nope"], ["'nope'"]),
        (["--from", "nope"], ["nope", "does not exist"]),
        (["--weights", "nope.safetensors"], ["nope.safetensors"]),
        (["--encoder", "conv"], ["encoder conv is for images", "table of 4 columns"]),
        (["--encoder", "nopackage:Net"], ["nopackage:Net cannot be imported"]),
        (["--encoder", "os:path"], ["os:path is not a class"]),
        (["--encoder", "os:PathLike"], ["os:PathLike"]),
        (["--steps", "0"], ["steps"]),
        (["--dim", "0"], ["dim"]),
        (["--lr", "nan"], ["nan"]),
        (["--set", "pairing.preservation=2"], ["preservation"]),
        (["--set", "pairing.noise=0"], ["noise"]),
        (["--energy", "pnorm", "--set", "energy.p=0.5"], ["finite p of at least 1, not 0.5"]),
        (["--set", "plan.optimiser=best"], ["plan.optimiser", "'best'", "adamw"]),
        (["--batch-size", "1"], ["batch size"]),
        (["--seed", "-1"], ["seed"]),
        (["--recipe", "nope.toml"], ["nope.toml"]),
        (["--resume"], ["--out"]),
    ],
)
def test_bad_options_leave_nothing_behind(options, named, table, scratch):
    label = [] if "--label" in options else ["--label", "kind"]
    said = refusal("fit", table, *label, *options)
    assert all(part in said for part in named), said
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("data", ["nope.csv", "nope", "pmlb:../x", "sklearn:iriss", ". holds no images"])
def test_data_that_is_not_there(data, scratch):
    assert data in refusal("fit", data.split()[0])
    assert list(scratch.iterdir()) == []


def test_no_data():
    assert "DATA" in refusal("fit")


def test_bad_recipe_file(table, scratch):
    wrong = {
        "[plan]\nstepz = 3": "'steps'",
        '[plan]\nsteps = "x"': "plan.steps",
        "[plan]\nsteps = = 3": "TOML",
        "[objectiv]": "'objectiv'",
        'objective = "snl"\nsteps = 3': "older",
    }
    for text, named in wrong.items():
        (scratch / "r.toml").write_text(text)
        said = refusal("fit", table, "--label", "kind", "--recipe", "r.toml")
        assert named in said


def test_out_that_cannot_be_written(table, run, scratch):
    (scratch / "file").write_text("mine")
    (scratch / "folder").mkdir()
    (scratch / "folder" / "thesis.tex").write_text("mine")
    common = ["fit", table, "--label", "kind", "--steps", 2, "--out"]
    assert "file is a file" in refusal(*common, "file", "-q")
    assert "cannot be read or written" in refusal(*common, "file/run", "-q")
    assert "other files" in refusal(*common, "folder", "-q")
    assert "already holds a run" in refusal(*common, run, "-q")
    assert (scratch / "file").read_text() == "mine"
    assert len(list((scratch / "folder").iterdir())) == 1


def test_overwrite(table):
    common = ["fit", table, "--label", "kind", "--out", "r"]
    succeed(*common, "--steps", 2, "-q")
    assert document(*common, "--steps", 3, "--overwrite")["steps"] == 3


def test_failed_training_has_a_code_of_its_own(table, scratch):
    options = ["--label", "kind", "--steps", 20, "--set", "plan.optimiser=sgd", "--lr", 1e30, "--out", "r", "--json"]
    result = probssl("fit", table, *options)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "not finite" in result.stderr
    assert "probssl doctor r" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (scratch / "r" / "model.safetensors").exists()
    assert document("doctor", "r")["findings"][0]["kind"] == "failure"


def test_collapse_is_loud(collapsed):
    folder, result = collapsed
    assert result.exit_code == 0
    assert "warning: representation collapse" in result.stderr
    assert f"probssl doctor {folder}" in result.stderr
    assert "representation" in json.loads(result.stdout)["collapsed"]
