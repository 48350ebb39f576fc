"""From columns of any kind to what networks take, and back."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from probssl.data import Column, Layout, Preparation, Standardiser
from probssl.data.preparation import DAY, OTHER, YEAR
from probssl.errors import DataWarning
from probssl.layout import plain_columns
from probssl.model.prepared import Prepared
from probssl.schema import Mismatch, conform

RNG = np.random.default_rng(0)
N = 400
TEXTS = ("red brick house", "blue brick house", "small flat", "large flat", "garden shed")
COLUMNS = (
    Column("area"),
    Column("town", "category", ("Aix", "Bonn", "Cork", "Delft", "Evora")),
    Column("sold", "date"),
    Column("about", "text", TEXTS),
    Column("garden", "yes/no", ("no", "yes")),
    Column("age"),
)


def rows() -> np.ndarray:
    """Four towns, of which two are rare; times over three years; gaps in the last two columns."""
    towns = RNG.choice(2, N)
    towns[:3] = 2, 2, 3
    found = [RNG.gamma(2, 50, N), towns, RNG.uniform(0, 3 * YEAR, N), RNG.integers(0, 5, N), RNG.integers(0, 2, N)]
    table = np.stack([*found, RNG.normal(50, 10, N)], 1).astype(float)
    table[::7, 4], table[::5, 5] = np.nan, np.nan
    return table


@pytest.fixture(scope="module")
def table() -> tuple[Layout, np.ndarray, Preparation]:
    layout, values = Layout("table", (len(COLUMNS),), COLUMNS), rows()
    return layout, values, Preparation.fit(layout, values)


def test_what_each_column_becomes(table) -> None:
    layout, values, made = table
    x = made.transform(layout, values)
    cycles = [f"sold: {part} {wave}" for part in ("year", "week", "day") for wave in ("sine", "cosine")]
    texts = [f"about: {place + 1}" for place in range(4)]
    assert made.layout.names == ("area", "town", "sold: trend", *cycles, *texts, "garden", "age")
    assert x.shape == (N, len(made.layout.names))
    by_name = dict(zip(made.layout.names, x.T, strict=True))
    for name in ("area", "sold: trend", "sold: day sine", "about: 1", "age"):
        there = by_name[name][~np.isnan(by_name[name])]
        assert abs(there.mean()) < 1e-9
        assert there.std() == pytest.approx(1)
    assert made.layout.columns[1].levels == ("Aix", "Bonn", OTHER)
    np.testing.assert_array_equal(by_name["town"], np.minimum(values[:, 1], 2))
    np.testing.assert_array_equal(np.isnan(by_name["age"]), np.isnan(values[:, 5]))
    gaps = {column.name for column in made.layout.columns if column.gaps}
    assert gaps == {"garden", "age"}
    assert [len(places) for places in made.layout.groups] == [1, 1, 7, 4, 1, 1]
    assert not made.layout.plain
    assert made.columns == made.layout.columns


def test_numbers_alone_are_standardised_as_ever() -> None:
    values = RNG.normal(3, 2, (50, 4))
    layout = Layout("table", (4,), tuple(map(Column, "abcd")))
    made, scaling = Preparation.fit(layout, values), Standardiser.fit(values)
    np.testing.assert_array_equal(made.transform(layout, values), scaling.transform(values))
    assert made.columns == ()
    np.testing.assert_allclose(made.inverse(made.transform(layout, values)), values)
    raw = Preparation.fit(layout, values, scaled=False)
    np.testing.assert_array_equal(raw.transform(layout, values), values)


def test_cycles_come_round() -> None:
    layout = Layout("table", (1,), (Column("when", "date"),))
    days = np.arange(0, 3 * YEAR, DAY)[:, None]
    made = Preparation.fit(layout, days, scaled=False)
    assert made.layout.names == (
        "when: trend",
        *(f"when: {c} {w}" for c in ("year", "week") for w in ("sine", "cosine")),
    )
    x = made.transform(layout, days)
    np.testing.assert_allclose(x[7:, 3:], x[:-7, 3:], atol=1e-9)  # a week later
    np.testing.assert_allclose((x[:, 3:] ** 2).sum(1), 1)
    monday = np.array([[4 * DAY]])  # 5 January 1970
    np.testing.assert_allclose(made.transform(layout, monday)[0, 3:], [0, 1], atol=1e-12)


def test_other_rows_are_matched_by_the_names_of_levels(table) -> None:
    layout, _, made = table
    columns = list(COLUMNS)
    columns[1] = Column("town", "category", ("Cork", "Bonn", "Fargo"))
    columns[3] = Column("about", "text", ("small flat", "yellow submarine"))
    other = Layout("table", layout.shape, tuple(columns))
    some = np.array([[100, 0, 0, 0, 1, np.nan], [100, 1, 0, 1, np.nan, 40], [100, 2, 0, 1, 0, 40]])
    x = made.transform(other, some)
    np.testing.assert_array_equal(x[:, 1], [2, 1, 2])  # rare, known, unknown
    mine = made.transform(layout, np.array([[100, 0, 0, 2, 1, np.nan]]))
    np.testing.assert_allclose(x[0, 9:13], mine[0, 9:13])
    assert np.isfinite(x[1]).sum() == len(x[1]) - 1


def test_gaps_that_training_did_not_have_are_said(table) -> None:
    layout, values, made = table
    some = values[:2].copy()
    some[0, 0] = np.nan
    with pytest.warns(DataWarning, match="'area' has gaps that training did not have: they count as its mean"):
        assert made.transform(layout, some)[0, 0] == 0


def test_back_in_units(table) -> None:
    layout, values, made = table
    back = made.inverse(made.transform(layout, values))
    assert made.restored.names == ("area", "town", "sold", "garden", "age")
    assert made.restored.columns[1].levels == ("Aix", "Bonn", OTHER)
    expected = values[:, [0, 1, 2, 4, 5]]
    expected[:, 1] = np.minimum(expected[:, 1], 2)
    np.testing.assert_allclose(back, expected, rtol=1e-9)


def test_stored_and_read_back(table) -> None:
    layout, values, made = table
    arrays = made.arrays()
    columns = conform(json.loads(json.dumps(plain_columns(layout.columns))), tuple[Column, ...])
    again = Preparation.of_arrays(Layout("table", layout.shape, columns), made.layout, arrays)
    np.testing.assert_array_equal(again.transform(layout, values), made.transform(layout, values))
    for name, array in arrays.items():
        with pytest.raises(Mismatch):
            Preparation.of_arrays(layout, made.layout, {**arrays, name: array[:-1]})
    with pytest.raises(Mismatch):
        Preparation.of_arrays(layout, Layout("table", (2,), made.layout.columns[:2]), arrays)


def test_the_network_of_it_computes_the_same(table) -> None:
    layout, values, made = table
    network = Prepared(made)
    expected = made.transform(layout, values).astype(np.float32)
    np.testing.assert_allclose(network(torch.from_numpy(values)).numpy(), expected, atol=1e-5)
    values = values[:3].copy()
    values[0, 0] = np.nan
    assert network(torch.from_numpy(values))[0, 0] == 0
