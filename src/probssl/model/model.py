"""A trained model: encoder, objective, scaling and the choices that made them, in one safetensors file."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

import probssl
from probssl.data import (
    IMAGES,
    Corrupt,
    Dataset,
    Part,
    Preparation,
    Progress,
    Table,
    check_images,
    images_of,
    in_layout,
    is_dataset,
    load,
)
from probssl.encoders import WithHead, as_floats, encode
from probssl.errors import CheckpointError, InputError
from probssl.layout import Column, Layout, plain_columns
from probssl.model.observations import Observations
from probssl.model.prepared import Bytes, Prepared
from probssl.objectives import Objective
from probssl.pairings import Pairing
from probssl.parts.facts import Facts
from probssl.parts.part import Part as AnyPart
from probssl.parts.recipe import Recipe
from probssl.parts.registry import KINDS
from probssl.parts.resolve import Resolved, output_size, resolve
from probssl.schema import conform, intact
from probssl.training.checkpoints import gather, restore
from probssl.training.files import load_tensors, save_tensors
from probssl.worlds import World, named_world

FORMAT = 2

WHITENED_ROWS = 10_000
"""Observations, at most, that parts begin from which look at the data before the first step."""

Data = Any
"""Whatever `probssl.load` reads: a data set, an array, a frame, a file, a folder or a name."""


@dataclass(repr=False)
class Model:
    """Takes rows as the training data had them, and encodes them. Of a world, the encoder itself whitens them.

    Images have no columns and are not scaled: bytes from 0 to 255 become numbers from 0 to 1. `resolved` is what
    the recipe came to, `objective` may have parameters of its own; `label_name` is that of the data.
    """

    resolved: Resolved
    encoder: nn.Module
    objective: Objective
    pairing: Pairing | None
    """None of a world, which makes its own pairs."""
    preparation: Preparation | None
    """Of the columns of a table; None of images."""
    label_name: str | None = None

    @classmethod
    def untrained(cls, recipe: Recipe, data: Dataset) -> Model:
        """The model before its first step: initial weights from the seed, scaling from the rows for training."""
        preparation = prepare(data)
        return cls.of(resolve(recipe, facts_of(data, preparation)), data, preparation)

    @classmethod
    def of(cls, resolved: Resolved, data: Dataset, preparation: Preparation | None = None) -> Model:
        """The same of choices that are made already; with the preparation of other data, where given."""
        rows = data.rows("train")
        preparation = prepare(data) if preparation is None else preparation
        if preparation is not None and resolved.facts.columns:
            preparation = replace(preparation, layout=resolved.facts.layout)
        if data.layout.kind == "world":
            chance = torch.Generator().manual_seed(resolved.seed)
            sample = world_of(resolved).observe(WHITENED_ROWS, chance)[0]
        else:
            some = np.random.default_rng(resolved.seed).permutation(rows)[:WHITENED_ROWS]
            sample = _prepared(preparation, data.layout, data.batch(np.sort(some)).numpy())
        made = resolved.bind(as_floats(sample))
        if made.pairing is not None:
            _try(made.pairing, as_floats(sample[:2]))
        return cls(resolved, made.encoder, made.objective, made.pairing, preparation, data.label_name)

    def __repr__(self) -> str:
        shape, kind = " × ".join(map(str, self.facts.shape)), self.facts.kind
        return f"Model({self.resolved.title()}, {kind} of {shape} to {self.dim} dimensions)"

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{slot}</td><td><code>{escape(str(value))}</code></td></tr>"
            for slot, value in self.recipe.as_dict().items()
        )
        return f"<p>{escape(repr(self))}</p><table>{rows}</table>"

    @property
    def recipe(self) -> Recipe:
        """Every choice, spelled out."""
        return self.resolved.recipe

    @property
    def facts(self) -> Facts:
        """What was known of the training data."""
        return self.resolved.facts

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The columns of a table; none of images."""
        return () if self.preparation is None else self.preparation.raw.names

    @property
    def of_images(self) -> bool:
        """Whether observations are images."""
        return self.facts.kind == "images"

    @cached_property
    def dim(self) -> int:
        """Dimensions of the representation."""
        return output_size(self.backbone, self.facts.shape)

    @property
    def backbone(self) -> nn.Module:
        """The encoder without its projection head."""
        return self.encoder.backbone if isinstance(self.encoder, WithHead) else self.encoder

    @cached_property
    def world(self) -> World | None:
        """The world that it was trained on, where it was one."""
        return world_of(self.resolved) if self.facts.kind == "world" else None

    def initial(self, sample: Tensor | None = None) -> Model:
        """The same model before its first step."""
        made = self.resolved.bind(sample)
        model = copy.copy(self)
        model.encoder, model.objective = made.encoder, made.objective
        return model

    def module(self) -> nn.Module:
        """One network from raw numbers to representations [n, dim]: preparation, then the encoder without its head.

        Rows are in the units, columns and levels of the training data, images bytes or numbers from 0 to 1.
        """
        before = Bytes() if self.preparation is None else Prepared(self.preparation)
        return nn.Sequential(before, copy.deepcopy(self.backbone)).eval()

    def inputs(self, rows: np.ndarray, layout: Layout | None = None) -> Tensor:
        """Rows as the encoder takes them, in single precision; in the layout of the training data unless given.

        They lie one after the other in memory, whose order decides how a matrix product rounds: of equal rows every
        path must make equal representations. Images [n, channels, height, width] are taken as they are, those in grey
        three times by a model of colours.
        """
        if self.preparation is not None:
            return _prepared(self.preparation, layout or self.preparation.raw, rows)
        if not self.of_images:
            return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))
        images, shape = check_images(rows, "the images"), self.facts.shape
        if images.shape[1] == 1 and shape[0] == 3:
            images = images.repeat(3, axis=1)
        if images.shape[1:] != shape:
            raise InputError(f"the model takes images of {_pixels(shape)}, but these are {_pixels(images.shape[1:])}")
        return torch.from_numpy(images)

    def in_units(self, x: Tensor) -> np.ndarray:
        """The inverse of `inputs`: rows in the units of the data (`preparation.restored`); images as they are."""
        return x.numpy() if self.preparation is None else self.preparation.inverse(x.double().numpy())

    @property
    def layout(self) -> Layout | None:
        """The columns that it takes, as a source has them; None of images."""
        return None if self.preparation is None else self.preparation.raw

    def read(
        self,
        source: Data,
        *,
        label: str | Sequence[str] | None = None,
        ids: str | None = None,
        corrupt: Corrupt = "refuse",
        progress: Progress | None = None,
    ) -> Dataset:
        """Data for this model: a table in its columns, or images; those of a folder are resized to the model's size."""
        seed, shape = self.resolved.seed % 2**32, self.facts.shape
        if is_dataset(source):
            return source
        if not self.of_images:
            if corrupt != "refuse":
                raise InputError(f"{_written(source)} is read as a table: corrupt is for images")
            return load(source, label=label, ids=ids, layout=self.layout, seed=seed, progress=progress)
        if isinstance(source, (str, os.PathLike)) and images_of(source) is not None:
            of_one_size = isinstance(source, str) and source in IMAGES and IMAGES[source].size is None
            size = None if of_one_size else (shape[1], shape[2])
            return load(source, label=label, ids=ids, size=size, corrupt=corrupt, progress=progress)
        found = load(source, label=label, ids=ids, progress=progress)
        if found.layout.kind != "images":
            raise InputError(f"the model takes images, but {found.source} is not a set, folder or archive of images")
        return found

    def observe(self, data: Data, part: Part = "all") -> Observations:
        """Data as the encoder takes it: all rows, or those for training or for the test."""
        found = self.read(data)
        if isinstance(found, Table) and self.layout is not None:
            found = in_layout(found, self.layout)
        if (found.layout.kind == "images") != self.of_images:
            kinds = ("images", "a table") if self.of_images else ("tables", "a set of images")
            raise InputError(f"the model takes {kinds[0]}, but {found.source} is {kinds[1]}")
        rows = found.rows(part)
        if part != "all" and not len(rows):
            raise InputError(f"{found.source} has no {part} rows")
        labels, latents, ids = (None if of is None else of[rows] for of in (found.labels, found.latents, found.ids))
        x = self.inputs(found.batch(rows).numpy(), found.layout)
        targets = tuple(target.take(rows) for target in found.targets)
        return Observations(found.source, x, labels, found.classes, targets, latents, ids, rows)

    def embed(self, data: Data, part: Part = "all") -> Any:
        """Representations of rows or images, in the form that the data has.

        An array, a tensor, a file, a name or a data set gives an array [n, dim]; a frame of pandas, polars or Arrow a
        frame of the same kind, with its index, of columns z0, z1, …. Of data with test rows, `part` says which.
        """
        z = encode(self.encoder, self.observe(data, part).x).numpy()
        return z if is_dataset(data) or isinstance(data, (str, os.PathLike, np.ndarray, Tensor)) else _alike(z, data)

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file, atomically."""
        tensors = {
            **gather("encoder", self.encoder.state_dict()),
            **gather("objective", self.objective.state_dict()),
        }
        if self.preparation is not None:
            tensors |= {name: torch.from_numpy(array) for name, array in self.preparation.arrays().items()}
        if _holds_data(self.pairing):
            tensors |= gather("pairing", self.pairing.state_dict())
        metadata: dict[str, Any] = {
            "format": FORMAT,
            "probssl": probssl.__version__,
            "recipe": self.recipe.as_dict(),
            "facts": self.facts.as_dict(),
            "columns": [] if self.preparation is None else plain_columns(self.preparation.raw.columns),
            "label_name": self.label_name,
        }
        save_tensors(Path(path), tensors, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **parts: Any) -> Model:
        """Read a model file, or the one in a run's folder. Nothing in the file is ever executed or imported.

        Parts that are not ours must be named: `Model.load(folder, encoder=MyNet())`, or `objective="name"` of one that
        another package brings.
        """
        path = Path(path)
        if path.is_dir():
            path = path / "model.safetensors"
            if not path.exists():
                raise CheckpointError(f"{path.parent} holds no finished model: finish training first")
        tensors, metadata = load_tensors(path)
        if "identity" in metadata:
            raise CheckpointError(f"{path} is a checkpoint, not a model")
        with intact(path):
            version = conform(metadata.get("format"), int, "format")
            if version != FORMAT:
                when = "a newer" if version > FORMAT else "an older"
                raise InputError(
                    f"{path} was written by {when} probssl ({metadata.get('probssl')}), whose files differ"
                )
            stored = conform(metadata, _Stored)
            resolved = resolve(Recipe.from_dict(stored.recipe).with_trusted(**parts), stored.facts, own=True)
            _check_size(resolved, tensors, path)
            made = resolved.bind()
            model = cls(
                resolved,
                made.encoder,
                made.objective,
                made.pairing,
                stored.preparation(tensors),
                stored.label_name,
            )
            model.take_weights(tensors, path)
            encode(model.encoder, torch.zeros(2, *stored.facts.shape))  # takes such observations, or this is damage
            return model

    def take_weights(self, tensors: dict[str, Tensor], path: Path) -> None:
        """Put weights of a file in place of the initial ones."""
        try:
            restore(self.encoder, "encoder", tensors)
            restore(self.objective, "objective", tensors)
            if _holds_data(self.pairing):
                restore(self.pairing, "pairing", tensors)
        except CheckpointError as error:
            raise InputError(f"{path} does not fit its own recipe ({error})") from error


@dataclass(frozen=True)
class _Stored:
    """What a model file holds beside its tensors."""

    format: int
    probssl: str
    recipe: dict[str, Any]
    facts: Facts
    columns: tuple[Column, ...]
    label_name: str | None

    def preparation(self, tensors: dict[str, Tensor]) -> Preparation | None:
        if self.facts.kind == "images":
            return None
        raw = Layout(self.facts.kind, (len(self.columns),), self.columns)
        return Preparation.of_arrays(raw, self.facts.layout if self.facts.columns else raw, tensors)


def _check_size(resolved: Resolved, tensors: dict[str, Tensor], path: Path) -> None:
    """Refuse a file whose recipe asks for more weights than it holds, before there is memory for them."""
    held = sum(tensor.numel() for tensor in tensors.values())
    try:
        asked: float = sum(weight.numel() for weight in resolved.encoder_without_memory().parameters())
    except OverflowError:
        asked = math.inf
    if isinstance(resolved.encoder, AnyPart) and asked > held:
        raise InputError(f"{path} does not fit its own recipe (it holds {held:,} numbers, too few for the encoder)")


def prepare(data: Dataset) -> Preparation | None:
    """What becomes of the columns of a table, learnt from its rows for training; None of images."""
    layout, rows = data.layout, data.rows("train")
    if layout.kind == "images":
        return None
    return Preparation.fit(layout, data.batch(rows).numpy(), scaled=layout.kind != "world")


def facts_of(data: Dataset, preparation: Preparation | None = None) -> Facts:
    """What is known of a data set before parts are made for it; of its test rows nothing."""
    preparation = prepare(data) if preparation is None else preparation
    kind, named = data.layout.kind, data.source
    name = named.partition(":")[2] if kind == "world" else images_of(named) if kind == "images" else None
    shape, columns = (data.layout.shape, ()) if preparation is None else (preparation.layout.shape, preparation.columns)
    return Facts(kind, shape, len(data.rows("train")), name, columns)


def _holds_data(pairing: Pairing | None) -> TypeGuard[Pairing]:
    """Whether a pairing, or one within it, was made of the data."""
    return pairing is not None and any(isinstance(part, AnyPart) and part.incomplete for part in pairing.modules())


def world_of(resolved: Resolved) -> World:
    """The world that is trained on, its mixing decided by the seed."""
    assert resolved.facts.name is not None
    return named_world(resolved.facts.name, seed=resolved.seed % 2**32)


def _try(pairing: Pairing, x: Tensor) -> None:
    """Refuse a pairing that does not take such observations, before anything is written."""
    try:
        x_aug = pairing.sample(x, torch.Generator().manual_seed(0))
        density = pairing.pairwise_log_prob(x_aug, x) if pairing.knows_density else None
        if density is not None and density.shape != (len(x), len(x)):
            raise ValueError("its density is not one number for a pair")
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        reason = " ".join(str(error).split())[:160]
        name = KINDS["pairing"].name_of(type(pairing)) or type(pairing).__name__
        raise InputError(f"the pairing {name} does not take observations {list(x.shape[1:])} ({reason})") from error


def _prepared(preparation: Preparation | None, layout: Layout, rows: np.ndarray) -> Tensor:
    if preparation is None:
        return torch.from_numpy(rows)
    return torch.from_numpy(preparation.transform(layout, rows).astype(np.float32, order="C"))


def _alike(z: np.ndarray, data: Any) -> Any:
    """Representations as a frame of the kind of `data`; what is not a frame gets the array."""
    import narwhals as nw

    try:
        frame = nw.from_native(data, eager_only=True)
    except TypeError:
        return z
    columns = {f"z{column}": z[:, column] for column in range(z.shape[1])}
    made = nw.from_dict(columns, backend=frame.implementation).to_native()
    if frame.implementation.is_pandas_like():
        made.index = data.index
    return made


def _written(source: Any) -> str:
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else "the data"


def _pixels(shape: Any) -> str:
    channels, height, width = shape
    return f"{height} × {width} pixels in {'grey' if channels == 1 else 'colour'}"
