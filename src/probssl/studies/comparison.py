"""Published numbers, and the rule that sets ours beside them."""

from __future__ import annotations

import csv
import math
from importlib import resources
from typing import Literal

Verdict = Literal["matched", "beaten", "missed", "not comparable"]

RESOLUTION = 0.01
"""Differences below this are never held against a result: published numbers are rounded or read off figures."""


def published(experiment: str) -> dict[tuple[str, str], float]:
    """The published numbers of an experiment: (setting, metric) -> value."""
    folder = resources.files("probssl.studies") / "published"
    found = {}
    with (folder / f"{experiment.split('/')[0]}.csv").open(encoding="utf-8") as file:
        for entry in csv.DictReader(file):
            if entry["experiment"] == experiment:
                found[entry["setting"], entry["metric"]] = float(entry["value"])
    return found


def verdict(
    value: float | None,
    spread: float | None,
    repetitions: int,
    published_value: float | None,
    *,
    higher_is_better: bool = True,
) -> Verdict:
    """Compare a mean over repetitions with a published number.

    `matched` when they differ by no more than two standard errors of ours, or 0.01 where that is larger; otherwise
    `beaten` or `missed` by the metric's direction. Without a published number, or without ours: `not comparable`.
    A number of ours that is not finite is `missed`.
    """
    if value is None or published_value is None:
        return "not comparable"
    if not math.isfinite(value):
        return "missed"
    standard_error = (spread or 0.0) / max(repetitions, 1) ** 0.5
    difference = value - published_value
    if abs(difference) <= max(2 * standard_error, RESOLUTION):
        return "matched"
    return "beaten" if (difference > 0) == higher_is_better else "missed"
