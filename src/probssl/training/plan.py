"""How to train: optimiser, schedule, batch size. A frozen description with no state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from probssl.errors import InputError

if TYPE_CHECKING:
    from torch import nn

WEIGHTS_FADE = 0.9
"""Share of the steps after which `initial_weights` are gone, and after which a late annealing begins."""


@dataclass(frozen=True)
class TrainingPlan:
    """Everything about the optimisation that does not depend on the data: `steps` of `batch_size` observations.

    Settings:
        steps: how many.
        batch_size: observations per step.
        optimiser: "adam", "adamw" or "sgd".
        lr: learning rate of the encoder, after warming up.
        objective_lr: learning rate of the objective's own parameters (bias network, predictor, concentrations), which
            follows the same schedule; that of the encoder unless given.
        weight_decay: of the optimiser.
        momentum: of the optimiser, if it is sgd.
        warmup: steps over which learning rates rise linearly.
        anneal: what the learning rate does after warming up: "cosine", half a cosine to zero; "constant"; or "late",
            half a cosine to zero over the last tenth of the steps, where it must not fall before `initial_weights` are
            gone.
        clip_norm: length to which longer gradients are shortened.
        initial_weights: factors that terms of the loss begin with, by name; they go to 1 geometrically over the first
            0.9 of the steps. Where positives are easily told from all others, a loss is zero long before the latents
            are in place: {"alignment": 64} keeps it from that until they are.
        freeze: layers of the encoder, or beginnings of their names, whose weights stay as they are: "0", "blocks.1".
        precision: what the encoder computes in, its weights and the loss being float32 (or float64, if that is what the
            weights are) all the while: "bfloat16" halves what activations take, and is faster only where the hardware
            has it.
        log_every: steps between two rows of the log; chosen from `steps` unless given.
        checkpoint_every: steps between two checkpoints; chosen from `steps` unless given.
    """

    steps: int = 2000
    batch_size: int = 256
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = 0.01
    objective_lr: float | None = None
    weight_decay: float = 0.0
    momentum: float = 0.9
    warmup: int = 100
    anneal: Literal["cosine", "constant", "late"] = "cosine"
    clip_norm: float | None = None
    initial_weights: Mapping[str, float] | None = None
    freeze: Sequence[str] = ()
    precision: Literal["float32", "bfloat16"] = "float32"
    log_every: int | None = None
    checkpoint_every: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps must be at least 1, not {self.steps}")
        if self.batch_size < 2:
            raise InputError(f"the batch size must be at least 2, not {self.batch_size}")
        if self.optimiser not in ("adam", "adamw", "sgd"):
            raise InputError(f"the optimiser is adam, adamw or sgd, not {self.optimiser!r}")
        if self.anneal not in ("cosine", "constant", "late"):
            raise InputError(f"anneal is cosine, constant or late, not {self.anneal!r}")
        if self.precision not in ("float32", "bfloat16"):
            raise InputError(f"the precision is float32 or bfloat16, not {self.precision!r}")
        for name in ("lr", "objective_lr", "clip_norm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{name} must be positive and finite, not {value!r}")
        for name in ("weight_decay", "momentum", "warmup"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} must not be negative, not {getattr(self, name)!r}")
        for name, value in (self.initial_weights or {}).items():
            if not 0 < value < math.inf:
                raise InputError(f"the initial weight of {name} must be positive and finite, not {value!r}")
        if self.optimiser != "sgd" and self.momentum != TrainingPlan.momentum:
            raise InputError(f"momentum is only for sgd, but the optimiser is {self.optimiser}: leave it out")
        for name in ("log_every", "checkpoint_every"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")

    def check_layers(self, encoder: nn.Module) -> None:
        """Refuse to freeze layers that an encoder does not have."""
        known = {name.removeprefix("backbone.") for name, _ in (*encoder.named_modules(), *encoder.named_parameters())}
        for layer in self.freeze:
            if layer not in known:
                layers = ", ".join(name for name, _ in encoder.named_children())
                raise InputError(f"the encoder has no layer {layer!r} to freeze: its layers are {layers}")

    def freezes(self, name: str) -> bool:
        """Whether a weight of the encoder stays as it is; the layers of one with a head are those of its backbone."""
        own = name.removeprefix("backbone.")
        return any(own == layer or own.startswith(f"{layer}.") for layer in self.freeze)

    def rate_factor(self, step: int) -> float:
        """What the learning rates are multiplied by at `step` (0 is the first)."""
        warmup = min(self.warmup, self.steps // 2)
        if step < warmup:
            return (step + 1) / warmup
        if self.anneal == "constant":
            return 1.0
        begins = max(warmup, int(WEIGHTS_FADE * self.steps)) if self.anneal == "late" else warmup
        if step < begins:
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * (step - begins) / (self.steps - begins)))

    def weights(self, step: int, own: Mapping[str, float]) -> dict[str, float]:
        """The weights of a loss's terms at `step`, from those it has of its own."""
        left = max(0.0, 1 - step / (WEIGHTS_FADE * self.steps))
        initial = self.initial_weights or {}
        return {**own, **{name: own.get(name, 1.0) * factor**left for name, factor in initial.items() if left}}

    @property
    def log_interval(self) -> int:
        """Steps between two rows of the log: a hundred rows a run, twenty to a hundred steps apart."""
        return self.log_every or min(100, max(20, self.steps // 100))

    @property
    def checkpoint_interval(self) -> int:
        """Steps between two checkpoints: ten a run, at most a thousand steps apart."""
        return self.checkpoint_every or min(1000, max(1, self.steps // 10))
