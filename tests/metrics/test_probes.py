from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit

from probssl.errors import InputError
from probssl.metrics import knn_probe, linear_probe
from probssl.metrics._logistic import fit_whitened
from tests.metrics.codes import blobs, gaussian

PROBES = [linear_probe, knn_probe]


@pytest.mark.parametrize("probe", PROBES)
def test_identity_code_of_the_label_is_read_perfectly(probe):
    labels = np.arange(100) % 4
    result = probe(np.eye(4)[labels], labels)
    assert (result.mean, result.spread, result.scores) == (1.0, 0.0, (1.0,) * 5)


def test_constant_code_gives_the_share_of_the_largest_class():
    labels = np.array([0] * 70 + [1] * 30)
    assert linear_probe(np.ones((100, 3)), labels).mean == pytest.approx(0.7)
    assert linear_probe(np.ones((100, 3)), labels, standardise=True).mean == pytest.approx(0.7)


@pytest.mark.parametrize("probe", PROBES)
def test_noise_is_at_chance(probe):
    labels = np.arange(2000) % 2
    assert probe(gaussian(2000, 3), labels).mean == pytest.approx(0.5, abs=0.06)


def test_linear_probe_is_scikit_learns_own():
    z, y = blobs(200, gap=1.0)
    scores = []
    for train, test in StratifiedShuffleSplit(3, test_size=0.2, random_state=4).split(z, y):
        scores.append(LogisticRegression(max_iter=1000).fit(z[train], y[train]).score(z[test], y[test]))
    result = linear_probe(z, y, splits=3, seed=4)
    assert result.scores == tuple(scores)
    assert result.mean == pytest.approx(np.mean(scores))
    assert result.spread == pytest.approx(np.std(scores))
    assert result.spread > 0


def test_knn_probe_against_loops():
    z, y = blobs(120, gap=1.5)
    scores = []
    for train, test in StratifiedShuffleSplit(2, test_size=0.25, random_state=0).split(z, y):
        right = 0
        for i in test:
            order = sorted(train, key=lambda j: float(np.sum((z[i] - z[j]) ** 2)))
            votes = np.bincount([y[j] for j in order[:3]], minlength=3)
            right += int(np.argmax(votes) == y[i])
        scores.append(right / len(test))
    assert knn_probe(z, y, neighbours=3, splits=2, test_size=0.25).scores == pytest.approx(scores)


@pytest.mark.parametrize("probe", PROBES)
def test_the_seed_decides(probe):
    z, y = blobs(200, gap=1.0)
    assert probe(z, y, seed=1) == probe(z, y, seed=1)
    assert probe(z, y, seed=1).scores != probe(z, y, seed=2).scores


@pytest.mark.parametrize("probe", PROBES)
def test_classes_of_one_row_only_train(probe):
    z, y = blobs(100)
    y = y.copy()
    y[0], y[1] = 7, 8
    result = probe(z, y)
    assert result.mean > 0.9
    assert "2 single-member classes in training only" in result.protocol
    assert "in 5 classes" in result.protocol


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("labels", [[0] * 10, range(10), [0] * 9 + [1]])
def test_fewer_than_two_classes_to_tell_apart_is_an_error(probe, labels):
    with pytest.raises(InputError, match="two classes with two or more rows"):
        probe(gaussian(10, 2), list(labels))


