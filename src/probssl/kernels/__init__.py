"""Compiled kernels for what torch has no fast operation for; everything works without them, more slowly."""

from probssl.kernels.build import library, variant
from probssl.kernels.pairs import pair_sums, suits

__all__ = ["library", "pair_sums", "suits", "variant"]
