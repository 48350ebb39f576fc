"""What a recipe may choose from, by the names the command line knows, and the settings that nobody chooses."""

from __future__ import annotations

from typing import Any

OBJECTIVES = {
    "infonce": "InfoNCE, the KL loss: sample the normaliser",
    "snl": "self-normalised likelihood: learn the normaliser",
    "nce": "noise-contrastive estimation: classify against it",
    "fisher": "Fisher divergence: differentiate it away, no negatives",
    "sliced-fisher": "the same along random directions: no second derivative",
    "jensen-shannon": "logistic loss on pairs with one bias, as SigLIP",
    "chi-squared": "least squares on the density ratio: the Brier score",
    "renyi": "Rényi divergence of an order of choice; at 1 it is InfoNCE",
    "simclr": "NT-Xent over both views",
    "spectral": "spectral contrastive loss",
    "triplet": "triplet loss with a margin",
    "simsiam": "SimSiam: predictor and stop-gradient, no negatives",
}
"""Objectives by the name the command line knows them by: those that `compare` and the studies set side by side."""

NEGATIVE_FREE = {
    "barlow": "Barlow Twins: correlations between views near the identity, no negatives",
    "vicreg": "VICReg: close pairs, standard deviations above 1, no covariances",
    "wmse": "W-MSE: cosine of whitened pairs",
    "corinfomax": "CorInfoMax: close pairs, a large determinant of the covariance",
}
"""Objectives on moments of the batch, which `compare` sets beside the others when asked to."""

LATENT_OBJECTIVES = {"aninfonce": "AnInfoNCE: InfoNCE on the unit sphere, with a learnt concentration a dimension"}
"""Objectives made for worlds with known latents; tables may be trained with them too."""

CLUSTERING_OBJECTIVES = {
    "swav": "SwAV: predict the balanced cluster code of the other view",
    "protocpc": "ProtoCPC: contrast clusters in place of observations",
    "deepcluster": "DeepCluster: predict what k-means makes of the representation",
    "instance": "instance discrimination: every row a class of its own",
    "gedi": "GEDI: clusters and a density of the rows in one network",
    "jem": "JEM: the density alone",
}
"""Objectives that predict a cluster, or which row it is."""

GENERATIVE_OBJECTIVES = {
    "vae": "VAE: latents that the rows can be made from again",
    "beta-vae": "β-VAE: the same with fewer, more independent latents",
    "cr-vae": "CR-VAE: the same with latents that an augmentation moves little",
    "simvae": "SimVAE: latents of related rows lie around a mean of their own",
}
"""Latent-variable models: a decoder makes the rows from the representation."""

MOMENTUM_OBJECTIVES = {
    "moco": "MoCo: InfoNCE against many remembered keys of a slow teacher",
    "mocov2": "MoCo v2: the same behind a projection head",
    "byol": "BYOL: predict a slow teacher, no negatives",
}
"""Objectives with a teacher that follows the encoder slowly."""

WITH_CLUSTERS = ("swav", "protocpc", "deepcluster", "gedi", "jem")
"""Objectives that have a number of clusters."""

WITH_CHAINS = ("gedi", "jem")
"""Objectives that draw samples by Langevin dynamics as they train."""

WITH_MEMORY = ("deepcluster", "instance")
"""Objectives that remember every row of the data they are trained on."""

CLUSTERS = 10
"""How many clusters unless asked for: labels, which would tell, are never seen."""

EVERY_OBJECTIVE = {**OBJECTIVES, **NEGATIVE_FREE, **LATENT_OBJECTIVES, **CLUSTERING_OBJECTIVES}
EVERY_OBJECTIVE |= {**GENERATIVE_OBJECTIVES, **MOMENTUM_OBJECTIVES}

ENERGIES = {
    "euclidean": "half the squared distance",
    "cosine": "(1 − cos) / temperature",
    "pnorm": "sum of |difference|^p",
    "dot": "−⟨a, b⟩ / temperature",
    "anisotropic": "half the squared distance, each dimension with its own learnt weight",
}

FIXED_ENERGY = {"spectral": "cosine", "simsiam": "cosine"}
"""Those of `OBJECTIVES` whose published form leaves no choice of energy."""

ENERGY_OF = {
    **FIXED_ENERGY,
    "barlow": "cosine",
    "vicreg": "euclidean",
    "wmse": "cosine",
    "corinfomax": "cosine",
    "aninfonce": "anisotropic",
    **dict.fromkeys(CLUSTERING_OBJECTIVES, "cosine"),
    "gedi": "euclidean",
    "jem": "euclidean",
    **dict.fromkeys(GENERATIVE_OBJECTIVES, "euclidean"),
    **dict.fromkeys(MOMENTUM_OBJECTIVES, "cosine"),
}
"""The same of every objective."""

ASYMMETRIES = {
    "none": "a Siamese network: both sides embedded alike",
    "predictor": "augmentations pass through a predictor after the encoder",
    "encoder": "augmentations have an encoder of their own",
}

SYMMETRIC_ONLY = (
    *("simclr", "spectral", "simsiam", "aninfonce"),
    *(*NEGATIVE_FREE, *CLUSTERING_OBJECTIVES, *GENERATIVE_OBJECTIVES, *MOMENTUM_OBJECTIVES),
)
"""Objectives that compare views within one side, bring their own asymmetry, or make their own energy."""

