"""SiameseEncoder: any objective and energy on the rows of a table, as a scikit-learn transformer."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from probssl.data import Standardiser
from probssl.encoders import encode
from probssl.errors import InputError
from probssl.estimators.common import SCORE_SEED, conclude, in_precision, information, seed_of
from probssl.objectives import Objective
from probssl.recipe import ENERGY_OF, WITH_MEMORY, Recipe
from probssl.training import ProgressBar, TrainingPlan, fit


class SiameseEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learns to represent rows from the rows alone: q(x | x̃) ∝ p(x) e^{−δ(ψ(x), ψ(x̃))} for masked, noisy copies x̃.

    Parameters are those of `probssl.recipe.Recipe`, with its defaults, but for three. `random_state` is the recipe's
    seed; the same whole number gives the same result, here and on the command line. `standardise` scales every feature
    to mean 0 and variance 1 as in the data given first. `verbose` shows a progress bar. Objectives with an energy of
    their own (spectral, simsiam, aninfonce, those that cluster, those without negatives) ignore `energy`.

    Fitted attributes: `encoder_` (ψ) and `objective_`, torch modules in single precision; `standardiser_`; `recipe_`,
    with dimensions and seed filled in; `n_steps_`; `history_`, the rows of the training log; `collapsed_`, the
    collapses standing at the end with the step at which each set in, empty when healthy; `n_features_in_`, and
    `feature_names_in_` for data frames.
    """

    def __init__(
        self,
        objective: str = "infonce",
        *,
        energy: str = "euclidean",
        asymmetry: str = "none",
        temperature: float = 0.1,
        p: float = 1.0,
        margin: float = 1.0,
        order: float = 2.0,
        slices: int = 1,
        clusters: int | None = None,
        generative: float = 0.1,
        invariance: float = 1.0,
        balance: float = 4.0,
        sgld_steps: int = 5,
        related: int = 10,
        likelihood: str = "gaussian",
        likelihood_variance: float | None = None,
        latent_variance: float = 0.15,
        mean_variance: float | None = None,
        beta: float = 4.0,
        consistency: float = 0.1,
        queue: int = 4096,
        momentum: float = 0.99,
        dim: int | None = None,
        hidden: tuple[int, ...] | None = None,
        head: tuple[int, ...] | None = None,
        preservation: float = 0.5,
        noise: float = 0.25,
        steps: int = 2000,
        batch_size: int = 256,
        optimiser: str = "adam",
        lr: float = 0.01,
        objective_lr: float | None = None,
        weight_decay: float = 0.0,
        warmup: int = 100,
        clip_norm: float = 1.0,
        precision: str = "float32",
        standardise: bool = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.objective = objective
        self.energy = energy
        self.asymmetry = asymmetry
        self.temperature = temperature
        self.p = p
        self.margin = margin
        self.order = order
        self.slices = slices
        self.clusters = clusters
        self.generative = generative
        self.invariance = invariance
        self.balance = balance
        self.sgld_steps = sgld_steps
        self.related = related
        self.likelihood = likelihood
        self.likelihood_variance = likelihood_variance
        self.latent_variance = latent_variance
        self.mean_variance = mean_variance
        self.beta = beta
        self.consistency = consistency
        self.queue = queue
        self.momentum = momentum
        self.dim = dim
        self.hidden = hidden
        self.head = head
        self.preservation = preservation
        self.noise = noise
        self.steps = steps
        self.batch_size = batch_size
        self.optimiser = optimiser
        self.lr = lr
        self.objective_lr = objective_lr
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.clip_norm = clip_norm
        self.precision = precision
        self.standardise = standardise
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Any = None) -> SiameseEncoder:
        """Train afresh on the rows of X [n, features]; y is ignored. Warns when training ends collapsed."""
        rows = self._rows(X, reset=True, least=2)
        self._begin(rows)
        self._train(rows, self.recipe_.plan(), self.recipe_.seed)
        return self

    def partial_fit(self, X: ArrayLike, y: Any = None, steps: int | None = None) -> SiameseEncoder:
        """Train `steps` further steps (default: the parameter) on the rows of X, at a constant learning rate.

        The first call fixes scaling, objective, augmentation and initial weights; later calls follow changes of the
        optimisation's parameters alone. Each call starts a fresh optimiser and a fresh watch for collapse.
        """
        if self.objective in WITH_MEMORY:
            raise InputError(f"the {self.objective} objective remembers the rows it began with: use fit")
        first = not hasattr(self, "encoder_")
        rows = self._rows(X, reset=first, least=2)
        if first:
            self._begin(rows)
        plan = dataclasses.replace(self._recipe(steps=self.steps if steps is None else steps).plan(), warmup=0)
        seed = np.random.SeedSequence([self.recipe_.seed, self.n_steps_]).generate_state(1)
        self._train(rows, dataclasses.replace(plan, anneal="constant"), int(seed[0]))
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Representations [n, dim] in the precision of X: single for float32, double for anything else."""
        check_is_fitted(self, "encoder_")
        x = self._inputs(self._rows(X))
        return encode(in_precision(self.encoder_, x.dtype), x).numpy()

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """How many nats an augmentation tells about its source among the rows of X; higher is better, y is ignored.

        log n − InfoNCE with the estimator's own energy, for one augmentation of every row: what log q(x | x̃) gains
        over a guess. In expectation over new rows a lower bound on I(x; x̃), never above log n. Rows are contrasted
        within random blocks of near equal size, at most 1024, and n is the size of the block.
        """
        check_is_fitted(self, "encoder_")
        x = self._inputs(self._rows(X, least=2)).double()
        generator = torch.Generator().manual_seed(SCORE_SEED)
        augmented = self.recipe_.build_pairing().sample(x, generator)
        return information(self.encoder_, self.objective_.energy, x, augmented, generator)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int | None:
        return self.recipe_.dim

    def _recipe(self, **changes: Any) -> Recipe:
        """The parameters as a recipe, checked."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(Recipe):
            value = changes.get(field.name, getattr(self, field.name, field.default))
            if value is not None or field.default is not None:
                values[field.name] = _plain(value)
        if str(values["objective"]) in ENERGY_OF:
            del values["energy"]
        return Recipe.from_dict(values)

    def _rows(self, X: ArrayLike, *, reset: bool = False, least: int = 1) -> np.ndarray:
        return validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=least)

    def _inputs(self, rows: np.ndarray) -> Tensor:
        """Rows as the encoder takes them, in their own precision."""
        return torch.tensor(self.standardiser_.transform(rows), dtype=getattr(torch, rows.dtype.name))

    def _begin(self, rows: np.ndarray) -> None:
        """Everything before the first step: scaling, initial weights, an empty history."""
        features = rows.shape[1]
        self.recipe_ = self._recipe(seed=seed_of(self.random_state)).for_features(features)
        identity = Standardiser(np.zeros(features), np.ones(features))
        self.standardiser_ = Standardiser.fit(rows) if self.standardise else identity
        self.encoder_: nn.Module = self.recipe_.build_encoder(features)
        self.objective_: Objective = self.recipe_.build_objective(features, len(rows))
        self.n_steps_ = 0
        self.history_: list[dict[str, Any]] = []
        self.collapsed_: dict[str, int] = {}

    def _train(self, rows: np.ndarray, plan: TrainingPlan, seed: int) -> None:
        before = self.n_steps_
        pairing = self.recipe_.build_pairing()
        reporter = ProgressBar() if self.verbose else None
        fitted = fit(
            self.encoder_, self.objective_, pairing, self._inputs(rows).float(), plan, seed=seed, reporter=reporter
        )
        self.n_steps_ += fitted.steps
        news = [row for row in fitted.history if row["step"] > 0 or before == 0]  # step 0 is where the last call ended
        self.history_ += [{**row, "step": row["step"] + before} for row in news]
        self.collapsed_ = {kind: step + before for kind, step in fitted.collapsed.items()}
        advice = "a lower lr, a weaker augmentation, fewer dimensions, or another objective or energy"
        conclude(fitted, before, advice, stacklevel=3)


def _plain(value: Any) -> Any:
    """NumPy's scalars and arrays as plain numbers and lists, sequences as lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_plain(entry) for entry in value] if isinstance(value, tuple | list) else value
