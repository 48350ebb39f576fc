"""Gaps of a table, filled by draws from the posterior of a model with a decoder: `probssl.impute`, `probssl impute`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from probssl.data import Table, in_layout
from probssl.data.writing import cells
from probssl.errors import InputError
from probssl.layout import Column
from probssl.model.decoding import decoder_of
from probssl.model.model import Data, Model
from probssl.objectives import ColumnsLikelihood, GenerativeObjective

AT_ONCE = 2**22
"""Numbers of rows, latents for latent, that are decoded together."""


@dataclass(frozen=True, eq=False)
class Imputed:
    """A table whose gaps were filled, and how sure that is."""

    columns: tuple[Column, ...]
    values: np.ndarray
    """[n, columns]: as they were, gaps filled with the mean of the draws, or the level that most of them have."""
    spread: np.ndarray
    """[n, columns]: where a gap was filled, the standard deviation of the draws or the share of the level; else NaN."""
    ids: np.ndarray | None = None

    def frame(self) -> dict[str, np.ndarray]:
        """Columns by name, as pandas and others take them, with texts of levels and times of dates."""
        return {column.name: cells(values, column) for column, values in zip(self.columns, self.values.T, strict=True)}

    def with_spread(self) -> tuple[list[Column], np.ndarray]:
        """Columns, and after them, of those that had gaps, how sure each filling is: rows of both [n, …]."""
        places = np.flatnonzero(~np.isnan(self.spread).all(0))
        more = [self.columns[place] for place in places]
        named = [Column(f"{column.name} ({'chance' if column.coded else 'deviation'})") for column in more]
        return [*self.columns, *named], np.column_stack([self.values, self.spread[:, places]])


def impute(model: Model, data: Data, *, draws: int = 20, samples: int = 100, seed: int = 0) -> Imputed:
    """The columns that the model was trained on, their gaps filled by `draws` from its posterior.

    Each draw comes from one of `samples` latents of the row, chosen by how well they explain what is observed of it.
    One draw has no spread: several seeds give as many complete tables. Texts are not filled.
    """
    if min(draws, samples) < 1 or seed < 0:
        raise InputError("a gap is filled by at least one draw of at least one latent, with a seed from 0")
    objective, preparation = decoder_of(model), model.preparation
    if preparation is None or not isinstance(objective.likelihood, ColumnsLikelihood):
        raise InputError("this model cannot leave gaps out: train on a table with --set objective.likelihood=columns")
    found = model.read(data)
    assert isinstance(found, Table)
    assert model.layout is not None
    table = in_layout(found, model.layout)
    made = preparation.restored.columns
    places = [table.feature_names.index(column.name) for column in made]
    columns = list(table.columns)
    for place, column in zip(places, made, strict=True):
        known = columns[place].levels
        new = [level for level in column.levels if level not in known]
        columns[place] = replace(columns[place], levels=(*known, *new))
    values, spread = table.features.copy(), np.full(table.features.shape, np.nan)
    rows = np.flatnonzero(np.isnan(values[:, places]).any(1))
    generator = torch.Generator().manual_seed(seed)
    for some in np.array_split(rows, max(1, len(rows) * samples * model.facts.features // AT_ONCE)):
        raw = table.features[some]
        missing = np.zeros((len(some), *model.facts.shape), dtype=bool)
        for _, of_column, parts in preparation.matched(table.layout, raw):
            missing[:, parts] = np.isnan(of_column)[:, None]
        x, lost = model.inputs(raw, table.layout), torch.from_numpy(missing)
        drawn = completed(objective, model.encoder, x, lost, generator, draws=draws, samples=samples)
        in_units = model.in_units(drawn.flatten(0, 1)).reshape(draws, len(some), -1)
        for place, column, each in zip(places, made, np.moveaxis(in_units, 2, 0), strict=True):
            gaps = np.isnan(raw[:, place])
            filled, sure = _summary(each[:, gaps], column, columns[place])
            values[some[gaps], place], spread[some[gaps], place] = filled, sure
    return Imputed(tuple(columns), values, spread, table.ids)


def _summary(drawn: np.ndarray, column: Column, written: Column) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of draws [draws, n], or of levels the most frequent, as it is `written`, and its share."""
    if not column.coded:
        return drawn.mean(0), drawn.std(0)
    shares = (drawn[..., None] == np.arange(len(column.levels))).mean(0)
    codes = np.array([written.levels.index(level) for level in column.levels])
    return codes[shares.argmax(1)], shares.max(1)


@torch.no_grad()
def completed(
    objective: GenerativeObjective,
    encoder: nn.Module,
    x: Tensor,
    missing: Tensor,
    generator: torch.Generator,
    *,
    draws: int = 1,
    samples: int = 100,
) -> Tensor:
    """x [n, columns] with draws of p(x_missing | x_observed) where it is `missing` [n, columns]: [draws, n, columns].

    Latents come from q(z | x), `samples` of a row, and are drawn again with weights p(x_observed | z) p(z) / q(z | x):
    exact as their number grows, however rough q is   (Rubin, 1987; Mattei & Frellsen, 2019). That a value is missing
    tells nothing about it here.
    """
    encoder.eval()
    objective.eval()
    mean, log_variance = objective.posterior(encoder, x)
    noise = mean.new_empty(samples, *mean.shape).normal_(generator=generator)
    z = mean + noise * (0.5 * log_variance).exp()
    observed = torch.where(missing, math.nan, x).expand(samples, *x.shape)
    explained = objective.likelihood.log_prob_of_values(observed.flatten(0, 1), objective.decoder(z.flatten(0, 1)))
    log_weights = explained.view(samples, -1) + objective.log_prior(z.flatten(0, 1)[None]).view(samples, -1)
    log_weights += 0.5 * noise.square().sum(-1)
    chosen = log_weights.softmax(0).T.multinomial(draws, replacement=True, generator=generator).T  # [draws, n]
    kept = z.gather(0, chosen.unsqueeze(-1).expand(-1, -1, z.shape[-1]))
    values = objective.likelihood.sample_values(objective.decoder(kept.flatten(0, 1)), generator)
    return torch.where(missing, values.view(draws, *x.shape), x)