@pytest.mark.parametrize("probe", PROBES)
def test_too_few_rows_for_the_classes_is_an_error(probe):
    with pytest.raises(InputError, match="too few for a stratified 20% test split of 5 classes"):
        probe(gaussian(10, 2), np.arange(10) // 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"splits": 0}, "splits"),
        ({"test_size": 1.0}, "test_size"),
        ({"iterations": 0}, "iterations"),
        ({"solver": "magic"}, "solver"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(InputError, match=says):
        linear_probe(*blobs(50), **options)


def test_too_many_neighbours():
    with pytest.raises(InputError, match="41 neighbours are more than the 40 training rows"):
        knn_probe(*blobs(50), neighbours=41)


def test_fits_that_stop_early_are_recorded_and_silent():
    z, y = blobs(200, gap=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        early = linear_probe(z * [1, 1e3, 1e-3, 1], y, iterations=2, splits=3)
    assert not early.converged
    assert "3 of 3 fits stopped before converging" in early.protocol
    full = linear_probe(z, y)
    assert full.converged
    assert "all fits converged" in full.protocol


def test_standardising_undoes_scale_and_offset():
    z, y = blobs(300, gap=2.0)
    plain = linear_probe(z, y, standardise=True)
    assert linear_probe(z * [1, 100, 1e-4, 10] + 50, y, standardise=True).scores == plain.scores
    assert "standardised by the training rows" in plain.protocol


def test_both_solvers_agree_where_they_converge():
    z, y = blobs(300, gap=2.0)
    assert linear_probe(z, y, solver="newton-cholesky").mean == pytest.approx(linear_probe(z, y).mean, abs=0.01)


def test_the_protocol_is_one_line_that_says_it_all():
    protocol = linear_probe(*blobs(50), seed=3).protocol
    assert "\n" not in protocol
    for part in ("lbfgs", "1000 iterations", "C=1", "5 stratified", "80% train / 20% test", "50 rows", "seed 3"):
        assert part in protocol


def _scikit_learns_loss(model, x, y):
    """sum -log p + |W|²/2: what LogisticRegression minimises at C = 1."""
    truth = model.predict_log_proba(x)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return -truth.sum() + 0.5 * np.square(model.coef_).sum()


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_whitened_solver_reaches_scikit_learns_optimum(classes):
    chance = np.random.default_rng(classes)
    y = chance.integers(classes, size=500)
    z = (chance.normal(size=(500, 6)) + 1.2 * chance.normal(size=(classes, 6))[y]) @ chance.normal(size=(6, 6))
    exact = LogisticRegression(solver="newton-cholesky", tol=1e-10, max_iter=100).fit(z, y)
    fitted = fit_whitened(z, y, 200)
    assert fitted.converged
    assert fitted.loss == pytest.approx(_scikit_learns_loss(exact, z, y), rel=1e-4)
    assert np.mean(fitted.predict(z) == exact.predict(z)) > 0.98


def test_whitened_solver_is_at_home_on_any_scale():
    """Features from 1e-2 to 1e4 apart: 200 iterations end nearer to the optimum than 1,000 of plain L-BFGS."""
    z, y = blobs(600, gap=1.0)
    z = np.hstack([z, z**2]) * np.geomspace(1e-2, 1e4, 2 * z.shape[1]) + 30
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = LogisticRegression(max_iter=1000).fit(z, y)
    exact = LogisticRegression(solver="newton-cholesky", max_iter=200, tol=1e-8).fit(z, y)
    best = _scikit_learns_loss(exact, z, y)
    fitted = fit_whitened(z, y, 200)
    assert fitted.loss - best < 1e-3 * best
    assert fitted.loss - best < _scikit_learns_loss(plain, z, y) - best


def test_whitened_probe():
    z, y = blobs(300, gap=2.0)
    result = linear_probe(z, y, solver="whitened", iterations=200)
    assert result.mean == pytest.approx(linear_probe(z, y).mean, abs=0.01)
    assert result.converged
    assert "whitened" in result.protocol
    assert not linear_probe(z, y, solver="whitened", iterations=1).converged
    assert linear_probe(np.ones((100, 3)), np.array([0] * 70 + [1] * 30), solver="whitened").mean == pytest.approx(0.7)
    two = np.where(y == 0, 5, 9)  # labels need not count from 0
    assert linear_probe(z, two, solver="whitened").mean == pytest.approx(linear_probe(z, two).mean, abs=0.02)


@pytest.mark.parametrize("standardise", [False, True])
def test_fitted_on_other_rows(standardise):
    z, y = blobs(200, gap=1.0)
    z = 3 * z + 1
    apart = (z[:120], y[:120] + 5), (z[120:], y[120:] + 5)
    result = linear_probe(*apart[1], fitted_on=apart[0], standardise=standardise)
    mean, deviation = (z[:120].mean(0), z[:120].std(0)) if standardise else (0.0, 1.0)
    model = LogisticRegression(max_iter=1000).fit((z[:120] - mean) / deviation, y[:120])
    assert result.scores == (model.score((z[120:] - mean) / deviation, y[120:]),)
    assert result.spread is None
    assert "fitted on 120 rows" in result.protocol
    assert knn_probe(*apart[0], fitted_on=apart[0], neighbours=1).mean == 1.0
    with pytest.raises(InputError, match="two classes"):
        linear_probe(*apart[1], fitted_on=(z[:5], np.zeros(5)))
    with pytest.raises(InputError, match="dimensions"):
        linear_probe(*apart[1], fitted_on=(z[:120, :1], y[:120]))
