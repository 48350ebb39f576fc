"""Does undoing augmentations well mean representing well?

Siamese-EBM (appendix A.3) knows of no metric for how well q(x | x̃) ∝ p(x) e^{−δ(x, x̃)} undoes an augmentation;
`probssl.metrics.deaugment` is one. Here every objective with the Euclidean and the cosine energy is trained on two
circles (the settings of `siamese/circles`) and on five tables (the library's recipe), and the scores of its posterior
are set against the accuracy of a linear probe, by rank correlations within each data set. RankMe is the rival.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probssl.data import load
from probssl.errors import InputError
from probssl.report import figures
from probssl.report import page as html
from probssl.studies.base import Budget, Row
from probssl.studies.deaugmenting_trials import (
    FAMILIES,
    MAIN,
    MEASURES,
    PROBE,
    RANKME,
    SCALE,
    SCORES,
    UNTRAINED,
    WITHOUT_DENSITY,
    Scale,
    Score,
    Setting,
    Trial,
    trial,
)
from probssl.training.files import atomic_path, write_text

NAME = "siamese/deaugmenting"

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
        raise InputError(f"as many values as groups are needed, not {len(a)}, {len(b)} and {len(groups)}.")
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


# Figures and the page

FAMILY = {objective: family for family, objectives in FAMILIES.items() for objective in objectives}
COLOUR = dict(zip(FAMILIES, (*figures.PALETTE[:3], figures.PALETTE[4], figures.INK), strict=True))
MARKER = {"euclidean": "o", "cosine": "s", "euclidean, own encoder": "^"}


def _marker(setting: Setting) -> str:
    return MARKER[setting.name.partition(" ")[2]]


def figure_scatter(found: Sequence[Point], score: Score, *, log: bool) -> Any:
    """Probe against a score, one panel a data set; hollow where some seed collapsed, dashed the untrained encoder."""
    from matplotlib.lines import Line2D

    data = list(dict.fromkeys(p.data for p in found))
    columns = min(3, len(data))
    lines = -(-len(data) // columns)
    figure, axes = figures.new_figure(3.5 * columns + 0.4, 2.9 * lines + 0.9, columns, lines)
    for axis, name in zip(axes, data, strict=False):
        for p in (p for p in found if p.data == name and p.seeds):
            colour = COLOUR[FAMILY[p.setting.objective]]
            axis.errorbar(
                p.mean[score.name],
                p.mean["linear_probe"],
                yerr=None if math.isnan(p.spread["linear_probe"]) else p.spread["linear_probe"],
                marker=_marker(p.setting),
                markersize=6.5,
                color=colour,
                markerfacecolor="white" if p.collapsed else colour,
                markeredgewidth=1.3,
                elinewidth=0.8,
                alpha=0.85,
            )
            if p.setting.objective == UNTRAINED:
                axis.axhline(p.mean["linear_probe"], color=figures.MUTED, linewidth=0.8, linestyle="--", zorder=0)
        if log:
            _log_scale(axis)
        axis.set_title(short(name), fontsize=10, color=figures.INK, loc="left")
    for axis in axes[len(data) :]:
        axis.set_visible(False)
    for axis in axes[max(len(data) - columns, 0) : len(data)]:
        axis.set_xlabel("KL(exact ‖ model), nats" if score.name == "kl_exact_model" else score.title, fontsize=9)
    for axis in axes[::columns]:
        axis.set_ylabel("linear probe", fontsize=9)

    def key(label: str, colour: str, marker: str, face: str | None = None) -> Line2D:
        return Line2D([], [], linestyle="", marker=marker, color=colour, markerfacecolor=face or colour, label=label)

    present = {FAMILY[p.setting.objective] for p in found}
    keys = [key(family, colour, "D") for family, colour in COLOUR.items() if family in present]
    keys += [key(label, figures.MUTED, marker) for label, marker in MARKER.items()]
    if any(p.collapsed for p in found):
        keys.append(key("collapsed", figures.MUTED, "o", "white"))
    figure.legend(handles=keys, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    return figure


def _log_scale(axis: Any) -> None:
    """A log scale with plain numbers on it, however short it is."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_xscale("log")
    low, high = axis.get_xlim()
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 3) if high > 8 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)))
    axis.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    axis.xaxis.set_minor_locator(NullLocator())


def _number(value: float, digits: int = 2) -> str:
    return "–" if math.isnan(value) else f"{value:.3g}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def _with_spread(p: Point, name: str, digits: int) -> str:
    spread = p.spread[name]
    return _number(p.mean[name], digits) + ("" if math.isnan(spread) else f" ± {_number(spread, digits)}")


