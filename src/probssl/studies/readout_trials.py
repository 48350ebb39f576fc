"""A trial of `anisotropic/readout`: an encoder of images, the loss that it is trained by, and what is read from it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from probssl.encoders import MLP, ConvEncoder, OnSphere, ProjectionHead, ResNet18, WithHead, encode, seeded
from probssl.energies import Anisotropic, Cosine, Energy
from probssl.metrics import linear_r2
from probssl.metrics.probes import knn_probe, linear_probe
from probssl.metrics.retention import augmentation_readout
from probssl.objectives import InfoNCE
from probssl.pairings import ImageAugmentation, ImageStrengths, each_alone, image_preset
from probssl.studies import mnist_decoder
from probssl.studies.base import Config, Result
from probssl.studies.fitting import last_loss
from probssl.studies.image_sets import images_of
from probssl.training import TrainingPlan
from probssl.worlds import Sphere

SETS = {"mnist": "MNIST", "cifar10": "CIFAR-10", "imagenet": "ImageNet"}
"""Sets of images and their names in tables."""

FREE, TUNED = "AnInfoNCE without normalisation", "InfoNCE with a learnt temperature"
METHODS = ("InfoNCE", "AnInfoNCE", FREE, TUNED)
"""Three of the paper, and one that learns what AnInfoNCE does beside its anisotropy, how strong the energy is."""
UNTRAINED = "untrained encoder"

COLOURS = {
    "grey": "grayscale",
    "brightness": "brightness",
    "contrast": "contrast",
    "hue": "hue",
    "saturation": "saturation",
}
READ = {"mnist": {"crop": "crop", "blur": "Gaussian blur"}, "cifar10": COLOURS, "imagenet": COLOURS}
"""Augmentations that are looked for, and the names they are published by."""

SIMCLR, PLAIN = "SimCLR", "crops and flips"
"""All augmentations of the set; no blur (appendix H.1)."""

CLASSES, AVERAGE, LINEAR, NEIGHBOURS = "class accuracy", "readout average", "linear R²", "k-NN accuracy"
ITERATIONS = 200
"""Of the probe of classes, as of those of augmentations."""

FIRST = 512
"""Training images whose embeddings say how strong an energy without the sphere begins."""

LATENT_ROWS = 4_000
"""Images of the decoder that a linear map is fitted on, and as many that it is judged on."""

SLOPE = 0.2


def strengths_of(config: Config) -> ImageStrengths:
    """SimCLR's, for 32 × 32 pixels; digits, which have no colours, are blurred, unless it is crops and flips alone."""
    chosen = image_preset("simclr-cifar", crop_scale=config["crop_scale"])
    if config["data"] != "mnist":
        return chosen
    blur = 0.0 if config["augmentations"] == PLAIN else 0.5
    return image_preset("simclr-cifar", crop_scale=config["crop_scale"], jitter=0.0, grey=0.0, blur=blur)


def build(config: Config) -> nn.Module:
    """The encoder as it starts: with a projection head where the configuration has one, else without."""
    shape, dim, head = images_of(config["data"]).shape, config["dim"], config["head"]

    def made() -> nn.Module:
        if config["network"] == "resnet18":
            network: nn.Module = ResNet18(config["width"]).bind(shape=shape)
            features = 8 * config["width"]
        elif config["network"] == "perceptron":
            hidden, features = config["width"], dim
            network = MLP((hidden, hidden, hidden), dim, slope=SLOPE).bind(shape=shape)
        else:
            widths, features = [config["width"] * 2**layer for layer in range(3)], config["features"] if head else dim
            network = ConvEncoder(widths, features).bind(shape=shape)
        return WithHead(network, ProjectionHead(2, dim=dim).bind(shape=(features,))) if head else network

    return seeded(config["seed"], made)


def energy_of(config: Config, encoder: nn.Module, x: Tensor) -> Energy:
    """The energy of a method. All begin alike: Λ̂ = I/τ on the sphere is the cosine energy of InfoNCE.

    Without the sphere it begins at I/(τ E‖z‖²), the mean over the untrained embeddings of images x, so that it does
    not matter how long those are.
    """
    start = 1 / config["temperature"]
    if config["method"] == "InfoNCE":
        return Cosine(config["temperature"])
    if config["method"] == "AnInfoNCE":
        return Anisotropic(start, normalise=True).bind(dim=config["dim"])
    if config["method"] == TUNED:
        return Anisotropic(start, normalise=True, isotropic=True).bind(dim=config["dim"])
    lengths = encode(nn.Sequential(encoder), x).square().sum(1)
    return Anisotropic(start / float(lengths.mean())).bind(dim=config["dim"])


