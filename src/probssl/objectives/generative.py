"""Latent-variable models of related observations, fitted by a bound of their likelihood   (SimVAE).

A decoder gives p(x | z), and an encoder ψ the posterior q(z | x) = N(ψ(x), diag e^s), its spread s a small network of
the objective's own. So any encoder will do, and methods are compared on the same one. Of a row of a table, s is a
function of x, since a row of which half is missing says less than a whole one. Of an image it is one of ψ(x): where
posteriors are narrow the best spread depends on the place alone, 1/v = prior precision + ‖∂decoder/∂z‖²/σ_x²
(`theory.latent`). docs/objectives.md has the bounds of both. The models differ in the prior of z. All of them minimise

    −ELBO = −E_q log p(x | z) + KL(q(z | x) ‖ p(z)) ≥ −log p(x)      in nats, with every constant,

for one observation (VAE) or for J related ones at once (SimVAE). Expectations over the prior are taken in closed form;
that of the likelihood by one draw z = ψ(x) + e^{s/2} ε a step, ε handed in with the batch (`Needs.noise`).
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders import MLP, Decoder, Indicators, MirrorDecoder
from probssl.energies import Euclidean
from probssl.errors import InputError
from probssl.layout import Column, Layout
from probssl.objectives.base import Objective, Pair
from probssl.pairings.views import Needs, Views
from probssl.parts.part import Context, Part

LOG_2PI = math.log(2 * math.pi)

LOG_VARIANCES = (-20.0, 10.0)
"""Least and largest log-variance of a posterior, so that no exponential overflows and no density is infinite."""

ROW_HIDDEN = 128
"""Units of the network that finds the spread of a posterior from a row."""

LEAST_LOG_VARIANCE = math.log(1e-3)
"""Of a column of standardised numbers, by `ColumnsLikelihood`."""

FIRST_VARIANCE = 0.01
"""Of posteriors before training. So narrow, they let the decoder see the latents from the first step on; posteriors
that begin at the prior hide them in noise, and the first hundreds of steps go to finding them (docs/objectives.md)."""


class Likelihood(Part, nn.Module, abc.ABC):
    """p(x | z) with parameters that a decoder gives, of independent numbers or columns.

    Parameters are one for every number of x, in its shape or flat, but for the levels and gaps of a table.
    """

    of_chances: ClassVar[bool] = False
    """Whether it is of numbers from 0 to 1."""

    def parameter_shape(self, context: Context) -> tuple[int, ...] | None:
        """What a decoder gives of one observation: [n, *parameter_shape]."""
        return context.shape

    @abc.abstractmethod
    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        """log p(x_i | z_i) in nats: [n, ...], parameters [n, ...] → [n]."""

    def log_prob_of_values(self, x: Tensor, parameters: Tensor) -> Tensor:
        """The same of what is observed alone, whether or not it is plausible that the rest is missing: [n]."""
        return self.log_prob(x, parameters)

    @abc.abstractmethod
    def mean(self, parameters: Tensor) -> Tensor:
        """E[x | z], what a reconstruction shows: [n, ...]."""

    @abc.abstractmethod
    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """x ~ p(x | z): [n, ...]."""

    def sample_values(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The same without gaps: [n, ...]."""
        return self.sample(parameters, generator)


class GaussianLikelihood(Likelihood):
    """N(x; decoder(z), σ_x² I) with a fixed `variance` σ_x²: an error weighs 1/(2σ_x²), 25 at SimVAE's 0.02.

    SimVAE's Algorithm 1 has 1/D in its place, which is σ_x² = D/2 (errata).

    Settings:
        variance: σ_x², of the normal errors of every number.
    """

    def __init__(self, variance: float = 0.02) -> None:
        super().__init__()
        self.variance = _positive("variance of the likelihood", variance)

    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        squares = (x - parameters.view(x.shape)).square().flatten(1)
        return -0.5 * (squares.sum(1) / self.variance + squares.shape[1] * (LOG_2PI + math.log(self.variance)))

    def mean(self, parameters: Tensor) -> Tensor:
        return parameters

    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return parameters + self.variance**0.5 * torch.empty_like(parameters).normal_(generator=generator)


