"""Fixed maps that come first in a network: mixed rows of a table as numbers."""

from __future__ import annotations

import itertools
from collections.abc import Hashable

import torch
from torch import Tensor, nn

from probssl.layout import Layout


class Expansion(nn.Module):
    """A fixed map of observations, row by row and without parameters, which comes first in a network: of the code of
    a level to indicators, say.

    Encoders that train as one stack share the expansion of the first.
    """

    def stack_key(self) -> Hashable:
        """Expansions with equal keys compute the same: class, settings and what was learnt from the data."""
        raise NotImplementedError


class Indicators(Expansion):
    """Numbers, codes of levels and gaps [n, columns] → numbers [n, `layout.width`], for networks that know only these.

    First the numbers, 0 where they are missing; then a 1 or 0 for every level, coded column after coded column; then
    for every gap of a column, or of columns that go together. A code that is no level, and a gap where none were known,
    set nothing.
    Indicators have the size 1 however rare a level is: divided by their standard deviations, rare levels alone decide
    which rows are neighbours (docs/performance.md).

    `layout` is that of the rows.
    """

    numbers: Tensor
    coded: Tensor
    levels: Tensor
    first: Tensor
    gaps: Tensor

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        levels = [len(layout.columns[place].levels) for place in layout.coded]
        *first, self.indicators = itertools.accumulate(levels, initial=0)
        places = {
            "numbers": layout.numbers,
            "coded": layout.coded,
            "levels": levels,
            "first": first,
            "gaps": [places[0] for places in layout.gaps],
        }
        for name, values in places.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.long), persistent=False)
        self._key = type(self), *(tuple(values) for values in places.values())

    def stack_key(self) -> Hashable:
        return self._key

    def forward(self, x: Tensor) -> Tensor:
        numbers, codes, gaps = (x.index_select(-1, places) for places in (self.numbers, self.coded, self.gaps))
        known = (codes >= 0) & (codes < self.levels)
        places = torch.where(known, codes + self.first, self.indicators).long()
        indicators = x.new_zeros(*x.shape[:-1], self.indicators + 1).scatter(-1, places, 1.0)[..., :-1]
        return torch.cat([torch.where(numbers.isnan(), 0.0, numbers), indicators, gaps.isnan().to(x.dtype)], -1)


def expansion(layout: Layout | None) -> list[Expansion]:
    """What an encoder of ours puts first for rows of this layout: nothing where they are numbers alone."""
    return [] if layout is None or layout.plain else [Indicators(layout)]
