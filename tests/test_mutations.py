"""Files that are read back, damaged in every way: one sentence and exit code 2, or no harm, and never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from probssl.comparing import schedule
from tests.cli.shell import ENVIRONMENT
from tests.mutations import CASES, Case, make_good, make_grids, trial

MUTATIONS = {"study": 12, "compare": 2}
"""Damaged files of each case where reading one takes longer than a moment; of others there are 25."""


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "LENGTHS", {float("inf"): (4, 8, 12)})
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def place(surroundings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files of every kind."""
    folder = tmp_path_factory.mktemp("good")
    make_good(folder)
    make_grids(folder)
    return folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_damage_ends_in_one_sentence_or_does_no_harm(case: Case, place: Path) -> None:
    wrong = [trial(case, place, seed) for seed in range(MUTATIONS.get(case.made, 25))]
    assert not [what for what in wrong if what is not None]
