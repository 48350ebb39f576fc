"""Pairings: which observations belong together, p(x, x̃). Each knows how to sample, its density and its score."""

from probssl.pairings.columns import ResampledColumns
from probssl.pairings.composed import HardNegatives, InTurn
from probssl.pairings.each import Each
from probssl.pairings.gaussian import GaussianNoise, LinearMixture, Rotations
from probssl.pairings.image_score import CountableImageAugmentation
from probssl.pairings.images import IMAGE_PRESETS, ImageAugmentation, ImageStrengths, each_alone, image_preset
from probssl.pairings.masking import MaskAndNoise
from probssl.pairings.neighbours import RowPairs, neighbours
from probssl.pairings.views import Needs, Pairing, SampledPairing, Source, Views

__all__ = [
    "IMAGE_PRESETS",
    "CountableImageAugmentation",
    "Each",
    "GaussianNoise",
    "HardNegatives",
    "ImageAugmentation",
    "ImageStrengths",
    "InTurn",
    "LinearMixture",
    "MaskAndNoise",
    "Needs",
    "Pairing",
    "ResampledColumns",
    "Rotations",
    "RowPairs",
    "SampledPairing",
    "Source",
    "Views",
    "each_alone",
    "image_preset",
    "neighbours",
]
