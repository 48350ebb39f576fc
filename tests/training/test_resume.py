"""A run that was killed or stopped ends with the bits of the run that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import probssl
from probssl.errors import InputError
from probssl.model import Model
from probssl.training import Reporter
from probssl.training.files import load_tensors, save_tensors
from probssl.training.log import read_log

from .parts import (
    CASES,
    NETWORKS,
    Signaller,
    assert_one_sentence,
    assert_same_weights,
    image_training,
    train_folder,
    training,
    without_time,
)

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and fork are POSIX")
ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """So that a new process finds this very probssl."""
    source = str(Path(probssl.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([source, str(ROOT)]), "OMP_NUM_THREADS": "1"}


# Stopped by a signal, in this process: every kind of state


@pytest.mark.parametrize("case", CASES)
def test_stopped_again_and_again(case: str, tmp_path: Path) -> None:
    whole = training(case)
    expected = whole.run(tmp_path / "whole")
    assert expected.steps == 24
    for stop in (0, 1, 7, 14, 23):  # before the first step, off and on the steps of logs and checkpoints
        part = training(case)
        fitted = part.run(tmp_path / "parts", resume=True, reporter=Signaller(stop))
        assert fitted.interrupted
        assert fitted.steps == stop
    last = training(case)
    fitted = last.run(tmp_path / "parts", resume=True)
    assert not fitted.interrupted
    assert fitted.steps == 24
    assert_same_weights(last.weights(), whole.weights())
    assert without_time(fitted.history) == without_time(expected.history)
    assert without_time(read_log(tmp_path / "parts/log.jsonl")) == without_time(read_log(tmp_path / "whole/log.jsonl"))
    assert_same_weights(*(load_tensors(tmp_path / run / "checkpoints/step-00000024.safetensors")[0] for run in
                          ("whole", "parts")))  # fmt: skip


def test_writing_a_run_down_does_not_change_it(tmp_path: Path) -> None:
    silent, written = training("nce-adamw-dropout"), training("nce-adamw-dropout", checkpoint_every=1, log_every=1)
    silent.run()
    written.run(tmp_path)
    assert_same_weights(silent.weights(), written.weights())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_after_the_step_with_its_checkpoint(number: int, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    one = training()
    fitted = one.run(tmp_path, reporter=Signaller(9, number))
    assert fitted.interrupted
    assert not fitted.healthy
    assert fitted.failure is None
    assert fitted.steps == 9
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    tensors, metadata = load_tensors(tmp_path / "checkpoints/step-00000009.safetensors")
    assert metadata["step"] == 9
    for name, weight in one.encoder.state_dict().items():
        assert torch.equal(tensors[f"encoder.{name}"], weight)


def test_second_interrupt_aborts(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        training().run(tmp_path, reporter=Signaller(9, times=2))
    assert signal.getsignal(signal.SIGINT) is before
    assert not (tmp_path / "checkpoints/step-00000009.safetensors").exists()
    whole, resumed = training(), training()
    whole.run()
    resumed.run(tmp_path, resume=True)
    assert_same_weights(resumed.weights(), whole.weights())


def test_interrupt_in_the_last_step_is_a_finished_run(tmp_path: Path) -> None:
    fitted = training().run(tmp_path, reporter=Signaller(24))
    assert not fitted.interrupted
    assert fitted.healthy


def test_training_outside_the_main_thread_leaves_signals_alone() -> None:
    outcome = []
    one, other = training(), training()
    worker = threading.Thread(target=lambda: outcome.append(one.run()))
    worker.start()
    worker.join()
    other.run()
    assert outcome[0].steps == 24
    assert_same_weights(one.weights(), other.weights())


def test_an_exception_elsewhere_loses_no_more_than_the_last_checkpoint(tmp_path: Path) -> None:
    class Broken(Reporter):
        def row(self, numbers: dict[str, float]) -> None:
            if numbers["step"] == 18:
                raise OSError("the terminal went away")

    with pytest.raises(OSError, match="terminal"):
        training("snl-adam-clip-own-rate-batch-norm").run(tmp_path, reporter=Broken())
    whole, resumed = (training("snl-adam-clip-own-rate-batch-norm") for _ in range(2))
    expected = whole.run()
    fitted = resumed.run(tmp_path, resume=True)
    assert_same_weights(resumed.weights(), whole.weights())
    assert without_time(fitted.history) == without_time(expected.history)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    one, again = training(), training()
    first = one.run(tmp_path)
    second = again.run(tmp_path, resume=True)
    assert_same_weights(one.weights(), again.weights())
    assert second.history == first.history
    assert second.steps == 24


def test_resuming_nothing_starts_and_needs_a_folder(tmp_path: Path) -> None:
    one, other = training(), training()
    one.run(tmp_path / "new", resume=True)
    other.run()
    assert_same_weights(one.weights(), other.weights())
    with pytest.raises(InputError, match="folder"):
        training().run(resume=True)


def test_starting_afresh_forgets_the_old_run(tmp_path: Path) -> None:
    training("nce-adamw-dropout").run(tmp_path)
    one = training(steps=8)
    one.run(tmp_path)
    assert [path.name[5:13] for path in sorted((tmp_path / "checkpoints").iterdir())] == ["00000005", "00000008"]
    assert max(row["step"] for row in read_log(tmp_path / "log.jsonl")) == 8


def test_other_intervals_are_no_other_run(tmp_path: Path) -> None:
    training(checkpoint_every=3, log_every=1).run(tmp_path, reporter=Signaller(11))
    whole, resumed = training(), training()
    whole.run()
    resumed.run(tmp_path, resume=True)
    assert_same_weights(resumed.weights(), whole.weights())


# Networks of images


class Crash(Reporter):
    """Ends a training after a step, with nothing more written than there was."""

    def __init__(self, step: int) -> None:
        self.step = step

    def advance(self, step: int) -> None:
        if step == self.step:
            raise OSError("crashed")


class Listener(Reporter):
    """Keeps what it is warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("network", NETWORKS)
