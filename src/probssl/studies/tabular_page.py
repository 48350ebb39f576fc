"""What a run of the tabular study is shown as: figures 4 to 13 of Siamese-EBM and one of ours, a page, and files."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probssl.report import figures
from probssl.studies.page import Page, Picture, Section, Table, csv_text
from probssl.studies.tabular_claims import Claim, claims
from probssl.studies.tabular_grid import ENERGIES, LEARNING_RATES, LOSSES, MODELS, PMLB, PUBLISHED_STEPS, Model, Scale
from probssl.studies.tabular_scores import METRICS, Array, Scores, mean, standard_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = {
    loss: {"color": colour, "marker": marker, "markersize": 4.5}
    for loss, colour, marker in zip(LOSSES, figures.PALETTE, "osD^vP", strict=False)
}
ENERGY = {"euclidean": "Euclidean energy", "cosine": "cosine energy"}

OURS = "deaugmenting"
"""The figure that is not in the paper; each sweep has one of this name."""

KL = "kl_exact_model"

SUMMARY = tuple(name for name in METRICS if name != "nll")
VERDICTS = ("reproduced", "partly", "not reproduced", "not tested")
OURS_IS = "KL of the model's posterior over rows from the exact one, relative to the initial weights."
ERRORS = "Mean over tables, error bars: standard error over tables."
RULE = (
    "A part holds when the difference it speaks of exceeds one standard error over tables, or keeps the limit that its "
    "rule names. Reproduced: all parts; partly: at least half; ✗ marks parts that do not hold."
)


def page(name: str, scores: Scores, scale: Scale) -> Page:
    """The page of a run."""
    found = claims(scores)
    body = [[f"{c.text} ({c.rule})", c.place, c.verdict, c.evidence()] for c in found]
    sections = [
        Section(
            "What the paper says, and what came out",
            Table(["claim and rule", "place", "verdict", "numbers"], body, text=True, strong=2),
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


def tally(found: Sequence[Claim]) -> str:
    """How many claims came to which verdict, in a sentence."""
    count: Counter[str] = Counter(claim.verdict for claim in found)
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


def markdown(scores: Scores, found: Sequence[Claim], scale: Scale) -> str:
    """The section of the docs that a run fills: what was run, claim by claim, and the table of scores."""
    lines = [f"{protocol(scores, scale)} {tally(found)}", "", "| place | claim and rule | verdict | numbers |"]
    lines.append("| --- | --- | --- | --- |")
    lines += [f"| {c.place} | {c.text} (*{c.rule}*) | **{c.verdict}** | {c.evidence()} |" for c in found]
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


def every_figure(scores: Scores) -> Iterator[tuple[str, str, Figure]]:
    """Name, title and figure of all that is drawn of a sweep."""
    for metric, number in scores.setup.figures.items():
        if metric == "change":
            yield f"figure{number}", f"Figure {number}: learning rate 1 minus 0.01", change_figure(scores)
        else:
            yield f"figure{number}", f"Figure {number}: {METRICS[metric].title}", sweep_figure(scores, metric)
    yield OURS, "Undoing augmentations (not in the paper)", sweep_figure(scores, KL, scales=("log", "symlog"))


def sweep_figure(scores: Scores, metric: str, scales: tuple[str, str] = ("linear", "linear")) -> Figure:
    """Relative score above, regret below; Euclidean energy left, cosine right; one line a loss; learning rate 0.01."""
    about, usual = METRICS[metric], LEARNING_RATES.index(0.01)
    unit = f", {about.unit}" if about.unit else ""
    relative, regret = scores.relative(metric)[:, :, usual], scores.regret(metric)[:, :, usual]
    return _panels(scores, [(f"relative {about.title}, %", relative, 100.0), (f"regret{unit}", regret, 0.0)], scales)


def change_figure(scores: Scores) -> Figure:
    """What learning rate 1 adds: accuracy above, RankMe below."""
    metrics = [METRICS[name] for name in ("linear_probe", "rankme")]
    return _panels(scores, [(f"change of {m.title}, {m.unit}", scores.change(m.name), 0.0) for m in metrics])


def _panels(
    scores: Scores, rows: list[tuple[str, Array, float]], scales: tuple[str, str] = ("linear", "linear")
) -> Figure:
    """Rows of (title, lines [table, model, position], level without effect): means over tables, standard errors."""
    titles = [ENERGY[energy] for energy in ENERGIES] + [""] * (len(rows) * len(ENERGIES) - len(ENERGIES))
    figure, axes = figures.panels(titles, 4.8, 3.1, 2, x=scores.setup.axis, sharex=True, sharey="row")
    panels = itertools.product(zip(rows, scales, strict=True), ENERGIES)
    for axis, (((title, values, level), scale), energy) in zip(axes, panels, strict=True):
        models = [(number, m) for number, m in enumerate(MODELS) if m.energy == energy]
        for place, (number, m) in enumerate(models):
            axis.errorbar(
                _horizontal(scores, place - (len(models) - 1) / 2),
                mean(values[:, number], 0),
                yerr=np.nan_to_num(standard_error(values[:, number])),
                linewidth=1.4,
                elinewidth=0.9,
                capsize=2,
                **STYLE[m.loss],
            )
        axis.axhline(level, color=figures.MUTED, linewidth=0.8, linestyle="--", zorder=0)
        axis.grid(axis="y", color=figures.MUTED, alpha=0.15, linewidth=0.6)
        if energy == ENERGIES[0]:
            axis.set_ylabel(title, fontsize=8)
            axis.set_yscale(scale)
        _ticks(axis, scores)
    figures.legend(figure, {title: STYLE[loss] for loss, title in LOSSES.items()})
    return figure


def _horizontal(scores: Scores, offset: float) -> Array:
    """Where a line's points stand: a little beside each other, so that error bars do not hide each other."""
    values = np.array([float(position) for position in scores.positions])
    return values * 1.012**offset if scores.setup.is_ratio else values + 0.006 * offset


def _ticks(axis: Any, scores: Scores) -> None:
    """A tick at every position, written as the text does; ratios on a log scale."""
    if scores.setup.is_ratio:
        axis.set_xscale("log")
        axis.minorticks_off()
    axis.set_xticks(
        [float(position) for position in scores.positions],
        [scores.setup.label(position) for position in scores.positions],
    )
