"""What a loss could be at best, and what it is worth when nothing was learnt, on given data.

With a pairing that knows p(x̃ | x), the energy that an objective wants is known on a finite data set, and with it the
loss that no encoder can go below.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from probssl.energies import Energy
from probssl.errors import InputError
from probssl.objectives.base import Objective
from probssl.objectives.contrast import SimSiam
from probssl.objectives.generative import GenerativeObjective
from probssl.objectives.momentum import MomentumObjective
from probssl.objectives.normalised import Biased
from probssl.pairings.views import Pairing, Views
from probssl.schema import conform


class _OnInputs(Energy):
    """An energy between observations themselves, in double precision, which needs no encoder."""

    def embed(self, encoder: nn.Module, x: Tensor) -> Tensor:
        return x

    def embed_augmented(self, encoder: nn.Module, x: Tensor) -> Tensor:
        return x


class PosteriorEnergy(_OnInputs):
    """δ*(x, x̃) = −log p(x̃ | x): the optimum of losses that ask which candidate x̃ came from, up to any c(x̃)."""

    symmetric = False

    def __init__(self, pairing: Pairing) -> None:
        super().__init__()
        self.pairing = pairing

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        return -self.pairing.log_prob(b.double(), a.double())

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        return -self.pairing.pairwise_log_prob(b.double(), a.double()).mT


class RatioEnergy(_OnInputs):
    """δ*(x, x̃) = log mean_{x_k ≠ x} p(x̃ | x_k) − log p(x̃ | x) over a population: minus the log density ratio of pairs.

    The optimum of losses that tell related pairs from pairs of x with the augmentation of another observation. That
    other is never x itself, which is why x is left out of the mean; on a large population it is log p(x̃).
    """

    symmetric = False

    def __init__(self, pairing: Pairing, population: Tensor) -> None:
        super().__init__()
        if len(population) < 2:
            raise InputError("a density ratio of pairs needs a population of at least two observations")
        self.pairing = pairing
        self.register_buffer("population", population.double(), persistent=False)

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        a, b = a.double(), b.double()
        return self._of(self.pairing.log_prob(b, a).unsqueeze(1), b).squeeze(1)

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        return self._of(self.pairing.pairwise_log_prob(b.double(), a.double()), b.double()).mT

    def _of(self, log_prob: Tensor, x_aug: Tensor) -> Tensor:
        """Energies of log p(x̃_i | x) [q, n], each x a member of the population."""
        assert isinstance(self.population, Tensor)
        every = self.pairing.pairwise_log_prob(x_aug, self.population)  # [q, N]
        likeliest, where = every.max(1, keepdim=True)
        others = every.scatter(1, where, -torch.inf).logsumexp(1, keepdim=True)  # exact where x is the likeliest
        everything = torch.logaddexp(others, likeliest)
        own = torch.minimum(log_prob, everything)
        rest = everything + torch.log1p(-torch.exp(own - everything).clamp_max(0.75))  # exact where it is not
        rest = torch.where(own - everything > math.log(0.5), others, rest)
        return rest - math.log(len(self.population) - 1) - log_prob


class FlatEnergy(_OnInputs):
    """δ = 0: the model q(x | x̃) = p(x) of a constant encoder, which ignores x̃."""

    def embed(self, encoder: nn.Module, x: Tensor) -> Tensor:
        return x.flatten(1)

    def embed_augmented(self, encoder: nn.Module, x: Tensor) -> Tensor:
        return x.flatten(1)

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        return (a.nan_to_num() * 0).sum(-1)  # depends on a, so that its slope is 0 and not undefined

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        return a.new_zeros(len(a), len(b))


@dataclass(frozen=True)
class Estimate:
    """A mean over batches and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Tensor) -> Estimate:
        """The estimate of independent values [n]."""
        return cls(values.mean().item(), values.std().item() / len(values) ** 0.5 if len(values) > 1 else math.inf)

    @classmethod
    def read(cls, values: dict[str, float | None]) -> Estimate:
        """From JSON, where null stands for a number that is not finite."""
        known = conform(values, dict[str, float | None])
        mean, error = known["mean"], known["error"]
        return cls(math.nan if mean is None else mean, math.inf if error is None else error)


