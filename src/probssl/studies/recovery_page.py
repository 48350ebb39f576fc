"""Tables and curves that the pages of the studies of identifiability share; nothing here decides a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from probssl.report import figures
from probssl.studies.base import Result, Row
from probssl.studies.page import Table, pivot


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
