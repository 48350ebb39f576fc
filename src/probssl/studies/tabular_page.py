"""What a run of the tabular study is shown as: a page, a file of scores, and Markdown for the docs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from probssl.studies.page import Page, Picture, Section, Table, csv_text
from probssl.studies.tabular_claims import Finding
from probssl.studies.tabular_figures import OURS, every_figure
from probssl.studies.tabular_grid import LEARNING_RATES, MODELS, PMLB, PUBLISHED_STEPS, Model, Scale
from probssl.studies.tabular_scores import METRICS, Scores, mean, standard_error

SUMMARY = tuple(name for name in METRICS if name != "nll")
VERDICTS = ("reproduced", "partly", "not reproduced", "not tested")
OURS_IS = "KL of the model's posterior over rows from the exact one, relative to the initial weights."
ERRORS = "Mean over tables, error bars: standard error over tables."
RULE = (
    "A part holds when the difference it speaks of exceeds one standard error over tables, or keeps the limit that its "
    "rule names. Reproduced: all parts; partly: at least half; ✗ marks parts that do not hold."
)


def page(name: str, scores: Scores, found: Sequence[Finding], scale: Scale) -> Page:
    """The page of a run."""
    claims = [[f"{f.claim.text} ({f.claim.rule})", f.claim.place, f.verdict, f.evidence()] for f in found]
    sections = [
        Section(
            "What the paper says, and what came out",
            Table(["claim and rule", "place", "verdict", "numbers"], claims, text=True, strong=2),
            note=RULE,
        )
    ]
    for label, title, figure in every_figure(scores):
        note = ERRORS if label != OURS else f"{ERRORS} {OURS_IS}"
        sections.append(Section(title, Picture(label, figure), note=note))
    for rate in LEARNING_RATES:
        note = "Relative to the initial weights, in %, mean over positions and tables ± standard error over tables."
        sections.append(Section(f"All scores at learning rate {rate:g}", _summary(scores, rate), note=note))
    return Page(
        f"Losses on tables: {name.partition('/')[2]}",
        f"{tally(found)} {protocol(scores, scale)}",
        sections,
        files={"scores.csv": scores_csv(scores), "claims.md": markdown(scores, found, scale)},
    )


def tally(found: Sequence[Finding]) -> str:
    """How many claims came to which verdict, in a sentence."""
    count: Counter[str] = Counter(finding.verdict for finding in found)
    return f"Of {len(found)} claims: " + ", ".join(f"{count[v]} {v}" for v in VERDICTS if count[v]) + "."


def protocol(scores: Scores, scale: Scale) -> str:
    """What was run, and what of the paper's protocol was not."""
    states = [state for several in scores.states.values() for state in several]
    lost = Counter(state.partition(":")[0] for state in states)
    seeds = len(scores.seeds)
    text = (
        f"{len(states):,} trainings of {scale.steps:,} steps on {len(scores.tables)} tables, {seeds} "
        f"seed{'s' if seeds > 1 else ''}; {lost['failed']} failed, {lost['collapsed']} ended collapsed."
    )
    if scale.steps < PUBLISHED_STEPS:
        text += f" The paper trains for {PUBLISHED_STEPS:,} steps."
    if set(scores.tables) != set(PMLB):
        text += " These are not the paper's eighteen tables: the verdicts say only that all of it runs."
    return text


def _summary(scores: Scores, rate: float) -> Table:
    """A row a model: every relative score over the whole sweep, and what failed or collapsed."""
    column = LEARNING_RATES.index(rate)
    each = {metric: mean(scores.relative(metric)[:, :, column], 2) for metric in SUMMARY}  # [table, model]
    body = []
    for number, m in enumerate(MODELS):
        cells = [_with_error(values[:, number]) for values in each.values()]
        body.append([m.title, *cells, _lost(scores, m, rate)])
    return Table(["model", *[METRICS[metric].title for metric in SUMMARY], "failed, collapsed"], body)


def _with_error(values: Any) -> str:
    centre, error = float(mean(values, 0)), float(standard_error(values))
    return "–" if not np.isfinite(centre) else _short(centre) + (f" ± {_short(error)}" if np.isfinite(error) else "")


def _short(number: float) -> str:
    """Whole, or with a power of ten where a few diverged models decide a mean."""
    return f"{number:.0f}" if abs(number) < 1e4 else f"{number:.0e}"


def _lost(scores: Scores, model: Model, rate: float) -> str:
    count = Counter(state.partition(":")[0] for state in scores.states[model, rate])
    return f"{count['failed']}, {count['collapsed']} of {sum(count.values())}"


def markdown(scores: Scores, found: Sequence[Finding], scale: Scale) -> str:
    """The section of the docs that a run fills: what was run, claim by claim, and the table of scores."""
    lines = [f"{protocol(scores, scale)} {tally(found)}", "", "| place | claim and rule | verdict | numbers |"]
    lines.append("| --- | --- | --- | --- |")
    lines += [
        f"| {f.claim.place} | {f.claim.text} (*{f.claim.rule}*) | **{f.verdict}** | {f.evidence()} |" for f in found
    ]
    for rate in LEARNING_RATES:
        table = _summary(scores, rate)
        title = f"Relative scores in % at learning rate {rate:g}, mean over the sweep and tables ± standard error:"
        rows = (table.head, ["---"] * len(table.head), *table.rows)
        lines += ["", title, "", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def scores_csv(scores: Scores) -> str:
    """Every point of every figure: means and standard errors over tables, of all metrics and models at both rates."""
    head = ["metric", "loss", "energy", "lr", "position", "tables"]
    head += [f"{value}{error}" for value in ("score", "relative", "regret") for error in ("", "_se")]
    rows: list[list[Any]] = []
    for metric in METRICS:
        arrays = [scores.raw(metric), scores.relative(metric), scores.regret(metric)]
        for (number, m), (column, rate), (place, position) in itertools.product(
            enumerate(MODELS), enumerate(LEARNING_RATES), enumerate(scores.positions)
        ):
            cells = [array[:, number, column, place] for array in arrays]
            numbers = [f"{float(x):.6g}" for cell in cells for x in (mean(cell, 0), standard_error(cell))]
            count = int(np.isfinite(cells[0]).sum())
            rows.append([metric, m.loss, m.energy, rate, scores.setup.label(position), count, *numbers])
    return csv_text(head, rows)
