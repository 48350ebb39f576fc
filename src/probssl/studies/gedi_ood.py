"""Images that a model has not seen: how well five methods tell them, by three scores   (GEDI Tables 5, 11 and 12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from probssl.model.density import SCORES
from probssl.report import figures
from probssl.studies import gedi_images_trials, gedi_models
from probssl.studies.base import Budget, Config, Result, Results, Row, row_of, where
from probssl.studies.gedi_images import COLOURS, SCALES, SEEDS, OnImages, left_out, scale_notes, trained_on
from probssl.studies.gedi_models import METHODS, SETS, UNTRAINED, model_config
from probssl.studies.page import Page, Picture, Section, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = (*METHODS, UNTRAINED)
TEST = {"smoke": 100, "laptop": 1_000, "full": 26_032}
"""Test images of either side, at most."""

PUBLISHED_SCORE = "score norm"
"""s(x) = −‖∂ log p(x)/∂x‖, the score of the paper's tables."""


def outside(data: str, budget: Budget) -> list[str]:
    """What a model of a set is tested against: every other set there is, and made-up images."""
    others = ("fashion-mnist",) if budget == "smoke" else trained_on(budget)
    return [*(name for name in others if name != data), *gedi_images_trials.MADE]


def versus(data: str, other: str) -> str:
    """The name of a pair of sets, as published."""
    return f"{SETS[data]} against {SETS.get(other, other)}"


class GediOOD(OnImages):
    """The models of `gedi/images`, an untrained one, and the sets they were not trained on."""

    name = "gedi/ood"
    paper = "GEDI, Tables 5, 11 and 12"
    claim = "with its generative term GEDI tells images of other sets better than without"
    laptop = "20 to 25 min, 3 after gedi/images"
    weights_from = "gedi/images"

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
        model = gedi_models.trained(config["model"], self.kept_weights(config["model"]))
        return gedi_images_trials.ood_trial(config, model)

    def pairs(self, budget: Budget) -> list[tuple[str, str]]:
        """Sets trained on, and what each is tested against."""
        return [(data, other) for data in trained_on(budget) for other in outside(data, budget)]

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for pair in self.pairs(budget):
            for method in ALL:
                for score in SCORES:
                    values = [found["auroc"] for found in detections(results, *pair, method, score)]
                    rows.append(
                        row_of(self.name, f"{versus(*pair)}, {method}", f"AUROC of the {score}", values, budget)
                    )
        return rows

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        pairs = self.pairs(budget)
        effects = [effect(results, *pair, PUBLISHED_SCORE) for pair in pairs]
        better, worse = effects.count("better"), effects.count("worse")
        good = better > worse and worse == 0
        lead = (
            f"By the score norm GEDI tells images better than GEDI no gen in {better} of {len(pairs)} pairs of sets "
            f"and worse in {worse}; in the others their intervals overlap. It is better, or worse, where the 95 % "
            "intervals over test images of all its seeds lie above, or below, all of the other's: that is the rule."
        )
        notes = scale_notes(budget, TEST[budget]) + left_out()
        beside = [[versus(*pair), *(effect(results, *pair, score) for score in SCORES)] for pair in pairs]
        auroc = Picture("auroc", figure_auroc(results, pairs))
        sections = [
            Section("AUROC", auroc, note=f"A mark a seed, with its 95 % interval over test images. {notes}"),
            Section("GEDI beside GEDI no gen", Table(["trained on", *SCORES], beside)),
            *(Section(f"AUROC of the {score}", score_table(results, rows, pairs, score)) for score in SCORES),
        ]
        verdict = "claim holds" if good else "claim does not hold everywhere"
        return Page("GEDI and images it has not seen", lead, sections, (verdict, good))


def detections(results: Results, data: str, other: str, method: str, score: str) -> list[dict[str, float]]:
    """AUROC and interval of one score of one method for a pair of sets, a seed each."""
    return [found["detections"][other][score] for found in where(results, data=data, method=method)]


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


def figure_auroc(results: Results, pairs: list[tuple[str, str]]) -> Figure:
    """AUROC of every method for every pair of sets, a panel a score."""
    titles = [f"AUROC of the {score}" for score in SCORES]
    drawn, axes = figures.panels(titles, 3.3, 1.2 + 0.42 * len(pairs), sharey=True)
    colours = {**COLOURS, UNTRAINED: figures.MUTED}
    for axis, score in zip(axes, SCORES, strict=True):
        axis.axvline(0.5, color=figures.MUTED, linewidth=0.8, linestyle=":")
        for place, pair in enumerate(pairs):
            for number, (method, colour) in enumerate(colours.items()):
                height = place + 0.13 * (number - (len(colours) - 1) / 2)
                for found in detections(results, *pair, method, score):
                    axis.hlines(height, found["low"], found["high"], color=colour, linewidth=1)
                    axis.plot(found["auroc"], height, "o", color=colour, markersize=3.5)
            if place % 2:
                axis.axhspan(place - 0.5, place + 0.5, color=figures.MUTED, alpha=0.07, linewidth=0)
        axis.set_xlim(-0.02, 1.02)
    axes[0].set_yticks(range(len(pairs)), [versus(*pair).replace(" against ", " / ") for pair in pairs])
    axes[0].set_ylim(len(pairs) - 0.5, -0.5)
    figures.legend(drawn, colours)
    return drawn


def score_table(results: Results, rows: list[Row], pairs: list[tuple[str, str]], score: str) -> Table:
    """The mean over seeds, the least and largest end of their intervals, and what is published."""
    published = {row.setting: row.published for row in rows if row.metric == f"AUROC of the {score}"}

    def cell(pair: tuple[str, str], method: str) -> str:
        found, printed = detections(results, *pair, method, score), published.get(f"{versus(*pair)}, {method}")
        if not found:
            return "–"
        low, high = min(one["low"] for one in found), max(one["high"] for one in found)
        ours = f"{np.mean([one['auroc'] for one in found]):.3f} [{low:.2f}, {high:.2f}]"
        return ours if printed is None else f"{ours} (published {printed:g})"

    return Table(["trained on", *ALL], [[versus(*pair), *(cell(pair, method) for method in ALL)] for pair in pairs])
