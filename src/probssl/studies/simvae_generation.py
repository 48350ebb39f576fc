"""How well four models with a decoder reconstruct and generate images   (SimVAE, Table 7 and Figure 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probssl.report import figures, tiles
from probssl.studies import pictures, simvae_models, simvae_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, rows_of, where
from probssl.studies.page import Page, Picture, Section, pivot
from probssl.studies.simvae_content import OnImages, title
from probssl.studies.simvae_models import GENERATIVE, SETS
from probssl.studies.simvae_trials import SHOWN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURING: dict[Budget, dict[str, int]] = {
    "smoke": {"fitted": 200, "test": 60, "samples": 40, "classifier": 1, "draws": 2},
    "laptop": {"fitted": 20_000, "test": 2_000, "samples": 2_000, "classifier": 3, "draws": 50},
    "full": {"fitted": 60_000, "test": 10_000, "samples": 10_000, "classifier": 10, "draws": 100},
}
"""Training images whose latents the normals are fitted to; test images; new images; epochs of the classifier whose
features sets are compared by; draws of the likelihood's bound."""

FLOOR = "training images"
"""What a perfect generator would reach: training images in place of new ones."""


class Generation(OnImages):
    """Four models on every set: errors of reconstructions, distances of new images, and nats."""

    name = "simvae/generation"
    paper = "SimVAE, Table 7 and Figure 10"
    claim = "SimVAE reconstructs and generates a little better than other variational autoencoders"
    laptop = "2 min after simvae/content, whose models it uses"
    weights_from = "simvae/content"
    methods = GENERATIVE
    measuring = MEASURING

    def trial(self, config: Config) -> Result:
        model = simvae_models.trained(config["model"], self.kept_weights(config["model"]))
        return simvae_trials.generation(config, model)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for data in self.sets(budget):
            floors = []
            for method in GENERATIVE:
                trials = where(results, data=data, method=method)
                found = [{"MSE": r["MSE"], "log p(x), nats": r["bound"], **r["distances"]} for r in trials]
                metrics = list(found[0]) if found else ["MSE", "log p(x), nats"]
                rows += rows_of(self.name, f"{SETS[data]}, {method}", found, metrics, budget)
                floors += [result["floor"] for result in trials]
            if floors:
                rows += rows_of(self.name, f"{SETS[data]}, {FLOOR}", floors[:1], list(floors[0]), budget)
        return rows

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        measuring = MEASURING[budget]
        note = (
            f"{measuring['samples']:,} new images, latents drawn from one normal a class fitted to those of "
            f"{measuring['fitted']:,} training images, against {measuring['test']:,} test images. FD is the Fréchet "
            "distance by the features named; published FIDs are of Inception's, on another scale. log p(x) is a lower "
            f"bound by {measuring['draws']} importance-weighted draws, the latents' law being the fitted one."
        )
        sections: list[Section] = []
        for data in self.sets(budget):
            settings = {**self.settings(data), f"{SETS[data]}, {FLOOR}": FLOOR}
            metrics = list(dict.fromkeys(row.metric for row in rows if row.setting in settings))
            picture = Picture(f"drawn-{data}", figure(results, data))
            sections.append(Section(SETS[data], picture, pivot(rows, settings, metrics), note="" if sections else note))
        least = {SETS[data]: lowest(rows, data) for data in self.sets(budget)}
        good = all(methods == ["SimVAE"] for methods in least.values())
        lead = (
            "It is ahead if the error of its reconstructions is the lowest, and no other method within one standard "
            "deviation of it. The lowest are "
            + "; ".join(f"{name}: {' and '.join(map(title, methods))}" for name, methods in least.items())
            + "."
        )
        verdict = ("SimVAE is ahead" if good else "SimVAE is not ahead everywhere", good)
        return Page("SimVAE: reconstruction and generation", lead, sections, verdict)


def lowest(rows: list[Row], data: str) -> list[str]:
    """The methods with the lowest error of reconstructions, up to its standard deviation over seeds."""
    errors = {row.setting: row for row in rows if row.metric == "MSE"}
    named = {method: errors.get(f"{SETS[data]}, {method}") for method in GENERATIVE}
    found = {method: (row.value, row.spread) for method, row in named.items() if row and row.value is not None}
    if not found:
        return []
    best, spread = min(found.values(), key=lambda error: error[0])
    return sorted(method for method, (value, _) in found.items() if value <= best + (spread or 0.0))


def figure(results: Results, data: str) -> Figure:
    """New images of every method, a column each class; seed 0."""
    drawn, axes = figures.panels([title(method) for method in GENERATIVE], 2.6, 1.6)
    shape = simvae_models.images_of(data).shape
    for axis, method in zip(axes, GENERATIVE, strict=True):
        figures.bare(axis)
        for result in where(results, data=data, method=method)[:1]:
            axis.imshow(tiles.sheet(pictures.of_text(result["shown"], shape).reshape(SHOWN, -1, *shape)))
    return drawn
