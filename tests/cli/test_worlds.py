"""Worlds as data on the command line: trained on fresh draws, and asked how well their latents were found."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import probssl
from probssl.data import load, names
from probssl.errors import InputError
from probssl.model import Model
from probssl.parts.recipe import Named, Recipe
from probssl.parts.registry import KINDS
from probssl.runs import Run
from probssl.runs.doctor import REMEDIES, _remedies
from tests.cli.shell import document, refusal, succeed
from tests.cli.shell import probssl as command

FIT = ["fit", "world:sphere3", "--objective", "infonce", "--energy", "cosine", "--set", "encoder.hidden=32,32"]


@pytest.fixture(scope="module", autouse=True)
def few_rows():
    """Worlds are loaded as fewer rows, which is enough here and quick to evaluate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names, "WORLD_ROWS", 400)
        yield


@pytest.fixture(scope="module")
def trained(few_rows, tmp_path_factory):
    """A run on a small world that has had time to find its latents, and what it printed."""
    folder = tmp_path_factory.mktemp("worlds") / "run"
    return folder, document(*FIT, "--steps", 400, "--seed", 2, "--out", folder)


def test_latents_are_found(trained):
    folder, found = trained
    assert list(found["rows"]) == ["trained encoder", "PCA to 3", "raw features", "untrained encoder"]
    scores = {name: values["linear_r2"] for name, values in found["rows"].items()}
    assert scores["trained encoder"] > 0.95 > 0.9 > max(scores["raw features"], scores["untrained encoder"])
    assert 0 < found["rows"]["trained encoder"]["mcc"] <= 1
    assert found["loss"]["optimum"]["mean"] < found["loss"]["model"]["mean"] < found["loss"]["constant"]["mean"]
    assert found["loss"]["share_learnt"] > 0.9
    assert found["deaugmenting"]["trained encoder"]["kl_exact_model"] < 0.2
    assert found["protocols"]["linear_r2"].startswith("affine fit")
    verdict = found["verdict"]
    assert all("in linear R² of the latents by 0." in sentence for sentence in verdict["sentences"])
    assert verdict["against"]["PCA to 3"]["linear_r2"]["mean"] == pytest.approx(
        scores["trained encoder"] - scores["PCA to 3"]
    )
    assert verdict["wins"]["linear_r2"] == "trained encoder"
    resolved = Run(folder).resolved
    assert (resolved.facts.name, resolved.energy.settings()) == ("sphere3", {"temperature": 1 / 3})
    assert resolved.recipe.encoder.settings["hidden"] == (32, 32)
    assert resolved.recipe.encoder.settings["dim"] == 3
    assert "pairing" not in (folder / "recipe.toml").read_text()


def test_what_is_shown_fits(trained):
    shown = succeed("evaluate", trained[0]).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "↑ Latents found, linear R²" in shown
    assert "↑ Latents found, one by one (MCC)" in shown
    page = (trained[0] / "report.html").read_text()
    assert "Latents found, linear R²" in page
    assert "drawn afresh from the world" in page


def test_evaluate_repeats_the_run_and_takes_other_rows(trained, scratch):
    folder, found = trained
    assert document("evaluate", folder, "--seed", 2)["rows"] == found["rows"]
    assert document("evaluate", folder, "world:sphere3", "--seed", 2)["rows"] == found["rows"]
    np.save("rows.npy", load("world:sphere3", seed=2).features)
    other = document("evaluate", folder, "rows.npy")
    assert (other["loss"], other["deaugmenting"]) == (None, {})
    assert not {"linear_r2", "alignment"} & other["rows"]["trained encoder"].keys()
    elsewhere = document("evaluate", folder, "world:box3")
    assert elsewhere["loss"] is None
    assert "linear_r2" in elsewhere["rows"]["trained encoder"]
    assert "4 columns" in refusal("evaluate", folder, "world:sphere4")


def test_embed(trained):
    assert document("embed", trained[0], "world:sphere3", "--out", "z.npy") == {"out": "z.npy", "rows": 400, "dim": 3}
    z = np.load("z.npy")
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1, rtol=1e-5)
    table = load("world:sphere3", seed=2)
    np.testing.assert_array_equal(z, Model.load(trained[0]).embed(table))
    assert probssl.evaluate(Model.load(trained[0]), table, seed=2).rows["trained encoder"]["linear_r2"] > 0.95


def test_doctor(trained):
    told = document("doctor", trained[0])
    assert told["healthy"] is True
    assert any("knew the world exactly" in note for note in told["notes"])
    resolved = Model.untrained(Recipe(energy="euclidean"), load("world:sphere3")).resolved
    remedies = _remedies("dimension", resolved)
    assert remedies
    assert len(remedies) < len(REMEDIES["dimension"])
    assert not [remedy for remedy in remedies if "preservation" in remedy or "asymmetric" in remedy]


def test_stopped_and_resumed_is_the_run_that_was_not_stopped(scratch, monkeypatch):
    from probssl.training import loop

    sizes = ["--set", "encoder.hidden=8", "--evaluate", "none"]
    options = ["fit", "world:box2", *sizes, "--steps", 60, "--seed", 3]
    succeed(*options, "--out", "whole", "-q")
    forward = loop._Run._forward

    def interrupted(self):
        if self.step == 40:
            raise KeyboardInterrupt
        return forward(self)

    with monkeypatch.context() as patch:
        patch.setattr(loop._Run, "_forward", interrupted)
        assert command(*options, "--out", "stopped", "-q").exit_code == 130
    assert not (scratch / "stopped" / "model.safetensors").exists()
    assert "plan.lr = 0.01" in refusal("fit", "--resume", "--out", "stopped", "--lr", 0.5, "-q")
    assert "world:box3" in refusal("fit", "world:box3", "--resume", "--out", "stopped", "-q")
    succeed("fit", "--resume", "--out", "stopped", "-q")
    whole, stopped = (load_file(scratch / name / "model.safetensors") for name in ("whole", "stopped"))
    assert all(whole[name].equal(stopped[name]) for name in whole)


