"""GEDI on moons and circles, its ablations and its baselines (GEDI §6.1, §6.2, Tables 2 and 3, Figures 3 to 5).

Every method is trained with settings that work; GEDI also as the paper prints its own, and with each of the changes
undone alone. The settings were chosen by seeds 100 to 103, of which nothing is reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from probssl.objectives.gedi import ABLATIONS
from probssl.report import figures
from probssl.studies import gedi_toy_trials as trials
from probssl.studies.base import (
    Budget,
    Claim,
    Config,
    Result,
    Results,
    Row,
    Study,
    best_starts,
    first_starts,
    row_of,
    where,
)
from probssl.studies.gedi_toy_trials import BASELINES, DATA, VARIANTS, Settings
from probssl.studies.page import Page, Picture, Section, Table, claim, judged, numbers, pivot
from probssl.theory.clustering import FAILURE_MODES, open_failure_modes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = (*VARIANTS, trials.TWO_STAGE, *BASELINES)
AS_PRINTED = {f"{method} as printed": method for method in ("GEDI no gen", "GEDI")}
TERMS = {"generative": "generative", "invariance": "invariance", "balance": "prior"}
LEAST = {"invariance": 0.0, "prior": math.log(2)}
"""The least that a term can be."""

NMI, LIKELIHOOD = "NMI", "log likelihood"

STARTS = {"GEDI": 3}
"""Starts of a method; of several the one of the least loss is reported, and what the first came to beside it."""

SCALE: dict[Budget, tuple[int, int, int, int]] = {  # seeds, seeds of each change, steps, steps as printed
    "smoke": (1, 0, 30, 30),
    "laptop": (5, 3, 3000, 4000),
    "full": (5, 5, 3000, 20_000),
}

SHADES: dict[str, dict[str, Any]] = {
    "prediction": {"cmap": "coolwarm", "vmin": 0, "vmax": 1, "alpha": 0.4},
    "density": {"cmap": "Blues", "vmin": -10, "vmax": 0},
}


def config(setting: str, data: str, method: str, settings: Settings, seed: int, start: int = 0) -> Config:
    """One training; seed 0 is drawn. Another start has other initial weights, and the same data and batches."""
    return {
        "setting": f"{data}, {setting}",
        "data": data,
        "method": method,
        "settings": asdict(settings),
        "seed": seed,
        "start": start,
        "picture": seed == 0 and setting in METHODS,
    }


class OnToys(Study):
    """Trainings on moons and circles, many of them as one."""

    code = ("probssl.studies.gedi_toy_trials",)

    def run_batch(self, configs: list[Config]) -> Iterator[tuple[Config, Result]]:
        return trials.run_batch(configs)

    def cohort(self, config: Config) -> Any:
        """The seeds and data sets of a setting."""
        return config["setting"].partition(", ")[2], config["start"]

    def cost(self, config: Config) -> float:
        settings = config["settings"]
        generates = config["method"] not in ("GEDI no gen", *BASELINES)
        return float(settings["steps"] * settings["batch_size"] * (1 + generates * settings["sgld_steps"]))


class Toy(OnToys):
    """Every method on both data sets, GEDI as printed, and GEDI with one change undone at a time."""

    name = "gedi/toy"
    paper = "GEDI, §6.1, §6.2 and L"
    claim = "the three terms together cluster moons and circles; without one of them training fails as theory says"
    laptop = "about 20 min"

    def configs(self, budget: Budget) -> list[Config]:
        seeds, few, steps, printed_steps = SCALE[budget]
        found, printed = Settings(steps=steps), replace(trials.PRINTED, steps=printed_steps)
        # Baselines have no prior term, no chains and a network of their own, and are trained as printed.
        settings = {method: (method, printed if method in BASELINES else found, seeds) for method in METHODS}
        settings |= {name: (method, printed, seeds) for name, method in AS_PRINTED.items()}
        settings |= {
            f"GEDI, {name}": ("GEDI", replace(found, **change), few) for name, change in trials.CHANGES.items()
        }
        return [
            config(setting, data, method, own, seed, start)
            for setting, (method, own, count) in settings.items()
            for start in range(1 if budget == "smoke" else STARTS.get(setting, 1))
            for data in DATA
            for seed in range(count)
        ]

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        several = [*best(results), *first_alone(results)]
        rows = [row for metric in (NMI, LIKELIHOOD) for row in toy_rows(several, metric)]
        for data in DATA:
            seeds = sorted({one["seed"] for one, _ in results if one["data"] == data})
            for name, values in likelihoods_without_training(data, seeds).items():
                rows.append(toy_row(f"{data}, {name}", LIKELIHOOD, values))
        return rows

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        results = best(results)
        titles = {NMI: NMI, LIKELIHOOD: "nats a point"}
        scores = pivot(rows, metrics=titles, cell=lambda row: judged(row, form=".2f"))
        about = (
            "NMI: means over seeds. Log-likelihoods of test points: medians; densities of two features are normalised "
            "over a square, so they are exact, and the paper has none."
        )
        head = ["setting", "open by theory", "seen", "invariance", "prior − ln 2", "largest share", "labels agree"]
        clusters = Picture("clusters", figure_planes(results, METHODS, "prediction"))
        densities = Picture("densities", figure_planes(results, METHODS[: -len(BASELINES)], "density"))
        terms = Picture("terms", figure_terms(results, ("GEDI", "GEDI no gen", *AS_PRINTED)))
        return Page(
            "GEDI on moons and circles",
            "One network that clusters and is a density, trained without labels by three terms; each of its ablations "
            "lacks one. The claim holds if GEDI has an NMI of at least 0.94 on both.",
            [
                Section("Figure 3 and 5: clusters", clusters, note="Seed 0, test points; shades are p(y | x)."),
                Section("Figure 5: densities", densities, note="Seed 0; log p(x) up to a constant, dots are samples."),
                Section("Figure 4: the terms and their least values", terms, note="One line a seed."),
                Section("Normalised mutual information and log-likelihood", scores, note=about),
                Section("The triad of failures", Table(head, diagnoses(results)), note="Medians over seeds."),
            ],
            claim(all(Claim((f"{data}, GEDI", NMI), 0.94).holds(rows) for data in DATA)),
        )


class Sensitivity(OnToys):
    """GEDI over the weights of its invariance and prior terms (GEDI Figure 8)."""

    name = "gedi/sensitivity"
    paper = "GEDI, Figure 8"
    claim = "GEDI clusters for a wide range of weights of its invariance and prior terms"
    laptop = "10 to 15 min"

    def weights(self, budget: Budget) -> tuple[int, ...]:
        """Weights that either term takes."""
        return (0, 50) if budget == "smoke" else (0, 10, 20, 30, 40, 50)

    def configs(self, budget: Budget) -> list[Config]:
        changed: dict[str, Any] = {"smoke": {"steps": 30}, "laptop": {"sgld_steps": 3}, "full": {}}[budget]
        seeds = range({"smoke": 1, "laptop": 2, "full": 5}[budget])
        found = []
        for invariance, prior in product(self.weights(budget), repeat=2):
            name = f"invariance {invariance}, prior {prior}"
            own = Settings(invariance=float(invariance), prior=float(prior), **changed)
            found += [config(name, data, "GEDI", own, seed) for data in DATA for seed in seeds]
        return found

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        return toy_rows(results, NMI)

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        weights = [str(weight) for weight in self.weights(budget)]
        parted = [(row, *row.setting.rpartition(", ")[::2]) for row in rows]
        by_weights = [replace(row, setting=setting, metric=prior) for row, setting, prior in parted]
        table = pivot(by_weights, corner=NMI, cell=lambda row: numbers(row, form=".2f"))
        known = {(row.setting, row.metric): row.value for row in by_weights}
        drawn, axes = figures.panels(DATA, 4.2, 3.6, x="weight of the invariance term", y="weight of the prior term")
        for axis, data in zip(axes, DATA, strict=True):
            cells = [[known.get((f"{data}, invariance {i}", f"prior {p}")) for i in weights] for p in weights]
            figures.heatmap(axis, np.array(cells, dtype=float), weights, weights)
        picture = Picture("sensitivity", drawn)
        over = Section("Figure 8: NMI over the weights", picture, note="Means over seeds.")
        return Page("GEDI over its weights", self.claim, [over, Section("Numbers", table)])


def toy_row(setting: str, metric: str, values: Sequence[float]) -> Row:
    """The mean over seeds, of log-likelihoods, which a density of spikes sends to −∞, the median; and the deviation."""
    return row_of(Toy.name, setting, metric, values, median=metric == LIKELIHOOD, of_one=0.0)


def toy_rows(results: Results, metric: str) -> list[Row]:
    """A row for each setting that has the metric, in the order of the grid."""
    found: dict[str, list[float]] = {}
    for one, result in results:
        if metric in result:
            found.setdefault(one["setting"], []).append(result[metric])
    return [toy_row(setting, metric, values) for setting, values in found.items()]


def likelihoods_without_training(data: str, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Mean log-likelihoods of test points under the law they come from, the most there can be, and a fitted normal."""
    found: dict[str, list[float]] = {"the law itself": [], "a normal distribution": []}
    for seed in seeds:
        train, test = trials.points(data, seed)[0].numpy(), trials.fresh_points(data, seed)[0].numpy()
        normal = stats.multivariate_normal(train.mean(0), np.cov(train.T))
        found["the law itself"].append(float(trials.true_log_density(data, test).mean()))
        found["a normal distribution"].append(float(normal.logpdf(test).mean()))
    return found


