"""What is done with a run that is a density or has a decoder: `probssl sample`, `probssl impute`, `probssl ood`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from probssl.cli.app import Data, Json, Quiet, RunFolder, app, command, load_for, open_run, print_json
from probssl.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from probssl.data import Dataset
    from probssl.layout import Column


@app.command(epilog="Example: probssl sample runs/mnist-simvae-euclidean --n 100 --out new.png")
@command
def sample(
    run: RunFolder,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE", help="NPY, CSV, TSV or Parquet file to write; PNG or NPY for images"),
    ],
    n: Annotated[int, typer.Option("--n", metavar="N", help="Rows or images to draw")] = 64,
    of_class: Annotated[
        str | None,
        typer.Option("--class", metavar="NAME", help="Class to draw, for a decoder whose data has labels"),
    ] = None,
    components: Annotated[
        int,
        typer.Option("--components", metavar="N", help="Normals fitted to the latents, if there are no labels"),
    ] = 10,
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Steps of Langevin dynamics")] = 200,
    seed: Annotated[int, typer.Option("--seed", help="Random seed")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar="", help="Replace FILE")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Draw new rows, in the columns of the run's data, with the cluster or class of each.

    Runs of gedi or jem sample by Langevin dynamics. Runs of simvae, vae, beta-vae or cr-vae decode latents drawn from
    normals fitted to those of the data, one per class if there are labels. Images are written as one picture, sorted
    by cluster or class, or as an array [n, channels, height, width] of numbers from 0 to 1.
    """
    from probssl.data.writing import WRITABLE, check_writable
    from probssl.model.decoding import draw as decode
    from probssl.model.density import sample as draw
    from probssl.objectives import GenerativeObjective
    from probssl.report import console

    opened = open_run(run)
    model = opened.model
    of_images = model.of_images
    check_writable(out, overwrite, (".png", ".npy") if of_images else WRITABLE)
    decodes = isinstance(model.objective, GenerativeObjective)
    if of_class is not None and not decodes:
        raise InputError(f"--class is for runs with a decoder, and this one is of {opened.recipe.title}")
    with console.status("sampling", quiet or as_json):
        if decodes:
            data = opened.dataset
            rows, groups, names = decode(model, data, n, of_class=of_class, components=components, seed=seed)
            kind = "class" if data.classes else "component"
        else:
            rows, groups = draw(model, n, steps=steps, seed=seed)
            names, kind = [], "cluster"
        columns = () if model.preparation is None else model.preparation.restored.columns
        _write(out, rows, groups, columns, kind)
    if as_json:
        size = {"shape": list(rows.shape[1:])} if of_images else {"features": rows.shape[1]}
        classes = {"classes": names} if kind == "class" else {}
        print_json({"out": str(out), "rows": len(rows), **size, **classes})
    elif of_images and not quiet:
        console.say(f"{len(rows):,} image{'s' * (len(rows) != 1)}   {out}")
    elif not quiet:
        console.say(f"{len(rows):,} row{'s' * (len(rows) != 1)} of {rows.shape[1]} features and a {kind}   {out}")


def _write(out: Path, rows: np.ndarray, groups: np.ndarray, columns: Sequence[Column], kind: str) -> None:
    import numpy as np

    from probssl.data.writing import write
    from probssl.files import atomic_path
    from probssl.report import tiles

    if rows.ndim == 2:
        while any(column.name == kind for column in columns):
            kind += "_"
        write(out, np.column_stack([rows, groups]), [*columns, kind])
    elif out.suffix == ".npy":
        write(out, rows, [])
    else:
        images = np.rint(rows[np.argsort(groups, kind="stable")] * 255).astype(np.uint8)
        with atomic_path(out) as temporary:
            temporary.write_bytes(tiles.png_bytes(tiles.grid(images)))


@app.command(epilog="Example: probssl impute runs/customers-vae-euclidean customers.csv --out whole.csv")
@command
def impute(
    run: RunFolder,
    data: Data,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV, TSV or Parquet file to write")],
    draws: Annotated[
        int, typer.Option("--draws", metavar="K", help="Draws for each gap; with 1 they are written as they are")
    ] = 20,
    ids: Annotated[
        str | None,
        typer.Option("--ids", metavar="COL", help="Column that names the rows (default: that of the run, if there)"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Decides the draws")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar="", help="Replace FILE")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fill the gaps of DATA by what a run with a decoder makes of the rest of each row.

    A number becomes the mean of its draws, a level the most frequent one; columns after the others say how sure that
    is: the standard deviation of the draws, or the share of this level. Columns that the run does not use are left out.
    """
    import numpy as np

    from probssl.data.writing import ID, WRITABLE, check_writable, write
    from probssl.model.imputing import impute as fill
    from probssl.report import console

    check_writable(out, overwrite, WRITABLE[1:])
    opened = open_run(run)
    usual = opened.source.ids
    found = load_for(opened.model, data, None, quiet or as_json, ids=ids, usual_ids=usual)
    with console.status("filling gaps", quiet or as_json):
        whole = fill(opened.model, found, draws=draws, seed=seed)
        columns, values = whole.with_spread() if draws > 1 else (whole.columns, whole.values)
        write(out, values, columns, ids=whole.ids, called=ids or usual or ID)
    filled = int((~np.isnan(whole.spread)).sum())
    if as_json:
        print_json({"out": str(out), "rows": len(values), "filled": filled})
    elif not quiet:
        gaps = f"{filled:,} gap{'s' * (filled != 1)} filled"
        console.say(f"{len(values):,} row{'s' * (len(values) != 1)}, {gaps}   {out}")


@app.command(epilog="Example: probssl ood runs/seen-gedi-euclidean --inside seen.csv --outside other.csv")
@command
def ood(
    run: RunFolder,
    outside: Annotated[str, typer.Option("--outside", metavar="DATA", help="Data unlike what the run was trained on")],
    inside: Annotated[
        str | None,
        typer.Option("--inside", metavar="DATA", help="Data like what it was trained on (default: the run's own)"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed for the bootstrap")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure how well a run tells familiar rows from others: area under the ROC curve for three scores.

    If data has test rows, only those are scored.
    """
    from probssl.model.density import SCORES, tell_apart
    from probssl.report import console

    opened = open_run(run)
    model, quietly = opened.model, quiet or as_json
    known = opened.dataset if inside is None else load_for(model, inside, None, quietly)
    sides = [_rows(data) for data in (known, load_for(model, outside, None, quietly))]
    with console.status("scoring", quiet or as_json):
        found = tell_apart(model, sides[0], sides[1], seed=seed)
    if as_json:
        print_json(
            {
                "inside": len(sides[0]),
                "outside": len(sides[1]),
                "scores": {name: part.as_dict() for name, part in found.items()},
            }
        )
        return
    console.show_detection({name: (SCORES[name], part) for name, part in found.items()}, *map(len, sides))


def _rows(data: Dataset) -> np.ndarray:
    """The rows that nothing was trained on, of data that has such, else all."""
    return data.batch(data.rows("all" if data.test is None else "test")).numpy()
