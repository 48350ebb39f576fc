"""Delimited text, plain or gzipped: header, delimiter, and columns parsed block by block."""

from __future__ import annotations

import csv
import gzip
import io
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from probssl import memory
from probssl.data.columns import Columns, generated_names
from probssl.data.faults import MISSING, Faults
from probssl.data.wording import plural, quoted
from probssl.errors import InputError

_BOOLEANS = {"true": 1.0, "false": 0.0}
_BLOCK = 1 << 16  # cells held as Python strings at any time

LONGEST_LINE = 2**22
"""Characters: more is not a line of a table that anyone trains on, but may well be a bomb."""
NUMBER, WORD = 20.0, 80.0
"""Bytes that a cell takes while a table is read."""


def open_text(path: Path) -> Columns:
    """The columns of a CSV or TSV file, `.gz` or not."""
    tab = ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]
    with _stream(path) as stream:
        first = next((line for line in _lines(stream, path) if line.strip()), None)
        if first is None:
            raise InputError(f"{path} is empty: a table needs a line of column names and a line per row")
        delimiter = "\t" if tab else _sniff(first)
        stream.seek(0)
        _, cells = next(_rows(stream, delimiter, path))
    cells = [cell.strip() for cell in cells]
    named = not _is_data(cells)
    blank = frozenset(index for index, cell in enumerate(cells) if not cell) if named else frozenset()
    if named:
        names = tuple(cell or f"Unnamed: {index}" for index, cell in enumerate(cells))
    else:
        names = generated_names(len(cells))

    def read(chosen: Sequence[int], beside: Sequence[int], faults: Faults) -> tuple[np.ndarray, list[list[str]]]:
        cost = NUMBER * len(chosen) + WORD * len(beside)
        with _stream(path) as stream:
            if named:
                next(_rows(stream, delimiter, path))
            found = _read_plain(_lines(stream, path, cost), delimiter, len(names), chosen, beside)
            if found is not None and all(cell.lower() not in MISSING for cells in found[1] for cell in set(cells)):
                return found
        with _stream(path) as stream:
            rows = _rows(stream, delimiter, path, cost)
            if named:
                next(rows)
            return _read(rows, names, chosen, beside, faults)

    return Columns(str(path), names, read, named=named, unit="line", blank=blank)


def parse_numbers(cells: Sequence[str], places: Sequence[int], name: str, faults: Faults) -> np.ndarray:
    """The cells of one column as float64; cells that are not finite numbers are noted in `faults`."""
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        pass
    else:  # float() reads 1_000 as a number, which in a table is more likely text
        if np.isfinite(values).all() and "_" not in "".join(cells):
            return values
    values = np.full(len(cells), np.nan)
    for index, (cell, place) in enumerate(zip(cells, places, strict=True)):
        word = cell.strip().lower()
        if word in _BOOLEANS:
            values[index] = _BOOLEANS[word]
            faults.add("boolean", name, place, cell)
            continue
        number = _number(word)
        if word in MISSING or word == "none" or (number is not None and np.isnan(number)):
            faults.add("missing", name, place, cell)
        elif number is None:
            faults.add("text", name, place, cell)
        elif np.isinf(number):
            faults.add("infinite", name, place, cell)
        else:
            values[index] = number
    return values


def _number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _is_data(cells: Sequence[str]) -> bool:
    """A first line of numbers is data; so is one whose other cells are missing values such as `?`.

    The numbers 0, 1, 2, … in order are names all the same: that is how pandas writes columns that have none.
    """
    if len(cells) > 1 and list(cells) == [str(index) for index in range(len(cells))]:
        return False
    numbers = [_number(cell) for cell in cells]
    rest = [cell for cell, number in zip(cells, numbers, strict=True) if number is None]
    known = any(number is not None and np.isfinite(number) for number in numbers)
    return known and all(cell and cell.lower() in MISSING for cell in rest)


def _sniff(line: str) -> str:
    """The delimiter that occurs most often outside quotation marks; a comma when none does."""
    bare = re.sub(r'"[^"]*"', "", line)
    return max(",;\t|", key=bare.count)


