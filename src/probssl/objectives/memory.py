"""Objectives that remember the data set: which row is it (instance discrimination), in which cluster (DeepCluster).

Their memory is a bank with a place for every row of the data, kept in buffers, so that checkpoints carry it. Only
training mode writes to it. Batches must say which rows they hold (`Views.index`), as training on a table does.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.energies import Cosine, unit
from probssl.errors import InputError
from probssl.objectives.base import Objective
from probssl.objectives.clustering import ClusteringObjective
from probssl.objectives.pairwise import PairLogits
from probssl.pairings.views import Needs, Views
from probssl.parts.part import Context


class InstanceDiscrimination(Objective):
    """L = mean_i [δ(v_i, z̃_i) + log Σ_j e^{−δ(v_j, z̃_i)}], δ = (1 − cos)/τ, j over all rows of the data.

    Every row is a class of its own, and x̃_i is to be told from all others (Wu et al., 2018, with the softmax in full;
    SimVAE §2). v_j is the unit vector remembered of row j, at first a random one; after a step
    v_i ← unit(m v_i + (1 − m) unit(z̃_i)), m = `momentum`. So it is InfoNCE with the whole data set as candidates, each
    as old as its last visit, and its bound of the likelihood is GEDI's Lemma 1, p(y | x̃) with y the number of a row.
    Range [0, ∞); log N for N rows, where code and memory are constant. No matrix of n × N is kept.
    Terms: `alignment` = mean δ, `log_normaliser` = mean log-sum. Collapse: a constant encoder is not the minimum.

    Settings:
        temperature: τ of the cosine energy.
        momentum: m, the share of itself that a memory keeps at a visit.
    """

    family: ClassVar[str] = "softmax over the data"
    compares_views: ClassVar[bool] = True

    admits: ClassVar[dict[str, str]] = {
        "dimension": "directions in which the augmentation varies more than the data are worth nothing to it"
    }

    bank: Tensor

    def __init__(self, *, temperature: float = 0.07, momentum: float = 0.5) -> None:
        if not 0 <= momentum < 1:
            raise InputError(f"the momentum of the memory must lie in [0, 1), not {momentum:g}")
        super().__init__(Cosine(temperature), Needs(augmented=1, index=True))
        self.momentum = float(momentum)

    def build(self, context: Context) -> None:
        rows = _at_least(2, context.need("rows"), "rows")
        self.register_buffer("bank", unit(torch.randn(rows, context.need("dim"))))

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        index = known_rows(views, len(self.bank))
        embedding = self.energy.embed_augmented(encoder, views.augmented[0])
        remembered = self.bank[index]
        log_normaliser = PairLogits.of(self.energy, embedding, self.bank).mean_log_sum_exp()
        if self.training:
            now = unit(embedding.detach())
            self.bank = self.bank.index_copy(0, index, unit(torch.lerp(now, remembered, self.momentum)))
        return {"alignment": self.energy.paired(remembered, embedding).mean(), "log_normaliser": log_normaliser}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0


class DeepClustering(ClusteringObjective):
    """L = mean_i w_{y_i} CE(y_i, p(y | x̃_i)), y_i the k-means cluster of row i, w_y = N / (c N_y)   (DeepCluster).

    Caron et al., 2018. The bank holds the unit vector of each row as last seen. Every `every` steps `k_means` cuts it
    into c clusters, beginning from the centres it found before, so that labels keep their meaning and the classifier
    need not be started anew; a row that has no label yet gets that of the nearest centre. Weights w, N_y the size of a
    cluster among N labelled rows, give all clusters an equal say, as sampling evenly from them would. Representations
    are put on the unit sphere, and not whitened. Range [0, ∞); 0 where the labels are predicted surely. As a bound of
    the likelihood (GEDI Lemma 3) q is one-hot, found by k-means in turn with the other parameters.
    Collapse: a constant encoder predicts all clusters alike and gives about ln c, which is not the minimum.

    Settings:
        every: steps between two clusterings.
    """

    admits: ClassVar[dict[str, str]] = {
        "representation": "its labels come from the representation itself: those of a constant one mean nothing, and "
        "nothing in the loss pulls it apart",
        "dimension": "it asks for as many directions as tell the clusters apart, and no more",
    }

    bank: Tensor  # [N, dim] unit vectors
    seen: Tensor  # [N] whether the bank holds the row
    labels: Tensor  # [N] cluster of each row, −1 for none yet
    centres: Tensor  # [c, dim] those of the last k-means
    steps: Tensor  # [] training steps so far

    def __init__(self, clusters: int = 10, *, every: int = 100, temperature: float = 0.1) -> None:
        super().__init__(clusters, temperature=temperature, normalise=True)
        self.needs = Needs(augmented=1, index=True)
        self.every = _at_least(1, every, "steps between two clusterings")

    def build(self, context: Context) -> None:
        super().build(context)
        rows, clusters, dim = context.need("rows"), self.clusters, context.need("dim")
        if rows < clusters:
            raise InputError(f"{rows} rows cannot form {clusters} clusters")
        self.register_buffer("bank", torch.zeros(rows, dim))
        self.register_buffer("seen", torch.zeros(rows, dtype=torch.bool))
        self.register_buffer("labels", torch.full((rows,), -1))
        self.register_buffer("centres", torch.zeros(clusters, dim))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        index = known_rows(views, len(self.bank))
        logits = self.logits(encoder, views.augmented[0])
        with torch.no_grad():
            z = unit(encoder(views.x))
            if self.training:
                self._remember(index, z)
            labels = self._labels_of(index, z)
            sizes = torch.bincount(self.labels[self.labels >= 0], minlength=self.clusters)
            weights = sizes.sum() / (self.clusters * sizes.clamp_min(1).to(logits.dtype))  # 0 before there are labels
        losses = F.cross_entropy(logits, labels, reduction="none")
        return {"classification": (weights[labels] * losses).mean()}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0

    def _labels_of(self, index: Tensor, z: Tensor) -> Tensor:
        """Labels of rows, of those that have none the nearest centre: [n]."""
        known = self.labels[index]
        return torch.where(known < 0, torch.cdist(z, self.centres).argmin(1), known)

    def _remember(self, index: Tensor, z: Tensor) -> None:
        """Store representations, cluster anew where it is time, and label rows that are new."""
        self.bank[index] = z
        self.seen[index] = True
        begun = bool((self.labels >= 0).any())
        if bool((self.steps % self.every == 0) | (not begun)) and bool(self.seen.sum() >= self.clusters):
            start = self.centres if begun else None
            self.centres, self.labels[self.seen] = k_means(self.bank[self.seen], self.clusters, centres=start)
        elif begun:
            self.labels[index] = self._labels_of(index, z)
        self.steps += 1


def k_means(
    x: Tensor,
    clusters: int,
    *,
    centres: Tensor | None = None,
    iterations: int = 20,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Centres [c, d] and labels [n] that lower Σ_i ‖x_i − centre(label_i)‖², by Lloyd's iterations: x [n, d], n ≥ c.

    It begins from `centres` or, where there are none, from rows drawn one by one with chances proportional to the
    squared distance from those drawn before (k-means++; Arthur & Vassilvitskii, 2007). A cluster that is left empty
    moves to the point that is farthest from its centre.
    """
    if len(x) < clusters:
        raise InputError(f"{len(x)} points cannot form {clusters} clusters")
    centres = _spread(x, clusters, generator) if centres is None else centres
    for _ in range(iterations):
        nearest, labels = torch.cdist(x, centres).min(1)
        sizes = torch.bincount(labels, minlength=clusters)
        centres = x.new_zeros(clusters, x.shape[1]).index_add_(0, labels, x) / sizes.clamp_min(1).unsqueeze(1)
        empty = (sizes == 0).nonzero().squeeze(1)
        centres[empty] = x[nearest.topk(len(empty)).indices]
    return centres, torch.cdist(x, centres).argmin(1)


def _spread(x: Tensor, clusters: int, generator: torch.Generator | None) -> Tensor:
    """Rows to begin k-means from: [c, d]."""
    chances = x.new_ones(len(x))
    tiny = torch.finfo(x.dtype).tiny  # so that rows that are all alike can be drawn too
    chosen: list[Tensor] = []
    for _ in range(clusters):
        chosen.append(x[torch.multinomial(chances, 1, generator=generator)])
        nearest = torch.cdist(x, torch.cat(chosen)).min(1).values
        chances = nearest.square().clamp_min(tiny)
    return torch.cat(chosen)


def known_rows(views: Views, rows: int) -> Tensor:
    """Which rows of the data a batch holds, each below `rows`: [n]."""
    if views.index is None:
        raise InputError(
            "an objective that remembers rows needs batches that say which rows they hold, as in training on a table"
        )
    if bool((views.index >= rows).any()):
        raise InputError(f"the objective remembers {rows} rows, but the data has more: bind it to that many")
    return views.index


def _at_least(least: int, value: int, what: str) -> int:
    if value < least:
        raise InputError(f"there must be at least {least} {what}, not {value}")
    return int(value)
