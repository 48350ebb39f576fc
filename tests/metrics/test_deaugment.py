from __future__ import annotations

import dataclasses
import math
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from probssl.errors import InputError
from probssl.metrics.deaugment import Deaugmentation, deaugmentation
from probssl.pairings import GaussianNoise, MaskAndNoise


def random_block(queries: int = 40, n: int = 12, spread: float = 3.0, seed: int = 0):
    """Model logits, true logits, sources: some rows have ties."""
    rng = np.random.default_rng(seed)
    model, true = spread * rng.normal(size=(2, queries, n))
    model[::3] = np.round(model[::3])
    true[::4] = np.round(true[::4])
    return model, true, rng.integers(n, size=queries)


def counted_block(kinds: int = 30, n: int = 8, draws: int = 60, seed: int = 0):
    """Every outcome of a discrete augmentation as often as it is likely, so that expectations are exact.

    p(x̃_k | x_j) = times[k, j] / draws; the queries are all pairs (k, j), each times[k, j] times over.
    """
    rng = np.random.default_rng(seed)
    times = rng.multinomial(draws, rng.dirichlet(np.full(kinds, 0.3), size=n)).T  # [kinds, n]
    with np.errstate(divide="ignore"):
        log_p = np.log(times / draws)
    kind, source = (np.repeat(index.reshape(-1), times.reshape(-1)) for index in np.indices(times.shape))
    return log_p[kind], source, rng.normal(size=(kinds, n))[kind]


def slowly(model, true, source, bins: int = 15) -> dict[str, float]:
    """Every number by its definition, entry by entry."""
    rows = []
    for m, t, s in zip(model.tolist(), true.tolist(), source.tolist(), strict=True):
        sides = []
        for logits in (m, t):
            top = max(logits)
            log_z = top + math.log(math.fsum(math.exp(x - top) for x in logits))
            log_prob = [x - log_z for x in logits]
            order_above, level = sum(x > logits[s] for x in logits), sum(x == logits[s] for x in logits)
            # the source takes each of the places order_above + 1 ... order_above + level with the same chance
            places = range(order_above + 1, order_above + level + 1)
            sides.append(
                {
                    "log": log_prob,
                    "nll": -log_prob[s],
                    "top1": sum(place <= 1 for place in places) / level,
                    "top5": sum(place <= 5 for place in places) / level,
                    "entropy": -math.fsum(math.exp(x) * x for x in log_prob if x > -math.inf),
                    "confidence": math.exp(max(log_prob)),
                }
            )
        rows.append(sides)

    def mean(values):
        return math.fsum(values) / len(rows)

    def kl(a, b):
        return math.fsum(math.exp(x) * (x - y) for x, y in zip(a["log"], b["log"], strict=True) if math.exp(x) > 0)

    def ece(side):
        gaps = [0.0] * bins
        for row in rows:
            cell = next(b for b in range(bins) if row[side]["confidence"] <= (b + 1) / bins + 1e-10)
            gaps[cell] += row[side]["top1"] - row[side]["confidence"]
        return sum(map(abs, gaps)) / len(rows)

    per_query = {
        "nll": [q["nll"] for q, p in rows],
        "exact_nll": [p["nll"] for q, p in rows],
        "excess_nll": [q["nll"] - p["nll"] for q, p in rows],
        "kl_exact_model": [kl(p, q) for q, p in rows],
        "kl_model_exact": [kl(q, p) for q, p in rows],
    }
    out = {name: mean(values) for name, values in per_query.items()}
    with np.errstate(invalid="ignore"):  # not a number where the mean is infinite
        out |= {f"{name}_se": np.std(values, ddof=1) / len(rows) ** 0.5 for name, values in per_query.items()}
    for side, prefix in ((0, ""), (1, "exact_")):
        out |= {f"{prefix}{k}": mean(row[side][k] for row in rows) for k in ("top1", "top5")}
        out[f"{prefix}ece"] = ece(side)
        out[f"{prefix}effective_candidates"] = math.exp(mean(row[side]["entropy"] for row in rows))
    return out | {"queries": len(rows), "candidates": model.shape[1]}


