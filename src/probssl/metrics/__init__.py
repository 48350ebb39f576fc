"""What did the encoder learn? Pure functions: arrays in, numbers out.

`summarise` computes everything that applies; METRICS says how to read it. Where the latents are known,
`identifiability` and `disentanglement` ask whether they were found; `retention` asks what is kept beside the class, and
`generation` how good a model of the observations is.
"""

from probssl.metrics.adhoc import AdhocDecoder, adhoc_decoder
from probssl.metrics.alignment import alignment, uniformity
from probssl.metrics.clid import CLID, clid, cluster_learnability, combine_clid, intrinsic_dimension
from probssl.metrics.clusters import ClusteringScores, GMMProbe, clustering_scores, gmm_probe
from probssl.metrics.disentanglement import (
    DCI,
    beta_vae,
    beta_vae_accuracy,
    dci,
    disentanglement_scores,
    factor_vae,
    factor_vae_accuracy,
    mig,
    modularity,
    sap,
)
from probssl.metrics.generation import (
    Extractor,
    LikelihoodBound,
    ReconstructionError,
    frechet_distance,
    likelihood_bound,
    pixel_components,
    reconstruction_error,
    trained_features,
)
from probssl.metrics.identifiability import (
    MCC,
    BlockOrthogonality,
    ConcentrationError,
    LinearR2,
    LossGap,
    block_orthogonality,
    concentration_error,
    linear_r2,
    loss_gap,
    mcc,
)
from probssl.metrics.mcr import MCR2, coding_rate, mcr2
from probssl.metrics.probes import Probe, knn_probe, linear_probe, mlp_probe
from probssl.metrics.rank import Spectra, rankme, spectra
from probssl.metrics.readers import NumberProbe, boosting_probe, few_probe, number_probe
from probssl.metrics.retention import (
    AugmentationReadout,
    Factor,
    Retained,
    Retrieval,
    augmentation_readout,
    retrieval,
    style_retention,
)
from probssl.metrics.summary import METRICS, Evaluation, Metric, evaluate, summarise

__all__ = [
    "CLID",
    "DCI",
    "MCC",
    "MCR2",
    "METRICS",
    "AdhocDecoder",
    "AugmentationReadout",
    "BlockOrthogonality",
    "ClusteringScores",
    "ConcentrationError",
    "Evaluation",
    "Extractor",
    "Factor",
    "GMMProbe",
    "LikelihoodBound",
    "LinearR2",
    "LossGap",
    "Metric",
    "NumberProbe",
    "Probe",
    "ReconstructionError",
    "Retained",
    "Retrieval",
    "Spectra",
    "adhoc_decoder",
    "alignment",
    "augmentation_readout",
    "beta_vae",
    "beta_vae_accuracy",
    "block_orthogonality",
    "boosting_probe",
    "clid",
    "cluster_learnability",
    "clustering_scores",
    "coding_rate",
    "combine_clid",
    "concentration_error",
    "dci",
    "disentanglement_scores",
    "evaluate",
    "factor_vae",
    "factor_vae_accuracy",
    "few_probe",
    "frechet_distance",
    "gmm_probe",
    "intrinsic_dimension",
    "knn_probe",
    "likelihood_bound",
    "linear_probe",
    "linear_r2",
    "loss_gap",
    "mcc",
    "mcr2",
    "mig",
    "mlp_probe",
    "modularity",
    "number_probe",
    "pixel_components",
    "rankme",
    "reconstruction_error",
    "retrieval",
    "sap",
    "spectra",
    "style_retention",
    "summarise",
    "trained_features",
    "uniformity",
]
