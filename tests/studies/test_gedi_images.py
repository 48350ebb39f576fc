"""GEDI on images: the models, what is measured of them, and tiny runs of both studies on bars instead of digits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from probssl.model.density import SCORES
from probssl.objectives.clustering import invariance, prior_cross_entropy
from probssl.studies import experiments, gedi_images_trials, gedi_models, image_sets
from probssl.studies.comparison import references
from probssl.studies.gedi_images import SCALES, GediImages, left_out
from probssl.studies.gedi_models import METHODS, SETS, UNTRAINED, model_config
from probssl.studies.gedi_ood import GediOOD, effect
from tests.files import write_bars


@pytest.fixture(autouse=True)
def bars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lying bars in the files of MNIST, standing ones in those of Fashion-MNIST, their place their label."""
    for name in ("mnist", "fashion-mnist"):
        write_bars(tmp_path / "data" / name, 400, 120, standing=name == "fashion-mnist")
    monkeypatch.setenv("PROBSSL_DATA", str(tmp_path / "data"))
    caches = (image_sets.images_of, gedi_images_trials.classifier, gedi_images_trials.extractors)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def smoke(method: str, **changes: object) -> dict:
    return {**model_config("mnist", method, 0, SCALES["smoke"]), **changes}


@pytest.mark.parametrize("method", METHODS)
def test_a_kept_model_is_as_it_was_trained(method: str) -> None:
    x = gedi_models.floats(image_sets.images_of("mnist").test_images[:5])
    trained = gedi_models.trained(smoke(method))
    found = gedi_models.trained(smoke(method), trained.pack())
    assert trained.loss == found.loss is not None
    torch.testing.assert_close(trained.logits(x), found.logits(x), rtol=0, atol=0)
    untrained, _, _ = gedi_models.build(smoke(method))
    assert not torch.equal(untrained.eval()(x), found.encoder(x))


def test_what_a_model_says_of_images_is_one_joint_density() -> None:
    model = gedi_models.trained(smoke("GEDI"))
    x = gedi_models.floats(image_sets.images_of("mnist").test_images[:7])
    joint = model.log_density(x).unsqueeze(1) + model.log_probabilities(x)
    torch.testing.assert_close(joint, model.logits(x))


def test_two_views_close_the_trap_that_an_image_and_its_noisy_copy_leave_open() -> None:
    invariance_weight, balance, classes = 5.0, 10.0, 10
    share = (invariance_weight + balance / classes) / (invariance_weight + balance)  # 0.4
    originals = torch.full((1, classes), (1 - share) / (classes - 1)).log()
    originals[0, 0] = math.log(share)
    sure = torch.zeros(1, classes)
    sure[0, 0] = 60.0
    pair = [logits.double().requires_grad_() for logits in (originals, sure)]
    uniform = torch.full((classes,), 1 / classes, dtype=torch.float64)
    of_originals, of_copies = (logits.expand(8, classes).log_softmax(-1) for logits in pair)
    loss = invariance_weight * invariance(of_originals, of_copies)
    loss = loss + balance * prior_cross_entropy(uniform, of_originals)
    assert loss.item() == pytest.approx(29.870, abs=1e-3)  # where all clusters in use would give 10 ln 10 = 23.03
    for slope in torch.autograd.grad(loss, pair):
        assert slope.abs().max() < 1e-6  # no step leads out

    of_both = torch.cat([of_originals, of_copies]).detach()
    assert prior_cross_entropy(uniform, of_both).item() > prior_cross_entropy(uniform, of_originals).item() + 0.4


def test_the_projection_of_barlow_twins_is_standardised_over_training_images() -> None:
    model = gedi_models.trained(smoke("BarlowTwins"))
    with torch.no_grad():
        z = model.logits(gedi_models.floats(image_sets.images_of("mnist").train_images[:200])).numpy()
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(z.std(0, ddof=1), 1, atol=1e-3)


def test_scores_are_those_of_autograd_image_by_image() -> None:
    model = gedi_models.trained(smoke("JEM"))
    x = gedi_models.floats(image_sets.images_of("mnist").test_images[:3])
    found = gedi_images_trials.scores(model, x)
    assert set(found) == set(SCORES)
    for row, image in enumerate(x):
        image = image.unsqueeze(0).requires_grad_()
        density = model.log_density(image)
        (slope,) = torch.autograd.grad(density.sum(), image)
        assert found["score norm"][row] == pytest.approx(-slope.norm().item(), rel=1e-4)
        assert found["log density"][row] == pytest.approx(density.item(), rel=1e-5)


