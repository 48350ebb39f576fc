"""The models of the SimVAE experiments: eight methods with one encoder on a set of images, each trained once.

Networks are SimVAE's Tables 3 and 4 (errata 003-9), augmentations its Table 2, and settings of the methods its A.7.4,
but for what a budget says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from probssl.data import ImageSet
from probssl.encoders import MLP, ConvEncoder, MirrorDecoder, WithHead, seeded
from probssl.energies import Cosine
from probssl.objectives import (
    CRVAE,
    VAE,
    GaussianLikelihood,
    GenerativeObjective,
    InfoNCE,
    MoCo,
    Objective,
    SimVAE,
    VICReg,
)
from probssl.pairings import ImageAugmentation
from probssl.studies import image_sets
from probssl.studies.base import Config, chosen
from probssl.studies.fitting import last_loss
from probssl.studies.styles import CONTENT, styled
from probssl.training import TrainingPlan
from probssl.training.checkpoints import pack, unpack

SETS = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "celeba": "CelebA",
    "styled-mnist": "styled MNIST",
    "sprites": "sprites",
}
"""Sets of images and their names in tables."""

GENERATIVE = ("VAE", "BetaVAE", "CRVAE", "SimVAE")
DISCRIMINATIVE = ("SimCLR", "MoCo", "MoCoV2", "VICReg")
METHODS = (*GENERATIVE, *DISCRIMINATIVE)
UNTRAINED = "untrained encoder"

TITLES = {"BetaVAE": "β-VAE", "CRVAE": "CR-VAE", "MoCoV2": "MoCo v2", UNTRAINED: "untrained"}
"""Names in tables and figures of methods that are not written as they are called."""

PRESETS = {
    "mnist": "simvae-mnist",
    "fashion-mnist": "simvae-fashion",
    "cifar10": "simvae-cifar10",
    "celeba": "simvae-celeba",
    "styled-mnist": "simvae-cifar10",
    "sprites": "simvae-mnist",
}

PERCEPTRON = (500, 500, 2000)
"""Hidden layers of the encoder of grey images   (Table 3); the decoder has them turned round."""

VAE_VARIANCE = 0.1
"""Likelihood variance of the plain VAE, for which the paper prints none: five times that of the others."""

BETA = 0.2
"""β of the β-VAE at that variance: the minimisers are those of a VAE of variance 0.02, which the paper gives it."""


@dataclass(frozen=True)
class TrainedModel:
    """An encoder as its method left it, its decoder if it has one, and the last loss."""

    encoder: nn.Module
    objective: Objective | None
    loss: float | None

    def pack(self) -> bytes | None:
        """What the store keeps of it: of those with a decoder, which `simvae/generation` measures too."""
        if self.generative is None:
            return None
        return pack({"encoder": self.encoder, "objective": self.generative}, {"loss": self.loss})

    @property
    def generative(self) -> GenerativeObjective | None:
        """The objective, where it has a decoder."""
        return self.objective if isinstance(self.objective, GenerativeObjective) else None


def images_of(name: str) -> ImageSet:
    """A set of images, read or made once a process."""
    return styled(name).images if name in CONTENT else image_sets.images_of(name)


def pixels(data: str, images: np.ndarray) -> Tensor:
    """Images as bytes; those of MNIST are binary, as the paper has them (A.7.2)."""
    found = torch.from_numpy(images)
    return (found > 127).to(torch.uint8).mul_(255) if data == "mnist" else found


def model_config(data: str, method: str, seed: int, scale: dict[str, Any], **changes: Any) -> Config:
    """All that a training depends on. Of `scale`, a budget's, a dict has a value for methods or sets and one else."""
    return {"data": data, "method": method, "seed": seed, **chosen(scale, method, data), **changes}


