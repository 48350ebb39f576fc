"""AnInfoNCE on images that the decoder of a VAE draws  (AnInfoNCE F, Figure 3).

Ten latents on the sphere become digits by the decoder of a VAE that was trained on MNIST; an encoder of the pixels
sees pairs of digits whose latents are close, some of them (content) closer than others (style), and nothing else. R²
is that of an affine map from its codes to the latents, on rows the map was not fitted on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probssl.data.mnist import mnist
from probssl.metrics import concentration_error
from probssl.report import figures
from probssl.report import page as html
from probssl.studies import mnist_vae_trials, pictures
from probssl.studies.base import Budget, Config, Result, Results, Row
from probssl.studies.comparison import references, verdict
from probssl.studies.mnist_decoder import DIM
from probssl.studies.mnist_vae_trials import LOSSES, SHOWN_CONCENTRATIONS
from probssl.studies.recovery import RecoveryStudy
from probssl.training.files import write_text

CODE = ("probssl.studies.mnist_vae_trials", "probssl.studies.mnist_decoder", "probssl.studies.recovery")
VAES: dict[Budget, dict[str, Any]] = {
    "smoke": {"epochs": 1, "hidden": 32, "rows": 2_000, "seed": 0},
    "laptop": {"epochs": 10, "hidden": 256, "rows": 60_000, "seed": 0},
    "full": {"epochs": 50, "hidden": 400, "rows": 60_000, "seed": 0},
}
STEPS = {"smoke": 20, "laptop": 3_000, "full": 20_000}
SEEDS = {"smoke": 1, "laptop": 2, "full": 5}
NEIGHBOURS = {"smoke": 500, "laptop": 10_000, "full": 60_000}
"""Training images among which k-NN looks."""

STYLE, MIDDLE = 5.0, 25.0
CONTENT: dict[Budget, tuple[float, ...]] = {
    "smoke": (5.0, 25.0),
    "laptop": (5.0, 25.0, 100.0),
    "full": (5.0, 10.0, 25.0, 50.0, 100.0, 200.0),
}
LARGEST: dict[Budget, tuple[float, ...]] = {"smoke": (50.0,), "laptop": (50.0, 200.0), "full": (50.0, 200.0)}
MIXINGS = ("decoder", "MLP")
COLOURS = dict(zip(LOSSES, figures.PALETTE, strict=False))
MEASURES = {"linear R²": "r2", "content R²": "content", "style R²": "style", "k-NN accuracy": "knn"}
ERROR = "largest error of Λ̂"


class _OnDigits(RecoveryStudy):
    """What both studies share."""

    code = CODE

    def prepare(self, budget: Budget) -> None:
        mnist()


class MnistVAE(_OnDigits):
    """Content of several concentrations beside style of one, by AnInfoNCE and by InfoNCE."""

    name = "anisotropic/mnist-vae"
    paper = "AnInfoNCE, Figure 3 A, B"
    claim = "from digits that a VAE draws AnInfoNCE recovers all latents, and InfoNCE loses those that vary more"
    laptop = "about 20 min"

    def configs(self, budget: Budget) -> list[Config]:
        shared = {"vae": VAES[budget], "neighbours": NEIGHBOURS[budget]}
        trainings = [
            {
                **shared,
                "concentrations": [STYLE] * (DIM // 2) + [content] * (DIM // 2),
                "loss": loss,
                "seed": seed,
                "steps": STEPS[budget],
            }
            for seed in range(SEEDS[budget])
            for content in CONTENT[budget]
            for loss in LOSSES
        ]
        return [*trainings, {**shared, "seed": 0}]

    def trial(self, config: Config) -> Result:
        return mnist_vae_trials.trial(config) if "loss" in config else mnist_vae_trials.decoder_trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for content in CONTENT[budget]:
            for loss in LOSSES:
                found = _results(results, loss, content)
                for metric, key in MEASURES.items():
                    rows.append(_row(self.name, setting(loss, content), metric, [r[key] for r in found]))
                if loss == "AnInfoNCE":
                    rows.append(
                        _row(self.name, setting(loss, content), ERROR, [r["concentration error"] for r in found])
                    )
        for result in _decoder(results):
            rows.append(_row(self.name, "pixels", "linear R²", [result["raw r2"]]))
            rows.append(_row(self.name, "pixels", "k-NN accuracy", [result["knn"]]))
            rows.append(_row(self.name, "VAE", "evidence lower bound", [result["elbo"]]))
            rows.append(_row(self.name, "VAE", "least KL of a latent", [min(result["divergences"])]))
        return rows

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        drawn = {"scores": figure_scores(results, CONTENT[budget])}
        if _decoder(results):
            drawn["digits"] = figure_digits(_decoder(results)[0])
        shown = pictures.save(out, drawn)
        page = out / "index.html"
        write_text(page, _page_scores(results, rows, shown, budget))
        return page


class Distinct(_OnDigits):
    """Ten distinct concentrations, through the decoder and through the invertible MLP."""

    name = "anisotropic/distinct"
    paper = "AnInfoNCE, Figure 3 C, D"
    claim = "where all concentrations differ, AnInfoNCE recovers every latent by itself, and its concentration"
    laptop = "about 20 min"

    def configs(self, budget: Budget) -> list[Config]:
        return [
            {
                "vae": vae,
                "concentrations": np.linspace(STYLE, largest, DIM).tolist(),
                "loss": loss,
                "seed": seed,
                "steps": STEPS[budget],
            }
            for seed in range(SEEDS[budget])
            for vae in (VAES[budget], None)
            for largest in LARGEST[budget]
            for loss in LOSSES
        ]

    def trial(self, config: Config) -> Result:
        return mnist_vae_trials.trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for mixing in MIXINGS:
            for largest in LARGEST[budget]:
                for loss in LOSSES:
                    found = _results(results, loss, largest, mixing)
                    name = distinct_setting(loss, largest, mixing)
                    rows.append(_row(self.name, name, "linear R²", [r["r2"] for r in found]))
                    rows.append(_row(self.name, name, "MCC", [r["mcc"] for r in found]))
                    if loss == "AnInfoNCE":
                        rows.append(_row(self.name, name, ERROR, [r["concentration error"] for r in found]))
        return rows

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        shown = pictures.save(out, {"concentrations": figure_concentrations(results, LARGEST[budget])})
        page = out / "index.html"
        write_text(page, _page_distinct(rows, shown, budget))
        return page


def setting(loss: str, content: float) -> str:
    """A row's name: as published where Λ₂ is that of the paper's text."""
    return loss if content == MIDDLE else f"Λ₂ = {content:g}, {loss}"


def distinct_setting(loss: str, largest: float, mixing: str) -> str:
    """A row's name: as published for the decoder."""
    name = f"Λ from {STYLE:g} to {largest:g}, {loss}"
    return name if mixing == "decoder" else f"MLP as mixing, {name}"


