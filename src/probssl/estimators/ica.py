"""ContrastiveICA: the sources behind a nonlinear mixture, from pairs of related rows or from a recording in time."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from probssl.data import Rows
from probssl.encoders import encode
from probssl.energies import Anisotropic, Cosine, Energy, Euclidean, PNorm
from probssl.errors import InputError
from probssl.estimators.common import SCORE_SEED, RowEstimator, in_precision, information, seed_of
from probssl.objectives import InfoNCE
from probssl.pairings import RowPairs, neighbours
from probssl.parts.recipe import Named, Recipe
from probssl.parts.resolve import Resolved

MODELS = ("laplace", "normal", "anisotropic", "vmf")
"""What the step of a source from a row to its positive may be distributed like."""

ON_SPHERE = ("anisotropic", "vmf")

NEGLIGIBLE = 1e-6
"""Share of the largest standard deviation below which a direction of the code is left at its own scale."""


class ContrastiveICA(RowEstimator):
    """Nonlinear ICA: undoes an unknown invertible mixing x = g(z) from pairs (x, x̃) whose sources z and z̃ are close.

    An encoder f minimises InfoNCE, the mean of −log q(x | x̃) with q(x | x̃) ∝ p(x) e^{−δ(f(x), f(x̃))}. Where some f
    makes δ the true −log p(z̃ | z), every minimiser does, and f ∘ g is affine and an isometry of δ (CL-ICA Theorems 2
    and 6, AnInfoNCE Theorem 3.1): the sources are found up to what leaves δ as it is.

    - `model="laplace"`, δ = Σ_k |f_k − f̃_k|: order, sign and scale; the steps z̃ − z are independent and peaked.
    - `"normal"`, δ = ½ ‖f − f̃‖²: any rotation of the sources, each in units of its own step. The outputs are the
      principal axes of that, which are the sources where these are uncorrelated and no two are equally predictable.
    - `"anisotropic"`, δ = ½ (f − f̃)ᵀ Λ̂ (f − f̃) on the unit sphere with Λ̂ learnt: rotation among equal Λ_k.
    - `"vmf"`, δ = −κ fᵀf̃ on the unit sphere: any rotation.

    X is a table [n, features]: an array, a data frame, or whatever `probssl.load` reads.

    Parameters:
        model: How the steps of sources are distributed: "laplace", "normal", "anisotropic" or "vmf", as above.
        dim: Number of sources; as many as features if None.
        lag: How many rows apart neighbours in time are: an integer or several. Not used if positives are given.
        concentration: κ of "vmf"; the Λ̂ of "anisotropic" starts at half to twice this.
        steps: Number of training steps.
        batch_size: Number of pairs per step.
        lr: Learning rate, at its highest.
        settings: All other settings by path, for example `{"encoder.hidden": (64, 64)}`; the default is three hidden
            layers of eight units per feature and at least 64.
        random_state: Seed of initial weights and batches. An integer makes results reproducible.
        verbose: Whether to show a progress bar.

    Attributes:
        offset_, axes_: [dim] and [dim, dim]; sources are (f − offset) · axes.
        concentrations_: [dim], in decreasing order: how predictable each source is. All others are those of
            `RowEstimator`; `model_` has the encoder alone and neither offset nor axes.
    """

    _fitted = "axes_"
    _advice = "a lower lr, fewer dimensions, another model or, for a recording, another lag"
    objective_: InfoNCE

    def __init__(
        self,
        model: str = "laplace",
        *,
        dim: int | None = None,
        lag: int | Sequence[int] = 1,
        concentration: float = 10.0,
        steps: int = 2000,
        batch_size: int = 256,
        lr: float = 0.01,
        settings: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.dim = dim
        self.lag = lag
        self.concentration = concentration
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.settings = settings
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: Any = None, *, X_positive: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> ContrastiveICA:
        """Train on the rows of X [n, features] and their positives. Warns if training ends in a collapse.

        The positives are `X_positive` [n, features], row by row, by name or as the second argument: a second argument
        of two dimensions is positives, one of a single dimension is taken for labels, as scikit-learn passes
        them, and ignored. Without positives the rows are a recording in time order, and every row has those `lag` rows
        later as positives; `groups` [n], one label per row, keeps pairs within recordings.
        """
        rows = self._training_rows(X)
        self._start(self._choices(rows, seed_of(self.random_state)), rows)
        self._train(self._source(rows, y, X_positive, groups).float())
        self._orient(rows)
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Sources [n, dim] in the precision of X: single for float32, double for anything else.

        They come by falling concentration, the most predictable first. On R^n they have mean 0 and variance 1 over the
        rows of the training, on the sphere length 1.
        """
        x = self._inputs(self._fitted_rows(X))
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
        source = self._source(self._fitted_rows(X, least=2), y, X_positive, groups)
        generator = torch.Generator().manual_seed(SCORE_SEED)
        views = source.double().draw(len(source.pairs), self.objective_.needs, generator)
        return information(self.encoder_, self.objective_.energy, views.x, views.augmented[0], generator)

    @property
    def _n_features_out(self) -> int:
        return len(self.axes_)

    # What the parameters say

    def _choices(self, rows: Rows, seed: int) -> Resolved:
        """The recipe of a model, filled in."""
        dim, features, sphere = self._sources(), rows.layout.shape[0], self.model in ON_SPHERE
        base = Recipe(
            Named("infonce", {"anchor": "symmetric"}),
            self._energy(dim),
            encoder=Named("latent", {"hidden": [max(64, 8 * features)] * 3, "sphere": sphere, "dim": dim}),
        )
        resolved = self._resolved(self._recipe(base, seed), rows)
        if resolved.plan.objective_lr is None:  # Λ̂ is a number of the order of ten, and weights are of one
            plan = dataclasses.replace(resolved.plan, objective_lr=10 * resolved.plan.lr)
            resolved = dataclasses.replace(resolved, plan=plan)
        return resolved

    def _sources(self) -> int:
        """How many there are."""
        features, sphere = self.n_features_in_, self.model in ON_SPHERE
        dim = (max(2, features) if sphere else features) if self.dim is None else _whole("dim", self.dim)
        if sphere and dim < 2:
            raise InputError(f"a sphere has at least two dimensions, not {dim}: choose another model or dim")
        if not sphere and dim > features:
            raise InputError(f"there cannot be more sources than features: dim is {dim}, X has {features} features")
        return dim

    def _energy(self, dim: int) -> Energy:
        concentration = self.concentration
        if not isinstance(concentration, numbers.Real) or not 0 < float(concentration) < math.inf:
            raise InputError(f"concentration must be positive and finite, not {concentration!r}")
        if self.model == "laplace":
            return PNorm(1)
        if self.model == "normal":
            return Euclidean()
        if self.model == "anisotropic":
            # From equal ones, two sources can stay turned by 45° into one another, where Λ̂ has no slope to leave by.
            return Anisotropic(concentration * torch.logspace(-1, 1, dim, base=2.0), normalise=True)
        if self.model == "vmf":
            return Cosine(1 / concentration)
        raise InputError(f"there is no model {self.model!r}: choose one of {', '.join(MODELS)}")

    # Rows

    def _source(self, rows: Rows, y: Any, X_positive: Any, groups: Any) -> RowPairs:
        """Which rows belong together, as given to `fit` and `score`."""
        if y is not None and np.asarray(y).ndim != 1:
            if X_positive is not None:
                raise InputError("positives were given both as the second argument and as X_positive")
            X_positive = y
        if X_positive is None:
            return self._in_time(rows, groups)
        if groups is not None:
            raise InputError("groups are only for neighbours in time: leave them out where positives are given")
        shape = np.asarray(X_positive).shape
        if shape != rows.values.shape:
            raise InputError(f"positives must have the shape of X, {rows.values.shape}, one for each row, not {shape}")
        both = torch.cat([self._inputs(rows), self._inputs(self._rows(X_positive))])
        number = torch.arange(len(rows))
        return RowPairs(both, torch.stack([number, number + len(rows)], 1))

    def _in_time(self, rows: Rows, groups: Any) -> RowPairs:
        """Neighbours in time, within their group."""
        lags = [_whole("lag", lag) for lag in _several("lag", self.lag)]
        labels = None
        if groups is not None:
            if np.shape(groups) != (len(rows),):
                raise InputError(f"groups must be {len(rows)} labels, one per row, not of shape {np.shape(groups)}")
            labels = torch.as_tensor(np.unique(groups, return_inverse=True)[1])
        pairs = neighbours(len(rows), lags, labels)
        if len(pairs) < 2:
            raise InputError(
                f"{len(rows)} rows have {len(pairs)} pairs of neighbours at lag {self.lag}, but at least two are needed"
            )
        return RowPairs(self._inputs(rows), pairs)

    def _orient(self, rows: Rows) -> None:
        """Axes, order and scale of the sources within the code: what the model leaves open is chosen here."""
        energy = self.objective_.energy
        if self.model in ON_SPHERE:
            dim = self.model_.dim
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
        raise InputError(f"{name} must be a whole number or a sequence of them, not {value!r}")
    return list(value)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
    return int(value)
