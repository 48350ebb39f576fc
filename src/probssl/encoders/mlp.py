"""Multilayer perceptrons, projection heads, and the pair of the two."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from probssl.errors import InputError

GLOBAL_RANDOM_STATE = threading.RLock()
"""Held while torch's random state, which all threads of a process share, is borrowed."""

AT_ONCE, IMAGES_AT_ONCE = 8192, 512
"""Rows, and images, that are encoded together."""

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class MLP(nn.Sequential):
    """W_L σ(… σ(W₁x + b₁) …) + b_L with ReLU between the layers (Siamese-EBM Eq. 38 is `MLP([d, 2d, m])`).

    `MLP([d, m])` is a linear map. A `slope` above 0 makes the ReLU leaky (CL-ICA, AnInfoNCE). With `batch_norm`, every
    hidden layer is normalised by the statistics of its batch while training, with no running averages when
    `track_running_stats` is off.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        bias: bool = True,
        slope: float = 0.0,
        batch_norm: bool = False,
        track_running_stats: bool = True,
    ) -> None:
        if len(sizes) < 2 or any(size < 1 for size in sizes):
            raise InputError(f"an MLP needs at least an input and an output size, all positive, not {list(sizes)}")
        layers: list[nn.Module] = []
        for fan_in, fan_out in itertools.pairwise(sizes[:-1]):
            layers.append(nn.Linear(fan_in, fan_out, bias=bias))
            if batch_norm:
                layers.append(nn.BatchNorm1d(fan_out, track_running_stats=track_running_stats))
            layers.append(nn.LeakyReLU(slope) if slope else nn.ReLU())
        layers.append(nn.Linear(sizes[-2], sizes[-1], bias=bias))
        super().__init__(*layers)
        self.sizes = tuple(int(size) for size in sizes)


class Predictor(nn.Module):
    """h(z) = z + W₂ σ(W₁z + b₁) + b₂ with W₂ = b₂ = 0 at first: a map of embeddings that starts as the identity."""

    def __init__(self, dim: int, hidden: int | None = None) -> None:
        super().__init__()
        self.change = MLP([dim, 2 * dim if hidden is None else hidden, dim])
        last = self.change[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, z: Tensor) -> Tensor:
        return z + self.change(z)


class WithHead(nn.Module):
    """An encoder ψ whose objective sees g(ψ(x)): the head g is trained with it and left out of the representation."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x))


def representation(encoder: nn.Module) -> nn.Module:
    """The part of an encoder whose output is the representation: everything but a projection head."""
    return encoder.backbone if isinstance(encoder, WithHead) else encoder


def seeded(seed: int, build: Callable[[], ModuleT]) -> ModuleT:
    """`build()` with initial weights that depend on `seed` alone; the global random state is left as it was."""
    with GLOBAL_RANDOM_STATE, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return build()


def he_weights(module: ModuleT) -> ModuleT:
    """The module, in place, with normal weights of variance 2/inputs and no biases   (He et al., 2015).

    ReLUs after them keep the scale of what they are given, layer by layer; after torch's own weights, of variance
    1/(3 inputs), it is about a third in every layer, and a deep network begins nearly constant. What a transposed
    convolution of stride s adds up in one place is 1/s² of its kernels.
    """
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)):
            inputs = float(layer.weight[0].numel())
            if isinstance(layer, nn.ConvTranspose2d):
                inputs = layer.weight.numel() / layer.out_channels / math.prod(layer.stride)
            nn.init.normal_(layer.weight, std=math.sqrt(2 / inputs))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return module


def as_floats(x: Tensor) -> Tensor:
    """Observations as a network takes them: bytes, as images are kept, become numbers from 0 to 1."""
    return x.float().mul_(1 / 255) if x.dtype == torch.uint8 else x


@torch.no_grad()
def encode(encoder: nn.Module, x: Tensor, *, batch_size: int | None = None) -> Tensor:
    """Representations of all rows of x, in evaluation mode, batch by batch; the mode is restored afterwards.

    Images, which convolutions make many times as large, go through in smaller batches than rows of a table.
    """
    module = representation(encoder)
    batch_size = (AT_ONCE if x.ndim == 2 else IMAGES_AT_ONCE) if batch_size is None else batch_size
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        return torch.cat([module(as_floats(rows)) for rows in x.split(batch_size)])
    finally:
        for part in training:
            part.training = True
