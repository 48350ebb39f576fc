"""Figures, tables and the page of the studies on sprites."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from probssl.report import figures
from probssl.studies.base import Config, Result, Results, Row, where
from probssl.studies.comparison import Published, published, references
from probssl.studies.page import Page, Picture, Section, Table
from probssl.studies.sprites_trials import BASELINES, DIM, SpritePairs
from probssl.worlds.sprites import Sprites, tile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from probssl.studies.sprites import Sprite

NAMES = Sprites.names


def numbers(results: Results, setting: str, metric: str) -> list[float]:
    """One number of every finished trial of a setting; one that could not be trained has none."""
    found = [result.get("numbers", result) for result in where(results, setting=setting)]
    return [measured[metric] for measured in found if metric in measured]


def page(study: Sprite, results: Results, rows: list[Row], scale: Config) -> Page:
    """What the paper says, every score, and what the codes of the best setting do."""
    size, seeds = scale["size"], len({config["seed"] for config, _ in results})
    lead = (
        f"{study.paper}. Pairs of {size} × {size} images, drawn by formula and not those of dSprites; an "
        f"encoder of {DIM} codes, convolutions of {', '.join(map(str, scale['widths']))} channels, "
        f"{scale['steps']:,} steps of {scale['batch']} pairs; {seeds} seed{'s' if seeds > 1 else ''}."
    )
    verdicts = [row.verdict for row in rows if row.value is not None and row.published is not None]
    counted = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    kinds = tuple(dict.fromkeys(loss.transition for loss in study.losses))
    sections = [
        Section(
            "Pairs", Picture("pairs", figure_pairs(kinds, size)), note="The second image of a pair is below the first."
        ),
        Section("What the paper says", Table(["", "published", "here"], claims(study, results), text=True)),
        Section(
            "Scores",
            score_table(study, results),
            note="Per cent. Median and median absolute deviation over seeds, as in the paper's Table 2; Tables 3 and 4 "
            f"print mean and standard deviation. By the rule, which takes means: {counted}. DCI here is by a "
            f"{scale['dci']}, there by boosting. The factors themselves are the most that a score can show.",
        ),
        Section(
            "Every seed",
            Picture("scores", figure_scores(study, results)),
            note="Dots: one seed each. Diamonds: published, with their spread.",
        ),
        Section(
            "Factors that the codes reveal",
            factor_table(study, results),
            note="Held-out accuracy of a forest, in per cent. Orientation cannot be read off a square beyond a quarter "
            "turn, nor off an ellipse beyond a half.",
        ),
        *codes(study, results),
        Section(
            "Training",
            Picture("losses", figure_losses(study, results, scale["batch"])),
            note="Nats that each weighted term is above its least value, 0 and −α log n; one line a seed.",
        ),
    ]
    return Page(study.name, lead, sections)


def codes(study: Sprite, results: Results) -> list[Section]:
    """What single codes do, of all settings and in detail of the one with the largest median MIG, where it is known."""
    migs = {loss.setting: numbers(results, loss.setting, "MIG") for loss in study.losses}
    best = max((s for s, v in migs.items() if v), key=lambda s: statistics.median(migs[s]), default=None)
    known = with_curves(study, results)
    if best not in known:
        return []
    return [
        Section(
            "Codes and factors",
            Picture("shares", figure_shares(known)),
            note="Share of a code's variance that one factor explains.",
        ),
        Section(
            f"{best}, code by code",
            Picture("curves", figure_curves(known[best])),
            note="The setting of the largest median MIG, its first seed. Columns: codes; rows: factors, over their "
            "range; a band of one deviation over all that the other factors do; blue where the factor leads.",
        ),
    ]


def with_curves(study: Sprite, results: Results) -> dict[str, Result]:
    """The first seed of every loss, and of the untrained encoder, whose codes were looked at on the grid."""
    settings = (*(loss.setting for loss in study.losses), BASELINES[0])
    found = {s: [result for result in where(results, setting=s) if "curves" in result] for s in settings}
    return {setting: several[0] for setting, several in found.items() if several}


# Figures


def figure_pairs(kinds: Sequence[str], size: int) -> Figure:
    """Twelve pairs of every kind, the second image below the first."""
    figure, axes = figures.panels(kinds, 9.6, 1.85, 1)
    for axis, kind in zip(axes, kinds, strict=True):
        source, generator = SpritePairs(kind, size), torch.Generator().manual_seed(0)
        before = source.factors(12, generator)
        both = torch.cat([before, source.move(before, generator)])
        axis.imshow(tile(source.sprites.render(both), columns=12).numpy(), cmap="gray", vmin=0, vmax=1)
        figures.bare(axis)
    return figure


def figure_scores(study: Sprite, results: Results) -> Figure:
    """One panel a metric: every seed of ours as a dot, the published median or mean as a diamond with its spread."""
    known = references(study.name)
    settings = [*(loss.setting for loss in study.losses), *BASELINES]
    figure, axes = figures.panels(study.metrics, 2.85, 0.32 * len(settings) + 0.9, 4, sharey=True)
    for axis, metric in zip(axes, study.metrics, strict=True):
        entries = {setting: known[setting, metric] for setting in settings if (setting, metric) in known}
        figures.strips(
            axis,
            {setting: numbers(results, setting, metric) for setting in settings},
            {setting: (entry.value, entry.spread) for setting, entry in entries.items()},
            dict.fromkeys(BASELINES, figures.MUTED),
        )
        axis.set_xlim(min(0.0, axis.get_xlim()[0]), None)
    return figure


def _leading(shares: np.ndarray) -> np.ndarray:
    """The order of codes by the factor that explains most of each, and by how much; of shares [k, factors]."""
    return np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))


def figure_shares(known: Mapping[str, Result]) -> Figure:
    """How much of each code's variance one factor alone explains, setting by setting."""
    figure, axes = figures.panels([s.replace(", AlignUniform", "\n") for s in known], 2.2, 3.3)
    for axis, found in zip(axes, known.values(), strict=True):
        shares = np.array(found["shares"])
        shown = axis.imshow(shares[_leading(shares)], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_xticks(range(len(NAMES)), NAMES, fontsize=7, rotation=60)
        axis.set_yticks([])
    axes[0].set_ylabel("codes, by the factor that explains most", fontsize=8)
    figure.colorbar(shown, ax=axes, shrink=0.8).ax.tick_params(labelsize=7)
    return figure


def figure_curves(found: Result) -> Figure:
    """Every code (column) against every factor (row): mean and one deviation over all that the others do."""
    shares = np.array(found["shares"])
    order = _leading(shares)
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


def figure_losses(study: Sprite, results: Results, batch: int) -> Figure:
    """What the loss still has to gain, by term: weighted alignment, and uniformity above −α log n; one line a seed."""
    titles = [loss.setting.replace(", AlignUniform", " ") for loss in study.losses]
    figure, axes = figures.panels(titles, 2.2, 2.2, x="step")
    for axis, loss in zip(axes, study.losses, strict=True):
        histories = [result["history"] for result in where(results, setting=loss.setting) if result["history"]]
        least = -loss.alpha * math.log(batch)
        terms = {  # of rows of step, loss, alignment, uniformity, rankme
            "uniformity": [[(row[0], row[3] - least) for row in history] for history in histories],
            "alignment": [[(row[0], row[2]) for row in history] for history in histories],
        }
        figures.lines(axis, terms, legend=axis is axes[0], linewidth=0.9)
        axis.set_yscale("log")
        axis.tick_params(which="both", labelsize=7, colors=figures.MUTED)
    return figure


# Tables


def score_table(study: Sprite, results: Results) -> Table:
    """Ours above the published numbers, setting by setting, in per cent: median and absolute deviation."""
    known = references(study.name)
    body = []
    for setting in (*dict.fromkeys(setting for setting, _ in known), *BASELINES):
        ours = [numbers(results, setting, metric) for metric in study.metrics]
        if any(ours):
            body.append([setting, "here", *(_ours(values) for values in ours)])
        theirs = [known.get((setting, metric)) for metric in study.metrics]
        if any(theirs):
            body.append([setting, "published", *(_theirs(entry) for entry in theirs)])
    return Table(["setting", "", *study.metrics], body)


def _ours(values: Sequence[float]) -> str:
    if not values:
        return "–"
    centre = statistics.median(values)
    return f"{100 * centre:.1f} ({100 * statistics.median(abs(value - centre) for value in values):.1f})"


def _theirs(entry: Published | None) -> str:
    if entry is None:
        return "–"
    return f"{100 * entry.value:.1f}" + ("" if entry.spread is None else f" ({100 * entry.spread:.1f})")


def factor_table(study: Sprite, results: Results) -> Table:
    """How well a forest reads each factor off all codes, median over seeds, beside guessing."""
    body = []
    for setting in (*(loss.setting for loss in study.losses), *BASELINES):
        found = [r["informativeness"] for r in where(results, setting=setting) if "informativeness" in r]
        if found:
            body.append([setting, *(f"{100 * value:.0f}" for value in np.median(np.array(found), axis=0))])
    guessing = ["guessing", *(f"{100 / count:.0f}" for count in results[0][0]["grid"])]
    return Table(["setting", *NAMES], [*body, guessing])


def rising(study: Sprite, known: Mapping[tuple[str, str], float]) -> dict[str, list[str]]:
    """For every kind of pairs with several α: the metrics whose numbers (setting, metric) never fall as α rises."""
    found: dict[str, list[str]] = {}
    for kind in dict.fromkeys(loss.transition for loss in study.losses):
        losses = sorted((x for x in study.losses if x.transition == kind), key=lambda x: x.alpha)
        if len({x.alpha for x in losses}) > 1:
            values = {metric: [known.get((x.setting, metric), math.nan) for x in losses] for metric in study.metrics}
            found[kind] = [m for m, several in values.items() if all(a <= b for a, b in itertools.pairwise(several))]
    return found


def claims(study: Sprite, results: Results) -> list[list[str]]:
    """What the paper says of its table, and what both tables say."""
    there = published(study.name)
    settings = [loss.setting for loss in study.losses]
    ours = {(s, metric): numbers(results, s, metric) for s in settings for metric in study.metrics}
    sides = there, {key: statistics.median(values) for key, values in ours.items() if values}
    printed = {metric for _, metric in there}
    body = []
    for kind in rising(study, there):
        cells = [", ".join(m for m in rising(study, side)[kind] if m in printed) or "none" for side in sides]
        body.append([f"{kind}: scores that never fall as α rises", *cells])
    for setting in settings:
        if setting.startswith("LAP"):
            cells = [_per_cent(side.get((setting, "BetaVAE score"))) for side in sides]
            body.append([f"BetaVAE score of {setting}", *cells])
    for kind in ("discrete", "continuous"):
        pair = [x.setting for x in sorted(study.losses, key=lambda x: x.p) if x.transition == kind]
        if pair:
            cells = [" against ".join(_per_cent(side.get((s, "MCC"))) for s in pair) for side in sides]
            body.append([f"{kind}: MCC of p = 1 against p = 2", *cells])
    return body


def _per_cent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
