"""Laws that hold for every metric: what leaves it alone, what it refuses, and where its values may lie."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from probssl import metrics
from probssl.errors import InputError
from tests.metrics.codes import blobs, gaussian, rotation

Z, LABELS = blobs(240)
NOISE = 0.3 * gaussian(240, 4, seed=3)

# name -> function of (code, labels, related code)
FUNCTIONS = {
    "linear_probe": lambda z, y, b: metrics.linear_probe(z, y, splits=2).mean,
    "knn_probe": lambda z, y, b: metrics.knn_probe(z, y, splits=2).mean,
    "knn_probe_chosen": lambda z, y, b: metrics.knn_probe(z, y, splits=2, neighbours=[1, 3, 5]).mean,
    "mlp_probe": lambda z, y, b: metrics.mlp_probe(z, y, splits=2, epochs=20, lr=1e-2).mean,
    "gmm_accuracy": lambda z, y, b: metrics.gmm_probe(z, y, splits=2, starts=3).accuracy.mean,
    "gmm_nmi": lambda z, y, b: metrics.gmm_probe(z, y, splits=2, starts=3).nmi.mean,
    "retrieval": lambda z, y, b: metrics.retrieval(z, metrics.Factor(y, "categorical"), at=[5]).at[5],
    "average_precision": lambda z, y, b: (
        metrics.retrieval(z, metrics.Factor(y, "categorical"), at=[1]).mean_average_precision
    ),
    "rankme": lambda z, y, b: metrics.rankme(z),
    "rankme_centred": lambda z, y, b: metrics.rankme(z, centre=True),
    "effective_rank": lambda z, y, b: metrics.spectra(z).effective_rank,
    "numerical_rank": lambda z, y, b: metrics.spectra(z).numerical_rank,
    "intrinsic_dimension": lambda z, y, b: metrics.intrinsic_dimension(z),
    "cluster_learnability": lambda z, y, b: metrics.cluster_learnability(z, clusters=3),
    "alignment": lambda z, y, b: metrics.alignment(z, b),
    "uniformity": lambda z, y, b: metrics.uniformity(z),
    "coding_rate": lambda z, y, b: metrics.coding_rate(z),
    "mcr2": lambda z, y, b: metrics.mcr2(z, clusters=3).reduction,
    "mcr2_labels": lambda z, y, b: metrics.mcr2(z, y).reduction,
}
ALL = sorted(FUNCTIONS)
WITH_SPLITS = {
    *("linear_probe", "knn_probe", "knn_probe_chosen", "mlp_probe"),
    *("gmm_accuracy", "gmm_nmi", "cluster_learnability"),
}

# Metrics of directions from the origin change when the origin moves.
ABOUT_THE_ORIGIN = {"rankme", "alignment", "uniformity", "coding_rate", "mcr2", "mcr2_labels"}
OF_LABELS = {*(WITH_SPLITS - {"cluster_learnability"}), "retrieval", "average_precision", "mcr2_labels"}
COUNTS_PAIRS = {"uniformity", "average_precision"}  # two copies of a row are a pair at distance zero
DEPENDS_ON_WIDTH = {"coding_rate", "mcr2", "mcr2_labels"}  # m stands in the formula


def value(name: str, z: np.ndarray, labels: np.ndarray = LABELS, related: np.ndarray | None = None) -> float:
    return FUNCTIONS[name](z, labels, Z + NOISE if related is None else related)


@pytest.mark.parametrize("name", ALL)
def test_rotation_changes_nothing(name):
    q = rotation(4)
    assert value(name, Z @ q, related=(Z + NOISE) @ q) == pytest.approx(value(name, Z), rel=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_a_common_scale_changes_nothing(name):
    # blobs are separable, so even the penalised linear probe keeps its accuracy
    assert value(name, 7 * Z, related=7 * (Z + NOISE)) == pytest.approx(value(name, Z), rel=1e-6)


@pytest.mark.parametrize("name", sorted(set(ALL) - ABOUT_THE_ORIGIN))
def test_translation_changes_nothing(name):
    assert value(name, Z + 100, related=Z + NOISE + 100) == pytest.approx(value(name, Z), rel=1e-6)


@pytest.mark.parametrize("name", sorted(set(ALL) - WITH_SPLITS))
def test_the_order_of_rows_changes_nothing(name):
    p = np.random.default_rng(5).permutation(len(Z))
    assert value(name, Z[p], LABELS[p], (Z + NOISE)[p]) == pytest.approx(value(name, Z), rel=1e-9)


@pytest.mark.parametrize("name", sorted(set(ALL) - DEPENDS_ON_WIDTH))
def test_duplicated_columns_change_nothing(name):
    related = np.hstack([Z + NOISE, Z + NOISE])
    assert value(name, np.hstack([Z, Z]), related=related) == pytest.approx(value(name, Z), rel=1e-6)


@pytest.mark.parametrize("name", sorted(set(ALL) - WITH_SPLITS - COUNTS_PAIRS))
def test_duplicated_rows_change_nothing(name):
    twice = [np.concatenate([a, a]) for a in (Z, LABELS, Z + NOISE)]
    assert value(name, *twice) == pytest.approx(value(name, Z), rel=1e-9)


@pytest.mark.parametrize("name", sorted(WITH_SPLITS))
def test_duplicated_rows_of_separated_groups_stay_learnable(name):
    assert value(name, np.concatenate([Z, Z]), np.concatenate([LABELS, LABELS])) == 1.0


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_input_is_not_changed_and_float32_is_enough(name, dtype):
    z = Z.astype(dtype)
    before = z.copy()
    assert isinstance(value(name, z), float | int)
    np.testing.assert_array_equal(z, before)
    assert value(name, z) == pytest.approx(value(name, Z), rel=1e-4)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (np.zeros(5), "two dimensions"),
        (np.zeros((5, 2, 2)), "two dimensions"),
        (np.zeros((0, 2)), "rows"),
        (np.zeros((5, 0)), "no features"),
        (np.array([["a", "b"]] * 5), "real numbers"),
        (np.ones((5, 2)) * 1j, "real numbers"),
        (np.array([[1.0, np.nan]] * 5), "not finite at row 0, feature 1"),
        (np.array([[np.inf, 1.0]] * 5), "not finite at row 0, feature 0"),
        ([[1.0], [1.0, 2.0]], "two-dimensional"),
    ],
)
def test_bad_input_gets_one_sentence(name, bad, says):
    with pytest.raises(InputError, match=says) as caught:
        value(name, bad, np.zeros(5))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (LABELS[:-1], "239 labels for 240 rows"),
        (LABELS[:, None], "one dimension"),
        (np.where(LABELS == 0, np.nan, LABELS), "label of row 0 is missing"),
        (np.array([None, *LABELS[1:]], dtype=object), "label of row 0 is missing"),
        (np.array(["a", *LABELS[1:]], dtype=object), "mix types"),
    ],
)
@pytest.mark.parametrize("name", sorted(OF_LABELS))
def test_bad_labels_get_one_sentence(name, labels, says):
    with pytest.raises(InputError, match=says):
        value(name, Z, labels)


@pytest.mark.parametrize("name", sorted(OF_LABELS))
@pytest.mark.parametrize("rename", [lambda y: np.array(["x", "y", "z"])[y], lambda y: y * -7.5, lambda y: y.tolist()])
def test_names_of_classes_do_not_matter(name, rename):
    assert value(name, Z, rename(LABELS)) == pytest.approx(value(name, Z), rel=1e-9)


def test_importing_the_room_is_light():
    code = "import sys, probssl.metrics; print([m for m in ('torch', 'sklearn', 'scipy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_public_name_is_there():
    assert all(hasattr(metrics, name) for name in metrics.__all__)
