"""Symbolic knowledge as a loss: how probable it is that several predictions satisfy a constraint, exactly."""

from probssl.symbolic.constraint import Constraint
from probssl.symbolic.formula import (
    Formula,
    Variable,
    adds_up,
    all_different,
    all_of,
    any_of,
    chain,
    sum_is,
    variables,
    where,
)
from probssl.symbolic.losses import (
    classify_each,
    constraint_loss,
    constraint_terms,
    divergence_of_mean,
    entropy_of_mean,
)

__all__ = [
    "Constraint",
    "Formula",
    "Variable",
    "adds_up",
    "all_different",
    "all_of",
    "any_of",
    "chain",
    "classify_each",
    "constraint_loss",
    "constraint_terms",
    "divergence_of_mean",
    "entropy_of_mean",
    "sum_is",
    "variables",
    "where",
]
