"""siamese/circles: the whole path at the smoke budget, and the settings that make it the paper's experiment."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from probssl import studies
from probssl.data import load
from probssl.grids import engine
from probssl.studies import circles, circles_trials

SETTINGS = ["KL", "SNL", "NCE", "Fisher", "raw features", "untrained encoder"]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("circles") / "out"
    return folder, studies.run("siamese/circles", "smoke", folder, quiet=True, jobs=1)


def test_rows(smoke):
    rows = {(row.setting, row.metric): row for row in smoke[1].rows}
    assert list(rows) == [(setting, metric) for setting in SETTINGS for metric in ("linear probe", "two-means")]
    for (setting, metric), row in rows.items():
        assert 0 <= row.value <= 1
        assert row.published == (1.0 if setting in circles.LOSSES and metric == "linear probe" else None)
        assert (row.verdict == "not comparable") == (row.published is None)
    assert rows["raw features", "linear probe"].value < 0.8


def test_document(smoke):
    folder, result = smoke
    document = json.loads((folder / "result.json").read_text())
    assert document == json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert set(document) == {"experiment", "budget", "seconds", "reference", "trials", "failures", "rows", "page"}
    assert (document["trials"], document["failures"]) == (6, [])
    assert (document["experiment"], document["budget"]) == ("siamese/circles", "smoke")
    for row in document["rows"]:
        assert list(row) == ["setting", "metric", "value", "spread", "published", "verdict"]
        assert row["verdict"] in ("matched", "beaten", "missed", "not comparable")


def test_files(smoke):
    folder, result = smoke
    assert result.page == folder / "index.html"
    assert {path.name for path in folder.iterdir()} == {
        "index.html",
        "result.json",
        "store.sqlite",
        "figure1.png",
        "figure2.png",
        "figure3.png",
    }
    for path in folder.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    page = result.page.read_text()
    for words in ("Two circles, four losses", "Figure 1", "Figure 2", "Figure 3", "matched"):
        assert words in page
    with studies.Store(folder / "store.sqlite") as store:
        assert sorted(trial.config["setting"] for trial in store.trials()) == sorted(SETTINGS)


def test_running_again_trains_nothing_and_says_the_same(smoke, monkeypatch):
    folder, first = smoke
    monkeypatch.setattr(engine, "started", lambda *args, **options: pytest.fail("everything is there"))
    assert studies.run("siamese/circles", "smoke", folder, quiet=True).rows == first.rows


def test_a_trial_is_the_same_whichever_others_it_is_run_with():
    configs = [{"setting": setting, "seed": seed, "steps": 10} for seed in (0, 1) for setting in ("KL", "SNL")]
    together = [found for _, found in circles_trials.run_batch(configs)]
    alone = [found for config in configs for _, found in circles_trials.run_batch([config])]
    for a, b in zip(together, alone, strict=True):
        # but for where they lie: no loss here sees a translation, and of a gradient that is rounding Adam makes steps
        centred = [found["z"] - found["z"].mean(axis=0) for found in (a, b)]
        np.testing.assert_allclose(*centred, rtol=1e-3, atol=1e-4)


def test_what_failed_leaves_a_gap_and_not_a_crash(tmp_path):
    """A grid without one of its trials is summarised and drawn."""
    study = circles.Circles()
    configs = [c for c in study.configs("smoke") if c["setting"] != "NCE"]
    results = list(circles_trials.run_batch([{**config, "steps": 2} for config in configs]))
    rows = study.summarise(results, "smoke")
    assert [row.value for row in rows if row.setting == "NCE"] == [None, None]
    assert "–" in study.page(results, rows, "smoke").write(tmp_path).read_text()


@pytest.mark.parametrize(("wrong", "share"), [(0, 1.0), (40, 1.0), (10, 0.75), (20, 0.5)])
def test_two_means_agreement(wrong, share):
    """Two far clusters of 20 whose labels are right but for `wrong` of them, half in each."""
    z = np.repeat([[0.0, 0.0], [9.0, 9.0]], 20, axis=0) + np.random.default_rng(0).normal(0, 0.1, (40, 2))
    labels = np.repeat([0, 1], 20)
    for start in (0, 20):
        labels[start : start + wrong // 2] ^= 1
    assert circles_trials.two_means_agreement(z, labels) == pytest.approx(share)


@pytest.fixture
def captured(monkeypatch):
    """What every loss hands to the training loop, without training."""
    seen = []

    def fit_many(trainings):
        seen.extend(trainings)
        return [SimpleNamespace(history=[], collapsed={}, interrupted=False, failure=None) for _ in trainings]

    monkeypatch.setattr(circles_trials, "fit_many", fit_many)
    configs = [{"setting": s, "seed": 3, "steps": 7} for s in (*circles.LOSSES, "untrained encoder")]
    z = {config["setting"]: found["z"] for config, found in circles_trials.run_batch(configs)}
    return dict(zip(circles.LOSSES, seen, strict=True)), z


def test_every_loss_starts_from_the_same_weights_and_batch(captured):
    seen, z = captured
    first = seen["KL"]
    weights = first.encoder.state_dict()
    for trial in seen.values():
        assert all(value.equal(weights[name]) for name, value in trial.encoder.state_dict().items())
        assert trial.data.equal(first.data)
        assert trial.seed == 3
        assert (trial.plan.steps, trial.plan.batch_size, trial.plan.lr) == (7, 200, 0.01)
        assert (trial.plan.objective_lr, trial.plan.anneal) == (0.1, "constant")
    for code in z.values():
        np.testing.assert_array_equal(code, z["untrained encoder"])


def test_fisher_is_given_the_exact_score_of_the_mixture(captured):
    trial = captured[0]["Fisher"]
    views = trial.pairing(trial.data, trial.objective.needs, torch.Generator().manual_seed(0))
    x_aug = views.augmented[0].double()
    x = views.x.double().requires_grad_()
    turns = [torch.tensor([[c, -s], [s, c]], dtype=torch.double) for c, s in ((0, -1), (1, 0), (0, 1))]
    each = torch.stack([-0.5 * ((x_aug - x @ turn.T) / 0.1).square().sum(1) for turn in turns], 1)
    log_prob = torch.logsumexp(each, 1) - math.log(3) - math.log(2 * math.pi * 0.1**2)
    torch.testing.assert_close(trial.pairing.log_prob(x_aug, x), log_prob)
    (score,) = torch.autograd.grad(log_prob.sum(), x)
    torch.testing.assert_close(views.score[0].double(), score, rtol=1e-3, atol=2e-3)


def test_data_are_the_papers_circles():
    table = load("toy:circles", seed=0)
    radius = np.linalg.norm(table.features, axis=1)
    inner = np.array([table.classes[code] == "inner" for code in table.labels])
    assert len(table) == 200
    assert radius[inner].mean() == pytest.approx(0.1, abs=0.03)
    assert radius[~inner].mean() == pytest.approx(1.0, abs=0.03)
