"""What a recipe makes: encoder, energy, pairing, objective. torch is imported here, and so only when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from probssl import energies, objectives
from probssl.encoders import (
    MLP,
    ConvEncoder,
    Encoder,
    LatentEncoder,
    ResNet8,
    ResNet18,
    WithHead,
    seeded,
)
from probssl.energies import Energy
from probssl.objectives import GEDI, BernoulliLikelihood, GaussianLikelihood, Likelihood, Objective
from probssl.objectives.base import Pair
from probssl.pairings import ImageAugmentation, MaskAndNoise, Pairing
from probssl.parts.part import Context
from probssl.recipe.names import (
    BASE_SCALE,
    CHAINS,
    CHAINS_RENEWED,
    CLUSTERS,
    GENERATIVE_OBJECTIVES,
    IMAGE_LANGEVIN_CLIP,
    IMAGE_LANGEVIN_NOISE,
    IMAGE_LANGEVIN_STEP,
    LANGEVIN_STEP,
    MAGNITUDE,
    MOMENTUM_OBJECTIVES,
    WHITENED_ROWS,
)
from probssl.samplers import SGLD

if TYPE_CHECKING:
    from probssl.recipe.recipe import Recipe

HEAD_SEED = 2
"""What is added to the seed of an encoder for its projection head."""

CONV_HIDDEN = 256
"""Units of the layer between the convolutions and the representation."""


def encoder(recipe: Recipe, features: int) -> nn.Module:
    """The encoder with the initial weights that the seed decides, whatever the objective is.

    That of a world whitens what it sees, and ends on the sphere where the energy compares directions alone.
    """
    sized = recipe.for_features(features)
    assert sized.dim is not None
    dim, hidden, world = sized.dim, sized.hidden or (), recipe.build_world()
    if recipe.images is not None:
        return _with_head(sized, seeded(recipe.seed, lambda: _network(sized, dim).bind(shape=sized.shape)))
    if world is None:
        return _with_head(sized, seeded(recipe.seed, lambda: MLP.of([features, *hidden, dim])))
    sample, _ = world.observe(WHITENED_ROWS, torch.Generator().manual_seed(recipe.seed))
    sphere = recipe.energy == "cosine" or recipe.objective == "aninfonce"
    made = LatentEncoder(hidden, dim, sphere=sphere)
    return _with_head(sized, seeded(recipe.seed, lambda: made.bind(shape=(features,), sample=sample)))


def _with_head(sized: Recipe, backbone: nn.Module) -> nn.Module:
    """The encoder with its projection head, if it has one, whose weights the seed decides as well."""
    if sized.head is None:
        return backbone
    widths = [sized.dim or 0, *sized.head]
    return WithHead(backbone, seeded(sized.seed + HEAD_SEED, lambda: MLP.of(widths)))


def _network(sized: Recipe, dim: int) -> Encoder:
    """The network of images [n, channels, height, width]."""
    if sized.network == "mlp":
        return MLP(sized.hidden or (), dim)
    assert sized.width is not None
    if sized.network == "resnet8":
        return ResNet8(sized.width, dim)
    if sized.network == "resnet18":
        return ResNet18(sized.width, dim)
    if sized.network == "resnet18-group":
        return ResNet18(sized.width, dim, normalisation="group")
    return ConvEncoder(sized.width, dim, hidden=CONV_HIDDEN)


def pairing(recipe: Recipe) -> Pairing:
    """The augmentation: of tables, mask features and add noise; of images, what its name says."""
    if recipe.augmentation is not None:
        return ImageAugmentation(recipe.augmentation)
    return MaskAndNoise(recipe.preservation, recipe.noise)


def energy(recipe: Recipe, features: int) -> Energy:
    """The energy between representations; an asymmetric one starts as its symmetric base."""
    dim = _embedded(recipe.for_features(features))
    makers: dict[str, Callable[[], Energy]] = {
        "euclidean": energies.Euclidean,
        "cosine": lambda: energies.Cosine(recipe.temperature),
        "pnorm": lambda: energies.PNorm(recipe.p),
        "dot": lambda: energies.Dot(recipe.temperature),
        "anisotropic": energies.Anisotropic,
    }
    base = makers[recipe.energy]()
    if recipe.asymmetry == "predictor":
        base = energies.Asymmetric(base)
    if recipe.asymmetry == "encoder":
        base = energies.Asymmetric(base, by="encoder")
    return base.bind(dim=dim, encoder=encoder(recipe, features))


def objective(recipe: Recipe, features: int, rows: int | None) -> Objective:
    """The objective, its own parameters initialised from the seed.

    Positives are (x, x̃), as suits tables, and (x̃₁, x̃₂) of images, as is customary there. The rows of the data are
    for objectives that remember each of them; only who looks at the energy alone may leave them out.
    """
    sized = recipe.for_features(features)
    dim, clusters, temperature = _embedded(sized), sized.clusters or CLUSTERS, recipe.temperature
    rows = clusters if rows is None else rows
    pair: Pair = "original" if recipe.images is None else "augmented"

    def made() -> Energy:
        return energy(recipe, features)

    makers: dict[str, Callable[[], Objective]] = {
        "infonce": lambda: objectives.InfoNCE(made(), pair=pair),
        "snl": lambda: objectives.SNL(made(), pair=pair),
        "nce": lambda: objectives.NCE(made(), pair=pair),
        "fisher": lambda: objectives.Fisher(made()),
        "sliced-fisher": lambda: objectives.SlicedFisher(
            made(), slices=recipe.slices, expanded=recipe.images is not None
        ),
        "jensen-shannon": lambda: objectives.JensenShannon(made(), pair=pair),
        "chi-squared": lambda: objectives.ChiSquared(made(), pair=pair),
        "renyi": lambda: objectives.RenyiInfoNCE(made(), order=recipe.order, pair=pair),
        "simclr": lambda: objectives.InfoNCE(made(), candidates="two-view", pair=pair),
        "spectral": lambda: objectives.Spectral(pair=pair),
        "triplet": lambda: objectives.Triplet(made(), margin=recipe.margin, pair=pair),
        "simsiam": lambda: objectives.SimSiam(pair=pair),
        "barlow": lambda: objectives.BarlowTwins(pair=pair),
        "vicreg": lambda: objectives.VICReg(pair=pair),
        "wmse": lambda: objectives.WMSE(pair=pair),
        "corinfomax": lambda: objectives.CorInfoMax(pair=pair),
        "aninfonce": lambda: objectives.InfoNCE(energies.Anisotropic(normalise=True), candidates="originals"),
        "swav": lambda: objectives.SwAV(clusters, temperature=temperature, pair=pair),
        "protocpc": lambda: objectives.ProtoCPC(clusters, temperature=temperature, pair=pair),
        "gedi": lambda: _gedi(sized, recipe.generative, recipe.invariance, recipe.balance),
        "jem": lambda: _gedi(sized, 1.0, 0.0, 0.0),
        "deepcluster": lambda: objectives.DeepClustering(clusters, temperature=temperature),
        "instance": lambda: objectives.InstanceDiscrimination(temperature=temperature),
    }
    makers |= {name: lambda: _generative(sized, pair) for name in GENERATIVE_OBJECTIVES}
    makers |= {name: lambda: _momentum(sized, pair) for name in MOMENTUM_OBJECTIVES}
    context = Context(
        dim=dim,
        shape=sized.shape or (features,),
        rows=rows,
        batch_size=recipe.batch_size,
        encoder=encoder(recipe, features),
    )
    return seeded(recipe.seed + 1, lambda: makers[recipe.objective]().bind(context))


def _embedded(sized: Recipe) -> int:
    """Dimensions of what the loss sees: of the representation, or of what a projection head makes of it."""
    assert sized.dim is not None
    return sized.head[-1] if sized.head else sized.dim


def _generative(sized: Recipe, pair: Pair) -> Objective:
    """A latent-variable model whose decoder is the encoder's mirror image.

    vae and beta-vae model the data as it is; the others model augmentations, cr-vae of tables with the data.
    """
    likelihood: Likelihood = BernoulliLikelihood()
    if sized.likelihood == "gaussian":
        assert sized.likelihood_variance is not None
        likelihood = GaussianLikelihood(sized.likelihood_variance)
    if sized.objective == "cr-vae":
        return objectives.CRVAE(likelihood, consistency=sized.consistency, pair=pair)
    if sized.objective == "simvae":
        return objectives.SimVAE(
            likelihood, related=sized.related, variance=sized.latent_variance, mean_variance=sized.mean_variance
        )
    return objectives.VAE(likelihood, beta=sized.beta if sized.objective == "beta-vae" else 1.0, of="data")


def _momentum(sized: Recipe, pair: Pair) -> Objective:
    """An objective with a teacher that starts as the encoder; moco and mocov2 differ in the encoder's head alone."""
    if sized.objective == "byol":
        return objectives.BYOL(momentum=sized.momentum, pair=pair)
    return objectives.MoCo(queue=sized.queue, temperature=sized.temperature, momentum=sized.momentum, pair=pair)


def _gedi(sized: Recipe, generative: float, invariance: float, balance: float) -> Objective:
    """GEDI with chains that start where the data lies.

    Standardised rows are N(0, 1) in every feature. Images lie in the unit box, which the chains do not leave.
    """
    images = sized.shape is not None
    sampler = SGLD(sized.sgld_steps, LANGEVIN_STEP)
    if images:
        sampler = SGLD(
            sized.sgld_steps,
            IMAGE_LANGEVIN_STEP,
            noise=IMAGE_LANGEVIN_NOISE,
            clip=IMAGE_LANGEVIN_CLIP,
            box=(0.0, 1.0),
        )
    return GEDI(
        sized.clusters or CLUSTERS,
        generative=generative,
        invariance=invariance,
        balance=balance,
        magnitude=MAGNITUDE if generative else 0.0,
        base_scale=None if images else BASE_SCALE,
        pair="augmented" if images and invariance + balance else "original",
        density_of="data",
        chains=CHAINS,
        reinitialise=CHAINS_RENEWED,
        start="uniform" if images else "normal",
        sampler=sampler,
    )