def _results(results: Results, loss: str, largest: float, mixing: str = "decoder") -> list[Result]:
    """Over seeds, of one loss in one world."""
    return [
        result
        for config, result in results
        if config.get("loss") == loss
        and max(config["concentrations"]) == largest
        and (config["vae"] is None) == (mixing == "MLP")
    ]


def _decoder(results: Results) -> list[Result]:
    return [result for config, result in results if "loss" not in config]


def _row(experiment: str, name: str, metric: str, values: Sequence[float]) -> Row:
    reference = references(experiment).get((name, metric))
    mean = float(np.mean(values)) if len(values) else None
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    found = verdict(mean, spread, len(values), reference)
    return Row(name, metric, mean, spread, None if reference is None else reference.value, found)


def figure_digits(result: Result) -> Any:
    """What the decoder draws: of random latents, and of latents near the first of them."""
    titles = ["p(z): uniform", *(f"p(z̃ | z) at Λ = {value:g}" for value in SHOWN_CONCENTRATIONS)]
    figure, axes = figures.new_figure(8.4, 3.1, len(titles))
    for axis, title, text in zip(axes, titles, result["digits"], strict=True):
        digits = pictures.of_text(text, (28, 28))
        side = round(len(digits) ** 0.5)
        sheet = digits.reshape(side, side, 28, 28).swapaxes(1, 2).reshape(28 * side, 28 * side)
        axis.imshow(sheet, cmap="gray_r", vmin=0, vmax=255)
        axis.set_title(title, fontsize=9, color=figures.INK)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_visible(False)
    from matplotlib.patches import Rectangle

    axes[0].add_patch(Rectangle((0, 0), 27, 27, fill=False, edgecolor=figures.PALETTE[3], linewidth=2))
    return figure


def figure_scores(results: Results, contents: Sequence[float]) -> Any:
    """R² of content and style (A) and accuracy of k-NN on real digits (B) over Λ₂."""
    figure, (left, right) = figures.new_figure(8.6, 3.2, 2)
    for loss, colour in COLOURS.items():
        for key, line in (("content", "-"), ("style", "--")):
            _curve(left, results, contents, loss, key, color=colour, linestyle=line, label=f"{loss}, {key}")
        _curve(right, results, contents, loss, "knn", color=colour, linestyle="-", label=loss)
    for result in _decoder(results):
        right.axhline(result["knn"], color=figures.MUTED, linewidth=0.8, linestyle=":", label="pixels")
    left.set_ylabel("R² of an affine map", fontsize=8)
    left.set_ylim(-0.03, 1.03)
    right.set_ylabel("k-NN accuracy on MNIST", fontsize=8)
    for axis in (left, right):
        axis.set_xlabel(f"Λ₂ of content (Λ₁ of style is {STYLE:g})", fontsize=8)
        axis.set_xscale("log")
        axis.set_xticks(contents, [f"{value:g}" for value in contents])
        axis.minorticks_off()
        axis.legend(fontsize=7.5, frameon=False)
    return figure


