"""Figures, tables and the page of the studies on sprites."""

from __future__ import annotations

import csv
import io
import itertools
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from probssl.report import figures
from probssl.report import page as html
from probssl.studies import pictures
from probssl.studies.base import Budget, Config, Result, Results, Row
from probssl.studies.comparison import Published, references
from probssl.studies.sprites_trials import BASELINES, DIM, SpritePairs
from probssl.training.files import write_text
from probssl.worlds.sprites import Sprites, tile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from probssl.studies.sprites import Sprite

NAMES = Sprites.names


def draw(study: Sprite, results: Results, rows: list[Row], scale: Config, budget: Budget, out: Path) -> Path:
    """Write `trials.csv`, the figures and the page; returns the page."""
    write_text(out / "trials.csv", _csv(study, results))
    kinds = tuple(dict.fromkeys(loss.transition for loss in study.losses))
    drawn = {"pairs": figure_pairs(kinds, scale["size"]), "scores": figure_scores(study, results)}
    drawn["losses"] = figure_losses(study, results)
    best = best_setting(study, results)
    found = None if best is None else first(results, best)
    if found is not None:
        drawn |= {"shares": figure_shares(study, results), "curves": figure_curves(found)}
    shown = pictures.save(out, drawn)
    page = out / "index.html"
    write_text(page, _page(study, results, rows, scale, budget, shown, best))
    return page


def numbers(results: Results, setting: str, metric: str) -> list[float]:
    """One number of every finished trial of a setting; one that could not be trained has none."""
    found = [result for config, result in results if config["setting"] == setting]
    return [result["numbers"][metric] for result in found if metric in result["numbers"]]


def first(results: Results, setting: str) -> Result | None:
    """The result of a setting's first seed that has curves."""
    return next((r for config, r in results if config["setting"] == setting and "curves" in r), None)


def best_setting(study: Sprite, results: Results) -> str | None:
    """The loss whose median MIG is the largest: the one to look into."""
    found = {loss.setting: numbers(results, loss.setting, "MIG") for loss in study.losses}
    return max((s for s, v in found.items() if v), key=lambda s: statistics.median(found[s]), default=None)


def middle(values: Sequence[float]) -> tuple[float, float]:
    """Median and median absolute deviation."""
    centre = statistics.median(values)
    return centre, statistics.median(abs(value - centre) for value in values)


# Figures


def figure_pairs(kinds: Sequence[str], size: int) -> Figure:
    """Twelve pairs of every kind, the second image below the first."""
    figure, axes = figures.new_figure(9.6, 1.85 * len(kinds), 1, len(kinds))
    for axis, kind in zip(axes, kinds, strict=True):
        source, generator = SpritePairs(kind, size), torch.Generator().manual_seed(0)
        before = source.factors(12, generator)
        both = torch.cat([before, source.move(before, generator)])
        axis.imshow(tile(source.sprites.render(both), columns=12).numpy(), cmap="gray", vmin=0, vmax=1)
        axis.set_title(kind, fontsize=9, color=figures.INK, loc="left")
        axis.set_axis_off()
    return figure


