"""A process to be killed: trains what its standard input asks for, each time in a fork of its own.

Forking spares every victim the seconds that importing torch takes; the process that forks never differentiates.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import safetensors.torch
import torch

from probssl.training.loop import make_optimiser
from probssl.training.watch import CollapseWatch
from tests.training.parts import image_training, training

torch.set_num_threads(1)


class Files:
    """`save_file` with the same bytes, which ends this process with SIGKILL in the middle of one of its files."""

    def __init__(self, last: int | None) -> None:
        self.count, self.last = 0, last

    def __call__(self, tensors: dict, filename: os.PathLike, metadata: dict | None = None) -> None:
        self.count += 1
        content = safetensors.torch.save(tensors, metadata)
        with Path(filename).open("wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            if self.count == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
            file.write(content[len(content) // 2 :])


class Calls:
    """Counts calls of functions and returns from them, and ends this process with SIGKILL at one of them."""

    def __init__(self, last: int | None) -> None:
        self.count, self.last = 0, last

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def train(order: dict) -> None:
    safetensors.torch.save_file = Files(order.get("last_file"))
    images = "network" in order
    one = image_training(order["network"], "adam") if images else training(order["case"], **order["changes"])
    calls = Calls(order.get("last_call"))
    sys.setprofile(calls)
    one.run(Path(order["out"]), resume=True)
    sys.setprofile(None)
    Path(order["out"], "calls").write_text(str(calls.count))
    torch.save(one.weights(), order["out"] + "/weights.pt")


def warm_up() -> None:
    """What torch imports when it is first used."""
    one = training()
    make_optimiser(one.encoder, one.objective, one.plan).zero_grad()
    CollapseWatch(one.data, one.objective.energy).inspect(one.encoder, 0)


def serve() -> None:
    warm_up()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                train(json.loads(line))
                os._exit(0)
            except BaseException as error:
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
