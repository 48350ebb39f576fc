"""Tables of texts, dates, numbers and gaps in files, and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from probssl.data.writing import write
from probssl.layout import Column

COLUMNS = (
    Column("town", "category", ("left, right", 'so "called"')),
    Column("day", "date"),
    Column("at", "date"),
    Column("price"),
)
ROWS = np.array([[1, 86_400.0, 3_600.5, 1234567890.125], [np.nan, np.nan, np.nan, np.nan], [0, 0.0, 0.0, 0.1]])


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("named", [True, False])
def test_mixed_rows_come_back(ending: str, named: bool, tmp_path: Path) -> None:
    path = tmp_path / f"rows{ending}"
    ids = np.array(["a", "b", "c"]) if named else None
    write(path, ROWS, COLUMNS, ids)
    separator = "\t" if ending == ".tsv" else ","
    found = pd.read_parquet(path) if ending == ".parquet" else pd.read_csv(path, sep=separator)
    assert list(found) == [*(["id"] if named else []), "town", "day", "at", "price"]
    if ids is not None:
        assert found["id"].tolist() == ids.tolist()
    town = found["town"].tolist()
    assert [town[0], town[2]] == ['so "called"', "left, right"]
    assert found.isna().sum(axis=0).tolist()[-4:] == [1, 1, 1, 1]
    assert found["price"].tolist()[::2] == [1234567890.125, 0.1]
    if ending != ".parquet":
        assert found["day"].tolist()[::2] == ["1970-01-02", "1970-01-01"]
        assert found["at"].tolist()[::2] == ["1970-01-01T01:00:00", "1970-01-01T00:00:00"]
    else:
        assert found["day"][0] == pd.Timestamp("1970-01-02")
