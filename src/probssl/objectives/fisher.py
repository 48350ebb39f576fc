"""Fisher: differentiate the normaliser away."""

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
