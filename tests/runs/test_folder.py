"""Model files and run folders: bit-equal after loading, refused when changed, never executed, never mixed up."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import probssl
from probssl.data import Table, load
from probssl.errors import CheckpointError, InputError, TrainingInterrupted
from probssl.model import Model
from probssl.objectives import InfoNCE
from probssl.parts.registry import KINDS
from probssl.runs import Run, evaluate
from probssl.runs.doctor import examine, verdict
from probssl.runs.workflow import assess
from probssl.training.files import load_tensors, save_tensors
from probssl.training.log import read_log

from ..fitting import recipe, train
from ..parts.test_recipe import names
from ..training.parts import Signaller, assert_one_sentence, assert_same_weights, without_time

OPTIONS: dict[str, Any] = {"objective": "snl", "steps": 12, "batch_size": 16, "dim": 3, "seed": 4}
CLUSTERING = [name for name in names if KINDS["objective"][name].target.startswith("probssl.objectives.clustering")]


def table(n: int = 40, d: int = 5, seed: int = 0, columns: str = "abcdefgh") -> Table:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d)) * rng.uniform(0.5, 20, d) + rng.normal(size=d)
    return Table(
        "made up", features, tuple(columns[:d]), labels=np.arange(n) % 2, classes=("no", "yes"), label_name="answer"
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = train(table(), tmp_path_factory.mktemp("runs") / "run", **OPTIONS)
    assert run.finished
    return run


@pytest.fixture
def copy(finished: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished.folder, tmp_path / "run"))


# Saving and loading


@pytest.mark.parametrize("objective", names)
def test_loading_gives_the_same_bits(objective: str, tmp_path: Path) -> None:
    model = train(table(), tmp_path / "run", **{**OPTIONS, "objective": objective}).model
    loaded = Model.load(tmp_path / "run")
    assert_same_weights(loaded.encoder.state_dict(), model.encoder.state_dict())
    assert_same_weights(loaded.objective.state_dict(), model.objective.state_dict())
    assert np.array_equal(loaded.embed(table(seed=1)), model.embed(table(seed=1)))
    assert loaded.recipe.as_dict() == model.recipe.as_dict()
    assert loaded.feature_names == ("a", "b", "c", "d", "e")
    assert loaded.label_name == "answer"
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "run" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("network", ["resnet8", "resnet18"])
def test_a_network_of_images_is_loaded_in_its_order_in_memory(network: str, tmp_path: Path) -> None:
    images = load(np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8), dtype=np.uint8))
    model = Model.untrained(recipe(encoder=network, width=4, dim=3, objective="byol"), images)
    model.save(tmp_path / "model.safetensors")
    loaded = Model.load(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.embed(images), model.embed(images))
    for part, other in ((model.encoder, loaded.encoder), (model.objective, loaded.objective)):
        strides = [tensor.stride() for tensor in part.state_dict().values()]
        assert strides == [tensor.stride() for tensor in other.state_dict().values()]
    assert not all(weight.is_contiguous() for weight in loaded.encoder.parameters())


def test_embedding_arrays_tables_frames_and_files(finished: Run, tmp_path: Path) -> None:
    model, rows = finished.model, table(seed=1)
    z = model.embed(rows)
    assert z.shape == (40, 3)
    assert z.dtype == np.float32
    assert np.array_equal(model.embed(rows.features), z)
    np.save(tmp_path / "rows.npy", rows.features)
    assert np.array_equal(model.embed(tmp_path / "rows.npy"), z)
    order = [3, 1, 4, 0, 2]
    shuffled = replace(rows, features=rows.features[:, order], columns=tuple("abcde"[i] for i in order))
    assert np.array_equal(model.embed(shuffled), z), "columns are found by name"
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(shuffled.features, columns=shuffled.feature_names, index=[f"r{i}" for i in range(40)])
    embedded = model.embed(frame)
    assert np.array_equal(embedded.to_numpy(), z)
    assert list(embedded.columns) == ["z0", "z1", "z2"]
    assert list(embedded.index) == list(frame.index)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    assert np.allclose(model.embed(str(tmp_path / "rows.csv")), z)


def test_one_module_goes_from_raw_numbers_to_representations(finished: Run) -> None:
    rows = table(seed=1)
    with torch.no_grad():
        z = finished.model.module()(torch.from_numpy(rows.features))
    assert np.array_equal(z.numpy(), finished.model.embed(rows))
    images = load(np.random.default_rng(0).integers(0, 256, (6, 1, 8, 8), dtype=np.uint8))
    model = Model.untrained(recipe(), images)
    with torch.no_grad():
        assert np.allclose(model.module()(torch.from_numpy(images.images)).numpy(), model.embed(images), atol=1e-6)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (np.zeros((3, 4)), ("4 columns", "5")),
        (np.zeros((3, 6)), ("6 columns", "5")),
        (np.zeros(5), ("(5,)",)),
        (np.array([list("abcde")]), ("text",)),
        (table(d=4), ("e",)),
        (table(columns="vwxyz"), ("a",)),
        ("nowhere.csv", ("nowhere.csv",)),
    ],
    ids=lambda value: None,
)
def test_rows_that_do_not_fit_are_refused(finished: Run, bad: Any, named: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        finished.model.embed(bad)
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
    for number, when in ((99, "newer"), (1, "older")):
        save_tensors(tmp_path / "other.safetensors", tensors, {**metadata, "format": number, "probssl": "9.9"})
        with pytest.raises(InputError, match=f"an? {when} probssl"):
            Model.load(tmp_path / "other.safetensors")
    encoder = {**metadata["recipe"]["encoder"], "dim": 4}
    save_tensors(
        tmp_path / "odd.safetensors", tensors, {**metadata, "recipe": {**metadata["recipe"], "encoder": encoder}}
    )
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
        train(table(), copy, resume=True)
    torch.save({"encoder": Bomb(trace)}, copy / "model.safetensors")
    with pytest.raises(CheckpointError):
        Model.load(copy)
    assert not trace.exists()
    pickle.loads((copy / "checkpoints" / "step-00000012.safetensors").read_bytes())
    assert trace.exists(), "the bomb was live"


# Objects in place of names


class Tilted(InfoNCE):
    """InfoNCE, a little more.

    Settings:
        tilt: how much more.
    """

    def __init__(self, tilt: float = 0.1) -> None:
        super().__init__()
        self.tilt = tilt

    def terms(self, encoder: nn.Module, views: Any) -> dict[str, torch.Tensor]:
        found = dict(super().terms(encoder, views))
        return {**found, "tilt": self.tilt * encoder(views.x).square().mean()}


def test_own_objectives_are_opened_again_as_objects_or_by_their_path(tmp_path: Path) -> None:
    train(table(), tmp_path, steps=2, objective=Tilted(0.7))
    for part in (Tilted(0.7), f"{__name__}:Tilted"):
        assert Run(tmp_path, objective=part).model.objective.tilt == 0.7


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3))


def test_a_run_of_own_parts_is_a_whole_run(tmp_path: Path) -> None:
    folder, own = tmp_path / "run", network()
    before = {name: weight.clone() for name, weight in own.state_dict().items()}
    parts: dict[str, Any] = {"objective": Tilted(0.2), "encoder": own}
    options: dict[str, Any] = {"steps": 12, "batch_size": 16, "seed": 2, **parts}
    with pytest.raises(TrainingInterrupted):
        probssl.fit(table(), out=folder, reporter=Signaller(5), **options)
    run = probssl.fit(table(), out=folder, resume=True, **options)
    whole = probssl.fit(table(), out=tmp_path / "whole", evaluate="none", **options)
    assert_same_weights(run.model.encoder.state_dict(), whole.model.encoder.state_dict())
    assert_same_weights(own.state_dict(), before)
    assert run.comparison is not None
    assert run.report.is_file()
    for load_it in (Model.load, lambda path: Run(path).model):
        with pytest.raises(InputError, match="name it again"):
            load_it(folder)
    again = Run(folder, objective=Tilted(), encoder=network())
    assert np.array_equal(again.model.embed(table()), run.model.embed(table()))
    assert examine(again).facts == examine(run).facts
    assert evaluate(again.model, table()).rows.keys() == run.comparison.rows.keys()


class Transformer(nn.Module):
    """Answers as models of Hugging Face do, or as timm's with `num_classes=0`, by what it is asked for."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self.answer, self.patches = answer, nn.Conv2d(3, 6, 4, 4)

    def forward(self, pixel_values: torch.Tensor) -> Any:
        tokens = self.patches(pixel_values).flatten(2).mT  # [n, tokens, 6]
        if self.answer == "timm":
            return tokens.mean(1)
        pooled = tokens.amax(1) if self.answer == "pooled" else None
        return SimpleNamespace(last_hidden_state=tokens, pooler_output=pooled)


