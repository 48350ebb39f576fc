"""`probssl sample` and `probssl ood`: new rows, and rows that the model has not seen, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs
from typer.testing import CliRunner

from probssl.cli import app


def run(*arguments: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return found.exit_code, found.stdout, found.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of three blobs, and other rows beside it."""
    base = tmp_path_factory.mktemp("gedi")
    x, _ = make_blobs(400, n_features=3, centers=3, cluster_std=0.6, random_state=1)
    pd.DataFrame(x, columns=["a", "b", "c"]).to_csv(base / "seen.csv", index=False)
    other = np.random.default_rng(0).uniform(-30, 30, (200, 3))
    pd.DataFrame(other, columns=["a", "b", "c"]).to_csv(base / "other.csv", index=False)
    settings = ["objective.clusters=3", "objective.generative=1", "pairing.preservation=0.8"]
    options = ["--objective", "gedi", "--steps", 200, "--lr", 0.003, *(word for s in settings for word in ("--set", s))]
    code, _, error = run("fit", base / "seen.csv", *options, "--evaluate", "none", "--out", base / "run", "--quiet")
    assert code == 0, error
    code, _, error = run("fit", base / "seen.csv", "--steps", 20, "--out", base / "plain", "--quiet")
    assert code == 0, error
    return base


def test_new_rows_in_the_columns_of_the_data(folder: Path) -> None:
    code, output, _ = run("sample", folder / "run", "--n", 50, "--out", folder / "new.csv", "--json")
    assert code == 0
    assert json.loads(output) == {"out": str(folder / "new.csv"), "rows": 50, "features": 3}
    new = pd.read_csv(folder / "new.csv")
    assert list(new.columns) == ["a", "b", "c", "cluster"]
    assert set(new["cluster"]) <= {0, 1, 2}
    assert bool(np.isfinite(new.to_numpy()).all())
    code, output, _ = run("sample", folder / "run", "--n", 50, "--out", folder / "again.csv")
    assert code == 0
    assert "50 rows of 3 features and a cluster" in output
    pd.testing.assert_frame_equal(pd.read_csv(folder / "again.csv"), new)
    code, _, error = run("sample", folder / "run", "--out", folder / "new.csv")
    assert code == 2
    assert "--overwrite" in error


def test_rows_it_has_not_seen(folder: Path) -> None:
    code, output, _ = run("ood", folder / "run", "--outside", folder / "other.csv", "--json")
    assert code == 0
    found = json.loads(output)
    assert (found["inside"], found["outside"]) == (80, 200), "of the run's own data, those that training never saw"
    assert set(found["scores"]) == {"log density", "score norm", "largest probability"}
    assert found["scores"]["log density"]["auroc"] > 0.8
    assert all(part["low"] <= part["auroc"] <= part["high"] for part in found["scores"].values())
    code, output, _ = run("ood", folder / "run", "--inside", folder / "seen.csv", "--outside", folder / "other.csv")
    assert code == 0
    assert "400 rows inside, 200 outside" in output


@pytest.fixture(scope="module")
def decoding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A latent-variable model of three labelled blobs."""
    base = tmp_path_factory.mktemp("vae")
    x, y = make_blobs(300, n_features=3, centers=3, cluster_std=0.3, random_state=1)
    table = pd.DataFrame(x, columns=["a", "b", "c"]).assign(kind=np.array(["one", "two", "three"])[y])
    table.to_csv(base / "seen.csv", index=False)
    options = [
        "--objective",
        "vae",
        "--steps",
        200,
        "--set",
        "objective.likelihood.variance=0.02",
        "--set",
        "encoder.hidden=16,16",
        "--label",
        "kind",
    ]
    code, _, error = run("fit", base / "seen.csv", *options, "--out", base / "run", "--quiet")
    assert code == 0, error
    return base


def test_decoders_draw_class_by_class(decoding: Path) -> None:
    seen = pd.read_csv(decoding / "seen.csv")
    code, output, error = run("sample", decoding / "run", "--n", 90, "--out", decoding / "new.csv", "--json")
    assert code == 0, error
    classes = json.loads(output)["classes"]
    assert sorted(classes) == ["one", "three", "two"]
    new = pd.read_csv(decoding / "new.csv")
    assert list(new.columns) == ["a", "b", "c", "class"]
    means = seen.groupby("kind").mean()
    for number, name in enumerate(classes):
        drawn = new[new["class"] == number][["a", "b", "c"]].mean()
        assert np.abs(drawn - means.loc[name]).max() < 1.0, "the blobs are several apart"
    code, output, _ = run("sample", decoding / "run", "--class", "two", "--n", 5, "--out", decoding / "two.csv")
    assert code == 0
    assert "5 rows of 3 features and a class" in output
    assert set(pd.read_csv(decoding / "two.csv")["class"]) == {classes.index("two")}
    code, _, error = run("sample", decoding / "run", "--class", "four", "--out", decoding / "no.csv")
    assert code == 2
    assert "no class 'four'" in error
    assert "one, three, two" in error
    code, _, error = run("sample", decoding / "run", "--seed", -1, "--out", decoding / "no.csv")
    assert code == 2
    assert "seed must be a whole number of at least 0" in error


def test_columns_of_any_name_come_back(tmp_path: Path) -> None:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["component", "left, right"])
    table.to_csv(tmp_path / "seen.csv", index=False)
    code, _, error = run("fit", tmp_path / "seen.csv", "--objective", "vae", "--steps", 5, "--out", tmp_path / "run")
    assert code == 0, error
    code, _, error = run("sample", tmp_path / "run", "--n", 5, "--seed", 2**40, "--out", tmp_path / "new.csv")
    assert code == 0, error
    assert list(pd.read_csv(tmp_path / "new.csv").columns) == ["component", "left, right", "component_"]
    code, _, error = run("embed", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "z.npy")
    assert code == 0, error


def test_only_decoders_know_classes(folder: Path) -> None:
    code, _, error = run("sample", folder / "run", "--class", "one", "--out", folder / "no.csv")
    assert code == 2
    assert "--class is for runs with a decoder" in error


def test_losses_without_a_density_say_so(folder: Path) -> None:
    for command in (["sample", "--out", folder / "no.csv"], ["ood", "--outside", folder / "other.csv"]):
        code, _, error = run(command[0], folder / "plain", *command[1:])
        assert code == 2
        assert "trained with infonce has no density: train with gedi" in " ".join(error.split())
    assert not (folder / "no.csv").exists()
