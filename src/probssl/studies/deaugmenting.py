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
from typing import TYPE_CHECKING, Any

from probssl.data import load_table
from probssl.report import figures
from probssl.studies import deaugmenting_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study
from probssl.studies.deaugmenting_grid import (
    FAMILIES,
    MAIN,
    PROBE,
    RANKME,
    SCALE,
    SCORES,
    UNTRAINED,
    WITHOUT_DENSITY,
    Scale,
    Setting,
)
from probssl.studies.deaugmenting_points import (
    ALL,
    DENSITIES,
    NO_FISHER,
    POOLED,
    Correlation,
    Point,
    correlations,
    mean_gains,
    points,
    with_gains,
)
from probssl.studies.page import Page, Picture, Section, Table, csv_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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

    def cohort(self, config: Config) -> Any:
        """One data set and seed: models of one shape."""
        return config["data"], config["seed"]

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        found = points(with_gains(results))
        return rows_of_points(found, correlations(found))

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        return page(with_gains(results), SCALE[budget])


def rows_of_points(found: Sequence[Point], related: Sequence[Correlation]) -> list[Row]:
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


def short(data: str) -> str:
    """The name of a data set without where it comes from."""
    return data.partition(":")[2]


FAMILY = {objective: family for family, objectives in FAMILIES.items() for objective in objectives}
COLOUR = dict(zip(FAMILIES, (*figures.PALETTE[:3], figures.PALETTE[4], figures.INK), strict=True))
MARKER = {"euclidean": "o", "cosine": "s", "euclidean, own encoder": "^"}


def marker_of(setting: Setting) -> str:
    """By its energy."""
    return MARKER[setting.name.partition(" ")[2]]


def figure_scatter(found: Sequence[Point], name: str, x: str) -> Figure:
    """Probe against a score, one panel a data set; hollow where some seed collapsed, dashed the untrained encoder."""
    data = list(dict.fromkeys(p.data for p in found))
    figure, axes = figures.panels([short(one) for one in data], 3.6, 3.2, 3, x=x, y="linear probe")
    for axis, one in zip(axes, data, strict=True):
        for p in (p for p in found if p.data == one and p.seeds):
            colour, probe = COLOUR[FAMILY[p.setting.objective]], p.mean["linear_probe"]
            axis.errorbar(
                p.mean[name],
                probe,
                yerr=p.spread["linear_probe"],
                marker=marker_of(p.setting),
                markersize=6.5,
                color=colour,
                markerfacecolor="white" if p.collapsed else colour,
                markeredgewidth=1.3,
                elinewidth=0.8,
                alpha=0.85,
            )
            if p.setting.objective == UNTRAINED:
                axis.axhline(probe, color=figures.MUTED, linewidth=0.8, linestyle="--", zorder=0)
        if name == "kl_exact_model":
            log_scale(axis)
    present = {FAMILY[p.setting.objective] for p in found}
    names: dict[str, Any] = {family: colour for family, colour in COLOUR.items() if family in present}
    for label, marker in MARKER.items():
        names[label] = {"linestyle": "", "color": figures.MUTED, "marker": marker}
    if any(p.collapsed for p in found):
        names["collapsed"] = figures.HOLLOW
    figures.legend(figure, names, marker="D", columns=5)
    return figure


def log_scale(axis: Any) -> None:
    """A log scale with plain numbers on it, however short it is."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_xscale("log")
    low, high = axis.get_xlim()
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 3) if high > 8 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)))
    axis.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    axis.xaxis.set_minor_locator(NullLocator())


def number(value: float, digits: int = 2) -> str:
    """With so many decimals, unless it is large; a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:.3g}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def with_spread(mean: float, spread: float, digits: int = 2) -> str:
    """A mean ± its spread, where there is one."""
    return number(mean, digits) + ("" if math.isnan(spread) else f" ± {number(spread, digits)}")


def correlation_table(related: Sequence[Correlation], models: str) -> Table:
    """Scores by data sets."""
    some = [c for c in related if c.models == models]
    data = list(dict.fromkeys(c.data for c in some))
    cells = {(c.score, c.data): with_spread(c.rho, c.error) for c in some}
    count = {c.data: c.points for c in some}
    head = ["score", *[f"{short(d) or d} ({count[d]})" for d in data]]
    body = [[score.title, *[cells[score, d] for d in data]] for score in dict.fromkeys(c.score for c in some)]
    return Table(head, body, strong=1)


