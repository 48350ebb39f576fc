"""siamese/tabular-*: the whole path at the smoke budget, the grid, and that a trial is the paper's protocol."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit

from probssl import studies
from probssl.encoders import encode
from probssl.pairings import MaskAndNoise
from probssl.runs.evaluation import undo_augmentations
from probssl.studies import tabular, tabular_grid, tabular_trials
from probssl.studies.base import LARGEST_COHORT
from probssl.studies.tabular_grid import DIMENSION, MODELS, PMLB, PRESERVATION, SCALE, configs
from probssl.training import fit

STUDIES = {"dimension": tabular.TabularDimension, "preservation": tabular.TabularPreservation}


@pytest.fixture(scope="module", params=list(STUDIES))
def smoke(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "out"
    study = STUDIES[request.param]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCALE, "smoke", dataclasses.replace(SCALE["smoke"], positions=2))
        yield study, folder, studies.run(study, "smoke", folder, quiet=True, jobs=1)


def test_smoke_ends_in_a_verdict_on_every_claim(smoke):
    study, _, result = smoke
    assert result.failures == ()
    assert result.trials == len(study.configs("smoke"))
    assert result.reference == "claimed"
    assert len(result.rows) >= 24
    for row in result.rows:
        assert row.verdict in ("matched", "missed", "not comparable")
        assert (row.verdict == "matched") == (row.value == 1)


def test_files_and_page(smoke):
    study, folder, result = smoke
    drawn = {"4", "5", "8", "10", "12"} if study.setup is DIMENSION else {"6", "7", "9", "11", "13"}
    files = {"index.html", "result.json", "store.sqlite", "scores.csv", "claims.md", "deaugmenting.png"}
    assert {path.name for path in folder.iterdir()} >= files | {f"figure{number}.png" for number in drawn}
    page = result.page.read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 6
    assert "These are not the paper&#x27;s eighteen tables" in page
    for words in ("Figure ", "SNL, Euclidean", "Spectral, cosine", "standard error", "reproduced"):
        assert words in page
    json.loads((folder / "result.json").read_text(encoding="utf-8"))
    with (folder / "scores.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["metric"] for row in rows} >= {"linear_probe", "rankme", "alignment", "uniformity", "kl_exact_model"}
    finite = [row for row in rows if row["metric"] == "linear_probe"]
    assert all(math.isfinite(float(row["relative"])) and float(row["regret"]) >= 0 for row in finite)


# Grid


def test_the_paper_has_eighteen_tables_and_eleven_models():
    assert (len(PMLB), len(MODELS)) == (18, 11)
    assert SCALE["laptop"].tables == SCALE["full"].tables == PMLB
    assert SCALE["laptop"].positions is SCALE["full"].positions is None
    assert SCALE["full"].steps == tabular_grid.PUBLISHED_STEPS


@pytest.mark.parametrize("budget", SCALE)
@pytest.mark.parametrize("setup", [DIMENSION, PRESERVATION], ids=lambda s: s.name)
def test_units_hold_every_trial_once_and_stack(setup, budget):
    every = configs(setup, SCALE[budget])
    parts = STUDIES[setup.name]().cohorts(every)
    names = [json.dumps(config, sort_keys=True) for part in parts for config in part]
    assert sorted(names) == sorted(json.dumps(config, sort_keys=True) for config in every)
    assert len(set(names)) == len(names)
    assert max(map(len, parts)) <= LARGEST_COHORT
    for part in parts:
        assert len({(config["table"], config["dim"]) for config in part}) == 1


def test_settings_are_the_papers():
    one, two = (configs(setup, SCALE["full"]) for setup in (DIMENSION, PRESERVATION))
    assert {(c["preservation"], c["noise"]) for c in one} == {(0.8, 0.1)}
    assert {c["dim"] for c in one if c["table"] == "pmlb:texture"} == {80, 60, 40, 20, 13, 10, 8}
    assert {c["dim"] for c in one if c["table"] == "pmlb:appendicitis"} == {14, 10, 7, 3, 2}
    assert {(c["dim"], c["noise"]) for c in two if c["table"] == "pmlb:texture"} == {(20, 0.25)}
    assert {c["preservation"] for c in two} == {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}
    for grid in (one, two):
        assert {c["lr"] for c in grid if "lr" in c} == {0.01, 1.0}


# Trials


def config(objective="infonce", energy="euclidean", **others):
    place = {"table": "sklearn:wine", "dim": 6, "preservation": 0.8, "noise": 0.1, "seed": 3}
    trained = {} if objective == "untrained" else {"lr": 0.01, "steps": 12}
    return {**place, "objective": objective, "energy": energy, **trained, **others}


def only(found):
    ((_, result),) = found
    return result


def test_the_recipe_is_the_papers_protocol():
    plan = tabular_trials.resolved(config("nce", "cosine", lr=1.0)).plan
    assert (plan.optimiser, plan.lr, plan.weight_decay, plan.clip_norm) == ("adam", 1.0, 0.0, None)
    assert (plan.batch_size, plan.warmup, plan.anneal) == (256, 100, "cosine")
    built = tabular_trials.resolved(config("snl", "cosine")).bind()
    assert built.encoder.sizes == (13, 26, 6)
    assert built.objective.energy.temperature == 0.1
    assert built.objective.bias.norm.__class__.__name__ == "BatchNorm1d"
    assert tabular_trials.resolved(config("spectral", "cosine")).objective.squared_radius == 10


def test_all_losses_start_from_the_same_weights():
    trials = [tabular_trials._trial(config(m.loss, m.energy, lr=rate)) for m in MODELS for rate in (0.01, 1.0)]
    first = torch.cat([p.ravel() for p in trials[0].encoder.parameters()])
    for trial in trials[1:]:
        assert torch.equal(torch.cat([p.ravel() for p in trial.encoder.parameters()]), first)


@pytest.mark.parametrize(
    ("objective", "energy"), [("infonce", "euclidean"), ("fisher", "euclidean"), ("nce", "cosine")]
)
def test_a_trial_is_what_fit_alone_comes_to(objective, energy):
    """Trained beside others, and measured as if it were the only one."""
    wanted = config(objective, energy)
    batch = [wanted, config("snl", "cosine"), config("untrained"), config("infonce", lr=1.0)]
    found = {json.dumps(c): r for c, r in tabular_trials.run_batch(batch)}
    assert len(found) == 4
    trial = tabular_trials._trial(wanted)
    fit(trial.encoder, trial.objective, trial.pairing, trial.data, trial.plan, seed=3)
    alone = {
        **tabular_trials.representation(trial.encoder, "sklearn:wine", 3),
        **tabular_trials.pairs(trial.encoder, trial.objective.energy, wanted),
    }
    result = found[json.dumps(wanted)]
    assert result["state"] == "trained"
    for name in ("rankme_centred", "intrinsic_dimension", "kl_exact_model", "nll"):
        assert result[name] == pytest.approx(alone[name], rel=1e-4)


def test_numbers_of_initial_weights_do_not_depend_on_the_augmentation_where_they_should_not():
    weak, strong = (
        only(tabular_trials.run_batch([config("untrained", preservation=p, noise=0.25)])) for p in (1.0, 0.1)
    )
    assert weak["state"] == "untrained"
    for same in ("linear_probe", "rankme", "intrinsic_dimension", "cluster_learnability", "uniformity"):
        assert weak[same] == strong[same]
    assert weak["alignment"] < strong["alignment"]
    assert weak["exact_top1"] > strong["exact_top1"]


@pytest.mark.parametrize("m", MODELS, ids=lambda m: m.title)
def test_nothing_masked_at_all(m):
    """Preservation 1: the mask has no randomness left, and log(1 − ρ) is −∞."""
    result = only(tabular_trials.run_batch([config(m.loss, m.energy, preservation=1.0, noise=0.25)]))
    assert result["state"] == "trained"
    assert all(math.isfinite(value) for value in result.values() if isinstance(value, float))


def test_a_training_that_diverges_is_a_result_without_numbers(monkeypatch):
    ended = type("Fitted", (), {"interrupted": False, "failure": "the loss is not finite", "collapsed": {}})
    monkeypatch.setattr(tabular_trials, "fit_many", lambda trials: [ended] * len(trials))
    assert only(tabular_trials.run_batch([config("snl")])) == {"state": "failed: the loss is not finite"}


def test_an_interrupt_goes_through(monkeypatch):
    ended = type("Fitted", (), {"interrupted": True, "failure": None, "collapsed": {}})
    monkeypatch.setattr(tabular_trials, "fit_many", lambda trials: [ended] * len(trials))
    with pytest.raises(KeyboardInterrupt):
        list(tabular_trials.run_batch([config("snl")]))


# Measures


def test_probe_is_scikit_learns_on_one_split():
    trial = tabular_trials._trial(config())
    data = tabular_trials.observations("sklearn:wine")
    z = encode(trial.encoder, data.x).numpy()
    ((train, test),) = StratifiedShuffleSplit(1, test_size=0.2, random_state=5).split(z, data.labels)
    expected = LogisticRegression(max_iter=1000).fit(z[train], data.labels[train]).score(z[test], data.labels[test])
    found = tabular_trials.representation(trial.encoder, "sklearn:wine", 5)["linear_probe"]
    assert found == pytest.approx(expected, abs=1.5 / len(test))


def test_questions_are_those_of_the_library(monkeypatch):
    """The exact posterior is shared between models; what comes out is `undo_augmentations`."""
    monkeypatch.setattr(tabular_trials, "SAMPLE", 100)
    tabular_trials.questions.cache_clear()
    trial = tabular_trials._trial(config())
    found = tabular_trials.pairs(trial.encoder, trial.objective.energy, config(seed=4))
    models = {"model": (trial.encoder, trial.objective.energy)}
    asked = {"queries": tabular_trials.QUERIES, "candidates": 100, "seed": 4}
    expected = undo_augmentations(models, MaskAndNoise(0.8, 0.1), trial.data, **asked)["model"]
    tabular_trials.questions.cache_clear()
    for name in ("kl_exact_model", "nll", "exact_nll", "top1", "exact_top1"):
        assert found[name] == pytest.approx(getattr(expected, name), rel=1e-5)


def test_rows_are_standardised():
    x = tabular_trials.observations("sklearn:wine").x
    assert np.allclose(x.mean(0), 0, atol=1e-5)
    assert np.allclose(x.std(0, correction=0), 1, atol=1e-4)


def test_undefined_numbers_are_not_numbers():
    encoder = tabular_trials.resolved(config()).bind().encoder
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.zero_()
    found = tabular_trials.representation(encoder, "sklearn:wine", 0)
    assert math.isnan(found["intrinsic_dimension"])
    assert math.isnan(found["cluster_learnability"])
    assert (found["rankme"], found["uniformity"]) == (1.0, 0.0)
