"""The command line: thin. Every command parses, calls the library and shows what it returns."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from probssl.errors import InputError, ProbsslError
from probssl.recipe import Recipe

if TYPE_CHECKING:
    from probssl.data import Table
    from probssl.runs import Run, Source

Command = TypeVar("Command", bound=Callable[..., Any])

app = typer.Typer(
    help="Learn representations without labels, as probabilistic models of how related observations arise.",
    epilog="Start with: probssl fit sklearn:digits --label target",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
data_app = typer.Typer(
    help="What data is here, and what can be had.", epilog="Example: probssl data list", no_args_is_help=True
)
app.add_typer(data_app, name="data")

DATA_HELP = "CSV, TSV, Parquet, NPY or NPZ file, or a name such as pmlb:letter, sklearn:digits, toy:circles."

LOSS, ENCODER, TRAINING, TABLE, RUN = "The loss", "The encoder and its input", "The training", "The data", "The run"

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, as written by fit.")]
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON document and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="Show no progress.")]
Label = Annotated[str | None, typer.Option("--label", metavar="COL", help="Column of classes, kept from training.")]


def _recipe_option(panel: str, name: str, metavar: str | None = None) -> Any:
    """An option that sets a field of the recipe, with the recipe's own help and default."""
    entry = next(f for f in dataclasses.fields(Recipe) if f.name == name)
    text = entry.metadata["help"]
    default = "" if entry.default is None else f" (default: {entry.default})"
    return typer.Option(
        f"--{name.replace('_', '-')}",
        help=f"{text[0].upper()}{text[1:]}{default}",
        show_default=False,
        metavar=metavar,
        rich_help_panel=panel,
    )


