"""Images that show what a model of images does: augmentations, nearest neighbours, samples; bytes to be drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from probssl.encoders import as_floats, encode
from probssl.metrics.adhoc import AdhocDecoder, Images, as_images
from probssl.model import Model, Observations
from probssl.model.decoding import decoded, latent_prior, posteriors, traversals
from probssl.objectives import GEDI, GenerativeObjective

COLUMNS = 12
"""Images side by side."""

DRAWS = 4
"""Augmentations of each that are shown."""

QUERIES, NEAREST = 8, 10
"""Images whose neighbours are shown, and how many."""

SAMPLES = 5 * COLUMNS

DRAWN, LATENT_ROWS = 5, 5000
"""New images of a class that are shown, and images whose latents say where the latents lie."""


def pictures(model: Model, observed: Observations, seed: int = 0) -> dict[str, np.ndarray]:
    """Sheets of images [rows, columns, channels, height, width] by name, those of `observed` chosen by the seed.

    - `augmented`: images in the first row, and below each some of its augmentations.
    - `neighbours`: an image at the head of each row, a gap, and those nearest to it in the representation, the nearest
      first.
    - `samples`: chains of a density as training left them, sorted by their clusters.
    - `reconstructed`: images and, below them, what a decoder makes of their representations.
    - `drawn`: new images by a decoder, a column each class, or each component of a mixture where there are no labels.
    - `traversals`: what a decoder makes of latents that move along one principal direction, a row each.
    """
    chance = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(observed), generator=chance)
    x = as_floats(observed.x[order[:COLUMNS]])
    pairing = model.pairing
    assert pairing is not None
    found = {"augmented": torch.stack([x, *(pairing.sample(x, chance) for _ in range(DRAWS))])}
    z = encode(model.encoder, observed.x).double()
    queries, count = order[-QUERIES:], min(NEAREST, len(z) - 1)
    apart = torch.cdist(z[queries], z)
    apart[torch.arange(len(queries)), queries] = -1.0  # itself comes first, whoever else is as near
    rows = as_floats(observed.x[apart.topk(count + 1, largest=False).indices])  # [queries, 1 + nearest, ...]
    found["neighbours"] = torch.cat([rows[:, :1], torch.ones_like(rows[:, :1]), rows[:, 1:]], 1)
    if isinstance(model.objective, GEDI) and model.objective.buffer is not None:
        found["samples"] = _samples(model, model.objective)
    if isinstance(model.objective, GenerativeObjective):
        found |= _decoded(model, model.objective, observed, x)
    return {name: as_bytes(sheet) for name, sheet in found.items()}


def _samples(model: Model, objective: GEDI) -> Tensor:
    assert objective.buffer is not None
    chains = objective.buffer.chains[objective.buffer.ages.argsort(descending=True)[:SAMPLES]]
    with torch.no_grad():
        clusters = objective.logits(model.encoder.eval(), chains).argmax(-1)
    return chains[clusters.argsort(stable=True)].unflatten(0, (-1, COLUMNS))


def _decoded(model: Model, objective: GenerativeObjective, observed: Observations, x: Tensor) -> dict[str, Tensor]:
    again = decoded(objective, posteriors(objective, model.encoder, x)[0], tuple(x.shape[1:]))
    some = observed.x[:LATENT_ROWS]
    moved = traversals(objective, model.encoder, some)
    labels = observed.labels
    of_rows = None if labels is None else torch.as_tensor(np.asarray(labels[: len(some)]), dtype=torch.long)
    prior = latent_prior(objective, model.encoder, some, labels=of_rows)
    chance = torch.Generator().manual_seed(0)
    latents = [prior.sample(DRAWN, chance, component=group)[0] for group in range(min(COLUMNS, len(prior.names)))]
    columns = [decoded(objective, z, tuple(x.shape[1:])) for z in latents]
    return {"reconstructed": torch.stack([x, again]), "drawn": torch.stack(columns, 1), "traversals": moved}


def as_bytes(images: Tensor) -> np.ndarray:
    """Numbers from 0 to 1, and what lies beyond cut off, as values from 0 to 255."""
    return images.clamp(0, 1).mul(255).round().byte().numpy()


def side_by_side(images: Images, decoders: Mapping[str, AdhocDecoder]) -> np.ndarray:
    """Images in the first row, and below them what each decoder makes of their representations, in the order given.

    Bytes [1 + decoders, images, channels, height, width], which `report.tiles.sheet` makes one picture of.
    """
    x = as_images(images, floats=True)
    return as_bytes(torch.stack([x, *(decoder.reconstruct(x) for decoder in decoders.values())]))
