"""The one training function: any encoder and objective, on data with a pairing or on a world."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
import threading
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from probssl.encoders import GLOBAL_RANDOM_STATE
from probssl.errors import CheckpointError, InputError, NonFiniteLoss
from probssl.objectives.base import Objective, Terms
from probssl.pairings.views import Pairing, Source
from probssl.parts.part import Part
from probssl.training import checkpoints
from probssl.training.batches import DataStream, Stream, WorldStream, numbered, own_entry
from probssl.training.checkpoints import CheckpointFolder, Saved
from probssl.training.distributed import processes
from probssl.training.distributed.sharing import Sharing, get_random_state, own_random_state, set_random_state
from probssl.training.files import fingerprint
from probssl.training.log import RunLog, check_terms
from probssl.training.plan import TrainingPlan
from probssl.training.progress import Reporter
from probssl.training.surroundings import flushed_denormals, interruptible, is_small, one_thread
from probssl.training.watch import MEANING, SAMPLE_ROWS, UNDECIDED_FOR, CollapseWatch, Look, clusters_of

RANDOM_STATES = ("random.torch", "random.cuda")
"""What checkpoints call torch's random state on the CPU and on the GPU."""


@dataclass(frozen=True)
class Fitted:
    """How a training ended. The weights are in the encoder and objective that were handed in.

    `steps` and `seconds` are those of this training; `interrupted` says whether Ctrl-C or a signal ended it.
    """

    steps: int
    seconds: float
    history: list[dict[str, Any]]  # the rows of the log
    collapsed: dict[str, int]  # kind of collapse still standing at the end -> step at which it set in
    interrupted: bool
    failure: str | None  # why training stopped early, when a number was not finite

    @property
    def healthy(self) -> bool:
        """Trained to the end with no collapse and finite losses."""
        return not self.collapsed and self.failure is None and not self.interrupted


def fit(
    encoder: nn.Module,
    objective: Objective,
    pairing: Pairing | Source,
    data: Tensor | None = None,
    plan: TrainingPlan | None = None,
    *,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    reporter: Reporter | None = None,
    stop: threading.Event | None = None,
    device: str | torch.device = "cpu",
) -> Fitted:
    """Train `encoder` (in place) on rows of `data` [n, ...] with positives from `pairing`, minimising `objective`.

    In place of a pairing and data, a `Source` (a world) makes every batch afresh.
    One seed decides batches, augmentations and any randomness inside the modules; the global random state is left as
    it was. With `out`, a log (`log.jsonl`) and checkpoints go there, and `resume=True` goes on from the newest
    checkpoint to the very weights that an uninterrupted run would have reached, or with more steps than before further,
    at the learning rates of so many steps. Ctrl-C, SIGTERM and `stop`
    end it between two steps with a checkpoint. A non-finite loss or gradient stops training: before it touches the
    weights on a CPU, at the next row of the log elsewhere.

    Under `torchrun`, or in a process group that is there already, all processes train one model: a batch is shared out
    among them, the loss and its gradients are those of the whole batch, and all end with the same weights. The first
    process alone writes and reports.
    """
    plan = TrainingPlan() if plan is None else plan
    if isinstance(pairing, Source) != (data is None):
        raise InputError("a pairing needs data to train on, and a world makes its own")
    for part in (encoder, objective):
        if isinstance(part, Part) and part.unbound:
            raise InputError(
                f"{type(part).__name__} has no parameters yet: bind it first, as {type(part).__name__}(…).bind(…)"
            )
    if data is not None and len(data) < 2:
        raise InputError(f"training needs at least two rows, not {len(data)}")
    with processes.launched(device), GLOBAL_RANDOM_STATE, flushed_denormals(), interruptible(stop) as ended:
        reporter = Reporter() if reporter is None or not processes.is_first() else reporter
        place = processes.own_device(torch.device(device))
        with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
            run = _Run(encoder, objective, pairing, data, plan, seed, None if out is None else Path(out), place)
            with one_thread(is_small(encoder, run.stream.some(2), plan.batch_size)):
                run.begin(resume)
                with reporter, run.sharing.hooked():
                    return run.train(reporter, ended)


