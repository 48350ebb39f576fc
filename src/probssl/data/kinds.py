"""What kind of column this is, and its values as float64: inferred from all of its cells, or as somebody says."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from probssl.data.columns import split_names
from probssl.data.parsing import YES_NO, dates, numbers, plain_numbers
from probssl.data.wording import option, plural, quoted
from probssl.errors import InputError
from probssl.layout import Column, ColumnKind

if TYPE_CHECKING:
    import pyarrow

Use = ColumnKind | Literal["id", "constant"]
KINDS: tuple[Use, ...] = ("number", "category", "yes/no", "date", "text", "id")
"""What a person may say of a column; that it is constant is found."""

MISSING = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?", "-", ".", "..")
"""Cells that say that there is no value, in lower case."""

ALIKE = 0.95
"""Share of the cells that must be numbers, or dates, for the column to be one; the others become gaps."""
WORDS = 2
"""Different texts among more than `MOST_REPEATED` numbers that become gaps even if they are many: they have a meaning
of their own, as "ancient" among years."""
UNIQUE = 0.95
"""Share of the cells that differ from all others from which on hardly any repeats."""
FEW = 10
"""Cells of which nothing is concluded from their being different."""
MOST_REPEATED = 20
"""Most values of a column that is called an id and repeats, for it to be a category nevertheless."""
LARGEST = 1e15
"""Whole numbers from here on are identifiers, not counts."""

_ID_NAME = re.compile(r"(?i:(^|[\W_])(id|uuid|guid|rownames?)$|^unnamed: \d+$)|[a-z]I[dD]$")
_CODE_NAME = re.compile(r"(?i)(^|[\W_])(zip|zip ?code|post ?code|postal|postal[\W_]code|plz|fips)$")


@dataclass(frozen=True, eq=False)
class Typed:
    """A column as it was understood."""

    name: str
    kind: Use
    values: np.ndarray = field(repr=False)
    """float64 [n]: numbers, seconds since 1970, or codes of levels; NaN for gaps."""
    levels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader should know, half a sentence each."""
    fault: str = ""
    """Why it cannot be of the kind that was asked for."""

    @property
    def column(self) -> Column:
        """The column as a feature."""
        if self.kind == "id" or self.kind == "constant":
            raise ValueError(f"{self.name} is no feature")
        unknown = () if self.kind in ("number", "date") else ("",)  # of levels where every row has a gap
        return Column(self.name, self.kind, self.levels or unknown, gaps=bool(np.isnan(self.values).any()))

    def cells(self) -> np.ndarray:
        """The values as texts, an empty one for each gap."""
        if not self.levels:
            return np.array([shortest(value) if value == value else "" for value in self.values.tolist()])
        return np.array([*self.levels, ""])[np.nan_to_num(self.values, nan=-1).astype(np.int64)]


def missing_words(more: Collection[str] = ()) -> tuple[str, ...]:
    """The words for a gap, in lower case."""
    return (*MISSING, *(word.strip().lower() for word in more))


def typed(
    name: str,
    cells: pyarrow.ChunkedArray,
    asked: Use | None = None,
    *,
    missing: Collection[str] = MISSING,
    comma: bool = False,
) -> Typed:
    """A column of a source; `asked` is its kind where that is known, and `comma` prefers decimal commas."""
    import pyarrow as pa

    kind = cells.type
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(kind.value_type):
        own = pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type)
        found = _of_texts(name, cells, asked or (None if own else "category"), missing, comma)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        found = _of_texts(name, cells, asked, missing, comma)
    elif pa.types.is_boolean(kind):
        words = ("False", "True") if asked == "category" else YES_NO[1]
        found = _of_numbers(name, _floats(cells.cast(pa.int8())), asked, words)
    elif pa.types.is_integer(kind) and _huge(cells):
        found = _of_texts(name, cells.cast(pa.string()), asked, missing, comma)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        found = _of_numbers(name, _floats(cells), asked)
    elif pa.types.is_null(kind):
        found = _of_numbers(name, np.full(len(cells), np.nan), asked)
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        ticks = cells.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        found = _of_dates(name, _floats(ticks) / 1e6, asked)
    elif pa.types.is_duration(kind):
        found = _of_numbers(name, _floats(cells.cast(pa.duration("us"), safe=False).cast(pa.int64())) / 1e6, asked)
    elif pa.types.is_time(kind):
        micros = cells.cast(pa.time64("us"), safe=False).cast(pa.int64())
        found = _of_numbers(name, _floats(micros) / 1e6, asked)
    else:
        found = Typed(name, asked or "text", np.full(len(cells), np.nan), fault=f"holds values of type {kind}")
    return found


