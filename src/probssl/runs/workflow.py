"""From data to a judged run, in one function: the command line and Python call the same."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from probssl.data import Corrupt, Dataset, Table, check_trainable, is_dataset, load
from probssl.encoders import encode
from probssl.errors import CollapseWarning, InputError, NonFiniteLoss, TrainingInterrupted
from probssl.model import Model, facts_of
from probssl.parts.recipe import Recipe
from probssl.parts.resolve import resolve
from probssl.runs import folder as folders
from probssl.runs.evaluation import Comparison, Depth, evaluate, judged_rows
from probssl.runs.folder import MODEL, RECIPE, Run, Source, absolute
from probssl.training import Fitted, ProgressBar, Reporter
from probssl.training import fit as train
from probssl.training.distributed import processes
from probssl.training.files import atomic_path
from probssl.training.surroundings import one_thread
from probssl.training.watch import MEANING

TEST_SHARE = 0.2
"""Of a table's rows, or of images without a test half of their own, what training never sees unless told otherwise."""

LEAST_ROWS = 2
"""Rows that a test needs to be judged by; smaller data is trained on and judged as a whole unless told otherwise."""

PROJECTED_ROWS = 5000
"""Rows kept for the picture of the representation."""


def fit(
    data: Any = None,
    *,
    objective: Any = None,
    energy: Any = None,
    pairing: Any = None,
    encoder: Any = None,
    head: Any = None,
    dim: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    recipe: Recipe | None = None,
    label: str | None = None,
    drop: str | Sequence[str] = (),
    ids: str | None = None,
    test: Any = None,
    size: int | tuple[int, int] | None = None,
    corrupt: Corrupt = "refuse",
    keep_constant: bool = False,
    weights: str | os.PathLike[str] | None = None,
    start_from: str | os.PathLike[str] | Run | None = None,
    out: str | os.PathLike[str] | Callable[[str], Path] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    evaluate: Literal["none", "quick", "full"] = "quick",
    progress: bool = False,
    reporter: Reporter | None = None,
    device: str = "cpu",
) -> Run:
    """Train an encoder on data, and judge it on rows that it never saw.

    data: whatever `probssl.load` reads: a file, a folder, a name, an array, a frame, a torch data set. A named world
        (`world:sphere10`) is trained on fresh draws. May be left out with `resume`.
    objective, energy, pairing, encoder, head: parts by name (`probssl parts`) or objects, which are copied and never
        trained in place; what suits the data where left out. An encoder may be any `nn.Module`.
    dim, steps, batch_size, lr, seed: the settings that most people change; all others by their path in `settings`:
        `{"objective.candidates": "two-view", "plan.warmup": 0}`.
    recipe: choices to begin from; those above come on top.
    label, drop, ids, size, corrupt: how the data is read, as for `probssl.load`. Labels are only used to evaluate.
    test: rows that neither encoder nor scaling sees, on which metrics are computed: a share (a fifth unless given, or
        the test half of a set that has one), a column, a file or a data set; 0 trains on all rows.
    keep_constant: accept columns that never vary.
    weights: a safetensors file with weights for the encoder, in place of random ones. `plan.freeze` keeps layers fixed.
    start_from: a run whose weights, scaling and choices training begins with.
    out: the run's folder, or a function that makes one of a name; a temporary one unless given. With `resume`, training
        goes on in it from its last checkpoint to the weights that an uninterrupted run would have; with more `steps`
        than before it is extended, and the learning rate follows the schedule of that many steps from there on.
        `overwrite` replaces the run in it.
    evaluate: how much is measured at the end; `probssl.evaluate` measures later.
    progress: show a progress bar. `reporter` is called in its place, where given.
    device: "cuda" trains on a GPU. A script that `torchrun` starts several times trains one model in as many processes.

    Raises `NonFiniteLoss` when the loss is not finite, and `TrainingInterrupted`, a `KeyboardInterrupt`, after a
    checkpoint when it is interrupted. A collapse is a warning, and stands in `examine(run)`.
    """
    if resume and overwrite:
        raise InputError("--resume continues a run and --overwrite replaces it: give one of them")
    if dim is not None and dim < 1:
        raise InputError(f"dim, the dimensions of the representation, must be at least 1, not {dim}")
    parts = {"objective": objective, "energy": energy, "pairing": pairing, "encoder": encoder, "head": head}
    plan = {"plan.steps": steps, "plan.batch_size": batch_size, "plan.lr": lr, "encoder.dim": dim}
    changes = {**{name: value for name, value in plan.items() if value is not None}, **(settings or {})}
    known = Path(out) if isinstance(out, (str, os.PathLike)) else None
    before = Run(known) if resume and known is not None and (known / RECIPE).is_file() else None
    if resume and before is None and (known is None or data is None):
        raise InputError(
            "--resume needs --out, the folder of the run to resume"
            if known is None
            else f"{out} holds no run to resume"
        )
    if before is not None and before.finished and not before.checkpoints:
        raise InputError(f"{out} has no checkpoint left to resume from: begin another run with its weights, by --from")
    base = Run(start_from) if isinstance(start_from, (str, os.PathLike)) else start_from
    first = recipe or (before.recipe if before else base.recipe if base else Recipe())
    chosen = first.with_choices(**parts, seed=seed).with_settings(changes)
    announce = _Announcer(progress)
    with processes.launched(device):
        if before is not None:
            columns = {"label": label, "drop": drop or None, "ids": ids, "test": test, "size": size}
            flags = {"corrupt": corrupt if corrupt != "refuse" else None, "keep_constant": keep_constant or None}
            dataset, source = _again(before, data, {**columns, **flags}, announce)
        else:
            if data is None:
                raise InputError("give DATA to train on: a file or a name, for example sklearn:digits")
            asked = Source(
                os.fspath(data) if isinstance(data, (str, os.PathLike)) else "object",
                label,
                ((drop,) if drop else ()) if isinstance(drop, str) else tuple(drop),
                ids,
                None,
                keep_constant,
                (size, size) if isinstance(size, int) else size,
                corrupt,
                chosen.seed,
            )
            dataset, source = _first_read(data, asked, test, base, announce)
        resolved = resolve(chosen, facts_of(dataset))
        source = dataclasses.replace(source, facts=resolved.facts.as_dict())
        if before is not None:
            folders.check_same(before.recipe, resolved.recipe)
        scaling = base.model.standardiser if base else None
        model = Model.of(resolved, dataset, scaling)  # before anything is written: the data may not suit the recipe
        if base is not None:
            _take_over(model, base)
        if weights is not None:
            _load_weights(model, Path(weights))
        name = f"{stem(source.data)}-{resolved.called('objective')}-{resolved.called('energy')}"
        place = processes.from_first(lambda: out(name) if callable(out) else Path(out or _temporary()))
        started = processes.from_first(lambda: folders.check(place, resume or overwrite))
        bar = reporter or (ProgressBar(resolved.title()) if progress else Reporter())
        with folders.claimed(place):
            fresh = not (resume and started)
            processes.from_first(lambda: folders.begin(place, resolved.recipe, source, fresh=fresh))
            fitted = _train(model, dataset, place, resume, bar, device)
            if fitted.failure is not None:
                raise NonFiniteLoss(f"training stopped at step {fitted.steps}: {fitted.failure}", place)
            if fitted.interrupted:
                raise TrainingInterrupted(place, fitted.steps)
            processes.from_first(lambda: model.save(place / MODEL))
            for kind, step in fitted.collapsed.items():
                warnings.warn(f"{MEANING[kind]}, since step {step}", CollapseWarning, stacklevel=2)
            with announce, one_thread(model.facts.kind != "images"):
                try:
                    processes.from_first(lambda: judge(model, dataset, place, evaluate, announce))
                except KeyboardInterrupt:
                    raise TrainingInterrupted(place, fitted.steps) from None
    run = Run(place, **{slot: part for slot, part in parts.items() if part is not None and not isinstance(part, str)})
    run.model, run.dataset = model, dataset
    return run


