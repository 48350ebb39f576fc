"""Worlds: data with known latents. Spaces × marginals × conditionals × mixings, every part sampled exactly."""

from probssl.worlds.anisotropic import FisherBingham, ProjectedGaussian, ShellGaussian
from probssl.worlds.conditionals import (
    Conditional,
    GeneralisedNormal,
    ProjectedGeneralisedNormal,
    TruncatedGeneralisedNormal,
    VonMisesFisher,
    generalised_normal,
    laplace,
    normal,
)
from probssl.worlds.marginals import Around, Marginal, Uniform, opposite
from probssl.worlds.mixings import Decoder, Identity, InvertibleMLP, Mixing
from probssl.worlds.named import named_world
from probssl.worlds.spaces import Box, RealSpace, Space, Sphere
from probssl.worlds.world import World

__all__ = [
    "Around",
    "Box",
    "Conditional",
    "Decoder",
    "FisherBingham",
    "GeneralisedNormal",
    "Identity",
    "InvertibleMLP",
    "Marginal",
    "Mixing",
    "ProjectedGaussian",
    "ProjectedGeneralisedNormal",
    "RealSpace",
    "ShellGaussian",
    "Space",
    "Sphere",
    "TruncatedGeneralisedNormal",
    "Uniform",
    "VonMisesFisher",
    "World",
    "generalised_normal",
    "laplace",
    "named_world",
    "normal",
    "opposite",
]
