"""What is chosen where nobody chose: for each capability of an objective, on each kind of data. The only such place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from probssl.parts.facts import Facts
from probssl.parts.recipe import Named

if TYPE_CHECKING:
    from probssl.energies import Energy
    from probssl.objectives import Objective

WORLD_ENERGIES = {"sphere": "cosine", "anisotropic": "cosine", "box": "pnorm", "normal": "euclidean"}
"""The energy that the transitions of a world ask for: −log p(z̃ | z), up to scale."""

PUBLISHED_PAIRINGS = {"svhn": "gedi-svhn"}
DECODED_PAIRINGS = {"fashion-mnist": "simvae-fashion", "celeba": "simvae-celeba"}
"""Augmentations of sets of images that are known by name; the second of losses with a decoder."""

IMAGE_DIM = 64
MOST_DIMS, WIDEST = 128, 512
"""Of a representation of a table, and of a hidden layer: both are as wide as the table asks for, up to these."""

WIDTHS = {"conv": 16, "resnet8": 32, "resnet18": 8}
"""Channels of an image network's first convolution: what two cores train in minutes."""


def objective_name(facts: Facts, energy_chosen: bool) -> str:
    """The loss: InfoNCE, or where half of a world's latents move more than the others, AnInfoNCE."""
    return "aninfonce" if _world(facts)[0] == "anisotropic" and not energy_chosen else "infonce"


def energy(facts: Facts, needs_score: bool) -> Named:
    """What "alike" means: of a world what its transitions ask for, the temperature 1/d being that of κ = d."""
    if facts.kind == "world":
        family, dim = _world(facts)
        name = WORLD_ENERGIES[family]
        return Named(name, {"temperature": 1 / dim} if name == "cosine" else {})
    return Named("euclidean" if facts.kind == "table" or needs_score else "cosine")


def energy_settings(cls: type[Energy], facts: Facts) -> dict[str, Any]:
    """Settings of an energy that was chosen by its name."""
    return {"temperature": 0.2 if facts.kind == "images" else 0.1} if "temperature" in cls.declared() else {}


def objective_settings(cls: type[Objective], facts: Facts, given: dict[str, Any]) -> dict[str, Any]:
    """Settings of an objective that was chosen by its name, for its capabilities, in view of those that were given."""
    images = facts.kind == "images"
    declared = cls.declared()
    found: dict[str, Any] = {}
    if "pair" in declared:  # (x, x̃) suits tables, (x̃₁, x̃₂) is customary for images
        found["pair"] = "augmented" if images else "original"
    if "momentum" in declared:  # of teachers and memories, for trainings of thousands of steps
        found["momentum"] = 0.99
    if "slices" in declared and images:
        found |= {"slices": 4, "expanded": True}
    if cls.samples:
        found |= _density(images, given)
    if cls.decodes:
        gaussian = {"name": "gaussian", "variance": 0.02 if images else 0.1}
        found["likelihood"] = {"name": "columns"} if facts.columns else gaussian
    return {name: value for name, value in found.items() if name in declared}


def _density(images: bool, given: dict[str, Any]) -> dict[str, Any]:
    """A density with chains that start where the data lies: rows are N(0, 1) in every feature, images in the unit box.

    On images a step moves no pixel by more than a tenth (Du & Mordatch, 2019), at a temperature far below 1: chains
    look for modes rather than sample.
    """
    weights = {"generative": 0.1, "invariance": 1.0, "balance": 4.0} | given
    found: dict[str, Any] = {
        **{name: weights[name] for name in ("generative", "invariance", "balance")},
        "magnitude": 0.01 if weights["generative"] else 0.0,
        "density_of": "data",
        "chains": 1000,
        "pair": "augmented" if images and weights["invariance"] + weights["balance"] else "original",
    }
    if images:
        sampler = {"steps": 5, "step_size": 10.0, "noise": 0.005, "clip": 0.01, "box": [0.0, 1.0]}
        return {**found, "start": "uniform", "sampler": {"name": "sgld", **sampler}}
    return {**found, "base_scale": 3.0, "sampler": {"name": "sgld", "steps": 5, "step_size": 0.02}}


def pairing(objective: Objective, facts: Facts) -> Named:
    """How rows are augmented. Noise comes last where a loss needs the score of an augmentation."""
    if facts.kind != "images":
        mixed = Named("columns", {"preservation": 0.5, "noise": 0.1})
        return mixed if facts.columns else Named("mask-and-noise", {"preservation": 0.5, "noise": 0.25})
    if objective.needs.score:
        return Named("siamese-fisher" if facts.coloured else "siamese-digits")
    if objective.decodes:
        usual = "simvae-cifar10" if facts.coloured else "simvae-mnist"
        return Named(DECODED_PAIRINGS.get(facts.name or "", usual))
    usual = "simclr-cifar" if facts.coloured else "gedi-mnist"
    return Named(PUBLISHED_PAIRINGS.get(facts.name or "", usual))


def encoder(objective: Objective, facts: Facts) -> Named:
    """The network. Losses on the score have an MLP on images too, as Siamese-EBM advises."""
    if facts.kind == "images":
        return Named("mlp" if objective.needs.score else "conv")
    return Named("latent" if facts.kind == "world" else "table" if facts.columns else "mlp")


def encoder_settings(name: str, declared: dict[str, Any], energy: Energy, facts: Facts) -> dict[str, Any]:
    """Sizes of a network that was chosen by its name."""
    features = facts.features
    found: dict[str, Any] = {"dim": max(2, min(features // 2, MOST_DIMS))}
    if facts.kind == "images":
        found = {"dim": IMAGE_DIM, "hidden": (512, 512) if name == "mlp" else None}
        found |= dict.fromkeys(("width", "widths"), WIDTHS.get(name))
    elif name == "mlp":
        found["hidden"] = (min(2 * features, WIDEST),)
    if facts.kind == "world":
        found = {"dim": features, "hidden": (10 * features,) * 3, "sphere": energy.of_directions}
    return {key: value for key, value in found.items() if key in declared and value is not None}


def plan(objective: Objective, facts: Facts) -> dict[str, Any]:
    """The optimisation: what one core does in a minute or two."""
    found: dict[str, Any] = {"steps": 2000, "batch_size": 256, "lr": 0.01, "warmup": 100, "clip_norm": 1.0}
    if facts.kind == "images":
        found |= {"steps": 1000, "lr": 0.003}
        if objective.samples or objective.decodes:
            found |= {"batch_size": 128, "lr": 0.001}
        if objective.needs.augmented > 4:  # so many of each image make a batch of hundreds
            found["batch_size"] = 32
    if facts.kind == "world":
        found["steps"] = 4000
        if objective.energy.learns:  # its concentrations start at 1 and have far to go
            found["objective_lr"] = 0.1
    return found


def _world(facts: Facts) -> tuple[str, int]:
    """Family and dimension of a named world; none of other data."""
    if facts.kind != "world" or facts.name is None:
        return "", 0
    from probssl.worlds.named import parse_name

    return parse_name(facts.name, "world:")