def judge(
    model: Model,
    data: Dataset,
    folder: Path,
    depth: Literal["none", "quick", "full"],
    announce: Callable[[str], Any] = lambda what: None,
) -> None:
    """Write metrics and the page of a run."""
    from probssl.report import run_page  # reports read runs; this is the one arrow back

    if depth != "none":
        assess(model, data, folder, depth, announce=announce)
    announce("writing the report")
    run = Run(folder)
    run.model, run.dataset = model, data
    run_page.write(run)


def assess(
    model: Model,
    data: Dataset,
    folder: Path,
    depth: Depth = "quick",
    *,
    seed: int | None = None,
    announce: Callable[[str], Any] = lambda what: None,
) -> Comparison:
    """Evaluate a run's model on the rows that it never saw, and write `metrics.json` and what the report draws.

    The seed, that of the run unless given, decides splits and augmentations.
    """
    seed = model.resolved.seed if seed is None else seed
    comparison = evaluate(model, data, depth=depth, seed=seed, announce=announce)
    folders.write_json(folder / folders.METRICS, comparison.as_dict())
    observed, _ = judged_rows(model, data, seed, depth)
    drawn = observed.take(np.random.default_rng(seed).permutation(len(observed))[:PROJECTED_ROWS])
    labels = np.full(len(drawn), -1) if drawn.labels is None else drawn.labels
    assert drawn.rows is not None
    names = drawn.rows if drawn.ids is None else np.array(list(map(str, drawn.ids)))
    z = encode(model.encoder, drawn.x).numpy()
    with atomic_path(folder / "projection.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, z=z, labels=labels, rows=names, classes=np.array(drawn.classes, dtype=str))
    if model.of_images:
        from probssl.runs.pictures import pictures

        announce("drawing images")
        with atomic_path(folder / "pictures.npz") as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **pictures(model, observed, seed))  # type: ignore[arg-type]
    return comparison


