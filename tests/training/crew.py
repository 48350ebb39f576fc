"""Several processes that train together: does what its standard input asks for, each time in forks of its own.

Forking spares every process the seconds that importing torch takes; the process that forks never differentiates.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn

from probssl.encoders import Centring, OnSphere, seeded
from probssl.objectives import Fisher, Objective, SlicedFisher
from probssl.objectives.momentum import MomentumObjective
from probssl.pairings import Views
from probssl.training import Reporter, fit
from probssl.training.distributed import processes
from probssl.training.distributed.sharing import Sharing, share
from probssl.worlds import named_world
from tests.objectives.members import EMBEDDING, ENERGIES, INPUT, OBJECTIVES, ObjectiveMember, smooth_encoder
from tests.training.parts import training
from tests.training.victim import warm_up

ROWS = 8


# Losses and gradients of every objective


def coupled_encoder() -> nn.Module:
    """Layers in which the rows of a batch meet."""

    def build() -> nn.Module:
        layers = (
            nn.Linear(INPUT, 4),
            nn.BatchNorm1d(4),
            nn.Tanh(),
            nn.Linear(4, EMBEDDING),
            Centring(EMBEDDING),
            OnSphere(),
        )
        return nn.Sequential(*layers)

    return seeded(3, build).double()


class Coupled(nn.Sequential):
    """An encoder that looks at the whole batch, with layers that do so too."""

    whole_batch = True


@dataclass(frozen=True)
class Case:
    """An objective and how it is tried."""

    name: str
    member: ObjectiveMember
    encoder: Callable[[], nn.Module] = smooth_encoder
    trains: bool = False  # its memory
    dealt: bool = True  # each process has its own rows of the batch to begin with, not all of it
    joined: bool = False  # the whole batch is gathered though every row has a loss of its own


UNLIKE = ("cosine", "asymmetric-predictor", "asymmetric-encoder")


def members(size: int) -> Iterator[ObjectiveMember]:
    """Every objective of the catalogue: by two processes with unlike energies, and InfoNCE with all; by four with one.

    That one is a second encoder, where the objective allows it.
    """
    energies = sorted((energy.name for energy in ENERGIES), key=len)
    found: dict[str, ObjectiveMember] = {}
    for member in OBJECTIVES:
        energy = next((name for name in energies if member.name.endswith(f"-{name}")), "")
        if energy in ("", *UNLIKE) or member.name.startswith("infonce-batch-None-augmented"):
            found[member.name if size == 2 else member.name.removesuffix(energy)] = member
    yield from found.values()


def cases(size: int) -> Iterator[Case]:
    """Every objective; with its memory in training; and the first of each class in other ways."""
    classes: set[type] = set()
    for member in members(size):
        yield Case(member.name, member)
        if member.memory:
            yield Case(f"{member.name} training", member, trains=True)
        built = member.built()
        if type(built) in classes:
            continue
        classes.add(type(built))
        if size == 2:
            yield Case(f"{member.name} whole", member, dealt=False)
        if built.rowwise:
            yield Case(f"{member.name} joined", member, joined=True)
        # Momentum objectives have a teacher that is a copy of another encoder, and Fisher losses refuse this one.
        if not isinstance(built, (MomentumObjective, Fisher, SlicedFisher)):
            yield Case(f"{member.name} coupled", member, coupled_encoder)
            if len(classes) == 1:
                yield Case(f"{member.name} coupled as a whole", member, lambda: Coupled(coupled_encoder()))


Outcome = tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]


def alone(case: Case, views: Views) -> Outcome:
    """The loss of one process, the gradients in all weights, and all buffers after it."""
    encoder, objective = built(case)
    total = objective(encoder, views).total
    total.backward()
    return total, gradients(encoder, objective), buffers(encoder, objective)


def together(case: Case, views: Views) -> Outcome:
    """The same of all processes, as training computes it."""
    encoder, objective = built(case)
    if case.joined:
        objective.rowwise = False
    sharing = Sharing(encoder, objective, precision="float32", device=torch.device("cpu"), seed=0)
    with sharing.hooked():
        terms = sharing.loss(share(views) if case.dealt else views, objective.weights, dealt=case.dealt)
    terms.total.backward()
    found = gradients(encoder, objective)
    processes.average_(found.values())
    return sharing.agreed(terms).total, found, buffers(encoder, objective)


def built(case: Case) -> tuple[nn.Module, Objective]:
    encoder, objective = case.encoder(), case.member.built()
    torch.default_generator.manual_seed(0)
    return encoder, objective.train(case.trains or not case.member.memory)


def gradients(encoder: nn.Module, objective: nn.Module) -> dict[str, Tensor]:
    named = nn.ModuleDict({"encoder": encoder, "objective": objective}).named_parameters()
    return {name: weight.grad for name, weight in named if weight.grad is not None}


def buffers(encoder: nn.Module, objective: nn.Module) -> dict[str, Tensor]:
    return dict(nn.ModuleDict({"encoder": encoder, "objective": objective}).named_buffers())


def compare(case: Case, *, here: bool) -> dict[str, float]:
    """How far the loss, gradients and memory of all processes are from those of one; zeros where others look at it."""
    views = case.member.views(ROWS)
    total, *other = together(case, views)
    if not here:
        return dict.fromkeys(("loss", "gradient", "memory"), 0.0)
    loss, *one = alone(case, views)
    gap = (loss - total).abs() / loss.abs().clamp_min(1)
    return {"loss": gap.item(), "gradient": largest_gap(one[0], other[0]), "memory": largest_gap(one[1], other[1])}


def largest_gap(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The largest difference of two sets of tensors, as a share of the largest number among them."""
    assert one.keys() == other.keys()
    pairs = [(one[name].double(), other[name].double()) for name in one if one[name].numel()]
    scale = max([1e-3, *(float(a.abs().max()) for a, _ in pairs)])
    return max([0.0, *(float((a - b).abs().max()) / scale for a, b in pairs)])