def figure_scores(study: Sprite, results: Results) -> Figure:
    """One panel a metric: every seed of ours as a dot, the published median or mean as a diamond with its spread."""
    known = references(study.name)
    settings = [*(loss.setting for loss in study.losses), *BASELINES]
    columns = 4
    lines = -(-len(study.metrics) // columns)
    figure, axes = figures.new_figure(11.4, 0.32 * len(settings) * lines + 0.9 * lines, columns, lines, sharey=True)
    for axis, metric in zip(axes, study.metrics, strict=False):
        for height, setting in enumerate(settings):
            colour = figures.MUTED if setting in BASELINES else figures.PALETTE[0]
            values = numbers(results, setting, metric)
            axis.scatter(values, [height - 0.12] * len(values), s=16, color=colour, linewidths=0, alpha=0.8)
            published = known.get((setting, metric))
            if published is not None:
                axis.errorbar(
                    published.value,
                    height + 0.18,
                    xerr=published.spread,
                    marker="D",
                    markersize=4,
                    color=figures.PALETTE[1],
                    elinewidth=1,
                )
        axis.set_yticks(range(len(settings)), settings, fontsize=7)
        axis.set_ylim(len(settings) - 0.5, -0.5)
        axis.set_xlim(min(0.0, axis.get_xlim()[0]), None)
        axis.set_title(metric, fontsize=9, color=figures.INK, loc="left")
    for axis in axes[len(study.metrics) :]:
        axis.set_visible(False)
    return figure


def figure_shares(study: Sprite, results: Results) -> Figure:
    """How much of each code's variance one factor alone explains: the first seed of every loss that has a grid."""
    settings = [s for s in (*(loss.setting for loss in study.losses), BASELINES[0]) if first(results, s) is not None]
    figure, axes = figures.new_figure(2.05 * len(settings) + 0.6, 3.3, len(settings))
    for axis, setting in zip(axes, settings, strict=True):
        found = first(results, setting)
        assert found is not None
        shares = np.array(found["shares"])
        order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
        shown = axis.imshow(shares[order], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_xticks(range(len(NAMES)), NAMES, fontsize=7, rotation=60)
        axis.set_yticks([])
        axis.set_title(setting.replace(", AlignUniform", "\n"), fontsize=8, color=figures.INK, loc="left")
    axes[0].set_ylabel("codes, by the factor that explains most", fontsize=8)
    figure.colorbar(shown, ax=list(axes), shrink=0.8).ax.tick_params(labelsize=7)
    return figure


def figure_curves(found: Result) -> Figure:
    """Every code (column) against every factor (row): mean and one deviation over all that the others do."""
    shares = np.array(found["shares"])
    order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
    figure, axes = figures.new_figure(1.05 * len(order) + 0.4, 5.2, len(order), len(NAMES), sharey=True)
    for row, (name, curve) in enumerate(zip(NAMES, found["curves"], strict=True)):
        mean, spread = (np.array(part) for part in curve)  # [values, k]
        for column, code in enumerate(order):
            axis = axes[row * len(order) + column]
            line, band, places = mean[:, code], spread[:, code], np.arange(len(mean))
            strong = shares[code].argmax() == row and shares[code, row] > 0.1
            colour = figures.PALETTE[0] if strong else figures.MUTED
            axis.fill_between(places, line - band, line + band, color=colour, alpha=0.2, linewidth=0)
            axis.plot(places, line, color=colour, linewidth=1.3)
            axis.set_xticks([])
            axis.tick_params(labelsize=6)
        axes[row * len(order)].set_ylabel(name, fontsize=8)
    for column, code in enumerate(order):
        axes[column].set_title(f"code {code + 1}", fontsize=7, color=figures.INK)
    return figure


def figure_losses(study: Sprite, results: Results) -> Figure:
    """What the loss still has to gain, by term: weighted alignment, and uniformity above −α log n; one line a seed."""
    figure, axes = figures.new_figure(2.2 * len(study.losses), 2.2, len(study.losses))
    for axis, loss in zip(axes, study.losses, strict=True):
        for config, result in results:
            if config["setting"] == loss.setting and result["history"]:
                step, _, alignment, uniformity, _ = np.array(result["history"]).T
                above = uniformity + loss.alpha * math.log(config["batch"])
                axis.plot(step, alignment, color=figures.PALETTE[1], linewidth=0.9, label="alignment")
                axis.plot(step, above, color=figures.PALETTE[0], linewidth=0.9, label="uniformity")
        axis.set_yscale("log")
        axis.tick_params(which="both", labelsize=7, colors=figures.MUTED)
        axis.set_title(loss.setting.replace(", AlignUniform", " "), fontsize=8, color=figures.INK, loc="left")
        axis.set_xlabel("step", fontsize=8)
    handles, labels = axes[0].get_legend_handles_labels()
    axes[0].legend(handles[:2], labels[:2], fontsize=7, frameon=False)
    return figure


# Page


def score_table(study: Sprite, results: Results) -> tuple[list[str], list[list[str]]]:
    """Ours above the published numbers, setting by setting, in per cent: median and absolute deviation."""
    known = references(study.name)
    settings = [*dict.fromkeys(setting for setting, _ in known), *BASELINES]
    body = []
    for setting in settings:
        ours = {metric: numbers(results, setting, metric) for metric in study.metrics}
        if any(ours.values()):
            body.append([setting, "here", *(_ours(values) for values in ours.values())])
        if any((setting, metric) in known for metric in study.metrics):
            cells = [_theirs(known.get((setting, metric))) for metric in study.metrics]
            body.append([setting, "published", *cells])
    return ["setting", "", *study.metrics], body


def _ours(values: Sequence[float]) -> str:
    return "–" if not values else "{:.1f} ({:.1f})".format(*(100 * v for v in middle(values)))


def _theirs(entry: Published | None) -> str:
    if entry is None:
        return "–"
    return f"{100 * entry.value:.1f}" + ("" if entry.spread is None else f" ({100 * entry.spread:.1f})")


def factor_table(study: Sprite, results: Results) -> tuple[list[str], list[list[str]]]:
    """How well a forest tells each factor from all codes, median over seeds, beside guessing."""
    body = []
    for setting in (*(loss.setting for loss in study.losses), *BASELINES):
        found = [r["informativeness"] for c, r in results if c["setting"] == setting and "informativeness" in r]
        if found:
            body.append([setting, *(f"{100 * value:.0f}" for value in np.median(np.array(found), axis=0))])
    grid = results[0][0]["grid"]
    return ["setting", *NAMES], [*body, ["guessing", *(f"{100 / count:.0f}" for count in grid)]]


def rising(study: Sprite, value: Any) -> dict[str, list[str]]:
    """For every kind of pairs with several α: the metrics whose `value(setting, metric)` never falls as α rises."""
    found: dict[str, list[str]] = {}
    for kind in dict.fromkeys(loss.transition for loss in study.losses):
        losses = sorted((x for x in study.losses if x.transition == kind), key=lambda x: x.alpha)
        if len({x.alpha for x in losses}) < 2:
            continue
        found[kind] = []
        for metric in study.metrics:
            values = [value(x.setting, metric) for x in losses]
            if None not in values and all(a <= b for a, b in itertools.pairwise(values)):
                found[kind].append(metric)
    return found


def claims(study: Sprite, results: Results) -> list[list[str]]:
    """What the paper says of its table, and what both tables say."""
    known = references(study.name)

    def ours(setting: str, metric: str) -> float | None:
        values = numbers(results, setting, metric)
        return statistics.median(values) if values else None

    def theirs(setting: str, metric: str) -> float | None:
        entry = known.get((setting, metric))
        return None if entry is None else entry.value

    body = []
    here, there = rising(study, ours), rising(study, theirs)
    for kind in here:
        said = [", ".join(m for m in side[kind] if m in _published_metrics(study)) or "none" for side in (there, here)]
        body.append([f"{kind}: scores that never fall as α rises", *said])
    for loss in study.losses:
        entry, mean = theirs(loss.setting, "BetaVAE score"), ours(loss.setting, "BetaVAE score")
        if loss.transition == "LAP" and entry is not None:
            shown = "–" if mean is None else f"{100 * mean:.1f}"
            body.append([f"BetaVAE score of {loss.setting}", f"{100 * entry:.1f}", shown])
    for kind in ("discrete", "continuous"):
        pair = [x.setting for x in sorted(study.losses, key=lambda x: x.p) if x.transition == kind]
        if len(pair) == 2:
            said = [" against ".join(_per_cent(side(s, "MCC")) for s in pair) for side in (theirs, ours)]
            body.append([f"{kind}: MCC of p = 1 against p = 2", *said])
    return body


def _per_cent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _published_metrics(study: Sprite) -> set[str]:
    return {metric for _, metric in references(study.name)}


def _csv(study: Sprite, results: Results) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["setting", "seed", *study.metrics, *(f"informativeness of {name}" for name in NAMES), "collapsed"])
    for config, result in results:
        told = result.get("informativeness", [""] * len(NAMES))
        found = [result["numbers"].get(metric, "") for metric in study.metrics]
        writer.writerow([config["setting"], config["seed"], *found, *told, " ".join(result["collapsed"])])
    return buffer.getvalue()


def _page(
    study: Sprite,
    results: Results,
    rows: list[Row],
    scale: Config,
    budget: Budget,
    shown: dict[str, str],
    best: str | None,
) -> str:
    size, seeds = scale["size"], len({config["seed"] for config, _ in results})
    lead = (
        f"{html.escape(study.paper)}. Pairs of {size} × {size} images, drawn by formula and not those of dSprites; an "
        f"encoder of {DIM} codes, convolutions of {', '.join(map(str, scale['widths']))} channels, "
        f"{scale['steps']:,} steps of {scale['batch']} pairs; {seeds} seed{'s' if seeds > 1 else ''}."
    )
    verdicts = [row.verdict for row in rows if row.value is not None and row.published is not None]
    counted = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    sections = [
        html.section("Pairs", shown["pairs"], "The second image of each pair stands below the first."),
        html.section("What the paper says", html.table(["", "published", "here"], claims(study, results))),
        html.section(
            "Scores",
            html.table(*score_table(study, results)),
            "Per cent. Median and median absolute deviation over seeds, as in the paper's Table 2; Tables 3 and 4 "
            f"print mean and standard deviation. By the rule, which takes means: {counted}. DCI here is by a "
            f"{scale['dci']}, there by boosting. The factors themselves are the most that a score can show.",
        ),
        html.section("Every seed", shown["scores"], "Dots: one seed each. Diamonds: published, with their spread."),
        html.section(
            "Which factors the codes tell of",
            html.table(*factor_table(study, results)),
            "Held-out accuracy of a forest, in per cent. Orientation cannot be read off a square beyond a quarter "
            "turn, nor off an ellipse beyond a half.",
        ),
    ]
    if best is not None and "curves" in shown:
        sections += [
            html.section("Codes and factors", shown["shares"], "Share of a code's variance that one factor explains."),
            html.section(
                f"{best}, code by code",
                shown["curves"],
                "The setting of the largest median MIG, its first seed. Columns: codes; rows: factors, over their "
                "range; a band of one deviation over all that the other factors do; blue where the factor leads.",
            ),
        ]
    sections.append(
        html.section(
            "Training",
            shown["losses"],
            "Nats that each weighted term is above its least value, 0 and −α log n; one line a seed.",
        )
    )
    return html.page(study.name, lead, sections)
