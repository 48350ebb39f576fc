"""The trainings of `siamese/deaugmenting`: which settings on which data, and what is measured of each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from probssl.data import load_table
from probssl.encoders import encode, seeded
from probssl.errors import InputError
from probssl.metrics import linear_probe, rankme
from probssl.model import Model
from probssl.objectives import NCE, SNL, BiasNetwork, Objective
from probssl.parts.recipe import Recipe
from probssl.runs.evaluation import undo_augmentations
from probssl.studies import circles_trials
from probssl.studies.base import Config, Result
from probssl.training import TrainingPlan
from probssl.training.stacked import Trial as Training
from probssl.training.stacked import fit_many

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
    recipe = Recipe(
        objective=config["objective"] if config["objective"] != UNTRAINED else "infonce",
        energy=config["energy"],
        asymmetry=config["asymmetry"],
        steps=steps,
        seed=seed,
    )
    if data == CIRCLES:
        x = circles_trials.inputs(table)
        recipe = recipe.with_options(hidden=circles_trials.SIZES[1:-1], dim=circles_trials.SIZES[-1])
        return Training(
            recipe.build_encoder(2),
            circles_objective(recipe),
            circles_trials.augmentation(),
            x,
            circles_plan(steps, len(x)),
            seed,
        )
    model = Model.untrained(recipe, table)
    x = model.inputs(table.features)
    return Training(model.encoder, model.objective, recipe.build_pairing(), x, recipe.plan(), seed)


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


def circles_objective(recipe: Recipe) -> Objective:
    """The objective on two circles, where the bias networks are those of `siamese/circles`."""
    maker = {"snl": SNL, "nce": NCE}.get(recipe.objective)
    if maker is None:
        return recipe.build_objective(2)
    made = maker(recipe.build_energy(2), bias=BiasNetwork(20, batch_norm=False))
    return seeded(recipe.seed + 1, lambda: made.bind(dim=circles_trials.SIZES[-1]))


def circles_plan(steps: int, rows: int) -> TrainingPlan:
    """The optimisation of `siamese/circles`: all rows a step, constant rates."""
    return TrainingPlan(steps, rows, lr=0.01, objective_lr=0.1, warmup=0, anneal="constant", log_every=20)
