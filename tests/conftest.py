"""Figures are drawn in all tests, and laid out in those that ask for it: that would double or treble what they cost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from matplotlib.figure import Figure

_laid_out = Figure.__init__


def _as_they_fall(figure: Figure, *args: object, layout: object = None, **options: object) -> None:
    _laid_out(figure, *args, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="session", autouse=True)
def _no_layout() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "__init__", _as_they_fall)
        yield


@pytest.fixture
def layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures as a user gets them."""
    monkeypatch.setattr(Figure, "__init__", _laid_out)
