"""What the estimators share: rows, scaling, a recipe and its training, and a score in nats."""

from __future__ import annotations

import copy
import inspect
import math
import numbers
import os
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from probssl.data import ImageSet, Preparation, Rows, Table, check_images, is_dataset, load
from probssl.data.columns import generated_names
from probssl.data.wording import listed
from probssl.encoders import encode
from probssl.energies import Energy
from probssl.errors import CollapseWarning, InputError, NonFiniteLoss
from probssl.model import Model, facts_of
from probssl.objectives import InfoNCE, Objective
from probssl.pairings import Source, Views
from probssl.parts.recipe import SLOTS, Recipe, agreed
from probssl.parts.resolve import Resolved, resolve
from probssl.runs.planning import check_memory
from probssl.training import ProgressBar, TrainingPlan, fit
from probssl.training.watch import MEANING

SCORE_ROWS = 1024
"""Most pairs that a score contrasts with one another."""

SCORE_SEED = 0
"""Decides the blocks and the augmentations of every score, so that scores of different estimators compare."""

SHORT = {"dim": "encoder.dim", "steps": "plan.steps", "batch_size": "plan.batch_size", "lr": "plan.lr"}
"""Settings that are parameters of their own, with their paths in a recipe."""

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class RowEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """An estimator that trains the parts of a recipe on rows, and represents rows by its encoder.

    Attributes:
        model_: The trained `probssl.Model`, which can be saved to a file.
        encoder_, objective_: Its torch modules, in single precision.
        preparation_: What becomes of columns before they reach the encoder; None for images.
        recipe_: The recipe, with every choice spelled out.
        n_steps_: Number of training steps so far.
        history_: The training log, a dictionary per row.
        collapsed_: Collapses that persist at the end, with the step at which each set in; empty if there are none.
        n_features_in_, feature_names_in_: Number of features of a table, and their names if it has any.
    """

    _of_images: ClassVar[bool] = False
    """Whether X may be images as well as a table."""

    _of_mixed: ClassVar[bool] = False
    """Whether a table may hold categories, dates, texts and gaps beside numbers."""

    _advice: ClassVar[str] = "a lower lr"
    """What to try after a collapse."""

    _fitted: ClassVar[str] = "encoder_"
    """The attribute that training ends with."""

    model_: Model
    encoder_: nn.Module
    objective_: Objective
    preparation_: Preparation | None
    recipe_: Recipe
    n_steps_: int
    history_: list[dict[str, Any]]
    collapsed_: dict[str, int]

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Representations [n, dim] in the precision of X: single for float32 and images, double for anything else."""
        x = self._inputs(self._fitted_rows(X))
        return encode(in_precision(self.encoder_, precision_of(x)), x).numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.allow_nan = self._of_mixed
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.model_.dim

    # Rows

    def _rows(self, X: Any, *, reset: bool = False, least: int = 1) -> Rows:
        """Rows of a table as scikit-learn checks them, or images, in their own precision."""
        columns: tuple[Any, ...] = ()
        if _readable(X):
            data = load(X, layout=None if reset else self.model_.layout)
            X, columns = data.batch(data.rows()).numpy(), data.layout.columns
        if self._of_images and getattr(X, "ndim", 0) == 4:
            return ImageSet("array", self._images(np.asarray(X), reset, least))
        if not reset and self.preparation_ is None:
            raise InputError(f"the model takes images of shape {self.model_.facts.shape}, but X is a table")
        with warnings.catch_warnings():
            if columns:  # which were chosen by their names already
                warnings.filterwarnings("ignore", "X does not have valid feature names")
            kind = {"dtype": [np.float64, np.float32], "order": "C"}  # the order in memory decides how sums round
            finite = "allow-nan" if self._of_mixed else True
            rows = validate_data(self, X, reset=reset, ensure_min_samples=least, ensure_all_finite=finite, **kind)
        if not self._of_mixed and any(column.coded for column in columns):
            words = listed([column.name for column in columns if column.coded])
            raise InputError(
                f"{type(self).__name__} is of numbers, and {words} are not: leave them out, or encode them"
            )
        names = tuple(column.name for column in columns)
        if reset and names != generated_names(len(names)):
            self.feature_names_in_ = np.array(names, dtype=object)
        usual = tuple(getattr(self, "feature_names_in_", generated_names(rows.shape[1])))
        return Table("array", rows, columns or usual)

    def _images(self, X: np.ndarray, reset: bool, least: int) -> np.ndarray:
        images = check_images(np.ascontiguousarray(X), "the images")
        if len(images) < least:
            raise InputError(f"at least {least} images are needed, and X has {len(images)}")
        if reset:  # nothing stays of a table that it was fitted to before
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
        elif self.preparation_ is not None:
            raise InputError(f"the model takes tables of {self.n_features_in_} features, but X is images")
        elif images.shape[1:] != self.model_.facts.shape:
            raise InputError(f"the model takes images of shape {self.model_.facts.shape}, not {images.shape[1:]}")
        return images

    def _training_rows(self, X: Any, *, reset: bool = True) -> Rows:
        """Rows to train on; of a data set with test rows, the others."""
        if _readable(X):
            X = load(X)
            X = X.take(X.rows("train"))
        return self._rows(X, reset=reset, least=2)

    def _fitted_rows(self, X: Any, *, least: int = 1) -> Rows:
        check_is_fitted(self, self._fitted)
        return self._rows(X, least=least)

    def _inputs(self, rows: Rows) -> Tensor:
        """Rows as the encoder takes them, in their own precision; images as bytes or single precision."""
        if self.preparation_ is None:
            return torch.from_numpy(rows.values)
        prepared = self.preparation_.transform(rows.layout, rows.values.astype(np.float64))
        return torch.from_numpy(prepared.astype(rows.values.dtype, order="C"))

    def _in_single(self, rows: Rows) -> Tensor:
        """The same in single precision, in which networks are trained."""
        x = self._inputs(rows)
        return x if x.dtype == torch.uint8 else x.float()

    # Training

    def _recipe(self, base: Recipe, seed: int, **settings: Any) -> Recipe:
        """The parameters on top of a recipe; settings by their path, then those that the user gave."""
        own = {} if self.settings is None else self.settings
        if not isinstance(own, Mapping) or not all(isinstance(path, str) for path in own):
            raise InputError(f'settings is a dict by path, for example {{"plan.warmup": 0}}, not {own!r}')
        short = {path: getattr(self, name, None) for name, path in SHORT.items()}
        given = {path: value for path, value in {**settings, **short}.items() if value is not None}
        usual = {name: parameter.default for name, parameter in inspect.signature(type(self)).parameters.items()}
        agreed(
            {SHORT[name]: getattr(self, name) for name in SHORT.keys() & usual if getattr(self, name) != usual[name]},
            own,
        )
        parts = {slot: getattr(self, slot, None) for slot in SLOTS}
        return base.with_choices(**parts, seed=seed).with_settings(given).with_settings(own)

    def _resolved(self, recipe: Recipe, rows: Rows) -> Resolved:
        return resolve(recipe, facts_of(rows))

    def _start(self, resolved: Resolved, rows: Rows, preparation: Preparation | None = None) -> None:
        """The model before its first step, which learns from the rows how to prepare them unless that is given."""
        check_memory(resolved, rows, "none")
        self.model_ = model = Model.of(resolved, rows, preparation)
        self.recipe_, self.preparation_ = model.recipe, model.preparation
        self.encoder_, self.objective_ = model.encoder, model.objective
        self.n_steps_, self.history_, self.collapsed_ = 0, [], {}

    def _train(self, rows: Rows | Source, plan: TrainingPlan | None = None, seed: int | None = None) -> None:
        """Train on, and warn the caller of `fit` of a collapse that stands at the end; plan and seed are the recipe's.

        Rows are augmented by the pairing of the model; a source makes pairs by itself.
        """
        resolved, before = self.model_.resolved, self.n_steps_
        source: Any = rows if isinstance(rows, Source) else self.model_.pairing
        fitted = fit(
            self.encoder_,
            self.objective_,
            source,
            None if isinstance(rows, Source) else self._in_single(rows),
            resolved.plan if plan is None else plan,
            seed=resolved.seed if seed is None else seed,
            reporter=ProgressBar() if self.verbose else None,
        )
        for module in (self.encoder_, self.objective_):
            module.eval()
        self.n_steps_ += fitted.steps
        news = [row for row in fitted.history if row["step"] > 0 or before == 0]  # step 0 is where the last call ended
        self.history_ += [{**row, "step": row["step"] + before} for row in news]
        self.collapsed_ = {kind: step + before for kind, step in fitted.collapsed.items()}
        if fitted.interrupted:
            raise KeyboardInterrupt
        if fitted.failure is not None:
            raise NonFiniteLoss(
                f"training stopped at step {self.n_steps_} because {fitted.failure}: lower lr, or check for extreme "
                "values"
            )
        for kind, step in self.collapsed_.items():
            message = f"training ended in {MEANING[kind]} (since step {step}): try {self._advice}"
            warnings.warn(message, CollapseWarning, stacklevel=3)


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """A whole number as it is; else one drawn from the generator, or from NumPy's own."""
    generator = check_random_state(random_state)
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(generator.randint(2**31 - 1))


