"""The page and the figures of `gedi/images`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from probssl.report import figures
from probssl.report import page as html
from probssl.studies import gedi_models, pictures
from probssl.studies.base import Result, Results, Row
from probssl.studies.gedi_images_trials import CLASSIFIER
from probssl.studies.gedi_models import METHODS, SETS
from probssl.training.files import write_text

COLOURS = dict(zip(METHODS, figures.PALETTE, strict=False))
ACROSS = 12
"""Images of a method in the figure."""

DISTANCE = f"FD({CLASSIFIER})"
CLUSTERERS = ("BarlowTwins", "SwAV", "GEDI no gen")
"""What trains without a density and is to generate nothing."""

TOLERANCE = 0.05
"""What GEDI's NMI may lose against the same without its generative term, for the claim to hold."""


def draw(results: Results, rows: list[Row], shapes: Mapping[str, tuple[int, ...]], notes: str, out: Path) -> Path:
    """Write the figures and the page; returns the page."""
    drawn = {"scores": figure_scores(results, rows, list(shapes))}
    drawn |= {f"samples-{data}": figure_samples(results, data, shape) for data, shape in shapes.items()}
    shown = pictures.save(out, drawn)
    held = {SETS[data]: claim_holds(rows, data) for data in shapes}
    good = all(held.values())
    lead = (
        f"{html.badge('claim holds' if good else 'claim does not hold on every set', good)} &nbsp;On a set it holds if "
        f"{DISTANCE} of GEDI's samples is below that of Barlow Twins, SwAV and GEDI no gen, and its NMI at most "
        f"{TOLERANCE:g} below that of GEDI no gen: that is the rule. "
        + html.escape("; ".join(f"{title}: {'yes' if yes else 'no'}" for title, yes in held.items()))
    )
    sections = [html.section("Scores", shown["scores"], "Dots: seeds. Hollow: published, at the paper's scale.")]
    for data in shapes:
        note = f"Chains from uniform noise after the last step. {notes}"
        sections.append(html.section(f"Samples, {SETS[data]}", shown[f"samples-{data}"], note))
    sections.append(html.section("All numbers", table(rows), notes + left_out()))
    page = out / "index.html"
    write_text(page, html.page("GEDI on images", lead, sections))
    return page


def scale_notes(scale: Mapping[str, Any], measuring: Mapping[str, int], seeds: int) -> str:
    """How large the experiment was, in words."""

    def told(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(
                f"{number} ({'others' if name == 'else' else SETS[name]})" for name, number in value.items()
            )
        return f"{value:,}"

    length = f"{told(scale['epochs'])} epochs" if "epochs" in scale else f"{told(scale['steps'])} steps"
    temperature = scale["noise"] ** 2 / (2 * scale["step_size"])
    return (
        f"Network: {scale['network']}, {told(scale['width'])} numbers a representation; the first {scale['rows']:,} "
        f"training images at most, {length} of {scale['batch']} images, {scale['langevin']} Langevin steps each at "
        f"temperature {temperature:.1e}, {'one seed' if seeds == 1 else f'{seeds} seeds'}; {measuring['samples']:,} "
        f"samples after {measuring['walk']} steps from noise; at most {measuring['test']:,} test images. "
    )


def left_out() -> str:
    """One sentence about the sets of the paper that are not here."""
    missing = gedi_models.absent()
    if not missing:
        return ""
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in the data directory and left out."


def claim_holds(rows: list[Row], data: str) -> bool:
    """Whether GEDI generates better than what has no density and clusters no worse than without its generative term."""
    value = {(row.setting, row.metric): row.value for row in rows}

    def of(method: str, metric: str) -> float:
        found = value.get((f"{SETS[data]}, {method}", metric))
        return float("nan") if found is None else found

    nearer = of("GEDI", DISTANCE) < min(of(method, DISTANCE) for method in CLUSTERERS)
    return nearer and of("GEDI", "NMI") >= of("GEDI no gen", "NMI") - TOLERANCE


def of_model(results: Results, data: str, method: str) -> list[Result]:
    """Results of one method on one set, a seed each."""
    return [
        result
        for config, result in results
        if "model" in config and (config["model"]["data"], config["model"]["method"]) == (data, method)
    ]


def references_of(results: Results, data: str) -> list[Result]:
    """What is known of a set without a trained model."""
    return [result for config, result in results if config.get("untrained", {}).get("data") == data]


def figure_scores(results: Results, rows: list[Row], sets: list[str]) -> Any:
    """NMI, linear probe and Fréchet distance of every method, set beside set."""
    published = {(row.setting, row.metric): row.published for row in rows}
    figure, axes = figures.new_figure(10.0, 3.0, 3)
    for axis, metric in zip(axes, ("NMI", "linear probe", DISTANCE), strict=True):
        for place, data in enumerate(sets):
            for number, (method, colour) in enumerate(COLOURS.items()):
                x = place + 0.15 * (number - (len(METHODS) - 1) / 2)
                values = [
                    result["distances"][metric] if metric == DISTANCE else result[metric]
                    for result in of_model(results, data, method)
                ]
                label = method if not place else None
                axis.plot([x] * len(values), values, "o", color=colour, markersize=4.5, label=label)
                printed = published.get((f"{SETS[data]}, {method}", metric))
                if printed is not None:
                    axis.plot([x], [printed], "o", markerfacecolor="none", markeredgecolor=colour, markersize=6)
            for result in references_of(results, data):
                lines = {"untrained": (result["untrained"], "--")} if metric == "linear probe" else {}
                if metric == DISTANCE:
                    lines = {"uniform noise": (result["ceiling"][metric], "--"), "data": (result["floor"][metric], ":")}
                for name, (value, style) in lines.items():
                    ends = (place - 0.42, place + 0.42)
                    label = None if place else name
                    axis.hlines(value, *ends, color=figures.MUTED, linewidth=1, linestyle=style, label=label)
        axis.set_xticks(range(len(sets)), [SETS[data] for data in sets])
        axis.set_xlim(-0.6, len(sets) - 0.4)
        axis.set_title(metric, fontsize=9, color=figures.INK, loc="left")
        if metric == DISTANCE:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=-0.02)
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=len(handles), fontsize=7.5, frameon=False
    )
    return figure


def figure_samples(results: Results, data: str, shape: tuple[int, ...]) -> Any:
    """A row of samples for every method, and one of data; seed 0."""
    sheets = {method: found[0]["samples"] for method in METHODS if (found := of_model(results, data, method))}
    if references_of(results, data):
        sheets["test images"] = references_of(results, data)[0]["data"]
    figure, axes = figures.new_figure(7.6, 0.62 * len(sheets), 1, len(sheets))
    for axis, (name, text) in zip(axes, sheets.items(), strict=True):
        images = pictures.of_text(text, shape)[:ACROSS].transpose(0, 2, 3, 1)  # [n, height, width, channels]
        framed = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255)
        strip = np.concatenate(list(framed), axis=1)
        axis.imshow(strip.squeeze(-1) if shape[0] == 1 else strip, cmap="gray", vmin=0, vmax=255)
        axis.set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center")
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_visible(False)
    return figure


def table(rows: list[Row]) -> str:
    """All rows, with what is published."""
    body = [
        [
            row.setting,
            row.metric,
            "–" if row.value is None else f"{row.value:.3f}" + ("" if row.spread is None else f" ± {row.spread:.3f}"),
            "–" if row.published is None else f"{row.published:g}",
            "" if row.published is None else row.verdict,
        ]
        for row in rows
    ]
    return html.table(["setting", "metric", "ours", "published", ""], body)