def assert_same(result, expected, tolerance: float = 1e-12):
    expected = expected if isinstance(expected, dict) else dataclasses.asdict(expected)
    for name, value in dataclasses.asdict(result).items():
        assert value == pytest.approx(expected[name], rel=tolerance, abs=tolerance), name


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 30), st.integers(1, 25), st.sampled_from([0.0, 0.3, 3.0, 60.0]), st.integers(0, 10**6))
def test_against_loops(queries, n, spread, seed):
    block = random_block(queries, n, spread, seed)
    assert_same(deaugmentation(*block), slowly(*block), 1e-11)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 8), st.integers(2, 9), st.floats(0, 0.9), st.floats(0, 0.5), st.integers(0, 10**6))
def test_ruled_out_candidates_against_loops(queries, n, true_share, model_share, seed):
    model, true, source = random_block(queries, n, 3.0, seed)
    rng = np.random.default_rng(seed)
    ruled_out = rng.random(true.shape) < true_share
    ruled_out[np.arange(queries), source] = False
    true[ruled_out] = -np.inf
    ruled_out = rng.random(model.shape) < model_share
    ruled_out[:, 0] = False
    model[ruled_out] = -np.inf
    result = dataclasses.asdict(deaugmentation(model, true, source))
    for name, value in slowly(model, true, source).items():
        assert name.endswith("_se") or result[name] == pytest.approx(value, rel=1e-11, abs=1e-11), name
        assert not math.isnan(result[name])


@pytest.mark.parametrize("bins", [1, 2, 15, 50])
def test_calibration_bins_against_loops(bins):
    block = random_block(200)
    assert_same(deaugmentation(*block, bins=bins), slowly(*block, bins=bins))


def test_many_candidates_against_loops():
    block = random_block(2, 70_000)
    assert_same(deaugmentation(*block), slowly(*block), 1e-11)


def test_the_exact_posterior_as_the_model():
    _, true, source = random_block()
    r = deaugmentation(true, true, source)
    assert r.kl_exact_model == r.kl_model_exact == r.excess_nll == r.excess_nll_se == 0
    for name in ("nll", "nll_se", "top1", "top5", "ece", "effective_candidates"):
        assert getattr(r, name) == getattr(r, f"exact_{name}")


def test_a_constant_in_every_row_changes_nothing():
    model, true, source = random_block()
    model, true = np.round(model * 1024) / 1024, np.round(true * 1024) / 1024  # sums are exact, so ties stay ties
    shift = np.random.default_rng(1).integers(-1000, 1000, size=(2, len(source), 1))
    assert_same(deaugmentation(model + shift[0], true + shift[1], source), deaugmentation(model, true, source))


def test_the_order_of_candidates_and_of_queries_changes_nothing():
    model, true, source = random_block()
    rng = np.random.default_rng(1)
    order, rows = rng.permutation(model.shape[1]), rng.permutation(len(source))
    place = np.argsort(order)
    expected = deaugmentation(model, true, source)
    assert_same(deaugmentation(model[:, order], true[:, order], place[source]), expected)
    assert_same(deaugmentation(model[rows], true[rows], source[rows]), expected)


@pytest.mark.parametrize("n", [1, 3, 7, 100])
def test_a_constant_model(n):
    _, true, source = random_block(30, n)
    r = deaugmentation(np.full_like(true, -7.5), true, source)
    assert r.nll == pytest.approx(math.log(n), abs=1e-14)
    assert r.nll_se == pytest.approx(0, abs=1e-14)
    assert r.effective_candidates == pytest.approx(n)
    assert r.kl_exact_model == pytest.approx(math.log(n) - math.log(r.exact_effective_candidates), abs=1e-13)
    assert r.top1 == pytest.approx(1 / n)
    assert r.top5 == pytest.approx(min(1, 5 / n))
    assert r.ece == pytest.approx(0, abs=1e-14)  # it does not know, and says so


