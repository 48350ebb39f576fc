"""Delimited text, plain or packed: header, delimiter, and columns read in blocks by Arrow."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probssl import memory
from probssl.data.columns import ADVICE, Columns, generated_names
from probssl.data.kinds import MISSING, missing_words
from probssl.data.parsing import plain_numbers
from probssl.data.wording import plural, quoted
from probssl.errors import InputError

if TYPE_CHECKING:
    import pyarrow

BLOCK = 1 << 21
"""Bytes read at a time. A longer line is not one of a table that anyone trains on, but may well be a bomb."""
SAMPLE = 1 << 18
"""Bytes that header, delimiter and columns of plain numbers are known by."""
_PACKINGS = {".gz": "gzip", ".zst": "zstd"}
_NO_TABLE = re.compile(r"(?i)\s*(<!doctype|<html|<\?xml|/\*|-- |(create|drop) table|insert into|\{\s*\"|\[\s*[\[{])")
"""How pages, dumps of databases and JSON begin."""
_LOOKED_AT = 50
"""Rows that decide on the delimiter."""


class _NotPlain(Exception):
    """A column has cells that are not plain numbers after all."""


@dataclass(frozen=True)
class Form:
    """How a file of text is written."""

    delimiter: str
    encoding: str
    names: tuple[str, ...]
    named: bool
    skipped: int
    """Lines before the first row."""


def open_text(path: Path, missing: Collection[str] = (), encoding: str | None = None) -> Columns:
    """The columns of a CSV or TSV file, `.gz` or `.zst` or not."""
    with unpacked(path) as stream:
        sample = stream.read(SAMPLE)
        if sample.count(b"\n") < 2:
            sample += stream.read(BLOCK - SAMPLE)
    if len(sample) >= BLOCK and not sample.count(b"\n") + sample.count(b"\r"):
        raise _too_long(path)
    form = _form(path, sample, encoding)
    numeric = _numeric(path, sample, form, missing)

    def read(chosen: Sequence[int], as_text: Collection[int]) -> list[pyarrow.ChunkedArray]:
        plain = {index for index in chosen if index in numeric and index not in as_text}
        try:
            return _read(path, form, chosen, plain, missing)
        except _NotPlain:  # text after more than the sample of plain numbers
            return _read(path, form, chosen, set(), missing)

    return Columns(str(path), form.names, read, named=form.named, comma=form.delimiter == ";")


@contextmanager
def unpacked(path: Path) -> Iterator[pyarrow.NativeFile]:
    """The bytes of a file, unpacked as they are read; what can go wrong in that becomes one sentence."""
    import pyarrow as pa

    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            yield stream
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except PermissionError as error:
        raise InputError(f"{path} cannot be read: permission denied") from error
    except pa.ArrowInvalid:
        raise
    except (OSError, EOFError) as error:
        packed = path.suffix.lower() in _PACKINGS
        what = f"is not a whole {_PACKINGS[path.suffix.lower()]} file" if packed else "cannot be read"
        raise InputError(f"{path} {what} ({one_line(error)}): fetch or write it again") from error


def one_line(error: Exception) -> str:
    """What an error says, in short."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def _form(path: Path, sample: bytes, encoding: str | None) -> Form:
    encoding = _encoding(sample, encoding)
    text = _decoded(path, sample, encoding)
    lines = text.splitlines()
    if not any(line.strip() for line in lines):
        raise InputError(f"{path} is empty: a table needs a line of column names and a line per row")
    tab = ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]
    skipped = _comments(lines)
    rest = "\n".join(lines[skipped:]) if skipped else text
    if skipped:
        rest = text.split("\n", skipped)[skipped]
    delimiter = "\t" if tab else _sniff(rest)
    first, *rows = _records(rest, delimiter, _LOOKED_AT + 1)
    cells = [cell.strip() for cell in first[1]]
    if "\0" in text or _NO_TABLE.match(text):
        raise InputError(f"{path} is not a table of delimited text: save the data as CSV, with one row per line")
    named = not _is_data(cells)
    if not named:
        return Form(delimiter, encoding, generated_names(len(cells)), False, skipped)
    wider = rows and all(len(row) == len(cells) + 1 for _, row in rows)
    if wider and all(not row[-1] for _, row in rows):
        cells.append("")  # a delimiter at the end of every row
    elif wider:
        cells.insert(0, "")  # names of rows, as R writes them
    taken = "" if not any(cell.startswith("Unnamed: ") for cell in cells) else "0"
    names = tuple(cell or f"Unnamed: {taken}{index}" for index, cell in enumerate(cells))
    return Form(delimiter, encoding, names, True, skipped + first[0])


