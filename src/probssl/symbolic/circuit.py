"""Arithmetic circuits in the log domain: sums of products of literals that share their parts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

Element = tuple[int, ...]
"""A product: the slots of its factors. The empty one is 1."""


class Circuit:
    """log of a sum of products, evaluated level by level for a whole batch: literals ℓ [..., L] → [...].

    Slots 0 … L − 1 are the literals, slot L is the constant 1, and slot L + 1 + i is the i-th node, a sum over its
    elements of the product of their factors, which stand in lower slots. The last node is the value. A node that is
    used once is absorbed into its parent, so that few levels remain. Gradients, of any order, are autograd's.
    """

    def __init__(self, literals: int, nodes: Sequence[Sequence[Element]]) -> None:
        self.literals = literals
        self.count = _count(literals, nodes)
        reduced = _absorb(literals, nodes)
        self.levels = _levels(literals, reduced)
        self.edges = sum(len(node) for node in reduced)

    def log_sum(self, literals: Tensor) -> Tensor:
        """[..., L] → [...]. Its gradient over ℓ is `marginals`."""
        values = self._filled(literals)
        for level in self.levels:
            values = torch.cat([values, *(_scores(values, group).logsumexp(1) for group in level)])
        return values[-1]

    def marginals(self, literals: Tensor) -> Tensor:
        """The share of the sum that goes through each literal: [..., L] → [..., L]."""
        return self._shares(literals, lambda scores: scores.logsumexp(1), lambda scores: scores.softmax(1))

    def best(self, literals: Tensor) -> Tensor:
        """1 at the literals of the one product with the largest value, 0 elsewhere: [..., L]."""

        def first(scores: Tensor) -> Tensor:
            hot = one_hot(scores.argmax(1), scores.shape[1])  # [nodes, ..., elements]
            return hot.movedim(-1, 1).to(scores.dtype)

        return self._shares(literals, lambda scores: scores.amax(1), first)

    def digest(self) -> bytes:
        """The circuit as bytes."""
        return repr([[group.tolist() for group in level] for level in self.levels]).encode()

    def _filled(self, literals: Tensor) -> Tensor:
        """The literals and the constant 1, in the log domain: [L + 1, ...]."""
        return torch.cat([literals, torch.zeros_like(literals[..., :1])], -1).movedim(-1, 0)

    def _shares(self, literals: Tensor, over: Callable[[Tensor], Tensor], split: Callable[[Tensor], Tensor]) -> Tensor:
        """Up: the value of each node, `over` its elements. Down: the share of each node, `split` among its elements."""
        values = self._filled(literals)
        splits: list[tuple[Tensor, Tensor]] = []  # of every group, with its slots
        for level in self.levels:
            found = [values]
            for group in level:
                scores = _scores(values, group)
                splits.append((split(scores), group.to(values.device)))
                found.append(over(scores))
            values = torch.cat(found)
        shares = torch.cat([torch.zeros_like(values[:-1]), torch.ones_like(values[-1:])])
        end = len(values)
        for parts, group in reversed(splits):
            given = shares[end - len(group) : end].unsqueeze(1) * parts  # [nodes, elements, ...]
            end -= len(group)
            each = given.unsqueeze(2).expand(*group.shape, *given.shape[2:]).flatten(0, 2)
            shares = shares.index_add(0, group.flatten(), each)
        return shares[: self.literals].movedim(0, -1)


def _scores(values: Tensor, group: Tensor) -> Tensor:
    """Products of the elements of some nodes, as sums of logs: [slots, ...] → [nodes, elements, ...]."""
    return values.index_select(0, group.to(values.device).flatten()).unflatten(0, group.shape).sum(2)


def _count(literals: int, nodes: Sequence[Sequence[Element]]) -> int:
    """How many assignments satisfy it: the circuit where every literal is 1, in whole numbers."""
    values = [1] * (literals + 1)
    for node in nodes:
        total = 0
        for element in node:
            product = 1
            for slot in element:
                product *= values[slot]
            total += product
        values.append(total)
    return values[-1]


def _absorb(literals: int, nodes: Sequence[Sequence[Element]]) -> list[list[Element]]:
    """The nodes that are left when each used once is written out where it is used, the last one the value.

    A sum that is an element by itself gives its elements to the parent; a sum of one product gives its factors.
    """
    first = literals + 1
    uses = Counter(slot for node in nodes for element in node for slot in element)
    written: list[list[Element]] = []
    for node in nodes:
        elements: list[Element] = []
        for element in node:
            factors: list[int] = []
            for slot in element:
                inner = written[slot - first] if slot >= first else []
                if len(inner) == 1 and uses[slot] == 1:
                    factors.extend(inner[0])
                else:
                    factors.append(slot)
            if len(factors) == 1 and factors[0] >= first and uses[factors[0]] == 1:
                elements.extend(written[factors[0] - first])
            else:
                elements.append(tuple(factors))
        written.append(elements)
    kept: list[list[Element]] = []
    renamed: dict[int, int] = {}
    wanted = {len(nodes) - 1}
    for place in range(len(nodes) - 1, -1, -1):
        if place in wanted:
            wanted.update(slot - first for element in written[place] for slot in element if slot >= first)
    for place in sorted(wanted):
        renamed[first + place] = first + len(kept)
        kept.append([tuple(renamed.get(slot, slot) for slot in element) for element in written[place]])
    return kept


def _levels(literals: int, nodes: Sequence[Sequence[Element]]) -> list[list[Tensor]]:
    """Nodes that can be computed at once; those with equally many elements are one array [nodes, elements, factors].

    Factors are filled up by the slot of the constant 1.
    """
    first, one = literals + 1, literals
    depth: list[int] = []
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, node in enumerate(nodes):
        below = (depth[slot - first] for element in node for slot in element if slot >= first)
        depth.append(1 + max(below, default=-1))
        groups[depth[-1], len(node)].append(place)
    slots = {slot: slot for slot in range(first)}
    levels: list[list[Tensor]] = [[] for _ in range(max(depth) + 1)]
    for (level, _), places in sorted(groups.items()):
        width = max(len(element) for place in places for element in nodes[place])
        filled = [
            [[slots[slot] for slot in element] + [one] * (width - len(element)) for element in nodes[place]]
            for place in places
        ]
        levels[level].append(torch.tensor(filled).reshape(len(places), -1, width))
        slots.update({first + place: len(slots) + number for number, place in enumerate(places)})
    return levels
