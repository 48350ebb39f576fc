"""gedi/toy and gedi/sensitivity: both paths at the smoke budget, the printed settings, and what theory predicts."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from probssl import studies
from probssl.objectives import GEDI
from probssl.studies import gedi_toy
from probssl.studies.comparison import references
from probssl.studies.gedi_toy_trials import PRINTED, Learner, Settings, lay_hinges, points, true_log_density


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy") / "out"
    return folder, studies.run("gedi/toy", "smoke", folder, quiet=True, jobs=1)


def test_every_published_number_stands_beside_one_of_ours(smoke):
    folder, result = smoke
    rows = {(row.setting, row.metric): row for row in result.rows}
    assert not result.failures
    assert references("gedi/toy").keys() <= rows.keys()
    assert all(0 <= row.value <= 1 for row in result.rows if row.metric == "NMI")
    for data in ("moons", "circles"):
        law, normal, ours = (
            rows[f"{data}, {name}", "log likelihood"].value
            for name in ("the law itself", "a normal distribution", "GEDI")
        )
        assert ours < law
        assert normal < law - 0.5
    assert rows["moons, GEDI as printed", "NMI"].verdict == "not comparable"
    assert {path.name for path in folder.glob("*.png")} == {"clusters.png", "densities.png", "terms.png"}


def test_sensitivity_has_every_pair_of_weights(tmp_path):
    result = studies.run("gedi/sensitivity", "smoke", tmp_path / "out", quiet=True, jobs=1)
    assert not result.failures
    assert len(result.rows) == 8
    assert len(gedi_toy.Sensitivity().configs("full")) == 36 * 2 * 5
    assert (tmp_path / "out" / "sensitivity.png").is_file()


def test_grid_names_each_trial_once():
    configs = gedi_toy.Toy().configs("laptop")
    assert len({(c["setting"], c["seed"], c["start"]) for c in configs}) == len(configs)
    assert all(c["seed"] < 5 for c in configs)  # seeds from 100 on are those the settings were chosen by


def test_printed_settings_are_those_of_table_7():
    learner = Learner(gedi_toy.config("GEDI as printed", "moons", "GEDI", PRINTED, 0))
    objective = learner.stages[0]
    assert isinstance(objective, GEDI)
    assert objective.weights == {"generative": 1, "invariance": 50, "prior": 10}
    assert (objective.sampler.steps, objective.sampler.step_size) == (1, pytest.approx(5e-5))
    assert (objective.sampler.noise, objective.sampler.temperature) == (pytest.approx(0.01), pytest.approx(1))
    assert objective.buffer.capacity == 10_000
    sizes = [tuple(part.weight.shape) for part in learner.encoder.modules() if isinstance(part, nn.Linear)]
    assert sizes == [(100, 2), (100, 100), (2, 100), (4, 2)]
    assert tuple(objective.head.weight.shape) == (2, 4)
    plan = learner.training(0).plan
    assert (plan.batch_size, plan.lr, plan.initial_weights) == (400, 1e-3, None)


def test_every_method_of_a_seed_starts_from_the_same_network():
    made = [Learner(gedi_toy.config(m, "circles", m, Settings(), 3)) for m in ("GEDI", "GEDI no gen", "JEM")]
    first, *others = [nn.utils.parameters_to_vector(learner.encoder.parameters()) for learner in made]
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("data", ["moons", "circles"])
def test_the_law_of_the_points_is_a_density_and_theirs(data):
    """It integrates to one, and moments under it are those of drawn points."""
    side = (np.arange(100) + 0.5) / 25 - 2
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2) + np.array([0.5, 0.0])
    mass = np.concatenate([np.exp(true_log_density(data, part)) for part in np.array_split(grid, 100)]) / 25**2
    assert mass.sum() == pytest.approx(1, abs=1e-3)
    drawn = np.concatenate([points(data, seed)[0].numpy() for seed in range(4)])
    np.testing.assert_allclose(mass @ grid, drawn.mean(0), atol=0.01)
    np.testing.assert_allclose(np.cov(grid.T, aweights=mass), np.cov(drawn.T), atol=0.02)


def test_the_likelihood_of_a_model_is_normalised():
    """A network that says nothing leaves the normal base density, cut off at the square."""
    learner = Learner(gedi_toy.config("GEDI", "circles", "GEDI", Settings(), 0))
    with torch.no_grad():
        learner.stages[0].head.weight.zero_()
        x, _ = points("circles", 1)
        inside = 1 - 2 * stats.norm.sf(4 / 3)
        wanted = stats.norm(0, 3).logpdf(x.numpy()).sum(1).mean() - 2 * math.log(inside)
        assert learner._log_likelihood(x) == pytest.approx(wanted, abs=1e-4)


def test_hinges_pass_through_points():
    x, _ = points("moons", 0)
    layer = nn.Linear(2, 50)
    lay_hinges(layer, x, 4.0)
    assert (layer(x).abs().min(0).values < 1e-5).all()


def test_the_start_of_the_least_loss_is_taken_whatever_its_score():
    def one(seed, start, loss, score):
        return {"setting": "moons, GEDI", "seed": seed, "start": start}, {"clustering_loss": loss, "NMI": score}

    trials = [one(0, 0, 39.4, 1.0), one(1, 0, 35.0, 0.9), one(0, 1, 35.1, 0.2), one(1, 1, 36.0, 1.0)]
    assert [result["NMI"] for _, result in gedi_toy.best(trials)] == [0.2, 0.9]
    first = gedi_toy.first_alone(trials)
    assert [(c["setting"], r["NMI"]) for c, r in first] == [("moons, GEDI, first start", n) for n in (1.0, 0.9)]


def test_theory_of_each_ablation():
    assert gedi_toy.predicted("GEDI") == "none"
    assert gedi_toy.predicted("GEDI no gen") == "none"  # the paper says representation
    assert gedi_toy.predicted("GEDI no prior") == "cluster"
    assert gedi_toy.predicted("GEDI no inv") == "label"
    assert gedi_toy.predicted("JEM") == "cluster, label"


def test_a_trial_is_diagnosed_by_its_own_terms(smoke):
    """A training of a few steps has not left the start: its diagnosis is far from the least values, and finite."""
    config = gedi_toy.config("GEDI no gen", "moons", "GEDI no gen", dataclasses.replace(Settings(), steps=20), 1)
    ((_, found),) = gedi_toy.Toy().run_batch([config])
    assert found["invariance"] > 0.01
    assert found["prior"] - found["prior_gap"] == pytest.approx(found["prior_minimum"]) == pytest.approx(math.log(2))
    assert np.isfinite([found[key] for key in ("NMI", "spread", "largest_share", "agreement")]).all()
