"""GEDI's Table 6: digits learnt from sums of digits that nobody has labelled   (GEDI §6.4, appendix O).

Three images of MNIST show two digits and their sum. That they add up is all that is known. The constraint alone is
satisfied by calling everything a 0; GEDI alone finds clusters without names; both together read digits. Beside the
paper's three columns stands a fourth, the constraint with the prior alone, which tells what the generative term adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from probssl.data.mnist import mnist
from probssl.report import figures, tiles
from probssl.studies import gedi_addition_trials as trials
from probssl.studies import pictures
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
from probssl.studies.gedi_addition_trials import METHODS, SIDE
from probssl.studies.page import Page, Picture, Section, Table, claim, judged, pivot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEEDS = {"smoke": 1, "laptop": 3, "full": 5}
STEPS: dict[Budget, dict[int, int]] = {
    "smoke": {100: 5},
    "laptop": {100: 400, 1_000: 800, 10_000: 800},
    "full": {100: 500, 1_000: 1_600, 10_000: 4_150},
}
"""Number of examples -> steps; in full the paper's 500, 100 and 25 passes in batches of 60."""

STARTS: dict[Budget, int] = {"smoke": 1, "laptop": 3, "full": 1}
STARTED = ("constraint and prior", "GEDI and constraint")
"""How often these are begun: of several the one with the least loss on other sums is taken, and labels have no say."""

COST = {"constraint": 1, "constraint and prior": 1, "GEDI and constraint": 3, "GEDI": 3}
"""About how long a step of a method takes."""

SMALL = {
    "network": "convolutions",
    "constraint_at_first": 0.2,
    "balance": 100.0,
    "rate": 2e-3,
    "anneal": "cosine",
    "magnitude": 0.1,
}
SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": {**SMALL, "width": 4, "sgld": 1, "chains": 200},
    "laptop": {**SMALL, "width": 16, "sgld": 3, "chains": 1_000},
    "full": {
        "network": "residual",
        "width": 128,
        "constraint_at_first": 1.0,
        "balance": 400.0,
        "rate": 1e-4,
        "anneal": "constant",
        "sgld": 20,
        "chains": 10_000,
        "magnitude": 0.0,
    },
}
"""Network, share of its weight that the constraint begins with, weight of the prior beside it, learning rate, sampler,
and the weight that keeps energies from drifting off; in full those of the paper."""

METRICS = ("accuracy", "NMI")
OTHER_LOSS = "other loss"
COLOURS = dict(zip(METHODS, [figures.PALETTE[number] for number in (1, 2, 4, 0)], strict=True))
TERMS = ("constraint", "prior", "generative")


