"""From trials of `siamese/deaugmenting` to settings on data sets, and how their scores go with the probe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probssl.errors import InputError
from probssl.studies.base import Result, Results
from probssl.studies.deaugmenting_grid import FAMILIES, MEASURES, SCORES, UNTRAINED, WITHOUT_DENSITY, Score, Setting


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


def with_gains(results: Results) -> Results:
    """`gain` among the numbers: the probe less that of the untrained encoder on the same data from the same seed."""
    base = {
        (config["data"], config["seed"]): result["numbers"]["linear_probe"]
        for config, result in results
        if config["objective"] == UNTRAINED
    }
    found = []
    for config, result in results:
        numbers = dict(result["numbers"])
        if numbers:
            numbers["gain"] = numbers["linear_probe"] - base[config["data"], config["seed"]]
        found.append((config, {**result, "numbers": numbers}))
    return found


def points(results: Results) -> list[Point]:
    """Trials with gains, gathered over seeds, in the order in which data sets and settings first come."""
    gathered: dict[tuple[str, Setting], list[Result]] = {}
    for config, result in results:
        gathered.setdefault((config["data"], Setting.of(config)), []).append(result)
    found = []
    for (data, setting), several in gathered.items():
        values = {m: np.array([r["numbers"][m] for r in several if r["numbers"]]) for m in MEASURES}
        count = len(values["gain"])
        mean = {m: float(v.mean()) if count else math.nan for m, v in values.items()}
        spread = {m: float(v.std(ddof=1)) if count > 1 else math.nan for m, v in values.items()}
        failed, collapsed = (sum(r["state"].startswith(what) for r in several) for what in ("failed", "collapsed"))
        found.append(Point(data, setting, mean, spread, count, failed, collapsed))
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


def mean_gains(found: Sequence[Point]) -> list[tuple[str, float, float]]:
    """Trained settings by their mean gain over data sets, largest first, with the standard deviation over these."""
    gains: dict[str, list[float]] = {}
    for p in found:
        if p.setting.objective != UNTRAINED and p.seeds:
            gains.setdefault(p.setting.name, []).append(p.mean["gain"])
    spread = {name: float(np.std(v, ddof=1)) if len(v) > 1 else math.nan for name, v in gains.items()}
    return sorted(((n, float(np.mean(v)), spread[n]) for n, v in gains.items()), key=lambda entry: -entry[1])
