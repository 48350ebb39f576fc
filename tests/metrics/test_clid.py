from __future__ import annotations

import numpy as np
import pytest

from probssl.errors import InputError
from probssl.metrics import CLID, clid, cluster_learnability, combine_clid, intrinsic_dimension
from tests.metrics.codes import blobs, gaussian, rotation


@pytest.mark.parametrize(("dimension", "tolerance"), [(1, 0.05), (2, 0.1), (5, 0.5)])
def test_uniform_cubes_have_their_dimension(dimension, tolerance):
    z = np.random.default_rng(0).uniform(size=(5000, dimension))
    assert intrinsic_dimension(z) == pytest.approx(dimension, abs=tolerance)  # faces bias it low in high dimension


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_flat_tori_have_their_dimension(dimension):
    u = np.random.default_rng(0).uniform(0, 2 * np.pi, size=(5000, dimension))  # no boundary, no such bias
    assert intrinsic_dimension(np.hstack([np.cos(u), np.sin(u)])) == pytest.approx(dimension, rel=0.04)


def test_a_curved_surface_in_many_features_has_dimension_two():
    u, v = np.random.default_rng(0).uniform(size=(2, 4000))
    z = np.column_stack([np.cos(3 * u), np.sin(3 * u), v, v**2, u * v]) @ rotation(5)
    wide = np.hstack([z] * 5)  # 25 features: another neighbour search
    assert intrinsic_dimension(z) == pytest.approx(2, abs=0.1)
    assert intrinsic_dimension(wide) == pytest.approx(intrinsic_dimension(z), rel=1e-6)


@pytest.mark.parametrize("discard", [0.0, 0.1, 0.5])
def test_intrinsic_dimension_against_loops(discard):
    z = gaussian(150, 3)
    ratios = []
    for i in range(len(z)):
        distances = sorted(np.sqrt(np.sum((z[i] - z[j]) ** 2)) for j in range(len(z)) if j != i)
        ratios.append(np.log(distances[1] / distances[0]))
    ratios.sort()
    top = bottom = 0.0
    for i in range(min(int(150 * (1 - discard)), 149)):
        top += ratios[i] * -np.log(1 - (i + 1) / 150)
        bottom += ratios[i] ** 2
    assert intrinsic_dimension(z, discard=discard) == pytest.approx(top / bottom, rel=1e-9)


def test_repeated_rows_count_once():
    z = gaussian(500, 2)
    repeated = np.concatenate([z, z[:100], z[:50], -0.0 * z[:1], 0.0 * z[:1]])
    assert intrinsic_dimension(repeated) == pytest.approx(intrinsic_dimension(np.vstack([z, 0 * z[:1]])))


def test_small_distances_far_from_the_origin_are_kept():
    z = np.hstack([1e-4 * gaussian(400, 2)] * 10)
    assert intrinsic_dimension(z + 1e4) == pytest.approx(intrinsic_dimension(z), rel=1e-3)


def test_a_sample_agrees_with_the_whole():
    z = np.random.default_rng(0).uniform(size=(6000, 3))
    assert intrinsic_dimension(z, max_rows=2000, seed=1) == pytest.approx(intrinsic_dimension(z), abs=0.25)
    assert intrinsic_dimension(z, max_rows=2000, seed=1) == intrinsic_dimension(z, max_rows=2000, seed=1)
    assert intrinsic_dimension(z, max_rows=2000, seed=1) != intrinsic_dimension(z, max_rows=2000, seed=2)
    z, _ = blobs(6000)
    assert cluster_learnability(z, max_rows=2000, clusters=3) == cluster_learnability(z, clusters=3) == 1.0


@pytest.mark.parametrize("z", [np.ones((50, 3)), np.repeat(gaussian(4, 3), 9, axis=0)])
def test_too_few_distinct_rows(z):
    with pytest.raises(InputError, match="at least 5 distinct rows"):
        intrinsic_dimension(z)


def test_lattices_are_undefined():
    with pytest.raises(InputError, match="equally far"):
        intrinsic_dimension(np.eye(20))
    grid = np.stack(np.meshgrid(np.arange(10) * 0.1, np.arange(10) * 0.1), -1).reshape(-1, 2)
    with pytest.raises(InputError, match="equally far"):
        intrinsic_dimension(np.round(grid * 10))


def test_separated_groups_are_learnable_and_finer_clusters_are_less_so():
    z, _ = blobs(600)
    assert cluster_learnability(z, clusters=3) == 1.0
    coarse, fine = (cluster_learnability(gaussian(600, 8), clusters=k) for k in (2, 60))
    assert 0 <= fine < coarse < 1


def test_cluster_learnability_against_loops():
    z = gaussian(200, 3)
    z -= z.mean(axis=0)
    from sklearn.cluster import KMeans

    codes = KMeans(6, n_init=1, random_state=5).fit_predict(z)
    order = np.random.default_rng(5).permutation(200)
    right = 0
    for i in order[:40]:
        near = sorted(order[40:], key=lambda j: float(np.sum((z[i] - z[j]) ** 2)))[:5]
        right += int(np.argmax(np.bincount(codes[near], minlength=6)) == codes[i])
    assert cluster_learnability(z, clusters=6, seed=5) == pytest.approx(right / 40)


def test_constant_code_has_no_clusters_to_learn():
    with pytest.raises(InputError, match="one cluster"):
        cluster_learnability(np.ones((100, 3)))


def test_few_distinct_rows_mean_few_clusters():
    assert cluster_learnability(np.repeat(np.eye(3), 40, axis=0), clusters=10) == 1.0


@pytest.mark.parametrize(
    "options", [{"clusters": 1}, {"neighbours": 0}, {"test_size": 0.0}, {"neighbours": 500}, {"max_rows": 1}]
)
def test_bad_options(options):
    with pytest.raises(InputError, match=next(iter(options))):
        cluster_learnability(gaussian(100, 2), **options)


def test_bad_discard():
    with pytest.raises(InputError, match="discard"):
        intrinsic_dimension(gaussian(100, 2), discard=1.0)


def test_clid_is_both_parts():
    z = gaussian(400, 3)
    assert clid(z, seed=2) == CLID(intrinsic_dimension(z, seed=2), cluster_learnability(z, seed=2))


def test_combining_standardises_and_adds():
    scores = combine_clid([CLID(1, 0.5), CLID(3, 0.5), CLID(2, 0.8)])
    dimension = (np.array([1, 3, 2]) - 2) / np.std([1, 3, 2])
    learn = (np.array([0.5, 0.5, 0.8]) - 0.6) / np.std([0.5, 0.5, 0.8])
    assert scores == pytest.approx(tuple(dimension + learn))
    assert sum(scores) == pytest.approx(0)


def test_combining_ignores_a_part_that_does_not_vary_and_units():
    assert combine_clid([CLID(1, 0.1), CLID(2, 0.1)]) == pytest.approx((-1, 1))
    assert combine_clid([CLID(10, 0.1), CLID(20, 0.1)]) == pytest.approx((-1, 1))
    with pytest.raises(InputError, match="at least two"):
        combine_clid([CLID(1, 0.5)])
