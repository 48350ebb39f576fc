"""The first layers of an exported network: what becomes of raw rows or images before the encoder."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from probssl.data.preparation import CYCLES, STARTS, TREND, Preparation, recoded
from probssl.encoders import as_floats


class Prepared(nn.Module):
    """`Preparation.transform` as a network, of rows whose codes are places in the levels of the training data.

    A number of `found` comes from one of the rows: as it is, looked up by its code, or as the phase of a cycle.
    """

    tables: Tensor
    """[prepared columns, longest]: what each code becomes."""
    coded: Tensor
    whole: Tensor
    source: Tensor
    frequency: Tensor
    shift: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, preparation: Preparation) -> None:
        super().__init__()
        source, frequency, shift = [], [], []
        tables: list[np.ndarray] = []
        prepared = preparation.layout.columns
        longest = max((len(column.levels) for column in preparation.raw.columns), default=0)
        empty = np.zeros((0, len(preparation.raw.columns)))
        for place, (column, _, places) in enumerate(preparation.matched(preparation.raw, empty)):
            coded: np.ndarray | None = None
            if column.kind == "text":
                coded = preparation.texts[column.name].transform(column.levels)
            elif column.coded:
                coded = recoded(column.levels, prepared[places.start].levels)[:, None]
            for offset, one in enumerate(prepared[places]):
                source.append(place)
                part = one.name.removeprefix(f"{column.name}: ") if column.kind == "date" else TREND
                cycle, _, wave = part.partition(" ")
                frequency.append(2 * np.pi / CYCLES[cycle] if wave else 0.0)
                shift.append((np.pi / 2 if wave == "cosine" else 0.0) - STARTS.get(cycle, 0.0) * frequency[-1])
                table = np.full(longest, np.nan)
                if coded is not None:
                    table[: len(coded)] = coded[:, offset]
                tables.append(table)
        self.looks_up = longest > 0
        self.register_buffer("tables", torch.from_numpy(np.array(tables)) if longest else torch.zeros(1))
        self.register_buffer("source", torch.tensor(source))
        self.register_buffer("frequency", torch.tensor(frequency, dtype=torch.float64))
        self.register_buffer("shift", torch.tensor(shift, dtype=torch.float64))
        self.register_buffer("coded", torch.tensor([preparation.raw.columns[place].coded for place in source]))
        self.register_buffer("whole", torch.tensor([not (column.gaps or column.coded) for column in prepared]))
        self.register_buffer("mean", torch.from_numpy(preparation.scaling.mean.copy()))
        self.register_buffer("scale", torch.from_numpy(preparation.scaling.scale.copy()))

    def forward(self, x: Tensor) -> Tensor:
        values = x.double()[:, self.source]
        found = torch.where(self.frequency > 0, torch.sin(values * self.frequency + self.shift), values)
        if self.looks_up:
            codes = values.nan_to_num(0).long().clamp(0, self.tables.shape[1] - 1)
            looked_up = self.tables.gather(1, codes.T).T
            found = torch.where(self.coded, torch.where(values.isnan(), values, looked_up), found)
        found = (found - self.mean) / self.scale
        return torch.where(self.whole & found.isnan(), 0.0, found).float()


class Bytes(nn.Module):
    """Pixels from 0 to 255 as numbers from 0 to 1; numbers as they are."""

    def forward(self, x: Tensor) -> Tensor:
        return as_floats(x)
