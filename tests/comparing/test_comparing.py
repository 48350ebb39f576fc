"""Comparing configurations on a table: the grid, the exam, the order, and a whole comparison."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from torch import nn

import probssl
from probssl.comparing import candidates, schedule
from probssl.comparing.exam import Exam, recovered
from probssl.comparing.grid import COMPARED, STRENGTHS, Candidate, dimensions
from probssl.comparing.measuring import LABEL_FREE, PROBE
from probssl.comparing.result import Final, findings
from probssl.comparing.setup import Setup
from probssl.comparing.standings import predictors, rank_correlation, standings, with_clid
from probssl.comparing.testing import HeldOut, Marks
from probssl.comparing.work import Contest, Job, Outcome
from probssl.data import Standardiser, Table
from probssl.energies import Euclidean
from probssl.errors import InputError
from probssl.grids.store import Store
from probssl.metrics import linear_r2
from probssl.model import facts_of
from probssl.model.observations import Observations
from probssl.objectives import InfoNCE
from probssl.pairings import MaskAndNoise, SampledPairing
from probssl.parts.facts import Facts
from probssl.parts.registry import KINDS
from probssl.parts.resolve import fixed_energy
from probssl.runs import Run, evaluate
from probssl.runs.doctor import examine
from probssl.runs.evaluation import Ground, baselines

FIXED = {name: fixed_energy(name) for name in COMPARED if fixed_energy(name)}
QUICK = {"euclidean", "cosine", "dot", "anisotropic"}
OF_NO_TABLE = {"ensemble": "objectives", "latent-regression": "latents"}
ANY_TABLE, IMAGES = Facts("table", (2,), 2), Facts("images", (1, 28, 28), 100, "mnist")
WORLD = Facts("world", (4,), 100, "anisotropic4")

# The grid


def pairs(facts=ANY_TABLE, **options):
    """Objectives with the energies that they are compared with."""
    return list(dict.fromkeys((c.objective, c.energy) for c in candidates(facts, **options)[1]))


def test_every_objective_meets_every_energy_that_suits_it():
    found = pairs()
    assert {objective for objective, _ in found} == set(COMPARED)
    assert FIXED == {"spectral": "cosine", "simsiam": "cosine"}
    for objective in COMPARED:
        mine = {energy for name, energy in found if name == objective}
        assert mine == ({FIXED[objective]} if objective in FIXED else QUICK)
    assert ("infonce", "pnorm") in pairs(energies=["pnorm"])
    assert "fisher" not in dict(pairs(energies=["pnorm"]))
    assert "simclr" not in dict(pairs(energies=["asymmetric"])), "which compares within one side"
    assert pairs(objectives=["spectral", "infonce"], energies=["euclidean"]) == [("infonce", "euclidean")]


def test_what_fits_decides_and_all_is_all_that_fit():
    on_images, on_world = dict(pairs(IMAGES)), dict(pairs(WORLD))
    assert set(on_images) == set(COMPARED)
    assert set(on_world) == {*COMPARED, "aninfonce"} - {"fisher", "sliced-fisher"}, "no world knows the score"
    everything = dict(pairs(objectives=["all"]))
    assert set(everything) == set(KINDS["objective"]) - set(OF_NO_TABLE)
    assert "latent-regression" in dict(pairs(WORLD, objectives=["all"]))
    _, grid = candidates(IMAGES, objectives=["infonce", "fisher"])
    assert {(c.objective, c.pairing) for c in grid} == {("infonce", "gedi-mnist"), ("fisher", "siamese-digits")}
    assert {c.dim for c in grid} == {64}
    assert {(c.pairing, c.dim) for c in candidates(WORLD)[1]} == {("", 4)}


@pytest.mark.parametrize("objective", KINDS["objective"])
def test_any_objective_takes_part_when_it_is_named(objective, small):
    options = {"objectives": [objective], "pairings": ["medium"], "dims": [3]}
    if objective in OF_NO_TABLE:
        with pytest.raises(InputError, match=f"--objectives {objective} .*{OF_NO_TABLE[objective]}"):
            candidates(small.parts.facts, **options)
        return
    parts, entrants = candidates(small.parts.facts, **options)
    contest = dataclasses.replace(small, parts=parts)
    jobs = [Job(entrants[0], 3, seed, 1) for seed in (0, 1)]
    outcomes = [Outcome.of(*found) for found in contest.run_batch([job.as_config() for job in jobs])]
    assert [outcome.job for outcome in outcomes] == jobs
    assert sum(outcome.kept is not None for outcome in outcomes) == 1, "the weights of the best"
    assert [outcome.failure for outcome in outcomes] == [None, None]
    assert all(np.isfinite([outcome.value("probe"), outcome.value("recovered")]).all() for outcome in outcomes)


def setup_of(data, seed=0, **options):
    """What trains and measures."""
    return Setup(data, *candidates(facts_of(data), seed=seed, **options), seed)


@pytest.fixture(scope="module")
def small(table):
    """The same of the table below."""
    setup = setup_of(table.with_test(0.25), objectives=["infonce"])
    return Contest(setup.parts, dict.fromkeys((0, 1), setup.bench), "probe")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"objectives": ["nope"]}, "'nope'"),
        ({"energies": ["cosine", "nope"]}, "'nope'"),
        ({"objectives": ["spectral"], "energies": ["dot"]}, "spectral cannot be trained with the dot energy"),
        ({"objectives": ["fisher"], "pairings": ["scarf"]}, "fisher cannot be trained with the pairing scarf"),
        ({"pairings": ["simclr-cifar"]}, "the pairing simclr-cifar"),
        ({"dims": [0]}, "0"),
        ({"dims": [2], "encoder": nn.Linear(8, 3)}, "leave --dims out"),
        ({"objectives": [InfoNCE]}, "is a class: give an object"),
        ({"energies": [nn.Identity()]}, "cannot be trained"),
    ],
)
def test_what_cannot_be_compared_is_refused(options, named):
    with pytest.raises(InputError, match=named):
        candidates(Facts("table", (8,), 100), **options)


def test_a_world_pairs_its_own_observations():
    with pytest.raises(InputError, match="leave --pairings out"):
        candidates(WORLD, pairings=["resample"])


@pytest.mark.parametrize(
    ("features", "dims"), [(1, (2,)), (2, (2,)), (4, (2, 4)), (13, (3, 6, 13)), (500, (32, 64, 128))]
)
def test_dimensions(features, dims):
    assert dimensions(Facts("table", (features,), 10)) == dims


def test_what_matters_most_comes_first():
    facts = Facts("table", (16,), 100)
    parts, grid = candidates(facts, seed=3)
    head = grid[: len(COMPARED) * 2 - len(FIXED)]
    assert {c.objective for c in head} == set(COMPARED)
    assert {(c.dim, c.pairing) for c in head} == {(8, "medium")}
    assert sorted(grid) == sorted(candidates(facts, seed=4)[1])
    assert grid != candidates(facts, seed=4)[1]
    assert all(parts.resolve(c).encoder.settings()["dim"] == c.dim for c in grid[::20])


# Rows


def test_training_sees_no_row_of_the_test(table):
    mine = np.arange(len(table)) % 5 == 0
    setup = setup_of(dataclasses.replace(table, test=mine), objectives=["infonce"])
    assert len(setup.development) == setup.parts.facts.rows == (~mine).sum()
    assert np.array_equal(setup.held_out.judged.rows, np.flatnonzero(mine))
    changed = dataclasses.replace(table, test=mine, features=np.where(mine[:, None], 7.0, table.features))
    assert torch.equal(setup_of(changed, objectives=["infonce"]).bench.x, setup.bench.x)
    assert setup_of(table, objectives=["infonce"]).held_out is None, "of which none was set aside"


# The exam


@pytest.fixture(scope="module")
def rows():
    return torch.randn(300, 5, generator=torch.Generator().manual_seed(0))


def strengths():
    return {name: MaskAndNoise(**named.settings) for name, named in STRENGTHS.items()}


def grounds(rows):
    return {name: Ground(rows, pairing, nn.Identity()) for name, pairing in strengths().items()}


def share(*asked):
    return float(recovered(*asked).mean())


def test_the_exact_posterior_recovers_all_and_a_constant_model_nothing(rows):
    for pairing in strengths().values():
        chance = torch.Generator().manual_seed(1)
        source = torch.randint(len(rows), (2000,), generator=chance)
        truth = pairing.pairwise_log_prob(pairing.sample(rows[source], chance).double(), rows.double())
        exact = -truth.log_softmax(1).gather(1, source[:, None])[:, 0]
        assert share(truth, source, exact) == pytest.approx(1, abs=0.01)
        assert share(truth * 0, source, exact) == pytest.approx(0, abs=1e-9)
        noisy = truth + truth.std() * torch.randn(truth.shape, generator=chance)
        assert 0 < share(noisy, source, exact) < 0.95
        assert abs(share(truth[:, torch.randperm(300)], source, exact)) < 0.05


@pytest.mark.parametrize("factor", [1e-4, 0.1, 30, 1e4])
def test_the_mark_does_not_depend_on_the_scale_or_offset_of_the_energy(rows, factor):
    exam = Exam.set(grounds(rows), seed=2)
    asked = exam.questions["medium"]
    logits = Euclidean().logits(exam.x, asked.x_aug).mT.double()
    mark = share(logits, asked.source, asked.exact_nll)
    assert 0.1 < mark < 1
    shifted = factor * logits + torch.randn(len(logits), 1)
    assert share(shifted, asked.source, asked.exact_nll) == pytest.approx(mark, abs=2e-3)


def test_augmentations_that_say_nothing_give_no_mark():
    logits = torch.randn(10, 4).double()
    assert math.isnan(share(logits, torch.zeros(10, dtype=torch.long), torch.full((10,), math.log(4))))
    assert math.isnan(share(logits / 0, torch.zeros(10, dtype=torch.long), torch.zeros(10)))


class Shuffled(SampledPairing):
    """Values of other rows, whose law nobody asks for."""

    def sample(self, x, generator=None):
        return x[torch.randperm(len(x), generator=generator)]


def test_where_no_density_is_known_the_source_counts_as_certain(rows):
    exam = Exam.set({"shuffled": Ground(rows, Shuffled(), nn.Identity())})
    assert set(exam.marks(nn.Identity(), Euclidean())) == {"recovered"}
    assert torch.equal(exam.questions["shuffled"].exact_nll, torch.zeros(128, dtype=torch.float64))
    certain = 50.0 * torch.eye(len(rows)).double()
    assert share(certain, torch.arange(len(rows)), torch.zeros(len(rows))) == pytest.approx(1)


def test_a_model_that_keeps_everything_undoes_more_than_one_that_keeps_half(rows):
    exam = Exam.set(grounds(rows), seed=0)
    half = nn.Linear(5, 2, bias=False)
    with torch.no_grad():
        half.weight.copy_(torch.eye(5)[:2])
    assert exam.marks(nn.Identity(), Euclidean())["recovered"] > exam.marks(half, Euclidean())["recovered"] > 0


# The order


def outcome(objective, value, *, round=1, seed=0, dim=4, pairing="medium", steps=10, **scores):
    job = Job(Candidate(objective, "cosine", pairing, dim), steps, seed, round)
    return Outcome(job, {} if value is None else {"probe": value, **scores}, failure=None if value else "not finite")


def test_who_came_furthest_is_first_and_failures_are_last():
    board = standings(
        [
            outcome("infonce", 0.9),
            outcome("snl", 0.8),
            outcome("nce", 0.7),
            outcome("fisher", None),
            *(outcome("snl", 0.6 + 0.1 * seed, round=3, seed=seed) for seed in range(3)),
            outcome("nce", 0.75, round=3),
        ],
        "probe",
    )
    assert [(s.rank, s.candidate.objective) for s in board] == [(1, "nce"), (2, "snl"), (3, "infonce"), (4, "fisher")]
    assert board[1].means["probe"] == pytest.approx(0.7)
    assert board[1].spreads["probe"] == pytest.approx(0.1)
    assert board[1].seeds == 3
    assert board[0].spreads == {}
    assert board[3].failure == "not finite"
    assert board[3].as_dict([PROBE])["probe"] is None


def test_longer_is_not_always_better():
    long, short = ([outcome("nce", v, round=3, seed=k, steps=n) for k, v in enumerate(vs)] for n, vs in LENGTHS)
    (row,) = standings([*long, *short], "probe")
    assert (row.steps, row.seeds) == (300, 2)
    assert row.means["probe"] == pytest.approx(0.85)


LENGTHS = ((2000, (0.7, 0.9)), (300, (0.8, 0.9)))


def test_clid_is_relative_to_a_round():
    parts = [{"intrinsic_dimension": float(k), "cluster_learnability": 0.1 * k} for k in range(4)]
    found = with_clid([outcome("infonce", 0.5, pairing=s, **p) for s, p in zip("abcd", parts, strict=True)])
    values = [o.value("clid") for o in found]
    assert sum(values) == pytest.approx(0)
    assert values == sorted(values)


def test_rank_correlation_is_spearmans():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 6, (3, 40)), rng.normal(size=(3, 40))
    expected = [spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(rank_correlation(a, b), expected)
    assert math.isnan(rank_correlation(np.ones(5), np.arange(5.0)))


def test_a_score_that_is_the_probe_predicts_it_and_its_opposite_misleads():
    values = np.random.default_rng(0).random(60)
    outcomes = [
        outcome(f"loss{k}", v, dim=2 + k % 2, recovered=v, rankme=-v, alignment=-v, uniformity=0.0)
        for k, v in enumerate(values)
    ]
    found = {p.score.name: p for p in predictors(outcomes, "probe", 0)}
    assert found["recovered"].correlation == pytest.approx(1)
    assert found["recovered"].within_dimension == pytest.approx(1)
    assert found["recovered"].chosen_value == values.max()
    assert found["rankme"].correlation == pytest.approx(-1)
    assert found["rankme"].high == pytest.approx(-1)
    assert found["alignment"].correlation == pytest.approx(1)  # lower is better
    assert "clid" not in found  # was not measured
    assert "uniformity" not in found  # tells no two apart
    assert predictors(outcomes[:3], "probe", 0) == []


# The last word


def test_baselines_are_what_they_are_called(rows):
    found = baselines(rows, [2, 5])
    mine = found["PCA to 2"](rows).detach().numpy()
    np.testing.assert_allclose(np.abs(mine), np.abs(PCA(2).fit_transform(rows.numpy())), atol=1e-4)
    assert torch.equal(found["raw features"](rows), rows)
    pixels = (255 * rows.sigmoid()).to(torch.uint8).view(-1, 1, 5, 1)
    found = baselines(pixels, [2])
    assert found["raw pixels"](pixels).shape == (300, 5)
    expected = PCA(2).fit_transform(pixels.flatten(1).numpy() / 255)
    np.testing.assert_allclose(np.abs(found["PCA to 2"](pixels).detach().numpy()), np.abs(expected), atol=1e-4)


def test_untrained_encoders_are_those_that_training_begins_with(table):
    setup = setup_of(table, 4, objectives=["snl"], dims=[2, 3])
    found, x = setup.baselines([2, 3]), setup.bench.x
    of_three = next(candidate for candidate in setup.entrants if candidate.dim == 3)
    made = setup.parts.resolve(of_three, 10, 4).bind(setup.bench.sample).encoder
    assert torch.equal(found["untrained encoder to 3"](x), made(x))
    assert set(found) == {
        "raw features",
        *(f"{kind} to {dim}" for kind in ("PCA", "untrained encoder") for dim in (2, 3)),
    }


def test_pca_of_fewer_rows_than_features_has_no_empty_directions():
    x = torch.randn(20, 50, generator=torch.Generator().manual_seed(0))
    z = baselines(x, [40])["PCA to 40"](x).detach().numpy()
    assert z.shape == (20, 19)
    np.testing.assert_allclose(np.abs(z), np.abs(PCA(19).fit_transform(x.numpy())), atol=1e-4)


def held_out(x, fitting, **known):
    sides = [
        Observations("rows", x[side], **{name: of[side] for name, of in known.items()}) for side in (fitting, ~fitting)
    ]
    return HeldOut(*sides, Exam.set(grounds(x), seed=0))


def test_the_probe_is_fitted_on_one_side_and_tested_on_the_other(rows):
    first, labels = np.arange(300) < 200, (rows[:, 0] > 0).long().numpy()
    held = held_out(rows, first, labels=labels)
    assert held.test(nn.Identity(), Euclidean()).mean > 0.9
    flipped = held_out(rows, first, labels=np.where(first, labels, 1 - labels))
    assert flipped.test(nn.Identity(), Euclidean()).mean < 0.1
    most = np.bincount(labels[:200]).argmax()
    assert held.largest_class().mean == pytest.approx(np.mean(labels[200:] == most))


def test_latents_are_read_off_as_the_metric_does(rows):
    first = np.arange(300) < 200
    latents = (rows @ torch.randn(5, 3)).tanh().double().numpy()
    marks = held_out(rows, first, latents=latents).test(nn.Identity(), Euclidean())
    x = rows.double().numpy()
    assert marks.mean == pytest.approx(linear_r2(x[:200], latents[:200], test=(x[200:], latents[200:])).mean)


def test_without_either_it_is_the_exam_of_the_other_rows(rows):
    held = held_out(rows, np.arange(300) < 200)
    assert held.test(nn.Identity(), Euclidean()).mean == pytest.approx(
        held.exam.marks(nn.Identity(), Euclidean())["recovered"]
    )


def test_a_difference_is_clear_beyond_two_standard_errors():
    right, half = np.ones(100, bool), np.arange(100) % 2 == 0
    ahead = Marks(right).ahead_of(Marks(half))
    assert ahead.mean == 0.5
    assert ahead.error == pytest.approx(0.5 / 10, rel=0.01)
    assert ahead.clear
    assert not Marks(half).ahead_of(Marks(half)).clear


# A whole comparison


@pytest.fixture(scope="module")
def table():
    """Two classes that lie on two rings in two of the six features."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 160)
    angle = random.random(160) * 2 * np.pi
    ring = (1 + 2 * labels)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    features = np.hstack([ring, random.normal(size=(160, 4))])
    return Table("rings", features, tuple("abcdef"), labels=labels, classes=("inner", "outer"), label_name="kind")


