"""GEDI on moons and circles, its ablations and its baselines (GEDI §6.1, §6.2, Tables 2 and 3, Figures 3 to 5).

Every method is trained with settings that work; GEDI also as the paper prints its own, and with each of the changes
undone alone. The settings were chosen by seeds 100 to 103, of which nothing is reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from probssl.report import page as html
from probssl.studies import gedi_toy_figures as drawn
from probssl.studies import gedi_toy_trials, pictures
from probssl.studies.base import (
    Budget,
    Config,
    Result,
    Results,
    Row,
    Study,
    best_starts,
    even_parts,
    first_starts,
)
from probssl.studies.comparison import references, verdict
from probssl.studies.gedi_toy_trials import (
    BASELINES,
    CHANGES,
    DATA,
    PRINTED,
    TWO_STAGE,
    VARIANTS,
    Settings,
    fresh_points,
    points,
    true_log_density,
)
from probssl.theory.clustering import open_failure_modes
from probssl.training.files import write_text

METHODS = (*VARIANTS, TWO_STAGE, *BASELINES)
AS_PRINTED = {f"{method} as printed": method for method in ("GEDI no gen", "GEDI")}
TERMS = {"generative": "generative", "invariance": "invariance", "balance": "prior"}

NMI, LIKELIHOOD = "NMI", "log likelihood"

STARTS = {"GEDI": 3}
"""Starts of a method; of several the one of the least loss is reported, and what the first came to beside it."""

SCALE: dict[Budget, tuple[int, int, int, int]] = {  # seeds, seeds of each change, steps, steps as printed
    "smoke": (1, 0, 30, 30),
    "laptop": (5, 3, 3000, 4000),
    "full": (5, 5, 3000, 20_000),
}


def config(setting: str, data: str, method: str, settings: Settings, seed: int, start: int = 0) -> Config:
    """One training; seed 0 is drawn. Another start has other initial weights, and the same data and batches."""
    return {
        "setting": f"{data}, {setting}",
        "data": data,
        "method": method,
        "settings": dataclasses.asdict(settings),
        "seed": seed,
        "start": start,
        "picture": seed == 0 and setting in METHODS,
    }


class Toy(Study):
    """Every method on both data sets, GEDI as printed, and GEDI with one change undone at a time."""

    name = "gedi/toy"
    paper = "GEDI, §6.1, §6.2 and L"
    claim = "the three terms together cluster moons and circles; without one of them training fails as theory says"
    laptop = "about 20 min"
    code = ("probssl.studies.gedi_toy_trials",)

    def configs(self, budget: Budget) -> list[Config]:
        seeds, few, steps, printed_steps = SCALE[budget]
        found, printed = Settings(steps=steps), dataclasses.replace(PRINTED, steps=printed_steps)
        # Baselines have no prior term, no chains and a network of their own, and are trained as printed.
        settings = {method: (method, printed if method in BASELINES else found, seeds) for method in METHODS}
        settings |= {name: (method, printed, seeds) for name, method in AS_PRINTED.items()}
        settings |= {f"GEDI, {name}": ("GEDI", dataclasses.replace(found, **c), few) for name, c in CHANGES.items()}
        return [
            config(setting, data, method, own, seed, start)
            for setting, (method, own, count) in settings.items()
            for start in range(1 if budget == "smoke" else STARTS.get(setting, 1))
            for data in DATA
            for seed in range(count)
        ]

    def run_batch(self, configs: list[Config]) -> Iterator[tuple[Config, Result]]:
        return gedi_toy_trials.run_batch(configs)

    def batches(self, configs: list[Config], jobs: int) -> list[list[Config]]:
        """What trains as one together: the seeds and data sets of a setting, the dearest first."""
        groups: dict[tuple[str, int], list[Config]] = {}
        for one in configs:
            groups.setdefault((one["setting"].partition(", ")[2], one["start"]), []).append(one)
        return sorted(groups.values(), key=lambda group: -_cost(group[0]))

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        groups = grouped([*best(results), *first_alone(results)])
        rows = [_row(setting, NMI, [result[NMI] for _, result in group]) for setting, group in groups.items()]
        for setting, group in groups.items():
            values = [result[LIKELIHOOD] for _, result in group if LIKELIHOOD in result]
            if values:
                rows.append(_row(setting, LIKELIHOOD, values))
        for data in DATA:
            seeds = {one["seed"] for one, _ in results if one["data"] == data}
            for name, values in likelihoods_without_training(data, sorted(seeds)).items():
                rows.append(_row(f"{data}, {name}", LIKELIHOOD, values))
        return rows

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        results = best(results)
        found = {
            "clusters": drawn.figure_clusters(results, METHODS),
            "densities": drawn.figure_densities(results, [m for m in METHODS if m not in BASELINES]),
            "terms": drawn.figure_terms(results, ("GEDI", "GEDI no gen", *AS_PRINTED)),
        }
        shown = pictures.save(out, found)
        page = out / "index.html"
        write_text(page, _page(results, rows, shown))
        return page


def _row(setting: str, metric: str, values: Sequence[float]) -> Row:
    """The mean over seeds, of log-likelihoods, which a density of spikes sends to −∞, the median; and the deviation."""
    middle = float(np.median(values) if metric == LIKELIHOOD else np.mean(values))
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    reference = references(Toy.name).get((setting, metric))
    published = reference.value if reference else None
    return Row(setting, metric, middle, spread, published, verdict(middle, spread, len(values), reference))


def likelihoods_without_training(data: str, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Mean log-likelihoods of test points under the law they come from, the most there can be, and a fitted normal."""
    found: dict[str, list[float]] = {"the law itself": [], "a normal distribution": []}
    for seed in seeds:
        train, test = points(data, seed)[0].numpy(), fresh_points(data, seed)[0].numpy()
        normal = stats.multivariate_normal(train.mean(0), np.cov(train.T))
        found["the law itself"].append(float(true_log_density(data, test).mean()))
        found["a normal distribution"].append(float(normal.logpdf(test).mean()))
    return found


