"""Files: damage is named, what was there before survives, and a checkpoint goes only where it belongs."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from probssl.encoders import MLP
from probssl.energies import Cosine, Euclidean
from probssl.errors import CheckpointError, DiskFull
from probssl.files import atomic_path, write_text
from probssl.objectives import SNL, InfoNCE
from probssl.pairings import MaskAndNoise
from probssl.training.checkpoints import CheckpointFolder
from probssl.training.files import fingerprint, load_tensors, save_tensors

from .parts import DIM, FEATURES, Signaller, Training, assert_one_sentence, assert_same_weights, rows, training

CASE = "snl-adam-clip-own-rate-batch-norm"

# Round trips


def test_round_trip_keeps_every_bit(tmp_path: Path) -> None:
    tensors = {
        "single": torch.randn(3, 4),
        "double": torch.randn(2, dtype=torch.float64),
        "half": torch.randn(5).bfloat16(),
        "whole": torch.tensor(7),
        "flags": torch.tensor([True, False]),
        "nothing": torch.zeros(0, 3),
        "odd": torch.tensor([float("inf"), float("nan"), -0.0]),
        "strided": torch.randn(4, 3).T,
    }
    metadata = {"words": "größer", "number": 0.1, "list": [1, None]}
    save_tensors(tmp_path / "deep" / "file.safetensors", tensors, metadata)
    loaded, told = load_tensors(tmp_path / "deep" / "file.safetensors")
    assert told == metadata
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(
            loaded[name].contiguous().reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)
        )
    assert stat.S_IMODE((tmp_path / "deep" / "file.safetensors").stat().st_mode) == 0o644


def test_loaded_tensors_outlive_their_file(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    save_tensors(path, {"a": torch.arange(1000.0)}, {})
    loaded, _ = load_tensors(path)
    path.write_bytes(b"")  # a map of the file would now be gone
    assert torch.equal(loaded["a"], torch.arange(1000.0))


def test_fingerprints_tell_values_types_and_shapes_apart() -> None:
    x = torch.zeros(2, 3)
    others = [x.double(), x.reshape(3, 2), torch.full((2, 3), -0.0), x.T]
    assert len({fingerprint(tensor) for tensor in [x, *others]}) == 4
    assert fingerprint(x.clone()) == fingerprint(x)


# Damage


def flip(at: Callable[[bytes], int]) -> Callable[[bytes], bytes]:
    def damaged(content: bytes) -> bytes:
        position = at(content)
        return content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :]

    return damaged


def header_length(content: bytes) -> int:
    return int.from_bytes(content[:8], "little")


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "three bytes": lambda content: content[:3],
    "header alone": lambda content: content[: 8 + header_length(content)],
    "half": lambda content: content[: len(content) // 2],
    "last byte missing": lambda content: content[:-1],
    "a byte too many": lambda content: content + b"\0",
    "flip in the last tensor": flip(lambda content: len(content) - 1),
    "flip in the first tensor": flip(lambda content: 8 + header_length(content)),
    "flip in the length": flip(lambda content: 1),
    "flip in a tensor's name": flip(lambda content: content.index(b"encoder.0.weight")),
    "flip in an offset": flip(lambda content: content.index(b"data_offsets") + 16),
    "flip in the metadata": flip(lambda content: content.index(b"objective_lr")),
    "metadata edited": lambda content: content.replace(b'\\"seed\\": 3', b'\\"seed\\": 4'),
    "checksum edited": flip(lambda content: content.index(b'"probssl"') + 14),
    "zeros": lambda content: bytes(len(content)),
    "an image": lambda content: b"\x89PNG\r\n\x1a\n" + bytes(64),
    "text": lambda content: b"step,loss\n1,0.5\n",
    "a file of another program": lambda content: safetensors.torch.save({"encoder.0.weight": torch.zeros(2)}),
    "another program's metadata": lambda content: safetensors.torch.save({"a": torch.zeros(2)}, {"format": "pt"}),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped at step 17, with checkpoints of steps 15 and 17."""
    folder = tmp_path_factory.mktemp("stopped")
    training(CASE).run(folder, reporter=Signaller(17))
    return folder


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


