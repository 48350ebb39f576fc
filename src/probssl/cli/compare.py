"""`probssl compare`: which objective, energy, dimension and augmentation suit a table."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from probssl.cli.app import (
    TABLE_HELP,
    Address,
    Backend,
    Drop,
    Encoding,
    Jobs,
    Json,
    Kinds,
    Label,
    Missing,
    Quiet,
    app,
    columns_of,
    command,
    print_json,
    say,
)
from probssl.errors import InputError

Entry = TypeVar("Entry")


@app.command(epilog="Example: probssl compare pmlb:spambase --minutes 3")
@command
def compare(
    data: Annotated[str, typer.Argument(metavar="DATA", help=TABLE_HELP)],
    label: Label = None,
    drop: Drop = None,
    kind: Kinds = None,
    missing: Missing = None,
    encoding: Encoding = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="M", help="Time limit in minutes (default: 5)")
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option("--trials", metavar="N", help="Number of configurations to compare, however long it takes"),
    ] = None,
    objectives: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="Losses to compare, from probssl parts objective (default: twelve)"),
    ] = None,
    energies: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Energies to compare (default: the fast ones)")
    ] = None,
    dims: Annotated[
        str | None,
        typer.Option(metavar="M,M,…", help="Dimensions to compare (default: a quarter, half and all of the features)"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for splits, initial weights, batches and augmentations")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write (default: below compared/)")] = None,
    resume: Annotated[bool, typer.Option("--resume", metavar="", help="Resume the comparison in --out")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar="", help="Replace the comparison in --out")] = False,
    jobs: Jobs = None,
    backend: Backend = "processes",
    address: Address = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find out which loss, energy and dimension suit a table by training and ranking them, with or without labels.

    The output folder gets the winning model as a run, the leaderboard and a report.
    """
    started = time.monotonic()
    if resume and out is None:
        raise InputError("--resume needs --out, the folder of the comparison to resume")
    from probssl.comparing import ComparisonInterrupted
    from probssl.comparing import compare as find
    from probssl.report import compare_console
    from probssl.runs.workflow import unused

    interrupted = False
    try:
        result = find(
            data,
            **columns_of(label, drop, kind, missing, encoding),
            minutes=minutes,
            trials=trials,
            objectives=_listed(objectives, str, "--objectives"),
            energies=_listed(energies, str, "--energies"),
            dims=_listed(dims, int, "--dims"),
            seed=seed,
            out=out or (lambda name: unused(Path("compared") / name)),
            resume=resume,
            overwrite=overwrite,
            jobs=jobs,
            backend=backend,
            address=address,
            progress=not (quiet or as_json),
            started=started,
        )
    except ComparisonInterrupted as stop:
        result, interrupted = stop.result, True
    if as_json:
        print_json({**result.as_dict(), "seconds": round(result.seconds, 1)})
    else:
        compare_console.show(result)
    if interrupted:
        say("stopped: what was finished is written")
        raise typer.Exit(130)


def _listed(text: str | None, kind: Callable[[str], Entry], option: str) -> list[Entry] | None:
    """The entries of a list with commas."""
    if text is None:
        return None
    try:
        found = [kind(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"{option} takes whole numbers separated by commas, not {text!r}") from None
    if not found:
        raise InputError(f"{option} needs at least one entry")
    return found
