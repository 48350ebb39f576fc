"""SiameseEncoder: any objective, energy, pairing and encoder on rows, as a scikit-learn transformer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from probssl.data import Preparation, Rows
from probssl.encoders import as_floats
from probssl.errors import InputError
from probssl.estimators.common import SCORE_SEED, RowEstimator, information, seed_of
from probssl.parts.recipe import Recipe
from probssl.parts.resolve import Resolved, resolve


class SiameseEncoder(RowEstimator):
    """Learns to represent rows from the rows alone: q(x | x̃) ∝ p(x) e^{−δ(ψ(x), ψ(x̃))} for augmented copies x̃.

    X is a table [n, features] or images [n, channels, height, width]: arrays, data frames, or whatever `probssl.load`
    reads. Parts are given by name (`probssl parts` lists them) or as objects, which are copied and never trained in
    place. What is None is chosen to suit the data, as in `probssl.fit`.

    Parameters:
        objective: The loss to train with: a name such as "infonce", or an `Objective`.
        energy: What "alike" means between embeddings: a name or an `Energy`. Objectives that have an energy of their
            own take none.
        pairing: How rows are augmented: a name or a `Pairing`.
        encoder: The network ψ: a name, or any `nn.Module` that maps a batch to [n, dim].
        head: A projection head, which the loss sees and the representation leaves out: a name or a `ProjectionHead`.
        dim: Number of dimensions of the representation.
        steps: Number of training steps.
        batch_size: Number of rows per step; all rows if there are fewer.
        lr: Learning rate, at its highest.
        settings: All other settings by path, for example `{"pairing.preservation": 0.8, "plan.warmup": 0}`.
        standardise: Whether to scale every feature of a table to mean 0 and variance 1 over the rows given first.
        random_state: Seed of initial weights, batches and augmentations. An integer makes results reproducible, and is
            the seed of a recipe.
        verbose: Whether to show a progress bar.

    Attributes are those of `RowEstimator`.
    """

    _of_images = True
    _of_mixed = True
    _advice = "a lower lr, a weaker augmentation, fewer dimensions, or another objective or energy"

    def __init__(
        self,
        objective: Any = "infonce",
        *,
        energy: Any = None,
        pairing: Any = None,
        encoder: Any = None,
        head: Any = None,
        dim: int | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        settings: Mapping[str, Any] | None = None,
        standardise: bool = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.objective = objective
        self.energy = energy
        self.pairing = pairing
        self.encoder = encoder
        self.head = head
        self.dim = dim
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.settings = settings
        self.standardise = standardise
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Any = None) -> SiameseEncoder:
        """Train from scratch on the rows of X; y is ignored. Warns if training ends in a collapse."""
        rows = self._training_rows(X)
        self._begin(self._resolved(self._recipe(Recipe(), seed_of(self.random_state)), rows), rows)
        self._train(rows)
        return self

    def partial_fit(self, X: ArrayLike, y: Any = None, steps: int | None = None) -> SiameseEncoder:
        """Train `steps` more steps (default: the parameter) on the rows of X, at a constant learning rate.

        The first call fixes scaling, objective, augmentation and initial weights; later calls follow changes of the
        optimisation's parameters alone. Each call starts with a fresh optimiser and a fresh watch for collapse.
        """
        first = not hasattr(self, "encoder_")
        rows = self._training_rows(X, reset=first)
        recipe = self._recipe(Recipe(), seed_of(self.random_state) if first else self.recipe_.seed)
        if steps is not None:
            recipe = recipe.with_settings({"plan.steps": steps})
        resolved = self._resolved(recipe, rows) if first else resolve(recipe, self.model_.facts)
        begun = resolved if first else self.model_.resolved
        if begun.objective.needs.index:
            raise InputError(f"{begun.called('objective')} remembers the rows it was first trained on: use fit")
        if first:
            self._begin(resolved, rows)
        plan = dataclasses.replace(resolved.plan, warmup=0, anneal="constant")
        seed = np.random.SeedSequence([self.recipe_.seed, self.n_steps_]).generate_state(1)
        self._train(rows, plan, int(seed[0]))
        return self

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """How many nats an augmentation tells about its source among the rows of X; higher is better, y is ignored.

        log n − InfoNCE with the estimator's own energy, for one augmentation of every row: what log q(x | x̃) gains
        over a guess. In expectation over new rows a lower bound on I(x; x̃), never above log n. Rows are contrasted
        within random blocks of near equal size, at most 1024, and n is the size of the block.
        """
        x = as_floats(self._inputs(self._fitted_rows(X, least=2)))
        x = x.double() if x.ndim == 2 else x
        generator = torch.Generator().manual_seed(SCORE_SEED)
        assert self.model_.pairing is not None
        augmented = self.model_.pairing.sample(x, generator)
        return information(self.encoder_, self.objective_.energy, x, augmented, generator)

    def _begin(self, resolved: Resolved, rows: Rows) -> None:
        raw = None
        if not self.standardise and rows.layout.kind == "table":
            raw = Preparation.fit(rows.layout, rows.values, scaled=False)
        self._start(resolved, rows, raw)
