"""The application, the options that commands share, and what every command does about errors and output."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from probssl import memory
from probssl.errors import DataWarning, InputError, ProbsslError
from probssl.files import NO_ROOM, json_text

if TYPE_CHECKING:
    from probssl.data import Corrupt as DataCorrupt
    from probssl.data import Dataset
    from probssl.model import Model
    from probssl.runs import Run

Command = TypeVar("Command", bound=Callable[..., Any])

app = typer.Typer(
    help="Learn representations without labels, as probabilistic models of how related observations arise",
    epilog="Start with: probssl fit sklearn:digits --label target",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

TABLE_HELP = "CSV, TSV, JSON lines, Parquet, Feather, NPY or NPZ file, or a name such as pmlb:letter, sklearn:digits"
DATA_HELP = (
    "CSV, TSV, JSON lines, Parquet, Feather, NPY or NPZ file, folder of images, or a name such as pmlb:letter, "
    "sklearn:digits, world:sphere10, mnist"
)

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, as written by fit")]
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON document and nothing else")]
Parts = Annotated[
    list[str] | None,
    typer.Option("--part", metavar="PART=NAME", help="Part from another package, as encoder=package.module:Class"),
]
WHERE = "Where it runs"
Jobs = Annotated[
    int | None, typer.Option("--jobs", help="Number of processes (default: one per core)", rich_help_panel=WHERE)
]
Backend = Annotated[
    str, typer.Option("--backend", help="processes (on this machine), dask or ray", rich_help_panel=WHERE)
]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Cluster to use (default: start one here)", rich_help_panel=WHERE),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="Show no progress")]
Debug = Annotated[bool, typer.Option("--debug", metavar="", help="Show the traceback of an error")]
CORRUPT_HELP = "Unreadable images in a folder: refuse or skip (default: refuse)"
Corrupt = Annotated[str, typer.Option("--corrupt", metavar="WHAT", help=CORRUPT_HELP, show_default=False)]
Moved = Annotated[
    str | None, typer.Option("--data", metavar="DATA", help="New location of the run's data, if it has moved")
]
DATA_PANEL = "The data"
LABEL_HELP = "Column of classes or numbers, only used to evaluate; repeatable"
Label = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="COL", help=LABEL_HELP, rich_help_panel=DATA_PANEL, show_default=False),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="COLS", help="Columns to leave out: a,b; repeatable", rich_help_panel=DATA_PANEL),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="COLS=KIND",
        help="What columns are: number, category, yes/no, date, text or id; repeatable",
        rich_help_panel=DATA_PANEL,
    ),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        "--missing",
        metavar="WORD",
        help="Another word for a gap than NA, ? and the like; repeatable",
        rich_help_panel=DATA_PANEL,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", metavar="NAME", help="Of text other than UTF-8: latin-1, …", rich_help_panel=DATA_PANEL),
]


def command(function: Command) -> Command:
    """The last guard: what goes wrong becomes one sentence on standard error and the right exit code.

    Every command takes `--debug`, which shows the traceback as well.
    """

    @functools.wraps(function)
    def guarded(*args: Any, debug: bool = False, **kwargs: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = functools.partial(_show, warnings.showwarning)
                return function(*args, **kwargs)
        except BrokenPipeError:
            raise typer.Exit(0) from None
        except (Exception, KeyboardInterrupt) as error:
            said, code = what_to_do(error)
            if said is None:
                raise
            if debug:
                traceback.print_exc()
            if code == INTERRUPTED:
                say(said)
            else:
                fail(said)
            raise typer.Exit(code) from None

    guarded.__doc__ = _flowing(function.__doc__ or "")
    debug = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)
    signature = inspect.signature(function, eval_str=True)
    guarded.__signature__ = signature.replace(parameters=[*signature.parameters.values(), debug])  # type: ignore[attr-defined]
    guarded.__annotations__ = {**typing.get_type_hints(function, include_extras=True), "debug": Debug}
    return guarded  # type: ignore[return-value]


INTERRUPTED = 130


def _show(usual: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any) -> None:
    """A warning of ours as one line on standard error; others as Python shows them."""
    if issubclass(category, DataWarning):
        say(f"warning: {message}")
    else:
        usual(message, category, *where)


def what_to_do(error: BaseException) -> tuple[str | None, int]:
    """What is said of an error, and the exit code; nothing of one that only a programmer can mend."""
    text = str(error)
    if isinstance(error, ProbsslError):
        return text, 2 if isinstance(error, InputError) else 1
    if isinstance(error, KeyboardInterrupt):
        return "stopped", INTERRUPTED
    if memory.ran_out(error):
        return "out of memory: try a smaller --batch-size or --dim, fewer rows or fewer --jobs", 2
    if isinstance(error, OSError):
        return _place(error), 2
    if type(error).__name__ == "SafetensorError":
        return f"a safetensors file cannot be read or written ({' '.join(text.split())})", 2
    return None, 1


def _flowing(text: str) -> str:
    """A docstring as help shows it: paragraphs that the terminal breaks, and brackets that are not markup."""
    paragraphs = inspect.cleandoc(text).replace("[", "\\[").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _place(error: OSError) -> str:
    """Which file or folder failed, how, and what to do; a temporary file is known by its folder."""
    if error.errno in NO_ROOM:
        where = error.filename2 or error.filename or Path.cwd()
        return f"the disk that holds {where} is full: free some space and try again"
    path = Path(str(error.filename2 or error.filename or "a file"))
    shown = path.parent if path.name.startswith(".") else path
    return f"{shown} cannot be read or written ({error.strerror or error})"


def prints_here() -> bool:
    """Whether this process prints for all that `torchrun` started: the first, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def say(message: str, style: str = "", lead: str = "") -> None:
    """A message for the person, on standard error as it is, said once however many processes there are."""
    if not prints_here():
        return
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text.assemble((lead, style), message), soft_wrap=True)


