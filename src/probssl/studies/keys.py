"""What a trial is known by: JSON of its configuration, and a hash of that with the study and the code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from probssl.errors import InputError
from probssl.studies.base import Config


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


def key_of(study: str, config: Config, code: str) -> str:
    """The key of a trial: a hash of the study's name, the configuration in whatever order, and the code version."""
    return hashlib.sha256("\0".join((study, text(config, ordered=True), code)).encode()).hexdigest()[:32]
