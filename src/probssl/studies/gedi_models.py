"""The models of `gedi/images` and `gedi/ood`: five methods with one network on a set of images, each trained once.

The network is GEDI's ResNet-8 with a projection of one hidden layer (GEDI appendix M, Table 8); weights, sampler and
augmentations are those of its Table 9 but for what a budget says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from probssl.data import unit_floats
from probssl.data.images import find_images
from probssl.encoders import MLP, ConvEncoder, Encoder, ResNet8, WithHead, encode, seeded
from probssl.objectives import GEDI, BarlowTwins, ClusteringObjective, Objective, SwAV
from probssl.objectives.gedi import gedi_weights
from probssl.pairings import ImageAugmentation, Needs, Views
from probssl.pairings.views import standard_normal
from probssl.samplers import SGLD, Box, UniformStart
from probssl.studies.base import Config, chosen
from probssl.studies.fitting import last_loss
from probssl.studies.image_sets import images_of
from probssl.training import TrainingPlan
from probssl.training.checkpoints import pack, unpack

SETS = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "cifar100": "CIFAR-100",
}
"""Sets of images and their names in tables."""

FREE = ("mnist", "fashion-mnist", "cifar10")
"""Sets that every budget but smoke asks for; the others are used where they are."""

VARIANTS = {"JEM": "jem", "GEDI no gen": "no gen", "GEDI": "gedi"}
METHODS = ("JEM", "BarlowTwins", "SwAV", "GEDI no gen", "GEDI")
RESIDUAL, CONVOLUTIONS = "ResNet-8", "two convolutions"
UNTRAINED = "untrained"
"""The network of GEDI as it starts: what needs no training at all."""

PRESETS = {
    "mnist": "gedi-mnist",
    "fashion-mnist": "gedi-mnist",
    "cifar10": "gedi-cifar10",
    "svhn": "gedi-svhn",
    "cifar100": "gedi-cifar100",
}
DATA_NOISE = 0.03
"""Standard deviation of the noise on every image of a batch   (GEDI appendix M)."""

WALLS = Box(0.0, 1.0)
AT_ONCE = 500


def sets() -> tuple[str, ...]:
    """The sets to train on: the free ones, and what else there is."""
    return FREE + tuple(name for name in SETS if name not in FREE and find_images(name))


def floats(images: np.ndarray) -> Tensor:
    """Images as numbers from 0 to 1, in the layout that convolutions are fastest on: [n, channels, height, width]."""
    return torch.from_numpy(unit_floats(images)).contiguous(memory_format=torch.channels_last)


class NoisyImages(ImageAugmentation):
    """Augmentations of images that are noisy to begin with, so that the density of data has no sharp walls."""

    def forward(self, x: Tensor, needs: Needs, generator: torch.Generator | None = None) -> Views:
        return super().forward(torch.add(x, standard_normal(x, generator), alpha=DATA_NOISE), needs, generator)


class Standardised(nn.Module):
    """(z − mean) / deviation, of every dimension [dim] or all alike: [n, ...] → [n, ...]. It is not trained."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.clone())
        self.register_buffer("deviation", deviation.clone())

    def forward(self, z: Tensor) -> Tensor:
        return (z - self.mean) / self.deviation


@dataclass(frozen=True)
class TrainedModel:
    """A network and the logits that its method reads from it, p(y, x) ∝ e^{logits_y(x)}   (GEDI Eq. 6).

    For JEM, SwAV and GEDI they are those of their cluster centres. Barlow Twins has none: its projection, standardised
    over the training images as its loss does over a batch, stands in for them, as it must in the paper's tables.
    """

    encoder: nn.Module
    head: nn.Module
    sampler: SGLD
    loss: float | None

    def pack(self) -> bytes:
        """What the store keeps of it."""
        return pack({"encoder": self.encoder, "head": self.head}, {"loss": self.loss})

    def logits(self, x: Tensor) -> Tensor:
        """[n, c]."""
        found: Tensor = self.head(self.encoder(x))
        return found

    def log_density(self, x: Tensor) -> Tensor:
        """log Σ_y e^{logits_y(x)}: log p(x) up to a constant, [n]."""
        return self.logits(x).logsumexp(-1)

    def log_probabilities(self, x: Tensor) -> Tensor:
        """log p(y | x): [n, c]."""
        return self.logits(x).log_softmax(-1)


