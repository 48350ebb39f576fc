"""Multilayer perceptrons, projection heads, and the pair of the two."""

from __future__ import annotations

import functools
import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from probssl.encoders.expansion import expansion
from probssl.errors import InputError
from probssl.parts.part import Context, Part

GLOBAL_RANDOM_STATE = threading.RLock()
"""Held while torch's random state, which all threads of a process share, is borrowed."""

LEAST_PCA_ROWS, PCA_NUMBERS = 1_000, 2**24
"""Rows that principal components are found from: as many as hold so many numbers, but not fewer than these."""

AT_ONCE, IMAGES_AT_ONCE = 8192, 512
"""Rows, and images, that are encoded together."""

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class Encoder(Part, nn.Module):
    """A network of ours that is chosen by name or as an object; any other `nn.Module` serves as well.

    Settings:
        dim: dimensions of the representation; those that fit the data unless given.
    """

    takes: ClassVar[int | None] = None
    """How many dimensions an observation has: 1 in a table, 3 as an image; None if it may have any number."""


class Branches(nn.ModuleList):
    """The sum of what several networks, `modules`, make of the same input."""

    def forward(self, x: Tensor) -> Tensor:
        return functools.reduce(torch.add, [branch(x) for branch in self])


class MLP(Encoder, nn.Sequential):
    """W_L σ(… σ(W₁x + b₁) …) + b_L with ReLU between the layers (Siamese-EBM Eq. 38 is `MLP((2 * d,))`).

    Observations of several dimensions (images) are flattened first, mixed rows of a table become `Indicators`.

    Settings:
        hidden: widths of the hidden layers; none for a linear map, one of twice the features unless given.
        bias: whether layers add a bias.
        slope: of the ReLU below 0, above 0 in CL-ICA and AnInfoNCE.
        batch_norm: whether hidden layers are normalised by the statistics of their batch while training.
        track_running_stats: whether averages of these are kept for evaluation; else it uses its own batch too.
        he: whether weights start with variance 2/inputs and no bias, which deep networks need (see `he_weights`).
        linear: whether a linear map of the input is added to the output, beside the hidden layers; with "pca" it begins
            at the principal components of the data and the hidden layers at 0, so that training starts from PCA.
    """

    def __init__(
        self,
        hidden: Sequence[int] | None = None,
        dim: int | None = None,
        *,
        bias: bool = True,
        slope: float = 0.0,
        batch_norm: bool = False,
        track_running_stats: bool = True,
        he: bool = False,
        linear: bool | Literal["pca"] = False,
    ) -> None:
        super().__init__()
        if min([*(hidden or ()), 1 if dim is None else dim]) < 1:
            raise InputError(f"the widths of an MLP must be positive, not {list(hidden or ())} and {dim}")
        if not (track_running_stats or batch_norm):
            raise InputError("track_running_stats is of batch normalisation: leave it out, or set batch_norm=True")
        if linear is True and hidden is not None and not len(hidden):
            raise InputError("an MLP without hidden layers is linear: leave linear out, or give hidden widths")
        self.hidden = None if hidden is None else tuple(int(width) for width in hidden)
        self.dim, self.bias, self.slope, self.he, self.linear = dim, bias, slope, he, linear
        self.batch_norm, self.track_running_stats = batch_norm, track_running_stats

    @classmethod
    def of(cls, sizes: Sequence[int], **settings: Any) -> MLP:
        """The bound network of layers of these sizes, input and output included: `MLP.of([d, 2 * d, m])`."""
        if len(sizes) < 2 or min(sizes) < 1:
            raise InputError(f"an MLP needs at least an input and an output size, all positive, not {list(sizes)}")
        return cls(sizes[1:-1], sizes[-1], **settings).bind(shape=(sizes[0],))

    def build(self, context: Context) -> None:
        shape = context.need("shape")
        first = expansion(context.layout)
        features = context.layout.width if context.layout and first else math.prod(shape)
        hidden = (2 * features,) if self.hidden is None else self.hidden
        self.dim = context.need("dim") if self.dim is None else self.dim
        self.sizes = (features, *hidden, int(self.dim))
        if len(shape) > 1:
            self.append(nn.Flatten())
        self.extend(first)
        layers = nn.Sequential() if self.linear else self
        for fan_in, fan_out in itertools.pairwise(self.sizes[:-1]):
            layers.append(nn.Linear(fan_in, fan_out, bias=self.bias))
            if self.batch_norm:
                layers.append(nn.BatchNorm1d(fan_out, track_running_stats=self.track_running_stats))
            layers.append(nn.LeakyReLU(self.slope) if self.slope else nn.ReLU())
        layers.append(nn.Linear(self.sizes[-2], self.sizes[-1], bias=self.bias))
        if self.linear:
            path = nn.Linear(features, self.sizes[-1], bias=False)
            before = nn.Sequential(*self)
            self.append(Branches([path, layers]))
        if self.he:
            he_weights(self)
        if self.linear == "pca" and context.sample is not None:
            some = context.sample[: max(LEAST_PCA_ROWS, PCA_NUMBERS // features)]
            _begin_at_pca(path, layers[-1], before(some))


@torch.no_grad()
def _begin_at_pca(path: nn.Linear, last: nn.Module, x: Tensor) -> None:
    """Make path(x) + last(…) the principal components of x, as a whole of variance 1 in the mean.

    Rows of `path` beyond the rank of x keep their weights: all dimensions take part in training.
    """
    x = x.to(path.weight)
    mean = x.mean(0)
    _, sizes, axes = torch.pca_lowrank(x, min(path.out_features + 8, *x.shape), niter=4)
    rank = int((sizes[: path.out_features] > 1e-5 * sizes[0]).sum())
    path.weight[:rank] = axes[:, :rank].T * math.sqrt(len(x) * rank) / sizes[:rank].norm().clamp_min(1e-12)
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    if last.bias is not None:
        last.bias.copy_(-path.weight @ mean)


class Predictor(nn.Module):
    """h(z) = z + W₂ σ(W₁z + b₁) + b₂ with W₂ = b₂ = 0 at first: a map of embeddings that starts as the identity.

    `hidden` units, twice as many as embeddings have dimensions unless given. `dim` is that of z.
    """

    def __init__(self, dim: int, hidden: int | None = None) -> None:
        super().__init__()
        self.change = MLP.of([dim, 2 * dim if hidden is None else hidden, dim])
        last = self.change[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, z: Tensor) -> Tensor:
        return z + self.change(z)


class WithHead(nn.Module):
    """An encoder ψ whose objective sees g(ψ(x)): the head g is trained with it and left out of the representation.

    `backbone` is ψ.
    """

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
