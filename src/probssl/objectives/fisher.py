"""Fisher: differentiate the normaliser away, with a second derivative, without one, or along random directions."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from probssl.encoders import rows_meet
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

    With `step` h there is no second derivative, for encoders that have none (fused attention, compiled modules). With
    u = ∇ log p + ∇δ, the gradient of ‖u‖² in the parameters is 2 ∂θ(uᵀ∇ₓδ) for u held fixed, a directional derivative,
    and comes from central differences of δ along u, of length h in the mean over features. The value is exact, nothing
    is random, and the gradient is right to O(h²) where the encoder is smooth; at kinks (ReLU) a larger h averages.

    ∇ₓδ is the slope of each row's energy in that row alone. Where the rows of a batch meet, as in batch normalisation
    during training, the energy of a pair depends on the whole batch and has no such slope: such encoders are refused.
    Layer and group normalisation keep rows apart (`ResNet18(normalisation="group")`).

    Settings:
        step: h, the length of a central difference in place of the second derivative; none unless given.
    """

    family: ClassVar[str] = "score matching"
    admits: ClassVar[dict[str, str]] = {
        "representation": "a constant encoder has no gradient to leave it by, though it is not the minimum",
        "dimension": "directions that the augmentation reverses on average are best dropped",
    }
    rowwise: ClassVar[bool] = True
    scores: ClassVar[bool] = True

    def __init__(self, energy: Energy | None = None, *, step: float | None = None) -> None:
        super().__init__(Euclidean() if energy is None else energy, Needs(augmented=1, score=True))
        self.step = None if step is None else _checked_step(step)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        if views.score is None:
            raise InputError("the Fisher loss needs a pairing that knows its score ∇ₓ log p(x̃ | x)")
        refuse_meeting_rows(encoder, self.energy)
        train = torch.is_grad_enabled()
        twice = train and self.step is None
        with torch.enable_grad():
            x = views.x.detach().requires_grad_()
            with torch.set_grad_enabled(twice):
                second = self.energy.embed_augmented(encoder, views.augmented[0])
            energies = self.energy.paired(self.energy.embed(encoder, x), second)
            (slope,) = torch.autograd.grad(energies.sum(), x, create_graph=twice)
        residual = views.score[0] + slope
        value = residual.flatten(1).square().sum(1).mean()
        if train and self.step is not None:
            value = _with_slope_along(value, residual, self.energy, encoder, views, self.step)
        return {"fisher": value}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0

    def with_energy(self, energy: Energy) -> Objective:
        return Fisher(energy)


def _with_slope_along(
    value: Tensor, residual: Tensor, energy: Energy, encoder: nn.Module, views: Views, step: float
) -> Tensor:
    """`value` with the gradient 2 E ∂θ(uᵀ∇ₓδ) by central differences along u = `residual`, `step` a feature."""
    rms = residual.flatten(1).square().mean(1).sqrt().clamp_min(torch.finfo(residual.dtype).tiny)
    scale = step / rms  # [n]
    move = residual * scale.view(-1, *[1] * (residual.ndim - 1))
    ahead, behind = energy.embed(encoder, torch.cat([views.x + move, views.x - move])).chunk(2)
    second = energy.embed_augmented(encoder, views.augmented[0])
    along = ((energy.paired(ahead, second) - energy.paired(behind, second)) / scale).mean()
    return value + along - along.detach()


def refuse_meeting_rows(*modules: nn.Module) -> None:
    """Refuse networks in which the energy of a pair depends on other rows of the batch."""
    for module in modules:
        for name, layer in module.named_modules():
            if rows_meet(layer):
                kind = type(layer).__name__
                what = "batch normalisation" if "BatchNorm" in kind else kind
                raise InputError(
                    "the Fisher loss needs the slope of each row's energy in that row alone, and "
                    f"{what}{f' (layer {name!r})' if name else ''} mixes the rows of a batch: use layer or group "
                    "normalisation in its place, as in ResNet18(normalisation='group'), or none"
                )


def _checked_step(step: float) -> float:
    if not 0 < step < float("inf"):
        raise InputError(f"the step of a finite difference must be positive and finite, not {step:g}")
    return float(step)


