"""A comparison from the table to the report, within its time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from probssl import memory
from probssl.comparing import writing
from probssl.comparing.grid import Candidate, candidates
from probssl.comparing.race import Race
from probssl.comparing.result import BEST, LARGEST_CLASS, CompareResult, Final, baselines_of
from probssl.comparing.schedule import COHORT, Clock
from probssl.comparing.setup import Setup
from probssl.comparing.standings import Standing, predictors, standings, with_clid
from probssl.comparing.work import Contest, Outcome
from probssl.data import Table, check_trainable, images_of, load, world_of
from probssl.energies import Euclidean
from probssl.errors import InputError, NonFiniteLoss
from probssl.grids import backends, engine
from probssl.grids.database import WAY_OUT
from probssl.grids.engine import Progress
from probssl.grids.store import Store
from probssl.grids.versions import code_version
from probssl.grids.workers import WorkerDied
from probssl.model import Model
from probssl.parts.recipe import Recipe
from probssl.parts.resolve import resolve
from probssl.runs import Source
from probssl.runs.evaluation import UNTRAINED, baselines
from probssl.runs.planning import needed
from probssl.runs.reading import from_anywhere
from probssl.runs.workflow import stem
from probssl.schema import intact
from probssl.training.surroundings import one_thread
from probssl.training.watch import name_of

ASSESSED_ROWS = ((8.0, 2000), (5.0, 500))
"""How many times as long as drawing took must be left for the winner's own report to be computed on so many rows."""


WORTH_STARTING = 0.75
"""Minutes below which this process works alone: starting others would take most of them."""


class ComparisonInterrupted(KeyboardInterrupt):
    """A comparison was stopped, and what was finished is written."""

    def __init__(self, result: CompareResult) -> None:
        super().__init__(f"stopped; what was finished is in {result.folder}")
        self.result = result


def compare(
    data: Any,
    *,
    label: str | Sequence[str] | None = None,
    minutes: float | None = None,
    trials: int | None = None,
    objectives: Sequence[str] | None = None,
    energies: Sequence[str] | None = None,
    dims: Sequence[int] | None = None,
    drop: str | Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    missing: str | Sequence[str] = (),
    encoding: str | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | Callable[[str], Path] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    jobs: int | None = None,
    backend: str = backends.PROCESSES,
    address: str | None = None,
    progress: bool = False,
    started: float | None = None,
) -> CompareResult:
    """Which objective, energy, dimension and augmentation suit a table: all of them, ranked.

    Configurations are ranked by label-free scores and, where there is a label, chosen by a linear probe on validation
    rows; the winner is then tested on rows that nothing was chosen by, beside PCA, raw features and no training. The
    folder `out` (a temporary one if there is none, or what a function makes of the name of the data) gets the winner's
    run, the leaderboard and a report. `trials` is how many configurations take part, whatever time that takes; the
    result then depends on nothing but the arguments. With `minutes` (5 unless either is given) as much is done as
    there is time for, counted from this call, or from `started` of `time.monotonic`. Every finished training is kept:
    with `resume` the same call goes on after an interruption, a crash or a kill. `objectives` are any of `probssl parts
    objective` that a table can be trained with; a dozen unless named. `jobs` processes work, one a core; `backend` may
    be a cluster, "dask" or "ray". Raises `ComparisonInterrupted`, a `KeyboardInterrupt`, after writing what was
    finished when it is interrupted.
    """
    if trials is not None and minutes is not None:
        raise InputError("--trials is a comparison of that size and --minutes one of that length: give one of them")
    if trials is not None and trials < 1:
        raise InputError(f"--trials must be at least 1, not {trials}")
    if resume and overwrite:
        raise InputError("--resume continues a comparison and --overwrite replaces it: give one of them")
    backends.check(backend, jobs, address)
    clock = Clock.start(5.0 if trials is None and minutes is None else minutes, started)
    columns: Any = {
        "label": label if label is None or isinstance(label, str) else tuple(label),
        "drop": _names(drop),
        "kinds": dict(kinds or {}),
        "missing": _names(missing),
        "encoding": encoding,
    }
    table, source = _read(data, Source("object", **columns, seed=seed), progress)
    entrants = candidates(table.n_features, objectives=objectives, energies=energies, dims=dims, seed=seed)[:trials]
    folder = out(stem(source.data)) if callable(out) else Path(out or tempfile.mkdtemp(prefix="probssl-"))
    if backend == backends.PROCESSES and jobs is None and clock.budget < 60 * WORTH_STARTING:
        jobs = 1
    where = {"jobs": jobs, "backend": backend, "address": address}
    return run(
        table, source, entrants, clock, folder, seed=seed, resume=resume, overwrite=overwrite, shown=progress, **where
    )


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(names.split(",")) if isinstance(names, str) else tuple(names)


