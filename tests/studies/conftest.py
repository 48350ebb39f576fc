"""Worlds of the studies are mixed by the best of a few hundred matrices, not of 25,000, and measured on fewer rows."""

from __future__ import annotations

import pytest
from torch import Generator, Tensor

from probssl.studies import recovery
from probssl.worlds import mixings

_best_of = mixings.well_conditioned


def _best_of_few(dim: int, draws: int, generator: Generator) -> Tensor:
    return _best_of(dim, min(draws, 300), generator)


@pytest.fixture(autouse=True)
def _small_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixings, "well_conditioned", _best_of_few)
    monkeypatch.setattr(recovery, "FIT_ROWS", 1000)
    monkeypatch.setattr(recovery, "TEST_ROWS", 500)
