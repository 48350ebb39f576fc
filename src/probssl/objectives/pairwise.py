"""All pairs of a batch at once: the sums that contrastive losses take over −δ(a_i, b_j), fused with their gradients.

A loss of n × m pairs needs a few sums over the matrix of logits S and nothing of the matrix itself. Energies whose
logits are inner products, S = L Rᵀ (cosine, Euclidean, dot, anisotropic: `Energy.factors`), get them in one pass over
blocks that stay in the cache. Each block yields its part of the value and, in the same visit, of the gradients in L and
R, which are all that is kept: memory grows with n + m, not with n · m. The same functions serve one batch, a stack of
models (leading dimensions, or `torch.vmap`) and batches far beyond n² memory. Small blocks in single precision go
through a compiled kernel where there is a compiler (`probssl.kernels`). Second derivatives go through the plain
matrix, and so do other energies (p-norms) while it is small; where it is not, a strip of rows at a time, which backward
computes again, so that memory grows with n + m for them too.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from probssl import kernels
from probssl.energies import Energy
from probssl.errors import InputError

Shape = Literal["exponential", "softplus", "square", "hinge"]
Kind = Literal["cross-entropy", "log-sum-exp", "log-sum-exp-others", "exponential", "softplus", "square", "hinge"]
NORMALISED = ("cross-entropy", "log-sum-exp", "log-sum-exp-others")
BASE_TWO = (*NORMALISED, "exponential")

LINEAR_BEYOND = 30.0
"""The exponential continues as its tangent above this exponent, so that sums of it stay finite and convex."""

BLOCK = 2**20
"""Entries of a block of logits: 4 MB in single precision, which a core's share of the cache holds."""

LARGE = 2**22
"""Numbers n · m · d beyond which the matrix of an energy without factors is made strip by strip."""

MOST_ENTRIES = 2**28
"""A plain matrix larger than this is not made for second derivatives: 1 GB in single precision."""

LOG2_E = 1 / math.log(2)

NEVER = {
    "log-sum-exp-others": -math.inf,
    "exponential": -math.inf,
    "softplus": -math.inf,
    "square": 0.0,
    "hinge": -1.0,
}
"""Logits that add nothing to a sum, put on the diagonal where it does not count."""


