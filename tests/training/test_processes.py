"""Several processes train what one would: losses, gradients, memory, checkpoints, and how they stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch

from probssl.training.files import load_tensors
from probssl.training.log import read_log

from .crew import cases
from .parts import assert_same_weights
from .test_resume import ROOT, environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")

TOLERANCE = 1e-9
CASES = [pytest.param(size, case.name, id=f"{size}-{case.name}") for size in (2, 4) for case in cases(size)]


class Crew:
    """Starts processes that work together, and returns what each of them says."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.orders = folder, 0

    @cached_property
    def server(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.training.crew"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )

    def do(self, job: str, processes: int, **order: Any) -> list[dict[str, Any]]:
        """`value` or `error` of each process."""
        self.orders += 1
        answers = self.folder / str(self.orders)
        answers.mkdir()
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        order |= {"job": job, "processes": processes, "answers": str(answers)}
        self.server.stdin.write(json.dumps(order, default=str) + "\n")
        self.server.stdin.flush()
        codes = json.loads(self.server.stdout.readline())
        assert codes == [0] * processes, f"processes ended with {codes}"
        return [json.loads((answers / f"{rank}.json").read_text()) for rank in range(processes)]

    def train(self, processes: int, **order: Any) -> list[dict[str, Any]]:
        """How a training ended, in each process."""
        answers = self.do("train", processes, **order)
        assert all("value" in answer for answer in answers), answers[0].get("trace")
        return [answer["value"] for answer in answers]


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    crew = Crew(tmp_path_factory.mktemp("crew"))
    yield crew
    if "server" in vars(crew):
        assert crew.server.stdin is not None
        crew.server.stdin.close()
        crew.server.wait(100)


@pytest.fixture(scope="module")
def gaps(crew: Crew, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, float]]]:
    """For each number of processes and each case, how far it is from one process; found once for all test workers."""
    import fcntl

    several = "PYTEST_XDIST_WORKER" in os.environ
    folder = tmp_path_factory.getbasetemp().parent if several else tmp_path_factory.mktemp("gaps")
    with (folder / "gaps.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "gaps.json").exists():
            answers = {size: crew.do("compare", size)[0] for size in (2, 4)}
            (folder / "gaps.json").write_text(json.dumps(answers))
    answers = json.loads((folder / "gaps.json").read_text())
    for answer in answers.values():
        assert "value" in answer, answer["trace"]
    return {size: answer["value"] for size, answer in answers.items()}


# One loss


@pytest.mark.parametrize(("size", "name"), CASES)
def test_loss_gradients_and_memory_are_those_of_one_process(
    gaps: dict[str, dict[str, dict[str, float]]], size: int, name: str
) -> None:
    found = gaps[str(size)][name]
    assert found["loss"] < TOLERANCE
    assert found["gradient"] < TOLERANCE
    assert found["memory"] < TOLERANCE


def test_a_gather_without_gradients_is_found_out(crew: Crew) -> None:
    names = ["infonce-batch-None-augmented-cosine", "vicreg-augmented", "swav-augmented", "nce-original-cosine"]
    found = crew.do("compare", 2, wrong=True, only=names)[0]["value"]
    assert sorted(found) == sorted(names)
    for gap in found.values():
        assert gap["loss"] < TOLERANCE, "it is the gradient that tells"
        assert gap["gradient"] > 0.1


# Whole trainings


def weights(folder: Path, processes: int) -> dict[str, torch.Tensor]:
    """The weights that all processes ended with."""
    found = [torch.load(folder / f"weights-{rank}.pt") for rank in range(processes)]
    for other in found[1:]:
        assert_same_weights(found[0], other)
    return found[0]


@pytest.mark.parametrize(
    "case", ["simsiam-sgd-dropout-batch-norm", "gedi-adam-dropout", "fisher-sgd", "infonce-adam-residual"]
)
def test_resuming_with_as_many_changes_nothing(crew: Crew, case: str, tmp_path: Path) -> None:
    (whole, _) = crew.train(2, case=case, out=tmp_path / "whole", different="weights")
    for ended in crew.train(2, case=case, out=tmp_path / "parts", stop=7):  # a bell that one of them hears stops both
        assert ended["interrupted"]
        assert ended["steps"] == 7
    (one, other) = crew.train(2, case=case, out=tmp_path / "parts", resume=True)
    assert one == other
    assert one["history"] == whole["history"]
    assert_same_weights(weights(tmp_path / "parts", 2), weights(tmp_path / "whole", 2))
    files = [tmp_path / run / "checkpoints/step-00000024.safetensors" for run in ("whole", "parts")]
    assert_same_weights(*(load_tensors(file)[0] for file in files))


def test_processes_come_and_go(crew: Crew, tmp_path: Path) -> None:
    for processes, stop in ((2, 6), (1, 13), (4, 17), (2, 24)):
        ended = crew.train(processes, case="nce-adamw-dropout", out=tmp_path, resume=True, stop=stop)
        assert {one["steps"] for one in ended} == {stop}
        kept, _ = load_tensors(tmp_path / f"checkpoints/step-{stop:08d}.safetensors")
        found = weights(tmp_path, processes)
        assert_same_weights({name: kept[name] for name in found}, found)
        assert sum(name.startswith("random.augmentations") for name in kept) == processes
    assert [row["step"] for row in read_log(tmp_path / "log.jsonl")] == list(range(0, 25, 2))


@pytest.mark.parametrize("case", ["infonce-adam", "infonce-adam-residual", "snl-adam-clip-own-rate-batch-norm"])
def test_in_a_world_the_number_of_processes_does_not_matter(crew: Crew, case: str, tmp_path: Path) -> None:
    """All draw the same there, so that a run of two, one and four processes is that of one."""
    order = {"case": case, "world": True}
    (whole,) = crew.train(1, **order, out=tmp_path / "whole")
    for processes, stop in ((2, 6), (1, 13), (4, None)):
        ended = crew.train(processes, **order, out=tmp_path / "parts", resume=True, stop=stop)
    expected, found = weights(tmp_path / "whole", 1), weights(tmp_path / "parts", 4)
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-6, atol=1e-8)
    for row, other in zip(ended[0]["history"], whole["history"], strict=True):
        assert row.keys() == other.keys()
        for name, value in row.items():
            assert value == (other[name] if isinstance(value, str) else pytest.approx(other[name], rel=1e-5, abs=1e-9))


@pytest.mark.parametrize("case", ["infonce-adam", "fisher-sgd"])
def test_numbers_that_are_not_finite_in_one_process_stop_all(crew: Crew, case: str, tmp_path: Path) -> None:
    poison = {"after": 2 * 8, "rank": 1}  # two views a step; one look, in evaluation, at each row of the log
    one, other = crew.train(2, case=case, out=tmp_path, poison=poison, changes={"log_every": 100})
    assert one["failure"] == other["failure"]
    assert "not finite" in one["failure"]
    assert one["steps"] == other["steps"] < 24
    for weight in weights(tmp_path, 2).values():
        assert weight.isfinite().all()


def test_what_is_refused_is_refused_by_all(crew: Crew, tmp_path: Path) -> None:
    for order, message in (
        ({"changes": {"batch_size": 21}}, "a batch of 21 rows cannot be divided among 2 processes"),
        ({"different": "data"}, "the same data"),
    ):
        answers = crew.do("train", 2, case="infonce-adam", out=tmp_path, **order)
        assert any(message in answer.get("error", "") for answer in answers), answers
        assert all("InputError" in answer.get("error", "") for answer in answers)
