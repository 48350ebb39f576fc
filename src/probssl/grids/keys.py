"""What a trial is known by: JSON of its configuration, and a hash of that with all else that decides its numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from probssl.errors import InputError

Config = dict[str, Any]
"""What makes one trial what it is: names and plain values (text, numbers, truth values, None, lists, dicts)."""

Result = dict[str, Any]
"""What one trial found, in plain values; numbers may be infinite or not a number."""

Results = list[tuple[Config, Result]]
"""Finished trials in the order of the grid. A trial that failed is not among them."""


def text(value: Any, *, ordered: bool = False) -> str:
    """JSON of a value, with NumPy's numbers and arrays as plain ones; `ordered` by name, so that equal values agree."""
    return json.dumps(value, sort_keys=ordered, separators=(",", ":"), ensure_ascii=False, default=_plain)


def plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """The value as it comes back from the store: lists for tuples, numbers for NumPy's."""
    try:
        found: dict[str, Any] = json.loads(text(value))
    except (TypeError, ValueError) as error:
        raise InputError(f"a trial's configuration and result are plain values: {error}") from None
    return found


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not one")


def key_of(name: str, config: Config, code: str, cohort: Sequence[Config] = ()) -> str:
    """The key of a trial: a hash of the grid's name, the configuration in whatever order, the code and its company.

    Trials that train as one stack may differ in the last bits from trials that train alone, so the cohort counts where
    it is of several.
    """
    company = [text(config, ordered=True) for config in cohort] if len(cohort) > 1 else []
    return hashlib.sha256("\0".join((name, text(config, ordered=True), code, *company)).encode()).hexdigest()[:32]
