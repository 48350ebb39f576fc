"""What the command line shows: tables and messages for a terminal of 80 columns or more."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from probssl.metrics import METRICS
from probssl.metrics.outliers import Detection

if TYPE_CHECKING:
    from probssl.data import DataSet
    from probssl.metrics.deaugment import DeaugmentationResult
    from probssl.parts.describe import Description
    from probssl.runs.doctor import Diagnosis
    from probssl.runs.evaluation import Comparison
    from probssl.runs.listing import Line
    from probssl.studies import StudyResult


def terminal(**options: Any) -> Console:
    """A console that prints text as it is: `pmlb:adult:` is a name and no emoji."""
    return Console(emoji=False, **options)


ARROWS = {"higher": "↑", "lower": "↓", "neither": " "}


def say(message: str) -> None:
    """A line on standard output."""
    terminal().print(escape(message), highlight=False, soft_wrap=True)


@contextlib.contextmanager
def status(message: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A spinner on standard error with a message that can be changed; nothing when quiet."""
    if quiet:
        yield lambda text: None
        return
    with terminal(stderr=True).status(message) as spinner:
        yield spinner.update


@contextlib.contextmanager
def download_progress(name: str, quiet: bool) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on standard error that appears when bytes begin to arrive, of a download or of a folder; in a terminal."""
    console = terminal(stderr=True)
    if quiet or not console.is_interactive:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    bar = Progress(
        TextColumn(f"reading {escape(Path(name).name)}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task("download", total=None)

    def update(done: int, total: int | None) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        if bar.live.is_started:
            bar.stop()


@contextlib.contextmanager
def trial_progress(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error over the trials of a study, with the time left as this session's pace has it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    started, first = time.monotonic(), [-1]
    bar = Progress(
        TextColumn(f"[bold]{escape(name)}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("trials {task.fields[left]}"),
        console=terminal(stderr=True),
        expand=True,
    )
    task = bar.add_task(name, total=total, left="")

    def update(done: int) -> None:
        first[0] = done if first[0] < 0 else first[0]
        left = ""
        if first[0] < done < total:
            seconds = (time.monotonic() - started) / (done - first[0]) * (total - done)
            left = f"· {duration(seconds)} left"
        bar.update(task, completed=done, left=left)

    with bar:
        yield update


def duration(seconds: float) -> str:
    """A time in the unit that a person would choose: 40 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def format_value(values: dict[str, float | None], name: str, plus_minus: str = " ± ") -> str:
    """A metric with its spread where it has one."""
    value = values.get(name)
    if value is None:
        return "–"
    spread = values.get(f"{name}_spread")
    if spread is not None:
        return f"{value:.3f}{plus_minus}{spread:.3f}"
    return f"{value:.0f}" if name == "numerical_rank" else f"{value:.3f}"


def best(values: Sequence[float | None], direction: str) -> set[int]:
    """Which of several numbers are the best, to the three digits that are shown; none where that has no meaning."""
    known = {place: round(value, 3) for place, value in enumerate(values) if value is not None}
    if direction == "neither" or len(known) < 2:
        return set()
    most = (max if direction == "higher" else min)(known.values())
    return {place for place, value in known.items() if value == most}


Row = tuple[list[str], set[int]]
"""Cells of a table, the first a title, and which of them are the best."""


def metric_rows(comparison: Comparison, plus_minus: str = " ± ") -> list[Row]:
    """A row for each metric, a cell for each code."""
    codes = list(comparison.rows.values())
    return [
        _row(
            metric.title,
            metric.direction,
            [values.get(metric.name) for values in codes],
            [format_value(values, metric.name, plus_minus) for values in codes],
        )
        for metric in METRICS
        if any(metric.name in values for values in codes)
    ]


def _row(title: str, direction: str, values: Sequence[float | None], cells: Sequence[str]) -> Row:
    return [f"{ARROWS[direction]} {title}", *cells], {place + 1 for place in best(values, direction)}


