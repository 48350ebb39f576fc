"""`probssl runs`, `probssl export`: which runs there are, and a run's network for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probssl.cli.app import Json, Parts, RunFolder, app, command, open_run, print_json
from probssl.errors import InputError


@app.command(epilog="Example: probssl runs --prune")
@command
def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to look (default: runs)")] = Path("runs"),
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", metavar="", help="Delete checkpoints of finished runs, which cannot be extended afterwards"
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """List the runs in FOLDER with their progress and metrics."""
    from probssl.report import console
    from probssl.runs.listing import lines

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    found = lines(folder)
    freed = sum(line.prune() for line in found) if prune else 0
    if as_json:
        print_json({"runs": [line.as_dict() for line in found], **({"freed": freed} if prune else {})})
        return
    console.show_runs(found, folder)
    if prune:
        console.say(f"deleted {freed / 2**20:.1f} MB of checkpoints")


@app.command(epilog="Example: probssl export runs/digits-infonce-euclidean --to onnx --out digits.onnx")
@command
def export(
    run: RunFolder,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="onnx or torch (torch.export)")] = "onnx",
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar="", help="Replace FILE")] = False,
    parts: Parts = None,
    as_json: Json = False,
) -> None:
    """Write the network of a run, from raw numbers to representations, for use without probssl.

    A JSON document next to FILE lists its input columns in order.
    """
    from probssl.model.export import description_of
    from probssl.model.export import export as write
    from probssl.report import console

    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist")
    for path in (out, description_of(out)):
        if path.exists() and not overwrite:
            raise InputError(f"{path} exists: choose another --out or --overwrite it")
    described = write(open_run(run, parts).model, out, to)
    if as_json:
        print_json({"out": str(out), "columns": str(described)})
    else:
        console.say(f"network   {out}\ncolumns   {described}")
