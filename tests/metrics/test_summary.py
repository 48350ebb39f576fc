from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from probssl import metrics
from probssl.errors import InputError
from probssl.metrics import METRICS, evaluate, summarise
from tests.metrics.codes import blobs, gaussian

Z, LABELS = blobs(200)
PARTNER = Z + 0.1 * gaussian(200, 4)
LATENTS = Z[:, :3] + 0.1 * gaussian(200, 3, seed=1)
NUMBERS = Z[:, 0] + 0.5 * gaussian(200, 1, seed=2)[:, 0]
PROBES = {"linear_probe", "knn_probe", "few_10", "few_60", "few_100", "gmm_accuracy", "gmm_nmi", "gmm_ari"}
OF_ROWS = [metric.name for metric in METRICS if "rows" in metric.needs]
NAMES = [metric.name for metric in METRICS if metric.name not in OF_ROWS]
OF_NUMBERS = {metric.name for metric in METRICS if metric.needs == ("numbers",)}
GIVEN = {"labels": LABELS, "numbers": NUMBERS, "partner": PARTNER, "latents": LATENTS}
VALUES = summarise(Z, **GIVEN)


def test_everything_that_applies():
    values = VALUES
    assert {name for name in values if not name.endswith("_spread")} == set(NAMES)
    assert {"linear_probe_spread", "few_60_spread", "knn_r2_spread"} <= set(values)
    assert all(type(value) is float for value in values.values())
    json.dumps(values, allow_nan=False)


def test_values_are_those_of_the_functions():
    values = summarise(Z, **GIVEN, seed=3)
    whitened = {"standardise": True, "solver": "whitened", "iterations": 200}
    by_neighbours = metrics.number_probe(Z, NUMBERS, neighbours=10, seed=3)
    assert values["linear_r2"] == metrics.linear_r2(Z, LATENTS, seed=3).mean
    assert values["mcc"] == metrics.mcc(Z, LATENTS).value
    assert values["linear_probe"] == metrics.linear_probe(Z, LABELS, **whitened, seed=3).mean
    assert values["knn_probe_spread"] == metrics.knn_probe(Z, LABELS, neighbours=10, seed=3).spread
    assert values["few_10"] == metrics.few_probe(Z, LABELS, labelled=10, seed=3).mean
    assert values["ridge_r2"] == metrics.number_probe(Z, NUMBERS, seed=3).r2.mean
    assert values["knn_mae"] == by_neighbours.error.mean
    assert values["few_60_r2_spread"] == metrics.number_probe(Z, NUMBERS, labelled=60, seed=3).r2.spread
    assert values["gmm_nmi"] == metrics.gmm_probe(Z, LABELS, starts=5, seed=3).nmi.mean
    assert values["rankme"] == metrics.rankme(Z)
    assert values["effective_rank"] == metrics.spectra(Z).effective_rank
    assert values["numerical_rank"] == 4.0
    assert values["intrinsic_dimension"] == metrics.intrinsic_dimension(Z, seed=3)
    assert values["cluster_learnability"] == metrics.cluster_learnability(Z, seed=3)
    assert values["alignment"] == metrics.alignment(Z, PARTNER)
    assert values["uniformity"] == metrics.uniformity(Z, seed=3)
    assert values["mcr2"] == metrics.mcr2(Z, seed=3).reduction
    assert values["mcr2_labels"] == metrics.mcr2(Z, LABELS).reduction


def test_quick_ones_are_the_same_numbers():
    quick, full = (evaluate(Z, **GIVEN, quick=quick) for quick in (True, False))
    assert set(quick.protocols) == {metric.name for metric in METRICS if metric.quick}
    assert quick.values.items() <= full.values.items()


def test_rows_whose_target_is_unknown_are_left_out():
    known = np.arange(200) % 3 > 0
    labels, numbers = np.where(known, LABELS, np.nan), np.where(known, NUMBERS, np.nan)
    found = summarise(Z, labels=labels, numbers=numbers)
    alone = summarise(Z[known], labels=LABELS[known], numbers=NUMBERS[known])
    of_targets = PROBES | OF_NUMBERS | {"mcr2_labels"}
    assert {name: found[name] for name in of_targets} == {name: alone[name] for name in of_targets}
    assert found["rankme"] == summarise(Z)["rankme"]
    apart = evaluate(Z, labels=labels, fitted_on=(Z, labels), quick=True).values
    assert (
        apart["knn_probe"]
        == metrics.knn_probe(Z[known], LABELS[known], neighbours=10, fitted_on=(Z[known], LABELS[known])).mean
    )
    assert set(summarise(Z, numbers=np.full(200, np.nan))) > OF_NUMBERS


