"""The rule that compares with a bare number, rows, and the catalogue."""

import json

import pytest

from probssl import studies
from probssl.errors import InputError
from probssl.studies.base import BUDGETS, Claim, Row, row_of, rows_of
from probssl.studies.page import listed


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
            cut = study.cohorts(configs)
            assert sorted(map(repr, configs)) == sorted(repr(config) for batch in cut for config in batch)


@pytest.mark.parametrize(("name", "budget"), [("nope", "smoke"), ("siamese/circles", "nope")])
def test_refusals_leave_nothing_behind(name, budget, tmp_path):
    with pytest.raises(InputError, match="nope"):
        studies.run(name, budget, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_claim_is_one_number_above_another():
    rows = [studies.Row("a", "NMI", 0.9, None, None, "not comparable")]
    rows.append(studies.Row("b", "NMI", None, None, None, "not comparable"))
    assert Claim(("a", "NMI"), 0.9).holds(rows)
    assert Claim(0.9, ("a", "NMI")).holds(rows)
    assert Claim(("a", "NMI"), 0.5, 0.3).holds(rows)
    assert not Claim(("a", "NMI"), 0.5, 0.5).holds(rows)
    assert not Claim(("a", "NMI"), ("b", "NMI")).holds(rows)
    assert not Claim(1.0, ("absent", "NMI")).holds(rows)


def test_a_row_is_of_the_mean_or_of_the_median():
    values = [0.0, 0.1, 2.0]
    assert row_of("tests", "a", "b", values).value == pytest.approx(0.7)
    found = row_of("tests", "a", "b", values, median=True)
    assert (found.value, found.verdict) == (0.1, "not comparable")
    assert row_of("tests", "a", "b", []).value is row_of("tests", "a", "b", [1.0]).spread is None
    assert row_of("tests", "a", "b", [1.0], of_one=0.0).spread == 0.0


def test_rows_may_have_other_names_than_results():
    results = [{"r2": 0.5}, {"r2": 0.7}]
    (row,) = rows_of("tests", "a", results, {"r2": "linear R²"})
    assert (row.metric, row.value) == ("linear R²", pytest.approx(0.6))
    assert rows_of("tests", "a", results, ["r2"])[0].metric == "r2"


def test_listed_rows_show_what_is_known():
    rows = [Row("a", "b", 0.98765, 0.01234, 0.997, "missed"), Row("a", "c", None, 0.0, None, "not comparable")]
    assert listed(rows, "predicted").head[-2:] == ["predicted", "verdict"]
    assert listed(rows, form=".3f").rows == [
        ["a", "b", "0.988", "0.012", "0.997", "missed"],
        ["a", "c", "–", "–", "–", "not comparable"],
    ]