def train(config: Config, encoder: nn.Module) -> tuple[float, list[float] | None]:
    """Train in place on the first rows of the set; returns the last loss and the learnt concentrations."""
    x = torch.from_numpy(images_of(config["data"]).train_images[: config["rows"]])
    energy, steps = energy_of(config, encoder, x[:FIRST]), config["steps"]
    objective = InfoNCE(energy, candidates="two-view", pair="augmented")
    plan = TrainingPlan(
        steps=steps,
        batch_size=config["batch"],
        lr=config["rate"],
        objective_lr=config["concentration_rate"],
        warmup=min(100, steps // 10),
        log_every=max(1, steps // 10),
    )
    loss = last_loss(encoder, objective, ImageAugmentation(strengths_of(config)), x, plan, seed=config["seed"])
    learnt = energy.concentration.detach().sort().values.tolist() if isinstance(energy, Anisotropic) else None
    return loss, learnt


def features_of(config: Config, encoder: nn.Module) -> dict[str, nn.Module]:
    """What is probed, by name: the embedding as the loss sees it, and the backbone's features where there is a head."""
    on_sphere = config["method"] in ("InfoNCE", "AnInfoNCE", TUNED)
    embedding = nn.Sequential(encoder, OnSphere()) if on_sphere else nn.Sequential(encoder)
    if not isinstance(encoder, WithHead):
        return {"embedding": embedding}
    return {"backbone": encoder.backbone, "projection": embedding}


def trial(config: Config) -> Result:
    """Train an encoder, unless it is to stay untrained, and read classes, augmentations and latents from it."""
    encoder = build(config)
    loss, learnt = (None, None) if config["method"] == UNTRAINED else train(config, encoder)
    found = images_of(config["data"])
    assert found.train_labels is not None
    assert found.test_labels is not None
    sides = (
        (torch.from_numpy(found.train_images[: config["fitted"]]), found.train_labels[: config["fitted"]]),
        (torch.from_numpy(found.test_images[: config["test"]]), found.test_labels[: config["test"]]),
    )
    read: dict[str, Any] = {}
    for name, module in features_of(config, encoder.eval()).items():
        fitted_on, (z, truth) = (((encode(module, x).double().numpy()), labels) for x, labels in sides)
        if config["augmentations"] == PLAIN:
            read[name] = {NEIGHBOURS: knn_probe(z, truth, fitted_on=fitted_on).mean}
            continue
        classes = linear_probe(z, truth, fitted_on=fitted_on, solver="whitened", iterations=ITERATIONS)
        read[name] = {CLASSES: classes.mean, **augmentations_read(config, module, sides[0][0], sides[1][0])}
        if config["vae"] is not None:
            read[name][LINEAR] = latents_read(config, module)
            read[name][NEIGHBOURS] = knn_probe(z, truth, fitted_on=fitted_on).mean
    return {"read": read, "loss": loss, "concentrations": learnt}


def augmentations_read(config: Config, module: nn.Module, fitted_on: Tensor, images: Tensor) -> dict[str, float]:
    """The accuracy with which a linear probe notices each augmentation of the table, and their mean."""
    names, alone = READ[config["data"]], each_alone(strengths_of(config))
    chosen = {name: alone[name] for name in names}
    found = augmentation_readout(module, images, chosen, fitted_on=fitted_on, seed=config["seed"])
    return {**{f"readout {names[name]}": probe.mean for name, probe in found.probes.items()}, AVERAGE: found.mean}


def latents_read(config: Config, module: nn.Module) -> float:
    """R² of the latents of a VAE, uniform on the sphere, by an affine map of the codes of the digits that it draws."""
    mixing = mnist_decoder.trained(**config["vae"]).mixing
    generator = torch.Generator().manual_seed(30_000 + config["seed"])
    latents = Sphere(mnist_decoder.DIM).uniform(2 * LATENT_ROWS, generator)
    with torch.no_grad():
        drawn = mixing(latents).view(-1, *images_of(config["data"]).shape)
    codes, z = encode(module, drawn).double().numpy(), latents.double().numpy()
    rest = codes[LATENT_ROWS:], z[LATENT_ROWS:]
    return float(linear_r2(codes[:LATENT_ROWS], z[:LATENT_ROWS], test=rest).mean)
