"""How data is read for a run: which rows are for the test, what rows are called, and data that has moved."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from probssl.runs import Run
from tests.cli.shell import document, probssl, refusal, succeed

FIT = ["--label", "kind", "--steps", 3, "--out", "r"]


@pytest.fixture
def frame(table):
    return pd.read_csv(table)


def judged(found):
    """How many rows were judged, and on how many probes were fitted."""
    words = found["judged"].replace(",", "").split()
    return int(words[0]), int(words[-6])


@pytest.mark.parametrize(("share", "rows"), [("0.25", 15), ("0.5", 30)])
def test_a_share(share, rows, table):
    assert judged(document("fit", table, *FIT, "--test", share)) == (rows, 60 - rows)
    assert Run("r").dataset.test.sum() == rows


def test_nothing_set_aside(table):
    assert document("fit", table, *FIT, "--test", 0)["judged"].endswith("splits of 60 rows")
    assert Run("r").dataset.test is None


@pytest.mark.parametrize("words", [("train", "test"), ("0", "1"), ("false", "true")])
def test_a_column_says_which(words, frame, scratch):
    frame.insert(2, "half", np.where(np.arange(60) % 3 == 0, words[1], words[0]))
    frame.to_csv("halves.csv", index=False)
    assert judged(document("fit", "halves.csv", *FIT, "--test", "half")) == (20, 40)
    run = Run("r")
    assert run.model.feature_names == ("a", "b", "c", "d")
    np.testing.assert_array_equal(run.dataset.rows("test"), np.arange(0, 60, 3))
    np.testing.assert_allclose(
        run.model.preparation.scaling.mean, frame[frame["half"] == words[0]][list("abcd")].mean()
    )
    assert document("evaluate", "r")["rows"]["trained encoder"]["linear_probe"] is not None
    frame["half"] = words[0]
    frame.to_csv("halves.csv", index=False)
    assert "no rows for the test" in refusal("fit", "halves.csv", *FIT[:-1], "q", "--test", "half")


def test_a_file_of_its_own(frame, scratch, monkeypatch):
    frame.iloc[:40].to_csv("mine.csv", index=False)
    frame.iloc[40:, ::-1].to_csv("other.csv", index=False)
    assert judged(document("fit", "mine.csv", *FIT, "--test", "other.csv")) == (20, 40)
    (scratch / "elsewhere").mkdir()
    monkeypatch.chdir(scratch / "elsewhere")
    found = document("evaluate", scratch / "r")
    assert judged(found) == (20, 40), "found from another folder too"
    pd.DataFrame({"a": [1.0, 2.0], "kind": ["cat", "dog"]}).to_csv("narrow.csv", index=False)
    assert "'b'" in refusal("fit", scratch / "mine.csv", *FIT, "--test", "narrow.csv")


def test_one_row_is_too_few_to_judge_by(table):
    assert "1 test row" in refusal("fit", table, *FIT, "--test", 0.01)


@pytest.fixture
def named(frame, scratch):
    """A table whose rows have names, one of them with a comma, and a run on it."""
    frame.insert(1, "who", [f"row, {number}" if number == 3 else f"r{number}" for number in range(60)])
    frame.to_csv("named.csv", index=False)
    succeed("fit", "named.csv", *FIT, "--ids", "who", "-q")
    return frame


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
def test_names_of_rows_are_kept_beside_them(ending, named, scratch):
    run = Run("r")
    assert run.model.feature_names == ("a", "b", "c", "d")
    assert set(np.load("r/projection.npz")["rows"]) <= set(named["who"])
    assert "<title>r" in (scratch / "r" / "report.html").read_text()
    succeed("embed", "r", "named.csv", "--out", f"z{ending}", "-q")
    read = {".csv": pd.read_csv, ".tsv": lambda path: pd.read_csv(path, sep="\t"), ".parquet": pd.read_parquet}[ending]
    found = read(f"z{ending}")
    assert list(found.columns) == ["who", "z0", "z1"]
    assert list(found["who"]) == list(named["who"])
    np.testing.assert_allclose(found[["z0", "z1"]], run.model.embed("named.csv"), rtol=1e-6)


def test_other_names_none_and_numbers_alone(named):
    expected = Run("r").model.embed("named.csv")
    succeed("embed", "r", "named.csv", "--out", "z.npy", "-q")
    np.testing.assert_array_equal(np.load("z.npy"), expected)
    succeed("embed", "r", "named.csv", "--ids", "kind", "--out", "k.csv", "-q")
    assert list(pd.read_csv("k.csv")["kind"]) == list(named["kind"])
    named.drop(columns="who").to_csv("anonymous.csv", index=False)
    succeed("embed", "r", "anonymous.csv", "--out", "a.csv", "-q")
    assert list(pd.read_csv("a.csv").columns) == ["z0", "z1"]
    assert "'nobody'" in refusal("embed", "r", "named.csv", "--ids", "nobody", "--out", "n.csv")


def test_moved_data_is_found_and_other_data_refused(copy, table, scratch, frame):
    shutil.copy(table, scratch / "here.csv")
    source = json.loads((copy / "source.json").read_text())
    (copy / "source.json").write_text(json.dumps({**source, "data": str(scratch / "gone.csv")}))
    before = json.loads((copy / "metrics.json").read_text())["rows"]
    said = refusal("evaluate", copy)
    assert "gone.csv" in said
    assert "--data" in said
    frame.iloc[::-1].to_csv("other.csv", index=False)
    assert "is not the data that the run in" in refusal("evaluate", copy, "--data", "other.csv")
    assert document("evaluate", copy, "--data", "here.csv")["rows"] == before
    assert document("evaluate", copy)["rows"] == before, "where it is now is remembered"
    assert json.loads((copy / "source.json").read_text())["data"] == str(scratch / "here.csv")
    (scratch / "here.csv").rename(scratch / "there.csv")
    (copy / "metrics.json").unlink()
    assert any("not known" in note for note in document("doctor", copy)["notes"])
    assert document("doctor", copy, "--data", "there.csv")["loss"]["model"]["mean"] > 0
    (scratch / "there.csv").rename(scratch / "last.csv")
    assert document("fit", "last.csv", "--resume", "--out", copy, "--steps", 31)["steps"] == 31


def test_other_data_beside_moved_data_is_refused(run, table):
    result = probssl("evaluate", run, table, "--data", table)
    assert result.exit_code == 2
    assert "--data" in result.stderr


def test_a_table_is_described_and_read_as_described(scratch):
    rows = [f"{i % 7 + 0.5},{'NL' if i % 2 else 'BE'},0{i % 9},{i % 2},{i * 1.5},c{i}" for i in range(60)]
    (scratch / "t.csv").write_text("\n".join(["a,land,zip,kind,price,who", *rows[:59], "?,none,-9,,2,z"]))
    options = ["t.csv", "--label", "kind", "--label", "price", "--missing", -9]
    found = document("data", "describe", *options, "--kind", "zip=number")
    assert found["rows"] == 60
    assert {column["name"]: (column["kind"], column["use"], column["gaps"]) for column in found["columns"]} == {
        "a": ("number", "feature", 1),
        "land": ("category", "feature", 1),
        "zip": ("number", "feature", 1),
        "kind": ("category", "label", 1),
        "price": ("number", "label", 0),
        "who": ("id", "left out", 0),
    }
    shown = succeed("data", "describe", *options).stdout
    assert max(map(len, shown.splitlines()[:8])) <= 80
    assert "who: names rows (60 values in 60 rows), and is left out" in shown
    succeed("fit", *options, "--out", "mixed", "--steps", 3, "--evaluate", "none", "-q")
    (scratch / "t.csv").write_text("\n".join(["a,land,zip,kind,price,who", *rows]))
    succeed("fit", *options, "--kind", "zip,land=id", "--out", "r", "--steps", 3, "--evaluate", "none", "-q")
    data = Run("r").dataset
    assert (data.layout.names, [target.name for target in data.targets]) == (("a",), ["kind", "price"])
    assert "no column 'x', 'y' to give a kind" in refusal("data", "describe", "t.csv", "--kind", "x,y=date")
    assert "--kind takes COLUMN=KIND" in refusal("data", "describe", "t.csv", "--kind", "zip")
