"""`probssl fit`: train an encoder."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from probssl.cli.app import (
    CORRUPT_HELP,
    DATA_HELP,
    Json,
    Quiet,
    app,
    command,
    fail,
    print_json,
    prints_here,
    say,
    tell_left_out,
)
from probssl.errors import CollapseWarning, InputError, NonFiniteLoss, TrainingInterrupted
from probssl.parts.registry import KINDS
from probssl.parts.values import read

PARTS, TRAINING, DATA, RUN = "The parts", "The training", "The data", "The run"


def names_of(kind: str) -> Any:
    """Completion of the names of parts in a shell."""
    return lambda incomplete: [name for name in KINDS[kind] if name.startswith(incomplete)]


def _part(kind: str, what: str) -> Any:
    return typer.Option(
        f"--{kind}",
        metavar="NAME",
        help=f"{what} (probssl parts {kind})",
        autocompletion=names_of(kind),
        show_default=False,
        rich_help_panel=PARTS,
    )


def _option(panel: str, name: str, what: str, metavar: str | None = None) -> Any:
    return typer.Option(name, metavar=metavar, help=what, show_default=False, rich_help_panel=panel)


@app.command(epilog="Example: probssl fit pmlb:optdigits --objective snl --set objective.pair=augmented")
@command
def fit(
    data: Annotated[str | None, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)] = None,
    objective: Annotated[str | None, _part("objective", "The loss")] = None,
    energy: Annotated[str | None, _part("energy", "What “alike” means between representations")] = None,
    pairing: Annotated[str | None, _part("pairing", "Which observations belong together")] = None,
    encoder: Annotated[str | None, _part("encoder", "The network")] = None,
    head: Annotated[str | None, _part("head", "A projection head between network and loss")] = None,
    dim: Annotated[int | None, _option(PARTS, "--dim", "Dimensions of the representation", "N")] = None,
    settings: Annotated[
        list[str] | None,
        _option(
            PARTS, "--set", "Any other setting, such as pairing.preservation=0.8; repeatable", "PART.SETTING=VALUE"
        ),
    ] = None,
    steps: Annotated[int | None, _option(TRAINING, "--steps", "Training steps", "N")] = None,
    batch_size: Annotated[int | None, _option(TRAINING, "--batch-size", "Rows per step", "N")] = None,
    lr: Annotated[float | None, _option(TRAINING, "--lr", "Learning rate of the encoder", "RATE")] = None,
    seed: Annotated[
        int | None, _option(TRAINING, "--seed", "Decides weights, batches, augmentations and test rows", "N")
    ] = None,
    device: Annotated[str, _option(TRAINING, "--device", "What to train on: cpu, cuda, cuda:1, …", "NAME")] = "cpu",
    label: Annotated[str | None, _option(DATA, "--label", "Column of classes, only used to evaluate", "COL")] = None,
    drop: Annotated[list[str] | None, _option(DATA, "--drop", "Columns to leave out: a,b; repeatable", "COLS")] = None,
    ids: Annotated[str | None, _option(DATA, "--ids", "Column that names the rows, kept beside them", "COL")] = None,
    test: Annotated[
        str | None,
        _option(DATA, "--test", "Rows that training never sees: a share, a column or a file (default: 0.2)", "WHAT"),
    ] = None,
    size: Annotated[str | None, _option(DATA, "--size", "Size that images of a folder are resized to", "H,W")] = None,
    corrupt: Annotated[str, _option(DATA, "--corrupt", CORRUPT_HELP, "WHAT")] = "refuse",
    keep_constant: Annotated[bool, _option(DATA, "--keep-constant", "Accept columns that never vary", "")] = False,
    recipe: Annotated[
        Path | None, _option(RUN, "--recipe", "TOML file to start from; options override it", "FILE")
    ] = None,
    start_from: Annotated[
        Path | None, _option(RUN, "--from", "Run whose weights and choices to start from", "RUN")
    ] = None,
    weights: Annotated[
        Path | None, _option(RUN, "--weights", "safetensors file with weights for the encoder", "FILE")
    ] = None,
    evaluate: Annotated[str, _option(RUN, "--evaluate", "none, quick or full (default: quick)", "HOW")] = "quick",
    out: Annotated[Path | None, _option(RUN, "--out", "Folder to write (default: below runs/)", "RUN")] = None,
    resume: Annotated[
        bool, _option(RUN, "--resume", "Continue the run in --out, also for more --steps than before", "")
    ] = False,
    overwrite: Annotated[bool, _option(RUN, "--overwrite", "Replace the run in --out", "")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an encoder on DATA; the run's folder gets model, recipe, log, metrics and a report.

    What is not chosen suits the data: tables get a perceptron and masked, noisy copies of rows; images convolutions and
    crops; a world (probssl fit world:sphere10) makes its own pairs and knows its latents.

    In several processes: torchrun --nproc-per-node 2 -m probssl fit DATA.
    """
    from probssl import runs
    from probssl.parts.recipe import Recipe
    from probssl.runs.workflow import below_runs

    if corrupt not in ("refuse", "skip"):
        raise InputError(f"--corrupt is refuse or skip, not {corrupt}")
    quiet = quiet or as_json or not prints_here()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)  # said below, with what to try
        try:
            run = runs.fit(
                data,
                objective=objective,
                energy=energy,
                pairing=pairing,
                encoder=encoder,
                head=head,
                dim=dim,
                steps=steps,
                batch_size=batch_size,
                lr=lr,
                seed=seed,
                settings=parsed(settings or ()),
                recipe=None if recipe is None else Recipe.from_toml(recipe),
                label=label,
                drop=drop or (),
                ids=ids,
                test=test,
                size=None if size is None else size_of(size),
                corrupt=corrupt,  # type: ignore[arg-type]
                keep_constant=keep_constant,
                weights=weights,
                start_from=start_from,
                out=out or below_runs,
                resume=resume,
                overwrite=overwrite,
                evaluate=evaluate,  # type: ignore[arg-type]
                progress=not quiet,
                device=device,
            )
        except TrainingInterrupted as stop:
            say(f"stopped at step {stop.step} with a checkpoint; resume with: {_again(stop.folder)}")
            raise typer.Exit(130) from None
        except NonFiniteLoss as error:
            fail(str(error))
            doctor = f"probssl doctor {shlex.quote(str(error.folder))}"
            say(f"try a smaller --lr, --set plan.clip_norm=0.1, or another --energy; see: {doctor}")
            raise typer.Exit(1) from None
    if prints_here():
        _show(run, as_json)


