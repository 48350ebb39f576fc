"""Latent-variable models of related observations, fitted by a bound of their likelihood   (SimVAE).

A decoder gives p(x | z), a `GaussianEncoder` q(z | x), and the models differ in the prior of z. All of them minimise

    −ELBO = −E_q log p(x | z) + KL(q(z | x) ‖ p(z)) ≥ −log p(x)      in nats, with every constant,

for one observation (VAE) or for J related ones at once (SimVAE). Expectations over the prior are taken in closed form;
those of the likelihood by one draw z = μ + e^{s/2} ε a step, ε from torch's random state, which a training seeds.
"""

from __future__ import annotations

import abc
import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders import GaussianEncoder
from probssl.energies import Euclidean
from probssl.errors import InputError
from probssl.objectives.base import Objective, Pair
from probssl.pairings.views import Needs, Views

LOG_2PI = math.log(2 * math.pi)


class Likelihood(nn.Module, abc.ABC):
    """p(x | z) with parameters that a decoder gives, one for every number of x, all independent."""

    @abc.abstractmethod
    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        """log p(x_i | z_i) in nats: [n, ...], [n, ...] → [n]."""

    @abc.abstractmethod
    def mean(self, parameters: Tensor) -> Tensor:
        """E[x | z], what a reconstruction shows: [n, ...]."""


class GaussianLikelihood(Likelihood):
    """N(x; decoder(z), σ_x² I) with a fixed `variance` σ_x²: an error weighs 1/(2σ_x²), 25 at SimVAE's 0.02.

    SimVAE's Algorithm 1 has 1/D in its place, which is σ_x² = D/2 (errata).
    """

    def __init__(self, variance: float = 0.02) -> None:
        super().__init__()
        self.variance = _positive("variance of the likelihood", variance)

    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        squares = (x - parameters).square().flatten(1)
        return -0.5 * (squares.sum(1) / self.variance + squares.shape[1] * (LOG_2PI + math.log(self.variance)))

    def mean(self, parameters: Tensor) -> Tensor:
        return parameters


class BernoulliLikelihood(Likelihood):
    """Π Bernoulli(x_i; sigmoid(decoder(z)_i)): a density of binary x; grey values in [0, 1] are taken as chances."""

    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        return -F.binary_cross_entropy_with_logits(parameters, x, reduction="none").flatten(1).sum(1)

    def mean(self, parameters: Tensor) -> Tensor:
        return parameters.sigmoid()


class GenerativeObjective(Objective):
    """A decoder, a likelihood and a bound; the energy, by which training is watched, is the Euclidean one.

    The `decoder` maps latents [n, dim] to parameters of the likelihood, shaped like x or flat. It is the objective's
    own, as all is that a loss needs beyond the encoder.
    """

    admits: ClassVar[dict[str, str]] = {
        "dimension": "a latent that reconstruction does not need is worth most as the prior (posterior collapse)",
        "representation": "a decoder that needs no latents leaves every posterior at the prior",
    }

    def __init__(self, decoder: nn.Module, likelihood: Likelihood | None, needs: Needs) -> None:
        super().__init__(Euclidean(), needs)
        self.decoder = decoder
        self.likelihood: Likelihood = GaussianLikelihood() if likelihood is None else likelihood

    # One observation

    def reconstruction(self, x: Tensor, z: Tensor) -> Tensor:
        """−log p(x_i | z_i) in nats: [n]."""
        return -self.likelihood.log_prob(x, self.decoder(z).view(x.shape))

    def decode(self, z: Tensor, shape: tuple[int, ...] | torch.Size) -> Tensor:
        """E[x | z] of latents [n, dim], as observations of that shape: [n, *shape]."""
        return self.likelihood.mean(self.decoder(z).view(len(z), *shape))

    def log_prior(self, z: Tensor) -> Tensor:
        """log p(z_1, …, z_J) of sets of latents in nats, here all standard normal: [J, n, dim] → [n]."""
        return -0.5 * (z.square() + LOG_2PI).sum((0, -1))

    # A bound as tight as one pays for

    @torch.no_grad()
    def log_likelihood(
        self, encoder: nn.Module, x: Tensor, samples: int = 100, generator: torch.Generator | None = None
    ) -> Tensor:
        """log mean_k p(x, z_k)/q(z_k | x) of sets [J, n, ...], z_k ~ q: [n], in nats   (Burda et al., 2016).

        At most log p(x) in expectation, rising to it with the number of samples; with one it is the ELBO.
        """
        if samples < 1:
            raise InputError(f"a bound needs at least one sample, not {samples}")
        flat = x.flatten(0, 1)
        mean, log_variance = posterior(encoder, flat)
        found = []
        for _ in range(samples):
            noise = torch.empty_like(mean).normal_(generator=generator)
            z = mean + noise * (0.5 * log_variance).exp()
            log_q = -0.5 * (noise.square() + log_variance + LOG_2PI).sum(-1)
            ratio = (-self.reconstruction(flat, z) - log_q).view(x.shape[:2]).sum(0)
            found.append(ratio + self.log_prior(z.view(*x.shape[:2], -1)))
        return torch.stack(found).logsumexp(0) - math.log(samples)


