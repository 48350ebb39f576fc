"""Every format comes back as it was written."""

import csv
import gzip
import json
import math

import numpy as np
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import feather

from probssl.data import load
from probssl.errors import InputError
from probssl.layout import Column, Layout

VALUES = np.array([[1.5, -2.0, 3e-7], [4.0, 0.1, 1e12], [0.0, 7.25, -1.0]])
CLASSES = ["b", "a", "b"]


def write_text(path, text, encoding="utf-8"):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding=encoding, newline="") as stream:
        stream.write(text)
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".tsv.gz", ".CSV"])
def test_text_round_trip(tmp_path, ending):
    mark = "\t" if "tsv" in ending else ","
    lines = [mark.join(["p", "q", "kind", "r"])]
    for row, kind in zip(VALUES.tolist(), CLASSES, strict=True):
        lines.append(mark.join([repr(row[0]), repr(row[1]), kind, repr(row[2])]))
    path = write_text(tmp_path / f"data{ending}", "\n".join(lines) + "\n")
    table = load(path, label="kind")
    np.testing.assert_array_equal(table.features, VALUES)
    assert table.features.dtype == np.float64
    assert table.feature_names == ("p", "q", "r")
    assert table.classes == ("a", "b")
    assert table.labels is not None
    assert table.labels.dtype == np.int64
    assert table.labels.tolist() == [1, 0, 1]
    assert (table.label_name, table.source, len(table), table.n_features) == ("kind", str(path), 3, 3)
    assert not table.trusted


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_csv_delimiters_are_sniffed(tmp_path, mark):
    rows = [['"a,;|"', "b"], ["1", "2"], ["3", "4"]]
    path = write_text(tmp_path / "data.csv", "\n".join(mark.join(row) for row in rows))
    table = load(path)
    assert table.feature_names == ("a,;|", "b")
    assert table.features.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3,4\n",
        "a,b\n1,2\n3,4",
        "a,b\r\n1,2\r\n3,4\r\n",
        "a,b\r1,2\r3,4\r",
        "a,b\n1,2\n3,4\n\n\n  \n",
        "\n\na,b\n\n1,2\n3,4\n",
        "\ufeffa,b\n1,2\n3,4\n",
        '"a","b"\n"1","2"\n"3","4"\n',
        "a, b\n1, 2\n 3 ,4\n",
        "a,b\n1e0,+2\n3.,4\n",
    ],
)
def test_text_in_every_guise(tmp_path, text):
    table = load(write_text(tmp_path / "data.csv", text))
    assert table.feature_names == ("a", "b")
    assert table.features.tolist() == [[1, 2], [3, 4]]


def test_text_without_a_header(tmp_path):
    table = load(write_text(tmp_path / "data.csv", "1,2,7\n3,4,9\n"), label="x2")
    assert table.feature_names == ("x0", "x1")
    assert table.features.tolist() == [[1, 2], [3, 4]]
    assert table.classes == ("7", "9")


def test_missing_value_on_the_first_line_does_not_make_it_a_header(tmp_path):
    table = load(write_text(tmp_path / "data.csv", "1,?\n3,4\n5,6\n"))
    np.testing.assert_array_equal(table.features, [[1, np.nan], [3, 4], [5, 6]])


def test_booleans_become_numbers(tmp_path):
    table = load(write_text(tmp_path / "data.csv", "a,b\nTrue,1\nfalse,2\n"))
    assert table.features.tolist() == [[1, 1], [0, 2]]


def test_thousands_of_columns(tmp_path):
    values = np.random.default_rng(0).normal(size=(3, 4000))
    names = [f"g{i}" for i in range(4000)]
    text = "\n".join([",".join(names), *(",".join(map(repr, row)) for row in values.tolist())])
    table = load(write_text(tmp_path / "wide.csv", text))
    np.testing.assert_array_equal(table.features, values)
    assert table.feature_names == tuple(names)


