"""One stack: K trials of equal shapes, stepped together, each with its own data order, noise, rates and log."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from probssl.objectives.base import Objective
from probssl.objectives.gedi import GEDI
from probssl.pairings.views import FeaturewisePairing, Pairing, latent_noise, random_signs
from probssl.training.batches import BatchStream, relatives
from probssl.training.log import RunLog
from probssl.training.loop import Fitted, record
from probssl.training.plan import TrainingPlan
from probssl.training.progress import Reporter
from probssl.training.stacked.compiled import CompiledLosses, form_of, suits
from probssl.training.stacked.gedi import StackedGEDI, together
from probssl.training.stacked.losses import StackedFisher, StackedLosses, StackedViews
from probssl.training.stacked.parts import StackedEncoder, StackOptimiser
from probssl.training.watch import SAMPLE_ROWS, UNDECIDED_FOR, CollapseWatch, clusters_of


@dataclass(frozen=True, eq=False)
class Trial:
    """One training to be done: what `fit` takes. The encoder and the objective are trained in place.

    `pairing`, `data`, `plan` and `seed` are what `fit` takes.
    """

    encoder: nn.Module
    objective: Objective
    pairing: Pairing
    data: Tensor
    plan: TrainingPlan
    seed: int = 0


class Stack:
    """Trials that train as one. They share shapes, batch size, optimiser and intervals, and nothing else."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        # Kinds of objectives side by side; those that do not take embeddings from a shared pass come last.
        self.trials = sorted(trials, key=lambda t: (_encodes_itself(t.objective), kind_of(t)))
        self.plan = self.trials[0].plan
        self.augmented = self.trials[0].objective.needs.augmented
        self.step = 0
        self.failures: dict[int, tuple[int, str]] = {}  # trial -> step and reason
        self.encoder = StackedEncoder([t.encoder for t in self.trials])
        self._prepare_data()
        self.gradients: CompiledGradients | TorchGradients
        spans = _runs([kind_of(t) for t in self.trials])
        if all(can_compile(t) for t in self.trials):
            self.gradients = CompiledGradients(self, spans)
        else:
            self.gradients = TorchGradients(self, spans)
        self.losses: Sequence[CompiledLosses | StackedLosses] = self.gradients.losses
        self._prepare_optimisers()
        self._prepare_watch()

    def _prepare_data(self) -> None:
        tables: dict[int, Tensor] = {id(t.data): t.data for t in self.trials}
        starts, start = {}, 0
        for key, table in tables.items():
            starts[key], start = start, start + len(table)
        self.table = torch.cat(list(tables.values()))
        self.starts = torch.tensor([starts[id(t.data)] for t in self.trials])[:, None]
        self.pairing = stacked_pairing([t.pairing for t in self.trials])
        # Trials with one seed and as many rows have the same random streams: one is enough for all of them.
        streams: dict[Hashable, Trial] = {}
        keys: list[Hashable] = []
        for number, t in enumerate(self.trials):
            alone = self.pairing is None or t.objective.needs.directions > 0 or t.objective.needs.noise > 0
            keys.append((t.seed, len(t.data), number if alone else None))
            streams.setdefault(keys[-1], t)
        self.stream_of = torch.tensor([list(streams).index(key) for key in keys])
        owners = list(streams.values())
        device = torch.device("cpu")
        self.batches = [BatchStream(len(t.data), t.plan.batch_size, t.seed, device) for t in owners]
        self.chance = [torch.Generator().manual_seed(t.seed + 1) for t in owners]
        self.rows = self.batches[0].batch_size
        self.features = self.trials[0].data.shape[1]
        draws = 0 if self.pairing is None else self.pairing.draws
        self.draws = self.table.new_empty(draws, self.augmented, len(owners), self.rows, self.features)
        self._own_draws = [
            [[self.draws[draw, view, number] for draw in range(draws)] for view in range(self.augmented)]
            for number in range(len(owners))
        ]

    def _prepare_optimisers(self) -> None:
        plans = [t.plan for t in self.trials]
        stacks = [(self.encoder.stack, slice(None), [plan.lr for plan in plans])]
        for losses in self.losses:
            if losses.stack.leaves:
                own = [plan.objective_lr or plan.lr for plan in plans[losses.span]]
                stacks.append((losses.stack, losses.span, own))
        self.stacks = stacks
        self.optimisers = [StackOptimiser(stack.values, plans[span], rates) for stack, span, rates in stacks]
        limits = [float("inf") if plan.clip_norm is None else plan.clip_norm for plan in plans]
        self.limits = self.encoder.stack.values.new_tensor(limits)
        self.clips = bool(self.limits.isfinite().any())
        self.alive: Tensor | None = None  # [K, 1], once a trial has failed

    def _prepare_watch(self) -> None:
        self.watches, self.logs, samples, partners = [], [], [], []
        for t in self.trials:
            order = torch.randperm(len(t.data), generator=torch.Generator().manual_seed(t.seed + 2))
            samples.append(t.data[order[:SAMPLE_ROWS]])
            self.logs.append(RunLog(None))
            clustering = clusters_of(t.objective)
            related = samples[-1] if clustering is None else relatives(t.pairing, samples[-1], t.seed)
            partners.append(related)
            settled = UNDECIDED_FOR * t.plan.steps
            self.watches.append(CollapseWatch(samples[-1], t.objective.energy, clustering, related, settled))
        self.samples = torch.stack(samples)
        clustered = any(watch.objective is not None for watch in self.watches)
        self.partners = torch.stack(partners) if clustered else None

    def next_index(self) -> Tensor:
        """Rows of the table that the next batch of each trial is made of: [K, n]."""
        return torch.stack([stream.next() for stream in self.batches])[self.stream_of] + self.starts

    def draw(self) -> Tensor:
        """Random numbers for the augmentations of the next batch, of each random stream: [draws, J, streams, n, d]."""
        assert self.pairing is not None
        for own, chance in zip(self._own_draws, self.chance, strict=True):
            for draws in own:
                self.pairing.fill(draws, chance)
        return self.draws

    def advance(self) -> dict[int, dict[str, float]]:
        """One step of all trials; the terms of each trial's loss where a row of the log is due."""
        total, terms, gradients = self.gradients()
        self._check(total, gradients)
        if self.clips:
            self._clip(gradients)
        factors = torch.tensor([t.plan.rate_factor(self.step) for t in self.trials], dtype=torch.float64)[:, None]
        for optimiser, (_, span, _), gradient in zip(self.optimisers, self.stacks, gradients, strict=True):
            optimiser.step(gradient, factors[span], None if self.alive is None else self.alive[span])
        self.step += 1
        if self.step % self.plan.log_interval and self.step != self.plan.steps:
            return {}
        return self._numbers(total, terms)

    def _numbers(self, total: Tensor, terms: Sequence[tuple[Tensor, ...]]) -> dict[int, dict[str, float]]:
        rows: dict[int, dict[str, float]] = {}
        for losses, own in zip(self.losses, terms, strict=True):
            columns = [term.tolist() for term in own]
            for number, *values in zip(range(len(self.trials))[losses.span], *columns, strict=True):
                rows[number] = {"loss": total[number].item(), **dict(zip(losses.names, values, strict=True))}
        return rows

    def _check(self, total: Tensor, gradients: Sequence[Tensor]) -> None:
        """Trials whose loss or gradient is not finite fail here, before it touches their weights."""
        if bool(torch.stack([total.sum(), *(gradient.sum() for gradient in gradients)]).isfinite().all()):
            return
        finite = total.isfinite()
        for (_, span, _), gradient in zip(self.stacks, gradients, strict=True):
            finite[span] &= gradient.isfinite().all(1)
        for number in (~finite).nonzero().flatten().tolist():
            loss = total[number].item()
            what = "loss" if not math.isfinite(loss) else "gradient of the loss"
            self._fail(number, f"the {what} is not finite (loss = {loss:.4g})")

    def _check_weights(self) -> None:
        """An update can overflow though its gradient is finite."""
        for parameters, span, _ in self.stacks:
            numbers = range(len(self.trials))[span]
            for number, finite in zip(numbers, parameters.values.isfinite().all(1).tolist(), strict=True):
                if not finite:
                    self._fail(number, "the weights are not finite after the last update")

    def _fail(self, number: int, reason: str) -> None:
        if number in self.failures:
            return
        self.failures[number] = self.step, reason
        if self.alive is None:
            self.alive = torch.ones(len(self.trials), 1, dtype=torch.bool)
        self.alive[number] = False
        self.logs[number].append({"step": self.step, "event": "failure", "message": f"step {self.step}: {reason}"})

    def _clip(self, gradients: list[Tensor]) -> None:
        squares = gradients[0].square().sum(1)
        for (_, span, _), gradient in zip(self.stacks[1:], gradients[1:], strict=True):
            squares[span] += gradient.square().sum(1)
        scale = (self.limits / (squares.sqrt() + 1e-6)).clamp(max=1.0)[:, None]
        for (_, span, _), gradient in zip(self.stacks, gradients, strict=True):
            gradient.mul_(scale[span])

    @torch.no_grad()
    def look(self, numbers: dict[int, dict[str, float]], seconds: float) -> None:
        """A row of every log, with what a look at each representation sees."""
        for losses in self.losses:
            if losses.stack.leaves:
                losses.stack.unstack()  # energies may have parameters
        h = self.encoder(self.samples, layers=self.encoder.depth)
        z = self.encoder.advance(h.clone(), self.encoder.layers[self.encoder.depth :]).mT
        with_head = self.encoder.depth < len(self.encoder.layers)
        related = None if self.partners is None else self.encoder(self.partners).mT
        silent = Reporter()
        for number, t in enumerate(self.trials):
            if number in self.failures:
                continue
            seen, news = self.watches[number].judge(
                h[number].mT,
                z[number] if with_head else None,
                self.step,
                None if related is None else related[number],
            )
            rate = t.plan.lr * t.plan.rate_factor(max(self.step - 1, 0))
            record(self.logs[number], silent, self.step, seconds, rate, seen, news, numbers.get(number))
            if self.step == t.plan.steps and not seen.finite:
                self._fail(number, "the representation is not finite")

    def train(self, stop: threading.Event, advanced: Callable[[int], None]) -> list[Fitted]:
        """All steps, or until `stop`; results in the order of `self.trials`, weights written back."""
        started = time.perf_counter()
        self.look({}, 0.0)
        while self.step < self.plan.steps and not stop.is_set():
            numbers = self.advance()
            advanced(len(self.trials))
            if numbers:
                self.look(numbers, (time.perf_counter() - started) / len(self.trials))
        self._check_weights()
        self.encoder.stack.unstack()
        for losses in self.losses:
            losses.stack.unstack()
        seconds = (time.perf_counter() - started) / len(self.trials)
        results = []
        for number, t in enumerate(self.trials):
            step, reason = self.failures.get(number, (self.step, None))
            results.append(
                Fitted(
                    steps=step,
                    seconds=seconds,
                    history=self.logs[number].rows,
                    collapsed=dict(self.watches[number].standing),
                    interrupted=step < t.plan.steps and reason is None,
                    failure=reason,
                )
            )
        return results