@pytest.fixture(scope="module")
def whole() -> Training:
    one = training(CASE)
    one.run()
    return one


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_the_checkpoint_before_still_serves(damage: str, run: Path, whole: Training) -> None:
    newest = run / "checkpoints" / "step-00000017.safetensors"
    content = newest.read_bytes()
    damaged = DAMAGES[damage](content)
    assert damaged != content
    newest.write_bytes(damaged)
    log = (run / "log.jsonl").read_bytes()
    one = training(CASE)
    before = one.weights()
    with pytest.raises(CheckpointError) as caught:
        one.run(run, resume=True)
    assert_one_sentence(caught.value, str(newest), "step-00000015.safetensors")
    assert_same_weights(one.weights(), before)
    assert newest.read_bytes() == damaged, "a damaged file is evidence"
    assert (run / "log.jsonl").read_bytes() == log
    newest.unlink()
    again = training(CASE)
    again.run(run, resume=True)
    assert_same_weights(again.weights(), whole.weights())


def test_when_the_only_checkpoint_is_damaged_the_way_out_is_to_start_again(run: Path) -> None:
    (run / "checkpoints" / "step-00000015.safetensors").unlink()
    newest = run / "checkpoints" / "step-00000017.safetensors"
    newest.write_bytes(newest.read_bytes()[:100])
    with pytest.raises(CheckpointError) as caught:
        training(CASE).run(run, resume=True)
    assert_one_sentence(caught.value, str(newest), "start again")


def test_no_single_byte_can_change_unnoticed(tmp_path: Path) -> None:
    path, copy = tmp_path / "file.safetensors", tmp_path / "copy.safetensors"
    save_tensors(
        path, {"a": torch.randn(3, 2), "b": torch.tensor(1), "c": torch.zeros(0)}, {"step": 3, "x": {"y": 1.5}}
    )
    content = path.read_bytes()
    for position in range(len(content)):
        copy.write_bytes(
            content[:position] + bytes([content[position] ^ (1 << position % 8)]) + content[position + 1 :]
        )
        with pytest.raises(CheckpointError):
            load_tensors(copy)
    for length in range(0, len(content), 7):
        copy.write_bytes(content[:length])
        with pytest.raises(CheckpointError) as caught:
            load_tensors(copy)
        assert_one_sentence(caught.value, str(copy))


def test_a_missing_file_and_a_file_that_is_no_checkpoint(run: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        load_tensors(run / "nowhere.safetensors")
    intruder = run / "checkpoints" / "step-00000099.safetensors"
    save_tensors(intruder, {}, {"recipe": {}})
    with pytest.raises(CheckpointError) as caught:
        training(CASE).run(run, resume=True)
    assert_one_sentence(caught.value, str(intruder), "not a checkpoint")


def test_a_log_that_was_cut_in_a_line_is_mended(run: Path, whole: Training) -> None:
    log = run / "log.jsonl"
    with log.open("a") as file:
        file.write('{"step": 18, "seconds": 0.0')
    one = training(CASE)
    fitted = one.run(run, resume=True)
    steps = [row["step"] for row in fitted.history]
    assert steps == list(range(0, 25, 2))
    assert_same_weights(one.weights(), whole.weights())


# Keeping and writing


def test_exactly_the_newest_two_are_kept(tmp_path: Path) -> None:
    seen = []

    class Spy(Signaller):
        def advance(self, step: int) -> None:
            seen.append([int(path.stem[5:]) for path in CheckpointFolder(tmp_path / "checkpoints").paths()])

    training(checkpoint_every=3).run(tmp_path, reporter=Spy(-1))
    assert seen[1] == [0]
    assert seen[3] == [0, 3]
    assert all(len(kept) == 2 for kept in seen[4:])
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-00000021.safetensors",
        "step-00000024.safetensors",
    ]


def test_half_files_of_a_killed_run_are_swept_and_break_nothing(run: Path, whole: Training) -> None:
    stale = [
        run / "checkpoints" / ".step-00000018.safetensors.0123456789ab.partial",
        run / ".log.jsonl.ba9876543210.partial",
    ]
    for path in stale:
        path.write_bytes(b"half a f")
    one = training(CASE)
    one.run(run, resume=True)
    assert_same_weights(one.weights(), whole.weights())
    assert not any(path.exists() for path in stale)