class _Run:
    """The moving parts of one training, and how they are saved and restored."""

    def __init__(
        self,
        encoder: nn.Module,
        objective: Objective,
        pairing: Pairing | Source,
        data: Tensor | None,
        plan: TrainingPlan,
        seed: int,
        out: Path | None,
        device: torch.device,
    ) -> None:
        torch.manual_seed(seed)
        self.encoder, self.objective, self.pairing = encoder.to(device), objective.to(device), pairing.to(device)
        processes.equalise([encoder, objective])
        self.plan, self.seed, self.out, self.device = plan, seed, out, device
        self.stream: Stream
        if isinstance(pairing, Source):
            self.stream = WorldStream(pairing, plan.batch_size, seed, device)
        else:
            assert data is not None
            self.stream = DataStream(pairing, data, plan.batch_size, seed, device)
        self.sharing = Sharing(encoder, objective, precision=plan.precision, device=device, seed=seed)
        self.optimiser = make_optimiser(encoder, objective, plan)
        self.base_rates = [group["lr"] for group in self.optimiser.param_groups]
        self.watch = self._make_watch()
        self.folder = None if out is None else CheckpointFolder(out / "checkpoints")
        self.step = 0
        self.seconds = 0.0
        self.resumed = False
        self.departure: str | None = None  # from the checkpoint's numeric path
        self.extended: str | None = None
        self.log = RunLog(None)

    def _make_watch(self) -> CollapseWatch:
        energy, clustering = self.objective.energy, clusters_of(self.objective)
        observations = self.objective.observations
        if clustering is None:
            return CollapseWatch(observations(self.stream.some(SAMPLE_ROWS))[:SAMPLE_ROWS], energy)
        sample, relatives = (observations(side)[:SAMPLE_ROWS] for side in self.stream.pairs(SAMPLE_ROWS))
        return CollapseWatch(sample, energy, clustering, relatives, UNDECIDED_FOR * self.plan.steps)

    def begin(self, resume: bool) -> None:
        """Start afresh, or go on from the newest checkpoint."""
        if resume and self.folder is None:
            raise InputError("resuming needs the folder of the run")
        if processes.count() > 1 and processes.any_of(self.identity != processes.from_first(lambda: self.identity)):
            raise InputError("all processes must be given the same data, encoder, objective and plan")
        folder, found = self.folder, None
        if resume and folder is not None:
            found = processes.from_first(folder.load_latest)
        if folder is not None and found is not None:
            with folder.intact():
                self._restore(*found)
        elif folder is not None:
            processes.from_first(folder.clear)
        if self.out is not None:
            self._open_log(self.out / "log.jsonl", resume_at=self.step if found else None)
        self.resumed = found is not None

    def _open_log(self, path: Path, resume_at: int | None) -> None:
        """The log, which the first process writes and all keep."""
        if processes.is_first():
            self.log = RunLog(path, resume_at=resume_at)
        self.log.rows = processes.from_first(lambda: self.log.rows)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to belong to this run; taken before the first step."""
        plan = dataclasses.asdict(self.plan)
        for cosmetic in ("checkpoint_every", "log_every"):
            del plan[cosmetic]
        return {
            **plan,
            "freeze": list(self.plan.freeze),
            "seed": self.seed,
            **describe("objective", self.objective),
            **describe("encoder", self.encoder),
            **describe("pairing", self.pairing),
            **{f"pairing.{name}": _shown(value) for name, value in self.pairing.state_dict().items()},
            **self.stream.identity(),
        }

    def save(self) -> None:
        """Write a checkpoint of the current step."""
        folder = self.folder
        if folder is None:
            return
        random, position = self.stream.state()
        tensors = {
            **checkpoints.gather("encoder", self.encoder.state_dict()),
            **checkpoints.gather("objective", self.objective.state_dict()),
            **checkpoints.optimiser_tensors(self.optimiser),
            **random,
            **dict(zip(RANDOM_STATES, get_random_state(self.device), strict=False)),
        }
        if processes.count() > 1:
            for name, state in zip(RANDOM_STATES, self.sharing.random, strict=False):
                tensors |= numbered(f"{name}.own", processes.each(state))
        metadata = {
            "identity": self.identity,
            "numeric_path": checkpoints.numeric_path(self.encoder, self.objective),
            "batches": position,
            "watch": self.watch.state(),
            "seconds": self.seconds,
        }
        processes.from_first(lambda: folder.save(self.step, tensors, metadata))

    def _restore(self, tensors: dict[str, Tensor], saved: Saved) -> None:
        mine, theirs = self.identity, saved.identity
        for key in {**mine, **theirs}:
            value, other = mine.get(key), theirs.get(key)
            if key == "steps" and self.plan.steps > saved.identity["steps"]:
                self.extended = f"extended from {other} to {value} steps, at the learning rates of {value} from here on"
                continue
            if other != value and key == "data":
                raise CheckpointError("the checkpoint was trained on different data")
            if other != value:
                raise CheckpointError(f"the checkpoint was trained with {key} = {other}, not with {key} = {value}")
        checkpoints.restore(self.encoder, "encoder", tensors)
        checkpoints.restore(self.objective, "objective", tensors)
        checkpoints.restore_optimiser(self.optimiser, tensors)
        self.step = saved.step
        self.stream.restore(tensors, saved.batches, self.step)
        set_random_state(self.device, [tensors[name] for name in RANDOM_STATES if name in tensors])
        own = [own_entry(f"{name}.own", tensors) for name in RANDOM_STATES]
        known = [state for state in own if state is not None]
        fresh = own_random_state(self.device, self.seed, self.step)
        self.sharing.random = known if len(known) == len(fresh) else fresh
        self.watch.restore(saved.watch)
        self.seconds = saved.seconds
        path = checkpoints.numeric_path(self.encoder, self.objective)
        self.departure = checkpoints.departure(path, saved.numeric_path or path)

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
        if not self.resumed:
            self._look(reporter)  # before the checkpoint, which carries what was seen
            self.save()
        elif self.step < plan.steps:
            if self.extended is not None:
                self.log.append({"step": self.step, "event": "extension", "message": self.extended})
            if self.departure is not None:
                self._tell(reporter, "rounding", self.departure)
        try:
            while self.step < plan.steps and not processes.any_of(stop.is_set()):
                terms = self._forward()
                last = self.step + 1 == plan.steps
                log_now = (self.step + 1) % log_interval == 0 or last
                shown = self.sharing.agreed(terms) if every_step or log_now else terms
                if every_step or log_now:
                    shown.check_finite()
                self._update(terms.total, check=every_step or log_now)
                self.step += 1
                reporter.advance(self.step)
                if log_now:
                    self.seconds = time.perf_counter() - started
                    seen = self._look(reporter, shown.numbers())
                    if last and not seen.finite:
                        raise NonFiniteLoss("the representation is not finite")
                if self.step % checkpoint_interval == 0 and not last:
                    self._check_weights()
                    self.save()
            self._check_weights()
        except NonFiniteLoss as error:
            failure = str(error)
        self.seconds = time.perf_counter() - started
        if failure is not None:
            self._tell(reporter, "failure", failure)
        else:
            self.save()
        interrupted = self.step < plan.steps and failure is None
        return Fitted(self.step, self.seconds, self.log.rows, dict(self.watch.standing), interrupted, failure)

    def _forward(self) -> Terms:
        views = self.stream.next(self.objective.needs)
        weights = self.plan.weights(self.step, self.objective.weights)
        return self.sharing.loss(views, weights, dealt=self.stream.dealt)

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.optimiser.param_groups for parameter in group["params"]]

    def _check_weights(self) -> None:
        """An update can overflow though its gradient is finite; such weights must not reach a file."""
        if not all(bool(parameter.isfinite().all()) for parameter in self._parameters()):
            raise NonFiniteLoss("the weights are not finite after the last update")

    def _update(self, loss: Tensor, check: bool) -> None:
        factor = self.plan.rate_factor(self.step)
        for group, rate in zip(self.optimiser.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor
        self.optimiser.zero_grad()
        loss.backward()
        parameters = self._parameters()
        processes.average_(p.grad for p in parameters if p.grad is not None)
        if check:
            _check_gradients(parameters, loss)
        if self.plan.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self.plan.clip_norm)
        self.optimiser.step()

    def _tell(self, reporter: Reporter, event: str, news: str) -> None:
        """An event in the log, and a warning."""
        message = f"step {self.step}: {news}"
        self.log.append({"step": self.step, "event": event, "message": message})
        reporter.warn(message)

    def _look(self, reporter: Reporter, numbers: dict[str, float] | None = None) -> Look:
        seen, news = self.watch.inspect(self.encoder, self.step)
        rate = self.base_rates[0] * self.plan.rate_factor(max(self.step - 1, 0))
        record(self.log, reporter, self.step, self.seconds, rate, seen, news, numbers)
        return seen


def record(
    log: RunLog,
    reporter: Reporter,
    step: int,
    seconds: float,
    rate: float,
    seen: Look,
    news: list[tuple[str, str]],
    numbers: dict[str, float] | None = None,
) -> None:
    """A row of the log with what a look saw and the terms of the loss, and an event for each of its news."""
    check_terms(set(numbers or {}) - {"loss"})
    row = {"step": step, "seconds": round(seconds, 3), **(numbers or {}), "lr": rate, **seen.numbers()}
    log.append(row)
    reporter.row(row)
    for event, kind in news:
        message = f"step {step}: {'' if event == 'collapse' else 'recovered from '}{MEANING[kind]}"
        log.append({"step": step, "event": event, "kind": kind, "message": message})
        reporter.warn(message)


def describe(name: str, module: nn.Module) -> dict[str, str]:
    """Every part of a module with its settings (not its weights): path -> `Class(setting=value, …)`."""
    described = {}
    for path, part in module.named_modules(prefix=name):
        if type(part).__module__.startswith("torch."):
            settings = part.extra_repr()
        else:
            public = {
                key: value
                for key, value in sorted(vars(part).items())
                if key[0] != "_" and key not in ("training", "bound")
            }
            settings = ", ".join(f"{key}={value!r}" for key, value in public.items() if plain(value))
        described[path] = f"{type(part).__name__}({settings})"
    return described


def _shown(tensor: Tensor) -> float | str:
    return tensor.item() if tensor.numel() == 1 else fingerprint(tensor)


def plain(value: Any) -> bool:
    """Whether a setting is a plain value, or made of such."""
    if isinstance(value, (tuple, list)):
        return all(plain(entry) for entry in value)
    if isinstance(value, dict):
        return all(plain(entry) for pair in value.items() for entry in pair)
    return value is None or isinstance(value, (bool, int, float, str))


def _check_gradients(parameters: list[Tensor], loss: Tensor) -> None:
    """Raise `NonFiniteLoss` when a finite loss has a gradient that is not."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if math.isfinite(sum(gradient.sum().item() for gradient in gradients)):
        return
    if not all(bool(gradient.isfinite().all()) for gradient in gradients):  # a sum can overflow by itself
        raise NonFiniteLoss(f"the gradient of the loss is not finite (loss = {loss.item():.4g})")


