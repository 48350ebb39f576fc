"""CL-ICA's Table 1 as a study: its rows, its recipes, and a tiny run of all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from probssl.energies import Cosine
from probssl.studies import experiments, identify_trials, recovery
from probssl.studies.comparison import references
from probssl.studies.identify import SCORES, SETTINGS
from probssl.worlds import Sphere, World


def test_every_row_of_the_table_is_there_under_its_name() -> None:
    named = {(setting.name, f"{score} R²") for setting in SETTINGS for score in SCORES}
    assert named == set(references("identify/table1"))


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_row_says_what_its_name_says(setting: identify_trials.Setting) -> None:
    world = identify_trials.world(setting, 0)
    assert isinstance(world, World)
    truth, _, model = setting.name.partition(" | ")
    assert truth.startswith({"Sphere": "sphere", "Box": "box", "RealSpace": "R10"}[type(world.marginal.space).__name__])
    assert isinstance(world.marginal.space, Sphere) == setting.sphere == isinstance(setting.energy(), Cosine)
    if not setting.sphere:
        assert f"GenNorm({setting.energy().p:g})" in model  # type: ignore[operator, str-bytes-safe]
    recipe = setting.recipe
    assert recipe.group_size is None or recipe.batch_size % recipe.group_size == 0
    assert [s.matched for s in SETTINGS].count(True) == 2


def test_a_tiny_run_of_the_whole_study(tmp_path: Path) -> None:
    result = experiments.run("identify/table1", "smoke", tmp_path, quiet=True, jobs=1)
    assert not result.failures
    assert [(row.setting, row.metric) for row in result.rows] == [
        (setting.name, f"{score} R²") for setting in SETTINGS for score in SCORES
    ]
    assert all(row.value is not None and -1 < row.value < 1 for row in result.rows)
    assert {row.verdict for row in result.rows if row.metric == "linear R²"} == {"not comparable"}
    for name in ("index.html", "scores.png", "curves.png", "result.json"):
        assert (tmp_path / name).is_file()


def test_a_short_training_recovers_more_than_the_observations_show() -> None:
    config = {"row": 12, "score": "unsupervised", "seed": 0, "steps": 400}
    found = identify_trials.trial(config)
    assert found["r2"] > identify_trials.trial({**config, "score": "linear", "steps": 0})["r2"] + 0.15
    short = {**config, "steps": 20}
    assert identify_trials.trial(short)["r2"] == pytest.approx(identify_trials.trial(short)["r2"], abs=1e-6), "repeats"
    steps = [point["step"] for point in found["curve"]]
    assert steps[0] == 0
    assert steps[-1] == 400
    assert found["curve"][-1]["r2"] == pytest.approx(found["r2"])


def test_time_to_a_score_is_read_off_the_curve() -> None:
    curve = [{"r2": 0.2, "seconds": 0.0}, {"r2": 0.6, "seconds": 4.0}, {"r2": 0.5, "seconds": 6.0}]
    assert recovery.first_seconds(curve, 0.4) == pytest.approx(2.0)
    assert recovery.first_seconds(curve, 0.1) == 0.0
    assert recovery.first_seconds(curve, 0.7) is None