def _cost(one: Config) -> float:
    settings = one["settings"]
    generates = one["method"] not in ("GEDI no gen", *BASELINES)
    return float(settings["steps"] * settings["batch_size"] * (1 + generates * settings["sgld_steps"]))


def grouped(results: Results) -> dict[str, Results]:
    """The trials of each setting, in the order of the grid."""
    found: dict[str, Results] = {}
    for one, result in results:
        found.setdefault(one["setting"], []).append((one, result))
    return found


def best(results: Results) -> Results:
    """Of several starts of a seed the one with the least loss on the points trained on, which needs no labels."""
    return best_starts(results, "clustering_loss")


def first_alone(results: Results) -> Results:
    """What the first of several starts came to, as settings of their own."""
    return [({**one, "setting": f"{one['setting']}, first start"}, result) for one, result in first_starts(results)]


def predicted(method: str) -> str:
    """The failures of the triad that theory leaves open for a method's terms."""
    variant = VARIANTS.get(method, "")
    if not variant:
        return "–"
    from probssl.objectives.gedi import ABLATIONS

    return ", ".join(open_failure_modes([TERMS[term] for term in ABLATIONS[variant]])) or "none"


def diagnoses(results: Results) -> list[list[str]]:
    """What theory leaves open and what was seen, a line a setting."""
    lines = []
    for setting, group in grouped(results).items():
        method, seen = group[0][0]["method"], [result for _, result in group if "failures" in result]
        if not seen:
            continue
        counts = {mode: sum(mode in result["failures"] for result in seen) for mode in drawn.MODES}
        happened = ", ".join(f"{mode} {count}/{len(seen)}" for mode, count in counts.items() if count) or "none"
        numbers = [
            f"{np.median([result[key] for result in seen]):.3f}"
            for key in ("invariance", "prior_gap", "largest_share", "agreement")
        ]
        lines.append([setting, predicted(method), happened, *numbers])
    return lines


