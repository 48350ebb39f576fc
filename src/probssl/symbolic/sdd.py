"""From a formula to a circuit, through a sentential decision diagram (SDD; Darwiche 2011), compiled by PySDD."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

from probssl.errors import InputError, MissingExtra
from probssl.symbolic.circuit import Circuit, Element
from probssl.symbolic.formula import AllOf, AnyOf, Equals, Formula, Not, Variable

NODES = 2_000_000
"""How many nodes the engine may make for one formula."""


def compile_formula(formula: Formula, chosen: Sequence[Variable]) -> Circuit:
    """The circuit whose value at log p is log Σ_y Π_k p(y_k) over the assignments y that make the formula true.

    A variable of c classes becomes c Boolean ones, of which exactly one is true: that is conjoined with every part of
    the formula, which keeps diagrams small on the way. A Boolean weighs p if true and 1 if false. In every assignment
    that is left, turning one Boolean over breaks "exactly one", so no product leaves any out: the diagram is smooth as
    it is, and its false literals, being 1, drop out of the circuit.

    The engine halves the variables again and again, in the order in which the formula mentions them. (It recurses as
    deep as that tree is: one that reads 170 Booleans in a line overflows the stack.)
    """
    try:
        from pysdd.sdd import SddManager, Vtree
    except ImportError:
        raise MissingExtra("compiling a formula", "symbolic") from None
    ends = list(itertools.accumulate(variable.size for variable in chosen))
    booleans = [range(end - variable.size + 1, end + 1) for end, variable in zip(ends, chosen, strict=True)]
    literals = ends[-1]
    order = [boolean for position in _order(formula, len(chosen)) for boolean in booleans[position]]
    manager = SddManager.from_vtree(Vtree(var_count=literals, var_order=order, vtree_type="balanced"))
    manager.auto_gc_and_minimize_off()
    valid = manager.true()
    for group in booleans:
        valid = valid & _exactly_one(manager, group)
    root = _diagram(manager, formula, booleans, valid)
    if root.is_false():
        raise InputError("no assignment satisfies the formula: its probability is 0, whatever is predicted")
    if root.id == valid.id:  # diagrams are canonical
        raise InputError("every assignment satisfies the formula: there is nothing to learn from it")
    return Circuit(literals, _nodes(root, literals))


def _order(formula: Formula, count: int) -> list[int]:
    """The variables as the formula mentions them: those that depend on each other are then near each other."""
    found: dict[int, None] = {}
    seen: set[Formula] = set()
    waiting = [formula]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            if isinstance(current, Equals):
                found[current.position] = None
            waiting.extend(reversed(current.parts))
    return [position for position in {**found, **dict.fromkeys(range(count))} if position < count]


def _exactly_one(manager: Any, booleans: Sequence[int]) -> Any:
    none, one = manager.true(), manager.false()
    for boolean in reversed(booleans):
        literal = manager.literal(boolean)
        none, one = ~literal & none, (literal & none) | (~literal & one)
    return one


def _diagram(manager: Any, formula: Formula, booleans: Sequence[range], valid: Any) -> Any:
    """The diagram of a formula, parts first, each once."""
    done: dict[Formula, Any] = {}
    waiting = [formula]
    while waiting:
        current = waiting[-1]
        missing = [part for part in current.parts if part not in done]
        if missing:
            waiting.extend(missing)
            continue
        waiting.pop()
        if current not in done:
            done[current] = _combine(manager, current, [done[part] for part in current.parts], booleans, valid)
        if manager.count() > NODES:
            raise InputError(
                f"the formula takes more than {NODES:,} nodes to compile: mention variables that depend on each "
                f"other near each other, or say the same by a chain with fewer states"
            )
    return done[formula]


def _combine(manager: Any, formula: Formula, parts: Sequence[Any], booleans: Sequence[range], valid: Any) -> Any:
    """The diagram of a formula from those of its parts."""
    if isinstance(formula, Equals):
        if formula.position >= len(booleans) or formula.value >= len(booleans[formula.position]):
            raise InputError(
                f"the formula speaks of class {formula.value} of variable {formula.position}, which is not among the "
                f"variables it is compiled for"
            )
        return manager.literal(booleans[formula.position][formula.value]) & valid
    if isinstance(formula, Not):
        return ~parts[0] & valid
    if isinstance(formula, AllOf):
        return functools.reduce(operator.and_, parts, valid)
    if isinstance(formula, AnyOf):
        return functools.reduce(operator.or_, parts, manager.false())
    raise InputError(f"a formula is made by equals, where, chain and the like, not {type(formula).__name__}")


def _nodes(root: Any, literals: int) -> list[list[Element]]:
    """The nodes of a circuit, children first, from a diagram: its elements prime ∧ sub are products, without 1s."""
    nodes: list[list[Element]] = []
    slots: dict[int, int] = {}
    waiting = [root]
    while waiting:
        current = waiting[-1]
        if current.id in slots:
            waiting.pop()
            continue
        if not current.is_decision():
            positive = current.is_literal() and current.literal > 0
            slots[current.id] = current.literal - 1 if positive else literals
            continue
        pairs = [pair for pair in current.elements() if not pair[1].is_false()]
        missing = [node for pair in pairs for node in pair if node.id not in slots]
        if missing:
            waiting.extend(missing)
            continue
        elements = [tuple(slots[node.id] for node in pair if slots[node.id] != literals) for pair in pairs]
        if len(elements) == 1 and len(elements[0]) < 2:  # another name for its only factor, or for 1
            slots[current.id] = elements[0][0] if elements[0] else literals
        else:
            slots[current.id] = literals + 1 + len(nodes)
            nodes.append(elements)
    if slots[root.id] != literals + len(nodes):  # the value of a circuit is its last node
        nodes.append([(slots[root.id],)])
    return nodes
