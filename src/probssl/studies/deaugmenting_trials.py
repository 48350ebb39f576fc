"""The trainings of `siamese/deaugmenting`: which settings on which data, and what is measured of each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from probssl.data import load_table
from probssl.encoders import encode
from probssl.errors import InputError
from probssl.metrics import linear_probe, rankme
from probssl.model import Model
from probssl.parts.recipe import Recipe
from probssl.parts.resolve import fixed_energy
from probssl.runs.evaluation import undo_augmentations
from probssl.studies import circles_trials
from probssl.studies.base import Config, Result
from probssl.training import Trial as Training
from probssl.training import fit_many

CIRCLES = "toy:circles"
CANDIDATES = 4096
"""Most rows among which the source of an augmentation is looked for."""

UNTRAINED = "untrained"


def run_batch(configs: list[Config]) -> Iterator[tuple[Config, Result]]:
    """Train all settings together, each as if alone, and measure the representation and the posterior of each."""
    prepared = [_training(config) for config in configs]
    trained = [training for config, training in zip(configs, prepared, strict=True) if config["objective"] != UNTRAINED]
    ended = iter(fit_many(trained))
    for config, training in zip(configs, prepared, strict=True):
        state = UNTRAINED
        if config["objective"] != UNTRAINED:
            fitted = next(ended)
            if fitted.interrupted:
                raise KeyboardInterrupt
            if fitted.failure is not None:
                yield config, {"state": f"failed: {fitted.failure}", "numbers": {}}
                continue
            state = f"collapsed: {' '.join(fitted.collapsed)}" if fitted.collapsed else "trained"
        yield config, {"state": state, "numbers": _measure(training, config)}


def _training(config: Config) -> Training:
    """What is trained, or would be."""
    data, seed, steps = config["data"], config["seed"], config["steps"]
    table = load_table(data, seed=seed)
    if data == CIRCLES:
        return circles_trials.prepared(recipe(config), table, circles_trials.plan(steps, len(table), 20))
    model = Model.untrained(recipe(config), table)
    assert model.pairing is not None
    plan = model.resolved.plan
    return Training(model.encoder, model.objective, model.pairing, model.inputs(table.features), plan, seed)


def recipe(config: Config) -> Recipe:
    """What a configuration chooses; all else is the usual."""
    objective = config["objective"] if config["objective"] != UNTRAINED else "infonce"
    energy: Any = config["energy"] if fixed_energy(objective) is None else None
    if config["asymmetry"] != "none":
        energy = {"name": "asymmetric", "base": energy, "by": config["asymmetry"]}
    return Recipe(objective=objective, energy=energy, plan={"steps": config["steps"]}, seed=config["seed"])


def _measure(t: Training, config: Config) -> dict[str, float]:
    labels = load_table(config["data"], seed=config["seed"]).labels
    if labels is None:
        raise InputError(f"{config['data']} has no labels, and a probe needs them")
    models = {"model": (t.encoder, t.objective.energy)}
    undone = undo_augmentations(models, t.pairing, t.data, candidates=CANDIDATES, seed=t.seed)["model"]
    z = encode(t.encoder, t.data).numpy()
    return {
        "linear_probe": linear_probe(z, labels, seed=t.seed).mean,
        "rankme": rankme(z),
        "width_error": abs(math.log(undone.effective_candidates / undone.exact_effective_candidates)),
        **dataclasses.asdict(undone),
    }