def without_others(z: Tensor) -> Tensor:
    """The usual mistake: embeddings of other processes carry no gradient, and one's own only what oneself does."""
    parts = processes._Gather.apply(z.detach()).chunk(processes.count())
    return torch.cat([z if rank == processes.rank() else part for rank, part in enumerate(parts)])


def compare_all(order: dict[str, Any]) -> Any:
    with processes.launched():
        if order.get("wrong"):
            processes.gather = without_others
        size, rank = processes.count(), processes.rank()
        chosen = [case for case in cases(size) if case.name in order.get("only", [case.name])]
        gaps = [compare(case, here=number % size == rank) for number, case in enumerate(chosen)]
        numbers = torch.tensor([list(gap.values()) for gap in gaps], dtype=torch.float64)
        distributed.all_reduce(numbers)
        worst = numbers.tolist()
    return {case.name: dict(zip(gaps[0], row, strict=True)) for case, row in zip(chosen, worst, strict=True)}


# Whole trainings


class Rings(Reporter):
    """Rings a bell after a step; in one process alone."""

    def __init__(self, step: int | None, bell: threading.Event) -> None:
        self.step, self.bell = step, bell

    def advance(self, step: int) -> None:
        if step == self.step:
            self.bell.set()


class Poisoned(nn.Module):
    """A layer that answers with numbers that are not finite, in one process after so many batches."""

    def __init__(self, after: int, rank: int) -> None:
        super().__init__()
        self._left, self._rank = after, rank

    def forward(self, x: Tensor) -> Tensor:
        self._left -= 1
        return x * float("nan") if self._left < 0 and processes.rank() == self._rank else x


def train(order: dict[str, Any]) -> Any:
    """A case of `parts`, in double precision."""
    torch.set_default_dtype(torch.float64)
    one = training(order["case"], **order.get("changes", {}))
    one.encoder, one.objective, one.data = one.encoder.double(), one.objective.double(), one.data.double()
    if own_rank() and order.get("different") == "weights":
        one.encoder = one.encoder.apply(lambda part: nn.init.normal_(part.weight) if hasattr(part, "weight") else None)
    if own_rank() and order.get("different") == "data":
        one.data = one.data + 1
    if "poison" in order:
        one.encoder = nn.Sequential(Poisoned(**order["poison"]), one.encoder)
    world = named_world("sphere6", seed=0).double() if order.get("world") else None
    bell = threading.Event()
    fitted = fit(
        one.encoder,
        one.objective,
        one.pairing if world is None else world,
        one.data if world is None else None,
        one.plan,
        seed=one.seed,
        out=order["out"],
        resume=order.get("resume", False),
        reporter=Rings(order.get("stop"), bell),
        stop=bell,
    )
    torch.save(one.weights(), f"{order['out']}/weights-{own_rank()}.pt")
    return {
        "steps": fitted.steps,
        "interrupted": fitted.interrupted,
        "failure": fitted.failure,
        "history": [{key: value for key, value in row.items() if key != "seconds"} for row in fitted.history],
    }


def own_rank() -> int:
    return int(os.environ["RANK"])


JOBS: dict[str, Callable[[dict[str, Any]], Any]] = {"compare": compare_all, "train": train}


# The server


def free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def work(order: dict[str, Any], rank: int, port: int) -> None:
    size = order["processes"]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    try:
        answer: dict[str, Any] = {"value": JOBS[order["job"]](order)}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    Path(f"{order['answers']}/{rank}.json").write_text(json.dumps(answer))
    os._exit(0)


def serve() -> None:
    torch.set_num_threads(1)
    warm_up()
    named_world("sphere6", seed=0)  # for what it imports
    for line in sys.stdin:
        order, port = json.loads(line), free_port()
        children = []
        for rank in range(order["processes"]):
            children.append(os.fork())
            if not children[-1]:
                signal.alarm(120)  # none waits for ever
                work(order, rank, port)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)


if __name__ == "__main__":
    serve()
