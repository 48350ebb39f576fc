"""`probssl runs`, `probssl export`, and runs that begin with another one's weights."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from probssl.data import load
from probssl.model import Model
from probssl.runs import Run
from tests.cli.shell import document, refusal, succeed


def test_a_list_of_runs_breaks_names_behind_signs_only(run, collapsed, scratch):
    named = "analcatdata_authorship-sliced-fisher-euclidean-and-so-on-2"
    shutil.copytree(run, scratch / named)
    shutil.copytree(collapsed[0], scratch / "bad")
    shutil.copytree(run, scratch / "missing")
    recipe = scratch / "missing" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('"infonce"', '"huber"'))
    lines = succeed("runs", scratch).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    pieces = [piece for piece in (line.split(" ")[0] for line in lines) if piece and piece in named]
    assert "".join(pieces) == named
    assert len(pieces) > 1
    assert all(piece.endswith(("-", "_")) for piece in pieces[:-1])
    verdicts = {line["folder"].split("/")[-1]: line["verdict"] for line in document("runs", scratch)["runs"]}
    assert verdicts == {named: "healthy", "bad": "representation collapse", "missing": "part missing"}
    assert "there is no objective 'huber'" in " ".join(lines), "which one"
    assert all(word in " ".join(lines) for word in ("healthy", "representation", "part missing"))


def test_listing_and_pruning(run, collapsed, copy, table, scratch):
    shutil.move(copy, scratch / "good")
    shutil.copytree(collapsed[0], scratch / "bad")
    shutil.copytree(run, scratch / "stopped")
    (scratch / "stopped" / "model.safetensors").unlink()
    shutil.copytree(run, scratch / "broken")
    (scratch / "broken" / "recipe.toml").write_text("steps = 3")
    found = {line["folder"].split("/")[-1]: line for line in document("runs", scratch)["runs"]}
    states = {name: line["state"] for name, line in found.items()}
    assert states == {"good": "finished", "bad": "collapsed", "stopped": "stopped", "broken": "unreadable"}
    assert (found["good"]["step"], found["good"]["title"]) == (30, "infonce · euclidean")
    assert found["good"]["metrics"]["linear_probe"] == Run(run).comparison.rows["trained encoder"]["linear_probe"]
    assert found["good"]["size"] > 0
    shown = succeed("runs", scratch).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "no 'steps'" in " ".join(shown.split()), "why the broken one is unreadable"
    assert all(name in shown for name in (*states, "healthy", "stopped", "unreadable", "probe", "RankMe"))
    freed = document("runs", scratch, "--prune")["freed"]
    assert freed == found["good"]["size"] + found["bad"]["size"]
    assert "deleted 0.0 MB" in succeed("runs", scratch, "--prune").stdout
    assert list((scratch / "stopped" / "checkpoints").glob("step-*")), "it is still to be resumed"
    assert not list((scratch / "good" / "checkpoints").glob("step-*"))
    assert document("embed", scratch / "good", table, "--out", "z.npy")["rows"] == 60
    assert "no checkpoint to resume from" in refusal("fit", "--resume", "--out", scratch / "good", "--steps", 40)


def test_what_is_no_folder_of_runs(table, scratch):
    assert "runs is not a folder" in refusal("runs")
    (scratch / "empty").mkdir()
    assert succeed("runs", "empty").stdout == "no runs here\n"
    assert document("runs", "empty") == {"runs": []}
    assert "is not a folder" in refusal("runs", table)


def test_onnx_gives_the_same_representations(run, table, scratch):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    told = document("export", run, "--out", "net.onnx")
    assert told == {"out": "net.onnx", "columns": "net.onnx.json"}
    assert json.loads((scratch / "net.onnx.json").read_text()) == {
        "shape": [4],
        "columns": ["a", "b", "c", "d"],
        "dtype": "float64",
        "dim": 2,
    }
    rows = pd.read_csv(table)[["a", "b", "c", "d"]].to_numpy()
    expected = Model.load(run).embed(rows)
    session = onnxruntime.InferenceSession("net.onnx")
    for count in (1, 7, len(rows)):
        (z,) = session.run(None, {"x": rows[:count]})
        np.testing.assert_allclose(z, expected[:count], rtol=1e-5, atol=1e-6)
    assert "net.onnx exists" in refusal("export", run, "--out", "net.onnx")
    assert succeed("export", run, "--out", "net.onnx", "--overwrite").stderr == ""


def test_torch_export_gives_the_same_representations(run, table):
    succeed("export", run, "--to", "torch", "--out", "net.pt2")
    rows = torch.from_numpy(pd.read_csv(table)[["a", "b", "c", "d"]].to_numpy())
    module = torch.export.load("net.pt2").module()
    for count in (1, 60):
        expected = Model.load(run).embed(rows[:count].numpy())
        np.testing.assert_allclose(module(rows[:count]).detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    said = refusal("export", run, "--to", "tflite", "--out", "net.tflite")
    assert all(word in said for word in ("onnx", "torch", "'tflite'"))


def test_starting_from_another_run(run, table):
    begun = ["fit", table, "--label", "kind", "--from", run]
    document(*begun, "--steps", 1, "--lr", "1e-9", "--out", "next", "--evaluate", "none")
    before, after = (Run(folder) for folder in (run, "next"))
    assert after.recipe.plan["lr"] == 1e-9
    for name, tensor in before.model.encoder.state_dict().items():
        torch.testing.assert_close(after.model.encoder.state_dict()[name], tensor, atol=1e-6, rtol=0)
    np.testing.assert_array_equal(after.model.preparation.scaling.mean, before.model.preparation.scaling.mean)
    assert "do not fit" in refusal(*begun, "--steps", 1, "--dim", 3)


def test_weights_from_a_file(run, table, scratch):
    tensors = load_file(run / "model.safetensors")
    mine = {name.removeprefix("encoder."): value for name, value in tensors.items() if name.startswith("encoder.")}
    save_file(mine, "mine.safetensors")
    begun = ["fit", table, "--label", "kind", "--weights", "mine.safetensors", "--steps", 3, "--evaluate", "none"]
    frozen = ["--set", 'plan.freeze=["0"]']
    succeed(*begun, *frozen, "--out", "next", "-q")
    found = Run("next").model.encoder.state_dict()
    assert found["0.weight"].equal(mine["0.weight"])
    assert not found["2.weight"].equal(mine["2.weight"])
    assert "do not fit the encoder" in refusal(*begun, "--dim", 3)
    (scratch / "mine.safetensors").write_text("no")
    assert "cannot be read as a safetensors file" in refusal(*begun)


def test_older_files_are_refused_in_one_sentence(copy, table):
    from probssl.training.files import load_tensors, save_tensors

    path = copy / "model.safetensors"
    tensors, metadata = load_tensors(path)
    save_tensors(path, tensors, {**metadata, "format": 1, "probssl": "0.0.9"})
    for command in (["embed", copy, table, "--out", "z.npy"], ["evaluate", copy], ["export", copy, "--out", "n.onnx"]):
        assert "was written by an older probssl (0.0.9)" in refusal(*command)
    path.unlink()
    (copy / "recipe.toml").write_text('objective = "snl"\nsteps = 3\n')
    for command in (["doctor", copy], ["report", copy], ["fit", "--resume", "--out", copy]):
        assert "older probssl" in refusal(*command)


def test_names_are_text_and_no_emoji(scratch):
    """`:a:` and [red] are what people call things, and a terminal shows them so."""
    for command in (["embed", "pmlb:adult:", "[red]x", "--out", "z.npy"], ["doctor", "pmlb:adult:[b]"]):
        said = refusal(*command)
        assert "pmlb:adult:" in said
    rows = load("sklearn:iris").features[:20]
    pd.DataFrame(rows, columns=["a", "b", ":cat:", "[d]"]).to_csv("pmlb:cat:.csv", index=False)
    shown = succeed("fit", "pmlb:cat:.csv", "--steps", 2, "--out", "r[b]:cat:")
    assert "pmlb:cat:.csv" in shown.stdout
    assert "r[b]:cat:" in shown.stdout
    assert "r[b]:cat:" in succeed("runs", ".").stdout