UNDOING = {
    "nll": ("−log q(source | x̃), nats", "lower"),
    "kl_exact_model": ("KL(exact ‖ model), nats", "lower"),
    "kl_model_exact": ("KL(model ‖ exact), nats", "lower"),
    "top1": ("source found first", "higher"),
    "top5": ("source among the first 5", "higher"),
    "ece": ("calibration error", "lower"),
    "effective_candidates": ("effective candidates", "neither"),
}
"""Scores of how well a model undoes augmentations: titles, and which way is better."""


def deaugmenting_rows(comparison: Comparison) -> list[Row]:
    """How well each model undoes augmentations, a row a score, with the exact posterior in the last column."""
    results = list(comparison.deaugmenting.values())

    def shown(result: DeaugmentationResult, name: str) -> str:
        value, spread = getattr(result, name), getattr(result, f"{name}_se", float("inf"))
        if name.endswith("effective_candidates"):
            return f"{value:,.1f}"
        if not spread < float("inf"):
            return f"{value:.3f}"
        return f"{value:.3f}±{spread:.3f}" if value < 1000 else f"{value:.4g}±{spread:.2g}"

    def least(name: str) -> str:
        return "0" if name.startswith("kl") else shown(results[-1], f"exact_{name}")

    return [
        _row(
            title,
            way,
            [getattr(result, name) for result in results],
            [*[shown(result, name) for result in results], least(name)],
        )
        for name, (title, way) in UNDOING.items()
    ]


PLAIN: dict[str, Any] = {"box": SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "title_justify": "left"}
"""How tables look."""


def show_comparison(comparison: Comparison) -> None:
    """Metrics down, codes across, the best in bold; close together, so that four codes with spreads fit 80 columns."""
    console = terminal()
    roomy = console.width >= 100
    rows = metric_rows(comparison, " ± " if roomy else "±")
    console.print(_codes(comparison.source, list(comparison.rows), rows, 30, (0, 1 if roomy else 0)))
    note = "± standard deviation over splits" if comparison.judged is None else comparison.judged
    console.print(f"↑ higher is better, ↓ lower; {note}", style="dim", highlight=False)
    if comparison.deaugmenting:
        first = next(iter(comparison.deaugmenting.values()))
        title = f"\nUndoing {first.queries:,} augmentations among {first.candidates:,} rows"
        names = [*comparison.deaugmenting, "exact posterior"]
        console.print(_codes(title, names, deaugmenting_rows(comparison), 28, (0, 1)))
        console.print("± standard error over augmentations", style="dim", highlight=False)


def _codes(title: str, names: Sequence[str], rows: Sequence[Row], width: int, padding: tuple[int, int]) -> Table:
    """Scores down, codes across."""
    table = Table(**PLAIN, title=escape(title), title_style="bold", padding=padding)
    table.add_column("", min_width=width)
    for name in names:
        head, _, tail = name.partition(" ")
        table.add_column(f"{head}\n{tail}", justify="right")
    for cells, ahead in rows:
        table.add_row(*[Text(cell, "bold" if column in ahead else "") for column, cell in enumerate(cells)])
    return table


def show_names(listed: Mapping[str, Mapping[str, str]]) -> None:
    """Names of parts, kind by kind, with what each is."""
    console = terminal(highlight=False, markup=False)
    for kind, names in listed.items():
        console.print(kind, style="bold")
        table = Table.grid(padding=(0, 2, 0, 0), pad_edge=True)
        for name, about in names.items():
            table.add_row(Text(f"  {name}", no_wrap=True), about)
        console.print(table)
    kind = next(iter(listed)) if len(listed) == 1 else "KIND"
    console.print(f"\nmore about one: probssl parts {kind} NAME", style="dim")


