"""Encoders ψ: observations to representations, decoders back, and heads g: representations to embeddings."""

from probssl.encoders.conv import ConvEncoder
from probssl.encoders.coupling import rows_meet, sees_batch
from probssl.encoders.decoders import ConvDecoder, ResidualDecoder, mirrored_decoder
from probssl.encoders.heads import PROJECTION_HEADS, Prototypes, projection_head
from probssl.encoders.latents import Centring, OnSphere, Whitening, latent_encoder
from probssl.encoders.mlp import (
    GLOBAL_RANDOM_STATE,
    MLP,
    Predictor,
    WithHead,
    as_floats,
    encode,
    he_weights,
    representation,
    seeded,
)
from probssl.encoders.resnet import ResNet8
from probssl.encoders.resnet18 import ResNet18

__all__ = [
    "GLOBAL_RANDOM_STATE",
    "MLP",
    "PROJECTION_HEADS",
    "Centring",
    "ConvDecoder",
    "ConvEncoder",
    "OnSphere",
    "Predictor",
    "Prototypes",
    "ResNet8",
    "ResNet18",
    "ResidualDecoder",
    "Whitening",
    "WithHead",
    "as_floats",
    "encode",
    "he_weights",
    "latent_encoder",
    "mirrored_decoder",
    "projection_head",
    "representation",
    "rows_meet",
    "seeded",
    "sees_batch",
]
