"""Images that a model has not seen: how well five methods tell them, by three scores   (GEDI Tables 5, 11 and 12)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probssl.model.density import SCORES
from probssl.report import figures
from probssl.report import page as html
from probssl.studies import gedi_ood_trials, pictures
from probssl.studies.base import Budget, Config, Result, Results, Row, row_of
from probssl.studies.gedi_images import MEASURING, SCALES, SEEDS, OnImages, trained_on
from probssl.studies.gedi_images_page import COLOURS, left_out, of_model, scale_notes
from probssl.studies.gedi_models import METHODS, SETS, UNTRAINED, model_config
from probssl.studies.gedi_ood_trials import MADE
from probssl.grids.versions import code_version
from probssl.training.files import write_text

ALL = (*METHODS, UNTRAINED)
TEST = {"smoke": 100, "laptop": 1_000, "full": 26_032}
"""Test images of either side, at most."""

PUBLISHED_SCORE = "score norm"
"""s(x) = −‖∂ log p(x)/∂x‖, the score of the paper's tables."""


def outside(data: str, budget: Budget) -> list[str]:
    """What a model of a set is tested against: every other set there is, and made-up images."""
    others = ("fashion-mnist",) if budget == "smoke" else trained_on(budget)
    return [*(name for name in others if name != data), *MADE]


class GediOOD(OnImages):
    """The models of `gedi/images`, an untrained one, and the sets they were not trained on."""

    name = "gedi/ood"
    paper = "GEDI, Tables 5, 11 and 12"
    claim = "with its generative term GEDI tells images of other sets better than without"
    laptop = "20 to 25 min, 3 after gedi/images"

    def configs(self, budget: Budget) -> list[Config]:
        return [
            {
                "model": model_config(data, method, seed, SCALES[budget]),
                "outside": outside(data, budget),
                "test": TEST[budget],
            }
            for seed in range(SEEDS[budget])
            for data in trained_on(budget)
            for method in ALL
        ]

    def trial(self, config: Config) -> Result:
        return gedi_ood_trials.trial(config, code_version(self))

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for data in trained_on(budget):
            for other in outside(data, budget):
                for method in ALL:
                    setting = f"{SETS[data]} against {SETS.get(other, other)}, {method}"
                    for score in SCORES:
                        values = [found["auroc"] for found in detections(results, data, other, method, score)]
                        rows.append(row_of(self.name, setting, f"AUROC of the {score}", values, budget))
        return rows

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        pairs = [(data, other) for data in trained_on(budget) for other in outside(data, budget)]
        shown = pictures.save(out, {"auroc": figure_auroc(results, pairs)})
        effects = {pair: effect(results, *pair, PUBLISHED_SCORE) for pair in pairs}
        better = sum(found == "better" for found in effects.values())
        worse = sum(found == "worse" for found in effects.values())
        good = better > worse and worse == 0
        lead = (
            f"{html.badge('claim holds' if good else 'claim does not hold everywhere', good)} &nbsp;By the score norm "
            f"GEDI tells images better than GEDI no gen in {better} of {len(pairs)} pairs of sets and worse in "
            f"{worse}; in the others their intervals overlap. It is better, or worse, where the 95 % intervals over "
            "test images of all its seeds lie above, or below, all of the other's: that is the rule."
        )
        notes = scale_notes(SCALES[budget], {**MEASURING[budget], "test": TEST[budget]}, SEEDS[budget])
        sections = [
            html.section("AUROC", shown["auroc"], f"A mark a seed, with its 95 % interval over test images. {notes}"),
            html.section("GEDI beside GEDI no gen", _effects_table(results, pairs)),
            *(html.section(f"AUROC of the {score}", _table(results, rows, pairs, score)) for score in SCORES),
            html.section("Left out", html.escape(left_out() or "Nothing: all five sets are here.")),
        ]
        page = out / "index.html"
        write_text(page, html.page("GEDI and images it has not seen", lead, sections))
        return page


def detections(results: Results, data: str, other: str, method: str, score: str) -> list[dict[str, float]]:
    """AUROC and interval of one score of one method for a pair of sets, a seed each."""
    return [found["detections"][other][score] for found in of_model(results, data, method)]


def effect(results: Results, data: str, other: str, score: str) -> str:
    """What the generative term does to an AUROC: better, worse or no clear difference, over all seeds of both sides."""
    ours, theirs = (detections(results, data, other, method, score) for method in ("GEDI", "GEDI no gen"))
    if not ours or not theirs:
        return "not known"
    if min(found["low"] for found in ours) > max(found["high"] for found in theirs):
        return "better"
    if max(found["high"] for found in ours) < min(found["low"] for found in theirs):
        return "worse"
    return "no clear difference"


def figure_auroc(results: Results, pairs: list[tuple[str, str]]) -> Any:
    """AUROC of every method for every pair of sets, a panel a score."""
    figure, axes = figures.new_figure(10.0, 1.2 + 0.42 * len(pairs), len(SCORES), sharey=True)
    colours = {**COLOURS, UNTRAINED: figures.MUTED}
    for axis, score in zip(axes, SCORES, strict=True):
        axis.axvline(0.5, color=figures.MUTED, linewidth=0.8, linestyle=":")
        for place, pair in enumerate(pairs):
            for number, (method, colour) in enumerate(colours.items()):
                for found in detections(results, *pair, method, score):
                    y = place + 0.13 * (number - (len(colours) - 1) / 2)
                    axis.hlines(y, found["low"], found["high"], color=colour, linewidth=1)
                    axis.plot(found["auroc"], y, "o", color=colour, markersize=3.5)
            if place % 2:
                axis.axhspan(place - 0.5, place + 0.5, color=figures.MUTED, alpha=0.07, linewidth=0)
        axis.set_title(f"AUROC of the {score}", fontsize=9, color=figures.INK, loc="left")
        axis.set_xlim(-0.02, 1.02)
    names = [f"{SETS[data]} / {SETS.get(other, other)}" for data, other in pairs]
    axes[0].set_yticks(range(len(pairs)), names)
    axes[0].set_ylim(len(pairs) - 0.5, -0.5)
    handles = [axes[0].plot([], [], "o", color=colour, markersize=4, label=name)[0] for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    return figure


def _effects_table(results: Results, pairs: list[tuple[str, str]]) -> str:
    body = [
        [f"{SETS[data]} against {SETS.get(other, other)}", *(effect(results, data, other, score) for score in SCORES)]
        for data, other in pairs
    ]
    return html.table(["trained on", *SCORES], body)


def _table(results: Results, rows: list[Row], pairs: list[tuple[str, str]], score: str) -> str:
    published = {row.setting: row.published for row in rows if row.metric == f"AUROC of the {score}"}
    body = []
    for data, other in pairs:
        pair = f"{SETS[data]} against {SETS.get(other, other)}"
        cells = []
        for method in ALL:
            found = detections(results, data, other, method, score)
            printed = published.get(f"{pair}, {method}")
            cell = "–" if not found else _interval(found)
            cells.append(cell if printed is None else f"{cell} (published {printed:g})")
        body.append([pair, *cells])
    return html.table(["trained on", *ALL], body)


def _interval(found: list[dict[str, float]]) -> str:
    """The mean over seeds, and the least and largest end of their intervals."""
    mean = np.mean([one["auroc"] for one in found])
    return f"{mean:.3f} [{min(one['low'] for one in found):.2f}, {max(one['high'] for one in found):.2f}]"
