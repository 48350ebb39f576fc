"""The trials of the tabular study: encoders of one table trained together, and what is measured of each.

Siamese-EBM §4.2: an MLP d-2d-m, Adam with 100 steps of warm-up and a cosine to zero, batches of 256, no weight decay,
no clipping of gradients; positives are (x, x̃); all losses start from the weights that the seed decides.

The probe, the spectrum and the alignment see the whole table, as in Siamese-EBM (§4.1.3). What compares all pairs of
rows (intrinsic dimension, cluster learnability, uniformity) sees a sample of 4,096 drawn by the seed, and what undoes
augmentations 256 fresh ones among 4,096 rows. All models of a table, a seed and an augmentation get the same split,
sample and questions, so that differences between them are of the models.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from probssl import metrics
from probssl.data import Standardiser, load_table
from probssl.encoders import encode
from probssl.energies import Energy
from probssl.errors import InputError
from probssl.metrics.deaugment import deaugmentation
from probssl.pairings import MaskAndNoise
from probssl.parts.facts import Facts
from probssl.parts.recipe import Recipe
from probssl.parts.resolve import Resolved, fixed_energy, resolve
from probssl.studies.base import Config, Result
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
        numbers = representation(trial.encoder, config["table"], config["seed"])
        yield config, {"state": state, **numbers, **pairs(trial.encoder, trial.objective.energy, config)}


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
    rows, features = observations(table).x.shape
    return Facts("table", (features,), rows)


def _trial(config: Config) -> Trial:
    chosen, x = resolved(config), observations(config["table"]).x
    plan = dataclasses.replace(chosen.plan, log_every=max(1, chosen.plan.steps // LOOKS))
    made = chosen.bind(x)
    assert made.pairing is not None
    return Trial(made.encoder, made.objective, made.pairing, x, plan, chosen.seed)


def _untrained(config: Config) -> dict[str, float]:
    """The numbers of the initial weights, seen through an energy."""
    made = resolved(config).bind()
    numbers = _initial_representation(config["table"], config["dim"], config["seed"])
    return {**numbers, **pairs(made.encoder, made.objective.energy, config)}


@functools.lru_cache(maxsize=64)
def _initial_representation(table: str, dim: int, seed: int) -> dict[str, float]:
    """Measured once: the initial weights depend neither on the loss, nor on the energy, nor on the augmentation."""
    recipe = Recipe(seed=seed).with_settings({"encoder.dim": dim})
    return representation(resolve(recipe, _facts(table)).bind().encoder, table, seed)


# What is measured, at a cost that thousands of trials can bear.

SAMPLE = 4096
"""Most rows that are compared pair by pair."""

QUERIES = 256
"""Augmentations that a model is asked to undo."""

PROBE_ITERATIONS = 200
"""Of L-BFGS in whitened coordinates; they end nearer to the optimum than 1,000 plain ones (`metrics.linear_probe`)."""


@dataclass(frozen=True, eq=False)
class Observations:
    """A table as encoders see it: standardised rows, and the label of each."""

    x: Tensor  # [n, d]
    labels: np.ndarray  # [n]


@functools.lru_cache(maxsize=2)
def observations(table: str) -> Observations:
    """The rows of a named table, read once for many trials."""
    found = load_table(table)
    if found.labels is None:
        raise InputError(f"{table} has no labels, and a probe needs them")
    x = Standardiser.fit(found.features).transform(found.features).astype(np.float32)
    return Observations(torch.from_numpy(x), found.labels)


@dataclass(frozen=True, eq=False)
class Questions:
    """Fresh augmentations whose sources are looked for among candidates, with the exact log p(x̃ | x) of all pairs."""

    candidates: Tensor  # [c, d]
    augmented: Tensor  # [q, d]
    source: Tensor  # [q]
    truth: np.ndarray  # [q, c]


@functools.lru_cache(maxsize=4)
def questions(table: str, preservation: float, noise: float, seed: int) -> Questions:
    """What every model of this table, augmentation and seed is asked; the exact posterior is computed once."""
    x = observations(table).x
    chance = torch.Generator().manual_seed(seed)
    candidates = x[torch.randperm(len(x), generator=chance)[:SAMPLE]]
    source = torch.randint(len(candidates), (QUERIES,), generator=chance)
    pairing = MaskAndNoise(preservation, noise)
    augmented = pairing.sample(candidates[source], chance)
    truth = pairing.pairwise_log_prob(augmented.double(), candidates.double()).numpy()
    return Questions(candidates, augmented, source, truth)


@functools.lru_cache(maxsize=4)
def related(table: str, preservation: float, noise: float, seed: int) -> Tensor:
    """One augmentation of every row, for alignment: [n, d]."""
    return MaskAndNoise(preservation, noise).sample(observations(table).x, torch.Generator().manual_seed(seed))


def representation(encoder: nn.Module, table: str, seed: int) -> dict[str, float]:
    """What depends on the representation of the rows alone: probe, RankMe, both parts of CLID, uniformity.

    RankMe counts the mean as a direction, which the Euclidean energy does not see: the gradient of the last bias is
    nothing but rounding, of which Adam makes steps. So there is RankMe of the centred representation too. What is
    undefined for a code (the dimension of a constant, say) is not a number.
    """
    data = observations(table)
    z = encode(encoder, data.x).numpy()
    probe = metrics.linear_probe(
        z, data.labels, splits=1, solver="whitened", iterations=PROBE_ITERATIONS, seed=seed
    )  # one split of 80/20, as in the paper
    return {
        "linear_probe": probe.mean,
        "rankme": metrics.rankme(z),
        "rankme_centred": metrics.rankme(z, centre=True),
        "intrinsic_dimension": _or_nan(lambda: metrics.intrinsic_dimension(z, max_rows=SAMPLE, seed=seed)),
        "cluster_learnability": _or_nan(lambda: metrics.cluster_learnability(z, max_rows=SAMPLE, seed=seed)),
        "uniformity": metrics.uniformity(z, max_rows=SAMPLE, seed=seed),
    }


def pairs(encoder: nn.Module, energy: Energy, config: Config) -> dict[str, float]:
    """What depends on the augmentation too: alignment, and how well q(x | x̃) ∝ e^{−δ} undoes it."""
    where = config["table"], config["preservation"], config["noise"], config["seed"]
    z, z_aug = (encode(encoder, rows).numpy() for rows in (observations(config["table"]).x, related(*where)))
    asked = questions(*where)
    logits = energy.logits(encode(encoder, asked.candidates), encode(encoder, asked.augmented)).mT
    undone = deaugmentation(logits.numpy(), asked.truth, asked.source.numpy())
    return {
        "alignment": metrics.alignment(z, z_aug),
        "kl_exact_model": undone.kl_exact_model,
        "nll": undone.nll,
        "exact_nll": undone.exact_nll,
        "top1": undone.top1,
        "exact_top1": undone.exact_top1,
    }


def _or_nan(number: Callable[[], float]) -> float:
    try:
        return number()
    except InputError:
        return math.nan
