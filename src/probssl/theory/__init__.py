"""What should an optimal encoder look like, what is the least loss, and which failures does a loss leave open?

- `linear`: the best linear encoder under the Fisher and the KL loss, and when the best is to collapse;
- `gaussian`: mutual information, and the bounds on it, of Gaussian pairs;
- `bounds`: bounds on mutual information and other divergences from a critic's values, and their ceilings;
- `normaliser`: NCE and SNL, which learn the normaliser, beside maximum likelihood;
- `sphere`: von Mises–Fisher constants, the KL loss of the cosine energy, the map and radius of an optimal encoder;
- `sphere_bayes`: the least InfoNCE and AnInfoNCE on the sphere, for any number of negatives;
- `sphere_samples`: exact samples on the sphere;
- `clustering`: the minima of clustering losses, what a collapse costs, and a diagnosis of predictions;
- `latent`: priors over the latents of related observations, and what they ask of a posterior.

Plain numpy and scipy, imported when a module is first used: `from probssl.theory import linear`. Every function states
formula, source and assumptions, and refuses input that breaks them.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = [
    "bounds",
    "clustering",
    "gaussian",
    "latent",
    "linear",
    "normaliser",
    "sphere",
    "sphere_bayes",
    "sphere_samples",
]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"probssl.theory.{name}")
    raise AttributeError(f"module 'probssl.theory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
