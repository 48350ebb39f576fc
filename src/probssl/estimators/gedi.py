"""GEDIClusterer: clusters, a density and samples of it, from one network and no labels, as a scikit-learn clusterer."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import ClusterMixin
from sklearn.cluster import KMeans
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import functional as F

from probssl.data import Rows
from probssl.encoders import encode
from probssl.errors import InputError
from probssl.estimators.common import RowEstimator, in_precision, seed_of
from probssl.objectives import GEDI
from probssl.parts.recipe import Named, Recipe
from probssl.training import TrainingPlan

STARTS = ("k-means", "random")
AT_ONCE = 8192
WARM_UP = 100
"""Steps in which the network learns the clusters that k-means found."""


class GEDIClusterer(ClusterMixin, RowEstimator):
    """One network that clusters rows, says how likely they are, and draws new ones   (GEDI §4).

    p(y, x) ∝ e^{U_yᵀψ(x)}, with an encoder ψ and cluster centres U trained without labels to minimise

        generative · [E(x) − E(x̂)] + invariance · CE(p(y | x̃), p(y | x)) + balance · CE(p(y), mean p(y | x)),

    E(x) = −log Σ_y e^{U_yᵀψ(x)} + ‖x‖²/18, the last so that what lies far outside is unlikely, x̃ an augmented copy of
    a row and x̂ samples of p(x) by Langevin dynamics. X is a table [n, features]: an array, a data frame, or whatever
    `probssl.load` reads.

    Parameters:
        n_clusters: Number of clusters; with `prior="learnt"`, at most this many.
        prior: Sizes of the clusters: "uniform", "learnt", or a distribution [n_clusters].
        generative: Weight of the density; 0 trains without one.
        invariance: Weight of clusters that augmentations do not change.
        balance: Weight of clusters that follow the prior.
        init: "k-means" to start from the clusters that k-means finds, or "random".
        pairing: How rows are augmented: a name or a `Pairing`, which is copied. If None, features are masked with
            probability 0.3 and noise of standard deviation 0.5 is added.
        encoder: The network ψ: a name, or any `nn.Module` that maps a batch to [n, dim], which is copied. If None, an
            MLP with one hidden layer of four units per feature and at least 64.
        dim: Number of dimensions of the representation; as many as clusters, and at least 2, if None.
        steps: Number of training steps.
        batch_size: Number of rows per step; all rows if there are fewer.
        lr: Learning rate, at its highest.
        settings: All other settings by path, for example `{"objective.sampler.step_size": 0.004, "encoder.hidden":
            (100, 100), "pairing.noise": 0.1, "objective.chains": 500}`; lengths are in standard deviations of features.
        random_state: Seed of initial weights, batches, augmentations and samples. An integer makes results
            reproducible.
        verbose: Whether to show a progress bar.

    Attributes:
        labels_: The cluster of each row that was trained on; all others are those of `RowEstimator`.
    """

    _fitted = "labels_"
    _advice = "a larger balance, a lower lr, weaker noise or a higher preservation"
    objective_: GEDI

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        prior: str | ArrayLike = "uniform",
        generative: float = 0.1,
        invariance: float = 1.0,
        balance: float = 4.0,
        init: str = "k-means",
        pairing: Any = None,
        encoder: Any = None,
        dim: int | None = None,
        steps: int = 600,
        batch_size: int = 256,
        lr: float = 0.003,
        settings: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.prior = prior
        self.generative = generative
        self.invariance = invariance
        self.balance = balance
        self.init = init
        self.pairing = pairing
        self.encoder = encoder
        self.dim = dim
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.settings = settings
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Any = None) -> GEDIClusterer:
        """Train on the rows of X [n, features]; y is ignored. Warns if training ends in a collapse."""
        rows = self._training_rows(X)
        if self.init not in STARTS:
            raise InputError(f"init must be {' or '.join(map(repr, STARTS))}, not {self.init!r}")
        if not isinstance(self.n_clusters, numbers.Integral) or not 1 <= self.n_clusters <= len(rows):
            raise InputError(f"n_clusters must lie between 1 and the {len(rows)} rows, not {self.n_clusters!r}")
        resolved = self._resolved(self._choices(rows.layout.shape[0], seed_of(self.random_state)), rows)
        self._start(resolved, rows)
        if self.init == "k-means":
            self._begin_with_k_means(self._in_single(rows), resolved.plan, resolved.seed)
        self._train(rows)
        self.labels_ = self._logits(rows).argmax(1).numpy()
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most likely cluster of each row: [n]."""
        return self._logits(self._fitted_rows(X)).argmax(1).numpy()

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """p(y | x) for each row: [n, n_clusters], rows sum to 1."""
        return self._logits(self._fitted_rows(X)).softmax(1).numpy()

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """log p(x) of each row up to one constant for all, in nats over standardised features: [n]."""
        x = self._inputs(self._fitted_rows(X))
        objective, encoder = in_precision(self.objective_, x.dtype), in_precision(self.encoder_, x.dtype)
        with torch.no_grad():
            return torch.cat([objective.log_density(encoder, part) for part in x.split(AT_ONCE)]).numpy()

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """The mean of `score_samples`: it compares rows under one model, and no two models."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, steps: int = 200) -> tuple[np.ndarray, np.ndarray]:
        """Draws from p(x) [n, features] and their clusters [n], by chains of the training moved on by `steps` steps."""
        check_is_fitted(self, self._fitted)
        generator = torch.Generator().manual_seed(seed_of(self.random_state))
        x = self.objective_.generate(self.encoder_, n_samples, steps, generator)
        return self.model_.in_units(x), self._logits_of(x).argmax(1).numpy()

    def _choices(self, features: int, seed: int) -> Recipe:
        base = Recipe(
            Named("gedi", {"clusters": int(self.n_clusters)}),
            pairing=Named("mask-and-noise", {"preservation": 0.7, "noise": 0.5}),
            encoder=Named("mlp", {"hidden": (max(64, 4 * features),), "dim": max(2, int(self.n_clusters))}),
        )
        own = {f"objective.{name}": getattr(self, name) for name in ("prior", "generative", "invariance", "balance")}
        return self._recipe(base, seed, **own)

    def _begin_with_k_means(self, x: Tensor, plan: TrainingPlan, seed: int) -> None:
        """Train the classifier on the clusters of k-means, so that GEDI begins from them."""
        found = KMeans(int(self.n_clusters), n_init=10, random_state=seed % 2**32).fit_predict(x.numpy())
        labels, generator = torch.as_tensor(found, dtype=torch.long), torch.Generator().manual_seed(seed)
        parameters = [*self.encoder_.parameters(), *self.objective_.head.parameters()]
        optimiser = torch.optim.Adam(parameters, lr=plan.lr)
        pairing = self.model_.pairing
        assert pairing is not None
        for _ in range(min(WARM_UP, plan.steps)):
            some = torch.randint(len(x), (min(plan.batch_size, len(x)),), generator=generator)
            logits = self.objective_.logits(self.encoder_, pairing.sample(x[some], generator))
            optimiser.zero_grad()
            F.cross_entropy(logits, labels[some]).backward()
            optimiser.step()

    def _logits(self, rows: Rows) -> Tensor:
        return self._logits_of(self._inputs(rows))

    @torch.no_grad()
    def _logits_of(self, x: Tensor) -> Tensor:
        encoder, head = (in_precision(part, x.dtype) for part in (self.encoder_, self.objective_.head))
        return head(encode(encoder, x))
