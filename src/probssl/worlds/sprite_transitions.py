"""Transitions: the second factors of a pair given the first, as CL-ICA appendix A.6.2 uses them for images.

UNI: Locatello et al. 2020, "Weakly-supervised disentanglement without compromises". LAP and NAT: Klindt et al. 2021,
"Towards nonlinear disentanglement in natural data with temporal sparse coding" (SlowVAE). Where the papers leave
something open, the sampler that SlowVAE's authors released decides, and the docstring says so.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from probssl.errors import InputError
from probssl.worlds.sprites import Sprites


class Transition(abc.ABC):
    """p(after | before) of factors, sampled exactly, all rows at once, from the generator that the caller hands in."""

    @abc.abstractmethod
    def sample(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One vector of factors ~ p(· | row) for every row: [n, D] → [n, D]."""

    @abc.abstractmethod
    def log_prob(self, after: Tensor, before: Tensor) -> Tensor:
        """log p(after | before) in nats, float64 [n]; −∞ where a transition cannot happen."""


class _GridTransition(Transition):
    """Shared by the transitions of indices: D factors, the i-th of which takes the values 0 … sizes[i] − 1."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(int(size) for size in sizes)
        if len(self.sizes) < 2 or min(self.sizes) < 2:
            raise InputError("a transition needs two factors or more, of two values or more each")

    def _checked(self, factors: Tensor) -> Tensor:
        if factors.is_floating_point():
            raise InputError(f"{type(self).__name__} moves indices of the grid, not values: give integers")
        if factors.ndim != 2 or factors.shape[1] != len(self.sizes):
            raise InputError(f"the factors of this transition are [n, {len(self.sizes)}], not {list(factors.shape)}")
        if bool(((factors < 0) | (factors >= torch.tensor(self.sizes))).any()):
            raise InputError(f"indices of the factors run from 0 to {[size - 1 for size in self.sizes]}")
        return factors.long()


class UniformTransition(_GridTransition):
    """UNI: k factors, chosen uniformly, change; each to one of its other values, uniformly. k ~ U{1, …, D − 1}.

    p(after | before) = p(k) / C(D, k) · Π 1/(size − 1) over the k factors that differ. A chosen factor never keeps its
    value, as in SlowVAE's released sampler; the papers' wording leaves that open, and with it whether k factors change
    or up to k. `changing` fixes k. Every pair keeps one factor and changes one.
    """

    def __init__(self, sizes: Sequence[int] = Sprites.sizes, *, changing: int | None = None) -> None:
        super().__init__(sizes)
        if changing is not None and not 1 <= changing <= len(self.sizes):
            raise InputError(f"of {len(self.sizes)} factors between 1 and {len(self.sizes)} can change, not {changing}")
        self.changing = changing

    def sample(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        before = self._checked(factors)
        count, d = before.shape
        others = torch.tensor(self.sizes) - 1
        order = torch.rand(count, d, generator=generator, dtype=torch.float64).argsort(1)
        if self.changing is None:
            k = torch.randint(1, d, (count, 1), generator=generator)
        else:
            k = torch.full((count, 1), self.changing)
        step = 1 + (torch.rand(count, d, generator=generator, dtype=torch.float64) * others).long()
        return torch.where(order < k, (before + step) % (others + 1), before)

    def log_prob(self, after: Tensor, before: Tensor) -> Tensor:
        changed = self._checked(after) != self._checked(before)
        d = len(self.sizes)
        of_count = torch.full((d + 1,), -math.inf, dtype=torch.float64)
        for k in range(1, d) if self.changing is None else (self.changing,):
            of_count[k] = -math.log(math.comb(d, k))
        if self.changing is None:
            of_count -= math.log(d - 1)
        to_value = (torch.tensor(self.sizes, dtype=torch.float64) - 1).log()
        return of_count[changed.sum(1)] - (changed * to_value).sum(1)


class LaplaceTransition(_GridTransition):
    """LAP: p(after | before) ∝ Π_i exp(−decay_i · |after_i − before_i|) over all after ≠ before, on indices.

    `decay` is one number a factor; without it, it is 1 / log(size), the Laplace scale log(size) that SlowVAE's released
    sampler uses for its rate of 1. Factors numbered in `fixed` keep their value: the shape, which has no order, as
    there. Orientation does not wrap around, as there: its first and last index are far apart though their images are
    one. Pairs without a change are rejected, as CL-ICA A.6.2 says; the released sampler instead makes one factor change
    where none did, which gives single changes more weight.

    Sampled without a rejection: first which factor is the first to change, with probability ∝ (1 − s_j) Π_{i<j} s_i for
    staying probabilities s; those before it stay, those after it move freely.
    """

    def __init__(
        self,
        sizes: Sequence[int] = Sprites.sizes,
        *,
        decay: Sequence[float] | None = None,
        fixed: Sequence[int] = (0,),
    ) -> None:
        super().__init__(sizes)
        decays = [1 / math.log(size) for size in self.sizes] if decay is None else [float(each) for each in decay]
        if len(decays) != len(self.sizes) or not all(0 <= each <= 700 for each in decays):
            raise InputError(f"{len(self.sizes)} factors need {len(self.sizes)} decays from 0 to 700")
        self.decay = tuple(decays)
        self.fixed = tuple(sorted(set(fixed)))
        if not set(self.fixed) < set(range(len(self.sizes))):
            raise InputError(f"the fixed factors must be some of 0 to {len(self.sizes) - 1}, and not all of them")
        self._tables = [self._table(factor) for factor in range(len(self.sizes))]

    def _table(self, factor: int) -> Tensor:
        """p(after_i | before_i) of a factor left to itself: [before, after]."""
        places = torch.arange(self.sizes[factor], dtype=torch.float64)
        if factor in self.fixed:
            return torch.eye(len(places), dtype=torch.float64)
        return torch.softmax(-self.decay[factor] * (places[:, None] - places).abs(), 1)

    def _log_stay(self, before: Tensor) -> Tensor:
        """Log probability of every factor, left to itself, to keep its value: [n, D]."""
        columns = []
        for table, column in zip(self._tables, before.unbind(1), strict=True):
            leave = (table - table.diagonal().diag()).sum(1)  # keeps its digits where staying is all but certain
            columns.append(torch.log1p(-leave)[column])
        return torch.stack(columns, 1)

    def sample(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        before = self._checked(factors)
        log_stay = self._log_stay(before)
        first, move, place = torch.rand(3, *before.shape, generator=generator, dtype=torch.float64)
        changed_by = -torch.expm1(log_stay.cumsum(1))  # probability that a factor up to here changes
        first_change = (first[:, :1] * changed_by[:, -1:] >= changed_by).sum(1, keepdim=True)
        number = torch.arange(before.shape[1])
        changes = (number == first_change) | ((number > first_change) & (move < -torch.expm1(log_stay)))
        after = before.clone()
        for factor in number.tolist():
            rows = changes[:, factor].nonzero().squeeze(1)
            table = self._tables[factor]
            moving = (table - table.diagonal().diag()).cumsum(1)[before[rows, factor]]  # [rows, after]
            after[rows, factor] = (place[rows, factor, None] * moving[:, -1:] >= moving).sum(1)
        return after

    def log_prob(self, after: Tensor, before: Tensor) -> Tensor:
        after, before = self._checked(after), self._checked(before)
        columns = zip(self._tables, before.unbind(1), after.unbind(1), strict=True)
        each = torch.stack([table[here, there].log() for table, here, there in columns]).sum(0)
        some_change = -torch.expm1(self._log_stay(before).sum(1))
        return torch.where((after != before).any(1), each - some_change.log(), -math.inf)


class NaturalLikeTransition(Transition):
    """A stand-in for NAT: scale, x and y move a little, at times far; shape and orientation stay. On values.

    p(after | before) = Π exp(−√(|after_i − before_i| / width_i)) / N_i over scale, x and y, each within its range, with
    N = Σ over both sides of 2 width (1 − (1 + q) e^{−q}), q = √(room on that side / width).

    What it shares with NAT: two positions and the size move and nothing else, changes are mostly small with occasional
    large jumps (a kurtosis of 25 far from the borders, against 6 of a Laplace distribution), and continuously so. What
    it is not: NAT takes both frames' positions and areas from objects in YouTube-VOS, so there the first frame is not
    uniform, the changes depend on each other and on where the object is, and sprites may leave the frame; its shapes
    are others too. The widths here are chosen (half of all moves of x and y shorter than one pixel of 64), not
    fitted; published numbers on NAT are not comparable.
    """

    moving = (1, 3, 4)

    def __init__(self, widths: Sequence[float] = (0.0055, 0.011, 0.011)) -> None:
        self.widths = tuple(float(width) for width in widths)
        if len(self.widths) != len(self.moving) or not all(0 < width < math.inf for width in self.widths):
            raise InputError("a natural-like transition needs three positive, finite widths: of scale, x and y")

    def _room(self, before: Tensor) -> Tensor:
        """q of both sides, below and above: [2, n, 3]."""
        low, high = torch.tensor([Sprites.ranges[factor] for factor in self.moving], dtype=torch.float64).unbind(1)
        here = before[:, self.moving]
        room = torch.stack([here - low, high - here]).clamp_min(0)  # single precision may be a rounding error outside
        return (room / torch.tensor(self.widths, dtype=torch.float64)).sqrt()

    def sample(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The side in proportion to its mass, then the way by inverting its distribution function."""
        before = self._checked(factors)
        below, above = self._room(before)
        side, place = torch.rand(2, *below.shape, generator=generator, dtype=torch.float64)
        upwards = side * (_mass(below) + _mass(above)) >= _mass(below)
        room = torch.where(upwards, above, below)
        way = _inverse_mass(place * _mass(room), room).square() * torch.tensor(self.widths, dtype=torch.float64)
        after = before.clone()
        after[:, self.moving] += torch.where(upwards, way, -way)
        return after.to(factors.dtype)

    def log_prob(self, after: Tensor, before: Tensor) -> Tensor:
        after, before = self._checked(after), self._checked(before)
        widths = torch.tensor(self.widths, dtype=torch.float64)
        below, above = self._room(before)
        log_total = (2 * widths * (_mass(below) + _mass(above))).log()
        moved = (after - before)[:, self.moving].abs()
        stays = [factor for factor in range(after.shape[1]) if factor not in self.moving]
        kept = (after[:, stays] == before[:, stays]).all(1)
        return torch.where(kept, (-(moved / widths).sqrt() - log_total).sum(1), -math.inf)

    def _checked(self, factors: Tensor) -> Tensor:
        if not factors.is_floating_point():
            raise InputError("NaturalLikeTransition moves values, not indices: give Sprites().values(indices)")
        return Sprites().values(factors)


def _mass(q: Tensor) -> Tensor:
    """1 − (1 + q) e^{−q} = ∫₀^q t e^{−t} dt, the share of one side's moves that are shorter than width · q²."""
    return -torch.expm1(-q) - q * torch.exp(-q)


def _inverse_mass(mass: Tensor, most: Tensor) -> Tensor:
    """The q in [0, most] with that mass, by bisection to the last digit but a few."""
    low, high = torch.zeros_like(most), most
    for _ in range(52):
        middle = (low + high) / 2
        less = _mass(middle) < mass
        low, high = torch.where(less, middle, low), torch.where(less, high, middle)
    return (low + high) / 2
