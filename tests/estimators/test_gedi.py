"""GEDIClusterer: scikit-learn's own checks, clusters found, a density that knows what it has not seen, samples."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import probssl
from probssl.errors import InputError
from probssl.estimators import GEDIClusterer
from probssl.pairings import GaussianNoise

SMALL = {
    "steps": 5,
    "dim": 8,
    "n_clusters": 2,
    "settings": {"encoder.hidden": (16,), "objective.sampler.steps": 1},
}


@parametrize_with_checks([GEDIClusterer(**SMALL), GEDIClusterer(**SMALL, generative=0.0, prior="learnt")])
@pytest.mark.filterwarnings("ignore::probssl.errors.CollapseWarning")
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(600, n_features=4, centers=3, cluster_std=0.7, random_state=3)


@pytest.fixture(scope="module")
def fitted(blobs):
    return GEDIClusterer(3, steps=300, random_state=0).fit(blobs[0])


def test_clusters_are_found(blobs, fitted):
    x, y = blobs
    assert adjusted_rand_score(y, fitted.labels_) > 0.95
    assert np.array_equal(fitted.predict(x), fitted.labels_)
    p = fitted.predict_proba(x)
    np.testing.assert_allclose(p.sum(1), 1)
    assert np.array_equal(p.argmax(1), fitted.labels_)
    assert fitted.transform(x).shape == (600, 3)
    assert not fitted.collapsed_
    assert {"generative", "invariance", "prior"} <= fitted.history_[-1].keys()


def test_rows_far_from_the_data_are_unlikely(blobs, fitted):
    inside, rng = blobs[0], np.random.default_rng(0)
    outside = rng.uniform(-25, 25, inside.shape)
    scores = np.concatenate([fitted.score_samples(inside), fitted.score_samples(outside)])
    assert roc_auc_score([1] * 600 + [0] * 600, scores) > 0.9
    assert fitted.score(inside) == pytest.approx(fitted.score_samples(inside).mean())


def test_samples_look_like_rows(blobs, fitted):
    x = blobs[0]
    drawn, labels = fitted.sample(1500)
    assert drawn.shape == (1500, 4)
    assert labels.shape == (1500,)
    assert np.array_equal(fitted.predict(drawn), labels)
    scale = x.std(0)
    assert float(np.abs((drawn.mean(0) - x.mean(0)) / scale).max()) < 0.5
    assert np.array_equal(fitted.sample(5)[0], fitted.sample(5)[0])
    with pytest.raises(InputError, match="at least 1, not 0 and 200"):
        fitted.sample(0)


def test_a_seed_decides_the_result_and_a_pickle_keeps_it(blobs, fitted):
    again = clone(fitted).fit(blobs[0])
    assert np.array_equal(again.predict_proba(blobs[0]), fitted.predict_proba(blobs[0]))
    kept = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(kept.sample(3)[0], fitted.sample(3)[0])


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"n_clusters": 0}, "n_clusters must lie between 1 and the 600 rows, not 0"),
        ({"init": "spectral"}, "init must be 'k-means' or 'random', not 'spectral'"),
        ({"prior": "flat"}, "prior cannot be 'flat': choose uniform, learnt"),
        ({"prior": [0.5, 0.5]}, "the prior must be 8 numbers"),
        ({"generative": -1.0}, "weight of generative"),
        ({"settings": {"objective.sampler.step": 1}}, "no setting 'step': did you mean 'steps'?"),
        ({"encoder": "conv"}, "is for images"),
    ],
)
def test_refusals(blobs, options, part):
    with pytest.raises(InputError, match=part):
        GEDIClusterer(**options).fit(blobs[0])


def test_defaults(fitted):
    recipe = fitted.recipe_.as_dict()
    assert recipe["pairing"] == {"name": "mask-and-noise", "preservation": 0.7, "noise": 0.5}
    assert recipe["encoder"]["hidden"] == [64]
    assert {recipe["plan"][name] for name in ("steps", "batch_size", "lr", "clip_norm")} == {300, 256, 0.003, 1.0}
    objective = recipe["objective"]
    told = {"generative": 0.1, "invariance": 1.0, "balance": 4.0, "magnitude": 0.01, "chains": 1000, "base_scale": 3.0}
    assert {name: objective[name] for name in told} == told
    assert objective["reinitialise"] == 0.05
    assert (objective["sampler"]["steps"], objective["sampler"]["step_size"]) == (5, 0.02)


def test_chains_begin_where_the_data_lies(blobs):
    x = np.column_stack([blobs[0], np.ones(600)])  # a feature without spread has none in the chains either
    start = GEDIClusterer(3, steps=1, random_state=0).fit(x).objective_.buffer.start
    np.testing.assert_allclose(start.scale, [1, 1, 1, 1, 0], atol=1e-5)


def test_parts_of_your_own(blobs):
    network = nn.Linear(4, 3)
    before = network.weight.clone()
    clusterer = GEDIClusterer(
        3, prior=np.array([0.2, 0.3, 0.5]), pairing=GaussianNoise(0.2), encoder=network, steps=5, random_state=0
    ).fit(blobs[0])
    assert torch.equal(network.weight, before)
    assert not torch.equal(clusterer.encoder_.weight, before)
    assert isinstance(clusterer.model_.pairing, GaussianNoise)
    np.testing.assert_allclose(clusterer.objective_.prior.numpy(), [0.2, 0.3, 0.5])


def test_the_model_can_be_saved(blobs, fitted, tmp_path):
    fitted.model_.save(tmp_path / "model.safetensors")
    model = probssl.Model.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(model.embed(blobs[0]), fitted.transform(blobs[0]), rtol=1e-3, atol=1e-3)
    assert torch.equal(model.objective.buffer.chains, fitted.objective_.buffer.chains)


def test_without_its_density_it_cannot_sample(blobs):
    clusterer = GEDIClusterer(3, steps=5, generative=0.0, random_state=0).fit(blobs[0])
    with pytest.raises(InputError, match="no density to sample"):
        clusterer.sample(3)
    assert probssl.GEDIClusterer is GEDIClusterer