def _csv(head: Sequence[str], lines: Iterator[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    for line in lines:
        writer.writerow(["" if isinstance(v, float) and math.isnan(v) else v for v in line])
    return buffer.getvalue()


def _correlation_table(related: Sequence[Correlation], models: str) -> str:
    some = [c for c in related if c.models == models]
    data = list(dict.fromkeys(c.data for c in some))
    cells = {(c.score, c.data): _number(c.rho) + ("" if math.isnan(c.error) else f" ± {c.error:.2f}") for c in some}
    count = {c.data: c.points for c in some}
    head = ["score", *[f"{short(d) or d} ({count[d]})" for d in data]]
    body = [[score.title, *[cells[score, d] for d in data]] for score in dict.fromkeys(c.score for c in some)]
    return html.table(head, body, strong_column=1)


COLUMNS = (PROBE, *(s for s in SCORES if s.name in ("kl_exact_model", "kl_model_exact", "top1", "top5", "ece")), RANKME)


def _data_table(found: Sequence[Point]) -> str:
    body = [
        [
            p.setting.name,
            *[_with_spread(p, column.name, 1 if column is RANKME else 3) for column in COLUMNS],
            _number(p.mean["effective_candidates"], 1),
            ", ".join(f"{n} {what}" for n, what in ((p.failed, "failed"), (p.collapsed, "collapsed")) if n) or "–",
        ]
        for p in sorted(found, key=lambda p: -p.mean["gain"] if p.seeds else math.inf)
    ]
    any_point = next(p for p in found if p.seeds).mean
    exact = ["exact posterior", "", "0", "0", *[f"{any_point[f'exact_{n}']:.3f}" for n in ("top1", "top5", "ece")], ""]
    exact += [f"{any_point['exact_effective_candidates']:.1f}", ""]
    return html.table(["model", *[c.title for c in COLUMNS], "effective candidates", "seeds"], [*body, exact])


def _page(found: Sequence[Point], related: Sequence[Correlation], drawn: dict[str, Any], scale: Scale) -> str:
    planned, after = (
        ", ".join(
            f"{c.score.title} {_number(c.rho)}"
            for c in related
            if c.data == POOLED and c.models == models and c.score.name in MAIN
        )
        for models in (DENSITIES, NO_FISHER)
    )
    lead = (
        "A model q(x | x̃) ∝ p(x) e<sup>−δ</sup> says which row an augmentation came from, and the exact posterior says "
        "it better. Do models that say it well have the better representations? Spearman’s ρ with the probe, within "
        f"data sets, over models that are log-densities: {planned}; without the two Fisher losses: {after}."
    )
    seeds = f"{scale.seeds} seed{'s' if scale.seeds > 1 else ''} from 0, {scale.steps:,} steps each"
    note = (
        "ρ is positive where a model that is better by the score has the better probe, relative to the untrained "
        "encoder; in brackets the number of models. Pooled: ranks within data sets, ± standard deviation over draws of "
        "settings. Width error: |log(effective candidates / exact)|. RankMe, higher taken as better, is the rival."
    )
    without = ", ".join(WITHOUT_DENSITY)
    afterwards = (
        "Added after the first results: how much rests on losses that come last on most tables by score and probe?"
    )
    sections = [
        html.section("Probe and divergence", figures.png(drawn["probe-kl"]), f"Mean and spread over {seeds}."),
        html.section(f"Rank correlations: {DENSITIES}", _correlation_table(related, DENSITIES), note),
        html.section(f"Rank correlations: {NO_FISHER}", _correlation_table(related, NO_FISHER), afterwards),
        html.section(f"Rank correlations: {ALL}", _correlation_table(related, ALL), f"With {without}: top-k only."),
        html.section("Probe and top-1", figures.png(drawn["probe-top1"])),
    ]
    for data in dict.fromkeys(p.data for p in found):
        text = f"Mean ± standard deviation over {seeds}, best probe first. Of {without} read top-k only."
        sections.append(html.section(short(data), _data_table([p for p in found if p.data == data]), text))
    return html.page("Undoing augmentations and representing", lead, sections)


def run(budget: Budget, out: Path, *, quiet: bool = False) -> tuple[list[Row], Path]:
    """Every setting on every data set over the seeds of the budget; tables, figures and a page into `out`."""
    scale = SCALE[budget]
    for data in scale.data:
        load(data)  # here, or it does not run at all
    tasks = [(d, setting, seed) for seed in range(scale.seeds) for d in scale.data for setting in scale.settings]
    done = sorted(_all(tasks, scale.steps, quiet), key=lambda t: tasks.index((t.data, t.setting, t.seed)))
    trials = with_gains(done)
    found = points(trials)
    related = correlations(found)
    what = ("data", "objective", "energy", "asymmetry")
    parts = [(dataclasses.astuple(t.setting), t) for t in trials]
    lines = ([t.data, *s, t.seed, t.state, *[t.numbers.get(m, math.nan) for m in MEASURES]] for s, t in parts)
    write_text(out / "trials.csv", _csv([*what, "seed", "state", *MEASURES], lines))
    head = ["models", "data", "score", "rho", "bootstrap_sd", "points"]
    listed = ([c.models, c.data, c.score.name, c.rho, c.error, c.points] for c in related)
    write_text(out / "correlations.csv", _csv(head, listed))
    score = {s.name: s for s in SCORES}
    drawn = {
        "probe-kl": figure_scatter(found, score["kl_exact_model"], log=True),
        "probe-top1": figure_scatter(found, score["top1"], log=False),
    }
    for name, figure in drawn.items():
        with atomic_path(out / f"{name}.png") as temporary:
            figure.savefig(temporary, format="png", dpi=160)
    page = out / "index.html"
    write_text(page, _page(found, related, drawn, scale))
    return rows(found, related), page


def _all(tasks: list[tuple[str, Setting, int]], steps: int, quiet: bool) -> Iterator[Trial]:
    """Every trial, on all cores, with a progress bar unless quiet."""
    import joblib
    from rich.console import Console
    from rich.progress import track

    jobs = min(joblib.cpu_count(), len(tasks))
    work = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(
        joblib.delayed(trial)(data, setting, seed, steps) for data, setting, seed in tasks
    )
    yield from track(
        work, f"{NAME}: {steps:,} steps each", total=len(tasks), console=Console(stderr=True), disable=quiet
    )
