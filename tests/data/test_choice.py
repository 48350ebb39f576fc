"""Which columns become features and label."""

import numpy as np
import pytest

from probssl.data import Table, check_trainable, in_layout, load
from probssl.errors import InputError
from probssl.layout import Column, Layout


def numbers(*names):
    return Layout("table", (len(names),), tuple(map(Column, names)))


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("a,note,b,c\n1,hello,2,3\n4,,5,6\n7,x,8,9\n")
    return file


def test_features_are_picked_in_the_model_s_order(path):
    table = load(path, layout=numbers("c", "a"))
    assert table.feature_names == ("c", "a")
    assert table.features.tolist() == [[3, 1], [6, 4], [9, 7]]
    assert table.labels is None


def test_features_with_a_label(path):
    table = load(path, layout=numbers("a"), label="b")
    assert table.features.tolist() == [[1], [4], [7]]
    assert table.classes == ("2", "5", "8")


def test_a_column_the_model_needs_is_missing(path):
    with pytest.raises(InputError) as error:
        load(path, layout=numbers("a", "d", "e"))
    assert str(error.value) == (
        f"{path} has no column 'd', 'e', which the model needs: its columns are 'a', 'note', 'b', 'c'"
    )


def test_a_faulty_column_the_model_needs_cannot_be_dropped(path):
    with pytest.raises(InputError, match="column 'note'") as error:
        load(path, layout=numbers("a", "note"))
    assert "--drop" not in str(error.value)
    with pytest.raises(InputError, match="'a' is left out, but the model needs it"):
        load(path, layout=numbers("a"), drop=["a"])


def test_arrays_need_the_right_number_of_columns(tmp_path):
    array = np.arange(12.0).reshape(3, 4)
    assert load(array, layout=numbers("p", "q", "r", "s")).feature_names == ("p", "q", "r", "s")
    np.save(tmp_path / "data.npy", np.zeros((5, 63)))
    with pytest.raises(InputError) as error:
        load(tmp_path / "data.npy", layout=numbers(*[f"x{i}" for i in range(64)]))
    assert str(error.value) == f"{tmp_path / 'data.npy'} has 63 columns where the model expects 64"


def test_arrays_of_which_the_model_left_some_out(tmp_path):
    array = np.arange(12.0).reshape(3, 4)
    kept = load(array, drop=["x1"]).feature_names
    np.testing.assert_array_equal(load(array, layout=numbers(*kept)).features, array[:, [0, 2, 3]])
    np.testing.assert_array_equal(load(array, layout=numbers("x0", "x1", "x2"), label="x3").features, array[:, :3])
    with pytest.raises(InputError, match="has 4 columns where the model expects 3"):
        load(array, layout=numbers("x0", "x1", "x2"))


def test_select_features_of_a_table():
    table = Table(
        "here",
        np.arange(6.0).reshape(2, 3),
        ("a", "b", "c"),
        labels=np.array([0, 1]),
        classes=("u", "v"),
        label_name="kind",
    )
    picked = in_layout(table, numbers("c", "a"))
    assert picked.features.tolist() == [[2, 0], [5, 3]]
    assert picked.feature_names == ("c", "a")
    assert picked.classes == ("u", "v")
    with pytest.raises(InputError, match="here has no column 'z'"):
        in_layout(table, numbers("z"))
    with pytest.raises(InputError, match="here has 3 columns where the model expects 2"):
        in_layout(Table("here", table.features, ("x0", "x1", "x2")), numbers("p", "q"))
    assert in_layout(Table("here", table.features, ("x0", "x1", "x2")), numbers("p", "q", "r")).n_features == 3


