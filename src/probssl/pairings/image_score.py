"""The score of augmented images: along the augmentation that was drawn, and exact where outcomes can be counted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from probssl.errors import InputError
from probssl.pairings import image_transforms as transforms
from probssl.pairings.images import ImageAugmentation, ImageStrengths, has_score
from probssl.pairings.views import Pairing
from probssl.parts.part import Setting

MOST_OUTCOMES = 4096
"""More would take longer than anybody waits."""

Change = Callable[[Tensor], Tensor]


class CountableImageAugmentation(Pairing):
    """x̃ = A_a(x) + ε with ε ~ N(0, σ²) in every value, where the outcomes a of flips, shifts, grey and Sobel are few.

    log p(x̃ | x) = log Σ_a p(a) N(x̃ − A_a(x) | 0, σ² I)   (Siamese-EBM Eq. 175);
    score = Σ_a r_a J_aᵀ (x̃ − A_a(x)) / σ², with r the posterior over outcomes and J_a the Jacobian of A_a at x.

    Both are exact: no outcome is left out. Draws are those of `ImageAugmentation` with the same strengths, whose score
    along the outcome that was drawn has this one as its mean. Crops, jitter and blurs have a continuum of outcomes and
    are refused. Outcomes multiply: two for each of flip, vertical flip, grey and Sobel, (2r + 1)² for shifts of up to r
    pixels; all are computed for every image.

    Settings:
        strengths: as of `ImageAugmentation`.
        changes: as of `ImageAugmentation`.
    """

    takes = 3

    def __init__(self, strengths: ImageStrengths | str | None = None, **changes: Any) -> None:
        super().__init__()
        self.augmentation = ImageAugmentation(strengths, **changes)
        self.strengths = self.augmentation.strengths
        for name in ("crop", "jitter", "blur"):
            if getattr(self.strengths, name):
                raise InputError(
                    f"outcomes of {name} cannot be counted: leave it out, or use ImageAugmentation, whose score is one "
                    "along the augmentation that was drawn"
                )
        if not has_score(self.strengths):
            raise InputError(
                "a density of augmented images needs noise on all of them: set noise=1 and a positive noise_std"
            )
        count = math.prod(len(outcomes) for outcomes in self._steps(True))
        if count > MOST_OUTCOMES:
            raise InputError(
                f"this augmentation has {count:,} outcomes, and {MOST_OUTCOMES:,} are the most: shift less"
            )

    def settings(self) -> dict[str, Any]:
        return self.augmentation.settings()

    @classmethod
    def declared(cls) -> dict[str, Setting]:
        return ImageAugmentation.declared()

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.augmentation.sample(x, generator)

    def log_prob(self, x_aug: Tensor, x: Tensor) -> Tensor:
        size, std = x.shape[-3:].numel(), self.strengths.noise_std
        each = [
            weight - (x_aug - moved).square().sum((-3, -2, -1)) / (2 * std**2) for weight, moved in self._outcomes(x)
        ]
        return torch.logsumexp(torch.stack(each), 0) - size * (math.log(std) + 0.5 * math.log(2 * math.pi))

    def score(self, x_aug: Tensor, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().expand(torch.broadcast_shapes(x_aug.shape, x.shape)).clone().requires_grad_()
            (slope,) = torch.autograd.grad(self.log_prob(x_aug.detach(), x).sum(), x)
        return slope

    def _outcomes(self, x: Tensor) -> Iterator[tuple[float, Tensor]]:
        """log p(a) and A_a(x), shaped like x [..., c, h, w], for every outcome a."""
        rows = x.reshape(-1, *x.shape[-3:])
        for chosen in itertools.product(*self._steps(rows.shape[1] == 3)):
            moved = rows
            for _, change in chosen:
                moved = change(moved)
            yield sum(math.log(probability) for probability, _ in chosen), moved.view(x.shape)

    def _steps(self, coloured: bool) -> list[list[tuple[float, Change]]]:
        """What each step may do, in their order: its probability, and the change."""
        s, reach = self.strengths, self.strengths.shift_pixels
        moves = list(itertools.product(range(-reach, reach + 1), repeat=2))
        steps: list[list[tuple[float, Change]]] = [
            [(1 - s.shift, _same), *((s.shift / len(moves), _shift(down, right)) for down, right in moves)],
            [(1 - s.flip, _same), (s.flip, transforms.flipped_horizontally)],
            [(1 - s.vertical_flip, _same), (s.vertical_flip, transforms.flipped_vertically)],
            [(1 - s.grey * coloured, _same), (s.grey * coloured, transforms.grey)],
            [(1 - s.sobel, _same), (s.sobel, transforms.sobel)],
        ]
        return [[outcome for outcome in outcomes if outcome[0] > 0] for outcomes in steps]


def _same(x: Tensor) -> Tensor:
    return x


def _shift(down: int, right: int) -> Change:
    return lambda x: transforms.shifted(x, x.new_full((len(x),), down), x.new_full((len(x),), right))
