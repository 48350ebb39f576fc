"""The trainings of the image studies (CL-ICA A.6): pairs of images, the loss, and what is measured of each encoder."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from probssl.encoders import ConvEncoder, encode, seeded
from probssl.errors import InputError
from probssl.metrics import linear_r2, mcc
from probssl.metrics.disentanglement import dci, disentanglement_scores
from probssl.objectives.latents import AlignUniform
from probssl.pairings.views import Needs, Source, Views
from probssl.studies.base import Config, Result
from probssl.training import TrainingPlan, fit
from probssl.worlds.sprite_files import KittiMasks, load_kitti_masks
from probssl.worlds.sprite_transitions import LaplaceTransition, NaturalLikeTransition, Transition, UniformTransition
from probssl.worlds.sprites import Sprites

DIM = 10
"""Codes, as in all of the paper's image experiments: twice as many as factors."""

UNTRAINED, COMPONENTS, FACTORS = "untrained encoder", "principal components of pixels", "the factors themselves"
BASELINES = (UNTRAINED, COMPONENTS, FACTORS)

SCORES = {
    "BetaVAE score": "beta_vae",
    "FactorVAE score": "factor_vae",
    "MIG": "mig",
    "DCI": "dci_disentanglement",
    "modularity": "modularity",
    "SAP": "sap",
}
"""Name in the paper's tables -> name in `disentanglement_scores`."""

TRANSITIONS: dict[str, Callable[[], Transition]] = {
    "LAP": LaplaceTransition,
    "UNI": UniformTransition,
    "discrete": NaturalLikeTransition,
    "continuous": NaturalLikeTransition,
}


