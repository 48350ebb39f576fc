from pathlib import Path

import pytest

from tests.files import unplug


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory and an empty cache, without a network."""
    unplug(monkeypatch, tmp_path / "data", tmp_path / "cache")
    (tmp_path / "data").mkdir()
    return tmp_path / "data"