def _read(data: Any, source: Source, progress: bool) -> tuple[Table, Source]:
    """The table, and how to find it again. Stacks of trials train MLPs on augmented rows, not on images or worlds."""
    from probssl.report.console import download_progress  # with `compare_page` below, the one arrow back

    named = os.fspath(data) if isinstance(data, (str, os.PathLike)) else None
    if named is not None and world_of(named) is not None:
        raise _no_table(named, "world")
    if named is not None and images_of(named) is not None:
        raise _no_table(named, "images")
    with download_progress(named or "data", not progress) as bytes_read:
        seed = source.seed % 2**32
        table = load(data, **source.columns, seed=seed, progress=bytes_read)
    if not isinstance(table, Table) or table.layout.kind != "table":
        raise _no_table(named or f"the {table.source}", table.layout.kind)
    label = source.label if named is not None else table.label_name
    return table, replace(source, data=from_anywhere(data, table), label=label)


def _no_table(name: str, kind: str) -> InputError:
    what = "a world" if kind == "world" else f"a set of {kind}"
    return InputError(
        f"{name} is {what}, and compare sets losses side by side on tables: train one after the other with probssl fit"
    )


def run(
    table: Table,
    source: Source,
    entrants: list[Candidate],
    clock: Clock,
    folder: Path,
    *,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    shown: bool = False,
    **where: Any,
) -> CompareResult:
    """The whole comparison. When it is interrupted what was finished is written, and `ComparisonInterrupted` raised."""
    from probssl.report import compare_page
    from probssl.report.console import status, trial_progress

    check_trainable(table)
    with one_thread():
        with status("preparing", not shown):
            setup = Setup.of(table, seed)
            _check_memory(setup, entrants, where.get("jobs") or os.cpu_count() or 1)
            dims = sorted({candidate.dim for candidate in entrants})
            encoders = every_baseline(setup, dims)
            measured = {name: setup.measurer.measure(encoder, Euclidean()) for name, encoder in encoders.items()}
        clock = clock.reserved()
        writing.prepare(folder, overwrite=overwrite, resume=resume)
        contest = Contest(setup.x, setup.facts, setup.measurer, setup.final_measurer, setup.criterion.name)
        code = f"{code_version(('probssl.comparing.work',))} {setup.fingerprint}"
        with Store(folder / writing.STORE) as store:
            progress: Progress | None = trial_progress if shown else None
            interrupted = False
            with engine.started(contest, store, **where) as running:
                race = Race(entrants, contest, running, clock, code, seed, progress)
                try:
                    race.run()
                except KeyboardInterrupt:
                    interrupted = True
                    if not race.outcomes:
                        raise
        with status("testing the winner", not shown), intact(folder / writing.STORE, WAY_OUT):
            result, written = _conclude(setup, race, source, folder, encoders, measured, interrupted)
            writing.write_board(result)
            model = writing.write_run(written, setup.table, source, folder / BEST)
        with status("drawing the report", not shown):
            before = clock.elapsed
            compare_page.write(result)
            drawing = max(clock.elapsed - before, 0.5)
            rows = next((rows for times, rows in ASSESSED_ROWS if clock.left > times * drawing), 0)
            if rows and not interrupted:
                writing.assess_run(model, setup.table, rows, seed, folder / BEST)
                compare_page.write(result)  # with a link to that report
    result = replace(result, seconds=clock.elapsed)
    if interrupted:
        raise ComparisonInterrupted(result)
    return result


def _check_memory(setup: Setup, entrants: list[Candidate], jobs: int) -> None:
    """Refuse what would need more memory than there is with a stack of models in every process."""
    largest = max(entrants, key=lambda candidate: candidate.dim)
    rows, models = len(setup.x), min(COHORT * jobs, len(entrants))
    one = needed(resolve(largest.recipe(1, seed=0), setup.facts), rows, "none", exact=False)
    what = f"training {models:,} models at a time on {rows:,} rows of {setup.facts.features:,} columns"
    total = models * (one.weights / 2 + one.batch + one.pairs) + jobs * one.rows  # stacks write no checkpoints
    memory.require(total, what, "choose smaller --dims, fewer --jobs, or fewer columns")