def test_what_does_not_apply_is_left_out():
    values = summarise(Z)
    needy = {m.name for m in METRICS if m.needs}
    assert set(values) == set(NAMES) - needy
    assert needy == PROBES | OF_NUMBERS | {"linear_r2", "mcc", "alignment", "mcr2_labels", *OF_ROWS}


@pytest.mark.parametrize(
    ("z", "undefined"),
    [
        (np.ones((60, 3)), {"few_60", "few_100", "intrinsic_dimension", "cluster_learnability"}),
        (np.zeros((60, 3)), {"few_60", "few_100", "intrinsic_dimension", "cluster_learnability"}),
        (gaussian(1, 3), {"intrinsic_dimension", "cluster_learnability", "uniformity", *PROBES}),
        (gaussian(4, 3), {"intrinsic_dimension", "cluster_learnability", *PROBES}),
        (gaussian(60, 257), {"few_60", "few_100", "gmm_accuracy", "gmm_nmi", "gmm_ari"}),
        (np.eye(60), {"few_60", "few_100", "intrinsic_dimension", "gmm_accuracy", "gmm_nmi", "gmm_ari"}),
    ],
)
def test_what_is_undefined_is_none_with_a_reason_and_no_noise(z, undefined):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = evaluate(z, labels=np.arange(len(z)) % 2, partner=z)
    assert {n for n, value in result.values.items() if value is None and not n.endswith("_spread")} == undefined
    for name, protocol in result.protocols.items():
        assert protocol.startswith("undefined: ") == (name in undefined)
        assert "\n" not in protocol
    assert all(value is None or np.isfinite(value) for value in result.values.values())


def test_one_class_leaves_the_probes_undefined():
    values = summarise(Z, labels=np.zeros(200))
    assert values["linear_probe"] is None
    assert values["linear_probe_spread"] is None
    assert values["mcr2_labels"] == pytest.approx(0, abs=1e-12)


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="one label for each of 200 rows"):
        summarise(Z, labels=LABELS[1:])
    with pytest.raises(InputError, match="partner"):
        summarise(Z, partner=PARTNER[1:])
    with pytest.raises(InputError, match="as many latents"):
        summarise(Z, latents=LATENTS[1:])
    with pytest.raises(InputError, match="not finite"):
        summarise(np.full((5, 2), np.nan))


def test_every_number_has_a_protocol():
    result = evaluate(Z, **GIVEN)
    assert set(result.protocols) == set(NAMES)
    assert all(result.protocols.values())
    assert "standardised" in result.protocols["linear_probe"]
    with pytest.raises(InputError, match="one after the other"):
        evaluate(Z, labels=LABELS, numbers=NUMBERS, fitted_on=(Z, LABELS))


@pytest.mark.parametrize("metric", [m for m in METRICS if m.name in NAMES], ids=NAMES)
def test_the_table_states_ranges_that_hold(metric):
    assert metric.direction in ("higher", "lower", "neither")
    assert metric.title
    assert metric.source
    n, m = Z.shape
    low, high = metric.range.strip("[]()").rsplit(", ", 1) if "min" not in metric.range else (metric.range[1], "m")
    bounds = {"inf": np.inf, "m": m, "-4n/(n-1)": -4 * n / (n - 1)}
    low, high = (bounds[x] if x in bounds else float(x) for x in (low, high))
    value = VALUES[metric.name]
    assert low <= value <= high


def test_directions_are_right_for_a_good_and_a_shuffled_code():
    good = summarise(Z, labels=LABELS, partner=PARTNER)
    noise = gaussian(200, 4, seed=9)
    bad = summarise(noise, labels=LABELS, partner=gaussian(200, 4, seed=10))
    sign = {"higher": 1, "lower": -1}
    for name in (*PROBES, "alignment", "mcr2_labels"):
        direction = sign[next(metric.direction for metric in METRICS if metric.name == name)]
        assert direction * good[name] > direction * bad[name]


def test_every_metric_of_a_large_table():
    z, labels = blobs(20_000, 9, classes=7, gap=3.0)
    assert None not in summarise(z, labels=labels, partner=z + 0.1).values()


@pytest.mark.parametrize("rows", [12, 20, 40])
def test_small_tables_have_neighbours_enough(rows):
    values = summarise(*blobs(rows)[:1], labels=np.arange(rows) % 2)
    assert values["knn_probe"] is not None
