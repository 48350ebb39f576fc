"""Classes and augmentations read from InfoNCE and AnInfoNCE: the losses, the features, and a tiny run of the study."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from probssl.data import ImageSet, load_images
from probssl.encoders import encode
from probssl.objectives import InfoNCE
from probssl.pairings.views import Views
from probssl.studies import experiments, image_sets, mnist_decoder, readout_trials
from probssl.studies.base import Row
from probssl.studies.comparison import references
from probssl.studies.readout import MEASURING, SCALES, Readout, trade_off
from probssl.studies.readout_trials import AVERAGE, CLASSES, FREE, METHODS, PLAIN, SIMCLR, UNTRAINED
from tests.files import write_bars
from tests.studies.fake_images import colours


@pytest.fixture(autouse=True)
def bars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Bars in place of digits and of CIFAR-10."""
    write_bars(tmp_path / "data" / "mnist", 400, 120)
    monkeypatch.setenv("PROBSSL_DATA", str(tmp_path / "data"))
    caches = (image_sets.images_of, mnist_decoder.pixels, mnist_decoder.trained)

    def load(name: str) -> ImageSet:
        return colours() if name == "cifar10" else load_images(name)

    monkeypatch.setattr(image_sets, "load_images", load)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def smoke(method: str, data: str = "cifar10", **changes: Any) -> dict[str, Any]:
    chosen = {"data": data, "method": method, "seed": 0, "augmentations": SIMCLR, "head": data != "mnist", "vae": None}
    return {**chosen, **SCALES["smoke"], **MEASURING["smoke"], **changes}


def test_losses_begin_alike_and_without_the_sphere_the_scale_of_embeddings_does_not_matter() -> None:
    images = torch.from_numpy(colours().train_images[:64])
    views = Views(x=images.float() / 255, augmented=torch.rand(2, 64, 3, 32, 32))
    encoder = readout_trials.build(smoke("InfoNCE")).eval()
    losses = []
    for method in METHODS[:2]:
        energy = readout_trials.energy_of(smoke(method), encoder, images)
        losses.append(InfoNCE(energy, candidates="two-view", pair="augmented")(encoder, views).total.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)

    config = smoke(FREE)
    found = readout_trials.energy_of(config, encoder, images)
    z = encode(torch.nn.Sequential(encoder), images)
    mean = found.pairwise(z, torch.zeros_like(z)).mean().item()
    assert mean == pytest.approx(0.5 / config["temperature"], rel=1e-4)  # ½ Λ̂ ‖z‖², as for a unit vector


def test_embeddings_are_read_as_the_loss_sees_them() -> None:
    images = torch.from_numpy(colours().test_images[:5])
    for method, unit in (("InfoNCE", True), ("AnInfoNCE", True), (FREE, False), (UNTRAINED, False)):
        encoder = readout_trials.build(smoke(method)).eval()
        found = readout_trials.features_of(smoke(method), encoder)
        lengths = encode(found["projection"], images).norm(dim=1)
        assert torch.allclose(lengths, torch.ones(5), atol=1e-4) == unit
        assert encode(found["backbone"], images).shape == (5, SCALES["smoke"]["features"])
        assert encode(found["projection"], images).shape == (5, SCALES["smoke"]["dim"])


def test_digits_are_not_coloured_and_crops_and_flips_do_not_blur() -> None:
    both, plain = (readout_trials.strengths_of(smoke("InfoNCE", "mnist", augmentations=a)) for a in (SIMCLR, PLAIN))
    assert (both.jitter, both.grey, both.blur, both.flip) == (0, 0, 0.5, 0.5)
    assert (plain.crop, plain.flip, plain.blur) == (1, 0.5, 0)
    assert readout_trials.strengths_of(smoke("InfoNCE")).jitter == 0.8


@pytest.mark.parametrize("method", [FREE, UNTRAINED])
def test_a_trial_on_colours(method: str) -> None:
    found = readout_trials.trial(smoke(method, steps=2))
    assert set(found["read"]) == {"backbone", "projection"}
    for read in found["read"].values():
        colour = [value for name, value in read.items() if name.startswith("readout ") and name != AVERAGE]
        assert len(colour) == 5
        assert read[AVERAGE] == pytest.approx(sum(colour) / 5)
        assert all(0 <= value <= 1 for value in read.values())
    assert (found["concentrations"] is None) == (found["loss"] is None) == (method == UNTRAINED)


def test_full_networks_are_the_papers() -> None:
    configs = Readout().configs("full")
    digits, images = (next(c for c in configs if c["data"] == name) for name in ("mnist", "cifar10"))
    assert (digits["network"], digits["dim"], digits["head"]) == ("perceptron", 10, False)
    assert (images["network"], images["dim"], images["head"]) == ("resnet18", 128, True)
    assert encode(readout_trials.build(digits), torch.rand(2, 1, 28, 28)).shape == (2, 10)
    assert encode(readout_trials.build({**images, "width": 4}), torch.rand(2, 3, 32, 32)).shape == (2, 32)


def test_published_numbers_have_rows_of_their_names() -> None:
    study = Readout()
    rows = study.summarise([], "full")
    ours = {(row.setting, row.metric) for row in rows}
    assert {key for key in references(study.name) if not key[0].startswith("ImageNet")} <= ours


def test_a_trade_off_needs_both_sides() -> None:
    def rows(classes: float, augmentations: float) -> list[Row]:
        numbers = {("InfoNCE", CLASSES): 0.9, ("InfoNCE", AVERAGE): 0.6}
        numbers |= {("AnInfoNCE", CLASSES): classes, ("AnInfoNCE", AVERAGE): augmentations}
        return [Row(f"MNIST, {m}", metric, v, None, None, "not comparable") for (m, metric), v in numbers.items()]

    assert trade_off(rows(0.8, 0.7), "mnist", "embedding")
    assert not trade_off(rows(0.95, 0.7), "mnist", "embedding")
    assert not trade_off(rows(0.8, 0.5), "mnist", "embedding")
    assert not trade_off([], "mnist", "embedding")


def test_a_tiny_run(tmp_path: Path) -> None:
    found = experiments.run("anisotropic/readout", "smoke", tmp_path / "out", quiet=True, jobs=1)
    assert not found.failures
    values = {(row.setting, row.metric): row.value for row in found.rows}
    for method in METHODS:
        assert 0 <= (values[f"MNIST, {method}", "readout crop"] or -1) <= 1
        assert math.isfinite(values[f"MNIST, {method}", "linear R²"] or math.nan)
    assert 0 <= (values["MNIST, crops and flips", "k-NN accuracy"] or -1) <= 1
    assert {row.verdict for row in found.rows} == {"not comparable"}
    assert (tmp_path / "out" / "trade-off.png").stat().st_size > 5_000
    assert "trade-off" in found.page.read_text()
