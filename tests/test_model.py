"""Model files and run folders: bit-equal after loading, refused when changed, never executed, never mixed up."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from probssl.data import Table, load
from probssl.doctor import examine
from probssl.errors import CheckpointError, InputError
from probssl.evaluation import evaluate
from probssl.model import Model
from probssl.recipe import CLUSTERING_OBJECTIVES, EVERY_OBJECTIVE, WITH_MEMORY, Recipe
from probssl.runs import Run, Source, assess, train
from probssl.training.files import load_tensors, save_tensors
from probssl.training.log import read_log

from .training.parts import Signaller, assert_one_sentence, assert_same_weights, without_time

RECIPE = Recipe(objective="snl", steps=12, batch_size=16, dim=3, seed=4)


def table(n: int = 40, d: int = 5, seed: int = 0, names: str = "abcdefgh") -> Table:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d)) * rng.uniform(0.5, 20, d) + rng.normal(size=d)
    return Table(
        "made up", features, tuple(names[:d]), labels=np.arange(n) % 2, classes=("no", "yes"), label_name="answer"
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Path]:
    folder = tmp_path_factory.mktemp("runs") / "run"
    model, fitted = train(table(), RECIPE, folder)
    assert fitted.healthy
    return model, folder


@pytest.fixture
def copy(finished: tuple[Model, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished[1], tmp_path / "run"))


# Saving and loading


@pytest.mark.parametrize("objective", EVERY_OBJECTIVE)
def test_loading_gives_the_same_bits(objective: str, tmp_path: Path) -> None:
    recipe = replace(RECIPE, objective=objective, energy="cosine" if objective == "spectral" else "anisotropic")
    model, _ = train(table(), recipe, tmp_path / "run")
    loaded = Model.load(tmp_path / "run")
    assert_same_weights(loaded.encoder.state_dict(), model.encoder.state_dict())
    assert_same_weights(loaded.objective.state_dict(), model.objective.state_dict())
    assert np.array_equal(loaded.embed(table(seed=1)), model.embed(table(seed=1)))
    assert loaded.recipe == model.recipe == recipe.for_features(5)
    assert loaded.feature_names == ("a", "b", "c", "d", "e")
    assert loaded.label_name == "answer"
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "run" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("network", ["resnet8", "resnet18"])
def test_a_network_of_images_is_loaded_in_its_order_in_memory(network: str, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8), dtype=np.uint8)
    recipe = Recipe.for_images("made up", network=network, width=4, dim=3, objective="byol").for_shape((3, 8, 8))
    model = Model(recipe, recipe.build_encoder(192), recipe.build_objective(192, 6), None, ())
    model.save(tmp_path / "model.safetensors")
    loaded = Model.load(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.embed(images), model.embed(images))
    for part, other in ((model.encoder, loaded.encoder), (model.objective, loaded.objective)):
        strides = [tensor.stride() for tensor in part.state_dict().values()]
        assert strides == [tensor.stride() for tensor in other.state_dict().values()]
    assert not all(weight.is_contiguous() for weight in loaded.encoder.parameters())


def test_embedding_arrays_tables_and_files(finished: tuple[Model, Path], tmp_path: Path) -> None:
    model, _ = finished
    rows = table(seed=1)
    z = model.embed(rows)
    assert z.shape == (40, 3)
    assert z.dtype == np.float32
    assert np.array_equal(model.embed(rows.features), z)
    np.save(tmp_path / "rows.npy", rows.features)
    assert np.array_equal(model.embed(tmp_path / "rows.npy"), z)
    order = [3, 1, 4, 0, 2]
    shuffled = replace(rows, features=rows.features[:, order], feature_names=tuple("abcde"[i] for i in order))
    assert np.array_equal(model.embed(shuffled), z), "columns are found by name"
    lines = [",".join(shuffled.feature_names), *(",".join(map(repr, row.tolist())) for row in shuffled.features)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    assert np.array_equal(model.embed(str(tmp_path / "rows.csv")), z)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (np.zeros((3, 4)), ("4 columns", "5")),
        (np.zeros((3, 6)), ("6 columns", "5")),
        (np.zeros(5), ("shape (5,)",)),
        (np.array([[1, 2, np.nan, 4, 5.0]]), ("nan", "row 1")),
        (np.array([[1, 2, 3, np.inf, 5.0]]), ("inf", "row 1")),
        (np.array([list("abcde")]), ("text",)),
        (table(d=4), ("e",)),
        (table(names="vwxyz"), ("a",)),
        ("nowhere.csv", ("nowhere.csv",)),
    ],
    ids=lambda value: None,
)
def test_rows_that_do_not_fit_are_refused(finished: tuple[Model, Path], bad: Any, named: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        finished[0].embed(bad)
    assert_one_sentence(caught.value, *named)


def test_tampered_models_are_refused(copy: Path) -> None:
    path = copy / "model.safetensors"
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for position in (2, 40, content.index(b"dim"), start, start + 100, len(content) - 1):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(CheckpointError) as caught:
            Model.load(path)
        assert_one_sentence(caught.value, str(path))
    for length in (0, 7, 300, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError) as caught:
            Model.load(copy)
        assert_one_sentence(caught.value, str(path))


def test_files_that_are_not_models(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        Model.load(tmp_path / "nowhere.safetensors")
    with pytest.raises(CheckpointError, match="holds no finished model"):
        Model.load(tmp_path)
    with pytest.raises(CheckpointError, match="is a checkpoint, not a model"):
        Model.load(copy / "checkpoints" / "step-00000012.safetensors")
    tensors, metadata = load_tensors(copy / "model.safetensors")
    save_tensors(tmp_path / "newer.safetensors", tensors, {**metadata, "format": 99, "probssl": "9.9"})
    with pytest.raises(CheckpointError, match="newer probssl"):
        Model.load(tmp_path / "newer.safetensors")
    save_tensors(tmp_path / "odd.safetensors", tensors, {**metadata, "recipe": {**metadata["recipe"], "dim": 4}})
    with pytest.raises(InputError) as caught:
        Model.load(tmp_path / "odd.safetensors")
    assert_one_sentence(caught.value, "odd.safetensors")


class Bomb:
    """Unpickling it leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