def go(table, folder, **options):
    chosen = {"objectives": ["infonce", "fisher", "spectral"], "dims": [2, 3], "jobs": 1, "trials": 1000}
    return probssl.compare(table, out=folder, **{**chosen, **options})


@pytest.fixture(scope="module")
def quick():
    """Rounds of a few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "LENGTHS", {math.inf: (10, 20, 40)})
        yield


@pytest.fixture(scope="module")
def result(table, quick, tmp_path_factory):
    return go(table, tmp_path_factory.mktemp("compared") / "rings")


def test_all_of_the_grid_is_on_the_leaderboard(result):
    assert len(result.leaderboard) == result.grid == (4 + 4 + 1) * 2 * len(STRENGTHS)
    assert [s.rank for s in result.leaderboard] == list(range(1, result.grid + 1))
    assert [r.number for r in result.rounds] == [1, 2, 3]
    finalists = [s for s in result.leaderboard if s.round == 3]
    assert len(finalists) == 8
    assert all(s.seeds >= 3 and s.spreads["probe"] >= 0 for s in finalists)
    assert result.winner.means["probe"] == max(s.means["probe"] for s in finalists)


def test_the_folder(result):
    with (result.folder / "leaderboard.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["objective"] for row in rows] == [s.candidate.objective for s in result.leaderboard]
    assert float(rows[0]["probe"]) == pytest.approx(result.winner.means["probe"])
    document = json.loads((result.folder / "leaderboard.json").read_text(), parse_constant=lambda name: 1 / 0)
    assert document["winner"] == document["leaderboard"][0]
    assert document["findings"] == result.findings
    with Store(result.folder / "store.sqlite", read_only=True) as store:
        assert len(list(store.trials("compare"))) == len(result.outcomes)
    page = result.page.read_text()
    assert 'src="http' not in page
    assert 'href="http' not in page
    assert "On rows kept aside" in page


def test_the_winner_is_a_run_like_any_other(result, table):
    run = result.best
    best = result.winner.candidate
    resolved = run.resolved
    assert (resolved.called("objective"), resolved.called("energy"), run.dim) == (best.objective, best.energy, best.dim)
    assert run.model.embed(table).shape == (160, best.dim)
    assert run.log[-1]["step"] == run.steps == result.winner.steps
    assert run.comparison is not None
    assert run.data(table).fingerprint == run.source.fingerprint
    run.dataset = run.data(table)
    assert examine(run).facts["loss"] == run.log[-1]["loss"]


def test_the_run_of_the_winner_is_judged_on_rows_that_it_never_saw(result, table):
    run = Run(result.folder / "best")
    again = run.data(table)
    assert np.array_equal(again.test, table.with_test(0.2, 0).test)
    assert run.source.facts.rows == (~again.test).sum()
    assert evaluate(run.model, again).judged == run.comparison.judged
    assert f"{again.test.sum()} rows that training never saw" in run.comparison.judged


def test_the_reported_number_is_that_of_the_model_that_was_written(result, table):
    run = result.best
    data, model = run.data(table), run.model
    assert (result.final.rows, result.final.fitted_rows) == (32, 128)
    expected = Standardiser.fit(table.features[data.rows("train")])
    np.testing.assert_array_equal(model.preparation.scaling.mean, expected.mean)
    fitting, judged = (model.observe(data, part) for part in ("train", "test"))
    again = HeldOut(fitting, judged, Exam.set(grounds(judged.x))).test(model.encoder, model.objective.energy)
    assert again.mean == pytest.approx(result.final.winner.mean)
    assert result.final.winner.mean in result.final.seeds


def test_a_winner_that_is_no_better_is_said_to_be(result):
    right, wrong = Marks(np.ones(90, bool)), Marks(np.arange(90) % 3 > 0)
    dim = result.winner.candidate.dim
    others = {f"PCA to {dim}": right, "raw features": wrong, f"untrained encoder to {dim}": wrong}
    bad = dataclasses.replace(result, final=Final(270, 90, (2 / 3,), wrong, others))
    said = "\n".join(findings(bad))
    assert f"WORSE than PCA to {dim}, by 0.333" in said
    from probssl.report import compare_page

    assert f"not better than PCA to {dim}" in compare_page.render(bad)
    good = dataclasses.replace(result, final=Final(270, 90, (1.0,), right, dict.fromkeys(others, wrong)))
    assert f"Better than PCA to {dim}, by 0.333" in "\n".join(findings(good))
    assert "WORSE" not in "\n".join(findings(good))


def test_without_a_label_the_order_is_by_augmentations_undone(table, quick, tmp_path):
    bare = dataclasses.replace(table, labels=None, classes=(), label_name=None, targets=())
    result = go(bare, tmp_path / "bare", objectives=["infonce"])
    assert result.scores == LABEL_FREE
    assert result.predictors == []
    finalists = [s.means["recovered"] for s in result.leaderboard if s.round == 3]
    assert finalists == sorted(finalists, reverse=True)
    assert "probe" not in result.winner.means
    assert any("Without a label" in line for line in result.findings)
    assert set(result.final.others) == set(result.beside), "those that no label is needed for"
    assert "augmentations undone" in result.page.read_text()


def test_one_call(table, quick, tmp_path):
    result = probssl.compare(
        table, trials=20, objectives=["infonce"], energies=["cosine"], dims=[2], out=tmp_path / "one"
    )
    assert len(result.leaderboard) == 3
    assert [r.number for r in result.rounds] == [3]
    assert result.best.recipe.objective.name == "infonce"
    assert result.page.is_file()


def test_a_folder_in_use_is_refused(table, quick, result, tmp_path):
    with pytest.raises(InputError, match="already holds a comparison"):
        go(table, result.folder)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="other files"):
        go(table, tmp_path)
    with pytest.raises(InputError, match="is a file"):
        go(table, tmp_path / "mine.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"features": np.ones((160, 6))}, "all rows of .* are the same"),
        ({"labels": np.zeros(160, dtype=int), "classes": ("inner",)}, "two classes"),
        ({"labels": np.arange(160), "classes": tuple(map(str, range(160)))}, "two or more rows"),
    ],
)
def test_data_that_cannot_be_compared_is_refused_before_anything_is_written(change, named, table, tmp_path):
    with pytest.raises(InputError, match=named):
        go(dataclasses.replace(table, **change, targets=()), tmp_path / "out")
    assert not (tmp_path / "out").exists()
