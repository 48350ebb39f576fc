"""Disentanglement: each score against a slow reference, on codes whose value is known, and on the page's tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mutual_info_score

from probssl.errors import InputError
from probssl.metrics import (
    beta_vae,
    beta_vae_accuracy,
    dci,
    disentanglement_scores,
    factor_vae,
    factor_vae_accuracy,
    mig,
    modularity,
    sap,
)
from tests.metrics.codes import gaussian, rotation

PAGE = Path(__file__).parents[2] / "docs" / "identifiability.md"
ROTATION = rotation(4)
HALF = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2  # mixes all four equally
SIZES = {"train": 2000, "test": 1000, "points": 600, "test_points": 400}

# Two worlds of four independent factors.
WORLDS: dict[str, Callable] = {
    "continuous": lambda count, rng: rng.uniform(-1, 1, size=(count, 4)),
    "discrete": lambda count, rng: rng.integers(0, 3, size=(count, 4)),
}
DEVIATION = {"continuous": np.sqrt(1 / 3), "discrete": np.sqrt(2 / 3)}


def codes(name: str, world: str) -> Callable:
    """An encoder of the page's tables; those with noise draw it from a stream of their own."""
    rng = np.random.default_rng(9)
    return {
        "identity": lambda v: v,
        "permuted, other scales and signs": lambda v: v[:, [2, 0, 3, 1]] * [1, -2, 0.5, -1],
        "two dead dimensions": lambda v: np.hstack([v, np.zeros((len(v), 2))]),
        "each factor twice": lambda v: np.hstack([v, v]),
        "two of four factors": lambda v: v[:, :2],
        "noise of 0.3 deviations": lambda v: v + 0.3 * DEVIATION[world] * rng.normal(size=v.shape),
        "one pair rotated by 45°": lambda v: np.stack([v[:, 0] + v[:, 1], v[:, 0] - v[:, 1], v[:, 2], v[:, 3]], 1),
        "random rotation": lambda v: v @ ROTATION,
        "rotation that mixes all equally": lambda v: v @ HALF,
        "unrelated": lambda v: rng.normal(size=v.shape),
        "constant": lambda v: np.full((len(v), 4), 0.1),
    }[name]


NAMES = (
    "identity",
    "permuted, other scales and signs",
    "two dead dimensions",
    "each factor twice",
    "two of four factors",
    "noise of 0.3 deviations",
    "one pair rotated by 45°",
    "random rotation",
    "rotation that mixes all equally",
    "unrelated",
    "constant",
)
CHANCE = 1 / 4  # which of four factors
HIGH = {"continuous": (1, 1, 0.96, 1, 1, 1, 1, 1), "discrete": (1, 1, 1, 1, 1, 1, 1, 0.67)}


@cache
def scores(name: str, world: str) -> dict[str, float]:
    return disentanglement_scores(WORLDS[world], codes(name, world), **SIZES)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_each_score_is_on_each_code(name, world):
    text = PAGE.read_text(encoding="utf-8").split(f"### Four {world} factors")[1].split("###")[0]
    found = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", text, flags=re.M)
    assert found is not None
    stated = [float(cell.replace("−", "-")) for cell in found.group(1).split("|")]
    assert list(scores(name, world).values()) == pytest.approx(stated, abs=0.03)


# What the definitions promise, whatever the page says.


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", NAMES)
def test_scores_are_finite_and_in_range(name, world):
    for score, value in scores(name, world).items():
        assert np.isfinite(value)
        assert value <= 1
        assert value >= (-0.1 if score == "dci_informativeness" else 0)


@pytest.mark.parametrize("world", WORLDS)
def test_the_identity_scores_one_where_the_definition_allows(world):
    found = scores("identity", world)
    assert list(found.values()) == pytest.approx(HIGH[world], abs=0.02)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("score", ["factor_vae", "mig", "dci_disentanglement", "dci_completeness", "modularity", "sap"])
def test_order_scale_and_sign_of_codes_change_nothing(score, world):
    permuted = scores("permuted, other scales and signs", world)
    assert permuted[score] == pytest.approx(scores("identity", world)[score], abs=0.02)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("score", ["beta_vae", "factor_vae", "mig", "dci_disentanglement", "dci_completeness", "sap"])
def test_dead_dimensions_cost_nothing(score, world):
    assert scores("two dead dimensions", world)[score] == pytest.approx(scores("identity", world)[score], abs=0.02)


