"""What one batch is (`Views`), what an objective asks of it (`Needs`), and what makes one (`Pairing`, `Source`)."""

from __future__ import annotations

import abc
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from probssl.errors import InputError
from probssl.parts.part import Part


@dataclass(frozen=True)
class Needs:
    """What an objective wants to find in a batch; a pairing computes nothing else.

    `augmented` is the number J of related observations per data point. `score` asks for ∇ₓ log p(x̃ | x),
    `negatives` for explicit negatives, `directions` for that many random directions in the space of observations,
    `noise` for that many normal numbers for every observation and its relatives, from which latents are drawn,
    `index` for which data points these are: that is for training to say, which knows, and not for the pairing.
    `latents` asks for what the observations were made from, which only a world knows.
    """

    augmented: int = 1
    score: bool = False
    negatives: bool = False
    directions: int = 0
    noise: int = 0
    index: bool = False
    latents: bool = False


@dataclass
class Views:
    """One batch: n observations, J related observations of each, and what is known about how they relate."""

    x: Tensor  # [n, ...] the observations themselves
    augmented: Tensor  # [J, n, ...] J related observations of each
    score: Tensor | None = None  # [J, n, ...] ∇ₓ log p(x̃ | x), where the pairing knows it
    index: Tensor | None = None  # [n] which data points these are
    latents: Tensor | None = None  # ground truth, from a world
    negatives: Tensor | None = None  # [M, ...] shared by all anchors, or [n, M, ...] each anchor's own
    directions: Tensor | None = None  # [K, n, ...] random signs, so that E[vvᵀ] = I
    noise: Tensor | None = None  # [1 + J, n, m] standard normal numbers, of the observations and then of relatives