def fail(message: str) -> None:
    """What went wrong, in one line."""
    say(message.replace("\n", " "), "bold red", "error: ")


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json_text(document))


def open_run(folder: Path, parts: list[str] | None = None) -> Run:
    """The run in a folder; `parts` name those that are not ours: SLOT=package.module:Class."""
    from probssl.runs import Run

    named = {}
    for text in parts or ():
        slot, equals, name = text.partition("=")
        if not equals:
            raise InputError(f"--part takes PART=NAME, for example encoder=package.module:Class, not {text!r}")
        named[slot] = name
    return Run(folder, **named)


def load_for(
    model: Model,
    data: str,
    label: list[str] | None,
    quiet: bool,
    corrupt: DataCorrupt = "refuse",
    *,
    ids: str | None = None,
    usual_ids: str | None = None,
) -> Dataset:
    """DATA for a trained model, with a bar while it is downloaded; names of rows from a column that it may have."""
    from probssl.report.console import download_progress

    with download_progress(data, quiet) as progress:

        def read(column: str | None) -> Dataset:
            return model.read(data, label=label or None, ids=column, corrupt=corrupt, progress=progress)

        try:
            found = read(ids or usual_ids)
        except InputError:
            if ids is not None or usual_ids is None:
                raise
            found = read(None)
    tell_left_out(found, quiet)
    return found


def columns_of(
    label: list[str] | None,
    drop: list[str] | None,
    kinds: list[str] | None,
    missing: list[str] | None,
    encoding: str | None,
) -> dict[str, Any]:
    """How a table is read, as `probssl.load` takes it."""
    named = {}
    for text in kinds or ():
        columns, equals, kind = text.rpartition("=")
        if not equals:
            raise InputError(f"--kind takes COLUMN=KIND, zip=category for example, not {text!r}")
        named[columns] = kind.strip()
    single = label[0] if label and len(label) == 1 else label or None
    return {"label": single, "drop": drop or (), "kinds": named, "missing": missing or (), "encoding": encoding}


def tell_left_out(data: Dataset, quiet: bool = False) -> None:
    """Name every file of a folder that is not in the data, and why."""
    for name, why in () if quiet else getattr(data, "left_out", {}).items():
        say(f"left out {name}: {why}")


def _version(asked: bool) -> None:
    if asked:
        from probssl import __version__

        typer.echo(f"probssl {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version")
    ] = False,
) -> None:
    pass
