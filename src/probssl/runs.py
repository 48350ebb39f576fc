"""A run's folder: train into it, go on after an interruption, read it back."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

try:
    import fcntl
except ImportError:  # Windows: runs are not guarded against each other there
    fcntl = None  # type: ignore[assignment]

from probssl import processes
from probssl.data import Corrupt, ImageSet, Table, check_trainable, images_of, load, world_of
from probssl.encoders import encode
from probssl.errors import CheckpointError, CollapseWarning, InputError, NonFiniteLoss
from probssl.evaluation import Comparison, evaluate, judged_rows
from probssl.model import Data, Model
from probssl.pictures import pictures
from probssl.recipe import Recipe
from probssl.training import Fitted, ProgressBar, Reporter
from probssl.training import fit as train_encoder
from probssl.training.files import atomic_path, write_text
from probssl.training.log import read_log
from probssl.training.watch import MEANING

LOCK = ".lock"

PROJECTED_ROWS = 5000
"""Rows kept for the picture of the representation."""


@dataclass(frozen=True)
class Source:
    """Where a run's rows come from, so that the run can be resumed and evaluated again."""

    data: str
    label: str | None = None
    drop: tuple[str, ...] = ()
    keep_constant: bool = False
    size: tuple[int, int] | None = None
    """To which images are resized."""
    corrupt: Corrupt = "refuse"
    """What is done with files that are no whole images."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        found = {"data": self.data, "label": self.label, "drop": list(self.drop), "keep_constant": self.keep_constant}
        return {
            **found,
            **({} if self.size is None else {"size": list(self.size)}),
            **({} if self.corrupt == "refuse" else {"corrupt": self.corrupt}),
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Source:
        """The inverse of `as_dict`."""
        height, width = stored.get("size") or (0, 0)
        size = (height, width) if height else None
        corrupt = stored.get("corrupt", "refuse")
        return cls(stored["data"], stored["label"], tuple(stored["drop"]), stored["keep_constant"], size, corrupt)


class Run:
    """A run's folder, read lazily: recipe, log, model, metrics."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = folder = Path(folder)
        if not (folder / "recipe.toml").is_file():
            what = "is not a run" if folder.is_dir() else "does not exist"
            raise InputError(f"{folder} {what}: give the folder that probssl fit wrote")

    @cached_property
    def recipe(self) -> Recipe:
        """What the run was asked to do."""
        return Recipe.from_toml(self.folder / "recipe.toml")

    @cached_property
    def source(self) -> Source:
        """Where its rows came from."""
        return Source.from_dict(json.loads((self.folder / "source.json").read_text(encoding="utf-8")))

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """Rows and events of the log."""
        path = self.folder / "log.jsonl"
        return read_log(path) if path.is_file() else []

    @property
    def standing_collapses(self) -> dict[str, int]:
        """Collapses that were seen and had not gone by the end of the log: kind -> step at which they set in."""
        standing: dict[str, int] = {}
        for row in self.log:
            if row.get("event") == "recovery":
                standing.pop(row["kind"], None)
            elif row.get("event") == "collapse":
                standing[row["kind"]] = row["step"]
        return standing

    @cached_property
    def model(self) -> Model:
        """The trained model."""
        return Model.load(self.folder)

    def data(self) -> Table | ImageSet:
        """What it was trained on, read again."""
        return self.model.read(self.source.data, label=self.source.label, corrupt=self.source.corrupt)

    def table(self) -> Table:
        """The rows of the table it was trained on."""
        data = self.data()
        if not isinstance(data, Table):
            raise InputError(f"{self.source.data} is a set of images and not a table")
        return data

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return (self.folder / "model.safetensors").is_file()

    @cached_property
    def comparison(self) -> Comparison | None:
        """The metrics written at the end of the run."""
        path = self.folder / "metrics.json"
        if not path.is_file():
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
        return Comparison.from_dict(stored)


