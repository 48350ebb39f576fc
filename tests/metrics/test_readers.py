"""Readers with an honest penalty, against slow loops in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from probssl.errors import InputError
from probssl.metrics import boosting_probe, few_probe, number_probe
from probssl.metrics._ridge import PENALTIES, fit_ridge
from probssl.metrics._splits import validation
from tests.metrics.codes import blobs, gaussian

Z, LABELS = blobs(120, 5, classes=3)
NUMBERS = Z @ np.arange(5.0) + 3 + gaussian(120, 1, seed=4)[:, 0]
INSIDE, OUTSIDE = np.arange(80), np.arange(80, 120)


def slow_ridge(x, y, penalty):
    """Weights and offsets by the normal equations, the offset not penalised."""
    extended = np.hstack([x, np.ones((len(x), 1))])
    shrink = penalty * np.eye(x.shape[1] + 1)
    shrink[-1, -1] = 0
    found = np.linalg.solve(extended.T @ extended + shrink, extended.T @ y)
    return found[:-1], found[-1]


def slow_choice(x, y):
    """The penalty with the least squared error on rows left out, one fit for each row."""
    squares = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    scale = squares[squares > 1e-9].mean()
    errors = []
    for penalty in PENALTIES * scale:
        error = 0.0
        for row in range(len(x)):
            rest = np.delete(np.arange(len(x)), row)
            weights, offset = slow_ridge(x[rest], y[rest], penalty)
            error += np.sum((y[row] - x[row] @ weights - offset) ** 2)
        errors.append(error)
    return PENALTIES[np.argmin(errors)] * scale


@pytest.mark.parametrize(("rows", "features"), [(25, 4), (9, 8), (8, 12)])
@pytest.mark.parametrize("outputs", [1, 3])
def test_ridge_is_the_one_that_leave_one_out_chooses(rows, features, outputs):
    x, noise = gaussian(rows, features, seed=1) + 5, gaussian(rows, outputs, seed=2)
    y = x @ gaussian(features, outputs, seed=3) + 2 * noise
    found, penalty = fit_ridge(x, y), slow_choice(x, y)
    assert found.penalty == pytest.approx(penalty)
    weights, offset = slow_ridge(x, y, penalty)
    np.testing.assert_allclose(found.weights, weights, atol=1e-8)
    np.testing.assert_allclose(found.predict(x), x @ weights + offset, atol=1e-8)


def test_ridge_of_dependent_constant_and_scaled_features():
    x, y = Z[:40], NUMBERS[:40, None]
    twice = np.hstack([x, x[:, :1], np.ones((40, 1))])
    assert np.isfinite(fit_ridge(twice, y).weights).all()
    np.testing.assert_allclose(fit_ridge(1e6 * x, y).predict(1e6 * Z), fit_ridge(x, y).predict(Z), rtol=1e-8)
    np.testing.assert_allclose(fit_ridge(np.ones((40, 2)), y).predict(np.zeros((1, 2))), y.mean(0)[None])


def test_few_labels_against_loops():
    fitted_on = Z[INSIDE], LABELS[INSIDE]
    found = few_probe(Z[OUTSIDE], LABELS[OUTSIDE], labelled=12, draws=3, fitted_on=fitted_on, seed=5)
    scores = []
    for draw in range(3):
        _, chosen = validation(LABELS[INSIDE], 5 + draw, 12 / 80)
        assert np.bincount(LABELS[chosen]).tolist() == pytest.approx(np.bincount(LABELS[INSIDE]) * 12 / 80, abs=1)
        x, y = Z[chosen], np.array([[label == code for code in range(3)] for label in LABELS[chosen]], float)
        weights, offset = slow_ridge(x, y, slow_choice(x, y))
        scores.append(np.mean((Z[OUTSIDE] @ weights + offset).argmax(1) == LABELS[OUTSIDE]))
    assert found.scores == pytest.approx(scores)
    assert (found.mean, found.spread) == pytest.approx((np.mean(scores), np.std(scores)))
    assert found.each.shape == (3, 40)


def test_few_labels_without_rows_apart_have_a_split_each():
    found = few_probe(Z, LABELS, labelled=10, draws=4)
    assert found.each.shape == (4, 120)
    assert np.isfinite(found.each).sum(axis=1).tolist() == [24] * 4
    assert np.nanmean(found.each, axis=1) == pytest.approx(found.scores)
    assert "10 stratified labels, 4 draws" in found.protocol
    assert found == few_probe(10 * Z[:, ::-1] + 7, LABELS, labelled=10, draws=4), "rotation, scale, shift"
    with pytest.raises(InputError, match="95 labels are too many to draw from 96 rows"):
        few_probe(Z, LABELS, labelled=95)


@pytest.mark.parametrize("neighbours", [None, 4])
@pytest.mark.parametrize("labelled", [None, 15])
def test_numbers_against_loops(neighbours, labelled):
    fitted_on = Z[INSIDE], NUMBERS[INSIDE]
    options = {"neighbours": neighbours, "labelled": labelled, "draws": 2, "seed": 3}
    found = number_probe(Z[OUTSIDE], NUMBERS[OUTSIDE], fitted_on=fitted_on, **options)
    r2, error, truth = [], [], NUMBERS[OUTSIDE]
    for draw in range(2 if labelled else 1):
        chosen = validation(np.zeros(80, int), 3 + draw, 15 / 80)[1] if labelled else INSIDE
        x, y = Z[chosen], NUMBERS[chosen]
        if neighbours is None:
            weights, offset = slow_ridge(x, y, slow_choice(x, y))
            said = Z[OUTSIDE] @ weights + offset
        else:
            said = [y[np.argsort(((x - row) ** 2).sum(1))[:4]].mean() for row in Z[OUTSIDE]]
        r2.append(1 - np.sum((truth - said) ** 2) / np.sum((truth - truth.mean()) ** 2))
        error.append(np.mean(np.abs(truth - said)))
    assert found.r2.scores == pytest.approx(r2)
    assert found.error.scores == pytest.approx(error)


def test_numbers_of_splits_and_what_is_refused():
    found = number_probe(Z, NUMBERS)
    assert found.r2.mean > 0.9
    assert len(found.r2.scores) == 5
    assert found.r2.mean == pytest.approx(number_probe(Z, 1000 - 50 * NUMBERS).r2.mean)
    assert number_probe(gaussian(120, 5, seed=9), NUMBERS).r2.mean < 0.1
    with pytest.raises(InputError, match="all equal"):
        number_probe(Z, np.ones(120))
    with pytest.raises(InputError, match="too few to fit on"):
        number_probe(Z[:4], NUMBERS[:4])
    with pytest.raises(InputError, match="97 neighbours"):
        number_probe(Z, NUMBERS, neighbours=97)
    with pytest.raises(InputError, match="for each of 120 rows"):
        number_probe(Z, NUMBERS[1:])
    with pytest.raises(InputError, match="the numbers to predict is not finite at row 3"):
        number_probe(Z, np.where(np.arange(120) == 3, np.nan, NUMBERS))


def test_boosting_takes_codes_and_gaps():
    random = np.random.default_rng(0)
    code = random.permutation(40).repeat(20).astype(float)
    rows = np.stack([code, random.normal(size=800)], axis=1)
    truth = (code % 2).astype(int)  # no order of the levels helps
    rows[random.random(rows.shape) < 0.02] = np.nan
    categories = boosting_probe(rows, truth, categorical=(0,))
    assert categories.mean > 0.95
    assert categories.mean > boosting_probe(rows, truth).mean - 0.05
    apart = boosting_probe(rows[::2], rows[::2, 1] > 0, fitted_on=(rows[1::2], rows[1::2, 1] > 0))
    assert apart.mean > 0.9
    known = np.isfinite(rows[:, 1])
    assert boosting_probe(rows[known], 3 * rows[known, 1], numbers=True).r2.mean > 0.9
    rows[:, 0] *= 10  # codes of more levels than it takes for categories are numbers to it
    assert boosting_probe(rows, truth, categorical=(0,)).mean > 0.5