COLUMNS = (PROBE, *(s for s in SCORES if s.name in ("kl_exact_model", "kl_model_exact", "top1", "top5", "ece")), RANKME)


def data_table(found: Sequence[Point]) -> Table:
    """Settings by scores on one data set, and the exact posterior below them."""
    body = [
        [
            p.setting.name,
            *[with_spread(p.mean[c.name], p.spread[c.name], 1 if c is RANKME else 3) for c in COLUMNS],
            number(p.mean["effective_candidates"], 1),
            ", ".join(f"{n} {what}" for n, what in ((p.failed, "failed"), (p.collapsed, "collapsed")) if n) or "–",
        ]
        for p in sorted(found, key=lambda p: -p.mean["gain"] if p.seeds else math.inf)
    ]
    any_point = next(p for p in found if p.seeds).mean
    exact = ["exact posterior", "", "0", "0", *[f"{any_point[f'exact_{n}']:.3f}" for n in ("top1", "top5", "ece")], ""]
    exact += [f"{any_point['exact_effective_candidates']:.1f}", ""]
    return Table(["model", *[c.title for c in COLUMNS], "effective candidates", "seeds"], [*body, exact])


def page(trials: Results, scale: Scale) -> Page:
    """Figures, correlations, and all scores by data set, from trials with gains."""
    found = points(trials)
    related = correlations(found)
    planned, after = (
        ", ".join(
            f"{c.score.title} {number(c.rho)}"
            for c in related
            if c.data == POOLED and c.models == models and c.score.name in MAIN
        )
        for models in (DENSITIES, NO_FISHER)
    )
    lead = (
        "A model q(x | x̃) ∝ p(x) exp(−δ) says which row an augmentation came from, and the exact posterior says it "
        "better. Do models that say it well have the better representations? Spearman’s ρ with the probe, within data "
        f"sets, over models that are log-densities: {planned}; without the two Fisher losses: {after}."
    )
    seeds = f"{scale.seeds} seed{'s' if scale.seeds > 1 else ''} from 0, {scale.steps:,} steps each"
    without = ", ".join(WITHOUT_DENSITY)
    notes = {
        DENSITIES: (
            "ρ is positive where a model that is better by the score has the better probe, relative to the untrained "
            "encoder; in brackets the number of models. Pooled: ranks within data sets, ± standard deviation over "
            "draws of settings. Width error: |log(effective candidates / exact)|. RankMe, higher taken as better, is "
            "the rival."
        ),
        NO_FISHER: (
            "Added after the first results: how much rests on losses that come last on most tables by score and probe?"
        ),
        ALL: f"With {without}: top-k only.",
    }
    kl = Picture("probe-kl", figure_scatter(found, "kl_exact_model", "KL(exact ‖ model), nats"))
    sections = [
        Section("Probe and divergence", kl, note=f"Mean and spread over {seeds}."),
        *(Section(f"Rank correlations: {m}", correlation_table(related, m), note=note) for m, note in notes.items()),
        Section("Probe and top-1", Picture("probe-top1", figure_scatter(found, "top1", "top-1"))),
    ]
    for data in dict.fromkeys(p.data for p in found):
        text = f"Mean ± standard deviation over {seeds}, best probe first. Of {without} read top-k only."
        sections.append(Section(short(data), data_table([p for p in found if p.data == data]), note=text))
    files = {"correlations.csv": correlations_csv(related)}
    return Page("Undoing augmentations and representing", lead, sections, files=files)


def correlations_csv(related: Sequence[Correlation]) -> str:
    """A line a correlation."""
    lines = [[c.models, c.data, c.score.name, blank(c.rho), blank(c.error), c.points] for c in related]
    return csv_text(["models", "data", "score", "rho", "bootstrap_sd", "points"], lines)


def blank(value: float) -> float | str:
    """Nothing where there is no number."""
    return "" if math.isnan(value) else value