def _command(function: Command) -> Command:
    """Turn errors made on purpose into one sentence on standard error and the right exit code."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ProbsslError as error:
            _say(f"[bold red]error:[/] {_escape(str(error))}")
            raise typer.Exit(2 if isinstance(error, InputError) else 1) from None
        except KeyboardInterrupt:
            _say("stopped")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            raise typer.Exit(0) from None
        except OSError as error:
            _say(f"[bold red]error:[/] {_escape(_place(error))}")
            raise typer.Exit(2) from None

    return guarded  # type: ignore[return-value]


def _place(error: OSError) -> str:
    """Which file or folder failed, and how; a temporary file is known by its folder."""
    path = Path(str(error.filename2 or error.filename or "a file"))
    shown = path.parent if path.name.startswith(".") else path
    return f"{shown} cannot be read or written ({error.strerror or error})"


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _say(message: str) -> None:
    """A message for the person, on standard error."""
    from rich.console import Console

    Console(stderr=True).print(message, highlight=False, soft_wrap=True)


def _print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(_strict(document), indent=2, allow_nan=False) + "\n")


def _strict(value: Any) -> Any:
    """Numbers that JSON cannot hold become null."""
    if isinstance(value, dict):
        return {key: _strict(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_strict(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _open(folder: Path) -> Run:
    """The run in a folder, with the small files that say where its rows came from and what it is worth."""
    from probssl.runs import Run

    if folder.is_file():
        raise InputError(f"{folder} is a file: give the folder that probssl fit wrote")
    run = Run(folder)
    for name in ("source", "comparison"):
        try:
            getattr(run, name)
        except (ValueError, KeyError, TypeError):
            file = {"source": "source.json", "comparison": "metrics.json"}[name]
            raise InputError(f"{folder / file} is damaged: copy it back, or train again") from None
    return run


def _load(data: str, label: str | None, drop: list[str], quiet: bool, seed: int = 0) -> Table:
    from probssl import data as tables
    from probssl.report.console import download_progress

    with download_progress(data, quiet) as progress:
        return tables.load(data, label=label, drop=drop, seed=seed % 2**32, progress=progress)


@app.command(epilog="Example: probssl fit pmlb:optdigits --objective snl --label target")
@_command
def fit(
    data: Annotated[str | None, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)] = None,
    objective: Annotated[str | None, _recipe_option(LOSS, "objective", "NAME")] = None,
    energy: Annotated[str | None, _recipe_option(LOSS, "energy", "NAME")] = None,
    asymmetry: Annotated[str | None, _recipe_option(LOSS, "asymmetry", "NAME")] = None,
    temperature: Annotated[float | None, _recipe_option(LOSS, "temperature")] = None,
    p: Annotated[float | None, _recipe_option(LOSS, "p")] = None,
    margin: Annotated[float | None, _recipe_option(LOSS, "margin")] = None,
    order: Annotated[float | None, _recipe_option(LOSS, "order")] = None,
    slices: Annotated[int | None, _recipe_option(LOSS, "slices")] = None,
    dim: Annotated[int | None, _recipe_option(ENCODER, "dim")] = None,
    hidden: Annotated[str | None, _recipe_option(ENCODER, "hidden", "W,W,…")] = None,
    preservation: Annotated[float | None, _recipe_option(ENCODER, "preservation")] = None,
    noise: Annotated[float | None, _recipe_option(ENCODER, "noise")] = None,
    steps: Annotated[int | None, _recipe_option(TRAINING, "steps")] = None,
    batch_size: Annotated[int | None, _recipe_option(TRAINING, "batch_size")] = None,
    optimiser: Annotated[str | None, _recipe_option(TRAINING, "optimiser", "NAME")] = None,
    lr: Annotated[float | None, _recipe_option(TRAINING, "lr")] = None,
    objective_lr: Annotated[float | None, _recipe_option(TRAINING, "objective_lr")] = None,
    weight_decay: Annotated[float | None, _recipe_option(TRAINING, "weight_decay")] = None,
    warmup: Annotated[int | None, _recipe_option(TRAINING, "warmup")] = None,
    clip_norm: Annotated[float | None, _recipe_option(TRAINING, "clip_norm")] = None,
    seed: Annotated[int | None, _recipe_option(TRAINING, "seed")] = None,
    label: Annotated[
        str | None,
        typer.Option("--label", metavar="COL", help="Column of classes, kept from training.", rich_help_panel=TABLE),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="COL", help="Column to leave out; repeatable.", rich_help_panel=TABLE),
    ] = None,
    keep_constant: Annotated[
        bool,
        typer.Option("--keep-constant", metavar="", help="Accept columns that never vary.", rich_help_panel=TABLE),
    ] = False,
    recipe_file: Annotated[
        Path | None,
        typer.Option(
            "--recipe", metavar="FILE", help="TOML file to start from; options override it.", rich_help_panel=RUN
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="RUN", help="Folder to write (default: below runs/)", rich_help_panel=RUN),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", metavar="", help="Go on with the run in --out.", rich_help_panel=RUN)
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", metavar="", help="Replace the run in --out.", rich_help_panel=RUN)
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an encoder on DATA; the run's folder gets model, recipe, log, metrics and a report."""
    options = {
        name: value
        for name, value in locals().items()
        if value is not None and name in {f.name for f in dataclasses.fields(Recipe)} - {"hidden"}
    }
    if hidden is not None:
        options["hidden"] = _widths(hidden)
    from probssl.runs import Source

    data = _from_anywhere(data)
    source = Source(data or "", label, tuple(drop or ()), keep_constant)
    if resume and overwrite:
        raise InputError("--resume goes on with a run and --overwrite begins it anew: give one of them")
    if resume:
        recipe, source, out = _resumed(source, out, recipe_file, options, data)
    else:
        recipe = (Recipe() if recipe_file is None else Recipe.from_toml(recipe_file)).with_options(**options)
        if data is None:
            raise InputError("give DATA to train on: a file or a name, for example sklearn:digits")
        out = _fresh_folder(source, recipe) if out is None else out
    _fit(recipe, source, out, resume, overwrite, quiet, as_json)


