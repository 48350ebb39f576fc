"""GEDI on images: clusters, representation and samples of five methods with one network   (GEDI §6.3, Tables 4 and 10).

The store keeps the models: `gedi/ood` asks the same ones how well they tell other images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from probssl.report import figures
from probssl.studies import gedi_images_trials as trials
from probssl.studies import gedi_models, pictures
from probssl.studies.base import Budget, Claim, Config, Found, Result, Results, Row, Study, rows_of, where
from probssl.studies.gedi_models import METHODS, SETS, UNTRAINED, model_config
from probssl.studies.image_sets import images_of
from probssl.studies.page import Page, Picture, Section, judged, numbers, pivot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVERYWHERE = {"step_size": 1.0, "noise": 0.01, "reinitialise": 0.05, "warmup": 0, "clip": None}
SMALL = {
    **EVERYWHERE,
    "network": gedi_models.CONVOLUTIONS,
    "anneal": "cosine",
    "magnitude": 0.1,
    "crop": 0.7,
    "pair": "augmented",
    "invariance": 5.0,
    "balance": 10.0,
}
SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": {**SMALL, "width": 4, "rows": 200, "steps": 4, "batch": 16, "rate": 1e-3, "langevin": 1, "chains": 32},
    "laptop": {
        **SMALL,
        "width": 32,
        "rows": 10_000,
        "steps": 600,
        "batch": 64,
        "rate": 5e-4,
        "warmup": 50,
        "langevin": 5,
        "clip": 0.03,
        "chains": 256,
    },
    "full": {
        **EVERYWHERE,
        "network": gedi_models.RESIDUAL,
        "width": {"else": 128, "cifar100": 256},
        "rows": 73_257,
        "epochs": {"else": 200, "svhn": 20},
        "batch": 64,
        "rate": 1e-4,
        "anneal": "constant",
        "langevin": 20,
        "chains": 10_000,
        "magnitude": 0.0,
        "crop": None,
        "pair": "original",
        "invariance": 50.0,
        "balance": {"else": 25.0, "cifar100": 50.0},
    },
}
"""How the models of a budget are trained. `full` is GEDI's Table 9; where sets differ, an entry is a dict."""

SEEDS = {"smoke": 1, "laptop": 3, "full": 5}
MEASURING: dict[Budget, dict[str, int]] = {
    "smoke": {"test": 100, "samples": 16, "walk": 3, "classifier": 10},
    "laptop": {"test": 2_000, "samples": 100, "walk": 500, "classifier": 1_500},
    "full": {"test": 26_032, "samples": 10_000, "walk": 500, "classifier": 10_000},
}
"""Test images; samples and the steps from noise to them; steps of the classifier whose features they are seen by."""

COLOURS = dict(zip(METHODS, figures.PALETTE, strict=False))
ACROSS = 12
"""Images of a method in the figure."""

DISTANCE = f"FD({trials.CLASSIFIER})"
CLUSTERERS = ("BarlowTwins", "SwAV", "GEDI no gen")
"""What trains without a density and is to generate nothing."""

TOLERANCE = 0.05
"""What GEDI's NMI may lose against the same without its generative term, for the claim to hold."""


def trained_on(budget: Budget) -> tuple[str, ...]:
    """The sets that a budget trains on."""
    return ("mnist",) if budget == "smoke" else gedi_models.sets()


class OnImages(Study):
    """What both studies share: one model a unit of work, seed by seed, those that sample first: they take longest."""

    code = ("probssl.studies.gedi_images_trials",)

    def prepare(self, budget: Budget) -> None:
        for name in trained_on(budget):
            images_of(name)

    def cost(self, config: Config) -> float:
        """Seed after seed, the energy models first."""
        model = config.get("model") or config["untrained"]
        return (model["method"] in ("JEM", "GEDI")) - 2 * model["seed"]


class GediImages(OnImages):
    """Five methods on every set: how they cluster, what a linear map reads from them, and what they generate."""

    name = "gedi/images"
    paper = "GEDI, Tables 4 and 10, Figure 6"
    claim = "GEDI clusters images as well as without its generative term, and is the one clusterer that generates some"
    laptop = "25 to 30 min"

    def configs(self, budget: Budget) -> list[Config]:
        sets, scale, measuring = trained_on(budget), SCALES[budget], MEASURING[budget]
        models: list[Config] = [
            {"model": model_config(data, method, seed, scale), **measuring}
            for seed in range(SEEDS[budget])
            for data in sets
            for method in METHODS
        ]
        return models + [{"untrained": model_config(data, UNTRAINED, 0, scale), **measuring} for data in sets]

    def run_batch(self, configs: list[Config]) -> Iterator[Found]:
        for config in configs:
            if "untrained" in config:
                yield config, trials.reference_trial(config)
            else:
                model = gedi_models.trained(config["model"])
                yield config, trials.image_trial(config, model), model.pack()

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for data in trained_on(budget):
            for method in METHODS:
                found = scores_of(results, data, method)
                metrics = list(found[0]) if found else ["NMI", "linear probe"]
                rows += rows_of(self.name, f"{SETS[data]}, {method}", found, metrics, budget)
            for result in references_of(results, data):
                known = {
                    "data against data": result["floor"],
                    "uniform noise": result["ceiling"],
                    "untrained": {"linear probe": result["untrained"]},
                    "pixels": {"linear probe": result["pixels"]},
                    "classifier": {"accuracy": result["accuracy"]},
                }
                for name, found_of in known.items():
                    rows += rows_of(self.name, f"{SETS[data]}, {name}", [found_of], list(found_of), budget)
        return rows

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        sets, note = trained_on(budget), scale_notes(budget, MEASURING[budget]["test"])
        held = {SETS[data]: all(one.holds(rows) for one in claims_of(data)) for data in sets}
        good = all(held.values())
        lead = (
            f"On a set the claim holds if {DISTANCE} of GEDI's samples is below that of Barlow Twins, SwAV and GEDI no "
            f"gen, and its NMI at most {TOLERANCE:g} below that of GEDI no gen: that is the rule. "
            + "; ".join(f"{title}: {'yes' if yes else 'no'}" for title, yes in held.items())
        )
        scores = Picture("scores", figure_scores(results, rows, sets))
        about = f"Dots: seeds. Hollow: published, at the paper's scale. {note}{left_out()}"
        sections = [Section("Scores", scores, note=about)]
        cell = judged if budget == "full" else numbers
        for data in sets:
            parted = {row.setting: row.setting.partition(", ") for row in rows}
            of_set = {setting: name for setting, (title, _, name) in parted.items() if title == SETS[data]}
            table = pivot(rows, of_set, cell=lambda row: cell(row, form=".3f"))
            if samples := samples_of(results, data):
                picture = Picture(f"samples-{data}", figures.image_rows(samples, 7.6))
                about = "Chains from uniform noise after the last step, and images of the set."
                sections.append(Section(f"Samples, {SETS[data]}", picture, note=about))
            sections.append(Section(f"Numbers, {SETS[data]}", table))
        verdict = "claim holds" if good else "claim does not hold on every set"
        return Page("GEDI on images", lead, sections, (verdict, good))


