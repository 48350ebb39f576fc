"""probssl: self-supervised representation learning as probabilistic modelling."""

__version__ = "0.1.0"
