"""How well four models with a decoder reconstruct and generate images   (SimVAE, Table 7 and Figure 10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probssl.report import figures
from probssl.report import page as html
from probssl.studies import pictures, simvae_models, simvae_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, row_of
from probssl.studies.simvae_content import CODE, SCALES, SEEDS, of_model, title, trained_on
from probssl.studies.simvae_models import GENERATIVE, SETS, model_config
from probssl.studies.simvae_trials import SHOWN
from probssl.training.files import write_text

MEASURING: dict[Budget, dict[str, int]] = {
    "smoke": {"fitted": 200, "test": 60, "samples": 40, "classifier": 1, "draws": 2},
    "laptop": {"fitted": 20_000, "test": 2_000, "samples": 2_000, "classifier": 3, "draws": 50},
    "full": {"fitted": 60_000, "test": 10_000, "samples": 10_000, "classifier": 10, "draws": 100},
}
"""Training images whose latents the normals are fitted to; test images; new images; epochs of the classifier whose
features sets are compared by; draws of the likelihood's bound."""

FLOOR = "training images"
"""What a perfect generator would reach: training images in place of new ones."""


class Generation(Study):
    """Four models on every set: errors of reconstructions, distances of new images, and nats."""

    name = "simvae/generation"
    paper = "SimVAE, Table 7 and Figure 10"
    claim = "SimVAE reconstructs and generates a little better than other variational autoencoders"
    laptop = "2 min after simvae/content, whose models it uses"
    code = CODE

    def configs(self, budget: Budget) -> list[Config]:
        return [
            {"model": model_config(data, method, seed, SCALES[budget]), **MEASURING[budget]}
            for seed in range(SEEDS[budget])
            for data in trained_on(budget)
            for method in GENERATIVE
        ]

    def prepare(self, budget: Budget) -> None:
        for name in trained_on(budget):
            simvae_models.images_of(name)

    def batches(self, configs: list[Config], jobs: int) -> list[list[Config]]:
        return [[config] for config in configs]

    def trial(self, config: Config) -> Result:
        return simvae_trials.generation(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for data in trained_on(budget):
            floors: dict[str, list[float]] = {}
            for method in GENERATIVE:
                found = of_model(results, data, method)
                setting = f"{SETS[data]}, {method}"
                rows.append(row_of(self.name, setting, "MSE", [result["MSE"] for result in found], budget))
                rows.append(row_of(self.name, setting, "log p(x), nats", [result["bound"] for result in found], budget))
                for name in found[0]["distances"] if found else ():
                    values = [result["distances"][name] for result in found]
                    rows.append(row_of(self.name, setting, name, values, budget))
                    floors.setdefault(name, []).extend(result["floor"][name] for result in found[:1])
            for name, values in floors.items():
                rows.append(row_of(self.name, f"{SETS[data]}, {FLOOR}", name, values[:1], budget))
        return rows

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        sets = trained_on(budget)
        shown = pictures.save(out, {f"drawn-{data}": figure(results, data) for data in sets})
        measuring = MEASURING[budget]
        notes = (
            f"{measuring['samples']:,} new images, latents drawn from one normal a class fitted to those of "
            f"{measuring['fitted']:,} training images, against {measuring['test']:,} test images. FD is the Fréchet "
            "distance by the features named; published FIDs are of Inception's, on another scale. log p(x) is a lower "
            f"bound by {measuring['draws']} importance-weighted draws, the latents' law being the fitted one."
        )
        sections = [
            html.section(SETS[data], table(rows, data) + shown[f"drawn-{data}"], notes if not place else "")
            for place, data in enumerate(sets)
        ]
        told = {SETS[data]: lowest(rows, data) for data in sets}
        good = all(found == {"SimVAE"} for found in told.values())
        least = "; ".join(f"{name}: {' and '.join(map(title, sorted(found)))}" for name, found in told.items())
        lead = (
            f"{html.badge('SimVAE is ahead' if good else 'SimVAE is not ahead everywhere', good)} &nbsp;It is if the "
            "error of its reconstructions is the lowest, and no other method within one standard deviation of it. "
            f"The lowest are {html.escape(least)}."
        )
        page = out / "index.html"
        write_text(page, html.page("SimVAE: reconstruction and generation", lead, sections))
        return page


def lowest(rows: list[Row], data: str) -> set[str]:
    """The methods with the lowest error of reconstructions, up to its standard deviation over seeds."""
    errors = {row.setting: row for row in rows if row.metric == "MSE"}
    named = {method: errors.get(f"{SETS[data]}, {method}") for method in GENERATIVE}
    found = {method: row for method, row in named.items() if row is not None}
    values = {method: row.value for method, row in found.items() if row.value is not None}
    if not values:
        return set()
    best = min(values, key=values.__getitem__)
    return {method for method, value in values.items() if value <= values[best] + (found[best].spread or 0.0)}


def table(rows: list[Row], data: str) -> str:
    """Methods below each other, metrics side by side."""
    here = [row for row in rows if row.setting.startswith(f"{SETS[data]}, ")]
    metrics = list(dict.fromkeys(row.metric for row in here))
    found = {(row.setting.split(", ", 1)[1], row.metric): row for row in here}

    def cell(row: Row | None) -> str:
        if row is None or row.value is None:
            return "–"
        ours = f"{row.value:.4g}" + ("" if row.spread is None else f" ± {row.spread:.2g}")
        return ours if row.published is None else f"{ours} ({row.published:g})"

    body = [
        [title(method), *(cell(found.get((method, metric))) for metric in metrics)] for method in (*GENERATIVE, FLOOR)
    ]
    return html.table(["published in brackets", *metrics], body)


def figure(results: Results, data: str) -> Any:
    """New images of every method, a column each class; seed 0."""
    shape = simvae_models.images_of(data).shape
    sheets = {method: found[0]["shown"] for method in GENERATIVE if (found := of_model(results, data, method))}
    drawn, axes = figures.new_figure(2.6 * len(sheets), 1.6, len(sheets))
    for axis, (method, text) in zip(np.atleast_1d(axes), sheets.items(), strict=True):
        images = pictures.of_text(text, shape).reshape(SHOWN, -1, *shape)
        rows = [np.concatenate(list(row.transpose(0, 2, 3, 1)), axis=1) for row in images]
        sheet = np.concatenate(rows, axis=0)
        axis.imshow(sheet.squeeze(-1) if shape[0] == 1 else sheet, cmap="gray", vmin=0, vmax=255)
        axis.set_title(title(method), fontsize=9, color=figures.INK, loc="left")
        axis.set_axis_off()
    return drawn
