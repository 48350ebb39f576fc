"""What `probssl compare` shows: findings, the head of the leaderboard beside the baselines, and where all of it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from probssl.report.console import PLAIN, say

if TYPE_CHECKING:
    from probssl.comparing import CompareResult

SHOWN = 10


def show(result: CompareResult) -> None:
    """The comparison in a terminal of 80 columns or more."""
    console = Console()
    console.print(f"[bold]{escape(result.source)}[/]  {escape(result.about)}", highlight=False)
    for r in result.rounds:
        console.print(f"  round {r.number}: {r.described}", style="dim", highlight=False)
    console.print()
    console.print(_leaderboard(result))
    console.print(
        "± standard deviation over seeds; the last three rows are baselines without training",
        style="dim",
        highlight=False,
    )
    console.print()
    for line in result.findings:
        console.print(f"• {escape(line)}.", highlight=False)
    for note in result.notes:
        console.print(f"• {escape(note[0].upper() + note[1:])}.", style="yellow", highlight=False)
    console.print()
    say(f"best model   {result.folder / 'best'}")
    say(f"leaderboard  {result.folder / 'leaderboard.csv'}")
    say(f"report       {result.page.resolve().as_uri()}")
    given = "" if result.minutes is None else f" of {60 * result.minutes:.0f}"
    console.print(f"{result.seconds:.0f} s{given}", style="dim", highlight=False)


def _leaderboard(result: CompareResult) -> Table:
    scores = result.scores[:3]
    table = Table(**PLAIN, padding=(0, 1, 0, 0))
    table.add_column("")
    for name in ("objective", "energy"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=20)
    table.add_column("dim", justify="right", no_wrap=True)
    paired = any(standing.candidate.pairing for standing in result.leaderboard)
    if paired:
        table.add_column("pairing", no_wrap=True, overflow="ellipsis", max_width=14)
    for score in scores:
        table.add_column(score.short or score.title, justify="right", no_wrap=True)
    head = result.leaderboard[:SHOWN]
    for s in head:
        c = s.candidate
        numbers = [
            s.shown(score.name, "±") if score is result.criterion else number(s.means.get(score.name))
            for score in scores
        ]
        parts = [c.objective, c.energy, str(c.dim), *([c.pairing] if paired else [])]
        table.add_row(str(s.rank), *map(escape, parts), *numbers, end_section=s is head[-1])
    for name, values in result.final_baselines.items():
        title, _, dim = name.partition(" to ")
        parts = [title, "", dim or str(result.facts.features), *([""] if paired else [])]
        table.add_row("", *parts, *(number(values.get(score.name)) for score in scores))
    return table


def number(value: float | None, digits: int = 3) -> str:
    """A score as text; a dash where there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"
