"""Bad input gets one sentence that names the file, the column, the line, and a remedy."""

import gzip
import os

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import feather, parquet

from probssl.data import load
from probssl.errors import InputError
from probssl.layout import Column, Layout


def refusal(source, **options):
    """The sentence, after checking that it is one."""
    with pytest.raises(InputError) as caught:
        load(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert "Traceback" not in message
    assert not message.endswith(".")
    if not isinstance(source, np.ndarray):
        assert os.path.basename(str(source)) in message
    return message


def has_parts(message, parts):
    missing = [part for part in parts if part not in message]
    assert not missing, f"{missing} not in: {message}"


TEXTS = {
    "ragged, short": ("a,b\n1,2\n3\n4,5\n6\n", ["line 3", "1 field", "2 columns", "2 such rows"]),
    "ragged, long": ("a,b\n1,2\n1,2,3\n", ["line 3", "3 fields", "2 columns", "1 such row"]),
    "ragged, quoted": ('a,b\n1,"x\ny"\n1,2,3\n', ["line 4", "3 fields"]),
    "twice": ("a,b,a,c,c,c\n1,2,3,4,5,6\n", ["'a' (1 and 3), 'c' (4 and 5 and 6)", "its own"]),
    "empty": ("", ["empty"]),
    "blank": ("\n \n\n", ["empty"]),
    "header only": ("a,b\n", ["'a'", "no rows"]),
    "open quotation": ('a,b\n1,2\n"3,4\n5,6\n', ["line 3", "quote"]),
    "a dump": ("-- MySQL dump\nINSERT INTO t VALUES (1, 2), (3, 4);\n", ["not a table of delimited text"]),
    "a page": ("<!DOCTYPE html>\n<html></html>\n", ["not a table of delimited text"]),
    "bytes": ("a,b\n1,\0\n", ["not a table of delimited text"]),
}


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("case", TEXTS)
def test_text(tmp_path, case, ending):
    text, parts = TEXTS[case]
    path = tmp_path / f"bad{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    has_parts(refusal(path), parts)


def test_every_column_at_fault_is_named(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("age,height,when,kept\n1,2,x,0.5\nold,3,2020-01-01,0.25\n4,tall,y,1.5\nvery old,1,z,2.5\n")
    kinds = {"age,height": "number", "when": "date"}
    assert refusal(path, kinds=kinds) == (
        f"{path}: column 'age' should be of kind number and holds 'old' in row 2, one of 2 such cells; column 'height' "
        "should be of kind number and holds 'tall' in row 3; column 'when' should be of kind date and holds 'x' in row "
        "1, one of 3 such cells: mend them, or leave them out with --drop age,height,when"
    )
    numbers = Layout("table", (2,), (Column("height"), Column("age")))
    assert refusal(path, layout=numbers).endswith("holds 'old' in row 2, one of 2 such cells: mend them")
    kinds = Layout("table", (3,), tuple(map(Column, ("kept", "weight", "size"))))
    has_parts(refusal(path, layout=kinds), ["no column 'weight', 'size', which the model needs"])


def test_kinds_that_cannot_be(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,b\nx,1\ny,2\nz,3\n")
    with pytest.raises(InputError, match=r"the kind of a column is one of number, category, .* not 'zip'"):
        load(path, kinds={"a": "zip"})
    with pytest.raises(InputError, match="no column 'c', 'd' to give a kind"):
        load(path, kinds={"c,d": "text"})
    has_parts(refusal(path, kinds={"a": "yes/no"}), ["'a'", "has 3 values, and yes/no has two"])


def test_labels(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,kind,b\n1,,2\n2,,3\n3,NA,4\n")
    has_parts(refusal(path, label="kind"), ["nothing is known of the label 'kind'"])
    has_parts(refusal(path, label="kin"), ["no column 'kin'", "label", "'a', 'kind', 'b'", "did you mean 'kind'"])
    has_parts(refusal(path, drop=["zzz"]), ["no column 'zzz'", "leave out", "'a', 'kind', 'b'"])
    has_parts(refusal(path, label="a", drop=["a"]), ["'a'", "both the label and left out"])
    wide = tmp_path / "wide.csv"
    wide.write_text(",".join(f"c{i}" for i in range(99)) + "\n")
    has_parts(refusal(wide, label="zzz"), ["'c7', … (99 in all)"])


def test_paths(tmp_path):
    (tmp_path / "flowers.csv").write_text("a\n1\n")
    has_parts(refusal(tmp_path / "flower.csv"), ["no file", "did you mean 'flowers.csv'"])
    has_parts(refusal(tmp_path), ["holds no images", ".csv"])
    (tmp_path / "data.xlsx").write_bytes(b"")
    has_parts(refusal(tmp_path / "data.xlsx"), ["no format", ".parquet"])
    has_parts(refusal(tmp_path / "nowhere" / "data.npy"), ["no file"])
    with pytest.raises(InputError, match="not float"):
        load(3.5)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".npy", ".npz", ".parquet"])
def test_files_one_may_not_read(tmp_path, ending):
    path = tmp_path / f"secret{ending}"
    path.write_bytes(b"x")
    path.chmod(0)
    has_parts(refusal(path), ["cannot be read", "Permission denied"])


WHOLE_GZIP = gzip.compress(b"a,b\n" + np.random.default_rng(0).bytes(3000).hex().encode())


@pytest.mark.parametrize(
    "content", [b"a,b\n1,2\n", WHOLE_GZIP[:900], WHOLE_GZIP[:60] + b"\0" * 900], ids=["plain", "half", "garbled"]
)
def test_damaged_gzip(tmp_path, content):
    path = tmp_path / "bad.csv.gz"
    path.write_bytes(content)
    has_parts(refusal(path), ["not a whole gzip file"])


ARRAYS = {
    "objects": (np.array([[1, None]], dtype=object), "Python objects"),
    "complex": (np.ones((2, 2), dtype=complex), "complex numbers"),
    "text": (np.array([["a", "b"]]), "text"),
    "dates": (np.array([["2020-01-01"]], dtype="datetime64[D]"), "datetime64"),
    "structured": (np.zeros((2, 2), dtype=[("a", float)]), "not real numbers"),
    "3-D": (np.ones((2, 3, 4)), "shape (2, 3, 4)"),
    "1-D": (np.ones(3), "1 dimension"),
    "0-D": (np.array(1.0), "0 dimensions"),
    "no rows": (np.ones((0, 3)), "empty"),
    "no columns": (np.ones((3, 0)), "empty"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays(tmp_path, case):
    array, part = ARRAYS[case]
    has_parts(refusal(array), [part, "the array"])
    if case != "objects":
        np.save(tmp_path / "bad.npy", array)
        has_parts(refusal(tmp_path / "bad.npy"), [part])
        np.savez(tmp_path / "bad.npz", x=array)
        has_parts(refusal(tmp_path / "bad.npz"), [part, "'x'"])


def test_gaps_of_arrays():
    table = load(np.ma.masked_equal([[1, 2], [3, 4]], 4))
    assert [column.gaps for column in table.columns] == [False, True]
    table = load(np.array([[1, np.nan], [-np.inf, 4.0]]))
    np.testing.assert_array_equal(table.features, [[1, np.nan], [np.nan, 4]])
    assert table.notes == ("1 infinite value of 'x0' are taken for gaps",)


def test_pickles_are_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    array = np.array([[Bomb(), 1]], dtype=object)
    np.save(tmp_path / "bad.npy", array, allow_pickle=True)
    np.savez(tmp_path / "bad.npz", x=array)
    for ending in (".npy", ".npz"):
        has_parts(refusal(tmp_path / f"bad{ending}"), ["Python objects", "can run code"])
    np.savez(tmp_path / "labels.npz", x=np.ones((1, 2)), y=np.array([Bomb()], dtype=object))
    has_parts(refusal(tmp_path / "labels.npz", label="y"), ["Python objects"])
    assert load(tmp_path / "labels.npz").labels is None
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("ending", [".npy", ".npz", ".parquet", ".feather"])
@pytest.mark.parametrize("kind", ["empty", "nonsense", "half"])
def test_damaged_binaries(tmp_path, ending, kind):
    path = tmp_path / f"bad{ending}"
    array = np.random.default_rng(0).normal(size=(100, 3))
    if ending == ".npy":
        np.save(path, array)
    elif ending == ".npz":
        np.savez(path, x=array)
    elif ending == ".parquet":
        parquet.write_table(arrow.table({"a": array[:, 0]}), path)
    else:
        feather.write_feather(arrow.table({"a": array[:, 0]}), path)
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "nonsense": b"nonsense" * 50, "half": whole[: len(whole) // 2]}[kind])
    has_parts(refusal(path), ["write it again"])


def test_npz_checksum(tmp_path):
    path = tmp_path / "bad.npz"
    np.savez(path, x=np.ones((100, 3)))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    has_parts(refusal(path), ["array 'x'", "damaged"])


def test_npz_without_plain_features(tmp_path):
    np.savez(tmp_path / "bad.npz", p=np.ones((2, 2)), q=np.ones((2, 2)))
    has_parts(refusal(tmp_path / "bad.npz"), ["'p', 'q'", "name one 'x'"])
    np.savez(tmp_path / "none.npz")
    has_parts(refusal(tmp_path / "none.npz"), ["no arrays"])
    np.savez(tmp_path / "short.npz", x=np.ones((2, 2)), y=np.ones(3))
    has_parts(refusal(tmp_path / "short.npz", label="y"), ["'y'", "3 labels for 2 rows"])


def test_parquet(tmp_path):
    path = tmp_path / "bad.parquet"
    parquet.write_table(arrow.table({"a": [[1], [2]], "b": [1, 2], "c": [{"d": 1}, {"d": 2}]}), path)
    has_parts(refusal(path), ["column 'a'", "list", "column 'c'", "struct", "--drop a,c"])
    parquet.write_table(arrow.table({"a": arrow.array([], arrow.float64())}), path)
    has_parts(refusal(path), ["no rows"])
    twice = arrow.Table.from_arrays([arrow.array([1]), arrow.array([2])], names=["a", "a"])
    parquet.write_table(twice, path)
    has_parts(refusal(path), ["'a' (1 and 2)", "its own"])


@pytest.mark.parametrize("text", ['{"a": 1}\n{"a": "x"}\n', "a,b\n1,2\n", '{"a": 1}\n{"a":\n'])
def test_json_lines(tmp_path, text):
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    has_parts(refusal(path), ["is not a file of JSON objects, one per line"])