def model_config(data: str, method: str, seed: int, scale: dict[str, Any]) -> Config:
    """All that a training depends on. `scale` is a budget's; a dict in it has a value for sets and one else."""
    return {"data": data, "method": method, "seed": seed, **chosen(scale, data)}


def build(config: Config) -> tuple[nn.Module, Objective | None, nn.Module]:
    """The network, its objective (None without training) and the head that its logits come from, as they start."""
    method, width, seed = config["method"], config["width"], config["seed"]
    found = images_of(config["data"])
    normalised = method in ("BarlowTwins", "SwAV")
    clusters = len(found.classes)
    pixels = floats(found.train_images[: config["rows"]])
    scaling = Standardised(pixels.mean(), pixels.std())
    encoder = seeded(
        seed,
        lambda: WithHead(
            nn.Sequential(scaling, _backbone(config["network"], width).bind(shape=found.shape)),
            MLP.of([width, 2 * width, width], batch_norm=normalised),
        ),
    )
    encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if method == "BarlowTwins":
        return encoder, BarlowTwins(), Standardised(torch.zeros(width), torch.ones(width))
    objective: ClusteringObjective = seeded(seed + 1, lambda: _clustering(config, clusters, found.shape))
    return encoder, None if method == UNTRAINED else objective, objective.head


def _backbone(network: str, width: int) -> Encoder:
    """GEDI's residual network, or one of two convolutions of stride 2 that takes a fifth of the time."""
    if network == RESIDUAL:
        return ResNet8(width)
    return ConvEncoder((16, 32), width, hidden=128, slope=0.2)


def _clustering(config: Config, clusters: int, shape: tuple[int, ...]) -> ClusteringObjective:
    width, method = config["width"], config["method"]
    if method == "SwAV":
        return SwAV(clusters).bind(dim=width)
    weights: dict[str, Any] = gedi_weights(
        VARIANTS.get(method, "no gen"), invariance=config["invariance"], balance=config["balance"]
    )
    loss = GEDI(
        clusters,
        **weights,
        magnitude=config["magnitude"] if weights["generative"] else 0.0,
        pair=config["pair"] if method != "JEM" else "original",  # which has no clusters to ask for
        density_of="data",
        chains=config["chains"],
        reinitialise=config["reinitialise"],
        start=UniformStart(torch.full(shape, WALLS.low), torch.full(shape, WALLS.high)),
        sampler=sampler_of(config),
    )
    return loss.bind(dim=width)


def sampler_of(config: Config) -> SGLD:
    """The dynamics of a configuration, between 0 and 1."""
    return SGLD(config["langevin"], config["step_size"], noise=config["noise"], clip=config["clip"], box=WALLS)


def plan_of(config: Config, rows: int) -> TrainingPlan:
    """Adam; a number of steps, or of epochs."""
    steps = config["steps"] if "steps" in config else config["epochs"] * (rows // config["batch"])
    return TrainingPlan(
        steps=steps,
        batch_size=config["batch"],
        lr=config["rate"],
        warmup=min(config["warmup"], steps // 10),
        anneal=config["anneal"],
        log_every=max(1, steps // 20),
    )


def trained(config: Config, kept: bytes | None = None) -> TrainedModel:
    """The model of a configuration: as it was kept, or else trained."""
    encoder, objective, head = build(config)
    loss = None
    if kept is not None:
        loss = unpack({"encoder": encoder, "head": head}, kept)["loss"]
    elif objective is not None:
        loss = train(config, encoder, objective, head)
    return TrainedModel(encoder.eval(), head.eval(), sampler_of(config), loss)


def train(config: Config, encoder: nn.Module, objective: Objective, head: nn.Module) -> float:
    """Train in place on the first rows of the set; returns the last loss."""
    x = floats(images_of(config["data"]).train_images[: config["rows"]])
    changes = {} if config["crop"] is None else {"crop_scale": config["crop"]}
    pairing = NoisyImages(PRESETS[config["data"]], **changes)
    loss = last_loss(encoder, objective, pairing, x, plan_of(config, len(x)), seed=config["seed"])
    if isinstance(head, Standardised):
        z = encode(nn.Sequential(encoder), x, batch_size=AT_ONCE)  # with its projection
        head.mean, head.deviation = z.mean(0), z.std(0).clamp_min(1e-6)
    return loss
