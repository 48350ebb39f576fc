"""A constraint on several categorical predictions: how probable it is that they satisfy it, and what follows."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from probssl.errors import InputError
from probssl.symbolic.circuit import Circuit
from probssl.symbolic.formula import Formula, Variable
from probssl.symbolic.listing import Listing
from probssl.symbolic.sdd import compile_formula

Logits: TypeAlias = Tensor | Sequence[Tensor]
"""Logits, or log-probabilities, of K predictions: one [..., c_k] each, or [..., K, c] where all have c classes."""

LIMIT = 2**20
"""How many assignments may be tried or listed."""


class Constraint(nn.Module):
    """p(c | x) = Σ_{y satisfies c} Π_k p_k(y_k), for independent predictions p_k = softmax of the k-th logits.

    log p(c) is a log-sum-exp of Σ_k ℓ_k(y_k), ℓ = log_softmax, over the assignments that satisfy c: exact, finite for
    finite logits, in (−∞, 0], and 0 iff the predictions cannot but satisfy it. Its gradient over the logits is
    p(y_k | c) − p_k(y_k). This is the semantic loss (Xu et al. 2018) and GEDI Eq. 8; GEDI Eq. 9 multiplies one factor a
    class as if classes of one image were independent facts, which a softmax is not, and the product underflows.

    Made by `where`, `of` or `from_formula`. Those listed one by one combine by `&`, `|` and `~`. It has neither
    parameters nor buffers, so that an objective that holds it can be stacked; `fingerprint` tells it from others.
    `sizes` are the numbers of classes of the predictions; `where`, `of` and `from_formula` make the `evaluator` of c.
    """

    def __init__(self, sizes: Sequence[int], evaluator: Listing | Circuit) -> None:
        super().__init__()
        self.sizes = _sizes(sizes)
        self.count = evaluator.count
        """How many assignments satisfy it."""
        self.fingerprint = hashlib.sha256(repr(self.sizes).encode() + evaluator.digest()).hexdigest()[:16]
        self._evaluator = evaluator

    # --- Making -------------------------------------------------------------------------------------------------------

    @classmethod
    def where(cls, predicate: Callable[..., bool], sizes: Sequence[int]) -> Constraint:
        """Satisfied by the classes (y_1, …, y_K) of which `predicate(y_1, …, y_K)` is true; `sizes` are the c_k.

        `Constraint.where(lambda a, b, c: a + b == c, sizes=(10, 10, 10))` has 55 assignments of 1000.
        """
        sizes = _sizes(sizes)
        _check_few(math.prod(sizes), "there are {} assignments of classes to try")
        try:
            inspect.signature(predicate).bind(*sizes)
        except TypeError:
            raise InputError(f"the predicate must take {len(sizes)} classes, one a prediction") from None
        except ValueError:  # a function of C that does not say what it takes
            pass
        return cls.of((row for row in itertools.product(*map(range, sizes)) if predicate(*row)), sizes)

    @classmethod
    def of(cls, assignments: Iterable[Sequence[int]], sizes: Sequence[int]) -> Constraint:
        """Satisfied by these assignments (y_1, …, y_K) and no others; one given twice counts once."""
        sizes = _sizes(sizes)
        rows = sorted({tuple(int(value) for value in row) for row in itertools.islice(assignments, LIMIT + 1)})
        _check_few(len(rows), "{} assignments and more are too many to list")
        for row in rows:
            if len(row) != len(sizes) or not all(0 <= value < size for value, size in zip(row, sizes, strict=True)):
                raise InputError(
                    f"the assignment {row} does not fit: it needs {len(sizes)} classes, each at least 0 and below "
                    f"{', '.join(map(str, sizes))}"
                )
        if not rows:
            raise InputError("no assignment satisfies the constraint: its probability is 0, whatever is predicted")
        if len(rows) == math.prod(sizes):
            raise InputError("every assignment satisfies the constraint: there is nothing to learn from it")
        begins = torch.tensor([0, *itertools.accumulate(sizes[:-1])])
        return cls(sizes, Listing(torch.tensor(rows) + begins))

    @classmethod
    def from_formula(cls, formula: Formula, variables: Sequence[Variable]) -> Constraint:
        """Satisfied by the assignments that make a formula true, without listing them (extra `symbolic`).

        `variables` are all predictions in order, as `probssl.symbolic.variables` made them. See `sdd.compile_formula`.
        """
        if [variable.position for variable in variables] != list(range(len(variables))):
            raise InputError("from_formula needs all the variables, in the order in which `variables` made them")
        return cls([variable.size for variable in variables], compile_formula(formula, variables))

    # --- Probabilities ------------------------------------------------------------------------------------------------

    def log_prob(self, logits: Logits) -> Tensor:
        """log p(c): [...], one number a tuple of predictions."""
        return self._evaluator.log_sum(self._literals(logits))

    def loss(self, logits: Logits) -> Tensor:
        """−mean log p(c), to minimise: at least 0 (GEDI §6.4, L_NESY as a mean)."""
        return -self.log_prob(logits).mean()

    def marginals(self, logits: Logits) -> list[Tensor]:
        """p(y_k | c): what each prediction becomes once the constraint is known to hold, [..., c_k] each.

        It is the gradient of log p(c) over the log-probabilities, and differentiable; `torch.no_grad` saves the memory
        that this takes.
        """
        return list(self._evaluator.marginals(self._literals(logits)).split(self.sizes, -1))

    def most_probable(self, logits: Logits) -> Tensor:
        """The most probable assignment among those that satisfy it: classes [..., K]."""
        chosen = self._evaluator.best(self._literals(logits).detach())
        return torch.stack([part.argmax(-1) for part in chosen.split(self.sizes, -1)], -1)

    def satisfied(self, assignments: Tensor) -> Tensor:
        """Which assignments of classes [..., K] satisfy it: truth values [...]."""
        sizes = torch.tensor(self.sizes, device=assignments.device)
        if assignments.shape[-1:] != sizes.shape or assignments.is_floating_point():
            raise InputError(f"assignments are whole numbers [..., {len(sizes)}], not {_shape(assignments)}")
        if bool(((assignments < 0) | (assignments >= sizes)).any()):
            raise InputError(f"assignments must be at least 0 and below {', '.join(map(str, self.sizes))}")
        each = zip(assignments.long().unbind(-1), self.sizes, strict=True)
        known = torch.cat([nn.functional.one_hot(values, size) for values, size in each], -1)
        return self._evaluator.log_sum(known.to(torch.get_default_dtype()).log()) > -math.inf

    def marginal_prior(self, variable: int | None = None) -> Tensor:
        """p(y_k) when all satisfying assignments are equally likely: float64 [c_k], for the `variable` k.

        Without one, the mean over variables, which is what a classifier that serves all of them sees: (21 − y)/165 for
        sums of two digits that are a digit, where uniform classes would be wrong.
        """
        each = self.marginals([torch.zeros(size, dtype=torch.float64) for size in self.sizes])
        if variable is not None:
            if not 0 <= variable < len(each):
                raise InputError(f"the constraint has the variables 0 to {len(each) - 1}, and no {variable}")
            return each[variable]
        if len(set(self.sizes)) > 1:
            raise InputError("variables with different classes have no common prior: name the variable")
        return torch.stack(each).mean(0)

    def assignments(self) -> Tensor:
        """The satisfying assignments in order, [count, K], of a constraint that lists them."""
        rows = self._listed("list its assignments")
        return rows - torch.tensor([0, *itertools.accumulate(self.sizes[:-1])])

    # --- Combining ----------------------------------------------------------------------------------------------------

    def __and__(self, other: Constraint) -> Constraint:
        return self._combined(other, set.intersection)

    def __or__(self, other: Constraint) -> Constraint:
        return self._combined(other, set.union)

    def __invert__(self) -> Constraint:
        mine = set(map(tuple, self.assignments().tolist()))
        _check_few(math.prod(self.sizes), "there are {} assignments of classes to try")
        return Constraint.of((row for row in itertools.product(*map(range, self.sizes)) if row not in mine), self.sizes)

    def extra_repr(self) -> str:
        return f"sizes={self.sizes}, count={self.count}, fingerprint={self.fingerprint}"

    def _combined(self, other: Constraint, how: Callable[[set, set], set]) -> Constraint:
        if self.sizes != other.sizes:
            raise InputError(f"constraints on predictions of {self.sizes} and {other.sizes} classes cannot be combined")
        mine, others = ({*map(tuple, each.assignments().tolist())} for each in (self, other))
        return Constraint.of(how(mine, others), self.sizes)

    def _listed(self, what: str) -> Tensor:
        if not isinstance(self._evaluator, Listing):
            raise InputError(f"a compiled constraint cannot {what}: combine formulas before from_formula instead")
        return self._evaluator.rows

    def _literals(self, logits: Logits) -> Tensor:
        """Log-probabilities of all classes of all predictions in a row: [..., c_1 + … + c_K]."""
        given = list(logits.unbind(-2)) if isinstance(logits, Tensor) and logits.dim() > 1 else list(logits)
        if [part.shape[-1:] for part in given] != [(size,) for size in self.sizes]:
            raise InputError(
                f"the constraint needs logits of {' and '.join(map(str, self.sizes))} classes, [..., c] each, not of "
                f"shape {_shape(logits) if isinstance(logits, Tensor) else ', '.join(map(_shape, given))}"
            )
        if len({part.shape[:-1] for part in given}) > 1:
            raise InputError(f"logits need equally many rows, and have the shapes {', '.join(map(_shape, given))}")
        return torch.cat([part.log_softmax(-1) for part in given], -1)


def _check_few(number: int, sentence: str) -> None:
    if number > LIMIT:
        shown = f"{number:,}" if number < 10**12 else f"{float(number):.0e}" if number < 10**300 else "too many"
        raise InputError(f"{sentence.format(shown)}, and the limit is {LIMIT:,}: write a formula, and use from_formula")


def _sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    found = tuple(int(size) for size in sizes)
    if not found or min(found) < 2:
        raise InputError(f"sizes are the numbers of classes of each prediction, at least 2 each, not {sizes!r}")
    return found


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))