def test_blocks_meet_without_a_seam(tmp_path, monkeypatch):
    monkeypatch.setattr("probssl.data.text.BLOCK", 300)
    monkeypatch.setattr("probssl.data.text.SAMPLE", 200)
    values = np.arange(400.0).reshape(200, 2) + 0.5
    text = "a,b\n" + "\n".join(f"{p},{q}" for p, q in values.tolist())
    np.testing.assert_array_equal(load(write_text(tmp_path / "data.csv", text)).features, values)
    quoted = text.replace("a,b\n0.5,", 'a,b\n"0.5",')
    np.testing.assert_array_equal(load(write_text(tmp_path / "quoted.csv", quoted)).features, values)
    late = load(write_text(tmp_path / "late.csv", text + "\n1,z\n"))  # text behind the sample
    assert late.columns[1].kind == "number"
    assert np.isnan(late.features[-1, 1])
    assert late.notes == ("column 'b' has 1 cell that is not a number ('z'), taken for gaps",)


def test_quoted_newlines_and_delimiters(tmp_path):
    path = write_text(tmp_path / "data.csv", 'a,kind\n1,"two\nlines"\n2,"b, c"\n3,"say ""so"""\n')
    assert load(path, label="kind").classes == ("b, c", 'say "so"', "two\nlines")


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("a;b\n1,5;2\n-2,25;3\n", ("a", "b"), [[1.5, 2], [-2.25, 3]]),
        ("# made by a program, once\n# in spring\na,b\n1,2\n3,4\n", ("a", "b"), [[1, 2], [3, 4]]),
        ("a b\n1 2\n3 4\n", ("a", "b"), [[1, 2], [3, 4]]),
        ("a,b\nrow 1,1,2\nrow 2,3,4\n", ("Unnamed: 0", "a", "b"), [[0, 1, 2], [1, 3, 4]]),  # as R writes it
        ("a,b\n1,2,\n3,4,\n", ("a", "b"), [[1, 2], [3, 4]]),  # a delimiter at the end of every row
        ("a,b,\n1,2,\n3,4,\n", ("a", "b"), [[1, 2], [3, 4]]),
        ('price,part\n$1,5%\n"$1,250.50",10%\n', ("price", "part"), [[1, 5], [1250.5, 10]]),
    ],
)
def test_tables_as_people_write_them(tmp_path, text, names, rows):
    table = load(write_text(tmp_path / "data.csv", text))
    assert table.feature_names == names
    assert table.features.tolist() == rows


def test_other_encodings(tmp_path):
    text = "größe,land\n1,Österreich\n2,Schweiz\n"
    path = write_text(tmp_path / "data.csv", text, "latin-1")
    with pytest.raises(InputError, match="is not UTF-8 text: name its encoding, --encoding latin-1"):
        load(path)
    assert load(path, encoding="latin-1").columns[1].levels == ("Schweiz", "Österreich")
    assert load(write_text(tmp_path / "wide.csv", text, "utf-16")).feature_names == ("größe", "land")
    with pytest.raises(InputError, match="there is no encoding 'klingon'"):
        load(path, encoding="klingon")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "uint64", "bool", ">f8"])
def test_npy_round_trip(tmp_path, dtype):
    values = np.array([[1, 0], [0, 1], [1, 1]], dtype=dtype)
    np.save(tmp_path / "data.npy", np.asfortranarray(values))
    table = load(tmp_path / "data.npy")
    np.testing.assert_array_equal(table.features, values.astype(np.float64))
    assert table.features.dtype == np.float64
    assert table.feature_names == ("x0", "x1")
    assert table.labels is None
    assert table.classes == ()
    assert table.label_name is None


def test_an_array_is_copied():
    array = VALUES.copy()
    table = load(array, label=None)
    array[:] = 0
    np.testing.assert_array_equal(table.features, VALUES)
    assert table.source == "array"
    assert load(VALUES, drop=["x1"]).feature_names == ("x0", "x2")


@pytest.mark.parametrize("name", ["x", "X", "features", "anything"])
def test_npz_round_trip(tmp_path, name):
    path = tmp_path / "data.npz"
    np.savez_compressed(path, **{name: VALUES, "y": np.array([3, 10, 3])})
    table = load(path)
    np.testing.assert_array_equal(table.features, VALUES)
    assert table.classes == ("3", "10")
    assert table.labels is not None
    assert table.labels.tolist() == [0, 1, 0]
    assert load(path, drop="y").labels is None


def test_npz_labels_by_name(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x=VALUES, kind=np.array(CLASSES), y=np.ones((3, 2)))
    assert load(path, label="kind").classes == ("a", "b")
    assert load(path).labels is None  # y is not one label per row, and nobody asked for it
    with pytest.raises(InputError, match="'y' has shape"):
        load(path, label="y")
    with pytest.raises(InputError, match=r"has no array 'kin' .* did you mean 'kind'"):
        load(path, label="kin")


