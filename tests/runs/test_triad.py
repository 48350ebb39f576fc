"""The triad of clustering, representation, cluster and label, is seen in real trainings, named, and explained."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probssl.data import load
from probssl.objectives import GEDI, SwAV, gedi_weights
from probssl.runs import Run
from probssl.runs.doctor import Diagnosis, _samples, examine
from probssl.theory.clustering import AGREEMENT_BELOW, open_failure_modes
from probssl.training import TrainingPlan, Trial, fit, fit_many
from probssl.training.watch import CollapseWatch, look_at_clusters

from ..fitting import train
from ..training.parts import plain, rows, training

PLANE = {"hidden": (64, 64), "dim": 2, "preservation": 1.0, "noise": 0.1, "batch_size": 200, "steps": 150}
DIGITS = {"steps": 150}
ABLATIONS = {
    "jem": {"objective": "jem"},
    "no prior": {"objective": "gedi", "balance": 0.0},
    "no inv": {"objective": "gedi", "invariance": 0.0},
    "no gen": {"objective": "gedi", "generative": 0.0},
    "gedi": {"objective": "gedi"},
}
REMEDY = {"jem": "--objective gedi", "no prior": "objective.balance", "no inv": "objective.invariance"}
TERMS = {
    "jem": ["generative"],
    "no prior": ["generative", "invariance"],
    "no inv": ["generative", "prior"],
    "no gen": ["invariance", "prior"],
    "gedi": ["generative", "invariance", "prior"],
}


def visit(data: str, folder: Path, **options: Any) -> tuple[Diagnosis, Run]:
    table = load(data)
    sampling = {"sampler.steps": 1} if options["objective"] in ("gedi", "jem") else {}
    run = train(table, folder, **{"clusters": len(table.classes), "warmup": 20, **sampling, **options})
    return examine(run), run


@pytest.mark.parametrize(("gap", "lag"), [(-0.4, False), (-7.0, True), (3.0, True)])
def test_chains_that_lag_behind_are_told(gap: float, lag: bool) -> None:
    rows = [{"step": step, "generative": -50.0 if step < 8 else gap} for step in range(10)]
    (note,) = _samples(rows)
    assert f"is {gap:.3g} nats" in note
    assert ("objective.sampler.steps" in note) == lag
    assert _samples([{"step": 0, "loss": 1.0}]) == []


ENDS = {  # steps, and what is found after them
    "jem": (300, ["cluster"]),
    "no prior": (150, ["cluster"]),
    "no inv": (150, ["label"]),
    "no gen": (500, []),
    "gedi": (500, []),
}
VISITS = [(data, variant) for data in ("toy:moons", "sklearn:digits") for variant in ENDS] + [("toy:circles", "gedi")]


@pytest.mark.parametrize(("data", "variant"), VISITS)
def test_ablations_of_gedi(data: str, variant: str, tmp_path: Path) -> None:
    steps, expected = ENDS[variant]
    own = DIGITS if data == "sklearn:digits" else PLANE
    diagnosis, run = visit(data, tmp_path, **{**own, "steps": steps, **ABLATIONS[variant]})
    assert [finding.kind for finding in diagnosis.findings] == list(run.collapsed) == expected
    assert diagnosis.risks == open_failure_modes(TERMS[variant])
    assert set(expected) <= set(diagnosis.risks), "what theory rules out does not happen"
    facts, last = diagnosis.facts, run.rows[-1]
    clusters = run.model.objective.clusters
    assert facts["prior_minimum"] == pytest.approx(math.log(clusters))
    told = diagnosis.findings[0].message if expected else diagnosis.notes[0]
    if expected != ["label"]:
        assert f"the prior term is {facts['prior_term']:.3g}, its minimum is {math.log(clusters):.3g}" in told
    if expected != ["cluster"]:
        assert f"the invariance term is {facts['invariance_term']:.3g}, its minimum is 0" in told
    assert any("the energy of data less that of samples" in note for note in diagnosis.notes) == (variant != "no gen")
    remedies = " ".join(remedy for finding in diagnosis.findings for remedy in finding.remedies)
    for flag in ("--objective gedi", "objective.balance", "objective.invariance"):
        assert (flag in remedies) == (REMEDY.get(variant) == flag), "what is missing, and nothing that is there"
    if not expected:
        assert facts["prior_term"] == pytest.approx(last["prior"], abs=0.3)
        assert facts["label_agreement"] > AGREEMENT_BELOW


@pytest.mark.parametrize("objective", ["swav", "protocpc", "deepcluster"])
def test_clusters_that_are_well_are_left_in_peace(objective: str, tmp_path: Path) -> None:
    diagnosis, run = visit("sklearn:digits", tmp_path, objective=objective, steps=300)
    assert diagnosis.healthy, diagnosis.summary
    assert not any(row.get("event") for row in run.log), "nor was there an alarm on the way"
    assert "of 10 clusters are in use" in diagnosis.notes[0]


def test_an_augmentation_that_erases_half_of_two_features_leaves_labels_undecided(tmp_path: Path) -> None:
    diagnosis, _ = visit("toy:moons", tmp_path, objective="gedi", steps=200)
    (finding,) = diagnosis.findings
    assert finding.kind == "label"
    assert "predictions are undecided" in finding.message


# The watch itself


def without_density(clusters: int, *, dim: int | None = None, prior: object = "uniform") -> GEDI:
    """On as many dimensions as clusters, unless told."""
    objective = GEDI(clusters, **gedi_weights("no gen"), prior=prior)  # type: ignore[arg-type]
    return objective.bind(dim=clusters if dim is None else dim)


def look_at(logits: Tensor, of_relatives: Tensor, objective: GEDI | SwAV | None = None, step: int = 9) -> list[str]:
    """What is announced of given logits, seen twice; the head is the identity."""
    clusters = logits.shape[1]
    if objective is None:
        objective = without_density(clusters)
    with torch.no_grad():
        objective.head.weight.copy_(torch.eye(clusters))
    watch = CollapseWatch(logits, objective.energy, objective, of_relatives, settled=5)
    for _ in range(2):
        news = watch.judge(logits, None, step, of_relatives)[1]
    return [kind for event, kind in news if event == "collapse"]


def test_each_of_the_triad_from_logits() -> None:
    chance = torch.Generator().manual_seed(0)
    sure = 20 * torch.eye(3)[torch.arange(300) % 3] + torch.randn(300, 3, generator=chance)
    shuffled = sure[torch.randperm(300, generator=chance)]
    one = sure * 0.05 + torch.tensor([40.0, 0.0, 0.0])
    assert look_at(sure, sure) == []
    assert look_at(sure, shuffled) == ["label"]
    assert look_at(sure, shuffled, step=4) == [], "labels have time to settle"
    assert look_at(0.02 * sure, 0.02 * sure) == ["label"], "nothing decides them"
    assert look_at(one, one) == ["cluster"]
    assert look_at(torch.zeros(300, 3), torch.zeros(300, 3)) == ["representation"]
    assert look_at(torch.zeros(300, 3) + one[0], torch.zeros(300, 3) + one[0]) == ["representation", "cluster"]


def test_numbers_are_those_of_the_loss_and_finite_where_a_cluster_is_empty() -> None:
    x = 400 * torch.eye(3)[torch.arange(300) % 2]
    for prior in ("uniform", "learnt", [0.4, 0.4, 0.2]):
        objective = without_density(3, prior=prior)
        with torch.no_grad():
            objective.head.weight.copy_(torch.eye(3))
            log_p = objective.head(x).double().log_softmax(-1)
        found = look_at_clusters(objective, x, x)
        assert found is not None
        assert found.prior == pytest.approx(objective.prior_term(log_p).item(), rel=1e-5)
        least = objective.optimum(300, 3)
        assert least is not None
        assert found.prior_minimum == pytest.approx(least / objective.weights["prior"], rel=1e-5)
        assert not found.few_clusters
        assert found.agreement == pytest.approx(1)


def test_logits_that_overflow_are_no_look() -> None:
    objective = without_density(3)
    x = torch.full((10, 3), 3e38)
    with torch.no_grad():
        objective.head.weight.fill_(2.0)
    assert look_at_clusters(objective, x, x) is None
    watch = CollapseWatch(x, objective.energy, objective, x)
    assert watch.judge(torch.eye(10)[:, :3], x, 1, x)[0].clusters is None


def test_alone_and_in_a_stack_the_same_is_seen() -> None:
    """Numbers of clusters stand in the log of clustering trials alone, whatever company they have."""

    def trial(case: str) -> Trial:
        one = training(case, steps=24, log_every=4)
        return Trial(one.encoder, one.objective, one.pairing, one.data, one.plan, one.seed)

    cases = ["swav-adam", "infonce-adam", "swav-adam"]
    stacked = fit_many([trial(case) for case in cases])
    for case, together in zip(cases, stacked, strict=True):
        alone = training(case, steps=24, log_every=4).run()
        pairs = list(zip(alone.history, together.history, strict=True))
        assert all(one.keys() == other.keys() for one, other in pairs)
        assert ("label_agreement" in together.history[-1]) == (case == "swav-adam")
        for one, other in pairs:
            for name in ("largest_cluster", "label_agreement", "prior_term", "invariance_term"):
                assert one.get(name, 0.0) == pytest.approx(other.get(name, 0.0), rel=1e-3)


def test_one_cluster_is_nothing_to_watch() -> None:
    objective = without_density(1, dim=4)
    plan = TrainingPlan(steps=4, batch_size=16, log_every=2)
    fitted = fit(nn.Sequential(plain()), objective, training().pairing, rows(), plan)
    assert not fitted.collapsed
    assert "prior_term" not in fitted.history[-1]
