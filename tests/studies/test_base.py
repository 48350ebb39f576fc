"""The rule that compares with a bare number, rows, and the catalogue."""

import json

import pytest

from probssl import studies
from probssl.errors import InputError
from probssl.studies.base import BUDGETS


@pytest.mark.parametrize(
    ("value", "spread", "repetitions", "published", "higher", "expected"),
    [
        (0.95, 0.0, 1, 0.95, True, "matched"),
        (0.9401, 0.0, 5, 0.95, True, "matched"),  # within 0.01
        (0.9399, 0.0, 5, 0.95, True, "missed"),
        (0.9601, 0.0, 5, 0.95, True, "beaten"),
        (0.92, 0.04, 4, 0.95, True, "matched"),  # two standard errors are 0.04
        (0.90, 0.04, 4, 0.95, True, "missed"),
        (1.00, 0.04, 4, 0.95, True, "beaten"),
        (0.92, 0.04, 16, 0.95, True, "missed"),  # more repetitions, less doubt
        (3.0, 0.1, 4, 2.0, False, "missed"),
        (1.0, 0.1, 4, 2.0, False, "beaten"),
        (0.5, None, 0, 0.9, True, "missed"),
        (None, None, 5, 0.9, True, "not comparable"),
        (0.9, 0.1, 5, None, True, "not comparable"),
        (float("nan"), float("nan"), 5, 0.9, True, "missed"),
        (float("nan"), float("nan"), 5, 0.9, False, "missed"),
        (float("inf"), 0.1, 5, 0.9, True, "missed"),
    ],
)
def test_verdict(value, spread, repetitions, published, higher, expected):
    assert studies.verdict(value, spread, repetitions, published, higher_is_better=higher) == expected


def test_rows_are_strict_json():
    row = studies.Row("a", "b", float("nan"), float("inf"), 0.9, "missed").as_dict()
    assert row == {"setting": "a", "metric": "b", "value": None, "spread": None, "published": 0.9, "verdict": "missed"}


def test_catalogue():
    for study in studies.catalogue():
        assert all(study.as_dict().values())
        for budget in BUDGETS:
            configs = study.configs(budget)
            assert len({json.dumps(config, sort_keys=True) for config in configs}) == len(configs) > 0
            cut = study.batches(configs, 2)
            assert sorted(map(repr, configs)) == sorted(repr(config) for batch in cut for config in batch)


@pytest.mark.parametrize(("name", "budget"), [("nope", "smoke"), ("siamese/circles", "nope")])
def test_refusals_leave_nothing_behind(name, budget, tmp_path):
    with pytest.raises(InputError, match="nope"):
        studies.run(name, budget, tmp_path / "out")
    assert not (tmp_path / "out").exists()
