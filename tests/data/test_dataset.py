"""One kind of data: tables, images, series and mixed columns, as everything downstream sees them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from probssl.data import Column, Dataset, ImageSet, Layout, Rows, Table, is_dataset, load
from probssl.errors import InputError
from probssl.schema import conform, from_json

RNG = np.random.default_rng(0)


@dataclass(frozen=True, eq=False)
class Mixed(Rows):
    """A table of numbers and categories with gaps, as the protocol has it."""

    cells: np.ndarray = field(repr=False)
    columns: tuple[Column, ...] = ()

    @property
    def values_field(self) -> str:
        return "cells"

    @property
    def layout(self) -> Layout:
        return Layout("table", (len(self.columns),), self.columns)


@dataclass(frozen=True, eq=False)
class Series(Rows):
    """Series of several channels."""

    waves: np.ndarray = field(repr=False)

    @property
    def values_field(self) -> str:
        return "waves"

    @property
    def layout(self) -> Layout:
        return Layout("series", self.waves.shape[1:])


def mixed() -> Mixed:
    cells = np.array([[1.5, 0, np.nan], [2.5, 2, 7], [np.nan, 1, 8], [4.5, np.nan, 9], [5.5, 0, 10], [6.5, 1, 11]])
    columns = (Column("mass"), Column("island", "category", ("Biscoe", "Dream", "Torgersen")), Column("year"))
    groups = np.array([0, 0, 1, 1, 2, 2])
    return Mixed("penguins.csv", cells, columns, groups=groups, labels=np.array([0, 1, 0, 1, 0, 1]), classes=("f", "m"))


def series() -> Series:
    return Series(
        "waves.ts", RNG.normal(size=(6, 2, 50)).astype(np.float32), labels=np.arange(6) % 2, classes=("a", "b")
    )


def table() -> Table:
    ids = np.array([f"row {row}" for row in range(6)])
    labels = np.array([0, 1, 0, 1, 0, 1])
    return Table("t.csv", RNG.normal(size=(6, 3)), ("a", "b", "c"), labels=labels, classes=("u", "v"), ids=ids)


def images() -> ImageSet:
    pixels = RNG.integers(0, 256, (6, 3, 4, 5), np.uint8)
    return ImageSet("faces", pixels, labels=np.array([0, 1, 0, 1, 0, 1]), classes=("u", "v"))


def world() -> Dataset:
    return load("world:sphere4")


EVERY = pytest.mark.parametrize("make", [table, images, mixed, series, world], ids=lambda make: make.__name__)


@EVERY
def test_rows_by_number(make) -> None:
    data = make()
    assert is_dataset(data)
    assert not is_dataset(np.ones(3))
    assert data.batch(slice(0, 2)).shape == (2, *data.layout.shape)
    every = data.batch(data.rows())
    assert len(every) == len(data)
    for index in ([4, 1], np.array([4, 1]), torch.tensor([4, 1])):
        torch.testing.assert_close(data.batch(index), every[[4, 1]], equal_nan=True)
    mask = np.arange(len(data)) % 2 == 0
    torch.testing.assert_close(data.batch(mask), every[::2], equal_nan=True)
    assert len(data.batch([])) == 0
    torch.testing.assert_close(data.batch([-1]), every[-1:], equal_nan=True)


@EVERY
def test_what_is_beside_the_rows_goes_with_them(make) -> None:
    data = make().with_test(0.5, seed=1)
    chosen = data.take([3, 0])
    assert len(chosen) == 2
    torch.testing.assert_close(chosen.batch([0, 1]), data.batch([3, 0]), equal_nan=True)
    for name in ("labels", "latents", "ids", "groups"):
        known = getattr(data, name)
        if known is None:
            assert getattr(chosen, name) is None
        else:
            np.testing.assert_array_equal(getattr(chosen, name), known[[3, 0]])
    assert (chosen.layout, chosen.classes, chosen.source) == (data.layout, data.classes, data.source)


@EVERY
def test_parts(make) -> None:
    data = make()
    np.testing.assert_array_equal(data.rows("train"), np.arange(len(data)))
    assert len(data.rows("test")) == 0
    halved = data.with_test(1 / 3, seed=0)
    assert sorted([*halved.rows("train"), *halved.rows("test")]) == list(range(len(data)))
    assert len(halved.rows("test")) == round(len(data) / 3)
    np.testing.assert_array_equal(halved.with_test(None).test, halved.test)
    np.testing.assert_array_equal(data.with_test(1 / 3, seed=0).test, halved.test)
    assert halved.with_test(0).test is None
    only = halved.take(halved.rows("test"))
    assert len(only.rows("train")) == 0
    with pytest.raises(InputError, match=r"parts of .* are train, test, all, not 'half'"):
        data.rows("half")


@EVERY
def test_fingerprints(make) -> None:
    data = make()
    assert data.fingerprint == data.take(data.rows()).fingerprint
    others = [data.take(data.rows()[::-1]), data.take(slice(0, 5)), data.with_test(0.5)]
    assert len({data.fingerprint, *(other.fingerprint for other in others)}) == 4


def test_layouts() -> None:
    layout = mixed().layout
    assert layout.names == ("mass", "island", "year")
    assert (layout.numbers, layout.coded) == ((0, 2), (1,))
    assert [column.kind for column in layout.columns] == ["number", "category", "number"]
    assert (images().layout, series().layout) == (Layout("images", (3, 4, 5)), Layout("series", (2, 50)))
    assert table().layout == Layout("table", (3,), (Column("a"), Column("b"), Column("c")))
    assert world().layout.kind == "world"
    for one in (layout, images().layout):
        assert conform(from_json(json.dumps(one.as_dict())), Layout) == one
    with pytest.raises(InputError, match="names for 1 columns"):
        Layout("table", (2,), (Column("a"),))


def test_batches_are_of_the_rows_own_type_and_memory() -> None:
    assert mixed().batch([0]).dtype == table().batch([0]).dtype == torch.float64
    assert mixed().batch([0]).isnan().tolist() == [[False, False, True]]
    assert series().batch([0]).dtype == torch.float32
    data = images()
    assert data.batch(data.rows()).data_ptr() == data.images.ctypes.data
    data.images.flags.writeable = False
    assert data.batch(data.rows()).data_ptr() != data.images.ctypes.data  # torch could write to it


def test_mapped_images_stay_mapped(tmp_path) -> None:
    np.save(tmp_path / "many.npy", RNG.integers(0, 256, (20, 1, 8, 8), np.uint8))
    data = load(tmp_path / "many.npy").with_test(0.5)
    assert isinstance(data.images, np.memmap)
    contiguous = data.take(slice(3, 9))
    assert contiguous.images.base is not None
    assert len(data.fingerprint) == 32


def test_large_arrays_are_hashed_in_part(monkeypatch) -> None:
    from probssl.data import dataset

    whole = images().fingerprint
    monkeypatch.setattr(dataset, "HASHED_WHOLE", 10)
    monkeypatch.setattr(dataset, "HASHED_ROWS", 3)
    assert len(images().fingerprint) == len(whole)


# --- test rows --------------------------------------------------------------------------------------------------------


def test_a_share_has_every_class() -> None:
    labels = np.repeat([0, 1, 2], [80, 16, 4])
    data = Table("t", RNG.normal(size=(100, 1)), ("a",), labels=labels, classes=("a", "b", "c"))
    test = data.with_test(0.25, seed=3).test
    assert np.bincount(labels[test]).tolist() == [20, 4, 1]
    assert not np.array_equal(test, data.with_test(0.25, seed=4).test)
    rare = Table("t", data.features, ("a",), labels=np.r_[labels[:-1], 3], classes=("a", "b", "c", "d"))
    assert rare.with_test(0.25).test.sum() == 25  # one row of a class cannot be in both halves
    assert data.with_test("0.25", seed=3).test.sum() == 25  # as a command line has it


def test_a_share_has_whole_groups() -> None:
    groups = RNG.integers(0, 30, 200)
    data = Table("t", RNG.normal(size=(200, 1)), ("a",), groups=groups)
    halved = data.with_test(0.3)
    assert not set(groups[halved.test]) & set(groups[~halved.test])
    assert halved.test.mean() == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("column", [["train", "test", "train"], ["False", "True", "false"], [0, 1, 0]])
def test_a_column_of_test_rows(tmp_path, column) -> None:
    path = tmp_path / "data.csv"
    path.write_text("a,part,b\n" + "".join(f"{row},{said},{row}\n" for row, said in enumerate(column)))
    found = load(path, test="part")
    assert found.test.tolist() == [False, True, False]
    assert found.feature_names == ("a", "b")
    if column[0] != "train":
        again = load(path).with_test("part")
        np.testing.assert_array_equal(again.test, found.test)
        assert again.fingerprint == found.fingerprint


def test_columns_that_say_something_else(tmp_path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("a,part,all\n1,train,0\n2,held,0\n")
    with pytest.raises(InputError, match="column 'part' says 'held' in row 2, where a column of test rows says"):
        load(path, test="part")
    with pytest.raises(InputError, match="column 'all' has no rows for the test"):
        load(path, test="all", drop="part")


def test_a_second_file_of_test_rows(tmp_path) -> None:
    first, second = tmp_path / "train.csv", tmp_path / "test.csv"
    first.write_text("a,b,kind\n1,2,u\n3,4,v\n")
    second.write_text("kind,b,a,more\nw,6,5,text\nu,8,7,text\n")
    found = load(first, label="kind", test=str(second))
    assert found.features.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert found.test.tolist() == [False, False, True, True]
    assert [found.classes[code] for code in found.labels] == ["u", "v", "w", "u"]
    assert found.with_test(second).features.shape == (4, 2)  # in the place of the test rows it had
    with pytest.raises(InputError, match=r"'z' .*to test on: its columns are 'a', 'b'"):
        load(first, label="kind", test="z")
    second.write_text("a,kind\n1,u\n")
    with pytest.raises(InputError, match="no column 'b'"):
        load(first, label="kind", test=second)


def test_a_second_set_of_images() -> None:
    first, second = images(), images()
    found = first.with_test(second)
    assert found.images.shape == (12, 3, 4, 5)
    assert (found.rows("test") == np.arange(6, 12)).all()
    with pytest.raises(
        InputError, match=r"array cannot be the test rows of faces: it holds images of shape \(1, 4, 4\)"
    ):
        first.with_test(load(np.zeros((2, 1, 4, 4), np.uint8)))
    with pytest.raises(InputError, match="array has no classes 'label' to test on"):
        first.with_test(load(first.images))
    with pytest.raises(InputError, match="it holds table of shape"):
        first.with_test(table())


def test_mixed_columns_and_groups_join() -> None:
    found = mixed().with_test(mixed())
    assert found.cells.shape == (12, 3)
    assert found.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]  # groups of two files are not the same


@pytest.mark.parametrize(
    ("test", "part"),
    [
        (1.0, "at least 0 and less than 1, not 1"),
        (-0.1, "at least 0 and less than 1, not -0.1"),
        (0.01, "has 6 rows, of which no share of 0.01 leaves rows for both"),
        (True, "a share of its rows, a column, a file or a data set, not bool"),
        ([1], "not list"),
    ],
)
def test_what_no_test_rows_are(test, part) -> None:
    with pytest.raises(InputError, match=part):
        table().with_test(test)


@pytest.mark.parametrize("name", ["labels", "ids", "groups", "test"])
def test_one_of_each_for_every_row(name) -> None:
    with pytest.raises(InputError, match=rf"t has {name} of shape \(2,\) for 3 rows"):
        Table("t", np.ones((3, 1)), ("a",), **{name: np.zeros(2, int)})