def _encodes_itself(objective: Objective) -> bool:
    """Whether the losses of such objectives need no embeddings from a pass that all share."""
    return StackedFisher.fits(objective) or StackedGEDI.fits(objective)


def kind_of(trial: Trial) -> str:
    """Trials with equal kinds have objectives whose losses are computed as one."""
    form = form_of(trial.objective) if can_compile(trial) else None
    return repr(together(trial.objective) if form is None else form)


def can_compile(trial: Trial) -> bool:
    """Whether compiled code can step a trial."""
    return suits(trial.encoder, trial.objective, trial.pairing, trial.data)


Gradients = tuple[Tensor, list[tuple[Tensor, ...]], list[Tensor]]  # losses [K], terms, and gradients of each stack


class CompiledGradients:
    """Losses and gradients of a stack by compiled code."""

    def __init__(self, stack: Stack, spans: Sequence[slice]) -> None:
        self.stack = stack
        trials, features = stack.trials, stack.features
        self.losses = [CompiledLosses([t.objective for t in trials[span]], trials[0].encoder, span) for span in spans]
        self.settings = [
            torch.stack([t.pairing.get_buffer(name).float().expand(features) for t in trials]).contiguous()
            for name in ("preservation", "noise")
        ]
        self.gradient = torch.empty_like(stack.encoder.stack.values)

    def __call__(self) -> Gradients:
        """The next step's."""
        stack = self.stack
        index, draws = stack.next_index(), stack.draw()
        values = stack.encoder.stack.values
        parts = [
            losses(
                stack.table, index, stack.stream_of, [draw[0] for draw in draws], self.settings, values, self.gradient
            )
            for losses in self.losses
        ]
        own = [losses.gradient for losses in self.losses if losses.stack.leaves]
        return torch.cat([total for total, _ in parts]), [terms for _, terms in parts], [self.gradient, *own]