class SlicedFisher(Objective):
    """L = E mean_k (vₖᵀ∇ₓ log p(x̃ | x) + [δ(x + hvₖ, x̃) − δ(x − hvₖ, x̃)] / 2h)²: Fisher along random directions.

    Slices of the Fisher loss along K random directions v of signs ±1 (E[vvᵀ] = I, so that E_v(vᵀu)² = ‖u‖²; sliced
    score matching, Song et al., 2019), with the directional derivative of the energy by central differences, of error
    O(h²) where the encoder is smooth. In expectation over v it is the Fisher loss; given the rest, its variance is
    (2/K)(‖u‖⁴ − Σ u_i⁴) with u = ∇ log p + ∇δ, and that of its gradient is far larger than that of `Fisher`. One pass
    forward over 2K + 1 encodings and one back make its step the cheapest; `Fisher(step=h)` also needs no second
    derivative, without the variance. Optimum, collapse, range and the encoders that are refused as for `Fisher`.

    `expanded` slices the last term alone of ‖u‖² = ‖s‖² + 2 sᵀg + ‖g‖², with s = ∇ log p and g = ∇δ; sᵀg is one more
    directional derivative, of two more encodings. The mean is the same, and in the variance g takes the place of u: far
    less where the representation has far fewer dimensions than the data, as of images. A single value may be below 0.

    Settings:
        slices: K, how many random directions a pair is looked at along.
        step: h, the length of a difference.
        expanded: whether ‖g‖² alone is sliced.
    """

    family: ClassVar[str] = Fisher.family
    admits: ClassVar[dict[str, str]] = Fisher.admits
    rowwise: ClassVar[bool] = True
    scores: ClassVar[bool] = True

    def __init__(
        self, energy: Energy | None = None, *, slices: int = 1, step: float = 0.01, expanded: bool = False
    ) -> None:
        if slices < 1:
            raise InputError(f"the sliced Fisher loss needs at least one slice, not {slices}")
        super().__init__(Euclidean() if energy is None else energy, Needs(augmented=1, score=True, directions=slices))
        self.slices, self.expanded = slices, expanded
        self.step = _checked_step(step)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        if views.score is None:
            raise InputError("the Fisher loss needs a pairing that knows its score ∇ₓ log p(x̃ | x)")
        if views.directions is None or len(views.directions) < self.slices:
            raise InputError(f"the sliced Fisher loss needs {self.slices} random directions in its views")
        refuse_meeting_rows(encoder, self.energy)
        v, score = views.directions[: self.slices], views.score[0]  # [K, n, ...], [n, ...]
        if not self.expanded:
            slope = self._slopes(encoder, views, v)
            return {"fisher": ((v * score).flatten(2).sum(2) + slope).square().mean()}
        squares = score.flatten(1).square()  # [n, d]
        size = squares.mean(1).sqrt().clamp_min(torch.finfo(score.dtype).tiny)  # so that a step is as long as of signs
        along = score / size.view(-1, *[1] * (score.ndim - 1))
        slope = self._slopes(encoder, views, torch.cat([v, along.unsqueeze(0)]))  # [K + 1, n]
        return {"fisher": (squares.sum(1) + 2 * size * slope[-1] + slope[:-1].square().mean(0)).mean()}

    def _slopes(self, encoder: nn.Module, views: Views, v: Tensor) -> Tensor:
        """Directional derivatives vᵀ∇ₓδ(x, x̃) by central differences: [K, n, ...] → [K, n]."""
        moves = self.step * v
        moved = torch.cat([views.x + moves, views.x - moves]).flatten(0, 1)  # [2Kn, ...]
        if self.energy.symmetric:  # both sides are embedded alike: in one call
            size = len(moved) // 2
            everything = self.energy.embed(encoder, torch.cat([moved, views.augmented[0]]))
            ahead, behind, second = everything[:size], everything[size : 2 * size], everything[2 * size :]
        else:
            ahead, behind = self.energy.embed(encoder, moved).chunk(2)  # [Kn, m] each
            second = self.energy.embed_augmented(encoder, views.augmented[0])
        if len(v) > 1:
            second = second.repeat(len(v), 1)
        slope = (self.energy.paired(ahead, second) - self.energy.paired(behind, second)) / (2 * self.step)
        return slope.view(len(v), -1)

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0

    def with_energy(self, energy: Energy) -> Objective:
        return SlicedFisher(energy, slices=self.slices, step=self.step, expanded=self.expanded)

    def without_sampling(self) -> Objective:
        return Fisher(self.energy)
