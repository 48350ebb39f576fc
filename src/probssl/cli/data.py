"""`probssl data`: what is here, and what can be had."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from probssl.cli.app import (
    TABLE_HELP,
    Drop,
    Encoding,
    Json,
    Kinds,
    Label,
    Missing,
    Quiet,
    app,
    columns_of,
    command,
    print_json,
)

data_app = typer.Typer(
    help="What data is here, what can be had, and what a table holds",
    epilog="Example: probssl data describe customers.csv",
    no_args_is_help=True,
)
app.add_typer(data_app, name="data")


@data_app.command("list", epilog="Example: probssl data list --json")
@command
def data_list(as_json: Json = False) -> None:
    """List named data sets and whether they have been downloaded."""
    from probssl.data import catalogue, data_directory
    from probssl.report import console

    sets = catalogue()
    if as_json:
        print_json({"directory": str(data_directory()), "data": [_plain(entry) for entry in sets]})
    else:
        console.show_data(sets, data_directory())


@data_app.command("fetch", epilog="Example: probssl data fetch pmlb:letter")
@command
def data_fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a data set, for example pmlb:letter")],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Download a named data set to the cache, unless it is there already."""
    from probssl.data import fetch
    from probssl.report import console

    with console.download_progress(name, quiet or as_json) as progress:
        path = fetch(name, progress=progress)
    if as_json:
        print_json({"name": name, "path": str(path)})
    else:
        console.say(str(path))


@data_app.command("describe", epilog="Example: probssl data describe customers.csv --label churned --kind zip=category")
@command
def data_describe(
    data: Annotated[str, typer.Argument(metavar="DATA", help=TABLE_HELP)],
    label: Label = None,
    drop: Drop = None,
    kind: Kinds = None,
    missing: Missing = None,
    encoding: Encoding = None,
    as_json: Json = False,
) -> None:
    """What the columns of a table are taken for, and what is done with them."""
    from probssl.data.describing import describe
    from probssl.report import console

    rows, columns = describe(data, **columns_of(label, drop, kind, missing, encoding))
    if as_json:
        print_json({"data": data, "rows": rows, "columns": [column.as_dict() for column in columns]})
    else:
        console.show_columns(data, rows, columns)


def _plain(entry: Any) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, Path) else value for key, value in dataclasses.asdict(entry).items()}
