"""`probssl fit`: train an encoder."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from probssl.cli.app import (
    CORRUPT_HELP,
    DATA_HELP,
    Json,
    Quiet,
    app,
    command,
    escape,
    load_data,
    open_run,
    print_json,
    say,
    speaks,
)
from probssl.errors import InputError
from probssl.recipe import Recipe

if TYPE_CHECKING:
    from probssl.runs import Source

LOSS, DECODED = "The loss", "Losses with a decoder (vae, beta-vae, cr-vae, simvae)"
ENCODER, IMAGES = "The encoder and its input", "Images in place of a table"
TRAINING, TABLE, RUN = "The training", "The data", "The run"


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


@app.command(epilog="Example: probssl fit pmlb:optdigits --objective snl --label target")
@command
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
    clusters: Annotated[int | None, _recipe_option(LOSS, "clusters")] = None,
    generative: Annotated[float | None, _recipe_option(LOSS, "generative")] = None,
    invariance: Annotated[float | None, _recipe_option(LOSS, "invariance")] = None,
    balance: Annotated[float | None, _recipe_option(LOSS, "balance")] = None,
    sgld_steps: Annotated[int | None, _recipe_option(LOSS, "sgld_steps")] = None,
    queue: Annotated[int | None, _recipe_option(LOSS, "queue")] = None,
    momentum: Annotated[float | None, _recipe_option(LOSS, "momentum")] = None,
    related: Annotated[int | None, _recipe_option(DECODED, "related")] = None,
    likelihood: Annotated[str | None, _recipe_option(DECODED, "likelihood", "NAME")] = None,
    likelihood_variance: Annotated[float | None, _recipe_option(DECODED, "likelihood_variance")] = None,
    latent_variance: Annotated[float | None, _recipe_option(DECODED, "latent_variance")] = None,
    mean_variance: Annotated[float | None, _recipe_option(DECODED, "mean_variance")] = None,
    beta: Annotated[float | None, _recipe_option(DECODED, "beta")] = None,
    consistency: Annotated[float | None, _recipe_option(DECODED, "consistency")] = None,
    dim: Annotated[int | None, _recipe_option(ENCODER, "dim")] = None,
    hidden: Annotated[str | None, _recipe_option(ENCODER, "hidden", "W,W,…")] = None,
    head: Annotated[str | None, _recipe_option(ENCODER, "head", "W,W,…")] = None,
    preservation: Annotated[float | None, _recipe_option(ENCODER, "preservation")] = None,
    noise: Annotated[float | None, _recipe_option(ENCODER, "noise")] = None,
    network: Annotated[str | None, _recipe_option(IMAGES, "network", "NAME")] = None,
    width: Annotated[int | None, _recipe_option(IMAGES, "width")] = None,
    augmentation: Annotated[str | None, _recipe_option(IMAGES, "augmentation", "NAME")] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            metavar="H,W",
            help="Height and width that the images of a folder are resized to (default: all are of one size)",
            rich_help_panel=IMAGES,
        ),
    ] = None,
    corrupt: Annotated[
        str | None,
        typer.Option("--corrupt", metavar="WHAT", help=CORRUPT_HELP, show_default=False, rich_help_panel=IMAGES),
    ] = None,
    steps: Annotated[int | None, _recipe_option(TRAINING, "steps")] = None,
    batch_size: Annotated[int | None, _recipe_option(TRAINING, "batch_size")] = None,
    optimiser: Annotated[str | None, _recipe_option(TRAINING, "optimiser", "NAME")] = None,
    lr: Annotated[float | None, _recipe_option(TRAINING, "lr")] = None,
    objective_lr: Annotated[float | None, _recipe_option(TRAINING, "objective_lr")] = None,
    weight_decay: Annotated[float | None, _recipe_option(TRAINING, "weight_decay")] = None,
    warmup: Annotated[int | None, _recipe_option(TRAINING, "warmup")] = None,
    clip_norm: Annotated[float | None, _recipe_option(TRAINING, "clip_norm")] = None,
    seed: Annotated[int | None, _recipe_option(TRAINING, "seed")] = None,
    precision: Annotated[str | None, _recipe_option(TRAINING, "precision", "NAME")] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="NAME",
            help="What to train on: cpu, cuda, cuda:1, … (default: cpu)",
            show_default=False,
            rich_help_panel=TRAINING,
        ),
    ] = "cpu",
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
    """Train an encoder on DATA; the run's folder gets model, recipe, log, metrics and a report.

    A world makes its own pairs and knows its latents: probssl fit world:sphere10 shows how well they were found.
    Images (probssl fit mnist, or a folder) get a convolutional network and augmentations of their own, and unless told
    otherwise the cosine energy at temperature 0.2, 1000 steps and a learning rate of 0.003.
    In several processes: torchrun --nproc-per-node 2 -m probssl fit DATA.
    """
    options = {
        name: value
        for name, value in locals().items()
        if value is not None and name in {f.name for f in dataclasses.fields(Recipe)} - {"hidden", "head"}
    }
    for name, widths in (("hidden", hidden), ("head", head)):
        if widths is not None:
            options[name] = _whole_numbers(widths, f"--{name}")
    from probssl.runs import Source, begin

    data = _from_anywhere(data)
    sides = None if size is None else _size(size)
    source = Source(data or "", label, tuple(drop or ()), keep_constant, sides, corrupt or "refuse")  # type: ignore[arg-type]
    if resume and overwrite:
        raise InputError("--resume goes on with a run and --overwrite begins it anew: give one of them")
    if resume:
        recipe, source, out = _resumed(source, out, recipe_file, options, data)
    else:
        if data is None:
            raise InputError("give DATA to train on: a file or a name, for example sklearn:digits")
        recipe = begin(data, None if recipe_file is None else Recipe.from_toml(recipe_file), options)
    _fit(recipe, source, out, resume, overwrite, quiet, as_json, device)


def _fit(
    recipe: Recipe,
    source: Source,
    given: Path | None,
    resume: bool,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    device: str,
) -> None:
    from probssl import processes
    from probssl.data import ImageSet
    from probssl.report import console, run_page
    from probssl.runs import Run, assess, train
    from probssl.training import ProgressBar, Reporter

    quiet = quiet or as_json or not speaks()
    with processes.launched(device):
        data = processes.first_then_others(lambda: load_data(source, quiet, recipe.seed))
        out = processes.from_first(lambda: _fresh_folder(source, recipe)) if given is None else given
        reporter = Reporter() if quiet else ProgressBar(f"{recipe.objective} · {recipe.energy}")
        model, fitted = train(
            data, recipe, out, source=source, resume=resume, overwrite=overwrite, reporter=reporter, device=device
        )
    if not quiet and not sys.stderr.isatty():
        say("")  # where there is no terminal, the bar ends without a line break
    again = f"probssl fit --resume --out {shlex.quote(str(out))}"
    if fitted.failure is not None:
        say(f"[bold red]error:[/] training stopped at step {fitted.steps}: {escape(fitted.failure)}")
        say(f"try a smaller --lr, --clip-norm 0.1, or another --energy; see: probssl doctor {shlex.quote(str(out))}")
        raise typer.Exit(1)
    if fitted.interrupted:
        say(f"stopped at step {fitted.steps} with a checkpoint; go on with: {again}")
        raise typer.Exit(130)
    if not speaks():
        return
    try:
        with console.status("evaluating", quiet) as announce:
            comparison = assess(model, data, out, announce=announce)
            announce("writing the report")
            page = run_page.write(Run(out))
    except KeyboardInterrupt:
        say(f"stopped with the model written, but not its metrics; go on with: {again}")
        raise typer.Exit(130) from None
    if as_json:
        left_out = {"left_out": dict(data.left_out)} if isinstance(data, ImageSet) and data.left_out else {}
        print_json(
            {
                "run": str(out),
                "report": str(page),
                "steps": fitted.steps,
                "seconds": round(fitted.seconds, 3),
                "collapsed": fitted.collapsed,
                **left_out,
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
    from probssl.runs import begin

    if out is None:
        raise InputError("--resume needs --out, the folder of the run to go on with")
    if not (out / "recipe.toml").is_file():
        if data is None:
            raise InputError(f"{out} holds no run to resume")
        return begin(data, None if recipe_file is None else Recipe.from_toml(recipe_file), options), source, out
    run = open_run(out)
    if data is not None and data != run.source.data:
        raise InputError(f"the run in {out} was trained on {run.source.data}, not on {data}")
    for flag in ("label", "drop", "keep_constant", "size", "corrupt"):
        asked, stored = getattr(source, flag), getattr(run.source, flag)
        if asked and asked != stored and asked != "refuse":
            shown = ",".join(map(str, stored)) if isinstance(stored, tuple) else stored
            raise InputError(
                f"the run in {out} was started with --{flag.replace('_', '-')} {shown or 'left out'}, "
                "and --resume cannot change it"
            )
    recipe = (
        run.recipe
        if recipe_file is None
        else Recipe.from_toml(recipe_file).on(world=run.recipe.world, images=run.recipe.images)
    )
    return recipe.with_options(**options), run.source, out


def _from_anywhere(data: str | None) -> str | None:
    """The full path of a file or folder, so that the run finds its data again from elsewhere; names stay names."""
    from probssl.data import IMAGES

    return str(Path(data).resolve()) if data and data not in IMAGES and Path(data).exists() else data


def _fresh_folder(source: Source, recipe: Recipe) -> Path:
    """runs/DATA-OBJECTIVE-ENERGY, numbered when it is taken."""
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(source.data).name.split(":")[-1].split(".")[0]) or "data"
    base = Path("runs") / f"{stem}-{recipe.objective}-{recipe.energy}"
    folder, number = base, 2
    while folder.exists():
        folder = base.with_name(f"{base.name}-{number}")
        number += 1
    return folder


def _whole_numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"{option} takes whole numbers separated by commas, not {text!r}") from None


def _size(text: str) -> tuple[int, int]:
    """64 or 64,48: height and width."""
    sides = _whole_numbers(text, "--size")
    if len(sides) not in (1, 2) or min(sides) < 1:
        raise InputError(f"--size takes a height and a width of at least one pixel, or one of both, not {text!r}")
    return sides[0], sides[-1]
