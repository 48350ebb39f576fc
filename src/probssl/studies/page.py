"""The page of a study, declared: sections of figures and tables in the order in which they are shown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probssl.files import atomic_path, write_text
from probssl.report import figures
from probssl.report import page as html

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from probssl.studies.base import Row


@dataclass(frozen=True)
class Picture:
    """A figure, which is also written to NAME.png."""

    name: str
    figure: Figure


@dataclass(frozen=True)
class Table:
    """Cells of text; the first column is left-aligned, all are with `text`, and `strong` sets one column off."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: bool = False
    strong: int | None = None


def numbers(row: Row | None, scale: float = 1.0, form: str = ".4g") -> str:
    """Ours ± its spread, and what is published in brackets; a dash where there is nothing."""
    if row is None or row.value is None:
        return "–"
    ours = f"{scale * row.value:{form}}" + ("" if row.spread is None else f" ± {scale * row.spread:{form}}")
    return ours if row.published is None else f"{ours} ({scale * row.published:{form}})"


def pivot(
    rows: Sequence[Row],
    settings: Mapping[str, str] | None = None,
    metrics: Mapping[str, str] | Sequence[str] | None = None,
    corner: str = "published in brackets",
    cell: Callable[[Row | None], str] = numbers,
) -> Table:
    """Settings below each other and metrics side by side, by name -> title; all of the rows' unless given."""
    known = {(row.setting, row.metric): row for row in rows}
    settings = settings or {row.setting: row.setting for row in rows}
    metrics = metrics or {row.metric: row.metric for row in rows}
    titles = metrics if isinstance(metrics, Mapping) else {name: name for name in metrics}
    body = [[title, *(cell(known.get((setting, metric))) for metric in titles)] for setting, title in settings.items()]
    return Table([corner, *titles.values()], body)


def listed(rows: Sequence[Row], reference: str = "published", form: str = ".4g") -> Table:
    """One row below the other, with all that is known of each."""
    head = ["setting", "metric", "value", "spread", reference, "verdict"]
    body = []
    for row in rows:
        ours = (row.value, row.spread if row.value is not None else None)
        cells = ["–" if number is None else f"{number:{form}}" for number in ours]
        printed = "–" if row.published is None else f"{row.published:.4g}"
        body.append([row.setting, row.metric, *cells, printed, row.verdict])
    return Table(head, body)


def judged(row: Row | None, scale: float = 1.0, form: str = ".4g") -> str:
    """The same with the verdict, where something is published."""
    cell = numbers(row, scale, form)
    return cell if row is None or row.published is None else f"{cell} {row.verdict}"


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as the text of a CSV file, for `Page.files`."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def claim(holds: bool) -> tuple[str, bool]:
    """The verdict of a page on the study's one claim."""
    return ("claim holds" if holds else "claim does not hold"), holds


class Section:
    """A card: a title, pictures and tables, and a quiet note below them; `beside` puts it next to the one before."""

    def __init__(self, title: str, *parts: Picture | Table, note: str = "", beside: bool = False) -> None:
        self.title, self.parts, self.note, self.beside = title, parts, note, beside


@dataclass(frozen=True)
class Page:
    """What a study shows. `verdict` is a word or two at the top, and whether they are good news."""

    title: str
    lead: str
    sections: Sequence[Section]
    verdict: tuple[str, bool] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    """Further text files beside the page, by name: `scores.csv`."""

    def write(self, out: Path) -> Path:
        """Write `index.html`, a PNG file for each picture, and the further files into `out`; returns the page."""
        for name, text in self.files.items():
            write_text(out / name, text)
        badge = "" if self.verdict is None else f"{html.badge(*self.verdict)} &nbsp;"
        sections: list[str] = []
        for s in self.sections:
            card = html.section(s.title, "".join(_shown(part, out) for part in s.parts), s.note)
            sections.append(html.pair(sections.pop(), card) if s.beside else card)
        page = out / "index.html"
        write_text(page, html.page(self.title, badge + html.escape(self.lead), sections))
        return page


def _shown(part: Picture | Table, out: Path) -> str:
    """The HTML of a part of a section; a picture is drawn once, for its file and for the page."""
    if isinstance(part, Table):
        return html.table(part.head, part.rows, text=part.text, strong_column=part.strong)
    picture = figures.png_bytes(part.figure)
    with atomic_path(out / f"{part.name}.png") as temporary:
        temporary.write_bytes(picture)
    return figures.embedded(picture, part.name.replace("-", " "))
