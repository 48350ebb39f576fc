"""A comparison from the table to the report, within its time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import nn

from probssl.comparing import writing
from probssl.comparing.baselines import RAW, baselines, pca_name, untrained_name
from probssl.comparing.grid import Candidate, candidates
from probssl.comparing.ground import Ground
from probssl.comparing.planning import Clock
from probssl.comparing.pool import Pool, StopSignal, one_thread, processes
from probssl.comparing.progress import Progress
from probssl.comparing.race import Race
from probssl.comparing.result import LARGEST_CLASS, CompareResult, Final
from probssl.comparing.standings import Standing, predictors, standings, with_clid
from probssl.comparing.work import Outcome, Workshop
from probssl.data import Table, check_trainable, images_of, load_table, world_of
from probssl.energies import Euclidean
from probssl.errors import InputError, NonFiniteLoss, ProbsslError
from probssl.model import Model
from probssl.runs import Source
from probssl.training.watch import name_of

ASSESSED_ROWS = ((8.0, 2000), (5.0, 500))
"""How many times as long as drawing took must be left for the winner's own report to be computed on so many rows."""


def compare(
    data: Table | np.ndarray | str | os.PathLike[str],
    *,
    label: str | None = None,
    minutes: float = 5.0,
    objectives: Sequence[str] | None = None,
    energies: Sequence[str] | None = None,
    dims: Sequence[int] | None = None,
    drop: Sequence[str] = (),
    keep_constant: bool = False,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> CompareResult:
    """Which objective, energy, dimension and augmentation suit a table: all of them, ranked, in a given time.

    Configurations are ranked by label-free scores and, where there is a label, chosen by a linear probe on validation
    rows; the winner is then tested on rows that nothing was chosen by, beside PCA, raw features and no training. The
    folder `out` (a temporary one if there is none) gets the winner's run, the leaderboard and a report. The time holds
    for everything from this call on, and is kept. Raises `KeyboardInterrupt` after writing what was finished when it is
    interrupted.
    """
    clock = Clock.start(minutes)
    tables_only(data.source if isinstance(data, Table) else data)
    if isinstance(data, Table):
        table, source = data, Source(data.source, data.label_name, (), keep_constant)
    else:
        table = load_table(data, label=label, drop=drop, seed=seed % 2**32)
        source = Source(table.source, label, tuple(drop), keep_constant)
    entrants = candidates(table.n_features, objectives=objectives, energies=energies, dims=dims, seed=seed)
    folder = Path(tempfile.mkdtemp(prefix="probssl-")) if out is None else Path(out)
    with Progress(clock, shown=progress) as bar:
        result = run(table, source, entrants, clock, folder, seed=seed, overwrite=overwrite, progress=bar)
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def tables_only(source: object) -> None:
    """Stacks of trials train MLPs on rows with augmentations, which is not what a world or images ask."""
    world = isinstance(source, str) and world_of(source) is not None
    if world or images_of(source) is not None:
        shown = "the array" if isinstance(source, np.ndarray) else source
        raise InputError(
            f"{shown} is a {'world' if world else 'set of images'}, and compare sets losses side by side on tables: "
            f"train each with probssl fit {shown} --objective NAME"
        )


def run(
    table: Table,
    source: Source,
    entrants: list[Candidate],
    clock: Clock,
    folder: Path,
    *,
    progress: Progress,
    seed: int = 0,
    overwrite: bool = False,
    workers: int | None = None,
) -> CompareResult:
    """The whole comparison. When it is interrupted what was finished is written, and the result says so."""
    check_trainable(table, keep_constant=source.keep_constant)
    workers = processes(clock.budget) if workers is None else workers
    with one_thread(), StopSignal() as stop:
        progress.show("preparing")
        ground = Ground.of(table, seed)
        clock = clock.reserved()
        writing.prepare(folder, overwrite)
        workshop = Workshop(ground.x, ground.measurer, ground.final_measurer, ground.criterion.name, stop.file)
        with Pool(workshop, workers, stop) as pool:
            race = Race(entrants, clock, pool, seed, ground.criterion.name)
            race.keep = lambda outcomes: writing.append(folder, outcomes)
            race.tick = lambda: progress.show(race.describe(), race.seconds_left())
            warming = race.warm_up()
            encoders = baselines(ground.x, sorted({candidate.dim for candidate in entrants}), seed)
            measured = {name: ground.measurer.measure(encoder, Euclidean()) for name, encoder in encoders.items()}
            race.measure_speed(warming)
            race.run()
        if stop.given and not race.outcomes:
            raise KeyboardInterrupt
        progress.show("testing the winner")
        result, written = _conclude(ground, race, source, folder, encoders, measured)
        writing.write_board(result)
        model = writing.write_run(written, ground.development, source, folder / writing.BEST)
        progress.show("drawing the report")
        before = clock.elapsed
        from probssl.report import compare_page  # reports read comparisons; this is the one arrow back

        compare_page.write(result)
        drawing = max(clock.elapsed - before, 0.5)
        rows = next((rows for times, rows in ASSESSED_ROWS if clock.left > times * drawing), 0)
        if rows and not stop.given:
            progress.show("assessing the winner")
            writing.assess_run(model, table, rows, seed, folder / writing.BEST)
            compare_page.write(result)  # with a link to that report
        return replace(result, seconds=clock.elapsed)


def _conclude(
    ground: Ground,
    race: Race,
    source: Source,
    folder: Path,
    encoders: dict[str, nn.Module],
    measured: dict[str, dict[str, float]],
) -> tuple[CompareResult, Outcome]:
    """Rank, choose, test; the result and the outcome whose model is to be written."""
    outcomes = with_clid(race.outcomes)
    board = standings(outcomes, ground.criterion.name)
    chosen = _with_weights(board, outcomes)
    if not chosen:
        reason = next((o.failure for o in outcomes if o.failure), None)
        if reason:
            raise NonFiniteLoss(f"every training failed, the first because {reason}")
        if race.pool.broken:
            raise ProbsslError(
                "the worker processes died before a training was finished, most likely for want of memory"
            )
        raise InputError(f"no training was finished in {race.clock.budget / 60:g} minutes: give more --minutes")
    best = max(chosen, key=lambda outcome: outcome.value(ground.criterion.name))
    dim = best.job.candidate.dim
    beside = {name: encoders[name] for name in (pca_name(dim), RAW, untrained_name(dim))}
    labelled = ground.table.labels is not None
    result = CompareResult(
        source=source.data,
        label=ground.table.label_name if labelled else None,
        rows=len(ground.table),
        features=ground.table.n_features,
        classes=len(ground.table.classes),
        criterion=ground.criterion,
        protocol=ground.protocol,
        grid=len(race.candidates),
        rounds=race.rounds,
        leaderboard=board,
        outcomes=outcomes,
        baselines=measured,
        final_baselines={name: ground.final_measurer.measure(e, Euclidean()) for name, e in beside.items()},
        predictors=predictors(outcomes, ground.seed) if labelled else [],
        final=_tested(ground, best, chosen, beside),
        folder=folder,
        seconds=race.clock.elapsed,
        minutes=race.clock.budget / 60,
        notes=_notes(race, board, best),
        interrupted=race.pool.stop.given,
    )
    return result, best


def _with_weights(board: Sequence[Standing], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The trainings of the first configuration on the leaderboard whose weights were kept, one for each seed."""
    for standing in board:
        key = standing.candidate, standing.round, standing.steps
        mine = [o for o in outcomes if (o.job.candidate, o.job.round, o.job.steps) == key]
        if kept := [outcome for outcome in mine if outcome.weights is not None]:
            return kept
    return []


def _tested(ground: Ground, best: Outcome, chosen: Sequence[Outcome], beside: dict[str, nn.Module]) -> Final | None:
    """The winner from each of its seeds, and what no training gives, on the rows kept aside."""
    held = ground.held_out()
    if held is None:
        return None
    tested = {}
    for outcome in chosen:
        model = Model.untrained(outcome.job.recipe, ground.development)
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


def _notes(race: Race, board: Sequence[Standing], best: Outcome) -> list[str]:
    """What a reader should know about how it went."""
    notes = []
    if race.pool.stop.given:
        notes.append("interrupted: this is what was finished")
    if race.pool.broken:
        notes.append("a process died, most likely for want of memory: this is what was finished before")
    tried = len({outcome.job.candidate for outcome in race.outcomes})
    if tried < len(race.candidates):
        notes.append(f"{len(race.candidates) - tried} of {len(race.candidates)} configurations found no time")
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
