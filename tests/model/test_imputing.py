"""Gaps filled by posterior draws: exact conditional chances of a small model, and the columns of a table."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from probssl.data import Table
from probssl.encoders import MLP, seeded
from probssl.errors import InputError
from probssl.layout import Column, Layout
from probssl.model.imputing import completed, impute
from probssl.objectives import VAE, ColumnsLikelihood
from tests.encoders.test_expansion import NAN
from tests.objectives.members import generator
from tests.objectives.test_columns_likelihood import marginals, model

DAY = 86_400.0


def test_draws_have_the_chances_given_what_is_observed() -> None:
    objective, encoder = model("vae")
    row = torch.tensor([[1.0, 0.0, NAN]], dtype=torch.float64)
    for place, levels in ((2, 2), (0, 3)):
        x = row.clone()
        x[0, :] = torch.tensor([1.0, 0.0, 1.0])
        x[0, place] = NAN
        every = x.repeat(levels, 1)
        every[:, place] = torch.arange(levels)
        exact = marginals(objective, every, values_alone=True)
        exact = np.exp(exact - np.logaddexp.reduce(exact))
        drawn = completed(objective, encoder, x, x.isnan(), generator(), draws=20_000, samples=4_000)
        assert drawn.shape == (20_000, 1, 3)
        kept = [at for at in range(3) if at != place]
        assert (drawn[:, 0, kept] == x[0, kept]).all()
        shares = [(drawn[:, 0, place] == level).double().mean().item() for level in range(levels)]
        np.testing.assert_allclose(shares, exact, atol=0.03)


RAW = (
    Column("town", "category", ("Rome", "Oslo")),
    Column("day", "date"),
    Column("price"),
    Column("kept", "yes/no", ("no", "yes")),
)
PREPARED = Layout(
    "table",
    (5,),
    (
        Column("town", "category", ("Oslo", "Rome"), gaps=True),
        Column("day: trend", part_of="day", gaps=True),
        Column("day: sine", part_of="day", gaps=True),
        Column("price", gaps=True),
        Column("kept", "category", ("no", "yes")),
    ),
)


class Prepared:
    """As much of a model's preparation as filling gaps needs: prices in hundreds, dates in days."""

    restored = Layout("table", (4,), (Column("town", "category", ("Oslo", "Rome")), *RAW[1:]))

    def matched(self, layout: Layout, rows: np.ndarray) -> Any:
        places = (slice(0, 1), slice(1, 3), slice(3, 4), slice(4, 5))
        return zip(layout.columns, rows.T, places, strict=True)


def stand_in(objective: VAE, encoder: MLP) -> Any:
    def inputs(rows: np.ndarray, layout: Layout) -> torch.Tensor:
        town = np.array([Prepared.restored.columns[0].levels.index(level) for level in layout.columns[0].levels])
        codes = np.where(np.isnan(rows[:, 0]), NAN, town[np.nan_to_num(rows[:, 0]).astype(int)])
        days = rows[:, 1] / DAY
        return torch.from_numpy(np.column_stack([codes, days, np.sin(days), rows[:, 2] / 100, rows[:, 3]])).float()

    def in_units(x: torch.Tensor) -> np.ndarray:
        rows = x.double().numpy()
        return np.column_stack([rows[:, 0], rows[:, 1] * DAY, rows[:, 3] * 100, rows[:, 4]])

    return SimpleNamespace(
        objective=objective,
        encoder=encoder,
        preparation=Prepared(),
        layout=Layout("table", (4,), RAW),
        facts=SimpleNamespace(shape=(5,), features=PREPARED.width),
        feature_names=tuple(column.name for column in RAW),
        read=lambda data: data,
        inputs=inputs,
        in_units=in_units,
        resolved=SimpleNamespace(called=lambda slot: "vae"),
    )


def untrained(likelihood: ColumnsLikelihood | None = None) -> Any:
    encoder = seeded(0, lambda: MLP((8,)).bind(shape=(5,), layout=PREPARED, dim=2))
    made = VAE(ColumnsLikelihood() if likelihood is None else likelihood, of="data")
    objective = seeded(1, lambda: made.bind(shape=(5,), layout=PREPARED, dim=2, encoder=encoder))
    return stand_in(objective, encoder)


ROWS = np.array([[0, DAY, 250.0, 1], [NAN, 3 * DAY, NAN, 0], [1, NAN, 80.125, NAN], [NAN, NAN, NAN, NAN]])


def table() -> Table:
    return Table("some.csv", ROWS, RAW, ids=np.array(["a", "b", "c", "d"]))


def test_what_was_there_stays_and_gaps_are_filled() -> None:
    found = impute(untrained(), table(), draws=50, seed=1)
    there = ~np.isnan(ROWS)
    assert (found.values[there] == ROWS[there]).all()
    assert np.isfinite(found.values).all()
    assert (np.isnan(found.spread) == there).all()
    assert (found.spread[:, [0, 3]][~there[:, [0, 3]]] >= 0.5).all()  # shares of the more frequent of two levels
    assert (found.spread[:, [1, 2]][~there[:, [1, 2]]] > 0).all()
    assert found.ids is not None
    assert found.ids.tolist() == ["a", "b", "c", "d"]
    frame = pd.DataFrame(found.frame())
    assert list(frame) == ["town", "day", "price", "kept"]
    assert frame["town"].tolist()[::2] == ["Rome", "Oslo"]
    assert frame["day"][1] == pd.Timestamp("1970-01-04")
    again = impute(untrained(), table(), draws=50, seed=1)
    np.testing.assert_array_equal(found.values, again.values)
    columns, values = found.with_spread()
    named = [column.name for column in columns]
    assert named[4:] == ["town (chance)", "day (deviation)", "price (deviation)", "kept (chance)"]
    np.testing.assert_array_equal(values[:, 4:], found.spread)


def test_levels_that_the_data_does_not_have_can_fill_its_gaps() -> None:
    one = Column("town", "category", ("Rome",))
    rows = np.array([[0.0, DAY, 1.0, 1.0], [NAN, DAY, 1.0, 1.0]])
    model = untrained()
    with torch.no_grad():
        places = model.objective.likelihood.places
        start = len(places.numbers)
        model.objective.decoder.network[0][-1].bias[start] = 50.0  # Oslo
    found = impute(model, Table("some.csv", rows, (one, *RAW[1:])))
    assert found.columns[0].levels == ("Rome", "Oslo")
    assert found.frame()["town"].tolist() == ["Rome", "Oslo"]
    assert found.spread[1, 0] == 1


def test_one_draw_is_as_rough_as_the_model_and_many_are_their_mean() -> None:
    rows = np.tile(ROWS[1], (400, 1))
    many, one = (impute(untrained(), Table("some.csv", rows, RAW), draws=draws).values[:, 2] for draws in (100, 1))
    spread = impute(untrained(), Table("some.csv", rows, RAW), draws=100).spread[:, 2]
    assert one.std() == pytest.approx(spread.mean(), rel=0.15)
    assert many.std() < one.std() / 5
    assert many.mean() == pytest.approx(one.mean(), abs=4 * one.std() / math.sqrt(len(rows)))


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="at least one draw"):
        impute(untrained(), table(), draws=0)
    model = untrained()
    model.objective = VAE(of="data").bind(shape=(5,), dim=2, encoder=model.encoder)
    with pytest.raises(InputError, match="likelihood=columns"):
        impute(model, table())
