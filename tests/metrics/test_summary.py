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
PROBES = {"linear_probe", "knn_probe", "gmm_accuracy", "gmm_nmi", "gmm_ari"}
NAMES = [metric.name for metric in METRICS]


def test_everything_that_applies_in_the_order_of_the_table():
    values = summarise(Z, labels=LABELS, partner=PARTNER, latents=LATENTS)
    assert [name for name in values if not name.endswith("_spread")] == NAMES
    assert set(values) - set(NAMES) == {"linear_probe_spread", "knn_probe_spread"}
    assert all(type(value) is float for value in values.values())
    json.dumps(values, allow_nan=False)


def test_values_are_those_of_the_functions():
    values = summarise(Z, labels=LABELS, partner=PARTNER, latents=LATENTS, seed=3)
    assert values["linear_r2"] == metrics.linear_r2(Z, LATENTS, seed=3).mean
    assert values["mcc"] == metrics.mcc(Z, LATENTS).value
    assert values["linear_probe"] == metrics.linear_probe(Z, LABELS, seed=3).mean
    assert values["knn_probe_spread"] == metrics.knn_probe(Z, LABELS, neighbours=range(1, 16), seed=3).spread
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


def test_what_does_not_apply_is_left_out():
    values = summarise(Z)
    needy = {m.name for m in METRICS if m.needs_labels or m.needs_partner or m.needs_latents}
    assert set(values) == set(NAMES) - needy
    assert needy == PROBES | {"linear_r2", "mcc", "alignment", "mcr2_labels"}


@pytest.mark.parametrize(
    ("z", "undefined"),
    [
        (np.ones((60, 3)), {"intrinsic_dimension", "cluster_learnability"}),
        (np.zeros((60, 3)), {"intrinsic_dimension", "cluster_learnability"}),
        (gaussian(1, 3), {"intrinsic_dimension", "cluster_learnability", "uniformity", *PROBES}),
        (gaussian(4, 3), {"intrinsic_dimension", "cluster_learnability", *PROBES}),
        (gaussian(60, 257), {"gmm_accuracy", "gmm_nmi", "gmm_ari"}),
        (np.eye(60), {"intrinsic_dimension", "gmm_accuracy", "gmm_nmi", "gmm_ari"}),
    ],
)
def test_what_is_undefined_is_none_with_a_reason_and_no_noise(z, undefined):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = evaluate(z, labels=np.arange(len(z)) % 2, partner=z)
    assert {name for name, value in result.values.items() if value is None} - {
        "linear_probe_spread",
        "knn_probe_spread",
    } == undefined
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
    with pytest.raises(InputError, match="199 labels"):
        summarise(Z, labels=LABELS[1:])
    with pytest.raises(InputError, match="partner"):
        summarise(Z, partner=PARTNER[1:])
    with pytest.raises(InputError, match="as many latents"):
        summarise(Z, latents=LATENTS[1:])
    with pytest.raises(InputError, match="not finite"):
        summarise(np.full((5, 2), np.nan))


def test_every_number_has_a_protocol():
    result = evaluate(Z, labels=LABELS, partner=PARTNER, latents=LATENTS, standardise=True)
    assert list(result.protocols) == NAMES
    assert all(result.protocols.values())
    assert "standardised" in result.protocols["linear_probe"]


@pytest.mark.parametrize("metric", METRICS, ids=NAMES)
def test_the_table_states_ranges_that_hold(metric):
    assert metric.direction in ("higher", "lower", "neither")
    assert metric.title
    assert metric.source
    n, m = Z.shape
    low, high = metric.range.strip("[]()").rsplit(", ", 1) if "min" not in metric.range else (metric.range[1], "m")
    bounds = {"inf": np.inf, "m": m, "-4n/(n-1)": -4 * n / (n - 1)}
    low, high = (bounds[x] if x in bounds else float(x) for x in (low, high))
    value = summarise(Z, labels=LABELS, partner=PARTNER, latents=LATENTS)[metric.name]
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