def scores_of(results: Results, data: str, method: str) -> list[dict[str, float]]:
    """Metric -> number of a method on a set, seed by seed."""
    found = where(results, data=data, method=method)
    return [{"NMI": one["NMI"], "linear probe": one["linear probe"], **one["distances"]} for one in found]


def references_of(results: Results, data: str) -> list[Result]:
    """What is known of a set without a trained model."""
    return [result for config, result in results if config.get("untrained", {}).get("data") == data]


def samples_of(results: Results, data: str) -> dict[str, Any]:
    """Samples of every method, and images of the set; of seed 0."""
    texts = {method: one["samples"] for method in METHODS for one in where(results, data=data, method=method)[:1]}
    for one in references_of(results, data):
        texts["test images"] = one["data"]
    return {name: pictures.of_text(text, images_of(data).shape)[:ACROSS] for name, text in texts.items()}


def scale_notes(budget: Budget, test: int) -> str:
    """How large the experiment was, in words."""
    scale, measuring, seeds = SCALES[budget], MEASURING[budget], SEEDS[budget]

    def by_set(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{number} ({SETS.get(name, 'others')})" for name, number in value.items())
        return f"{value:,}"

    length = f"{by_set(scale['epochs'])} epochs" if "epochs" in scale else f"{by_set(scale['steps'])} steps"
    temperature = scale["noise"] ** 2 / (2 * scale["step_size"])
    return (
        f"Network: {scale['network']}, {by_set(scale['width'])} numbers a representation; the first {scale['rows']:,} "
        f"training images at most, {length} of {scale['batch']} images, {scale['langevin']} Langevin steps each at "
        f"temperature {temperature:.1e}, {'one seed' if seeds == 1 else f'{seeds} seeds'}; {measuring['samples']:,} "
        f"samples after {measuring['walk']} steps from noise; at most {test:,} test images. "
    )


def left_out() -> str:
    """One sentence about the sets of the paper that are not here."""
    missing = [SETS[name] for name in SETS if name not in gedi_models.sets()]
    if not missing:
        return ""
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in the data directory and left out."


def claims_of(data: str) -> list[Claim]:
    """GEDI generates better than what has no density, and clusters no worse than without its generative term."""
    gedi, without = f"{SETS[data]}, GEDI", f"{SETS[data]}, GEDI no gen"
    nearer = [Claim((f"{SETS[data]}, {method}", DISTANCE), (gedi, DISTANCE)) for method in CLUSTERERS]
    return [*nearer, Claim((gedi, "NMI"), (without, "NMI"), -TOLERANCE)]


def figure_scores(results: Results, rows: list[Row], sets: Sequence[str]) -> Figure:
    """NMI, linear probe and Fréchet distance of every method, set beside set."""
    metrics = ("NMI", "linear probe", DISTANCE)
    published = {(row.setting, row.metric): row.published for row in rows}
    drawn, axes = figures.panels(metrics, 3.3, 2.9)
    for axis, metric in zip(axes, metrics, strict=True):
        groups = {
            SETS[data]: {method: [one[metric] for one in scores_of(results, data, method)] for method in METHODS}
            for data in sets
        }
        printed = {(SETS[data], m): published.get((f"{SETS[data]}, {m}", metric)) for data in sets for m in METHODS}
        figures.marks(axis, groups, COLOURS, printed)
        for place, data in enumerate(sets):
            for result in references_of(results, data):
                levels = {"--": result["untrained"]} if metric == "linear probe" else {}
                if metric == DISTANCE:
                    levels = {"--": result["ceiling"][metric], ":": result["floor"][metric]}
                for style, level in levels.items():
                    axis.hlines(level, place - 0.42, place + 0.42, color=figures.MUTED, linewidth=1, linestyle=style)
        if metric == DISTANCE:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=-0.02)
    dashed = {"color": figures.MUTED, "linestyle": "--"}
    figures.legend(drawn, {**COLOURS, "untrained, or noise": dashed, "data": {**dashed, "linestyle": ":"}})
    return drawn
