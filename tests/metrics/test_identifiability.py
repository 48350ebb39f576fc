"""Identifiability: each metric against a slow reference, on codes whose value is known, and on the page's table."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from probssl.errors import InputError
from probssl.metrics import block_orthogonality, concentration_error, linear_r2, loss_gap, mcc
from tests.metrics.codes import gaussian, on_sphere, rotation

PAGE = Path(__file__).parents[2] / "docs" / "identifiability.md"
TRUTH = np.array([5.0, 5.0, 25.0, 25.0])
GROUPS = {"style": [0, 1], "content": [2, 3]}
Z = on_sphere(4000, 4)
WITHIN = np.zeros((4, 4))
WITHIN[:2, :2], WITHIN[2:, 2:] = rotation(2, 1), rotation(2, 2)
HALF = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2

# the codes of the page's first table
CODES = {
    "identity": Z,
    "signed permutation": Z[:, [2, 0, 3, 1]] * [1, -1, -1, 1],
    "radius 3, offset": 3 * Z + 7,
    "rotation within blocks": Z @ WITHIN,
    "rotation across blocks": Z @ HALF,
    "each latent cubed": Z**3,
    "style at half the scale": Z * [0.5, 0.5, 1, 1],
    "style lost": Z * [0, 0, 1, 1],
    "half noise": Z + 0.5 * gaussian(4000, 4, seed=3),
    "unrelated": gaussian(4000, 4, seed=4),
    "constant": np.full((4000, 4), 0.5),
}


def row(z: np.ndarray) -> list[float]:
    fit = linear_r2(z, Z, groups=GROUPS)
    blocks = block_orthogonality(z, Z, TRUTH)
    return [
        fit.mean,
        fit.groups["style"],
        fit.groups["content"],
        mcc(z, Z).value,
        mcc(z, Z, correlation="spearman").value,
        blocks.leakage,
        blocks.orthogonality_error,
        blocks.nonlinearity,
    ]


@pytest.mark.parametrize("name", CODES)
def test_the_page_says_what_each_metric_is_on_each_code(name):
    found = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", PAGE.read_text(encoding="utf-8").split("## Disent")[0], re.M)
    assert found is not None
    stated = [float(cell.replace("−", "-")) for cell in found.group(1).split("|")]
    assert row(CODES[name]) == pytest.approx(stated, abs=0.006)


# What follows from the definitions, whatever the page says.
AFFINE = ("identity", "signed permutation", "radius 3, offset", "rotation within blocks", "rotation across blocks")


@pytest.mark.parametrize("name", AFFINE)
def test_affine_maps_have_r2_of_one(name):
    np.testing.assert_allclose(linear_r2(CODES[name], Z).per_latent, 1.0, atol=1e-12)


@pytest.mark.parametrize("name", AFFINE[:4])
def test_the_optima_of_theorem_3_1_have_no_error(name):
    found = block_orthogonality(CODES[name], Z, TRUTH)
    assert [found.leakage, found.orthogonality_error, found.nonlinearity] == pytest.approx([0, 0, 0], abs=1e-9)
    assert found.scale == pytest.approx(3.0 if name.startswith("radius") else 1.0)


# ---- R² ----


@pytest.mark.parametrize("k", [1, 3, 7])
def test_r2_is_that_of_a_slow_reference(k):
    x, y = gaussian(200, k), gaussian(200, 3, seed=1)
    y[:, :1] += x[:, :1]
    fitted = LinearRegression().fit(x[:150], y[:150])
    expected = r2_score(y[150:], fitted.predict(x[150:]), multioutput="raw_values")
    found = linear_r2(x[:150], y[:150], test=(x[150:], y[150:]), groups={"first": [0], "rest": [1, 2]})
    np.testing.assert_allclose(found.per_latent, expected, rtol=1e-10)
    assert found.mean == pytest.approx(expected.mean())
    assert found.groups == pytest.approx({"first": expected[0], "rest": expected[1:].mean()})


def test_r2_is_held_out_and_not_clipped():
    x, y = gaussian(60, 30), gaussian(60, 4, seed=1)
    in_sample = r2_score(y, LinearRegression().fit(x, y).predict(x))
    assert in_sample > 0.3
    assert linear_r2(x, y).mean < 0


def test_every_latent_counts_the_last_too():
    assert linear_r2(Z[:, :3], Z).per_latent[3] == pytest.approx(0, abs=0.02)
    assert linear_r2(Z[:, :3], Z).mean == pytest.approx(0.75, abs=0.01)
    assert mcc(Z[:, :3], Z).value == pytest.approx(0.75, abs=0.01)


def test_the_split_is_that_of_the_seed():
    z = CODES["half noise"]
    assert linear_r2(z, Z, seed=3).mean == linear_r2(z, Z, seed=3).mean
    assert linear_r2(z, Z, seed=3).mean != linear_r2(z, Z, seed=4).mean


@pytest.mark.parametrize(
    "spoil",
    [
        lambda z: np.hstack([z, z]),
        lambda z: np.hstack([z, np.ones((len(z), 2))]),
        lambda z: np.hstack([z, 1e-9 * z[:, :1] + z[:, 1:2]]),
        lambda z: z * [1e-12, 1, 1e12, 1],
        lambda z: z * 1e200,
        lambda z: z + 1e6,
    ],
    ids=["duplicated", "dead", "nearly dependent", "scales", "huge", "offset"],
)
def test_r2_survives_codes_of_any_rank_and_scale(spoil):
    np.testing.assert_allclose(linear_r2(spoil(Z), Z).per_latent, 1.0, atol=1e-6)


def test_a_constant_latent_is_zero_and_named():
    latents = Z.copy()
    latents[:, 2] = 3.0
    found = linear_r2(Z, latents)
    assert found.constant == (2,)
    assert found.per_latent[2] == 0.0
    assert found.mean == pytest.approx(0.75)


# ---- MCC ----


def brute_force(codes: np.ndarray, latents: np.ndarray, statistic) -> float:
    k, d = codes.shape[1], latents.shape[1]
    table = np.array([[abs(statistic(codes[:, i], latents[:, j])[0]) for j in range(d)] for i in range(k)])
    if k >= d:
        return max(sum(table[i, j] for j, i in enumerate(order)) for order in permutations(range(k), d)) / d
    return max(sum(table[i, j] for i, j in enumerate(order)) for order in permutations(range(d), k)) / d


@pytest.mark.parametrize("correlation", ["pearson", "spearman"])
@pytest.mark.parametrize("k", [2, 4, 5])
def test_mcc_is_that_of_all_assignments(correlation, k):
    latents = gaussian(60, 4)
    codes = latents @ gaussian(4, k, seed=1) + gaussian(60, k, seed=2)
    codes[::7] = np.round(codes[::7])  # ties
    expected = brute_force(codes, latents, pearsonr if correlation == "pearson" else spearmanr)
    assert mcc(codes, latents, correlation=correlation).value == pytest.approx(expected)


def test_mcc_tells_which_code_is_which_latent():
    found = mcc(CODES["signed permutation"], Z)
    assert found.permutation.tolist() == [1, 3, 0, 2]
    assert found.signs.tolist() == [-1, 1, 1, -1]
    np.testing.assert_allclose(found.correlations, 1.0)
    fewer = mcc(Z[:, [3, 1]], Z)
    assert (fewer.permutation.tolist(), fewer.signs.tolist()) == ([-1, 1, -1, 0], [0, 1, 0, 1])
    assert fewer.value == pytest.approx(0.5)
    assert mcc(np.hstack([CODES["unrelated"], Z]), Z).permutation.tolist() == [4, 5, 6, 7]


def test_spearman_forgives_monotone_maps():
    assert mcc(np.exp(3 * Z), Z, correlation="spearman").value == pytest.approx(1.0)
    assert mcc(np.exp(3 * Z), Z).value < 0.95


def test_held_out_mcc_of_noise_is_about_zero():
    values, in_sample = [], []
    for seed in range(20):
        codes, latents = gaussian(200, 5, seed=2 * seed), gaussian(200, 5, seed=2 * seed + 1)
        values.append(mcc(codes, latents, test_size=0.5, seed=seed).value)
        in_sample.append(mcc(codes, latents).value)
    assert abs(np.mean(values)) < 0.03  # five standard errors
    assert np.mean(in_sample) > 0.08
    assert mcc(Z, Z, test=(Z[:50], -Z[:50])).value == pytest.approx(-1.0)


# ---- blocks ----


def test_leakage_is_the_least_of_all_assignments():
    codes, truth = gaussian(50, 5, seed=1), np.array([1.0, 2.0, 1.0, 3.0, 2.0])
    latents = gaussian(50, 5)
    codes += latents @ gaussian(5, 5, seed=2)
    design = np.hstack([latents, np.ones((50, 1))])
    matrix = np.linalg.lstsq(design, codes, rcond=None)[0][:5].T  # codes by latents
    leaks = []
    for blocks in set(permutations(truth)):  # the block of each code
        outside = sum(matrix[c, j] ** 2 for c in range(5) for j in range(5) if blocks[c] != truth[j])
        leaks.append((outside / np.sum(matrix**2), blocks))
    leak, blocks = min(leaks)
    found = block_orthogonality(codes, latents, truth, test=(codes, latents))
    np.testing.assert_allclose(found.matrix, matrix, atol=1e-12)
    assert found.leakage == pytest.approx(leak)
    assert found.code_blocks.tolist() == [int(b) - 1 for b in blocks]
    assert found.blocks.tolist() == [0, 1, 0, 2, 1]
    parts = [matrix[np.ix_(np.array(blocks) == b, truth == b)] for b in (1, 2, 3)]
    squares = np.concatenate([np.linalg.svd(part, compute_uv=False) ** 2 for part in parts])
    error = np.sqrt(np.mean((squares / squares.mean() - 1) ** 2))
    assert found.orthogonality_error == pytest.approx(error)


def test_learnt_concentrations_place_the_codes():
    swapped = Z[:, [2, 3, 0, 1]]
    assert block_orthogonality(swapped, Z, TRUTH, learnt=[24, 26, 5, 4]).leakage == pytest.approx(0, abs=1e-12)
    wrong = block_orthogonality(swapped, Z, TRUTH, learnt=TRUTH)
    assert wrong.leakage == pytest.approx(1.0)
    assert block_orthogonality(swapped, Z, TRUTH).code_blocks.tolist() == [1, 1, 0, 0]


def test_one_block_allows_every_rotation_and_four_blocks_none():
    assert block_orthogonality(CODES["rotation across blocks"], Z, np.ones(4)).leakage == pytest.approx(0)
    for name in ("rotation within blocks", "rotation across blocks"):
        assert block_orthogonality(CODES[name], Z, [1, 2, 3, 4]).leakage > 0.1


def test_the_worst_orthogonality_error_is_the_root_of_d_minus_one():
    found = block_orthogonality(Z * [0, 0, 0, 1], Z, np.ones(4))
    assert found.orthogonality_error == pytest.approx(np.sqrt(3), abs=1e-9)


# ---- concentrations and losses ----


@pytest.mark.parametrize("seed", range(5))
def test_sorting_is_the_best_matching_of_log_ratios(seed):
    learnt, truth = np.exp(gaussian(2, 5, seed))
    found = concentration_error(learnt, truth)
    ratios = np.abs(np.log(learnt[found.matching] / truth))
    every = [np.abs(np.log(learnt[list(order)] / truth)) for order in permutations(range(5))]
    assert ratios.sum() == pytest.approx(min(each.sum() for each in every))
    assert ratios.max() == pytest.approx(min(each.max() for each in every))
    np.testing.assert_allclose(found.relative, learnt[found.matching] / truth - 1)
    assert (found.maximum, found.mean) == (np.abs(found.relative).max(), np.abs(found.relative).mean())


def test_sorting_need_not_be_the_best_matching_of_relative_errors():
    assert concentration_error([0.1, 0.5], [1, 10]).mean > np.mean([abs(0.5 / 1 - 1), abs(0.1 / 10 - 1)])


def test_permuted_concentrations_have_no_error():
    found = concentration_error([25, 5, 25.5, 5], TRUTH)
    np.testing.assert_allclose(found.relative, [0, 0, 0, 0.02])
    assert found.maximum == pytest.approx(0.02)


def test_a_gap_batch_by_batch_has_the_smaller_error():
    shared = gaussian(50, 1)[:, 0]
    losses, least = 4.3 + shared + 0.01 * gaussian(50, 1, seed=1)[:, 0], 4.2 + shared
    paired, single = loss_gap(losses, least), loss_gap(losses, 4.2)
    assert paired.gap == pytest.approx(0.1, abs=5 * paired.standard_error)
    assert paired.standard_error == pytest.approx(np.std(losses - least, ddof=1) / np.sqrt(50))
    assert single.standard_error > 50 * paired.standard_error
    assert (single.batches, single.gap) == (50, pytest.approx(losses.mean() - 4.2))


# ---- input ----


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: linear_r2(Z, Z[:-1]), "4000 rows of codes and 3999 rows of latents"),
        (lambda: linear_r2(Z, np.full((4000, 2), np.nan)), "latents is not finite"),
        (lambda: linear_r2(Z[:3], Z[:3]), "too few to hold out"),
        (lambda: linear_r2(Z, Z, test_size=1.5), "between 0 and 1"),
        (lambda: linear_r2(Z, Z, test=Z), "pair of arrays"),
        (lambda: linear_r2(Z, Z, test=(Z[:, :2], Z)), "test rows have 2 codes"),
        (lambda: linear_r2(Z, Z, groups={"content": [3, 4]}), "'content' names latents outside 0 to 3"),
        (lambda: linear_r2(Z, Z, groups={"content": []}), "list of latent numbers"),
        (lambda: mcc(Z, Z, correlation="kendall"), "'pearson' or 'spearman'"),
        (lambda: block_orthogonality(Z[:, :3], Z, TRUTH), "3 codes and 4 latents"),
        (lambda: block_orthogonality(Z, Z, TRUTH[:3]), "concentrations must have 4 entries, not 3"),
        (lambda: block_orthogonality(Z, Z, TRUTH, learnt=-TRUTH), "learnt must be above zero, but entry 2 is -25"),
        (lambda: concentration_error([1, np.inf], [1, 2]), "list of finite numbers"),
        (lambda: loss_gap([1.0], 1.0), "at least 2 batches"),
        (lambda: loss_gap([1.0, 2.0, 3.0], [1.0, 2.0]), "one for each of the 3 batches"),
    ],
)
def test_bad_input_gets_one_sentence(call, says):
    with pytest.raises(InputError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