def show_part(part: Description) -> None:
    """A part: its formula, its settings with their defaults, and the collapses it admits."""
    console = terminal(highlight=False, markup=False)
    console.print(f"{part.kind} {part.name}".rstrip(), style="bold")
    for line in part.formula.splitlines():
        text, indent = line.lstrip(), len(line) - len(line.lstrip())
        if text.startswith("- "):
            item = Table.grid()
            item.add_row(" " * indent + "- ", text[2:])
            console.print(item)
        else:
            console.print(Padding(text, (0, 0, 0, indent)))
    if part.needs:
        console.print(f"\nneeds  {', '.join(part.needs)}")
    for name, setting in part.settings.items():
        default = setting["default"]
        shown = default.get("name", "") if isinstance(default, dict) else json.dumps(default, ensure_ascii=False)
        usual = "" if default is None else f"  (default: {shown})"
        console.print(f"\n--set {part.kind}.{name}=…  {setting['type']}{usual}", style="bold")
        console.print(Padding(setting["about"], (0, 0, 0, 2)))
    for kind, why in (part.admits or {}).items():
        console.print(f"\nadmits collapse of the {kind}: {why}", style="dim")


LISTED = {"linear_probe": "probe", "knn_probe": "k-NN", "linear_r2": "latents", "rankme": "RankMe"}
"""Metrics in a list of runs, with short titles."""


def show_runs(found: Sequence[Line], below: Path) -> None:
    """Runs, the newest first."""
    console = terminal(highlight=False)
    if not found:
        console.print("no runs here")
        return
    shown = {name: title for name, title in LISTED.items() if any(name in line.metrics for line in found)}
    columns = {"verdict": [line.verdict for line in found], "steps": [f"{line.step:,}" for line in found]}
    for name, title in shown.items():
        columns[title] = [f"{line.metrics[name]:.3f}" if name in line.metrics else "–" for line in found]
    room = console.width - sum(2 + max(map(len, (title, *cells))) for title, cells in columns.items())
    table = Table(**PLAIN, padding=(0, 1, 0, 0))
    table.add_column("run, loss · energy")
    for title in columns:
        table.add_column(title, justify="left" if title == "verdict" else "right")
    for line, *cells in zip(found, *columns.values(), strict=True):
        name = "\n".join([_in_lines(line.name(below), room), *([f"  {line.title}"] if line.title else [])])
        table.add_row(escape(name), *cells)
    console.print(table)
    for line in found:
        if line.reason:
            said = textwrap.fill(f"{line.name(below)}: {line.reason}", console.width, break_long_words=False)
            console.print(escape(said), soft_wrap=True)


def _in_lines(name: str, width: int) -> str:
    """The name of a file, broken behind hyphens and other signs where it is too long for one line."""
    lines = [""]
    for part in re.findall(r"[^-_./ ]*[-_./ ]*", name):
        lines[-1:] = [lines[-1] + part] if cell_len(lines[-1] + part) <= width else [lines[-1], part]
    return "\n".join(line for line in lines if line)


def show_collapse(collapsed: dict[str, int], folder: Path) -> None:
    """Say loudly that a finished run is collapsed."""
    from probssl.training.watch import MEANING

    for kind, step in collapsed.items():
        terminal(stderr=True).print(
            f"[bold yellow]warning:[/] {MEANING[kind]}, since step {step}; see: probssl doctor "
            + escape(shlex.quote(str(folder))),
            highlight=False,
            soft_wrap=True,
        )


def show_diagnosis(diagnosis: Diagnosis) -> None:
    """Findings with what to try, then the measurements and the risks that remain."""
    from probssl.training.watch import name_of

    console = terminal(highlight=False)
    colour = "green" if diagnosis.healthy else "yellow"
    console.print(f"[bold {colour}]{'healthy' if diagnosis.healthy else 'not healthy'}[/]")
    if diagnosis.healthy or not diagnosis.findings:
        console.print(escape(diagnosis.summary.removeprefix("healthy: ")), soft_wrap=True)
    for finding in diagnosis.findings:
        message = finding.message.removeprefix(f"{finding.kind}: ")
        console.print(f"[bold]{escape(finding.kind)}[/]  {escape(message)}", soft_wrap=True)
        for remedy in finding.remedies:
            console.print(f"  try: {escape(remedy)}", soft_wrap=True)
    for note in diagnosis.notes:
        console.print(escape(note))
    if diagnosis.facts:
        facts = " · ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in diagnosis.facts.items())
        console.print(f"latest measurements  {facts}", style="dim", soft_wrap=True)
    for kind, reason in diagnosis.risks.items():
        console.print(f"not ruled out by this loss  {name_of(kind)}: {escape(reason)}", style="dim", soft_wrap=True)


