"""A world: a space of latents, what they are distributed like, how positives and negatives move, and what is seen."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from probssl.errors import InputError
from probssl.pairings.views import Needs, Source, Views, latent_noise, random_signs
from probssl.worlds.conditionals import Conditional
from probssl.worlds.marginals import Marginal
from probssl.worlds.mixings import Identity, Mixing


class World(Source):
    """z ~ marginal, z̃ | z ~ conditional, x = g(z), x̃ = g(z̃): the process whose latents contrastive learning recovers.

    With several conditionals the j-th relative comes from the j-th of them, in turn: one anchor, several augmentations
    (AnInfoNCE B.3). Negatives, where an objective asks for them, are fresh draws from the marginal, `negatives` of them
    for all anchors (as many as anchors unless given); or hard ones, `negatives` (one unless given) for each anchor from
    the conditional `hard` (AnInfoNCE B.2). `mixing` is g, the identity unless given.
    """

    def __init__(
        self,
        marginal: Marginal,
        conditional: Conditional | Sequence[Conditional],
        mixing: Mixing | None = None,
        *,
        hard: Conditional | None = None,
        negatives: int | None = None,
    ) -> None:
        super().__init__()
        several = [conditional] if isinstance(conditional, Conditional) else list(conditional)
        if not several:
            raise InputError("a world needs at least one conditional")
        for part in (*several, *([] if hard is None else [hard])):
            if repr(part.space) != repr(marginal.space):
                raise InputError(f"a world has one space, and its parts live on {marginal.space} and {part.space}")
        if negatives is not None and negatives < 1:
            raise InputError(f"a world gives at least one negative, not {negatives}")
        self.marginal = marginal
        self.conditionals = nn.ModuleList(several)
        self.mixing = Identity() if mixing is None else mixing
        self.hard = hard
        self.negatives = negatives

    @property
    def dim(self) -> int:
        """How many latents there are."""
        return self.marginal.space.dim

    @torch.no_grad()
    def draw(self, count: int, needs: Needs, generator: torch.Generator | None = None) -> Views:
        if needs.score:
            raise InputError("a world knows no score ∇ₓ log p(x̃ | x): choose an objective that needs none")
        z = self.marginal.sample(count, generator)
        parts = [z]
        for number in range(needs.augmented):
            conditional = self.conditionals[number % len(self.conditionals)]
            assert isinstance(conditional, Conditional)
            parts.append(conditional.sample(z, generator))
        if needs.negatives:
            parts.append(self._negatives(z, generator))
        seen = self.mixing(torch.cat(parts))
        x, augmented, negatives = seen.tensor_split([count, count * (1 + needs.augmented)])
        if needs.negatives and self.hard is not None:
            negatives = negatives.unflatten(0, (count, -1))
        return Views(
            x=x,
            augmented=augmented.unflatten(0, (needs.augmented, count)) if needs.augmented else x.new_empty(0, *x.shape),
            latents=z,
            negatives=negatives if needs.negatives else None,
            directions=random_signs(x, needs.directions, generator) if needs.directions else None,
            noise=latent_noise(x, needs, generator),
        )

    def _negatives(self, z: Tensor, generator: torch.Generator | None) -> Tensor:
        if self.hard is None:
            return self.marginal.sample(self.negatives or len(z), generator)
        return self.hard.sample(z.repeat_interleave(self.negatives or 1, dim=0), generator)

    def observe(self, count: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Observations and their latents, to measure an encoder with: [count, ...], [count, dim]."""
        views = self.draw(count, Needs(augmented=0), generator)
        assert views.latents is not None
        return views.x, views.latents
