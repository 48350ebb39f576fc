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
    fail,
    print_json,
    prints_here,
    say,
    tell_left_out,
)
from probssl.cli.app import (
    DATA_PANEL as DATA,
)
from probssl.errors import CollapseWarning, InputError, NonFiniteLoss, TrainingInterrupted
from probssl.parts.describe import paths
from probssl.parts.recipe import PLAN, SLOTS
from probssl.parts.registry import KINDS
from probssl.parts.values import read

PARTS, TRAINING, RUN = "The parts", "The training", "The run"


def names_of(kind: str) -> Any:
    """Completion of the names of parts in a shell."""
    return lambda incomplete: [name for name in KINDS[kind] if name.startswith(incomplete)]


def _paths(context: typer.Context, incomplete: str) -> list[str]:
    """Completion of PART. and then of its settings, of the part that was named before where there is one."""
    slots = (*SLOTS, PLAN)
    slot, dot, _ = incomplete.partition(".")
    if not dot or slot not in slots:
        return [f"{name}." for name in slots if name.startswith(incomplete)]
    return [f"{path}=" for path in paths(slot, context.params.get(slot)) if path.startswith(incomplete)]


def _part(kind: str, what: str) -> Any:
    return typer.Option(
        f"--{kind}",
        metavar="NAME",
        help=f"{what} (probssl parts {kind})",
        autocompletion=names_of(kind),
        show_default=False,
        rich_help_panel=PARTS,
    )


def _option(panel: str, name: str, what: str, metavar: str | None = None, completion: Any = None) -> Any:
    return typer.Option(
        name, metavar=metavar, help=what, show_default=False, rich_help_panel=panel, autocompletion=completion
    )


@app.command(epilog="Example: probssl fit pmlb:optdigits --objective snl --set objective.pair=augmented")
@command
def fit(
    data: Annotated[str | None, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)] = None,
    objective: Annotated[str | None, _part("objective", "The loss")] = None,
    energy: Annotated[str | None, _part("energy", "How dissimilarity of representations is measured")] = None,
    pairing: Annotated[str | None, _part("pairing", "How related observations are made")] = None,
    encoder: Annotated[str | None, _part("encoder", "The network")] = None,
    head: Annotated[str | None, _part("head", "A projection head between network and loss")] = None,
    dim: Annotated[int | None, _option(PARTS, "--dim", "Dimensions of the representation", "N")] = None,
    settings: Annotated[
        list[str] | None,
        _option(
            PARTS, "--set", "Any other setting, such as pairing.noise=0.1; repeatable", "PART.SETTING=VALUE", _paths
        ),
    ] = None,
    steps: Annotated[int | None, _option(TRAINING, "--steps", "Training steps", "N")] = None,
    batch_size: Annotated[int | None, _option(TRAINING, "--batch-size", "Rows per step", "N")] = None,
    lr: Annotated[float | None, _option(TRAINING, "--lr", "Learning rate of the encoder", "RATE")] = None,
    seed: Annotated[
        int | None, _option(TRAINING, "--seed", "Seed for weights, batches, augmentations and test rows", "N")
    ] = None,
    device: Annotated[str, _option(TRAINING, "--device", "Device to train on: cpu, cuda, cuda:1, …", "NAME")] = "cpu",
    label: Label = None,
    drop: Drop = None,
    kind: Kinds = None,
    missing: Missing = None,
    encoding: Encoding = None,
    ids: Annotated[str | None, _option(DATA, "--ids", "Column of row names, kept with the results", "COL")] = None,
    test: Annotated[
        str | None,
        _option(DATA, "--test", "Rows held out from training: a share, a column or a file (default: 0.2)", "WHAT"),
    ] = None,
    size: Annotated[str | None, _option(DATA, "--size", "Size that images of a folder are resized to", "H,W")] = None,
    corrupt: Annotated[str, _option(DATA, "--corrupt", CORRUPT_HELP, "WHAT")] = "refuse",
    recipe: Annotated[
        Path | None, _option(RUN, "--recipe", "TOML file to start from; options override it", "FILE")
    ] = None,
    start_from: Annotated[
        Path | None, _option(RUN, "--from", "Run to start from, with its weights and settings", "RUN")
    ] = None,
    weights: Annotated[
        Path | None, _option(RUN, "--weights", "safetensors file with weights for the encoder", "FILE")
    ] = None,
    evaluate: Annotated[str, _option(RUN, "--evaluate", "none, quick or full (default: quick)", "HOW")] = "quick",
    out: Annotated[Path | None, _option(RUN, "--out", "Folder to write (default: below runs/)", "RUN")] = None,
    resume: Annotated[
        bool, _option(RUN, "--resume", "Resume the run in --out, or extend it with more --steps", "")
    ] = False,
    overwrite: Annotated[bool, _option(RUN, "--overwrite", "Replace the run in --out", "")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an encoder on DATA; the run's folder gets model, recipe, log, metrics and a report.

    Defaults depend on the data. Tables get a perceptron and masked, noisy copies of rows; images get convolutions and
    crops; a world (probssl fit world:sphere10) makes its own pairs and knows its latents.

    To train in several processes: torchrun --nproc-per-node 2 -m probssl fit DATA.
    """
    from probssl import runs
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
                recipe=recipe,
                **columns_of(label, drop, kind, missing, encoding),
                ids=ids,
                test=test,
                size=None if size is None else size_of(size),
                corrupt=corrupt,  # type: ignore[arg-type]
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
            raise InputError(f"--set takes PART.SETTING=VALUE, for example pairing.preservation=0.8, not {text!r}")
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
        raise InputError(f"--size takes a height and a width of at least one pixel, or one for both, not {text!r}")
    return sides[0], sides[-1]
