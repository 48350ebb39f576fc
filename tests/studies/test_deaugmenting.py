"""siamese/deaugmenting: the whole path at the smoke budget, its correlations, and the settings it claims to compare."""

import csv
import json
import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from probssl import studies
from probssl.errors import InputError
from probssl.parts.resolve import fixed_energy
from probssl.studies import circles_trials, deaugmenting, deaugmenting_grid, deaugmenting_points, deaugmenting_trials
from probssl.studies.deaugmenting_grid import FEW, MEASURES, Setting
from probssl.studies.deaugmenting_points import rank_correlation


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Circles and a table of the same size as vehicle, made up so that nothing is downloaded."""
    folder = tmp_path_factory.mktemp("deaugmenting")
    table = folder / "table.csv"
    chance = np.random.default_rng(0)
    y = chance.integers(3, size=300)
    x = chance.normal(size=(300, 6)) + 1.5 * np.eye(6)[y]
    lines = [",".join([*(f"{v:.6f}" for v in row), "abc"[code]]) for row, code in zip(x, y, strict=True)]
    table.write_text("\n".join(["a,b,c,d,e,f,target", *lines]) + "\n")
    load = deaugmenting.load_table
    with pytest.MonkeyPatch.context() as patch:
        for module in (deaugmenting, deaugmenting_trials):
            patch.setattr(
                module,
                "load_table",
                lambda name, seed=0: load(table, label="target") if name == "pmlb:vehicle" else load(name, seed=seed),
            )
        out = folder / "out"
        # in this process, where the made-up table is known
        return out, studies.run("siamese/deaugmenting", "smoke", out, quiet=True, jobs=1)


def _read(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_trials(smoke):
    with studies.Store(smoke[0] / "store.sqlite") as store:
        trials = deaugmenting.with_gains([(trial.config, trial.result) for trial in store.trials()])
    assert len(trials) == 2 * len(FEW)
    for config, result in trials:
        untrained, found = config["objective"] == "untrained", result["numbers"]
        assert (result["state"] == "untrained") == untrained
        assert set(found) == set(MEASURES)
        assert 0 <= found["linear_probe"] <= 1
        assert found["nll"] - found["exact_nll"] == pytest.approx(found["excess_nll"], abs=1e-9)
        assert found["kl_exact_model"] > 0
        assert found["gain"] == 0 if untrained else math.isfinite(found["gain"])
    for data in ("toy:circles", "pmlb:vehicle"):  # all models answer the same questions
        assert len({result["numbers"]["exact_nll"] for config, result in trials if config["data"] == data}) == 1


def test_correlations_file_and_rows(smoke):
    folder, result = smoke
    listed = {(c["models"], c["data"], c["score"]): c for c in _read(folder / "correlations.csv")}
    assert len(listed) == 3 * (2 * len(deaugmenting.SCORES) + 3)
    assert listed["log-densities", "pooled", "top1"]["points"] == "8"
    assert listed["log-densities without Fisher", "pooled", "top1"]["points"] == "6"
    assert listed["all models", "pooled", "top1"]["points"] == "10"
    assert listed["all models", "toy:circles", "rankme"]["points"] == "5"
    assert ("all models", "pooled", "kl_exact_model") not in listed
    shown = {(row.setting, row.metric): row for row in result.rows}
    assert len(shown) == len(result.rows)
    assert all(row.verdict == "not comparable" and row.published is None for row in result.rows)
    top1 = listed["log-densities", "pooled", "top1"]
    assert shown["pooled (8)", "ρ top-1"].value == pytest.approx(float(top1["rho"]))
    assert shown["pooled (8)", "ρ top-1"].spread == pytest.approx(float(top1["bootstrap_sd"]))
    assert shown["trainings", "failed"].value == 0


def test_files_and_page(smoke):
    folder, result = smoke
    names = {"index.html", "result.json", "store.sqlite", "correlations.csv"}
    names |= {"probe-kl.png", "probe-top1.png"}
    assert {path.name for path in folder.iterdir()} == names
    for path in folder.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    page = result.page.read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 2
    for words in ("fisher euclidean", "exact posterior", "RankMe", "KL(exact‖q)", "circles", "vehicle"):
        assert words in page
    json.loads((folder / "result.json").read_text(encoding="utf-8"))


def test_every_objective_with_every_energy():
    settings = deaugmenting_grid.every_setting()
    assert len(set(settings)) == len(settings) == 2 + 2 * 10 + 2 + 1
    assert {s.objective for s in settings if s.objective != "untrained" and fixed_energy(s.objective)} == {
        "spectral",
        "simsiam",
    }
    assert Setting("fisher", "euclidean", "encoder") in settings
    assert set(deaugmenting.FAMILY) == {s.objective for s in settings}
    for setting in settings:
        deaugmenting.marker_of(setting)


def config(objective, energy, seed=0, steps=5, data="toy:circles"):
    setting = {"objective": objective, "energy": energy, "asymmetry": "none"}
    return {"data": data, **setting, "seed": seed, "steps": steps}


def test_a_batch_is_one_data_set_and_seed():
    study = deaugmenting.Deaugmenting()
    grid = study.configs("laptop")
    batches = study.cohorts(grid)
    assert sorted(map(repr, grid)) == sorted(repr(c) for batch in batches for c in batch)
    assert all(len({(c["data"], c["seed"]) for c in batch}) == 1 for batch in batches)
    assert len(batches) == 18


@pytest.mark.parametrize(
    ("objective", "loss"), [("infonce", "KL"), ("snl", "SNL"), ("nce", "NCE"), ("fisher", "Fisher")]
)
def test_circles_are_those_of_the_circles_study(objective, loss):
    ((_, ours),) = deaugmenting_trials.run_batch([config(objective, "euclidean", 3, 20)])
    ((_, theirs),) = circles_trials.run_batch([{"setting": loss, "seed": 3, "steps": 20}])
    assert ours["numbers"]["linear_probe"] == theirs["numbers"]["linear probe"]
    assert ours["numbers"]["rankme"] == pytest.approx(deaugmenting_trials.rankme(theirs["z"]), rel=1e-6)


def test_rank_correlation_of_one_group_is_spearmans():
    chance = np.random.default_rng(1)
    a = chance.integers(6, size=20)  # with ties
    b = a + chance.normal(0, 3, 20).round()
    expected = spearmanr(a, b).statistic
    assert rank_correlation(a, b, ["x"] * 20)[0] == pytest.approx(expected, abs=1e-12)
    assert rank_correlation(a, -b, ["x"] * 20)[0] == pytest.approx(-expected, abs=1e-12)
    assert rank_correlation(np.exp(a), 3 * b + 7, ["x"] * 20)[0] == pytest.approx(expected, abs=1e-12)


def test_rank_correlation_pools_within_groups():
    """Groups far apart would make anything correlate; within them there is only what is within them."""
    chance = np.random.default_rng(2)
    a, b = chance.normal(size=(2, 3, 12))
    offset = np.array([[0], [100], [200]])
    groups = np.repeat(["x", "y", "z"], 12)
    each = [spearmanr(a[g], b[g]).statistic for g in range(3)]
    pooled = rank_correlation((a + offset).ravel(), (b + offset).ravel(), groups)[0]
    assert pooled == pytest.approx(np.mean(each), abs=1e-12)
    assert spearmanr((a + offset).ravel(), (b + offset).ravel()).statistic > 0.8


def test_bootstrap_draws_settings_not_points():
    """Copies of one data set are no more evidence than one: the error does not shrink with them."""
    chance = np.random.default_rng(3)
    a = chance.normal(size=30)
    b = a + chance.normal(0, 1.5, 30)
    members = [str(i) for i in range(30)]
    once = rank_correlation(a, b, ["x"] * 30, members, 2000)
    thrice = rank_correlation(np.tile(a, 3), np.tile(b, 3), np.repeat(["x", "y", "z"], 30), members * 3, 2000)
    assert once == pytest.approx(thrice, abs=1e-12)
    assert once[1] == pytest.approx((1 - once[0] ** 2) / 30**0.5, rel=0.35)  # its order of magnitude
    assert rank_correlation(a, b, ["x"] * 30, members, 2000) == once


def test_rank_correlation_without_variation_and_with_bad_input():
    assert math.isnan(rank_correlation([1, 1, 1], [1, 2, 3], ["x"] * 3)[0])
    assert math.isnan(rank_correlation([], [], [])[0])
    with pytest.raises(InputError, match="3, 2 and 3"):
        rank_correlation([1, 2, 3], [1, 2], ["x"] * 3)


def _made_up(objective, seed, state, probe, kl):
    names = [*MEASURES]
    numbers = {} if state.startswith("failed") else {**dict.fromkeys(names, 1.0), "linear_probe": probe}
    numbers = {**numbers, "kl_exact_model": kl} if numbers else {}
    numbers.pop("gain", None)
    return config(objective, "euclidean", seed), {"state": state, "numbers": numbers}


def test_failures_and_collapses_are_counted_not_hidden():
    trials = deaugmenting_points.with_gains(
        [
            *(_made_up("untrained", seed, "untrained", 0.5 + 0.1 * seed, 3) for seed in (0, 1)),
            _made_up("infonce", 0, "trained", 0.9, 1),
            _made_up("infonce", 1, "failed: the loss is nan", 0, 0),
            *(_made_up("snl", seed, "collapsed: dimension", 0.6, 2) for seed in (0, 1)),
            *(_made_up("nce", seed, "failed: the loss is nan", 0, 0) for seed in (0, 1)),
            *(_made_up("renyi", seed, "trained", 0.55 + 0.1 * seed, 4) for seed in (0, 1)),
        ]
    )
    found = {p.setting.objective: p for p in deaugmenting_points.points(trials)}
    assert (found["infonce"].seeds, found["infonce"].failed) == (1, 1)
    assert found["infonce"].mean["gain"] == pytest.approx(0.4)  # beside the same seed untrained
    assert math.isnan(found["infonce"].spread["gain"])
    assert (found["snl"].seeds, found["snl"].collapsed) == (2, 2)
    assert found["snl"].mean["gain"] == pytest.approx(0.05)
    assert found["renyi"].spread["linear_probe"] == pytest.approx(0.1 / 2**0.5)
    assert (found["nce"].seeds, found["nce"].failed) == (0, 2)
    assert math.isnan(found["nce"].mean["gain"])
    related = deaugmenting_points.correlations(list(found.values()))
    kl = next(c for c in related if c.score.name == "kl_exact_model" and c.data == "toy:circles")
    assert kl.points == 3  # not the untrained encoder, not the one that never trained
    assert kl.rho == pytest.approx(spearmanr([0.4, 0.05, 0.05], [-1, -2, -4]).statistic)
    shown = {(row.setting, row.metric): row.value for row in deaugmenting.rows_of_points(list(found.values()), related)}
    assert (shown["trainings", "failed"], shown["trainings", "collapsed"]) == (3, 2)
    seeds = {row[0]: row[-1] for row in deaugmenting.data_table(list(found.values())).rows}
    assert (seeds["nce euclidean"], seeds["snl euclidean"]) == ("2 failed", "2 collapsed")


def test_a_failed_training_has_no_numbers(monkeypatch):
    fitted = type("Fitted", (), {"interrupted": False, "failure": "the loss is nan", "collapsed": {}})
    monkeypatch.setattr(deaugmenting_trials, "fit_many", lambda trainings: [fitted for _ in trainings])
    ((_, found),) = deaugmenting_trials.run_batch([config("snl", "cosine")])
    assert found == {"state": "failed: the loss is nan", "numbers": {}}


def test_an_interrupt_goes_through(monkeypatch):
    fitted = type("Fitted", (), {"interrupted": True, "failure": None, "collapsed": {}})
    monkeypatch.setattr(deaugmenting_trials, "fit_many", lambda trainings: [fitted for _ in trainings])
    with pytest.raises(KeyboardInterrupt):
        list(deaugmenting_trials.run_batch([config("infonce", "cosine")]))
