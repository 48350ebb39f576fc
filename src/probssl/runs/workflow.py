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

from probssl.data import Corrupt, Dataset
from probssl.encoders import encode
from probssl.errors import CollapseWarning, InputError, NonFiniteLoss, TrainingInterrupted
from probssl.files import atomic_path, write_json
from probssl.model import Model, facts_of, prepare
from probssl.parts.recipe import Recipe, agreed
from probssl.parts.resolve import Resolved, resolve
from probssl.runs import folder as folders
from probssl.runs.evaluation import Comparison, Depth, evaluate, judged_rows
from probssl.runs.folder import MODEL, PICTURES, PROJECTION, RECIPE, Run, Source
from probssl.runs.planning import check_memory
from probssl.runs.reading import Announcer, Reading
from probssl.runs.starting import starting_model
from probssl.training import ProgressBar, Reporter
from probssl.training import fit as train
from probssl.training.distributed import processes
from probssl.training.surroundings import one_thread
from probssl.training.watch import MEANING

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
    recipe: Recipe | str | os.PathLike[str] | None = None,
    label: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    missing: str | Sequence[str] = (),
    encoding: str | None = None,
    ids: str | None = None,
    test: Any = None,
    size: int | tuple[int, int] | None = None,
    corrupt: Corrupt = "refuse",
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
    recipe: choices to start from, or a TOML file of them; those above override it.
    label, drop, kinds, missing, encoding, ids, size, corrupt: how the data is read, as for `probssl.load`. Labels are
        only used to evaluate.
    test: rows that neither encoder nor scaling sees, on which metrics are computed: a share (a fifth unless given, or
        the test half of a set that has one), a column, a file or a data set; 0 trains on all rows.
    weights: a safetensors file with weights for the encoder, in place of random ones. `plan.freeze` keeps layers fixed.
    start_from: a run whose weights, scaling and choices training begins with.
    out: the run's folder, or a function that makes one of a name; a temporary one unless given. With `resume`, training
        goes on in it from its last checkpoint to the weights that an uninterrupted run would have; with more `steps`
        than before it is extended, and the learning rate follows the schedule of that many steps from there on.
        `overwrite` replaces the run in it.
    evaluate: how much is measured at the end; `probssl.evaluate` measures later.
    progress: show a progress bar. A `reporter`, a `training.Reporter`, stands in its place where given.
    device: "cuda" trains on a GPU. A script that `torchrun` starts several times trains one model in as many processes.

    Raises `NonFiniteLoss` when the loss is not finite, and `TrainingInterrupted`, a `KeyboardInterrupt`, after a
    checkpoint when it is interrupted. A collapse is a warning, and stands in `examine(run)`.
    """
    if resume and overwrite:
        raise InputError("--resume continues a run and --overwrite replaces it: give only one of them")
    if dim is not None and dim < 1:
        raise InputError(f"dim, the dimensions of the representation, must be at least 1, not {dim}")
    if reporter is not None and not isinstance(reporter, Reporter):
        raise InputError(f"reporter must be an instance of training.Reporter, not {reporter!r}")
    if evaluate not in ("none", "quick", "full"):
        raise InputError(f"--evaluate is none, quick or full, not {evaluate!r}")
    parts = {"objective": objective, "energy": energy, "pairing": pairing, "encoder": encoder, "head": head}
    plan = {"plan.steps": steps, "plan.batch_size": batch_size, "plan.lr": lr, "encoder.dim": dim}
    changes = {name: value for name, value in plan.items() if value is not None}
    changes = agreed(changes, settings or {})
    before = _to_resume(out, data) if resume else None
    base = Run(start_from) if isinstance(start_from, (str, os.PathLike)) else start_from
    if base is not None and not base.parts:
        base.parts = base.handed_in(parts)
    recipe = Recipe.from_toml(recipe) if isinstance(recipe, (str, os.PathLike)) else recipe
    start = recipe or (before.recipe if before else base.recipe if base else Recipe())
    chosen = start.with_choices(**parts, seed=seed).with_settings(changes)
    test = test.item() if isinstance(test, np.generic) else test
    reading = Reading(label, drop, kinds, missing, encoding, ids, test, size, corrupt)
    announce = Announcer(progress)
    with processes.launched(device):
        if before is not None:
            dataset, source = reading.again(before, data, announce)
        else:
            dataset, source = reading.first(data, chosen.seed, base, announce)
        preparation = base.model.preparation if base else prepare(dataset)
        resolved = resolve(chosen, facts_of(dataset, preparation))
        source = dataclasses.replace(source, facts=resolved.facts)
        if before is not None:
            folders.check_same(before.recipe, resolved.recipe)
        if device == "cpu":
            check_memory(resolved, dataset, evaluate)
        model = starting_model(
            resolved, dataset, preparation, base, weights
        )  # before anything is written: it may be refused
        place = processes.from_first(lambda: _place(out, source, resolved))
        started = processes.from_first(lambda: folders.check(place, resume or overwrite))
        with folders.claimed(place):
            fresh = not (resume and started)
            processes.from_first(lambda: folders.begin(place, resolved.recipe, source, fresh=fresh))
            bar = reporter or (ProgressBar(resolved.title()) if progress else Reporter())
            _train(model, dataset, place, resume, bar, device)
            with announce, one_thread(model.facts.kind != "images"):
                try:
                    processes.from_first(lambda: judge(model, dataset, place, evaluate, announce))
                except KeyboardInterrupt:
                    raise TrainingInterrupted(place, resolved.plan.steps) from None
    run = Run(place, **{slot: part for slot, part in parts.items() if part is not None and not isinstance(part, str)})
    run.model, run.dataset = model, dataset
    return run


def _to_resume(out: Any, data: Any) -> Run | None:
    """The run in a folder; none if training has not begun there, which may be when data is given."""
    folder = Path(out) if isinstance(out, (str, os.PathLike)) else None
    if folder is not None and (folder / RECIPE).is_file():
        run = Run(folder)
        if run.finished and not run.checkpoints:
            raise InputError(f"{out} has no checkpoint to resume from: start another run from it with --from")
        return run
    if folder is None:
        raise InputError("--resume needs --out, the folder of the run to resume")
    if data is None:
        raise InputError(f"there is no run to resume in {out}")
    return None


def _place(out: Any, source: Source, resolved: Resolved) -> Path:
    """The run's folder."""
    if callable(out):
        return Path(out(f"{stem(source.data)}-{resolved.called('objective')}-{resolved.called('energy')}"))
    return Path(out or tempfile.mkdtemp(prefix="probssl-"))


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
    write_json(folder / folders.METRICS, comparison.as_dict())
    observed, _ = judged_rows(model, data, seed, depth)
    drawn = observed.take(np.random.default_rng(seed).permutation(len(observed))[:PROJECTED_ROWS])
    labels = np.full(len(drawn), -1) if drawn.labels is None else drawn.labels
    assert drawn.rows is not None
    names = drawn.rows if drawn.ids is None else np.array(list(map(str, drawn.ids)))
    z = encode(model.encoder, drawn.x).numpy()
    with atomic_path(folder / PROJECTION) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, z=z, labels=labels, rows=names, classes=np.array(drawn.classes, dtype=str))
    if model.of_images:
        from probssl.runs.pictures import pictures

        announce("drawing images")
        with atomic_path(folder / PICTURES) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **pictures(model, observed, seed))  # type: ignore[arg-type]
    return comparison


def _train(model: Model, data: Dataset, folder: Path, resume: bool, reporter: Reporter, device: str) -> None:
    """Train a model and save it; raises if training ends before its last step."""
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
    if fitted.failure is not None:
        raise NonFiniteLoss(f"training stopped at step {fitted.steps}: {fitted.failure}", folder)
    if fitted.interrupted:
        raise TrainingInterrupted(folder, fitted.steps)
    model.encoder.cpu()
    model.objective.cpu()
    processes.from_first(lambda: model.save(folder / MODEL))
    for kind, step in fitted.collapsed.items():
        warnings.warn(f"{MEANING[kind]}, since step {step}", CollapseWarning, stacklevel=3)


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