def test_copies_of_a_candidate_share_the_credit():
    model, true, source = random_block(60, 4, seed=3)
    model, true = (x + 0.01 * np.arange(4) for x in (model, true))  # no ties
    once = deaugmentation(model, true, source)
    thrice = deaugmentation(np.tile(model, 3), np.tile(true, 3), source)
    assert thrice.top1 == pytest.approx(once.top1 / 3)
    assert thrice.exact_top1 == pytest.approx(once.exact_top1 / 3)
    assert thrice.nll == pytest.approx(once.nll + math.log(3))
    assert thrice.effective_candidates == pytest.approx(3 * once.effective_candidates)
    assert thrice.kl_exact_model == pytest.approx(once.kl_exact_model)
    first, second = (np.mean([np.sum(m > m[s]) == k for m, s in zip(model, source, strict=True)]) for k in (0, 1))
    assert thrice.top5 == pytest.approx(first + second * 2 / 3)  # copies of the second take places 4, 5 and 6


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 10**6))
def test_blocks_give_what_one_call_gives(sizes, seed):
    model, true, source = random_block(sum(sizes), 9, seed=seed)
    score, stop = Deaugmentation(), 0
    for size in sizes:
        rows = slice(stop, stop := stop + size)
        score.update(model[rows], true[rows], source[rows])
    assert_same(score.result(), deaugmentation(model, true, source))
    assert score.result() == score.result()


def test_excess_and_divergence_agree_exactly_over_all_augmentations():
    true, source, model = counted_block()
    r = deaugmentation(model, true, source)
    assert r.excess_nll == pytest.approx(r.kl_exact_model, abs=1e-13)
    assert r.exact_nll == pytest.approx(math.log(r.exact_effective_candidates), abs=1e-13)
    assert r.exact_ece == pytest.approx(0, abs=1e-13)
    assert r.kl_model_exact == math.inf  # the model believes in sources that are ruled out
    assert r.kl_model_exact_se == math.inf
    assert r.nll > r.exact_nll
    assert r.top1 < r.exact_top1


def test_temperature_makes_the_posterior_over_or_underconfident():
    true, source, _ = counted_block()
    exact = deaugmentation(true, true, source)
    for direction in ([1.0, 1.5, 2.0, 4.0, 16.0], [1.0, 0.8, 0.5, 0.25, 0.05]):
        results = [deaugmentation(beta * true, true, source) for beta in direction]
        for name in ("ece", "kl_exact_model", "kl_model_exact", "nll"):
            assert np.all(np.diff([getattr(r, name) for r in results]) > 1e-3), name
        assert {r.top1 for r in results} == {exact.top1}
        widths = np.diff([r.effective_candidates for r in results])
        assert np.all(widths < 0) if direction[1] > 1 else np.all(widths > 0)


def test_monte_carlo_with_gaussian_noise():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    source = rng.integers(40, size=20_000)
    x_aug = x[source] + 0.4 * rng.normal(size=(20_000, 2))
    square = np.sum((x_aug[:, None] - x) ** 2, axis=2)
    r = deaugmentation(-square / (2 * 0.7**2) + 0.3 * x[:, 0], -square / (2 * 0.4**2), source)
    assert r.excess_nll_se < 0.8 * math.hypot(r.nll_se, r.exact_nll_se)  # the difference is taken in pairs
    assert r.excess_nll == pytest.approx(r.kl_exact_model, abs=4 * math.hypot(r.excess_nll_se, r.kl_exact_model_se))
    assert r.kl_exact_model > 30 * r.kl_exact_model_se
    assert math.log(r.exact_effective_candidates) == pytest.approx(r.exact_nll, abs=4 * r.exact_nll_se)
    assert r.exact_ece < 0.4 * (15 / 20_000) ** 0.5
    assert r.ece > 0.1


ENERGIES = {
    "Euclidean": lambda a, x: -0.5 * np.sum((a[:, None] - x) ** 2, axis=2),
    "L1": lambda a, x: -np.sum(np.abs(a[:, None] - x), axis=2),
    "cosine": lambda a, x: (a / np.linalg.norm(a, axis=1)[:, None]) @ (x / np.linalg.norm(x, axis=1)[:, None]).T,
    "two features": lambda a, x: -0.5 * np.sum((a[:, None, :2] - x[:, :2]) ** 2, axis=2),
    "constant": lambda a, x: np.zeros((len(a), len(x))),
}


