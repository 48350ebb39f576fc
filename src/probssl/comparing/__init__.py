"""Which objective, energy, dimension and augmentation suit a table: a grid, stacked and ranked in a given time."""

from probssl.comparing.comparison import ComparisonInterrupted, compare
from probssl.comparing.grid import candidates
from probssl.comparing.result import CompareResult

__all__ = ["CompareResult", "ComparisonInterrupted", "candidates", "compare"]
