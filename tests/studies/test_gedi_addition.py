"""Sums of digits as a study: its rows, its losses, and a tiny run of all of it on bars instead of digits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from probssl.studies import experiments, gedi_addition_trials
from probssl.studies.comparison import references
from probssl.studies.gedi_addition import METHODS, METRICS, STEPS, Addition, setting
from tests.files import write_bars


@pytest.fixture
def bars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Instead of digits, bars whose place is their label, in the files of MNIST."""
    write_bars(tmp_path / "data" / "mnist", 2_400, 300)
    monkeypatch.setenv("PROBSSL_DATA", str(tmp_path / "data"))
    gedi_addition_trials.digits.cache_clear()
    yield
    gedi_addition_trials.digits.cache_clear()


@pytest.mark.parametrize("budget", ["laptop", "full"])
def test_every_number_of_the_table_has_a_row_of_its_name(budget: str) -> None:
    named = {(setting(size, method), metric) for size in STEPS[budget] for method in METHODS for metric in METRICS}  # type: ignore[index]
    assert set(references(Addition.name)) < named
    assert {name.partition(", ")[2] for name, _ in named - set(references(Addition.name))} == {"constraint and prior"}


def test_a_method_has_the_terms_of_its_name() -> None:
    (config, *_) = Addition().configs("smoke")
    found = {method: set(gedi_addition_trials.objective_of({**config, "method": method}).weights) for method in METHODS}
    assert found["constraint"] == {"constraint"}
    assert found["constraint and prior"] == {"constraint", "prior"}
    assert found["GEDI"] >= {"invariance", "prior", "generative"}
    assert found["GEDI and constraint"] >= {"constraint", "prior", "generative"}
    assert "invariance" not in found["GEDI and constraint"]


@pytest.mark.usefixtures("bars")
def test_a_tiny_run_of_the_whole_study(tmp_path: Path) -> None:
    result = experiments.run(Addition(), "smoke", tmp_path / "out", quiet=True, jobs=1)
    assert not result.failures
    assert [row.setting for row in result.rows] == [setting(100, method) for method in METHODS for _ in METRICS]
    assert all(row.value is not None and 0 <= row.value <= 1 for row in result.rows)
    for name in ("index.html", "scores.png", "terms.png", "digits.png", "chains.png", "result.json"):
        assert (tmp_path / "out" / name).is_file()


@pytest.mark.usefixtures("bars")
def test_sums_add_up_and_keep_away_from_what_is_held_out() -> None:
    data = gedi_addition_trials.digits()
    images, labels = data.train
    assert len(images) == 2_200
    assert len(data.held_out[0]) == 200
    numbered = torch.arange(len(images))
    triples = gedi_addition_trials.sums(numbered, labels, 100, 3)
    assert triples.unique().numel() == 300
    assert gedi_addition_trials.addition().satisfied(labels[triples]).all()


@pytest.mark.usefixtures("bars")
def test_without_the_prior_one_answer_serves_for_all() -> None:
    config = {**Addition().configs("smoke")[0], "method": "constraint", "examples": 200, "steps": 40, "width": 8}
    alone, both = (gedi_addition_trials.trial({**config, "method": name}) for name in METHODS[::2])
    assert METHODS[::2] == ("constraint", "constraint and prior")
    assert alone["other constraint"] < 0.1
    assert alone["other prior"] > 2
    assert both["curve"][-1]["constraint"] < both["curve"][0]["constraint"]
    assert both["other prior"] < 1


@pytest.mark.usefixtures("bars")
def test_a_trial_is_its_configuration() -> None:
    config = {**Addition().configs("smoke")[0], "method": "GEDI and constraint", "steps": 3}
    one, two = (gedi_addition_trials.trial(config) for _ in range(2))
    assert {**one, "seconds": 0} == {**two, "seconds": 0}
