"""What a recipe refuses: values that mean nothing, and choices that do not suit the data. Each in one sentence."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from probssl.errors import InputError
from probssl.recipe.names import (
    ASYMMETRIES,
    AUGMENTATIONS,
    COUPLED_NETWORKS,
    ENERGIES,
    EVERY_OBJECTIVE,
    GENERATIVE_OBJECTIVES,
    LIKELIHOODS,
    NEEDS_SCORE,
    NETWORKS,
    OF_AUGMENTATIONS,
    OF_IMAGES,
    SCORED_AUGMENTATIONS,
    SYMMETRIC_ONLY,
    WITH_CLUSTERS,
    WITH_MEMORY,
)

if TYPE_CHECKING:
    from probssl.recipe.recipe import Recipe


def check_names(recipe: Recipe) -> None:
    """Refuse names that nobody knows, and those that do not go together."""
    for name, known in (("objective", EVERY_OBJECTIVE), ("energy", ENERGIES), ("asymmetry", ASYMMETRIES)):
        _one_of(name, getattr(recipe, name), known)
    _one_of("likelihood", recipe.likelihood, LIKELIHOODS)
    if recipe.network is not None:
        _one_of("network", recipe.network, NETWORKS)
    if recipe.augmentation is not None:
        _one_of("augmentation", recipe.augmentation, AUGMENTATIONS)
    if recipe.asymmetry != "none" and recipe.objective in SYMMETRIC_ONLY:
        raise InputError(
            f"the {recipe.objective} objective is defined with asymmetry none only, not {recipe.asymmetry}"
        )


def check_values(recipe: Recipe) -> None:
    """Refuse numbers out of range."""
    if recipe.slices < 1:
        raise InputError(f"slices must be at least 1, not {recipe.slices}")
    if recipe.clusters is not None and recipe.objective not in WITH_CLUSTERS:
        raise InputError(
            f"the {recipe.objective} objective has no clusters: leave them out, or choose {', '.join(WITH_CLUSTERS)}"
        )
    if recipe.clusters is not None and recipe.clusters < 2:
        raise InputError(f"clusters must be at least 2, not {recipe.clusters}")
    for name in ("generative", "invariance", "balance"):
        if not 0 <= getattr(recipe, name) < math.inf:
            raise InputError(f"{name} must not be negative, and finite, not {getattr(recipe, name):g}")
    if recipe.sgld_steps < 1:
        raise InputError(f"sgld_steps must be at least 1, not {recipe.sgld_steps}")
    if recipe.objective == "gedi" and not recipe.generative + recipe.invariance + recipe.balance:
        raise InputError("gedi needs a weight above 0 among generative, invariance and balance")
    if recipe.related < (2 if recipe.mean_variance is None else 1):
        raise InputError(f"related must be at least 2, or 1 with a mean_variance, not {recipe.related}")
    if recipe.queue < 1:
        raise InputError(f"queue must be at least 1, not {recipe.queue}")
    if not 0 <= recipe.momentum < 1:
        raise InputError(f"momentum must lie in [0, 1), not {recipe.momentum:g}")
    if recipe.head is not None and recipe.objective in GENERATIVE_OBJECTIVES:
        raise InputError(
            f"the {recipe.objective} objective decodes the representation itself: leave the projection head out"
        )
    if recipe.head is not None and (not recipe.head or min(recipe.head) < 1):
        raise InputError(f"a projection head needs at least one layer, of positive widths, not {list(recipe.head)}")
    if recipe.likelihood != "gaussian" and recipe.likelihood_variance is not None:
        raise InputError(f"the {recipe.likelihood} likelihood has no likelihood_variance: leave it out")
    for name in ("dim", "width"):
        if getattr(recipe, name) is not None and getattr(recipe, name) < 1:
            raise InputError(f"{name} must be at least 1, not {getattr(recipe, name)}")
    if recipe.hidden is not None and any(width < 1 for width in recipe.hidden):
        raise InputError(f"hidden widths must be positive, not {list(recipe.hidden)}")
    if not 0 <= recipe.preservation <= 1:
        raise InputError(f"preservation must lie in [0, 1], not {recipe.preservation:g}")
    for name in (
        *("temperature", "noise", "margin", "order", "beta", "consistency"),
        *("likelihood_variance", "latent_variance", "mean_variance"),
    ):
        value = getattr(recipe, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"{name} must be positive and finite, not {value:g}")
    if recipe.noise < 1e-6:
        raise InputError(f"noise must be at least 1e-06, a millionth of a standard deviation, not {recipe.noise:g}")
    if not 1 <= recipe.p < math.inf:
        raise InputError(f"p must be at least 1 and finite, not {recipe.p:g}")
    if not 0 <= recipe.seed < 2**62:
        raise InputError(f"the seed must be a whole number from 0, not {recipe.seed}")


def check_world(recipe: Recipe) -> None:
    """Refuse what cannot be asked of a world."""
    if recipe.objective in NEEDS_SCORE:
        raise InputError(
            f"the {recipe.objective} objective needs the score ∇ₓ log p(x̃ | x), which world:{recipe.world} does not "
            "know: choose another, for example infonce"
        )
    if recipe.objective in WITH_MEMORY:
        raise InputError(
            f"the {recipe.objective} objective remembers the rows of a table, and world:{recipe.world} makes new ones "
            "at every step: choose another, for example swav"
        )
    if recipe.asymmetry == "encoder":
        raise InputError(
            f"world:{recipe.world} mixes both sides of a pair alike, so one encoder must undo it: "
            "choose asymmetry none or predictor"
        )


def check_images(recipe: Recipe) -> None:
    """Refuse what cannot be asked of images."""
    if recipe.objective in NEEDS_SCORE and recipe.augmentation not in (None, *SCORED_AUGMENTATIONS):
        raise InputError(
            f"the {recipe.objective} objective needs the score ∇ₓ log p(x̃ | x), which augmentations of images have "
            f"that end in noise: choose {', '.join(SCORED_AUGMENTATIONS[:-1])} or {SCORED_AUGMENTATIONS[-1]}, "
            f"not {recipe.augmentation}"
        )
    network = recipe.network or "conv"
    if recipe.objective in NEEDS_SCORE and network in COUPLED_NETWORKS:
        apart = [name for name in NETWORKS if name not in COUPLED_NETWORKS]
        raise InputError(
            f"the {recipe.objective} objective needs the slope of each image's energy in that image alone, and the "
            f"images of a batch meet in the batch normalisation of {network}: choose {', '.join(apart[:-1])} or "
            f"{apart[-1]}"
        )
    if recipe.hidden is not None and network != "mlp":
        raise InputError(f"hidden is a choice about the mlp network, and this one is {network}: give a width instead")
    if recipe.width is not None and network == "mlp":
        raise InputError("the mlp network has hidden layers in place of a width: give hidden instead")
    if recipe.shape is not None and (len(recipe.shape) != 3 or min(recipe.shape) < 1):
        raise InputError(f"the shape of images is channels, height and width, not {list(recipe.shape)}")


def check_likelihood(recipe: Recipe) -> None:
    """Refuse chances for rows that are none."""
    if recipe.images is None and recipe.likelihood == "bernoulli" and recipe.objective in GENERATIVE_OBJECTIVES:
        raise InputError(
            "the bernoulli likelihood is of numbers from 0 to 1, as pixels are, and rows of a table or world are not: "
            "use the gaussian one"
        )


def refuse_unfit(recipe: Recipe, names: Iterable[str]) -> None:
    """Refuse, of the options that were named, the first that the data of the recipe has no use for."""
    for name in names:
        if name in OF_AUGMENTATIONS and recipe.world is not None:
            raise InputError(
                f"{name} is a choice about augmentations, and world:{recipe.world} makes its own pairs: leave it out"
            )
        if name in OF_AUGMENTATIONS and recipe.images is not None:
            raise InputError(
                f"{name} is a choice about augmentations of tables, and {recipe.images} is a set of images: "
                "choose an augmentation instead"
            )
        if name in OF_IMAGES and recipe.images is None:
            data = "a table" if recipe.world is None else f"world:{recipe.world}"
            raise InputError(f"{name} is a choice about images, and the data is {data}: leave it out")


def changed(recipe: Recipe) -> list[str]:
    """Names of the fields that are not at their defaults."""
    return [f.name for f in dataclasses.fields(recipe) if getattr(recipe, f.name) != f.default]


def _one_of(name: str, value: str, known: Iterable[str]) -> None:
    known = list(known)
    if value not in known:
        close = difflib.get_close_matches(value, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(known)}"
        raise InputError(f"there is no {name} {value!r}: {hint}")
