"""`probssl reproduce`: the papers' experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probssl.cli.app import Json, Quiet, app, command, print_json


@app.command(epilog="Example: probssl reproduce siamese/circles --out circles")
@command
def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Experiment; without it, the list.")] = None,
    budget: Annotated[
        str, typer.Option("--budget", help="smoke (seconds), laptop (minutes) or full (the paper's).")
    ] = "laptop",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder to write (default: reproduced/NAME)")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a paper's experiment and set its numbers beside the published ones."""
    from probssl import studies
    from probssl.report import console

    if name is None:
        catalogue = [study.as_dict() for study in studies.catalogue()]
        if as_json:
            print_json({"experiments": catalogue})
        else:
            console.show_studies(catalogue)
        return
    result = studies.run(name, budget, out or Path("reproduced") / name, quiet=quiet or as_json)
    if as_json:
        print_json(result.as_dict())
    else:
        console.show_study(result)
