"""InfoNCE: sample the normaliser. One class for every candidate set of the literature."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from probssl.energies import Cosine, Energy
from probssl.errors import InputError
from probssl.objectives.base import Objective, Pair, PairObjective, Summed
from probssl.objectives.pairwise import PairLogits, recomputed
from probssl.pairings.views import Views

Candidates = Literal["batch", "batch-negatives", "originals", "two-view", "given", "batch-and-given"]
Anchor = Literal["augmented", "original", "symmetric"]


class InfoNCE(PairObjective):
    """L = mean_i [δ(x_i, x̃_i) + log Σ_{c ∈ C_i} e^{−δ(c, x̃_i)}]   (Siamese-EBM Eq. 160-161, the KL loss).

    The candidates C_i are

    - `"batch"` (default): all n originals of the batch, the positive included. L ≥ 0; a constant encoder gives log n;
      log n − L is a lower bound on the mutual information I(x; x̃), never above log n.
    - `"batch-negatives"`: the n − 1 others, averaged (Siamese-EBM Eq. 15, its 1/n corrected to 1/(n − 1)). A
      constant encoder gives 0; unbounded below, and no bound on the mutual information.
    - `"originals"`: x̃_i and the n − 1 other originals for the anchor x_i, so that negatives follow the marginal p(x)
      exactly (AnInfoNCE Eq. 3 with M = n − 1). L ≥ 0; a constant encoder gives log n. Needs a symmetric energy.
    - `"two-view"`: both views of everything but the anchor itself, 2n − 1 candidates, both views as anchors: the
      NT-Xent loss of SimCLR (Chen et al., 2020; `pair="augmented"`, and "original" on Siamese-EBM's tables). The
      positive stays in the denominator; without it it is the decoupled loss, which CL-ICA calls SimCLR. A constant
      encoder gives log(2n − 1). Needs a symmetric energy.
    - `"given"`: the positive and `views.negatives`, [M, ...] shared or [n, M, ...] per anchor.
    - `"batch-and-given"`: those of the batch, and the negatives too (AnInfoNCE H.3: hard ones beside the usual).

    AnInfoNCE (Eq. 3) is this with `Anisotropic(normalise=True)` and `candidates="originals"`. Where positives follow
    p(z̃ | z) ∝ exp(−½ (z̃ − z)ᵀ Λ (z̃ − z)) on the sphere and negatives are uniform, its minimum is at Λ̂ = Λ with f a
    block-orthogonal map of the latents, each block of equal concentrations (Theorem 3.1); with negatives of
    concentrations Λ⁻ it is at Λ̂ = Λ − Λ⁻ (Corollary B.1).

    Terms: `alignment` = mean δ of positives, `log_normaliser` = mean log-sum. Optimum: δ = −log p(x̃ | x) + c(anchor).
    As a bound of the likelihood (GEDI Lemma 1): E log p(x, y) ≥ −H(x) − n L, with y the number of the positive among
    the candidates: instance classification, in which no parameter is about p(x).
    Collapse: a constant encoder is never the minimum when x̃ tells anything about x; dimensions may be dropped
    when augmentations are stronger than the data's variance along them (Jing et al., 2022).

    Settings:
        candidates: what an anchor chooses from: "batch", "batch-negatives", "originals", "two-view", "given" or
            "batch-and-given".
        anchor: whose normaliser is sampled: "augmented" (x̃ picks its source among originals, Eq. 160; the default but
            for "originals"), "original" (x picks its augmentation, Eq. 16), or "symmetric" (the mean of both).
        group_size: contrasts within groups of so many data points instead of the whole batch, so that a step of many
            pairs need not be one of many candidates: better where positives are nearly independent.
    """

    family: ClassVar[str] = "softmax over the batch"

    admits: ClassVar[dict[str, str]] = {
        "dimension": "directions in which the augmentation varies more than the data are worth nothing to it"
    }

    def __init__(
        self,
        energy: Energy | None = None,
        *,
        candidates: Candidates = "batch",
        anchor: Anchor | None = None,
        pair: Pair = "original",
        group_size: int | None = None,
    ) -> None:
        energy = Cosine() if energy is None else energy
        if candidates not in get_args(Candidates):
            raise InputError(f"candidates are {', '.join(get_args(Candidates))}, not {candidates!r}")
        if anchor not in (None, *get_args(Anchor)):
            raise InputError(f"the anchor is augmented, original or symmetric, not {anchor!r}")
        if candidates in ("originals", "two-view") and not energy.symmetric:
            raise InputError(f"{candidates} candidates compare views within one side and need a symmetric energy")
        if candidates == "originals" and anchor not in (None, "original"):
            raise InputError(f"with originals as candidates the anchor is original, not {anchor}")
        if group_size is not None and (group_size < 2 or candidates not in ("batch", "batch-negatives", "originals")):
            raise InputError(
                "group_size must be at least 2, and is only for the candidates batch, batch-negatives and originals"
            )
        super().__init__(energy, pair=pair, negatives=candidates in ("given", "batch-and-given"))
        self.candidates, self.limited_by_batch = candidates, candidates == "batch"
        self.anchor = anchor or ("original" if candidates == "originals" else "augmented")
        self.group_size = group_size

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        if self.candidates == "two-view":
            return self._two_view(first, second)
        if self.candidates in ("given", "batch-and-given"):
            return self._given(encoder, views, first, second)
        if self.group_size is not None:
            first, second = self._grouped(first), self._grouped(second)  # [groups, size, m]
        if self.candidates == "originals":
            positive = -recomputed(self.energy.paired, first, second)
            pairs = PairLogits.of(self.energy, first, first)
            log_normaliser = pairs.mean_log_sum_exp(without_diagonal=True, extra=positive).mean()
            return {"alignment": -positive.mean(), "log_normaliser": log_normaliser}
        pairs = PairLogits.of(self.energy, first, second)  # [n, n], rows x, columns x̃
        directions = [pairs if dim else pairs.transposed() for dim in self._anchor_dims]
        alignment = -pairs.diagonal().mean()
        if self.candidates == "batch-negatives":
            log_normaliser = _mean([rows.mean_log_sum_exp(without_diagonal=True).mean() for rows in directions])
            return {"alignment": alignment, "log_normaliser": log_normaliser - math.log(first.shape[-2] - 1)}
        loss = _mean([rows.mean_cross_entropy().mean() for rows in directions])
        return Summed({"alignment": alignment, "log_normaliser": loss - alignment}, loss)

    def _grouped(self, embeddings: Tensor) -> Tensor:
        assert self.group_size is not None
        if len(embeddings) % self.group_size:
            raise InputError(f"a batch of {len(embeddings)} cannot be divided into groups of {self.group_size}")
        return embeddings.unflatten(0, (-1, self.group_size))

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
            raise InputError(f"candidates={self.candidates!r} needs views with negatives, but this batch has none")
        positive = -self.energy.paired(first, second)  # [n]
        own = views.negatives.ndim == views.x.ndim + 1  # [n, M, ...] rather than [M, ...]
        flat = views.negatives.flatten(0, 1) if own else views.negatives
        with_batch = self.candidates == "batch-and-given"
        log_normalisers = []
        for dim in self._anchor_dims:
            anchors, batch = (first, second) if dim else (second, first)
            negatives = (self.energy.embed_augmented if dim else self.energy.embed)(encoder, flat)  # [M, m] or [nM, m]
            extra: Tensor | None
            if own:
                sides = anchors.unsqueeze(1), negatives.unflatten(0, views.negatives.shape[:2])
                logits = -self.energy.paired(*(sides if dim else sides[::-1]))  # [n, M]
                others, extra = batch, torch.logsumexp(logits, 1)
                if not with_batch:
                    log_normalisers.append(torch.logaddexp(extra, positive).mean())
                    continue
            elif with_batch:  # where the positive is
                others, extra = torch.cat([batch, negatives]), None
            else:
                others, extra = negatives, positive
            pairs = PairLogits.of(self.energy, *((anchors, others) if dim else (others, anchors)))
            log_normalisers.append((pairs if dim else pairs.transposed()).mean_log_sum_exp(extra=extra))
        return {"alignment": -positive.mean(), "log_normaliser": _mean(log_normalisers)}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return None if self.candidates == "batch-negatives" else 0.0

    def with_energy(self, energy: Energy) -> Objective | None:
        if (self.pair, self.candidates, self.anchor, self.group_size) != ("original", "batch", "augmented", None):
            return None
        return InfoNCE(energy)


def _mean(values: list[Tensor]) -> Tensor:
    return sum(values[1:], values[0]) / len(values)
