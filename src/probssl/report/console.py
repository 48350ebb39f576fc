"""What the command line shows: tables and messages for a terminal of 80 columns or more."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import shlex
import textwrap
import time
from collections import Counter
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

from probssl.metrics.outliers import Detection
from probssl.metrics.paired import CLEAR

if TYPE_CHECKING:
    from probssl.data import DataSet
    from probssl.data.describing import Described
    from probssl.metrics.deaugment import DeaugmentationResult
    from probssl.objectives.reference import ReferenceLosses
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


def format_value(values: dict[str, float | None], key: str, plus_minus: str = " ± ") -> str:
    """A metric with its spread where it has one."""
    value = values.get(key)
    if value is None:
        return "–"
    name, colon, target = key.partition(":")
    digits = 0 if name == "numerical_rank" or abs(value) >= 1000 else 1 if abs(value) >= 100 else 3
    spread = values.get(f"{name}_spread{colon}{target}")
    return f"{value:,.{digits}f}" + ("" if spread is None else f"{plus_minus}{spread:,.{digits}f}")


def show_comparison(comparison: Comparison) -> None:
    """The verdict, then metrics down and codes across, what wins in bold; four codes with spreads fit 80 columns."""
    console = terminal()
    console.print(escape(comparison.source), style="bold", highlight=False)
    for sentence in () if comparison.verdict is None else comparison.verdict.sentences:
        console.print(escape(sentence), highlight=False)
    console.print()
    roomy = console.width >= 100
    table = Table(**PLAIN, padding=(0, 1) if roomy else 0)
    table.add_column("", min_width=30)
    names = list(comparison.rows)
    for name in names:
        head, _, tail = name.partition(" ")
        table.add_column(f"{head}\n{tail}", justify="right")
    wins = {} if comparison.verdict is None else comparison.verdict.wins
    for key, (metric, title) in comparison.metrics.items():
        cells = [
            Text(format_value(values, key, " ± " if roomy else "±"), "bold" if wins.get(key) == name else "")
            for name, values in comparison.rows.items()
        ]
        table.add_row(f"{ARROWS[metric.direction]} {escape(title)}", *cells)
    console.print(table)
    note = "± standard deviation over splits" if comparison.judged is None else comparison.judged
    console.print(f"↑ higher is better, ↓ lower, bold wins clearly; {note}", style="dim", highlight=False)
    if comparison.loss is not None:
        console.print(_losses(comparison.loss), highlight=False)
    if comparison.deaugmenting:
        show_deaugmenting(comparison)


def _losses(found: ReferenceLosses) -> str:
    """The loss, and between what it lies."""
    known = {"least possible": found.optimum, "of a constant encoder": found.constant}
    beside = [f"{name} {estimate.mean:.4g}" for name, estimate in known.items() if estimate is not None]
    return ", ".join([f"loss {found.model.mean:.4g} on these rows", *beside])


PLAIN: dict[str, Any] = {"box": SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "title_justify": "left"}
"""How tables look."""

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


def deaugmenting_wins(comparison: Comparison) -> list[set[int]]:
    """The model that is clearly better than each other, by its number, for each score whose error is known."""
    results = list(comparison.deaugmenting.values())
    return [_clearly_best([_estimate(result, name) for result in results], way) for name, (_, way) in UNDOING.items()]


def _estimate(result: DeaugmentationResult, name: str) -> tuple[float, float]:
    """A score and its standard error."""
    value = getattr(result, name)
    share = math.sqrt(value * (1 - value) / result.queries) if name.startswith("top") else math.inf
    return value, getattr(result, f"{name}_se", share)


def _clearly_best(estimates: list[tuple[float, float]], way: str) -> set[int]:
    sign = {"higher": 1, "lower": -1}.get(way, 0)

    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return sign * (one[0] - other[0]) > CLEAR * math.hypot(one[1], other[1])

    if len(estimates) < 2:
        return set()
    return {
        place
        for place, one in enumerate(estimates)
        if all(beats(one, other) for at, other in enumerate(estimates) if at != place)
    }


def deaugmenting_rows(comparison: Comparison) -> list[list[str]]:
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
        [f"{ARROWS[way]} {title}", *[shown(result, name) for result in results], least(name)]
        for name, (title, way) in UNDOING.items()
    ]


def show_deaugmenting(comparison: Comparison) -> None:
    """How well the model finds the row that an augmentation was made from."""
    first = next(iter(comparison.deaugmenting.values()))
    title = f"\nUndoing {first.queries:,} augmentations among {first.candidates:,} rows"
    table = Table(**PLAIN, title=title, title_style="bold", padding=(0, 1))
    table.add_column("", min_width=28)
    for name in (*comparison.deaugmenting, "exact posterior"):
        head, _, tail = name.partition(" ")
        table.add_column(f"{head}\n{tail}", justify="right")
    for row, ahead in zip(deaugmenting_rows(comparison), deaugmenting_wins(comparison), strict=True):
        table.add_row(*[Text(cell, "bold" if column - 1 in ahead else "") for column, cell in enumerate(row)])
    console = terminal()
    console.print(table)
    console.print("± standard error over augmentations", style="dim", highlight=False)


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


LISTED = {
    "linear_probe": "probe",
    "knn_probe": "k-NN",
    "ridge_r2": "R²",
    "knn_r2": "k-NN R²",
    "linear_r2": "latents",
    "rankme": "RankMe",
}
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
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
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
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name, side in (("score", "left"), ("AUROC", "right"), ("95 %", "right"), ("is", "left")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for name, (meaning, part) in found.items():
        table.add_row(name, f"{part.auroc:.3f}", f"{part.low:.3f}–{part.high:.3f}", meaning)
    console = terminal(highlight=False)
    console.print(table)
    console.print(f"{inside:,} rows inside, {outside:,} outside; 1 tells all apart, 0.5 none", style="dim")


def show_data(sets: Sequence[DataSet], directory: Path) -> None:
    """The catalogue of named data sets."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
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


