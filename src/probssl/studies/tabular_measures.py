"""What is measured of an encoder of a table, at a cost that thousands of trials can bear.

The probe, the spectrum and the alignment see the whole table, as in Siamese-EBM (§4.1.3). What compares all pairs of
rows (intrinsic dimension, cluster learnability, uniformity) sees a sample of 4,096 drawn by the seed, and what undoes
augmentations 256 fresh ones among 4,096 rows. All models of a table, a seed and an augmentation get the same split,
sample and questions, so that differences between them are of the models.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from probssl import metrics
from probssl.data import Standardiser, load_table
from probssl.encoders import encode
from probssl.energies import Energy
from probssl.errors import InputError
from probssl.metrics.deaugment import deaugmentation
from probssl.pairings import MaskAndNoise

SAMPLE = 4096
"""Most rows that are compared pair by pair."""

QUERIES = 256
"""Augmentations that a model is asked to undo."""

PROBE_ITERATIONS = 200
"""Of L-BFGS in whitened coordinates; they end nearer to the optimum than 1,000 plain ones (`metrics.linear_probe`)."""


@dataclass(frozen=True, eq=False)
class Observations:
    """A table as encoders see it: standardised rows, and the label of each."""

    x: Tensor  # [n, d]
    labels: np.ndarray  # [n]


@functools.lru_cache(maxsize=2)
def observations(table: str) -> Observations:
    """The rows of a named table, read once for many trials."""
    found = load_table(table)
    if found.labels is None:
        raise InputError(f"{table} has no labels, and a probe needs them")
    x = Standardiser.fit(found.features).transform(found.features).astype(np.float32)
    return Observations(torch.from_numpy(x), found.labels)


@dataclass(frozen=True)
class Augmentation:
    """The strength of mask-and-noise (Siamese-EBM Eq. 37): the share of features kept, and the noise added to all."""

    preservation: float
    noise: float

    def pairing(self) -> MaskAndNoise:
        """The conditional p(x̃ | x)."""
        return MaskAndNoise(self.preservation, self.noise)


@dataclass(frozen=True, eq=False)
class Questions:
    """Fresh augmentations whose sources are looked for among candidates, with the exact log p(x̃ | x) of all pairs."""

    candidates: Tensor  # [c, d]
    augmented: Tensor  # [q, d]
    source: Tensor  # [q]
    truth: np.ndarray  # [q, c]


@functools.lru_cache(maxsize=4)
def questions(table: str, augmentation: Augmentation, seed: int) -> Questions:
    """What every model of this table, augmentation and seed is asked; the exact posterior is computed once."""
    x = observations(table).x
    chance = torch.Generator().manual_seed(seed)
    candidates = x[torch.randperm(len(x), generator=chance)[:SAMPLE]]
    source = torch.randint(len(candidates), (QUERIES,), generator=chance)
    pairing = augmentation.pairing()
    augmented = pairing.sample(candidates[source], chance)
    truth = pairing.pairwise_log_prob(augmented.double(), candidates.double()).numpy()
    return Questions(candidates, augmented, source, truth)


@functools.lru_cache(maxsize=4)
def related(table: str, augmentation: Augmentation, seed: int) -> Tensor:
    """One augmentation of every row, for alignment: [n, d]."""
    x = observations(table).x
    return augmentation.pairing().sample(x, torch.Generator().manual_seed(seed))


def representation(encoder: nn.Module, table: str, seed: int) -> dict[str, float]:
    """What depends on the representation of the rows alone: probe, RankMe, both parts of CLID, uniformity.

    RankMe counts the mean as a direction, which the Euclidean energy does not see: the gradient of the last bias is
    nothing but rounding, of which Adam makes steps. So there is RankMe of the centred representation too. What is
    undefined for a code (the dimension of a constant, say) is not a number.
    """
    data = observations(table)
    z = encode(encoder, data.x).numpy()
    probe = metrics.linear_probe(
        z, data.labels, splits=1, solver="whitened", iterations=PROBE_ITERATIONS, seed=seed
    )  # one split of 80/20, as in the paper
    return {
        "linear_probe": probe.mean,
        "rankme": metrics.rankme(z),
        "rankme_centred": metrics.rankme(z, centre=True),
        "intrinsic_dimension": _or_nan(lambda: metrics.intrinsic_dimension(z, max_rows=SAMPLE, seed=seed)),
        "cluster_learnability": _or_nan(lambda: metrics.cluster_learnability(z, max_rows=SAMPLE, seed=seed)),
        "uniformity": metrics.uniformity(z, max_rows=SAMPLE, seed=seed),
    }


def pairs(encoder: nn.Module, energy: Energy, table: str, augmentation: Augmentation, seed: int) -> dict[str, float]:
    """What depends on the augmentation too: alignment, and how well q(x | x̃) ∝ e^{−δ} undoes it."""
    z, z_aug = (encode(encoder, rows).numpy() for rows in (observations(table).x, related(table, augmentation, seed)))
    asked = questions(table, augmentation, seed)
    logits = energy.logits(encode(encoder, asked.candidates), encode(encoder, asked.augmented)).mT
    undone = deaugmentation(logits.numpy(), asked.truth, asked.source.numpy())
    return {
        "alignment": metrics.alignment(z, z_aug),
        "kl_exact_model": undone.kl_exact_model,
        "nll": undone.nll,
        "exact_nll": undone.exact_nll,
        "top1": undone.top1,
        "exact_top1": undone.exact_top1,
    }


def _or_nan(number: Callable[[], float]) -> float:
    try:
        return number()
    except InputError:
        return math.nan
