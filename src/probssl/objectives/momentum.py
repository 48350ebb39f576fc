"""Objectives with a teacher: a copy of the encoder that follows it slowly, and so gives targets that hold still.

The teacher, and the keys that MoCo remembers, are part of the objective: checkpoints carry them. Only training mode
changes them: before a step θ' ← m θ' + (1 − m) θ for every weight of the teacher, whose other state (running averages)
is the encoder's own.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from probssl.encoders import MLP
from probssl.energies import Cosine, unit
from probssl.errors import InputError
from probssl.objectives.base import Pair, PairObjective
from probssl.objectives.pairwise import PairLogits
from probssl.pairings.views import Views
from probssl.parts.part import Context


class MomentumObjective(PairObjective):
    """An objective with a `teacher`, a copy of the encoder that it will train.

    Settings:
        temperature: τ of the cosine energy.
        momentum: m in [0, 1), the share of itself that the teacher keeps in a step.
    """

    family: ClassVar[str] = "slow teacher"
    compares_views: ClassVar[bool] = True

    steps: Tensor  # [] how often the teacher has followed

    def __init__(self, *, temperature: float, momentum: float, pair: Pair) -> None:
        if not 0 <= momentum < 1:
            raise InputError(f"the momentum of a teacher must lie in [0, 1), not {momentum:g}")
        super().__init__(Cosine(temperature), pair=pair)
        self.momentum = float(momentum)

    def build(self, context: Context) -> None:
        self.teacher = context.twin().requires_grad_(False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def follow(self, encoder: nn.Module) -> None:
        """Let the teacher move a little towards the encoder; at the first step it is the encoder."""
        own, theirs = dict(self.teacher.named_parameters()), dict(encoder.named_parameters())
        if own.keys() != theirs.keys():
            raise InputError("the teacher is a copy of another encoder: its layers differ from this one's")
        share = 1 - self.momentum if int(self.steps) else 1.0
        for name, value in own.items():
            value.lerp_(theirs[name].detach(), share)
        for name, state in self.teacher.named_buffers():
            state.copy_(encoder.get_buffer(name))
        self.steps += 1

    def encoders(self) -> list[nn.Module]:
        return [*super().encoders(), self.teacher]

    def sides(self, views: Views) -> tuple[Tensor, Tensor]:
        """The two observations of every pair."""
        if len(views.augmented) < self.needs.augmented:
            raise InputError(f"pair='augmented' needs two augmented views, not {len(views.augmented)}")
        return (views.augmented[0], views.augmented[1]) if self.pair == "augmented" else (views.x, views.augmented[0])

    @torch.no_grad()
    def taught(self, x: Tensor) -> Tensor:
        """Embeddings by the teacher, through which no gradient passes: [n, m]."""
        return self.energy.embed(self.teacher, x)


class MoCo(MomentumObjective):
    """L = mean_i [δ(z_i, k_i) + log(e^{−δ(z_i, k_i)} + Σ_q e^{−δ(z_i, q)})], δ = (1 − cos)/τ   (He et al., 2020).

    z = ψ(x̃₁), the keys k = ψ'(x̃₂) are the teacher's, and the negatives q are keys of earlier batches, the newest
    `queue` of them. So there are many negatives at the cost of few: InfoNCE with candidates that are a little old.
    At first the queue holds random directions. Range [0, ∞), with log(1 + K) where all codes and keys are alike;
    K = `queue`. Terms: `alignment` and `log_normaliser`. MoCo v2 (Chen et al., 2020) is the same with τ = 0.2, a
    projection head, stronger augmentations and a cosine schedule.

    Settings:
        queue: K, how many keys are remembered.
        temperature: τ of the cosine energy.
    """

    admits: ClassVar[dict[str, str]] = {
        "dimension": "directions in which the augmentation varies more than the data are worth nothing to it"
    }

    keys: Tensor  # [K, dim] unit vectors
    place: Tensor  # [] where the next keys go

    def __init__(
        self, *, queue: int = 4096, temperature: float = 0.07, momentum: float = 0.999, pair: Pair = "augmented"
    ) -> None:
        if queue < 1:
            raise InputError(f"the queue must hold at least one key, not {queue}")
        super().__init__(temperature=temperature, momentum=momentum, pair=pair)
        self.queue = queue

    def build(self, context: Context) -> None:
        super().build(context)
        self.register_buffer("keys", unit(torch.randn(self.queue, context.need("dim"))))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.sides(views)
        if self.training:
            self.follow(encoder)
        z, keys = self.energy.embed(encoder, first), unit(self.taught(second))
        positive = self.energy.paired(z, keys)
        log_normaliser = PairLogits.of(self.energy, z, self.keys).mean_log_sum_exp(extra=-positive)
        if self.training:
            self._remember(keys)
        return {"alignment": positive.mean(), "log_normaliser": log_normaliser}

    @torch.no_grad()
    def _remember(self, keys: Tensor) -> None:
        """Put new keys in place of the oldest."""
        size = len(self.keys)
        places = (self.place + torch.arange(len(keys), device=keys.device)[-size:]) % size
        self.keys = self.keys.index_copy(0, places, keys[-size:].to(self.keys))
        self.place = (self.place + len(keys)) % size

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0


class BYOL(MomentumObjective):
    """L = ½ mean [‖h̄(z₁) − z̄'₂‖² + ‖h̄(z₂) − z̄'₁‖²] = 2 − cos(h(z₁), z'₂) − cos(h(z₂), z'₁)   (Grill et al., 2020).

    z = ψ(x̃), z' = ψ'(x̃) of the teacher, h = `predictor`, a bar for unit length. No negatives. Range [0, 4]. Collapse: a
    constant encoder and predictor attain the minimum 0; the predictor and the slow teacher keep training from it.

    Settings:
        hidden: units of the predictor; twice the dimensions, at least 16, unless given.
    """

    admits: ClassVar[dict[str, str]] = {
        "representation": "a constant encoder attains its minimum of 0; only the slow teacher keeps training from it",
        "dimension": "nothing in it asks for more than one direction",
    }

    def __init__(self, *, hidden: int | None = None, momentum: float = 0.996, pair: Pair = "augmented") -> None:
        super().__init__(temperature=1.0, momentum=momentum, pair=pair)
        self.hidden = hidden

    def build(self, context: Context) -> None:
        super().build(context)
        dim = context.need("dim")
        hidden = max(2 * dim, 16) if self.hidden is None else self.hidden
        self.predictor: nn.Module = MLP.of([dim, hidden, dim], batch_norm=True, track_running_stats=False)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        sides = self.sides(views)
        if self.training:
            self.follow(encoder)
        predicted = [unit(self.predictor(self.energy.embed(encoder, side))) for side in sides]
        targets = [unit(self.taught(side)) for side in sides]
        cosines = [(a * b).sum(-1).mean() for a, b in zip(predicted, targets[::-1], strict=True)]
        return {"similarity": 2 - cosines[0] - cosines[1]}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0
