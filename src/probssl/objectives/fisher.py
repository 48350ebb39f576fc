"""Fisher: differentiate the normaliser away, exactly or along random directions."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from probssl.energies import Energy, Euclidean
from probssl.errors import InputError
from probssl.objectives.base import Objective
from probssl.pairings.views import Needs, Views


class Fisher(Objective):
    """L = E ‖∇ₓ log p(x̃ | x) + ∇ₓ δ(x, x̃)‖²   (Siamese-EBM Eq. 30): no negatives, no normaliser.

    The pairing supplies the score ∇ₓ log p(x̃ | x); the energy's gradient comes from automatic differentiation and
    is trained through (a second derivative). Range [0, ∞); 0 exactly when δ = −log p(x̃ | x) + c(x̃). A constant
    encoder gives E‖score‖². Collapse: a constant encoder has ∇δ = 0 and no gradient to leave it by, though it is
    not the minimum; directions whose mean Jacobian is not positive are dropped (Theorem 2.3, corrected).
    """

    admits: ClassVar[dict[str, str]] = {
        "representation": "a constant encoder has no gradient to leave it by, though it is not the minimum",
        "dimension": "directions that the augmentation reverses on average are best dropped",
    }

    def __init__(self, energy: Energy | None = None) -> None:
        super().__init__(Euclidean() if energy is None else energy, Needs(augmented=1, score=True))

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        if views.score is None:
            raise InputError("the Fisher loss needs a pairing that knows its score ∇ₓ log p(x̃ | x)")
        train = torch.is_grad_enabled()
        with torch.enable_grad():
            x = views.x.detach().requires_grad_()
            energies = self.energy.paired(
                self.energy.embed(encoder, x), self.energy.embed_augmented(encoder, views.augmented[0])
            )
            (slope,) = torch.autograd.grad(energies.sum(), x, create_graph=train)
        return {"fisher": (views.score[0] + slope).flatten(1).square().sum(1).mean()}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0

    def with_energy(self, energy: Energy) -> Objective:
        return Fisher(energy)


class SlicedFisher(Objective):
    """L = E mean_k (vₖᵀ∇ₓ log p(x̃ | x) + [δ(x + hvₖ, x̃) − δ(x − hvₖ, x̃)] / 2h)²: Fisher without a second derivative.

    Slices of the Fisher loss along K random directions v of signs ±1 (E[vvᵀ] = I, so that E_v(vᵀu)² = ‖u‖²; sliced
    score matching, Song et al., 2019), with the directional derivative of the energy by central differences, of error
    O(h²) where the encoder is smooth. In expectation over v it is the Fisher loss; given the rest, its variance is
    (2/K)(‖u‖⁴ − Σ u_i⁴) with u = ∇ log p + ∇δ, so that it is large where the loss is and vanishes with it.
    It costs 2K + 1 encodings and one backward pass, needs an energy that can be differentiated once only, and works
    with layers that have no second derivative. Optimum, collapse and range as for `Fisher`.
    """

    admits: ClassVar[dict[str, str]] = Fisher.admits

    def __init__(self, energy: Energy | None = None, *, slices: int = 1, step: float = 0.01) -> None:
        if slices < 1:
            raise InputError(f"a sliced loss needs at least one slice, not {slices}")
        if not 0 < step < float("inf"):
            raise InputError(f"the step of a finite difference must be positive and finite, not {step:g}")
        super().__init__(Euclidean() if energy is None else energy, Needs(augmented=1, score=True, directions=slices))
        self.slices = slices
        self.step = step

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        if views.score is None:
            raise InputError("the Fisher loss needs a pairing that knows its score ∇ₓ log p(x̃ | x)")
        if views.directions is None or len(views.directions) < self.slices:
            raise InputError(f"the sliced Fisher loss needs {self.slices} random directions in its views")
        v = views.directions[: self.slices]  # [K, n, ...]
        steps = self.step * v
        moved = torch.cat([views.x + steps, views.x - steps]).flatten(0, 1)  # [2Kn, ...]
        first = self.energy.embed(encoder, moved).unflatten(0, (2, self.slices, len(views.x)))  # [2, K, n, m]
        second = self.energy.embed_augmented(encoder, views.augmented[0]).expand_as(first)
        ahead, behind = self.energy.paired(first, second)  # [K, n] each
        slope = (ahead - behind) / (2 * self.step)
        return {"fisher": ((v * views.score[0]).flatten(2).sum(2) + slope).square().mean()}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0

    def with_energy(self, energy: Energy) -> Objective:
        return SlicedFisher(energy, slices=self.slices, step=self.step)

    def without_sampling(self) -> Objective:
        return Fisher(self.energy)
