"""The library as scikit-learn estimators: fit on rows without labels; representations, sources or clusters of rows."""

from probssl.estimators.gedi import GEDIClusterer
from probssl.estimators.ica import ContrastiveICA
from probssl.estimators.siamese import SiameseEncoder
from probssl.estimators.simvae import SimVAEEncoder

__all__ = ["ContrastiveICA", "GEDIClusterer", "SiameseEncoder", "SimVAEEncoder"]