MANY_COLUMNS = 40
"""Columns from which on those in a row that are alike are shown as one."""


def show_columns(source: str, rows: int, columns: Sequence[Described]) -> None:
    """What the columns of a table hold, and what is done with them; each note on a line of its own."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    names = max((len(column.name) for column in columns), default=0)
    table.add_column("column", overflow="ellipsis", no_wrap=True, min_width=min(names, 24), max_width=24)
    for title in ("kind", "use"):
        table.add_column(title, no_wrap=True, min_width=8)
    table.add_column("gaps", justify="right", no_wrap=True, min_width=6)
    table.add_column("values", overflow="ellipsis", no_wrap=True)
    for shown in _abbreviated(columns):
        if isinstance(shown, int):
            table.add_row(Text(f"… {shown:,} more", style="dim"))
            continue
        values = ", ".join(textwrap.shorten(example, 24, placeholder="…") for example in shown.examples)
        if shown.range is not None:
            values = " … ".join(shown.range)
        if shown.levels is not None:
            values = f"{shown.levels:,}: {values}{', …' if shown.levels > len(shown.examples) else ''}"
        table.add_row(Text(shown.name), shown.kind, shown.use, f"{shown.gaps:,}" if shown.gaps else "", Text(values))
    kinds = Counter(column.kind for column in columns)
    said = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    say(f"{source}: {rows:,} rows, {len(columns):,} columns ({said})")
    terminal().print(table)
    for column in columns:
        for note in column.notes:
            say(f"{column.name}: {note}")


def _abbreviated(columns: Sequence[Described]) -> list[Described | int]:
    """The columns, or how many are left off, of many alike in a row in a wide table."""
    shown: list[Described | int] = []
    for (*_, noted), group in itertools.groupby(columns, lambda one: (one.kind, one.use, bool(one.notes))):
        alike = list(group)
        if len(columns) <= MANY_COLUMNS or noted or len(alike) <= 4:
            shown += alike
        else:
            shown += [*alike[:2], len(alike) - 3, alike[-1]]
    return shown


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
    table = Table(
        title=f"{result.experiment}, {result.budget}",
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
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
