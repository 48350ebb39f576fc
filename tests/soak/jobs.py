"""What is killed: trainings, comparisons and studies, each run to its end by one call however often it is begun."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Job = Callable[[Path], None]
"""Runs, or goes on, in a folder."""


def rows() -> np.ndarray:
    """A small table."""
    return np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32)


def images() -> np.ndarray:
    """Small images."""
    return np.random.default_rng(0).integers(0, 256, (48, 3, 12, 12), dtype=np.uint8)


def fit_table(folder: Path, **chosen: Any) -> None:
    """A training on rows."""
    _fit(rows(), folder, chosen, {"plan.checkpoint_every": 4}, steps=40)


def fit_images(folder: Path, **chosen: Any) -> None:
    """A training on images."""
    own = {"plan.checkpoint_every": 2, "encoder.widths": [4], "encoder.hidden": 8}
    _fit(images(), folder, {"encoder": "conv", **chosen}, own, steps=12)


def fit_world(folder: Path, **chosen: Any) -> None:
    """A training on a world."""
    _fit("world:sphere4", folder, chosen, {"plan.checkpoint_every": 4}, steps=40)


def _fit(data: Any, folder: Path, chosen: dict[str, Any], settings: dict[str, Any], steps: int) -> None:
    import probssl

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps may well end in a collapse
        probssl.fit(data, steps=steps, batch_size=16, settings=settings, out=folder, resume=True, **chosen)


def compare(folder: Path, data: str, jobs: int) -> None:
    """A comparison of a few configurations."""
    from probssl import Table
    from probssl import compare as find
    from probssl.comparing import schedule

    schedule.LENGTHS = {float("inf"): (10, 20, 40)}
    labels = np.arange(90) % 2
    table = Table("soak", rows().astype(float), tuple("abcd"), labels=labels, classes=("a", "b"), label_name="side")
    of: dict[str, Any] = {"table": table, "images": images(), "world": "world:sphere4"}
    objectives = ["infonce", "vicreg" if data == "world" else "fisher"]
    trials = 12 if data == "table" else 2
    find(of[data], trials=trials, objectives=objectives, dims=[2], resume=True, out=folder, jobs=jobs)


def study(folder: Path, name: str, jobs: int) -> None:
    """An experiment at its smallest."""
    from probssl import studies

    studies.run(name, "smoke", folder, quiet=True, jobs=jobs)


STUDIES = ("siamese/circles", "siamese/linear-theory", "siamese/tabular-dimension", "gedi/toy")
KINDS: dict[str, Callable[..., None]] = {"table": fit_table, "images": fit_images, "world": fit_world}


Cell = tuple[str, dict[str, Any]]
"""What is killed: the name of a function of this module, and its arguments beside the folder."""


def cells() -> dict[str, Cell]:
    """By name: every objective on everything that it can be trained on, and grids."""
    from probssl.errors import InputError
    from probssl.parts.facts import Facts
    from probssl.parts.recipe import Recipe
    from probssl.parts.registry import KINDS as REGISTRY
    from probssl.parts.resolve import resolve

    facts = {
        "table": Facts("table", (4,), 90),
        "images": Facts("images", (3, 12, 12), 48),
        "world": Facts("world", (4,), 1000, "sphere4"),
    }
    found: dict[str, Cell] = {}
    for objective in REGISTRY["objective"]:
        for kind, known in facts.items():
            try:
                resolve(Recipe(objective=objective), known)
            except (InputError, ValueError):
                continue
            found[f"fit {kind} {objective}"] = f"fit_{kind}", {"objective": objective}
    for jobs in (1, 4):
        for kind in KINDS:
            found[f"compare {kind} --jobs {jobs}"] = "compare", {"data": kind, "jobs": jobs}
    for name in STUDIES:
        for jobs in (1, 4, 16):
            found[f"{name} --jobs {jobs}"] = "study", {"name": name, "jobs": jobs}
    return found


def outcome(folder: Path) -> dict[str, str]:
    """All that a job comes to but for times: what must be equal however often it was killed."""
    from probssl.grids.store import Store

    found: dict[str, str] = {}
    for name in ("model.safetensors", "metrics.json", "leaderboard.csv", "recipe.toml"):
        if (folder / name).is_file():
            found[name] = (folder / name).read_bytes().hex()
    if (folder / "log.jsonl").is_file():
        lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        found["log"] = json.dumps([{k: v for k, v in row.items() if k != "seconds"} for row in lines])
    if (folder / "store.sqlite").is_file():
        with Store(folder / "store.sqlite", read_only=True) as store:
            trials = sorted((t.key, json.dumps(t.config), json.dumps(_without_time(t.result))) for t in store.trials())
        found["store"] = json.dumps(trials)
    return found


def _without_time(result: Any) -> Any:
    if isinstance(result, dict):
        return {name: _without_time(value) for name, value in result.items() if "seconds" not in name}
    return [_without_time(value) for value in result] if isinstance(result, list) else result
