"""What columns are taken for, from every source alike, and how a person says otherwise."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

from probssl.data import Table, in_layout, load
from probssl.data.describing import describe
from probssl.data.kinds import ordered, typed
from probssl.data.parsing import dates, numbers
from probssl.errors import InputError

RNG = np.random.default_rng(0)
ROWS = 60
DAY = datetime.date(2024, 2, 27)
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "it", "rains"]


def mixed() -> dict[str, list]:
    """A column of every kind, each with a gap but for the ids, the constant and the flag."""
    columns: dict[str, list] = {
        "customer_id": [f"c{number:04d}" for number in RNG.permutation(ROWS)],
        "age": RNG.integers(18, 90, ROWS).tolist(),
        "price": RNG.normal(100, 20, ROWS).round(2).tolist(),
        "plan": RNG.choice(["basic", "family", "none of these"], ROWS).tolist(),
        "zip": [f"0{number}" for number in RNG.integers(1000, 1010, ROWS)],
        "active": RNG.choice([True, False], ROWS).tolist(),
        "since": [DAY + datetime.timedelta(days=int(days)) for days in RNG.integers(0, 900, ROWS)],
        "review": [" ".join(RNG.choice(WORDS, 6)) for _ in range(ROWS)],
        "country": ["NL"] * ROWS,
    }
    for place, name in enumerate(("age", "price", "plan", "zip", "since", "review")):
        columns[name][place] = None
    return columns


COLUMNS = mixed()
KINDS = ["number", "number", "category", "category", "yes/no", "date", "text"]
SOURCES = ("csv", "tsv.gz", "jsonl", "parquet", "feather", "pandas", "polars", "arrow")


def source_of(form: str, folder: Path):
    table = pa.table(COLUMNS)
    if form in ("pandas", "polars", "arrow"):
        return {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "arrow": pa.table}[form](COLUMNS)
    path = folder / f"customers.{form}"
    if form == "parquet":
        parquet.write_table(table, path)
    elif form == "feather":
        feather.write_feather(table, path)
    elif form == "jsonl":
        path.write_text("\n".join(json.dumps(row, default=str) for row in table.to_pylist()))
    else:
        pandas.DataFrame(COLUMNS).to_csv(path, index=False, sep="\t" if "tsv" in form else ",")
    return path


@pytest.mark.parametrize("form", SOURCES)
def test_every_kind_from_every_source(form: str, tmp_path: Path) -> None:
    table = load(source_of(form, tmp_path))
    assert isinstance(table, Table)
    assert [column.kind for column in table.columns] == KINDS
    assert [column.gaps for column in table.columns] == [kind != "yes/no" for kind in KINDS]
    assert table.columns[2].levels == ("basic", "family", "none of these")
    assert table.columns[4].levels == ("false", "true")
    assert table.ids.tolist() == COLUMNS["customer_id"]
    assert [note[:16] for note in table.notes] == ["column 'customer", "column 'country'"]
    for place, name in enumerate(table.layout.names):
        column, values = table.columns[place], table.features[:, place]
        for cell, value in zip(COLUMNS[name], values, strict=True):
            if cell is None:
                assert np.isnan(value)
            elif column.coded:
                assert column.levels[int(value)] == str(cell).lower()
            elif column.kind == "date":
                assert value == datetime.datetime(cell.year, cell.month, cell.day, tzinfo=datetime.UTC).timestamp()
            else:
                assert value == cell


@pytest.mark.parametrize("form", ["csv", "parquet", "polars"])
def test_new_rows_in_the_layout_of_the_old(form: str, tmp_path: Path) -> None:
    source = source_of(form, tmp_path)
    layout = load(source).layout
    few = pandas.DataFrame({**COLUMNS, "other": 1}).iloc[[40]].drop(columns="country")
    few["plan"] = "unheard of"
    table = load(few, layout=layout)
    assert [column.kind for column in table.columns] == KINDS
    assert table.columns[2].levels == ("unheard of",)
    assert table.columns[4].levels == ("false", "true")
    np.testing.assert_array_equal(table.features[:, :2], load(source).features[[40], :2])
    assert in_layout(table, layout).layout == table.layout
    with pytest.raises(InputError, match="no column 'age', 'plan', which the model needs"):
        load(few.drop(columns=["plan", "age"]), layout=layout)
    nothing = few.assign(**dict.fromkeys(few.columns, "NA"))
    assert np.isnan(load(nothing, layout=layout).features).all()
    few["age"], few["since"] = "old", "long ago"
    with pytest.raises(
        InputError, match=r"'age' should be of kind number and holds 'old'.*'since' should be of kind date"
    ):
        load(few, layout=layout)


def test_test_rows_of_another_file_have_levels_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("x,plan,y\n1.5,a,u\n2.5,b,v\n-999,b,u\n")
    (tmp_path / "test.csv").write_text("plan,x,y\nc,3.5,w\na,-999,u\n")
    table = load(tmp_path / "train.csv", label="y", test=str(tmp_path / "test.csv"), missing="-999")
    assert table.columns[1].levels == ("a", "b", "c")
    np.testing.assert_array_equal(table.features, [[1.5, 0], [2.5, 1], [np.nan, 1], [3.5, 2], [np.nan, 0]])
    assert (table.columns[0].gaps, table.classes, table.labels.tolist()) == (True, ("u", "v", "w"), [0, 1, 0, 2, 0])


def kind_of(cells: list, name: str = "x", asked=None, **options):
    return typed(name, pa.chunked_array([pa.array(cells)]), asked, **options)


UNIQUE = [f"k{number}x" for number in range(30)]


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("x", ["1", "2", "3"], "number"),
        ("x", ["$1,200", "$30", "1.5"], "number"),
        ("x", ["12%", "3.5%", "7%"], "number"),
        ("x", ["12%", "3.5", "7%"], "category"),  # per cent now and then
        ("x", ["$1", "€2", "$3"], "category"),
        ("x", ["1.234,5", "2,25", "3"], "number"),
        ("x", ["1_000", "2_000", "3"], "category"),
        ("x", ["1/2", "2/2", "1/1"], "category"),
        ("x", ["01234", "12345", "23456"], "category"),
        ("zip", ["91234", "12345", "23456"], "category"),
        ("x", ["1234567890123456", "2234567890123456"] * 20, "category"),
        ("x", [str(10**15 + number) for number in range(30)], "id"),
        ("x", ["Yes", "no", "YES"], "yes/no"),
        ("x", ["0", "1", "0"], "yes/no"),
        ("x", [0.0, 1.0, None], "yes/no"),
        ("x", [True, None, False], "yes/no"),
        ("x", ["t", "x"], "category"),
        ("x", [1, 2, 1, 2], "number"),
        ("x", ["2024-02-27", "2024-03-01T12:30:00Z"], "date"),
        ("x", ["27.2.2024", "01.03.2024 8:15"], "date"),
        ("x", ["Feb 27, 2024", "March 1 2024"], "date"),
        ("x", ["1970 Q1", "1970 Q3"], "date"),
        ("x", ["2001-13-01", "2001-02-30"], "category"),
        ("x", UNIQUE, "id"),
        ("x", [f"{word} and more" for word in UNIQUE], "text"),
        ("x", UNIQUE[:9], "category"),  # too few to tell
        ("user_id", [number % 25 for number in range(50)], "id"),
        ("user_id", [number % 5 for number in range(50)], "category"),
        ("userId", [7 * number for number in range(50)], "id"),
        ("paid", [7 * number for number in range(50)], "number"),
        ("x", list(range(1, 31)), "id"),
        ("x", list(range(1871, 1901)), "number"),
        ("x", ["a"] * 3, "constant"),
        ("x", [2.5] * 3, "constant"),
        ("x", [None, "", "NA"], "constant"),
        ("x", [2.5, None, 2.5], "category"),  # that it is there is all it says
        ("x", [*map(str, range(99)), "unknown"], "number"),
        ("x", ["1", "2", "3", "4+"], "category"),
        ("x", [str(1800 + number) for number in range(30)] + ["ancient"] * 10, "number"),
    ],
)
def test_kinds(name: str, cells: list, kind: str) -> None:
    found = kind_of(cells, name)
    assert (found.kind, found.fault) == (kind, "")
    if kind == "id":
        assert "and is left out; --kind" in found.notes[0]


def test_cells_that_become_gaps_are_noted() -> None:
    found = kind_of([*map(str, range(99)), "unknown"])
    assert np.isnan(found.values[-1])
    assert found.notes == ("has 1 cell that is not a number ('unknown'), taken for gaps",)
    assert kind_of(["1,234", "2,345"]).notes == ("'1,234' is read as 1234",)
    assert kind_of(["1,234", "2,345"], comma=True).values.tolist() == [1.234, 2.345]
    assert kind_of(["1/2/2020", "3/4/2020"]).notes == ("dates are read as month/day/year, since all could be",)


@pytest.mark.parametrize("word", ["", " ", "NA", "n/a", "NaN", "null", "None", "?", "-", ".", "#N/A"])
def test_words_for_gaps(word: str) -> None:
    for cells in (["a", word, "b"], ["1.5", word, "2"], ["yes", word, "no"]):
        found = kind_of(cells)
        assert np.isnan(found.values).tolist() == [False, True, False]
    assert kind_of(["a", "nothing", "b"], missing=("nothing",)).levels == ("a", "b")


def test_a_person_knows_better(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("code,when,size,note,who,day\n" + "".join(
        f"{i % 3},{2000 + i},{'LSM'[i % 3]},a{i % 2},{i},202401{i + 1:02d}\n" for i in range(20)
    ))  # fmt: skip
    kinds = {"code,size": "category", "when": "date", "note": "text", "who": "number", "day": "date"}
    table = load(path, kinds=kinds)
    assert {column.name: column.kind for column in table.columns} == {
        "code": "category", "size": "category", "when": "date", "note": "text", "who": "number", "day": "date",
    }  # fmt: skip
    assert table.columns[0].levels == ("0", "1", "2")
    assert table.features[0, 1] == datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC).timestamp()
    assert table.features[0, 5] == datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC).timestamp()
    assert load(path, kinds={"size": "id"}).layout.names == ("code", "when", "note", "day")
    array = load(np.array([[0, 1.5], [2, 2.5], [2, 0.5]]), kinds={"x0": "category"})
    assert (array.columns[0].levels, array.features[:, 0].tolist()) == (("0", "2"), [0, 1, 1])


def test_published_data_infers_nothing() -> None:
    table = load("sklearn:digits")
    assert {column.kind for column in table.columns} == {"number"}
    assert table.n_features == 64
    assert load(np.ones((30, 2))).n_features == 2


def test_descriptions(tmp_path: Path) -> None:
    rows, columns = describe(source_of("csv", tmp_path), label="plan")
    assert rows == ROWS
    assert [(column.name, column.kind, column.use, column.gaps) for column in columns] == [
        ("customer_id", "id", "left out", 0),
        ("age", "number", "feature", 1),
        ("price", "number", "feature", 1),
        ("plan", "category", "label", 1),
        ("zip", "category", "feature", 1),
        ("active", "yes/no", "feature", 0),
        ("since", "date", "feature", 1),
        ("review", "text", "feature", 1),
        ("country", "constant", "left out", 0),
    ]
    assert columns[3].levels == 3
    assert columns[6].range == (
        str(min(day for day in COLUMNS["since"] if day)),
        str(max(filter(None, COLUMNS["since"]))),
    )
    assert json.loads(json.dumps(columns[1].as_dict()))["kind"] == "number"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, unique=True))
def test_numbers_come_back(values: list[float]) -> None:
    assert numbers(pa.array(map(repr, values)))[0].tolist() == values
    names, places = ordered([repr(value) for value in values])
    assert [float(names[place]) for place in places] == values


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(10**12), 10**12), min_size=1), st.sampled_from(["{:,}", "${:,}", "{:,} %"]))
def test_thousands_come_back(values: list[int], form: str) -> None:
    assert numbers(pa.array([form.format(value) for value in values]))[0].tolist() == values


STAMPS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))


FORMS = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y %H:%M:%S", "%b %d, %Y %I:%M:%S %p", "%d %B %Y"]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(STAMPS, min_size=1),
    st.sampled_from(
        ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y %H:%M:%S", "%b %d, %Y %I:%M:%S %p", "%d %B %Y"]
    ),
)
def test_dates_come_back(stamps: list[datetime.datetime], form: str) -> None:
    found = dates(pa.array([stamp.strftime(form) for stamp in stamps]))[0]
    for stamp, seconds in zip(stamps, found, strict=True):
        whole = stamp.replace(microsecond=0, tzinfo=datetime.UTC)
        assert seconds == (whole if "%S" in form else whole.replace(hour=0, minute=0, second=0)).timestamp()
