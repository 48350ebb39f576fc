"""Runs and recipes from a few words, for tests: `train(data, folder, objective="snl", noise=0.3)`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probssl.data import Dataset
from probssl.errors import NonFiniteLoss, TrainingInterrupted
from probssl.parts.facts import Facts
from probssl.parts.recipe import SLOTS, Recipe
from probssl.parts.resolve import Resolved, resolve
from probssl.runs import Run, fit

PATHS = {
    **dict.fromkeys(("temperature", "p"), "energy"),
    **dict.fromkeys(("preservation", "noise"), "pairing"),
    **dict.fromkeys(("dim", "hidden", "width", "widths"), "encoder"),
    **dict.fromkeys(
        ("clusters", "generative", "invariance", "balance", "sampler.steps", "pair", "related"), "objective"
    ),
}
"""The part that a setting belongs to; all others belong to the plan."""


def recipe(seed: int = 0, **options: Any) -> Recipe:
    """A recipe of parts and settings, each under its own name."""
    chosen = {slot: options.pop(slot) for slot in SLOTS if slot in options}
    settings = {f"{PATHS.get(name, 'plan')}.{name}": value for name, value in options.items()}
    return Recipe(**chosen, seed=seed).with_settings(settings)


def resolved(seed: int = 0, facts: Facts | None = None, features: int = 6, **options: Any) -> Resolved:
    """The same for data: a table of 64 rows unless told otherwise."""
    return resolve(recipe(seed, **options), facts or Facts("table", (features,), 64))


def train(
    data: Dataset | None,
    folder: Path,
    *,
    chosen: Recipe | None = None,
    evaluate: Any = "none",
    test: Any = 0,
    reporter: Any = None,
    resume: bool = False,
    overwrite: bool = False,
    **options: Any,
) -> Run:
    """A run trained on all rows and not evaluated, however training ended."""
    try:
        return fit(
            data,
            recipe=recipe(**options) if chosen is None and not (resume and not options) else chosen,
            out=folder,
            evaluate=evaluate,
            test=None if resume else test,
            reporter=reporter,
            resume=resume,
            overwrite=overwrite,
        )
    except (TrainingInterrupted, NonFiniteLoss):
        return Run(folder)
