from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from torch import nn

from probssl.errors import InputError
from probssl.metrics import knn_probe, linear_probe, mlp_probe
from probssl.metrics._logistic import fit_whitened
from probssl.metrics._networks import Networks, Schedule, fit_networks
from probssl.metrics._splits import validation
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


# --- several neighbourhoods -------------------------------------------------------------------------------------------


def test_several_neighbourhoods_are_those_of_each_alone():
    z, y = blobs(150, gap=1.0)
    counts = [9, 1, 4]
    each = np.array([knn_probe(z, y, neighbours=k, splits=3).scores for k in sorted(counts)])
    best = knn_probe(z, y, neighbours=counts, protocol="published", splits=3)
    assert best.scores == tuple(each.max(axis=0))
    assert best.chosen == tuple(np.array(sorted(counts))[each.argmax(axis=0)])
    assert best.selection == "published"
    assert "chosen of 1, 4, 9 on the rows judged" in best.protocol


def test_an_honest_neighbourhood_is_chosen_without_the_rows_judged():
    z, y = blobs(200, gap=1.0)
    fitting, judged = (z[:150], y[:150]), (z[150:], y[150:])
    found = knn_probe(*judged, neighbours=range(1, 16), fitted_on=fitting, seed=2)
    other = knn_probe(judged[0] + 100, judged[1][::-1], neighbours=range(1, 16), fitted_on=fitting, seed=2)
    assert found.chosen == other.chosen
    inside, outside = validation(fitting[1], 2)
    accuracies = [
        knn_probe(z[outside], y[outside], neighbours=k, fitted_on=(z[inside], y[inside])).mean for k in range(1, 16)
    ]
    assert found.chosen == (1 + int(np.argmax(accuracies)),)
    assert found.mean == knn_probe(*judged, neighbours=found.chosen[0], fitted_on=fitting).mean
    assert found.selection == "honest"
    assert "honest: chosen of 1 to 15 on 20% of the fitting rows" in found.protocol


def test_on_noise_the_best_of_many_flatters():
    z, y = gaussian(1500, 4), np.arange(1500) % 2
    honest, published = (knn_probe(z, y, neighbours=range(1, 30), protocol=p) for p in ("honest", "published"))
    assert published.mean > honest.mean
    assert published.mean > 0.51


def test_one_neighbourhood_is_nobodys_choice():
    z, y = blobs(100, gap=1.0)
    assert knn_probe(z, y, neighbours=[5], protocol="published") == knn_probe(z, y)
    assert knn_probe(z, y).chosen == ()


@pytest.mark.parametrize(
    ("neighbours", "says"), [([], "there is none"), ([1, 0], "neighbours"), (range(1, 42), "41 neighbours are more")]
)
def test_bad_neighbourhoods(neighbours, says):
    with pytest.raises(InputError, match=says):
        knn_probe(*blobs(50), neighbours=neighbours, protocol="published")


@pytest.mark.parametrize("probe", [mlp_probe, knn_probe])
def test_protocols_have_two_names(probe):
    options = {"neighbours": [1, 2]} if probe is knn_probe else {}
    with pytest.raises(InputError, match="'honest' or 'published', not 'best'"):
        probe(*blobs(50), protocol="best", **options)


# --- the split to choose by -------------------------------------------------------------------------------------------


def test_validation_is_a_share_of_every_class():
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(4), [1, 10, 40, 149]))
    inside, outside = validation(y, seed=1)
    assert len(outside) == 40
    assert sorted([*inside, *outside]) == list(range(200))
    share = np.bincount(y[outside], minlength=4)
    assert share[0] == 0
    np.testing.assert_allclose(share, 0.2 * np.bincount(y), atol=1)
    assert not np.array_equal(outside, validation(y, seed=2)[1])
    with pytest.raises(InputError, match="too few"):
        validation(np.zeros(2, dtype=np.intp), 0)


# --- networks ---------------------------------------------------------------------------------------------------------


