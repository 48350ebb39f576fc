"""The doctor names what went wrong in real runs, since when, and what to try."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from probssl.data import load
from probssl.doctor import REMEDIES, Diagnosis, examine
from probssl.recipe import OBJECTIVES, Recipe
from probssl.runs import Run, train
from probssl.training import Fitted, Reporter
from probssl.training.watch import MEANING

from .training.parts import Signaller, assert_one_sentence


def visit(folder: Path, reporter: Reporter | None = None, **options: Any) -> tuple[Diagnosis, Fitted]:
    recipe = Recipe(**{"steps": 100, "batch_size": 64, "warmup": 10, **options})
    _, fitted = train(load("sklearn:wine"), recipe, folder, reporter=reporter)
    diagnosis = examine(Run(folder))
    document = json.loads(json.dumps(diagnosis.as_dict(), allow_nan=False))
    assert document["healthy"] is diagnosis.healthy
    assert diagnosis.summary
    assert "\n" not in diagnosis.summary
    return diagnosis, fitted


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_healthy_run(objective: str, tmp_path: Path) -> None:
    diagnosis, fitted = visit(tmp_path, objective=objective)
    assert fitted.healthy
    assert diagnosis.healthy
    assert diagnosis.findings == ()
    assert "healthy: trained to step 100 of 100" in diagnosis.summary
    assert diagnosis.facts["numerical_rank"] == 6
    assert diagnosis.facts["loss"] == fitted.history[-1]["loss"]
    assert set(diagnosis.risks) <= set(MEANING)


def test_representation_collapse(tmp_path: Path) -> None:
    diagnosis, fitted = visit(tmp_path, optimiser="sgd", weight_decay=10.0, lr=0.05)
    (finding,) = diagnosis.findings
    assert not diagnosis.healthy
    assert finding.kind == "representation"
    assert finding.since == fitted.collapsed["representation"] <= 100
    assert "representation collapse" in diagnosis.summary
    assert "set --weight-decay 0" in finding.remedies
    assert not any("--objective infonce" in remedy for remedy in finding.remedies), "it is that already"


def test_simsiam_thrown_into_collapse_is_told_to_change_its_loss(tmp_path: Path) -> None:
    diagnosis, _ = visit(tmp_path, objective="simsiam", optimiser="sgd", weight_decay=10.0, lr=0.05)
    (finding,) = diagnosis.findings
    assert finding.kind in ("representation", "dimension")
    assert "constant encoder" in diagnosis.risks["representation"]


def test_dimensional_collapse(tmp_path: Path) -> None:
    diagnosis, fitted = visit(tmp_path, hidden=(1,))
    (finding,) = diagnosis.findings
    assert finding.kind == "dimension"
    assert finding.since == fitted.collapsed["dimension"]
    assert "1 of 6 directions" in finding.message
    assert finding.remedies[0].endswith("--energy cosine")
    cosine, _ = visit(tmp_path / "cosine", hidden=(1,), energy="cosine")
    assert [found.kind for found in cosine.findings] == ["dimension"]
    assert not any("--energy cosine" in remedy for remedy in cosine.findings[0].remedies)


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    diagnosis, fitted = visit(tmp_path, lr=1e30)
    (finding,) = diagnosis.findings
    assert finding.kind == "failure"
    assert fitted.failure is not None
    assert fitted.failure in finding.message
    assert "alignment" in finding.message
    assert finding.remedies == REMEDIES["failure"]
    assert not Run(tmp_path).finished


def test_a_collapse_that_went_away_is_forgotten(tmp_path: Path) -> None:
    _, fitted = visit(tmp_path)
    assert fitted.healthy
    with (tmp_path / "log.jsonl").open("a") as log:
        for event in ("collapse", "recovery"):
            log.write(json.dumps({"step": 100, "event": event, "kind": "dimension", "message": event}) + "\n")
    assert examine(Run(tmp_path)).healthy


def test_an_unfinished_run(tmp_path: Path) -> None:
    diagnosis, fitted = visit(tmp_path, reporter=Signaller(40))
    assert fitted.interrupted
    (finding,) = diagnosis.findings
    assert finding.kind == "unfinished"
    assert "step 40 of 100" in diagnosis.summary
    assert "--resume" in finding.remedies[0]
    train(load("sklearn:wine"), Run(tmp_path).recipe, tmp_path, resume=True)
    assert examine(Run(tmp_path)).healthy


def test_a_run_that_has_not_begun(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(Recipe().for_features(4).to_toml())
    diagnosis = examine(Run(tmp_path))
    assert not diagnosis.healthy
    assert "not begun" in diagnosis.summary
    assert diagnosis.facts == {}


def test_remedies_are_sentences_with_options_that_exist() -> None:
    flags = {f"--{name.replace('_', '-')}" for name in Recipe.__dataclass_fields__}
    for remedies in REMEDIES.values():
        for remedy in remedies:
            assert_one_sentence(ValueError(remedy))
            named = {word.strip("(),:;.") for word in remedy.split() if word.strip("(").startswith("--")}
            assert named <= flags, remedy