@dataclass(frozen=True)
class ReferenceLosses:
    """A model's loss beside the least that is possible on the same batches, and that of a constant encoder."""

    model: Estimate
    optimum: Estimate | None
    constant: Estimate | None
    gap: Estimate | None  # how far the model is above the optimum
    gain: Estimate | None  # how far it is below a constant encoder
    bound: float | None  # below which the loss is on no data at all
    rows: int
    batch_size: int

    @property
    def share_learnt(self) -> float | None:
        """1 at the least possible loss, 0 at that of a constant encoder, negative above it."""
        if self.gap is None or self.gain is None:
            return None
        whole = self.gap.mean + self.gain.mean
        return self.gain.mean / whole if whole > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**dataclasses.asdict(self), "share_learnt": self.share_learnt}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ReferenceLosses:
        """The inverse of `as_dict`."""
        read: dict[str, Any] = {k: Estimate.read(v) if isinstance(v, dict) else v for k, v in values.items()}
        read.pop("share_learnt", None)
        return conform(read, cls)


WITHOUT_CONSTANT = (SimSiam, Biased, MomentumObjective, GenerativeObjective)
"""Losses that a constant encoder does not show the worth of: as good as any other, or at odds with what the objective
has learnt beside the encoder, a bias, a teacher or a decoder."""


class _Constant(nn.Module):
    """The encoder that ignores its input."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return x.new_ones(len(x), self.dim)


@torch.no_grad()
def reference_losses(
    encoder: nn.Module,
    objective: Objective,
    pairing: Pairing,
    x: Tensor,
    *,
    batch_size: int,
    batches: int = 8,
    seed: int = 0,
    observe: nn.Module | None = None,
) -> ReferenceLosses:
    """The loss of an encoder, in evaluation mode as the objective is, beside its references on batches drawn from x.

    Rows of x are what the encoder takes, or become it by `observe`, as latents of a world do by its mixing: the density
    of the pairing is then that of latents.
    The optimum is that of the true energy, or None where the loss does not want one (see `Objective.with_energy`),
    where terms are weighted, where nobody knows the density of the pairing, or where densities are beyond double
    precision.
    """
    generator = torch.Generator(device=x.device).manual_seed(seed)
    objective = objective.without_sampling()
    truth = RatioEnergy(pairing, x) if objective.learns == "ratio" else PosteriorEnergy(pairing)
    at_truth = objective.with_energy(truth) if pairing.knows_density else None
    flat = objective.with_energy(FlatEnergy())
    values: dict[str, list[float]] = {"model": [], "optimum": [], "constant": []}
    size, modes = min(batch_size, len(x)), [(module, module.training) for module in (encoder, objective)]
    encoder.eval()
    objective.eval()  # which keeps memory as it is
    try:
        dim = objective.energy.embed(encoder, x[:1] if observe is None else observe(x[:1])).shape[1]
        for _ in range(batches):
            rows = torch.randperm(len(x), generator=generator, device=x.device)[:size]
            views = pairing(x[rows], objective.needs, generator)
            seen = views if observe is None else _observed(views, observe)
            values["model"].append(objective(encoder, seen).total.item())
            if objective.weights:
                continue
            if at_truth is not None:
                values["optimum"].append(at_truth(encoder, views).total.item())
            if flat is not None:
                values["constant"].append(flat(encoder, views).total.item())
            elif not isinstance(objective, WITHOUT_CONSTANT):
                values["constant"].append(objective(_Constant(dim), seen).total.item())
    finally:
        for module, training in modes:
            module.train(training)
    each = {name: torch.tensor(found, dtype=torch.float64) for name, found in values.items() if found}
    each = {name: found for name, found in each.items() if name == "model" or bool(found.isfinite().all())}
    optimum, constant = each.get("optimum"), each.get("constant")
    return ReferenceLosses(
        model=Estimate.of(each["model"]),
        optimum=None if optimum is None else Estimate.of(optimum),
        constant=None if constant is None else Estimate.of(constant),
        gap=None if optimum is None else Estimate.of(each["model"] - optimum),
        gain=None if constant is None else Estimate.of(constant - each["model"]),
        bound=objective.optimum(size, dim),
        rows=len(x),
        batch_size=size,
    )


def _observed(views: Views, observe: nn.Module) -> Views:
    """A batch of latents as one of observations."""
    augmented = [observe(side) for side in views.augmented]
    x = observe(views.x)
    return dataclasses.replace(views, x=x, augmented=torch.stack(augmented) if augmented else x.new_empty(0, *x.shape))
