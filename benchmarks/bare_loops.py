"""Bare hand-written PyTorch loops: what a careful person would write for one training, with nothing around it.

Encoder d–2d–m, mask-and-noise augmentations, Adam with warm-up and cosine annealing, data in memory. The losses are
those of Siamese-EBM; `loader` feeds the batches through a `torch.utils.data.DataLoader`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, PRESERVATION, NOISE, RATE, WARMUP, TEMPERATURE = 256, 0.8, 0.1, 0.01, 100, 0.1


def euclidean(a: Tensor, b: Tensor) -> Tensor:
    """−½‖a_i − b_j‖²."""
    return a @ b.T - 0.5 * (a.square().sum(1, keepdim=True) + b.square().sum(1))


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """(cos − 1)/τ."""
    return (F.normalize(a) @ F.normalize(b).T - 1) / TEMPERATURE


class Bias(nn.Module):
    """The bias network of SNL and NCE."""

    def __init__(self, m: int) -> None:
        super().__init__()
        hidden = max(m // 2, 2)
        self.layers = nn.Sequential(
            nn.Linear(m, hidden), nn.BatchNorm1d(hidden, track_running_stats=False), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, z: Tensor) -> Tensor:
        return self.layers(z).squeeze(1)


def kl(logits: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """InfoNCE: x̃ picks its source among the batch."""
    target = torch.arange(BATCH)
    return lambda encoder, bias, x, x_aug: F.cross_entropy(logits(encoder(x_aug), encoder(x)), target)


def nce(encoder: nn.Module, bias: nn.Module, x: Tensor, x_aug: Tensor) -> Tensor:
    """Noise-contrastive estimation with the share of positives 1/n."""
    z_aug = encoder(x_aug)
    n = len(x)
    logits = euclidean(z_aug, encoder(x)) - bias(z_aug)[:, None] - math.log(n - 1)
    own = torch.eye(n, dtype=torch.bool)
    return F.softplus(-logits[own]).mean() / n + (1 - 1 / n) * F.softplus(logits[~own]).mean()


def snl(encoder: nn.Module, bias: nn.Module, x: Tensor, x_aug: Tensor) -> Tensor:
    """Self-normalised likelihood."""
    z_aug = encoder(x_aug)
    log_z = bias(z_aug)
    logits = euclidean(z_aug, encoder(x))
    own = torch.eye(len(x), dtype=torch.bool)
    return (log_z - logits.diagonal()).mean() + (logits - log_z[:, None]).exp()[~own].mean() - 1


def fisher(encoder: nn.Module, bias: nn.Module, x: Tensor, x_aug: Tensor) -> Tensor:
    """Fisher divergence, by double backpropagation."""
    odds = math.log((1 - PRESERVATION) / PRESERVATION) + x * (x - 2 * x_aug) / (2 * NOISE**2)
    score = (x_aug - x) / NOISE**2 * torch.sigmoid(-odds)
    x = x.detach().requires_grad_()
    energy = 0.5 * (encoder(x) - encoder(x_aug)).square().sum()
    (slope,) = torch.autograd.grad(energy, x, create_graph=True)
    return (score + slope).square().sum(1).mean()


def simclr(encoder: nn.Module, bias: nn.Module, x: Tensor, x_aug: Tensor) -> Tensor:
    """NT-Xent over both views."""
    z = F.normalize(torch.cat([encoder(x), encoder(x_aug)]))
    n = len(x)
    logits = (z @ z.T / TEMPERATURE).masked_fill(torch.eye(2 * n, dtype=torch.bool), -torch.inf)
    return F.cross_entropy(logits, torch.arange(2 * n).roll(n))


def spectral(encoder: nn.Module, bias: nn.Module, x: Tensor, x_aug: Tensor) -> Tensor:
    """Spectral contrastive loss with squared radius 10."""
    products = 10 * F.normalize(encoder(x)) @ F.normalize(encoder(x_aug)).T
    n = len(x)
    squares = products.square()
    return -2 * products.diagonal().mean() + (squares.sum() - squares.diagonal().sum()) / (n * (n - 1))


LOSSES: dict[str, Callable[..., Tensor]] = {
    "KL Euclidean": kl(euclidean),
    "KL cosine": kl(cosine),
    "NCE": nce,
    "SNL": snl,
    "Fisher": fisher,
    "SimCLR": simclr,
    "Spectral": spectral,
}


def batches(x: Tensor, steps: int, loader: bool) -> Iterator[Tensor]:
    """Shuffled batches, by index or through a DataLoader."""
    if not loader:
        order, position = torch.randperm(len(x)), 0
        for _ in range(steps):
            if position + BATCH > len(x):
                order, position = torch.randperm(len(x)), 0
            yield x[order[position : position + BATCH]]
            position += BATCH
        return
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), BATCH, shuffle=True, drop_last=True)
    while steps > 0:
        for (rows,) in data:
            yield rows
            steps -= 1
            if steps == 0:
                return


def train(loss: str, x: Tensor, m: int, steps: int, *, loader: bool = False) -> None:
    """One training from scratch."""
    torch.manual_seed(0)
    d = x.shape[1]
    encoder, bias = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, m)), Bias(m)
    parameters = [*encoder.parameters(), *(bias.parameters() if loss in ("NCE", "SNL") else [])]
    optimiser = torch.optim.Adam(parameters, lr=RATE, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: (step + 1) / WARMUP if step < WARMUP else 0.5 * (1 + math.cos(math.pi * step / steps)),
    )
    for rows in batches(x, steps, loader):
        mask = torch.empty_like(rows).bernoulli_(PRESERVATION)
        augmented = mask * rows + NOISE * torch.randn_like(rows)
        value = LOSSES[loss](encoder, bias, rows, augmented)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        schedule.step()
        value.item()
