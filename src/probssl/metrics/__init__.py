"""What did the encoder learn? Pure functions: arrays in, numbers out.

`summarise` computes everything that applies; METRICS says how to read it.
"""

from probssl.metrics.alignment import alignment, uniformity
from probssl.metrics.clid import CLID, clid, cluster_learnability, combine_clid, intrinsic_dimension
from probssl.metrics.mcr import MCR2, coding_rate, mcr2
from probssl.metrics.probes import Probe, knn_probe, linear_probe
from probssl.metrics.rank import Spectra, rankme, spectra
from probssl.metrics.summary import METRICS, Evaluation, Metric, evaluate, summarise

__all__ = [
    "CLID",
    "MCR2",
    "METRICS",
    "Evaluation",
    "Metric",
    "Probe",
    "Spectra",
    "alignment",
    "clid",
    "cluster_learnability",
    "coding_rate",
    "combine_clid",
    "evaluate",
    "intrinsic_dimension",
    "knn_probe",
    "linear_probe",
    "mcr2",
    "rankme",
    "spectra",
    "summarise",
    "uniformity",
]
