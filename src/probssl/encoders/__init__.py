"""Encoders ψ: observations to representations, decoders back, and heads g: representations to embeddings."""

from probssl.encoders.conv import ConvEncoder
from probssl.encoders.decoders import ConvDecoder, ResidualDecoder, mirrored_decoder
from probssl.encoders.heads import Prototypes
from probssl.encoders.latents import Centring, OnSphere, Whitening, latent_encoder
from probssl.encoders.mlp import (
    GLOBAL_RANDOM_STATE,
    MLP,
    Predictor,
    WithHead,
    as_floats,
    encode,
    representation,
    seeded,
)
from probssl.encoders.resnet import ResNet8

__all__ = [
    "GLOBAL_RANDOM_STATE",
    "MLP",
    "Centring",
    "ConvDecoder",
    "ConvEncoder",
    "OnSphere",
    "Predictor",
    "Prototypes",
    "ResNet8",
    "ResidualDecoder",
    "Whitening",
    "WithHead",
    "as_floats",
    "encode",
    "latent_encoder",
    "mirrored_decoder",
    "representation",
    "seeded",
]
