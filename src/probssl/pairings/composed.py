"""Pairings made of others: hard negatives beside positives, and several augmentations of one row."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from probssl.errors import InputError
from probssl.pairings.views import Needs, Pairing, SampledPairing, Views
from probssl.parts.part import Context


class HardNegatives(Pairing):
    """p(x̃ | x) = p⁺(x̃ | x), and negatives x⁻ ~ p⁻(· | x) of its own for every anchor (AnInfoNCE B.2).

    InfoNCE with the candidates "given" contrasts with these negatives alone: its energy then estimates the ratio
    p⁺ / p⁻ (Corollary B.1). With "batch-and-given" they join those of the batch.

    Settings:
        positives: p⁺, how an observation is augmented.
        negatives: p⁻, how negatives are made of it: hard if close to it, but farther than positives.
        count: negatives for each anchor.
    """

    gives_negatives = True

    def __init__(self, positives: Pairing, negatives: Pairing, count: int = 1) -> None:
        super().__init__()
        if count < 1:
            raise InputError(f"an anchor gets at least one hard negative, not {count}")
        self.positives, self.negatives, self.count = positives, negatives, count
        self.knows_density, self.takes = positives.knows_density, positives.takes or negatives.takes

    @property
    def knows_score(self) -> bool:
        return self.positives.knows_score

    @property
    def masks(self) -> bool:
        return self.positives.masks or self.negatives.masks

    def check_features(self, features: int) -> None:
        self.positives.check_features(features)
        self.negatives.check_features(features)

    def forward(self, x: Tensor, needs: Needs, generator: torch.Generator | None = None) -> Views:
        views = self.positives(x, needs, generator)
        if needs.negatives:
            drawn = self.negatives.sample(x.repeat_interleave(self.count, dim=0), generator)
            views.negatives = drawn.unflatten(0, (len(x), self.count))
        return views

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.positives.sample(x, generator)

    def log_prob(self, x_aug: Tensor, x: Tensor) -> Tensor:
        return self.positives.log_prob(x_aug, x)

    def score(self, x_aug: Tensor, x: Tensor) -> Tensor:
        return self.positives.score(x_aug, x)

    def pairwise_log_prob(self, x_aug: Tensor, x: Tensor, *, block: int = 2**22) -> Tensor:
        return self.positives.pairwise_log_prob(x_aug, x, block=block)


class InTurn(SampledPairing):
    """x̃ⱼ ~ pₖ(· | x), k = j mod K: the relatives of a row come from K pairings in turn (AnInfoNCE B.3).

    So each loss of an `Ensemble` sees an augmentation of its own. A single draw comes from one of them at random.

    Settings:
        pairings: the pairings, in the order of the losses.
    """

    def __init__(self, pairings: Sequence[Pairing]) -> None:
        super().__init__()
        if not pairings:
            raise InputError("pairings in turn need at least one")
        self.pairings = nn.ModuleList(pairings)
        self.takes = next((takes for pairing in pairings if (takes := pairing.takes)), None)

    @property
    def masks(self) -> bool:
        return any(pairing.masks for pairing in self._each())

    def build(self, context: Context) -> None:
        self.pairings = nn.ModuleList(pairing.bind(context) for pairing in self._each())

    def check_features(self, features: int) -> None:
        for pairing in self._each():
            pairing.check_features(features)

    def related(self, x: Tensor, needs: Needs, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        each, one = self._each(), dataclasses.replace(needs, augmented=1)
        drawn = [each[view % len(each)].related(x, one, generator)[0] for view in range(needs.augmented)]
        return torch.cat(drawn) if drawn else x.new_empty(0, *x.shape), None

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        each = torch.stack([pairing.sample(x, generator) for pairing in self._each()])
        chosen = torch.randint(len(each), (len(x),), generator=generator, device=x.device)
        return each[chosen, torch.arange(len(x), device=x.device)]

    def _each(self) -> list[Pairing]:
        return [pairing for pairing in self.pairings if isinstance(pairing, Pairing)]
