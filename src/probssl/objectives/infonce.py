"""InfoNCE: sample the normaliser. One class for every candidate set of the literature, and SimCLR by name."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from probssl.energies import Cosine, Energy
from probssl.errors import InputError
from probssl.objectives.base import Objective, Pair, PairObjective, Summed
from probssl.objectives.pairwise import PairLogits
from probssl.pairings.views import Views

Candidates = Literal["batch", "batch-negatives", "two-view", "given"]
Anchor = Literal["augmented", "original", "symmetric"]


class InfoNCE(PairObjective):
    """L = mean_i [δ(x_i, x̃_i) + log Σ_{c ∈ C_i} e^{−δ(c, x̃_i)}]   (Siamese-EBM Eq. 160-161, the KL loss).

    `candidates` says what C_i is:

    - `"batch"` (default): all n originals of the batch, the positive included. L ≥ 0; a constant encoder gives log n;
      log n − L is a lower bound on the mutual information I(x; x̃), never above log n.
    - `"batch-negatives"`: the n − 1 others, averaged (Siamese-EBM Eq. 15, its 1/n corrected to 1/(n − 1)). A
      constant encoder gives 0; unbounded below, and no bound on the mutual information.
    - `"two-view"`: both views of everything but the anchor itself, 2n − 1 candidates, both views as anchors: the
      NT-Xent loss of SimCLR. A constant encoder gives log(2n − 1). Needs a symmetric energy.
    - `"given"`: the positive and `views.negatives`, [M, ...] shared or [n, M, ...] per anchor.

    `anchor` says whose normaliser is sampled: `"augmented"` (x̃ picks its source among originals, Eq. 160),
    `"original"` (x picks its augmentation, Eq. 16), or `"symmetric"` (the mean of both).

    Terms: `alignment` = mean δ of positives, `log_normaliser` = mean log-sum. Optimum: δ = −log p(x̃ | x) + c(anchor).
    Collapse: a constant encoder is never the minimum when x̃ tells anything about x; dimensions may be dropped
    when augmentations are stronger than the data's variance along them (Jing et al., 2022).
    """

    admits: ClassVar[dict[str, str]] = {
        "dimension": "directions in which the augmentation varies more than the data are worth nothing to it"
    }

    def __init__(
        self,
        energy: Energy | None = None,
        *,
        candidates: Candidates = "batch",
        anchor: Anchor = "augmented",
        pair: Pair = "original",
    ) -> None:
        energy = Cosine() if energy is None else energy
        if candidates not in ("batch", "batch-negatives", "two-view", "given"):
            raise InputError(f"candidates are batch, batch-negatives, two-view or given, not {candidates!r}")
        if anchor not in ("augmented", "original", "symmetric"):
            raise InputError(f"the anchor is augmented, original or symmetric, not {anchor!r}")
        if candidates == "two-view" and not energy.symmetric:
            raise InputError("two-view candidates compare views within one side and need a symmetric energy")
        super().__init__(energy, pair=pair, negatives=candidates == "given")
        self.candidates = candidates
        self.anchor = anchor

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        if self.candidates == "two-view":
            return self._two_view(first, second)
        if self.candidates == "given":
            return self._given(encoder, views, first, second)
        pairs = PairLogits.of(self.energy, first, second)  # [n, n], rows x, columns x̃
        directions = [pairs if dim else pairs.transposed() for dim in self._anchor_dims]
        alignment = -pairs.diagonal().mean()
        if self.candidates == "batch-negatives":
            log_normaliser = _mean([rows.mean_log_sum_exp(without_diagonal=True) for rows in directions])
            return {"alignment": alignment, "log_normaliser": log_normaliser - math.log(len(first) - 1)}
        loss = _mean([rows.mean_cross_entropy() for rows in directions])
        return Summed({"alignment": alignment, "log_normaliser": loss - alignment}, loss)

    @property
    def _anchor_dims(self) -> list[int]:
        """Dimensions of the matrix [x, x̃] over which candidates run: 0 for anchors x̃, 1 for anchors x."""
        return {"augmented": [0], "original": [1], "symmetric": [0, 1]}[self.anchor]

    def _two_view(self, first: Tensor, second: Tensor) -> dict[str, Tensor]:
        both = torch.cat([first, second])
        pairs = PairLogits.of(self.energy, both, both)  # [2n, 2n]
        log_normaliser = pairs.mean_log_sum_exp(without_diagonal=True)
        return {"alignment": self.energy.paired(first, second).mean(), "log_normaliser": log_normaliser}

    def _given(self, encoder: nn.Module, views: Views, first: Tensor, second: Tensor) -> dict[str, Tensor]:
        if views.negatives is None:
            raise InputError("candidates='given' needs views with negatives, and this pairing provides none")
        positive = -self.energy.paired(first, second)  # [n]
        own = views.negatives.ndim == views.x.ndim + 1  # [n, M, ...] rather than [M, ...]
        flat = views.negatives.flatten(0, 1) if own else views.negatives
        log_normalisers = []
        for dim in self._anchor_dims:
            anchors, embed = (first, self.energy.embed_augmented) if dim else (second, self.energy.embed)
            negatives = embed(encoder, flat)  # [M, m] or [nM, m]
            if own:  # one small matrix an anchor
                anchors, negatives = anchors.unsqueeze(1), negatives.unflatten(0, views.negatives.shape[:2])
            pairs = PairLogits.of(self.energy, *((anchors, negatives) if dim else (negatives, anchors)))
            rows = pairs if dim else pairs.transposed()
            log_normalisers.append(rows.mean_log_sum_exp(extra=positive.unsqueeze(1) if own else positive).mean())
        return {"alignment": -positive.mean(), "log_normaliser": _mean(log_normalisers)}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return None if self.candidates == "batch-negatives" else 0.0

    def with_energy(self, energy: Energy) -> Objective | None:
        if (self.pair, self.candidates, self.anchor) != ("original", "batch", "augmented"):
            return None
        return InfoNCE(energy)


def _mean(values: list[Tensor]) -> Tensor:
    return sum(values[1:], values[0]) / len(values)


class SimCLR(InfoNCE):
    """NT-Xent: L = mean over all 2n views a of δ(a, a⁺) + log Σ_{c≠a} e^{−δ(a, c)}   (Chen et al., 2020).

    The positive stays in the denominator; the variant without it is the decoupled loss (CL-ICA calls that SimCLR).
    `pair="augmented"` is the published form for images; on tables Siamese-EBM uses `pair="original"`.
    """

    def __init__(self, energy: Energy | None = None, *, pair: Pair = "augmented") -> None:
        super().__init__(energy, candidates="two-view", pair=pair)
