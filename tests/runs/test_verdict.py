"""Verdicts against PCA and the features themselves: losses first, wins only where they are clear, for every target."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import probssl
from probssl.data import Table
from probssl.data.dataset import Target
from probssl.layout import Column, Layout
from probssl.metrics.paired import Difference
from probssl.metrics.summary import Evaluation
from probssl.objectives.reference import Estimate, ReferenceLosses
from probssl.report.console import format_value
from probssl.runs import Run
from probssl.runs.doctor import examine
from probssl.runs.doctor import verdict as in_brief
from probssl.runs.evaluation import Comparison, baselines, evaluate
from probssl.runs.verdict import Verdict, reach, without_targets

ROWS = 400


def codes(**right: float) -> Evaluation:
    """A code with these shares of 400 rows right: the first ones."""
    each = {key: (np.arange(ROWS) < share * ROWS).astype(float)[None] for key, share in right.items()}
    return Evaluation(dict(right), dict.fromkeys(right, ""), each)


def verdict(trained: Evaluation, pca: Evaluation, raw: Evaluation, targets: dict[str, str] | None = None) -> Verdict:
    found = {"trained encoder": trained, "PCA to 2": pca, "raw features": raw}
    return reach(found, "trained encoder", ["PCA to 2", "raw features"], targets or {"": ""}, "nothing known.")


def test_what_was_lost_comes_first():
    trained = codes(linear_probe=0.8, knn_probe=0.9, few_60=0.7)
    found = verdict(trained, codes(linear_probe=0.8, knn_probe=0.7, few_60=0.7), codes(linear_probe=0.9, few_60=0.7))
    assert found.sentences == (
        "Worse than raw features in linear accuracy by 0.10 ± 0.02; no clear difference in 60-label accuracy.",
        "Better than PCA to 2 in 10-NN accuracy by 0.20 ± 0.02; no better in linear or 60-label accuracy.",
    )
    assert found.against["PCA to 2"]["knn_probe"].mean == pytest.approx(0.2)
    assert found.behind_pca is None


def test_nothing_wins_where_nothing_separates():
    level = codes(linear_probe=0.8, knn_probe=0.8)
    found = verdict(level, level, level)
    assert found.sentences[0] == "No better than PCA to 2 in linear or 10-NN accuracy."
    assert found.wins == {}
    assert found.behind_pca is None, "as good as PCA"
    ahead = verdict(codes(linear_probe=0.9), codes(linear_probe=0.8), codes(linear_probe=0.8975))
    assert ahead.wins == {}, "one row of 400 is no win"
    assert verdict(codes(linear_probe=0.9), codes(linear_probe=0.8), codes(linear_probe=0.7)).wins == {
        "linear_probe": "trained encoder"
    }


def test_behind_pca_in_everything():
    found = verdict(codes(linear_probe=0.7, few_60=0.6), codes(linear_probe=0.8, few_60=0.8), codes(linear_probe=0.5))
    assert found.behind_pca == (
        "PCA to 2 is better in linear accuracy by 0.10 ± 0.02 and 60-label accuracy by 0.20 ± 0.02"
    )
    assert found.sentences[0].startswith("Worse than PCA to 2 in linear accuracy by 0.10 ± 0.02 and 60-label")
    assert found.sentences[1].startswith("Better than raw features in linear accuracy by 0.20")


def test_every_target_has_sentences_of_its_own():
    trained = codes(linear_probe=0.8) | codes(ridge_r2=0.5).named(":price")
    pca = codes(linear_probe=0.7) | codes(ridge_r2=0.6).named(":price")
    found = verdict(trained, pca, pca, {"": "kind", ":price": "price"})
    assert found.sentences[0] == "price: worse than PCA to 2 in linear R² by 0.10 ± 0.02."
    assert found.sentences[2] == "kind: better than PCA to 2 in linear accuracy by 0.10 ± 0.02."
    only = verdict(codes(ridge_r2=0.5).named(":price"), codes(ridge_r2=0.6).named(":price"), codes(), {":price": "p"})
    assert only.behind_pca == "PCA to 2 is better in linear R² (price) by 0.10 ± 0.02"


def test_without_labels_one_sentence_says_what_is_known():
    model, optimum, constant, gap, gain = (Estimate(value, 0.1) for value in (2.0, 1.0, 5.0, 1.0, 3.0))
    loss = ReferenceLosses(model, optimum, constant, gap, gain, None, 10, 5)
    read = Evaluation({"rankme": 2.5}, {"rankme": "how"})
    assert without_targets(read, 4, None) == (
        "Without labels nothing tells whether it is better than PCA; RankMe is 2.5 of 4."
    )
    assert "2.5 of 4 and the loss is 75% of the way from that of a constant" in without_targets(read, 4, loss)
    few = Evaluation({}, {"linear_probe": "undefined: a probe needs two classes"})
    assert without_targets(few, 4, None) == "No comparison with PCA (undefined: a probe needs two classes)."


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A run of a table with a class, a number with gaps and another class, and its comparison in full; read only."""
    random = np.random.default_rng(0)
    x = random.normal(size=(240, 4))
    kind, price = (x[:, 0] > 0).astype(float), 1000 + 300 * x[:, 1] + random.normal(size=240)
    price[::7], kind[:20] = np.nan, np.nan
    targets = (
        Target("price", price),
        Target("kind", kind, ("no", "yes")),
        Target("side", (x[:, 2] > 0).astype(float), ("left", "right")),
    )
    data = Table("t.csv", x, ("a", "b", "c", "d"), targets=targets)
    run = probssl.fit(data, steps=30, dim=2, out=tmp_path_factory.mktemp("judged") / "run")
    return run, evaluate(run.model, run.dataset, depth="full")


