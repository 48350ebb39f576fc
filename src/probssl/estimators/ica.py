"""ContrastiveICA: the sources behind a nonlinear mixture, from pairs of related rows or from a recording in time."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from probssl.data import Standardiser
from probssl.encoders import LatentEncoder, encode, seeded
from probssl.energies import Anisotropic, Cosine, Energy, Euclidean, PNorm
from probssl.errors import InputError
from probssl.estimators.common import SCORE_SEED, conclude, in_precision, information, seed_of
from probssl.objectives import InfoNCE
from probssl.pairings import RowPairs, neighbours
from probssl.training import ProgressBar, TrainingPlan, fit

MODELS = ("laplace", "normal", "anisotropic", "vmf")
"""What the step of a source from a row to its positive may be distributed like."""

ON_SPHERE = ("anisotropic", "vmf")

NEGLIGIBLE = 1e-6
"""Share of the largest standard deviation below which a direction of the code is left at its own scale."""


class ContrastiveICA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Nonlinear ICA: undoes an unknown invertible mixing x = g(z) from pairs (x, x̃) whose sources z and z̃ are close.

    An encoder f minimises InfoNCE, the mean of −log q(x | x̃) with q(x | x̃) ∝ p(x) e^{−δ(f(x), f(x̃))}. Where some f
    makes δ the true −log p(z̃ | z), every minimiser does, and f ∘ g is affine and an isometry of δ (CL-ICA Theorems 2
    and 6, AnInfoNCE Theorem 3.1): the sources are found up to what leaves δ as it is.

    - `model="laplace"`, δ = Σ_k |f_k − f̃_k|: order, sign and scale; the steps z̃ − z are independent and peaked.
    - `"normal"`, δ = ½ ‖f − f̃‖²: any rotation of the sources, each in units of its own step. The outputs are the
      principal axes of that, which are the sources where these are uncorrelated and no two are equally predictable.
    - `"anisotropic"`, δ = ½ (f − f̃)ᵀ Λ̂ (f − f̃) on the unit sphere with Λ̂ learnt: rotation among equal Λ_k.
    - `"vmf"`, δ = −κ fᵀf̃ on the unit sphere: any rotation.

    Parameters: `model`; `dim`, the number of sources (as many as features); `lag`, how many rows apart neighbours in
    time are, one number or several; `hidden`, widths of the encoder's hidden layers (three, of 8 for each feature and
    at least 64); `concentration`, κ, or about where Λ̂ starts; `steps`, `batch_size` and `lr` of the training;
    `random_state`, of which a whole number decides the result; `verbose` for a progress bar.

    Fitted attributes: `encoder_` (f) and `objective_`, torch modules in single precision; `offset_` [dim] and `axes_`
    [dim, dim], sources = (f − offset) · axes; `concentrations_` [dim], falling; `standardiser_`; `history_`, the rows
    of the training log; `collapsed_`, the collapses standing at the end with the step at which each set in;
    `n_features_in_`, and `feature_names_in_` for data frames.
    """

    def __init__(
        self,
        model: str = "laplace",
        *,
        dim: int | None = None,
        lag: int | Sequence[int] = 1,
        hidden: Sequence[int] | None = None,
        concentration: float = 10.0,
        steps: int = 2000,
        batch_size: int = 256,
        lr: float = 0.01,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.dim = dim
        self.lag = lag
        self.hidden = hidden
        self.concentration = concentration
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: Any = None, *, X_positive: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> ContrastiveICA:
        """Train on the rows of X [n, features] and their positives. Warns when training ends collapsed.

        The positives are `X_positive` [n, features], row by row, by name or as the second argument: a second argument
        of two dimensions is positives, one of a single dimension is taken for labels, as scikit-learn passes
        them, and ignored. Without positives the rows are a recording in time order, and every row has those `lag` rows
        later as positives; `groups` [n], one label a row, keeps pairs within recordings.
        """
        rows = self._rows(X, reset=True, least=2)
        plan, seed = self._plan(), seed_of(self.random_state)
        dim, hidden = self._sizes()
        self.objective_ = InfoNCE(self._energy(), anchor="symmetric").bind(dim=dim)
        self.standardiser_ = Standardiser.fit(rows)
        source = self._source(rows, y, X_positive, groups).float()
        sphere, sample = self.model in ON_SPHERE, self._inputs(rows).float()
        self.encoder_: nn.Module = seeded(
            seed, lambda: LatentEncoder(hidden, dim, sphere=sphere).bind(shape=sample.shape[1:], sample=sample)
        )
        reporter = ProgressBar() if self.verbose else None
        fitted = fit(self.encoder_, self.objective_, source, plan=plan, seed=seed, reporter=reporter)
        self.history_: list[dict[str, Any]] = fitted.history
        self.collapsed_: dict[str, int] = fitted.collapsed
        advice = "a lower lr, fewer dimensions, another model or, for a recording, another lag"
        conclude(fitted, 0, advice, stacklevel=2)
        self._orient(rows)
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Sources [n, dim] in the precision of X: single for float32, double for anything else.

        They come by falling concentration, the most predictable first. On R^n they have mean 0 and variance 1 over the
        rows of the training, on the sphere length 1.
        """
        check_is_fitted(self, "axes_")
        x = self._inputs(self._rows(X))
        offset, axes = (torch.as_tensor(part, dtype=x.dtype) for part in (self.offset_, self.axes_))
        return ((encode(in_precision(self.encoder_, x.dtype), x) - offset) @ axes).numpy()

    def score(
        self, X: ArrayLike, y: Any = None, *, X_positive: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> float:
        """How many nats a positive tells about its row under the model; higher is better. Arguments are those of `fit`.

        log n − InfoNCE of pairs that share no row (43 % of a recording's): what log q(x | x̃) gains over a guess among
        n rows. In expectation over new pairs a lower bound on I(x; x̃), so that on rows held out it says which model
        describes the steps best, at one `lag`. Pairs are contrasted within random blocks of near equal size, at most
        1024, and n is the size of the block.
        """
        check_is_fitted(self, "axes_")
        source = self._source(self._rows(X, least=2), y, X_positive, groups)
        generator = torch.Generator().manual_seed(SCORE_SEED)
        views = source.double().draw(len(source.pairs), self.objective_.needs, generator)
        return information(self.encoder_, self.objective_.energy, views.x, views.augmented[0], generator)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.axes_)

    # What the parameters say

    def _sizes(self) -> tuple[int, list[int]]:
        """The number of sources and the widths of the hidden layers."""
        features, sphere = self.n_features_in_, self.model in ON_SPHERE
        dim = (max(2, features) if sphere else features) if self.dim is None else _whole("dim", self.dim, 1)
        if sphere and dim < 2:
            raise InputError(f"a sphere has at least two dimensions, not {dim}: choose another model or dim")
        if not sphere and dim > features:
            raise InputError(f"there cannot be more sources than features: dim is {dim}, X has {features} features")
        if self.hidden is None:
            return dim, [max(64, 8 * features)] * 3
        return dim, [_whole("a hidden width", width, 1) for width in _several("hidden", self.hidden)]

    def _energy(self) -> Energy:
        concentration = _positive("concentration", self.concentration)
        if self.model == "laplace":
            return PNorm(1)
        if self.model == "normal":
            return Euclidean()
        if self.model == "anisotropic":
            # From equal ones, two sources can stay turned by 45° into one another, where Λ̂ has no slope to leave by.
            return Anisotropic(concentration * torch.logspace(-1, 1, self._sizes()[0], base=2.0), normalise=True)
        if self.model == "vmf":
            return Cosine(1 / concentration)
        raise InputError(f"there is no model {self.model!r}: choose one of {', '.join(MODELS)}")

    def _plan(self) -> TrainingPlan:
        return TrainingPlan(
            steps=_whole("steps", self.steps, 1),
            batch_size=_whole("batch_size", self.batch_size, 2),
            lr=_positive("lr", self.lr),
            objective_lr=10 * self.lr,  # Λ̂ is a number of the order of ten, and weights are of one
            clip_norm=1.0,
        )

    # Rows

    def _rows(self, X: ArrayLike, *, reset: bool = False, least: int = 1) -> np.ndarray:
        return validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=least)

    def _inputs(self, rows: np.ndarray) -> Tensor:
        """Rows as the encoder takes them, in their own precision."""
        return torch.tensor(self.standardiser_.transform(rows), dtype=getattr(torch, rows.dtype.name))

    def _source(self, rows: np.ndarray, y: Any, X_positive: Any, groups: Any) -> RowPairs:
        """Which rows belong together, as `fit` and `score` are told."""
        if y is not None and np.asarray(y).ndim != 1:
            if X_positive is not None:
                raise InputError("positives were given twice, as the second argument and as X_positive")
            X_positive = y
        if X_positive is None:
            return self._in_time(rows, groups)
        if groups is not None:
            raise InputError("groups keep neighbours in time apart, and rows with positives have none: leave them out")
        shape = np.asarray(X_positive).shape
        if shape != rows.shape:
            raise InputError(f"positives must have the shape of X, {rows.shape}, one for each row, not {shape}")
        both = self._inputs(np.concatenate([rows, self._rows(X_positive)]))
        number = torch.arange(len(rows))
        return RowPairs(both, torch.stack([number, number + len(rows)], 1))

    def _in_time(self, rows: np.ndarray, groups: Any) -> RowPairs:
        """Neighbours in time, within their group."""
        lags = [_whole("lag", lag, 1) for lag in _several("lag", self.lag)]
        labels = None
        if groups is not None:
            if np.shape(groups) != (len(rows),):
                raise InputError(f"groups are one label a row, {len(rows)} of them, not of shape {np.shape(groups)}")
            labels = torch.as_tensor(np.unique(groups, return_inverse=True)[1])
        pairs = neighbours(len(rows), lags, labels)
        if len(pairs) < 2:
            raise InputError(
                f"{len(rows)} rows have {len(pairs)} pairs of neighbours at lag {self.lag}, and it takes at least two"
            )
        return RowPairs(self._inputs(rows), pairs)

    def _orient(self, rows: np.ndarray) -> None:
        """Axes, order and scale of the sources within the code: what the model leaves open is chosen here."""
        energy = self.objective_.energy
        if self.model in ON_SPHERE:
            dim = self._sizes()[0]
            offset, axes = np.zeros(dim), np.eye(dim)
            concentrations = np.full(dim, float(self.concentration))
            if isinstance(energy, Anisotropic):
                concentrations = energy.concentration.detach().double().numpy()
        else:
            code = encode(in_precision(self.encoder_, torch.float64), self._inputs(rows).double()).numpy()
            offset, axes = code.mean(0), np.eye(code.shape[1])
            if self.model == "normal":
                axes = np.linalg.eigh(np.atleast_2d(np.cov(code.T)))[1]
            spread = ((code - offset) @ axes).std(0)
            axes = axes / np.where(spread > NEGLIGIBLE * spread.max(), spread, 1.0)
            concentrations = spread**2 if self.model == "normal" else spread
        order = np.argsort(-concentrations, kind="stable")
        self.offset_, self.axes_, self.concentrations_ = offset, axes[:, order], concentrations[order]


def _several(name: str, value: Any) -> list[Any]:
    """One number or a sequence of them as a list."""
    if isinstance(value, numbers.Integral):
        return [value]
    if isinstance(value, str) or np.ndim(value) != 1:
        raise InputError(f"{name} is a whole number or a sequence of them, not {value!r}")
    return list(value)


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < math.inf:
        raise InputError(f"{name} must be positive and finite, not {value!r}")
    return float(value)