class Pairing(Part, nn.Module, abc.ABC):
    """A conditional p(x̃ | x): says which observations belong together.

    A subclass writes `sample`, and `log_prob` and `score` where they are tractable. Parameters of the
    conditional are buffers, so a pairing moves between devices like any module; randomness comes only from
    the generator that the caller hands in.
    """

    knows_density: bool = True
    """Whether `log_prob` can be asked for."""

    gives_negatives: bool = False
    """Whether a batch can have negatives of its own, for objectives that need them."""

    takes: int | None = None
    """How many dimensions an observation has: 1 in a table, 3 as an image; None if it may have any number."""

    per_feature: ClassVar[tuple[str, ...]] = ()
    """Buffers that may hold one number per feature, in their last dimension."""

    def check_features(self, features: int) -> None:
        """Refuse data with other features than the pairing has numbers for."""
        for name in self.per_feature:
            value = getattr(self, name)
            if value.ndim and value.shape[-1] not in (1 if value.ndim == 1 else features, features):
                advice = ": give one number, or one per feature" if value.ndim == 1 else ""
                raise InputError(
                    f"the {name.replace('_', ' ')} of {type(self).__name__} is for {value.shape[-1]} features, and the "
                    f"data has {features}{advice}"
                )

    @property
    def knows_score(self) -> bool:
        """Whether a batch can have the score ∇ₓ log p(x̃ | x)."""
        return self.knows_density

    @property
    def masks(self) -> bool:
        """Whether it makes gaps, in columns that may have none otherwise."""
        return False

    def forward(self, x: Tensor, needs: Needs, generator: torch.Generator | None = None) -> Views:
        """The batch that `needs` asks for, made from the observations x [n, ...]."""
        augmented, score = self.related(x, needs, generator)
        directions = random_signs(x, needs.directions, generator) if needs.directions else None
        noise = latent_noise(x, needs, generator)
        return Views(x=x, augmented=augmented, score=score, directions=directions, noise=noise)

    def related(self, x: Tensor, needs: Needs, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        """J draws x̃ [J, n, ...] and, where asked for, their scores [J, n, ...]."""
        draws = [self.sample(x, generator) for _ in range(needs.augmented)]
        if draws:
            augmented = draws[0].unsqueeze(0) if len(draws) == 1 else torch.stack(draws)
        else:
            augmented = x.new_empty(0, *x.shape)
        return augmented, self.score(augmented, x) if needs.score else None

    @abc.abstractmethod
    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One draw x̃ ~ p(· | x) for every row of x [n, ...]."""

    @abc.abstractmethod
    def log_prob(self, x_aug: Tensor, x: Tensor) -> Tensor:
        """log p(x̃ | x) in nats, one number a row; leading dimensions broadcast."""

    @abc.abstractmethod
    def score(self, x_aug: Tensor, x: Tensor) -> Tensor:
        """∇ₓ log p(x̃ | x): which way to move x so that x̃ becomes more likely. Shaped like x̃."""

    def pairwise_log_prob(self, x_aug: Tensor, x: Tensor, *, block: int = 2**22) -> Tensor:
        """log p(x̃_i | x_j) for all pairs: [q, ...], [n, ...] → [q, n], with about `block` numbers at hand at a time."""
        rows = max(1, block // max(1, x_aug[:1].numel() * len(x_aug)))
        return torch.cat([self.log_prob(x_aug.unsqueeze(1), some.unsqueeze(0)) for some in x.split(rows)], 1)


class SampledPairing(Pairing):
    """A pairing that can be drawn from and whose density nobody knows, as of most augmentations of images.

    A subclass writes `sample` alone. Every objective trains on it but those that need the score.
    """

    knows_density = False

    def log_prob(self, x_aug: Tensor, x: Tensor) -> Tensor:
        raise InputError(self._unknown("density"))

    def score(self, x_aug: Tensor, x: Tensor) -> Tensor:
        raise InputError(self._unknown("score"))

    def _unknown(self, what: str) -> str:
        return (
            f"{type(self).__name__} can be drawn from, but its {what} is not known: choose an objective or a metric "
            "that does without, as InfoNCE and SNL do"
        )


class FeaturewisePairing(Pairing):
    """A pairing of rows that makes x̃ from x and random numbers of the shape of x.

    So K of them, their parameters stacked to [K, 1, 1] or [K, 1, d], are one pairing of K batches [K, n, d], which is
    how many models train as one. A subclass writes `fill` and `combine` in place of `sample`.
    """

    draws: ClassVar[int]
    """How many random numbers a feature takes."""

    def stack_key(self) -> Hashable:
        """Pairings with equal keys can be stacked: their numbers may differ, but not the places that they hold."""
        kept = {name: buffer for name, buffer in self.named_buffers() if name not in self.per_feature}
        places = {name: None if buffer.is_floating_point() else tuple(buffer.tolist()) for name, buffer in kept.items()}
        return type(self), tuple((name, buffer.shape, places[name]) for name, buffer in kept.items())

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        draws = [torch.empty_like(x) for _ in range(self.draws)]
        self.fill(draws, generator)
        return self.combine(x, draws)

    @abc.abstractmethod
    def fill(self, draws: Sequence[Tensor], generator: torch.Generator | None = None) -> None:
        """Fill arrays of the shape of x with the random numbers of one sample."""

    @abc.abstractmethod
    def combine(self, x: Tensor, draws: Sequence[Tensor]) -> Tensor:
        """The sample x̃ that x and the random numbers make."""


class Source(nn.Module, abc.ABC):
    """Makes observations and their relatives by itself, p(x, x̃), where a `Pairing` needs data: a world is one."""

    @abc.abstractmethod
    def draw(self, count: int, needs: Needs, generator: torch.Generator | None = None) -> Views:
        """The batch of `count` fresh observations that `needs` asks for."""


def standard_normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """N(0, 1) noise of the shape, type and device of `like`."""
    return torch.empty_like(like).normal_(generator=generator)


def latent_noise(like: Tensor, needs: Needs, generator: torch.Generator | None) -> Tensor | None:
    """N(0, 1) numbers for observations like these [n, ...] and their relatives: [1 + J, n, m], or None if not asked."""
    if not needs.noise:
        return None
    return standard_normal(like.new_empty(1 + needs.augmented, len(like), needs.noise), generator)


def random_signs(like: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """`count` independent arrays of ±1 of the shape, type and device of `like`: [count, ...]."""
    signs = like.new_empty((count, *like.shape)).random_(0, 2, generator=generator)  # bernoulli_ is four times as slow
    return signs.mul_(2).sub_(1)
