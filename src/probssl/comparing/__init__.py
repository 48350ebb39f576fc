"""Which objective, energy, pairing and dimension suit the data: a grid, trained and ranked in a given time."""

from probssl.comparing.comparison import ComparisonInterrupted, compare
from probssl.comparing.grid import candidates
from probssl.comparing.result import CompareResult

__all__ = ["CompareResult", "ComparisonInterrupted", "candidates", "compare"]
