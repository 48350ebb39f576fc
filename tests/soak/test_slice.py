"""A slice of the soak: one cell of each kind, killed at random moments."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from tests.soak.__main__ import Tally, soak_kills
from tests.soak.jobs import cells

SLICE = ("fit table gedi", "fit images simclr", "fit world infonce", "compare table --jobs 1")


@pytest.mark.skipif(os.name != "posix", reason="victims are forks")
def test_a_few_jobs_survive_kills(tmp_path: Path) -> None:
    every = cells()
    assert len(every) >= 40
    tally = Tally()
    soak_kills(tally, random.Random(3), threading.Event(), tmp_path, {name: every[name] for name in SLICE}, rounds=1)
    assert not tally.broken
    assert tally.kills >= 4