@pytest.mark.parametrize("answer", ["timm", "pooled", "hidden"])
def test_networks_of_other_libraries_are_encoders_of_images(answer: str, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 3, 8, 8), dtype=np.uint8)
    options: dict[str, Any] = {"steps": 2, "batch_size": 4, "out": tmp_path / "run", "evaluate": "none"}
    run = probssl.fit(images, encoder=Transformer(answer), **options)
    assert run.model.dim == 6
    assert np.array_equal(
        Run(tmp_path / "run", encoder=Transformer(answer)).model.embed(images), run.model.embed(images)
    )


def test_data_comes_as_arrays_frames_and_torch_data_sets(tmp_path: Path) -> None:
    rows = table()
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows.features, columns=list("abcde")).assign(answer=["n", "y"] * 20)
    pairs = torch.utils.data.TensorDataset(torch.from_numpy(rows.features), torch.from_numpy(rows.labels))
    found = [
        probssl.fit(data, label=label, out=tmp_path / str(number), test=0, evaluate="none", **OPTIONS)
        for number, (data, label) in enumerate([(frame, "answer"), ((rows.features, rows.labels), None), (pairs, None)])
    ]
    for run in found[1:]:
        assert_same_weights(run.model.encoder.state_dict(), found[0].model.encoder.state_dict())
    with pytest.raises(InputError, match="pass it again"):
        Run(tmp_path / "0").data()
    assert len(Run(tmp_path / "0").data(frame)) == 40