def in_precision(module: ModuleT, dtype: torch.dtype) -> ModuleT:
    """A copy of a module in another precision."""
    return copy.deepcopy(module).to(dtype)


def information(encoder: nn.Module, energy: Energy, x: Tensor, augmented: Tensor, generator: torch.Generator) -> float:
    """log n − InfoNCE of pairs (x, x̃) [n, ...]: the nats that x̃ tells about x, at most log n.

    Pairs are contrasted within random blocks of near equal size, at most `SCORE_ROWS`, and n is the size of the block,
    so that memory does not grow with n².
    """
    encoder, energy = in_precision(encoder, x.dtype).eval(), in_precision(energy, x.dtype)
    infonce = InfoNCE(energy).eval()
    order = torch.randperm(len(x), generator=generator)
    total = 0.0
    with torch.no_grad():
        for block in order.tensor_split(math.ceil(len(x) / SCORE_ROWS)):
            loss = infonce(encoder, Views(x[block], augmented[block].unsqueeze(0))).total
            total += len(block) * (math.log(len(block)) - loss.item())
    return total / len(x)


def _readable(X: Any) -> bool:
    """Whether it is a data set of ours, the name or file of one, or a frame of more than numbers."""
    if isinstance(X, (str, os.PathLike)) or is_dataset(X):
        return True
    import narwhals as nw

    frame = nw.from_native(X, pass_through=True, eager_only=True)
    if not isinstance(frame, nw.DataFrame):
        return False
    return not all(kind.is_numeric() or kind == nw.Boolean for kind in frame.schema.values())


def precision_of(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.float32