def test_parquet_round_trip(tmp_path):
    arrow = pyarrow
    from pyarrow import parquet

    path = tmp_path / "data.parquet"
    columns = {
        "p": arrow.array(VALUES[:, 0]),
        "flag": arrow.array([True, False, True]),
        "whole": arrow.array([1, 2, 3], arrow.int16()),
        "exact": arrow.array([1, 2, 3]).cast(arrow.decimal128(30, 2)),
        "kind": arrow.array(CLASSES).dictionary_encode(),
        "year": arrow.array([2001.0, 1999.0, 2001.0]),
        "__index_level_0__": arrow.array([5, 6, 7]),
    }
    parquet.write_table(arrow.table(columns), path)
    table = load(path, label="kind", drop=["year"])
    assert table.feature_names == ("p", "flag", "whole", "exact")
    assert table.features[:, 1:].tolist() == [[1, 1, 1], [0, 2, 2], [1, 3, 3]]
    assert table.columns[1].levels == ("false", "true")
    np.testing.assert_array_equal(table.features[:, 0], VALUES[:, 0])
    assert table.classes == ("a", "b")
    assert load(path, label="year", drop=["kind"]).classes == ("1999", "2001")


def test_parquet_from_pandas(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "kind": ["u", "v"]}, index=pandas.Index(["r", "s"]))
    frame.to_parquet(tmp_path / "data.parquet")
    table = load(tmp_path / "data.parquet", label="kind")
    assert table.feature_names == ("a",)
    assert table.classes == ("u", "v")


@pytest.mark.parametrize("ending", [".feather", ".jsonl", ".jsonl.gz", ".csv.zst", ".tsv.zst", ".ndjson.zst"])
def test_other_formats(tmp_path, ending):
    frame = {"p": VALUES[:, 0].tolist(), "kind": CLASSES, "gap": [1.5, None, 2.5]}
    path = tmp_path / f"data{ending}"
    if ending == ".feather":
        feather.write_feather(pyarrow.table(frame), path)
    else:
        rows = [dict(zip(frame, row, strict=True)) for row in zip(*frame.values(), strict=True)]
        mark = "\t" if "tsv" in ending else ","
        lines = [mark.join(frame), *(mark.join("" if v is None else str(v) for v in row.values()) for row in rows)]
        text = "\n".join(map(json.dumps, rows) if "json" in ending else lines)
        with pyarrow.output_stream(str(path), compression="detect") as stream:
            stream.write(text.encode())
    table = load(path, label="kind")
    np.testing.assert_array_equal(table.features, np.stack([VALUES[:, 0], [1.5, np.nan, 2.5]], axis=1))
    assert [column.gaps for column in table.columns] == [False, True]
    assert table.classes == ("a", "b")


cells = st.floats(allow_nan=False, allow_infinity=False, width=64)
titles = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=8)


def is_title(text):
    try:
        float(text)
    except ValueError:
        return bool(text.strip()) and not text.startswith("\ufeff")
    return False


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("ending", [".csv", ".tsv.gz"])
def test_random_tables_survive_text(tmp_path, ending, data):
    width = data.draw(st.integers(1, 5))
    names = data.draw(
        st.lists(titles.filter(is_title).map(str.strip).filter(is_title), min_size=width, max_size=width, unique=True)
    )
    rows = data.draw(st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=6))
    path = tmp_path / f"random{ending}"
    opener = gzip.open if ending.endswith("gz") else open
    with opener(path, "wt", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t" if "tsv" in ending else ",", quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(names)
        writer.writerows(rows)
    table = load(path, layout=Layout("table", (width,), tuple(map(Column, names))))
    assert table.feature_names == tuple(names)
    np.testing.assert_array_equal(table.features, np.array(rows))
    assert all(math.isfinite(value) for value in table.features.ravel())


def test_the_numbers_pandas_writes_for_columns_without_names_are_names(tmp_path):
    path = tmp_path / "frame.csv"
    path.write_text("0,1,2\n0.5,1.5,2.5\n3.5,4.5,5.5\n")
    table = load(path)
    assert table.feature_names == ("0", "1", "2")
    assert table.features.tolist() == [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]