def _show(run: Any, as_json: bool) -> None:
    """What a run came to."""
    from probssl.report import console

    comparison, left_out = run.comparison, dict(getattr(run.dataset, "left_out", {}))
    for note in getattr(run.dataset, "notes", ()):
        say(f"note: {note}")
    if as_json:
        print_json(
            {
                "run": str(run.folder),
                "report": str(run.report),
                "steps": run.step,
                "seconds": run.seconds,
                "collapsed": run.collapsed,
                **({"left_out": left_out} if left_out else {}),
                **({} if comparison is None else comparison.as_dict()),
            }
        )
    else:
        tell_left_out(run.dataset)
        if comparison is not None:
            console.show_comparison(comparison)
        console.say(f"model and log   {run.folder}")
        console.say(f"report          {run.report.resolve().as_uri()}")
    console.show_collapse(run.collapsed, run.folder)


def parsed(settings: Any) -> dict[str, Any]:
    """`PART.SETTING=VALUE` as a path and a value."""
    found = {}
    for text in settings:
        path, equals, value = text.partition("=")
        if not equals or "." not in path:
            raise InputError(f"--set takes PART.SETTING=VALUE, pairing.preservation=0.8 for example, not {text!r}")
        found[path.strip()] = read(value)
    return found


def _again(folder: Path) -> str:
    return f"probssl fit --resume --out {shlex.quote(str(folder))}"


def size_of(text: str) -> tuple[int, int]:
    """64 or 64,48: height and width."""
    try:
        sides = [int(part) for part in text.split(",")]
    except ValueError:
        sides = []
    if len(sides) not in (1, 2) or min(sides) < 1:
        raise InputError(f"--size takes a height and a width of at least one pixel, or one of both, not {text!r}")
    return sides[0], sides[-1]
