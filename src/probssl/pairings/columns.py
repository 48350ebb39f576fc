"""Augmentations of rows of mixed columns: each column is kept, drawn from its marginal, or becomes a gap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from probssl.errors import InputError
from probssl.layout import Column, Layout
from probssl.pairings.views import FeaturewisePairing
from probssl.parts.part import Context

ATOMS = 128
"""At most so many values stand for the marginal of a number, and so many rows for that of columns that go together."""

SORTED = 2**22
"""So many numbers are sorted for their quantiles; of a wide table those of some rows."""

AT_ONCE = 2**16
"""So many distances to atoms are computed together, which stay in the cache."""

NOTHING = 80.0
"""e^−80 of the largest term adds nothing to a sum, and exponentials of less are slow."""


class ResampledColumns(FeaturewisePairing):
    """x̃_k = x_k with probability ρ, else a gap or a draw from the marginal of column k; numbers with noise N(0, σ²).

    p(x̃ | x) = Π_k (ρ K(x̃_k | x_k) + (1 − ρ) [(1 − m) Σ_a w_a K(x̃_k | a) + m 1{x̃_k is a gap}]),
    score_k = (x̃_k − x_k)/σ² times the share of ρ K(x̃_k | x_k) in its factor, for numbers; 0 for categories and gaps.

    K(x̃ | x) is N(x̃ | x, σ²) of numbers, 1{x̃ = x} of categories, and 1{both are gaps} where one is: a density in numbers
    and a mass in levels and gaps. The marginals Σ_a w_a 1{a} are those of rows for training: quantiles of equal weight
    of a number, the frequencies of a category's levels, and of gaps. Columns that go together are kept or replaced as
    one: K is then the product over them, and their marginal one of rows.

    What is drawn has noise too. Without noise, as in SCARF (Bahri et al., 2022), p(x̃ | x) is a mass function: there is
    no score, and a kept number gives its row away, so that the posterior is trivial and the least possible loss near 0.

    Settings:
        preservation: ρ, the share of columns that are kept, one number or one per column.
        noise: σ, one number or one per column; that of a category means nothing.
        masked: m, the share of replaced columns that become gaps, one number or one per column.
    """

    draws: ClassVar[int] = 2
    takes = 1
    per_feature: ClassVar[tuple[str, ...]] = ("preservation", "noise", "masked")
    preservation: Tensor
    noise: Tensor
    masked: Tensor

    # Of d columns in G groups; c are categories that go with no other column and are drawn by frequency.
    kept: Tensor  # [G] ρ
    gone: Tensor  # [G] the probability to be kept or a gap
    spread: Tensor  # [d] σ of numbers, 0 of categories
    atoms: Tensor  # [A, d] what all other columns are drawn from
    frequencies: Tensor  # [L, c] of levels, among values that are no gaps
    bounds: Tensor  # [c, L] their sums up to each level
    group: Tensor  # [d] the group of each column
    leads: Tensor  # [G] the first column of each group
    coded: Tensor  # [c] places of categories
    lone: Tensor  # places of numbers that go with no other column

    def __init__(
        self,
        preservation: float | Sequence[float] | Tensor = 0.5,
        noise: float | Sequence[float] | Tensor = 0.1,
        masked: float | Sequence[float] | Tensor = 0.0,
    ) -> None:
        super().__init__()
        for name, given, most in (("preservation", preservation, 1), ("noise", noise, math.inf), ("masked", masked, 1)):
            value = torch.as_tensor(given, dtype=torch.float64)
            if value.ndim > 1 or not bool(((value >= 0) & (value <= most) & value.isfinite()).all()):
                where = "at least 0 and finite" if most == math.inf else "in [0, 1]"
                raise InputError(f"the {name} of resampled columns is {where}, one number or one per column")
            self.register_buffer(name, value)
        self._joint: tuple[slice, ...] = ()
        self._smooth = bool((self.noise > 0).all())

    @property
    def masks(self) -> bool:
        return bool((self.masked > 0).any())

    @property
    def knows_score(self) -> bool:
        return self._smooth

    # What is known once the data is

    def build(self, context: Context) -> None:
        rows = context.sample
        if rows is None:  # a file is loaded, and holds what is made of them
            rows = torch.zeros(min(ATOMS, context.need("rows")), *context.need("shape"))
        self.check_features(rows.shape[1])
        layout = context.layout
        if layout is None:
            layout = Layout("table", rows.shape[1:], tuple(Column(str(place)) for place in range(rows.shape[1])))
        groups, codes = layout.groups, set(layout.coded)
        alone = [places[0] for places in groups if len(places) == 1]
        self._joint = tuple(slice(places[0], places[-1] + 1) for places in groups if len(places) > 1)
        self._place("group", [number for number, places in enumerate(groups) for _ in places])
        self._place("leads", [places[0] for places in groups])
        self._place("coded", [place for place in alone if place in codes])
        self._place("lone", [place for place in alone if place not in codes])
        keep, masked = (self._of_groups(name, layout) for name in ("preservation", "masked"))
        gaps = torch.zeros_like(keep)  # where columns go together, gaps are among the atoms
        gaps[self.group[alone]] = (rows.isnan().sum(0).double() / len(rows))[alone]
        self.register_buffer("kept", keep, persistent=False)
        self.register_buffer("gone", keep + (1 - keep) * (masked + (1 - masked) * gaps))
        numbers = list(layout.numbers)
        spread = torch.zeros(len(layout.columns), dtype=torch.float64)
        spread[numbers] = self.noise.expand_as(spread)[numbers]
        self.register_buffer("spread", spread, persistent=False)
        self._smooth = bool(numbers) and bool((spread[numbers] > 0).all())
        levels = max((len(layout.columns[place].levels) for place in self.coded.tolist()), default=1)
        found = frequencies(rows[:, self.coded], levels)
        last = found.flip(0).cumsum(0).flip(0) == found  # of those that occur: rounding draws none behind it
        self.register_buffer("frequencies", found)
        self.register_buffer("bounds", found.cumsum(0).masked_fill(last, math.inf).mT.contiguous())
        atoms = quantiles(rows, min(ATOMS, len(rows)))
        for part in self._joint:
            atoms[:, part] = rows[spaced(len(rows), len(atoms)), part]
        self.register_buffer("atoms", atoms)

    def _place(self, name: str, places: Sequence[int]) -> None:
        self.register_buffer(name, torch.tensor(places, dtype=torch.long), persistent=False)

    def _of_groups(self, name: str, layout: Layout) -> Tensor:
        """A setting of each group [G]; columns that go together have one."""
        value = getattr(self, name).expand(len(layout.columns))
        for part in self._joint:
            if bool((value[part] != value[part.start]).any()):
                together = " and ".join(layout.names[part])
                raise InputError(
                    f"{together} are kept or replaced together: give them one {name}, not {value[part].tolist()}"
                )
        return value[self.leads].clone()

    def _as(self, like: Tensor, *names: str) -> list[Tensor]:
        """What `build` made, in the type of observations."""
        if not self.bound:
            raise InputError("columns are resampled from rows of the data: give bind(sample=…), or let fit bind it")
        return [self.get_buffer(name).to(like.dtype) for name in names]

    # Draws

    def fill(self, draws: Sequence[Tensor], generator: torch.Generator | None = None) -> None:
        noise, chance = draws
        noise.normal_(generator=generator)
        chance.uniform_(generator=generator)

    def combine(self, x: Tensor, draws: Sequence[Tensor]) -> Tensor:
        noise, chance = draws
        kept, gone, spread, atoms = self._as(x, "kept", "gone", "spread", "atoms")
        if self._joint:
            kept, gone, chance = kept[..., self.group], gone[..., self.group], chance[..., self.leads[self.group]]
        share = (chance - gone) / (1 - gone).clamp_min(torch.finfo(x.dtype).tiny)  # from 0 to 1 where it is drawn
        count = atoms.shape[-2]
        drawn = _looked_up(atoms, (share * count).clamp_(0, count - 1).long())
        if len(self.coded):
            (bounds,) = self._as(x, "bounds")
            values = share[..., self.coded].mT.contiguous()
            drawn[..., self.coded] = torch.searchsorted(bounds, values, right=True).mT.to(x.dtype)
        drawn = torch.where(chance < kept, x, drawn.masked_fill_(chance < gone, torch.nan))
        return torch.addcmul(drawn, noise, spread)

    # The law, with numbers in units of σ; what else is equal or not is a length of 0 or beyond all bounds

    def log_prob(self, x_aug: Tensor, x: Tensor) -> Tensor:
        (kept,) = self._as(x, "kept")
        near = self._log_kernel(self._scaled(x_aug), self._scaled(x))
        each = torch.logaddexp(kept.log() + near, self._log_replaced(x_aug))
        return each.sum(-1) + self._log_units(x_aug)

    def pairwise_log_prob(self, x_aug: Tensor, x: Tensor, *, block: int = 2**22) -> Tensor:
        """All pairs, one x̃ at a time: log R + softplus(log ρ K(x̃ | x) − log R), with R what replaced columns add.

        R depends on x̃ alone, so that atoms cost nothing more for many x, and a column of a pair takes a single
        transcendental function.
        """
        (kept,) = self._as(x, "kept")
        replaced, units = self._log_replaced(x_aug), self._log_units(x_aug)
        found = []
        for some in map(self._scaled, x.split(max(1, block // x.shape[-1]))):
            rows = []
            for row, rest, unit in zip(self._scaled(x_aug), replaced, units, strict=True):
                near = self._log_kernel(row, some)
                if bool(rest.isfinite().all()):
                    each = F.softplus(near.add_(kept.log() - rest), threshold=40)
                    rows.append(each.sum(-1) + (rest.sum() + unit))
                else:
                    rows.append(torch.logaddexp(near.add_(kept.log()), rest).sum(-1) + unit)
            found.append(torch.stack(rows))
        return torch.cat(found, 1)

    def score(self, x_aug: Tensor, x: Tensor) -> Tensor:
        if not self.knows_score:
            raise InputError(
                f"{type(self).__name__} has a score only with noise in every number: give it noise above 0, and at "
                "least one column of numbers"
            )
        kept, spread = self._as(x, "kept", "spread")
        white_aug, white = self._scaled(x_aug), self._scaled(x)
        share = (kept.log() + self._log_kernel(white_aug, white) - self._log_replaced(x_aug)).sigmoid()
        if self._joint:
            share = share[..., self.group]
        return share * (white_aug - white) * torch.where(spread > 0, 1 / spread, 0.0)

    def _scaled(self, x: Tensor) -> Tensor:
        """x/σ; where σ is 0, codes of levels among them, at lengths whose squares are infinite; gaps farther still."""
        (spread,) = self._as(x, "spread")
        apart = 10 * math.sqrt(torch.finfo(x.dtype).max)
        return torch.where(x.isnan(), -1e9 * apart, x * torch.where(spread > 0, 1 / spread, apart))

    def _log_kernel(self, white_aug: Tensor, white: Tensor) -> Tensor:
        """log K(x̃ | x) of each group, but for σ: [..., G]."""
        return self._by_group((white_aug - white).square().mul_(-0.5))

    def _by_group(self, values: Tensor) -> Tensor:
        """Sums over the columns of each group: [..., d] → [..., G]."""
        if not self._joint:
            return values
        return values.new_zeros(*values.shape[:-1], len(self.leads)).index_add(-1, self.group, values)

    def _log_units(self, x_aug: Tensor) -> Tensor:
        """What is left out of normal densities by numbers in units of σ: −Σ log σ√2π over numbers that are no gaps."""
        (spread,) = self._as(x_aug, "spread")
        each = torch.where(spread > 0, -spread.log() - 0.5 * math.log(2 * math.pi), 0.0)
        return torch.where(x_aug.isnan(), 0.0, each).sum(-1)

    def _log_replaced(self, x_aug: Tensor) -> Tensor:
        """log R of each group, R = (1 − ρ)[(1 − m) Σ_a w_a K(x̃ | a) + m 1{x̃ is a gap}], but for σ: [..., G]."""
        atoms, frequencies = self._as(x_aug, "atoms", "frequencies")
        white = self._scaled(x_aug)
        centres = self._scaled(atoms).mT.contiguous().unsqueeze(-3)  # [..., 1, d, A]
        drawn = x_aug.new_empty(*x_aug.shape[:-1], len(self.leads))
        size = max(1, AT_ONCE // max(1, white[..., 0].numel() * centres.shape[-1]))
        for part in self.lone.split(size):
            apart = white[..., part].unsqueeze(-1) - centres[..., part, :]  # [..., columns, A]
            drawn[..., self.group[part]] = _log_mean_kernel(apart.square())
        for part in self._joint:
            apart = white[..., part].unsqueeze(-1) - centres[..., part, :]
            drawn[..., self.group[part.start]] = _log_mean_kernel(apart.square().sum(-2))
        code = x_aug[..., self.coded]
        likely = _looked_up(frequencies.log(), code.nan_to_num().long())
        drawn[..., self.group[self.coded]] = likely.masked_fill(code.isnan(), -torch.inf)
        gap = self._by_group((~x_aug.isnan()).to(x_aug.dtype)) == 0
        as_gap = torch.where(gap, (self.gone - self.kept).log().to(x_aug.dtype), -torch.inf)
        return torch.logaddexp((1 - self.gone).log().to(x_aug.dtype) + drawn, as_gap)


def _log_mean_kernel(squares: Tensor) -> Tensor:
    """log of the mean of exp(−½ squares) over the last dimension."""
    logs = -0.5 * squares
    logs = logs.clamp(logs.amax(-1, keepdim=True) - NOTHING)
    return logs.logsumexp(-1) - math.log(logs.shape[-1])


def quantiles(rows: Tensor, count: int) -> Tensor:
    """Values at the levels (a + ½)/count of each column, without gaps: [n, d] → [count, d]; 0 of a column of gaps."""
    some = rows[spaced(len(rows), min(len(rows), max(count, SORTED // rows.shape[1])))]
    observed = (~some.isnan()).sum(0)
    places = (torch.arange(count, device=rows.device)[:, None] + 0.5) / count * observed
    return some.sort(0).values.gather(0, places.long()).nan_to_num()


def frequencies(codes: Tensor, levels: int) -> Tensor:
    """The share of each level among the values of a column that are no gaps: [n, c] → [levels, c]."""
    counts = [torch.bincount(column[~column.isnan()].long(), minlength=levels) for column in codes.T]
    total = torch.stack(counts, 1).double() if counts else codes.new_zeros(levels, 0).double()
    return total / total.sum(0).clamp_min(1)


def spaced(count: int, some: int) -> Tensor:
    """`some` of `count` places, evenly spaced."""
    return ((torch.arange(some) + 0.5) * (count / some)).long()


def _looked_up(table: Tensor, row: Tensor) -> Tensor:
    """The entry of each column of `table` [..., rows, d] in `row` [..., n, d]."""
    return table.expand(*row.shape[:-2], *table.shape[-2:]).gather(-2, row)
