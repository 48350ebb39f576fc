"""Many trainings as one: trials of equal shapes share batched computations, and come out as if trained alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from probssl.objectives.base import Objective
from probssl.pairings.views import Pairing
from probssl.training.loop import Fitted, fit
from probssl.training.plan import TrainingPlan
from probssl.training.progress import Reporter


@dataclass(frozen=True, eq=False)
class Trial:
    """One training to be done: what `fit` takes. The encoder and the objective are trained in place."""

    encoder: nn.Module
    objective: Objective
    pairing: Pairing
    data: Tensor
    plan: TrainingPlan
    seed: int = 0


def fit_many(
    trials: Sequence[Trial],
    *,
    reporter: Reporter | None = None,
    done: Callable[[int, Fitted], None] | None = None,
    stop: threading.Event | None = None,
) -> list[Fitted]:
    """Train all trials, each as `fit` would alone from the same seed; the results in the order of the trials.

    `done(number, fitted)` is called as trials end, in any order. Ctrl-C, SIGTERM or `stop` end it between two steps:
    trials that had not come to their end say so (`Fitted.interrupted`).
    """
    reporter = Reporter() if reporter is None else reporter
    results = []
    with reporter:
        reporter.start(sum(trial.plan.steps for trial in trials), 0)
        steps = 0
        for number, t in enumerate(trials):
            fitted = fit(t.encoder, t.objective, t.pairing, t.data, t.plan, seed=t.seed)
            results.append(fitted)
            steps += t.plan.steps
            reporter.advance(steps)
            if done is not None:
                done(number, fitted)
    return results
