"""What a trial on sums of digits is: the sums, the network, which terms of the loss there are, and what is measured."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor, nn

from probssl.data.addition import addition_triples
from probssl.data.image_set import unit_floats
from probssl.data.mnist import mnist
from probssl.encoders import ConvEncoder, ResNet8, encode, seeded
from probssl.objectives import GEDI, ConstrainedGEDI
from probssl.pairings import Each, ImageAugmentation
from probssl.runs.pictures import as_bytes
from probssl.samplers import SGLD, Box
from probssl.studies.base import Config, Result
from probssl.studies.fitting import finished
from probssl.studies.image_sets import halves
from probssl.studies.pictures import as_text
from probssl.symbolic import Constraint, divergence_of_mean
from probssl.training import TrainingPlan

METHODS = ("constraint", "GEDI", "constraint and prior", "GEDI and constraint")
"""Settings of a row: the first, second and last are the columns of GEDI's Table 6."""

DIGITS, SIDE = 10, 28
HELD_OUT = 12
"""One of so many training images is in no sum: settings were chosen by those, and failed starts show on them."""

CROP = 0.7
"""Least share of the image in a crop, which GEDI does not print. At 0.4 most starts need several times as long."""

CONSTRAINT, GENERATIVE, INVARIANCE, BALANCE_WITHOUT = 25.0, 1.0, 50.0, 25.0
STEP_SIZE, STEP_NOISE, REINITIALISE = 1.0, 0.01, 0.05
BATCH, WEIGHT_DECAY = 60, 1e-4
"""GEDI, Table 9: weights of the terms (the last two without the constraint), sampler and optimiser."""

WALLS = Box(0.0, 1.0)
"""Chains stay images."""

SHOWN_SUMS, SHOWN_CHAINS, POINTS = 6, 20, 40
"""Sums of test images and chains of the sampler in the figures; points of a curve."""


@dataclass(frozen=True)
class Digits:
    """Images [n, 1, 28, 28] in [0, 1] and their labels [n]: for sums, held out, and for the test."""

    train: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@functools.cache
def digits() -> Digits:
    """MNIST, the last part of its training images held out."""
    (train, labels), test = (
        (torch.from_numpy(unit_floats(half.images)), torch.from_numpy(half.labels)) for half in halves(mnist())
    )
    first = len(train) - len(train) // HELD_OUT
    return Digits((train[:first], labels[:first]), (train[first:], labels[first:]), test)


@functools.cache
def addition() -> Constraint:
    """The third digit is the sum of the first two."""
    return Constraint.where(lambda a, b, c: a + b == c, sizes=(DIGITS,) * 3)


def sums(images: Tensor, labels: Tensor, count: int, seed: int) -> Tensor:
    """Examples [count, 3, 1, 28, 28]. Labels are used to find images that add up, and never again."""
    return images[addition_triples(labels, count, torch.Generator().manual_seed(seed))]


def encoder_of(config: Config) -> nn.Module:
    """The network of a trial: GEDI's residual one, or convolutions that take a seventh of the time of its thinnest."""
    if config["network"] == "residual":
        return seeded(config["seed"], lambda: ResNet8(config["width"]).bind(shape=(1, SIDE, SIDE)))
    first, second, dim = config["width"], 2 * config["width"], 4 * config["width"]
    return seeded(config["seed"], lambda: ConvEncoder((first, second), dim, hidden=dim).bind(shape=(1, SIDE, SIDE)))


def objective_of(config: Config) -> GEDI:
    """The loss of a trial: its terms are those of its method."""
    method, dim = config["method"], (1 if config["network"] == "residual" else 4) * config["width"]
    samples = "GEDI" in method
    shared: dict[str, Any] = {
        "generative": GENERATIVE if samples else 0.0,
        "magnitude": config["magnitude"] if samples else 0.0,
        "pair": "augmented",
        "sampler": SGLD(steps=config["sgld"], step_size=STEP_SIZE, noise=STEP_NOISE, box=WALLS),
        "chains": config["chains"],
        "reinitialise": REINITIALISE,
        "start": "uniform",
    }
    if method == "GEDI":
        loss = GEDI(DIGITS, invariance=INVARIANCE, balance=BALANCE_WITHOUT, **shared)
    else:
        balance = 0.0 if method == "constraint" else config["balance"]
        loss = ConstrainedGEDI(addition(), constraint=CONSTRAINT, balance=balance, **shared)
    return seeded(config["seed"], lambda: loss.bind(dim=dim, shape=(1, SIDE, SIDE)))