def test_loading_never_executes_what_is_in_the_file(copy: Path, tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    for path in (copy / "model.safetensors", *(copy / "checkpoints").iterdir()):
        path.write_bytes(pickle.dumps(Bomb(trace)))
    with pytest.raises(CheckpointError):
        Model.load(copy)
    with pytest.raises(CheckpointError):
        train(table(), RECIPE, copy, resume=True)
    torch.save({"encoder": Bomb(trace)}, copy / "model.safetensors")
    with pytest.raises(CheckpointError):
        Model.load(copy)
    assert not trace.exists()
    pickle.loads((copy / "checkpoints" / "step-00000012.safetensors").read_bytes())
    assert trace.exists(), "the bomb was live"


# The folder of a run


def test_a_run_can_be_read_back(finished: tuple[Model, Path]) -> None:
    model, folder = finished
    run = Run(folder)
    assert run.finished
    assert run.recipe == model.recipe
    assert run.source == Source("made up", "answer")
    assert [row["step"] for row in run.log] == [0, 12]
    assert np.array_equal(run.model.embed(table()), model.embed(table()))
    assert run.comparison is None
    assert run.standing_collapses == {}


def test_assessing_writes_what_evaluate_says(copy: Path) -> None:
    model = Model.load(copy)
    written = assess(model, table(), copy)
    run = Run(copy)
    assert run.comparison is not None
    assert run.comparison.rows.keys() == written.rows.keys() == evaluate(model, table(), seed=4).rows.keys()
    assert "trained encoder" in written.rows
    json.loads((copy / "metrics.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    with np.load(copy / "projection.npz") as kept:
        np.testing.assert_allclose(kept["z"], model.embed(table())[kept["rows"]], rtol=1e-5, atol=1e-6)
        assert np.array_equal(kept["labels"], table().labels[kept["rows"]])


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_existing_run_is_not_touched_unasked(copy: Path) -> None:
    before = contents(copy)
    with pytest.raises(InputError) as caught:
        train(table(), RECIPE, copy)
    assert_one_sentence(caught.value, str(copy), "--resume", "--overwrite")
    assert contents(copy) == before


def test_a_folder_of_other_files_is_not_touched_unasked(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for how in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(InputError) as caught:
            train(table(), RECIPE, tmp_path, **how)
        assert_one_sentence(caught.value, str(tmp_path), "other files")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_processes_do_not_write_one_run(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError) as caught:
            train(table(), RECIPE, tmp_path)
        assert_one_sentence(caught.value, str(tmp_path), "another process")
    train(table(), RECIPE, tmp_path)
    assert Run(tmp_path).finished


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match="is a file"):
        train(table(), RECIPE, tmp_path / "run")


def test_a_run_killed_before_it_had_a_recipe_starts_as_if_nothing_were_there(tmp_path: Path) -> None:
    (tmp_path / "source.json").write_text("{}")
    (tmp_path / ".recipe.toml.k1ll3d.partial").write_text("obj")
    train(table(), RECIPE, tmp_path, resume=True)
    assert Run(tmp_path).finished
    assert Run(tmp_path).source.data == "made up"


def test_overwriting_leaves_nothing_of_the_old_run(copy: Path) -> None:
    assess(Model.load(copy), table(), copy)
    (copy / "report.html").write_text("old")
    changed = replace(RECIPE, steps=11, objective="infonce")
    _, fitted = train(table(), changed, copy, overwrite=True, reporter=Signaller(10))
    assert fitted.interrupted
    assert not Run(copy).finished, "the old model is not the new run's"
    for stale in ("metrics.json", "report.html", "projection.npz"):
        assert not (copy / stale).exists()
    assert [row["step"] for row in Run(copy).log] == [0]
    train(table(), changed, copy, resume=True)
    assert Run(copy).recipe.objective == "infonce"
    assert Run(copy).finished


def test_an_interrupted_run_has_no_model_and_resumes_to_the_same_one(
    finished: tuple[Model, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    _, fitted = train(table(), RECIPE, folder, reporter=Signaller(5))
    assert fitted.interrupted
    with pytest.raises(CheckpointError, match="finished model"):
        Model.load(folder)
    train(table(), RECIPE, folder, resume=True)
    assert (folder / "model.safetensors").read_bytes() == (finished[1] / "model.safetensors").read_bytes()
    assert without_time(read_log(folder / "log.jsonl")) == without_time(read_log(finished[1] / "log.jsonl"))


def test_resuming_a_finished_run_changes_no_number(copy: Path) -> None:
    before = contents(copy)
    _, fitted = train(table(), RECIPE, copy, resume=True)
    assert fitted.steps == 12
    after = contents(copy)
    assert after.keys() == before.keys()
    for path in (copy / "model.safetensors", copy / "log.jsonl", copy / "recipe.toml"):
        assert after[path] == before[path]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 5}, ("seed = 4", "5")),
        ({"objective": "nce"}, ("objective = snl", "nce")),
        ({"dim": 2}, ("dim = 3", "2")),
        ({"hidden": (4,)}, ("hidden", "[10]", "[4]")),
        ({"energy": "cosine"}, ("energy = euclidean", "cosine")),
        ({"noise": 0.2}, ("noise = 0.25", "0.2")),
        ({"clip_norm": 2.0}, ("clip_norm = 1.0", "2.0")),
    ],
)
def test_resuming_with_another_recipe_is_refused(copy: Path, change: dict[str, Any], named: tuple[str, ...]) -> None:
    before = contents(copy)
    with pytest.raises(CheckpointError) as caught:
        train(table(), replace(RECIPE, **change), copy, resume=True)
    assert_one_sentence(caught.value, *named)
    assert contents(copy) == before


def test_resuming_on_other_data_is_refused(copy: Path) -> None:
    for other in (table(seed=9), table(n=41), table(d=4)):
        before = contents(copy)
        with pytest.raises(CheckpointError) as caught:
            train(other, RECIPE, copy, resume=True)
        assert_one_sentence(caught.value)
        assert contents(copy) == before


def test_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Run(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is not a run"):
        Run(tmp_path)


@pytest.mark.parametrize("objective", CLUSTERING_OBJECTIVES)
def test_clusterings_are_assessed(objective: str, tmp_path: Path) -> None:
    """Those that remember rows have no loss to compare outside of training."""
    model, _ = train(table(), replace(RECIPE, objective=objective), tmp_path)
    comparison = assess(model, table(), tmp_path)
    assert (comparison.loss is None) == (objective in WITH_MEMORY)
    assert Run(tmp_path).comparison == comparison
    assert examine(Run(tmp_path)).loss == comparison.loss


def test_more_clusters_than_rows_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="40 rows cannot be cut into 41 clusters"):
        train(table(), replace(RECIPE, objective="deepcluster", clusters=41), tmp_path / "run")
    train(table(), replace(RECIPE, objective="deepcluster", clusters=4), tmp_path / "run")


def test_tables_that_teach_nothing_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    constant = load(np.ones((5, 3)))
    for bad in (constant, replace(table(), features=table().features[:1], labels=None)):
        with pytest.raises(InputError):
            train(bad, RECIPE, tmp_path / "run")
    assert not (tmp_path / "run").exists()
