"""Figures, tables and the page of `siamese/deaugmenting`."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from probssl.report import figures
from probssl.report import page as html
from probssl.studies import pictures
from probssl.studies.deaugmenting import ALL, DENSITIES, NO_FISHER, POOLED, Correlation, Point, short
from probssl.studies.deaugmenting_grid import (
    FAMILIES,
    MAIN,
    MEASURES,
    PROBE,
    RANKME,
    SCORES,
    UNTRAINED,
    WITHOUT_DENSITY,
    Scale,
    Score,
    Setting,
    Trial,
)
from probssl.training.files import write_text

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


def _page(found: Sequence[Point], related: Sequence[Correlation], shown: dict[str, str], scale: Scale) -> str:
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
        html.section("Probe and divergence", shown["probe-kl"], f"Mean and spread over {seeds}."),
        html.section(f"Rank correlations: {DENSITIES}", _correlation_table(related, DENSITIES), note),
        html.section(f"Rank correlations: {NO_FISHER}", _correlation_table(related, NO_FISHER), afterwards),
        html.section(f"Rank correlations: {ALL}", _correlation_table(related, ALL), f"With {without}: top-k only."),
        html.section("Probe and top-1", shown["probe-top1"]),
    ]
    for data in dict.fromkeys(p.data for p in found):
        text = f"Mean ± standard deviation over {seeds}, best probe first. Of {without} read top-k only."
        sections.append(html.section(short(data), _data_table([p for p in found if p.data == data]), text))
    return html.page("Undoing augmentations and representing", lead, sections)


def write(
    trials: Sequence[Trial], found: Sequence[Point], related: Sequence[Correlation], scale: Scale, out: Path
) -> Path:
    """Tables of trials and correlations, figures and the page into `out`; returns the page."""
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
    page = out / "index.html"
    write_text(page, _page(found, related, pictures.save(out, drawn), scale))
    return page
