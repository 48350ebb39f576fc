"""A run's folder: what is in it, who may write it, and how it is read back."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows: runs are not guarded against each other there
    fcntl = None  # type: ignore[assignment]

from probssl.data import IMAGES, Corrupt, Dataset, Progress, is_dataset, load
from probssl.errors import CheckpointError, DamagedFile, InputError
from probssl.files import write_json, write_text
from probssl.model import Model
from probssl.parts.facts import Facts
from probssl.parts.recipe import Named, Recipe
from probssl.parts.registry import KINDS
from probssl.parts.resolve import Resolved, output_size, resolve
from probssl.runs.evaluation import Comparison
from probssl.schema import conform, intact, read_json
from probssl.training.distributed import processes
from probssl.training.log import read_log

LOCK, RECIPE, SOURCE, MODEL, METRICS = ".lock", "recipe.toml", "source.json", "model.safetensors", "metrics.json"
LOG, PROJECTION, PICTURES = "log.jsonl", "projection.npz", "pictures.npz"
RESULTS = (MODEL, METRICS, PROJECTION, PICTURES, "report.html")
"""What is written when training ends."""

OBJECTS = ("array", "tensor", "frame", "dataset")
"""What data is called that came as an object, and cannot be read again."""


@dataclass(frozen=True)
class Source:
    """Where a run's rows come from, so that the run can be resumed and evaluated again."""

    data: str
    label: str | tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    """Of columns of which a person says what they are."""
    missing: tuple[str, ...] = ()
    """Words that stand for a gap, besides the usual ones."""
    encoding: str | None = None
    ids: str | None = None
    test: float | str | None = None
    """A share of the rows, a column or a file: what training never sees. None where the data says so itself."""
    size: tuple[int, int] | None = None
    """To which images are resized."""
    corrupt: Corrupt = "refuse"
    """What is done with unreadable images."""
    seed: int = 0
    """Of rows that are drawn, and of a share of test rows."""
    fingerprint: str | None = None
    """Of the content, by which moved data is known again."""
    facts: Facts | None = None
    """What choices depended on (`Facts`)."""

    def read(self, progress: Progress | None = None, **changes: Any) -> Dataset:
        """The data, its test rows set aside."""
        return load(
            self.data,
            **self.columns,
            ids=self.ids,
            size=self.size,
            corrupt=self.corrupt,
            seed=self.seed % 2**32,
            test=self.test,
            progress=progress,
            **changes,
        )

    @property
    def columns(self) -> dict[str, Any]:
        """How the columns of a table are read."""
        return {name: getattr(self, name) for name in ("label", "drop", "kinds", "missing", "encoding")}

    def divided(self, data: Dataset) -> Dataset:
        """Data that was handed in, the same test rows set aside."""
        return data.with_test(self.test, self.seed % 2**32)

    def as_dict(self) -> dict[str, Any]:
        """What differs from the default, as plain values for JSON."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        default = vars(Source(self.data))
        return {
            name: value.as_dict() if isinstance(value, Facts) else list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
            if name == "data" or value != default[name]
        }


class Run:
    """A run's folder, read lazily: recipe, log, model, metrics."""

    def __init__(self, folder: str | os.PathLike[str], **parts: Any) -> None:
        """`parts` are those that are not ours, by slot: `Run(folder, encoder=MyNet())` (see `Model.load`)."""
        self.folder = folder = Path(folder)
        self.parts = parts
        if folder.is_file():
            raise InputError(f"{folder} is a file: give the folder that probssl fit wrote")
        if not (folder / RECIPE).is_file():
            what = "is not a run" if folder.is_dir() else "does not exist"
            raise InputError(f"{folder} {what}: give the folder that probssl fit wrote")

    @cached_property
    def recipe(self) -> Recipe:
        """What the run was asked to do, every choice spelled out."""
        return Recipe.from_toml(self.folder / RECIPE)

    def handed_in(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Of parts that a person gives, those that this run needs to be handed in, since they are not ours."""
        theirs = {}
        for slot, part in parts.items():
            stored = getattr(self.recipe, slot)
            known = isinstance(stored, Named) and (not stored.name or not KINDS[slot].find(stored.name).plugin)
            if part is not None and stored is not None and not known:
                theirs[slot] = part
        return theirs

    @cached_property
    def source(self) -> Source:
        """Where its rows came from."""
        return read_json(self.folder / SOURCE, Source)

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """Rows and events of the log."""
        path = self.folder / LOG
        return read_log(path) if path.is_file() else []

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows of the log without its events."""
        return [row for row in self.log if "event" not in row]

    @property
    def step(self) -> int:
        """The last step in the log."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    @property
    def steps(self) -> int:
        """How many steps were asked for."""
        with intact(self.folder / RECIPE):
            return conform(self.recipe.plan.get("steps"), int, "plan.steps")

    @property
    def seconds(self) -> float:
        """How long training has taken."""
        return float(self.rows[-1]["seconds"]) if self.rows else 0.0

    @property
    def collapsed(self) -> dict[str, int]:
        """Collapses that were seen and had not gone by the end of the log: kind -> step at which they set in."""
        standing: dict[str, int] = {}
        for row in self.log:
            if row.get("event") == "recovery":
                standing.pop(row["kind"], None)
            elif row.get("event") == "collapse":
                standing[row["kind"]] = row["step"]
        return standing

    @cached_property
    def resolved(self) -> Resolved:
        """The recipe with its parts made, before data is seen."""
        if self.finished:
            return self.model.resolved
        if self.source.facts is None:
            raise DamagedFile(f"{self.folder / SOURCE} is damaged (it has no facts): restore it, or train again")
        return resolve(self.recipe.with_trusted(**self.parts), self.source.facts, own=True)

    @cached_property
    def dim(self) -> int:
        """Dimensions of the representation."""
        return self.model.dim if self.finished else output_size(self.resolved.bind().encoder, self.resolved.facts.shape)

    @cached_property
    def model(self) -> Model:
        """The trained model."""
        return Model.load(self.folder, **self.parts)

    @cached_property
    def dataset(self) -> Dataset:
        """The data, read once."""
        return self.data()

    def data(self, at: Any = None) -> Dataset:
        """What it was trained on, read again; from another place than before with `at`, or an object handed in."""
        if at is not None:
            return self.found_at(at)
        if self.source.data in OBJECTS:
            raise InputError(f"{self.folder} was trained on an object in memory ({self.source.data}): pass it again")
        try:
            return self.source.read(layout=self.model.layout)
        except InputError as error:
            if "there is no file" in str(error):
                raise InputError(f"{error}; if it has moved, give its new location with --data") from error
            raise

    def found_at(self, data: Any) -> Dataset:
        """The data of this run at another place, which is remembered; refused if it is not the same."""
        path = absolute(data) if isinstance(data, (str, os.PathLike)) else None
        moved = dataclasses.replace(self.source, data=path or self.source.data)
        if path is not None:
            found = moved.read()
        elif is_dataset(data):
            found = moved.divided(data)
        else:
            found = moved.divided(load(data, **self.source.columns))
        if self.source.fingerprint not in (None, found.fingerprint):
            raise CheckpointError(f"{found.source} is not the data that the run in {self.folder} was trained on")
        if path is not None and moved != self.source:
            self.source = moved
            write_json(self.folder / SOURCE, moved.as_dict())
        return found

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return (self.folder / MODEL).is_file()

    @property
    def checkpoints(self) -> list[Path]:
        """Files from which training can resume, the oldest first."""
        return sorted((self.folder / "checkpoints").glob("step-*.safetensors"))

    @cached_property
    def comparison(self) -> Comparison | None:
        """The metrics written at the end of the run, or by `probssl evaluate`."""
        if not (self.folder / METRICS).is_file():
            return None
        way_out = "copy it back, or evaluate again"
        stored: dict[str, Any] = read_json(self.folder / METRICS, dict, way_out)
        with intact(self.folder / METRICS, way_out):
            return Comparison.from_dict(stored)

    @property
    def report(self) -> Path:
        """The page about the run."""
        return self.folder / "report.html"

    def __repr__(self) -> str:
        state = "finished" if self.finished else f"at step {self.step} of {self.steps}"
        return f"Run({str(self.folder)!r}, {self.recipe.title}, {state})"

    def _repr_html_(self) -> str:
        shown = "" if self.comparison is None else self.comparison._repr_html_()
        return f"<p><code>{repr(self).replace('<', '&lt;')}</code></p>{shown}"


def absolute(data: str | os.PathLike[str]) -> str:
    """The full path of a file or folder; names of data sets as they are."""
    return str(Path(data).resolve()) if data not in IMAGES and Path(data).exists() else os.fspath(data)


def check(folder: Path, known: bool) -> bool:
    """Whether a folder holds a run, which is refused unless it is known; and so is a folder of other things."""
    started = (folder / RECIPE).is_file()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, but a run needs a folder")
    if started and not known:
        raise InputError(f"{folder} already holds a run: choose another --out, or use --resume or --overwrite")
    if not started and folder.is_dir() and any(not _left_behind(path) for path in folder.iterdir()):
        raise InputError(f"{folder} holds other files: choose another --out")
    return started


def _left_behind(path: Path) -> bool:
    """Whether a file is what a run killed in its first moments leaves."""
    return path.name in (SOURCE, LOCK) or (path.name.startswith(".") and path.suffix == ".partial")


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep other trainings from writing this run; the claim ends with the process, however it ends."""
    with contextlib.ExitStack() as held:

        def claim() -> None:
            folder.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((folder / LOCK).open("w"))
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise InputError(
                        f"another process is writing {folder}: wait for it, or choose another --out"
                    ) from None

        processes.from_first(claim)  # for all that train this run together
        yield


def begin(folder: Path, recipe: Recipe, source: Source, *, fresh: bool) -> None:
    """Write down what will be done. Results of an earlier run are removed, and those of one that is extended."""
    extended = (folder / RECIPE).is_file() and recipe.as_dict() != Recipe.from_toml(folder / RECIPE).as_dict()
    for name in RESULTS if fresh or extended else ():
        (folder / name).unlink(missing_ok=True)
    write_json(folder / SOURCE, source.as_dict())
    write_text(folder / RECIPE, recipe.to_toml())


def check_same(stored: Recipe, asked: Recipe) -> None:
    """Refuse to resume a run as another one. More steps are allowed."""
    mine, theirs = (flat(recipe.as_dict()) for recipe in (asked, stored))
    for name in {**theirs, **mine}:
        if mine.get(name) != theirs.get(name) and not (
            name == "plan.steps" and mine[name] > theirs.get(name, mine[name])
        ):
            raise CheckpointError(
                f"the run was started with {name} = {theirs.get(name)}, and --resume cannot make it {mine.get(name)}"
            )


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their paths: {"objective.candidates": "batch"}."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found
