"""What a run of the tabular study is shown as: a page, a file of scores, and Markdown for the docs."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from probssl.report import figures
from probssl.report import page as html
from probssl.studies.tabular_claims import Finding
from probssl.studies.tabular_grid import LEARNING_RATES, MODELS, PMLB, PUBLISHED_STEPS, Model, Scale
from probssl.studies.tabular_scores import METRICS, Scores, mean, standard_error

SUMMARY = (
    "linear_probe",
    "rankme",
    "rankme_centred",
    "intrinsic_dimension",
    "cluster_learnability",
    "alignment",
    "uniformity",
    "kl_exact_model",
    "top1",
)
VERDICTS = ("reproduced", "partly", "not reproduced", "not tested")
ERRORS = "Mean over tables, error bars: standard error over tables."
RULE = (
    "A part holds when the difference it speaks of exceeds one standard error over tables, or keeps the limit that its "
    "rule names. Reproduced: all parts; partly: at least half; ✗ marks parts that do not hold."
)


def page(
    name: str, scores: Scores, found: Sequence[Finding], drawn: Sequence[tuple[str, str, bytes]], scale: Scale
) -> str:
    """The page of a run."""
    lead = f"{html.escape(tally(found))} {html.escape(protocol(scores, scale))}"
    sections = [html.section("What the paper says, and what came out", _claims_table(found), RULE)]
    notes = {
        "deaugmenting": "KL of the model's posterior over rows from the exact one, relative to the initial weights."
    }
    for label, title, picture in drawn:
        sections.append(html.section(title, figures.embedded(picture), f"{ERRORS} {notes.get(label, '')}".strip()))
    for rate in LEARNING_RATES:
        title = f"All scores at learning rate {rate:g}"
        note = "Relative to the initial weights, in %, mean over positions and tables ± standard error over tables."
        sections.append(html.section(title, html.table(*_summary(scores, rate)), note))
    return html.page(f"Losses on tables: {name.partition('/')[2]}", lead, sections)


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


def _claims_table(found: Sequence[Finding]) -> str:
    """Like `html.table`, with a badge for each verdict and cells that wrap."""
    titles = (("place", ""), ("claim", "width: 40%"), ("verdict", ""), ("numbers", ""))
    head = "".join(f'<th style="text-align: left; {style}">{title}</th>' for title, style in titles)
    body = "".join(
        f"<tr><td>{html.escape(f.claim.place)}</td>"
        f'<td class="text">{html.escape(f.claim.text)}<br><span class="note">{html.escape(f.claim.rule)}</span></td>'
        f'<td style="text-align: left">{html.badge(f.verdict, f.verdict == "reproduced")}</td>'
        f'<td class="text"><span class="note">{html.escape(f.evidence())}</span></td></tr>'
        for f in found
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _summary(scores: Scores, rate: float) -> tuple[list[str], list[list[str]]]:
    """A row a model: every relative score over the whole sweep, and what failed or collapsed."""
    column = LEARNING_RATES.index(rate)
    each = {metric: mean(scores.relative(metric)[:, :, column], 2) for metric in SUMMARY}  # [table, model]
    body = []
    for number, m in enumerate(MODELS):
        cells = [_with_error(values[:, number]) for values in each.values()]
        body.append([m.title, *cells, _lost(scores, m, rate)])
    return ["model", *[METRICS[metric].title for metric in SUMMARY], "failed, collapsed"], body


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
        head, body = _summary(scores, rate)
        lines += [
            "",
            f"Relative scores in % at learning rate {rate:g}, mean over the sweep and tables ± standard error:",
            "",
        ]
        lines += [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]
    return "\n".join(lines) + "\n"


def scores_csv(scores: Scores) -> str:
    """Every point of every figure: means and standard errors over tables, of all metrics and models at both rates."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    values = ("score", "relative", "regret")
    head = ["metric", "loss", "energy", "lr", "position", "tables"]
    writer.writerow([*head, *(f"{v}{e}" for v in values for e in ("", "_se"))])
    for metric in METRICS:
        arrays = [scores.raw(metric), scores.relative(metric), scores.regret(metric)]
        for number, m in enumerate(MODELS):
            for column, rate in enumerate(LEARNING_RATES):
                for place, position in enumerate(scores.positions):
                    cells = [array[:, number, column, place] for array in arrays]
                    numbers = [f"{float(x):.6g}" for cell in cells for x in (mean(cell, 0), standard_error(cell))]
                    count = int(np.isfinite(cells[0]).sum())
                    label = scores.setup.label(position)
                    writer.writerow([metric, m.loss, m.energy, rate, label, count, *numbers])
    return buffer.getvalue()
