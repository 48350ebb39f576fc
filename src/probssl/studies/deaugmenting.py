"""Does undoing augmentations well mean representing well?

Siamese-EBM (appendix A.3) knows of no metric for how well q(x | x̃) ∝ p(x) e^{−δ(x, x̃)} undoes an augmentation;
`probssl.metrics.deaugment` is one. Here every objective with the Euclidean and the cosine energy is trained on two
circles (the settings of `siamese/circles`) and on five tables (the library's recipe), and the scores of its posterior
are set against the accuracy of a linear probe, by rank correlations within each data set. RankMe is the rival.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from probssl.data import load_table
from probssl.errors import InputError
from probssl.studies import deaugmenting_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study
from probssl.studies.deaugmenting_grid import (
    FAMILIES,
    MAIN,
    MEASURES,
    SCALE,
    SCORES,
    UNTRAINED,
    WITHOUT_DENSITY,
    Score,
    Setting,
    Trial,
)


class Deaugmenting(Study):
    """Every setting on every data set over the seeds of the budget; tables, figures and a page."""

    name = "siamese/deaugmenting"
    paper = "Siamese-EBM, A.3"
    claim = "a metric for undoing augmentations, and whether it predicts the probe"
    laptop = "7 to 10 min"
    code = ("probssl.studies.circles_trials", "probssl.studies.deaugmenting_trials")

    def configs(self, budget: Budget) -> list[Config]:
        scale = SCALE[budget]
        return [
            {"data": data, **dataclasses.asdict(setting), "seed": seed, "steps": scale.steps}
            for seed in range(scale.seeds)
            for data in scale.data
            for setting in scale.settings
        ]

    def prepare(self, budget: Budget) -> None:
        for data in SCALE[budget].data:
            load_table(data)

    def run_batch(self, configs: list[Config]) -> Iterator[tuple[Config, Result]]:
        return deaugmenting_trials.run_batch(configs)

    def batches(self, configs: list[Config], jobs: int) -> list[list[Config]]:
        """One data set and seed a batch: models of one shape, which train together."""
        together: dict[tuple[str, int], list[Config]] = {}
        for config in configs:
            together.setdefault((config["data"], config["seed"]), []).append(config)
        return list(together.values())

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        found = points(with_gains([Trial.of(*entry) for entry in results]))
        return rows(found, correlations(found))

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        from probssl.studies import deaugmenting_page

        trials = with_gains([Trial.of(*entry) for entry in results])
        found = points(trials)
        return deaugmenting_page.write(trials, found, correlations(found), SCALE[budget], out)


# Summaries


@dataclass(frozen=True)
class Point:
    """One setting on one data set: means and standard deviations over the seeds that trained."""

    data: str
    setting: Setting
    mean: dict[str, float]
    spread: dict[str, float]
    seeds: int
    failed: int
    collapsed: int


def with_gains(trials: Sequence[Trial]) -> list[Trial]:
    """`gain`: the probe less that of the untrained encoder on the same data from the same seed."""
    base = {(t.data, t.seed): t.numbers["linear_probe"] for t in trials if t.setting.objective == UNTRAINED}
    return [
        dataclasses.replace(
            t, numbers={**t.numbers, "gain": t.numbers["linear_probe"] - base[t.data, t.seed]} if t.numbers else {}
        )
        for t in trials
    ]


def points(trials: Sequence[Trial]) -> list[Point]:
    """Trials with gains, gathered over seeds, in the order in which data sets and settings first come."""
    gathered: dict[tuple[str, Setting], list[Trial]] = {}
    for t in trials:
        gathered.setdefault((t.data, t.setting), []).append(t)
    found = []
    for (data, setting), several in gathered.items():
        values = {m: np.array([t.numbers[m] for t in several if t.numbers]) for m in MEASURES}
        count = len(values["gain"])
        found.append(
            Point(
                data,
                setting,
                {m: float(v.mean()) if count else math.nan for m, v in values.items()},
                {m: float(v.std(ddof=1)) if count > 1 else math.nan for m, v in values.items()},
                count,
                sum(t.state.startswith("failed") for t in several),
                sum(t.state.startswith("collapsed") for t in several),
            )
        )
    return found


def rank_correlation(
    a: Sequence[float], b: Sequence[float], groups: Sequence[str], members: Sequence[str] = (), draws: int = 0
) -> tuple[float, float]:
    """Spearman's ρ within groups, and its standard deviation over bootstrap draws of members.

    Values are ranked within their group (those equal to nine decimals share a rank), ranks are divided by its size and
    centred by group, and ρ is the correlation of what is left: for one group Spearman's ρ, for several of one size
    without ties the mean of theirs. Not a number where one side does not vary. A draw takes members with replacement,
    each with its points in every group, for one setting on two data sets is no independent evidence; ranks are
    taken once.
    """
    from scipy.stats import rankdata

    if not len(a) == len(b) == len(groups):
        raise InputError(f"as many values as groups are needed, not {len(a)}, {len(b)} and {len(groups)}")
    names = list(dict.fromkeys(members))
    weight = np.ones((1 + draws, len(a)))  # the first row is all points once
    if draws:
        drawn = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), draws)
        weight[1:] = drawn[:, [names.index(member) for member in members]]
    cross, left, right = np.zeros((3, 1 + draws))
    for group in dict.fromkeys(groups):
        inside = np.array(groups) == group
        x, y = (rankdata(np.round(np.asarray(v, dtype=float)[inside], 9)) / inside.sum() for v in (a, b))
        w = weight[:, inside]
        total = np.maximum(w.sum(axis=1), 1)
        cross += w @ (x * y) - (w @ x) * (w @ y) / total
        left += w @ x**2 - (w @ x) ** 2 / total
        right += w @ y**2 - (w @ y) ** 2 / total
    scale = np.sqrt(np.maximum(left, 0) * np.maximum(right, 0))
    rho = np.divide(cross, scale, out=np.full(1 + draws, np.nan), where=scale > 1e-9)
    usable = rho[1:][np.isfinite(rho[1:])]
    return float(rho[0]), float(usable.std()) if len(usable) and np.isfinite(rho[0]) else math.nan


@dataclass(frozen=True)
class Correlation:
    """How a score goes with the probe: positive where better by the score is better by the probe."""

    models: str  # which models are compared
    data: str  # a data set, or "pooled"
    score: Score
    rho: float
    error: float  # standard deviation over draws of settings; not a number but for "pooled"
    points: int


DENSITIES, NO_FISHER, ALL, POOLED = "log-densities", "log-densities without Fisher", "all models", "pooled"


def correlations(found: Sequence[Point]) -> list[Correlation]:
    """Spearman's ρ of gain and score over trained settings, a data set at a time and pooled within data sets.

    `log-densities` leaves out triplet, spectral and SimSiam; scores that need a log-density are compared there only.
    `without Fisher` also leaves out both Fisher losses: on most tables they come last by score and probe alike, and a
    correlation that rests on them says little about the others. It was added after the first results; the rest was not.
    """
    trained = [p for p in found if p.setting.objective != UNTRAINED and p.seeds]
    omitted = {DENSITIES: WITHOUT_DENSITY, NO_FISHER: (*WITHOUT_DENSITY, *FAMILIES["score matching"]), ALL: ()}
    result = []
    for models, without in omitted.items():
        chosen = [p for p in trained if p.setting.objective not in without]
        for score in SCORES:
            if models == ALL and score.needs_density:
                continue
            for data in (POOLED, *dict.fromkeys(p.data for p in chosen)):
                some = [p for p in chosen if data in (POOLED, p.data)]
                gain, value = [p.mean["gain"] for p in some], [score.sign * p.mean[score.name] for p in some]
                rho, error = rank_correlation(
                    gain, value, [p.data for p in some], [p.setting.name for p in some], 2000 if data == POOLED else 0
                )
                result.append(Correlation(models, data, score, rho, error, len(some)))
    return result


def rows(found: Sequence[Point], related: Sequence[Correlation]) -> list[Row]:
    """What the terminal shows: correlations, the settings that gain most and least, and what went wrong."""
    everywhere = {DENSITIES: "pooled", NO_FISHER: "no Fisher", ALL: "all"}
    shown = [
        _row(f"{everywhere[c.models]} ({c.points})", f"ρ {c.score.title}", c.rho, c.error)
        for c in related
        if c.data == POOLED and (c.models == DENSITIES or c.score.name in MAIN)
    ]
    each = [c for c in related if c.data != POOLED and c.models == DENSITIES and c.score.name in MAIN]
    shown += [_row(f"{short(c.data)} ({c.points})", f"ρ {c.score.title}", c.rho, None) for c in each]
    gains = mean_gains(found)
    for place, some in (("best", gains[:3]), ("worst", gains[-3:])):
        shown += [_row(name, f"gain, {place}", gain, spread) for name, gain, spread in some]
    for what in ("failed", "collapsed"):
        shown.append(_row("trainings", what, float(sum(getattr(p, what) for p in found)), None))
    return shown


def _row(setting: str, metric: str, value: float, spread: float | None) -> Row:
    return Row(setting, metric, value, None if spread is None or math.isnan(spread) else spread, None, "not comparable")


def mean_gains(found: Sequence[Point]) -> list[tuple[str, float, float]]:
    """Trained settings by their mean gain over data sets, largest first, with the standard deviation over these."""
    gains: dict[str, list[float]] = {}
    for p in found:
        if p.setting.objective != UNTRAINED and p.seeds:
            gains.setdefault(p.setting.name, []).append(p.mean["gain"])
    spread = {name: float(np.std(v, ddof=1)) if len(v) > 1 else math.nan for name, v in gains.items()}
    return sorted(((n, float(np.mean(v)), spread[n]) for n, v in gains.items()), key=lambda entry: -entry[1])


def short(data: str) -> str:
    """The name of a data set without where it comes from."""
    return data.partition(":")[2]
