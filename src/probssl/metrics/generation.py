"""How good a model of the observations is: reconstructions, likelihood, and how alike its samples are to data.

Sets of observations are compared by the Fréchet distance of their features. The Fréchet Inception Distance (FID; Heusel
et al., 2017) is this distance for the features of one network, trained on ImageNet. Other features give other numbers,
so that a distance is always named after them: `FD(pixels)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.metrics._inputs import Array, positive, whole
from probssl.metrics._inputs import representations as checked
from probssl.metrics._splits import check_lengths
from probssl.metrics.adhoc import Images, as_images, encoded

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

# --- reconstructions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReconstructionError:
    """Squared errors of reconstructions: of a value, and summed over all values of an observation."""

    per_value: float  # mean over observations and values
    total: float  # mean over observations of ‖x − x̂‖²
    standard_error: float  # of `total` over observations; infinite for one


def reconstruction_error(observations: ArrayLike, reconstructions: ArrayLike) -> ReconstructionError:
    """‖x − x̂‖² of observations [n, ...] and their reconstructions. Lower is better; range [0, ∞).

    Bytes, as images are kept, count from 0 to 1 on either side. SimVAE's Table 7 prints the mean over values.
    """
    x, y = _numbers(observations, "observations"), _numbers(reconstructions, "reconstructions")
    if x.shape != y.shape:
        raise InputError(f"observations have the shape {x.shape} and their reconstructions {y.shape}")
    each = np.square(x - y).reshape(len(x), -1).sum(axis=1)
    error = float(each.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else math.inf
    return ReconstructionError(float(each.mean() / (x.size / len(x))), float(each.mean()), error)


def _numbers(given: ArrayLike, name: str) -> Array:
    array = np.asarray(given)
    if array.dtype.kind not in "fu" or array.ndim < 2 or not array.size:
        raise InputError(f"{name} must be real numbers or bytes [n, ...], not {array.dtype} of shape {array.shape}")
    numbers: Array = array / 255.0 if array.dtype == np.uint8 else array.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} must be finite")
    return numbers


# --- likelihood -------------------------------------------------------------------------------------------------------


class HasBound(Protocol):
    """What `likelihood_bound` asks of a model: any `GenerativeObjective`."""

    def log_likelihood(
        self,
        encoder: nn.Module,
        x: Tensor,
        samples: int = 100,
        generator: torch.Generator | None = None,
        *,
        log_prior: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """log p(x) of sets [J, n, ...], or a bound of it: [n], in nats."""


@dataclass(frozen=True)
class LikelihoodBound:
    """A lower bound of the mean log-likelihood of observations, or of sets of related ones. `nats` is that bound."""

    nats: float
    standard_error: float  # over observations; infinite for one
    bits_per_dim: float  # −nats / (log 2 · values of an observation, or of all in a set)
    samples: int  # of the posterior; with one it is the ELBO
    observations: int


def likelihood_bound(
    objective: HasBound,
    encoder: nn.Module,
    x: Images,
    *,
    samples: int = 100,
    sets: bool = False,
    log_prior: Callable[[Tensor], Tensor] | None = None,
    batch_size: int = 256,
    seed: int = 0,
) -> LikelihoodBound:
    """E log mean_k p(x, z_k)/q(z_k | x), z_k ~ q, over observations [n, ...]   (Burda et al. 2016).

    At most E log p(x) in expectation, and the nearer the more samples; nats: higher is better. With `sets`, x is
    [J, n, ...], J related observations of each of n data points, and the bound that of all J together, as SimVAE is
    trained on. Bits are of the density as it stands: of pixels from 0 to 1 a density may exceed 1, and uniformly
    dequantised bytes have 8 bits more. SimVAE with its flat prior of means has a density per unit volume of them, which
    compares with no other model's: a `log_prior` of latents [J, n, dim] → [n] takes the place of the model's own.
    """
    import torch

    whole(samples, "samples", 1)
    given = as_images(x)
    rows = given if sets else given[None]
    if rows.ndim < 3:
        raise InputError(f"sets of observations are [related, n, ...], not of shape {tuple(rows.shape)}")
    generator = torch.Generator().manual_seed(whole(seed, "seed", 0))
    modules = [part for m in (objective, encoder) if isinstance(m, torch.nn.Module) for part in m.modules()]
    training = [part for part in modules if part.training]
    dtype = next((weight.dtype for part in modules for weight in part.parameters()), torch.float32)
    for part in training:
        part.training = False
    try:
        blocks = rows.split(whole(batch_size, "batch_size", 1), 1)
        found = [
            objective.log_likelihood(
                encoder, as_images(part, floats=True).to(dtype), samples, generator, log_prior=log_prior
            )
            for part in blocks
        ]
    finally:
        for part in training:
            part.training = True
    each = torch.cat(found).double().numpy()
    error = float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else math.inf
    nats, values = float(each.mean()), rows.numel() / rows.shape[1]
    return LikelihoodBound(nats, error, -nats / (math.log(2) * values), samples, len(each))


# --- sets of observations ---------------------------------------------------------------------------------------------


def frechet_distance(first: ArrayLike, second: ArrayLike) -> float:
    """‖μ₁ − μ₂‖² + Tr(Σ₁ + Σ₂ − 2 (Σ₁Σ₂)^{1/2}) for features [n, d] and [m, d]   (Dowson & Landau, 1982).

    The squared 2-Wasserstein distance of the normal laws with the sets' means and covariances (1/(n − 1)). Lower is
    better; range [0, ∞), 0 iff both moments agree. Unchanged by a rotation or translation of all features; it grows
    with the square of their scale. With R₁ and R₂ the triangular factors of the centred sets, Σ = RᵀR, the trace of
    the root is the sum of singular values of R₁R₂ᵀ: no root of a product is taken, so nothing is lost where covariances
    are singular, and nothing is complex.

    It is biased upwards by sampling, by about Tr Σ (1/n + 1/m) from the means and more from the covariances: set only
    sets of equal sizes beside each other, with two sets of data among them.
    """
    sides = [checked(side, f"the {name} set", rows=2) for name, side in (("first", first), ("second", second))]
    if sides[0].shape[1] != sides[1].shape[1]:
        raise InputError(f"the sets have features of {sides[0].shape[1]} and {sides[1].shape[1]} dimensions")
    means = [side.mean(axis=0) for side in sides]
    factors = [np.linalg.qr((side - mean) / np.sqrt(len(side) - 1))[1] for side, mean in zip(sides, means, strict=True)]
    shift = means[0] - means[1]
    spread = sum(float(np.square(factor).sum()) for factor in factors)
    overlap = float(np.linalg.svd(factors[0] @ factors[1].T, compute_uv=False).sum())
    return max(0.0, float(shift @ shift) + spread - 2 * overlap)


@dataclass(frozen=True)
class Extractor:
    """Features to compare sets by: observations [n, ...] → [n, d], and the name that its distances carry.

    `features` computes them.
    """

    name: str
    features: Callable[[np.ndarray], ArrayLike]

    @property
    def title(self) -> str:
        """`FD(name)`."""
        return f"FD({self.name})"

    def distance(self, first: np.ndarray, second: np.ndarray) -> float:
        """`frechet_distance` of the features of two sets."""
        return frechet_distance(self.features(first), self.features(second))


def pixel_components(observations: ArrayLike, count: int = 32) -> Extractor:
    """The leading principal components of observations [n, ...], as they are: they see brightness, place and contrast.

    The distance is then that of the observations themselves but for the directions left out, in their units; bytes, as
    images are kept, count from 0 to 1.
    """
    numbers = _numbers(observations, "observations")
    rows = checked(numbers.reshape(len(numbers), -1))
    if not 1 <= count <= min(rows.shape):
        raise InputError(f"components number from 1 to {min(rows.shape)} here, not {count}")
    mean = rows.mean(axis=0)
    directions: Array = np.linalg.svd(rows - mean, full_matrices=False)[2][:count]

    def features(given: np.ndarray) -> Array:
        flat: Array = _numbers(given, "observations").reshape(len(given), -1)
        return (flat - mean) @ directions.T

    return Extractor(f"pixel PCA {count}", features)


def trained_features(
    images: Images,
    labels: ArrayLike,
    *,
    held_out: tuple[Images, ArrayLike] | None = None,
    epochs: int = 10,
    dim: int = 64,
    lr: float = 1e-3,
    seed: int = 0,
) -> Extractor:
    """Features of a small convolutional network trained here to classify images [n, c, h, w].

    `ConvEncoder` with 16, 32 and 64 channels to `dim` features, and a linear layer over their ReLUs, trained by Adam on
    batches of 128. The distance is taken of the features before the ReLU; they see what tells the classes apart.
    The name says what stands in for Inception, with the accuracy on images `held_out`, or on a fifth of these. The
    same arguments give the same features.
    """
    import torch
    from torch import nn

    from probssl.encoders import ConvEncoder, seeded
    from probssl.metrics._inputs import label_codes

    given = as_images(images)
    if given.ndim != 4:
        raise InputError(f"images must be [n, channels, height, width], not of shape {tuple(given.shape)}")
    whole(epochs, "epochs", 1)
    rate = positive(lr, "lr")
    generator = torch.Generator().manual_seed(whole(seed, "seed", 0))
    both = labels if held_out is None else np.concatenate([np.asarray(labels), np.asarray(held_out[1])])
    others = None if held_out is None else as_images(held_out[0])
    check_lengths((labels, len(given)))
    if held_out is not None and others is not None:
        check_lengths((held_out[1], len(others)))
    codes, counts = label_codes(both, len(given) + (0 if others is None else len(others)))
    truth = torch.from_numpy(codes)
    if others is None:
        order = torch.randperm(len(given), generator=generator)
        judged, kept = order[: len(given) // 5], order[len(given) // 5 :]
        others, truth = given[judged], torch.cat([truth[kept], truth[judged]])
        given = given[kept]
    if min(len(given), len(others)) < 1 or len(counts) < 2:
        raise InputError("features are trained on images of at least two classes, and judged by others")
    y, judged_y = truth[: len(given)], truth[len(given) :]
    halvings = min(3, int(math.log2(min(given.shape[2:]))))
    network = ConvEncoder((16, 32, 64)[:halvings], dim, hidden=128)
    body: nn.Module = seeded(seed, lambda: network.bind(shape=tuple(given.shape[1:])))
    head = seeded(seed, lambda: nn.Sequential(nn.ReLU(), nn.Linear(dim, len(counts))))
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=rate)
    for _ in range(epochs):
        for rows in torch.randperm(len(given), generator=generator).split(128):
            optimiser.zero_grad()
            x = as_images(given[rows], floats=True)
            nn.functional.cross_entropy(head(body(x)), y[rows]).backward()
            optimiser.step()
    body.requires_grad_(False)

    def features(observations: np.ndarray) -> Array:
        return encoded(body, as_images(observations))

    with torch.no_grad():
        said = head(torch.from_numpy(encoded(body, others)).float()).argmax(1)
    accuracy = float((said == judged_y).float().mean())
    name = f"conv classifier, {epochs} epochs on {len(given)} images, {100 * accuracy:.1f}%"
    return Extractor(name, features)