@dataclass(frozen=True)
class Strips:
    """S as functions that make some of its rows [r, m], or of its columns [n, c], from scratch; for one batch alone."""

    rows: Callable[[slice], Tensor]
    columns: Callable[[slice], Tensor]
    diagonal: Callable[[], Tensor]
    size: tuple[int, int]
    width: int
    """Numbers held for each entry while it is made."""

    @classmethod
    def of(cls, energy: Energy, a: Tensor, b: Tensor) -> Strips:
        """The strips of an energy between embeddings a [n, d] and b [m, d]."""
        return cls(
            lambda here: -energy.pairwise_once(a[here], b),
            lambda here: -energy.pairwise_once(a, b[here]),
            lambda: -energy.paired(a, b),
            (len(a), len(b)),
            energy.numbers_per_pair(a.shape[1]),
        )

    def plus_columns(self, shift: Tensor) -> Strips:
        """S_ij + shift_j."""
        return replace(
            self,
            rows=lambda here: self.rows(here) + shift,
            columns=lambda here: self.columns(here) + shift[here],
            diagonal=lambda: self.diagonal() + shift,
        )

    def transposed(self) -> Strips:
        """S_ji."""
        return replace(
            self,
            rows=lambda here: self.columns(here).mT,
            columns=lambda here: self.rows(here).mT,
            size=self.size[::-1],
        )

    def total(self, kind: Kind, extra: Tensor | None) -> Tensor:
        """The sum over all pairs, strip by strip; what a strip was made of is made again for its gradient."""
        n, m = self.size
        rows = max(1, BLOCK // (m * self.width))

        def part(start: int) -> Tensor:
            here = slice(start, start + rows)
            return plain_total(self.rows(here), kind, None if extra is None else extra[here], first=start)

        sums = [checkpoint(part, start, use_reentrant=False, preserve_rng_state=False) for start in range(0, n, rows)]
        return torch.stack(sums).sum()


@dataclass(frozen=True)
class PairLogits:
    """S_ij = −δ(a_i, b_j) for all pairs of a batch, [n, m], as what losses ask of it; leading dimensions are allowed.

    S = left · rightᵀ + offset with factors `left` [n, p] and `right` [m, p]; where the energy has none, `matrix` is S
    or, where that would be large, `strips` make it piece by piece.
    """

    left: Tensor | None
    right: Tensor | None
    offset: float = 0.0
    matrix: Tensor | None = None
    strips: Strips | None = None

    @classmethod
    def of(cls, energy: Energy, a: Tensor, b: Tensor) -> PairLogits:
        """The logits of an energy between embeddings a [n, d] and b [m, d]."""
        factors = recomputed(energy.factors, a, b)
        if factors is not None:
            return cls(*factors)
        if a.ndim == 2 and len(a) * b.numel() > LARGE:
            return cls(None, None, strips=Strips.of(energy, a, b))
        return cls(None, None, matrix=energy.logits(a, b))

    @property
    def factors(self) -> tuple[Tensor, Tensor]:
        """The factors, where there are any."""
        assert self.left is not None
        assert self.right is not None
        return self.left, self.right

    def plus_columns(self, shift: Tensor) -> PairLogits:
        """S_ij + shift_j."""
        if self.strips is not None:
            return replace(self, strips=self.strips.plus_columns(shift))
        if self.matrix is not None:
            return replace(self, matrix=self.matrix + shift.unsqueeze(-2))
        left, right = self.factors
        column = (shift + self.offset).unsqueeze(-1)
        return PairLogits(torch.cat([left, torch.ones_like(left[..., :1])], -1), torch.cat([right, column], -1))

    def transposed(self) -> PairLogits:
        """S_ji."""
        if self.strips is not None:
            return replace(self, strips=self.strips.transposed())
        return PairLogits(self.right, self.left, self.offset, None if self.matrix is None else self.matrix.mT)

    def diagonal(self) -> Tensor:
        """S_ii: [n]."""
        if self.strips is not None:
            return self.strips.diagonal()
        if self.matrix is not None:
            return self.matrix.diagonal(dim1=-2, dim2=-1)
        left, right = self.factors
        products = (left * right).sum(-1)
        return products + self.offset if self.offset else products

    def mean_cross_entropy(self) -> Tensor:
        """mean_i [log Σ_j e^{S_ij} − S_ii]: minus the log-probability that row i gives to column i; S is square."""
        return self._total("cross-entropy") / self._size[0]

    def mean_log_sum_exp(self, *, without_diagonal: bool = False, extra: Tensor | None = None) -> Tensor:
        """mean_i log Σ_j e^{S_ij}, over j ≠ i on request; `extra` [n] adds one more logit to each row."""
        kind: Kind = "log-sum-exp-others" if without_diagonal else "log-sum-exp"
        if extra is not None and self.offset:
            extra = extra - self.offset
        return self._total(kind, extra) / self._size[0] + self.offset

    def off_diagonal_mean(self, shape: Shape) -> Tensor:
        """mean_{i≠j} f(S_ij), with f the exponential (its tangent above 30), softplus, the square, or max(0, S)."""
        if self.offset:
            return self.plus_columns(torch.zeros_like(self.factors[1][..., 0])).off_diagonal_mean(shape)
        rows, columns = self._size
        return self._total(shape) / (rows * columns - min(rows, columns))

    @property
    def _size(self) -> tuple[int, int]:
        if self.strips is not None:
            return self.strips.size
        if self.matrix is not None:
            return self.matrix.shape[-2], self.matrix.shape[-1]
        left, right = self.factors
        return left.shape[-2], right.shape[-2]

    def _total(self, kind: Kind, extra: Tensor | None = None) -> Tensor:
        if self.strips is not None:
            return self.strips.total(kind, extra)
        if self.matrix is not None:
            return plain_total(self.matrix, kind, extra)
        return FusedTotal.apply(*self.factors, extra, kind, torch.is_grad_enabled())[0]


def recomputed(function: Callable[[Tensor, Tensor], Any], a: Tensor, b: Tensor) -> Any:
    """function(a, b) of n + m rows; where a matrix of all pairs is out of reach, backward makes what it needs anew.

    That is cheap beside the pairs, and a handful of copies of the embeddings less is held while they are summed.
    """
    if a.ndim == 2 and len(a) * len(b) > MOST_ENTRIES:
        return checkpoint(function, a, b, use_reentrant=False, preserve_rng_state=False)
    return function(a, b)


def plain_total(matrix: Tensor, kind: Kind, extra: Tensor | None = None, *, first: int = 0) -> Tensor:
    """The sum from a matrix that is there, or from a strip of it whose first row has the number `first`."""
    if kind == "cross-entropy":
        return -F.log_softmax(matrix, -1).diagonal(first, dim1=-2, dim2=-1).sum(-1)
    places = [torch.arange(size, device=matrix.device) for size in matrix.shape[-2:]]
    diagonal = places[0].unsqueeze(-1) + first == places[1]
    if kind in NORMALISED:
        candidates = matrix if kind == "log-sum-exp" else matrix.masked_fill(diagonal, -torch.inf)
        return _log_sum_exp(candidates if extra is None else torch.cat([candidates, extra.unsqueeze(-1)], -1)).sum(-1)
    if kind == "exponential":
        excess = F.relu(matrix - LINEAR_BEYOND)
        values = torch.exp(matrix - excess) * (1 + excess)
    else:
        values = F.softplus(matrix) if kind == "softplus" else matrix.square() if kind == "square" else F.relu(matrix)
    return values.masked_fill(diagonal, 0.0).sum((-2, -1))


def _log_sum_exp(matrix: Tensor) -> Tensor:
    """log Σ_j e^{S_ij}, through log_softmax: torch.logsumexp is slow where exponentials underflow to denormals."""
    largest = matrix.detach().argmax(-1, keepdim=True)
    return (matrix.gather(-1, largest) - F.log_softmax(matrix, -1).gather(-1, largest)).squeeze(-1)


class FusedTotal(torch.autograd.Function):
    """A sum over S = left · rightᵀ together with its gradients in both factors, so that backward only scales them."""

    @staticmethod
    def forward(left: Tensor, right: Tensor, extra: Tensor | None, kind: Kind, train: bool) -> tuple[Tensor, ...]:
        batch = left.shape[:-2]
        one, other = (factor.reshape(-1, *factor.shape[-2:]) for factor in (left, right))
        rows = None if extra is None else extra.reshape(-1, extra.shape[-1])
        compute = kernels.pair_sums if kernels.suits(one, other) else blocked_sums
        return tuple(part.view((*batch, *part.shape[1:])) for part in compute(one, other, rows, kind, train))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        left, right, extra, ctx.kind, ctx.train = inputs
        ctx.with_extra = extra is not None
        ctx.mark_non_differentiable(*output[1:])
        twice = left.shape[-2] * right.shape[-2] <= MOST_ENTRIES  # or second derivatives are out of reach anyway
        ctx.save_for_backward(*((left, right, extra) if twice else (None, None, None)), *output[1:])

    @staticmethod
    def backward(ctx: Any, slope: Tensor, *unused: Any) -> tuple[Tensor | None, ...]:
        left, right, extra, of_left, of_right, of_extra = ctx.saved_tensors
        if torch.is_grad_enabled() or not ctx.train:  # it is to be differentiated again
            if left is None:
                raise InputError(
                    f"second derivatives need the matrix of all pairs, which has over {MOST_ENTRIES:,} entries"
                )
            inputs = [tensor for tensor in (left, right, extra) if tensor is not None]
            with torch.enable_grad():
                total = plain_total(left @ right.mT, ctx.kind, extra)
                slopes = torch.autograd.grad(total, inputs, slope, create_graph=True)
            return *slopes, *[None] * (5 - len(slopes))
        with_extra = of_extra * slope[..., None] if ctx.with_extra else None
        return of_left * slope[..., None, None], of_right * slope[..., None, None], with_extra, None, None

    @staticmethod
    def vmap(
        info: Any, dims: tuple[int | None, ...], *inputs: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, int, int, int]]:
        stacked = [
            None
            if tensor is None
            else tensor.expand(info.batch_size, *tensor.shape)
            if dim is None
            else tensor.movedim(dim, 0)
            for tensor, dim in zip(inputs[:3], dims[:3], strict=True)
        ]
        return FusedTotal.apply(*stacked, *inputs[3:]), (0, 0, 0, 0)


