"""The report of a run: health, metrics beside baselines, the representation, curves, spectrum, configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import probssl
from probssl.errors import ProbsslError
from probssl.files import write_text
from probssl.metrics import spectra
from probssl.report import figures, plane, tiles
from probssl.report import page as html
from probssl.report.console import ARROWS, deaugmenting_rows, deaugmenting_wins, format_value
from probssl.report.scatter import scatter
from probssl.runs import Run
from probssl.runs.doctor import examine
from probssl.runs.evaluation import Comparison
from probssl.runs.folder import PICTURES, PROJECTION, flat
from probssl.schema import Mismatch, conform, intact, read_arrays
from probssl.theory.clustering import INVARIANCE_MINIMUM
from probssl.training.log import term_names


def write(run: Run, path: Path | None = None) -> Path:
    """Write the page of a run, to RUN/report.html unless told otherwise, and say where it is."""
    path = run.folder / "report.html" if path is None else path
    write_text(path, render(run))
    return path


def render(run: Run) -> str:
    """The page as text."""
    recipe, rows = run.recipe, run.rows
    diagnosis = examine(run)
    seconds = f" in {rows[-1]['seconds']:.0f} s" if rows else ""
    lead = (
        f"{html.badge('healthy' if diagnosis.healthy else 'needs attention', diagnosis.healthy)} "
        f"&nbsp;{html.escape(recipe.title)}, {run.step:,} steps{seconds}{verdict(run.comparison)}"
    )
    sections = []
    if not diagnosis.healthy:
        sections.append(_findings(diagnosis))
    if diagnosis.notes:
        sections.append(html.section("How far from the best possible", _sentences(diagnosis.notes)))
    if run.comparison is not None:
        sections.append(_metrics(run))
        if run.comparison.deaugmenting:
            sections.append(_deaugmenting(run.comparison))
    stored = run.folder / PROJECTION
    if stored.is_file():
        z, labels, classes, numbers = _projected(stored)
        sections.append(_projection(z, labels, classes, numbers))
    sections += _plane(run)
    sections += _pictures(run)
    if len(rows) > 1:
        curves = figures.loss_curves(rows, term_names(rows[-1]), _minima(rows[-1]))
        note = "Dotted: the least that a term can be." if _minima(rows[-1]) else ""
        sections.append(html.section("Loss and its terms", figures.svg(curves), note))
        ranks = html.section(
            "Rank while training",
            figures.svg(figures.rank_curve(rows, run.dim)),
            "How many dimensions the representation uses; the dotted line is all of them.",
        )
        if stored.is_file():
            spectrum = html.section(
                "Spectrum of the representation",
                figures.svg(figures.spectrum(spectra(z).eigenvalues)),
                "Eigenvalues of the covariance, largest first: a cliff means dimensions that are not used.",
            )
            sections.append(html.pair(ranks, spectrum))
        else:
            sections.append(ranks)
    sections.append(_configuration(run))
    return html.page(f"{run.source.data}", lead, sections)


def _findings(diagnosis: Any) -> str:
    items = "".join(
        f"<p><b>{html.escape(finding.kind)}</b> — {html.escape(finding.message)}</p><ul>"
        + "".join(f"<li>{html.escape(remedy)}</li>" for remedy in finding.remedies)
        + "</ul>"
        for finding in diagnosis.findings
    )
    return html.section("What is wrong, and what to try", items)


def _sentences(lines: tuple[str, ...]) -> str:
    return "".join(f"<p>{html.escape(line[0].upper() + line[1:])}.</p>" for line in lines)


def _deaugmenting(comparison: Comparison) -> str:
    first = next(iter(comparison.deaugmenting.values()))
    return html.section(
        "How well it undoes augmentations",
        html.table(
            ["", *comparison.deaugmenting, "exact posterior"],
            deaugmenting_rows(comparison),
            strong=[{column + 1 for column in first} for first in deaugmenting_wins(comparison)],
        ),
        f"{first.queries:,} fresh augmentations, each looked for among {first.candidates:,} rows. The exact posterior "
        "knows how augmentations are made; no model does better on average.",
    )


def metrics_table(comparison: Comparison) -> str:
    """Metrics down, codes across, in bold what wins clearly."""
    codes, wins = comparison.rows, {} if comparison.verdict is None else comparison.verdict.wins
    body = [
        [f"{title} {ARROWS[metric.direction]}", *[format_value(values, key) for values in codes.values()]]
        for key, (metric, title) in comparison.metrics.items()
    ]
    strong = [{place + 1 for place, name in enumerate(codes) if wins.get(key) == name} for key in comparison.metrics]
    return html.table(["", *codes], body, strong=strong)


def verdict(comparison: Comparison | None) -> str:
    """The sentences of a verdict; nothing where there is none."""
    sentences = () if comparison is None or comparison.verdict is None else comparison.verdict.sentences
    return "".join(f'<p class="verdict">{html.escape(sentence)}</p>' for sentence in sentences)


def _metrics(run: Run) -> str:
    assert run.comparison is not None
    seen = f"{run.comparison.judged}. The encoder saw no labels."
    if run.resolved.facts.relation is not None:
        seen = f"{seen} Rows are drawn afresh from the world."
    protocols = html.table(
        ["metric", "how it was computed"],
        [[title, run.comparison.protocols[key]] for key, (_, title) in run.comparison.metrics.items()],
        text=True,
    )
    return html.section(
        "What the representation is worth",
        metrics_table(run.comparison)
        + f"<details><summary>How each number was computed</summary>{protocols}</details>",
        f"↑ higher is better, ↓ lower; bold is clearly better than every other column; {seen}",
    )


DRAW_AGAIN = "remove it and do without, or evaluate again"


def _projected(path: Path) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray]:
    """Representations, labels, their names and what rows are called, as evaluation stored them."""
    arrays = read_arrays(path, DRAW_AGAIN, z="f2", labels="iu1", rows="iuU1", classes="U1")
    z, labels, numbers, classes = arrays.values()
    with intact(path, DRAW_AGAIN):
        conform(float(np.abs(z).max()) ** 2, float, "the square of z")
        if not z.shape[1] or not len(z) == len(labels) == len(numbers) or labels.max() >= max(1, len(classes)):
            raise Mismatch("its arrays are not of the same rows")
    return z, labels, [str(name) for name in classes], numbers


def _projection(z: np.ndarray, labels: np.ndarray, classes: list[str], numbers: np.ndarray) -> str:
    points, names = flatten(z)
    how = "its two dimensions" if z.shape[1] == 2 else "its first two principal components"
    coloured = "coloured by label" if classes else "no labels given"
    note = f"{len(points):,} rows, {how}, {coloured}. Drag to move, double-click or Ctrl and wheel to zoom."
    return html.section("The representation", scatter(points, labels, classes, numbers, names), note)


def _plane(run: Run) -> list[str]:
    """Clusters and density of a model of two features; nothing for any other, or where the data is gone."""
    if not run.finished or len(run.model.feature_names) != 2:
        return []
    found = plane.Plane.of_model(run.model)
    try:
        features = run.dataset.batch(run.dataset.rows()).numpy()
    except (ProbsslError, OSError):
        return []
    if found is None:
        return []
    note = "Points are rows in the colours of their clusters."
    if found.samples is not None:
        note += f" Beside it the density of the model, and {len(found.samples):,} samples of it."
    title = "Clusters" if found.log_density is None else "Clusters and density"
    return [html.section(title, figures.png(found.figure(features)), note)]


def _minima(row: dict[str, Any]) -> dict[str, float]:
    """The least values that the terms of a clustering loss can have, where they are known."""
    known = {"invariance": INVARIANCE_MINIMUM, "prior": row.get("prior_minimum")}
    return {name: least for name, least in known.items() if name in row and least is not None}


SHEETS = {
    "augmented": (
        "Images and their augmentations",
        "The first row is data; below each image, what the training pairs it with.",
    ),
    "neighbours": (
        "Nearest neighbours",
        "On the left an image; on its right those nearest to it in the representation, the nearest first.",
    ),
    "samples": ("Samples", "Chains of the density as training left them, the oldest, sorted by their clusters."),
    "reconstructed": (
        "Reconstructions",
        "The first row is data; below each image, what the decoder makes of its representation.",
    ),
    "drawn": (
        "New images",
        "Latents drawn from normals fitted to those of the data, a column each class (of data without labels, each of "
        "ten groups of latents), and decoded.",
    ),
    "traversals": (
        "Along the latents",
        "In each row the latents of one image move along one of their principal directions, from two standard "
        "deviations below the mean to two above; the largest direction comes first.",
    ),
}


def _pictures(run: Run) -> list[str]:
    """Sheets of images, which a run of images has."""
    stored = run.folder / PICTURES
    if not stored.is_file():
        return []
    sheets = read_arrays(stored, DRAW_AGAIN, tuple(SHEETS), **dict.fromkeys(SHEETS, "u5"))
    with intact(stored, DRAW_AGAIN):
        return [
            html.section(title, tiles.shown(sheets[name]), note)
            for name, (title, note) in SHEETS.items()
            if name in sheets
        ]


def flatten(z: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    """Two coordinates for every row: the code itself when it has two, else its first principal components."""
    if z.shape[1] == 2:
        return z, ("z0", "z1")
    centred = z - z.mean(0)
    _, singular, directions = np.linalg.svd(centred.astype(float), full_matrices=False)
    share = singular**2 / max(float((singular**2).sum()), 1e-30)
    points = centred @ directions[:2].T
    if points.shape[1] == 1:
        points = np.hstack([points, np.zeros_like(points)])
        share = np.append(share, 0.0)
    return points, (f"component 1 ({share[0]:.0%} of variance)", f"component 2 ({share[1]:.0%})")


def _configuration(run: Run) -> str:
    settings = flat(run.recipe.as_dict()).items()
    source = ((name, value) for name, value in run.source.as_dict().items() if name not in ("facts", "fingerprint"))
    body = html.table(["setting", "value"], [[name, _shown(value)] for name, value in (*source, *settings)], text=True)
    return html.section("Configuration", body, f"probssl {probssl.__version__}; also in recipe.toml beside this page.")


def _shown(value: Any) -> str:
    """A setting as it is written on the command line."""
    if isinstance(value, list):
        return ",".join(map(_shown, value)) or "none"
    if isinstance(value, dict):
        return " ".join(_shown(entry) if name == "name" else f"{name}={_shown(entry)}" for name, entry in value.items())
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