def make_optimiser(encoder: nn.Module, objective: nn.Module, plan: TrainingPlan) -> torch.optim.Optimizer:
    """The plan's optimiser over the encoder's parameters and, with a rate of their own, the objective's."""
    groups: list[dict[str, Any]] = []
    seen: set[Tensor] = set()
    for module, rate in (
        (encoder, plan.lr),
        (objective, plan.objective_lr or plan.lr),
    ):
        parameters = [
            p
            for name, p in module.named_parameters()
            if p.requires_grad and p not in seen and not (module is encoder and plan.freezes(name))
        ]
        seen.update(parameters)
        if parameters:
            groups.append({"params": parameters, "lr": rate})
    if not groups:
        why = "plan.freeze keeps all of them" if plan.freeze else "neither the encoder nor the objective has parameters"
        raise InputError(f"there is nothing to train: {why}")
    if plan.optimiser == "sgd":
        return _uncompiled(torch.optim.SGD)(groups, lr=0.0, momentum=plan.momentum, weight_decay=plan.weight_decay)
    kind = torch.optim.AdamW if plan.optimiser == "adamw" else torch.optim.Adam
    fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in seen)
    return _uncompiled(kind)(groups, lr=0.0, weight_decay=plan.weight_decay, fused=fused)


@functools.cache
def _uncompiled(kind: type[torch.optim.Optimizer]) -> Any:
    """An optimiser of torch whose methods do not import its compiler, which takes longer than many a training."""
    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    own = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    return type(kind.__name__, (kind,), {**own, "step": torch.no_grad()(inspect.unwrap(kind.step))})
