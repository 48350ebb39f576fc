"""Objectives without negatives, on moments of the batch: Barlow Twins, VICReg, W-MSE, CorInfoMax.

Each asks that the two sides of a pair are embedded alike, and that the dimensions of an embedding vary and do not
repeat one another. GEDI §2.2 reads this as the lower bound

    E log p(x, x̃) ≥ −H(x) − KL(N(0, Σ) ‖ N(0, I)) − Σ_i KL(N(z_i − z̃_i, I) ‖ N(0, γ⁻¹I)) + const

in a model that has a code N(0, I) for the batch, which embeddings of covariance Σ describe, and a code N(0, γ⁻¹I) for
what each augmentation changes. The first KL is ½(Tr Σ − m − log det Σ), or ¼‖Σ − I‖² to second order; the second is
(γ/2)‖z_i − z̃_i‖² + const; and the four losses differ in what they make of the two. The bound is one on p(x, x̃) as it
is, which no parameter changes: it says what the terms mean, and gives no density of x.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.energies import Cosine, Euclidean, unit
from probssl.errors import InputError
from probssl.objectives.base import Pair, PairObjective
from probssl.pairings.views import Views

RIDGE = 1e-8
"""What W-MSE adds to every variance before it whitens, as a share of it: less than single precision tells."""


class BarlowTwins(PairObjective):
    """L = Σ_k (1 − C_kk)² + λ Σ_{k≠l} C_kl², C the correlation of z_k with z̃_l over the batch   (Zbontar et al., 2021).

    λ is `redundancy`, 5e-3 as published; GEDI's appendix I has it inside the square, which makes it λ². Each side is
    centred and scaled by its own standard deviation, so that the mean and the scale of a dimension are not seen.
    Range [0, ∞), 0 for views that agree in uncorrelated dimensions, which takes more rows than dimensions. A
    dimension without variance has correlation 0, and so a constant encoder gives m.

    As a bound (see above): 1 − C_kk is ½ mean (z_k − z̃_k)² of standardised embeddings, the second KL, and enters
    squared; for views that agree C is their covariance, and the other term 4λ times the first KL to second order.

    Settings:
        redundancy: λ, the weight of correlations between different dimensions.
    """

    family: ClassVar[str] = "moments of the batch"
    compares_views: ClassVar[bool] = True

    admits: ClassVar[dict[str, str]] = {
        "representation": "it does not see the scale of a dimension, and at a constant encoder it has no gradient",
        "dimension": "a dimension that repeats another costs 2λ, and one that is missing 1",
    }

    def __init__(self, *, redundancy: float = 5e-3, pair: Pair = "augmented") -> None:
        super().__init__(Cosine(temperature=1.0), pair=pair)
        self.redundancy = _weight("redundancy", redundancy)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = (_standardised(side) for side in self.embed_pair(encoder, views))
        correlation = first.mT @ second / len(first)
        return {
            "invariance": (1 - correlation.diagonal()).square().sum(),
            "redundancy": self.redundancy * _off_diagonal_squares(correlation),
        }

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0


class VICReg(PairObjective):
    """L = λ mean (z − z̃)² + μ [v(z) + v(z̃)] + ν [c(z) + c(z̃)]   (Bardes et al., 2022).

    The mean is over rows and dimensions, v = mean_k max(0, 1 − √(Var z_k + ε)) and c = (1/m) Σ_{k≠l} Cov(z_k, z_l)²,
    with 1/(n − 1) in moments; λ = μ = 25, ν = 1, ε = 1e-4. Both v are added, as in the paper; its released code has
    half of that sum. The mean over dimensions is that of the paper's pseudocode, which its weights belong to; its
    formula has a sum. Range [0, ∞), 0 for views that agree in uncorrelated dimensions of standard deviation 1 or more.
    A constant encoder gives 2μ(1 − √ε) = 49.5, and is never the minimum: a small deviation σ costs λσ² and saves μσ.

    As a bound (see above), with Σ = Cov z: the first term is the second KL; c is, for unit variances, 4/m times the
    first KL to second order, and v asks for unit variances, from below only.

    Settings:
        invariance: λ, the weight of close pairs.
        variance: μ, the weight of standard deviations above 1.
        covariance: ν, the weight of covariances.
        epsilon: ε, added to variances before their root.
    """

    family: ClassVar[str] = "moments of the batch"
    compares_views: ClassVar[bool] = True

    admits: ClassVar[dict[str, str]] = {
        "dimension": "covariances weigh little: to repeat a dimension costs less than to lack its variance",
    }

    def __init__(
        self,
        *,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
        epsilon: float = 1e-4,
        pair: Pair = "augmented",
    ) -> None:
        super().__init__(Euclidean(), pair=pair)
        self.invariance = _weight("invariance", invariance)
        self.variance = _weight("variance", variance)
        self.covariance = _weight("covariance", covariance)
        self.epsilon = _weight("epsilon", epsilon)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        covariances = [_covariance(_centred(side), len(side) - 1) for side in (first, second)]
        hinges = [F.relu(1 - (c.diagonal() + self.epsilon).sqrt()).mean() for c in covariances]
        squares = [_off_diagonal_squares(c) / len(c) for c in covariances]
        return {
            "invariance": self.invariance * (first - second).square().mean(),
            "variance": self.variance * (hinges[0] + hinges[1]),
            "covariance": self.covariance * (squares[0] + squares[1]),
        }

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0


class WMSE(PairObjective):
    """L = mean ‖w/‖w‖ − w̃/‖w̃‖‖² = 2 − 2 mean cos(w, w̃), w = L⁻¹(z − z̄) with LLᵀ = Cov z   (Ermolov et al., 2021).

    Each side is whitened by the Cholesky factor of its own covariance, over the whole batch: the random sub-batches of
    the paper are left out. Range [0, 4], 0 for views that agree. The mean and the scale of a dimension are not seen. It
    needs a few times as many rows as dimensions: whitening puts any n ≤ m rows equally far apart. Codes without
    variance stay 0, and so a constant encoder gives 2, as unrelated views do.

    As a bound (see above): whitening makes Σ = I, where the first KL is 0, and leaves the second, of directions. GEDI's
    appendix I maximises −Tr(WW̃ᵀ), where the sign must be +.
    """

    family: ClassVar[str] = "moments of the batch"
    compares_views: ClassVar[bool] = True

    admits: ClassVar[dict[str, str]] = {
        "representation": "it does not see the scale of a dimension, and at a constant encoder it has no gradient",
        "dimension": "it sees embeddings whitened, however little some of their directions vary",
    }

    def __init__(self, *, pair: Pair = "augmented") -> None:
        super().__init__(Cosine(temperature=0.5), pair=pair)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = (unit(_whitened(side)) for side in self.embed_pair(encoder, views))
        return {"alignment": 2 - 2 * (first * second).sum(-1).mean()}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0


class CorInfoMax(PairObjective):
    """L = −log det(Σ + εI) − log det(Σ̃ + εI) + γ mean ‖z − z̃‖², Σ and Σ̃ the covariances of z and z̃.

    Ozsoy et al. (2022), with γ = `invariance`, 1/n in moments and z on the unit sphere, as in their runs. They average
    moments over steps too, with a weight of 1 to 10 % for the past; here they are those of the batch. On the sphere
    L ≥ −2m log(1/m + ε) for n > m, with equality for views that agree with Σ = I/m; a constant encoder gives
    −2m log ε. `normalise=False` leaves the sphere out, and then nothing bounds L for an encoder that can be invariant.
    Collapse: none, as −log det has no limit but by ε; directions that only augmentations move become small.

    It is the bound above, for both views and up to the traces, which on the sphere are at most 1:
    L = 2 KL(N(0, Σ + εI) ‖ N(0, I)) − Tr Σ + the same of Σ̃ + 2 Σ_i KL(N(z_i − z̃_i, I) ‖ N(0, (n/γ) I)) + const.
    GEDI Eq. 15 prints +γ in what is maximised, and +½ log det Σ for the first KL; both are −.

    Settings:
        invariance: γ, the weight of close pairs.
        epsilon: ε, added to the covariances.
        normalise: whether embeddings are put on the unit sphere.
    """

    family: ClassVar[str] = "moments of the batch"
    compares_views: ClassVar[bool] = True

    def __init__(
        self,
        *,
        invariance: float = 250.0,
        epsilon: float = 1e-8,
        normalise: bool = True,
        pair: Pair = "augmented",
    ) -> None:
        super().__init__(Cosine(temperature=1.0) if normalise else Euclidean(), pair=pair)
        self.invariance = _weight("invariance", invariance)
        self.epsilon = _weight("epsilon", epsilon)
        self.normalise = normalise

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        if self.normalise:
            first, second = unit(first), unit(second)
        return {
            "log_determinant": -self._log_determinant(first) - self._log_determinant(second),
            "alignment": self.invariance * (first - second).square().sum(-1).mean(),
        }

    def _log_determinant(self, z: Tensor) -> Tensor:
        # By eigenvalues in double precision: they are never refused, and rounding leaves them above −ε.
        eigenvalues = torch.linalg.eigvalsh(_covariance(_centred(z.double()), len(z)))
        return (eigenvalues.clamp_min(0) + self.epsilon).log().sum().to(z.dtype)

    def optimum(self, batch_size: int, dim: int) -> float | None:
        if not self.normalise:
            return None
        rank = min(batch_size - 1, dim)
        return -2 * (rank * math.log(1 / rank + self.epsilon) + (dim - rank) * math.log(self.epsilon))


def _centred(z: Tensor) -> Tensor:
    """z − z̄ over the rows, exactly 0 where they are equal."""
    shifted = z - z[:1].detach()  # a shift changes nothing but the rounding of the mean
    return shifted - shifted.mean(0)


def _covariance(centred: Tensor, divisor: int) -> Tensor:
    """Σ (z − z̄)(z − z̄)ᵀ / divisor over the rows: [n, m] → [m, m]."""
    return centred.mT @ centred / divisor


def _standardised(z: Tensor) -> Tensor:
    """Every dimension with mean 0 and variance 1 over the batch, smooth where it has none."""
    centred = _centred(z)
    return centred * (centred.square().mean(0) + torch.finfo(z.dtype).eps ** 2).rsqrt()


def _whitened(z: Tensor) -> Tensor:
    """L⁻¹(z − z̄), LLᵀ the covariance of the batch and a ridge; in double precision, as the inverse may be large."""
    centred = _centred(z.double())
    covariance = _covariance(centred, len(z) - 1)
    ridge = RIDGE * covariance.diagonal() + torch.finfo(covariance.dtype).eps ** 2
    factor = torch.linalg.cholesky(covariance + ridge.diag_embed())
    return torch.linalg.solve_triangular(factor, centred.mT, upper=False).mT.to(z.dtype)


def _off_diagonal_squares(matrix: Tensor) -> Tensor:
    """Σ_{k≠l} matrix_kl²."""
    return (matrix - matrix.diagonal().diag_embed()).square().sum()


def _weight(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be positive and finite, not {value:g}")
    return float(value)