def _page(results: Results, rows: list[Row], shown: dict[str, str]) -> str:
    scores = {row.setting: row for row in rows if row.metric == NMI}
    body = [
        [setting, _spread(row), "–" if row.published is None else f"{row.published:.2f}", row.verdict]
        for setting, row in scores.items()
    ]
    likelihoods = [[row.setting, _spread(row)] for row in rows if row.metric == LIKELIHOOD]
    held = all((scores[f"{data}, GEDI"].value or 0) >= 0.94 for data in DATA if f"{data}, GEDI" in scores)
    lead = (
        f"{html.badge('claim holds' if held else 'claim does not hold', held)} &nbsp;One network that clusters and "
        "is a density, trained without labels by three terms; each of its ablations lacks one."
    )
    head = ["setting", "open by theory", "seen", "invariance", "prior − ln 2", "largest share", "labels agree"]
    sections = [
        html.section("Figure 3 and 5: clusters", shown["clusters"], "Seed 0, test points; shades are p(y | x)."),
        html.section("Figure 5: densities", shown["densities"], "Seed 0; log p(x) up to a constant, dots are samples."),
        html.section("Figure 4: the terms and their least values", shown["terms"], "One line a seed."),
        html.section("Normalised mutual information", html.table(["setting", NMI, "paper", "verdict"], body)),
        html.section(
            "Log-likelihood of test points",
            html.table(["setting", "nats a point"], likelihoods),
            "Medians over seeds. Densities of two features are normalised over a square, so this is exact; the paper "
            "has no such number.",
        ),
        html.section("The triad of failures", html.table(head, diagnoses(results)), "Medians over seeds."),
    ]
    return html.page("GEDI on moons and circles", lead, sections)


def _spread(row: Row) -> str:
    return "–" if row.value is None else f"{row.value:.2f} ± {row.spread:.2f}"


class Sensitivity(Study):
    """GEDI over the weights of its invariance and prior terms (GEDI Figure 8)."""

    name = "gedi/sensitivity"
    paper = "GEDI, Figure 8"
    claim = "GEDI clusters for a wide range of weights of its invariance and prior terms"
    laptop = "10 to 15 min"
    code = ("probssl.studies.gedi_toy_trials",)

    WEIGHTS = (0, 10, 20, 30, 40, 50)

    def configs(self, budget: Budget) -> list[Config]:
        seeds = {"smoke": 1, "laptop": 2, "full": 5}[budget]
        weights = (0, 50) if budget == "smoke" else self.WEIGHTS
        changed: dict[str, Any] = {"smoke": {"steps": 30}, "laptop": {"sgld_steps": 3}, "full": {}}[budget]
        found = []
        for invariance in weights:
            for prior in weights:
                own = Settings(invariance=float(invariance), prior=float(prior), **changed)
                found += [
                    config(f"invariance {invariance}, prior {prior}", data, "GEDI", own, seed)
                    for data in DATA
                    for seed in range(seeds)
                ]
        return [{**one, "picture": False} for one in found]

    def run_batch(self, configs: list[Config]) -> Iterator[tuple[Config, Result]]:
        return gedi_toy_trials.run_batch(configs)

    def batches(self, configs: list[Config], jobs: int) -> list[list[Config]]:
        return even_parts(configs, 12)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        return [_row(setting, NMI, [result[NMI] for _, result in group]) for setting, group in grouped(results).items()]

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        shown = pictures.save(out, {"sensitivity": drawn.figure_sensitivity(results)})
        sections = [
            html.section("Figure 8: NMI over the weights", shown["sensitivity"], "Means over seeds."),
            html.section(
                "Numbers",
                html.table(["setting", NMI], [[row.setting, _spread(row)] for row in rows]),
            ),
        ]
        page = out / "index.html"
        write_text(page, html.page("GEDI over its weights", html.escape(self.claim), sections))
        return page