@contextmanager
def _stream(path: Path) -> Iterator[io.TextIOBase]:
    """The text of the file; whatever can go wrong in reading it becomes one sentence."""
    try:
        with _binary(path) as binary:
            yield io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")
    except UnicodeDecodeError:
        line = _undecodable_line(path)
        raise InputError(f"{path}: line {line} is not UTF-8 text: save the file in that encoding") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole gzip file ({_one_line(error)}): fetch or write it again") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or _one_line(error)}") from error


def _binary(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]


def _undecodable_line(path: Path) -> int:
    with _binary(path) as binary:
        for number, line in enumerate(iter(lambda: binary.readline(LONGEST_LINE), b""), 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 1


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _lines(stream: io.TextIOBase, path: Path, cost: float = 0.0) -> Iterator[str]:
    """The lines as they are unpacked, while none is too long and those so far, at `cost` bytes each, fit in memory."""
    free, number = memory.available(), 0
    while line := stream.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise InputError(
                f"{path}: line {number:,} has more than {LONGEST_LINE:,} characters: save so many columns as .npy"
            )
        if cost * number > free:
            memory.require(cost * number, f"reading {number:,} lines of {path}", "leave out columns, or split the file")
        yield line


def _rows(stream: io.TextIOBase, delimiter: str, path: Path, cost: float = 0.0) -> Iterator[tuple[int, list[str]]]:
    """Every row that is not blank, with the number of the line it begins on; `cost` is the memory that one takes."""
    lines = _lines(stream, path, cost)
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter != "\t", strict=True)
    line = 1
    try:
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}: the row that begins on line {line} cannot be split into fields ({_one_line(error)}): "
            "check its quotation marks"
        ) from error


def _read_plain(
    stream: Iterable[str], delimiter: str, width: int, chosen: Sequence[int], beside: Sequence[int]
) -> tuple[np.ndarray, list[list[str]]] | None:
    """A table of finite numbers without quotation marks, by NumPy's reader in C; None of any other, which needs more
    care or has a fault to be found."""
    kinds = ["U1"] * width  # what nobody asks for
    for indices, kind in ((chosen, "f8"), (beside, "O")):
        for index in indices:
            kinds[index] = kind

    def lines() -> Iterator[str]:
        for line in stream:
            if '"' in line:
                raise ValueError
            yield line

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an empty table is one
            table = np.loadtxt(
                lines(), np.dtype([(str(index), kind) for index, kind in enumerate(kinds)]), None, delimiter, ndmin=1
            )
    except (ValueError, UserWarning):
        return None
    values = np.empty((len(table), len(chosen)))
    for position, index in enumerate(chosen):
        values[:, position] = table[str(index)]
    if not np.isfinite(values).all():
        return None
    return values, [[cell.strip() for cell in table[str(index)].tolist()] for index in beside]


def _read(
    rows: Iterator[tuple[int, list[str]]],
    names: Sequence[str],
    chosen: Sequence[int],
    beside: Sequence[int],
    faults: Faults,
) -> tuple[np.ndarray, list[list[str]]]:
    width, count = len(names), 0
    blocks: list[np.ndarray] = []
    beside_cells: list[list[str]] = [[] for _ in beside]
    ragged: list[tuple[int, int]] = []  # line, fields
    while block := list(islice(rows, max(64, _BLOCK // width))):
        if any(len(row) != width for _, row in block):
            ragged += [(line, len(row)) for line, row in block if len(row) != width]
            block = [(line, row) for line, row in block if len(row) == width]
        if ragged or not block:
            continue  # the file is refused; go on only to count
        lines = [line for line, _ in block]
        columns = list(zip(*(row for _, row in block), strict=True))
        values = np.empty((len(block), len(chosen)))
        for position, index in enumerate(chosen):
            values[:, position] = parse_numbers(columns[index], lines, names[index], faults)
        for cells, index in zip(beside_cells, beside, strict=True):
            faults.note_missing(columns[index], lines, names[index])
            cells += [cell.strip() for cell in columns[index]]
        blocks.append(values)
        count += len(block)
    if ragged:
        line, fields = ragged[0]
        raise InputError(
            f"{faults.where}: line {line} has {plural(fields, 'field')} where the first line has {width:,} "
            f"({plural(len(ragged), 'such line')} in all): mend or remove it, and quote fields that hold a delimiter"
        )
    if not count:
        raise InputError(f"{faults.where} has column names ({quoted(names[0])}, …) but no rows: add some data")
    faults.settle_booleans(count)
    return np.concatenate(blocks), beside_cells
