"""What a loss could be at best, and what it is worth when nothing was learnt, on given data.

With a pairing that knows p(x̃ | x), the energy that an objective wants is known on a finite data set, and with it the
loss that no encoder can go below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from probssl.energies import Energy
from probssl.objectives.base import Objective
from probssl.pairings.views import Pairing


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

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        return (a * 0).sum(-1)  # depends on a, so that its slope is 0 and not undefined

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        return a.new_zeros(len(a), len(b))


@dataclass(frozen=True)
class ReferenceLosses:
    """Means over batches with their standard errors: the model's loss, the least possible, and a constant encoder's."""

    model: tuple[float, float]
    optimum: tuple[float, float] | None
    constant: tuple[float, float] | None

    @property
    def gap(self) -> float | None:
        """How far the model is above the least possible loss."""
        return None if self.optimum is None else self.model[0] - self.optimum[0]

    @property
    def share_learnt(self) -> float | None:
        """1 at the least possible loss, 0 at that of a constant encoder, negative beyond."""
        if self.optimum is None or self.constant is None or self.constant[0] <= self.optimum[0]:
            return None
        return (self.constant[0] - self.model[0]) / (self.constant[0] - self.optimum[0])


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
) -> ReferenceLosses:
    """The loss of an encoder in evaluation mode beside its two references, all on the same batches drawn from x."""
    generator = torch.Generator(device=x.device).manual_seed(seed)
    truth = RatioEnergy(pairing, x) if objective.learns == "ratio" else PosteriorEnergy(pairing)
    losses = {
        "model": objective,
        "optimum": objective.with_energy(truth),
        "constant": objective.with_energy(FlatEnergy()),
    }
    values: dict[str, list[float]] = {name: [] for name in losses}
    training = encoder.training
    encoder.eval()
    try:
        for _ in range(batches):
            rows = torch.randperm(len(x), generator=generator, device=x.device)[:batch_size]
            views = pairing(x[rows], objective.needs, generator)
            for name, loss in losses.items():
                if loss is not None:
                    values[name].append(loss(encoder, views).total.item())
    finally:
        encoder.train(training)

    def summary(name: str) -> tuple[float, float] | None:
        if not values[name]:
            return None
        each = torch.tensor(values[name], dtype=torch.float64)
        return each.mean().item(), each.std().item() / len(each) ** 0.5

    model = summary("model")
    assert model is not None
    return ReferenceLosses(model, summary("optimum"), summary("constant"))