def every_baseline(setup: Setup, dims: Sequence[int]) -> dict[str, nn.Module]:
    """What no training gives, as encoders, so that they are measured exactly as the trained ones are."""
    before = {
        f"{UNTRAINED} to {dim}": resolve(Recipe(seed=setup.seed).with_settings({"encoder.dim": dim}), setup.facts)
        .bind(setup.x)
        .encoder
        for dim in dims
    }
    return {**baselines(setup.x, dims), **before}


def _conclude(
    setup: Setup,
    race: Race,
    source: Source,
    folder: Path,
    encoders: dict[str, nn.Module],
    measured: dict[str, dict[str, float]],
    interrupted: bool,
) -> tuple[CompareResult, Outcome]:
    """Rank, choose, test; the result and the outcome whose model is to be written."""
    outcomes = with_clid(race.outcomes)
    board = standings(outcomes, setup.criterion.name)
    chosen = _with_weights(board, outcomes)
    if not chosen:
        reason = next((o.failure for o in outcomes if o.failure), None)
        if reason:
            raise NonFiniteLoss(f"every training failed, the first because {reason}")
        raise WorkerDied
    best = max(chosen, key=lambda outcome: outcome.value(setup.criterion.name))
    dim = best.job.candidate.dim
    beside = {name: encoders[name] for name in baselines_of(dim)}
    labelled = setup.table.labels is not None
    result = CompareResult(
        source=source.data,
        label=setup.table.label_name if labelled else None,
        rows=len(setup.table),
        features=setup.table.n_features,
        classes=len(setup.table.classes),
        criterion=setup.criterion,
        protocol=setup.protocol,
        grid=len(race.candidates),
        rounds=race.rounds,
        leaderboard=board,
        outcomes=outcomes,
        baselines=measured,
        final_baselines={name: setup.final_measurer.measure(e, Euclidean()) for name, e in beside.items()},
        predictors=predictors(outcomes, setup.seed) if labelled else [],
        final=_tested(setup, best, chosen, beside),
        folder=folder,
        seconds=race.clock.elapsed,
        minutes=race.clock.minutes,
        notes=_notes(race, board, best, interrupted),
        interrupted=interrupted,
    )
    return result, best


def _with_weights(board: Sequence[Standing], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The trainings of the first configuration on the leaderboard whose weights were kept, one for each seed."""
    for standing in board:
        key = standing.candidate, standing.round, standing.steps
        mine = [o for o in outcomes if (o.job.candidate, o.job.round, o.job.steps) == key]
        if kept := [outcome for outcome in mine if outcome.kept is not None]:
            return kept
    return []


def _tested(setup: Setup, best: Outcome, chosen: Sequence[Outcome], beside: dict[str, nn.Module]) -> Final | None:
    """The winner from each of its seeds, and what no training gives, on the rows kept aside."""
    held = setup.held_out()
    if held is None:
        return None
    tested = {}
    for outcome in chosen:
        model = Model.untrained(outcome.job.recipe, setup.table)
        outcome.put_into(model)
        tested[outcome.job.seed] = held.test(model.encoder)
    others = {name: held.test(encoder) for name, encoder in beside.items()}
    return Final(
        fitted_rows=len(held.labels),
        rows=len(held.test_labels),
        seeds=tuple(result.accuracy for result in tested.values()),
        winner=tested[best.job.seed],
        others={**others, LARGEST_CLASS: held.largest_class()},
    )


def _notes(race: Race, board: Sequence[Standing], best: Outcome, interrupted: bool) -> list[str]:
    """What a reader should know about how it went."""
    notes = []
    if interrupted:
        notes.append("interrupted: this is what was finished")
    if race.broken:
        notes.append("a process died, most likely because memory ran out: this is what was finished before")
    tried = len({outcome.job.candidate for outcome in race.outcomes})
    if tried < len(race.candidates):
        notes.append(f"{len(race.candidates) - tried} of {len(race.candidates)} configurations were not reached")
    if best.job.candidate != board[0].candidate:
        notes.append(f"the weights of the first were not kept: the model is that of {best.job.candidate.name}")
    if race.rounds and not race.rounds[-1].final:
        notes.append("there was no time for a last round with several seeds: the order is rough")
    if best.collapsed:
        notes.append(f"the winner shows {' and '.join(map(name_of, best.collapsed))}: see probssl doctor")
    failed = sum(standing.failure is not None for standing in board)
    if failed:
        notes.append(f"{failed} configurations failed: their loss was not finite")
    return notes