def _encoding(sample: bytes, encoding: str | None) -> str:
    if encoding is None:
        return "utf-16" if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf8"
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise InputError(f"there is no encoding {encoding!r}: latin-1, cp1252 and utf-16 are some") from None
    return "utf8" if name in ("utf-8", "utf-8-sig") else encoding


def _decoded(path: Path, sample: bytes, encoding: str) -> str:
    try:
        text = codecs.getincrementaldecoder("utf-8-sig" if encoding == "utf8" else encoding)().decode(sample)
    except UnicodeDecodeError:
        raise _other_encoding(path, encoding) from None
    return text


def _other_encoding(path: Path, encoding: str) -> InputError:
    called = {"utf8": "UTF-8"}.get(encoding, encoding)
    return InputError(f"{path} is not {called} text: name its encoding, --encoding latin-1 for example")


def _comments(lines: Sequence[str]) -> int:
    """How many lines at the top are comments: they begin with # and are not written like the row that follows."""
    count = next((place for place, line in enumerate(lines) if not line.startswith("#")), 0)
    while (
        count and count < len(lines) and _marks(lines[count - 1]) == _marks(lines[count]) and any(_marks(lines[count]))
    ):
        count -= 1  # the header
    return count


def _marks(line: str) -> list[int]:
    bare = re.sub(r'"[^"]*"', "", line)
    return [bare.count(mark) for mark in ",;\t|"]


def _records(text: str, delimiter: str, most: int) -> list[tuple[int, list[str]]]:
    """The first rows that are not blank, with the number of lines to their end; not the last one of a cut text."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=delimiter != "\t")
    rows = ((reader.line_num, row) for row in reader if len(row) > 1 or (row and row[0].strip()))
    try:
        found = list(islice(rows, most + 1))
    except csv.Error:
        found = [(1, text.split("\n", 1)[0].split(delimiter))]
    return found[:most] if len(found) > most or len(text) < SAMPLE // 2 else found[:-1] or found


def _sniff(text: str) -> str:
    """The delimiter that splits the first rows most evenly, and into most; a comma when none does."""

    def quality(delimiter: str) -> tuple[float, int]:
        widths = [len(row) for _, row in _records(text, delimiter, _LOOKED_AT)]
        usual = max(set(widths), key=widths.count)
        return (widths.count(usual) / len(widths) if usual > 1 else 0.0, widths[0])

    best = max(",;\t|", key=quality)
    return " " if quality(best)[0] == 0 and quality(" ")[0] == 1 and _mostly_numbers(text) else best


def _mostly_numbers(text: str) -> bool:
    import pyarrow as pa

    cells = [cell for _, row in _records(text, " ", _LOOKED_AT)[1:] for cell in row if cell]
    return bool(np.isfinite(plain_numbers(pa.array(cells, pa.string()))).mean() > 0.5) if cells else False


def _is_data(cells: Sequence[str]) -> bool:
    """A first line of numbers is data; so is one whose other cells are missing values such as `?`.

    The numbers 0, 1, 2, … in order are names all the same: that is how pandas writes columns that have none.
    """
    import pyarrow as pa

    if len(cells) > 1 and list(cells) == [str(index) for index in range(len(cells))]:
        return False
    numbers = np.isfinite(plain_numbers(pa.array(cells, pa.string())))
    rest = [cell for cell, number in zip(cells, numbers, strict=True) if not number]
    return bool(numbers.any()) and all(cell and cell.lower() in MISSING for cell in rest)


def _numeric(path: Path, sample: bytes, form: Form, missing: Collection[str]) -> frozenset[int]:
    """Columns whose cells are plain numbers as far as the sample goes, and no codes of digits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = _decoded(path, sample, form.encoding)
    rows = [row for _, row in _records(text, form.delimiter, 10**9)][form.named :]
    rows = [row for row in rows if len(row) == len(form.names)]
    gaps, found = set(missing_words(missing)), []
    for place, cells in enumerate(zip(*rows, strict=True)):
        distinct = {cell.strip() for cell in cells}
        known = [cell for cell in distinct if cell.lower() not in gaps]
        if not known or not np.isfinite(plain_numbers(pa.array(known, pa.string()))).all():
            continue
        lengths = {len(cell.lstrip("+-")) for cell in known}
        digits = pc.all(pc.match_substring_regex(pa.array(known), r"^[+-]?\d+$")).as_py()
        padded = any(re.match(r"[+-]?0\d", cell) for cell in known)
        if padded or (digits and (max(lengths) > 15 or (lengths != {1} and len(lengths) == 1))):
            continue  # codes that begin with zeros, or may do so further down
        found.append(place)
    return frozenset(found)


