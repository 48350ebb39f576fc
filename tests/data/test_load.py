"""One way in: files, names, arrays, frames and torch data sets become a data set."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

import probssl
from probssl.data import ImageSet, Table, catalogue, data_directory, load
from probssl.data import directory as module
from probssl.errors import InputError
from probssl.layout import Column, Layout

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(8, 3))
PIXELS = RNG.integers(0, 256, (8, 3, 4, 5), np.uint8)
WORDS = np.array(["no", "yes"] * 4)


def numbers(*names: str) -> Layout:
    return Layout("table", (len(names),), tuple(map(Column, names)))


def refused(part: str, source: object, **options: object) -> None:
    with pytest.raises(InputError, match=part) as error:
        load(source, **options)
    assert "\n" not in str(error.value)


def test_a_data_set_is_returned_as_it_is() -> None:
    table = probssl.load(ROWS)
    assert load(table) is table
    assert load(table, test=0.5).test.sum() == 4
    assert load(table, layout=numbers("x2", "x0")).feature_names == ("x2", "x0")
    refused("array is a data set already: leave out --label", table, label="x1")


@pytest.mark.parametrize("labels", [WORDS, WORDS.tolist(), torch.arange(8) % 2, np.arange(8) % 2 == 1])
@pytest.mark.parametrize("rows", [ROWS, PIXELS, torch.from_numpy(ROWS), torch.from_numpy(PIXELS)])
def test_rows_and_labels(rows, labels) -> None:
    found = load((rows, labels), test=0.25)
    assert found.source == ("array" if isinstance(rows, np.ndarray) else "tensor")
    np.testing.assert_array_equal(found.batch(found.rows()), rows)
    assert found.labels.tolist() == [0, 1] * 4
    assert (len(found.classes), found.label_name, found.test.sum()) == (2, "label", 2)


def test_lists_of_rows_are_arrays() -> None:
    found = load((ROWS.tolist(), WORDS.tolist()))
    np.testing.assert_array_equal(found.batch(found.rows()), ROWS)
    assert load(ROWS.tolist()).fingerprint == load(ROWS).fingerprint
    refused("rows of the list are not of one length", [[1, 2], [3]])
    refused("Python objects", [{"a": 1}])


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_matrices_are_to_be_made_dense(make) -> None:
    refused(r"sparse \(\w+\): make it dense first, with \.toarray\(\)", make(ROWS))
    refused(r"\.toarray\(\)", (make(ROWS), WORDS))


def test_labels_that_do_not_fit() -> None:
    refused("the array has 3 labels for 8 rows", (ROWS, [1, 2, 3]))
    assert load((ROWS, [None, *"abcdefg"])).labels.tolist() == [-1, *range(7)]
    refused("nothing is known of the label 'label'", (ROWS, [None] * 8))
    refused(r"a tuple of data is \(rows, labels\), and this one has 3 entries", (ROWS, WORDS, WORDS))
    refused("are of shape", (ROWS, ROWS))


def test_floats_stay_what_they_are() -> None:
    found = load(PIXELS / 255)
    assert isinstance(found, ImageSet)
    assert found.images.dtype == np.float32
    refused("the array should hold numbers from 0 to 1", PIXELS.astype(float))
    refused(
        "the tensor should hold bytes, or numbers from 0 to 1, and is of type int64", torch.from_numpy(PIXELS).long()
    )


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_files_of_images(tmp_path, ending) -> None:
    path = tmp_path / f"many{ending}"
    if ending == ".npy":
        np.save(path, PIXELS)
    else:
        np.savez(path, X=PIXELS, y=WORDS, other=np.arange(8) // 4)
    found = load(path, test=0.5)
    assert isinstance(found, ImageSet)
    assert found.source == str(path)
    np.testing.assert_array_equal(found.images, PIXELS)
    if ending == ".npz":
        assert found.classes == ("no", "yes")
        assert load(path, label="other").labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
        refused("has no array 'z' to use as the label", path, label="z")
    refused("is an array of images, which has no columns: leave out --drop", path, drop="a")
    refused("leave out --size", path, size=8)


# --- frames -----------------------------------------------------------------------------------------------------------


def columns() -> dict[str, list]:
    return {
        "name": ["p", "q", "r"],
        "a": [1.5, 2.5, 3.5],
        "b": [1, 2, 3],
        "on": [True, False, True],
        "kind": list("uvu"),
    }


def frame_of(kind: str):
    library = pytest.importorskip({"arrow": "pyarrow", "lazy": "polars"}.get(kind, kind))
    if kind == "pandas":
        return library.DataFrame(columns())
    if kind == "arrow":
        return library.table(columns())
    made = library.DataFrame(columns())
    return made.lazy() if kind == "lazy" else made


@pytest.mark.parametrize("kind", ["pandas", "arrow", "polars", "lazy"])
def test_frames(kind) -> None:
    found = load(frame_of(kind), label="kind", ids="name")
    assert isinstance(found, Table)
    assert found.source == "frame"
    assert found.feature_names == ("a", "b", "on")
    assert found.features.tolist() == [[1.5, 1, 1], [2.5, 2, 0], [3.5, 3, 1]]
    assert (found.classes, found.ids.tolist()) == (("u", "v"), ["p", "q", "r"])
    assert load(frame_of(kind), drop="name,kind,on").features.shape == (3, 2)
    grouped = load(frame_of(kind), drop="name", groups="kind")
    assert grouped.groups.tolist() == [0, 1, 0]
    table = load(frame_of(kind))
    assert [column.kind for column in table.columns] == ["category", "number", "number", "yes/no", "category"]
    assert table.columns[0].levels == ("p", "q", "r")
    refused("the frame has no column 'knd' to use as the label.*did you mean 'kind'", frame_of(kind), label="knd")


def test_frames_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": [3.0, 4.0]}, index=["r", "s"])
    assert load(frame).ids.tolist() == ["r", "s"]
    assert load(frame.reset_index(drop=True)).ids is None
    assert load(frame.reset_index(drop=True).iloc[1:]).ids is None
    assert load(pandas.DataFrame(ROWS)).feature_names == ("0", "1", "2")
    assert load((frame, pandas.Series(["u", "v"]))).classes == ("u", "v")
    gaps = pandas.DataFrame({"a": pandas.array([1, None], "Int64"), "b": ["1", "2"], "c": [1.0, np.inf]})
    table = load(gaps)
    np.testing.assert_array_equal(table.features, [[0, 1, 0], [np.nan, 2, np.nan]])
    assert (table.columns[0].kind, table.notes) == ("category", ("column 'c' has 1 infinite value, taken for gaps",))
    days = pandas.DataFrame({"day": pandas.to_datetime(["2020-01-01", "2020-01-02"]), "x": [[1], [2]], "a": [1, 2]})
    refused(r"column 'x' .*holds values of type list.*--drop x$", days)
    assert load(days, drop="x").features[:, 0].tolist() == [1577836800, 1577923200]
    mixed = pandas.DataFrame({"a": ["x", 1, None, 2.5], "b": [1, 2, 3, 4]})
    assert load(mixed).columns[0].levels == ("1", "2.5", "x")
    level = pandas.DataFrame({"a": [1, 2], "c": pandas.Categorical(["u", "v"])})
    assert load(level, label="c").classes == ("u", "v")
    twice = pandas.DataFrame(ROWS, columns=["a", "b", "a"])
    refused("columns that share a name", twice)
    refused("has no columns", pandas.DataFrame())
    refused("no rows", pandas.DataFrame({"a": []}))


def test_libraries_are_imported_when_they_are_needed() -> None:
    code = "import sys, probssl.data; assert not {'narwhals', 'pyarrow', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- torch ------------------------------------------------------------------------------------------------------------


class Pairs(TorchDataset):
    """A map-style data set of rows, with labels or without."""

    def __init__(self, rows, labels=None, classes=None) -> None:
        self.rows, self.labels = rows, labels
        if classes is not None:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number):
        return self.rows[number] if self.labels is None else (self.rows[number], self.labels[number])


def test_torch_data_sets() -> None:
    steps = []
    x, y = torch.from_numpy(PIXELS).float() / 255, [3, 1] * 4
    found = load(Pairs(x, y, ["zero", "one", "two", "three"]), progress=lambda *step: steps.append(step))
    assert isinstance(found, ImageSet)
    torch.testing.assert_close(found.batch(found.rows()), x)
    assert (found.source, found.classes[found.labels[0]], found.labels.tolist()) == ("dataset", "three", y)
    assert steps == [(row + 1, 8) for row in range(8)]
    assert load(Pairs(ROWS)).features.tolist() == ROWS.tolist()
    plain = load(TensorDataset(torch.from_numpy(ROWS), torch.arange(8) % 2))
    assert (plain.labels.tolist(), plain.classes) == ([0, 1] * 4, ("0", "1"))


def test_torch_data_sets_of_pictures() -> None:
    image = pytest.importorskip("PIL.Image")
    rows = [image.fromarray(row.transpose(1, 2, 0)) for row in PIXELS]
    np.testing.assert_array_equal(load(Pairs(rows, list(WORDS))).images, PIXELS)
    grey = [row.convert("L") for row in rows]
    assert load(Pairs(grey)).shape == (1, 4, 5)


def test_torch_data_sets_that_cannot_be_read() -> None:
    class Endless(IterableDataset):
        def __iter__(self):
            yield 1

    refused("Endless is an iterable data set, whose rows have no numbers", Endless())
    refused("Pairs holds no rows", Pairs([]))
    refused("row 1 of Pairs is of shape", Pairs([np.ones(2), np.ones(3)]))
    refused(r"row 0 of Pairs should be x or \(x, y\)", Pairs(["text"]))
    refused(r"row 0 of TensorDataset should be x or \(x, y\)", TensorDataset(*[torch.ones(2, 2)] * 3))


# --- columns ----------------------------------------------------------------------------------------------------------


def test_several_columns_are_left_out_at_once(tmp_path) -> None:
    path = tmp_path / "data.csv"
    path.write_text('a,b,"c,d",e\n1,2,3,4\n5,6,7,8\n')
    assert load(path, drop="a,b").feature_names == ("c,d", "e")
    assert load(path, drop=["a", "c,d"]).feature_names == ("b", "e")
    assert load(path, drop="c,d").feature_names == ("a", "b", "e")
    refused("no column 'z' to leave out", path, drop="a,z")


def test_columns_beside_the_features(tmp_path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("who,a,b,clinic,kind\np,1,2,x,u\nq,3,4,y,v\nr,5,6,x,u\n")
    found = load(path, label="kind", ids="who", groups="clinic")
    assert found.feature_names == ("a", "b")
    assert (found.ids.tolist(), found.groups.tolist()) == (["p", "q", "r"], [0, 1, 0])
    refused("column 'who' is both the label and ids", path, label="who", ids="who")
    refused("column 'who' is both the ids and left out", path, ids="who", drop="who")
    refused("no column 'clinc' to group rows by.*did you mean 'clinic'", path, groups="clinc")


# --- places -----------------------------------------------------------------------------------------------------------


def test_without_a_home(monkeypatch) -> None:
    for variable in ("HOME", "XDG_CACHE_HOME", "PROBSSL_DATA", "LOCALAPPDATA", "USERPROFILE"):
        monkeypatch.delenv(variable, raising=False)

    def homeless(self) -> None:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(module.Path, "home", classmethod(homeless))
    monkeypatch.setattr(module.Path, "expanduser", homeless)
    assert data_directory().name.startswith("probssl-")
    assert catalogue()
    refused("there is no file or data set '~/data'", "~/data")
    monkeypatch.setenv("PROBSSL_DATA", "~/data")
    assert str(data_directory()) == "~/data"