class Addition(Study):
    """Three numbers of examples by four losses, over seeds."""

    name = "gedi/addition"
    paper = "GEDI, Table 6"
    claim = "a constraint on unlabelled digits teaches to read them, if GEDI keeps it from calling everything a 0"
    laptop = "25 to 30 min"
    code = ("probssl.studies.gedi_addition_trials",)

    def prepare(self, budget: Budget) -> None:
        mnist()

    def configs(self, budget: Budget) -> list[Config]:
        return [
            {
                "setting": setting(examples, method),
                "examples": examples,
                "method": method,
                "seed": seed,
                "start": start,
                "steps": steps,
                **SCALES[budget],
            }
            for seed in range(SEEDS[budget])
            for examples, steps in STEPS[budget].items()
            for method in METHODS
            for start in range(STARTS[budget] if method in STARTED else 1)
        ]

    def cost(self, config: Config) -> float:
        return float(config["steps"] * COST[config["method"]])

    def trial(self, config: Config) -> Result:
        return trials.trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        best, first = best_starts(results, OTHER_LOSS), first_starts(results)
        rows = []
        for examples in STEPS[budget]:
            for method in METHODS:
                for kind, trained in (("", best), (", first start", first)):
                    found = where(trained, examples=examples, method=method)
                    if found or not kind:
                        name = setting(examples, method) + kind
                        for metric in METRICS:  # medians, as published
                            values = [result[metric] for result in found]
                            rows.append(row_of(self.name, name, metric, values, median=True, of_one=0.0))
        return rows

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        sizes, scale, best = list(STEPS[budget]), SCALES[budget], best_starts(results, OTHER_LOSS)
        middle = sorted(sizes)[len(sizes) // 2]
        note = (
            f"Medians over {SEEDS[budget]} seeds, as published, ± standard deviation. Network: {scale['network']}, "
            f"width {scale['width']}; {scale['sgld']} steps of the sampler, batches of {trials.BATCH} examples, "
            + ", ".join(f"{steps:,} steps for {size:,} examples" for size, steps in STEPS[budget].items())
            + "."
        )
        about_digits = "Two digits of test images and their sum; what was read rightly is in colour; seed 0."
        about_others = (
            "Other sums are of training images that are in no example. Both terms are near 0 where digits were found, "
            "and by them the best of several starts is known."
        )
        scores = Picture("scores", figure_scores(rows, sizes))
        terms = Picture("terms", figure_terms(best, middle))
        digits = Picture("digits", figure_digits(best, middle))
        table = pivot(rows, cell=lambda row: judged(row, form=".3f"))
        claims = claims_of(sizes)
        sections = [
            Section("Over the number of examples", scores, note="Bars: standard deviation over seeds."),
            Section(f"Terms while training on {middle:,} examples", terms, note="One line a seed."),
            Section(f"Read after {middle:,} examples", digits, note=about_digits),
            Section("All numbers", table, note=note),
            Section("Every training", every_training(results), note=about_others),
        ]
        if where(best, method=METHODS[-1]):
            chains = Picture("chains", figure_chains(best, sizes))
            about_chains = "Number of examples on the left; seed 0."
            sections.insert(3, Section("Chains of GEDI and constraint", chains, note=about_chains))
        lead = (
            "From 1,000 examples on, GEDI and the constraint together read at least 0.9 of the test images, and each "
            "alone at most 0.2: that is the rule."
        )
        held = bool(claims) and all(one.holds(rows) for one in claims)
        return Page("Digits from unlabelled sums", lead, sections, claim(held))


def setting(examples: int, method: str) -> str:
    """A row's name, as published."""
    return f"{examples} examples, {method}"


def claims_of(sizes: Sequence[int]) -> list[Claim]:
    """From 1,000 examples on, both together read 0.9 or more of the digits, and each alone 0.2 or less."""
    large = [size for size in sizes if size >= 1_000]
    together = [Claim((setting(size, "GEDI and constraint"), "accuracy"), 0.9) for size in large]
    return together + [
        Claim(0.2, (setting(size, method), "accuracy")) for size in large for method in ("constraint", "GEDI")
    ]


def every_training(results: Results) -> Table:
    """What every start of every seed came to, and what other sums say of it without labels."""
    head = ["setting", "seed, start", "accuracy", "NMI", "constraint, other sums", "prior, other sums", "CPU"]
    measured = ("accuracy", "NMI", "other constraint", "other prior")
    ordered = sorted(results, key=lambda trial: (trial[0]["examples"], METHODS.index(trial[0]["method"])))
    lines = [
        [
            config["setting"],
            f"{config['seed']}, {config['start']}",
            *(f"{result[name]:.3f}" for name in measured),
            f"{result['seconds']:.0f} s",
        ]
        for config, result in ordered
    ]
    return Table(head, lines)


def figure_scores(rows: list[Row], sizes: Sequence[int]) -> Figure:
    """Median accuracy (left) and NMI (right) over the number of examples; the paper's dashed, with hollow marks."""
    known = {(row.setting, row.metric): row for row in rows}
    drawn, axes = figures.panels([f"{metric} on test images" for metric in METRICS], 4.6, 3.2, x="examples")
    for axis, metric in zip(axes, METRICS, strict=True):
        found = {method: [known[setting(size, method), metric] for size in sizes] for method in METHODS}
        figures.measured(axis, sizes, found, COLOURS)
        figures.log_ticks(axis, "x", sizes, [f"{size:,}" for size in sizes])
        axis.set_ylim(-0.03, 1.03)
    figures.legend(drawn, {**COLOURS, "published": figures.HOLLOW})
    return drawn


def figure_terms(results: Results, examples: int) -> Figure:
    """Terms of the loss while training, one panel a term, every seed a line."""
    drawn, axes = figures.panels(TERMS, 3.1, 2.5, x="step")
    for axis, term in zip(axes, TERMS, strict=True):
        curves = {
            method: [figures.logged(one["curve"], term) for one in where(results, examples=examples, method=method)]
            for method in METHODS
            if (method, term) != ("GEDI", "prior")  # a cross-entropy there, not a divergence
        }
        figures.lines(axis, curves, COLOURS, legend=False, alpha=0.8)
    figures.legend(drawn, COLOURS)
    return drawn


def figure_digits(results: Results, examples: int) -> Figure:
    """Sums of test images, and below them what the first seed of each method reads: right digits in colour."""
    drawn, axes = figures.panels([""] * trials.SHOWN_SUMS, 1.4, 1.5)
    for number, axis in enumerate(axes):
        figures.bare(axis)
        for row, method in enumerate(METHODS):
            for result in where(results, examples=examples, method=method)[:1]:
                shown = result["shown"]
                sheet = tiles.sheet(255 - pictures.of_text(shown["images"], (3, 1, SIDE, SIDE))[number][None])
                height, width, _ = sheet.shape
                axis.imshow(sheet)
                axis.set_ylim(height * (1.2 + 0.6 * len(METHODS)), 0)
                below = height * (1.5 + 0.6 * row)
                if number == 0:
                    axis.text(-8, below, method, fontsize=9, ha="right", va="center", color=COLOURS[method])
                for place, (digit, truth) in enumerate(zip(shown["read"][number], shown["truth"][number], strict=True)):
                    colour = COLOURS[method] if digit == truth else figures.MUTED
                    axis.text((place + 0.5) * width / 3, below, str(digit), ha="center", va="center", color=colour)
    return drawn


def figure_chains(results: Results, sizes: Sequence[int]) -> Figure:
    """Where chains of the sampler are at the end, one row a number of examples."""
    chains = {size: where(results, examples=size, method=METHODS[-1])[:1] for size in sizes}
    shown = {
        f"{size:,}": 255 - pictures.of_text(result["chains"], (1, SIDE, SIDE))
        for size, first in chains.items()
        for result in first
    }
    return figures.image_rows(shown, 9.2)
