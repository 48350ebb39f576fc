"""Objectives of the identifiability papers: ensembles of losses, alignment with uniformity, and the regression on true
latents that bounds them all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from probssl.energies import Euclidean, PNorm
from probssl.errors import InputError
from probssl.objectives.base import Objective, PairObjective
from probssl.objectives.pairwise import PairLogits
from probssl.pairings.views import Needs, Views
from probssl.parts.part import Context


class Ensemble(Objective):
    """L = Σ_k L_k(f, Λ̂_k): one encoder, several pairings, and an objective with parameters of its own for each.

    AnInfoNCE B.3 and H.3. The k-th objective sees the k-th augmented view, which a `World` with several conditionals
    draws from the k-th of them. Terms are numbered: `alignment_1`, `alignment_2`, …

    Settings:
        objectives: the losses, of one augmented view each.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        if not objectives:
            raise InputError("an ensemble needs at least one objective")
        for objective in objectives:
            if objective.needs.augmented != 1:
                raise InputError("an ensemble takes objectives of one augmented view each")
            if objective.needs.score or objective.needs.directions or objective.needs.noise:
                raise InputError("an ensemble takes objectives that need neither scores nor random numbers")
        needs = Needs(
            augmented=len(objectives),
            negatives=any(part.needs.negatives for part in objectives),
            index=any(part.needs.index for part in objectives),
        )
        super().__init__(objectives[0].energy, needs)
        self.objectives = nn.ModuleList(objectives)

    def build(self, context: Context) -> None:
        self.objectives = nn.ModuleList(part.bind(context) for part in self.objectives if isinstance(part, Objective))
        self.energy = self.objectives[0].energy  # type: ignore[assignment]

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        if len(views.augmented) != len(self.objectives):
            raise InputError(f"an ensemble of {len(self.objectives)} got {len(views.augmented)} augmented views")
        found = {}
        for number, objective in enumerate(self.objectives):
            assert isinstance(objective, Objective)
            own = dataclasses.replace(views, augmented=views.augmented[number : number + 1])
            for name, value in objective.terms(encoder, own).items():
                found[f"{name}_{number + 1}"] = value * objective.weights.get(name, 1.0)
        return found

    def encoders(self) -> list[nn.Module]:
        return [each for part in self.objectives if isinstance(part, Objective) for each in part.encoders()]

    def optimum(self, batch_size: int, dim: int) -> float | None:
        parts = [part.optimum(batch_size, dim) for part in self.objectives if isinstance(part, Objective)]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


class AlignUniform(PairObjective):
    """L = α Ũ + (1 − α) Ã   (CL-ICA Eq. 70-72, with the tildes and the minus that their print lost).

    Ã = E ‖f(x) − f(x̃)‖_p^p over positives, Ũ = E_x log E_{x⁻} exp(−‖f(x) − f(x⁻)‖_p^p) over the originals of the batch,
    x itself among them as in the authors' code. Then L ≥ −α log n, and α sets how far codes spread. `itself=False`
    leaves x out: an unbiased mean, with which nothing bounds the loss for α > ½ (push everything apart), and at α = ½
    it is half of InfoNCE without the positive in its sum. For p ≠ 2 only signed permutations of a code leave it
    unchanged, so that it can disentangle. A constant encoder gives 0.

    Settings:
        alpha: α, the weight of uniformity, between 0 and 1.
        p: the power of the distance.
        itself: whether x is among its own negatives.
    """

    family: ClassVar[str] = "no log-density"
    compares_views: ClassVar[bool] = True

    admits: ClassVar[dict[str, str]] = {
        "representation": "alignment alone is least for a constant encoder: a small α lets it win",
        "dimension": "directions in which positives vary more than the data are worth nothing to it",
    }

    def __init__(self, alpha: float = 0.5, p: float = 1.0, *, itself: bool = True) -> None:
        if not 0 < alpha < 1:
            raise InputError(f"alpha, the weight of uniformity, lies between 0 and 1, not {alpha:g}")
        super().__init__(PNorm(p))
        self.alpha, self.itself = float(alpha), itself

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        apart = PairLogits.of(self.energy, first, first).mean_log_sum_exp(without_diagonal=not self.itself)
        return {
            "alignment": (1 - self.alpha) * self.energy.paired(first, second).mean(),
            "uniformity": self.alpha * (apart - math.log(len(first) - (not self.itself))),
        }

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return -self.alpha * math.log(batch_size) if self.itself else None


class LatentRegression(Objective):
    """L = E ‖f(x) − z‖²: regression on the true latents of a world, the upper bound of what an encoder can identify.

    The supervised score of CL-ICA's Table 1. Range [0, ∞); 0 where the encoder inverts the mixing.
    """

    rowwise: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(Euclidean(), Needs(augmented=0, latents=True))

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        if views.latents is None:
            raise InputError("regression on latents needs a world, which knows its latents")
        return {"error": F.mse_loss(encoder(views.x), views.latents, reduction="none").sum(-1).mean()}

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return 0.0