class TorchGradients:
    """Losses and gradients of a stack by torch: one pass through all encoders, then each kind of objective."""

    def __init__(self, stack: Stack, spans: Sequence[slice]) -> None:
        self.stack = stack
        self.losses = [self._losses(span) for span in spans]
        self._probe()

    def _losses(self, span: slice) -> StackedLosses:
        trials, encoder = self.stack.trials[span], self.stack.encoder
        objectives = [t.objective for t in trials]
        if StackedGEDI.fits(objectives[0]):
            plans, seeds = [t.plan for t in trials], [t.seed for t in trials]
            return StackedGEDI(cast(list[GEDI], objectives), encoder, span, plans, seeds)
        kind = StackedFisher if StackedFisher.fits(objectives[0]) else StackedLosses
        return kind(objectives, encoder, span)

    @torch.no_grad()
    def _probe(self) -> None:
        """Compute every loss once, on rows as they are: an objective that cannot be stacked says so here."""
        stack = self.stack
        x = torch.stack([t.data[: stack.rows] for t in stack.trials])
        inputs = [x.clone() for _ in range(1 + stack.augmented)]
        embedded = {number: stack.encoder(view).mT for number, view in enumerate(inputs)}
        for losses in self.losses:
            span, needs = losses.span, losses.needs
            some = x[span].unsqueeze(1)
            views = StackedViews(
                [view[span] for view in inputs],
                torch.zeros_like(some).expand(-1, stack.augmented, -1, -1) if needs.score else None,
                torch.ones_like(some).expand(-1, needs.directions, -1, -1) if needs.directions else None,
                x.new_zeros(len(some), 1 + needs.augmented, stack.rows, needs.noise) if needs.noise else None,
            )
            losses(views, {number: z[span] for number, z in embedded.items()})
        self.encoded = sorted(set().union(*(losses.encoded for losses in self.losses)))
        self.shared = slice(0, max((losses.span.stop for losses in self.losses if losses.encoded), default=0))

    def __call__(self) -> Gradients:
        """The next step's."""
        stack, inputs = self.stack, self.views()
        embedded: dict[int, Tensor] = {}
        if self.encoded:
            together = torch.cat([inputs[number][self.shared] for number in self.encoded], 1)
            some = stack.encoder if self.shared.stop == len(stack.trials) else stack.encoder.of(self.shared)
            embedded = dict(zip(self.encoded, some(together).mT.split(stack.rows, 1), strict=True))
        parts = []
        for losses in self.losses:
            own = {number: embedded[number][losses.span] for number in sorted(losses.encoded)}
            parts.append(losses(self._views_of(losses, inputs), own))
        total = torch.cat([part[0] for part in parts])
        stacks = [parameters for parameters, _, _ in stack.stacks]
        leaves = [leaf for parameters in stacks for leaf in parameters.leaves.values()]
        slopes = iter(torch.autograd.grad(total.sum(), leaves, allow_unused=True))
        gathered = [parameters.gather([next(slopes) for _ in parameters.leaves]) for parameters in stacks]
        return total.detach(), [terms for _, terms in parts], gathered

    def views(self) -> list[Tensor]:
        """The next batch of every trial and its augmentations: x, x̃₁, … of [K, n, d]."""
        stack, count = self.stack, len(self.stack.trials)
        x = stack.table.index_select(0, stack.next_index().flatten()).view(count, stack.rows, stack.features)
        if stack.pairing is not None:
            drawn = stack.draw()[:, :, stack.stream_of]
            return [x, *(stack.pairing.combine(x, list(drawn[:, view])) for view in range(stack.augmented))]
        samples = [
            [t.pairing.sample(own, chance) for _ in range(stack.augmented)]
            for t, own, chance in zip(stack.trials, x, self._chances(slice(None)), strict=True)
        ]
        return [x, *(torch.stack(view) for view in zip(*samples, strict=True))]

    def _chances(self, span: slice) -> list[torch.Generator]:
        """The generators of trials, where none shares its own."""
        return [self.stack.chance[stream] for stream in self.stack.stream_of[span].tolist()]

    def _views_of(self, losses: StackedLosses, inputs: list[Tensor]) -> StackedViews:
        span, needs, stack = losses.span, losses.needs, self.stack
        own = [view[span] for view in inputs]
        score = directions = noise = None
        if needs.score:
            pairing = stacked_pairing([t.pairing for t in stack.trials[span]])
            if pairing is not None:
                score = torch.stack([pairing.score(view, own[0]) for view in own[1:]], 1)
            else:
                each = zip(stack.trials[span], own[0], torch.stack(own[1:], 1), strict=True)
                score = torch.stack([t.pairing.score(x_aug, x) for t, x, x_aug in each])
        if needs.directions:
            chances = zip(own[0], self._chances(span), strict=True)
            directions = torch.stack([random_signs(x, needs.directions, chance) for x, chance in chances])
        if needs.noise:
            chances = zip(own[0], self._chances(span), strict=True)
            noise = torch.stack([made for x, chance in chances if (made := latent_noise(x, needs, chance)) is not None])
        return StackedViews(own, score, directions, noise)


