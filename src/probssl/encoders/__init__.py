"""Encoders ψ: observations to representations, decoders back, and heads g: representations to embeddings."""

from probssl.encoders.conv import ConvEncoder
from probssl.encoders.coupling import rows_meet, sees_batch
from probssl.encoders.decoders import ConvDecoder, Decoder, MirrorDecoder, MLPDecoder, ResidualDecoder
from probssl.encoders.expansion import Expansion, Indicators
from probssl.encoders.heads import ProjectionHead, Prototypes
from probssl.encoders.latents import Centring, LatentEncoder, OnSphere, Whitening
from probssl.encoders.mlp import (
    GLOBAL_RANDOM_STATE,
    MLP,
    Branches,
    Encoder,
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
    "Branches",
    "Centring",
    "ConvDecoder",
    "ConvEncoder",
    "Decoder",
    "Encoder",
    "Expansion",
    "Indicators",
    "LatentEncoder",
    "MLPDecoder",
    "MirrorDecoder",
    "OnSphere",
    "Predictor",
    "ProjectionHead",
    "Prototypes",
    "ResNet8",
    "ResNet18",
    "ResidualDecoder",
    "Whitening",
    "WithHead",
    "as_floats",
    "encode",
    "he_weights",
    "representation",
    "rows_meet",
    "seeded",
    "sees_batch",
]
