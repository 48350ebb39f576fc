"""probssl: self-supervised representation learning as probabilistic modelling.

    import probssl

    run = probssl.fit("pmlb:optdigits", objective="snl", energy="euclidean", dim=16, out="run")
    z = run.model.embed("new.csv")
    print(run.comparison.rows)

What stands in `__all__` is public, here and in the modules it names; everything else may change. Names are imported
when they are first used, so that `import probssl` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from probssl import encoders, energies, metrics, objectives, pairings, samplers, symbolic, theory, training, worlds
    from probssl.comparing import compare
    from probssl.data import Dataset, Layout, Table, load
    from probssl.energies import Anisotropic, Asymmetric, Cosine, Dot, Energy, Euclidean, PNorm
    from probssl.estimators import ContrastiveICA, GEDIClusterer, SiameseEncoder, SimVAEEncoder
    from probssl.model import Model
    from probssl.model.imputing import impute
    from probssl.objectives import GEDI, NCE, SNL, Fisher, InfoNCE, Objective, SimSiam, SimVAE, Spectral, Triplet
    from probssl.pairings import (
        GaussianNoise,
        ImageAugmentation,
        LinearMixture,
        MaskAndNoise,
        Pairing,
        Rotations,
        Views,
    )
    from probssl.parts.recipe import Recipe
    from probssl.runs import Comparison, Run, evaluate, fit
    from probssl.runs.doctor import examine

_HOMES = {
    "comparing": ("compare",),
    "data": ("Dataset", "Layout", "Table", "load"),
    "energies": ("Anisotropic", "Asymmetric", "Cosine", "Dot", "Energy", "Euclidean", "PNorm"),
    "estimators": ("ContrastiveICA", "GEDIClusterer", "SiameseEncoder", "SimVAEEncoder"),
    "model": ("Model",),
    "model.imputing": ("impute",),
    "objectives": (
        *("GEDI", "NCE", "SNL", "Fisher", "InfoNCE"),
        *("Objective", "SimSiam", "SimVAE", "Spectral", "Triplet"),
    ),
    "pairings": (
        *("GaussianNoise", "ImageAugmentation", "LinearMixture", "MaskAndNoise"),
        *("Pairing", "Rotations", "Views"),
    ),
    "parts.recipe": ("Recipe",),
    "runs": ("Comparison", "Run", "evaluate", "fit"),
    "runs.doctor": ("examine",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

_MODULES = (
    *("encoders", "energies", "metrics", "objectives", "pairings"),
    *("samplers", "symbolic", "theory", "training", "worlds"),
)

__all__ = [
    "GEDI",
    "NCE",
    "SNL",
    "Anisotropic",
    "Asymmetric",
    "Comparison",
    "ContrastiveICA",
    "Cosine",
    "Dataset",
    "Dot",
    "Energy",
    "Euclidean",
    "Fisher",
    "GEDIClusterer",
    "GaussianNoise",
    "ImageAugmentation",
    "InfoNCE",
    "Layout",
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
    "SimVAEEncoder",
    "Spectral",
    "Table",
    "Triplet",
    "Views",
    "__version__",
    "compare",
    "encoders",
    "energies",
    "evaluate",
    "examine",
    "fit",
    "impute",
    "load",
    "metrics",
    "objectives",
    "pairings",
    "samplers",
    "symbolic",
    "theory",
    "training",
    "worlds",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"probssl.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"probssl.{name}")
    raise AttributeError(f"module 'probssl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
