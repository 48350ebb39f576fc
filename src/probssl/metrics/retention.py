"""What a representation keeps of its observations beside the class: style, and the marks of augmentations.

Content is what augmentations leave alone and style what they change; methods that pull augmentations together lose
style (SimVAE §7, AnInfoNCE §4.2). Three questions: can a factor be read off the representation (`style_retention`), do
neighbours share it (`retrieval`), and can one tell that an augmentation was applied (`augmentation_readout`)? A fourth,
what the representation makes its observation look like, is `adhoc_decoder`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError
from probssl.metrics._factors import Checked, Factor, Factors, Kind, alike, checked_factor, joined
from probssl.metrics._held_out import affine_fit
from probssl.metrics._inputs import Array, whole
from probssl.metrics._inputs import representations as checked
from probssl.metrics._neighbours import nearest
from probssl.metrics._splits import VALIDATION, Probe, percent, standardised, validation
from probssl.metrics.adhoc import AdhocDecoder, Encoder, Images, adhoc_decoder, as_images, encoded
from probssl.metrics.probes import PATIENCE, linear_probe

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "AdhocDecoder",
    "AugmentationReadout",
    "Factor",
    "Retained",
    "Retrieval",
    "adhoc_decoder",
    "augmentation_readout",
    "retrieval",
    "style_retention",
]

_CELLS = 20_000_000  # distances that rankings are made of, at most


@dataclass(frozen=True)
class Retained:
    """How well a factor is read off a representation, on held-out rows: R² of numbers, accuracy of categories.

    `kind` is that of the factor; `linear` and `mlp` are by a linear map and a network, fitted as `protocol` says.
    """

    kind: Kind
    linear: float
    mlp: float
    chance: float  # what a constant representation reaches: 0, or the accuracy of the commonest category
    protocol: str


def style_retention(
    representations: ArrayLike,
    factors: Factors,
    *,
    fitted_on: tuple[ArrayLike, Factors] | None = None,
    test_size: float = 0.2,
    epochs: int = 200,
    seed: int = 0,
) -> dict[str, Retained]:
    """How much of each known factor a representation keeps: read by a linear map and by a network, held-out.

    `factors` are arrays by name, their kind inferred from their type (`Factor` says it outright). Continuous ones score
    R² = 1 − Σ(f − f̂)²/Σ(f − f̄)², in (−∞, 1]; that of a periodic one is the same of its cosine and sine together;
    that of a categorical one is accuracy. Higher is better; below `chance` a reader has overfitted.

    Both readers see features standardised by the rows they are fitted on. The linear one is least squares or logistic
    regression; the other has 128 ReLUs, its epoch chosen on a fifth of those rows (as an honest `mlp_probe`). The rows
    judged are a share `test_size`, drawn by the seed, or all of them where others are given to be `fitted_on`.
    """
    if not factors:
        raise InputError("there must be at least one factor to look for")
    x = checked(representations, rows=5)
    if fitted_on is None:
        if not isinstance(test_size, int | float) or not 0 < test_size < 1:
            raise InputError(f"test_size must lie between 0 and 1, not {test_size!r}")
        order = np.random.default_rng(whole(seed, "seed", 0)).permutation(len(x))
        count = max(1, round(test_size * len(x)))
        inside, outside = order[count:], order[:count]
        if len(inside) < 5:
            raise InputError(f"{percent(test_size)} of {len(x)} rows held out leave {len(inside)} to fit on: keep 5")
        every = {name: checked_factor(name, factor, len(x)) for name, factor in factors.items()}
        where = f"{percent(test_size)} of {len(x)} rows held out, seed {seed}"
    else:
        first = checked(fitted_on[0], rows=5)
        if first.shape[1] != x.shape[1]:
            raise InputError(f"a reader needs the dimensions it was fitted in, {first.shape[1]}, not {x.shape[1]}")
        if missing := set(factors) - set(fitted_on[1]):
            raise InputError(f"the rows to fit on have no factor {min(missing)!r}")
        sides = {name: alike(name, fitted_on[1][name], factor) for name, factor in factors.items()}
        for name, (one, _) in sides.items():
            checked_factor(name, one, len(first))
        rows = len(first) + len(x)
        inside, outside = np.arange(len(first)), np.arange(len(first), rows)
        x = np.concatenate([first, x])
        every = {name: checked_factor(name, joined(*both), rows) for name, both in sides.items()}
        where = f"fitted on {len(first)} rows kept for it, judged by {len(outside)} others"
    fitting, judged = standardised(x[inside], x[outside])
    return {
        name: _retained(fitting, factor[inside], judged, factor[outside], where, epochs, seed)
        for name, factor in every.items()
    }


def _retained(x: Array, factor: Checked, judged: Array, truth: Checked, where: str, epochs: int, seed: int) -> Retained:
    from probssl.metrics._logistic import fit_whitened
    from probssl.metrics._networks import Schedule, fit_networks

    classes = factor.kind == "categorical"
    targets = factor.targets
    inside, outside = validation(targets if classes else np.zeros(len(x), dtype=np.intp), seed)
    schedule = Schedule(128, 1e-3, whole(epochs, "epochs", 1), 128, PATIENCE)
    outputs = int(max(targets.max(), truth.targets.max())) + 1 if classes else targets.shape[1]
    mean, deviation = (0, 1) if classes else (targets.mean(axis=0), targets.std(axis=0))
    goals = targets if classes else (targets - mean) / np.where(deviation > 0, deviation, 1.0)
    choosing = x[None, outside], goals[None, outside]
    said = fit_networks(x[None, inside], goals[None, inside], choosing, judged[None], outputs, schedule, seed)
    by_network = said.outputs[0]
    tail = f"a hidden layer of 128, epoch {said.epochs[0]} chosen on {percent(VALIDATION)} of the fitting rows; {where}"
    if classes:
        commonest = np.bincount(targets).argmax()
        if len(np.unique(targets)) < 2:
            raise InputError("a factor needs two categories among the rows that readers are fitted on")
        linear = fit_whitened(x, targets, 200).predict(judged)
        right = [float(np.mean(s == truth.targets)) for s in (linear, by_network.argmax(axis=1), commonest)]
        return Retained(factor.kind, right[0], right[1], right[2], f"accuracy; logistic regression and {tail}")
    weights, offset = affine_fit(x, targets)
    linear_r2 = _explained(truth.targets, judged @ weights + offset)
    network_r2 = _explained(truth.targets, by_network * deviation + mean)
    return Retained(factor.kind, linear_r2, network_r2, 0.0, f"R²; least squares and {tail}")


def _explained(truth: Array, said: Array) -> float:
    """1 − Σ‖f − f̂‖²/Σ‖f − f̄‖² over rows and columns; 0 where f is constant."""
    total = float(np.square(truth - truth.mean(axis=0)).sum())
    return 1 - float(np.square(truth - said).sum()) / total if total > 0 else 0.0


# --- neighbours -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Retrieval:
    """Do the nearest rows of a row share its factor?

    `kind` is that of the factor; `protocol` says how it was measured.
    """

    kind: Kind
    at: dict[int, float]  # number of nearest rows -> score
    mean_average_precision: float | None  # of categories: over the whole ranking
    chance: float  # what random rows give: 0 for numbers
    protocol: str


def retrieval(
    representations: ArrayLike, factor: ArrayLike | Factor, *, at: Sequence[int] = (1, 5, 10), seed: int = 0
) -> Retrieval:
    """Nearest neighbours of each row, itself left out: how far they share its label or its style.

    Of a categorical factor, labels among them, the score at k is precision: the mean share of the k nearest rows
    (Euclidean) with the row's own category, in [0, 1]. Mean average precision goes through the whole ranking: the mean
    over queries and over the rows that share their category of the precision at that row's rank, for as many queries as
    20 million distances allow, drawn by the seed. Of a continuous or periodic one it is 1 − E‖f − f'‖²/E‖f − f''‖², f'
    being a neighbour's and f'' a random row's (cosine and sine of a periodic one): 1 where neighbours are equal, 0
    where they are random. Higher is better. Unchanged by rotation, translation and a common scale.
    """
    x = checked(representations, rows=2)
    found = checked_factor("factor", factor, len(x))
    counts = sorted({whole(count, "at", 1) for count in at})
    if not counts or counts[-1] >= len(x):
        raise InputError(f"`at` must name numbers of neighbours from 1 to {len(x) - 1}, not {list(at)}")
    near = _others(x, counts[-1])
    targets = found.targets
    precision = None
    if found.kind == "categorical":
        sizes = np.bincount(targets)
        chance = float(np.sum(sizes * (sizes - 1)) / (len(x) * (len(x) - 1)))
        alike = (targets[near] == targets[:, None]).astype(float)
        scores = {count: float(alike[:, :count].mean()) for count in counts}
        queries = min(len(x), max(1, _CELLS // len(x)))
        precision = _mean_average_precision(x, targets, np.random.default_rng(seed).permutation(len(x))[:queries])
        how = f"share of the same category; average precision of {queries} queries"
    else:
        chance = 0.0
        apart = np.square(targets[near] - targets[:, None]).sum(axis=2)
        random = 2 * targets.var(axis=0, ddof=1).sum()
        scores = {count: 1 - float(apart[:, :count].mean()) / float(random) for count in counts}
        how = "1 − mean squared difference over that of random rows"
    return Retrieval(found.kind, scores, precision, chance, f"{len(x)} rows, Euclidean; {how}, seed {seed}")


def _others(x: Array, count: int) -> NDArray[np.intp]:
    """The nearest rows of each row but itself, [n, count]."""
    found = nearest(x, x, count + 1)
    kept = found != np.arange(len(x))[:, None]
    kept[kept.all(axis=1), -1] = False  # so many copies of it are as near that it is not among them
    return found[kept].reshape(len(x), count)


def _mean_average_precision(x: Array, codes: NDArray[np.intp], queries: NDArray[np.intp]) -> float | None:
    """None where no query shares its category with another row."""
    centred = x - x.mean(axis=0)
    squares = np.einsum("ij,ij->i", centred, centred)
    ranks = np.arange(1, len(x))
    found: list[float] = []
    for rows in np.array_split(queries, max(1, len(queries) * len(x) // 2_000_000)):
        apart = squares - 2 * centred[rows] @ centred.T
        apart[np.arange(len(rows)), rows] = np.inf  # itself comes last, and is left out
        order = np.argsort(apart, axis=1, kind="stable")[:, :-1]
        alike = codes[order] == codes[rows, None]
        hits = alike.sum(axis=1)
        precisions = (alike * (np.cumsum(alike, axis=1) / ranks)).sum(axis=1)
        found.extend((precisions[hits > 0] / hits[hits > 0]).tolist())
    return float(np.mean(found)) if found else None


# --- augmentations ----------------------------------------------------------------------------------------------------


class Augmentation(Protocol):
    """What `augmentation_readout` asks of an augmentation: any `Pairing`."""

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Images changed, [n, c, h, w]."""


