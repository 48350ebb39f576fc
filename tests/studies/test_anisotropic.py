"""The studies of AnInfoNCE's synthetic worlds: tiny runs of all of them, and what a trial is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from probssl.studies import anisotropic, anisotropic_trials, experiments, scaling_trials
from probssl.studies.comparison import references

FIGURES = {
    "anisotropic/lambda": ("figure2", "shortcuts"),
    "anisotropic/hard-negatives": ("figure10",),
    "anisotropic/ensemble": ("figure11",),
    "anisotropic/tricl": ("figure12",),
    "anisotropic/scaling": ("figure4", "figure8", "figure9"),
    "anisotropic/mismatch": ("figure6",),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_tiny_run(name: str, tmp_path: Path) -> None:
    result = experiments.run(name, "smoke", tmp_path, quiet=True, jobs=1)
    assert not result.failures
    assert result.rows
    assert all(row.value is not None and np.isfinite(row.value) for row in result.rows)
    assert all((tmp_path / f"{figure}.png").is_file() for figure in FIGURES[name])
    assert "<html" in result.page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["anisotropic/ensemble", "anisotropic/hard-negatives"])
def test_published_settings_are_among_ours(name: str) -> None:
    settings = {config["setting"] for config in experiments.find(name).configs("laptop")}
    assert {setting for setting, _ in references(name)} <= settings


@pytest.mark.parametrize("name", FIGURES)
def test_budgets_are_grids_of_distinct_trials(name: str) -> None:
    study = experiments.find(name)
    for budget in ("smoke", "laptop", "full"):
        configs = study.configs(budget)  # type: ignore[arg-type]
        assert len({repr(config) for config in configs}) == len(configs)


def test_anisotropic_positives_are_recovered_and_the_gap_closes() -> None:
    config = {**anisotropic.training("AnInfoNCE", 25.0), "hidden": [48, 48], "batch": 512, "seed": 0}
    short, longer = (anisotropic_trials.trial({**config, "steps": steps}) for steps in (60, 700))
    assert longer["style"] > short["style"]
    assert longer["r2"] > 0.85
    assert 0 < longer["gap"] < short["gap"]


def test_the_loss_with_hard_negatives_is_least_at_the_difference() -> None:
    config = {"setting": "Λ⁺ 60, Λ⁻ 20", "dim": 6, "positive": 60.0, "negative": 20.0, "negatives": 8}
    found = anisotropic_trials.loss_curve({**config, "anchors": 30_000, "seed": 0})
    assert found["least"] == pytest.approx(40.0, rel=0.05)
    assert min(found["losses"]) < min(found["losses"][0], found["losses"][-1])


def test_with_one_marginal_home_and_away_are_one() -> None:
    config = {"marginal": 0.0, "dim": 5, "concentration": 10.0, "batch": 64, "hidden": [16], "rate": 0.01}
    found = scaling_trials.mismatch({**config, "steps": 30, "seed": 0})
    assert found["accuracy"] == pytest.approx(0.5, abs=0.05)
    assert found["away"] == pytest.approx(found["at home"], abs=0.05)
    assert found["carried away"] == pytest.approx(found["away"], abs=0.05)
