"""Many trainings as one: trials of equal shapes share batched computations, and come out as if trained alone."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path

from probssl.pairings import Pairing
from probssl.training.loop import Fitted, fit
from probssl.training.progress import Reporter
from probssl.training.stacked.gedi import StackedGEDI, together
from probssl.training.stacked.parts import layers_of
from probssl.training.stacked.stack import Stack, Trial, can_compile, kind_of, pairing_key
from probssl.training.surroundings import flushed_denormals, interruptible
from probssl.training.watch import SAMPLE_ROWS

__all__ = ["Trial", "fit_many"]

logger = logging.getLogger(__name__)


def fit_many(
    trials: Sequence[Trial],
    *,
    reporter: Reporter | None = None,
    done: Callable[[int, Fitted], None] | None = None,
    stop: threading.Event | None = None,
) -> list[Fitted]:
    """Train all trials, each as `fit` would alone from the same seed; the results in the order of the trials.

    Trials whose encoders are linear layers with ReLU (and sums of these, behind one `Expansion` for all), of equal
    sizes, and whose batch sizes, optimisers and numbers of steps agree are stacked, whatever their objectives,
    energies, pairings, rates, schedules, seeds and data are: one batched computation in single thread, in groups that
    fit the cache. What a trial comes to does not depend on its company. All others are trained one at a time.
    `done(number, fitted)` is called as trials end, in any order. Ctrl-C, SIGTERM or `stop` end it between two steps:
    trials that had not come to their end say so (`Fitted.interrupted`). A trial whose loss is not finite stops alone
    (`Fitted.failure`).
    """
    reporter = Reporter() if reporter is None else reporter
    results: dict[int, Fitted] = {}
    progress = _Progress(reporter, sum(trial.plan.steps for trial in trials))

    def finish(numbers: Sequence[int], fitted: Sequence[Fitted]) -> None:
        for number, result in zip(numbers, fitted, strict=True):
            results[number] = result
            if done is not None:
                done(number, result)

    with flushed_denormals(), interruptible(stop) as ended, reporter:
        progress.start()
        for numbers in _groups(trials):
            if ended.is_set():
                finish(numbers, [Fitted(0, 0.0, [], {}, interrupted=True, failure=None) for _ in numbers])
                continue
            number_of = {id(trials[number]): number for number in numbers}
            for part in _parts([trials[number] for number in numbers]):
                if isinstance(part, Stack):
                    finish([number_of[id(trial)] for trial in part.trials], part.train(ended, progress.add))
                else:
                    finish([number_of[id(part)]], [_alone(part, ended, progress)])
    return [results[number] for number in range(len(trials))]


def _alone(trial: Trial, stop: threading.Event, progress: _Progress) -> Fitted:
    fitted = fit(
        trial.encoder,
        trial.objective,
        trial.pairing,
        trial.data,
        trial.plan,
        seed=trial.seed,
        reporter=_Forward(progress),
        stop=stop,
        device=trial.data.device,
    )
    if fitted.interrupted:
        stop.set()
    return fitted


def _parts(trials: Sequence[Trial]) -> Iterator[Stack | Trial]:
    """The trials of a group as one stack, or where an objective turns out not to be made for it, as several or none."""
    kinds = [kind_of(trial) for trial in trials]
    stack = _stacked(trials)
    if stack is not None:
        yield stack
    elif len(trials) == 1 or len(set(kinds)) == 1:
        yield from trials
    else:
        for kind in dict.fromkeys(kinds):
            yield from _parts([trial for trial, own in zip(trials, kinds, strict=True) if own == kind])


def _stacked(trials: Sequence[Trial]) -> Stack | None:
    """The trials as a stack, unless it is one trial, or some objective cannot be batched."""
    if len(trials) == 1:
        return None
    try:
        return Stack(trials)
    except RuntimeError as error:  # what torch.vmap says of a loss that it cannot batch
        names = sorted({type(trial.objective).__name__ for trial in trials})
        logger.info("a stack of %s cannot be made: %s", " and ".join(names), error)
        return None


def _groups(trials: Sequence[Trial]) -> Iterator[list[int]]:
    """Numbers of trials that train together: of one kind, neighbouring objectives side by side, as many as pay."""
    kinds: dict[Hashable, list[int]] = {}
    for number, trial in enumerate(trials):
        kind, reason = stack_key(trial)
        if reason is not None:
            logger.info("trial %d (%s) trains alone: %s", number, type(trial.objective).__name__, reason)
        kinds.setdefault(("alone", number) if kind is None else kind, []).append(number)
    for numbers in kinds.values():
        numbers.sort(key=lambda number: kind_of(trials[number]))
        stacks = -(-len(numbers) // models_together(trials[numbers[0]]))
        size, more = divmod(len(numbers), stacks)
        start = 0
        for stack in range(stacks):
            end = start + size + (stack < more)
            yield numbers[start:end]
            start = end


def stack_key(trial: Trial) -> tuple[Hashable | None, str | None]:
    """What trials of a stack have in common; or None, and why this one trains alone."""
    encoder, objective, data, plan = trial.encoder, trial.objective, trial.data, trial.plan
    layers = layers_of(encoder)
    parameters = dict(encoder.named_parameters())
    reasons = {
        "its encoder is more than linear layers and ReLU": layers is None,
        "its objective keeps a memory or has parts of its own": together(objective) is None,
        "encoder and objective share parameters": {id(p) for p in parameters.values()}
        & {id(p) for p in objective.parameters()},
        "its data is not a table on the CPU": data.device.type != "cpu" or data.ndim != 2,
        "its data has fewer than two rows": len(data) < 2,
        "its pairing makes whole batches": type(trial.pairing).forward is not Pairing.forward
        or type(trial.pairing).related is not Pairing.related,
        "nothing of its encoder is trained": not any(parameter.requires_grad for parameter in parameters.values()),
        "its loss begins with other weights": plan.initial_weights and not StackedGEDI.fits(objective),
        f"it computes in {plan.precision}": plan.precision != "float32",
    }
    reason = next((reason for reason, holds in reasons.items() if holds), None)
    if reason is not None or layers is None:
        return None, reason
    shapes = tuple((name, tuple(p.shape), p.dtype, p.requires_grad) for name, p in parameters.items())
    rows = min(plan.batch_size, len(data)), min(SAMPLE_ROWS, len(data))
    return (
        (layers, shapes),
        (data.shape[1], data.dtype, rows),
        (plan.steps, plan.optimiser, plan.log_interval),
        (pairing_key(trial.pairing), objective.needs.augmented, can_compile(trial)),
    ), None


def models_together(trial: Trial) -> int:
    """How many trials like this one to stack: as many as keep a step's activations in a core's share of the cache.

    Fewer pay for the overhead of each operation, more for memory traffic.
    """
    rows = min(trial.plan.batch_size, len(trial.data)) * (1 + trial.objective.needs.augmented)
    widths = [p.shape[0] for p in trial.encoder.parameters() if p.ndim == 2]
    numbers = rows * (2 * trial.data.shape[1] + 3 * sum(widths)) + 2 * sum(
        p.numel() for p in trial.encoder.parameters()
    )
    return max(MINIMUM_STACK, min(MAXIMUM_STACK, cache_share() // (numbers * trial.data.element_size())))


MINIMUM_STACK, MAXIMUM_STACK = 8, 64


@functools.cache
def cache_share() -> int:
    """Bytes of the largest cache that belong to each core; 8 MiB where that cannot be found out."""
    for level in ("index3", "index2"):
        folder = Path(f"/sys/devices/system/cpu/cpu0/cache/{level}")
        with contextlib.suppress(OSError, ValueError):
            size = (folder / "size").read_text().strip()
            sharing = (folder / "shared_cpu_map").read_text().replace(",", "").strip()
            return int(size[:-1]) * {"K": 2**10, "M": 2**20}[size[-1]] // max(1, int(sharing, 16).bit_count())
    return 8 * 2**20


class _Progress:
    """Steps of all trials together, reported to one reporter."""

    def __init__(self, reporter: Reporter, total: int) -> None:
        self.reporter, self.total, self.steps = reporter, total, 0

    def start(self) -> None:
        self.reporter.start(self.total, 0)

    def add(self, steps: int) -> None:
        self.steps += steps
        self.reporter.advance(self.steps)


class _Forward(Reporter):
    """Passes the steps of a single training on to the bar of the whole grid."""

    def __init__(self, progress: _Progress) -> None:
        self.progress, self.step = progress, 0

    def advance(self, step: int) -> None:
        self.progress.add(step - self.step)
        self.step = step
