"""What a trial on images of a VAE is: the world, the encoder of its pixels, how it is trained and what is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from probssl.encoders import MLP, Centring, OnSphere, encode, seeded
from probssl.energies import Anisotropic, Cosine
from probssl.metrics import concentration_error, mcc
from probssl.metrics.probes import knn_probe
from probssl.objectives import InfoNCE
from probssl.runs.pictures import as_bytes
from probssl.studies import mnist_decoder, recovery
from probssl.studies.base import Config, Result
from probssl.studies.mnist_decoder import DIM
from probssl.studies.pictures import as_text
from probssl.worlds import FisherBingham, Sphere, Uniform, World

MATCHED = "InfoNCE, τ matched"
LOSSES = ("AnInfoNCE", "InfoNCE", MATCHED)
GROUPS = {"style": range(DIM // 2), "content": range(DIM // 2, DIM)}
"""The half of the latents with the smaller concentrations, and the other."""

COMPONENTS, HIDDEN, SLOPE = 64, (256, 256, 256), 0.2
BATCH, RATE, CONCENTRATION_RATE = 512, 0.01, 0.3
SAMPLE = 5_000
"""Observations that the principal components are those of."""

SPHERE = Sphere(DIM)

SHOWN, SHOWN_CONCENTRATIONS = 25, (5.0, 50.0)
"""Digits of each panel of the figure, and the concentrations of its conditionals."""


class Components(nn.Module):
    """The leading principal components of a sample, each with variance 1: [n, d] → [n, count]. It is not trained.

    Whitening of all pixels would blow up those that hardly ever change.
    """

    mean: Tensor
    weight: Tensor

    def __init__(self, sample: Tensor, count: int) -> None:
        super().__init__()
        x = sample.double()
        values, vectors = torch.linalg.eigh(torch.cov(x.T))
        self.register_buffer("mean", x.mean(0).to(sample.dtype))
        self.register_buffer("weight", (vectors[:, -count:] * values[-count:].rsqrt()).to(sample.dtype))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) @ self.weight


def world(config: Config) -> World:
    """Latents uniform on the sphere, the exact conditional, and the decoder or the invertible MLP of the seed."""
    vae, seed = config["vae"], config["seed"]
    mixing = recovery.mixing(DIM, seed) if vae is None else mnist_decoder.trained(**vae).mixing
    return World(Uniform(SPHERE), FisherBingham(SPHERE, torch.tensor(config["concentrations"])), mixing)


def encoder_of(made: World, seed: int) -> nn.Module:
    """Principal components, a leaky MLP, centring, the sphere: [n, pixels] → [n, 10]."""
    sample, _ = made.observe(SAMPLE, torch.Generator().manual_seed(20_000 + seed))
    count = min(COMPONENTS, sample.shape[1])
    return seeded(
        seed,
        lambda: nn.Sequential(
            Components(sample, count), MLP.of([count, *HIDDEN, DIM], slope=SLOPE), Centring(DIM), OnSphere()
        ),
    )


def first_concentrations(concentrations: Sequence[float]) -> Tensor:
    """Where the learnt ones begin: from the smallest to the largest, evenly in their logarithm.

    From one value for all, a code settles without the latents that vary much; the others then tell positives from the
    rest of the batch, and nothing brings those back.
    """
    return torch.logspace(math.log10(min(concentrations)), math.log10(max(concentrations)), DIM)


def objective_of(config: Config) -> InfoNCE:
    """The loss of a trial. Both contrast an original with its relative and the other originals."""
    concentrations = config["concentrations"]
    if config["loss"] == "AnInfoNCE":
        energy = Anisotropic(first_concentrations(concentrations), normalise=True)
        return InfoNCE(energy, candidates="originals").bind(dim=DIM)
    middle = math.sqrt(min(concentrations) * max(concentrations))  # the best of one concentration for all latents
    return InfoNCE(Cosine(1 / middle if config["loss"] == MATCHED else 1.0), candidates="originals", anchor="original")


def trial(config: Config) -> Result:
    """Train an encoder and say what of the latents, of their concentrations and of real digits it knows."""
    seed, made = config["seed"], world(config)
    encoder, objective = encoder_of(made, seed), objective_of(config)
    plan = recovery.plan(config["steps"], BATCH, RATE, objective_lr=CONCENTRATION_RATE)
    result = recovery.recover(made, encoder, objective, plan, seed=seed, groups=GROUPS)
    x, z = made.observe(recovery.TEST_ROWS, torch.Generator().manual_seed(30_000 + seed))
    result["mcc"] = mcc(encode(encoder, x).numpy(), z.numpy()).value
    if "concentrations" in result:
        result["concentration error"] = concentration_error(result["concentrations"], config["concentrations"]).maximum
    if "neighbours" in config:
        result["knn"] = knn_accuracy(encoder, config["neighbours"])
    return result


def decoder_trial(config: Config) -> Result:
    """Of the autoencoder itself: its bound, whether its latents are alive, k-NN on pixels, and what it draws."""
    seed, found = config["seed"], mnist_decoder.trained(**config["vae"])
    generator = torch.Generator().manual_seed(seed)
    z = SPHERE.uniform(SHOWN, generator)
    anchors = z[:1].expand(SHOWN, DIM)
    panels = [z, *(FisherBingham(SPHERE, value).sample(anchors, generator) for value in SHOWN_CONCENTRATIONS)]
    return {
        "elbo": found.elbo,
        "divergences": found.divergences,
        "knn": knn_accuracy(nn.Identity(), config["neighbours"]),
        "raw r2": recovery.raw_score(World(Uniform(SPHERE), FisherBingham(SPHERE, 5.0), found.mixing), seed),
        "digits": [as_text(as_bytes(found.mixing(panel))) for panel in panels],
    }


def knn_accuracy(encoder: nn.Module, rows: int) -> float:
    """Share of test images whose label is that of most of their five nearest neighbours among that many others."""
    train, train_labels, test, test_labels = mnist_decoder.pixels()
    fitted_on = encode(encoder, train[:rows]).numpy(), train_labels[:rows].numpy()
    return knn_probe(encode(encoder, test).numpy(), test_labels.numpy(), fitted_on=fitted_on).mean