# Rows that training never sees


def test_a_fifth_is_kept_from_encoder_scaling_and_pca(tmp_path: Path) -> None:
    run = probssl.fit(table(), out=tmp_path / "run", **OPTIONS)
    kept = run.dataset.rows("train")
    assert len(kept) == 32
    assert np.allclose(run.model.preparation.scaling.mean, table().features[kept].mean(0))
    changed = table()
    changed.features[run.dataset.test] += 7.0
    again = probssl.fit(changed.with_test(0.2, 4), out=tmp_path / "again", evaluate="none", **OPTIONS)
    assert_same_weights(again.model.encoder.state_dict(), run.model.encoder.state_dict())
    assert run.comparison.judged.startswith("8 rows that training never saw, probes fitted on 32")


def test_without_test_rows_numbers_say_what_they_mean(tmp_path: Path) -> None:
    run = probssl.fit(table(), out=tmp_path / "run", test=0, **OPTIONS)
    assert run.dataset.test is None
    assert "splits of 40 rows" in run.comparison.judged


# The folder of a run


def test_a_run_can_be_read_back(finished: Run) -> None:
    run = Run(finished.folder)
    assert run.finished
    assert run.recipe.as_dict() == finished.model.recipe.as_dict()
    assert run.source.data == "made up"
    assert run.source.label == "answer"
    assert [row["step"] for row in run.log] == [0, 12]
    assert np.array_equal(run.model.embed(table()), finished.model.embed(table()))
    assert run.comparison is None
    assert run.collapsed == {}
    assert "snl · euclidean, finished" in repr(run)
    assert repr(run.model) == "Model(snl · euclidean, table of 5 to 3 dimensions)"
    assert "&#x27;name&#x27;: &#x27;snl&#x27;" in run.model._repr_html_()


