"""Formulas over categorical variables, for constraints with too many assignments to list."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from probssl.errors import InputError

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True, eq=False, repr=False)
class Formula:
    """A statement that an assignment of classes makes true or false; `&`, `|` and `~` combine formulas.

    A formula that stands in several places is compiled once: build large ones from shared parts.
    """

    parts: tuple[Formula, ...] = ()

    def __and__(self, other: Formula) -> Formula:
        return AllOf((self, other))

    def __or__(self, other: Formula) -> Formula:
        return AnyOf((self, other))

    def __invert__(self) -> Formula:
        return Not((self,))

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {len(self.parts)}"  # parts may be many, and deep

    def __bool__(self) -> NoReturn:
        raise InputError("a formula is neither true nor false by itself: combine formulas by &, | and ~")


class AllOf(Formula):
    """True iff all parts are; without parts, always."""


class AnyOf(Formula):
    """True iff some part is; without parts, never."""


class Not(Formula):
    """True iff its one part is not."""


@dataclass(frozen=True, eq=False)
class Equals(Formula):
    """True iff the variable at `position` has the class `value`."""

    position: int = 0
    value: int = 0


@dataclass(frozen=True)
class Variable:
    """One categorical prediction: its place among the predictions, and how many classes it has.

    `position` is that place, `size` that number.
    """

    position: int
    size: int

    def equals(self, value: int) -> Formula:
        """True iff the class is `value`."""
        if not 0 <= value < self.size:
            raise InputError(f"variable {self.position} has the classes 0 to {self.size - 1}, and no {value}")
        return Equals(position=self.position, value=int(value))

    def among(self, values: Iterable[int]) -> Formula:
        """True iff the class is one of `values`."""
        return any_of(self.equals(value) for value in values)


def variables(sizes: Sequence[int]) -> tuple[Variable, ...]:
    """A variable for each prediction, in order, with so many classes each."""
    return tuple(Variable(position, size) for position, size in enumerate(sizes))


def all_of(formulas: Iterable[Formula]) -> Formula:
    """True iff every formula is."""
    return AllOf(tuple(formulas))


def any_of(formulas: Iterable[Formula]) -> Formula:
    """True iff some formula is."""
    return AnyOf(tuple(formulas))


def where(predicate: Callable[..., bool], *chosen: Variable) -> Formula:
    """True iff `predicate` is, of the classes of a few variables: all their combinations are tried."""
    allowed = (row for row in itertools.product(*(range(v.size) for v in chosen)) if predicate(*row))
    return any_of(_together(chosen, row) for row in allowed)


def all_different(chosen: Sequence[Variable]) -> Formula:
    """True iff no two variables have the same class."""
    return all_of(
        ~(first.equals(value) & second.equals(value))
        for first, second in itertools.combinations(chosen, 2)
        for value in range(min(first.size, second.size))
    )


def chain(
    groups: Sequence[Variable | Sequence[Variable]],
    step: Callable[..., State | None],
    start: State,
    accepts: Callable[[State], bool],
) -> Formula:
    """True iff a machine that reads the variables group by group ends in a state that `accepts` takes.

    `step(state, *classes)` gives the next state, or None to refuse. The size of the formula grows with the number of
    states that can be reached, not with that of the assignments: carries, running sums, counters, regular languages.
    """
    read = [(group,) if isinstance(group, Variable) else tuple(group) for group in groups]
    moves: list[dict[State, dict[State, list[Formula]]]] = []
    reached: dict[State, None] = {start: None}  # in the order found, so that the formula is always the same
    for group in read:
        found: dict[State, dict[State, list[Formula]]] = {}
        following: dict[State, None] = {}
        rows = [(row, _together(group, row)) for row in itertools.product(*(range(v.size) for v in group))]
        for state in reached:
            leads: dict[State, list[Formula]] = defaultdict(list)
            for row, formula in rows:
                after = step(state, *row)
                if after is not None:
                    leads[after].append(formula)
                    following[after] = None
            found[state] = leads
        moves.append(found)
        reached = following
    rest: dict[State, Formula] = {state: all_of(()) for state in reached if accepts(state)}
    for found in reversed(moves):
        rest = {
            state: any_of(any_of(rows) & rest[after] for after, rows in leads.items() if after in rest)
            for state, leads in found.items()
            if any(after in rest for after in leads)
        }
    return rest.get(start, any_of(()))


def sum_is(chosen: Sequence[Variable], total: int) -> Formula:
    """True iff the classes add up to `total`."""
    return chain(chosen, lambda so_far, value: so_far + value if so_far + value <= total else None, 0, total.__eq__)


def adds_up(first: Sequence[Variable], second: Sequence[Variable], total: Sequence[Variable]) -> Formula:
    """True iff first + second = total, numbers of equally many digits written with the most significant first.

    The carry is the state of a `chain` from the right. All variables are digits to the same base, and nothing may be
    carried out of the first place.
    """
    base = {variable.size for variable in (*first, *second, *total)}
    if len(base) != 1 or not len(first) == len(second) == len(total):
        raise InputError("first, second and total need equally many digits, all to the same base")
    (ten,) = base

    def carry(carried: int, a: int, b: int, c: int) -> int | None:
        over, digit = divmod(a + b + carried, ten)
        return over if digit == c else None

    places = list(zip(reversed(first), reversed(second), reversed(total), strict=True))
    return chain(places, carry, 0, (0).__eq__)


def _together(chosen: Sequence[Variable], row: Sequence[int]) -> Formula:
    atoms = [variable.equals(value) for variable, value in zip(chosen, row, strict=True)]
    return atoms[0] if len(atoms) == 1 else all_of(atoms)