@pytest.mark.parametrize(
    ("world", "objective", "energy"),
    [
        ("sphere2", "infonce", "cosine"),
        ("box2", "infonce", "pnorm"),
        ("normal2", "infonce", "euclidean"),
        ("anisotropic2", "aninfonce", "anisotropic"),
    ],
)
def test_each_world_begins_with_what_suits_it(world, objective, energy):
    table = load(f"world:{world}")
    model = Model.untrained(Recipe(), table)
    assert (model.resolved.called("objective"), model.resolved.called("energy")) == (objective, energy)
    found = probssl.evaluate(model, table)
    assert all(found.rows["untrained encoder"][name] is not None for name in ("linear_r2", "mcc", "rankme"))
    assert found.loss.constant.mean == pytest.approx(np.log(256))
    assert 0 < found.deaugmenting["trained encoder"].exact_nll < np.log(400)


NOT_ON_WORLDS = {
    "fisher": "needs the score",
    "sliced-fisher": "needs the score",
    "deepcluster": "remembers the rows",
    "instance": "remembers the rows",
    "ensemble": "needs objective.objectives to be given",
}


@pytest.mark.parametrize("name", KINDS["objective"])
def test_every_loss_trains_on_a_world_or_says_why_not(name, tmp_path):
    encoder = Named("latent", {"hidden": [8]})
    recipe = Recipe(objective=Named(name), encoder=encoder, plan={"steps": 2, "batch_size": 32})
    if name in NOT_ON_WORLDS:
        with pytest.raises(InputError, match=NOT_ON_WORLDS[name]):
            probssl.fit(load("world:normal2"), recipe=recipe, out=tmp_path)
    else:
        assert probssl.fit(load("world:normal2"), recipe=recipe, evaluate="none", out=tmp_path).step == 2


def test_asking_for_another_loss_or_energy_on_the_anisotropic_world():
    table = load("world:anisotropic4")
    asked = Model.untrained(Recipe(objective="infonce"), table).resolved
    assert (asked.called("energy"), asked.energy.settings()) == ("cosine", {"temperature": 0.25})
    asked = Model.untrained(Recipe(energy="euclidean"), table).resolved
    assert (asked.called("objective"), asked.called("energy")) == ("infonce", "euclidean")


def test_aninfonce_trains_tables_too(table):
    found = document("fit", table, "--label", "kind", "--objective", "aninfonce", "--steps", 5, "--out", "r")
    assert found["loss"]["constant"]["mean"] > 0
    assert Model.load("r").resolved.called("energy") == "anisotropic"
    fit = ["fit", table, "--label", "kind", "--objective", "aninfonce"]
    assert "defined with the anisotropic energy" in refusal(*fit, "--energy", "cosine")


REFUSED = {
    ("--set", "pairing.noise=0.25"): "leave pairing out",
    ("--pairing", "mask-and-noise"): "leave pairing out",
    ("--objective", "fisher"): "needs the score",
    ("--objective", "sliced-fisher"): "needs the score",
    ("--label", "x0"): "leave out --label and --drop",
    ("--drop", "x0"): "leave out --label and --drop",
}


@pytest.mark.parametrize("options", REFUSED, ids=" ".join)
def test_what_a_world_has_no_use_for_is_refused(options, scratch):
    said = refusal("fit", "world:sphere3", *options)
    assert REFUSED[options] in said
    assert "world:sphere3" in said
    assert list(scratch.iterdir()) == []


def test_refusals_elsewhere(scratch):
    assert "'world:sphere3'" in refusal("fit", "world:sphre3")
    assert "from 2 to 64" in refusal("fit", "world:sphere65")
    assert "needs no file" in refusal("data", "fetch", "world:sphere3")
    (scratch / "noisy.toml").write_text("[pairing]\nnoise = 0.1\n")
    assert "leave pairing out" in refusal("fit", "world:sphere3", "--recipe", "noisy.toml")
    assert "world:anisotropic10" in json.dumps(document("data", "list"))


@pytest.mark.parametrize("objective", ["moco", "simvae", "vae", "gedi"])
def test_losses_are_of_observations_as_in_training(objective, tmp_path):
    steps = 1 if objective == "gedi" else 60
    found = document("fit", "world:sphere3", "--objective", objective, "--steps", steps, "--out", tmp_path / "run")
    if objective != "gedi":
        assert found["loss"]["constant"] is None
    model = Run(tmp_path / "run").model
    objective, world = model.objective.without_sampling().eval(), model.world
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        drawn = [world.draw(found["loss"]["batch_size"], objective.needs, chance) for _ in range(8)]
        losses = np.array([objective(model.encoder.eval(), views).total.item() for views in drawn])
    told = found["loss"]["model"]
    error = np.hypot(told["error"], losses.std(ddof=1) / len(losses) ** 0.5)
    assert told["mean"] == pytest.approx(losses.mean(), abs=5 * error + 0.02)