def test_assessing_writes_what_evaluate_says(copy: Path) -> None:
    model = Model.load(copy)
    written = assess(model, table(), copy)
    run = Run(copy)
    assert run.comparison is not None
    assert run.comparison.rows.keys() == written.rows.keys() == evaluate(model, table(), seed=4).rows.keys()
    assert "trained encoder" in written.rows
    assert "trained encoder" in run._repr_html_()
    json.loads((copy / "metrics.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    with np.load(copy / "projection.npz") as kept:
        np.testing.assert_allclose(kept["z"], model.embed(table())[kept["rows"]], rtol=1e-5, atol=1e-6)
        assert np.array_equal(kept["labels"], table().labels[kept["rows"]])


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_existing_run_is_not_touched_unasked(copy: Path) -> None:
    before = contents(copy)
    with pytest.raises(InputError) as caught:
        train(table(), copy, **OPTIONS)
    assert_one_sentence(caught.value, str(copy), "--resume", "--overwrite")
    assert contents(copy) == before


def test_a_folder_of_other_files_is_not_touched_unasked(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for how in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(InputError) as caught:
            train(table(), tmp_path, **how, **OPTIONS)
        assert_one_sentence(caught.value, str(tmp_path), "other files")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_processes_do_not_write_one_run(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError) as caught:
            train(table(), tmp_path, **OPTIONS)
        assert_one_sentence(caught.value, str(tmp_path), "another process")
    assert train(table(), tmp_path, **OPTIONS).finished


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match="is a file"):
        train(table(), tmp_path / "run", **OPTIONS)


def test_a_run_killed_before_it_had_a_recipe_starts_as_if_nothing_were_there(tmp_path: Path) -> None:
    (tmp_path / "source.json").write_text("{}")
    (tmp_path / ".recipe.toml.k1ll3d.partial").write_text("obj")
    assert train(table(), tmp_path, resume=True, **OPTIONS).finished
    assert Run(tmp_path).source.data == "made up"


def test_overwriting_leaves_nothing_of_the_old_run(copy: Path) -> None:
    assess(Model.load(copy), table(), copy)
    (copy / "report.html").write_text("old")
    changed = {**OPTIONS, "steps": 11, "objective": "infonce"}
    run = train(table(), copy, overwrite=True, reporter=Signaller(10), **changed)
    assert not run.finished, "the old model is not the new run's"
    for stale in ("metrics.json", "report.html", "projection.npz"):
        assert not (copy / stale).exists()
    assert [row["step"] for row in Run(copy).log] == [0]
    again = train(table(), copy, resume=True)
    assert again.recipe.objective.name == "infonce"
    assert again.finished


def test_an_interrupted_run_has_no_model_and_resumes_to_the_same_one(finished: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert not train(table(), folder, reporter=Signaller(5), **OPTIONS).finished
    with pytest.raises(CheckpointError, match="finished model"):
        Model.load(folder)
    train(table(), folder, resume=True)
    assert (folder / "model.safetensors").read_bytes() == (finished.folder / "model.safetensors").read_bytes()
    assert without_time(read_log(folder / "log.jsonl")) == without_time(read_log(finished.folder / "log.jsonl"))


def test_resuming_a_finished_run_changes_no_number(copy: Path) -> None:
    before = contents(copy)
    assert train(table(), copy, resume=True).step == 12
    after = contents(copy)
    assert after.keys() - before.keys() <= {copy / "report.html"}
    for path in (copy / "model.safetensors", copy / "log.jsonl", copy / "recipe.toml"):
        assert after[path] == before[path]


def test_a_finished_run_can_be_extended(copy: Path) -> None:
    run = probssl.fit(table(), out=copy, resume=True, steps=20, evaluate="none")
    assert (run.step, run.steps) == (20, 20)
    (event,) = [row for row in run.log if row.get("event") == "extension"]
    assert event["step"] == 12
    assert "from 12 to 20 steps" in event["message"]
    with pytest.raises(CheckpointError, match=r"plan\.steps = 20"):
        probssl.fit(table(), out=copy, resume=True, steps=15, evaluate="none")


def test_an_interrupted_extension_leaves_no_model_of_fewer_steps(copy: Path) -> None:
    with pytest.raises(TrainingInterrupted):
        probssl.fit(table(), out=copy, resume=True, steps=20, evaluate="none", reporter=Signaller(15))
    run = Run(copy)
    assert (run.finished, run.steps, run.comparison, verdict(run)) == (False, 20, None, "stopped")
    assert probssl.fit(table(), out=copy, resume=True, evaluate="none").step == 20


def test_training_starts_from_another_run(finished: Run, tmp_path: Path) -> None:
    other = table(n=50, seed=3)
    run = probssl.fit(
        other, start_from=finished.folder, out=tmp_path / "run", steps=1, lr=1e-9, evaluate="none", test=0
    )
    assert run.recipe.objective.name == "snl"
    assert np.allclose(run.model.embed(other), finished.model.embed(other), atol=1e-5)
    assert np.array_equal(run.model.preparation.scaling.mean, finished.model.preparation.scaling.mean)


def test_weights_come_from_a_file_and_layers_stay_frozen(tmp_path: Path) -> None:
    import safetensors.torch

    given = network()
    safetensors.torch.save_file(given.state_dict(), tmp_path / "weights.safetensors")
    run = probssl.fit(
        table(),
        encoder=network(),
        weights=tmp_path / "weights.safetensors",
        settings={"plan.freeze": 0},
        out=tmp_path / "run",
        evaluate="none",
        steps=5,
    )
    trained = run.model.encoder.state_dict()
    assert torch.equal(trained["0.weight"], given.state_dict()["0.weight"])
    assert not torch.equal(trained["2.weight"], given.state_dict()["2.weight"])
    safetensors.torch.save_file({"other": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="do not fit the encoder"):
        probssl.fit(table(), encoder=network(), weights=tmp_path / "other.safetensors", out=tmp_path / "no")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 5}, ("seed = 4", "5")),
        ({"objective": "nce"}, ("objective.name = snl", "nce")),
        ({"dim": 2}, ("encoder.dim = 3", "2")),
        ({"settings": {"encoder.hidden": [4]}}, ("encoder.hidden", "[10]", "[4]")),
        ({"energy": "cosine"}, ("energy.name = euclidean", "cosine")),
        ({"settings": {"pairing.noise": 0.2}}, ("pairing.noise = 0.25", "0.2")),
        ({"settings": {"plan.clip_norm": 2.0}}, ("plan.clip_norm = 1.0", "2.0")),
    ],
)
def test_resuming_with_another_recipe_is_refused(copy: Path, change: dict[str, Any], named: tuple[str, ...]) -> None:
    before = contents(copy)
    with pytest.raises(CheckpointError) as caught:
        probssl.fit(table(), out=copy, resume=True, **change)
    assert_one_sentence(caught.value, *named)
    assert contents(copy) == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"settings": {"plan.steps": 3}}, ("steps is 12 and plan.steps is 3",)),
        ({"settings": {"encoder.dim": 4}}, ("dim is 3 and encoder.dim is 4",)),
        ({"reporter": print}, ("training.Reporter",)),
        ({"settings": {"plan.freeze": ["typo"]}}, ("'typo'",)),
        ({"pairing": "simclr-cifar"}, ("simclr-cifar is for images", "a table of 5 columns")),
    ],
)
def test_choices_that_contradict_each_other_leave_nothing_behind(
    change: dict[str, Any], named: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        probssl.fit(table(), out=tmp_path / "out", **OPTIONS, **change)
    assert_one_sentence(caught.value, *named)
    assert not (tmp_path / "out").exists()


def test_numbers_may_be_said_twice_and_be_those_of_numpy(tmp_path: Path) -> None:
    options = {"steps": np.int64(3), "dim": np.int64(3), "seed": np.int64(4), "test": np.float32(0.25)}
    options["settings"] = {"plan.steps": 3}
    run = probssl.fit(table(), **options, evaluate="none", out=tmp_path)
    told = Run(tmp_path).recipe.as_dict()
    assert (run.step, told["seed"], told["plan"]["steps"], told["encoder"]["dim"]) == (3, 4, 3, 3)


def test_resuming_on_other_data_is_refused(copy: Path) -> None:
    for other in (table(seed=9), table(n=41), table(d=4)):
        before = contents(copy)
        with pytest.raises(CheckpointError) as caught:
            train(other, copy, resume=True)
        assert_one_sentence(caught.value)
        assert contents(copy) == before


def test_data_that_has_moved_is_found_again(tmp_path: Path) -> None:
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    np.savetxt(here, table().features, delimiter=",", header="a,b,c,d,e", comments="")
    run = train(str(here), tmp_path / "run", **OPTIONS)
    here.rename(there)
    with pytest.raises(InputError, match="--data"):
        Run(run.folder).data()
    np.savetxt(here, table(seed=1).features, delimiter=",", header="a,b,c,d,e", comments="")
    with pytest.raises(InputError, match="is not the data"):
        Run(run.folder).data(here)
    assert len(Run(run.folder).data(there)) == 40
    assert Run(run.folder).source.data == str(there)


def test_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Run(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is not a run"):
        Run(tmp_path)
    (tmp_path / "recipe.toml").write_text('objective = "infonce"\nenergy = "euclidean"\ntemperature = 0.1\n')
    with pytest.raises(InputError, match=r"recipe.toml.*'temperature'"):
        _ = Run(tmp_path).recipe


@pytest.mark.parametrize("name", ["source.json", "metrics.json"])
@pytest.mark.parametrize("content", ["", "[]", "{", '{"rows": 3}', "null"])
def test_damaged_files_are_named(copy: Path, name: str, content: str) -> None:
    assess(Model.load(copy), table(), copy)
    (copy / name).write_text(content)
    with pytest.raises(InputError) as error:
        getattr(Run(copy), "source" if name == "source.json" else "comparison")
    assert_one_sentence(error.value, name, "damaged")


@pytest.mark.parametrize("objective", ["swav", "deepcluster", "instance", "gedi"])
def test_clusterings_are_assessed(objective: str, tmp_path: Path) -> None:
    """Those that remember rows have no loss to compare outside of training."""
    run = train(table(), tmp_path, **{**OPTIONS, "objective": objective})
    comparison = assess(run.model, table(), tmp_path)
    assert (comparison.loss is None) == run.model.objective.needs.index
    assert Run(tmp_path).comparison == comparison
    assert examine(Run(tmp_path)).loss == comparison.loss


def test_more_clusters_than_rows_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    options = {**OPTIONS, "objective": "deepcluster"}
    with pytest.raises(InputError, match="40 rows cannot form 41 clusters"):
        train(table(), tmp_path / "run", **options, clusters=41)
    assert not (tmp_path / "run").exists()


def test_tables_that_teach_nothing_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    constant = load(np.ones((5, 3)))
    for bad in (constant, table().take(np.array([0]))):
        with pytest.raises(InputError):
            train(bad, tmp_path / "run", **OPTIONS)
    assert not (tmp_path / "run").exists()