def trial(config: Config) -> Result:
    """Train on sums, then ask for the digits of MNIST's test images."""
    data, seed, method = digits(), config["seed"], config["method"]
    x = sums(*data.train, config["examples"], seed)
    config = {**config, "seed": seed + 1000 * config["start"]}  # another start has other weights, and the same sums
    augmentation = ImageAugmentation("gedi-mnist", crop_scale=CROP)
    encoder, objective = encoder_of(config), objective_of(config)
    plan = TrainingPlan(
        steps=config["steps"],
        batch_size=BATCH,
        lr=config["rate"],
        weight_decay=WEIGHT_DECAY,
        warmup=50,
        anneal=config["anneal"],
        initial_weights={"constraint": config["constraint_at_first"]} if "constraint" in objective.weights else None,
        log_every=max(1, config["steps"] // POINTS),
    )
    started = time.process_time()
    if method == "GEDI":  # which knows nothing of sums
        fitted = finished(encoder, objective, augmentation, x.flatten(0, 1), plan, seed=seed)
    else:
        fitted = finished(encoder, objective, Each(augmentation), x, plan, seed=seed)
    terms = ("step", "constraint", "prior", "invariance", "generative")
    return {
        **scores(encoder, objective, *data.test),
        **label_free(encoder, objective, data.held_out, seed),
        "seconds": time.process_time() - started,
        "curve": [{name: row[name] for name in terms if name in row} for row in fitted.history if "loss" in row],
        "shown": shown(encoder, objective, data.test),
        "chains": None if objective.buffer is None else as_text(as_bytes(objective.buffer.chains[:SHOWN_CHAINS])),
    }


@torch.no_grad()
def _predict(encoder: nn.Module, objective: GEDI, images: Tensor) -> Tensor:
    """Logits [n, 10], in blocks."""
    return objective.head(encode(encoder, images, batch_size=1000))


def scores(encoder: nn.Module, objective: GEDI, images: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy, the classes taken at their names, and NMI, which does not care for names."""
    found = _predict(encoder, objective, images).argmax(1)
    nmi = normalized_mutual_info_score(labels.numpy(), found.numpy())
    return {"accuracy": float((found == labels).float().mean()), "NMI": float(nmi)}


def label_free(encoder: nn.Module, objective: GEDI, held_out: tuple[Tensor, Tensor], seed: int) -> dict[str, float]:
    """Terms of other sums, by which a failed start shows without labels: both are near 0 where digits were found."""
    others = sums(*held_out, len(held_out[0]) // HELD_OUT, 10_000 + seed)
    logits = _predict(encoder, objective, others.flatten(0, 1)).unflatten(0, others.shape[:2])
    found = {"other constraint": addition().loss(logits).item(), "other prior": divergence_of_mean(logits).item()}
    names = {"constraint": "other constraint", "prior": "other prior"}
    return {**found, "other loss": sum(found[names[term]] * objective.weights.get(term, 0.0) for term in names)}


def shown(encoder: nn.Module, objective: GEDI, test: tuple[Tensor, Tensor]) -> dict[str, Any]:
    """The same few sums of test images for all trials, and the digits that this one reads."""
    images, labels = test
    triples = addition_triples(labels, SHOWN_SUMS, torch.Generator().manual_seed(0))
    found = _predict(encoder, objective, images[triples.flatten()]).argmax(1)
    return {
        "images": as_text(as_bytes(images[triples])),
        "truth": labels[triples].tolist(),
        "read": found.view(-1, 3).tolist(),
    }
