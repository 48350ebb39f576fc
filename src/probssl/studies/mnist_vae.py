"""AnInfoNCE on images that the decoder of a VAE draws  (AnInfoNCE F, Figure 3).

Ten latents on the sphere become digits by the decoder of a VAE that was trained on MNIST; an encoder of the pixels
sees pairs of digits whose latents are close, some of them (content) closer than others (style), and nothing else. R²
is that of an affine map from its codes to the latents, on rows the map was not fitted on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from probssl.data.mnist import mnist
from probssl.metrics import concentration_error
from probssl.report import figures
from probssl.studies import mnist_vae_trials, pictures
from probssl.studies.base import Budget, Claim, Config, Result, Results, Row, row_of, rows_of, where
from probssl.studies.mnist_decoder import DIM
from probssl.studies.mnist_vae_trials import LOSSES, SHOWN_CONCENTRATIONS
from probssl.studies.page import Page, Picture, Section, claim, listed
from probssl.studies.recovery import RecoveryStudy
from probssl.studies.recovery_page import concentrations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
COLOURS = dict(zip(LOSSES, figures.PALETTE, strict=False))


class _OnDigits(RecoveryStudy):
    """Every loss in several worlds, in which latents have other concentrations or another mixing."""

    code = (
        "probssl.studies.fitting",
        "probssl.studies.mnist_decoder",
        "probssl.studies.mnist_vae_trials",
        "probssl.studies.recovery",
    )
    measures: ClassVar[dict[str, str]]
    """Name in the result of a training -> metric."""

    @abstractmethod
    def worlds(self, budget: Budget) -> dict[str, Config]:
        """What stands before the loss in the name of a setting -> what the configurations of that world share."""

    def configs(self, budget: Budget) -> list[Config]:
        return [
            {**world, "loss": loss, "seed": seed, "steps": STEPS[budget]}
            for seed in range(SEEDS[budget])
            for world in self.worlds(budget).values()
            for loss in LOSSES
        ]

    def prepare(self, budget: Budget) -> None:
        mnist()

    def trial(self, config: Config) -> Result:
        return mnist_vae_trials.trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for name, world in self.worlds(budget).items():
            for loss in LOSSES:
                learnt = {"concentration error": "largest error of Λ̂"} if loss == "AnInfoNCE" else {}
                found = where(results, loss=loss, **world)
                rows += rows_of(self.name, name + loss, found, {**self.measures, **learnt}, of_one=0.0)
        return rows

    def numbers(self, rows: list[Row], budget: Budget) -> Section:
        """All rows and the protocol."""
        note = (
            f"{SEEDS[budget]} seeds, {STEPS[budget]:,} steps, one VAE of {VAES[budget]['epochs']} epochs. InfoNCE has "
            "a temperature of 1, or, matched, 1/√(least · largest concentration). Published numbers are of one run "
            "each, as far as is known."
        )
        return Section("All numbers", listed(rows, form=".4f"), note=note)


class MnistVAE(_OnDigits):
    """Content of several concentrations beside style of one, by AnInfoNCE and by InfoNCE."""

    name = "anisotropic/mnist-vae"
    paper = "AnInfoNCE, Figure 3 A, B"
    claim = "from digits that a VAE draws AnInfoNCE recovers all latents, and InfoNCE loses those that vary more"
    laptop = "about 20 min"
    measures: ClassVar = {"r2": "linear R²", "content": "content R²", "style": "style R²", "knn": "k-NN accuracy"}

    def worlds(self, budget: Budget) -> dict[str, Config]:
        return {
            before(content): {
                "vae": VAES[budget],
                "neighbours": NEIGHBOURS[budget],
                "concentrations": [STYLE] * (DIM // 2) + [content] * (DIM // 2),
            }
            for content in CONTENT[budget]
        }

    def configs(self, budget: Budget) -> list[Config]:
        return [*super().configs(budget), {"vae": VAES[budget], "neighbours": NEIGHBOURS[budget], "seed": 0}]

    def trial(self, config: Config) -> Result:
        return super().trial(config) if "loss" in config else mnist_vae_trials.decoder_trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = super().summarise(results, budget)
        decoder = where(results, loss=None)
        if decoder:
            pixels, bound = {"raw r2": "linear R²", "knn": "k-NN accuracy"}, {"elbo": "evidence lower bound"}
            rows += rows_of(self.name, "pixels", decoder, pixels, of_one=0.0)
            rows += rows_of(self.name, "VAE", decoder, bound, of_one=0.0)
            least = [min(result["divergences"]) for result in decoder]
            rows.append(row_of(self.name, "VAE", "least KL of a latent", least, of_one=0.0))
        return rows

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        sections = [
            *(what_is_drawn(decoder) for decoder in where(results, loss=None)),
            Section(
                "R² and k-NN accuracy over Λ₂",
                Picture("scores", figure_scores(rows, CONTENT[budget])),
                note="Bars: standard deviation over seeds. Hollow: published.",
            ),
            self.numbers(rows, budget),
        ]
        style = [
            tuple((before(content) + loss, "style R²") for loss in ("AnInfoNCE", "InfoNCE"))
            for content in CONTENT[budget]
            if content > STYLE
        ]
        claims = [Claim(ours, theirs, 0.1) for ours, theirs in style] + [Claim(ours, 0.95) for ours, _ in style]
        lead = (
            "Wherever style varies more than content, R² of style is above 0.95 by AnInfoNCE and at least 0.1 lower by "
            "InfoNCE: that is the rule."
        )
        return Page("AnInfoNCE on digits of a VAE", lead, sections, claim(all(c.holds(rows) for c in claims)))


class Distinct(_OnDigits):
    """Ten distinct concentrations, through the decoder and through the invertible MLP."""

    name = "anisotropic/distinct"
    paper = "AnInfoNCE, Figure 3 C, D"
    claim = "where all concentrations differ, AnInfoNCE recovers every latent by itself, and its concentration"
    laptop = "about 20 min"
    measures: ClassVar = {"r2": "linear R²", "mcc": "MCC"}

    def worlds(self, budget: Budget) -> dict[str, Config]:
        return {
            f"{mixing}Λ from {STYLE:g} to {largest:g}, ": {
                "vae": vae,
                "concentrations": np.linspace(STYLE, largest, DIM).tolist(),
            }
            for mixing, vae in (("", VAES[budget]), ("MLP as mixing, ", None))
            for largest in LARGEST[budget]
        }

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        worlds = self.worlds(budget)
        claims = [
            Claim((f"{name}AnInfoNCE", metric), 0.95)
            for name, world in worlds.items()
            for metric in self.measures.values()
            if world["vae"] is not None
        ]
        sections = [
            Section(
                "Learnt concentrations",
                Picture("concentrations", figure_concentrations(results, worlds)),
                note="Dashed: the truth, in the colour of its curve; seed 0.",
            ),
            self.numbers(rows, budget),
        ]
        lead = "Through the decoder, AnInfoNCE has R² and MCC above 0.95 in every range: that is the rule."
        return Page("Ten distinct concentrations", lead, sections, claim(all(c.holds(rows) for c in claims)))


def before(content: float) -> str:
    """What stands before the loss in a row's name: nothing where Λ₂ is that of the paper's text."""
    return "" if content == MIDDLE else f"Λ₂ = {content:g}, "


def what_is_drawn(decoder: Result) -> Section:
    """Digits of random latents, and of latents near the first of them; and what each latent says of an image."""
    from matplotlib.patches import Rectangle

    titles = ["p(z): uniform", *(f"p(z̃ | z) at Λ = {value:g}" for value in SHOWN_CONCENTRATIONS)]
    figure, axes = figures.panels(titles, 2.8, 3.1)
    for axis, text in zip(axes, decoder["digits"], strict=True):
        digits = pictures.of_text(text, (28, 28))
        side = round(len(digits) ** 0.5)
        sheet = digits.reshape(side, side, 28, 28).swapaxes(1, 2).reshape(28 * side, 28 * side)
        axis.imshow(sheet, cmap="gray_r", vmin=0, vmax=255)
        figures.bare(axis)
    axes[0].add_patch(Rectangle((0, 0), 27, 27, fill=False, edgecolor=figures.PALETTE[3], linewidth=2))
    note = (
        f"KL of each latent on test images, in nats: {', '.join(f'{v:.2f}' for v in decoder['divergences'])}. "
        "Middle and right: relatives of the framed one."
    )
    return Section("What the decoder draws", Picture("digits", figure), note=note)


def figure_scores(rows: list[Row], contents: Sequence[float]) -> Figure:
    """R² of content and style (A) and accuracy of k-NN on real digits (B) over Λ₂."""
    known = {(row.setting, row.metric): row for row in rows}
    figure, axes = figures.panels(["content (–) and style (- -)", "k-NN on MNIST (dotted: on pixels)"], 4.3, 3.2)
    shown = ((axes[0], "content R²", "-"), (axes[0], "style R²", "--"), (axes[1], "k-NN accuracy", "-"))
    for axis, metric, style in shown:
        named = {loss: [known[before(content) + loss, metric] for content in contents] for loss in LOSSES}
        figures.measured(axis, contents, named, COLOURS, linestyle=style)
    pixels = known.get(("pixels", "k-NN accuracy"))
    if pixels is not None:
        axes[1].axhline(pixels.value, color=figures.MUTED, linewidth=0.8, linestyle=":")
    axes[0].set_ylim(-0.03, 1.03)
    for axis, y in zip(axes, ("R² of an affine map", "accuracy"), strict=True):
        figures.name_axes(axis, f"Λ₂ of content (Λ₁ of style is {STYLE:g})", y)
        figures.log_ticks(axis, "x", contents)
    figures.legend(figure, COLOURS)
    return figure


def figure_concentrations(results: Results, worlds: dict[str, Config]) -> Figure:
    """Λ̂ over training, the truth dashed in the same colour; one panel a mixing and range."""
    figure, axes = figures.panels([name.rstrip(", ") for name in worlds], 4.8, 3.2, len(worlds) // 2, "step", "Λ̂")
    for axis, world in zip(axes, worlds.values(), strict=True):
        for found in where(results, loss="AnInfoNCE", **world)[:1]:
            matching = concentration_error(found["concentrations"], world["concentrations"]).matching
            learnt = enumerate(concentrations(found, matching))
            figures.lines(axis, {str(place): [line] for place, line in learnt}, legend=False)
            for truth, colour in zip(world["concentrations"], figures.PALETTE, strict=True):
                axis.axhline(truth, color=colour, linewidth=0.9, linestyle="--")
        axis.set_ylim(0, 1.15 * max(world["concentrations"]))
    return figure
