"""Objectives: one class per published loss, each a different way to deal with the normaliser of q(x | x̃)."""

from probssl.objectives.base import Objective, PairObjective, Terms
from probssl.objectives.clustering import ClusteringObjective, ProtoCPC, SwAV
from probssl.objectives.constrained import ConstrainedGEDI
from probssl.objectives.contrast import SimSiam, Spectral, TriCL, Triplet
from probssl.objectives.debiased import DebiasedInfoNCE
from probssl.objectives.divergences import ChiSquared, JensenShannon, RenyiInfoNCE
from probssl.objectives.fisher import Fisher, SlicedFisher
from probssl.objectives.gedi import EBCLR, GEDI, gedi_weights
from probssl.objectives.generative import (
    CRVAE,
    VAE,
    BernoulliLikelihood,
    ColumnsLikelihood,
    GaussianLikelihood,
    GenerativeObjective,
    Likelihood,
    SimVAE,
)
from probssl.objectives.infonce import InfoNCE
from probssl.objectives.latents import AlignUniform, Ensemble, LatentRegression
from probssl.objectives.memory import DeepClustering, InstanceDiscrimination
from probssl.objectives.momentum import BYOL, MoCo, MomentumObjective
from probssl.objectives.normalised import NCE, SNL, BiasNetwork, NoBias
from probssl.objectives.redundancy import WMSE, BarlowTwins, CorInfoMax, VICReg

__all__ = [
    "BYOL",
    "CRVAE",
    "EBCLR",
    "GEDI",
    "NCE",
    "SNL",
    "VAE",
    "WMSE",
    "AlignUniform",
    "BarlowTwins",
    "BernoulliLikelihood",
    "BiasNetwork",
    "ChiSquared",
    "ClusteringObjective",
    "ColumnsLikelihood",
    "ConstrainedGEDI",
    "CorInfoMax",
    "DebiasedInfoNCE",
    "DeepClustering",
    "Ensemble",
    "Fisher",
    "GaussianLikelihood",
    "GenerativeObjective",
    "InfoNCE",
    "InstanceDiscrimination",
    "JensenShannon",
    "LatentRegression",
    "Likelihood",
    "MoCo",
    "MomentumObjective",
    "NoBias",
    "Objective",
    "PairObjective",
    "ProtoCPC",
    "RenyiInfoNCE",
    "SimSiam",
    "SimVAE",
    "SlicedFisher",
    "Spectral",
    "SwAV",
    "Terms",
    "TriCL",
    "Triplet",
    "VICReg",
    "gedi_weights",
]
