"""The experiments that can be reproduced, by name, and the call that runs one into a folder."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probssl.errors import DamagedFile, InputError
from probssl.grids import backends, engine
from probssl.grids.backends import PROCESSES
from probssl.grids.database import WAY_OUT
from probssl.grids.export import check_export
from probssl.grids.grid import Grid
from probssl.grids.keys import plain, text
from probssl.grids.store import Kept, Store
from probssl.grids.versions import code_version
from probssl.schema import intact
from probssl.studies.base import BUDGETS, Budget, Study, StudyResult

CATALOGUE = {
    "siamese/circles": "probssl.studies.circles:Circles",
    "siamese/linear-theory": "probssl.studies.linear_theory:LinearTheory",
    "siamese/deaugmenting": "probssl.studies.deaugmenting:Deaugmenting",
    "siamese/tabular-dimension": "probssl.studies.tabular:TabularDimension",
    "siamese/tabular-preservation": "probssl.studies.tabular:TabularPreservation",
    "siamese/images": "probssl.studies.siamese_images:SiameseImages",
    "identify/table1": "probssl.studies.identify:Table1",
    "anisotropic/lambda": "probssl.studies.anisotropic:AnisotropicLambda",
    "anisotropic/hard-negatives": "probssl.studies.anisotropic_twenty:HardNegatives",
    "anisotropic/ensemble": "probssl.studies.anisotropic_twenty:EnsembleStudy",
    "anisotropic/tricl": "probssl.studies.anisotropic_twenty:TriCLStudy",
    "anisotropic/scaling": "probssl.studies.scaling:Scaling",
    "anisotropic/mismatch": "probssl.studies.scaling:Mismatch",
    "anisotropic/mnist-vae": "probssl.studies.mnist_vae:MnistVAE",
    "anisotropic/distinct": "probssl.studies.mnist_vae:Distinct",
    "anisotropic/readout": "probssl.studies.readout:Readout",
    "gedi/toy": "probssl.studies.gedi_toy:Toy",
    "gedi/sensitivity": "probssl.studies.gedi_toy:Sensitivity",
    "identify/sprites": "probssl.studies.sprites:Sprites",
    "identify/natural-sprites": "probssl.studies.sprites:NaturalSprites",
    "identify/kitti": "probssl.studies.sprites:Kitti",
    "gedi/addition": "probssl.studies.gedi_addition:Addition",
    "gedi/images": "probssl.studies.gedi_images:GediImages",
    "gedi/ood": "probssl.studies.gedi_ood:GediOOD",
    "simvae/content": "probssl.studies.simvae_content:Content",
    "simvae/style": "probssl.studies.simvae_style:Style",
    "simvae/ablations": "probssl.studies.simvae_ablations:Ablations",
    "simvae/generation": "probssl.studies.simvae_generation:Generation",
}
"""Name -> module:class. A module is imported when its study is asked for."""

STORE = "store.sqlite"


def catalogue() -> tuple[Study, ...]:
    """Every experiment that can be reproduced."""
    return tuple(find(name) for name in CATALOGUE)


def find(name: str) -> Study:
    """The study of a name."""
    if name not in CATALOGUE:
        raise InputError(f"there is no experiment {name!r}: choose one of {', '.join(CATALOGUE)}")
    module, _, kind = CATALOGUE[name].partition(":")
    study: Study = getattr(importlib.import_module(module), kind)()
    return study


def run(
    name: str | Study,
    budget: str,
    out: Path,
    *,
    quiet: bool = False,
    jobs: int | None = None,
    backend: str = PROCESSES,
    address: str | None = None,
    fresh: bool = False,
) -> StudyResult:
    """Run what is not yet in the store of `out`, then write figures, a page and `result.json` there.

    Interrupted at any point, the same call resumes. `fresh` forgets what is there.
    """
    from probssl.files import write_text
    from probssl.report.console import trial_progress

    study = find(name) if isinstance(name, str) else name
    checked = checked_budget(budget)
    study.kept = kept_beside(study, checked, out) if backend == PROCESSES else None  # a cluster may not see the store
    backends.check(backend, jobs, address)
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file, and a study needs a folder")
    known = (STORE, "result.json")
    if out.is_dir() and any(out.iterdir()) and not any((out / file).is_file() for file in known):
        raise InputError(f"{out} holds other files: choose another --out")
    now = standing(study, checked, out)
    if fresh or now.done < now.total:
        study.prepare(checked)
    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    if fresh:
        forget(study, out)
    bar = None if quiet else trial_progress
    found = engine.run(grid(study, checked), out / STORE, jobs=jobs, backend=backend, address=address, progress=bar)
    if not found.results:
        raise engine.AllFailed(study.name, found.failures)
    with intact(out / STORE, WAY_OUT):
        rows = study.summarise(found.results, checked)
        page = study.page(found.results, rows, checked).write(out)
    seconds = time.perf_counter() - started
    trials = len(found.results) + len(found.failures)
    result = StudyResult(study.name, checked, seconds, rows, page, study.reference, trials, tuple(found.failures))
    write_text(out / "result.json", json.dumps(result.as_dict(), indent=2) + "\n")
    return result


def version_of(study: Study) -> str:
    """The version of the code that decides the study's numbers."""
    return code_version(study.code or (type(study).__module__,))