def test_images_outside_take_the_shape_of_those_trained_on() -> None:
    grey = gedi_models.floats(image_sets.images_of("mnist").test_images[:4])
    padded = gedi_images_trials.outside_of("mnist", (3, 32, 32), 4)
    assert padded.shape == (4, 3, 32, 32)
    torch.testing.assert_close(padded[:, :, 2:-2, 2:-2], grey.expand(-1, 3, -1, -1))
    assert padded[:, :, :2].abs().sum() == 0
    back = torch.nn.functional.pad(padded, (-2, -2, -2, -2)).mean(1, keepdim=True)
    torch.testing.assert_close(back, grey)
    colours = gedi_images_trials.outside_of(gedi_images_trials.CONSTANT, (3, 8, 8), 6)
    assert colours.flatten(2).std(2).max() < 1e-6
    assert colours[:, :, 0, 0].std() > 0.1


def test_the_classifiers_features_tell_bars_from_noise() -> None:
    chosen, measuring = smoke("GEDI", rows=400), {"test": 120, "classifier": 60}
    data = gedi_models.floats(image_sets.images_of("mnist").train_images[:100]).numpy()
    noise = np.random.default_rng(0).uniform(size=data.shape).astype(np.float32)
    near, far = (gedi_images_trials.distances(images, chosen, measuring) for images in (data, noise))
    assert set(near) == {"FD(classifier)", "FD(pixel PCA 32)"}
    assert all(far[title] > 2 * near[title] for title in near)


def test_published_numbers_have_rows_of_their_names() -> None:
    settings = {f"{title}, {method}" for title in SETS.values() for method in METHODS}
    assert {setting for setting, _ in references("gedi/images")} <= settings
    pairs = {f"{a} against {b}, {m}" for a in SETS.values() for b in SETS.values() for m in METHODS}
    assert {setting for setting, _ in references("gedi/ood")} <= pairs
    assert {metric for _, metric in references("gedi/ood")} <= {f"AUROC of the {score}" for score in SCORES}


def test_both_studies_train_the_same_models() -> None:
    budget = "full"
    images = [config["model"] for config in GediImages().configs(budget) if "model" in config]
    ood = [config["model"] for config in GediOOD().configs(budget)]
    assert images == [config for config in ood if config["method"] != UNTRAINED]
    assert {config["epochs"] for config in images} == {200}  # SVHN, with 20, is not here
    assert "SVHN and CIFAR-100 are not in the data directory" in left_out()


def test_better_and_worse_need_intervals_apart() -> None:
    def results(ours: tuple[float, float], theirs: tuple[float, float]) -> list:
        return [
            (
                {"model": {"data": "mnist", "method": method}},
                {"detections": {"x": {"score norm": {"auroc": sum(ends) / 2, "low": ends[0], "high": ends[1]}}}},
            )
            for method, ends in (("GEDI", ours), ("GEDI no gen", theirs))
        ]

    assert effect(results((0.7, 0.8), (0.5, 0.6)), "mnist", "x", "score norm") == "better"
    assert effect(results((0.1, 0.2), (0.5, 0.6)), "mnist", "x", "score norm") == "worse"
    assert effect(results((0.5, 0.7), (0.6, 0.8)), "mnist", "x", "score norm") == "no clear difference"


def test_tiny_runs_of_both_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = experiments.run("gedi/images", "smoke", tmp_path / "gedi" / "images", quiet=True, jobs=1)
    assert not found.failures
    values = {(row.setting, row.metric): row.value for row in found.rows}
    for method in METHODS:
        assert 0 <= values[f"MNIST, {method}", "NMI"] <= 1  # type: ignore[operator]
        assert math.isfinite(values[f"MNIST, {method}", "FD(classifier)"] or math.nan)
    assert {row.verdict for row in found.rows} == {"not comparable"}
    assert (tmp_path / "gedi" / "images" / "samples-mnist.png").stat().st_size > 5_000
    elsewhere = experiments.run("gedi/ood", "smoke", tmp_path / "ood", quiet=True, jobs=1)
    monkeypatch.setattr(gedi_models, "train", None)  # the models of gedi/images are beside it: none is trained again
    other = experiments.run("gedi/ood", "smoke", tmp_path / "gedi" / "ood", quiet=True, jobs=1)
    assert not other.failures
    assert other.rows == elsewhere.rows
    assert all(0 <= (row.value if row.value is not None else -1) <= 1 for row in other.rows)
    assert len(other.rows) == 3 * len(SCORES) * (len(METHODS) + 1)
