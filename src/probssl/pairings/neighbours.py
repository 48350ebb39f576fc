"""Pairs of rows that are known to belong together: given ones, or neighbours in the time of a recording."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from probssl.errors import InputError
from probssl.pairings.views import Needs, Source, Views, latent_noise, random_signs

OVERDRAW = 3
"""Pairs drawn for each one of a batch, so that enough are left without those that share a row."""


class RowPairs(Source):
    """p(x, x̃) = 1/m Σ_k [x = rows_{a_k}] [x̃ = rows_{b_k}]: one of m known pairs of rows.

    `rows` [n, ...] are the observations, `pairs` [m, 2] the numbers (a_k, b_k) of the rows that belong together. No row
    comes twice in a batch: a positive that is also the original of another pair would be a candidate at distance 0 from
    itself, for which no energy could be blamed. So pairs that share rows with fewer others, at the ends of a
    recording, come a little more often; and where there are not enough pairs the batch is smaller: about 43 % of all
    neighbours in time share no row. The density p(x̃ | x) is not known, so there is no score.
    """

    rows: Tensor
    pairs: Tensor

    def __init__(self, rows: Tensor, pairs: Tensor) -> None:
        super().__init__()
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.is_floating_point():
            raise InputError(
                f"pairs come as two row numbers each, [m, 2], not as {pairs.dtype} of shape {tuple(pairs.shape)}"
            )
        if len(pairs) < 2:
            raise InputError(f"contrasting pairs takes at least two of them, and there is {len(pairs)}")
        if int(pairs.min()) < 0 or int(pairs.max()) >= len(rows):
            raise InputError(f"pairs are numbers of rows from 0 to {len(rows) - 1}")
        self.register_buffer("rows", rows)
        self.register_buffer("pairs", pairs)

    @torch.no_grad()
    def draw(self, count: int, needs: Needs, generator: torch.Generator | None = None) -> Views:
        if needs.score or needs.negatives or needs.augmented > 1:
            raise InputError(
                "known pairs give one positive a row, no score and no negatives but the batch: choose an objective "
                "that needs no more"
            )
        total, wanted, device = len(self.pairs), OVERDRAW * count, self.pairs.device
        if total > 8 * wanted:  # then few come twice, and those do no harm
            chosen = torch.randint(total, (wanted,), generator=generator, device=device)
        else:
            chosen = torch.randperm(total, generator=generator, device=device)[:wanted]
        pairs = disjoint(self.pairs[chosen], len(self.rows))[:count]
        if len(pairs) < 2:
            raise InputError(f"contrasting {len(self.pairs)} pairs takes at least two of them that share no row")
        first, second = pairs.unbind(1)
        x = self.rows[first]
        return Views(
            x=x,
            augmented=self.rows[second].unsqueeze(0) if needs.augmented else x.new_empty(0, *x.shape),
            index=first,
            directions=random_signs(x, needs.directions, generator) if needs.directions else None,
            noise=latent_noise(x, needs, generator),
        )


def disjoint(pairs: Tensor, rows: int) -> Tensor:
    """The pairs [m, 2] of row numbers below `rows` that share no row with one kept before them, in their order."""
    kept = torch.zeros(len(pairs), dtype=torch.bool, device=pairs.device)
    left = torch.arange(len(pairs), device=pairs.device)
    while len(left):  # a round keeps what is first at both its rows: a few rounds do
        among = pairs[left]
        earliest = left.new_full((rows,), len(pairs))
        earliest.scatter_reduce_(0, among.flatten(), left.repeat_interleave(2), "amin")
        now = (earliest[among] == left.unsqueeze(1)).all(1)
        kept[left[now]] = True
        taken = left.new_zeros(rows, dtype=torch.bool)
        taken[among[now].flatten()] = True
        left = left[~taken[among].any(1)]
    return pairs[kept]


def neighbours(count: int, lags: Sequence[int] = (1,), groups: Tensor | None = None) -> Tensor:
    """Pairs (t, t + lag) of the rows of a recording in time order, for every lag: [m, 2].

    Nothing is paired across the ends. With `groups` [count], one label a row, rows of one group are a recording of
    their own, in the order in which they come, and pairs stay within it.
    """
    if any(lag < 1 for lag in lags) or not lags:
        raise InputError(f"lags are at least one row, not {list(lags)}")
    if groups is None:
        groups = torch.zeros(count, dtype=torch.long)
    if groups.shape != (count,):
        raise InputError(f"{count} rows need {count} labels of groups, not an array of shape {tuple(groups.shape)}")
    order = groups.argsort(stable=True)
    sorted_groups = groups[order]
    found = []
    for lag in lags:
        together = sorted_groups[lag:] == sorted_groups[: max(0, count - lag)]
        found.append(torch.stack([order[: max(0, count - lag)][together], order[lag:][together]], 1))
    return torch.cat(found)
