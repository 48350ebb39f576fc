"""Published numbers, and the one rule that sets ours beside them."""

from __future__ import annotations

import csv
import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from importlib import resources
from typing import Literal, cast

Verdict = Literal["matched", "beaten", "missed", "not comparable"]
SpreadIs = Literal["standard deviation", "standard error", "median absolute deviation", "unstated"]

PAPERS = {
    "siamese": "Siamese-EBM",
    "gedi": "GEDI",
    "aninfonce": "AnInfoNCE",
    "simvae": "SimVAE",
    "clica": "CL-ICA",
}
"""File of published numbers -> name of the paper."""

RESOLUTION = 0.01
"""Smallest difference held against a bare number, of which nothing is known but its value."""

NORMAL_MAD = 1.4826
"""Standard deviation of a normal law over its median absolute deviation."""


@dataclass(frozen=True)
class Published:
    """One number of a paper, in the unit of our metrics: what is printed as a percentage is divided by 100."""

    paper: str
    experiment: str
    """The study of ours that regenerates it."""
    setting: str
    metric: str
    value: float
    resolution: float
    """One unit of the last printed digit."""
    spread: float | None
    """What stands after the ±, or in brackets."""
    spread_is: SpreadIs | None
    runs: int | None
    higher_is_better: bool | None
    """None where neither side is better, as for a baseline that describes the data."""
    place: str
    """Table, figure or section."""
    row: str
    column: str
    note: str

    @property
    def deviation(self) -> float | None:
        """Standard deviation of one run, from the printed spread; one of an unstated kind is read as this."""
        if self.spread is None:
            return None
        if self.spread_is == "standard error":
            return self.spread * (self.runs or 1) ** 0.5
        return self.spread * (NORMAL_MAD if self.spread_is == "median absolute deviation" else 1)

    @property
    def source(self) -> str:
        """Where it stands, as in `GEDI, Table 2, row Moons, column GEDI no gen (again in Table 3)`."""
        cell = [f"{name} {text}" for name, text in (("row", self.row), ("column", self.column)) if text]
        return ", ".join([self.paper, self.place, *cell]) + (f" ({self.note})" if self.note else "")


@functools.cache
def every_published() -> tuple[Published, ...]:
    """All published numbers, paper by paper, in the order of their tables."""
    folder = resources.files("probssl.studies") / "published"
    found = []
    for name, paper in PAPERS.items():
        with (folder / f"{name}.csv").open(encoding="utf-8") as file:
            found += [_read(paper, entry) for entry in csv.DictReader(file)]
    return tuple(found)


def _read(paper: str, entry: dict[str, str]) -> Published:
    shift = {"": 0, "%": -2}[entry["unit"]]
    printed = Decimal(entry["value"])  # decimals keep the digits that were printed, zeros included
    return Published(
        paper=paper,
        experiment=entry["experiment"],
        setting=entry["setting"],
        metric=entry["metric"],
        value=float(printed.scaleb(shift)),
        resolution=10.0 ** (cast(int, printed.as_tuple().exponent) + shift),
        spread=float(Decimal(entry["spread"]).scaleb(shift)) if entry["spread"] else None,
        spread_is=cast(SpreadIs, entry["spread_is"]) if entry["spread_is"] else None,
        runs=int(entry["runs"]) if entry["runs"] else None,
        higher_is_better={"yes": True, "no": False, "": None}[entry["higher_is_better"]],
        place=entry["place"],
        row=entry["row"],
        column=entry["column"],
        note=entry["note"],
    )


def references(experiment: str) -> dict[tuple[str, str], Published]:
    """The published numbers of an experiment with all that is known of them: (setting, metric) -> Published."""
    return {(entry.setting, entry.metric): entry for entry in every_published() if entry.experiment == experiment}


def published(experiment: str) -> dict[tuple[str, str], float]:
    """The published numbers of an experiment: (setting, metric) -> value, percentages as fractions."""
    return {key: entry.value for key, entry in references(experiment).items()}


def margin(spread: float | None, repetitions: int, reference: Published | float) -> float:
    """How far a mean over repetitions may lie from a published number and still match it.

    max(u, 2 √(s²/n + t²/m)) with u one unit of the last printed digit, s our standard deviation over n repetitions and
    t theirs over m runs (one where the paper does not say). Two standard errors of the difference hold 95 % of what
    chance alone does when runs are many, 80 to 90 % when they are three to five. A side without a spread borrows the
    other's, since one run of a method varies as its runs do. A bare number, such as a prediction of theory, is exact:
    t = 0 and u = 0.01.
    """
    ours = spread if repetitions > 1 and spread is not None and math.isfinite(spread) else None
    if isinstance(reference, Published):
        theirs, runs, unit = reference.deviation, reference.runs or 1, reference.resolution
    else:
        theirs, runs, unit = 0.0, 1, RESOLUTION
    s = theirs if ours is None else ours
    t = ours if theirs is None else theirs
    return max(unit, 2 * math.sqrt((s or 0.0) ** 2 / max(repetitions, 1) + (t or 0.0) ** 2 / runs))


def verdict(
    value: float | None,
    spread: float | None,
    repetitions: int,
    reference: Published | float | None,
    *,
    higher_is_better: bool | None = True,
) -> Verdict:
    """Compare our mean over repetitions, and their standard deviation, with a published number.

    `matched` when the two differ by no more than `margin`; otherwise `beaten` or `missed` by the metric's direction,
    and `missed` where neither side is better. Without a published number, or without ours: `not comparable`. A number
    of ours that is not finite is `missed`. A `Published` knows its direction; `higher_is_better` is for bare numbers.
    """
    if value is None or reference is None:
        return "not comparable"
    if not math.isfinite(value):
        return "missed"
    if isinstance(reference, Published):
        target, higher_is_better = reference.value, reference.higher_is_better
    else:
        target = reference
    difference = value - target
    allowed = margin(spread, repetitions, reference) * (1 + 1e-9)  # in floats, 0.85 − 0.84 is more than 0.01
    if abs(difference) <= allowed:
        return "matched"
    return "beaten" if higher_is_better is not None and (difference > 0) == higher_is_better else "missed"
