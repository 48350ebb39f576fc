"""The SimVAE experiments: their models, their styles, and tiny runs of all four on bars instead of digits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from probssl.encoders import MLP, MirrorDecoder, WithHead
from probssl.objectives import VAE
from probssl.studies import (
    base,
    experiments,
    image_sets,
    simvae_ablations,
    simvae_content,
    simvae_generation,
    simvae_models,
    simvae_style,
    simvae_trials,
    styles,
)
from probssl.studies.comparison import references
from probssl.studies.simvae_content import SCALES, order
from probssl.studies.simvae_models import DISCRIMINATIVE, GENERATIVE, METHODS, SETS, UNTRAINED, model_config
from probssl.worlds.sprites import Sprites
from tests.files import write_bars


@pytest.fixture(autouse=True)
def bars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lying bars in the files of MNIST, their place their label."""
    write_bars(tmp_path / "data" / "mnist", 400, 120)
    monkeypatch.setenv("PROBSSL_DATA", str(tmp_path / "data"))
    caches = (image_sets.images_of, simvae_trials.extractors, styles.styled)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def smoke(method: str, **changes: object) -> dict:
    return {**model_config("mnist", method, 0, SCALES["smoke"]), **changes}


@pytest.mark.parametrize("method", METHODS)
def test_a_kept_model_is_as_it_was_trained(method: str) -> None:
    x = simvae_models.pixels("mnist", simvae_models.images_of("mnist").test_images[:5]).float() / 255
    trained = simvae_models.trained(smoke(method))
    kept = trained.pack()
    assert (kept is not None) == (method in GENERATIVE)
    found = simvae_models.trained(smoke(method), kept)
    assert trained.loss == found.loss is not None
    assert torch.equal(trained.encoder(x), found.encoder(x))
    untrained, _ = simvae_models.build(smoke(method))
    assert not torch.equal(untrained.eval()(x), found.encoder(x))
    assert (trained.generative is not None) == (method in GENERATIVE)


def test_networks_are_those_of_the_paper() -> None:
    config = {**smoke("VAE"), "dim": 10}
    del config["hidden"]
    encoder, objective = simvae_models.build(config)
    assert isinstance(encoder, MLP)
    assert encoder.sizes == (784, 500, 500, 2000, 10)
    assert isinstance(objective, VAE)
    assert isinstance(objective.decoder, MirrorDecoder)
    decoders = [part for part in objective.decoder.modules() if isinstance(part, MLP)]
    assert [part.sizes for part in decoders] == [(10, 2000, 500, 500, 784)]
    head, _ = simvae_models.build(smoke("MoCoV2"))
    assert isinstance(head, WithHead), "which the second version of MoCo brought"
    binary = simvae_models.pixels("mnist", simvae_models.images_of("mnist").train_images[:3])
    assert set(binary.unique().tolist()) == {0, 255}


def test_a_beta_vae_of_one_variance_is_a_vae_of_another() -> None:
    """A mean squared error over 2σ² plus β KL has the minimiser of one over 2βσ² plus KL."""
    wide, narrow = (simvae_models.build(smoke(method))[1] for method in ("BetaVAE", "CRVAE"))
    product = wide.weights["divergence"] * wide.likelihood.variance
    assert product == pytest.approx(narrow.likelihood.variance) == 0.02


def test_settings_by_method_and_by_set() -> None:
    scale = {"batch": {"SimVAE": 12, "else": 128}, "dim": {"cifar10": 64, "else": 10}, "steps": 3}
    assert model_config("cifar10", "SimVAE", 1, scale) == {
        "data": "cifar10",
        "method": "SimVAE",
        "seed": 1,
        "batch": 12,
        "dim": 64,
        "steps": 3,
    }
    assert model_config("mnist", "VAE", 0, scale, dim=3)["dim"] == 3


def test_every_published_number_has_a_row() -> None:
    """Of the sets that are here; MoCo v2 and faces are named as the paper names them."""
    for experiment in ("simvae/content", "simvae/generation"):
        for setting, _ in references(experiment):
            data, method = setting.split(", ", 1)
            assert data in (*SETS.values(), "CelebA")
            assert method in (*METHODS, UNTRAINED)
    assert all(("MNIST, " + method, "k-NN") in references("simvae/content") for method in METHODS)


def test_order_is_of_the_least_and_the_best() -> None:
    def rows(generative: float, discriminative: float) -> list[experiments.StudyResult]:
        values = {**dict.fromkeys(GENERATIVE, generative), **dict.fromkeys(DISCRIMINATIVE, discriminative)}
        return [base.row_of("simvae/content", f"MNIST, {m}", "k-NN", [v], "laptop") for m, v in values.items()]

    assert order(rows(0.9, 0.8), "mnist").startswith("yes")
    assert order(rows(0.8, 0.9), "mnist").startswith("no")
    assert order([], "mnist") == "not all methods were trained"


