"""Objectives: one class per published loss, each a different way to deal with the normaliser of q(x | x̃)."""

from probssl.objectives.base import Objective, PairObjective, Terms
from probssl.objectives.contrast import SimSiam, Spectral, Triplet
from probssl.objectives.fisher import Fisher
from probssl.objectives.infonce import InfoNCE, SimCLR
from probssl.objectives.normalised import NCE, SNL, BiasNetwork

__all__ = [
    "NCE",
    "SNL",
    "BiasNetwork",
    "Fisher",
    "InfoNCE",
    "Objective",
    "PairObjective",
    "SimCLR",
    "SimSiam",
    "Spectral",
    "Terms",
    "Triplet",
]
