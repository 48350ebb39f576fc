"""What does a representation show of its observation? A decoder trained on any frozen encoder."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.metrics._inputs import Array, positive, whole
from probssl.metrics._inputs import representations as checked

if TYPE_CHECKING:
    from torch import Tensor, nn

Encoder = Union["nn.Module", Callable[["Tensor"], ArrayLike]]
Images = Union["np.ndarray", "Tensor"]


@dataclass(frozen=True, eq=False)
class AdhocDecoder:
    """A decoder of one encoder's representations, and how well it reconstructs images that it was not trained on.

    `protocol` says how.
    """

    encoder: Encoder
    decoder: nn.Module  # representations [n, dim] → observations [n, ...]
    error: float  # mean squared error of a value, on held-out images
    baseline: float  # that of the mean training image in place of every one
    epochs: int  # after which the validation error was least
    protocol: str

    @property
    def explained(self) -> float:
        """1 − error / baseline: 1 where nothing is lost, 0 where the mean image would do as well."""
        return 1 - self.error / self.baseline if self.baseline > 0 else 0.0

    def reconstruct(self, images: Images) -> Tensor:
        """Each image as its representation shows it, [n, ...]; values may leave [0, 1] a little."""
        return _decoded(self.decoder, _representations(self.encoder, as_images(images)))


def adhoc_decoder(
    encoder: Encoder,
    images: Images,
    *,
    held_out: Images | None = None,
    decoder: nn.Module | None = None,
    epochs: int = 80,
    lr: float = 1e-3,
    batch_size: int = 128,
    patience: int = 5,
    seed: int = 0,
) -> AdhocDecoder:
    """Train a decoder on a frozen encoder: argmin E‖x − decoder(encoder(x))‖²   (SimVAE A.7.5).

    At its best it shows E[x | z], what all images of one representation have in common: what was lost is blurred or
    replaced by an average. `error` is the mean squared error of a value on images `held_out`, or on a fifth of these.

    `encoder` is a module or any function of images, encoded once; its representations are standardised, so that methods
    are compared whatever their scale. Adam, until the error on a tenth of the images has not fallen for `patience`
    epochs (the paper: a rate of 1e-4, 10 to 80 epochs, networks of its Tables 3b and 4b). `decoder` takes
    representations [n, dim] to as many numbers as an image has; the one handed in is copied. By default it is a
    `ConvDecoder` that begins with a quarter of the image's side, and of rows of a table a perceptron
    dim – 256 – 256 – row: whatever the encoder is, so that all methods are seen through the same eyes.
    """
    import torch

    from probssl.encoders import GLOBAL_RANDOM_STATE

    whole(epochs, "epochs", 1)
    whole(patience, "patience", 1)
    whole(batch_size, "batch_size", 1)
    every = as_images(images)
    order = torch.from_numpy(np.random.default_rng(whole(seed, "seed", 0)).permutation(len(every)))
    judged = as_images(held_out) if held_out is not None else every[order[: len(every) // 5]]
    order = order if held_out is not None else order[len(every) // 5 :]
    if judged.shape[1:] != every.shape[1:]:
        raise InputError(
            f"images held out must have the shape of the others, {tuple(every.shape[1:])}, "
            f"not {tuple(judged.shape[1:])}"
        )
    if len(order) < 10 or not len(judged):
        raise InputError(f"{len(every)} images are too few to train a decoder on")
    valid, train = every[order[: len(order) // 10]], every[order[len(order) // 10 :]]
    z, z_valid, z_judged = (_representations(encoder, part) for part in (train, valid, judged))
    shape = every.shape[1:]
    with GLOBAL_RANDOM_STATE, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        core = default_decoder(shape, z.shape[1]) if decoder is None else copy.deepcopy(decoder)
        network = torch.nn.Sequential(_standardising(z), core, torch.nn.Flatten(), torch.nn.Unflatten(1, shape))
        optimiser = torch.optim.Adam(core.parameters(), lr=positive(lr, "lr"))
        best, chosen, kept = math.inf, 0, copy.deepcopy(network.state_dict())
        for epoch in range(1, epochs + 1):
            network.train()
            for rows in torch.randperm(len(z)).split(batch_size):
                optimiser.zero_grad()
                goal = as_images(train[rows], floats=True)
                (network(z[rows]) - goal).square().mean().backward()
                optimiser.step()
            error = _error(network, z_valid, valid)
            if error < best:
                best, chosen, kept = error, epoch, copy.deepcopy(network.state_dict())
            elif epoch - chosen >= patience:
                break
        network.load_state_dict(kept)
    network.requires_grad_(False).eval()
    mean = _mean(train)
    baseline = sum(float((as_images(part, floats=True) - mean).square().sum()) for part in judged.split(512))
    protocol = (
        f"{type(core).__name__} trained on {len(train)} images (Adam at {lr:g}), epoch {chosen} chosen on "
        f"{len(valid)} others, mean squared error of {len(judged)} held out, seed {seed}"
    )
    return AdhocDecoder(
        encoder, network, _error(network, z_judged, judged), baseline / judged.numel(), chosen, protocol
    )


def default_decoder(shape: Sequence[int], dim: int) -> nn.Module:
    """A decoder of representations [n, dim] to observations of that shape."""
    from probssl.encoders import ConvDecoder, MLPDecoder

    if len(shape) == 3 and min(shape[1:]) >= 4:
        return ConvDecoder((32, 64)).bind(shape=tuple(shape), dim=dim)
    return MLPDecoder((256, 256)).bind(shape=tuple(shape), dim=dim)


# --- images and their representations ---------------------------------------------------------------------------------


def as_images(images: Images, *, floats: bool = False) -> Tensor:
    """A tensor of observations [n, ...], bytes as they are unless `floats`, else an InputError that says why not."""
    import torch

    from probssl.encoders import as_floats

    try:
        x = images if isinstance(images, torch.Tensor) else torch.from_numpy(np.asarray(images))
    except TypeError as error:
        raise InputError(f"images must be an array of numbers: {error}") from None
    if x.ndim < 2 or not len(x):
        raise InputError(f"images must be an array [n, ...] with at least one of them, not of shape {tuple(x.shape)}")
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise InputError(f"images must be bytes or real numbers, not {str(x.dtype).removeprefix('torch.')}")
    x = x.detach().cpu()
    return (as_floats(x) if x.dtype == torch.uint8 else x.float()) if floats else x


def encoded(encoder: Encoder, images: Tensor) -> Array:
    """Representations of images, [n, dim] in double precision: of a module in evaluation mode, batch by batch."""
    import torch

    from probssl.encoders import encode

    if isinstance(encoder, torch.nn.Module):
        return checked(encode(encoder, images if images.dtype == torch.uint8 else images.float()).numpy())
    with torch.no_grad():
        return checked(np.concatenate([np.asarray(encoder(as_images(x, floats=True))) for x in images.split(512)]))


def _representations(encoder: Encoder, images: Tensor) -> Tensor:
    import torch

    return torch.from_numpy(encoded(encoder, images)).float()


def _standardising(z: Tensor) -> nn.Module:
    """z ↦ (z − mean) / deviation over a sample, a layer that is not trained; a constant feature is only shifted."""
    import torch

    deviation, mean = torch.std_mean(z, 0, correction=0)
    scale = torch.where(z.amax(0) > z.amin(0), deviation, 1.0).reciprocal()
    layer = torch.nn.Linear(z.shape[1], z.shape[1])
    layer.weight, layer.bias = torch.nn.Parameter(scale.diag()), torch.nn.Parameter(-mean * scale)
    return layer.requires_grad_(False)


def _decoded(network: nn.Module, z: Tensor) -> Tensor:
    import torch

    with torch.no_grad():
        return torch.cat([network(rows) for rows in z.split(512)])


def _error(network: nn.Module, z: Tensor, images: Tensor) -> float:
    """Mean squared error of a value."""
    network.eval()
    parts = zip(z.split(512), images.split(512), strict=True)
    total = sum(float((_decoded(network, a) - as_images(b, floats=True)).square().sum()) for a, b in parts)
    return total / images.numel()


def _mean(images: Tensor) -> Tensor:
    """The mean image."""
    import torch

    return torch.stack([as_images(part, floats=True).sum(0) for part in images.split(512)]).sum(0) / len(images)