def test_styles_are_what_was_put_there() -> None:
    spot = torch.zeros(1, 1, 28, 28)
    spot[0, 0, 13:15, 24:26] = 1  # right of the centre
    zero = torch.zeros(1)

    def centre(angle: float = 0.0, right: float = 0.0, down: float = 0.0) -> np.ndarray:
        drawn = styles.restyled(spot, zero + angle, zero, zero + right, zero + down)[0].sum(0).double()
        places = torch.arange(32) - 15.5
        return np.array([(drawn.sum(0) * places).sum(), (drawn.sum(1) * places).sum()]) / float(drawn.sum())

    start = centre()
    assert start[0] == pytest.approx(11 * 20 / 28, abs=0.4)
    np.testing.assert_allclose(centre(right=3.0, down=-2.0) - start, [3, -2], atol=0.1)
    np.testing.assert_allclose(centre(angle=math.pi / 2), [0, -start[0]], atol=0.3, err_msg="anticlockwise")
    for hue, brightest in ((0.0, 0), (1 / 3, 1), (2 / 3, 2)):
        drawn = styles.restyled(spot, zero, zero + hue, zero, zero)[0].amax((1, 2))
        assert int(drawn.argmax()) == brightest
        assert float(drawn.min() / drawn.max()) == pytest.approx(1 - styles.SATURATION, abs=1e-5)


def test_sprites_and_digits_know_their_factors() -> None:
    for name, content in styles.CONTENT.items():
        made = styles.styled(name)
        assert made.images.shape[1:] == (32, 32)
        assert len(made.images.test_images) == len(next(iter(made.test.values())).values)
        assert content not in made.train
        assert len(made.train) == 4


def test_the_orientation_of_a_sprite_is_one_up_to_its_symmetry() -> None:
    world = Sprites(styles.SIZE)
    for number, name in enumerate(world.shapes, 1):
        turns = torch.arange(styles.FOLDS[name], dtype=torch.float64) * 2 * math.pi / styles.FOLDS[name] + 0.3
        drawn = world.render(torch.tensor([[number, 1.0, float(turn), 0.4, 0.6] for turn in turns]).double())
        torch.testing.assert_close(drawn, drawn[:1].expand_as(drawn), atol=1e-5, rtol=0)
        less = world.render(torch.tensor([[number, 1.0, 0.3 + math.pi / styles.FOLDS[name], 0.4, 0.6]]).double())
        assert float((less - drawn[0]).abs().max()) > 0.1


def test_colours_are_moved_where_there_are_any() -> None:
    settings = {(c["model"]["data"], c["setting"]) for c in simvae_ablations.Ablations().configs("full")}
    assert ("cifar10", "colour") in settings
    assert ("mnist", "colour") not in settings
    made = simvae_models.pairing_of({"data": "cifar10", "colour": 0.4}).strengths
    assert (made.brightness, made.contrast, made.saturation, made.hue) == (0.4, 0.4, 0.4, 0.1)


@pytest.mark.parametrize("name", ["simvae/content", "simvae/generation", "simvae/style", "simvae/ablations"])
def test_tiny_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(styles, "TRAIN", 200)
    monkeypatch.setattr(styles, "TEST", 80)
    few = ("VAE", "SimVAE", "SimCLR")
    for study in (simvae_content.Content, simvae_style.Style):
        monkeypatch.setattr(study, "methods", (*few, UNTRAINED))
    found = experiments.run(name, "smoke", tmp_path / "out", quiet=True, jobs=1)
    assert not found.failures
    assert all(row.value is not None and math.isfinite(row.value) for row in found.rows)
    assert found.page.is_file()
    assert list((tmp_path / "out").glob("*.png"))
    assert all(row.verdict == "not comparable" for row in found.rows)


def test_the_models_of_another_study_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for study in (simvae_content.Content, simvae_generation.Generation):
        monkeypatch.setattr(study, "methods", ("VAE", "SimVAE"))
    alone = experiments.run("simvae/generation", "smoke", tmp_path / "generation", quiet=True, jobs=1)
    experiments.run("simvae/content", "smoke", tmp_path / "simvae" / "content", quiet=True, jobs=1)
    monkeypatch.setattr(simvae_models, "train", None)
    found = experiments.run("simvae/generation", "smoke", tmp_path / "simvae" / "generation", quiet=True, jobs=1)
    assert not found.failures
    assert found.rows == alone.rows
