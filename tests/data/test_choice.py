"""Which columns become features and label."""

import numpy as np
import pytest

from probssl.data import Table, check_trainable, load, select_features
from probssl.errors import InputError


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("a,note,b,c\n1,hello,2,3\n4,,5,6\n7,x,8,9\n")
    return file


def test_features_are_picked_in_the_model_s_order(path):
    table = load(path, features=["c", "a"])
    assert table.feature_names == ("c", "a")
    assert table.features.tolist() == [[3, 1], [6, 4], [9, 7]]
    assert table.labels is None


def test_features_with_a_label(path):
    table = load(path, features=["a"], label="b")
    assert table.features.tolist() == [[1], [4], [7]]
    assert table.classes == ("2", "5", "8")


def test_a_column_the_model_needs_is_missing(path):
    with pytest.raises(InputError) as error:
        load(path, features=["a", "d", "e"])
    assert str(error.value) == (
        f"{path} has no column 'd', which the model needs (2 of its 3 columns are not there): "
        "its columns are 'a', 'note', 'b', 'c'"
    )


def test_a_faulty_column_the_model_needs_cannot_be_dropped(path):
    with pytest.raises(InputError, match="column 'note'") as error:
        load(path, features=["a", "note"])
    assert "--drop" not in str(error.value)
    with pytest.raises(InputError, match="'a' is left out, but the model needs it"):
        load(path, features=["a"], drop=["a"])


def test_arrays_need_the_right_number_of_columns(tmp_path):
    array = np.arange(12.0).reshape(3, 4)
    assert load(array, features=["p", "q", "r", "s"]).feature_names == ("p", "q", "r", "s")
    np.save(tmp_path / "data.npy", np.zeros((5, 63)))
    with pytest.raises(InputError) as error:
        load(tmp_path / "data.npy", features=[f"x{i}" for i in range(64)])
    assert str(error.value) == f"{tmp_path / 'data.npy'} has 63 columns where the model expects 64"


def test_arrays_of_which_the_model_left_some_out(tmp_path):
    array = np.arange(12.0).reshape(3, 4)
    kept = load(array, drop=["x1"]).feature_names
    np.testing.assert_array_equal(load(array, features=kept).features, array[:, [0, 2, 3]])
    np.testing.assert_array_equal(load(array, features=["x0", "x1", "x2"], label="x3").features, array[:, :3])
    with pytest.raises(InputError, match="has 4 columns where the model expects 3"):
        load(array, features=["x0", "x1", "x2"])


def test_select_features_of_a_table():
    table = Table(
        "here",
        np.arange(6.0).reshape(2, 3),
        ("a", "b", "c"),
        labels=np.array([0, 1]),
        classes=("u", "v"),
        label_name="kind",
    )
    picked = select_features(table, ["c", "a"])
    assert picked.features.tolist() == [[2, 0], [5, 3]]
    assert picked.feature_names == ("c", "a")
    assert picked.classes == ("u", "v")
    with pytest.raises(InputError, match="here has no column 'z'"):
        select_features(table, ["z"])
    with pytest.raises(InputError, match="here has 3 columns where the model expects 2"):
        select_features(Table("here", table.features, ("x0", "x1", "x2")), ["p", "q"])
    assert select_features(Table("here", table.features, ("x0", "x1", "x2")), ["p", "q", "r"]).n_features == 3


def test_drop(path):
    assert load(path, drop=["note", "b"]).feature_names == ("a", "c")
    assert load(path, drop="note").feature_names == ("a", "b", "c")
    assert load(path, drop=["b"], label="c", features=["a"]).feature_names == ("a",)


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (["10", "9", "10"], ("9", "10")),
        (["1.0", "2.0", "1"], ("1", "2")),
        (["0.5", "-1", "0.5"], ("-1", "0.5")),
        (["b", "10", "9"], ("10", "9", "b")),
        (["007", "07", "010"], ("007", "010", "07")),
        (["True", "False", "True"], ("False", "True")),
        (["inf", "1", "1"], ("1", "inf")),
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
    ("values", "refused"),
    [
        (np.arange(51), True),
        (np.arange(50), False),
        (np.repeat(np.arange(60), 2), False),
        (np.repeat(np.linspace(0, 1, 51), 20), True),
        (np.repeat(np.linspace(0, 1, 49), 20), False),
    ],
)
def test_labels_that_look_continuous(tmp_path, values, refused):
    file = tmp_path / "data.csv"
    file.write_text("x,price\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values)))
    if refused:
        with pytest.raises(InputError, match=r"data.csv: label column 'price' has 51 distinct values .* continuous"):
            load(file, label="price")
    else:
        assert len(load(file, label="price").classes) == len(np.unique(values))


def test_check_trainable(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("a,b,my c,d\n1,5,0,2\n2,5,0,1\n")
    table = load(file)
    with pytest.raises(InputError) as error:
        check_trainable(table)
    assert str(error.value) == (
        f"{file} has 2 columns with one and the same value in every row, 'b', 'my c': "
        "leave such columns out with --drop 'b,my c', or keep them with --keep-constant"
    )
    check_trainable(table, keep_constant=True)
    check_trainable(load(file, drop=["b", "my c"]))
    with pytest.raises(InputError, match=r"--drop 'my c'"):
        check_trainable(load(file, drop=["b"]))
    with pytest.raises(InputError, match="no feature left"):
        check_trainable(load(file, drop=["a", "b", "my c", "d"]))
    with pytest.raises(InputError, match="has 1 row, and training needs at least 2"):
        check_trainable(load(np.ones((1, 3))), keep_constant=True)
    with pytest.raises(InputError, match=r"'x0', 'x1', 'x2', 'x3', 'x4', … \(9 in all\)"):
        check_trainable(load(np.ones((3, 9))))


def test_a_table_must_be_consistent():
    with pytest.raises(InputError, match="2 columns for features of shape"):
        Table("here", np.ones((2, 3)), ("a", "b"))
    with pytest.raises(InputError, match="labels of shape"):
        Table("here", np.ones((2, 1)), ("a",), labels=np.zeros(3, dtype=np.int64), classes=("u",))
