"""Runs: from data to a judged model in a folder, and what is read back from there."""

from probssl.runs.evaluation import Comparison, evaluate
from probssl.runs.folder import Run, Source
from probssl.runs.workflow import fit

__all__ = ["Comparison", "Run", "Source", "evaluate", "fit"]
