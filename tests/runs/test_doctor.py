"""The doctor names what went wrong in real runs, since when, and what to try."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from probssl.data import load
from probssl.parts.registry import KINDS
from probssl.parts.values import declared
from probssl.runs import Run
from probssl.runs.doctor import OPTIONS, REMEDIES, Diagnosis, examine
from probssl.runs.workflow import assess
from probssl.training import Reporter, TrainingPlan
from probssl.training.watch import MEANING

from ..fitting import resolved, train
from ..training.parts import Signaller, assert_one_sentence


def visit(folder: Path, reporter: Reporter | None = None, **options: Any) -> tuple[Diagnosis, Run]:
    own = {"steps": 100, "batch_size": 64, "warmup": 10, **options}
    run = train(load("sklearn:wine"), folder, reporter=reporter, **own)
    diagnosis = examine(run)
    document = json.loads(json.dumps(diagnosis.as_dict(), allow_nan=False))
    assert document["healthy"] is diagnosis.healthy
    assert diagnosis.summary
    assert "\n" not in diagnosis.summary
    return diagnosis, run


ORDINARY = [
    *("infonce", "snl", "nce", "fisher", "sliced-fisher", "jensen-shannon", "chi-squared", "renyi", "simclr"),
    *("spectral", "triplet", "simsiam", "barlow", "vicreg", "wmse", "corinfomax"),
]


@pytest.mark.parametrize("objective", ORDINARY)
def test_a_healthy_run(objective: str, tmp_path: Path) -> None:
    diagnosis, run = visit(tmp_path, objective=objective)
    assert run.finished
    assert diagnosis.healthy
    assert diagnosis.findings == ()
    assert "healthy: trained to step 100 of 100" in diagnosis.summary
    assert diagnosis.loss is not None
    assert "the loss is" in diagnosis.notes[0]
    assert diagnosis.facts["numerical_rank"] == 6
    assert diagnosis.facts["loss"] == run.rows[-1]["loss"]
    assert diagnosis.risks == resolved(objective=objective).objective.admits
    assert set(diagnosis.risks) <= set(MEANING)


def test_representation_collapse(tmp_path: Path) -> None:
    diagnosis, run = visit(tmp_path, optimiser="sgd", weight_decay=10.0, lr=0.05)
    (finding,) = diagnosis.findings
    assert not diagnosis.healthy
    assert finding.kind == "representation"
    assert finding.since == run.collapsed["representation"] <= 100
    assert "representation collapse" in diagnosis.summary
    assert "use no weight decay: --set plan.weight_decay=0.0" in finding.remedies
    assert not any("--objective infonce" in remedy for remedy in finding.remedies), "it is that already"


def test_simsiam_thrown_into_collapse_is_told_to_change_its_loss(tmp_path: Path) -> None:
    diagnosis, _ = visit(tmp_path, objective="simsiam", optimiser="sgd", weight_decay=10.0, lr=0.05)
    (finding,) = diagnosis.findings
    assert finding.kind in ("representation", "dimension")
    assert "constant encoder" in diagnosis.risks["representation"]


def test_dimensional_collapse(tmp_path: Path) -> None:
    diagnosis, run = visit(tmp_path, hidden=(1,))
    (finding,) = diagnosis.findings
    assert finding.kind == "dimension"
    assert finding.since == run.collapsed["dimension"]
    assert "only 1 directions" in finding.message
    assert finding.remedies[0].endswith("--energy cosine")
    cosine, _ = visit(tmp_path / "cosine", hidden=(1,), energy="cosine")
    assert [found.kind for found in cosine.findings] == ["dimension"]
    assert not any("--energy cosine" in remedy for remedy in cosine.findings[0].remedies)
    fixed, _ = visit(tmp_path / "fixed", hidden=(1,), objective="vicreg")
    assert [found.kind for found in fixed.findings] == ["dimension"]
    assert not any("--energy" in remedy for remedy in fixed.findings[0].remedies), "it has its own"


@pytest.mark.parametrize("objective", ["infonce", "snl", "nce", "fisher", "jensen-shannon", "chi-squared", "renyi"])
def test_how_far_from_the_best_possible(objective: str, tmp_path: Path) -> None:
    loss = visit(tmp_path, objective=objective)[0].loss
    assert loss is not None
    assert loss.optimum is not None
    assert loss.constant is not None
    assert loss.optimum.mean < loss.model.mean < loss.constant.mean
    assert loss.share_learnt is not None
    assert 0 < loss.share_learnt < 1


def test_the_gap_is_said_in_words_with_numbers(tmp_path: Path) -> None:
    diagnosis, _ = visit(tmp_path)
    assert diagnosis.loss is not None
    for part in (f"{diagnosis.loss.model.mean:.4g}", "a constant encoder has 4.159", "of the way", "the gap is"):
        assert part in diagnosis.notes[0]


def test_the_best_linear_encoder_stands_beside_a_fisher_loss(tmp_path: Path) -> None:
    diagnosis, _ = visit(tmp_path / "siamese", objective="fisher")
    assert "the best linear encoder to 6 dimensions would have" in diagnosis.notes[-1]
    other, _ = visit(tmp_path / "other", objective="fisher", energy={"name": "asymmetric", "by": "encoder"})
    assert not any("linear" in note for note in other.notes)


@pytest.mark.parametrize("objective", ["infonce", "snl", "nce", "fisher"])
def test_an_augmentation_that_erases_everything(objective: str, tmp_path: Path) -> None:
    diagnosis, _ = visit(tmp_path, objective=objective, preservation=0.0)
    finding = diagnosis.findings[-1]
    assert finding.kind == "nothing to learn"
    assert "pairing.preservation" in finding.remedies[0]
    assert {other.kind for other in diagnosis.findings} <= {"nothing to learn", "representation"}


def test_a_run_that_learnt_nothing(tmp_path: Path) -> None:
    diagnosis, _ = visit(tmp_path, energy="cosine", temperature=0.01, lr=1e-9, steps=2)
    (finding,) = diagnosis.findings
    assert finding.kind == "nothing learnt"
    assert "a constant encoder has 4.159" in finding.message
    assert "of the way" not in diagnosis.notes[0]


def test_an_easy_task_is_pointed_out(tmp_path: Path) -> None:
    diagnosis, _ = visit(tmp_path, preservation=0.95, noise=0.05)
    assert diagnosis.healthy
    assert "nearly decided" in diagnosis.notes[1]


def test_data_that_is_gone_costs_only_the_comparison(tmp_path: Path) -> None:
    rows = "\n".join(f"{i % 7},{i * i % 11},{i * 3 % 5}" for i in range(60))
    (tmp_path / "t.csv").write_text(f"a,b,c\n{rows}\n")
    train(str(tmp_path / "t.csv"), tmp_path / "run", steps=30)
    assert examine(Run(tmp_path / "run")).loss is not None
    (tmp_path / "t.csv").unlink()
    diagnosis = examine(Run(tmp_path / "run"))
    assert diagnosis.loss is None
    assert "not known" in diagnosis.notes[0]
    assert "t.csv" in diagnosis.notes[0]


def test_the_comparison_of_the_run_is_used_when_it_is_there(tmp_path: Path) -> None:
    table = load("sklearn:wine")
    run = train(table, tmp_path, steps=30)
    comparison = assess(run.model, table, tmp_path)
    assert examine(Run(tmp_path)).loss == comparison.loss


def test_a_clustering_loss_is_read_by_its_terms(tmp_path: Path) -> None:
    """Each term leaves open what theory says it does, and all three together nothing."""
    visit(tmp_path)
    log = tmp_path / "log.jsonl"
    row = json.loads(log.read_text().splitlines()[-1])
    kept = {name: row[name] for name in row if name not in ("alignment", "log_normaliser")}
    for terms, modes in [
        (["generative"], {"cluster", "label"}),
        (["invariance"], {"representation", "cluster"}),
        (["prior"], {"representation", "label"}),
        (["invariance", "prior"], set()),
        (["generative", "invariance", "prior"], set()),
    ]:
        log.write_text(json.dumps({**kept, **dict.fromkeys(terms, 0.1)}) + "\n")
        assert set(examine(Run(tmp_path)).risks) == modes


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    diagnosis, run = visit(tmp_path, lr=1e30)
    (finding,) = diagnosis.findings
    assert finding.kind == "failure"
    assert run.log[-1]["message"] == finding.message
    assert "alignment" in finding.message
    assert finding.remedies == tuple(remedy.sentence() for remedy in REMEDIES["failure"])
    assert not Run(tmp_path).finished


def test_a_collapse_that_went_away_is_forgotten(tmp_path: Path) -> None:
    assert visit(tmp_path)[0].healthy
    with (tmp_path / "log.jsonl").open("a") as log:
        for event in ("collapse", "recovery"):
            log.write(json.dumps({"step": 100, "event": event, "kind": "dimension", "message": event}) + "\n")
    assert examine(Run(tmp_path)).healthy


def test_an_unfinished_run(tmp_path: Path) -> None:
    diagnosis, run = visit(tmp_path, reporter=Signaller(40))
    assert not run.finished
    (finding,) = diagnosis.findings
    assert finding.kind == "unfinished"
    assert "step 40 of 100" in diagnosis.summary
    assert "--resume" in finding.remedies[0]
    train(None, tmp_path, resume=True)
    assert examine(Run(tmp_path)).healthy


def test_a_run_that_has_not_begun(tmp_path: Path) -> None:
    visit(tmp_path)
    for name in ("log.jsonl", "model.safetensors"):
        (tmp_path / name).unlink()
    diagnosis = examine(Run(tmp_path))
    assert not diagnosis.healthy
    assert "not begun" in diagnosis.summary
    assert diagnosis.facts == {}


def test_remedies_are_sentences_with_settings_that_exist() -> None:
    options = {*OPTIONS.values(), "--set"}
    for remedies in REMEDIES.values():
        for remedy in remedies:
            assert_one_sentence(ValueError(remedy.sentence()))
            named = {word.strip("(),:;.") for word in remedy.sentence().split() if word.startswith("--")}
            assert named <= options, remedy
            if remedy.setting is not None:
                slot, _, name = remedy.setting.partition(".")
                classes = [TrainingPlan] if slot == "plan" else [entry.load() for entry in KINDS[slot].values()]
                assert not name or any(name in declared(cls) for cls in classes), remedy
