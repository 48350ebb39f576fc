"""The one training function: any encoder, objective, pairing and data."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from probssl.errors import CheckpointError, InputError, NonFiniteLoss
from probssl.objectives.base import Objective
from probssl.pairings.views import Pairing
from probssl.training import checkpoints
from probssl.training.batches import BatchStream
from probssl.training.checkpoints import CheckpointFolder
from probssl.training.log import RunLog
from probssl.training.plan import TrainingPlan
from probssl.training.progress import Reporter
from probssl.training.watch import MEANING, SAMPLE_ROWS, CollapseWatch


@dataclass(frozen=True)
class Fitted:
    """How a training ended. The weights are in the encoder and objective that were handed in."""

    steps: int
    seconds: float
    history: list[dict[str, Any]]  # the rows of the log
    collapsed: dict[str, int]  # kind of collapse still standing at the end -> step at which it set in
    interrupted: bool
    failure: str | None  # why training stopped early, when the loss was not finite

    @property
    def healthy(self) -> bool:
        """Trained to the end with no collapse and finite losses."""
        return not self.collapsed and self.failure is None and not self.interrupted


def fit(
    encoder: nn.Module,
    objective: Objective,
    pairing: Pairing,
    data: Tensor,
    plan: TrainingPlan | None = None,
    *,
    seed: int = 0,
    out: Path | None = None,
    resume: bool = False,
    reporter: Reporter | None = None,
    device: str | torch.device = "cpu",
) -> Fitted:
    """Train `encoder` (in place) on rows of `data` [n, ...] with positives from `pairing`, minimising `objective`.

    One seed decides batches, augmentations and any randomness inside the modules; the global random state is left as
    it was. With `out`, a log (`log.jsonl`) and checkpoints go there, and `resume=True` goes on from the newest
    checkpoint to the very weights that an uninterrupted run would have reached. Ctrl-C and SIGTERM stop
    between two steps with a checkpoint. A non-finite loss stops training before it touches the weights.
    """
    plan = TrainingPlan() if plan is None else plan
    reporter = Reporter() if reporter is None else reporter
    device = torch.device(device)
    if len(data) < 2:
        raise InputError(f"training needs at least two rows, and there is {len(data)}")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), _interruptible() as stop:
        run = _Run(encoder, objective, pairing, data, plan, seed, out, device)
        run.begin(resume)
        with reporter:
            return run.train(reporter, stop)


class _Run:
    """The moving parts of one training, and how they are saved and restored."""

    def __init__(
        self,
        encoder: nn.Module,
        objective: Objective,
        pairing: Pairing,
        data: Tensor,
        plan: TrainingPlan,
        seed: int,
        out: Path | None,
        device: torch.device,
    ) -> None:
        torch.manual_seed(seed)
        self.encoder, self.objective, self.pairing = encoder.to(device), objective.to(device), pairing.to(device)
        self.data, self.plan, self.seed, self.out, self.device = data.to(device), plan, seed, out, device
        self.batches = BatchStream(len(data), plan.batch_size, seed, device)
        self.generator = torch.Generator(device).manual_seed(seed + 1)
        self.optimiser = make_optimiser(encoder, objective, plan)
        self.base_rates = [group["lr"] for group in self.optimiser.param_groups]
        sample = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed + 2))[:SAMPLE_ROWS]
        self.watch = CollapseWatch(self.data[sample.to(device)], objective.energy)
        self.folder = None if out is None else CheckpointFolder(out / "checkpoints")
        self.step = 0
        self.seconds = 0.0
        self.log = RunLog(None)

    def begin(self, resume: bool) -> None:
        """Start afresh, or go on from the newest checkpoint."""
        if resume and self.folder is None:
            raise InputError("resuming needs the folder of the run")
        found = self.folder.load_latest() if resume and self.folder is not None else None
        if found is not None:
            self._restore(*found)
        elif self.folder is not None:
            for stale in self.folder.paths():
                stale.unlink()
        if self.out is not None:
            self.log = RunLog(self.out / "log.jsonl", resume_at=self.step if found else None)
        if found is None and self.folder is not None:
            self.save()

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to belong to this run."""
        plan = dataclasses.asdict(self.plan)
        for cosmetic in ("checkpoint_every", "log_every"):
            del plan[cosmetic]
        return {
            "plan": plan,
            "seed": self.seed,
            "rows": len(self.data),
            "data": hashlib.sha256(self.data.cpu().contiguous().numpy().tobytes()).hexdigest()[:16],
            "objective": type(self.objective).__name__,
        }

    def save(self) -> None:
        """Write a checkpoint of the current step."""
        if self.folder is None:
            return
        before_shuffle, position = self.batches.state()
        tensors = {
            **checkpoints.gather("encoder", self.encoder.state_dict()),
            **checkpoints.gather("objective", self.objective.state_dict()),
            **checkpoints.optimiser_tensors(self.optimiser),
            "random.batches": before_shuffle,
            "random.augmentations": self.generator.get_state(),
            "random.torch": torch.get_rng_state(),
        }
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        metadata = {
            "identity": self._identity(),
            "batches": position,
            "watch": self.watch.state(),
            "seconds": self.seconds,
        }
        self.folder.save(self.step, tensors, metadata)

    def _restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        mine, theirs = self._identity(), metadata["identity"]
        for key, value in {**mine, **mine["plan"]}.items():
            other = theirs["plan"].get(key) if key in mine["plan"] else theirs.get(key)
            if key != "plan" and other != value:
                raise CheckpointError(f"the checkpoint was trained with {key} = {other}, this run has {key} = {value}")
        checkpoints.restore(self.encoder, "encoder", tensors)
        checkpoints.restore(self.objective, "objective", tensors)
        checkpoints.restore_optimiser(self.optimiser, tensors)
        self.batches.restore(tensors["random.batches"], metadata["batches"])
        self.generator.set_state(tensors["random.augmentations"])
        torch.set_rng_state(tensors["random.torch"])
        if self.device.type == "cuda" and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"], self.device)
        self.watch.restore(metadata["watch"])
        self.step = metadata["step"]
        self.seconds = metadata["seconds"]

    def train(self, reporter: Reporter, stop: threading.Event) -> Fitted:
        """All remaining steps, with log rows, looks at the representation and checkpoints at their intervals."""
        plan = self.plan
        log_interval, checkpoint_interval = plan.log_interval, plan.checkpoint_interval
        every_step = self.device.type == "cpu"  # reading a number there costs nothing
        started = time.perf_counter() - self.seconds
        failure = None
        self.encoder.train()
        self.objective.train()
        reporter.start(plan.steps, self.step)
        if self.step == 0:
            self._look(reporter)
        while self.step < plan.steps and not stop.is_set():
            terms = self._forward()
            last = self.step + 1 == plan.steps
            log_now = (self.step + 1) % log_interval == 0 or last
            try:
                if every_step or log_now:
                    terms.check_finite()
            except NonFiniteLoss as error:
                failure = str(error)
                break
            self._update(terms.total)
            self.step += 1
            reporter.advance(self.step)
            if log_now:
                self.seconds = time.perf_counter() - started
                self._look(reporter, terms.numbers())
            if self.step % checkpoint_interval == 0 and not last:
                self.save()
        self.seconds = time.perf_counter() - started
        if failure is not None:
            self._event({"event": "failure"}, f"step {self.step}: {failure}", reporter)
        interrupted = self.step < plan.steps and failure is None
        if failure is None:
            self.save()
        return Fitted(self.step, self.seconds, self.log.rows, dict(self.watch.standing), interrupted, failure)

    def _forward(self) -> Any:
        index = self.batches.next()
        views = self.pairing(self.data[index], self.objective.needs, self.generator)
        views.index = index
        return self.objective(self.encoder, views)

    def _update(self, loss: Tensor) -> None:
        factor = self.plan.rate_factor(self.step)
        for group, rate in zip(self.optimiser.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor
        self.optimiser.zero_grad()
        loss.backward()
        if self.plan.clip_norm is not None:
            parameters = [p for group in self.optimiser.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(parameters, self.plan.clip_norm)
        self.optimiser.step()

    def _look(self, reporter: Reporter, numbers: dict[str, float] | None = None) -> None:
        seen, news = self.watch.inspect(self.encoder, self.step)
        row = {
            "step": self.step,
            "seconds": round(self.seconds, 3),
            **(numbers or {}),
            "learning_rate": self.optimiser.param_groups[0]["lr"],
            **seen.numbers(),
        }
        self.log.append(row)
        reporter.row(row)
        for event, kind in news:
            outcome = "" if event == "collapse" else "recovered from "
            self._event({"event": event, "kind": kind}, f"step {self.step}: {outcome}{MEANING[kind]}", reporter)

    def _event(self, event: dict[str, str], message: str, reporter: Reporter) -> None:
        self.log.append({"step": self.step, **event, "message": message})
        reporter.warn(message)


def make_optimiser(encoder: nn.Module, objective: nn.Module, plan: TrainingPlan) -> torch.optim.Optimizer:
    """The plan's optimiser over the encoder's parameters and, with a rate of their own, the objective's."""
    groups: list[dict[str, Any]] = []
    seen: set[Tensor] = set()
    for module, rate in (
        (encoder, plan.learning_rate),
        (objective, plan.objective_learning_rate or plan.learning_rate),
    ):
        parameters = [p for p in module.parameters() if p.requires_grad and p not in seen]
        seen.update(parameters)
        if parameters:
            groups.append({"params": parameters, "lr": rate})
    if not groups:
        raise InputError("there is nothing to train: neither the encoder nor the objective has parameters")
    if plan.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=plan.momentum, weight_decay=plan.weight_decay)
    kind = torch.optim.AdamW if plan.optimiser == "adamw" else torch.optim.Adam
    fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in seen)
    return kind(groups, lr=0.0, weight_decay=plan.weight_decay, fused=fused)


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """An event set by the first Ctrl-C or SIGTERM, so that training stops between two steps; a second one aborts."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
