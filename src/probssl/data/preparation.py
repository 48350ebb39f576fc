"""From the columns of a table to what networks take: scaled numbers, codes of levels, and NaN for gaps.

Everything is learnt from the rows for training. Numbers get mean 0 and variance 1. Rare levels join `OTHER`, as do
levels that training did not have, or become gaps where no level was rare. Dates become a trend and cycles, texts the
leading directions of their character n-grams, so that a column may become several, which go together (`part_of`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from probssl.data.standardise import Standardiser
from probssl.data.wording import listed
from probssl.errors import DataWarning, InputError
from probssl.layout import Column, Layout
from probssl.schema import Mismatch

OTHER = "(other)"
"""What rare levels are called together."""

RARE = 10
"""Rows that a level needs in a large table, to stand by itself; two are enough in a small one."""

RARE_SHARE = 0.01
"""The same as a share of the rows: a level needs the smaller of both."""

MOST_LEVELS = 256
"""Levels of a column that stand by themselves, the most frequent ones."""

DAY, WEEK, YEAR = 86_400.0, 7 * 86_400.0, 365.2425 * 86_400.0
CYCLES = {"year": YEAR, "week": WEEK, "day": DAY}
TREND = "trend"
STARTS = {"week": 4 * DAY}
"""Of cycles, in seconds: 1970 began on a Thursday, and weeks are counted from the first Monday."""

TEXT_DIRECTIONS = 8
"""Numbers that a text becomes, at most."""
NGRAMS, HASHED = (2, 4), 2**12
"""Lengths of the character n-grams of a text, and how many of them are told apart."""

FITTED_TEXTS = 5000
"""Distinct texts, at most, from which directions are found."""


@dataclass(frozen=True, eq=False)
class Text:
    """Texts as the leading directions of their character n-grams, weighted by how rare they are."""

    weights: np.ndarray
    """[HASHED]: log of how many texts there are for one with this n-gram."""
    directions: np.ndarray
    """[HASHED, k]"""

    @classmethod
    def fit(cls, texts: Sequence[str]) -> Text:
        """The directions of distinct texts."""
        from sklearn.decomposition import TruncatedSVD

        if len(texts) > FITTED_TEXTS:
            texts = [texts[place] for place in np.linspace(0, len(texts) - 1, FITTED_TEXTS).astype(int)]
        counts = _ngrams(texts)
        frequent = np.asarray((counts > 0).sum(0)).ravel()
        weights = np.log((1 + len(texts)) / (1 + frequent)) + 1
        k = min(TEXT_DIRECTIONS, len(texts) - 1, int((frequent > 0).sum()) - 1)
        found = TruncatedSVD(max(1, k), random_state=0).fit(_unit(counts.multiply(weights).tocsr()))
        return cls(weights, found.components_.T.copy())

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """[n, k]"""
        return np.asarray(_unit(_ngrams(texts).multiply(self.weights).tocsr()) @ self.directions)


@dataclass(frozen=True, eq=False)
class Preparation:
    """What becomes of each column of a table, learnt from its rows for training."""

    raw: Layout
    """Of the table that it was learnt from."""
    layout: Layout
    """Of what networks take."""
    scaling: Standardiser
    """Of the columns of `layout`; codes keep theirs."""
    texts: dict[str, Text] = field(default_factory=dict)
    """By the name of the column."""

    @classmethod
    def fit(cls, layout: Layout, rows: np.ndarray, *, scaled: bool = True) -> Preparation:
        """Of rows for training [n, columns] in this layout; numbers stay as they are unless `scaled`."""
        texts: dict[str, Text] = {}
        columns: list[Column] = []
        for column, values in zip(layout.columns, rows.T, strict=True):
            there = ~np.isnan(values)
            gaps = not there.all()
            if column.kind == "text":
                used = np.unique(values[there]).astype(int)
                texts[column.name] = text = Text.fit([column.levels[code] for code in used])
                parts = [f"{column.name}: {place + 1}" for place in range(text.directions.shape[1])]
                columns += [Column(name, part_of=column.name, gaps=gaps) for name in parts]
            elif column.kind == "date":
                parts = [f"{column.name}: {part}" for part in _parts_of_dates(values[there])]
                columns += [Column(name, part_of=column.name, gaps=gaps) for name in parts]
            elif column.coded:
                levels = _kept(column.levels, values[there].astype(int))
                columns.append(Column(column.name, "category", levels, gaps=gaps))
            else:
                columns.append(Column(column.name, gaps=gaps))
        prepared = Layout(layout.kind, (len(columns),), tuple(columns))
        mean, scale = np.zeros(len(columns)), np.ones(len(columns))
        found = cls(layout, prepared, Standardiser(mean, scale), texts)
        numbers = list(prepared.numbers)
        if scaled and numbers:
            unscaled = found._unscaled(layout, rows)
            of_numbers = Standardiser.fit(unscaled if len(numbers) == len(columns) else unscaled[:, numbers])
            mean[numbers], scale[numbers] = of_numbers.mean, of_numbers.scale
        return replace(found, scaling=Standardiser(mean, scale))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Of `layout`; none where rows are numbers without gaps, each by itself."""
        alone = not any(column.part_of for column in self.layout.columns)
        return () if self.layout.plain and alone else self.layout.columns

    def transform(self, layout: Layout, rows: np.ndarray) -> np.ndarray:
        """Rows [n, columns] of a table with the same columns, whose levels may be others, as networks take them."""
        found = self.scaling.transform(self._unscaled(layout, rows))
        missing = np.isnan(found)
        missing[:, [place for place, column in enumerate(self.layout.columns) if column.gaps]] = False
        if missing.any():
            _warn(missing, self.layout)
            numbers = list(self.layout.numbers)
            found[:, numbers] = np.where(missing[:, numbers], 0.0, found[:, numbers])
        return found

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """What networks take, in the units of `restored` [n, columns]."""
        values = self.scaling.inverse(x)
        named = {name: place for place, name in enumerate(self.layout.names)}
        places = [named[f"{one.name}: {TREND}" if one.kind == "date" else one.name] for one in self.restored.columns]
        return values[:, places]

    @cached_property
    def restored(self) -> Layout:
        """The layout of what `inverse` gives: the columns of the table but texts, with the levels that were kept."""
        kept = {column.name: column.levels for column in self.layout.columns}
        columns = [
            replace(column, levels=kept[column.name]) if column.coded else column
            for column in self.raw.columns
            if column.kind != "text"
        ]
        return Layout(self.raw.kind, (len(columns),), tuple(columns))

    def arrays(self) -> dict[str, np.ndarray]:
        """What was learnt, by name; `of_arrays` is the way back."""
        found = {f"preparation.{name}": array for name, array in self.scaling.as_dict().items()}
        for place, text in enumerate(self.texts.values()):
            found |= {f"preparation.text{place}.{name}": array for name, array in vars(text).items()}
        return found

    @classmethod
    def of_arrays(cls, raw: Layout, layout: Layout, arrays: Mapping[str, Any]) -> Preparation:
        """The inverse of `arrays`; `Mismatch` where these are not of the columns."""
        held = {name: np.asarray(array) for name, array in arrays.items() if name.startswith("preparation.")}
        mean, scale = held["preparation.mean"], held["preparation.scale"]
        whole = mean.shape == scale.shape == layout.shape and mean.dtype == scale.dtype == np.float64
        if not (whole and np.isfinite(mean).all() and np.isfinite(scale).all() and (scale > 0).all()):
            raise Mismatch("the scaling is not one of the columns")
        texts = {}
        for place, column in enumerate(column for column in raw.columns if column.kind == "text"):
            text = Text(*(held[f"preparation.text{place}.{name}"] for name in ("weights", "directions")))
            parts = sum(one.part_of == column.name for one in layout.columns)
            if text.weights.shape != (HASHED,) or text.directions.shape != (HASHED, parts):
                raise Mismatch(f"the directions of {column.name} are not as many as its columns")
            texts[column.name] = text
        found = cls(raw, layout, Standardiser(mean, scale), texts)
        try:
            found._unscaled(raw, np.full((1, len(raw.columns)), np.nan))
        except (KeyError, IndexError, InputError) as error:
            raise Mismatch("the columns are not those that they come to") from error
        return found

    def _unscaled(self, layout: Layout, rows: np.ndarray) -> np.ndarray:
        if layout.columns == self.raw.columns and self.layout.columns == self.raw.columns:
            return rows
        found = np.empty((len(rows), len(self.layout.columns)))
        for column, values, places in self.matched(layout, rows):
            prepared = self.layout.columns[places.start]
            if column.kind == "text":
                coded = self.texts[column.name].transform(column.levels)
                found[:, places] = _looked_up(coded, values)
            elif column.kind == "date":
                names = [one.name for one in self.layout.columns[places]]
                for place, name in zip(range(places.start, places.stop), names, strict=True):
                    found[:, place] = _part_of_dates(values, name.removeprefix(f"{column.name}: "))
            elif prepared.coded:
                found[:, places] = _looked_up(recoded(column.levels, prepared.levels)[:, None], values)
            else:
                found[:, places.start] = values
        return found

    def matched(self, layout: Layout, rows: np.ndarray) -> Iterator[tuple[Column, np.ndarray, slice]]:
        """Each column that it was learnt from: as it is in other rows, their values, and the places it comes to."""
        end = 0
        if layout.names != self.raw.names:
            raise InputError(f"the columns are {listed(layout.names, 8)}, not {listed(self.raw.names, 8)}")
        for mine, column, values in zip(self.raw.columns, layout.columns, rows.T, strict=True):
            if column.coded != mine.coded:
                raise InputError(f"the column {column.name!r} is a {column.kind}, and the model has it as {mine.kind}")
            start, end = end, end + 1
            while end < len(self.layout.columns) and self.layout.columns[end].part_of == mine.name:
                end += 1
            yield replace(column, kind=mine.kind), values, slice(start, end)