def train(
    data: Table | ImageSet,
    recipe: Recipe,
    folder: Path,
    *,
    source: Source | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    device: str = "cpu",
) -> tuple[Model, Fitted]:
    """Train a recipe on data into a folder; the model is written when training ends without interruption.

    A table that was drawn from a named world stands for it: training draws afresh from the world itself. Of a set of
    images only the training half is trained on.
    """
    if isinstance(data, ImageSet):
        source = Source(data.source) if source is None else source
        recipe = recipe.on(images=_called(data)).for_shape(data.shape)
    else:
        source = Source(data.source, data.label_name) if source is None else source
        check_trainable(data, keep_constant=source.keep_constant)
        recipe = recipe.on(world=world_of(data.source)).for_features(data.n_features)
    with processes.launched(device):
        started = processes.from_first(lambda: _check_folder(folder, resume or overwrite))
        with _claimed(folder):
            return _train(data, recipe, folder, source, resume and started, reporter, device)


def _check_folder(folder: Path, known: bool) -> bool:
    """Whether a folder holds a run, which is refused unless it is known; and so is a folder of other things."""
    started = (folder / "recipe.toml").is_file()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, and a run needs a folder")
    if started and not known:
        raise InputError(f"{folder} already holds a run: choose another --out, go on with --resume, or --overwrite it")
    if not started and folder.is_dir() and any(not _ours(path) for path in folder.iterdir()):
        raise InputError(f"{folder} holds other files: choose another --out")
    return started


@contextlib.contextmanager
def _claimed(folder: Path) -> Iterator[None]:
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
                        f"{folder} is being written by another process: wait for it, or choose another --out"
                    ) from None

        processes.from_first(claim)  # for all that train this run together
        yield


def _train(
    data: Table | ImageSet,
    recipe: Recipe,
    folder: Path,
    source: Source,
    resume: bool,
    reporter: Reporter | None,
    device: str,
) -> tuple[Model, Fitted]:
    model = Model.untrained(recipe, data)  # before anything is written: the data may not suit the recipe
    if isinstance(data, ImageSet) and 1 in (len(data.rows("train")), len(data.rows("test"))):
        half = "training" if len(data.rows("train")) == 1 else "test"
        raise InputError(f"{data.source} has 1 {half} image, and two are the least: add more")
    processes.from_first(lambda: _prepare(recipe, folder, source, resume))
    world = recipe.build_world()
    fitted = train_encoder(
        model.encoder,
        model.objective,
        recipe.build_pairing() if world is None else world,
        model.observe(data, "train").x if world is None else None,
        recipe.plan(),
        seed=recipe.seed,
        out=folder,
        resume=resume,
        reporter=reporter,
        device=device,
    )
    model.encoder.cpu()
    model.objective.cpu()
    if fitted.failure is None and not fitted.interrupted:
        processes.from_first(lambda: model.save(folder / "model.safetensors"))
    return model, fitted


def _prepare(recipe: Recipe, folder: Path, source: Source, resume: bool) -> None:
    """Write down what will be done, or make sure that it is what was begun."""
    if resume:
        _check_same(Recipe.from_toml(folder / "recipe.toml"), recipe)
        return
    for name in ("model.safetensors", "metrics.json", "projection.npz", "pictures.npz", "report.html"):
        (folder / name).unlink(missing_ok=True)
    write_text(folder / "source.json", json.dumps(source.as_dict(), indent=2) + "\n")
    write_text(folder / "recipe.toml", recipe.to_toml())


def fit(
    data: Data,
    *,
    label: str | None = None,
    size: tuple[int, int] | None = None,
    corrupt: Corrupt = "refuse",
    recipe: Recipe | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = False,
    device: str = "cpu",
    **options: Any,
) -> Run:
    """Train an encoder on a table, a set of images, an array, a file or a name, in one call.

    Options are those of `Recipe`. A named world (`world:sphere10`) is trained on fresh draws, from `Recipe.for_world`
    unless there is a recipe; images (`mnist`, a folder, an array [n, channels, height, width]) from
    `Recipe.for_images`. `size` is for a folder of images of several sizes: height and width that all are resized to;
    `corrupt="skip"` passes over its files that are no whole images, which else are refused.
    The run's folder `out` gets model, recipe, log, metrics and report, as from the command line; without it they go
    to a temporary folder. Raises `NonFiniteLoss` when the loss is not finite, and `KeyboardInterrupt` after a
    checkpoint when it is interrupted. A collapse is a warning here and stands in `examine(run)`. `device="cuda"` trains
    on a GPU. A script that `torchrun` starts several times trains one model, in as many processes.
    """
    chosen, source = begin(data, recipe, options), None
    with processes.launched(device):
        if not isinstance(data, (Table, ImageSet)):
            given = data
            written = None if isinstance(data, np.ndarray) else os.fspath(data)
            found = processes.first_then_others(
                lambda: load(given, label=label, size=size, corrupt=corrupt, seed=chosen.seed % 2**32)
            )
            assert isinstance(found, (Table, ImageSet))
            data = found
            if written is not None and isinstance(data, ImageSet):
                source = Source(written, size=size, corrupt=corrupt)
        made = processes.from_first(lambda: tempfile.mkdtemp(prefix="probssl-") if out is None else str(out))
        return _fit(data, chosen, Path(made), source, resume, overwrite, progress, device)