@pytest.mark.parametrize("world", WORLDS)
def test_dead_dimensions_have_no_modularity(world):
    assert scores("two dead dimensions", world)["modularity"] == pytest.approx(4 / 6, abs=0.01)


@pytest.mark.parametrize("world", WORLDS)
def test_duplicates_leave_no_gap(world):
    found = scores("each factor twice", world)
    assert found["mig"] == found["sap"] == 0
    assert [found[score] for score in ("beta_vae", "factor_vae", "modularity")] == pytest.approx([1, 1, 1], abs=0.01)
    assert found["dci_disentanglement"] == pytest.approx(1, abs=0.01)
    assert found["dci_completeness"] == pytest.approx(1 - np.log(2) / np.log(8), abs=0.03)  # two codes of eight


@pytest.mark.parametrize("world", WORLDS)
def test_a_rotation_that_mixes_all_equally_is_at_chance(world):
    found = scores("rotation that mixes all equally", world)
    assert found["beta_vae"] == pytest.approx(CHANCE, abs=0.1)
    assert found["factor_vae"] == pytest.approx(CHANCE, abs=0.1)
    assert max(found[score] for score in ("mig", "dci_disentanglement", "dci_completeness", "sap")) < 0.05
    assert found["modularity"] < 0.3
    assert found["dci_informativeness"] > 0.8


@pytest.mark.parametrize("world", WORLDS)
def test_a_random_rotation_is_seen_by_gaps_and_importances(world):
    found, best = scores("random rotation", world), scores("identity", world)
    for score in ("mig", "dci_disentanglement", "dci_completeness", "sap"):
        assert found[score] < 0.65 * best[score]


@pytest.mark.parametrize("world", WORLDS)
def test_noise_lowers_the_gap_and_keeps_the_rest(world):
    found, best = scores("noise of 0.3 deviations", world), scores("identity", world)
    assert 0.2 * best["mig"] < found["mig"] < 0.95 * best["mig"]
    for score in ("beta_vae", "factor_vae", "dci_disentanglement", "modularity"):
        assert found[score] > 0.9


@pytest.mark.parametrize("world", WORLDS)
def test_a_constant_code_scores_nothing(world):
    found = scores("constant", world)
    assert found.pop("beta_vae") == pytest.approx(CHANCE, abs=0.1)
    assert found.pop("dci_informativeness") == pytest.approx(0.0 if world == "continuous" else 1 / 3, abs=0.05)
    assert set(found.values()) == {0.0}


def test_the_seed_decides():
    def small(seed: int) -> dict[str, float]:
        sizes = {"train": 200, "test": 100, "points": 60, "test_points": 40}
        return disentanglement_scores(WORLDS["continuous"], lambda v: v @ ROTATION, **sizes, seed=seed)

    assert small(1) == small(1)
    assert small(1) != small(2)


# ---- against slow references ----


def mixed() -> tuple[np.ndarray, np.ndarray]:
    """300 rows of three codes, and of a continuous, a five-valued and a two-valued factor."""
    rng = np.random.default_rng(0)
    factors = np.stack([rng.normal(size=300), rng.integers(-2, 3, 300), rng.integers(0, 2, 300)], axis=1)
    return factors @ rng.normal(size=(3, 3)) + rng.normal(size=(300, 3)), factors


def slow_information(z: np.ndarray, v: np.ndarray, bins: int) -> tuple[np.ndarray, np.ndarray]:
    def cut(x: np.ndarray) -> np.ndarray:
        return np.digitize(x, np.histogram_bin_edges(x, bins)[1:-1])

    levels = [cut(v[:, 0]), v[:, 1], v[:, 2]]
    table = np.array([[mutual_info_score(cut(code), level) for level in levels] for code in z.T])
    return table, np.array([mutual_info_score(level, level) for level in levels])


@pytest.mark.parametrize("bins", [2, 7, 20])
def test_mig_and_modularity_by_loops(bins):
    z, v = mixed()
    information, entropy = slow_information(z, v, bins)
    gaps = [(sorted(column)[-1] - sorted(column)[-2]) / h for column, h in zip(information.T, entropy, strict=True)]
    assert mig(z, v, bins=bins) == pytest.approx(np.mean(gaps))
    each = []
    for line in information:
        best = int(np.argmax(line))
        template = np.where(np.arange(3) == best, line[best], 0.0)
        each.append(1 - np.sum((line - template) ** 2) / (line[best] ** 2 * 2))
    assert modularity(z, v, bins=bins) == pytest.approx(np.mean(each))


