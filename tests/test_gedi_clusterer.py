"""GEDIClusterer: scikit-learn's own checks, clusters found, a density that knows what it has not seen, samples."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import probssl
from probssl.errors import InputError
from probssl.estimators import GEDIClusterer

SMALL = {"steps": 5, "hidden": (16,), "dim": 8, "sgld_steps": 1, "n_clusters": 2}


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
        ({"init": "spectral"}, "init is 'k-means' or 'random', not 'spectral'"),
        ({"prior": "flat"}, "'uniform', 'learnt' or a distribution"),
        ({"generative": -1.0}, "weight of generative"),
    ],
)
def test_refusals(blobs, options, part):
    with pytest.raises(InputError, match=part):
        GEDIClusterer(**options).fit(blobs[0])


def test_without_its_density_it_cannot_sample(blobs):
    clusterer = GEDIClusterer(3, steps=5, generative=0.0, random_state=0).fit(blobs[0])
    with pytest.raises(InputError, match="no density to sample"):
        clusterer.sample(3)
    assert probssl.GEDIClusterer is GEDIClusterer
