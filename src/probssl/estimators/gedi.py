"""GEDIClusterer: clusters, a density and samples of it, from one network and no labels, as a scikit-learn clusterer."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.data import Standardiser
from probssl.encoders import MLP, encode, seeded
from probssl.errors import InputError
from probssl.estimators.common import conclude, in_precision, seed_of
from probssl.objectives import GEDI
from probssl.pairings import MaskAndNoise
from probssl.recipe import BASE_SCALE
from probssl.samplers import SGLD, NormalStart
from probssl.training import ProgressBar, TrainingPlan, fit

STARTS = ("k-means", "random")
AT_ONCE = 8192
WARM_UP = 100
"""Steps in which the network learns the clusters that k-means found."""


class GEDIClusterer(ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, BaseEstimator):
    """One network that clusters rows, says how likely they are, and draws new ones   (GEDI §4).

    p(y, x) ∝ e^{U_yᵀψ(x)}, with an encoder ψ and cluster centres U trained without labels to minimise

        generative · [E(x) − E(x̂)] + invariance · CE(p(y | x̃), p(y | x)) + balance · CE(p(y), mean p(y | x)),

    E(x) = −log Σ_y e^{U_yᵀψ(x)} + ‖x‖²/18, the last so that what lies far outside is unlikely, x̃ a masked and noisy
    copy of a row and x̂ samples of p(x) by Langevin dynamics.

    Parameters: `n_clusters`, or with `prior="learnt"` the most there may be; `prior`, "uniform", "learnt" or a
    distribution [n_clusters]; the weights `generative`, `invariance` and `balance`; `preservation` and `noise` of the
    copies; `hidden` widths (one, of four for each feature and at least 64) and `dim`, the size of the representation
    (that of the clusters, at least 2); `init`, "k-means" to begin from the clusters that k-means finds in the rows, or
    "random"; `sgld_steps` and `sgld_step_size` of the dynamics in units of a feature's standard deviation, `chains` and
    the chance `reinitialise` that one begins anew; `magnitude` keeps energies from drifting off; `steps`, `batch_size`
    and `lr`; `random_state`, of which a whole number decides the result; `verbose` for a progress bar.

    Fitted attributes: `labels_`, `encoder_` (ψ) and `objective_`, torch modules in single precision, `standardiser_`,
    `history_`, the rows of the training log, `collapsed_`, the collapses standing at the end with the step at which
    each set in, `n_features_in_`, and `feature_names_in_` for data frames.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        prior: str | ArrayLike = "uniform",
        generative: float = 0.1,
        invariance: float = 1.0,
        balance: float = 4.0,
        magnitude: float = 0.01,
        preservation: float = 0.7,
        noise: float = 0.5,
        hidden: Sequence[int] | None = None,
        dim: int | None = None,
        init: str = "k-means",
        sgld_steps: int = 5,
        sgld_step_size: float = 0.02,
        chains: int = 1000,
        reinitialise: float = 0.05,
        steps: int = 600,
        batch_size: int = 256,
        lr: float = 0.003,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.prior = prior
        self.generative = generative
        self.invariance = invariance
        self.balance = balance
        self.magnitude = magnitude
        self.preservation = preservation
        self.noise = noise
        self.hidden = hidden
        self.dim = dim
        self.init = init
        self.sgld_steps = sgld_steps
        self.sgld_step_size = sgld_step_size
        self.chains = chains
        self.reinitialise = reinitialise
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Any = None) -> GEDIClusterer:
        """Train on the rows of X [n, features]; y is ignored. Warns when training ends collapsed."""
        rows = self._rows(X, reset=True, least=2)
        if self.init not in STARTS:
            raise InputError(f"init is {' or '.join(map(repr, STARTS))}, not {self.init!r}")
        if not isinstance(self.n_clusters, numbers.Integral) or not 1 <= self.n_clusters <= len(rows):
            raise InputError(f"n_clusters must lie between 1 and the {len(rows)} rows, not {self.n_clusters!r}")
        seed = seed_of(self.random_state)
        self.standardiser_: Standardiser = Standardiser.fit(rows)
        x = self._inputs(rows).float()
        pairing = MaskAndNoise(self.preservation, self.noise)
        dim = max(2, int(self.n_clusters)) if self.dim is None else int(self.dim)
        widths = [max(64, 4 * x.shape[1])] if self.hidden is None else [int(width) for width in self.hidden]
        self.encoder_: nn.Module = seeded(seed, lambda: MLP.of([x.shape[1], *widths, dim]))
        self.objective_: GEDI = seeded(seed + 1, lambda: self._objective(x, dim))
        plan = TrainingPlan(steps=self.steps, batch_size=self.batch_size, lr=self.lr, clip_norm=1.0, optimiser="adam")
        if self.init == "k-means":
            self._begin_with_k_means(x, pairing, seed)
        reporter = ProgressBar() if self.verbose else None
        fitted = fit(self.encoder_, self.objective_, pairing, x, plan, seed=seed, reporter=reporter)
        self.encoder_.eval()
        self.objective_.eval()
        self.history_: list[dict[str, Any]] = fitted.history
        self.collapsed_: dict[str, int] = fitted.collapsed
        conclude(fitted, 0, "a larger balance, a lower lr, weaker noise or a higher preservation", stacklevel=2)
        self.labels_ = self._logits(rows).argmax(1).numpy()
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most likely cluster of each row: [n]."""
        return self._logits(self._fitted_rows(X)).argmax(1).numpy()

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """p(y | x) for each row: [n, n_clusters], rows sum to 1."""
        return self._logits(self._fitted_rows(X)).softmax(1).numpy()

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Representations ψ(x) in the precision of X: [n, dim]."""
        x = self._inputs(self._fitted_rows(X))
        return encode(in_precision(self.encoder_, x.dtype), x).numpy()

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
        check_is_fitted(self, "encoder_")
        generator = torch.Generator().manual_seed(seed_of(self.random_state))
        found = self.objective_.generate(self.encoder_, n_samples, steps, generator)
        rows = found.numpy().astype(np.float64) * self.standardiser_.scale + self.standardiser_.mean
        return rows, self._logits(rows).argmax(1).numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.objective_.head.weight.shape[1]

    # Small steps

    def _objective(self, x: Tensor, dim: int) -> GEDI:
        prior: Any = self.prior
        if not isinstance(prior, str):
            prior = torch.as_tensor(np.asarray(prior, dtype=np.float64), dtype=torch.get_default_dtype())
        made = GEDI(
            int(self.n_clusters),
            generative=self.generative,
            invariance=self.invariance,
            balance=self.balance,
            magnitude=self.magnitude if self.generative else 0.0,
            prior=prior,
            base_scale=BASE_SCALE,
            chains=self.chains,
            reinitialise=self.reinitialise,
            start=NormalStart.around(x),
            sampler=SGLD(steps=self.sgld_steps, step_size=self.sgld_step_size),
        )
        return made.bind(dim=dim, batch_size=self.batch_size)

    def _begin_with_k_means(self, x: Tensor, pairing: MaskAndNoise, seed: int) -> None:
        """Train the classifier on the clusters of k-means, so that GEDI begins from them."""
        found = KMeans(int(self.n_clusters), n_init=10, random_state=seed % 2**32).fit_predict(x.numpy())
        labels, generator = torch.as_tensor(found, dtype=torch.long), torch.Generator().manual_seed(seed)
        parameters = [*self.encoder_.parameters(), *self.objective_.head.parameters()]
        optimiser = torch.optim.Adam(parameters, lr=self.lr)
        for _ in range(min(WARM_UP, self.steps)):
            some = torch.randint(len(x), (min(self.batch_size, len(x)),), generator=generator)
            logits = self.objective_.logits(self.encoder_, pairing.sample(x[some], generator))
            optimiser.zero_grad()
            F.cross_entropy(logits, labels[some]).backward()
            optimiser.step()

    def _rows(self, X: ArrayLike, *, reset: bool = False, least: int = 1) -> np.ndarray:
        return validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=least)

    def _fitted_rows(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self, "encoder_")
        return self._rows(X)

    def _inputs(self, rows: np.ndarray) -> Tensor:
        return torch.tensor(self.standardiser_.transform(rows), dtype=getattr(torch, rows.dtype.name))

    @torch.no_grad()
    def _logits(self, rows: np.ndarray) -> Tensor:
        x = self._inputs(rows)
        encoder, head = (in_precision(part, x.dtype) for part in (self.encoder_, self.objective_.head))
        return head(encode(encoder, x))
