"""Satisfying assignments as a list: sums and maxima over all of them, a block at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

BLOCK = 2**20
"""About how many numbers a sum over assignments has at hand at a time."""


class Listing:
    """log Σ_a e^{Σ_k ℓ(a_k)} over listed assignments a, where ℓ [..., L] holds the literals of all variables in a row.

    `rows` [A, K] are the literals of each assignment: the classes, moved to where their variable begins. Time grows
    with A · K; memory does not grow with A beyond a block, nor in the backward pass, save for second derivatives.
    """

    def __init__(self, rows: Tensor, *, block: int = BLOCK) -> None:
        self.rows, self.block = rows, block
        self.count = len(rows)

    def log_sum(self, literals: Tensor) -> Tensor:
        """[..., L] → [...]. Its gradient over ℓ is `marginals`."""
        parts = self._parts(literals)
        if len(parts) == 1:
            return _scores(literals, parts[0]).logsumexp(-1)
        return _LogSum.apply(literals, parts)

    def marginals(self, literals: Tensor) -> Tensor:
        """The share of the sum that goes through each literal: [..., L] → [..., L]."""
        return _shares(literals, self.log_sum(literals), self._parts(literals))

    def best(self, literals: Tensor) -> Tensor:
        """1 at the literals of the assignment with the largest score, the first of equals, 0 elsewhere: [..., L]."""
        tops = [(_scores(literals, rows).max(-1), rows) for rows in self._parts(literals)]
        part = torch.stack([found.values for found, _ in tops], -1).argmax(-1, keepdim=True)  # [..., 1]
        chosen = torch.stack([rows[found.indices] for found, rows in tops], -2)  # [..., parts, K]
        row = chosen.take_along_dim(part.unsqueeze(-1), -2).squeeze(-2)
        return one_hot(row, literals.shape[-1]).sum(-2)

    def digest(self) -> bytes:
        """The list as bytes."""
        return self.rows.numpy().tobytes()

    def _parts(self, literals: Tensor) -> tuple[Tensor, ...]:
        size = max(1, self.block // max(1, literals[..., 0].numel()))
        return self.rows.to(literals.device).split(size)


def _scores(literals: Tensor, rows: Tensor) -> Tensor:
    """Σ_k ℓ(a_k) for some assignments: [..., L], [A, K] → [..., A]."""
    total = literals.index_select(-1, rows[:, 0])
    for column in rows.T[1:]:
        total = total + literals.index_select(-1, column)
    return total


def _shares(literals: Tensor, log_sum: Tensor, parts: Sequence[Tensor]) -> Tensor:
    """Σ_a 1[a has the literal] e^{score(a) − log_sum}: [..., L]."""
    total = torch.zeros_like(literals)
    for rows in parts:
        share = (_scores(literals, rows) - log_sum.unsqueeze(-1)).exp()
        for column in rows.T:
            total = total.index_add(-1, column, share)
    return total


class _LogSum(torch.autograd.Function):
    """The log-sum-exp of all scores, and its gradient without keeping them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(literals: Tensor, parts: Sequence[Tensor]) -> Tensor:
        return torch.stack([_scores(literals, rows).logsumexp(-1) for rows in parts], -1).logsumexp(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Sequence[Tensor]], output: Tensor) -> None:
        literals, ctx.parts = inputs
        ctx.save_for_backward(literals, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        literals, log_sum = ctx.saved_tensors
        return _shares(literals, log_sum, ctx.parts) * gradients[0].unsqueeze(-1), None