def grid(study: Study, budget: Budget) -> Grid:
    """The study's grid with the keys under which its trials are stored."""
    configs = [plain(config) for config in study.configs(budget)]
    return Grid.of(study, version_of(study), study.cohorts(configs), configs)


def kept_beside(study: Study, budget: Budget, out: Path) -> Kept | None:
    """The models that a study shares with another, in the other's folder if that lies where it is by default."""
    if not study.weights_from:
        return None
    other = find(study.weights_from)
    trials = grid(other, budget).trials
    keys = {text(config["model"], ordered=True): key for key, config in trials.items() if "model" in config}
    return Kept(Path(os.path.abspath(out / ".." / ".." / other.name / STORE)), keys)


def checked_budget(budget: str) -> Budget:
    """The budget, if there is such a one."""
    for known in BUDGETS:
        if budget == known:
            return known
    raise InputError(f"the budget is smoke, laptop or full, not {budget!r}")


def forget(study: Study, out: Path) -> None:
    """Delete what the store of `out` holds of the study; a store that cannot be read is deleted whole."""
    path = out / STORE
    try:
        with Store(path) as store:
            store.forget(study.name)
    except DamagedFile:
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)


@dataclass(frozen=True)
class Standing:
    """How far a study has come in a folder."""

    total: int  # trials of its grid
    done: int = 0
    failed: int = 0
    older: int = 0  # trials of an older version of the code, which are kept and not used
    problem: str | None = None  # why the store cannot be read, where it cannot

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)


def standing(study: Study, budget: str, out: Path) -> Standing:
    """What the store of `out` holds of the study's grid at a budget."""
    todo = grid(study, checked_budget(budget))
    keys = list(todo.trials)
    if not (out / STORE).is_file():
        return Standing(len(keys))
    try:
        with Store(out / STORE, read_only=True) as store:
            older = sum(count for code, count in store.versions(study.name).items() if code != todo.code)
            return Standing(len(keys), len(store.finished(keys)), len(store.failures(keys)), older)
    except InputError as error:
        return Standing(len(keys), problem=str(error))


def export(name: str | Study, out: Path, path: Path) -> int:
    """Write the study's trials in the store of `out` to a CSV, TSV or Parquet file; returns how many there are."""
    study = find(name) if isinstance(name, str) else name
    check_export(path)
    if not (out / STORE).is_file():
        raise InputError(f"{out} holds no trials of {study.name} yet: run it first")
    with Store(out / STORE, read_only=True) as store:
        versions = store.versions(study.name)
        code = version_of(study)
        if code not in versions:
            older = sum(versions.values())
            raise InputError(f"{out} holds no trials of this version of the code, and {older} of older ones")
        return store.export(path, study.name, code)