@pytest.mark.parametrize("moment", ["in the block", "in fsync", "in replace"])
def test_a_failing_write_leaves_the_old_file(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.safetensors"
    save_tensors(path, {"a": torch.ones(3)}, {"step": 1})
    write_text(tmp_path / "text", "old")

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    if moment == "in the block":
        monkeypatch.setattr(safetensors.torch, "save_file", full)
        monkeypatch.setattr(Path, "write_text", full)
    else:
        monkeypatch.setattr(os, moment.removeprefix("in "), full)
    with pytest.raises(DiskFull, match=r"has no room for file\.safetensors, which takes 23 bytes .*: make room"):
        save_tensors(path, {"a": torch.zeros(3)}, {"step": 2})
    with pytest.raises(DiskFull, match="has no room for text"):
        write_text(tmp_path / "text", "new")
    monkeypatch.undo()
    assert torch.equal(load_tensors(path)[0]["a"], torch.ones(3))
    assert (tmp_path / "text").read_text() == "old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file.safetensors", "text"]


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "text", "old")

    def interrupted() -> None:
        with atomic_path(tmp_path / "text") as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "text").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


# Whose checkpoint it is


def other(**parts: Any) -> Callable[[], Training]:
    return lambda: replace(training(), **parts)


def other_data() -> Training:
    data = rows()
    data[3, 2] += 1e-6
    return training(data=data)


REFUSALS: dict[str, tuple[Callable[[], Training], tuple[str, ...]]] = {
    "seed": (lambda: training(seed=4), ("seed = 3", "seed = 4")),
    "fewer steps": (lambda: training(steps=20), ("steps = 24", "steps = 20")),
    "learning rate": (lambda: training(lr=0.02), ("lr", "0.01", "0.02")),
    "own learning rate": (lambda: training(objective_lr=0.02), ("objective_lr", "None", "0.02")),
    "batch size": (lambda: training(batch_size=21), ("batch_size",)),
    "optimiser": (lambda: training(optimiser="adamw"), ("adam", "adamw")),
    "weight decay": (lambda: training(weight_decay=0.1), ("weight_decay",)),
    "warm-up": (lambda: training(warmup=5), ("warmup",)),
    "annealing": (lambda: training(anneal="constant"), ("anneal",)),
    "clipping": (lambda: training(clip_norm=1.0), ("clip_norm",)),
    "data": (other_data, ("data",)),
    "data type": (lambda: training(data=rows().double()), ("data",)),
    "rows": (lambda: training(data=rows(65)), ("rows = 64", "rows = 65")),
    "objective": (other(objective=SNL(Cosine()).bind(dim=DIM)), ("objective", "InfoNCE", "SNL")),
    "objective's settings": (other(objective=InfoNCE(Cosine(), anchor="symmetric")), ("anchor='symmetric'",)),
    "energy": (other(objective=InfoNCE(Euclidean())), ("objective.energy", "Cosine", "Euclidean")),
    "temperature": (other(objective=InfoNCE(Cosine(0.2))), ("temperature=0.1", "temperature=0.2")),
    "augmentation": (other(pairing=MaskAndNoise(0.7, 0.2)), ("pairing.preservation = 0.8", "0.7")),
    "wider encoder": (other(encoder=MLP.of([FEATURES, 13, DIM])), ("encoder", "(6, 12, 4)", "(6, 13, 4)")),
    "deeper encoder": (other(encoder=MLP.of([FEATURES, 12, 12, DIM])), ("encoder", "(6, 12, 12, 4)")),
    "another encoder of the same shape": (
        other(encoder=nn.Sequential(nn.Linear(FEATURES, 12), nn.Tanh(), nn.Linear(12, DIM))),
        ("encoder", "MLP", "Sequential"),
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_resuming_as_another_run_is_refused(what: str, tmp_path: Path) -> None:
    training().run(tmp_path, reporter=Signaller(9))
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    make, named = REFUSALS[what]
    changed = make()
    before = changed.weights()
    with pytest.raises(CheckpointError) as caught:
        changed.run(tmp_path, resume=True)
    assert_one_sentence(caught.value, *named)
    assert_same_weights(changed.weights(), before)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == kept
