"""The small parts that the sentences of this room's errors are made of."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Iterable, Sequence


def plural(count: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def quoted(text: str, limit: int = 40) -> str:
    """The text in quotation marks on one line, cut to `limit` characters."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def option(flag: str, value: str) -> str:
    """A command-line option as one would type it: `--drop 'body mass'`."""
    return f"{flag} {shlex.quote(value) if value.isprintable() else repr(value)}"


def options(flag: str, values: Sequence[str]) -> str:
    """One option for all values, `--drop a,b`, or one for each where a value holds a comma itself."""
    if any("," in value for value in values):
        return " ".join(option(flag, value) for value in values)
    return option(flag, ",".join(values))


def listed(names: Sequence[str], limit: int = 5) -> str:
    """The first few names, and how many there are when some are left off."""
    shown = ", ".join(quoted(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown}, … ({len(names):,} in all)"


def did_you_mean(name: str, known: Iterable[str], show: Callable[[str], str] = str) -> str:
    """`; did you mean 'a' or 'b'?` when something close is known, else nothing."""
    lowered = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.65)
    return f"; did you mean {' or '.join(quoted(show(lowered[match])) for match in close)}?" if close else ""
