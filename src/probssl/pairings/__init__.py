"""Pairings: which observations belong together, p(x, x̃). Each knows how to sample, its density and its score."""

from probssl.pairings.gaussian import GaussianNoise, LinearMixture, rotations
from probssl.pairings.masking import MaskAndNoise
from probssl.pairings.neighbours import RowPairs, neighbours
from probssl.pairings.views import Needs, Pairing, Source, Views

__all__ = [
    "GaussianNoise",
    "LinearMixture",
    "MaskAndNoise",
    "Needs",
    "Pairing",
    "RowPairs",
    "Source",
    "Views",
    "neighbours",
    "rotations",
]
