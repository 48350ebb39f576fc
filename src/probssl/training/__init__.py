"""Training: one loop for any encoder, objective, pairing and data, with checkpoints that resume exactly."""

from probssl.training.loop import Fitted, fit
from probssl.training.plan import TrainingPlan
from probssl.training.progress import ProgressBar, Reporter
from probssl.training.stacked import Trial, fit_many

__all__ = ["Fitted", "ProgressBar", "Reporter", "TrainingPlan", "Trial", "fit", "fit_many"]