@dataclass(frozen=True)
class AugmentationReadout:
    """The accuracy with which each augmentation is noticed, and their mean; 0.5 is chance.

    `probes` has one for each augmentation.
    """

    probes: dict[str, Probe]

    @property
    def mean(self) -> float:
        return float(np.mean([probe.mean for probe in self.probes.values()]))


def augmentation_readout(
    encoder: Encoder,
    images: Images,
    augmentations: Mapping[str, Augmentation],
    *,
    fitted_on: Images | None = None,
    test_size: float = 0.2,
    seed: int = 0,
) -> AugmentationReadout:
    """Can a linear probe tell whether an augmentation was applied?   (AnInfoNCE §4.2, Table 1)

    For each augmentation alone, half of the images are changed by it and half are not; a logistic regression on the
    frozen representations is fitted on some images and says of others which half they are of. Accuracy, 0.5 at chance;
    higher means that the representation keeps what the augmentation changes. It need not reach 1 even with all of the
    image at hand: some draws change next to nothing, and a grey image may have been grey before.

    `augmentations` are pairings by name, which sample from images [n, c, h, w] in [0, 1]: `each_alone("simclr-cifar")`
    (`probssl.pairings`) are those of a preset, at its strengths and always applied. `encoder` is a module or any
    function of images. Images are judged that the probe has not seen: a share `test_size`, or all where others are
    given to be `fitted_on`.

    The paper names the augmentations (greyscale, brightness, contrast, hue, saturation on CIFAR-10; crop and blur on
    MNIST), that readout is linear and binary, and chance. It does not print the strengths at readout, how the probe was
    trained, or on which images: those of training at full probability, the logistic regression of `linear_probe`
    (whitened, at most 200 iterations) and images apart stand in here.
    """
    import torch

    if not augmentations:
        raise InputError("there must be at least one augmentation to look for")
    rng = np.random.default_rng(whole(seed, "seed", 0))
    if fitted_on is None:
        every = as_images(images)
        order = torch.from_numpy(rng.permutation(len(every)))
        count = round(test_size * len(every))
        parts = every[order[count:]], every[order[:count]]
    else:
        parts = as_images(fitted_on), as_images(images)
    if min(len(part) for part in parts) < 4:
        raise InputError(f"{' and '.join(str(len(p)) for p in parts)} images are too few to fit on and to judge by")
    changed = [torch.from_numpy(np.sort(rng.permutation(len(part))[: len(part) // 2])) for part in parts]
    plain = [encoded(encoder, part) for part in parts]
    found = {}
    for name, augmentation in augmentations.items():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) + (seed << 32))
        sides = []
        for part, rows, z in zip(parts, changed, plain, strict=True):
            codes, labels = z.copy(), np.zeros(len(z), dtype=np.intp)
            blocks = [augmentation.sample(as_images(part[at], floats=True), generator) for at in rows.split(512)]
            codes[rows.numpy()], labels[rows.numpy()] = encoded(encoder, torch.cat(blocks)), 1
            sides.append((codes, labels))
        found[name] = linear_probe(*sides[1], fitted_on=sides[0], solver="whitened", iterations=200)
    return AugmentationReadout(found)
