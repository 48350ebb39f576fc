"""Relative score, regret and the checks of claims, on numbers small enough to be worked out by hand."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

from probssl.studies.tabular_checks import CHECKS, Line, Part, alike, between, placed, positive
from probssl.studies.tabular_claims import Claim, claims
from probssl.studies.tabular_grid import DIMENSION, LEARNING_RATES, MODELS, PRESERVATION, Model
from probssl.studies.tabular_page import markdown, scores_csv
from probssl.studies.tabular_scores import METRICS, Scores, mean, standard_error

KL, SNL = Model("infonce", "euclidean"), Model("snl", "euclidean")
POSITIONS = (Fraction(2), Fraction(1, 5))
WINE, IRIS = "sklearn:wine", "sklearn:iris"  # 13 and 4 features: m = 26 and 2, 8 and 2


def entry(table, dim, objective, value, *, energy="euclidean", seed=0, rate=0.01, state="trained", **others):
    """A trial all of whose numbers are `value`, but for those named."""
    config = {"table": table, "dim": dim, "preservation": 0.8, "noise": 0.1, "energy": energy, "seed": seed}
    config |= {"objective": objective} if objective == "untrained" else {"objective": objective, "lr": rate}
    numbers = {} if state.startswith("failed") else dict.fromkeys(METRICS, value) | others
    return config, {"state": "untrained" if objective == "untrained" else state, **numbers}


@pytest.fixture
def scores():
    results = [
        entry(WINE, 26, "untrained", 0.5),
        entry(WINE, 26, "untrained", 0.4, seed=1),
        entry(WINE, 26, "infonce", 0.6),  # 120 %
        entry(WINE, 26, "infonce", 0.6, seed=1),  # 150 %
        entry(WINE, 26, "snl", 0.9),  # 180 %
        entry(WINE, 26, "snl", 0.0, seed=1, state="failed: the loss is not finite"),
        entry(WINE, 26, "infonce", 0.3, rate=1.0),
        entry(IRIS, 8, "untrained", 0.8),
        entry(IRIS, 8, "infonce", 0.4, state="collapsed: dimension"),  # 50 %
        entry(IRIS, 8, "snl", 0.2),  # 25 %
        entry(IRIS, 8, "snl", 0.6, rate=1.0),
    ]
    return Scores(results, DIMENSION, POSITIONS)


def at(array, table, model, rate=0.01, position=0):
    return array[(WINE, IRIS).index(table), MODELS.index(model), LEARNING_RATES.index(rate), position]


def test_relative_score_is_per_seed_then_averaged(scores):
    relative = scores.relative("linear_probe")
    assert at(relative, WINE, KL) == pytest.approx((120 + 150) / 2)
    assert at(relative, WINE, SNL) == pytest.approx(180)  # the seed that failed is left out
    assert at(relative, IRIS, KL) == pytest.approx(50)
    assert at(relative, WINE, KL, 1.0) == pytest.approx(60)
    assert math.isnan(at(relative, WINE, KL, position=1))  # never run


def test_regret_is_to_the_best_of_the_same_seed_rate_and_position(scores):
    regret = scores.regret("linear_probe")  # in points of accuracy
    assert at(regret, WINE, KL) == pytest.approx((30 + 0) / 2)  # behind SNL in seed 0, alone in seed 1
    assert at(regret, WINE, SNL) == pytest.approx(0)
    assert at(regret, IRIS, SNL) == pytest.approx(20)
    assert at(regret, WINE, KL, 1.0) == 0  # the only one at that rate
    lower_is_better = scores.regret("alignment")
    assert at(lower_is_better, WINE, KL) == pytest.approx(0)
    assert at(lower_is_better, WINE, SNL) == pytest.approx(0.3)
    assert np.nanmin(regret) >= 0


def test_change_is_between_rates(scores):
    change = scores.change("linear_probe")
    assert change[0, MODELS.index(KL), 0] == pytest.approx(-30)
    assert change[1, MODELS.index(SNL), 0] == pytest.approx(40)
    assert math.isnan(change[1, MODELS.index(KL), 0])


def test_states_are_counted_once(scores):
    assert scores.share("failed", [SNL], 0.01) == pytest.approx(1 / 3)
    assert scores.share("collapsed", [KL, SNL], 0.01) == pytest.approx(1 / 6)
    assert math.isnan(scores.share("failed", [Model("nce", "cosine")], 0.01))


def test_one_training_serves_all_ratios_that_ask_for_its_width():
    ratios = (Fraction(1, 2), Fraction(1, 3), Fraction(1, 5))  # of 4 features: 2, and at least 2
    results = [entry(IRIS, 2, "untrained", 1.0), entry(IRIS, 2, "infonce", 1.5)]
    assert scores_of(results, ratios).relative("rankme")[0, 0, 0] == pytest.approx([150, 150, 150])
    assert len(scores_of(results, ratios).states[KL, 0.01]) == 1


def scores_of(results, ratios):
    return Scores(results, DIMENSION, ratios)


def test_initial_weights_are_seen_through_the_models_energy():
    results = [
        entry(WINE, 26, "untrained", 1.0, energy="euclidean"),
        entry(WINE, 26, "untrained", 2.0, energy="cosine"),
        entry(WINE, 26, "infonce", 1.0, energy="euclidean"),
        entry(WINE, 26, "infonce", 1.0, energy="cosine"),
    ]
    relative = Scores(results, DIMENSION, POSITIONS).relative("kl_exact_model")
    assert at(relative[[0, 0]], WINE, KL) == pytest.approx(100)
    assert at(relative[[0, 0]], WINE, Model("infonce", "cosine")) == pytest.approx(50)


def test_no_initial_score_no_relative_score():
    results = [entry(WINE, 26, "untrained", 1.0, top1=0.0), entry(WINE, 26, "infonce", 1.0)]
    assert np.isnan(Scores(results, DIMENSION, POSITIONS).relative("top1")).all()


def test_standard_error():
    values = np.array([1.0, 2.0, 6.0, math.nan])
    assert mean(values, 0) == pytest.approx(3)
    assert standard_error(values) == pytest.approx(math.sqrt(7) / math.sqrt(3))  # deviations −2, −1, 3: 14 / 2 = 7
    assert math.isnan(standard_error(np.array([1.0])))
    assert math.isnan(mean(np.array([math.nan]), 0))


# Claims


def test_positive_by_more_than_a_standard_error_of_the_difference():
    less, steps, noise = np.array([[10.0, 50.0, 90.0], [1.0, 2.0, 3.0], [-3.0, 1.0, 5.0]])
    number, holds = positive(less + steps - less)  # differences 2 ± 0.58 though tables differ by 40
    assert (number, holds) == (pytest.approx(2), True)
    assert not positive(noise)[1]  # 1 ± 2.3
    assert not positive(-steps)[1]
    assert positive(np.array([1.0, math.nan]))[1]  # one table has no error
    assert math.isnan(positive(np.array([math.nan]))[0])


def test_other_tests():
    assert between(90, 110)(np.array([95.0, 109.0])) == (102, True)
    assert not between(90, 110)(np.array([80.0, 90.0]))[1]
    assert between(-math.inf, 1)(np.array([0.5, 1.5]))[1]
    values = np.array([[1.0, 5.0], [3.0, 1.0]])  # [table, model]: means 2 and 3
    assert placed(KL, (KL, SNL), 1)(values) == (1, True)
    assert placed(KL, (KL, SNL), 1, lowest=False)(values) == (2, False)
    assert placed(KL, (KL, SNL), 2, lowest=False)(values)[1]
    assert math.isnan(placed(KL, (KL, SNL), 1)(np.array([[math.nan, 1.0]]))[0])


def test_fluctuating_alike_is_a_correlation_of_mean_lines(scores):
    up, down = np.array([[1.0, 2.0, 3.0]]), np.array([[3.0, 2.0, 1.0]])

    def parts(*values):
        lines = {str(number): Line(lambda scores, line=line: line) for number, line in enumerate(values)}
        return list(alike("accuracy", lines)(scores))

    found = parts(up, 10 * up, up - 5, down)
    assert [part.holds for part in found] == [True, True, True, False]
    assert (found[3].name, found[3].number) == ("accuracy, 3", pytest.approx(-1))
    assert all(math.isnan(part.number) for part in parts(up * 0, up))


def finding(*holds):
    parts = tuple(Part(f"part {number}", number, h) for number, h in enumerate(holds))
    return Claim("name", "place", "text", "rule", parts)


def test_verdicts():
    assert finding(True, True).verdict == "reproduced"
    assert finding(True, False).verdict == "partly"
    assert finding(True, False, False).verdict == "not reproduced"
    assert finding().verdict == "not tested"
    assert finding(*[True] * 9, False).evidence(2) == "9 of 10 hold; part 9: 9 ✗; part 0: 0; …"
    assert finding(True).evidence() == "part 0: 0"


def made_up(setup, better):
    """Every model in every setting on two tables; `better(model, position)` is its factor over its initial weights."""
    results = []
    for table, features in ((WINE, 13), (IRIS, 4)):
        for number, position in enumerate(setup.positions):
            dim, preservation = setup.place(position, features)
            for energy in ("euclidean", "cosine"):
                config, result = entry(table, dim, "untrained", 0.2, energy=energy)
                results.append((config | {"preservation": preservation}, result))
            for rate in LEARNING_RATES:
                for m in MODELS:
                    config, result = entry(table, dim, m.loss, 0.2 * better(m, number), energy=m.energy, rate=rate)
                    results.append((config | {"preservation": preservation}, result))
    return Scores(results, setup, setup.positions)


@pytest.mark.parametrize("setup", [DIMENSION, PRESERVATION], ids=lambda s: s.name)
def test_every_claim_can_be_checked(setup):
    scores = made_up(setup, lambda m, number: 1 + 0.1 * number + 0.01 * MODELS.index(m))
    found = claims(scores)
    assert len(found) >= 24
    assert len({f.name for f in found}) == len(found)
    assert all(len(f.name) <= 27 for f in found)
    untested = {f.name for f in found if f.verdict == "not tested"}
    assert untested <= {"at no cost in accuracy"}  # it asks only of models whose RankMe fell


def test_every_check_is_of_a_claim():
    made = [made_up(setup, lambda m, number: 1) for setup in (DIMENSION, PRESERVATION)]
    assert {c.name for scores in made for c in claims(scores)} == set(CHECKS)


def verdict_of(name, setup, better):
    (only,) = [c for c in claims(made_up(setup, better)) if c.name == name]
    return only.verdict


@pytest.mark.parametrize(
    ("name", "setup", "as_claimed", "opposite"),
    [
        ("SNL uses few dimensions", DIMENSION, lambda m, n: 0.5 if m == SNL else 1, lambda m, n: 2 if m == SNL else 1),
        ("Fisher keeps RankMe", DIMENSION, lambda m, n: 1.05, lambda m, n: 1.5),
        (
            "narrower gains more",
            DIMENSION,
            lambda m, n: 1 if m == Model("fisher", "cosine") else 1 + 0.1 * n,
            lambda m, n: 2 if m != Model("fisher", "cosine") else 1 + 0.1 * n,
        ),
        ("cosine raises RankMe", DIMENSION, lambda m, n: 2 if m.energy == "cosine" else 1, lambda m, n: 0.5),
        (
            "RankMe gap closes",
            DIMENSION,
            lambda m, n: 1 + (m.energy == "cosine") * (1 - 0.1 * n),
            lambda m, n: 1 + (m.energy == "cosine") * (1 + 0.1 * n),
        ),
        ("weak is worse", PRESERVATION, lambda m, n: 2 - 0.1 * n, lambda m, n: 1 + 0.1 * n),
        (
            "Spectral keeps up",
            PRESERVATION,
            lambda m, n: 2 if m.loss == "spectral" else 1,
            lambda m, n: 0.5 if m.loss == "spectral" else 1,
        ),
        ("NCE keeps RankMe", PRESERVATION, lambda m, n: 1 + 0.01 * n, lambda m, n: 1 + 0.1 * n),
        (
            "strong: energies alike",
            PRESERVATION,
            lambda m, n: 1 if n < 3 else 1 + 0.5 * (m.energy == "cosine"),
            lambda m, n: 1 + 0.5 * (m.energy == "cosine"),
        ),
        (
            "Fisher misaligns",
            PRESERVATION,
            lambda m, n: 1.5 if m.loss == "fisher" else 0.5,
            lambda m, n: 0.5,
        ),
    ],
)
def test_claims_know_right_from_wrong(name, setup, as_claimed, opposite):
    assert verdict_of(name, setup, as_claimed) == "reproduced"
    assert verdict_of(name, setup, opposite) == "not reproduced"


def test_markdown_and_csv(scores):
    found = claims(scores)
    text = markdown(scores, found, dataclasses.replace(_scale(), steps=7))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert sum(row.startswith(("| §", "| F.")) for row in rows) == len(found)
    assert "9 trainings of 7 steps on 2 tables" not in text  # eight: initial weights are not trained
    assert "8 trainings of 7 steps on 2 tables, 2 seeds; 1 failed, 1 ended collapsed." in text
    assert len({row.count(" | ") for row in rows if row.startswith(("| §", "| F."))}) == 1
    lines = scores_csv(scores).splitlines()
    assert len(lines) == 1 + len(METRICS) * len(MODELS) * len(LEARNING_RATES) * len(POSITIONS)
    assert lines[1].startswith("linear_probe,infonce,euclidean,0.01,2,2,")


def _scale():
    from probssl.studies.tabular_grid import SCALE

    return SCALE["smoke"]