class BernoulliLikelihood(Likelihood):
    """Π Bernoulli(x_i; sigmoid(decoder(z)_i)): a density of binary x; grey values are taken as chances.

    What noise has pushed below 0 or above 1 counts as 0 or 1: beyond them there is no bound to the loss.
    """

    of_chances: ClassVar[bool] = True

    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        chances = x.clamp(0, 1)
        logits = parameters.view(x.shape)
        return -F.binary_cross_entropy_with_logits(logits, chances, reduction="none").flatten(1).sum(1)

    def mean(self, parameters: Tensor) -> Tensor:
        return parameters.sigmoid()

    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return parameters.sigmoid().bernoulli(generator=generator)


class ColumnsLikelihood(Likelihood):
    """Π_j p(x_j | z) over the columns of a table: normal numbers of a learnt variance each, levels, and gaps.

        log p(x | z) = Σ_numbers log N(x_j; μ_j, σ_j²) + Σ_coded log softmax(logits_j)_{x_j}
                       + Σ_{columns with gaps} log Bernoulli(whether x_j is missing; sigmoid(gap_j)).

    What is missing, and a code that is no level, is left out of the first two sums. So a gap is an outcome of its own,
    samples have plausible ones, and columns that are one date are missing together. The decoder gives the μ, logits and
    gaps in the order of `Indicators`. No σ_j² falls below 10⁻³: a column of few distinct numbers, explained exactly,
    would have a density without end.

    Settings:
        variance: of every column of numbers before training.
    """

    log_variance: nn.Parameter

    def __init__(self, variance: float = 0.1) -> None:
        super().__init__()
        self.variance = _positive("variance of the likelihood", variance)

    def parameter_shape(self, context: Context) -> tuple[int, ...]:
        return (_columns(context).width,)

    def build(self, context: Context) -> None:
        layout = _columns(context)
        self.places = Indicators(layout)
        self.sizes = tuple(sorted({len(layout.columns[place].levels) for place in layout.coded}))
        self.log_variance = nn.Parameter(torch.full((len(layout.numbers),), math.log(self.variance)))
        self._lost = layout.gaps

    def _parts(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Means of numbers, logits of levels, logits of gaps."""
        places = self.places
        numbers, gaps = len(places.numbers), len(places.gaps)
        return parameters.split([numbers, parameters.shape[-1] - numbers - gaps, gaps], -1)

    def _levels(self, logits: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Of coded columns with equally many levels, places in a row [c], and log-probabilities [n, c, levels]."""
        for size in self.sizes:
            chosen = self.places.levels == size
            places = self.places.first[chosen].unsqueeze(1) + torch.arange(size, device=logits.device)
            of_size = logits.index_select(-1, places.flatten()).unflatten(-1, places.shape)
            yield self.places.coded[chosen], of_size.log_softmax(-1)

    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        gaps = self._parts(parameters)[2]
        missing = x.index_select(-1, self.places.gaps).isnan().to(gaps.dtype)
        return self.log_prob_of_values(x, parameters) - F.binary_cross_entropy_with_logits(
            gaps, missing, reduction="none"
        ).sum(-1)

    def log_prob_of_values(self, x: Tensor, parameters: Tensor) -> Tensor:
        means, logits, _ = self._parts(parameters)
        numbers, log_variance = x.index_select(-1, self.places.numbers), self._log_variance()
        missing = numbers.isnan()
        errors = torch.where(missing, means, numbers) - means
        costs = errors.square() * (-log_variance).exp() + log_variance + LOG_2PI
        found = -0.5 * torch.where(missing, 0.0, costs).sum(-1)
        for places, log_chances in self._levels(logits):
            codes = x.index_select(-1, places)
            known = (codes >= 0) & (codes < log_chances.shape[-1])
            at = torch.where(known, codes, 0.0).long().unsqueeze(-1)
            found = found + torch.where(known, log_chances.gather(-1, at).squeeze(-1), 0.0).sum(-1)
        return found

    def _log_variance(self) -> Tensor:
        return self.log_variance.clamp_min(LEAST_LOG_VARIANCE)

    def mean(self, parameters: Tensor) -> Tensor:
        """E[x | z] of numbers, and the likeliest level; no gaps."""
        means, logits, _ = self._parts(parameters)
        return self._rows(means, [(places, chances.argmax(-1)) for places, chances in self._levels(logits)])

    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        found, gaps = self.sample_values(parameters, generator), self._parts(parameters)[2]
        lost = gaps.sigmoid().bernoulli(generator=generator) > 0
        for places, missing in zip(self._lost, lost.unbind(-1), strict=True):
            for place in places:
                found[:, place].masked_fill_(missing, math.nan)
        return found

    def sample_values(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        means, logits, _ = self._parts(parameters)
        noise = torch.empty_like(means).normal_(generator=generator)
        codes = []
        for places, log_chances in self._levels(logits):  # the least of exponentials with these rates
            waits = torch.empty_like(log_chances).exponential_(generator=generator).log()
            codes.append((places, (waits - log_chances).argmin(-1)))
        return self._rows(means + (0.5 * self._log_variance()).exp() * noise, codes)

    def _rows(self, numbers: Tensor, codes: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Rows as encoders take them."""
        size = numbers.shape[-1] + len(self.places.coded)
        rows = numbers.new_empty(len(numbers), size).index_copy(-1, self.places.numbers, numbers)
        for places, chosen in codes:
            rows = rows.index_copy(-1, places, chosen.to(rows.dtype))
        return rows


def _columns(context: Context) -> Layout:
    """The layout of the rows of a table, all of them numbers where nothing is known of its columns."""
    if context.layout is not None:
        return context.layout
    shape = context.need("shape")
    if len(shape) != 1:
        raise InputError("a likelihood by column is for tables: choose another for images")
    return Layout("table", shape, tuple(Column(f"x{place}") for place in range(shape[0])))


class GenerativeObjective(Objective):
    """A decoder, a likelihood and a bound; the energy, by which training is watched, is the Euclidean one.

    The decoder and the spread of the posterior are the objective's own, as all is that a loss needs beyond the encoder.

    Settings:
        likelihood: what the decoder says of an observation; normal errors of one variance unless given.
        decoder: latents [n, dim] to parameters of the likelihood, shaped like x or flat; the mirror image of the
            encoder unless given.
        beta: β, the weight of the prior.
        related: J, the number of related observations that a step needs of each.
    """

    family: ClassVar[str] = "decoder"
    compares_views: ClassVar[bool] = True
    decodes: ClassVar[bool] = True

    admits: ClassVar[dict[str, str]] = {
        "representation": "a decoder that needs no latents leaves every posterior at the prior",
        "dimension": "a latent that reconstruction does not need is worth most at the prior (posterior collapse)",
    }
    rowwise: ClassVar[bool] = True

    def __init__(self, likelihood: Likelihood | None, decoder: Decoder | nn.Module | None, related: int) -> None:
        if not isinstance(likelihood, Likelihood | None):
            raise InputError(f"a likelihood is one of probssl.objectives, as ColumnsLikelihood, not {likelihood!r}")
        super().__init__(Euclidean(), Needs(augmented=related))
        self.decoder = MirrorDecoder() if decoder is None else decoder
        self.likelihood: Likelihood = GaussianLikelihood() if likelihood is None else likelihood

    def context_of(self, part: str, context: Context) -> Context:
        if part != "decoder":
            return context
        return dataclasses.replace(context, shape=self.likelihood.parameter_shape(context), layout=None)

    def build(self, context: Context) -> None:
        dim = context.need("dim")
        self.needs = dataclasses.replace(self.needs, noise=dim)
        shape = context.shape or ()
        self.of_rows = len(shape) == 1
        if self.of_rows:
            self.log_variance = MLP((ROW_HIDDEN,), dim).bind(context)
        else:
            self.log_variance = MLP.of([dim, max(32, 2 * dim), dim])
        last = self.log_variance[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, math.log(FIRST_VARIANCE))

    def posterior(self, encoder: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ψ(x) and log-variance of q(z | x): how sure a representation is. [n, dim] and [n, dim]."""
        mean = self.energy.embed(encoder, x)
        return mean, self.log_variance(x if self.of_rows else mean).clamp(*LOG_VARIANCES)

    def decode(self, z: Tensor, shape: tuple[int, ...] | torch.Size) -> Tensor:
        """E[x | z] of latents [n, dim], as observations of that shape: [n, *shape]."""
        return self.likelihood.mean(self.decoder(z)).view(len(z), *shape)

    def reconstruction(self, x: Tensor, z: Tensor) -> Tensor:
        """−log p(x_i | z_i) in nats: [n]."""
        return -self.likelihood.log_prob(x, self.decoder(z))

    def log_prior(self, z: Tensor) -> Tensor:
        """log p(z_1, …, z_J) of sets of latents in nats, here all standard normal: [J, n, dim] → [n]."""
        return -0.5 * (z.square() + LOG_2PI).sum((0, -1))

    def drawn(self, encoder: nn.Module, views: Views, sides: Iterable[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Means and log-variances of sides of the batch [J, n, dim], and −log p(x | z) of a draw each [J, n].

        Side 0 is the observations, side j their j-th augmentation. All sides are encoded and decoded as one batch.
        """
        if len(views.augmented) < self.needs.augmented:
            found = len(views.augmented)
            raise InputError(f"this loss needs {self.needs.augmented} augmentations of each row, not {found}")
        if views.noise is None:
            raise InputError("a generative objective draws latents from the noise of a batch, but this batch has none")
        chosen = list(sides)
        x = torch.cat([views.augmented[side - 1] if side else views.x for side in chosen])
        noise = torch.cat([views.noise[side] for side in chosen])
        mean, log_variance = self.posterior(encoder, x)
        errors = self.reconstruction(x, mean + noise * (0.5 * log_variance).exp())
        shape = (len(chosen), len(views.x))
        return mean.view(*shape, -1), log_variance.view(*shape, -1), errors.view(shape)

    # A bound as tight as one pays for

    @torch.no_grad()
    def log_likelihood(
        self,
        encoder: nn.Module,
        x: Tensor,
        samples: int = 100,
        generator: torch.Generator | None = None,
        *,
        log_prior: Callable[[Tensor], Tensor] | None = None,
        shared_noise: bool = False,
    ) -> Tensor:
        """log mean_k p(x, z_k)/q(z_k | x) of sets [J, n, ...], z_k ~ q: [n], in nats   (Burda et al., 2016).

        At most log p(x) in expectation, rising to it with the number of samples; with one it is the ELBO. With another
        `log_prior`, of sets of latents [J, n, m] → [n], it is that of the model with this prior. With `shared_noise`
        all rows use the same draws, so that what is found for a row does not depend on the rows beside it.
        """
        if samples < 1:
            raise InputError(f"a bound needs at least one sample, not {samples}")
        of_latents = self.log_prior if log_prior is None else log_prior
        flat = x.flatten(0, 1)
        mean, log_variance = self.posterior(encoder, flat)
        found = []
        for _ in range(samples):
            drawn = torch.empty_like(mean[:1] if shared_noise else mean).normal_(generator=generator)
            noise = drawn.expand_as(mean)
            z = mean + noise * (0.5 * log_variance).exp()
            log_q = -0.5 * (noise.square() + log_variance + LOG_2PI).sum(-1)
            ratio = (-self.reconstruction(flat, z) - log_q).view(x.shape[:2]).sum(0)
            found.append(ratio + of_latents(z.view(*x.shape[:2], -1)))
        return torch.stack(found).logsumexp(0) - math.log(samples)


class VAE(GenerativeObjective):
    """L = −E_q log p(x | z) + β KL(q(z | x) ‖ N(0, I))   (Kingma & Welling, 2014).

    Terms, means over the batch in nats: `reconstruction` and `divergence` = ½ Σ_k (μ_k² + v_k − 1 − log v_k). At β = 1
    the sum is at least −log p(x), equal where q is the posterior; above 1 it is a looser bound, below 1 none, and
    latents are fewer and more independent (β-VAE; Higgins et al., 2017).

    Settings:
        of: what is modelled: "augmented", an augmentation of the data, as SimVAE trains its rivals, or the "data".
    """

    def __init__(
        self,
        likelihood: Likelihood | None = None,
        *,
        decoder: Decoder | nn.Module | None = None,
        beta: float = 1.0,
        of: Literal["augmented", "data"] = "augmented",
    ) -> None:
        if of not in ("augmented", "data"):
            raise InputError(f"a VAE models what is 'augmented' or the 'data', not {of!r}")
        super().__init__(likelihood, decoder, int(of == "augmented"))
        self.of = of
        if _positive("beta", beta) != 1:
            self.weights = {"divergence": float(beta)}

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        mean, log_variance, errors = self.drawn(encoder, views, [0 if self.of == "data" else 1])
        return {"reconstruction": errors.mean(), "divergence": divergence(mean, log_variance).mean()}


class CRVAE(GenerativeObjective):
    """L = −ELBO(x) − ELBO(x̃) + λ KL(q(z | x̃) ‖ q(z | x))   (Sinha & Dieng, 2021; SimVAE's baseline with λ = 0.1).

    Terms: `reconstruction` and `divergence` of both observations, and their `consistency`, at least 0, which alone
    would be least where posteriors say nothing. The first two are a bound of −log p(x) − log p(x̃), and so is the sum.

    Settings:
        consistency: λ, the weight of latents that an augmentation moves little.
    """

    def __init__(
        self,
        likelihood: Likelihood | None = None,
        *,
        decoder: Decoder | nn.Module | None = None,
        beta: float = 1.0,
        consistency: float = 0.1,
        pair: Pair = "augmented",
    ) -> None:
        if pair not in ("original", "augmented"):
            raise InputError(f"pair is 'original' or 'augmented', not {pair!r}")
        super().__init__(likelihood, decoder, 2 if pair == "augmented" else 1)
        self.pair = pair
        self.weights = {"divergence": _positive("beta", beta), "consistency": _positive("consistency", consistency)}

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        sides = (1, 2) if self.pair == "augmented" else (0, 1)
        mean, log_variance, errors = self.drawn(encoder, views, sides)
        return {
            "reconstruction": errors.sum(0).mean(),
            "divergence": divergence(mean, log_variance).sum(0).mean(),
            "consistency": divergence(mean[1], log_variance[1], mean[0], log_variance[0]).mean(),
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

    Settings:
        related: J, how many augmentations of a data point are related.
        variance: σ², of related latents around their mean.
        mean_variance: γ², of these means around the origin; a flat prior unless given.
    """

    def __init__(
        self,
        likelihood: Likelihood | None = None,
        *,
        decoder: Decoder | nn.Module | None = None,
        related: int = 10,
        variance: float = 0.15,
        mean_variance: float | None = None,
    ) -> None:
        if related != int(related) or related < 1 or (related < 2 and mean_variance is None):
            raise InputError(f"related must be at least 2, or 1 with a prior over means, not {related}")
        variance = _positive("variance of related latents", variance)
        super().__init__(likelihood, decoder, int(related))
        self.related, self.variance = int(related), variance
        self.mean_variance = None if mean_variance is None else _positive("variance of their means", mean_variance)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        mean, log_variance, errors = self.drawn(encoder, views, range(1, 1 + self.related))
        return {
            "reconstruction": errors.sum(0).mean(),
            "entropy": -0.5 * (log_variance + LOG_2PI + 1).sum((0, 2)).mean(),
            "prior": -self._prior(mean, log_variance.exp()).mean(),
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
