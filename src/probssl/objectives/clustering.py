"""Objectives that cluster: p(y | x) over c clusters in place of an energy between observations.

All maximise a lower bound of E log p(x, x'), the clusters y unobserved (GEDI Definition 5 and Lemma 3):

    E log p(x, x') ≥ −H(x) + E[ E_{q(y | x')} log p(y | x) + H(q(y | x')) ] + const,

and differ in the auxiliary distribution q and in what keeps it from being trivial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from probssl.encoders import Prototypes
from probssl.energies import Cosine, Euclidean
from probssl.errors import InputError
from probssl.objectives.base import Pair, PairObjective
from probssl.pairings.views import Views


class ClusteringObjective(PairObjective):
    """An objective with a head of prototypes, p(y | x) = softmax(Uᵀψ(x)/τ), and a prior over clusters p(y).

    The same logits are a density: p(x) = Σ_y e^{U_yᵀψ(x)/τ} / Γ   (GEDI Eq. 6). `prior` is uniform unless given, [c].
    The energy, by which training is watched for collapse, is the cosine at the head's temperature if the head
    normalises, else the Euclidean one.
    """

    prior: Tensor

    def __init__(
        self, head: Prototypes, *, pair: Pair = "original", prior: Tensor | Sequence[float] | None = None
    ) -> None:
        super().__init__(Cosine(head.temperature) if head.normalise else Euclidean(), pair=pair)
        self.head = head
        self.register_buffer("prior", _distribution(prior, head.clusters))

    @property
    def clusters(self) -> int:
        """c, the number of clusters."""
        return self.head.clusters

    def logits(self, encoder: nn.Module, x: Tensor) -> Tensor:
        """U_yᵀψ(x_i)/τ: [n, c]."""
        return self.head(encoder(x))

    def log_probabilities(self, encoder: nn.Module, x: Tensor) -> Tensor:
        """log p(y | x_i): [n, c]."""
        return self.logits(encoder, x).log_softmax(-1)

    def log_density(self, encoder: nn.Module, x: Tensor) -> Tensor:
        """log Σ_y e^{U_yᵀψ(x_i)/τ} = log p(x_i) + log Γ, Γ the same for all x: [n]   (GEDI Eq. 6)."""
        return self.logits(encoder, x).logsumexp(-1)

    def pair_logits(self, encoder: nn.Module, views: Views) -> tuple[Tensor, Tensor]:
        """Logits of the two sides of every pair, (x, x̃) or (x̃₁, x̃₂): [n, c] and [n, c]."""
        first, second = self.embed_pair(encoder, views)
        return self.head(first), self.head(second)


def invariance(log_p: Tensor, log_q: Tensor) -> Tensor:
    """mean_i CE(p(y | x'_i), p(y | x_i)) = −mean_i Σ_y q_iy log p_iy, log_p of x and log_q of x': [n, c], [n, c] → [].

    GEDI Eq. 3, as a mean to minimise. At least 0, and 0 iff predictions are one-hot and alike: entropy plus KL.
    """
    return -(log_q.exp() * log_p).sum(-1).mean()


def prior_cross_entropy(prior: Tensor, log_p: Tensor) -> Tensor:
    """CE(prior, mean_i p(y | x_i)) = −Σ_y prior_y log mean_i p_iy: [c], [n, c] → []   (GEDI Eq. 3, averaged over i).

    At least the entropy of the prior, and equal to it iff the mean prediction is the prior. The mean is taken of
    logarithms, so that an empty cluster has a finite cost and a gradient that fills it, however sure the others are.
    """
    return -(prior * (log_p.logsumexp(-2) - math.log(log_p.shape[-2]))).sum(-1)


def _distribution(prior: Tensor | Sequence[float] | None, clusters: int) -> Tensor:
    """The prior as a tensor [c]; uniform if None."""
    if prior is None:
        return torch.full((clusters,), 1 / clusters)
    given = torch.as_tensor(prior, dtype=torch.get_default_dtype())
    if given.shape != (clusters,):
        raise InputError(f"the prior of {clusters} clusters needs as many numbers, not shape {tuple(given.shape)}")
    if not bool((given >= 0).all()) or not math.isclose(given.sum().item(), 1, abs_tol=1e-5):
        raise InputError("the prior of the clusters must be numbers of at least 0 that sum to 1")
    return given