NEEDS_SCORE = ("fisher", "sliced-fisher")
"""Objectives on ∇ₓ log p(x̃ | x)."""

LIKELIHOODS = {
    "gaussian": "every number with normal errors of one variance",
    "bernoulli": "every number a chance from 0 to 1, for images",
}
"""What a decoder says of the rows."""

LIKELIHOOD_VARIANCE, IMAGE_LIKELIHOOD_VARIANCE = 0.1, 0.02
"""Variance of the normal errors of a decoder: of standardised features, and of pixels from 0 to 1 (SimVAE)."""

# Density models of tables

CHAINS, CHAINS_RENEWED, LANGEVIN_STEP, MAGNITUDE, BASE_SCALE = 1000, 0.05, 0.02, 0.01, 3.0
"""Of gedi and jem: chains kept, share begun anew, step size; weight that keeps energies from drifting off; and the
scale of the normal density that theirs is relative to, in standard deviations of a feature."""

# Worlds

OF_AUGMENTATIONS = ("preservation", "noise")
"""Choices about augmentations of tables, which worlds and images have none of."""

WORLD_ENERGIES = {"sphere": "cosine", "anisotropic": "cosine", "box": "pnorm", "normal": "euclidean"}
"""The energy that the transitions of a world ask for: −log p(z̃ | z), up to scale."""

WORLD_STEPS = 4000
WORLD_WIDTH, WORLD_LAYERS = 10, 3
"""Defaults for worlds: training steps; hidden units a feature and hidden layers, for mixings of three layers."""

CONCENTRATION_RATE = 0.1
"""Learning rate of AnInfoNCE's concentrations on a world: they start at 1 and have far to go."""

WHITENED_ROWS = 10_000
"""Observations of a world that the whitening of its encoder is made of."""

# Images

NETWORKS = {
    "conv": "convolutions that halve the image, then a hidden layer",
    "resnet8": "GEDI's residual network",
    "resnet18": "ResNet-18 for small images, with batch normalisation",
    "resnet18-group": "the same with group normalisation, in which images do not meet",
    "mlp": "a multilayer perceptron, which does not know what is beside what",
}

COUPLED_NETWORKS = ("resnet18",)
"""Those in which the images of a batch meet while training, which objectives of `NEEDS_SCORE` refuse."""

NETWORK_WIDTHS = {"conv": 16, "resnet8": 32, "resnet18": 8, "resnet18-group": 8}
"""Channels of the first convolution unless asked for: what two cores train in minutes."""

NETWORK_HIDDEN = (512, 512)
"""Hidden layers of the MLP of images."""

AUGMENTATIONS = (
    "simclr-cifar",
    "siamese-cifar",
    "siamese-fisher",
    "siamese-digits",
    "gedi-svhn",
    "gedi-cifar10",
    "gedi-cifar100",
    "gedi-mnist",
    "simvae-mnist",
    "simvae-fashion",
    "simvae-cifar10",
    "simvae-celeba",
)
"""Augmentations of images by name, as `pairings.IMAGE_PRESETS` has them, which this module does not import."""

SCORED_AUGMENTATIONS = ("siamese-fisher", "siamese-digits", "gedi-svhn", "gedi-cifar10", "gedi-cifar100", "gedi-mnist")
"""Those that end in noise, and so have a score, which objectives of `NEEDS_SCORE` ask for."""

OF_IMAGES = ("network", "width", "augmentation")
"""Choices that tables and worlds have none of."""

IMAGE_DIM = 64
"""Dimensions of the representation of an image unless asked for."""

IMAGE_DEFAULTS: dict[str, Any] = {"energy": "cosine", "steps": 1000, "lr": 0.003}
"""What suits images: one core trains it on digits in two minutes."""

IMAGE_TEMPERATURE = 0.2
"""Of the cosine energy between images; predictions of clusters keep the usual one."""

IMAGE_DENSITY_DEFAULTS: dict[str, Any] = {"batch_size": 128, "lr": 0.001}
"""The same of gedi and jem."""

IMAGE_FISHER_DEFAULTS: dict[str, Any] = {"energy": "euclidean", "network": "mlp", "slices": 4}
"""The same of objectives on the score: the energy and the kind of network that Siamese-EBM advises, whose ResNet's
slopes did not come to the size of the score; slices for as many pixels."""

IMAGE_GENERATIVE_DEFAULTS: dict[str, Any] = {"batch_size": 128, "lr": 0.001}
"""The same of latent-variable models."""

SIMVAE_IMAGES = 32
"""Images a step of simvae, ten augmentations of each."""

GENERATIVE_AUGMENTATIONS = {"mnist": "simvae-mnist", "fashion-mnist": "simvae-fashion"}
"""Augmentations of images for latent-variable models, by name of the set; of others by their colours."""

IMAGE_LANGEVIN_STEP, IMAGE_LANGEVIN_NOISE, IMAGE_LANGEVIN_CLIP = 10.0, 0.005, 0.01
"""Step size, noise and largest slope of Langevin dynamics on images   (Du & Mordatch, 2019): a step moves no pixel by
more than a tenth. The temperature is far below 1: chains look for modes rather than sample."""