def shortest(value: float) -> str:
    """A number as a name: 1 and not 1.0."""
    return str(int(value)) if value == value and float(value).is_integer() and abs(value) < LARGEST else repr(value)


def _floats(cells: Any) -> np.ndarray:
    import pyarrow as pa

    return np.asarray(cells.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def _huge(cells: Any) -> bool:
    import pyarrow.compute as pc

    least, most = (value.as_py() for value in pc.min_max(cells).values())
    return least is not None and max(-least, most) >= LARGEST


def _of_numbers(name: str, values: np.ndarray, asked: Use | None, words: Sequence[str] = ()) -> Typed:
    """A column of numbers; `words` are what 0 and 1 stand for."""
    notes: tuple[str, ...] = ()
    infinite = np.isinf(values)
    if infinite.any():
        values = np.where(infinite, np.nan, values)
        notes = (f"has {plural(int(infinite.sum()), 'infinite value')}, taken for gaps",)
    gaps = np.isnan(values)
    known = values[~gaps] if gaps.any() else values
    found = Typed(name, asked or "number", values, notes=notes)
    if asked is None:
        if not len(known) or (known.min() == known.max() and len(values) > 1):
            if len(known) and len(known) < len(values):
                return _coded(found, "category", words)  # which rows have it is all that it says
            return _constant(found, "" if not len(known) else words[int(known[0])] if words else shortest(known[0]))
        if words or ((known[:1000] <= 1).all() and ((known == 0) | (known == 1)).all()):
            return replace(found, kind="yes/no", levels=tuple(words or YES_NO[-1]))
        return _row_numbers(found, known) if not (known[:1000] % 1).any() else found
    if asked == "number":
        return found
    if asked == "date":
        return _of_dates(name, _dates_of_numbers(values), "date")
    if asked == "yes/no" and (words or ((known == 0) | (known == 1)).all()):
        return replace(found, kind="yes/no", levels=tuple(words or YES_NO[-1]))
    return _coded(found, asked, words)


def _coded(found: Typed, kind: Use, words: Sequence[str] = ()) -> Typed:
    """Numbers as names of levels."""
    distinct, codes = np.unique(found.values, return_inverse=True)
    finite = int(np.isfinite(distinct).sum())
    levels = tuple(words[int(value)] if words else shortest(value) for value in distinct[:finite].tolist())
    coded = replace(found, kind=kind, values=np.where(codes < finite, codes.astype(np.float64), np.nan), levels=levels)
    return _two_levels(coded) if kind == "yes/no" else coded


def _row_numbers(found: Typed, known: np.ndarray) -> Typed:
    """Whole numbers that count the rows, or that are called an id."""
    whole, unique = not (known % 1).any(), 0
    if not whole or len(known) < FEW:
        return found
    counted = known[0] in (0, 1) and len(known) == len(found.values) and (np.diff(known) == 1).all()
    if counted:
        return _named_rows(_coded(found, "id"), "counts the rows", "number")
    if _CODE_NAME.search(found.name):
        return _coded(found, "category")
    if not _ID_NAME.search(found.name):
        return found
    unique = len(np.unique(known))
    if unique > UNIQUE * len(known) or unique > MOST_REPEATED:
        why = f"names rows ({plural(unique, 'value')} in {plural(len(known), 'row')})"
        return _named_rows(_coded(found, "id"), why, "number")
    return _coded(found, "category")


def _dates_of_numbers(values: np.ndarray) -> np.ndarray:
    """Numbers that stand for dates: 20240131, a year, or seconds or milliseconds since 1970."""
    import pyarrow as pa

    most = np.nanmax(np.abs(values), initial=0)
    if most < 3000:
        texts = [f"{value:04.0f}-01" for value in values]
    elif 1e7 <= most < 1e8:
        texts = [f"{value // 1e4:04.0f}-{value // 100 % 100:02.0f}-{value % 100:02.0f}" for value in values]
    else:
        return values / 1000 if most > 1e11 else values
    return np.where(np.isnan(values), np.nan, dates(pa.array(texts))[0])


def _of_dates(name: str, values: np.ndarray, asked: Use | None, notes: tuple[str, ...] = ()) -> Typed:
    if asked not in (None, "date", "number"):
        texts = np.array([str(np.datetime64(int(value), "s")) if value == value else None for value in values], object)
        import pyarrow as pa

        return _of_texts(name, pa.chunked_array([pa.array(texts, pa.string())]), asked, MISSING, False)
    known = values[~np.isnan(values)]
    found = Typed(name, asked or "date", values, notes=notes)
    same = not len(known) or (known.min() == known.max() and len(values) > 1)
    if asked is None and same and len(known) in (0, len(values)):
        return _constant(found, str(np.datetime64(int(known[0]), "s")) if len(known) else "")
    return found


def _split(cells: pyarrow.ChunkedArray, missing: Collection[str]) -> tuple[Any, np.ndarray]:
    """The distinct texts, trimmed, that are not gaps, and for every cell its place among them, or −1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    coded = (cells if pa.types.is_dictionary(cells.type) else cells.dictionary_encode()).unify_dictionaries()
    whole = coded.combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    written = pc.fill_null(whole.dictionary.cast(pa.string()), "")
    words = pc.utf8_trim_whitespace(written)
    if pc.any(pc.starts_with(words, '"')).as_py():
        words = pc.utf8_trim(words, '"')  # quoted behind a space
    place = np.arange(len(words))
    if not words.equals(written):
        again = words.dictionary_encode()
        words, place = again.dictionary, again.indices.to_numpy()
    kept = ~pc.is_in(pc.utf8_lower(words), pa.array(list(missing))).to_numpy(zero_copy_only=False)
    place = np.where(kept, np.cumsum(kept) - 1, -1)[place]
    indices = pc.fill_null(whole.indices.cast(pa.int64()), len(place)).to_numpy()
    codes = np.append(place, -1)[indices]
    levels = words.filter(pa.array(kept))
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    if (counts == 0).any():  # levels that a frame knows and does not use
        used = counts > 0
        codes = np.append(np.cumsum(used) - 1, -1)[codes]
        levels = levels.filter(pa.array(used))
    return levels, codes


def _of_texts(name: str, cells: Any, asked: Use | None, missing: Collection[str], comma: bool) -> Typed:
    levels, codes = _split(cells, missing)
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    total = int(counts.sum())
    found = Typed(name, asked or "category", np.where(codes < 0, np.nan, codes))
    if asked is None and len(levels) <= 1 and total in (0, len(codes)) and (len(codes) > 1 or not total):
        return _constant(found, levels[0].as_py() if total else "")
    if not total and asked in ("number", "date"):
        return found
    pair = _words(levels)
    if asked == "yes/no" or (asked in (None, "number") and pair):
        return _yes_no(found, levels, pair, asked)
    if asked == "number" or (asked is None and not _are_codes(name, levels)):
        values, remark = numbers(levels, comma)
        good = ~np.isnan(values)
        share = counts[good].sum() / max(total, 1)
        most = share >= ALIKE or (share > 0.5 and good.sum() > MOST_REPEATED and len(good) - good.sum() <= WORDS)
        if share == 1 or (most and (asked or len(levels) > MOST_REPEATED)):
            notes = _left_over(levels, counts, np.isnan(values), "not a number", "not numbers") + _remarks(remark)
            numeric = _of_numbers(name, np.append(values, np.nan)[codes], asked)
            return replace(numeric, notes=notes + numeric.notes)
        if asked:
            return _refused(found, levels, codes, np.isnan(values))
    if asked in (None, "date"):
        seconds, remark = dates(levels)
        share = counts[~np.isnan(seconds)].sum() / max(total, 1)
        if asked and share < ALIKE:
            plain = plain_numbers(levels)
            if not np.isnan(plain).any():
                return _of_dates(name, _dates_of_numbers(np.append(plain, np.nan)[codes]), asked)
            return _refused(found, levels, codes, np.isnan(seconds))
        if share >= ALIKE and (asked or len(levels) > 1 or total < len(codes)):
            notes = _left_over(levels, counts, np.isnan(seconds), "not a date", "not dates") + _remarks(remark)
            return _of_dates(name, np.append(seconds, np.nan)[codes], asked, notes)
    found = found if asked else _by_repetition(found, levels, counts)
    if found.kind in ("text", "id"):  # in no order
        return replace(found, levels=tuple(levels.to_pylist()))
    return _by_name(found, levels)


def _are_codes(name: str, levels: Any) -> bool:
    """Whether texts of digits are names and not numbers: they begin with zeros, or are too long for numbers."""
    import pyarrow.compute as pc

    def some(pattern: str) -> bool:
        return bool(pc.any(pc.match_substring_regex(levels, pattern)).as_py())

    if some(r"^[+-]?0\d+$"):
        return True
    return (bool(_CODE_NAME.search(name)) or some(r"^\d{16,}$")) and not some(r"\D")


def _by_name(found: Typed, levels: Any) -> Typed:
    """Codes of the levels in their order: of numbers by size, of others by the alphabet."""
    names, places = ordered(levels.to_pylist())
    values = np.append(np.array(places, np.float64), np.nan)[np.nan_to_num(found.values, nan=-1).astype(np.int64)]
    return replace(found, values=values, levels=names)


def ordered(texts: Sequence[str]) -> tuple[tuple[str, ...], list[int]]:
    """Names of distinct texts in order, and the place of each text among them.

    Names that are all numbers sort as numbers and take their shortest form, so that `1`, `1.0` and `1e0` are one
    level whatever the format; zero-padded codes such as `007` stay text.
    """
    import pyarrow as pa

    values = plain_numbers(pa.array(texts, pa.string())).tolist()
    if (
        texts
        and all(abs(value) < LARGEST for value in values)
        and not any(re.match(r"[+-]?0\d", text) for text in texts)
    ):
        unique = sorted(set(values))
        rank: dict[Any, int] = {value: place for place, value in enumerate(unique)}
        return tuple(map(shortest, unique)), [rank[value] for value in values]
    names = sorted(texts)
    rank = {text: place for place, text in enumerate(names)}
    return tuple(names), [rank[text] for text in texts]


def _by_repetition(found: Typed, levels: Any, counts: np.ndarray) -> Typed:
    """Category, text or id, by how often its texts repeat and how many words they have."""
    import pyarrow.compute as pc

    total, distinct = int(counts.sum()), len(levels)
    unique = distinct / total
    digits = pc.all(pc.match_substring_regex(levels, r"^\d{16,}$")).as_py()
    repeated = distinct > MOST_REPEATED and (digits or _ID_NAME.search(found.name))
    if total >= FEW and (unique > UNIQUE or repeated):
        phrases = pc.mean(pc.match_substring_regex(levels, r"\S\s+\S").cast("int8")).as_py() > 0.5
        if phrases and not _ID_NAME.search(found.name):
            return replace(found, kind="text")
        return _named_rows(found, f"names rows ({plural(distinct, 'value')} in {plural(total, 'row')})")
    if total >= FEW and unique > 0.5 and pc.mean(pc.count_substring_regex(levels, r"\S+")).as_py() >= 3:
        return replace(found, kind="text")
    return found


def _words(levels: Any) -> tuple[str, str] | None:
    """The pair of words for no and yes that these are."""
    said = {text.lower() for text in levels.to_pylist()} if 2 <= len(levels) <= 4 else set()
    return next((pair for pair in YES_NO if said == set(pair)), None)


def _yes_no(found: Typed, levels: Any, pair: tuple[str, str] | None, asked: Use | None) -> Typed:
    texts = levels.to_pylist()
    if pair is None:
        lowered = {text.lower() for text in texts}
        pair = next((words for words in YES_NO if lowered <= set(words)), None)
    if pair is None:
        return _two_levels(_by_name(found, levels))
    values = np.array([*(pair.index(text.lower()) for text in texts), np.nan], np.float64)
    coded = values[np.nan_to_num(found.values, nan=-1).astype(np.int64)]
    if asked == "number":
        return replace(found, values=coded)
    return replace(found, kind="yes/no", values=coded, levels=pair)


def _two_levels(found: Typed) -> Typed:
    if len(found.levels) <= 2:
        return found
    return replace(found, fault=f"has {len(found.levels):,} values, and yes/no has two")


def _constant(found: Typed, value: str) -> Typed:
    what = f"is {quoted(value)} in every row" if value else "is empty"
    return replace(found, kind="constant", levels=(), notes=(f"{what}, and is left out",))


def _named_rows(found: Typed, why: str, back: Use = "category") -> Typed:
    advice = option("--kind", f"{found.name}={back}")
    return replace(found, kind="id", notes=(f"{why}, and is left out; {advice} makes it a feature",))


def _remarks(remark: str) -> tuple[str, ...]:
    return (remark,) if remark else ()


def _left_over(levels: Any, counts: np.ndarray, bad: np.ndarray, one: str, many: str) -> tuple[str, ...]:
    count = int(counts[bad].sum())
    if not count:
        return ()
    example = quoted(levels[int(np.flatnonzero(bad)[0])].as_py())
    return (
        f"has {plural(count, 'cell')} that {f'is {one}' if count == 1 else f'are {many}'} ({example}), taken for gaps",
    )


def _refused(found: Typed, levels: Any, codes: np.ndarray, bad: np.ndarray) -> Typed:
    wrong = np.append(bad, False)[codes]
    row = int(np.flatnonzero(wrong)[0])
    cell = quoted(levels[int(codes[row])].as_py())
    many = f", one of {int(wrong.sum()):,} such cells" if wrong.sum() > 1 else ""
    return replace(found, fault=f"holds {cell} in row {row + 1}{many}")


def kinds_by_name(asked: Mapping[str, str], known: Sequence[str]) -> dict[str, Use]:
    """Kinds that a person gives by name, one name or several as `a,b`."""
    found: dict[str, Use] = {}
    for written, kind in asked.items():
        if kind not in KINDS:
            raise InputError(f"the kind of a column is one of {', '.join(KINDS)}, not {kind!r}")
        for name in split_names(written, known):
            found[name] = kind
    return found
