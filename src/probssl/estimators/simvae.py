"""SimVAEEncoder: representations that rows can be reconstructed from, with their uncertainty, in scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from probssl.encoders import as_floats
from probssl.errors import InputError
from probssl.estimators.common import RowEstimator, in_precision, precision_of, seed_of
from probssl.model.decoding import decoded, latent_prior, log_likelihood, observed_at, posteriors
from probssl.objectives import GenerativeObjective
from probssl.parts.recipe import Recipe
from probssl.samplers import LatentMixture


class SimVAEEncoder(RowEstimator):
    """A latent-variable model of related rows: x_j ~ p(x | z_j), z_j ~ N(ψ, σ² I) around a mean of their own.

    Related rows are augmentations of the same row. X is a table [n, features] or images [n, channels, height, width]:
    arrays, data frames, or whatever `probssl.load` reads. The encoder gives the posterior q(z | x), a normal whose mean
    ψ(x) is `transform` and whose standard deviation is `uncertainty`. The decoder gives E[x | z], which is
    `inverse_transform`. After training, a mixture of normals is fitted to the latents of the data, from which `sample`
    draws and under which `score_samples` bounds log p(x). What is None is chosen to suit the data, as in `probssl.fit`.

    Parameters:
        dim: Number of latents.
        related: Number of augmentations of a row that are related.
        likelihood: What the decoder says: "columns" of any kind, "gaussian" errors of one variance, "bernoulli" pixels,
            or a `Likelihood`.
        likelihood_variance: Variance of the Gaussian errors: 0.1 for standardised features and 0.02 for pixels if None.
        pairing: How rows are augmented: a name or a `Pairing`, which is copied.
        encoder: The network ψ: a name, or any `nn.Module` that maps a batch to [n, dim], which is copied.
        steps: Number of training steps.
        batch_size: Number of rows per step; all rows if there are fewer.
        lr: Learning rate, at its highest.
        settings: All other settings by path, for example `{"objective.variance": 0.3, "encoder.hidden": (64, 64)}`.
        components: Number of normals in the mixture; fewer if there are few rows.
        samples: Number of draws of q(z | x) per row in the bound of log p(x).
        random_state: Seed of initial weights, batches, augmentations and samples. An integer makes results
            reproducible.
        verbose: Whether to show a progress bar.

    Attributes:
        mixture_: The mixture of normals over latents; all others are those of `RowEstimator`.
    """

    _of_images = True
    _of_mixed = True
    _fitted = "mixture_"
    _advice = "a smaller likelihood_variance, a lower lr or a weaker augmentation"
    objective_: GenerativeObjective

    def __init__(
        self,
        dim: int | None = None,
        *,
        related: int = 10,
        likelihood: Any = None,
        likelihood_variance: float | None = None,
        pairing: Any = None,
        encoder: Any = None,
        steps: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        settings: Mapping[str, Any] | None = None,
        components: int = 10,
        samples: int = 50,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.dim = dim
        self.related = related
        self.likelihood = likelihood
        self.likelihood_variance = likelihood_variance
        self.pairing = pairing
        self.encoder = encoder
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.settings = settings
        self.components = components
        self.samples = samples
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Any = None) -> SimVAEEncoder:
        """Train on the rows or images of X; y is ignored. Warns if training ends in a collapse."""
        rows = self._training_rows(X)
        seed = seed_of(self.random_state)
        for name in ("components", "samples"):
            if not isinstance(getattr(self, name), Integral) or getattr(self, name) < 1:
                raise InputError(f"{name} must be a whole number of at least 1, not {getattr(self, name)!r}")
        own = {
            "objective.related": self.related,
            "objective.likelihood": self.likelihood,
            "objective.likelihood.variance": self.likelihood_variance,
        }
        self._start(self._resolved(self._recipe(Recipe("simvae"), seed, **own), rows), rows)
        self._train(rows)
        x = self._in_single(rows)
        self.mixture_: LatentMixture = latent_prior(
            self.objective_, self.encoder_, x, components=self.components, seed=seed % 2**32
        )
        return self

    def uncertainty(self, X: ArrayLike) -> np.ndarray:
        """Standard deviations of q(z | x), how far each latent may lie from `transform`: [n, dim]."""
        x = self._inputs(self._fitted_rows(X))
        dtype = precision_of(x)
        return posteriors(in_precision(self.objective_, dtype), in_precision(self.encoder_, dtype), x)[1].numpy()

    def inverse_transform(self, Z: ArrayLike) -> np.ndarray:
        """E[x | z] of latents [n, dim]: rows in the units of the data, or images of numbers near [0, 1]."""
        check_is_fitted(self, self._fitted)
        z = np.asarray(Z)
        if z.ndim != 2 or z.shape[1] != self.model_.dim:
            raise InputError(f"latents must be [n, {self.model_.dim}], not {z.shape}")
        latents = torch.as_tensor(z, dtype=torch.float32 if z.dtype == np.float32 else torch.float64)
        found = decoded(in_precision(self.objective_, latents.dtype), latents, self.model_.facts.shape)
        return self._in_units(found.numpy())

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """New rows, or images, and the component of the mixture that each came from [n].

        Rows are draws of the density that `score_samples` bounds; images are means E[x | z].
        """
        check_is_fitted(self, self._fitted)
        generator = torch.Generator().manual_seed(seed_of(self.random_state))
        z, chosen = self.mixture_.sample(n_samples, generator)
        objective = in_precision(self.objective_, torch.float64)
        return self._in_units(observed_at(objective, z, self.model_.facts.shape, generator).numpy()), chosen.numpy()

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """A lower bound of log p(x) of each row, in nats over the units of the data: [n].

        Importance weighting by `samples` draws of q(z | x) (Burda et al., 2016), with `mixture_` as the prior of the
        latents. A Bernoulli likelihood gives probabilities in place of densities.
        """
        x = as_floats(self._inputs(self._fitted_rows(X))).double()
        objective, encoder = in_precision(self.objective_, x.dtype), in_precision(self.encoder_, x.dtype)
        found = log_likelihood(objective, encoder, x, prior=self.mixture_, samples=self.samples).numpy()
        if self.preparation_ is not None:
            found = found - np.log(self.preparation_.scaling.scale).sum()
        return found

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """The mean of `score_samples`, in nats per row; higher is better."""
        return float(self.score_samples(X).mean())

    def _in_units(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.preparation_ is None else self.preparation_.inverse(rows).astype(rows.dtype)
