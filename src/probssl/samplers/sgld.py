"""Stochastic gradient Langevin dynamics: noisy steps uphill on a log-density, so that points become its samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from probssl.errors import InputError

LogDensity = Callable[[Tensor], Tensor]
"""log p(x) up to a constant, one number a row: [n, ...] → [n]."""


@dataclass(frozen=True)
class Box:
    """low ≤ x ≤ high, the same for every feature. Walks are reflected at its walls, which leaves no heap there."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise InputError(f"a box needs a low wall below a high one, not {self.low:g} and {self.high:g}")

    def reflect(self, x: Tensor) -> Tensor:
        """The point that a straight way to x ends at when it bounces off the walls, however often."""
        width = self.high - self.low
        along = torch.remainder(x - self.low, 2 * width)  # one way there and one back
        return self.low + torch.where(along > width, 2 * width - along, along)


@dataclass(frozen=True)
class Trace:
    """What chains did, in the mean over them."""

    energy: Tensor  # [steps + 1], −log p before each step and after the last
    gradient_norm: Tensor  # [steps], of ∇ log p at each step, before it is clipped


@dataclass(frozen=True)
class SGLD:
    """x ← x + η ∇ log p(x) + √(2ηT) ξ, ξ ~ N(0, I), `steps` times   (Welling & Teh, 2011; GEDI §4.2).

    Give the temperature T, or the standard deviation of the noise, σ = √(2ηT): small steps sample p^{1/T}, so only
    T = 1, the default, samples p itself. GEDI's toy settings (η = 0.01²/2, σ = 0.01) have T = 1; those for images
    (η = 1, σ = 0.01) have T = 5·10⁻⁵ and so look for modes rather than sample. Noise comes from `generator`, or
    torch's own random state.

    Settings:
        steps: how many.
        step_size: η.
        noise: σ; that of the temperature unless given.
        temperature: T; 1, or that of the noise, unless given.
        clip: the largest entry of the gradient; none unless given.
        box: a low and a high wall that keep x between them; none unless given.
    """

    steps: int = 20
    step_size: float = 0.01
    noise: float | None = None
    temperature: float | None = None
    clip: float | None = None
    box: Box | tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.box, tuple):
            object.__setattr__(self, "box", Box(*self.box))
        if self.steps < 1:
            raise InputError(f"Langevin dynamics takes at least one step, not {self.steps}")
        if not 0 < self.step_size < math.inf:
            raise InputError(f"the step size must be positive and finite, not {self.step_size:g}")
        if self.noise is not None and self.temperature is not None:
            raise InputError("noise and temperature say the same thing: give one of them")
        for name in ("noise", "temperature"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise InputError(f"the {name} must be finite and ≥ 0, not {value:g}")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise InputError(f"the largest entry of a gradient must be positive and finite, not {self.clip:g}")
        temperature = 1.0 if self.temperature is None else self.temperature
        if self.noise is None:
            object.__setattr__(self, "noise", math.sqrt(2 * self.step_size * temperature))
        else:
            temperature = self.noise**2 / (2 * self.step_size)
        object.__setattr__(self, "temperature", temperature)

    def settings(self) -> dict[str, Any]:
        """What makes the same dynamics again."""
        box = (self.box.low, self.box.high) if isinstance(self.box, Box) else None
        return {"steps": self.steps, "step_size": self.step_size, "noise": self.noise, "clip": self.clip, "box": box}

    def walk(
        self,
        log_density: LogDensity,
        start: Tensor,
        generator: torch.Generator | None = None,
        *,
        steps: int | None = None,
    ) -> Tensor:
        """Where chains from `start` [n, ...] are after all steps; no gradient flows through."""
        return self.traced(log_density, start, generator, steps=steps)[0]

    def traced(
        self,
        log_density: LogDensity,
        start: Tensor,
        generator: torch.Generator | None = None,
        *,
        steps: int | None = None,
    ) -> tuple[Tensor, Trace]:
        """The same, and what the chains did on their way."""
        assert self.noise is not None
        x = start.detach()
        energies, norms = [], []
        for _ in range(self.steps if steps is None else steps):
            x.requires_grad_()
            with torch.enable_grad():
                value = log_density(x)
                (slope,) = torch.autograd.grad(value.sum(), x)
            energies.append(-value.detach().mean())
            norms.append(slope.flatten(1).norm(dim=1).mean())
            if self.clip is not None:
                slope = slope.clamp(-self.clip, self.clip)
            moved = x.detach().add(slope, alpha=self.step_size)
            if self.noise:
                moved.add_(torch.empty_like(moved).normal_(generator=generator), alpha=self.noise)
            x = self.box.reflect(moved) if isinstance(self.box, Box) else moved
        with torch.no_grad():
            energies.append(-log_density(x).mean())
        return x, Trace(torch.stack(energies), torch.stack(norms) if norms else x.new_empty(0))
