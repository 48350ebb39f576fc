"""`probssl reproduce`: the papers' experiments."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from probssl.cli.app import Address, Backend, Jobs, Json, Quiet, app, command, fail, print_json, say
from probssl.errors import InputError

KEPT = "Stored trials"


@app.command(epilog="Example: probssl reproduce siamese/circles --out circles")
@command
def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Experiment (default: list them)")] = None,
    budget: Annotated[
        str, typer.Option("--budget", help="smoke (seconds), laptop (minutes) or full (the paper's)")
    ] = "laptop",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder to write (default: reproduced/NAME)")
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", metavar="", help="Discard stored trials", rich_help_panel=KEPT),
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write the stored trials to a CSV, TSV or Parquet file and run none",
            rich_help_panel=KEPT,
        ),
    ] = None,
    jobs: Jobs = None,
    backend: Backend = "processes",
    address: Address = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a paper's experiment and compare its numbers with the published ones.

    Finished trials are kept in DIR/store.sqlite, so that the same command resumes an interrupted experiment.
    """
    from probssl import studies
    from probssl.report import console

    if name is None:
        if out is not None or export is not None or fresh:
            raise InputError("--out, --export and --fresh need the NAME of an experiment")
        _list(budget, as_json)
        return
    folder = out or Path("reproduced") / name
    if export is not None:
        count = studies.export(name, folder, export)
        if as_json:
            print_json({"out": str(export), "trials": count})
        elif not quiet:
            console.say(f"{count:,} trial{'s' * (count != 1)}   {export}")
        return
    before = studies.standing(studies.find(name), budget, folder)
    if before.older and before.done < before.total and not (quiet or as_json or fresh):
        say(f"{before.older} trials from an earlier version of the code are kept in the store but not used")
    try:
        result = studies.run(
            name, budget, folder, quiet=quiet or as_json, jobs=jobs, backend=backend, address=address, fresh=fresh
        )
    except KeyboardInterrupt:
        now = studies.standing(studies.find(name), budget, folder)
        given = {"--budget": budget, "--out": out, "--jobs": jobs, "--backend": backend, "--address": address}
        asked = [(flag, str(value)) for flag, value in given.items() if value not in (None, "laptop", "processes")]
        again = ["probssl", "reproduce", name, *[word for pair in asked for word in pair]]
        say(f"stopped after {now.done} of {now.total} trials; resume with: {shlex.join(again)}")
        raise typer.Exit(130) from None
    if as_json:
        print_json(result.as_dict())
    else:
        console.show_study(result)
    if result.failures:
        config, message = result.failures[0]
        what = ", ".join(f"{key} {value}" for key, value in config.items())
        fail(
            f"{len(result.failures)} of {result.trials} trials failed; run the same command to retry them; "
            f"the first ({what}): {message}"
        )
        raise typer.Exit(1)


def _list(budget: str, as_json: bool) -> None:
    """Every experiment, with how far it has come in its folder."""
    from probssl import studies
    from probssl.report import console

    entries = []
    for study in studies.catalogue():
        trials = studies.standing(study, budget, Path("reproduced") / study.name).as_dict()
        entries.append({**study.as_dict(), "budget": budget, "trials": trials})
    if as_json:
        print_json({"experiments": entries})
    else:
        console.show_studies(entries)
