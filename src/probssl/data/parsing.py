"""Numbers, dates and yes/no written as text: arrays of distinct texts to float64, NaN where a text is none."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow

YES_NO = (("no", "yes"), ("false", "true"), ("n", "y"), ("f", "t"), ("0", "1"))
"""Pairs of words, in any case, that say no and yes."""

SOME = 1000
"""Texts that are looked at before all are."""

_PLAIN = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_INFINITE = r"(?i)^[+-]?inf(inity)?$"
_CURRENCY = r"[$€£¥₹]|USD|EUR|GBP|CHF|JPY"
_DECORATED = (
    rf"^(?P<sign>[+-]?)\s*(?P<before>{_CURRENCY})?\s*(?P<inner>[+-]?)(?P<digits>\d[\d.,' \x{{a0}}]*|[.,]\d+)\s*"
    rf"(?P<after>%|{_CURRENCY})?$"
)
# thousands and decimals, with points or with commas as decimals
_POINT = r"^(\d{1,3}(,\d{3})+|\d{1,3}([ ']\d{3})+|\d+)?(\.\d*)?$"
_COMMA = r"^(\d{1,3}(\.\d{3})+|\d{1,3}([ ']\d{3})+|\d+)?(,\d*)?$"

_TIME = (
    r"(?:[T ,]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:\.\d+)?))?"
    r" *(?P<half>[AaPp][Mm])? *(?P<zone>Z|UTC|GMT|[+-]\d{2}:?\d{2})?)?$"
)
_DATES = tuple(
    date + _TIME
    for date in (
        r"^(?P<year>[12]\d{3})[-/.](?P<month>\d{1,2})(?:[-/.](?P<day>\d{1,2}))?",
        r"^(?P<first>\d{1,2})(?P<mark>[-/.])(?P<second_part>\d{1,2})[-/.](?P<year>\d{4}|\d{2})",
        r"^(?P<day>\d{1,2})[ -](?P<name>[A-Za-z]{3,9})\.?[ ,-]+(?P<year>\d{4}|\d{2})",
        r"^(?:[A-Za-z]{3,9},? +)?(?P<name>[A-Za-z]{3,9})[. -]+(?P<day>\d{1,2})[, -]+(?P<year>\d{4})",
        r"^(?P<name>[A-Za-z]{3,9})[. -]+(?P<year>[12]\d{3})",
        r"^(?P<year>[12]\d{3})[: -]*(?:[qQ](?P<quarter>[1-4])|(?P<name>[A-Za-z]{3,9}))",
    )
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def plain_numbers(texts: pyarrow.Array) -> np.ndarray:
    """Texts that are numbers as a program writes them, infinite ones among them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.or_(pc.match_substring_regex(texts, _PLAIN), pc.match_substring_regex(texts, _INFINITE))
    bare = pc.if_else(plain, pc.utf8_ltrim(texts, "+"), pa.scalar(None, pa.string()))
    return bare.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)


def numbers(texts: pyarrow.Array, comma: bool = False) -> tuple[np.ndarray, str]:
    """Texts as numbers, those with a currency, per cent or thousands among them, and what was taken for granted.

    All of a column must be written one way: with one currency; all of them with per cent, or none; and with points or
    with commas for decimals. Where `1,234` could be either, `comma` decides.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    some = _some(texts)
    if len(texts) > SOME and pc.extract_regex(some, _DECORATED).null_count > len(some) / 2:
        values = plain_numbers(some)
        if np.isnan(values).mean() > 0.5:
            return np.full(len(texts), np.nan), ""
    values = plain_numbers(texts)
    rest = np.flatnonzero(np.isnan(values))
    if not len(rest):
        return values, ""
    parts = pc.extract_regex(texts, _DECORATED)
    found = parts.is_valid().to_numpy(zero_copy_only=False)
    field = {name: pc.fill_null(pc.struct_field(parts, name), "") for name in ("sign", "before", "inner", "after")}
    marks = pc.binary_join_element_wise(field["before"], field["after"], "")
    kinds = set(pc.unique(marks.filter(pa.array(found))).to_pylist())
    if len(kinds - {""}) > 1 or ("%" in kinds and len(kinds) > 1):
        return values, ""  # of several currencies, or now and then per cent
    digits = pc.utf8_rtrim_whitespace(pc.fill_null(pc.struct_field(parts, "digits"), "x"))
    digits = pc.replace_substring(digits, "\u00a0", " ")
    matched = {
        mark: pc.match_substring_regex(digits, pattern).to_numpy(zero_copy_only=False)
        for mark, pattern in ((".", _POINT), (",", _COMMA))
    }
    better = matched[","].sum() - matched["."].sum()
    decimal = "," if better > 0 or (comma and better == 0) else "."
    thousands = "[, ']" if decimal == "." else "[. ']"
    bare = pc.replace_substring(pc.replace_substring_regex(digits, thousands, ""), ",", ".")
    minus = pc.or_(pc.equal(field["sign"], "-"), pc.equal(field["inner"], "-"))
    signed = pc.binary_join_element_wise(pc.if_else(minus, "-", ""), bare, "")
    taken = matched[decimal] & found
    read = plain_numbers(pc.if_else(pa.array(taken), signed, ""))
    remark = ""
    both = matched["."] & matched[","] & pc.match_substring_regex(digits, "[.,]").to_numpy(zero_copy_only=False)
    if better == 0 and both.any():
        example = int(np.flatnonzero(both)[0])
        remark = f"{texts[example].as_py()!r} is read as {read[example]:g}"
    return read, remark


def dates(texts: pyarrow.Array) -> tuple[np.ndarray, str]:
    """Texts as seconds since 1970 (UTC unless they say otherwise), and what was taken for granted.

    Years come first, or last after two numbers or the name of a month; hours may follow. Where all of a column could be
    month/day or day/month, the month is first unless points divide them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(texts):
        return np.empty(0), ""
    some = _some(texts)
    known = [pc.sum(pc.match_substring_regex(some, pattern)).as_py() for pattern in _DATES]
    best = int(np.argmax(known))
    if not known[best]:
        return np.full(len(texts), np.nan), ""
    if best == 0:
        with contextlib.suppress(pa.ArrowInvalid):  # the quick way, for dates as ISO 8601 has them, without a zone
            return texts.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() / 1e6, ""
    return _seconds(pc.extract_regex(texts, _DATES[best]))


