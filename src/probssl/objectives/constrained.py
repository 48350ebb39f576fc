"""Clusters with names: GEDI on examples of several observations whose classes satisfy a constraint   (GEDI §6.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from probssl.errors import InputError
from probssl.objectives.base import Pair
from probssl.objectives.gedi import GEDI
from probssl.pairings.views import Needs, Views
from probssl.samplers import SGLD, Start
from probssl.symbolic import Constraint, divergence_of_mean


class ConstrainedGEDI(GEDI):
    """L = w_c [−mean log p(c | x₁, …, x_K)] + w_p KL(p̄ ‖ prior) + w_g [E(x) − E(x̂)] + w_i mean CE(p(y | x̃), p(y | x)).

    GEDI §6.4 and appendix O with Eq. 9 and Table 9 corrected. An example is K observations, of which nothing is known
    but that their classes satisfy the constraint c, the `rule`. Batches are [n, K, ...]; one classifier
    p(y | x) = softmax(Uᵀψ(x)/τ) serves all K. The terms:

    - `constraint`: p(c) = Σ_{y satisfies c} Π_k p(y_k | x_k), exactly (`symbolic.Constraint`). In [0, ∞); 0 iff the
      predictions cannot but satisfy it. Alone it admits one answer for all, where that satisfies c: 0 + 0 = 0.
    - `prior`: p̄ is the mean of all nK predictions; with a uniform prior ln c − H(p̄), in [0, ln c]. It rules that out.
      `Constraint.marginal_prior` is the prior of examples drawn uniformly among satisfying assignments.
    - `generative`: as in `GEDI`, over all nK observations, with n chains of the buffer a step.
    - `invariance`: as in `GEDI`; without weight unless asked for, since the constraint takes its place.

    A term of weight 0 is left out. Without `generative` the least loss is 0, reached by sure predictions that satisfy c
    and whose mean is the prior; with it none is known. Weights are the paper's, w_c read from the column it belongs to.

    `pair="augmented"` asks for the terms of augmentations (`pairings.Each`) in place of the observations themselves.

    Settings:
        rule: the constraint c.
        constraint: w_c, its weight.
    """

    def __init__(
        self,
        rule: Constraint,
        *,
        constraint: float = 25.0,
        balance: float = 400.0,
        generative: float = 1.0,
        invariance: float = 0.0,
        magnitude: float = 0.0,
        prior: Tensor | Sequence[float] | None = None,
        temperature: float = 1.0,
        pair: Pair = "original",
        chains: int = 10_000,
        reinitialise: float = 0.05,
        start: Start | Literal["normal", "uniform"] = "normal",
        sampler: SGLD | None = None,
    ) -> None:
        if len(set(rule.sizes)) > 1:
            sizes = ", ".join(map(str, rule.sizes))
            raise InputError(f"all observations share one classifier, but the constraint is on {sizes} classes")
        super().__init__(
            rule.sizes[0],
            generative=generative,
            invariance=invariance,
            balance=balance,
            magnitude=magnitude,
            prior="uniform" if prior is None else prior,
            temperature=temperature,
            pair=pair,
            chains=chains,
            reinitialise=reinitialise,
            start=start,
            sampler=sampler,
        )
        self._weigh(constraint=constraint)
        self._need_terms()
        self.rule = rule
        self.needs = Needs(augmented=(pair == "augmented") + ("invariance" in self.weights))

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        count = len(self.rule.sizes)
        if views.x.ndim < 3 or views.x.shape[1] != count:
            raise InputError(f"examples of this constraint are [n, {count}, ...], not {list(views.x.shape)}")
        sides = [*([] if self.pair == "augmented" else [views.x]), *views.augmented]
        first, *others = (self.observations(side) for side in sides[: 1 + ("invariance" in self.weights)])
        logits = self.logits(encoder, first)
        found = {}
        if "constraint" in self.weights:
            found["constraint"] = self.rule.loss(logits.unflatten(0, views.x.shape[:2]))
        second = others[0] if others else None
        return found | self.terms_of(encoder, first, second, logits, chains=len(views.x))

    def observations(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1)

    def prior_term(self, log_p: Tensor) -> Tensor:
        """KL(p̄ ‖ prior) of predictions log p(y | x_i) [n, c]."""
        return divergence_of_mean(log_p, self.prior)

    def optimum(self, batch_size: int, dim: int) -> float | None:
        return None if "generative" in self.weights else 0.0
