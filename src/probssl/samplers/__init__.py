"""Samplers: Langevin dynamics for energies, with its chains' starts and buffer; mixtures of latents for decoders."""

from probssl.samplers.buffer import NormalStart, ReplayBuffer, Start, UniformStart
from probssl.samplers.mixture import LatentMixture
from probssl.samplers.sgld import SGLD, Box, Trace

__all__ = ["SGLD", "Box", "LatentMixture", "NormalStart", "ReplayBuffer", "Start", "Trace", "UniformStart"]