def test_sap_of_continuous_factors_by_loops():
    z, v = mixed()
    found = sap(z[:200], v[:200], discrete=[False] * 3, test=(z[200:], v[200:]))
    table = np.array([[np.corrcoef(a, b)[0, 1] ** 2 for b in v[200:].T] for a in z[200:].T])
    assert found == pytest.approx(np.mean([np.diff(np.sort(column))[-1] for column in table.T]))


@pytest.mark.parametrize(("values", "least", "largest"), [(2, 0.47, 0.53), (3, 0.63, 0.7), (10, 0.05, 0.25)])
def test_sap_of_many_values_is_low_even_for_the_identity(values, least, largest):
    v = np.random.default_rng(0).integers(0, values, size=(6000, 2))
    assert least < sap(v, v) < largest
    assert least < sap(v - (values - 1) / 2, v) < largest


def test_sap_and_mig_of_a_single_code_compare_with_a_constant():
    v = np.random.default_rng(0).integers(0, 2, size=(3000, 1))
    assert sap(v, v) == pytest.approx(0.5, abs=0.05)
    assert sap(v / 2, v / 2 + 0.1) == pytest.approx(1.0)
    assert mig(v, v) == modularity(v, v) == pytest.approx(1.0)
    found = dci(v, v)
    assert found.disentanglement == found.completeness == found.informativeness == 1


@pytest.mark.parametrize("model", ["forest", "boosting", "lasso"])
@pytest.mark.parametrize("world", WORLDS)
def test_dci_by_loops_for_every_model(model, world):
    v = WORLDS[world](400, np.random.default_rng(0))
    z = np.hstack([v, v[:, :1] + v[:, 1:2], np.ones((400, 1))])
    found = dci(z, v, model=model, trees=4)
    k, f = found.importance.shape
    assert (k, f) == (6, 4)

    def entropy(p: np.ndarray, base: int) -> float:
        p = p[p > 0] / p.sum()
        return float(-np.sum(p * np.log(p)) / np.log(base))

    total = found.importance.sum()
    rows = [(line.sum() / total) * (1 - entropy(line, f)) for line in found.importance if line.sum() > 0]
    columns = [(column.sum() / total) * (1 - entropy(column, k)) for column in found.importance.T]
    assert found.disentanglement == pytest.approx(sum(rows))
    assert found.completeness == pytest.approx(sum(columns))
    assert found.informativeness == pytest.approx(found.per_factor.mean())
    assert found.importance[5].sum() == 0
    assert (np.argmax(found.importance[:4], axis=0) == np.arange(4)).all()


def test_a_lost_factor_hands_out_importance_but_not_to_the_lasso():
    v = WORLDS["continuous"](1000, np.random.default_rng(0))
    assert dci(v[:, :2], v, model="lasso").disentanglement > 0.8
    assert dci(v[:, :2], v).disentanglement < 0.4


def test_beta_vae_points_by_loops():
    rng = np.random.default_rng(0)

    def point() -> tuple[np.ndarray, int]:
        j = int(rng.integers(4))
        a, b = WORLDS["continuous"](64, rng), WORLDS["continuous"](64, rng)
        b[:, j] = a[:, j]
        return np.abs(a @ ROTATION - b @ ROTATION).mean(axis=0), j

    points = [point() for _ in range(1500)]
    x, y = np.array([p[0] for p in points]), np.array([p[1] for p in points])
    model = LogisticRegression(max_iter=1000).fit(x[:1000], y[:1000])
    slow = model.score(x[1000:], y[1000:])
    assert beta_vae_accuracy(x[:1000], y[:1000], x[1000:], y[1000:]) == pytest.approx(slow, abs=0.005)
    fast = beta_vae(WORLDS["continuous"], lambda v: v @ ROTATION, train=1000, test=500, seed=1)
    assert fast == pytest.approx(slow, abs=0.07)  # four standard errors


