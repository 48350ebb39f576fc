"""Images that show what a model of images does: augmentations, nearest neighbours, samples; bytes to be drawn."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from probssl.encoders import as_floats, encode
from probssl.model import Model
from probssl.objectives import GEDI
from probssl.observations import Observations

COLUMNS = 12
"""Images side by side."""

DRAWS = 4
"""Augmentations of each that are shown."""

QUERIES, NEAREST = 8, 10
"""Images whose neighbours are shown, and how many."""

SAMPLES = 5 * COLUMNS


def pictures(model: Model, observed: Observations, seed: int = 0) -> dict[str, np.ndarray]:
    """Sheets of images [rows, columns, channels, height, width] by name, those of `observed` chosen by the seed.

    - `augmented`: images in the first row, and below each some of its augmentations.
    - `neighbours`: an image at the head of each row, a gap, and those nearest to it in the representation, the nearest
      first.
    - `samples`: chains of a density as training left them, sorted by their clusters.
    """
    chance = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(observed), generator=chance)
    x = as_floats(observed.x[order[:COLUMNS]])
    pairing = model.recipe.build_pairing()
    found = {"augmented": torch.stack([x, *(pairing.sample(x, chance) for _ in range(DRAWS))])}
    z = encode(model.encoder, observed.x).double()
    queries, count = order[-QUERIES:], min(NEAREST, len(z) - 1)
    apart = torch.cdist(z[queries], z)
    apart[torch.arange(len(queries)), queries] = -1.0  # itself comes first, whoever else is as near
    rows = as_floats(observed.x[apart.topk(count + 1, largest=False).indices])  # [queries, 1 + nearest, ...]
    found["neighbours"] = torch.cat([rows[:, :1], torch.ones_like(rows[:, :1]), rows[:, 1:]], 1)
    if isinstance(model.objective, GEDI) and model.objective.buffer is not None:
        found["samples"] = _samples(model, model.objective)
    return {name: as_bytes(sheet) for name, sheet in found.items()}


def _samples(model: Model, objective: GEDI) -> Tensor:
    assert objective.buffer is not None
    chains = objective.buffer.chains[objective.buffer.ages.argsort(descending=True)[:SAMPLES]]
    with torch.no_grad():
        clusters = objective.logits(model.encoder.eval(), chains).argmax(-1)
    return chains[clusters.argsort(stable=True)].unflatten(0, (-1, COLUMNS))


def as_bytes(images: Tensor) -> np.ndarray:
    """Numbers from 0 to 1, and what lies beyond cut off, as values from 0 to 255."""
    return images.clamp(0, 1).mul(255).round().byte().numpy()
