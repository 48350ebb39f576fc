"""Mixtures of normals over latents, from which a decoder makes new observations."""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from probssl.errors import InputError

RIDGE = 1e-6
"""What is added to the diagonal of a covariance, in units of the mean variance of the latents."""

MIXTURE_ROWS = 20_000
"""Most rows that a mixture is fitted to, chosen by the seed: more change nothing that can be seen."""

ROWS_A_DIMENSION = 3
"""Least rows of a normal of its own, a dimension and one more: a covariance of fewer says little of new rows."""

LOG_2PI = math.log(2 * math.pi)


class LatentMixture:
    """p(z) = Σ_c π_c N(z; m_c, S_c) with full covariances, on latents in double precision.

    A latent-variable model whose latents do not follow the prior it was trained with (SimVAE's is flat) becomes a
    density by fitting this to latents of the data (Ghosh et al., 2020); one component a class makes it conditional
    (SimVAE A.7.6). `names` are those of the classes, or the numbers of the components. `weights` are π, `means` are m,
    `covariances` are S.
    """

    def __init__(self, weights: Tensor, means: Tensor, covariances: Tensor, names: list[str] | None = None) -> None:
        self.weights, self.means, self.covariances = weights, means, covariances
        self.names = [str(number) for number in range(len(weights))] if names is None else names
        self.factors = torch.linalg.cholesky(covariances)  # [c, m, m]

    @classmethod
    def fit(cls, latents: ArrayLike, components: int = 10, *, seed: int = 0) -> LatentMixture:
        """A mixture of so many components, by expectation maximisation from a k-means start.

        Fewer where they would have less than three rows a dimension each: tight around these, such a mixture finds
        every other row impossible.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture

        z = _checked(latents)
        if not 1 <= components <= len(z):
            raise InputError(f"a mixture of {len(z)} latents has from 1 to {len(z)} components, not {components}")
        if len(z) > MIXTURE_ROWS:
            z = z[np.random.default_rng(seed).permutation(len(z))[:MIXTURE_ROWS]]
        components = max(1, min(components, len(z) // _enough(z)))
        model = GaussianMixture(components, random_state=seed % 2**32, reg_covar=_ridge(z))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(z)
        weights, means, covariances = map(torch.from_numpy, (model.weights_, model.means_, model.covariances_))
        return cls(weights, means, covariances)

    @classmethod
    def by_class(cls, latents: ArrayLike, labels: ArrayLike, names: list[str] | None = None) -> LatentMixture:
        """One normal a class, the classes as frequent as in the data; labels are whole numbers from 0.

        Classes of less than three rows a dimension have the covariance of all rows around the means of their classes.
        """
        z, codes = _checked(latents), np.asarray(labels)
        if codes.shape != (len(z),):
            raise InputError(f"there are {len(z)} latents and labels of shape {codes.shape}")
        found = np.unique(codes)
        ridge = _ridge(z) * np.eye(z.shape[1])
        parts = [z[codes == code] for code in found]
        shared = _covariance(np.concatenate([part - part.mean(0) for part in parts]), len(z) - len(parts))
        if len(z) - len(parts) < _enough(z):
            shared = _covariance(z - z.mean(0), len(z) - 1)
        own = [_covariance(part - part.mean(0), len(part) - 1) if len(part) >= _enough(z) else shared for part in parts]
        covariances = np.stack(own) + ridge
        return cls(
            torch.tensor([len(part) / len(z) for part in parts], dtype=torch.float64),
            torch.from_numpy(np.stack([part.mean(0) for part in parts])),
            torch.from_numpy(covariances),
            [str(code) if names is None else names[int(code)] for code in found],
        )

    def sample(
        self, count: int, generator: torch.Generator | None = None, *, component: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Latents [count, m] and the component of each [count]; all of one, where it is given."""
        if count < 1:
            raise InputError(f"give a number of samples from 1, not {count}")
        if component is None:
            chosen = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        else:
            if not 0 <= component < len(self.weights):
                raise InputError(f"components number from 0 to {len(self.weights) - 1}, not {component}")
            chosen = torch.full((count,), component)
        noise = torch.empty(count, self.means.shape[1], dtype=torch.float64).normal_(generator=generator)
        return self.means[chosen] + (self.factors[chosen] @ noise.unsqueeze(-1)).squeeze(-1), chosen

    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z) in nats: [..., m] → [...], double precision."""
        apart = z.double().unsqueeze(-2) - self.means  # [..., c, m]
        scaled = torch.linalg.solve_triangular(self.factors, apart.unsqueeze(-1), upper=False).squeeze(-1)
        log_volumes = self.factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        quadratic = -0.5 * (scaled.square().sum(-1) + LOG_2PI * z.shape[-1]) - log_volumes
        return (quadratic + self.weights.log()).logsumexp(-1)


def _checked(latents: ArrayLike) -> np.ndarray:
    z = np.asarray(latents, dtype=np.float64)
    if z.ndim != 2 or len(z) < 2 or not np.isfinite(z).all():
        raise InputError("latents for a mixture are at least two rows of finite numbers")
    return z


def _covariance(centred: np.ndarray, freedom: int) -> np.ndarray:
    covariance: np.ndarray = centred.T @ centred / max(1, freedom)
    return covariance


def _enough(z: np.ndarray) -> int:
    """Rows that a covariance of its own takes."""
    return ROWS_A_DIMENSION * (z.shape[1] + 1)


def _ridge(z: np.ndarray) -> float:
    return RIDGE * max(float(z.var(0).mean()), 1e-12)