def best(results: Results) -> Results:
    """Of several starts of a seed the one with the least loss on the points trained on, which needs no labels."""
    return best_starts(results, "clustering_loss")


def first_alone(results: Results) -> Results:
    """What the first of several starts came to, as settings of their own."""
    return [({**one, "setting": f"{one['setting']}, first start"}, result) for one, result in first_starts(results)]


def predicted(method: str) -> str:
    """The failures of the triad that theory leaves open for a method's terms."""
    if method not in VARIANTS:
        return "–"
    return ", ".join(open_failure_modes([TERMS[term] for term in ABLATIONS[VARIANTS[method]]])) or "none"


def diagnoses(results: Results) -> list[list[str]]:
    """What theory leaves open and what was seen, a line a setting."""
    lines = []
    diagnosed = [(one, result) for one, result in results if "failures" in result]
    for setting, method in {one["setting"]: one["method"] for one, _ in diagnosed}.items():
        seen = where(diagnosed, setting=setting)
        counts = {mode: sum(mode in result["failures"] for result in seen) for mode in FAILURE_MODES}
        happened = ", ".join(f"{mode} {count}/{len(seen)}" for mode, count in counts.items() if count) or "none"
        measured = ("invariance", "prior_gap", "largest_share", "agreement")
        medians = [f"{np.median([result[key] for result in seen]):.3f}" for key in measured]
        lines.append([setting, predicted(method), happened, *medians])
    return lines


