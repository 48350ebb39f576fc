"""What a model learnt, beside what no learning gives: raw features, PCA, and the same encoder untrained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probssl import metrics
from probssl.data import Table, select_features
from probssl.encoders import encode
from probssl.errors import InputError
from probssl.model import Model

TRAINED = "trained encoder"
UNTRAINED = "untrained encoder"


@dataclass(frozen=True)
class Code:
    """One way to represent the rows: a name, the representations, and those of one augmentation of each row."""

    name: str
    z: np.ndarray
    partner: np.ndarray


@dataclass(frozen=True)
class Comparison:
    """The metrics of several codes of the same rows, and how they were computed."""

    source: str
    rows: dict[str, dict[str, float | None]]  # code -> metric -> number
    protocols: dict[str, str]  # metric -> how it was computed, for the trained encoder

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"source": self.source, "rows": self.rows, "protocols": self.protocols}


def codes(model: Model, table: Table, *, seed: int = 0) -> Iterator[Code]:
    """Raw features, PCA of the model's dimension, the untrained and the trained encoder, all on standardised rows."""
    x = model.inputs(select_features(table, model.feature_names).features)
    generator = torch.Generator().manual_seed(seed)
    x_aug = model.recipe.build_pairing().sample(x, generator)
    yield Code("raw features", x.numpy(), x_aug.numpy())
    yield _pca(x, x_aug, model)
    untrained = model.recipe.build_encoder(x.shape[1])
    for name, encoder in ((UNTRAINED, untrained), (TRAINED, model.encoder)):
        yield Code(name, encode(encoder, x).numpy(), encode(encoder, x_aug).numpy())


def _pca(x: Tensor, x_aug: Tensor, model: Model) -> Code:
    from sklearn.decomposition import PCA

    dim = min(int(model.recipe.for_features(x.shape[1]).dim or 1), *x.shape)
    pca = PCA(dim, svd_solver="full").fit(x.numpy())
    return Code(f"PCA to {dim}", pca.transform(x.numpy()), pca.transform(x_aug.numpy()))


def evaluate(
    model: Model, table: Table, *, seed: int = 0, announce: Callable[[str], None] = lambda name: None
) -> Comparison:
    """Every metric that applies, for the model and for what no learning gives, on the rows of `table`."""
    if seed < 0:
        raise InputError(f"the seed must be a whole number from 0, not {seed}")
    if len(table) < 2:
        raise InputError(f"{table.source} has 1 row, and evaluating needs more")
    rows: dict[str, dict[str, float | None]] = {}
    protocols: dict[str, str] = {}
    for code in codes(model, table, seed=seed):
        announce(code.name)
        result = metrics.evaluate(code.z, labels=table.labels, partner=code.partner, seed=seed % 2**32)
        rows[code.name], protocols = result.values, result.protocols
    return Comparison(table.source, rows, protocols)