def _fit(recipe: Recipe, source: Source, out: Path, resume: bool, overwrite: bool, quiet: bool, as_json: bool) -> None:
    from probssl.report import console, run_page
    from probssl.runs import Run, assess, train
    from probssl.training import ProgressBar, Reporter

    quiet = quiet or as_json
    table = _load(source.data, source.label, list(source.drop), quiet, recipe.seed)
    reporter = Reporter() if quiet else ProgressBar(f"{recipe.objective} · {recipe.energy}")
    model, fitted = train(table, recipe, out, source=source, resume=resume, overwrite=overwrite, reporter=reporter)
    if not quiet and not sys.stderr.isatty():
        _say("")  # where there is no terminal, the bar ends without a line break
    again = f"probssl fit --resume --out {shlex.quote(str(out))}"
    if fitted.failure is not None:
        _say(f"[bold red]error:[/] training stopped at step {fitted.steps}: {_escape(fitted.failure)}")
        _say(f"try a smaller --lr, --clip-norm 0.1, or another --energy; see: probssl doctor {shlex.quote(str(out))}")
        raise typer.Exit(1)
    if fitted.interrupted:
        _say(f"stopped at step {fitted.steps} with a checkpoint; go on with: {again}")
        raise typer.Exit(130)
    try:
        with console.status("evaluating", quiet) as announce:
            comparison = assess(model, table, out, announce=announce)
            announce("writing the report")
            page = run_page.write(Run(out))
    except KeyboardInterrupt:
        _say(f"stopped with the model written, but not its metrics; go on with: {again}")
        raise typer.Exit(130) from None
    if as_json:
        _print_json(
            {
                "run": str(out),
                "report": str(page),
                "steps": fitted.steps,
                "seconds": round(fitted.seconds, 3),
                "collapsed": fitted.collapsed,
                **comparison.as_dict(),
            }
        )
    else:
        console.show_comparison(comparison)
        console.say(f"model and log   {out}")
        console.say(f"report          {page.resolve().as_uri()}")
    console.show_collapse(fitted.collapsed, out)


def _resumed(
    source: Source, out: Path | None, recipe_file: Path | None, options: dict[str, Any], data: str | None
) -> tuple[Recipe, Source, Path]:
    """What an interrupted run was doing; with nothing there yet, what it was about to do."""
    if out is None:
        raise InputError("--resume needs --out, the folder of the run to go on with")
    if not (out / "recipe.toml").is_file():
        if data is None:
            raise InputError(f"{out} holds no run to resume")
        recipe = (Recipe() if recipe_file is None else Recipe.from_toml(recipe_file)).with_options(**options)
        return recipe, source, out
    run = _open(out)
    if data is not None and data != run.source.data:
        raise InputError(f"the run in {out} was trained on {run.source.data}, not on {data}")
    for flag in ("label", "drop", "keep_constant"):
        asked, stored = getattr(source, flag), getattr(run.source, flag)
        if asked and asked != stored:
            shown = ", ".join(stored) if isinstance(stored, tuple) else stored
            raise InputError(
                f"the run in {out} was started with --{flag.replace('_', '-')} {shown or 'left out'}, "
                "and --resume cannot change it"
            )
    recipe = (run.recipe if recipe_file is None else Recipe.from_toml(recipe_file)).with_options(**options)
    return recipe, run.source, out


def _from_anywhere(data: str | None) -> str | None:
    """A file's full path, so that the run finds its data again from another folder; names stay as they are."""
    return str(Path(data).resolve()) if data and Path(data).is_file() else data


def _fresh_folder(source: Source, recipe: Recipe) -> Path:
    """runs/DATA-OBJECTIVE-ENERGY, numbered when it is taken."""
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(source.data).name.split(":")[-1].split(".")[0]) or "data"
    base = Path("runs") / f"{stem}-{recipe.objective}-{recipe.energy}"
    folder, number = base, 2
    while folder.exists():
        folder = base.with_name(f"{base.name}-{number}")
        number += 1
    return folder


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"--hidden takes whole numbers separated by commas, not {text!r}") from None


