"""What is done with a run: embed, evaluate, doctor, report; and the catalogue of data."""

import json

import numpy as np
import pandas as pd
import pytest

from probssl.model import Model
from tests.cli.shell import document, refusal, succeed

READERS = {
    ".npy": np.load,
    ".csv": lambda path: pd.read_csv(path).to_numpy(np.float32),
    ".tsv": lambda path: pd.read_csv(path, sep="\t").to_numpy(np.float32),
    ".parquet": lambda path: pd.read_parquet(path).to_numpy(),
}


@pytest.mark.parametrize("ending", READERS)
def test_embed_round_trip(ending, run, table, scratch):
    found = document("embed", run, table, "--out", f"deep/z{ending}")
    z = READERS[ending](scratch / "deep" / f"z{ending}")
    assert found == {"out": f"deep/z{ending}", "rows": 60, "dim": 2}
    np.testing.assert_array_equal(z, Model.load(run).embed(str(table)))
    assert [path.name for path in (scratch / "deep").iterdir()] == [f"z{ending}"]


def test_embed_finds_columns_by_name(run, table, scratch):
    frame = pd.read_csv(table)
    frame.insert(0, "note", "not a number")
    frame[["d", "note", "a", "kind", "c", "b"]].to_csv("other.csv", index=False)
    succeed("embed", run, "other.csv", "--out", "z.npy", "--quiet")
    np.testing.assert_array_equal(np.load("z.npy"), Model.load(run).embed(str(table)))


def test_embed_draws_the_toys_that_the_run_was_trained_on():
    succeed("fit", "toy:circles", "--steps", 2, "--seed", 3, "--out", "r", "-q")
    succeed("embed", "r", "toy:circles", "--out", "z.npy")
    with np.load("r/projection.npz") as kept:
        z, rows = kept["z"], kept["rows"]
    np.testing.assert_allclose(np.load("z.npy")[rows], z, atol=1e-6)


def test_embed_says_what_it_wrote(run, scratch):
    (scratch / "one.csv").write_text("a,b,c,d\n1,2,3,4\n")
    assert succeed("embed", run, "one.csv", "--out", "z.csv").stdout == "1 row of 2 dimensions   z.csv\n"
    assert succeed("embed", run, "one.csv", "--out", "q.csv", "--quiet").stdout == ""


def test_embed_refusals(run, table, scratch):
    (scratch / "narrow.csv").write_text("a,b\n1,2\n")
    (scratch / "missing.csv").write_text("a,b,c,d\n1,2,,4\n")
    np.save("wide.npy", np.ones((3, 7)))
    (scratch / "mine.csv").write_text("mine")
    before = {path.name for path in scratch.iterdir()}
    assert "'c'" in refusal("embed", run, "narrow.csv", "--out", "z.npy")
    assert "7 columns" in refusal("embed", run, "wide.npy", "--out", "z.npy")
    assert "exists" in refusal("embed", run, table, "--out", "mine.csv")
    assert ".parquet" in refusal("embed", run, table, "--out", "z.xls")
    assert "mine.csv" in refusal("embed", run, table, "--out", "mine.csv/z.npy")
    assert {path.name for path in scratch.iterdir()} == before
    assert "'c' has gaps that training did not have" in succeed("embed", run, "missing.csv", "--out", "z.npy").stderr
    succeed("embed", run, table, "--out", "mine.csv", "--overwrite")


@pytest.mark.parametrize("command", [["embed", "--out", "z.npy"], ["evaluate"], ["doctor"], ["report"]])
def test_what_is_not_a_run(command, table, scratch):
    data = [table] if command[0] == "embed" else []
    for run, said in {"nope": "does not exist", ".": "is not a run", table: "is a file"}.items():
        assert said in refusal(command[0], run, *data, *command[1:])
    assert list(scratch.iterdir()) == []


