"""probssl: self-supervised representation learning as probabilistic modelling.

    import probssl

    table = probssl.load("pmlb:optdigits", label="target")
    run = probssl.fit(table, objective="snl", energy="euclidean", dim=16, out="run")
    z = run.model.embed(table)
    print(probssl.evaluate(run.model, table).rows)

Names are imported when they are first used, so that `import probssl` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from probssl.comparing import compare
    from probssl.data import Table, load, load_images
    from probssl.doctor import examine
    from probssl.energies import Anisotropic, Asymmetric, Cosine, Dot, Energy, Euclidean, PNorm
    from probssl.estimators import ContrastiveICA, GEDIClusterer, SiameseEncoder, SimVAE
    from probssl.evaluation import evaluate
    from probssl.model import Model
    from probssl.objectives import NCE, SNL, Fisher, InfoNCE, Objective, SimSiam, Spectral, Triplet
    from probssl.pairings import (
        GaussianNoise,
        ImageAugmentation,
        LinearMixture,
        MaskAndNoise,
        Pairing,
        Rotations,
        Views,
    )
    from probssl.recipe import Recipe
    from probssl.runs import Run, fit

_HOMES = {
    "comparing": ("compare",),
    "data": ("Table", "load", "load_images"),
    "doctor": ("examine",),
    "energies": ("Anisotropic", "Asymmetric", "Cosine", "Dot", "Energy", "Euclidean", "PNorm"),
    "estimators": ("ContrastiveICA", "GEDIClusterer", "SiameseEncoder", "SimVAE"),
    "evaluation": ("evaluate",),
    "model": ("Model",),
    "objectives": (
        "NCE",
        "SNL",
        "Fisher",
        "InfoNCE",
        "Objective",
        "SimSiam",
        "Spectral",
        "Triplet",
    ),
    "pairings": (
        "GaussianNoise",
        "ImageAugmentation",
        "LinearMixture",
        "MaskAndNoise",
        "Pairing",
        "Rotations",
        "Views",
    ),
    "recipe": ("Recipe",),
    "runs": ("Run", "fit"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "NCE",
    "SNL",
    "Anisotropic",
    "Asymmetric",
    "ContrastiveICA",
    "Cosine",
    "Dot",
    "Energy",
    "Euclidean",
    "Fisher",
    "GEDIClusterer",
    "GaussianNoise",
    "ImageAugmentation",
    "InfoNCE",
    "LinearMixture",
    "MaskAndNoise",
    "Model",
    "Objective",
    "PNorm",
    "Pairing",
    "Recipe",
    "Rotations",
    "Run",
    "SiameseEncoder",
    "SimSiam",
    "SimVAE",
    "Spectral",
    "Table",
    "Triplet",
    "Views",
    "__version__",
    "compare",
    "evaluate",
    "examine",
    "fit",
    "load",
    "load_images",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"probssl.{_HOME[name]}"), name)
    raise AttributeError(f"module 'probssl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