def build(config: Config) -> tuple[nn.Module, Objective | None]:
    """The encoder and its objective, None without training, as they start."""
    shape, dim, method = images_of(config["data"]).shape, config["dim"], config["method"]
    encoder = seeded(config["seed"], lambda: _encoder(config, shape))
    if method == "MoCoV2":
        head = seeded(config["seed"] + 2, lambda: MLP.of([dim, config["head"], config["head"]]))
        encoder = WithHead(encoder, head)
    if method == UNTRAINED:
        return encoder, None
    return encoder, seeded(config["seed"] + 1, lambda: _objective(config, encoder, shape))


def _encoder(config: Config, shape: tuple[int, int, int]) -> nn.Module:
    if config["network"] == "perceptron":
        return MLP(config.get("hidden", PERCEPTRON), config["dim"], he=True).bind(shape=shape)
    return ConvEncoder([config["width"] * 2**layer for layer in range(3)], config["dim"]).bind(shape=shape)


def _objective(config: Config, encoder: nn.Module, shape: tuple[int, int, int]) -> Objective:
    sharp, blunt = GaussianLikelihood(config["likelihood_variance"]), GaussianLikelihood(VAE_VARIANCE)
    decoder = MirrorDecoder(he=config["network"] == "perceptron")
    teacher = {name: config[name] for name in ("momentum", "queue") if name in config}
    makers: dict[str, Callable[[], Objective]] = {
        "VAE": lambda: VAE(blunt, decoder=decoder),
        "BetaVAE": lambda: VAE(blunt, decoder=decoder, beta=BETA),
        "CRVAE": lambda: CRVAE(sharp, decoder=decoder, consistency=0.1),
        "SimVAE": lambda: SimVAE(sharp, decoder=decoder, related=config["related"], variance=config["latent_variance"]),
        "SimCLR": lambda: InfoNCE(Cosine(0.7), candidates="two-view", pair="augmented"),
        "MoCo": lambda: MoCo(temperature=0.7, **teacher),
        "MoCoV2": lambda: MoCo(temperature=0.2, **teacher),
        "VICReg": lambda: VICReg(pair="augmented"),
    }
    dim = config["head"] if config["method"] == "MoCoV2" else config["dim"]
    return makers[config["method"]]().bind(dim=dim, shape=shape, encoder=encoder)


def pairing_of(config: Config) -> ImageAugmentation:
    """The set's augmentation of the paper, with another crop or jitter of colours where the configuration says so."""
    changes = {"crop_scale": config["crop_scale"]} if "crop_scale" in config else {}
    if "colour" in config:  # hues move by a quarter of what the others do, as in Table 2
        changes |= {
            **dict.fromkeys(("brightness", "contrast", "saturation"), config["colour"]),
            "hue": config["colour"] / 4,
        }
    return ImageAugmentation(PRESETS[config["data"]], **changes)


def plan_of(config: Config) -> TrainingPlan:
    """Adam with a half cosine."""
    steps = config["steps"]
    return TrainingPlan(
        steps=steps,
        batch_size=config["batch"],
        lr=config["rate"],
        warmup=min(100, steps // 10),
        log_every=max(1, steps // 10),
        clip_norm=config["clip"],
    )


def trained(config: Config, kept: bytes | None = None) -> TrainedModel:
    """The model of a configuration: as it was kept, or else trained."""
    encoder, objective = build(config)
    if objective is None:
        return TrainedModel(encoder.eval(), None, None)
    if kept is not None:
        loss = unpack({"encoder": encoder, "objective": objective}, kept)["loss"]
    else:
        loss = train(config, encoder, objective)
    return TrainedModel(encoder.eval(), objective.eval(), loss)


def train(config: Config, encoder: nn.Module, objective: Objective) -> float:
    """Train in place on the first rows of the set; returns the last loss."""
    x = pixels(config["data"], images_of(config["data"]).train_images[: config["rows"]])
    return last_loss(encoder, objective, pairing_of(config), x, plan_of(config), seed=config["seed"])