def _first_read(data: Any, asked: Source, test: Any, base: Run | None, announce: _Announcer) -> tuple[Dataset, Source]:
    """The data of a new run, its test rows set aside, and how to find both again."""

    def read() -> Dataset:
        options = {name: getattr(asked, name) for name in ("label", "drop", "ids", "size", "corrupt")}
        features = base.model.feature_names or None if base is not None else None
        with announce.reading(asked.data) as bytes_read:
            return load(data, **options, features=features, test=test, seed=asked.seed % 2**32, progress=bytes_read)

    dataset = processes.first_then_others(read)
    if isinstance(dataset, Table):
        check_trainable(dataset, keep_constant=asked.keep_constant)
    kept: Any = test
    if test is None and dataset.test is None and dataset.layout.kind != "world":
        enough = round(TEST_SHARE * len(dataset)) >= LEAST_ROWS
        kept = TEST_SHARE if enough else None
    divided = dataset if kept is test else dataset.with_test(kept, asked.seed % 2**32)
    for half, rows in (("training", divided.rows("train")), ("test", divided.rows("test"))):
        if len(rows) == 1:
            what = "image" if dataset.layout.kind == "images" else "row"
            raise InputError(f"{dataset.source} has 1 {half} {what}, and two are the least: add more, or choose --test")
    remembered = kept if kept is None or isinstance(kept, (int, float)) else str(kept)
    if isinstance(remembered, str) and remembered not in dataset.layout.names:
        remembered = absolute(remembered)
    source = dataclasses.replace(
        asked,
        data=from_anywhere(data, dataset),
        label=asked.label if isinstance(data, (str, os.PathLike)) else asked.label or dataset.label_name,
        test="dataset" if is_dataset(kept) else remembered,
        fingerprint=divided.fingerprint,
    )
    return divided, source


