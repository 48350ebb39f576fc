"""A trained model: what was chosen, its weights, and what can be asked of it."""

from probssl.model.model import Data, Model, facts_of, prepare
from probssl.model.observations import Observations

__all__ = ["Data", "Model", "Observations", "facts_of", "prepare"]
