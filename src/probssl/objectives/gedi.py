"""GEDI: a classifier without labels that is an energy-based model of its inputs as well   (GEDI §4).

One network ψ with cluster centres U has p(y, x) = e^{U_yᵀψ(x)/τ} / Γ. Its conditional p(y | x) clusters, its marginal
p(x) = Σ_y e^{U_yᵀψ(x)/τ} / Γ generates, and a bound of the likelihood asks for both (Eq. 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from probssl.energies import Euclidean
from probssl.errors import InputError
from probssl.objectives.base import Pair, PairObjective
from probssl.objectives.clustering import ClusteringObjective, invariance, log_mean, prior_cross_entropy
from probssl.objectives.pairwise import PairLogits
from probssl.pairings.views import Views
from probssl.parts.part import Context
from probssl.samplers import SGLD, NormalStart, ReplayBuffer, Start, UniformStart

PRIOR_PRICE = 2.0
"""What a learnt prior pays for each nat of entropy that it lacks."""

GENERATED_AT_ONCE = 4096
"""Chains that are moved on together where many are asked for."""

FORGETTING = 0.01
"""How much of the running mean of predictions a step replaces."""


@dataclass(frozen=True)
class Chains:
    """How samples are kept between the steps of a training."""

    count: int
    reinitialise: float
    start: Start | Literal["normal", "uniform"]

    def buffer(self, context: Context) -> ReplayBuffer:
        """As many chains as asked for, and at least a batch of them, begun where observations may lie."""
        start = self.start
        if isinstance(start, str):
            shape = context.need("shape")
            zeros, ones = torch.zeros(shape), torch.ones(shape)
            if start == "uniform":
                start = UniformStart(zeros, ones)
            else:
                known = context.sample
                start = NormalStart(zeros, ones) if known is None else NormalStart.around(known)
        return ReplayBuffer(start, max(self.count, context.batch_size or 1), self.reinitialise)


class GEDI(ClusteringObjective):
    """L = w_g [E(x) − E(x̂)] + w_i mean CE(p(y | x̃), p(y | x)) + w_p CE(p(y), mean p(y | x))   (GEDI Eq. 5, minimised).

    The terms, each a mean over the batch (the paper sums over n and prints both signs):

    - `generative`: E(x) = −log Σ_y e^{U_yᵀψ(x)/τ} of data less that of samples x̂ ~ p(x). Its gradient is that of the
      negative log-likelihood −E log p(x) (Eq. 7); its value is not a likelihood, near 0 once samples look like data.
    - `invariance`: at least 0, which confident predictions reach that an augmentation does not change.
    - `prior`: at least the entropy of the prior, ln c where it is uniform; reached if the mean prediction is the prior.
    - `magnitude`, where asked for: mean E(x)² + E(x̂)², which keeps energies from drifting off (Du & Mordatch, 2019).

    By Theorem 1 each of the first three admits two of the failures of representation, cluster and label, and all three
    together none. A term of weight 0 is left out: `generative` alone is JEM (Grathwohl et al., 2020), and the paper's
    ablations are "no gen", "no inv" and "no prior" (`gedi_weights`). Contrary to GEDI §6.1(iii), "no gen" leaves no
    failure open (`theory.clustering.open_failure_modes`).

    With a learnt prior π is whatever minimises CE(π, p̄) − s H(π), s = `prior_price` > 1, for the mean prediction p̄.
    That is π ∝ p̄^{1/s}, and the term −s log Σ_y p̄_y^{1/s} in [−(s − 1) ln c, 0]: the Rényi entropy of p̄ of order 1/s.
    Clusters need not be of one size, and c is an upper bound: a cluster that nothing belongs to costs a finite sum.
    `mean_prediction` keeps a running mean of p̄.

    With `base_scale` s the density is p(x) ∝ Σ_y e^{U_yᵀψ(x)/τ} N(x; 0, s² I): E(x) gains ‖x‖²/(2s²). The paper's
    inputs lie in a compact set, where Γ is finite. On all of R^d it is not for a network that grows along some ray,
    and then what lies far outside seems likely; the normal factor falls faster than a ReLU network can grow. p(y | x)
    is the same.

    With `pair="augmented"` clusters are asked of two augmentations: invariance is the mean of both directions and the
    prior term sees both. It suits images whose augmentations are told from them at a glance, by their noise. There
    `pair="original"` has a trap, a stationary point that Theorem 1 does not see: to be sure of one cluster y for all
    that is augmented, and to give it (w_i + w_p/c) / (w_i + w_p) in all that is not, which the prior term, seeing
    originals alone, does not mind. Two
    augmentations have one law, and no such trap.

    The likelihood bound (GEDI Eq. 5): E log p(x, x̃) ≥ −CE(p, p_Θ) − w_i-term − w_p-term + const at equal weights.

    Settings:
        generative: w_g, the weight of the density, whose samples are drawn as it trains; 0 for none.
        invariance: w_i, the weight of clusters that augmentations do not change.
        balance: w_p, the weight of clusters that follow the prior.
        magnitude: the weight that keeps energies from drifting off.
        prior: "uniform", a distribution with one number per cluster, or "learnt".
        prior_price: s, what a learnt prior pays for each nat of entropy that it lacks.
        base_scale: s of the normal density that p(x) is relative to; none unless given.
        density_of: with `pair="augmented"`, whether the density is of the first of the "pair" or of the "data".
        chains: how many chains of samples are kept; at least as many as a batch has rows.
        reinitialise: the chance that a chain restarts.
        start: where chains begin: "normal", with mean and standard deviation of every feature, 0 and 1 where no data is
            seen; "uniform" in the unit box, as pixels are; or a `samplers.Start`.
        sampler: the dynamics that moves them.
    """

    mean_prediction: Tensor

    admits: ClassVar[dict[str, str]] = {}
    samples: ClassVar[bool] = True

    def __init__(
        self,
        clusters: int = 10,
        *,
        generative: float = 1.0,
        invariance: float = 50.0,
        balance: float = 10.0,
        magnitude: float = 0.0,
        prior: Tensor | Sequence[float] | Literal["uniform", "learnt"] = "uniform",
        prior_price: float = PRIOR_PRICE,
        base_scale: float | None = None,
        temperature: float = 1.0,
        pair: Pair = "original",
        density_of: Literal["pair", "data"] = "pair",
        chains: int = 10_000,
        reinitialise: float = 0.05,
        start: Start | Literal["normal", "uniform"] = "normal",
        sampler: SGLD | None = None,
    ) -> None:
        self._check(prior, prior_price, base_scale, density_of)
        weights = {"generative": generative, "invariance": invariance, "prior": balance, "magnitude": magnitude}
        super().__init__(
            clusters,
            temperature=temperature,
            normalise=False,
            pair=pair,
            prior=None if isinstance(prior, str) else prior,
        )
        self._weigh(**weights)
        if type(self).terms is GEDI.terms:
            self._need_terms()
        self.density_of, self.base_scale = density_of, base_scale
        self.learns_prior, self.prior_price = prior == "learnt" if isinstance(prior, str) else False, float(prior_price)
        self._chains = Chains(chains, reinitialise, start)
        self.sampler = SGLD() if sampler is None else sampler
        self.buffer: ReplayBuffer | None = None

    @staticmethod
    def _check(prior: object, prior_price: float, base_scale: float | None, density_of: str) -> None:
        if base_scale is not None and not 0 < base_scale < math.inf:
            raise InputError(f"the scale of the base density must be positive and finite, not {base_scale:g}")
        if density_of not in ("pair", "data"):
            raise InputError(f"the density is of 'pair' or of 'data', not {density_of!r}")
        if isinstance(prior, str) and prior not in ("uniform", "learnt"):
            raise InputError(f"the prior over clusters is 'uniform', 'learnt' or a distribution, not {prior!r}")
        if not 1 < prior_price < math.inf:
            raise InputError(f"the price of a learnt prior's entropy must be above 1 and finite, not {prior_price:g}")

    def _weigh(self, **weights: float) -> None:
        """Give terms their weights; those of weight 0 are left out."""
        for name, weight in weights.items():
            if not 0 <= weight < math.inf:
                raise InputError(f"the weight of {name} must be finite and ≥ 0, not {weight:g}")
        self.weights |= {name: float(weight) for name, weight in weights.items() if weight}
        if "magnitude" in self.weights and "generative" not in self.weights:
            raise InputError("magnitude only bounds the generative term, which has no weight here")

    def _need_terms(self) -> None:
        if not self.weights:
            raise InputError("GEDI needs a term with a weight above 0")

    def build(self, context: Context) -> None:
        if "generative" in self.weights:
            self.buffer = self._chains.buffer(context)
        super().build(context)
        if self.learns_prior:
            self.register_buffer("mean_prediction", torch.full((self.clusters,), 1 / self.clusters))

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = (
            (views.augmented[0], views.augmented[1]) if self.pair == "augmented" else (views.x, views.augmented[0])
        )
        data = views.x if self.density_of == "data" and self.pair == "augmented" else None
        return self.terms_of(encoder, first, second, self.logits(encoder, first), chains=len(first), data=data)

    def terms_of(
        self,
        encoder: nn.Module,
        first: Tensor,
        second: Tensor | None,
        logits: Tensor,
        *,
        chains: int,
        data: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The terms from one side of all pairs and its logits, the other side, and that many samples.

        The density is of that side, unless other `data` is given.
        """
        log_p, symmetric = logits.log_softmax(-1), self.pair == "augmented"
        seen = [log_p]  # by the prior term
        found: dict[str, Tensor] = {}
        if "generative" in self.weights:
            samples = self.draw(encoder, chains)
            of_data = -(self._density_of(first, logits) if data is None else self.log_density(encoder, data))
            of_samples = -self.log_density(encoder, samples)
            found["generative"] = of_data.mean() - of_samples.mean()
            if "magnitude" in self.weights:
                found["magnitude"] = of_data.square().mean() + of_samples.square().mean()
        if "invariance" in self.weights:
            assert second is not None
            log_q = self.log_probabilities(encoder, second)
            found["invariance"] = invariance(log_p, log_q)
            if symmetric:
                found["invariance"] = 0.5 * (found["invariance"] + invariance(log_q, log_p))
                seen.append(log_q)
        if "prior" in self.weights:
            found["prior"] = self.prior_term(torch.cat(seen))
            if self.learns_prior and self.training:
                self._remember(torch.cat(seen))
        return found

    def log_density(self, encoder: nn.Module, x: Tensor) -> Tensor:
        """log p(x_i) + log Γ, with the base density where there is one: [n]."""
        return self._density_of(x, self.logits(encoder, x))

    def _density_of(self, x: Tensor, logits: Tensor) -> Tensor:
        if self.base_scale is None:
            return logits.logsumexp(-1)
        return logits.logsumexp(-1) - x.flatten(1).square().sum(1) / (2 * self.base_scale**2)

    def prior_term(self, log_p: Tensor) -> Tensor:
        """The prior term of predictions log p(y | x_i) [n, c]."""
        if not self.learns_prior:
            return prior_cross_entropy(self.prior, log_p)
        return -self.prior_price * torch.logsumexp(log_mean(log_p) / self.prior_price, -1)

    @torch.no_grad()
    def _remember(self, log_p: Tensor) -> None:
        self.mean_prediction.lerp_(log_mean(log_p).exp().to(self.mean_prediction), FORGETTING)

    @property
    def cluster_prior(self) -> Tensor:
        """p(y): the fixed prior, or the learnt one, from the running mean of predictions: [c]."""
        if not self.learns_prior:
            return self.prior.detach()
        return torch.softmax(self.mean_prediction.log() / self.prior_price, 0)

    def draw(self, encoder: nn.Module, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Samples of p(x): chains of the buffer moved on, and kept there while training."""
        if self.buffer is None:
            raise InputError("this model was trained without its generative term and has no chains to sample from")
        return self.buffer.advance(
            lambda x: self.log_density(encoder, x), self.sampler, count, generator, keep=self.training
        )

    def generate(self, encoder: nn.Module, count: int, steps: int, generator: torch.Generator) -> Tensor:
        """Any number of samples: chains drawn with replacement and moved on by `steps` steps; none of it is kept."""
        if self.buffer is None:
            raise InputError("this model was trained without its generative term and has no density to sample")
        if count < 1 or steps < 1:
            raise InputError(f"samples and steps must be at least 1, not {count} and {steps}")
        chains = self.buffer.chains
        begun = chains[torch.randint(len(chains), (count,), generator=generator)]
        parts = [
            self.sampler.walk(lambda x: self.log_density(encoder, x), part, generator, steps=steps)
            for part in begun.split(GENERATED_AT_ONCE)
        ]
        return torch.cat(parts)

    def optimum(self, batch_size: int, dim: int) -> float | None:
        """Of the clustering terms alone: the generative one has no lower bound known from the data's size."""
        if "generative" in self.weights:
            return None
        least = 0.0
        if "prior" in self.weights:
            prior = self.prior.detach()
            entropy = -float(torch.special.xlogy(prior, prior).sum())
            least = -(self.prior_price - 1) * math.log(self.clusters) if self.learns_prior else entropy
            least *= self.weights["prior"]
        return least


ABLATIONS: dict[str, tuple[str, ...]] = {
    "gedi": ("generative", "invariance", "balance"),
    "jem": ("generative",),
    "no prior": ("generative", "invariance"),
    "no inv": ("generative", "balance"),
    "no gen": ("invariance", "balance"),
}
"""The terms that GEDI and its ablations train with   (GEDI Tables 2 and 3), by the names of their weights."""


def gedi_weights(
    variant: str, *, generative: float = 1.0, invariance: float = 50.0, balance: float = 10.0
) -> dict[str, float]:
    """Weights of GEDI's terms for a variant of `ABLATIONS`: 0 for those it goes without."""
    if variant not in ABLATIONS:
        raise InputError(f"the variants of GEDI are {', '.join(ABLATIONS)}, not {variant!r}")
    weights = {"generative": generative, "invariance": invariance, "balance": balance}
    return {name: weight if name in ABLATIONS[variant] else 0.0 for name, weight in weights.items()}


class EBCLR(PairObjective):
    """L = InfoNCE + w [E(x) − E(x̂)], E(x) = −log mean_j e^{−‖ψ(x) − ψ(x̃_j)‖²/τ}   (Kim & Ye, 2022; GEDI Eq. 2).

    Contrastive learning whose logits are also a density: p(x) ∝ Σ_j e^{−δ(x, x̃_j)} over the augmentations of the batch.
    `alignment` and `log_normaliser` are InfoNCE of anchors x among them; `generative` is as in `GEDI`, with samples x̂
    of that density by chains. The bound of the likelihood is that of GEDI Lemma 1 with Eq. 1: the
    discriminative term less the cross-entropy of the marginal. A constant encoder gives log n for InfoNCE and 0 for E.

    Settings:
        generative: w, the weight of the density.
        temperature: τ of the squared distances.
        chains: how many chains of samples are kept; at least as many as a batch has rows.
        reinitialise: the chance that a chain restarts.
        start: where chains begin: "normal", "uniform" or a `samplers.Start`.
        sampler: the dynamics that moves them.
    """

    admits: ClassVar[dict[str, str]] = {
        "dimension": "directions in which the augmentation varies more than the data are worth nothing to it"
    }

    family: ClassVar[str] = "softmax over the batch"
    compares_views: ClassVar[bool] = True
    samples: ClassVar[bool] = True
    buffer: ReplayBuffer

    def __init__(
        self,
        *,
        generative: float = 0.1,
        temperature: float = 1.0,
        chains: int = 10_000,
        reinitialise: float = 0.05,
        start: Start | Literal["normal", "uniform"] = "normal",
        sampler: SGLD | None = None,
        pair: Pair = "original",
    ) -> None:
        if not 0 < generative < math.inf:
            raise InputError(f"the weight of the generative term must be positive and finite, not {generative:g}")
        if not 0 < temperature < math.inf:
            raise InputError(f"the temperature must be positive and finite, not {temperature:g}")
        super().__init__(Euclidean(), pair=pair)
        self.temperature = float(temperature)
        self._chains = Chains(chains, reinitialise, start)
        self.sampler = SGLD() if sampler is None else sampler
        self.weights = {"generative": float(generative)}

    def build(self, context: Context) -> None:
        self.buffer = self._chains.buffer(context)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        scale = math.sqrt(2 / self.temperature)  # ½‖s(a − b)‖² = ‖a − b‖²/τ
        pairs = PairLogits.of(self.energy, first * scale, second * scale)
        log_normaliser = pairs.mean_log_sum_exp()
        centres = second.detach()
        samples = self.buffer.advance(
            lambda x: self.log_density(encoder, x, centres), self.sampler, len(first), keep=self.training
        )
        of_samples = -PairLogits.of(self.energy, encoder(samples) * scale, second * scale).mean_log_sum_exp()
        return {
            "alignment": -pairs.diagonal().mean(),
            "log_normaliser": log_normaliser,
            "generative": -log_normaliser - of_samples,
        }

    def log_density(self, encoder: nn.Module, x: Tensor, centres: Tensor) -> Tensor:
        """log mean_j e^{−‖ψ(x_i) − c_j‖²/τ} for embeddings c_j [m, d]: [n]."""
        squares = torch.cdist(encoder(x), centres).square()
        return torch.logsumexp(-squares / self.temperature, -1) - math.log(len(centres))