def _curve(axis: Any, results: Results, contents: Sequence[float], loss: str, key: str, **style: Any) -> None:
    points = [(content, [r[key] for r in _results(results, loss, content)]) for content in contents]
    known = [(content, np.mean(values), np.std(values)) for content, values in points if values]
    if known:
        x, mean, spread = zip(*known, strict=True)
        axis.errorbar(x, mean, spread, marker="o", markersize=4, linewidth=1.4, **style)


def figure_concentrations(results: Results, ranges: Sequence[float]) -> Any:
    """Λ̂ over training, the truth dashed in the same colour; one panel a mixing and range."""
    panels = [(mixing, largest) for mixing in MIXINGS for largest in ranges]
    figure, axes = figures.new_figure(4.8 * len(ranges), 6.4, len(ranges), len(MIXINGS))
    for axis, (mixing, largest) in zip(axes, panels, strict=True):
        found = _results(results, "AnInfoNCE", largest, mixing)
        truth = np.linspace(STYLE, largest, DIM)
        if found:
            curve = found[0]["curve"]
            matching = concentration_error(found[0]["concentrations"], truth).matching
            steps = [point["step"] for point in curve]
            for number, colour in enumerate(figures.PALETTE):
                values = [point["concentrations"][matching[number]] for point in curve]
                axis.plot(steps, values, color=colour, linewidth=1.4)
                axis.axhline(truth[number], color=colour, linewidth=0.9, linestyle="--")
        axis.set_title(f"{mixing}, Λ from {STYLE:g} to {largest:g}", fontsize=9, color=figures.INK, loc="left")
        axis.set_xlabel("step", fontsize=8)
        axis.set_ylabel("Λ̂", fontsize=8)
        axis.set_ylim(0, 1.15 * largest)
    return figure


def _page_scores(results: Results, rows: list[Row], shown: dict[str, str], budget: Budget) -> str:
    by_name = {(row.setting, row.metric): row.value for row in rows}
    anisotropic = [content for content in CONTENT[budget] if content > STYLE]
    ours = [by_name[setting("AnInfoNCE", content), "style R²"] for content in anisotropic]
    theirs = [by_name[setting("InfoNCE", content), "style R²"] for content in anisotropic]
    gaps = [a - b for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
    held = len(gaps) == len(anisotropic) and min(gaps) > 0.1 and min(v for v in ours if v is not None) > 0.95
    lead = (
        f"{html.badge('claim holds' if held else 'claim does not hold', held)} &nbsp;Wherever style varies more than "
        "content, R² of style is above 0.95 by AnInfoNCE and at least 0.1 lower by InfoNCE: that is the rule."
    )
    sections = []
    if "digits" in shown:
        divergences = ", ".join(f"{value:.2f}" for value in _decoder(results)[0]["divergences"])
        note = (
            f"KL of each latent on test images, in nats: {divergences}. Middle and right: relatives of the framed one."
        )
        sections.append(html.section("What the decoder draws", shown["digits"], note))
    sections += [
        html.section("R² and k-NN accuracy over Λ₂", shown["scores"], "Bars: standard deviation over seeds."),
        html.section("All numbers", _table(rows), _protocol(budget)),
    ]
    return html.page("AnInfoNCE on digits of a VAE", lead, sections)


def _page_distinct(rows: list[Row], shown: dict[str, str], budget: Budget) -> str:
    by_name = {(row.setting, row.metric): row.value for row in rows}
    names = [distinct_setting("AnInfoNCE", largest, "decoder") for largest in LARGEST[budget]]
    scores = [by_name[name, metric] for name in names for metric in ("linear R²", "MCC")]
    held = all(score is not None and score > 0.95 for score in scores)
    lead = (
        f"{html.badge('claim holds' if held else 'claim does not hold', held)} &nbsp;Through the decoder, AnInfoNCE "
        "has R² and MCC above 0.95 in every range: that is the rule."
    )
    sections = [
        html.section(
            "Learnt concentrations", shown["concentrations"], "Dashed: the truth, in the colour of its curve; seed 0."
        ),
        html.section("All numbers", _table(rows), _protocol(budget)),
    ]
    return html.page("Ten distinct concentrations", lead, sections)


def _table(rows: list[Row]) -> str:
    body = [
        [
            row.setting,
            row.metric,
            "–" if row.value is None else f"{row.value:.4f} ± {row.spread or 0:.4f}",
            "–" if row.published is None else f"{row.published:g}",
            "" if row.published is None else row.verdict,
        ]
        for row in rows
    ]
    return html.table(["setting", "metric", "ours", "published", ""], body)


def _protocol(budget: Budget) -> str:
    return (
        f"{SEEDS[budget]} seeds, {STEPS[budget]:,} steps, one VAE of {VAES[budget]['epochs']} epochs. InfoNCE has a "
        "temperature of 1, or, matched, 1/√(least · largest concentration). Published numbers are of one run each, as "
        "far as is known."
    )
