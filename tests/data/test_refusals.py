"""Bad input gets one sentence that names the file, the column, the line, and a remedy."""

import gzip
import os

import numpy as np
import pytest

from probssl.data import load
from probssl.errors import InputError


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
    "missing, empty": ("a,b\n1,2\n3,\n,4\n5,\n", ["column 'b'", "line 3", "''", "2 missing", "3 in all", "--drop a,b"]),
    "missing, NA": ("a,b\n1,2\n3,NA\n", ["column 'b'", "line 3", "'NA'", "1 missing value", "--drop b"]),
    "missing, nan": ("a,b\n1,2\n3,NaN\n4,-nan\n", ["column 'b'", "line 3", "'NaN'", "2 missing values"]),
    "missing, null": ("a,b\n1,null\n", ["column 'b'", "line 2", "'null'", "remove those rows"]),
    "missing, ?": ("a,b\n?,2\n", ["column 'a'", "line 2", "'?'"]),
    "missing, None": ("a,b\nNone,2\n", ["column 'a'", "line 2", "1 missing value", "'None'"]),
    "missing among booleans": ("a,b\ntrue,2\n,3\n", ["column 'a'", "line 3", "1 missing value"]),
    "infinite": ("a,b\n1,2\n1,inf\n-Infinity,1e999\n", ["column 'b'", "line 3", "2 infinite", "3 in all", "'inf'"]),
    "text": ("a,my b\n1,red\n2,blue\n", ["column 'my b'", "line 2", "'red'", "2 values", "--drop 'my b'", "--label"]),
    "text, one cell": ("a,b\n1,2\n2,x\n", ["column 'b'", "line 3", "'x'", "1 value that is not a number"]),
    "text, before missing": ("a,b\n,2\n2,x\n", ["column 'b'", "line 3", "'x'"]),
    "text, several columns": ("a,b\nq,x\nr,y\n", ["column 'a'", "line 2", "4 in all, in 2 columns"]),
    "text, long": ("a\n" + "z" * 500 + "\n", ["column 'a'", "line 2", "zzz…'"]),
    "text, decimal comma": ("a;b\n1,5;2\n", ["column 'a'", "line 2", "'1,5'", "decimals with a point"]),
    "text, underscore": ("a\n1_000\n", ["column 'a'", "line 2", "'1_000'"]),
    "boolean among numbers": ("a\n2\ntrue\n", ["column 'a'", "line 3", "'true'"]),
    "ragged, short": ("a,b\n1,2\n3\n4,5\n6\n", ["line 3", "1 field", "has 2", "2 such lines"]),
    "ragged, long": ("a,b\n1,2,3\n", ["line 2", "3 fields", "has 2", "1 such line"]),
    "twice": ("a,b,a\n1,2,3\n", ["'a'", "line 1", "columns 1 and 3", "1 repeated name"]),
    "no name": (",a\n0,1\n1,2\n", ["column 1", "line 1", "--drop 'Unnamed: 0'"]),
    "empty": ("", ["empty"]),
    "blank": ("\n \n\n", ["empty"]),
    "header only": ("a,b\n", ["'a'", "no rows"]),
    "open quotation": ('a,b\n1,2\n"3,4\n5,6\n', ["line 3", "quotation marks"]),
}


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("case", TEXTS)
def test_text(tmp_path, case, ending):
    text, parts = TEXTS[case]
    path = tmp_path / f"bad{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    has_parts(refusal(path), parts)


def test_the_whole_sentence(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("age,height\n1,2\n,3\n4,5\n?,6\n")
    assert refusal(path) == (
        f"{path}: column 'age' has 2 missing values, the first '' on line 3: "
        "fill them in or remove those rows, or leave the column out with --drop age"
    )


def test_an_unnamed_column_can_be_dropped(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(",a\n0,1\n1,2\n")
    assert load(path, drop=["Unnamed: 0"]).feature_names == ("a",)


def test_a_trailing_delimiter(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,b,\n1,2,\n")
    has_parts(refusal(path), ["column 3", "--drop 'Unnamed: 2'"])
    assert load(path, drop=["Unnamed: 2"]).features.tolist() == [[1, 2]]


def test_labels(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,kind,b\n1,u,2\n2,,3\n3,NA,4\n")
    has_parts(refusal(path, label="kind"), ["label column 'kind'", "2 missing values", "line 3", "remove those rows"])
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


def test_other_encodings(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("a,b\n1,2\ngrün,3\n".encode("latin-1"))
    has_parts(refusal(path), ["line 3", "UTF-8"])
    path.write_bytes("a,b\n1,2\n".encode("utf-16"))
    has_parts(refusal(path), ["line 1", "UTF-8"])


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
    "missing": (
        np.array([[1, 2], [3, np.nan], [4, np.nan]]),
        "column 'x1' has 2 missing values, the first 'nan' in row 2",
    ),
    "infinite": (np.array([[1, 2], [-np.inf, 4]]), "column 'x0' has 1 infinite value, the first '-inf' in row 2"),
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


def test_masked_arrays_have_missing_values():
    assert "column 'x1' has 1 missing value" in refusal(np.ma.masked_equal([[1, 2], [3, 4]], 4))


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


@pytest.mark.parametrize("ending", [".npy", ".npz", ".parquet"])
@pytest.mark.parametrize("kind", ["empty", "nonsense", "half"])
def test_damaged_binaries(tmp_path, ending, kind):
    path = tmp_path / f"bad{ending}"
    array = np.random.default_rng(0).normal(size=(100, 3))
    if ending == ".npy":
        np.save(path, array)
    elif ending == ".npz":
        np.savez(path, x=array)
    else:
        arrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(arrow.table({"a": array[:, 0]}), path)
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
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def write(**columns):
        path = tmp_path / "bad.parquet"
        parquet.write_table(arrow.table(columns), path)
        return path

    missing = write(a=[1, 2, None, None], b=[1.0, 2.0, 3.0, float("nan")])
    has_parts(refusal(missing), ["column 'a'", "2 missing values", "row 3", "3 in all, in 2 columns", "--drop a"])
    has_parts(refusal(write(a=[True, None])), ["column 'a'", "1 missing value", "row 2"])
    has_parts(refusal(write(a=arrow.nulls(2))), ["column 'a'", "2 missing values", "row 1"])
    has_parts(refusal(write(a=[1.0, float("inf")])), ["column 'a'", "1 infinite value", "row 2"])
    has_parts(refusal(write(a=["u", "v"])), ["column 'a'", "2 values that are not numbers", "'u'", "row 1", "--drop a"])
    has_parts(refusal(write(a=arrow.array([0, 1], arrow.timestamp("s")))), ["column 'a'", "datetime", "--drop a"])
    has_parts(refusal(write(a=[[1], [2]])), ["column 'a'", "list", "--drop a"])
    has_parts(refusal(write(a=[1, 2], k=["u", None]), label="k"), ["label column 'k'", "1 missing value", "row 2"])
    has_parts(refusal(write(a=arrow.array([], arrow.float64()))), ["no rows"])
    twice = arrow.Table.from_arrays([arrow.array([1]), arrow.array([2])], names=["a", "a"])
    parquet.write_table(twice, tmp_path / "bad.parquet")
    has_parts(refusal(tmp_path / "bad.parquet"), ["'a'", "columns 1 and 2", "its own name"])