@pytest.mark.parametrize("pairing", [MaskAndNoise(0.7, 0.3), GaussianNoise(0.8)], ids=["mask", "gaussian"])
def test_the_posterior_of_a_real_augmentation_is_calibrated_and_unbeaten(pairing):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 5, dtype=torch.float64, generator=generator)
    source = torch.randint(100, (4000,), generator=generator)
    x_aug = pairing.sample(x[source], generator)
    true = pairing.log_prob(x_aug[:, None], x)
    a, table = x_aug.numpy(), x.numpy()
    for name, energy in ENERGIES.items():
        for scale in (0.3, 1.0, 1 / 0.8**2, 5.0, 20.0):
            r = deaugmentation(scale * energy(a, table), true, source)
            assert r.exact_ece < 0.4 * (15 / 4000) ** 0.5
            assert r.excess_nll == pytest.approx(r.kl_exact_model, abs=4.5 * r.excess_nll_se + 1e-12)
            if isinstance(pairing, GaussianNoise) and (name, scale) == ("Euclidean", 1 / 0.8**2):
                assert r.kl_exact_model == pytest.approx(0, abs=1e-12)  # δ = −log p(x̃ | x) + c
                assert r.ece == pytest.approx(r.exact_ece, abs=1e-12)
            else:
                assert r.excess_nll > 4 * r.excess_nll_se, (name, scale)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_logits_stay_finite(dtype):
    rng = np.random.default_rng(0)
    model = (1e6 * rng.choice([-1.0, 1.0], size=(20, 6))).astype(dtype)
    true = (-1e8 * rng.random((20, 6))).astype(dtype)
    r = deaugmentation(model, true, rng.integers(6, size=20))
    assert np.isfinite(list(dataclasses.asdict(r).values())).all()
    r = deaugmentation([[0.0, -1e6, -1e6]], [[-1e8, 0.0, -1e8]], [1])
    assert (r.nll, r.exact_nll, r.kl_exact_model, r.kl_model_exact) == (1e6, 0, 1e6, 1e8)
    assert (r.top1, r.exact_top1, r.ece, r.exact_ece, r.effective_candidates) == (0, 1, 1, 0, 1)


@pytest.mark.filterwarnings("error")
def test_candidates_that_are_ruled_out():
    low = -math.inf
    r = deaugmentation([[0.0, 0.0, low]], [[0.0, low, low]], [0])
    assert r.nll == pytest.approx(math.log(2))
    assert r.exact_nll == 0
    assert r.kl_exact_model == pytest.approx(math.log(2))
    assert r.kl_model_exact == math.inf
    r = deaugmentation([[0.0, low, low], [0.0, 0.0, low]], [[0.0, 0.0, low], [0.0, 0.0, low]], [1, 0])
    assert r.nll == r.excess_nll == r.kl_exact_model == r.nll_se == math.inf
    assert r.kl_model_exact == pytest.approx(math.log(2) / 2)
    assert r.top1 == r.exact_top1 / 2 == 0.25
    assert r.effective_candidates == pytest.approx(2**0.5)
    # mass too small for float64 is none, and the mean stays infinite once it is
    score = Deaugmentation()
    score.update([[0.0, -1e6]], [[0.0, low]], [0])
    assert score.result().kl_model_exact == 0
    for other in ([0.0, -5.0], [0.0, -1e6]):
        score.update([other], [[0.0, low]], [0])
        assert score.result().kl_model_exact == math.inf
    huge = np.finfo(float).max
    r = deaugmentation([[huge, -huge]] * 2, [[-huge, huge]] * 2, [1, 1])
    assert not any(math.isnan(value) for value in dataclasses.asdict(r).values())


def test_float32_strides_and_integers_are_read_as_they_are():
    model, true, source = random_block()
    model, true = model.astype(np.float32), true.astype(np.float32)
    wide = deaugmentation(model.astype(float), true.astype(float), source)
    assert_same(deaugmentation(model, true, source), wide)
    assert_same(deaugmentation(np.asfortranarray(model), torch.from_numpy(true), source.astype(np.uint8)), wide)
    assert_same(deaugmentation(model.tolist(), np.repeat(true, 2, axis=1)[:, ::2], source.tolist()), wide)
    whole = np.round(model).astype(int)
    assert_same(deaugmentation(whole, whole, source), deaugmentation(whole * 1.0, whole * 1.0, source))


