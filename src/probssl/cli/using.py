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
    Moved,
    Parts,
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
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="NPY, CSV, TSV or Parquet file to write")],
    half: Annotated[
        str,
        typer.Option("--half", metavar="HALF", help="Rows to embed, if some are test rows: train, test or all"),
    ] = "all",
    ids: Annotated[
        str | None,
        typer.Option("--ids", metavar="COL", help="Column of row names (default: the run's, if present)"),
    ] = None,
    corrupt: Corrupt = "refuse",
    parts: Parts = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar="", help="Replace FILE")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write the representations of DATA, one per row, in columns z0, z1, …, preceded by row names if there are any.

    A .npy file holds only the numbers.
    """
    from probssl.data.writing import ID, check_writable, write
    from probssl.encoders import encode
    from probssl.report import console
    from probssl.runs.folder import absolute

    check_writable(out, overwrite)
    opened = open_run(run, parts)
    model, usual = opened.model, opened.source.ids
    found = load_for(model, data, None, quiet or as_json, corrupt, ids=ids, usual_ids=usual)  # type: ignore[arg-type]
    if half != "all" and found.test is None and opened.source.data == absolute(data):
        found = opened.dataset  # the run's own, whose test rows it knows
    with console.status("embedding", quiet or as_json):
        observed = model.observe(found, half)  # type: ignore[arg-type]
        z = encode(model.encoder, observed.x).numpy()
        write(out, z, [f"z{i}" for i in range(z.shape[1])], ids=observed.ids, called=ids or usual or ID)
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
    moved: Moved = None,
    corrupt: Corrupt = "refuse",
    depth: Annotated[str, typer.Option("--evaluate", metavar="HOW", help="quick or full")] = "quick",
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Seed for splits and augmentations (default: the run's; 0 for DATA)"),
    ] = None,
    parts: Parts = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compute every metric that applies, also for raw features, PCA and the untrained encoder.

    On the run's own data, metrics use the rows that training never saw, and the run's metrics and report are updated.
    """
    from probssl.report import console, run_page
    from probssl.runs import evaluate as judge
    from probssl.runs.workflow import assess

    if depth not in ("quick", "full"):
        raise InputError(f"--evaluate is quick or full, not {depth}")
    if data is not None and moved is not None:
        raise InputError("--data is the new location of the run's own data: give either it or other DATA")
    if data is None and label is not None:
        raise InputError("--label names a column of DATA, so DATA is needed too")
    opened = open_run(run, parts)
    model, quietly = opened.model, quiet or as_json
    with console.status("evaluating", quietly) as announce:
        if data is None:
            opened.dataset = opened.data(moved)
            comparison = assess(model, opened.dataset, run, depth, seed=seed, announce=announce)  # type: ignore[arg-type]
            run_page.write(opened)
        else:
            found = load_for(model, data, label, quietly, corrupt)  # type: ignore[arg-type]
            comparison = judge(model, found, depth=depth, seed=seed or 0, announce=announce)  # type: ignore[arg-type]
    if as_json:
        print_json(comparison.as_dict())
    else:
        console.show_comparison(comparison)


@app.command(epilog="Example: probssl doctor runs/optdigits-snl-euclidean")
@command
def doctor(run: RunFolder, moved: Moved = None, parts: Parts = None, as_json: Json = False) -> None:
    """Check whether a run is healthy and how far from the best possible; if not, what went wrong and what to try."""
    from probssl.report import console
    from probssl.runs.doctor import examine

    opened = open_run(run, parts)
    if moved is not None:
        opened.found_at(moved)
    with console.status("examining", as_json):
        diagnosis = examine(opened)
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
    parts: Parts = None,
    as_json: Json = False,
) -> None:
    """Write a self-contained HTML page about a run."""
    from probssl.report import console, run_page

    page = run_page.write(open_run(run, parts), out)
    if as_json:
        print_json({"report": str(page)})
    else:
        console.say(page.resolve().as_uri())
