"""A variational autoencoder of MNIST with ten latents, whose decoder serves studies as a mixing."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.data.mnist import mnist
from probssl.encoders import MLP, seeded
from probssl.worlds import Decoder

DIM, PIXELS = 10, 28 * 28
SLOPE = 0.2
BATCH, RATE = 256, 2e-3


class VAE(nn.Module):
    """q(z | x) = N(μ(x), diag σ(x)²), p(z) = N(0, I), p(x | z) = Π_i Bernoulli(x_i; sigmoid(decoder(z))_i).

    Three fully connected layers each way, leaky ReLU between them  (Kingma and Welling 2013; AnInfoNCE F and H.5).
    The evidence lower bound is

        ELBO(x) = E_{q(z | x)} Σ_i [x_i log p_i(z) + (1 − x_i) log(1 − p_i(z))] − KL(q(z | x) ‖ p(z)),
        KL = Σ_k ½ (μ_k² + σ_k² − 1 − log σ_k²),

    with grey values x_i in [0, 1] as if they were chances and one draw of z by μ + σ ε.
    """

    def __init__(self, hidden: int, dim: int = DIM) -> None:
        super().__init__()
        self.encoder = MLP.of([PIXELS, hidden, hidden, 2 * dim], slope=SLOPE)
        self.decoder = MLP.of([dim, hidden, hidden, PIXELS], slope=SLOPE)

    def terms(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy of the pixels [] and divergence of each latent [dim], in nats, mean over rows x [n, 784]."""
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        logits = self.decoder(mean + noise * (0.5 * log_variance).exp())
        cross_entropy = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean()
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance)
        return cross_entropy, divergence.mean(0)


@dataclass(frozen=True)
class Trained:
    """A decoder as a mixing of the unit sphere, and how good the autoencoder is on test images."""

    mixing: Decoder
    elbo: float
    """Evidence lower bound, in nats a test image."""
    divergences: list[float]
    """KL of each latent, in nats, mean over test images; a latent of none says nothing of the image."""


@functools.cache
def pixels() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """MNIST as grey values in [0, 1] [n, 784] and labels [n]: training images, their labels, test images, theirs."""
    data = mnist()
    train, test = (torch.tensor(part).flatten(1).float() / 255 for part in (data.train, data.test))
    return train, torch.tensor(data.train_labels), test, torch.tensor(data.test_labels)


@functools.cache
def trained(epochs: int, hidden: int, rows: int, seed: int) -> Trained:
    """The autoencoder that a seed decides, trained on the first `rows` images; once a process.

    Adam, with the learning rate falling to zero by a half cosine.
    """
    train, _, test, _ = pixels()
    train = train[:rows]
    model = seeded(seed, lambda: VAE(hidden))
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    steps = epochs * max(1, len(train) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))
    for _ in range(epochs):
        order = torch.randperm(len(train), generator=generator)
        for batch in order.split(BATCH)[: steps // epochs]:
            noise = torch.randn(len(batch), DIM, generator=generator)
            cross_entropy, divergence = model.terms(train[batch], noise)
            optimiser.zero_grad(set_to_none=True)
            (cross_entropy + divergence.sum()).backward()
            optimiser.step()
            schedule.step()
    with torch.no_grad():
        cross_entropy, divergence = model.terms(test, torch.randn(len(test), DIM, generator=generator))
    mixing = Decoder(nn.Sequential(model.decoder, nn.Sigmoid()), scale=math.sqrt(DIM))
    return Trained(mixing, float(-cross_entropy - divergence.sum()), divergence.tolist())