def _some(texts: pyarrow.Array) -> pyarrow.Array:
    """Up to `SOME` of many texts, evenly spaced: what they are not, the others are not either."""
    every = max(1, len(texts) // SOME)
    return texts.take(np.arange(0, len(texts), every)) if every > 1 else texts


def _seconds(parts: pyarrow.StructArray) -> tuple[np.ndarray, str]:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = {field.name for field in parts.type}
    remark = ""

    def text(name: str) -> Any:
        return pc.fill_null(pc.struct_field(parts, name), "") if name in names else pa.array([""] * len(parts))

    def number(name: str, empty: float = 0.0) -> np.ndarray:
        cells = text(name)
        cells = pc.if_else(pc.equal(cells, ""), str(empty), cells)
        return cells.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)

    valid = parts.is_valid().to_numpy(zero_copy_only=False).copy()
    year = number("year", 1.0)
    year = np.where(pc.equal(pc.utf8_length(text("year")), 2), year + np.where(year < 69, 2000, 1900), year)
    if "mark" in names:
        first, second = number("first", 1), number("second_part", 1)
        day_first = (first[valid] > 12).any()
        if not day_first and not (second[valid] > 12).any():
            day_first = "." in pc.unique(text("mark")).to_pylist()
            if (first[valid] != second[valid]).any() and not day_first:
                remark = "dates are read as month/day/year, since all could be"
        day, month = (first, second) if day_first else (second, first)
    else:
        day = number("day", 1)
        quarter = number("quarter")
        if "name" in names:
            words = pc.utf8_lower(pc.utf8_slice_codeunits(text("name"), 0, 3))
            month = 1 + pc.fill_null(pc.index_in(words, pa.array(_MONTHS)), -1).to_numpy(zero_copy_only=False)
            month = np.where(quarter > 0, 3 * quarter - 2, month)
        else:
            month = number("month", 1)
    hour, minute, second = number("hour"), number("minute"), number("second")
    half = pc.utf8_lower(text("half")).to_numpy(zero_copy_only=False)
    hour = np.where(half == "pm", hour % 12 + 12, np.where(half == "am", hour % 12, hour))
    zone = pc.replace_substring(pc.replace_substring_regex(text("zone"), "Z|UTC|GMT", ""), ":", "")
    offset = pc.if_else(pc.equal(zone, ""), "0", pc.utf8_ltrim(zone, "+")).cast(pa.int64()).to_numpy()
    offset = np.sign(offset) * (np.abs(offset) // 100 * 3600 + np.abs(offset) % 100 * 60)
    valid &= (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 61)
    month = np.where(valid, month, 1)
    months = ((year - 1970) * 12 + month - 1).astype(np.int64).astype("datetime64[M]")
    days = months.astype("datetime64[D]").astype(np.int64)
    valid &= day <= (months + 1).astype("datetime64[D]").astype(np.int64) - days
    seconds = (days + day - 1) * 86400.0 + hour * 3600 + minute * 60 + second - offset
    return np.where(valid, seconds, np.nan), remark