def _fit(
    data: Table | ImageSet,
    recipe: Recipe,
    folder: Path,
    source: Source | None,
    resume: bool,
    overwrite: bool,
    progress: bool,
    device: str,
) -> Run:
    reporter = ProgressBar(f"{recipe.objective} · {recipe.energy}") if progress else Reporter()
    model, fitted = train(
        data,
        recipe,
        folder,
        source=source,
        resume=resume,
        overwrite=overwrite,
        reporter=reporter,
        device=device,
    )
    if fitted.failure is not None:
        raise NonFiniteLoss(f"training stopped at step {fitted.steps}: {fitted.failure}")
    if fitted.interrupted:
        raise KeyboardInterrupt
    for kind, step in fitted.collapsed.items():
        warnings.warn(f"{MEANING[kind]}, since step {step}", CollapseWarning, stacklevel=3)

    def judge() -> None:
        from probssl.report import run_page  # reports read runs; this is the one arrow back

        assess(model, data, folder)
        run_page.write(Run(folder))

    processes.from_first(judge)
    return Run(folder)


def begin(data: Data, recipe: Recipe | None, options: dict[str, Any]) -> Recipe:
    """The recipe to train DATA with: the given one, else what suits the data, with the options put in place."""
    source = data.source if isinstance(data, Table) else data
    world = world_of(source) if isinstance(source, str) else None
    images = _called(data) if isinstance(data, ImageSet) else images_of(data)
    if recipe is None and images is not None:
        return Recipe.for_images(images, **options)
    if recipe is None and world is not None:
        return Recipe.for_world(world, **options)
    chosen = (recipe or Recipe()).on(world=world, images=images).with_options(**options)
    return chosen.on(world=world, images=images)  # which refuses options that the data has no use for


def _called(data: ImageSet) -> str:
    """What a recipe calls a set of images, wherever its folder is."""
    return images_of(data.source) or data.source


def assess(
    model: Model, data: Table | ImageSet, folder: Path, *, announce: Callable[[str], None] = lambda name: None
) -> Comparison:
    """Evaluate a run's model on its own data and write `metrics.json` and what the report draws.

    Of images that is the test half, where there is one.
    """
    comparison = evaluate(model, data, seed=model.recipe.seed, announce=announce)
    write_text(folder / "metrics.json", json.dumps(_strict(comparison.as_dict()), indent=2) + "\n")
    observed, _ = judged_rows(model, data, model.recipe.seed)
    rows = np.random.default_rng(model.recipe.seed).permutation(len(observed))[:PROJECTED_ROWS]
    labels = np.full(len(rows), -1) if observed.labels is None else observed.labels[rows]
    z = encode(model.encoder, observed.take(rows).x).numpy()
    with atomic_path(folder / "projection.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, z=z, labels=labels, rows=rows, classes=np.array(observed.classes, dtype=str))
    if model.recipe.images is not None:
        announce("drawing images")
        with atomic_path(folder / "pictures.npz") as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **pictures(model, observed, model.recipe.seed))  # type: ignore[arg-type]
    return comparison


def _ours(path: Path) -> bool:
    """Whether a file is what a run killed in its first moments leaves behind."""
    return path.name in ("source.json", LOCK) or (path.name.startswith(".") and path.suffix == ".partial")


def _check_same(stored: Recipe, asked: Recipe) -> None:
    mine, theirs = asked.as_dict(), stored.as_dict()
    for name in {**theirs, **mine}:
        if mine.get(name) != theirs.get(name):
            raise CheckpointError(
                f"the run was started with {name} = {theirs.get(name)}, and --resume cannot make it {mine.get(name)}"
            )


def _strict(value: Any) -> Any:
    """Numbers that JSON cannot hold become null."""
    if isinstance(value, dict):
        return {key: _strict(entry) for key, entry in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