def test_the_arrays_given_stay_as_they_are():
    given = random_block()
    given[1][:, 0] = -np.inf
    given[2][:] = 1
    copies = [x.copy() for x in given]
    for x in given:
        x.setflags(write=False)
    deaugmentation(*given)
    assert all(np.array_equal(x, y) for x, y in zip(given, copies, strict=True))


def test_one_query_has_no_standard_error():
    r = deaugmentation([[0.0, 1.0]], [[0.0, 2.0]], [1])
    assert r.queries == 1
    assert r.nll_se == r.kl_exact_model_se == math.inf


def test_memory_does_not_grow_with_queries():
    rng = np.random.default_rng(0)
    model, true = np.empty((2, 64, 60_000))
    score = Deaugmentation()
    tracemalloc.start()
    try:
        peaks = []
        for _ in range(8):  # 512 queries
            rng.standard_normal(out=model)
            np.add(model, 1.0, out=true)
            true[:, ::2] -= 900.0
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            score.update(model, true, rng.integers(60_000, size=64))
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert score.result().queries == 512
    assert max(peaks) < model.nbytes / 4  # one block is 31 MB
    assert kept < 100_000


ROW, GOOD = [[0.0, 1.0, 2.0]], ([[0.0, 1.0, 2.0]], [[0.0, 1.0, 2.0]], [0])


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (([0.0, 1.0], ROW, [0]), r"model_logits must have the shape .* not \(2,\)"),
        ((ROW, np.zeros((0, 3)), [0]), "true_logits must have the shape"),
        ((np.zeros((1, 0)), np.zeros((1, 0)), [0]), "model_logits must have the shape"),
        ((ROW, [[0.0, 1.0]], [0]), r"shape \(1, 3\) but true_logits has shape \(1, 2\)"),
        (([["a", "b", "c"]], ROW, [0]), "model_logits must be real numbers"),
        (([[1.0], [1.0, 2.0]], ROW, [0]), "model_logits must be an array of numbers"),
        ((torch.zeros(1, 3, requires_grad=True), ROW, [0]), "model_logits must be an array of numbers"),
        (([[0.0, np.nan, 2.0]], ROW, [0]), "model_logits is nan at query 0, candidate 1"),
        ((ROW, [[0.0, 1.0, np.inf]], [0]), "true_logits is inf at query 0, candidate 2"),
        ((ROW, [[-np.inf] * 3], [0]), "true_logits is −inf for every candidate of query 0"),
        (([[-np.inf] * 3], ROW, [0]), "model_logits is −inf for every candidate of query 0"),
        ((ROW, [[0.0, -np.inf, 1.0]], [1]), "query 0 cannot come from its source 1"),
        ((ROW, ROW, [3]), "source of query 0 is 3, but there are 3 candidates"),
        ((ROW, ROW, [-1]), "source of query 0 is -1"),
        ((ROW, ROW, [0.0]), "source must be whole numbers, not float64"),
        ((ROW, ROW, [0, 1]), r"one index for each of the 1 queries, not shape \(2,\)"),
        ((ROW, ROW, 0), "one index for each of the 1 queries"),
        (([[0.0, 1.0]], [[0.0, 1.0]], [0]), "has 2 candidates but the blocks before had 3"),
    ],
)
def test_what_is_refused_changes_nothing(block, message):
    score = Deaugmentation()
    score.update(*GOOD)
    before = score.result()
    with pytest.raises(InputError, match=message):
        score.update(*block)
    assert score.result() == before


def test_a_late_bad_row_is_named_and_refuses_the_whole_block():
    model, true, source = random_block(9, 60_000)
    model[8, 70] = np.nan
    score = Deaugmentation()
    with pytest.raises(InputError, match="model_logits is nan at query 8, candidate 70"):
        score.update(model, true, source)
    with pytest.raises(InputError, match="no result before the first update"):
        score.result()
    score.update(*GOOD)  # the refused block did not fix the number of candidates
    for bins in (0, 1.5, True):
        with pytest.raises(InputError, match="bins must be a whole number"):
            Deaugmentation(bins=bins)