class VAE(GenerativeObjective):
    """L = −E_q log p(x | z) + β KL(q(z | x) ‖ N(0, I))   (Kingma & Welling, 2014; β-VAE: Higgins et al., 2017).

    Terms, means over the batch in nats: `reconstruction` and `divergence` = ½ Σ_k (μ_k² + v_k − 1 − log v_k). At β = 1
    the sum is at least −log p(x), equal where q is the posterior; above 1 it is a looser bound, below 1 none. `of` says
    what is modelled: an augmentation of the data, as SimVAE trains its rivals, or the data itself.
    """

    def __init__(
        self,
        decoder: nn.Module,
        likelihood: Likelihood | None = None,
        *,
        beta: float = 1.0,
        of: Literal["augmented", "data"] = "augmented",
    ) -> None:
        if of not in ("augmented", "data"):
            raise InputError(f"a VAE models what is 'augmented' or the 'data', not {of!r}")
        super().__init__(decoder, likelihood, Needs(augmented=int(of == "augmented")))
        self.of = of
        if _positive("beta", beta) != 1:
            self.weights = {"divergence": float(beta)}

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        x = views.augmented[0] if self.of == "augmented" else views.x
        mean, log_variance = posterior(encoder, x)
        return {
            "reconstruction": self.reconstruction(x, draw(mean, log_variance)).mean(),
            "divergence": divergence(mean, log_variance).mean(),
        }


class BetaVAE(VAE):
    """`VAE` with the divergence weighted by β, 4 unless given: fewer and more independent latents."""

    def __init__(
        self,
        decoder: nn.Module,
        likelihood: Likelihood | None = None,
        *,
        beta: float = 4.0,
        of: Literal["augmented", "data"] = "augmented",
    ) -> None:
        super().__init__(decoder, likelihood, beta=beta, of=of)


class CRVAE(GenerativeObjective):
    """L = −ELBO(x) − ELBO(x̃) + λ KL(q(z | x̃) ‖ q(z | x))   (Sinha & Dieng, 2021; SimVAE's baseline with λ = 0.1).

    Terms: `reconstruction` and `divergence` of both observations, and their `consistency`, at least 0, which alone
    would be least where posteriors say nothing. The first two are a bound of −log p(x) − log p(x̃), and so is the sum.
    """

    def __init__(
        self,
        decoder: nn.Module,
        likelihood: Likelihood | None = None,
        *,
        beta: float = 1.0,
        consistency: float = 0.1,
        pair: Pair = "augmented",
    ) -> None:
        if pair not in ("original", "augmented"):
            raise InputError(f"pair is 'original' or 'augmented', not {pair!r}")
        super().__init__(decoder, likelihood, Needs(augmented=2 if pair == "augmented" else 1))
        self.pair = pair
        self.weights = {"divergence": _positive("beta", beta), "consistency": _positive("consistency", consistency)}

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = (
            (views.augmented[0], views.augmented[1]) if self.pair == "augmented" else (views.x, views.augmented[0])
        )
        x = torch.cat([first, second])
        mean, log_variance = posterior(encoder, x)
        of_first, of_second = zip(mean.chunk(2), log_variance.chunk(2), strict=True)
        return {
            "reconstruction": 2 * self.reconstruction(x, draw(mean, log_variance)).mean(),
            "divergence": 2 * divergence(mean, log_variance).mean(),
            "consistency": divergence(*of_second, *of_first).mean(),
        }


