"""GEDI's Table 6: digits learnt from sums of digits that nobody has labelled   (GEDI §6.4, appendix O).

Three images of MNIST show two digits and their sum. That they add up is all that is known. The constraint alone is
satisfied by calling everything a 0; GEDI alone finds clusters without names; both together read digits. Beside the
paper's three columns stands a fourth, the constraint with the prior alone, which tells what the generative term adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probssl.data.mnist import mnist
from probssl.report import figures
from probssl.report import page as html
from probssl.studies import gedi_addition_trials as trials
from probssl.studies import pictures
from probssl.studies.base import Budget, Config, Result, Results, Row, best_starts, first_starts
from probssl.studies.comparison import references, verdict
from probssl.studies.gedi_addition_trials import METHODS, SHOWN_SUMS
from probssl.studies.recovery import RecoveryStudy
from probssl.training.files import write_text

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

SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": {
        "network": "convolutions",
        "width": 4,
        "constraint_at_first": 0.2,
        "balance": 100.0,
        "rate": 2e-3,
        "anneal": "cosine",
        "sgld": 1,
        "chains": 200,
        "magnitude": 0.1,
    },
    "laptop": {
        "network": "convolutions",
        "width": 16,
        "constraint_at_first": 0.2,
        "balance": 100.0,
        "rate": 2e-3,
        "anneal": "cosine",
        "sgld": 3,
        "chains": 1_000,
        "magnitude": 0.1,
    },
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
COLOURS = dict(
    zip(METHODS, (figures.PALETTE[1], figures.PALETTE[2], figures.PALETTE[4], figures.PALETTE[0]), strict=True)
)
TERMS = ("constraint", "prior", "generative")


class Addition(RecoveryStudy):
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
        return (
            config["steps"]
            * {"constraint": 1, "constraint and prior": 1, "GEDI and constraint": 3, "GEDI": 3}[config["method"]]
        )

    def trial(self, config: Config) -> Result:
        return trials.trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        best, first = best_starts(results, OTHER_LOSS), first_starts(results)
        rows = []
        for examples in STEPS[budget]:
            for method in METHODS:
                for kind, trained in (("", best), (", first start", first)):
                    found = _results(trained, examples, method)
                    if found or not kind:
                        name = setting(examples, method) + kind
                        rows += [_row(name, metric, [result[metric] for result in found]) for metric in METRICS]
        return rows

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        sizes, middle, best = list(STEPS[budget]), shown_size(budget), best_starts(results, OTHER_LOSS)
        drawn = {
            "scores": figure_scores(rows, sizes),
            "terms": figure_terms(best, middle),
            "digits": figure_digits(best, middle),
            "chains": figure_chains(best, sizes),
        }
        page = out / "index.html"
        write_text(page, _page(results, rows, pictures.save(out, drawn), budget))
        return page


def setting(examples: int, method: str) -> str:
    """A row's name, as published."""
    return f"{examples} examples, {method}"


def _results(results: Results, examples: int, method: str) -> list[Result]:
    return [result for config, result in results if (config["examples"], config["method"]) == (examples, method)]


def _row(name: str, metric: str, values: Sequence[float]) -> Row:
    """The median over seeds, as published, and the standard deviation."""
    reference = references(Addition.name).get((name, metric))
    median = float(np.median(values)) if len(values) else None
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    found = verdict(median, spread, len(values), reference)
    return Row(name, metric, median, spread, None if reference is None else reference.value, found)


# --- figures ----------------------------------------------------------------------------------------------------------