def test_drop(path):
    assert load(path, drop=["note", "b"]).feature_names == ("a", "c")
    assert load(path, drop="note").feature_names == ("a", "b", "c")
    assert load(path, drop=["b"], label="c", layout=numbers("a")).feature_names == ("a",)


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (["10", "9", "10"], ("9", "10")),
        (["1.0", "2.0", "1"], ("1", "2")),
        (["0.5", "-1", "0.5"], ("-1", "0.5")),
        (["b", "10", "9"], ("10", "9", "b")),
        (["007", "07", "010"], ("007", "010", "07")),
        (["True", "False", "True"], ("False", "True")),
        (["1_0", "2", "2"], ("1_0", "2")),
        ([" b", "b ", "a"], ("a", "b")),
        (["9007199254740993", "9007199254740992", "1"], ("1", "9007199254740992", "9007199254740993")),
    ],
)
def test_classes_are_sorted_and_named(tmp_path, cells, classes):
    file = tmp_path / "data.csv"
    file.write_text("x,kind\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(cells)))
    table = load(file, label="kind")
    assert table.classes == classes
    assert table.labels is not None
    assert len({table.classes[code] for code in table.labels}) == len(classes)


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (np.arange(40) % 10 / 10, True),  # ten different values, whatever they are
        (np.arange(60) % 20, True),
        (np.repeat(np.arange(50), 2), True),
        (np.arange(60) % 40, False),  # most of them differ
        (np.repeat(np.arange(60), 2), False),
        (np.repeat(np.linspace(0, 1, 11), 20), False),
        ([f"class {number % 60}" for number in range(120)], True),
    ],
)
def test_labels_are_classes_or_numbers(tmp_path, values, classes):
    file = tmp_path / "data.csv"
    file.write_text("x,y\n" + "".join(f"{i / 7},{value}\n" for i, value in enumerate(values)))
    table = load(file, label="y")
    (target,) = table.targets
    assert target.name == "y"
    assert len(target.classes) == (len(np.unique(values)) if classes else 0)
    assert (table.label_name, table.labels is None) == (("y", False) if classes else (None, True))
    if not classes:
        np.testing.assert_array_equal(target.values, values)
        assert len(load(file, label="y", kinds={"y": "category"}).classes) == len(np.unique(values))
    elif not isinstance(values, list):
        np.testing.assert_allclose(load(file, label="y", kinds={"y": "number"}).targets[0].values, values)


def test_labels_that_look_like_identifiers(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("x,who\n" + "".join(f"{i / 7},p{i}\n" for i in range(60)))
    with pytest.raises(InputError, match=r"'who' has 60 distinct values in 60 rows, so it looks like an identifier"):
        load(file, label="who")


def test_several_labels_and_gaps_among_them(tmp_path):
    file = tmp_path / "data.csv"
    lines = ["x,kind,price,sold"]
    for i in range(60):
        lines.append(f"{i / 7},{'ab'[i % 2] if i % 5 else '?'},{i * 1.5 if i % 3 else ''},{i % 2 == 0}")
    file.write_text("\n".join(lines))
    table = load(file, label=["price", "kind", "sold"])
    price, kind, sold = table.targets
    assert (price.name, price.classes, kind.classes, sold.classes) == ("price", (), ("a", "b"), ("False", "True"))
    assert np.isnan(price.values).sum() == 20
    assert (table.label_name, table.labels[:6].tolist()) == ("kind", [-1, 1, 0, 1, 0, -1])
    assert table.layout.names == ("x",)
    with pytest.raises(InputError, match="no column 'prize', 'kinds' to use as the label"):
        load(file, label=["prize", "kinds"])


def test_numbers_beside_rows_are_a_target():
    rows = np.arange(200.0).reshape(100, 2)
    assert load((rows, rows[:, 0] / 3)).targets[0].classes == ()
    assert len(load((rows, np.arange(100) % 40)).classes) == 40  # whole numbers of an array are classes
    assert load((rows, np.arange(100) % 40), kinds={"label": "number"}).targets[0].classes == ()


def test_check_trainable(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("a,b,my c,d\n1,5,0,2\n2,5,0,1\n")
    table = load(file)
    assert table.feature_names == ("a", "d")
    assert table.notes == tuple(
        f"column '{name}' is '{value}' in every row, and is left out" for name, value in (("b", 5), ("my c", 0))
    )
    check_trainable(table)
    assert load(file, kinds={"b": "number"}).feature_names == ("a", "b", "d")
    with pytest.raises(InputError, match="no feature left"):
        check_trainable(load(file, drop=["a", "d"]))
    with pytest.raises(InputError, match="has 1 row, and training needs at least 2"):
        check_trainable(load(np.ones((1, 3))))
    file.write_text("a,b\n1,x\n2,y\n,x\n")
    with pytest.raises(InputError, match=r"not numbers, in 'a', 'b', which .*--drop a,b"):
        check_trainable(load(file))


def test_a_table_must_be_consistent():
    with pytest.raises(InputError, match="2 columns for features of shape"):
        Table("here", np.ones((2, 3)), ("a", "b"))
    with pytest.raises(InputError, match="labels of shape"):
        Table("here", np.ones((2, 1)), ("a",), labels=np.zeros(3, dtype=np.int64), classes=("u",))
