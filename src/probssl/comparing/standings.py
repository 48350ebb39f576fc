"""The leaderboard, and which label-free score predicts it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from probssl.comparing.grid import Candidate
from probssl.comparing.measuring import CLID_PARTS, LABEL_FREE, Score
from probssl.comparing.work import Outcome
from probssl.metrics.clid import CLID, combine_clid

RESAMPLES = 1000


@dataclass(frozen=True)
class Standing:
    """A configuration on the leaderboard: how far it came, and the mean and spread of its scores over seeds."""

    rank: int
    candidate: Candidate
    round: int
    steps: int
    seeds: int
    means: dict[str, float]
    spreads: dict[str, float]  # standard deviation over seeds, of two or more
    collapsed: tuple[str, ...] = ()
    failure: str | None = None

    def shown(self, name: str, plus_minus: str = " ± ") -> str:
        """A score with its spread, as text."""
        value, spread = self.means.get(name, math.nan), self.spreads.get(name, math.nan)
        if not math.isfinite(value):
            return "–"
        return f"{value:.3f}{plus_minus}{spread:.3f}" if math.isfinite(spread) else f"{value:.3f}"

    def as_dict(self, scores: Sequence[Score]) -> dict[str, Any]:
        """One flat row of plain values; numbers that do not exist are None."""
        row: dict[str, Any] = {
            "rank": self.rank,
            "objective": self.candidate.objective,
            "energy": self.candidate.energy,
            "pairing": self.candidate.pairing or None,
            "dim": self.candidate.dim,
            "round": self.round,
            "steps": self.steps,
            "seeds": self.seeds,
        }
        for score in scores:
            row[score.name] = _finite(self.means.get(score.name))
            row[f"{score.name}_spread"] = _finite(self.spreads.get(score.name))
        row["collapsed"] = " ".join(self.collapsed) or None
        row["failure"] = self.failure
        return row


@dataclass(frozen=True)
class Predictor:
    """How well a label-free score predicts the order by what needs labels or latents.

    Spearman's ρ over the configurations of the first round, signed so that 1 means that the better the score the
    better the truth; a 95% interval by bootstrap over configurations; ρ among configurations of equal dimension; and
    what the configuration that the score would have chosen is worth.
    """

    score: Score
    correlation: float
    low: float
    high: float
    within_dimension: float
    chosen_value: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "score": self.score.name,
            "correlation": _finite(self.correlation),
            "low": _finite(self.low),
            "high": _finite(self.high),
            "within_dimension": _finite(self.within_dimension),
            "chosen_value": _finite(self.chosen_value),
        }


def with_clid(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes with CLID among their scores, relative to the others of their round."""
    found = list(outcomes)
    for number in {outcome.job.round for outcome in outcomes}:
        able = [
            index
            for index, outcome in enumerate(outcomes)
            if outcome.job.round == number and all(math.isfinite(outcome.value(part)) for part in CLID_PARTS)
        ]
        if len(able) < 2:
            continue
        combined = combine_clid([CLID(*(outcomes[index].value(part) for part in CLID_PARTS)) for index in able])
        for index, value in zip(able, combined, strict=True):
            found[index] = replace(found[index], scores={**found[index].scores, "clid": value})
    return found


def standings(outcomes: Sequence[Outcome], criterion: str) -> list[Standing]:
    """The leaderboard: those who came furthest first, by their mean criterion in the last round they trained in."""
    last: dict[Candidate, int] = {}
    for outcome in outcomes:
        last[outcome.job.candidate] = max(last.get(outcome.job.candidate, 0), outcome.job.round)
    rows = [
        _best_length([o for o in outcomes if o.job.candidate == candidate and o.job.round == number], criterion)
        for candidate, number in last.items()
    ]

    def order(row: Standing) -> tuple[bool, int, float]:
        value = row.means.get(criterion, math.nan)
        return (True, 0, 0.0) if math.isnan(value) else (False, -row.round, -value)

    return [replace(row, rank=number) for number, row in enumerate(sorted(rows, key=order), 1)]


def _best_length(outcomes: Sequence[Outcome], criterion: str) -> Standing:
    """The row of a configuration at the training length that suits it best, of those of its last round."""
    rows = [_standing([o for o in outcomes if o.job.steps == steps]) for steps in {o.job.steps for o in outcomes}]
    return max(rows, key=lambda row: np.nan_to_num(row.means.get(criterion, -math.inf), nan=-math.inf))


def _standing(outcomes: Sequence[Outcome]) -> Standing:
    """One row from the outcomes of a configuration over seeds."""
    job, failure = outcomes[0].job, next((o.failure for o in outcomes if o.failure), None)
    names = {name for outcome in outcomes for name in outcome.scores}
    values = {name: np.array([outcome.value(name) for outcome in outcomes if outcome.scores]) for name in names}
    return Standing(
        rank=0,
        candidate=job.candidate,
        round=job.round,
        steps=job.steps,
        seeds=len(outcomes),
        means={name: float(array.mean()) for name, array in values.items()},
        spreads={name: float(array.std(ddof=1)) for name, array in values.items() if len(array) > 1},
        collapsed=tuple(sorted({kind for outcome in outcomes for kind in outcome.collapsed})),
        failure=failure,
    )


def predictors(outcomes: Sequence[Outcome], criterion: str, seed: int) -> list[Predictor]:
    """How well each label-free score predicts the order by the criterion in the first round, the best first."""
    first = min((outcome.job.round for outcome in outcomes), default=0)
    entrants = [o for o in outcomes if (o.job.round, o.job.seed) == (first, seed)]
    entrants = [outcome for outcome in entrants if math.isfinite(outcome.value(criterion))]
    found = []
    for score in LABEL_FREE:
        able = [o for o in entrants if math.isfinite(o.value(score.name))]
        guesses = score.sign * np.array([o.value(score.name) for o in able])
        truth = np.array([o.value(criterion) for o in able])
        if len(able) < 5 or len(np.unique(guesses)) < 2 or len(np.unique(truth)) < 2:
            continue
        dims = np.array([o.job.candidate.dim for o in able])
        rows = np.random.default_rng(seed).integers(len(able), size=(RESAMPLES, len(able)))
        low, high = np.nanquantile(rank_correlation(guesses[rows], truth[rows]), (0.025, 0.975))
        found.append(
            Predictor(
                score,
                float(rank_correlation(guesses, truth)),
                float(low),
                float(high),
                _within(guesses, truth, dims),
                float(truth[np.argmax(guesses)]),
            )
        )
    return sorted(found, key=lambda p: -p.correlation)


def _within(guesses: np.ndarray, truth: np.ndarray, groups: np.ndarray) -> float:
    """ρ within groups of five or more, on average over their members."""
    names, sizes = np.unique(groups, return_counts=True)
    each = [
        (float(rank_correlation(guesses[groups == g], truth[groups == g])), n)
        for g, n in zip(names, sizes, strict=True)
    ]
    able = [(rho, n) for rho, n in each if n >= 5 and math.isfinite(rho)]
    return sum(rho * n for rho, n in able) / sum(n for _, n in able) if able else math.nan


def rank_correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Spearman's ρ along the last axis; not a number where either side is constant."""
    from scipy.stats import rankdata

    a, b = (rankdata(side, axis=-1) for side in (a, b))
    a, b = (side - side.mean(-1, keepdims=True) for side in (a, b))
    scale = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (a * b).sum(-1) / scale


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value