def figure_scores(rows: list[Row], sizes: Sequence[int]) -> Any:
    """Median accuracy (left) and NMI (right) over the number of examples; the paper's dashed, with hollow marks."""
    by_name = {(row.setting, row.metric): row for row in rows}
    figure, axes = figures.new_figure(9.2, 3.4, 2)
    for axis, metric in zip(axes, METRICS, strict=True):
        for method, colour in COLOURS.items():
            found = [by_name[setting(size, method), metric] for size in sizes]
            ours = [
                (size, row.value, row.spread or 0)
                for size, row in zip(sizes, found, strict=True)
                if row.value is not None
            ]
            theirs = [
                (size, row.published) for size, row in zip(sizes, found, strict=True) if row.published is not None
            ]
            if ours:
                x, y, spread = zip(*ours, strict=True)
                axis.errorbar(
                    x, y, spread, color=colour, marker="o", markersize=5, linewidth=1.5, label=method, capsize=2
                )
            if theirs:
                style = {"linestyle": "--", "marker": "o", "markersize": 6, "markerfacecolor": "none"}
                axis.plot(*zip(*theirs, strict=True), color=colour, linewidth=0.9, **style)
        axis.set_xscale("log")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.set_ylim(-0.03, 1.03)
        axis.set_xlabel("examples", fontsize=8)
        axis.set_title(f"{metric} on test images", fontsize=9, color=figures.INK, loc="left")
    axes[0].plot(
        [],
        [],
        color=figures.MUTED,
        linestyle="--",
        marker="o",
        markerfacecolor="none",
        linewidth=0.9,
        label="published",
    )
    handles, labels = axes[0].get_legend_handles_labels()  # lines come before bars
    figure.legend(
        handles[1:] + handles[:1], labels[1:] + labels[:1], fontsize=8, frameon=False, loc="outside right center"
    )
    return figure


def figure_terms(results: Results, examples: int) -> Any:
    """Terms of the loss while training, one panel a term, every seed a line."""
    figure, axes = figures.new_figure(9.2, 2.7, len(TERMS))
    for axis, term in zip(axes, TERMS, strict=True):
        for method, colour in COLOURS.items():
            if method == "GEDI" and term == "prior":
                continue  # a cross-entropy there, not a divergence
            for result in _results(results, examples, method):
                points = [(point["step"], point[term]) for point in result["curve"] if term in point]
                if points:
                    axis.plot(*zip(*points, strict=True), color=colour, linewidth=1.1, alpha=0.8)
        axis.set_title(term, fontsize=9, color=figures.INK, loc="left")
        axis.set_xlabel("step", fontsize=8)
    for method, colour in COLOURS.items():
        axes[0].plot([], [], color=colour, label=method)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, frameon=False, loc="outside right center")
    return figure


def figure_digits(results: Results, examples: int) -> Any:
    """Sums of test images, what the first seed of each method reads in them, and chains of the sampler."""
    found = {method: several[0] for method in METHODS if (several := _results(results, examples, method))}
    figure, (axis,) = figures.new_figure(9.2, 2.9)
    axis.axis("off")
    axis.set_xlim(0, 1)
    axis.set_ylim(-len(METHODS) - 0.6, 1.6)
    if not found:
        return figure
    shown = next(iter(found.values()))["shown"]
    images = pictures.of_text(shown["images"], (3, 28, 28))
    left, width = 0.19, 0.81 / SHOWN_SUMS
    for number, (truth, three) in enumerate(zip(shown["truth"], images, strict=True)):
        start = left + number * width
        for place, image in enumerate(three):
            at = start + (place + 0.14) * width / 3.3
            axis.imshow(
                image, cmap="gray_r", extent=(at, at + 0.22 * width, 0.25, 1.4), aspect="auto", vmin=0, vmax=255
            )
        for place, sign in enumerate("+=", 1):
            axis.text(start + place * width / 3.3, 0.8, sign, fontsize=9, ha="center", va="center", color=figures.MUTED)
        for row, (method, result) in enumerate(found.items()):
            read = result["shown"]["read"][number]
            for place, digit in enumerate(read):
                at = start + (place + 0.5) * width / 3.3
                right = digit == truth[place]
                style = {"color": COLOURS[method] if right else figures.MUTED, "weight": "bold" if right else "normal"}
                axis.text(at, -row - 0.6, str(digit), fontsize=10, ha="center", va="center", **style)
    for row, method in enumerate(found):
        axis.text(0, -row - 0.6, method, fontsize=9, va="center", color=COLOURS[method])
    axis.set_xlim(0, 1)
    axis.set_ylim(-len(METHODS) - 0.2, 1.6)
    return figure


