"""SimVAE: representations that rows can be made from again, with how sure they are, as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from probssl.data import Standardiser, check_images
from probssl.encoders import as_floats, encode
from probssl.errors import InputError
from probssl.estimators.common import conclude, in_precision, seed_of
from probssl.model.decoding import decoded, latent_prior, log_likelihood, observed_at, posteriors
from probssl.objectives import GenerativeObjective
from probssl.parts.recipe import Recipe
from probssl.samplers import LatentMixture
from probssl.training import ProgressBar, fit


class SimVAE(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A latent-variable model of related rows: x_j ~ p(x | z_j), z_j ~ N(ψ, σ² I) around a mean of their own.

    Related rows are `related` augmentations of one: features masked and noise added in a table [n, features], what
    `augmentation` names in images [n, channels, height, width], bytes or numbers from 0 to 1. The encoder gives the
    posterior q(z | x) = N(ψ(x), diag v(x)): `transform` is its mean and `uncertainty` its standard deviation. The
    decoder gives E[x | z]: `inverse_transform`. After training a mixture of `components` normals is fitted to the
    latents of the data, from which `sample` draws and under which `score_samples` bounds log p(x).

    Parameters: `dim`, `hidden`, `related`, `likelihood`, `likelihood_variance`, `latent_variance` (σ²),
    `mean_variance`, `preservation`, `noise`, `augmentation`, `network`, `width`, `steps`, `batch_size`, `lr` and
    `clip_norm` are those of `probssl.recipe.Recipe`; where None, what it chooses for the data. `components` of the
    mixture and `samples` of the bound; `random_state`, of which a whole number decides the result; `verbose` for a
    progress bar.

    Fitted attributes: `encoder_` (ψ) and `objective_` with the decoder, torch modules in single precision;
    `standardiser_`, None of images; `mixture_`; `recipe_`; `history_`, the rows of the training log; `collapsed_`, the
    collapses standing at the end; `n_features_in_` of a table, and `feature_names_in_` of data frames.
    """

    def __init__(
        self,
        dim: int | None = None,
        *,
        hidden: Sequence[int] | None = None,
        related: int = 10,
        likelihood: str = "gaussian",
        likelihood_variance: float | None = None,
        latent_variance: float = 0.15,
        mean_variance: float | None = None,
        preservation: float | None = None,
        noise: float | None = None,
        augmentation: str | None = None,
        network: str | None = None,
        width: int | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        clip_norm: float | None = None,
        components: int = 10,
        samples: int = 50,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.dim = dim
        self.hidden = hidden
        self.related = related
        self.likelihood = likelihood
        self.likelihood_variance = likelihood_variance
        self.latent_variance = latent_variance
        self.mean_variance = mean_variance
        self.preservation = preservation
        self.noise = noise
        self.augmentation = augmentation
        self.network = network
        self.width = width
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.clip_norm = clip_norm
        self.components = components
        self.samples = samples
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Any = None) -> SimVAE:
        """Train on the rows or images of X; y is ignored. Warns when training ends collapsed."""
        rows = self._rows(X, reset=True, least=2)
        seed = seed_of(self.random_state)
        for name in ("components", "samples"):
            if not isinstance(getattr(self, name), Integral) or getattr(self, name) < 1:
                raise InputError(f"{name} is a whole number from 1, not {getattr(self, name)!r}")
        self._shape = rows.shape[1:]
        self.recipe_ = self._recipe(seed, rows.shape[1:])
        self.standardiser_: Standardiser | None = Standardiser.fit(rows) if rows.ndim == 2 else None
        features = int(np.prod(rows.shape[1:]))
        self.encoder_: nn.Module = self.recipe_.build_encoder(features)
        objective = self.recipe_.build_objective(features, len(rows))
        assert isinstance(objective, GenerativeObjective)
        self.objective_: GenerativeObjective = objective
        x = self._inputs(rows)
        x = x if x.dtype == torch.uint8 else x.float()
        fitted = fit(
            self.encoder_,
            self.objective_,
            self.recipe_.build_pairing(),
            x,
            self.recipe_.plan(),
            seed=seed,
            reporter=ProgressBar() if self.verbose else None,
        )
        self.encoder_.eval()
        self.objective_.eval()
        self.history_: list[dict[str, Any]] = fitted.history
        self.collapsed_: dict[str, int] = fitted.collapsed
        conclude(fitted, 0, "a smaller likelihood_variance, a lower lr or a weaker augmentation", stacklevel=2)
        self.mixture_: LatentMixture = latent_prior(
            self.objective_, self.encoder_, x, components=self.components, seed=seed % 2**32
        )
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Means of q(z | x) in the precision of X, single for images: [n, dim]."""
        x = self._inputs(self._fitted_rows(X))
        return encode(in_precision(self.encoder_, _precision(x)), x).numpy()

    def uncertainty(self, X: ArrayLike) -> np.ndarray:
        """Standard deviations of q(z | x), how far each latent may lie from `transform`: [n, dim]."""
        x = self._inputs(self._fitted_rows(X))
        dtype = _precision(x)
        return posteriors(in_precision(self.objective_, dtype), in_precision(self.encoder_, dtype), x)[1].numpy()

    def inverse_transform(self, Z: ArrayLike) -> np.ndarray:
        """E[x | z] of latents [n, dim]: rows in the units of the data, or images of numbers near [0, 1]."""
        check_is_fitted(self, "encoder_")
        z = np.asarray(Z)
        if z.ndim != 2 or z.shape[1] != self.recipe_.dim:
            raise InputError(f"latents of this model are [n, {self.recipe_.dim}], not {z.shape}")
        dtype = torch.float32 if z.dtype == np.float32 else torch.float64
        latents = torch.as_tensor(z, dtype=dtype)
        return self._in_units(decoded(in_precision(self.objective_, dtype), latents, tuple(self._shape)).numpy())

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """New rows, or images, and the component of the mixture that each came from [n].

        Rows are draws of the density that `score_samples` bounds; images are means E[x | z].
        """
        check_is_fitted(self, "encoder_")
        generator = torch.Generator().manual_seed(seed_of(self.random_state))
        z, chosen = self.mixture_.sample(n_samples, generator)
        objective = in_precision(self.objective_, torch.float64)
        return self._in_units(observed_at(objective, z, tuple(self._shape), generator).numpy()), chosen.numpy()

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """A lower bound of log p(x) of each row, in nats over the units of the data: [n].

        Importance weighting by `samples` draws of q(z | x) (Burda et al., 2016), the latents' law being `mixture_`. A
        Bernoulli likelihood gives probabilities in place of densities.
        """
        x = as_floats(self._inputs(self._fitted_rows(X))).double()
        objective, encoder = in_precision(self.objective_, x.dtype), in_precision(self.encoder_, x.dtype)
        bound = log_likelihood(objective, encoder, x, prior=self.mixture_, samples=self.samples)
        found: np.ndarray = bound.numpy()
        if self.standardiser_ is not None and self.likelihood == "gaussian":
            found = found - np.log(self.standardiser_.scale).sum()
        return found

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """The mean of `score_samples`: nats a row, higher is better."""
        return float(self.score_samples(X).mean())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int | None:
        return self.recipe_.dim

    # Small steps

    def _recipe(self, seed: int, shape: tuple[int, ...]) -> Recipe:
        names = (
            *("dim", "hidden", "related", "likelihood", "likelihood_variance", "latent_variance", "mean_variance"),
            *("preservation", "noise", "augmentation", "network", "width", "steps", "batch_size", "lr", "clip_norm"),
        )
        options: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.hidden is not None:
            if not isinstance(self.hidden, Sequence):
                raise InputError(f"hidden is a list of widths, [128, 64] for example, not {self.hidden!r}")
            options["hidden"] = tuple(int(width) for width in self.hidden)
        options |= {"objective": "simvae", "seed": seed}
        if len(shape) == 1:
            of_images = [name for name in ("augmentation", "network", "width") if options[name] is not None]
            if of_images:
                raise InputError(f"{of_images[0]} is a choice about images, and X is a table: leave it out")
            return Recipe().with_options(**options).for_features(shape[0])
        return Recipe.for_images("images", **options).for_shape(shape)

    def _rows(self, X: ArrayLike, *, reset: bool = False, least: int = 1) -> np.ndarray:
        """Rows of a table as scikit-learn checks them, or images as they are."""
        if getattr(X, "ndim", 0) == 4:
            images = check_images(np.asarray(X), "the images")
            if len(images) < least:
                raise InputError(f"training needs at least {least} images, and there is {len(images)}")
            if reset:  # nothing stays of a table that it was fitted to before
                self.__dict__.pop("n_features_in_", None)
                self.__dict__.pop("feature_names_in_", None)
            elif len(self._shape) == 1:
                raise InputError(f"the model is of tables of {self._shape[0]} features, and X is images")
            elif images.shape[1:] != tuple(self._shape):
                raise InputError(f"the model is of images of shape {tuple(self._shape)}, not {images.shape[1:]}")
            return images
        if not reset and len(self._shape) != 1:
            raise InputError(f"the model is of images of shape {tuple(self._shape)}, and X is a table")
        return validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=least)

    def _fitted_rows(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self, "encoder_")
        return self._rows(X)

    def _inputs(self, rows: np.ndarray) -> Tensor:
        """Rows as the encoder takes them, in their own precision; images as bytes or single precision."""
        if self.standardiser_ is None:
            return torch.from_numpy(np.ascontiguousarray(rows))
        return torch.tensor(self.standardiser_.transform(rows), dtype=getattr(torch, rows.dtype.name))

    def _in_units(self, rows: np.ndarray) -> np.ndarray:
        if self.standardiser_ is None:
            return rows
        return (rows * self.standardiser_.scale + self.standardiser_.mean).astype(rows.dtype)


def _precision(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.float32
