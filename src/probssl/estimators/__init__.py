"""The library as scikit-learn transformers: fit on rows without labels, transform rows to representations."""

from probssl.estimators.ica import ContrastiveICA
from probssl.estimators.siamese import SiameseEncoder

__all__ = ["ContrastiveICA", "SiameseEncoder"]
