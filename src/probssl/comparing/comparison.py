"""A comparison from the data to the report, within its time."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
from torch import nn

from probssl import memory
from probssl.comparing import writing
from probssl.comparing.grid import candidates
from probssl.comparing.measuring import LABEL_FREE, PROBE
from probssl.comparing.race import Race
from probssl.comparing.result import BEST, LARGEST_CLASS, CompareResult, Final, beside
from probssl.comparing.schedule import COHORT, SEEDS, Clock
from probssl.comparing.setup import Setup
from probssl.comparing.standings import Standing, predictors, standings, with_clid
from probssl.comparing.work import Contest, Outcome
from probssl.data import Corrupt, world_of
from probssl.energies import Euclidean
from probssl.errors import InputError, NonFiniteLoss
from probssl.grids import backends, engine
from probssl.grids.database import WAY_OUT
from probssl.grids.engine import Progress
from probssl.grids.objects import own_modules, version_of
from probssl.grids.store import Store
from probssl.grids.versions import code_version
from probssl.grids.workers import WorkerDied
from probssl.model import Model, facts_of
from probssl.runs import Source
from probssl.runs.planning import needed
from probssl.runs.reading import TEST_SHARE, Announcer, Reading
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
    objectives: Sequence[Any] | None = None,
    energies: Sequence[Any] | None = None,
    pairings: Sequence[Any] | None = None,
    encoder: Any = None,
    dims: Sequence[int] | None = None,
    drop: str | Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    missing: str | Sequence[str] = (),
    encoding: str | None = None,
    test: Any = None,
    size: int | tuple[int, int] | None = None,
    corrupt: Corrupt = "refuse",
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
    """Which objective, energy, pairing and dimension suit the data: all of them, ranked.

    Configurations are ranked by label-free scores and chosen by a linear probe on validation rows where there is a
    label, by R² where the data is a world, whose latents are known; the winner is then tested on rows that nothing was
    chosen by, beside PCA, raw features and no training.

    data, label, drop, test, size, corrupt, keep_constant: the data and how it is read, as for `probssl.fit`.
    minutes: as much is done as there is time for, counted from this call or from `started` of `time.monotonic`; 5
        unless `trials` is given.
    trials: how many configurations take part, whatever time that takes; the result then depends on nothing but the
        arguments.
    objectives, energies, pairings: those to compare, by name (`probssl parts`) or as objects, which are copied and
        never trained in place. A dozen objectives unless given, "all" that fit the data if asked for, with the energies
        and augmentations that suit them.
    encoder: that of all configurations, by name or any `nn.Module`; what suits the data unless given.
    dims: the dimensions to compare.
    seed: decides splits, initial weights, batches and augmentations.
    out: the folder (a temporary one if there is none, or what a function makes of the name of the data), which gets the
        winner's run, the leaderboard and a report. Every finished training is kept there: with `resume` the same call
        goes on after an interruption, a crash or a kill. `overwrite` replaces the comparison in it.
    jobs, backend, address: how many processes work, one a core unless given, or a cluster, "dask" or "ray".

    Raises `ComparisonInterrupted`, a `KeyboardInterrupt`, after writing what was finished when it is interrupted.
    """
    if trials is not None and minutes is not None:
        raise InputError("--trials is a comparison of that size and --minutes one of that length: give one of them")
    if trials is not None and trials < 1:
        raise InputError(f"--trials must be at least 1, not {trials}")
    if resume and overwrite:
        raise InputError("--resume continues a comparison and --overwrite replaces it: give one of them")
    backends.check(backend, jobs, address)
    clock = Clock.start(5.0 if trials is None and minutes is None else minutes, started)
    named = os.fspath(data) if isinstance(data, (str, os.PathLike)) else getattr(data, "source", "")
    test = TEST_SHARE if test is None and world_of(named) is not None else test
    reading = Reading(label, drop, kinds, missing, encoding, None, test, size, corrupt)
    dataset, source = reading.first(data, seed, None, Announcer(progress))
    parts, entrants = candidates(
        facts_of(dataset),
        objectives=objectives,
        energies=energies,
        pairings=pairings,
        encoder=encoder,
        dims=dims,
        seed=seed,
    )
    folder = out(stem(source.data)) if callable(out) else Path(out or tempfile.mkdtemp(prefix="probssl-"))
    if backend == backends.PROCESSES and jobs is None and clock.budget < 60 * WORTH_STARTING:
        jobs = 1
    where = {"jobs": jobs, "backend": backend, "address": address}
    setup = Setup(dataset, parts, entrants[:trials], seed)
    return run(setup, source, clock, folder, resume=resume, overwrite=overwrite, shown=progress, **where)


def run(
    setup: Setup,
    source: Source,
    clock: Clock,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    shown: bool = False,
    **where: Any,
) -> CompareResult:
    """The whole comparison. When it is interrupted what was finished is written, and `ComparisonInterrupted` raised."""
    from probssl.report import compare_page
    from probssl.report.console import status, trial_progress

    entrants, seed = setup.entrants, setup.seed
    with one_thread():
        with status("preparing", not shown):
            _check_memory(setup, where.get("jobs") or os.cpu_count() or 1)
            setups = {number: setup.at(number) for number in range(seed, seed + SEEDS)}
            benches = {number: each.bench for number, each in setups.items()}
            encoders = setup.baselines(sorted({candidate.dim for candidate in entrants}))
            measured = {name: setup.bench.screening.measure(encoder, Euclidean()) for name, encoder in encoders.items()}
        clock = clock.reserved()
        writing.prepare(folder, overwrite=overwrite, resume=resume)
        contest = Contest(setup.parts, benches, setup.criterion.name)
        code = code_version(("probssl.comparing.work",)), setup.data.fingerprint, version_of(setup.pairings, seed)
        steps = setup.parts.resolve(entrants[0]).plan.steps
        with Store(folder / writing.STORE) as store, _by_value(setup):
            progress: Progress | None = trial_progress if shown else None
            interrupted = False
            with engine.started(contest, store, **where) as running:
                race = Race(list(entrants), contest, running, clock, " ".join(code), seed, steps, progress)
                try:
                    race.run()
                except KeyboardInterrupt:
                    interrupted = True
                    if not race.outcomes:
                        raise
        with status("testing the winner", not shown), intact(folder / writing.STORE, WAY_OUT):
            result, written = _conclude(setups, setup, race, source, folder, encoders, measured, interrupted)
            writing.write_board(result)
            its = setups[written.job.seed]
            recipe = setup.parts.recipe(written.job.candidate, written.job.steps, written.job.seed)
            model = writing.write_run(written, recipe, its.data, replace(source, seed=its.seed), folder / BEST)
        with status("drawing the report", not shown):
            before = clock.elapsed
            compare_page.write(result)
            drawing = max(clock.elapsed - before, 0.5)
            rows = next((rows for times, rows in ASSESSED_ROWS if clock.left > times * drawing), 0)
            if rows and not interrupted:
                writing.assess_run(model, its.data, rows, seed, folder / BEST)
                compare_page.write(result)  # with a link to that report
    result = replace(result, seconds=clock.elapsed)
    if interrupted:
        raise ComparisonInterrupted(result)
    return result


@contextlib.contextmanager
def _by_value(setup: Setup) -> Iterator[None]:
    """Send the code of parts that are neither ours nor installed to the processes that work."""
    made = [setup.parts.resolve(candidate) for candidate in {c.objective: c for c in setup.entrants}.values()]
    modules = own_modules(setup.pairings, *((each.objective, each.encoder) for each in made))
    with contextlib.ExitStack() as stack:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
            stack.callback(cloudpickle.unregister_pickle_by_value, module)
        yield


def _check_memory(setup: Setup, jobs: int) -> None:
    """Refuse what would need more memory than there is with a stack of models in every process."""
    largest = max(setup.entrants, key=lambda candidate: candidate.dim)
    facts = setup.parts.facts
    models = min((COHORT if facts.kind == "table" else 1) * jobs, len(setup.entrants))
    one = needed(setup.parts.resolve(largest, 1), facts.rows, "none", exact=facts.kind == "images")
    what = f"training {models:,} models at a time on {facts.rows:,} rows of {facts.features:,} numbers"
    total = models * (one.weights / 2 + one.batch + one.pairs) + jobs * one.rows  # stacks write no checkpoints
    memory.require(total, what, "choose smaller --dims, fewer --jobs, or fewer columns")


def _conclude(
    setups: dict[int, Setup],
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
    criterion = setup.criterion.name
    board = standings(outcomes, criterion)
    chosen = _with_weights(board, outcomes)
    if not chosen:
        reason = next((o.failure for o in outcomes if o.failure), None)
        if reason:
            raise NonFiniteLoss(f"every training failed, the first because {reason}")
        raise WorkerDied
    best = max(chosen, key=lambda outcome: outcome.value(criterion))
    others = {name: encoders[name] for name in beside(setup.parts.facts, best.job.candidate.dim)}
    known = setup.parts.objectives
    result = CompareResult(
        source=source.data,
        label=setup.data.label_name if setup.data.labels is not None else None,
        rows=len(setup.data),
        facts=setup.parts.facts,
        classes=len(setup.data.classes),
        scores=setup.scores,
        families={name: setup.parts.family(name) for name in known},
        parts=setup.parts.handed_in(best.job.candidate),
        protocol=setup.protocol,
        grid=len(race.candidates),
        rounds=race.rounds,
        leaderboard=board,
        outcomes=outcomes,
        baselines=measured,
        final_baselines={name: setup.bench.final.measure(e, Euclidean()) for name, e in others.items()},
        predictors=[] if setup.criterion in LABEL_FREE else predictors(outcomes, criterion, setup.seed),
        final=_tested(setups, best, chosen),
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


def _tested(setups: dict[int, Setup], best: Outcome, chosen: Sequence[Outcome]) -> Final | None:
    """The winner from each of its seeds, and what no training gives, on the rows kept aside."""
    tested = {}
    for outcome in chosen:
        setup, job = setups[outcome.job.seed], outcome.job
        if setup.held_out is None:
            return None
        model = Model.untrained(setup.parts.recipe(job.candidate, job.steps, job.seed), setup.data)
        outcome.put_into(model)
        tested[job.seed] = setup.held_out.test(model.encoder, model.objective.energy)
    setup, dim = setups[best.job.seed], best.job.candidate.dim
    held, encoders = setup.held_out, setup.baselines([dim])
    assert held is not None
    others = {name: held.test(encoders[name], Euclidean()) for name in beside(setup.parts.facts, dim)}
    if setup.criterion is PROBE:
        others[LARGEST_CLASS] = held.largest_class()
    return Final(
        fitted_rows=len(held.fitting),
        rows=len(held.judged),
        seeds=tuple(marks.mean for marks in tested.values()),
        winner=tested[best.job.seed],
        others=others,
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
