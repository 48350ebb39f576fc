"""Many trainings as one: stacks of trials, which come out as if trained alone."""

from probssl.training.stacked.many import fit_many
from probssl.training.stacked.stack import Trial

__all__ = ["Trial", "fit_many"]
