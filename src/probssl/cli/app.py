"""The application, the options that commands share, and what every command does about errors and output."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from probssl.errors import InputError, ProbsslError

if TYPE_CHECKING:
    from probssl.data import Corrupt as DataCorrupt
    from probssl.data import ImageSet, Table
    from probssl.model import Model
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

TABLE_HELP = "CSV, TSV, Parquet, NPY or NPZ file, or a name such as pmlb:letter, sklearn:digits."
DATA_HELP = (
    "CSV, TSV, Parquet, NPY or NPZ file, folder of images, or a name such as pmlb:letter, sklearn:digits, "
    "world:sphere10, mnist."
)

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, as written by fit.")]
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON document and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="Show no progress.")]
CORRUPT_HELP = "Files in a folder of images that are no whole images: refuse the folder, or skip them (default: refuse)"
Corrupt = Annotated[str, typer.Option("--corrupt", metavar="WHAT", help=CORRUPT_HELP, show_default=False)]
Label = Annotated[str | None, typer.Option("--label", metavar="COL", help="Column of classes, kept from training.")]


def command(function: Command) -> Command:
    """Turn errors made on purpose into one sentence on standard error and the right exit code."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ProbsslError as error:
            say(f"[bold red]error:[/] {escape(str(error))}")
            raise typer.Exit(2 if isinstance(error, InputError) else 1) from None
        except KeyboardInterrupt:
            say("stopped")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            raise typer.Exit(0) from None
        except OSError as error:
            say(f"[bold red]error:[/] {escape(_place(error))}")
            raise typer.Exit(2) from None

    return guarded  # type: ignore[return-value]


def _place(error: OSError) -> str:
    """Which file or folder failed, and how; a temporary file is known by its folder."""
    path = Path(str(error.filename2 or error.filename or "a file"))
    shown = path.parent if path.name.startswith(".") else path
    return f"{shown} cannot be read or written ({error.strerror or error})"


def escape(text: str) -> str:
    """Text that holds no markup."""
    from rich.markup import escape

    return escape(text)


def speaks() -> bool:
    """Whether this process speaks for all that `torchrun` started: the first, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def say(message: str) -> None:
    """A message for the person, on standard error, said once however many processes there are."""
    if not speaks():
        return
    from rich.console import Console

    Console(stderr=True).print(message, highlight=False, soft_wrap=True)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(_strict(document), indent=2, allow_nan=False) + "\n")


def _strict(value: Any) -> Any:
    """Numbers that JSON cannot hold become null."""
    if isinstance(value, dict):
        return {key: _strict(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_strict(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def open_run(folder: Path) -> Run:
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


def load_data(source: Source, quiet: bool, seed: int = 0) -> Table | ImageSet:
    """What DATA names, with a bar while it is downloaded."""
    from probssl.data import load
    from probssl.report.console import download_progress

    with download_progress(source.data, quiet) as progress:
        found: Any = load(
            source.data,
            label=source.label,
            drop=source.drop,
            size=source.size,
            corrupt=source.corrupt,
            seed=seed % 2**32,
            progress=progress,
        )
    return _told_of_left_out(found, quiet)


def load_for(
    model: Model, data: str, label: str | None, quiet: bool, corrupt: DataCorrupt = "refuse"
) -> Table | ImageSet:
    """DATA for a trained model, with a bar while it is downloaded."""
    from probssl.report.console import download_progress

    with download_progress(data, quiet) as progress:
        found = model.read(data, label=label, corrupt=corrupt, progress=progress)
    return _told_of_left_out(found, quiet)


def _told_of_left_out(found: Table | ImageSet, quiet: bool) -> Table | ImageSet:
    """The data; which files of it were left out, and what is worth knowing of its columns, is said first."""
    if not quiet:
        for note in getattr(found, "notes", ()):
            say(escape(note))
        left_out = getattr(found, "left_out", {})
        if left_out:
            shown = "; ".join(f"{file} ({reason})" for file, reason in list(left_out.items())[:3])
            more = f" and {len(left_out) - 3:,} more" if len(left_out) > 3 else ""
            say(f"left out {len(left_out):,} file{'s' * (len(left_out) > 1)}: {escape(shown)}{more}")
    return found


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