def _parts_of_dates(seconds: np.ndarray) -> list[str]:
    """The trend, and cycles that dates go through: of a year if they span most of one, of a day if they have times."""
    span = float(np.ptp(seconds)) if len(seconds) else 0.0
    cycles = [
        cycle
        for cycle, there in (
            ("year", span > 0.75 * YEAR),
            ("week", span > WEEK and len(np.unique((seconds - STARTS["week"]) // DAY % 7)) > 1),
            ("day", bool((seconds % DAY).any())),
        )
        if there
    ]
    return [TREND, *(f"{cycle} {wave}" for cycle in cycles for wave in ("sine", "cosine"))]


def _part_of_dates(seconds: np.ndarray, part: str) -> np.ndarray:
    cycle, _, wave = part.partition(" ")
    if not wave:
        return seconds
    angle = 2 * np.pi * (seconds - STARTS.get(cycle, 0.0)) / CYCLES[cycle]
    return np.sin(angle) if wave == "sine" else np.cos(angle)


def _kept(levels: tuple[str, ...], codes: np.ndarray) -> tuple[str, ...]:
    """The levels that stand by themselves, and `OTHER` where there are others."""
    counts = np.bincount(codes, minlength=len(levels))
    least = max(2, min(RARE, int(RARE_SHARE * len(codes))))
    frequent = set(np.argsort(-counts, kind="stable")[:MOST_LEVELS].tolist())
    kept = [code for code in range(len(levels)) if code in frequent and counts[code] >= least]
    rare = [code for code in range(len(levels)) if counts[code] and code not in kept]
    if len(rare) == 1 and len(kept) < MOST_LEVELS:
        return tuple(levels[code] for code in sorted([*kept, *rare]))
    return (*(levels[code] for code in kept), *([OTHER] if rare else []))


def recoded(levels: tuple[str, ...], kept: tuple[str, ...]) -> np.ndarray:
    """The code of each level among those that were kept: `OTHER` of one that was not, or a gap."""
    codes = {level: float(code) for code, level in enumerate(kept)}
    return np.array([codes.get(level, codes.get(OTHER, np.nan)) for level in levels])


def _looked_up(table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Rows of a table [levels, k] by their codes [n]; NaN where the code is."""
    missing = np.isnan(codes)
    found = table[np.where(missing, 0, codes).astype(int)]
    found[missing] = np.nan
    return found


def _warn(missing: np.ndarray, layout: Layout) -> None:
    """Of gaps and unknown levels in columns that had neither in training."""
    columns = [layout.columns[place] for place in np.flatnonzero(missing.any(0))]
    for what, meaning, coded in (
        ("gaps", "they count as its mean", False),
        ("gaps or levels", "they count as unknown", True),
    ):
        names = list(dict.fromkeys(column.part_of or column.name for column in columns if column.coded == coded))
        if names:
            said = f"{listed(names, 8)} has {what} that training did not have: {meaning}"
            warnings.warn(said, DataWarning, stacklevel=4)


def _ngrams(texts: Sequence[str]) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(
        analyzer="char_wb", ngram_range=NGRAMS, n_features=HASHED, alternate_sign=False, norm=None
    )
    return hashing.transform(list(texts))


def _unit(rows: Any) -> Any:
    from sklearn.preprocessing import normalize

    return normalize(rows)
