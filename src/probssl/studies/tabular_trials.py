"""The trainings of the tabular study: encoders of one table trained together, and what is measured of each.

Siamese-EBM §4.2: an MLP d-2d-m, Adam with 100 steps of warm-up and a cosine to zero, batches of 256, no weight decay,
no clipping of gradients; positives are (x, x̃); all losses start from the weights that the seed decides.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

from probssl.encoders import encode
from probssl.parts.facts import Facts
from probssl.parts.recipe import Recipe
from probssl.parts.resolve import Resolved, fixed_energy, resolve
from probssl.studies import tabular_measures as measures
from probssl.studies.base import Config, Result
from probssl.studies.tabular_measures import Augmentation
from probssl.training import Trial, fit_many

UNTRAINED = "untrained"
LOOKS = 10
"""Looks at the representation while training, to tell whether it has collapsed."""


def run_batch(configs: list[Config]) -> Iterator[tuple[Config, Result]]:
    """Train all that is to be trained, each as if alone, then measure one after the other.

    A training that ended in numbers that are not finite is a result too: its state says so, and it has no others.
    """
    trained = [config for config in configs if config["objective"] != UNTRAINED]
    trials = [_trial(config) for config in trained]
    fitted = fit_many(trials)
    if any(one.interrupted for one in fitted):
        raise KeyboardInterrupt
    for config in configs:
        if config["objective"] == UNTRAINED:
            yield config, {"state": UNTRAINED, **_untrained(config)}
    for config, trial, one in zip(trained, trials, fitted, strict=True):
        if one.failure is not None or not bool(encode(trial.encoder, trial.data).isfinite().all()):
            yield config, {"state": f"failed: {one.failure or 'the representation is not finite'}"}
            continue
        state = f"collapsed: {' '.join(one.collapsed)}" if one.collapsed else "trained"
        table, seed, augmentation = config["table"], config["seed"], _augmentation(config)
        yield (
            config,
            {
                "state": state,
                **measures.representation(trial.encoder, table, seed),
                **measures.pairs(trial.encoder, trial.objective.energy, table, augmentation, seed),
            },
        )


def resolved(config: Config) -> Resolved:
    """A configuration with every choice made: the paper's protocol, which is ours but for the clipping of gradients."""
    trained = config["objective"] != UNTRAINED
    objective = config["objective"] if trained else "infonce"
    recipe = Recipe(
        objective=objective,
        energy=config["energy"] if fixed_energy(objective) is None else None,
        pairing={"name": "mask-and-noise", "preservation": config["preservation"], "noise": config["noise"]},
        plan={
            "steps": config["steps"] if trained else 1,
            "batch_size": 256,
            "lr": config["lr"] if trained else 0.01,
            "weight_decay": 0.0,
            "warmup": 100,
            "clip_norm": None,
        },
        seed=config["seed"],
    )
    return resolve(recipe.with_settings({"encoder.dim": config["dim"]}), _facts(config["table"]))


def _facts(table: str) -> Facts:
    rows, features = measures.observations(table).x.shape
    return Facts("table", (features,), rows)


def _trial(config: Config) -> Trial:
    chosen, x = resolved(config), measures.observations(config["table"]).x
    plan = dataclasses.replace(chosen.plan, log_every=max(1, chosen.plan.steps // LOOKS))
    made = chosen.bind(x)
    assert made.pairing is not None
    return Trial(made.encoder, made.objective, made.pairing, x, plan, chosen.seed)


def _augmentation(config: Config) -> Augmentation:
    return Augmentation(config["preservation"], config["noise"])


def _untrained(config: Config) -> dict[str, float]:
    """The numbers of the initial weights, seen through an energy."""
    table, seed = config["table"], config["seed"]
    made = resolved(config).bind()
    return {
        **_initial_representation(table, config["dim"], seed),
        **measures.pairs(made.encoder, made.objective.energy, table, _augmentation(config), seed),
    }


@functools.lru_cache(maxsize=64)
def _initial_representation(table: str, dim: int, seed: int) -> dict[str, float]:
    """Measured once: the initial weights depend neither on the loss, nor on the energy, nor on the augmentation."""
    recipe = Recipe(seed=seed).with_settings({"encoder.dim": dim})
    return measures.representation(resolve(recipe, _facts(table)).bind().encoder, table, seed)