def test_damaged_models_are_refused(copy, table, scratch):
    model = copy / "model.safetensors"
    whole = model.read_bytes()
    changed = bytearray(whole)
    changed[-1] ^= 1
    for content, said in {bytes(changed): "checksum", whole[:-9]: "damaged", b"": "damaged"}.items():
        model.write_bytes(content)
        for command in (["embed", copy, table, "--out", "z.npy"], ["evaluate", copy]):
            message = refusal(*command)
            assert str(model) in message
            assert said in message
    assert not (scratch / "z.npy").exists()


@pytest.mark.parametrize(
    ("file", "command"),
    [("source.json", "evaluate"), ("metrics.json", "report"), ("projection.npz", "report"), ("recipe.toml", "doctor")],
)
def test_other_damage_is_named(file, command, copy):
    (copy / file).write_text("{ = ")
    assert str(copy / file) in refusal(command, copy)


def test_evaluate_own_data_repeats_the_run_and_fits_80_columns(run):
    shown = succeed("evaluate", run).stdout
    assert max(map(len, shown.splitlines())) <= 80
    for title in ("↑ Linear probe accuracy", "↑ Nearest-neighbour accuracy", "  RankMe"):
        assert any(line.startswith(f"{title} ") for line in shown.splitlines()), shown
    assert document("evaluate", run)["rows"] == json.loads((run / "metrics.json").read_text())["rows"]


def test_evaluate_other_data(run, table, scratch):
    pd.read_csv(table).iloc[::-1].head(40)[["d", "kind", "c", "b", "a"]].to_csv("test.csv", index=False)
    found = document("evaluate", run, "test.csv", "--label", "kind", "--seed", 1)
    assert found["source"] == "test.csv"
    assert found["rows"]["trained encoder"]["linear_probe"] is not None
    assert "linear_probe" not in document("evaluate", run, "test.csv")["rows"]["trained encoder"]


def test_evaluate_refusals(run, table, scratch):
    (scratch / "one.csv").write_text("a,b,c,d\n1,2,3,4\n")
    assert "'nope'" in refusal("evaluate", run, table, "--label", "nope")
    assert "1 row" in refusal("evaluate", run, "one.csv")
    assert "'a'" in refusal("evaluate", run, "sklearn:iris")
    assert "seed" in refusal("evaluate", run, "--seed", -1)


def test_doctor(run, collapsed):
    assert document("doctor", run)["healthy"] is True
    assert succeed("doctor", run).stdout.startswith("healthy\ntrained to step 30 of 30")
    told = document("doctor", collapsed[0])
    assert told["healthy"] is False
    assert "representation" in [finding["kind"] for finding in told["findings"]]
    assert all(finding["remedies"] for finding in told["findings"])
    shown = succeed("doctor", collapsed[0]).stdout
    assert shown.startswith("not healthy\n")
    assert "try: " in shown


def test_report_regenerates_the_page(copy, scratch):
    page = copy / "report.html"
    page.unlink()
    assert succeed("report", copy).stdout == f"{page.as_uri()}\n"
    assert page.is_file()
    assert document("report", copy, "--out", "page.html") == {"report": "page.html"}
    (scratch / "folder").mkdir()
    assert "folder" in refusal("report", copy, "--out", "folder")


def test_data_list_and_fetch(tmp_path, monkeypatch):
    monkeypatch.setenv("PROBSSL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "pmlb").mkdir()
    (tmp_path / "pmlb" / "letter.tsv.gz").write_bytes(b"")
    found = document("data", "list")
    here = {entry["name"]: entry["present"] for entry in found["data"]}
    assert found["directory"] == str(tmp_path)
    assert here["pmlb:letter"]
    assert here["sklearn:wine"]
    assert not here["pmlb:sonar"]
    shown = succeed("data", "list").stdout
    assert "pmlb:letter" in shown
    assert max(map(len, shown.splitlines()[:-1])) <= 80
    assert document("data", "fetch", "pmlb:letter")["path"] == str(tmp_path / "pmlb" / "letter.tsv.gz")
    assert succeed("data", "fetch", "pmlb:letter").stderr == ""
    assert "scikit-learn" in refusal("data", "fetch", "sklearn:wine")
    assert "'nope'" in refusal("data", "fetch", "nope")