@app.command(epilog="Example: probssl embed runs/digits-infonce-euclidean new.csv --out new.npy")
@_command
def embed(
    run: RunFolder,
    data: Data,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="NPY, CSV, TSV or Parquet file to write.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar="", help="Replace FILE.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write the representations of DATA, one row each, in columns z0, z1, …."""
    from probssl.data import load
    from probssl.data.writing import check_writable, write
    from probssl.report import console

    check_writable(out, overwrite)
    model = _open(run).model
    with console.status("embedding", quiet or as_json):
        table = load(data, features=model.feature_names, seed=model.recipe.seed % 2**32)
        z = model.embed(table)
        write(out, z, [f"z{i}" for i in range(z.shape[1])])
    if as_json:
        _print_json({"out": str(out), "rows": len(z), "dim": z.shape[1]})
    elif not quiet:
        console.say(f"{len(z):,} row{'s' * (len(z) != 1)} of {z.shape[1]} dimension{'s' * (z.shape[1] != 1)}   {out}")


@app.command(epilog="Example: probssl evaluate runs/letter-snl-euclidean test.csv --label target")
@_command
def evaluate(
    run: RunFolder,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help=f"{DATA_HELP} (default: the run's own)")] = None,
    label: Label = None,
    seed: Annotated[int, typer.Option("--seed", help="Decides splits and augmentations.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Every metric that applies, beside raw features, PCA and the untrained encoder."""
    from probssl.data import load
    from probssl.evaluation import evaluate as compare
    from probssl.report import console

    opened = _open(run)
    model = opened.model
    own = data is None
    table = load(
        data or opened.source.data,
        label=label or (opened.source.label if own else None),
        features=model.feature_names,
        seed=model.recipe.seed % 2**32,
    )
    with console.status("evaluating", quiet or as_json) as announce:
        comparison = compare(model, table, seed=seed, announce=announce)
    if as_json:
        _print_json(comparison.as_dict())
    else:
        console.show_comparison(comparison)


@app.command(epilog="Example: probssl doctor runs/optdigits-snl-euclidean")
@_command
def doctor(run: RunFolder, as_json: Json = False) -> None:
    """Is the run healthy, and how far from the best possible? If not: what went wrong, since when, what to try."""
    from probssl.doctor import examine
    from probssl.report import console

    with console.status("examining", as_json):
        diagnosis = examine(_open(run))
    if as_json:
        _print_json(diagnosis.as_dict())
    else:
        console.show_diagnosis(diagnosis)


@app.command(epilog="Example: probssl report runs/optdigits-snl-euclidean")
@_command
def report(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Page to write (default: RUN/report.html)")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page about a run that opens without a network."""
    from probssl.report import console, run_page

    page = run_page.write(_open(run), out)
    if as_json:
        _print_json({"report": str(page)})
    else:
        console.say(page.resolve().as_uri())


@app.command(epilog="Example: probssl reproduce siamese/circles --out circles")
@_command
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
            _print_json({"experiments": catalogue})
        else:
            console.show_studies(catalogue)
        return
    result = studies.run(name, budget, out or Path("reproduced") / name, quiet=quiet or as_json)
    if as_json:
        _print_json(result.as_dict())
    else:
        console.show_study(result)


@data_app.command("list", epilog="Example: probssl data list --json")
@_command
def data_list(as_json: Json = False) -> None:
    """Named data sets, and which of them are here."""
    from probssl.data import catalogue, data_directory
    from probssl.report import console

    sets = catalogue()
    if as_json:
        _print_json({"directory": str(data_directory()), "data": [_plain(entry) for entry in sets]})
    else:
        console.show_data(sets, data_directory())


@data_app.command("fetch", epilog="Example: probssl data fetch pmlb:letter")
@_command
def data_fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a data set, for example pmlb:letter.")],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find a named data set, or download it to the cache."""
    from probssl.data import fetch
    from probssl.report import console

    with console.download_progress(name, quiet or as_json) as progress:
        path = fetch(name, progress=progress)
    if as_json:
        _print_json({"name": name, "path": str(path)})
    else:
        console.say(str(path))


def _plain(entry: Any) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, Path) else value for key, value in dataclasses.asdict(entry).items()}


def _version(asked: bool) -> None:
    if asked:
        from probssl import __version__

        typer.echo(f"probssl {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