def show_detection(found: Mapping[str, tuple[str, Detection]], inside: int, outside: int) -> None:
    """How well each score tells rows inside from rows outside."""
    table = Table(**PLAIN, padding=(0, 1, 0, 0))
    for name, side in (("score", "left"), ("AUROC", "right"), ("95 %", "right"), ("is", "left")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for name, (meaning, part) in found.items():
        table.add_row(name, f"{part.auroc:.3f}", f"{part.low:.3f}–{part.high:.3f}", meaning)
    console = terminal(highlight=False)
    console.print(table)
    console.print(f"{inside:,} rows inside, {outside:,} outside; 1 tells all apart, 0.5 none", style="dim")


def show_data(sets: Sequence[DataSet], directory: Path) -> None:
    """The catalogue of named data sets."""
    table = Table(**PLAIN, padding=(0, 1, 0, 0))
    table.add_column("name", no_wrap=True)
    for column in ("rows", "dim", "classes"):
        table.add_column(column, justify="right")
    table.add_column("here")
    table.add_column("what it is", overflow="fold")
    for entry in sets:
        sizes = ["–" if size is None else f"{size:,}" for size in (entry.rows, entry.dimensions, entry.classes)]
        table.add_row(entry.name, *sizes, "yes" if entry.present else "no", entry.about)
    console = terminal()
    console.print(table)
    console.print(f"data directory: {escape(str(directory))}", style="dim", highlight=False, soft_wrap=True)


def show_studies(catalogue: list[dict[str, Any]]) -> None:
    """Experiments that can be reproduced, how long each takes, and how many of its trials are there."""
    console = terminal(highlight=False)
    width = max(len(study["name"]) for study in catalogue)
    console.print(f"{'experiment':{width}}   {'laptop':12}   trials here", style="bold")
    console.rule(style="dim")
    for study in catalogue:
        console.print(f"{study['name']:{width}}   {study['laptop']:12}   {_standing(study['trials'])}", markup=False)
        for text, style in ((study["claim"], ""), (study["paper"], "dim")):
            console.print(Padding(escape(text), (0, 0, 0, 2)), style=style)
    if any(study["trials"]["older"] for study in catalogue):
        note = "\nolder: made by an earlier version of the code; they stay in the store and are not used"
        console.print(note, style="dim")
    for study in catalogue:
        if study["trials"]["problem"]:
            warning = f"[bold yellow]warning:[/] {escape(study['trials']['problem'])}"
            terminal(stderr=True).print(warning, highlight=False, soft_wrap=True)


def _standing(trials: dict[str, Any]) -> str:
    """12 of 30, and what is to be said beside it."""
    if trials["problem"]:
        return "not readable"
    others = [f"{trials[kind]} {kind}" for kind in ("failed", "older") if trials[kind]]
    return ", ".join([f"{trials['done']} of {trials['total']}", *others])


def show_study(result: StudyResult) -> None:
    """Rows of a study beside the published numbers, and where its page is."""
    table = Table(**PLAIN, title=f"{result.experiment}, {result.budget}")
    for column in ("setting", "metric"):
        table.add_column(column)
    for column in ("value", "spread", result.reference):
        table.add_column(column, justify="right")
    table.add_column("verdict")
    before = None
    for row in result.rows:
        numbers = ["–" if number is None else f"{number:.3f}" for number in (row.value, row.spread, row.published)]
        table.add_row(row.setting if row.setting != before else "", row.metric, *numbers, row.verdict)
        before = row.setting
    console = terminal()
    console.print(table)
    console.print(f"{result.seconds:.0f} s", style="dim", highlight=False)
    say(result.page.resolve().as_uri())
