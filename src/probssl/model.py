"""A trained model: encoder, scaling and the recipe that made them, in one safetensors file."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

import probssl
from probssl.data import (
    IMAGES,
    Corrupt,
    ImageSet,
    Part,
    Progress,
    Standardiser,
    Table,
    check_images,
    images_of,
    load_images,
    load_table,
    select_features,
)
from probssl.encoders import encode
from probssl.errors import CheckpointError, InputError
from probssl.objectives import Objective
from probssl.observations import Observations
from probssl.recipe import Recipe
from probssl.training.checkpoints import gather, restore
from probssl.training.files import load_tensors, save_tensors

FORMAT = 1


Data = Table | ImageSet | np.ndarray | str | os.PathLike[str]
"""What a model takes: data at hand, an array, a file, a folder or a name."""


@dataclass
class Model:
    """Standardises rows as the training data was, and encodes them. Of a world, the encoder itself whitens them.

    Images have no columns and are not standardised: bytes from 0 to 255 become numbers from 0 to 1.
    """

    recipe: Recipe
    encoder: nn.Module
    objective: Objective
    standardiser: Standardiser | None  # None of images
    feature_names: tuple[str, ...]
    label_name: str | None = None

    @classmethod
    def untrained(cls, recipe: Recipe, data: Table | ImageSet) -> Model:
        """The model before its first step: initial weights from the seed, scaling from the table, of a world none."""
        names: tuple[str, ...]
        if isinstance(data, ImageSet):
            recipe, features, rows = recipe.for_shape(data.shape), math.prod(data.shape), len(data.rows("train"))
            names, label, scaling = (), None, None
        else:
            recipe, features, rows = recipe.for_features(data.n_features), data.n_features, len(data.rows("train"))
            names, label = data.feature_names, data.label_name
            as_it_is = Standardiser(np.zeros(features), np.ones(features))
            scaling = Standardiser.fit(data.features[data.rows("train")]) if recipe.world is None else as_it_is
        encoder, objective = recipe.build_encoder(features), recipe.build_objective(features, rows)
        return cls(recipe, encoder, objective, scaling, names, label)

    @property
    def features(self) -> int:
        """How many numbers an observation is."""
        return len(self.feature_names) if self.recipe.shape is None else math.prod(self.recipe.shape)

    def inputs(self, rows: np.ndarray) -> Tensor:
        """Rows as the encoder takes them: standardised, single precision, one after the other in memory.

        The layout decides how a matrix product rounds: of equal rows every path must make equal representations.
        Images [n, channels, height, width] are taken as they are, those in grey three times by a model of colours.
        """
        if self.standardiser is not None:
            return torch.from_numpy(self.standardiser.transform(rows).astype(np.float32, order="C"))
        images, shape = check_images(rows, "the images"), self.recipe.shape
        assert shape is not None
        if images.shape[1] == 1 and shape[0] == 3:
            images = images.repeat(3, axis=1)
        if images.shape[1:] != shape:
            raise InputError(
                f"the model is of images of {_pixels(shape)}, and these are of {_pixels(images.shape[1:])}"
            )
        return torch.from_numpy(images)

    def read(
        self,
        source: str | os.PathLike[str],
        *,
        label: str | None = None,
        corrupt: Corrupt = "refuse",
        progress: Progress | None = None,
    ) -> Table | ImageSet:
        """Data for this model: a table in its columns, or images; those of a folder are resized to the model's size."""
        seed, shape = self.recipe.seed % 2**32, self.recipe.shape
        if shape is None and corrupt != "refuse":
            raise InputError(f"{os.fspath(source)} is read as a table: corrupt is for images")
        if shape is None:
            return load_table(source, label=label, features=self.feature_names, seed=seed, progress=progress)
        if images_of(source) is None:
            raise InputError(f"the model is of images, and {os.fspath(source)} is no set, folder or archive of images")
        of_one_size = isinstance(source, str) and source in IMAGES and IMAGES[source].size is None
        size = None if of_one_size else (shape[1], shape[2])
        if label:
            raise InputError(f"{os.fspath(source)} is a set of images, which knows its own classes: leave out --label")
        return load_images(source, size=size, corrupt=corrupt, progress=progress)

    def observe(self, data: Data, part: Part = "all") -> Observations:
        """Data as the encoder takes it; of a set of images with two halves, a part."""
        if isinstance(data, (str, os.PathLike)):
            data = self.read(data)
        of_images = self.recipe.shape is not None
        if isinstance(data, Table if of_images else ImageSet):
            kinds = ("images", "a table") if of_images else ("tables", "a set of images")
            raise InputError(f"the model is of {kinds[0]}, and {data.source} is {kinds[1]}")
        if isinstance(data, ImageSet):
            half = _part(data, part)
            return Observations(data.source, self.inputs(half.images), half.labels, data.classes, ids=half.ids)
        if isinstance(data, np.ndarray):
            if of_images:
                return Observations("array", self.inputs(data))
            data = load_table(data, features=self.feature_names)
        table = _part(select_features(data, self.feature_names), part)
        return Observations(
            table.source, self.inputs(table.features), table.labels, table.classes, table.latents, table.ids
        )

    def embed(self, data: Data, part: Part = "all") -> np.ndarray:
        """Representations [n, dim] of rows or images: of data at hand, of an array, of a file, a folder or a name.

        Arrays of rows are in the training data's columns; arrays of images [n, channels, height, width] hold bytes or
        numbers from 0 to 1. Of a set of images with two halves, `part` says which; all of it is first the images for
        training, then those for tests.
        """
        return encode(self.encoder, self.observe(data, part).x).numpy()

    def save(self, path: Path) -> None:
        """Write the model to one file, atomically."""
        tensors = {
            **gather("encoder", self.encoder.state_dict()),
            **gather("objective", self.objective.state_dict()),
        }
        if self.standardiser is not None:
            tensors["standardiser.mean"] = torch.from_numpy(self.standardiser.mean)
            tensors["standardiser.scale"] = torch.from_numpy(self.standardiser.scale)
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
        features = len(names) if recipe.shape is None else math.prod(recipe.shape)
        scale = [tensors[f"standardiser.{part}"].numpy() for part in ("mean", "scale") if recipe.shape is None]
        scaling = Standardiser(*scale) if scale else None
        memory = tensors.get("objective.bank")  # a place for every row of the training data
        model = cls(
            recipe=recipe,
            encoder=recipe.build_encoder(features),
            objective=recipe.build_objective(features, None if memory is None else len(memory)),
            standardiser=scaling,
            feature_names=names,
            label_name=metadata["label_name"],
        )
        try:
            restore(model.encoder, "encoder", tensors)
            restore(model.objective, "objective", tensors)
        except CheckpointError as error:
            raise InputError(f"{path} does not fit its own recipe ({error})") from error
        return model


Some = TypeVar("Some", Table, ImageSet)


def _part(data: Some, part: Part) -> Some:
    rows = data.rows(part)
    if not len(rows):
        raise InputError(
            f"{data.source} has no rows for {'the test' if part == 'test' else 'training'}: leave the part out"
        )
    return data.take(rows)


def _pixels(shape: Sequence[int]) -> str:
    channels, height, width = shape
    return f"{height} × {width} pixels in {'grey' if channels == 1 else 'colour'}"
