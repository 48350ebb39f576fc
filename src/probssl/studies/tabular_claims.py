"""Claims of the paper about the tabular study as checks on our numbers: what they are, and what came of them.

A claim is cut into parts, each a comparison of numbers, such as "at m/d = 1/5 the RankMe of SNL is the least". A part
that says one thing exceeds another holds when the mean difference over tables, taken table by table, exceeds one
standard error of it. A claim is `reproduced` when all its parts hold, `partly` when at least half of them do, otherwise
`not reproduced`; `not tested` when there are no numbers for any part.

Sentences of the paper and rules in words are the rows of `tabular_claims.csv`; `tabular_checks` has the rules as code.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import numpy as np

from probssl.studies.tabular_checks import CHECKS, Part
from probssl.studies.tabular_scores import Scores

Verdict = Literal["reproduced", "partly", "not reproduced", "not tested"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper in our words, where it stands, the rule by which it is checked, and what came of it."""

    name: str
    """A few words for a narrow column."""
    place: str
    text: str
    rule: str
    parts: tuple[Part, ...]

    @property
    def share(self) -> float | None:
        """Which share of the parts holds; None where there are none."""
        return sum(part.holds for part in self.parts) / len(self.parts) if self.parts else None

    @property
    def verdict(self) -> Verdict:
        """By the rule at the top of this module."""
        if self.share is None:
            return "not tested"
        return "reproduced" if self.share == 1 else "partly" if self.share >= 0.5 else "not reproduced"

    def evidence(self, most: int = 6) -> str:
        """The numbers behind the verdict; of many parts those that do not hold come first."""
        shown = sorted(self.parts, key=lambda part: part.holds)[:most] if len(self.parts) > most else self.parts
        words = [f"{p.name}: {p.number:.3g}" + ("" if p.holds else " ✗") for p in shown]
        held = f"{sum(p.holds for p in self.parts)} of {len(self.parts)} hold; " if len(self.parts) > 1 else ""
        return held + "; ".join(words) + ("; …" if len(self.parts) > most else "")


def claims(scores: Scores) -> list[Claim]:
    """All claims about a sweep, in the order of the paper; parts for which there is no number do not count."""
    text = resources.files("probssl.studies").joinpath("tabular_claims.csv").read_text(encoding="utf-8")
    found = []
    for row in csv.DictReader(text.splitlines()):
        if row["sweep"] in ("", scores.setup.name):
            parts = (part for check in CHECKS[row["name"]] for part in check(scores))
            known = tuple(part for part in parts if np.isfinite(part.number))
            place = row["place"].format(**scores.setup.figures)
            found.append(Claim(row["name"], place, row["text"], row["rule"], known))
    return found