def figure_chains(results: Results, sizes: Sequence[int]) -> Any:
    """Where chains of the sampler are at the end, one row a number of examples."""
    figure, axes = figures.new_figure(9.2, 0.62 * len(sizes), 1, len(sizes))
    for axis, size in zip(axes, sizes, strict=True):
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_visible(False)
        axis.set_ylabel(f"{size:,}", fontsize=8, rotation=0, ha="right", va="center")
        for result in _results(results, size, METHODS[-1])[:1]:
            images = pictures.of_text(result["chains"], (28, 28))
            axis.imshow(np.concatenate(list(images), 1), cmap="gray_r", vmin=0, vmax=255)
    return figure


# --- the page ---------------------------------------------------------------------------------------------------------


def holds(rows: list[Row], sizes: Sequence[int]) -> bool:
    """Whether, from 1,000 examples on, both together read 0.9 or more of the digits, and each alone 0.2 or less."""
    accuracy = {row.setting: row.value for row in rows if row.metric == "accuracy"}
    values = [[accuracy[setting(size, method)] for method in METHODS] for size in sizes if size >= 1_000]
    together = [row[METHODS.index("GEDI and constraint")] for row in values]
    alone = [row[METHODS.index(method)] for row in values for method in ("constraint", "GEDI")]
    return (
        bool(values)
        and all(v is not None and v >= 0.9 for v in together)
        and all(v is not None and v <= 0.2 for v in alone)
    )


def _page(results: Results, rows: list[Row], shown: dict[str, str], budget: Budget) -> str:
    sizes = list(STEPS[budget])
    held = holds(rows, sizes)
    lead = (
        f"{html.badge('claim holds' if held else 'claim does not hold', held)} &nbsp;From 1,000 examples on, GEDI and "
        "the constraint together read at least 0.9 of the test images, and each alone at most 0.2: that is the rule."
    )
    body = [
        [
            row.setting,
            row.metric,
            "–" if row.value is None else f"{row.value:.3f} ± {row.spread or 0:.3f}",
            "–" if row.published is None else f"{row.published:.2f}",
            "" if row.published is None else row.verdict,
        ]
        for row in rows
    ]
    starts = [
        [
            setting(size, method),
            f"{config['seed']}, {config['start']}",
            *(f"{result[key]:.3f}" for key in ("accuracy", "NMI", "other constraint", "other prior")),
            f"{result['seconds']:.0f} s",
        ]
        for size in sizes
        for method in METHODS
        for config, result in results
        if (config["examples"], config["method"]) == (size, method)
    ]
    scale, middle = SCALES[budget], shown_size(budget)
    protocol = (
        f"Medians over {SEEDS[budget]} seeds, as published, ± standard deviation. Network: {scale['network']}, "
        f"width {scale['width']}; {scale['sgld']} steps of the sampler, batches of {trials.BATCH} examples, "
        + ", ".join(f"{steps:,} steps for {size:,} examples" for size, steps in STEPS[budget].items())
        + "."
    )
    sections = [
        html.section("Over the number of examples", shown["scores"], "Bars: standard deviation over seeds."),
        html.section(f"Terms while training on {middle:,} examples", shown["terms"], "One line a seed."),
        html.section(
            f"Read after {middle:,} examples", shown["digits"], "Test images; right digits in colour; seed 0."
        ),
        html.section("Chains of GEDI and constraint", shown["chains"], "Number of examples on the left; seed 0."),
        html.section("All numbers", html.table(["setting", "metric", "ours", "published", ""], body), protocol),
        html.section(
            "Every training",
            html.table(
                ["setting", "seed, start", "accuracy", "NMI", "constraint, other sums", "prior, other sums", "CPU"],
                starts,
            ),
            "Other sums are of training images that are in no example. Both terms are near 0 where digits were found, "
            "and by them the best of several starts is known.",
        ),
    ]
    return html.page("Digits from unlabelled sums", lead, sections)


def shown_size(budget: Budget) -> int:
    """The number of examples that figures of single trainings are about."""
    return sorted(STEPS[budget])[len(STEPS[budget]) // 2]
