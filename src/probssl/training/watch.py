"""Collapse watch: looks at representations and clusters of a fixed sample now and then, and names what went wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from probssl.encoders import WithHead, encode
from probssl.energies import Energy
from probssl.metrics.rank import rankme, spectra
from probssl.objectives import GEDI, ClusteringObjective
from probssl.objectives.base import Objective
from probssl.schema import Mismatch
from probssl.theory.clustering import FAILURE_MODES, ClusteringDiagnosis, diagnose_clustering
from probssl.training.log import LOOKED_AT, OF_CLUSTERS

SAMPLE_ROWS = 512
"""Representations looked at each time."""

MINIMUM_CONTRAST = 1e-2
"""Standard deviation of δ over pairs of points, in nats, below which the model tells no two of them apart."""

MINIMUM_SPREAD = 1e-3
"""Root of total variance over mean squared norm below which the representation is a constant."""

MINIMUM_RANK_SHARE = 0.5
"""Share of the available directions that must carry variance above 1e-5 of the largest."""

PATIENCE = 2
"""Looks in a row that must agree before a collapse is announced or withdrawn."""

UNDECIDED_FOR = 0.2
"""Share of a training in which labels may be inconsistent: clusters that nobody has learnt yet are."""

LEAST_PROBABILITY = 1e-300
"""What a cluster has where the softmax says 0: a cross-entropy is then large, and finite."""

MEANING = {
    "representation": FAILURE_MODES["representation"],
    "dimension": "dimensional collapse: the representation fills few of its dimensions",
    "cluster": FAILURE_MODES["cluster"],
    "label": FAILURE_MODES["label"],
}


def name_of(kind: str) -> str:
    """What a kind of collapse is called: cluster collapse, label inconsistency."""
    return MEANING[kind].partition(":")[0]


@dataclass(frozen=True)
class Look:
    """What one look at the representation saw."""

    rankme: float
    effective_rank: float
    numerical_rank: int
    spread: float
    contrast: float
    collapsed: tuple[str, ...]
    clusters: ClusteringDiagnosis | None = None  # what a clustering objective makes of the sample

    @property
    def finite(self) -> bool:
        """Whether the representation was made of finite numbers; if not, nothing else was measured."""
        return math.isfinite(self.spread)

    def numbers(self) -> dict[str, float]:
        """The measurements, for the log."""
        found = {name: getattr(self, name) for name in LOOKED_AT}
        if self.clusters is not None:
            seen = self.clusters
            measured = (seen.largest_share, seen.used, seen.agreement, seen.certainty)
            found |= dict(zip(OF_CLUSTERS, (*measured, seen.invariance, seen.prior, seen.prior_minimum), strict=True))
        return found


def look(representations: Tensor, energy: Energy, embeddings: Tensor | None = None) -> Look:
    """Measure a sample of representations [n, m] and say which collapses it shows.

    - `representation`: energies do not vary (standard deviation under 0.01 nats over every point with itself and with
      an unrelated one), so that q(x | x̃) = p(x) whatever x̃ is; or the code itself is constant (spread under 0.001).
    - `dimension`: at most half of the min(n − 1, m) available directions carry any variance (1e-5 of the largest).

    `embeddings` are what the energy compares, where a projection head makes them differ from the representations.
    """
    if not bool(representations.isfinite().all()):
        return Look(math.nan, math.nan, 0, math.nan, math.nan, ())
    embeddings = representations if embeddings is None else embeddings
    z = representations.double()
    array = z.cpu().numpy()
    spectrum = spectra(array)
    power = z.square().sum(1).mean().item()
    spread = (float(spectrum.eigenvalues.sum()) / power) ** 0.5 if power > 0 else 0.0
    related, unrelated = (energy.paired(embeddings, embeddings.roll(shift, 0)) for shift in (0, 1))
    contrast = torch.cat([related, unrelated]).double().std().item()
    available = min(array.shape[0] - 1, array.shape[1])
    collapsed = []
    if contrast < MINIMUM_CONTRAST or spread < MINIMUM_SPREAD:
        collapsed.append("representation")
    elif available > 1 and spectrum.numerical_rank <= MINIMUM_RANK_SHARE * available:
        collapsed.append("dimension")
    return Look(
        rankme=rankme(array),
        effective_rank=spectrum.effective_rank,
        numerical_rank=spectrum.numerical_rank,
        spread=spread,
        contrast=contrast,
        collapsed=tuple(collapsed),
    )


def look_at_clusters(
    objective: ClusteringObjective, embeddings: Tensor, relatives: Tensor
) -> ClusteringDiagnosis | None:
    """What the predictions of the sample and of one relative of each point say, from embeddings [n, m] of both.

    None where logits are not finite.
    """
    logits = [objective.head(side).detach().double().cpu() for side in (embeddings, relatives)]
    if not all(bool(side.isfinite().all()) for side in logits):
        return None
    predictions, of_relatives = (side.softmax(-1).clamp_min(LEAST_PROBABILITY).numpy() for side in logits)
    if isinstance(objective, GEDI) and objective.learns_prior:
        return diagnose_clustering(predictions, of_relatives, price=objective.prior_price)
    prior = objective.prior.detach().double()
    return diagnose_clustering(predictions, of_relatives, (prior / prior.sum()).cpu().numpy())


def clusters_of(objective: Objective) -> ClusteringObjective | None:
    """The objective, if it has clusters that can go wrong."""
    return objective if isinstance(objective, ClusteringObjective) and objective.clusters > 1 else None


class CollapseWatch:
    """Keeps score of looks: a collapse counts once it is seen in several looks in a row.

    With a clustering `objective` and `relatives`, one augmentation of each point of the sample, its clusters are
    watched too; for label inconsistency not before step `settled`.
    """

    def __init__(
        self,
        sample: Tensor,
        energy: Energy,
        objective: ClusteringObjective | None = None,
        relatives: Tensor | None = None,
        settled: float = 0,
    ) -> None:
        self.sample, self.energy = sample, energy
        self.objective, self.relatives, self.settled = objective, relatives, settled
        self.standing: dict[str, int] = {}  # kind -> step at which it set in
        self._streaks: dict[str, int] = {}

    @torch.no_grad()
    def inspect(self, encoder: nn.Module, step: int) -> tuple[Look, list[tuple[str, str]]]:
        """One look, and what is newly announced by it: pairs of `collapse` or `recovery` and the kind."""
        representations = encode(encoder, self.sample)
        head = encoder.head if isinstance(encoder, WithHead) else None
        embeddings = None if head is None else encode(head, representations)
        relatives = None if self.relatives is None else encode(encoder, self.relatives)
        if relatives is not None and head is not None:
            relatives = encode(head, relatives)
        return self.judge(representations, embeddings, step, relatives)

    @torch.no_grad()
    def judge(
        self, representations: Tensor, embeddings: Tensor | None, step: int, relatives: Tensor | None = None
    ) -> tuple[Look, list[tuple[str, str]]]:
        """`inspect` where the representations of the sample, and embeddings of its relatives, are at hand."""
        seen = look(representations, self.energy, embeddings)
        if seen.finite and self.objective is not None and relatives is not None:
            seen = self._with_clusters(seen, representations if embeddings is None else embeddings, relatives, step)
        if not seen.finite:
            return seen, []
        news = []
        for kind in MEANING:
            streak = self._streaks.get(kind, 0)
            if (kind in seen.collapsed) == (kind in self.standing):
                self._streaks[kind] = 0
            elif streak + 1 < PATIENCE:
                self._streaks[kind] = streak + 1
            else:
                self._streaks[kind] = 0
                if kind in self.standing:
                    del self.standing[kind]
                    news.append(("recovery", kind))
                else:
                    self.standing[kind] = step
                    news.append(("collapse", kind))
        return seen, news

    def _with_clusters(self, seen: Look, embeddings: Tensor, relatives: Tensor, step: int) -> Look:
        """A look that also saw clusters. Those of a constant representation are as undecided as it is."""
        assert self.objective is not None
        clusters = look_at_clusters(self.objective, embeddings, relatives)
        if clusters is None:
            return seen
        collapsed = list(seen.collapsed)
        if clusters.few_clusters:
            collapsed.append("cluster")
        if clusters.inconsistent and step >= self.settled and "representation" not in seen.collapsed:
            collapsed.append("label")
        return replace(seen, collapsed=tuple(collapsed), clusters=clusters)

    def state(self) -> dict[str, dict[str, int]]:
        """What a checkpoint must carry."""
        return {"standing": dict(self.standing), "streaks": dict(self._streaks)}

    def restore(self, state: dict[str, dict[str, int]]) -> None:
        """Go on from a state."""
        self.standing = dict(state["standing"])
        self._streaks = dict(state["streaks"])
        if not self.standing.keys() | self._streaks.keys() <= MEANING.keys():
            raise Mismatch("the watch knows no such collapse")
