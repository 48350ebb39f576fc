"""What one batch is (`Views`), what an objective asks of it (`Needs`), and what makes one (`Pairing`)."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Needs:
    """What an objective wants to find in a batch; a pairing computes nothing else.

    `augmented` is the number J of related observations per data point. `score` asks for ∇ₓ log p(x̃ | x),
    `negatives` for explicit negatives.
    """

    augmented: int = 1
    score: bool = False
    negatives: bool = False


@dataclass
class Views:
    """One batch: n observations, J related observations of each, and what is known about how they relate."""

    x: Tensor  # [n, ...] the observations themselves
    augmented: Tensor  # [J, n, ...] J related observations of each
    score: Tensor | None = None  # [J, n, ...] ∇ₓ log p(x̃ | x), where the pairing knows it
    index: Tensor | None = None  # [n] which data points these are
    latents: Tensor | None = None  # ground truth, from a world
    negatives: Tensor | None = None  # [M, ...] shared by all anchors, or [n, M, ...] each anchor's own


class Pairing(nn.Module, abc.ABC):
    """A conditional p(x̃ | x): says which observations belong together.

    A subclass writes `sample`, and `log_prob` and `score` where they are tractable. Parameters of the
    conditional are buffers, so a pairing moves between devices like any module; randomness comes only from
    the generator that the caller hands in.
    """

    def forward(self, x: Tensor, needs: Needs, generator: torch.Generator | None = None) -> Views:
        """The batch that `needs` asks for, made from the observations x [n, ...]."""
        draws = [self.sample(x, generator) for _ in range(needs.augmented)]
        augmented = draws[0].unsqueeze(0) if len(draws) == 1 else torch.stack(draws)
        score = self.score(augmented, x) if needs.score else None
        return Views(x=x, augmented=augmented, score=score)

    @abc.abstractmethod
    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One draw x̃ ~ p(· | x) for every row of x [n, ...]."""

    @abc.abstractmethod
    def log_prob(self, x_aug: Tensor, x: Tensor) -> Tensor:
        """log p(x̃ | x) in nats, one number a row; leading dimensions broadcast."""

    @abc.abstractmethod
    def score(self, x_aug: Tensor, x: Tensor) -> Tensor:
        """∇ₓ log p(x̃ | x): which way to move x so that x̃ becomes more likely. Shaped like x̃."""


def standard_normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """N(0, 1) noise of the shape, type and device of `like`."""
    return torch.empty_like(like).normal_(generator=generator)
