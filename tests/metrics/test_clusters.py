"""The mixture probe against scikit-learn and loops, and scores of clusters against all matchings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from probssl.errors import InputError
from probssl.metrics import clustering_scores, gmm_probe
from tests.metrics.codes import blobs, gaussian


def pairs(labels, clusters):
    """Pairs of rows together in both, in labels, in clusters, and of all."""
    together = [(labels[i] == labels[j], clusters[i] == clusters[j]) for i, j in itertools.combinations(range(40), 2)]
    return (
        sum(a and b for a, b in together),
        sum(a for a, _ in together),
        sum(b for _, b in together),
        len(together),
    )


@pytest.mark.parametrize("clusters", [2, 4, 6])
def test_scores_against_loops(clusters):
    chance = np.random.default_rng(clusters)
    y, c = chance.integers(4, size=40), chance.integers(clusters, size=40)
    c[:15] = y[:15] % clusters
    names = range(max(4, clusters))
    best = max(np.mean(np.array(p)[c] == y) for p in itertools.permutations(names))
    both, of_y, of_c, all_pairs = pairs(y, c)
    expected = of_y * of_c / all_pairs
    joint = np.array([[np.mean((y == i) & (c == j)) for j in names] for i in names])
    flat = joint[joint > 0]
    entropies = [-np.sum(p[p > 0] * np.log(p[p > 0])) for p in (joint.sum(0), joint.sum(1))]
    information = sum(entropies) + np.sum(flat * np.log(flat))
    found = clustering_scores(y, c)
    assert found.accuracy == pytest.approx(best)
    assert found.nmi == pytest.approx(2 * information / sum(entropies))
    assert found.ari == pytest.approx((both - expected) / ((of_y + of_c) / 2 - expected))


def test_scores_at_their_ends():
    y = np.arange(60) % 3
    same = clustering_scores(np.array(list("abc"))[y], (y + 1) % 3)
    assert (same.accuracy, same.nmi, same.ari) == (1.0, pytest.approx(1.0), 1.0)
    one = clustering_scores(np.array([0] * 40 + [1] * 20), np.zeros(60, dtype=int))
    assert (one.accuracy, one.nmi, one.ari) == (pytest.approx(2 / 3), pytest.approx(0, abs=1e-12), 0.0)
    with pytest.raises(InputError, match="59 labels for 60 rows"):
        clustering_scores(y, y[1:])


def correlated(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Crossed long ellipses, which round clusters cannot tell apart."""
    chance = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    z = chance.normal(size=(rows, 2)) * np.where(y[:, None] == 0, [8.0, 0.3], [0.3, 8.0])
    return z + 3 * y[:, None], y


def test_full_covariances_tell_ellipses_apart():
    z, y = correlated(800)
    found = gmm_probe(z, y, splits=2)
    assert found.accuracy.mean > 0.93
    assert found.nmi.mean > 0.6
    assert found.ari.mean > 0.7
    reference = GaussianMixture(2, n_init=5, random_state=0).fit(z)
    assert found.accuracy.mean == pytest.approx(clustering_scores(y, reference.predict(z)).accuracy, abs=0.03)
    assert found.accuracy.converged


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_neither_scale_nor_dependent_features_matter(scale):
    z, y = blobs(240)
    wide = scale * np.hstack([z, z[:, :2], np.ones((240, 1))]) + 5 * scale
    found = gmm_probe(wide, y, splits=2)
    assert (found.accuracy.mean, found.nmi.mean, found.ari.mean) == (1.0, pytest.approx(1.0), 1.0)


def test_a_constant_code_says_nothing():
    found = gmm_probe(np.ones((60, 2)), np.array([0] * 40 + [1] * 20), splits=2)
    assert found.accuracy.mean <= 2 / 3 + 1e-9
    assert (found.nmi.mean, found.ari.mean) == (pytest.approx(0, abs=1e-12), 0.0)


def test_published_matches_on_the_rows_judged_and_is_no_worse():
    z, y = gaussian(300, 3), np.arange(300) % 3
    honest, published = (gmm_probe(z, y, protocol=p, splits=3) for p in ("honest", "published"))
    assert all(a <= b for a, b in zip(honest.accuracy.scores, published.accuracy.scores, strict=True))
    assert honest.accuracy.mean < published.accuracy.mean
    assert honest.nmi.scores == published.nmi.scores
    assert (honest.accuracy.selection, published.accuracy.selection) == ("honest", "published")
    assert "honest: components matched to classes on the fitting rows" in honest.accuracy.protocol
    assert "published: components matched to classes on the rows judged" in published.accuracy.protocol
    assert published.nmi.selection == "honest"


def test_other_rows_to_fit_on_and_only_some_of_them():
    z, y = blobs(400)
    found = gmm_probe(z[300:], y[300:], fitted_on=(z[:300], y[:300]), max_rows=100, starts=3)
    assert found.accuracy.mean == 1.0
    assert found.accuracy.spread is None
    assert "on 100 of 300 rows" in found.accuracy.protocol
    assert "3 starts" in found.accuracy.protocol
    assert gmm_probe(z, y, splits=2, seed=3) == gmm_probe(z, y, splits=2, seed=3)


def test_more_components_than_classes_leave_rows_unmatched():
    z, y = blobs(300)
    found = gmm_probe(z, y, components=6, splits=2)
    assert found.accuracy.mean < 0.9
    assert "6 normal laws" in found.accuracy.protocol


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"protocol": "best"}, "honest"),
        ({"starts": 0}, "starts"),
        ({"ridge": 0.0}, "ridge"),
        ({"components": 100}, "100 normal laws are more than"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(InputError, match=says):
        gmm_probe(*blobs(60), **options)
