"""Samplers of energy-based models: Langevin dynamics, where its chains start, and the buffer that keeps them."""

from probssl.samplers.buffer import NormalStart, ReplayBuffer, Start, UniformStart
from probssl.samplers.sgld import SGLD, Box, Trace

__all__ = ["SGLD", "Box", "NormalStart", "ReplayBuffer", "Start", "Trace", "UniformStart"]