class SimVAE(GenerativeObjective):
    """L = −Σ_j E_q log p(x_j | z_j) − Σ_j H(q(z_j | x_j)) − E_q log p(z_1, …, z_J)   (SimVAE §5, corrected).

    J = `related` observations of a data point have latents z_j ~ N(ψ, σ² I) around a mean ψ of their own, integrated
    out (A.4, errata 003-4 and 003-5). Under a flat prior of ψ (`mean_variance` None) the last is

        log p(z) = −(1/2σ²) Σ_j ‖z_j − z̄‖² − (L/2) [(J − 1) log 2πσ² + log J],

    per unit volume; under ψ ~ N(0, γ² I) it is N(0, σ²I + γ²11ᵀ) in every dimension, which also pulls z̄ to the origin,
    by J‖z̄‖²/(2(σ² + Jγ²)): the −½‖z̄‖² of the released code is γ² = 1 − σ²/J. Its expectation is exact:
    E Σ_j ‖z_j − z̄‖² = Σ_j ‖μ_j − μ̄‖² + (1 − 1/J) Σ_j Tr V_j.

    Terms, means over data points in nats: `reconstruction`, `entropy` = −Σ_j H(q), `prior`. Their sum is at least
    −log p(x_1, …, x_J). Without reconstruction the best posterior variance is σ²J/(J − 1) (`theory.latent`).
    """

    def __init__(
        self,
        decoder: nn.Module,
        likelihood: Likelihood | None = None,
        *,
        related: int = 10,
        variance: float = 0.15,
        mean_variance: float | None = None,
    ) -> None:
        if related < 1 or (related < 2 and mean_variance is None):
            raise InputError(f"SimVAE relates at least two observations, or one under a prior of means, not {related}")
        super().__init__(decoder, likelihood, Needs(augmented=related))
        self.related = int(related)
        self.variance = _positive("variance of related latents", variance)
        self.mean_variance = None if mean_variance is None else _positive("variance of their means", mean_variance)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        x = views.augmented[: self.related]
        if len(x) < self.related:
            raise InputError(f"SimVAE relates {self.related} observations of a data point, and there are {len(x)}")
        flat = x.flatten(0, 1)
        mean, log_variance = posterior(encoder, flat)
        errors = self.reconstruction(flat, draw(mean, log_variance))
        count = x.shape[1]
        return {
            "reconstruction": errors.sum() / count,
            "entropy": -0.5 * (log_variance + LOG_2PI + 1).sum() / count,
            "prior": -self._prior(mean.view(*x.shape[:2], -1), log_variance.exp().view(*x.shape[:2], -1)).mean(),
        }

    def log_prior(self, z: Tensor) -> Tensor:
        return self._prior(z, torch.zeros_like(z))

    def _prior(self, mean: Tensor, variance: Tensor) -> Tensor:
        """E log p(z_1, …, z_J) of independent latents with these moments [J, n, L]: [n]."""
        related, _, size = mean.shape
        centre = mean.mean(0)
        traces = variance.sum((0, 2))
        pinch = (mean - centre).square().sum((0, 2)) + (1 - 1 / related) * traces
        found = -pinch / (2 * self.variance) - size / 2 * (related - 1) * (LOG_2PI + math.log(self.variance))
        if self.mean_variance is None:
            return found - size / 2 * math.log(related)
        of_mean = self.variance + related * self.mean_variance
        power = centre.square().sum(1) + traces / related**2  # E ‖z̄‖²
        return found - related * power / (2 * of_mean) - size / 2 * (LOG_2PI + math.log(of_mean))


def posterior(encoder: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log-variance of q(z | x) [n, dim], of an encoder that has them."""
    if not isinstance(encoder, GaussianEncoder):
        raise InputError(
            "a generative objective needs a posterior: an encoders.GaussianEncoder, which says how sure it is"
        )
    return encoder.posterior(x)


def draw(mean: Tensor, log_variance: Tensor) -> Tensor:
    """z ~ N(μ, diag e^s) by μ + e^{s/2} ε, through which gradients pass."""
    return mean + torch.randn_like(mean) * (0.5 * log_variance).exp()


def divergence(
    mean: Tensor, log_variance: Tensor, other_mean: Tensor | None = None, other_log_variance: Tensor | None = None
) -> Tensor:
    """KL(N(μ, e^s) ‖ N(μ', e^{s'})) of diagonal normals, the second standard unless given: [n, dim] → [n]."""
    if other_mean is None or other_log_variance is None:
        return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)
    gap = log_variance - other_log_variance
    squares = (mean - other_mean).square() * (-other_log_variance).exp()
    return 0.5 * (squares + gap.exp() - 1 - gap).sum(-1)


def _positive(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise InputError(f"the {name} must be positive and finite, not {value:g}")
    return float(value)
