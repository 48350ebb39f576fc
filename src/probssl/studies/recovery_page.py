"""Tables and curves that the pages of the studies of identifiability share; nothing here decides a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from probssl.report import figures
from probssl.report import page as html
from probssl.studies.base import Result, Results, Row
from probssl.studies.page import Table, pivot
from probssl.studies.recovery import summary as summary


def table(rows: Sequence[Row], metrics: Iterable[str]) -> Table:
    """Settings by metrics, with what is published in brackets."""
    return pivot(rows, {row.setting: row.setting for row in rows}, list(metrics), "setting", _cell)


def _cell(row: Row | None) -> str:
    if row is None or row.value is None:
        return "–"
    ours = f"{row.value:.3f}" + (f" ± {row.spread:.3f}" if row.spread else "")
    return ours if row.published is None else f"{ours} ({row.published:.3g})"


def concentrations(result: Result, places: Iterable[int]) -> list[figures.Line]:
    """Learnt concentrations of these dimensions while training."""
    return [[(point["step"], point["concentrations"][place]) for point in result["curve"]] for place in places]


def learning(results: Mapping[str, Sequence[Result]], measure: str = "r2") -> dict[str, list[figures.Line]]:
    """A measure while training, one line a trial, by name."""
    return {name: [figures.logged(found["curve"], measure) for found in several] for name, several in results.items()}


def grouped(results: Results) -> dict[str, Results]:
    """The trials of each setting, in the order of the grid."""
    found: dict[str, Results] = {}
    for config, result in results:
        found.setdefault(config["setting"], []).append((config, result))
    return found


def numbers(rows: list[Row], metrics: Sequence[str]) -> str:
    """The table as HTML."""
    found = table(rows, metrics)
    return html.table(found.head, found.rows)


def dress(axis: Any, title: str, x: str, y: str) -> None:
    """Title and names of the axes, in the house style."""
    axis.set_title(title, fontsize=9, color=figures.INK, loc="left")
    figures.name_axes(axis, x, y)