def _read(
    path: Path, form: Form, chosen: Sequence[int], plain: set[int], missing: Collection[str]
) -> list[pyarrow.ChunkedArray]:
    """Columns as Arrow has them: plain ones as float64, others as texts."""
    import pyarrow as pa
    import pyarrow.csv as arrow

    ragged = 0

    def handle(row: Any) -> str:
        nonlocal ragged
        ragged += row.actual_columns > 1 or bool(row.text.strip())
        return "skip"

    width = len(form.names)
    words = {spelt(word) for word in missing_words(missing) for spelt in (str, str.upper, str.title, str.capitalize)}
    words |= {*missing, "NaN", "<NA>"}
    types = {str(index): pa.float64() if index in plain else pa.dictionary(pa.int32(), pa.string()) for index in chosen}
    wanted = list(dict.fromkeys(map(str, chosen)))
    batches: list[Any] = []
    try:
        with unpacked(path) as stream:
            reader = arrow.open_csv(
                stream,
                arrow.ReadOptions(
                    column_names=[str(index) for index in range(width)],
                    skip_rows=form.skipped,
                    block_size=BLOCK,
                    encoding=form.encoding,
                ),
                arrow.ParseOptions(delimiter=form.delimiter, newlines_in_values=True, invalid_row_handler=handle),
                arrow.ConvertOptions(
                    include_columns=wanted, column_types=types, null_values=sorted(words), strings_can_be_null=False
                ),
            )
            size = 0
            for batch in reader:
                batches.append(batch)
                size += batch.nbytes
                memory.require(2.0 * size, f"reading {path}", ADVICE)
    except pa.ArrowInvalid as error:
        text = str(error)
        if "UTF8" in text or "codec can't decode" in text:
            raise _other_encoding(path, form.encoding) from None
        if "conversion error" in text and plain:
            raise _NotPlain from None
        if "straddling" in text:
            raise _too_long(path) from None
        if "Empty CSV" in text:
            batches = []
        else:
            raise InputError(f"{path} cannot be split into rows ({one_line(error)}): check how it is written") from None
    except UnicodeDecodeError:
        raise _other_encoding(path, form.encoding) from None
    if ragged:
        raise _ragged(path, form, ragged)
    if not sum(map(len, batches)):
        raise InputError(f"{path} has column names ({quoted(form.names[0])}, …) but no rows: add some data")
    table = pa.Table.from_batches(batches)
    return [table.column(str(index)) for index in chosen]


def _too_long(path: Path) -> InputError:
    return InputError(
        f"{path}: a line has more than {BLOCK:,} bytes, or a quotation mark is not closed: check its quotation marks, "
        "or save so many columns as Parquet"
    )


def _ragged(path: Path, form: Form, count: int) -> InputError:
    """What to say of rows that have too few or too many fields."""
    width, where = len(form.names), "a row has"
    with unpacked(path) as stream:
        encoding = "utf-8-sig" if form.encoding == "utf8" else form.encoding
        reader = csv.reader(io.TextIOWrapper(stream, encoding, "replace", newline=""), delimiter=form.delimiter)
        line = 1
        for row in reader:
            if line > form.skipped and len(row) != width and (len(row) > 1 or "".join(row).strip()):
                where = f"line {line:,} has {plural(len(row), 'field')}"
                break
            line = reader.line_num + 1
    return InputError(
        f"{path}: {where} where there are {plural(width, 'column')} ({plural(count, 'such row')} in all): mend or "
        "remove such rows, and quote fields that hold a delimiter"
    )