def test_crashed_after_random_steps(network: str, optimiser: str, tmp_path: Path) -> None:
    whole = image_training(network, optimiser)
    expected = whole.run()
    for step in sorted(random.Random(f"{network} {optimiser}").sample(range(3, 9), 2)):  # there are moments by then
        with pytest.raises(OSError, match="crashed"):
            image_training(network, optimiser).run(tmp_path, resume=True, reporter=Crash(step))
    last, listener = image_training(network, optimiser), Listener()
    fitted = last.run(tmp_path, resume=True, reporter=listener)
    assert_same_weights(last.weights(), whole.weights())
    assert without_time(fitted.history) == without_time(expected.history)
    assert not [warning for warning in listener.warnings if "resumed" in warning]


# Other ways to round


def resumed(folder: Path) -> list[str]:
    """What is said about rounding when a run goes on."""
    listener = Listener()
    training().run(folder, resume=True, reporter=listener)
    return [warning for warning in listener.warnings if "last bits" in warning]


def test_another_number_of_threads_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    training().run(tmp_path, reporter=Signaller(9))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    (message,) = resumed(tmp_path)
    assert_one_sentence(ValueError(message), "step 9: resumed with threads = 3 in place of 1:")
    events = [row for row in read_log(tmp_path / "log.jsonl") if "event" in row]
    assert events == [{"step": 9, "event": "rounding", "message": message}]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert resumed(tmp_path) == [], "nothing was left to compute"


def test_going_on_with_a_kernel_that_was_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probssl.kernels.variant", lambda: None)
    training().run(tmp_path, reporter=Signaller(9))
    monkeypatch.setattr("probssl.kernels.variant", lambda: "AVX2")
    (message,) = resumed(tmp_path)
    assert_one_sentence(ValueError(message), "compiled kernel = AVX2 in place of None")


def test_a_checkpoint_that_does_not_tell_how_it_rounded_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training().run(tmp_path, reporter=Signaller(9))
    path = tmp_path / "checkpoints/step-00000009.safetensors"
    tensors, metadata = load_tensors(path)
    del metadata["numeric_path"]
    save_tensors(path, tensors, metadata)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 99)
    assert resumed(tmp_path) == []


