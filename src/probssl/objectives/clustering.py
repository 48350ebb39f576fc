"""Objectives that cluster: p(y | x) over c clusters in place of an energy between observations.

All maximise a lower bound of E log p(x, x'), the clusters y unobserved (GEDI Definition 5 and Lemma 3):

    E log p(x, x') ≥ −H(x) + E[ E_{q(y | x')} log p(y | x) + H(q(y | x')) ] + const,

and differ in the auxiliary distribution q and in what keeps it from being trivial. Those whose q is made from a memory
of the whole data set are in `memory`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from probssl.encoders import Prototypes
from probssl.energies import Cosine, Euclidean
from probssl.errors import InputError
from probssl.objectives.base import Pair, PairObjective
from probssl.pairings.views import Views
from probssl.parts.part import Context


class ClusteringObjective(PairObjective):
    """An objective with a head of prototypes, p(y | x) = softmax(Uᵀψ(x)/τ), and a prior over clusters p(y).

    The same logits are a density: p(x) = Σ_y e^{U_yᵀψ(x)/τ} / Γ   (GEDI Eq. 6). The energy, by which training is
    watched for collapse, is the cosine at the head's temperature if the head normalises, else the Euclidean one.

    Settings:
        clusters: how many there are; labels, which would tell, are never seen.
        temperature: τ of the predictions p(y | x).
        normalise: whether z and the centres are put on the unit sphere first.
        prior: p(y), one number per cluster; uniform unless given.
    """

    family: ClassVar[str] = "clusters"
    compares_views: ClassVar[bool] = True

    def __init__(
        self,
        clusters: int,
        *,
        temperature: float,
        normalise: bool,
        pair: Pair = "original",
        prior: Tensor | Sequence[float] | None = None,
    ) -> None:
        if clusters < 1:
            raise InputError(f"the number of clusters must be at least 1, not {clusters}")
        super().__init__(Cosine(temperature) if normalise else Euclidean(), pair=pair)
        self.clusters, self.temperature, self.normalise = int(clusters), float(temperature), normalise
        self._prior = _distribution(prior, self.clusters)

    def build(self, context: Context) -> None:
        dim = context.need("dim")
        self.head = Prototypes(dim, self.clusters, temperature=self.temperature, normalise=self.normalise)
        # A parameter that is not trained: buffers are for memory, and what has memory cannot be stacked.
        self.prior = nn.Parameter(self._prior.clone(), requires_grad=False)

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


class SwAV(ClusteringObjective):
    """L = ½ [CE(q(y | x̃₂), p(y | x̃₁)) + CE(q(y | x̃₁), p(y | x̃₂))], means over the batch   (Caron et al., 2020).

    Swapped prediction: p = softmax(Uᵀz/τ) of one view predicts the code q of the other, q = `sinkhorn`(sg(Uᵀz), ε) by
    optimal transport of the batch onto the prior, z and U on the unit sphere, sg = stop-gradient. Range [0, ∞); 0 where
    codes are one-hot and predicted surely. As a bound of the likelihood (GEDI Lemma 3, Eq. 17 with its factor
    corrected to 1/τ) −L is the discriminative term but for H(q), which the codes carry:
    Σ_i [E_q log p + H(q)] = [Tr(QUᵀZ) + τ H(Q)] / τ − Σ_i log Σ_y e^{U_yᵀz_i/τ}. A constant encoder has codes equal to
    the prior and so gives its entropy or more.
    Collapse: equal shares of clusters are built into the codes; a constant encoder is not the minimum.

    Settings:
        epsilon: ε, the entropy of the codes.
        iterations: of Sinkhorn's algorithm that makes them.
    """

    admits: ClassVar[dict[str, str]] = {
        "representation": "a constant encoder, as near to every centre, has no gradient to leave it by, though it is "
        "not the minimum",
        "dimension": "it asks for as many directions as tell the clusters apart, and no more",
    }

    def __init__(
        self,
        clusters: int = 10,
        *,
        temperature: float = 0.1,
        epsilon: float = 0.05,
        iterations: int = 3,
        prior: Tensor | Sequence[float] | None = None,
        pair: Pair = "augmented",
    ) -> None:
        super().__init__(clusters, temperature=temperature, normalise=True, pair=pair, prior=prior)
        if not 0 < epsilon < math.inf:
            raise InputError(f"epsilon, the entropy of SwAV's codes, must be positive and finite, not {epsilon:g}")
        if iterations < 1:
            raise InputError(f"SwAV's codes need at least one iteration, not {iterations}")
        self.epsilon, self.iterations = float(epsilon), int(iterations)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        logits = self.pair_logits(encoder, views)
        codes = [
            sinkhorn(side.detach() * self.temperature, self.epsilon, self.iterations, self.prior) for side in logits
        ]
        first, second = (
            -(code * side.log_softmax(-1)).sum(-1).mean() for code, side in zip(codes[::-1], logits, strict=True)
        )
        return {"swapped": 0.5 * (first + second)}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0


class ProtoCPC(ClusteringObjective):
    """L = −½ [I(x̃₁ → x̃₂) + I(x̃₂ → x̃₁)], I = mean_i [Σ_y p_iy s_iy − log Σ_y p̄_y e^{s_iy}]   (Lee, 2022; GEDI App. H).

    The teacher p = softmax(sg(Uᵀz)/τ_t) of one view, p̄ its mean over the batch, and the student s = Uᵀz'/τ of the
    other, on the unit sphere; τ_t, by default 0.4 τ, makes the teacher surer. By Jensen's inequality I is at most
    InfoNCE with the critic f(x_k, x'_i) = Σ_y p_ky s_iy, log n minus the loss, itself at most ln n and in expectation
    at most the mutual information; and I ≤ mean_i KL(p_i ‖ p̄) ≤ ln c. So L ≥ −min(ln n, ln c), reached by sure
    predictions that both views share, in equal shares of clusters. Its bound of the likelihood is that of InfoNCE
    (GEDI Lemma 1). A constant encoder gives 0 or more.
    Terms: `alignment` = −mean Σ_y p s, `log_normaliser` = mean log Σ_y p̄ e^s.
    Collapse: neither a constant encoder nor a single cluster is the minimum.

    Settings:
        teacher_temperature: τ_t, at most τ; 0.4 τ unless given.
    """

    admits: ClassVar[dict[str, str]] = {
        "representation": "a constant encoder, as near to every centre, has no gradient to leave it by, though it is "
        "not the minimum",
        "cluster": "once one cluster takes every input the contrast is 0 and has no gradient, though it is not the "
        "minimum",
        "dimension": "it asks for as many directions as tell the clusters apart, and no more",
    }

    def __init__(
        self,
        clusters: int = 10,
        *,
        temperature: float = 0.1,
        teacher_temperature: float | None = None,
        pair: Pair = "augmented",
    ) -> None:
        super().__init__(clusters, temperature=temperature, normalise=True, pair=pair)
        teacher_temperature = 0.4 * temperature if teacher_temperature is None else teacher_temperature
        if not 0 < teacher_temperature <= temperature:
            raise InputError(
                f"the teacher's temperature must lie above 0 and be at most the student's, {temperature:g}, "
                f"not {teacher_temperature:g}"
            )
        self.teacher_temperature = float(teacher_temperature)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.pair_logits(encoder, views)
        one, other = self._contrast(first, second), self._contrast(second, first)
        return {"alignment": 0.5 * (one[0] + other[0]), "log_normaliser": 0.5 * (one[1] + other[1])}

    def _contrast(self, teacher: Tensor, student: Tensor) -> tuple[Tensor, Tensor]:
        """−mean_i Σ_y p_iy s_iy and mean_i log Σ_y p̄_y e^{s_iy}, from the logits of two sides."""
        log_p = (teacher.detach() * (self.temperature / self.teacher_temperature)).log_softmax(-1)
        return -(log_p.exp() * student).sum(-1).mean(), (student + log_mean(log_p)).logsumexp(-1).mean()

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return -math.log(min(batch_size, self.clusters))


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
    return -(prior * log_mean(log_p)).sum(-1)


def log_mean(log_p: Tensor) -> Tensor:
    """log mean_i p_iy: [n, c] → [c]."""
    return log_p.logsumexp(-2) - math.log(log_p.shape[-2])


@torch.no_grad()
def sinkhorn(scores: Tensor, epsilon: float = 0.05, iterations: int = 3, prior: Tensor | None = None) -> Tensor:
    """argmax_Q Tr(Qᵀ scores) + ε H(Q) over Q ≥ 0 with rows that sum to 1 and columns to n·prior: [n, c] → [n, c].

    By scaling the columns and the rows of e^{scores/ε} in turn (Sinkhorn-Knopp; Cuturi, 2013), on logarithms, so that
    it is finite for any finite scores. Rows, the codes of Caron et al. (2020), sum to 1 after any number of iterations;
    columns do in the limit. The prior is uniform unless given, [c]. No gradient passes.
    """
    n, c = scores.shape[-2:]
    prior = scores.new_full((c,), 1 / c) if prior is None else prior
    log_columns = prior.clamp_min(torch.finfo(scores.dtype).tiny).log() + math.log(n)
    log_q = scores / epsilon
    for _ in range(iterations):
        log_q = (log_q - log_q.logsumexp(-2, keepdim=True) + log_columns).log_softmax(-1)
    return log_q.exp()


def _distribution(prior: Tensor | Sequence[float] | None, clusters: int) -> Tensor:
    """The prior as a tensor [c]; uniform if None."""
    if prior is None:
        return torch.full((clusters,), 1 / clusters)
    given = torch.as_tensor(prior, dtype=torch.get_default_dtype())
    if given.shape != (clusters,):
        raise InputError(f"the prior must be {clusters} numbers, one per cluster, not of shape {tuple(given.shape)}")
    if not bool((given >= 0).all()) or not math.isclose(given.sum().item(), 1, abs_tol=1e-5):
        raise InputError("the prior over clusters must be numbers of at least 0 that sum to 1")
    return given
