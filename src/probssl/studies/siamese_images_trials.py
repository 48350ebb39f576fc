"""A trial of `siamese/images`: a loss on images, the encoder that it trains, and how good the representation is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from probssl.encoders import MLP, ConvEncoder, ProjectionHead, ResNet18, WithHead, encode, seeded
from probssl.energies import Cosine, Energy, Euclidean
from probssl.metrics import rankme
from probssl.metrics.probes import knn_probe, linear_probe
from probssl.objectives import (
    NCE,
    SNL,
    BiasNetwork,
    Fisher,
    InfoNCE,
    Objective,
    SimSiam,
    SlicedFisher,
    Spectral,
)
from probssl.pairings import ImageAugmentation
from probssl.studies.base import Config, Result
from probssl.studies.fitting import last_loss
from probssl.studies.image_sets import images_of
from probssl.training import TrainingPlan

SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
"""Sets of images and their names in tables."""

UNTRAINED = "untrained encoder"
EUCLIDEAN = ", Euclidean"
"""What the name of a method ends in that has this energy, which the paper leaves to tables."""


@dataclass(frozen=True)
class Method:
    """A loss, the energy in it, and whether the encoder is a perceptron without a head."""

    loss: str
    euclidean: bool = False
    perceptron: bool = False

    @property
    def scored(self) -> bool:
        """Whether the loss needs ∇ₓ log p(x̃ | x), and so augmentations with noise and without blur."""
        return "Fisher" in self.loss


COMPARED = ("SimCLR", "SimSiam", "Spectral")
LIKELIHOODS = ("KL", "NCE", "SNL")
SCORED = ("Fisher", "Sliced Fisher")
ON_PERCEPTRON = "Fisher on an MLP"

METHODS: dict[str, Method] = {
    **{loss: Method(loss) for loss in (*COMPARED, *LIKELIHOODS, *SCORED)},
    ON_PERCEPTRON: Method("Fisher", perceptron=True),
    **{f"{loss}{EUCLIDEAN}": Method(loss, euclidean=True) for loss in (*LIKELIHOODS, *SCORED)},
}
"""By the name of its row."""

PROBE, RANK, NEIGHBOURS = "linear probe", "RankMe", "k-NN"
METRICS = (PROBE, RANK, NEIGHBOURS)
ITERATIONS = 200
"""Of the linear probe."""

BIAS_HIDDEN = 256
"""Hidden units of the bias network of NCE and SNL   (§4.3: dimensions [128, 256, 1])."""


def build(config: Config) -> nn.Module:
    """The encoder as it starts: of a seed, that of every loss with the same network has the same weights.

    A ResNet has batch normalisation, as in the paper; for losses on the score, which refuse it, group normalisation.
    """
    method, seed = METHODS.get(config["method"], Method(UNTRAINED)), config["seed"]
    shape, features = images_of(config["data"]).shape, config["features"]
    if method.perceptron:
        return seeded(seed, lambda: MLP((config["hidden"], config["hidden"]), config["dim"]).bind(shape=shape))

    def network() -> nn.Module:
        if config["network"] == "resnet18":
            return ResNet18(features // 8, normalisation="group" if method.scored else "batch").bind(shape=shape)
        widths = [config["width"] * 2**layer for layer in range(3)]
        return ConvEncoder(widths, features).bind(shape=shape)

    backbone = seeded(seed, network)
    head = ProjectionHead(2, dim=config["dim"])
    if method.loss == "SimSiam":
        head = ProjectionHead(3, batch_norm=True, last_norm=True)
    return WithHead(backbone, seeded(seed + 1, lambda: head.bind(shape=(features,))))


def objective_of(config: Config) -> Objective:
    """The loss of a method, as it starts. The paper's own see an image and one augmentation, the others two."""
    method = METHODS[config["method"]]

    def energy() -> Energy:
        return Euclidean() if method.euclidean else Cosine(config["temperature"])

    makers: dict[str, Callable[[], Objective]] = {
        "SimCLR": lambda: InfoNCE(energy(), candidates="two-view", pair="augmented"),
        "SimSiam": SimSiam,
        "Spectral": Spectral,
        "KL": lambda: InfoNCE(energy()),
        "NCE": lambda: NCE(energy(), bias=BiasNetwork(BIAS_HIDDEN)),
        "SNL": lambda: SNL(energy(), bias=BiasNetwork(BIAS_HIDDEN)),
        "Fisher": lambda: Fisher(energy()),
        "Sliced Fisher": lambda: SlicedFisher(energy(), expanded=True),
    }
    dim = config["features"] if method.loss == "SimSiam" else config["dim"]
    return seeded(config["seed"] + 2, lambda: makers[method.loss]().bind(dim=dim))


def plan_of(config: Config) -> TrainingPlan:
    """Warm-up and a half cosine; no weight decay for SNL and Fisher, which it makes collapse (§4.3)."""
    steps, loss = config["steps"], METHODS[config["method"]].loss
    return TrainingPlan(
        steps=steps,
        batch_size=config["batch"],
        optimiser=config["optimiser"],
        lr=config["rate"],
        weight_decay=0.0 if loss in ("SNL", *SCORED) else config["weight_decay"],
        warmup=max(1, steps // 100),
        log_every=max(1, steps // 10),
    )


def train(config: Config, encoder: nn.Module) -> float:
    """Train in place on the first rows of the set; returns the last loss."""
    x = torch.from_numpy(images_of(config["data"]).train_images[: config["rows"]])
    pairing = ImageAugmentation("siamese-fisher" if METHODS[config["method"]].scored else "siamese-cifar")
    return last_loss(encoder, objective_of(config), pairing, x, plan_of(config), seed=config["seed"])


def trial(config: Config) -> Result:
    """Train an encoder, unless it is to stay untrained, and measure its representations of test images."""
    encoder = build(config)
    loss = None if config["method"] == UNTRAINED else train(config, encoder)
    found = images_of(config["data"])
    assert found.train_labels is not None
    assert found.test_labels is not None
    sides = (found.train_images[: config["fitted"]], found.test_images[: config["test"]])
    fitted, z = (encode(encoder, torch.from_numpy(side)).double().numpy() for side in sides)
    labels, fitted_on = found.test_labels[: config["test"]], (fitted, found.train_labels[: config["fitted"]])
    scores = (
        linear_probe(z, labels, solver="whitened", iterations=ITERATIONS, fitted_on=fitted_on).mean,
        rankme(z),
        knn_probe(z, labels, fitted_on=fitted_on).mean,
    )
    return {**dict(zip(METRICS, scores, strict=True)), "dimensions": z.shape[1], "loss": loss}