class SpritePairs(Source):
    """Images of sprites and of where a transition takes them: factors uniform on the grids, or between them.

    "LAP" and "UNI" move indices. "discrete" and "continuous" move values in the natural-like way, the former rounded to
    the grids as it is drawn.
    """

    def __init__(self, name: str, size: int) -> None:
        super().__init__()
        self.name = name
        self.sprites = Sprites(size)
        self.transition = TRANSITIONS[name]()

    def factors(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """First factors of pairs: indices, or values where they are continuous."""
        return self.sprites.draw(count, generator, continuous=self.name == "continuous")

    def move(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Second factors, of the same kind."""
        if self.name == "discrete":
            return self.sprites.indices(self.transition.sample(self.sprites.values(factors), generator))
        return self.transition.sample(factors, generator)

    @torch.no_grad()
    def draw(self, count: int, needs: Needs, generator: torch.Generator | None = None) -> Views:
        before = self.factors(count, generator)
        after = [self.move(before, generator) for _ in range(needs.augmented)]
        images = self.sprites.render(torch.cat([before, *after]))
        x = images[:count]
        return Views(
            x=x,
            augmented=images[count:].unflatten(0, (needs.augmented, count)) if after else x.new_empty(0, *x.shape),
            latents=self.sprites.values(before).float(),
        )


class MaskPairs(Source):
    """Two frames of one pedestrian, at most `separation` apart: masks averaged to `size` × `size` pixels."""

    def __init__(self, path: Path, separation: int, size: int) -> None:
        super().__init__()
        self.masks, self.separation = masks_of(path), separation
        self.shrink = nn.AvgPool2d(self.masks.pixels.height // size)

    def images(self, rows: Tensor) -> Tensor:
        """The masks of these rows: [n, 1, size, size]."""
        return self.shrink(self.masks.images(rows))

    def draw(self, count: int, needs: Needs, generator: torch.Generator | None = None) -> Views:
        if needs.augmented > 1:
            raise InputError("a frame has one later frame in a pair: choose an objective of one augmented view")
        rows, later = self.masks.draw_pairs(count, generator, separation=self.separation)
        augmented = self.images(later).unsqueeze(0)[: needs.augmented]
        return Views(x=self.images(rows), augmented=augmented, latents=self.masks.latents[rows])


@functools.lru_cache(maxsize=1)
def masks_of(path: Path) -> KittiMasks:
    """The masks in a file, read once a process."""
    return load_kitti_masks(path)


def trial(config: Config) -> Result:
    """Train one encoder of sprites, or take a baseline, and measure its codes."""
    sprites = Sprites(config["size"])
    found: Result = {"history": [], "collapsed": {}}
    if config["setting"] == FACTORS:
        codes = np.stack(np.meshgrid(*map(np.arange, config["grid"]), indexing="ij"), axis=-1).astype(np.float32)
    else:
        generator = torch.Generator().manual_seed(config["seed"])
        encoder, trained = encoder_of(
            config,
            lambda: SpritePairs(config["transition"], config["size"]),
            lambda: sprites.render(sprites.draw(4096, generator)),
        )
        found |= trained
        if found.get("failure") is not None:  # a loss that cannot be trained has found nothing
            return {**found, "numbers": {}}
        if config["transition"] == "continuous":
            return {**found, **measure_between(encoder, config)}
        codes = grid_codes(encoder, sprites, config["grid"])
    return {**found, **measure_on_grid(codes, config)}


def trial_on_masks(config: Config, path: Path) -> Result:
    """The same of masks: how well codes and the latents of frames agree, pair by pair."""
    source = MaskPairs(path, config["separation"], config["size"])
    generator = torch.Generator().manual_seed(config["seed"] + 1_000_003)
    looked_at = torch.randint(len(source.masks), (config["rows"],), generator=generator)
    encoder, trained = encoder_of(config, lambda: source, lambda: source.images(looked_at[:4096]))
    found = {"history": [], "collapsed": {}, "failure": None, **trained}
    if found["failure"] is not None:
        return found
    codes = torch.cat([encode(encoder, source.images(rows)) for rows in looked_at.split(512)]).numpy()
    return {**found, "MCC": mcc(codes, source.masks.latents[looked_at].numpy(), correlation="spearman").value}


def encoder_of(
    config: Config, source: Callable[[], Source], images: Callable[[], Tensor]
) -> tuple[nn.Module, dict[str, Any]]:
    """The encoder of a configuration, trained on pairs, untrained, or linear by some images; and how it was trained."""
    if config["setting"] == COMPONENTS:
        return principal_components(images()), {}
    network = ConvEncoder(config["widths"], DIM, hidden=config["hidden"])
    encoder = seeded(config["seed"], lambda: network.bind(shape=(1, config["size"], config["size"])))
    return encoder, {} if config["setting"] == UNTRAINED else train(encoder, source(), config)


def train(encoder: nn.Module, source: Source, config: Config) -> Result:
    """Fit the loss of the configuration to pairs of the source; the encoder is trained in place."""
    fitted = fit(
        encoder,
        AlignUniform(config["alpha"], config["p"]),
        source,
        plan=TrainingPlan(
            steps=config["steps"],
            batch_size=config["batch"],
            lr=config["lr"],
            warmup=config["warmup"],
            anneal=config["anneal"],
            log_every=max(1, config["steps"] // 40),
        ),
        seed=config["seed"],
    )
    if fitted.interrupted:
        raise KeyboardInterrupt
    parts = ("step", "loss", "alignment", "uniformity", "rankme")
    history = [[row[part] for part in parts] for row in fitted.history if "loss" in row]
    return {"history": history, "collapsed": fitted.collapsed, "failure": fitted.failure}


def principal_components(images: Tensor) -> nn.Module:
    """The linear encoder onto the `DIM` directions in which these images vary most."""
    x = images.flatten(1).double()
    _, vectors = torch.linalg.eigh(torch.cov(x.T))
    layer = nn.Linear(x.shape[1], DIM, bias=False)
    with torch.no_grad():
        layer.weight.copy_(vectors[:, -DIM:].flip(1).T)
    return nn.Sequential(nn.Flatten(), layer)


def grid_codes(encoder: nn.Module, sprites: Sprites, grid: Sequence[int]) -> np.ndarray:
    """The code of every combination of factors, of `grid` evenly spaced values each: float32 [*grid, DIM].

    All that metrics on a grid can ask for, at one look a combination: BetaVAE and FactorVAE ask for 2.9 million codes,
    of only 737,280 images.
    """
    places = [
        torch.linspace(0, size - 1, count).round().long() for size, count in zip(sprites.sizes, grid, strict=True)
    ]
    rows = torch.cartesian_prod(*places).split(512)  # larger ones leave the cache
    return torch.cat([encode(encoder, sprites.render(some)) for some in rows]).numpy().reshape(*grid, -1)


def measure_on_grid(codes: np.ndarray, config: Config) -> Result:
    """Every score of codes [*grid, k], and what they are made of."""
    grid = codes.shape[:-1]

    def draw(count: int, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(0, grid, size=(count, len(grid)))

    def look(factors: np.ndarray) -> np.ndarray:
        return codes[tuple(factors.T)]

    seed, rows, points = config["seed"], config["rows"], config["points"]
    scores = disentanglement_scores(
        draw,
        look,
        train=rows,
        test=rows // 2,
        points=points,
        test_points=points // 2,
        model=config["dci"],
        discrete=[True] * len(grid),
        seed=seed,
    )
    factors = draw(rows, np.random.default_rng([seed, 1]))
    found = look(factors)
    parts = dci(found, factors, discrete=[True] * len(grid), seed=seed)
    return {
        "numbers": {name: scores[key] for name, key in SCORES.items()} | _linear(found, factors, seed),
        "informativeness": parts.per_factor,
        **effects(codes),
    }


def measure_between(encoder: nn.Module, config: Config) -> Result:
    """MCC and linear R² on factors between the grids, where the other scores are not defined."""
    source = SpritePairs(config["transition"], config["size"])
    views = source.draw(config["rows"], Needs(augmented=0), torch.Generator().manual_seed(config["seed"] + 1_000_003))
    assert views.latents is not None
    return {"numbers": _linear(encode(encoder, views.x, batch_size=512).numpy(), views.latents.numpy(), config["seed"])}


def _linear(codes: np.ndarray, factors: np.ndarray, seed: int) -> dict[str, float]:
    """Spearman's MCC, which the released code takes, and held-out R²."""
    return {
        "MCC": mcc(codes, factors, correlation="spearman").value,
        "linear R²": linear_r2(codes, factors, seed=seed).mean,
    }


def effects(codes: np.ndarray) -> dict[str, Any]:
    """What each code does when one factor alone is known, exactly, from codes [*grid, k].

    `curves`: for every factor, mean and deviation of each code at each of its values, in units of the code's own
    deviation: [[values, k], [values, k]]. `shares`: the variance of that mean, [k, factors], in [0, 1]: 1 where a code
    is a function of the factor.
    """
    axes = tuple(range(codes.ndim - 1))
    flat = codes.astype(np.float64)
    deviation = flat.std(axis=axes)
    flat = (flat - flat.mean(axis=axes)) / np.where(deviation > 0, deviation, 1.0)
    curves, shares = [], []
    for factor in axes:
        others = tuple(axis for axis in axes if axis != factor)
        mean, spread = flat.mean(axis=others), flat.std(axis=others)
        curves.append([mean.round(4), spread.round(4)])
        shares.append(mean.var(axis=0))
    return {"curves": curves, "shares": np.stack(shares, axis=1).round(4)}
