"""Trials as a table: every value in a column of its own, and the same in every format."""

import csv
import math

import pytest

from probssl import studies
from probssl.errors import InputError
from probssl.grids import engine
from probssl.grids.grid import Outcome
from probssl.grids.store import Store
from probssl.studies import experiments
from tests.grids.cheap import COUNT, Cheap

TRIALS = [
    ({"data": "a", "seed": 0, "size": 1}, {"score": 1, "parts": {"x": 0.5, "deep": {"y": True}}, "z": [1, math.nan]}),
    ({"data": "b", "seed": 1, "size": "two"}, {"score": 2.5, "parts": {}, "seed": 7, "seconds": 3}),
    ({"data": "c", "seed": 2, "size": None}, {"score": math.nan, "word": 'x,\n"y"', "big": 2**70}),
    ({"data": "d", "seed": 3, "size": 2}, {"score": math.inf}),
]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as opened:
        for number, (config, result) in enumerate(TRIALS):
            opened.put("s", "c1", {str(number): config}, [Outcome(config, result, "", 0.25, "here")])
        opened.put("s", "c0", {"old": {"seed": 0}}, [Outcome({"seed": 0}, {"old": 1}, "", 0.25, "here")])
        yield opened


EXPECTED = {
    "data": ["a", "b", "c", "d"],
    "config.seed": [0, 1, 2, 3],
    "size": ["1", "two", None, "2"],
    "score": [1.0, 2.5, math.nan, math.inf],
    "parts.x": [0.5, None, None, None],
    "parts.deep.y": [True, None, None, None],
    "z": ["[1,NaN]", None, None, None],
    "parts": [None, "{}", None, None],
    "result.seed": [None, 7, None, None],
    "result.seconds": [None, 3, None, None],
    "word": [None, None, 'x,\n"y"', None],
    "big": [None, None, str(2**70), None],
    "study": ["s"] * 4,
    "code": ["c1"] * 4,
    "seconds": [0.25] * 4,
}


def test_parquet(store, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert store.export(tmp_path / "t.parquet", "s", "c1") == 4
    found = parquet.read_table(tmp_path / "t.parquet").to_pydict()
    assert list(found)[:4] == ["data", "config.seed", "size", "score"]
    assert {name: repr(found[name]) for name in EXPECTED} == {name: repr(value) for name, value in EXPECTED.items()}
    assert set(found) == {*EXPECTED, "key", "finished", "environment"}


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_text(store, tmp_path, ending):
    assert store.export(tmp_path / f"t.{ending}", "s", "c1") == 4
    with (tmp_path / f"t.{ending}").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="," if ending == "csv" else "\t"))
    for name, values in EXPECTED.items():
        assert [row[name] for row in rows] == ["" if value is None else str(value) for value in values]


def test_everything_or_one_version(store, tmp_path):
    assert store.export(tmp_path / "t.csv") == 5
    assert store.export(tmp_path / "t.csv", "s", "c0") == 1
    assert (tmp_path / "t.csv").read_text().splitlines()[0].startswith("seed,old,study")


def test_numbers_are_those_of_the_study(tmp_path):
    pandas = pytest.importorskip("pandas")
    found = engine.run(experiments.grid(Cheap(), "smoke"), tmp_path / "store.sqlite", jobs=1)
    for ending, read in (("csv", pandas.read_csv), ("parquet", pandas.read_parquet)):
        assert studies.export(Cheap(), tmp_path, tmp_path / f"t.{ending}") == COUNT["smoke"]
        table = read(tmp_path / f"t.{ending}").sort_values("number")
        assert table["mean"].tolist() == [result["mean"] for _, result in found.results]
        assert table["parts.first"].tolist() == [result["parts"]["first"] for _, result in found.results]


def test_refusals(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="holds no trials"):
        studies.export(Cheap(), tmp_path, tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"must end in \.csv"):
        studies.export(Cheap(), tmp_path, tmp_path / "t.xlsx")
    engine.run(experiments.grid(Cheap(), "smoke"), tmp_path / "store.sqlite", jobs=1)
    monkeypatch.setattr("probssl.studies.experiments.code_version", lambda study: "another")
    with pytest.raises(InputError, match="this version of the code, and 12 of older"):
        studies.export(Cheap(), tmp_path, tmp_path / "t.csv")
    assert not (tmp_path / "t.csv").exists()
