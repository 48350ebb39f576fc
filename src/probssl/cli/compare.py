"""`probssl compare`: which objective, energy, pairing and dimension suit the data."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from probssl.cli.app import (
    Address,
    Backend,
    Corrupt,
    Data,
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
from probssl.cli.fit import names_of, size_of
from probssl.errors import InputError

Entry = TypeVar("Entry")
LIST = "A,B,…"


@app.command(epilog="Example: probssl compare pmlb:spambase --minutes 3")
@command
def compare(
    data: Data,
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
        typer.Option(metavar=LIST, help="Losses that probssl parts lists, or all that fit (default: a dozen)"),
    ] = None,
    energies: Annotated[
        str | None, typer.Option(metavar=LIST, help="Energies to compare (default: those that are quick)")
    ] = None,
    pairings: Annotated[
        str | None,
        typer.Option(
            metavar=LIST, help="Augmentations: weak, medium, strong on tables, or any that probssl parts lists"
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The network of all (default: what suits DATA)", autocompletion=names_of("encoder")
        ),
    ] = None,
    dims: Annotated[
        str | None,
        typer.Option(metavar="M,M,…", help="Dimensions (default, tables: a quarter, half and all of the features)"),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="Rows kept for the test: a share, a column or a file (default: 0.2)"),
    ] = None,
    size: Annotated[str | None, typer.Option(metavar="H,W", help="Size that images of a folder are resized to")] = None,
    corrupt: Corrupt = "refuse",
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
    """Find out which loss, energy, augmentation and dimension suit DATA: each combination, ranked and tested.

    Tables, images and worlds, with and without labels. The folder gets the winning model as a run, the leaderboard, and
    a report.
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
            pairings=_listed(pairings, str, "--pairings"),
            encoder=encoder,
            dims=_listed(dims, int, "--dims"),
            test=test,
            size=None if size is None else size_of(size),
            corrupt=corrupt,  # type: ignore[arg-type]
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
