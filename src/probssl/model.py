"""A trained model: encoder, scaling and the recipe that made them, in one safetensors file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import probssl
from probssl.data import Standardiser, Table, load, select_features
from probssl.encoders import encode
from probssl.errors import CheckpointError, InputError
from probssl.objectives import Objective
from probssl.recipe import Recipe
from probssl.training.checkpoints import gather, restore
from probssl.training.files import load_tensors, save_tensors

FORMAT = 1


@dataclass
class Model:
    """Standardises rows as the training data was, and encodes them. Of a world, the encoder itself whitens them."""

    recipe: Recipe
    encoder: nn.Module
    objective: Objective
    standardiser: Standardiser
    feature_names: tuple[str, ...]
    label_name: str | None = None

    @classmethod
    def untrained(cls, recipe: Recipe, table: Table) -> Model:
        """The model before its first step: initial weights from the seed, scaling from the table, of a world none."""
        features = table.n_features
        recipe = recipe.for_features(features)
        as_it_is = Standardiser(np.zeros(features), np.ones(features))
        return cls(
            recipe=recipe,
            encoder=recipe.build_encoder(features),
            objective=recipe.build_objective(features, len(table)),
            standardiser=Standardiser.fit(table.features) if recipe.world is None else as_it_is,
            feature_names=table.feature_names,
            label_name=table.label_name,
        )

    def inputs(self, features: np.ndarray) -> Tensor:
        """Rows as the encoder takes them: standardised, single precision, one after the other in memory.

        The layout decides how a matrix product rounds: of equal rows every path must make equal representations.
        """
        return torch.from_numpy(self.standardiser.transform(features).astype(np.float32, order="C"))

    def embed(self, data: Table | np.ndarray | str | os.PathLike[str]) -> np.ndarray:
        """Representations [n, dim] of rows of a table, of an array in the training data's columns, or of a file."""
        if isinstance(data, Table):
            features = select_features(data, self.feature_names).features
        else:
            features = load(data, features=self.feature_names, seed=self.recipe.seed % 2**32).features
        return encode(self.encoder, self.inputs(features)).numpy()

    def save(self, path: Path) -> None:
        """Write the model to one file, atomically."""
        tensors = {
            **gather("encoder", self.encoder.state_dict()),
            **gather("objective", self.objective.state_dict()),
            "standardiser.mean": torch.from_numpy(self.standardiser.mean),
            "standardiser.scale": torch.from_numpy(self.standardiser.scale),
        }
        metadata: dict[str, Any] = {
            "format": FORMAT,
            "probssl": probssl.__version__,
            "recipe": self.recipe.as_dict(),
            "feature_names": list(self.feature_names),
            "label_name": self.label_name,
        }
        save_tensors(path, tensors, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Read a model file, or the one in a run's folder. Nothing in the file is ever executed."""
        path = Path(path)
        if path.is_dir():
            path = path / "model.safetensors"
            if not path.exists():
                raise CheckpointError(f"{path.parent} holds no finished model: train it to the end first")
        tensors, metadata = load_tensors(path)
        if "recipe" not in metadata:
            raise CheckpointError(f"{path} is a checkpoint, not a model")
        if metadata["format"] > FORMAT:
            raise CheckpointError(f"{path} was written by a newer probssl ({metadata['probssl']}): update probssl")
        recipe = Recipe.from_dict(metadata["recipe"])
        names = tuple(metadata["feature_names"])
        memory = tensors.get("objective.bank")  # a place for every row of the training table
        model = cls(
            recipe=recipe,
            encoder=recipe.build_encoder(len(names)),
            objective=recipe.build_objective(len(names), None if memory is None else len(memory)),
            standardiser=Standardiser(tensors["standardiser.mean"].numpy(), tensors["standardiser.scale"].numpy()),
            feature_names=names,
            label_name=metadata["label_name"],
        )
        try:
            restore(model.encoder, "encoder", tensors)
            restore(model.objective, "objective", tensors)
        except CheckpointError as error:
            raise InputError(f"{path} does not fit its own recipe ({error})") from error
        return model
