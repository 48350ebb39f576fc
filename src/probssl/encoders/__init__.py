"""Encoders ψ: observations to representations, and heads g: representations to embeddings."""

from probssl.encoders.mlp import MLP, WithHead, encode, representation, seeded

__all__ = ["MLP", "WithHead", "encode", "representation", "seeded"]