FusedTotal.forward.__signature__ = inspect.signature(FusedTotal.forward)  # type: ignore[attr-defined]
# torch looks it up at every call, which without this takes as long as the loss itself


def blocked_sums(left: Tensor, right: Tensor, extra: Tensor | None, kind: Kind, train: bool) -> tuple[Tensor, ...]:
    """The sum over all pairs of each of K models, [K], and where `train` its gradients in left, right and extra.

    left [K, n, p], right [K, m, p], extra [K, n]; the gradients have their shapes. Within, the numbers of a dimension
    stand side by side: matrix products with few columns are slower than those with few rows.
    """
    (models, n, p), m = left.shape, right.shape[1]
    total = left.new_zeros(models, dtype=torch.float64)
    of_left, of_right = (left.new_empty(models, p if train else 0, size) for size in (n, m))
    of_extra = left.new_empty(models, n if train and extra is not None else 0)
    together = max(1, BLOCK // (n * m))
    rows = n if n * m <= BLOCK else max(64, BLOCK // m)
    space = left.new_empty(min(together, models) * rows * m)  # one for all blocks: fresh memory costs page faults
    for first in range(0, models, together):
        some = slice(first, first + together)
        for row in range(0, n, rows):
            here = slice(row, row + rows)
            part = left[some, here]
            logits = space[: part.shape[0] * part.shape[1] * m].view(*part.shape[:2], m)
            torch.bmm(part * LOG2_E if kind in BASE_TWO else part, right[some].mT, out=logits)
            diagonal = logits.diagonal(offset=row, dim1=1, dim2=2)
            if kind in NEVER:
                diagonal.fill_(NEVER[kind])
            if kind in NORMALISED:
                own = diagonal.double().sum(1) / LOG2_E if kind == "cross-entropy" else 0.0
                values, scale, share = _normalise(logits, None if extra is None else extra[some, here])
                values = values - own
                if kind == "cross-entropy":
                    diagonal.sub_(scale.squeeze(-1).reciprocal())  # one, before it is scaled
                if train and share is not None:
                    of_extra[some, here] = share
            else:
                values, scale = _SUMS[kind](logits), None
            total[some] += values
            if not train:
                continue
            slope = torch.bmm(right[some].mT, logits.mT)
            if scale is not None:
                slope, part = slope * scale.mT, part * scale
            of_left[some, :, here] = slope
            if row == 0:
                torch.bmm(part.mT, logits, out=of_right[some])
            else:
                of_right[some].baddbmm_(part.mT, logits)
    return total.to(left.dtype), of_left.mT, of_right.mT, of_extra


# What is done to a block of logits [k, r, m]: it becomes, in place, the derivative of the sum in each of them, and the
# sum [k] is returned. Exponentials get logits in units of log 2, since exp2 is three times as fast as exp.


def _normalise(logits: Tensor, extra: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Σ_i log Σ_j e^{S_ij}: weights are left unnormalised; what to scale rows by [k, r, 1], and the extra's share."""
    top = logits.amax(-1, keepdim=True)
    if extra is not None:
        extra = (extra * LOG2_E).unsqueeze(-1)
        top = torch.maximum(top, extra)
    normaliser = logits.sub_(top).exp2_().sum(-1, keepdim=True)
    if extra is not None:
        extra = (extra - top).exp2_()
        normaliser += extra
    scale = normaliser.reciprocal()
    share = None if extra is None else (extra * scale).squeeze(-1)
    return (top + normaliser.log2()).double().sum((1, 2)) / LOG2_E, scale, share


def _exponential(logits: Tensor) -> Tensor:
    limit = LINEAR_BEYOND * LOG2_E
    if bool(logits.amax() > limit):
        excess = F.relu(logits - limit)
        return (logits.clamp_(max=limit).exp2_() * (1 + excess / LOG2_E)).sum((1, 2))
    return logits.exp2_().sum((1, 2))


def _softplus(logits: Tensor) -> Tensor:
    values = F.softplus(logits).sum((1, 2))
    logits.sigmoid_()
    return values


def _square(logits: Tensor) -> Tensor:
    flat = logits.flatten(1)
    values = torch.linalg.vecdot(flat, flat)
    logits.mul_(2)
    return values


def _hinge(logits: Tensor) -> Tensor:
    values = logits.relu_().sum((1, 2))
    logits.sign_()
    return values


_SUMS = {"exponential": _exponential, "softplus": _softplus, "square": _square, "hinge": _hinge}
