"""How well four models with a decoder reconstruct and generate images   (SimVAE, Table 7 and Figure 10)."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probssl.decoding import decoded, latent_prior, log_likelihood, posteriors
from probssl.encoders import as_floats
from probssl.metrics.generation import Extractor, pixel_components, reconstruction_error, trained_features
from probssl.pictures import as_bytes
from probssl.report import figures
from probssl.report import page as html
from probssl.studies import pictures, simvae_models
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, row_of
from probssl.studies.simvae_content import SCALES, SEEDS, of_model, title, trained_on
from probssl.studies.simvae_models import GENERATIVE, SETS, model_config
from probssl.training.files import write_text

MEASURING: dict[Budget, dict[str, int]] = {
    "smoke": {"fitted": 200, "test": 60, "samples": 40, "classifier": 1, "draws": 2},
    "laptop": {"fitted": 20_000, "test": 2_000, "samples": 2_000, "classifier": 3, "draws": 50},
    "full": {"fitted": 60_000, "test": 10_000, "samples": 10_000, "classifier": 10, "draws": 100},
}
"""Training images whose latents the normals are fitted to; test images; new images; epochs of the classifier whose
features sets are compared by; draws of the likelihood's bound."""

CLASSIFIER_ROWS = 10_000
SHOWN = 5
"""New images of a class in the figure."""

FLOOR = "training images"
"""What a perfect generator would reach: training images in place of new ones."""


@functools.cache
def extractors(data: str, rows: int, epochs: int) -> tuple[Extractor, Extractor]:
    """Features of a classifier trained here, which stands in for Inception, and principal components of pixels."""
    found = simvae_models.images_of(data)
    assert found.train_labels is not None
    images = simvae_models.pixels(data, found.train[:rows])
    flat = as_floats(images[:1_000]).numpy()
    return trained_features(images, found.train_labels[:rows], epochs=epochs), pixel_components(flat, 32)


def trial(config: Config) -> Result:
    """Reconstruct test images, bound their likelihood, and draw new ones class by class."""
    chosen = config["model"]
    data = chosen["data"]
    model = simvae_models.trained(chosen)
    objective, encoder = model.generative, model.encoder
    assert objective is not None
    found = simvae_models.images_of(data)
    assert found.train_labels is not None
    fitted = simvae_models.pixels(data, found.train[: config["fitted"]])
    labels = torch.from_numpy(np.array(found.train_labels[: config["fitted"]]))
    test = simvae_models.pixels(data, found.test[: config["test"]])
    again = decoded(objective, posteriors(objective, encoder, test)[0], found.shape)
    prior = latent_prior(objective, encoder, fitted, labels=labels, seed=chosen["seed"])
    z, _ = prior.sample(config["samples"], torch.Generator().manual_seed(chosen["seed"]))
    new = decoded(objective, z, found.shape).clamp(0, 1)
    bound = log_likelihood(objective, encoder, test, prior=prior, samples=config["draws"])
    shown = [
        prior.sample(SHOWN, torch.Generator().manual_seed(0), component=group)[0] for group in range(len(prior.names))
    ]
    columns = torch.stack([decoded(objective, part, found.shape).clamp(0, 1) for part in shown], 1)
    return {
        "MSE": reconstruction_error(as_floats(test).numpy(), again.numpy()).per_value,
        "bound": float(bound.mean()),
        "distances": distances(new, config),
        "floor": distances(as_floats(fitted[: config["samples"]]), config),
        "shown": pictures.as_text(as_bytes(columns.flatten(0, 1))),
    }


def distances(images: Tensor, config: Config) -> dict[str, float]:
    """The Fréchet distance of images from test images, by both features."""
    data = config["model"]["data"]
    real = as_floats(simvae_models.pixels(data, simvae_models.images_of(data).test[: config["test"]])).numpy()
    rows = min(CLASSIFIER_ROWS, config["model"]["rows"])
    return {
        extractor.title: extractor.distance(images.numpy(), real)
        for extractor in extractors(data, rows, config["classifier"])
    }


class Generation(Study):
    """Four models on every set: errors of reconstructions, distances of new images, and nats."""

    name = "simvae/generation"
    paper = "SimVAE, Table 7 and Figure 10"
    claim = "SimVAE reconstructs and generates a little better than other variational autoencoders"
    laptop = "about 10 min after simvae/content, whose models it uses"
    code = ("probssl.studies.styles", "probssl.studies.simvae_models", "probssl.studies.simvae_generation")

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
        return trial(config)

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
        page = out / "index.html"
        write_text(page, html.page("SimVAE: reconstruction and generation", html.escape(self.claim), sections))
        return page


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
