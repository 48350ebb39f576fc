"""Did the encoder find the latents? Metrics for worlds whose latents are known.

Sources: Zimmermann et al., "Contrastive Learning can Identify the Underlying Generative Factors of the Data"
(CL-ICA): R² of an affine fit in Table 1, mean correlation coefficients in its appendix. Rusak et al., "InfoNCE:
Identifying the Gap Between Theory and Practice" (AnInfoNCE): R² of content and style latents (Section 4.1),
block-orthogonal maps and the learnt concentrations (Theorem 3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError
from probssl.metrics._held_out import Pair, affine_fit, held_out, held_out_r2, paired
from probssl.metrics._inputs import Array, centred

_EQUAL = 1e-9  # concentrations that differ by less than this share are one block


@dataclass(frozen=True, eq=False)
class LinearR2:
    """Held-out R² of an affine fit of the latents. `mean` is over the latents."""

    mean: float
    per_latent: Array  # [d]
    groups: dict[str, float]  # the mean over each named group of latents
    constant: tuple[int, ...]  # latents that are constant on the test rows, given 0
    each: Array  # [n], what each test row adds: their mean is `mean`


@dataclass(frozen=True, eq=False)
class MCC:
    """Each latent beside the code that was assigned to it. `value` is the mean of |correlations|."""

    value: float
    permutation: NDArray[np.intp]  # [d], the code of each latent; −1 without one
    signs: NDArray[np.intp]  # [d], −1 or 1; 0 without a code
    correlations: Array  # [d], times the sign; 0 without a code


@dataclass(frozen=True, eq=False)
class BlockOrthogonality:
    """How far the linear part of latents → codes is from a block-orthogonal map; three zeros at the optimum.

    `leakage`, `orthogonality_error` and `nonlinearity` are these.
    """

    leakage: float  # in [0, 1]
    orthogonality_error: float  # in [0, sqrt(d − 1)]
    nonlinearity: float
    scale: float  # s, the root mean square singular value of the blocks
    matrix: Array  # [d, d], codes by latents
    blocks: NDArray[np.intp]  # [d], the block of each latent, by rising concentration
    code_blocks: NDArray[np.intp]  # [d], the block that each code was assigned to


@dataclass(frozen=True, eq=False)
class ConcentrationError:
    """Learnt concentrations beside the true ones. `maximum` and `mean` are of |relative|."""

    relative: Array  # [d], learnt / truth − 1, in the order of the truth
    maximum: float  # of |relative|
    mean: float
    matching: NDArray[np.intp]  # [d], which learnt one stands beside each true one


@dataclass(frozen=True)
class LossGap:
    """How far a loss is above the least possible one. `gap` and its `standard_error` are over so many `batches`."""

    gap: float
    standard_error: float
    batches: int


def linear_r2(
    codes: ArrayLike,
    latents: ArrayLike,
    *,
    groups: Mapping[str, Sequence[int]] | None = None,
    test: Pair | None = None,
    test_size: float = 0.2,
    seed: int = 0,
) -> LinearR2:
    """Are the latents an affine function of the codes? Held-out R² of the least-squares fit latents ≈ A codes + b.

    R²_j = 1 − Σ(z_j − ẑ_j)² / Σ(z_j − mean z_j)², sums and mean over rows that the fit has not seen: those of `test`,
    a pair (codes, latents), else a share `test_size` of the rows drawn by the seed. CL-ICA Table 1,
    AnInfoNCE Section 4.1. Their released code takes it on the rows of the fit, where k arbitrary codes already score
    about k/n on n rows.

    Range (−inf, 1]; 1 for any invertible affine map, so it is blind to rotation and permutation. Nothing is clipped:
    a fit that does worse on new rows than their mean is negative. A constant code predicts the training mean and gets
    0 up to the chance of the split. A latent that is constant on the test rows has nothing to explain: its R² is 0,
    it counts in the means, and `constant` names it.
    """
    split = held_out(codes, latents, test, test_size, seed, "latents")
    weights, offset = affine_fit(split.codes, split.targets)
    predicted = split.test_codes @ weights + offset
    scores = held_out_r2(split.test_targets, predicted)
    still = np.ptp(split.test_targets, axis=0) == 0
    means = {name: float(scores[_members(name, group, len(scores))].mean()) for name, group in (groups or {}).items()}
    missed = np.square(split.test_targets - predicted) / np.where(still, 1.0, split.test_targets.var(axis=0))
    each = np.where(still, 0.0, 1 - missed).mean(axis=1)
    return LinearR2(float(scores.mean()), scores, means, tuple(np.flatnonzero(still).tolist()), each)


def mcc(
    codes: ArrayLike,
    latents: ArrayLike,
    *,
    correlation: Literal["pearson", "spearman"] = "pearson",
    test: Pair | None = None,
    test_size: float | None = None,
    seed: int = 0,
) -> MCC:
    """Is every latent one code? Mean over latents of |corr(z_j, code π(j))| for the best one-to-one assignment π.

    Hyvärinen and Morioka 2016. "spearman" correlates ranks (ties share their mean rank) and so forgives any monotone
    map of a single latent, "pearson" only scale and offset. Range [0, 1]; 1 for signed permutations, the ambiguity
    that remains where all concentrations differ, and about 0 for unrelated codes, though the best of d! assignments
    of n rows of noise is above 0 by the order of sqrt(log d / n). Surplus codes are left over; with fewer codes than
    latents, the latents without a code count as 0. A constant column correlates with nothing: 0.

    With `test` or `test_size`, assignment and signs are found on the training rows, and the value is the mean of sign
    times correlation on the test rows: range [−1, 1], and 0 in expectation for unrelated codes.
    """
    if correlation not in ("pearson", "spearman"):
        raise InputError(f"correlation must be 'pearson' or 'spearman', not {correlation!r}")
    from scipy.optimize import linear_sum_assignment

    if test is None and test_size is None:
        fit = judge = paired(codes, latents, "latents")
    else:
        split = held_out(codes, latents, test, 0.2 if test_size is None else test_size, seed, "latents")
        fit, judge = split[:2], split[2:]
    found = _correlations(*fit, correlation)  # [k, d]
    rows, columns = linear_sum_assignment(np.abs(found), maximize=True)
    count = found.shape[1]
    permutation, signs, correlations = np.full(count, -1), np.zeros(count, dtype=np.intp), np.zeros(count)
    permutation[columns] = rows
    signs[columns] = np.where(found[rows, columns] < 0, -1, 1)
    measured = found if judge is fit else _correlations(*judge, correlation)
    correlations[columns] = signs[columns] * measured[rows, columns]
    return MCC(float(correlations.mean()), permutation, signs, correlations)


def block_orthogonality(
    codes: ArrayLike,
    latents: ArrayLike,
    concentrations: ArrayLike,
    *,
    learnt: ArrayLike | None = None,
    test: Pair | None = None,
    test_size: float = 0.2,
    seed: int = 0,
) -> BlockOrthogonality:
    """Is the map from latents to codes block-orthogonal, as AnInfoNCE's Theorem 3.1 says of a global minimum?

    There codes = H latents with HᵀH = I, and an entry H_cj ≠ 0 only where code c has learnt the concentration of
    latent j. Latents with equal entries of `concentrations` [d] form a block; there are as many codes as latents.
    With A [d, d] the matrix of the least-squares fit codes ≈ A latents + b on the training rows:

    - Codes come in any order, so each is first assigned to a block, as many as the block has latents: by rank of
      `learnt`, the learnt concentrations in the order of the codes, where given; else such that leakage is least.
    - leakage = Σ A_cj² over c, j in different blocks / Σ A_cj². 0 at the optimum, at most 1; 0 whenever there is one
      block.
    - orthogonality_error = sqrt(Σ_b ‖B_bᵀB_b / s² − I‖² / d), B_b the part of A within block b and d s² = Σ_b ‖B_b‖²:
      the root mean square of σ²/s² − 1 over the blocks' singular values σ. One s for all blocks allows any radius of
      the sphere of codes, but not blocks of different scale. 0 at the optimum; a collapsed half of the dimensions
      gives 1.
    - nonlinearity = the share of the codes' variance on the test rows that A latents + b leaves unexplained.

    A code with no linear part at all (a constant one) has leakage, error and nonlinearity 1 by convention: not
    optimal. Rows are held out as in `linear_r2`.
    """
    split = held_out(codes, latents, test, test_size, seed, "latents")
    d = split.targets.shape[1]
    truth = _positive_vector(concentrations, "concentrations", d)
    if split.codes.shape[1] != d:
        raise InputError(
            f"a block-orthogonal map is square, but there are {split.codes.shape[1]} codes and {d} latents"
        )
    weights, offset = affine_fit(split.targets, split.codes)
    matrix = np.ascontiguousarray(weights.T)
    blocks = _blocks(truth)
    if learnt is None:
        code_blocks = _best_blocks(matrix**2, blocks)
    else:
        code_blocks = np.empty(d, dtype=np.intp)
        code_blocks[np.argsort(_positive_vector(learnt, "learnt", d), kind="stable")] = np.sort(blocks)
    within = np.where(code_blocks[:, None] == blocks[None, :], matrix, 0.0)
    total, inside = float(np.sum(matrix**2)), float(np.sum(within**2))
    spread = np.sum(centred(split.test_codes) ** 2)
    missed = np.sum((split.test_codes - split.test_targets @ weights - offset) ** 2)
    gram = within.T @ within * (d / inside) if inside > 0 else np.zeros((d, d))
    return BlockOrthogonality(
        leakage=1.0 - inside / total if total > 0 else 1.0,
        orthogonality_error=float(np.linalg.norm(gram - np.eye(d))) / sqrt(d),
        nonlinearity=float(missed / spread) if spread > 0 else 1.0,
        scale=sqrt(inside / d),
        matrix=matrix,
        blocks=blocks,
        code_blocks=code_blocks,
    )


def concentration_error(learnt: ArrayLike, truth: ArrayLike) -> ConcentrationError:
    """Are the true concentrations recovered, up to a permutation? Relative errors learnt / truth − 1, both sorted.

    AnInfoNCE Theorem 3.1: at a global minimum the learnt diagonal is the true one, permuted. Sorting both is the
    one-to- one matching with the least sum, and the least maximum, of |log(learnt / truth)|: if x₁ ≤ x₂ and y₁ ≤ y₂,
    then |x₁ − y₁| and |x₂ − y₂| have no larger sum and no larger maximum than |x₁ − y₂| and |x₂ − y₁|, and undoing
    one inversion after another leads from any matching to the sorted one. (Of relative errors themselves it need not
    be the least: 0.1 and 0.5 lie nearer to 10 and 1 than to 1 and 10.) Entries of `relative` are in the order of the
    truth and above −1; 0 at the optimum. Both must follow one convention, e^{−‖·‖²_Λ} or e^{−½‖·‖²_Λ}.
    """
    truth = _positive_vector(truth, "truth")
    learnt = _positive_vector(learnt, "learnt", len(truth))
    matching = np.empty(len(truth), dtype=np.intp)
    matching[np.argsort(truth, kind="stable")] = np.argsort(learnt, kind="stable")
    relative = learnt[matching] / truth - 1.0
    return ConcentrationError(relative, float(np.abs(relative).max()), float(np.abs(relative).mean()), matching)


def loss_gap(losses: ArrayLike, optimum: ArrayLike) -> LossGap:
    """Mean loss minus the least possible one, with the standard error of that difference, over independent batches.

    `losses` [B] are the means of B batches (rows within a batch share negatives and are not independent). `optimum`
    is one number, or the loss of the best critic on each of these very batches [B]: then the differences are taken
    batch by batch, which removes the noise that both share and makes small gaps visible. At least 0 in expectation; a
    gap many standard errors below 0 says that loss and optimum are not of the same problem.
    """
    values, least = _vector(losses, "losses"), _vector(np.atleast_1d(optimum), "optimum")
    if len(values) < 2:
        raise InputError("a gap with a standard error needs the losses of at least 2 batches")
    if len(least) not in (1, len(values)):
        raise InputError(f"optimum must be one number or one for each of the {len(values)} batches, not {len(least)}")
    gaps = values - least
    return LossGap(float(gaps.mean()), float(gaps.std(ddof=1)) / sqrt(len(gaps)), len(gaps))


def _members(name: str, group: Sequence[int], count: int) -> NDArray[np.intp]:
    members = np.asarray(group)
    if members.ndim != 1 or not len(members) or members.dtype.kind not in "iu":
        raise InputError(f"group {name!r} must be a list of latent numbers")
    if members.min() < 0 or members.max() >= count:
        raise InputError(f"group {name!r} names latents outside 0 to {count - 1}")
    return members.astype(np.intp)


def _correlations(codes: Array, latents: Array, kind: str) -> Array:
    """Correlation of every code with every latent, [k, d]; 0 for constant columns."""
    if kind == "spearman":
        from scipy.stats import rankdata

        codes, latents = rankdata(codes, axis=0), rankdata(latents, axis=0)
    return _standard(codes).T @ _standard(latents)


def _standard(columns: Array) -> Array:
    """Columns of mean zero and length one; constant ones become zero."""
    moved = centred(columns)
    largest = np.abs(moved).max(axis=0)
    moved /= np.where(largest > 0, largest, 1.0)
    length = np.sqrt(np.sum(moved**2, axis=0))
    return moved / np.where(length > 0, length, 1.0)


def _blocks(concentrations: Array) -> NDArray[np.intp]:
    """The block of each latent, numbered by rising concentration, [d]."""
    order = np.argsort(concentrations, kind="stable")
    ordered = concentrations[order]
    blocks = np.empty(len(order), dtype=np.intp)
    blocks[order] = np.concatenate([[0], np.cumsum(ordered[1:] > ordered[:-1] * (1 + _EQUAL))])
    return blocks


def _best_blocks(squares: Array, blocks: NDArray[np.intp]) -> NDArray[np.intp]:
    """The block of each code, [d], that keeps most of the squared weights [codes, latents] within blocks."""
    from scipy.optimize import linear_sum_assignment

    kept = squares @ (blocks[:, None] == blocks[None, :])  # [codes, places]: a place is one of its block's latents
    return blocks[linear_sum_assignment(kept, maximize=True)[1]]


def _vector(values: ArrayLike, name: str, count: int | None = None) -> Array:
    array = np.asarray(values)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "fiub" or not np.isfinite(array).all():
        raise InputError(f"{name} must be a list of finite numbers")
    if count is not None and len(array) != count:
        raise InputError(f"{name} must have {count} entries, not {len(array)}")
    return array.astype(np.float64)


def _positive_vector(values: ArrayLike, name: str, count: int | None = None) -> Array:
    array = _vector(values, name, count)
    if array.min() <= 0:
        raise InputError(f"{name} must be above zero, but entry {int(array.argmin())} is {array.min():g}")
    return array