def test_factor_vae_points_by_loops():
    rng = np.random.default_rng(0)
    scale = np.var(WORLDS["continuous"](10_000, rng) @ ROTATION, axis=0, ddof=1)

    def point() -> tuple[np.ndarray, int]:
        j = int(rng.integers(4))
        v = WORLDS["continuous"](64, rng)
        v[:, j] = v[0, j]
        return np.var(v @ ROTATION, axis=0, ddof=1), j

    points = [point() for _ in range(1500)]
    votes = [(int(np.argmin(variances / scale)), j) for variances, j in points]
    majority = {i: np.bincount([j for w, j in votes[:1000] if w == i], minlength=4).argmax() for i in range(4)}
    slow = np.mean([majority[i] == j for i, j in votes[1000:]])
    x, y = np.array([p[0] for p in points]), np.array([p[1] for p in points])
    assert factor_vae_accuracy(x[:1000], y[:1000], x[1000:], y[1000:], scale) == pytest.approx(slow)
    fast = factor_vae(WORLDS["continuous"], lambda v: v @ ROTATION, train=1000, test=500, seed=1)
    assert fast == pytest.approx(slow, abs=0.07)


def test_factor_vae_leaves_out_what_hardly_varies():
    def with_noise(v: np.ndarray) -> np.ndarray:
        return np.hstack([v, np.full((len(v), 1), 5.0), 1e-3 * np.sign(v[:, :1])])

    found = [
        factor_vae(WORLDS["continuous"], with_noise, train=300, test=300, least_deviation=least)
        for least in (0.0, 0.01, 10.0)
    ]
    assert found == [1.0, 1.0, 0.0]


def test_interventions_see_whole_numbers_and_leave_the_drawn_factors_alone():
    kept = WORLDS["discrete"](200_000, np.random.default_rng(0))
    before = kept.copy()
    kinds = set()

    def encode(v: np.ndarray) -> np.ndarray:
        kinds.add(v.dtype.kind)
        return v.astype(float)

    assert factor_vae(lambda count, rng: kept[:count], encode, train=100, test=100) == 1.0
    assert beta_vae(lambda count, rng: kept[rng.permutation(count)], encode, train=100, test=100) > 0.9
    assert kinds == {"i"}
    np.testing.assert_array_equal(kept, before)


def test_whole_numbers_are_discrete_unless_told_otherwise():
    v = np.random.default_rng(0).integers(0, 9, size=(900, 2))
    assert mig(v, v) == pytest.approx(mig(v, v.astype(float)))
    assert sap(v, v) < 0.4
    assert sap(v, v, discrete=[False, False]) > 0.95
    assert dci(v, v, discrete=[False, True]).informativeness == pytest.approx(1.0, abs=0.01)


# ---- input ----

V = gaussian(60, 3)


@pytest.mark.parametrize("score", [mig, modularity, sap, dci])
@pytest.mark.parametrize(
    ("z", "v", "says"),
    [
        (V, V[:-1], "60 rows of codes and 59 rows of factors"),
        (V, V * [1, 0, 1], "factor 1 is constant"),
        (V * np.nan, V, "codes is not finite at row 0"),
        (V[:, 0], V, "two dimensions"),
    ],
)
def test_bad_arrays_get_one_sentence(score, z, v, says):
    with pytest.raises(InputError, match=says) as caught:
        score(z, v)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mig(V, V, bins=1), "bins must be a whole number of at least 2"),
        (lambda: mig(V, V, discrete=[True]), "discrete must be True or False for each of the 3"),
        (lambda: dci(V, V, model="ridge"), "model must be"),
        (lambda: dci(V, V, trees=0), "trees must be"),
        (lambda: sap(V, V, test=(V[:, :2], V)), "test rows have 2 codes"),
        (lambda: beta_vae(lambda n, rng: V, lambda v: v), "gave 60"),
        (lambda: beta_vae(lambda n, rng: rng.normal(size=(n, 1)), lambda v: v), "at least two factors"),
        (lambda: beta_vae(lambda n, rng: rng.normal(size=(n, 2)), lambda v: v[1:]), "returned"),
        (lambda: factor_vae(lambda n, rng: rng.normal(size=(n, 2)), lambda v: v, batch=1), "batch must be"),
        (lambda: beta_vae_accuracy(V, np.zeros(60, int), V, np.zeros(60, int)), "only one factor"),
        (lambda: factor_vae_accuracy(V, np.zeros(60), V, np.zeros(60), np.ones(3)), "by its number"),
        (lambda: factor_vae_accuracy(V, [0] * 60, V, [0] * 60, np.ones(2)), "do not belong together"),
    ],
)
def test_bad_arguments_get_one_sentence(call, says):
    with pytest.raises(InputError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
