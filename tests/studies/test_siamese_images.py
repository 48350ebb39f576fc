"""Siamese-EBM on images: the methods, what they start from, and a tiny run of the study on bars instead of CIFAR-10."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from probssl.encoders import WithHead, encode, rows_meet
from probssl.energies import Cosine, Euclidean
from probssl.studies import experiments, image_sets, siamese_images, siamese_images_trials
from probssl.studies.base import Row
from probssl.studies.comparison import references
from probssl.studies.siamese_images import EVERYONE, MEASURING, SCALES, SiameseImages, order
from probssl.studies.siamese_images_trials import METHODS, METRICS, ON_PERCEPTRON, PROBE, UNTRAINED
from tests.studies.fake_images import colours


@pytest.fixture(autouse=True)
def bars(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Bars in place of both sets."""
    monkeypatch.setattr(image_sets, "load_images", colours)
    image_sets.images_of.cache_clear()
    yield
    image_sets.images_of.cache_clear()


def smoke(method: str, **changes: Any) -> dict[str, Any]:
    return {"data": "cifar10", "method": method, "seed": 0, **SCALES["smoke"], **MEASURING["smoke"], **changes}


def test_every_method_starts_from_the_same_weights() -> None:
    backbones = []
    for method in EVERYONE:
        encoder = siamese_images_trials.build(smoke(method))
        if method != ON_PERCEPTRON:
            assert isinstance(encoder, WithHead)
            backbones.append(encoder.backbone.state_dict())
    for found in backbones[1:]:
        assert all(torch.equal(found[name], tensor) for name, tensor in backbones[0].items())


def test_energies_views_and_decay_are_the_papers() -> None:
    for name, method in METHODS.items():
        objective = siamese_images_trials.objective_of(smoke(name))
        if method.loss not in ("SimSiam", "Spectral"):
            assert isinstance(objective.energy, Euclidean if method.euclidean else Cosine)
        assert objective.needs.augmented == (2 if method.loss in ("SimCLR", "SimSiam", "Spectral") else 1)
        assert objective.needs.score == method.scored
        decay = siamese_images_trials.plan_of(smoke(name, weight_decay=5e-4)).weight_decay
        assert decay == (0 if method.scored or method.loss == "SNL" else 5e-4)


def test_full_networks_are_the_papers() -> None:
    config = {**SiameseImages().configs("full")[0], "features": 32, "hidden": 12}  # thinner, of the same kind
    found = siamese_images_trials.build(config)
    images = torch.rand(2, 3, 32, 32)
    assert isinstance(found, WithHead)
    assert encode(found, images).shape == (2, 32)
    assert found.eval()(images).shape == (2, 128)
    for name, method in METHODS.items():  # losses on the score refuse batch normalisation
        met = any(rows_meet(layer) for layer in siamese_images_trials.build({**config, "method": name}).modules())
        assert met is not method.scored
    perceptron = siamese_images_trials.build({**config, "method": ON_PERCEPTRON})
    assert [layer.out_features for layer in perceptron if isinstance(layer, torch.nn.Linear)] == [12, 12, 128]
    scale = SCALES["full"]
    assert (scale["features"], scale["hidden"], scale["batch"], scale["rate"]) == (512, 1200, 512, 0.2)
    assert scale["steps"] == 1_000 * (50_000 // scale["batch"])
    assert siamese_images_trials.plan_of({**config, "method": "KL"}).warmup == scale["steps"] // 100  # 10 epochs


def test_published_numbers_have_rows_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siamese_images, "find_images", lambda name: [Path(name)])
    ours = {(row.setting, row.metric) for row in SiameseImages().summarise([], "full")}
    assert set(references("siamese/images")) <= ours


def test_the_order_says_what_is_out_of_it() -> None:
    def rows(**changes: float) -> list[Row]:
        values = {UNTRAINED: 0.3, "SimCLR": 0.8, "SimSiam": 0.5, "Spectral": 0.7, "KL": 0.6, "NCE": 0.6, "SNL": 0.6}
        values |= {"Fisher": 0.2, **changes}
        return [Row(f"CIFAR-10, {name}", PROBE, v, None, None, "not comparable") for name, v in values.items()]

    assert order(rows(), "cifar10") == []
    assert order(rows(Fisher=0.4), "cifar10") == ["Fisher is not below the untrained encoder"]
    assert order(rows(KL=0.2), "cifar10") == ["KL is not above the untrained encoder"]
    assert order(rows(SNL=0.9), "cifar10") == ["SNL is not below SimCLR, SimSiam, Spectral"]
    assert order(rows()[:-1], "cifar10") == ["no Fisher"]


def test_a_tiny_run(tmp_path: Path) -> None:
    found = experiments.run("siamese/images", "smoke", tmp_path / "out", quiet=True, jobs=1)
    assert not found.failures
    assert {row.metric for row in found.rows} == set(METRICS)
    assert len(found.rows) == len(EVERYONE) * len(METRICS)
    assert all(math.isfinite(row.value if row.value is not None else math.nan) for row in found.rows)
    assert {row.verdict for row in found.rows} == {"not comparable"}
    assert (tmp_path / "out" / "scores-cifar10.png").stat().st_size > 5_000
    assert "Fisher on an MLP" in found.page.read_text()