def ring(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A disc and the ring around it: no line tells them apart."""
    chance = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    angle, radius = chance.uniform(0, 2 * np.pi, rows), chance.uniform(0, 1, rows) + 1.5 * y
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1), y


def test_a_network_reads_what_no_line_can():
    z, y = ring(600)
    assert linear_probe(z, y, splits=2).mean < 0.7
    found = mlp_probe(z, y, splits=2)
    assert found.mean > 0.97
    assert mlp_probe(1e-3 * z + 7, y, splits=2).mean > 0.97
    assert mlp_probe(z, y, splits=2, hidden=0).mean < 0.7
    assert len(found.chosen) == 2
    assert "honest" in found.protocol
    assert "20% of the fitting rows" in found.protocol


def test_published_takes_the_best_epoch_on_the_rows_judged():
    z, y = blobs(200, gap=0.6)
    found = mlp_probe(z, y, protocol="published", epochs=15, splits=2, lr=3e-3)
    shorter = [mlp_probe(z, y, protocol="published", epochs=e, splits=2, lr=3e-3) for e in (1, 5, 10)]
    assert all(a <= b for short in shorter for a, b in zip(short.scores, found.scores, strict=True))
    assert found.selection == "published"
    assert "a hidden layer of 4 " in found.protocol
    assert "on the rows judged" in found.protocol
    assert "features as given" in found.protocol


def test_the_rows_judged_do_not_sway_an_honest_network():
    z, y = blobs(200, gap=1.0)
    fitting = z[:150], y[:150]
    found = mlp_probe(z[150:], y[150:], fitted_on=fitting, epochs=30)
    swayed = mlp_probe(z[150:] + 50, y[150:][::-1], fitted_on=fitting, epochs=30)
    assert found.chosen == swayed.chosen
    assert found.spread is None


def test_networks_of_several_splits_are_those_of_each_alone():
    chance = np.random.default_rng(0)
    x, y = chance.normal(size=(3, 60, 4)), chance.integers(3, size=(3, 60))
    valid = chance.normal(size=(3, 20, 4)), chance.integers(3, size=(3, 20))
    judged = chance.normal(size=(3, 10, 4))
    schedule = Schedule(8, 1e-2, 40, 16, 3)
    together = fit_networks(x, y, valid, judged, 3, schedule, seed=5)
    for s in range(3):
        own = slice(s, s + 1)
        alone = fit_networks(x[own], y[own], (valid[0][own], valid[1][own]), judged[own], 3, schedule, seed=5 + s)
        assert alone.epochs == together.epochs[own]
        np.testing.assert_allclose(alone.outputs[0], together.outputs[s], atol=1e-4)


@pytest.mark.parametrize("sizes", [[5, 3], [5, 7, 3]])
@pytest.mark.parametrize("regress", [False, True])
def test_steps_are_those_of_autograd_and_torchs_adam(sizes, regress):
    draws = [torch.Generator().manual_seed(s) for s in range(2)]
    ours = Networks(sizes, draws)
    theirs = []
    for network in range(2):
        layers = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
        for layer, weight, offset in zip(layers, ours.parameters[::2], ours.parameters[1::2], strict=True):
            layer.weight.data, layer.bias.data = weight[network].T.clone(), offset[network, 0].clone()
        theirs.append(nn.Sequential(*itertools.chain(*((nn.ReLU(), layer) for layer in layers)))[1:])
    optimisers = [torch.optim.Adam(network.parameters(), lr=1e-2) for network in theirs]
    for _ in range(20):
        x = torch.randn(2, 16, 5, generator=draws[0])
        y = torch.randn(2, 16, 3, generator=draws[0]) if regress else torch.randint(3, (2, 16), generator=draws[0])
        ours.step(x, y, 1e-2)
        for network, optimiser, inputs, targets in zip(theirs, optimisers, x, y, strict=True):
            optimiser.zero_grad()
            (nn.functional.mse_loss if regress else nn.functional.cross_entropy)(network(inputs), targets).backward()
            optimiser.step()
    expected = torch.stack([network(inputs) for network, inputs in zip(theirs, x, strict=True)])
    torch.testing.assert_close(ours(x), expected.detach(), atol=1e-4, rtol=1e-4)


def test_networks_regress_too_and_stop_in_time():
    x = gaussian(400, 3)
    targets = np.stack([np.abs(x[:, 0]), x[:, 1] * x[:, 2]], 1)
    choosing = x[None, 200:300], targets[None, 200:300]
    found = fit_networks(
        x[None, :200], targets[None, :200], choosing, x[None, 300:], 2, Schedule(64, 1e-2, 300, 32, 20), 0
    )
    assert np.mean((found.outputs[0] - targets[300:]) ** 2) < 0.3 * targets[300:].var()
    assert found.stopped
    assert found.epochs[0] < 280


def test_labels_of_both_sides_are_as_many_as_their_rows() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 2))
    with pytest.raises(InputError, match="one label for each of 60 rows"):
        knn_probe(z, np.arange(50) % 2, neighbours=3, fitted_on=(z, np.arange(70) % 2))
    with pytest.raises(InputError, match="seed"):
        linear_probe(z, np.arange(60) % 2, seed=-1)