def _runs(kinds: Sequence[str]) -> list[slice]:
    """Stretches of equal neighbours."""
    starts = [number for number, kind in enumerate(kinds) if number == 0 or kind != kinds[number - 1]]
    return [slice(start, stop) for start, stop in zip(starts, [*starts[1:], len(kinds)], strict=True)]


def stacked_pairing(pairings: Sequence[Pairing]) -> FeaturewisePairing | None:
    """One pairing for K batches, where the pairings are of one kind that can be stacked."""
    first = pairings[0]
    if not isinstance(first, FeaturewisePairing) or len({pairing_key(pairing) for pairing in pairings}) > 1:
        return None
    stacked = copy.copy(first)
    stacked._buffers = {}
    for name, buffer in first.named_buffers():
        values = [pairing.get_buffer(name) for pairing in pairings]
        if not buffer.is_floating_point():
            stacked._buffers[name] = buffer
        elif buffer.ndim > 1:
            stacked._buffers[name] = torch.stack(values)
        else:
            width = max(value.numel() for value in values)
            stacked._buffers[name] = torch.stack([value.expand(width) for value in values]).unsqueeze(1)
    return stacked


def pairing_key(pairing: Pairing) -> Hashable:
    """What pairings of a stack have in common."""
    return pairing.stack_key() if isinstance(pairing, FeaturewisePairing) else type(pairing)