def test_weights_in_another_order_in_memory_go_on_right(tmp_path: Path) -> None:
    """Moments follow the weights as they lie now, and numbers differ by no more than rounding."""
    whole, begun, rest = (image_training("resnet8", "adam") for _ in range(3))
    for one in (whole, begun, rest):
        one.encoder, one.objective, one.data = one.encoder.double(), one.objective.double(), one.data.double()
    begun.encoder.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    whole.run()
    begun.run(tmp_path, reporter=Signaller(5))
    listener = Listener()
    rest.run(tmp_path, resume=True, reporter=listener)
    (message,) = [warning for warning in listener.warnings if "resumed" in warning]
    assert_one_sentence(ValueError(message), "weights in another order in memory")
    for name, weight in whole.weights().items():
        torch.testing.assert_close(rest.weights()[name], weight, rtol=1e-9, atol=1e-11)


# Killed, in a process of its own


class Killer:
    """Starts trainings in processes of their own and ends them with SIGKILL."""

    def __init__(self) -> None:
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.training.victim"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )
        self.kills = 0

    def outcome(self, **order: Any) -> int:
        """How a new victim ended: 0 when it came to its end, −9 when it was killed."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        code = int(self.server.stdout.readline())
        assert code in (0, -signal.SIGKILL)
        self.kills += code != 0
        return code

    def close(self) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(10)


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    killer = Killer()
    yield killer
    killer.close()


def assert_same_end(one: Path, other: Path) -> None:
    assert_same_weights(*(torch.load(folder / "weights.pt") for folder in (one, other)))
    assert without_time(read_log(one / "log.jsonl")) == without_time(read_log(other / "log.jsonl"))


TABLES = ("snl-adam-clip-own-rate-batch-norm", "simsiam-sgd-dropout-batch-norm", "gedi-adam-dropout")
VICTIMS = [
    *({"case": case, "changes": {"steps": 70, "checkpoint_every": 4}} for case in TABLES),
    {"network": "resnet8"},
]


@needs_posix
@pytest.mark.parametrize("order", VICTIMS, ids=lambda order: next(iter(order.values())))
def test_killed_at_random_calls_of_functions(order: dict[str, Any], killer: Killer, tmp_path: Path) -> None:
    chance, before = random.Random(4), killer.kills
    assert killer.outcome(**order, out=str(tmp_path / "whole")) == 0
    calls = int((tmp_path / "whole" / "calls").read_text())
    for _ in range(20):  # each gets on by half of the run at most, and so from one checkpoint to the next or over it
        fatal = chance.randint(calls // 4, calls // 2)
        if killer.outcome(**order, out=str(tmp_path / "killed"), last_call=fatal) == 0:
            break
    else:
        pytest.fail("no run came to its end")
    assert killer.kills - before >= 2
    assert_same_end(tmp_path / "killed", tmp_path / "whole")


@needs_posix
def test_killed_while_a_checkpoint_is_being_written(killer: Killer, tmp_path: Path) -> None:
    chance, before = random.Random(7), killer.kills
    order = {"case": "nce-adamw-dropout", "changes": {"steps": 16, "checkpoint_every": 1, "log_every": 1}}
    assert killer.outcome(**order, out=str(tmp_path / "whole")) == 0
    folder = tmp_path / "killed" / "checkpoints"
    for _ in range(12):
        fatal = chance.randint(2, 4)  # the first alone would never get anywhere
        if killer.outcome(**order, out=str(tmp_path / "killed"), last_file=fatal) == 0:
            break
        assert [path for path in folder.glob(".*.partial") if path.stat().st_size], "half a file was written"
    else:
        pytest.fail("no run came to its end")
    assert killer.kills - before >= 3
    assert_same_end(tmp_path / "killed", tmp_path / "whole")
    assert len(list(folder.iterdir())) == 2, "half a file was left behind"


SCRIPT = "import sys; from tests.training.parts import train_folder; train_folder(sys.argv[1])"


@needs_posix
def test_a_run_killed_in_a_process_of_its_own(tmp_path: Path) -> None:
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / "killed")], env=environment(), cwd=ROOT)

    log = tmp_path / "killed" / "log.jsonl"
    victim = start()
    while victim.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") > 6):
        time.sleep(0.002)
    victim.kill()
    assert victim.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    last = start()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    whole = train_folder(tmp_path / "whole")
    torch.set_num_threads(threads)
    assert last.wait() == 0
    killed = Model.load(tmp_path / "killed")
    assert_same_weights(killed.encoder.state_dict(), whole.encoder.state_dict())
    assert_same_weights(killed.objective.state_dict(), whole.objective.state_dict())
    assert without_time(read_log(log)) == without_time(read_log(tmp_path / "whole" / "log.jsonl"))
