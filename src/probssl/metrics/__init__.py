"""What did the encoder learn? Pure functions: arrays in, numbers out.

`summarise` computes everything that applies; METRICS says how to read it. Where the latents are known,
`identifiability` and `disentanglement` ask whether they were found.
"""

from probssl.metrics.alignment import alignment, uniformity
from probssl.metrics.clid import CLID, clid, cluster_learnability, combine_clid, intrinsic_dimension
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
from probssl.metrics.probes import Probe, knn_probe, linear_probe
from probssl.metrics.rank import Spectra, rankme, spectra
from probssl.metrics.summary import METRICS, Evaluation, Metric, evaluate, summarise

__all__ = [
    "CLID",
    "DCI",
    "MCC",
    "MCR2",
    "METRICS",
    "BlockOrthogonality",
    "ConcentrationError",
    "Evaluation",
    "LinearR2",
    "LossGap",
    "Metric",
    "Probe",
    "Spectra",
    "alignment",
    "beta_vae",
    "beta_vae_accuracy",
    "block_orthogonality",
    "clid",
    "cluster_learnability",
    "coding_rate",
    "combine_clid",
    "concentration_error",
    "dci",
    "disentanglement_scores",
    "evaluate",
    "factor_vae",
    "factor_vae_accuracy",
    "intrinsic_dimension",
    "knn_probe",
    "linear_probe",
    "linear_r2",
    "loss_gap",
    "mcc",
    "mcr2",
    "mig",
    "modularity",
    "rankme",
    "sap",
    "spectra",
    "summarise",
    "uniformity",
]
