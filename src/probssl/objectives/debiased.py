"""InfoNCE whose negatives may be positives in truth: the normaliser corrected for them."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from probssl.energies import Cosine, Energy
from probssl.errors import InputError
from probssl.objectives.base import Pair, PairObjective
from probssl.pairings.views import Views


class DebiasedInfoNCE(PairObjective):
    """L = mean_i [δ_ii + log(e^{−δ_ii} + (n − 1) g_i)], g_i = [mean_{j≠i} e^{−δ(x_j, x̃_i)} − τ e^{−δ_ii}] / (1 − τ).

    Of a batch's other rows a share τ is related to the anchor in truth, of its class say, and pushing those away costs
    what clusters there are. Their part of the mean is estimated by the positive and taken out (Chuang et al., 2020,
    Eq. 8); what is left of g is at least the smallest e^{−δ} of the batch. At τ = 0 it is `InfoNCE`.
    Range [0, ∞); a constant encoder gives log n, whatever τ is. Collapse: as InfoNCE.

    Settings:
        share: τ, the share of rows that are related to an anchor in truth, such as 1 over the number of classes.
    """

    family: ClassVar[str] = "softmax over the batch"
    pair_matrices: ClassVar[int] = 6

    admits: ClassVar[dict[str, str]] = {
        "dimension": "directions in which the augmentation varies more than the data are worth nothing to it"
    }

    def __init__(self, energy: Energy | None = None, *, share: float = 0.1, pair: Pair = "original") -> None:
        if not 0 <= share < 1:
            raise InputError(f"the share of related rows must lie in [0, 1), not {share:g}")
        super().__init__(Cosine() if energy is None else energy, pair=pair)
        self.share = share

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        logits = self.energy.logits(*self.embed_pair(encoder, views))  # [n, n], rows x, columns x̃
        n, positive = len(logits), logits.diagonal()
        own = torch.eye(n, dtype=torch.bool, device=logits.device)
        mean = logits.masked_fill(own, -math.inf).logsumexp(0) - math.log(n - 1)  # [n]
        least = logits.amin(0)
        left = (1 - self.share * (positive - mean).exp()) / (1 - self.share)  # of the mean, once corrected
        corrected = torch.where(left > 0, mean + left.clamp_min(1e-30).log(), least).maximum(least)
        log_normaliser = torch.logaddexp(positive, corrected + math.log(n - 1))
        return {"alignment": -positive.mean(), "log_normaliser": log_normaliser.mean()}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0
