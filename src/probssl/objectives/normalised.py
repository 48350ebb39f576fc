"""Objectives that learn the normaliser: NCE classifies against it, SNL regresses it."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from probssl.energies import Energy, Euclidean
from probssl.errors import InputError
from probssl.objectives.base import Objective, Pair, PairObjective
from probssl.objectives.pairwise import PairLogits
from probssl.pairings.views import Views
from probssl.parts.part import Context, Part


class Bias(Part, nn.Module):
    """λ_φ of an augmented anchor's embedding: [n, m] → [n]."""


class BiasNetwork(Bias):
    """λ_φ: an embedding of x̃ to a scalar, the estimate of log Z_x̃ (Siamese-EBM §2.2.2, §4.2 and appendix D.1).

    Two layers with ReLU; batch normalisation uses the statistics of the batch alone and so holds no state.

    Settings:
        hidden: units between the layers; half of the dimensions, at least 2, unless given.
        batch_norm: whether these are normalised over the batch, as in §4.2.
    """

    def __init__(self, hidden: int | None = None, *, batch_norm: bool = True) -> None:
        super().__init__()
        self.hidden, self.batch_norm = hidden, batch_norm

    def build(self, context: Context) -> None:
        dim = context.need("dim")
        hidden = max(dim // 2, 2) if self.hidden is None else self.hidden
        self.inner = nn.Linear(dim, hidden)
        self.norm = nn.BatchNorm1d(hidden, track_running_stats=False) if self.batch_norm else nn.Identity()
        self.outer = nn.Linear(hidden, 1)

    def forward(self, embedding: Tensor) -> Tensor:
        return self.outer(F.relu(self.norm(self.inner(embedding)))).squeeze(-1)


class NoBias(Bias):
    """λ = 0, for energies that are normalised already."""

    def forward(self, embedding: Tensor) -> Tensor:
        return embedding.new_zeros(embedding.shape[0])


class Biased(PairObjective):
    """Shared by NCE and SNL: logits of all pairs of a batch, and the bias of each augmented anchor.

    Settings:
        bias: λ_φ, an estimate of log Z from the embedding of an augmentation: "network" (default), "none" or a module.
    """

    family: ClassVar[str] = "learnt normaliser or bias"
    learns: ClassVar[Literal["posterior", "ratio"]] = "ratio"
    bias: nn.Module

    def __init__(self, energy: Energy | None, bias: Bias | nn.Module | None, pair: Pair) -> None:
        super().__init__(Euclidean() if energy is None else energy, pair=pair)
        self.bias = BiasNetwork() if bias is None else bias

    def logits_and_bias(self, encoder: nn.Module, views: Views) -> tuple[PairLogits, Tensor]:
        """−δ(x_i, x̃_j) for all pairs, [n, n], and λ(x̃_j), [n]."""
        first, second = self.embed_pair(encoder, views)
        bias = self.bias(second)
        if bias.shape == (*second.shape[:-1], 1):  # of a linear map to one number
            bias = bias.squeeze(-1)
        if bias.shape != second.shape[:-1]:
            raise InputError(
                f"the bias {type(self.bias).__name__} makes {list(bias.shape)} of embeddings {list(second.shape)}: it "
                "must make one number of each"
            )
        return PairLogits.of(self.energy, first, second), bias


class NCE(Biased):
    """L = −π mean_i log σ(ℓ_ii) − (1 − π) mean_{j≠i} log σ(−ℓ_ji),  ℓ_ji = log(π/(1 − π)) − δ(x_j, x̃_i) − λ_φ(x̃_i).

    Noise-contrastive estimation: tell (x_i, x̃_i) from (x_j, x̃_i)   (Siamese-EBM Eq. 142; Eq. 27 has a sign wrong).
    Range (0, ∞). Optimum: δ + λ = log p(x)p(x̃)/p(x, x̃), so λ = log Z when the energy is well
    specified, for every π. As π → 0, L/π + log π → 1 + E[δ + log Z]: maximum likelihood (Eq. 148, constant corrected).
    Collapse: a constant encoder is not a minimum; dimensions may be dropped as with InfoNCE.

    Settings:
        prior: π, the share of positives; 1/n for a batch of n unless given, as the batch really has (offset
            −log(n − 1)).
    """

    admits: ClassVar[dict[str, str]] = {
        "dimension": "directions in which the augmentation varies more than the data are worth nothing to it"
    }

    def __init__(
        self,
        energy: Energy | None = None,
        *,
        bias: Bias | nn.Module | None = None,
        prior: float | None = None,
        pair: Pair = "original",
    ) -> None:
        if prior is not None and not 0 < prior < 1:
            raise InputError(f"the share of positives must lie strictly between 0 and 1, not {prior:g}")
        super().__init__(energy, bias, pair)
        self.prior = prior

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        minus_energies, bias = self.logits_and_bias(encoder, views)
        prior = 1 / len(bias) if self.prior is None else self.prior
        logits = minus_energies.plus_columns(math.log(prior / (1 - prior)) - bias)  # column i belongs to x̃_i
        return {
            "positive": prior * F.softplus(-logits.diagonal()).mean(),
            "negative": (1 - prior) * logits.off_diagonal_mean("softplus"),
        }

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0

    def with_energy(self, energy: Energy) -> Objective | None:
        return NCE(energy, bias=NoBias(), prior=self.prior) if self.pair == "original" else None


class SNL(Biased):
    """L = mean_i [δ(x_i, x̃_i) + λ_φ(x̃_i)] + mean_{j≠i} e^{−δ(x_j, x̃_i) − λ_φ(x̃_i)} − 1.

    Self-normalised likelihood: learn log Z by its variational form   (Siamese-EBM Eq. 22, minimised over both).
    Since log Z = min_λ (Z e^{−λ} + λ − 1), this is one joint minimisation; the papers' Eq. 18-22 print a maximum,
    which is unbounded. At λ = log Z it equals E[δ] + E[log Z] ≥ −I(x; x̃). A constant encoder gives 0. Above an
    exponent of 30 the exponential continues as its tangent: same minimiser, finite for every finite input.
    Terms: `alignment` = mean δ, `bias` = mean λ, `normaliser` = mean e^{−δ−λ} − 1 (0 when λ is log Z).
    Collapse: a constant encoder is not a minimum, but the variance of the exponential can drive training there.
    """

    admits: ClassVar[dict[str, str]] = {
        "dimension": "directions in which the augmentation varies more than the data are worth nothing to it",
        "representation": "its exponential has high variance in high dimension and can throw training onto the plateau "
        "of constant encoders, where λ = 0 and the loss is 0",
    }

    def __init__(
        self,
        energy: Energy | None = None,
        *,
        bias: Bias | nn.Module | None = None,
        pair: Pair = "original",
    ) -> None:
        super().__init__(energy, bias, pair)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        minus_energies, bias = self.logits_and_bias(encoder, views)
        exponents = minus_energies.plus_columns(-bias)  # column i belongs to x̃_i
        return {
            "alignment": -minus_energies.diagonal().mean(),
            "bias": bias.mean(),
            "normaliser": exponents.off_diagonal_mean("exponential") - 1,
        }

    def with_energy(self, energy: Energy) -> Objective | None:
        return SNL(energy, bias=NoBias()) if self.pair == "original" else None