def test_all_targets_are_judged_and_stored(judged):
    run, full = judged
    quick = run.comparison
    assert full.targets == {"price": "numbers", "kind": "classes", "side": "classes"}
    read = {"linear_probe", "knn_probe", "few_60", "linear_probe:side", "ridge_r2:price", "knn_mae:price"}
    assert read <= set(quick.metrics) < set(full.metrics)
    assert {"few_10", "few_100:side", "boosting", "boosting_r2:price"} <= set(full.metrics)
    assert full.metrics["ridge_mae:price"][1] == "Linear, mean error, price"
    assert full.rows["raw features"]["boosting_r2:price"] > 0.8
    assert "boosting" not in full.rows["trained encoder"]
    assert full.rows["raw features"]["ridge_r2:price"] > 0.95
    assert {sentence.partition(":")[0] for sentence in full.verdict.sentences} == {"price", "kind", "side"}
    assert full.verdict.wins["ridge_r2:price"] == "raw features"
    again = Comparison.from_dict(json.loads(json.dumps(full.as_dict(), allow_nan=False)))
    assert (again.verdict, again.metrics) == (full.verdict, full.metrics)
    assert "Linear R², price" in run.report.read_text(encoding="utf-8")


def test_rows_without_a_value_are_left_out(judged):
    run, full = judged
    test = run.dataset.test
    known = np.isfinite(run.dataset.targets[0].values)
    fitted, rows = ((mask & known).sum() for mask in (~test, test))
    assert f"fitted on {fitted} rows kept for it, judged by {rows} others" in full.protocols["ridge_r2:price"]


def test_a_run_below_pca_is_not_healthy(judged, tmp_path):
    run, _ = judged
    lost = {"PCA to 2": {"linear_probe": Difference(-0.2, 0.05)}}
    comparison = replace(run.comparison, verdict=Verdict(("lost",), lost, {}))
    below = Run(run.folder)
    below.__dict__["comparison"] = comparison
    found = examine(below)
    assert not found.healthy
    assert found.summary == "PCA to 2 is better in linear accuracy by 0.20 ± 0.05"
    assert found.findings[0].kind == in_brief(below) == "below PCA"
    assert found.findings[0].remedies
    below.__dict__["comparison"] = replace(comparison, verdict=Verdict(("level",), {"PCA to 2": {}}, {}))
    assert in_brief(below) == "healthy"


def test_values_of_any_size_are_readable():
    values = {"knn_mae:price": 13015.2, "knn_mae_spread:price": 235.4, "rankme": 2.5}
    assert format_value(values, "knn_mae:price", "±") == "13,015±235"
    assert format_value(values, "rankme") == "2.500"


def test_mixed_rows_are_standardised_numbers_and_indicators():
    columns = (Column("size", gaps=True), Column("kind", "category", ("a", "b", "c"), gaps=True), Column("age"))
    layout, gap = Layout("table", (3,), columns), float("nan")
    rows = torch.tensor([[0.5, 2.0, -1.0], [gap, 0.0, 3.0], [1.5, gap, 0.0]])
    wide = np.array([[0.5, 0, 0, 0, 1, 0, -1.0], [0, 1, 1, 0, 0, 0, 3.0], [1.5, 0, 0, 0, 0, 1, 0.0]])
    found = baselines(rows, [2], layout)
    assert wide.shape[1] == layout.width
    assert sorted(found["raw features"](rows).T.tolist()) == sorted(wide.T.tolist()), "in any order of the columns"
    assert found["PCA to 2"](rows).shape == (3, 2)
