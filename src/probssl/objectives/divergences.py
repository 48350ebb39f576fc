"""Other distances between p(x | x̃) and its model: Jensen–Shannon, χ², Rényi.

Siamese-EBM leaves them open. Each is a variational form that the density ratio r = p(x, x̃)/p(x)p(x̃) attains, and the
model of every objective, q(x | x̃) = p(x) e^{−δ}/Z, has the density ratio e^{−δ}/Z. So χ² and Rényi are minimised by
the same energy δ = −log p(x̃ | x) + c(x̃) as InfoNCE, Jensen–Shannon by that with c = log p(x̃), and they differ in what
they do with a model that cannot have it.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.energies import Cosine, Energy, Euclidean
from probssl.errors import InputError
from probssl.objectives.base import Objective, Pair, PairObjective
from probssl.objectives.pairwise import PairLogits
from probssl.pairings.views import Views
from probssl.parts.part import Context

DROPS_DIMENSIONS = "directions in which the augmentation varies more than the data are worth nothing to it"


class JensenShannon(PairObjective):
    """L = mean_i softplus(δ(x_i, x̃_i) + b) + mean_{j≠i} softplus(−δ(x_j, x̃_i) − b), b one trainable number.

    Logistic classification of pairs, related or not, in equal shares: twice NCE at π = ½ with its bias tied over all
    anchors. For any critic T = −δ − b, −E_joint log σ(T) − E_product log σ(−T) ≥ 2 log 2 − 2 JS(joint ‖ product), with
    equality at T = log r (Goodfellow et al., 2014; the sigmoid loss of Zhai et al., 2023, in equal shares). Since b
    does not depend on x̃, the energy itself has to carry log p(x̃): more is asked of it than by InfoNCE.
    Range (0, ∞), a constant encoder gives 2 log 2 at best (b = 0). Collapse: as InfoNCE.

    Settings:
        initial_bias: b before training.
    """

    family: ClassVar[str] = "learnt normaliser or bias"

    learns: ClassVar[Literal["posterior", "ratio"]] = "ratio"
    admits: ClassVar[dict[str, str]] = {"dimension": DROPS_DIMENSIONS}

    def __init__(self, energy: Energy | None = None, *, initial_bias: float = 0.0, pair: Pair = "original") -> None:
        super().__init__(Euclidean() if energy is None else energy, pair=pair)
        self.initial_bias = float(initial_bias)

    def build(self, context: Context) -> None:
        self.bias = nn.Parameter(torch.tensor(self.initial_bias))

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        critic = PairLogits.of(self.energy, first, second).plus_columns(-self.bias.expand(len(second)))  # [n, n]
        return {
            "positive": F.softplus(-critic.diagonal()).mean(),
            "negative": critic.off_diagonal_mean("softplus"),
        }

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0

    def with_energy(self, energy: Energy) -> Objective | None:
        return JensenShannon(energy).bind() if self.pair == "original" else None


class ChiSquared(PairObjective):
    """L = mean_{ij} w_ji² − 2 mean_i w_ii, w_ji = n·softmax_j(−δ(x_j, x̃_i)): least squares on the density ratio.

    With r the true ratio p(x | x̃)/p(x), E_product[(w − r)²] = E_x̃ ∫ (p(x | x̃) − q(x | x̃))² / p(x) dx is a χ² distance
    between the decoding distribution and its model, and −2 E_joint[w] + E_product[w²] is all of it that depends on w.
    The spectral loss minimises the same with the ratio modelled as w = zᵀz̃, and so reaches −Σ_{k≤m} σ_k² over the m
    largest singular values of r; here the ratio is that of the model, e^{−δ}/Z, with Z sampled by the batch as in
    InfoNCE, and the minimum −(1 + χ²(joint ‖ product)) is over all of them. Over the n candidates of a batch L is n
    times the Brier score, Σ_j q_j² − 2q_i, a proper scoring rule like InfoNCE's −log q_i, but bounded: a pair that the
    model rules out (a false positive) costs at most n, where InfoNCE's cost has no limit.
    Optimum: δ = −log p(x̃ | x) + c(x̃). Range [−n, n); a constant encoder gives −1. Collapse: as InfoNCE.
    """

    family: ClassVar[str] = "softmax over the batch"
    pair_matrices: ClassVar[int] = 6

    admits: ClassVar[dict[str, str]] = {"dimension": DROPS_DIMENSIONS}

    def __init__(self, energy: Energy | None = None, *, pair: Pair = "original") -> None:
        super().__init__(Cosine() if energy is None else energy, pair=pair)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        logits = self.energy.logits(*self.embed_pair(encoder, views))  # [n, n], rows x, columns x̃
        ratio = len(logits) * F.softmax(logits, 0)
        return {"alignment": -2 * ratio.diagonal().mean(), "uniformity": ratio.square().mean()}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return -float(batch_size)

    def with_energy(self, energy: Energy) -> Objective | None:
        return ChiSquared(energy) if self.pair == "original" else None


class RenyiInfoNCE(PairObjective):
    """L = (1/α) log mean_{ij} w_ji^α − (1/(α−1)) log mean_i w_ii^{α−1}, w_ji = n·softmax_j(−δ(x_j, x̃_i)).

    The Rényi divergence of order α between related pairs and all pairs of a batch, in its variational form (Birrell et
    al., 2021; as in RényiCL, Lee & Shin, 2022) R_α = sup_g (1/(α−1)) log E_P[e^{(α−1)g}] − (1/α) log E_Q[e^{αg}], with
    R_α(P ‖ Q) = log ∫ p^α q^{1−α} / (α(α−1)), and the critic g = log w of a normalised model: w is what q(x | x̃) says
    about the n candidates against the uniform distribution. As α → 1 it is InfoNCE − log n exactly.
    α > 1 trusts the pairs it already explains and discounts the rest (false positives, too strong augmentations);
    α < 1 works on those it explains worst. Optimum: δ = −log p(x̃ | x) + c(x̃) for every α in exact expectations;
    logarithms of means over a batch move it a little for n below 64 or so. Range [−(log n)/α, ∞); a constant encoder
    gives 0; in exact expectations −L bounds R_α from below. Collapse: as InfoNCE.

    Settings:
        order: α, above 1 trusts easy pairs, below 1 works on hard ones.
    """

    family: ClassVar[str] = "softmax over the batch"
    pair_matrices: ClassVar[int] = 6

    admits: ClassVar[dict[str, str]] = {"dimension": DROPS_DIMENSIONS}

    def __init__(self, energy: Energy | None = None, *, order: float = 2.0, pair: Pair = "original") -> None:
        if not 0 < order < math.inf:
            raise InputError(f"the order of a Rényi divergence must be positive and finite, not {order:g}")
        super().__init__(Cosine() if energy is None else energy, pair=pair)
        self.order = order

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        logits = self.energy.logits(*self.embed_pair(encoder, views))  # [n, n], rows x, columns x̃
        n, log_ratio = len(logits), F.log_softmax(logits, 0) + math.log(len(logits))
        positive, order = log_ratio.diagonal(), self.order
        if order == 1:
            return {"related": -positive.mean(), "all": torch.zeros_like(positive.sum())}
        if abs(order - 1) < 0.01:  # 1/(α − 1) would amplify rounding: expand about the mean
            centre = positive.mean()
            related = centre + torch.log1p(torch.expm1((order - 1) * (positive - centre)).mean()) / (order - 1)
        else:
            related = (_log_sum_exp((order - 1) * positive) - math.log(n)) / (order - 1)
        return {
            "related": -related,
            "all": (_log_sum_exp(order * log_ratio.flatten()) - 2 * math.log(n)) / order,
        }

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return -math.log(batch_size) / self.order

    def with_energy(self, energy: Energy) -> Objective | None:
        return RenyiInfoNCE(energy, order=self.order) if self.pair == "original" else None


def _log_sum_exp(values: Tensor) -> Tensor:
    """log Σ e^v of a vector, through softmax: torch.logsumexp is slow where exponentials underflow to denormals."""
    return values[0] - F.log_softmax(values, 0)[0]