def _again(before: Run, data: Any, given: dict[str, Any], announce: _Announcer) -> tuple[Dataset, Source]:
    """The data of a run that is resumed; `data` is where it is now, if it was moved or is an object.

    given: how the data is to be read, as far as a person said so, which must be as before.
    """
    for name, asked in given.items():
        stored = getattr(before.source, name)
        if asked is not None and str(_plainly(asked)) != str(_plainly(stored)):
            option = f"--{name.replace('_', '-')}"
            was = f"with {option} {_plainly(stored)}" if stored else f"without {option}"
            raise InputError(f"the run in {before.folder} was started {was}, and --resume cannot change it")
    if data is not None and not (isinstance(data, (str, os.PathLike)) and absolute(data) == before.source.data):
        return before.found_at(data if not isinstance(data, (str, os.PathLike)) else absolute(data)), before.source
    if before.source.data in folders.OBJECTS:
        raise InputError(f"the run was trained on an object in memory ({before.source.data}): hand it in again")
    with announce.reading(before.source.data) as bytes_read:
        return processes.first_then_others(lambda: before.source.read(bytes_read)), before.source


def _plainly(value: Any) -> Any:
    """A way of reading data as the command line writes it."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return absolute(value) if isinstance(value, str) and Path(value).exists() else value


def _train(model: Model, data: Dataset, folder: Path, resume: bool, reporter: Reporter, device: str) -> Fitted:
    world = model.world
    fitted = train(
        model.encoder,
        model.objective,
        world if world is not None else model.pairing,  # type: ignore[arg-type]
        None if world is not None else model.observe(data, "train").x,
        model.resolved.plan,
        seed=model.resolved.seed,
        out=folder,
        resume=resume,
        reporter=reporter,
        device=device,
    )
    model.encoder.cpu()
    model.objective.cpu()
    return fitted


def _take_over(model: Model, base: Run) -> None:
    """Begin with the weights of another run, as far as the parts are the same."""
    from probssl.training.checkpoints import gather, restore

    theirs = gather("encoder", base.model.encoder.state_dict())
    try:
        restore(model.encoder, "encoder", theirs)
        if type(model.objective) is type(base.model.objective):
            restore(model.objective, "objective", gather("objective", base.model.objective.state_dict()))
    except InputError as error:
        raise InputError(f"the weights of {base.folder} do not fit this recipe: {error}") from error


def _load_weights(model: Model, path: Path) -> None:
    """Put weights from a safetensors file into the encoder."""
    import safetensors.torch

    try:
        tensors = safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"{path} cannot be read as a safetensors file ({error})") from error
    backbone = model.backbone
    for prefix in ("", "encoder.", "backbone."):
        found = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        if found.keys() & backbone.state_dict().keys():
            break
    try:
        backbone.load_state_dict(found)
    except RuntimeError as error:
        detail = " ".join(str(error).split("\n")[1:2]).strip()
        raise InputError(f"the weights in {path} do not fit the encoder ({detail})") from error


def _temporary() -> str:
    return tempfile.mkdtemp(prefix="probssl-")


def stem(data: str) -> str:
    """What folders about data are called."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(data).name.split(":")[-1].split(".")[0]) or "data"


def below_runs(name: str) -> Path:
    """runs/NAME, numbered when it is taken: where the command line puts a run."""
    return unused(Path("runs") / name)


def unused(folder: Path) -> Path:
    """The folder, numbered when it is taken."""
    name, number = folder.name, 2
    while folder.exists():
        folder = folder.with_name(f"{name}-{number}")
        number += 1
    return folder


def from_anywhere(data: Any, dataset: Dataset) -> str:
    """The full path of a file or folder, so that the run finds its data again from elsewhere; names stay names."""
    return absolute(data) if isinstance(data, (str, os.PathLike)) else dataset.source


class _Announcer:
    """Says what takes long before and after training, on standard error, where progress is asked for."""

    def __init__(self, shown: bool) -> None:
        self.shown = shown and processes.is_first()
        self._spinner: Any = None

    def reading(self, name: str) -> Any:
        from probssl.report.console import download_progress

        return download_progress(name, not self.shown)

    def __call__(self, what: str) -> None:
        if not self.shown:
            return
        from rich.console import Console

        if self._spinner is None:
            self._spinner = Console(stderr=True).status(what)
            self._spinner.start()
        self._spinner.update(what)

    def __enter__(self) -> _Announcer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._spinner is not None:
            self._spinner.stop()