def figure_planes(results: Results, methods: Sequence[str], shade: str) -> Figure:
    """Figures 3 and 5, a column a method, of seed 0.

    Over a `prediction`, p(y | x), test points in the colours of their clusters; over a `density`, log p(x) up to a
    constant and ten nats deep, samples where there are chains.
    """
    found = {(c["data"], c["method"]): result for c, result in results if c["picture"] and "picture" in result}
    cells = [(data, method) for data in DATA for method in methods]
    scores = [f"  {found[cell][NMI]:.2f}" if shade == "prediction" and cell in found else "" for cell in cells]
    titles = [method + score for (_, method), score in zip(cells, scores, strict=True)]
    drawn, axes = figures.panels(titles, 1.5, 1.7, len(methods))
    for axis, cell in zip(axes, cells, strict=True):
        extent = trials.EXTENT[cell[0]]
        figures.bare(axis)
        axis.set(xlim=extent[:2], ylim=extent[2:], aspect="equal")
        if cell not in found:
            continue
        picture = found[cell]["picture"]
        if len(picture[shade]):
            shown = np.reshape(picture[shade], (trials.GRID, trials.GRID))
            axis.imshow(shown, extent=extent, origin="lower", **SHADES[shade])
        if shade == "prediction":
            dots, colours = trials.fresh_points(cell[0], 0)[0].numpy(), figures.colours(np.array(picture["clusters"]))
        else:
            dots, colours = np.reshape(picture["samples"], (-1, 2)), [figures.PALETTE[3]] * len(picture["samples"])
        axis.scatter(*dots.T, c=colours, s=1.5, linewidths=0)
    return drawn


def figure_terms(results: Results, settings: Sequence[str]) -> Figure:
    """Figure 4: invariance above 0 and prior above ln 2 while training, one line a seed, a column a setting."""
    cells = [(data, term, setting) for data in DATA for term in LEAST for setting in settings]
    titles = [f"{setting}\n{data}: {term}" for data, term, setting in cells]
    drawn, axes = figures.panels(titles, 2.4, 1.7, len(settings), x="step", sharey="row")
    for axis, (data, term, setting) in zip(axes, cells, strict=True):
        curves = [figures.logged(one["curve"], term) for one in where(results, setting=f"{data}, {setting}")]
        figures.lines(axis, {setting: curves}, legend=False, linewidth=0.8, alpha=0.7)
        axis.axhline(LEAST[term], color=figures.PALETTE[3], linewidth=1, linestyle=":")
        axis.set_ylim(*((-0.02, 0.4) if term == "invariance" else (0.6, 2.2)))
    return drawn
