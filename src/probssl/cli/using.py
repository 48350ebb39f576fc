"""What is done with a run: `probssl embed`, `evaluate`, `doctor`, `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probssl.cli.app import (
    DATA_HELP,
    Corrupt,
    Data,
    Json,
    Label,
    Quiet,
    RunFolder,
    app,
    command,
    load_for,
    open_run,
    print_json,
)
from probssl.errors import InputError


@app.command(epilog="Example: probssl embed runs/digits-infonce-euclidean new.csv --out new.npy")
@command
def embed(
    run: RunFolder,
    data: Data,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="NPY, CSV, TSV or Parquet file to write.")],
    part: Annotated[
        str | None,
        typer.Option("--part", metavar="PART", help="Half of a set of images: train or test (default: both, in turn)"),
    ] = None,
    corrupt: Corrupt = "refuse",
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar="", help="Replace FILE.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write the representations of DATA, one row each, in columns z0, z1, …."""
    from probssl.data import ImageSet
    from probssl.data.writing import check_writable, write
    from probssl.report import console

    check_writable(out, overwrite)
    model = open_run(run).model
    found = load_for(model, data, None, quiet or as_json, corrupt)  # type: ignore[arg-type]
    if part is not None and not isinstance(found, ImageSet):
        raise InputError(f"--part is for sets of images, and {data} is a table: leave it out")
    with console.status("embedding", quiet or as_json):
        z = model.embed(found, part or "all")  # type: ignore[arg-type]
        write(out, z, [f"z{i}" for i in range(z.shape[1])])
    if as_json:
        print_json({"out": str(out), "rows": len(z), "dim": z.shape[1]})
    elif not quiet:
        console.say(f"{len(z):,} row{'s' * (len(z) != 1)} of {z.shape[1]} dimension{'s' * (z.shape[1] != 1)}   {out}")


@app.command(epilog="Example: probssl evaluate runs/letter-snl-euclidean test.csv --label target")
@command
def evaluate(
    run: RunFolder,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help=f"{DATA_HELP} (default: the run's own)")] = None,
    label: Label = None,
    corrupt: Corrupt = "refuse",
    seed: Annotated[int, typer.Option("--seed", help="Decides splits and augmentations.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Every metric that applies, beside raw features, PCA and the untrained encoder.

    Of a set of images with two halves, the test half is judged and probes are fitted on the training half.
    """
    from probssl.evaluation import evaluate as compare
    from probssl.report import console

    opened = open_run(run)
    model = opened.model
    of_run = opened.source.label if data is None else None
    what = opened.source.corrupt if data is None else corrupt
    found = load_for(model, data or opened.source.data, label or of_run, quiet or as_json, what)  # type: ignore[arg-type]
    with console.status("evaluating", quiet or as_json) as announce:
        comparison = compare(model, found, seed=seed, announce=announce)
    if as_json:
        print_json(comparison.as_dict())
    else:
        console.show_comparison(comparison)


@app.command(epilog="Example: probssl doctor runs/optdigits-snl-euclidean")
@command
def doctor(run: RunFolder, as_json: Json = False) -> None:
    """Is the run healthy, and how far from the best possible? If not: what went wrong, since when, what to try."""
    from probssl.doctor import examine
    from probssl.report import console

    with console.status("examining", as_json):
        diagnosis = examine(open_run(run))
    if as_json:
        print_json(diagnosis.as_dict())
    else:
        console.show_diagnosis(diagnosis)


@app.command(epilog="Example: probssl report runs/optdigits-snl-euclidean")
@command
def report(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Page to write (default: RUN/report.html)")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page about a run that opens without a network."""
    from probssl.report import console, run_page

    page = run_page.write(open_run(run), out)
    if as_json:
        print_json({"report": str(page)})
    else:
        console.say(page.resolve().as_uri())
