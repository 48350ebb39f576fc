"""The loop does what it says: schedule, rates, clipping, batches, determinism, precision."""

from __future__ import annotations

import io
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from probssl.data import unit_floats
from probssl.encoders import MLP, ConvEncoder, encode, seeded
from probssl.energies import Asymmetric, Cosine, Euclidean
from probssl.errors import InputError
from probssl.objectives import SNL, Fisher, InfoNCE, Objective
from probssl.pairings import ImageAugmentation, MaskAndNoise, Views
from probssl.training import ProgressBar, Reporter, TrainingPlan, fit
from probssl.training.batches import BatchStream
from probssl.training.log import LOOKED_AT, RunLog, read_log, term_names
from probssl.training.loop import make_optimiser

from .parts import CASES, DIM, FEATURES, assert_one_sentence, assert_same_weights, plain, rows, training, without_time

# Schedule


@given(
    steps=st.integers(1, 500),
    warmup=st.integers(0, 300),
    anneal=st.sampled_from(["cosine", "constant", "late"]),
    step=st.integers(0, 499),
)
def test_schedule_formula(steps: int, warmup: int, anneal: Any, step: int) -> None:
    step = min(step, steps - 1)
    factor = TrainingPlan(steps=steps, warmup=warmup, anneal=anneal).rate_factor(step)
    ramp = min(warmup, steps // 2)
    if step < ramp:
        expected = (step + 1) / ramp
    elif anneal == "constant" or (anneal == "late" and step < int(0.9 * steps)):
        expected = 1.0
    else:
        begins = max(ramp, int(0.9 * steps)) if anneal == "late" else ramp
        expected = math.cos(0.5 * math.pi * (step - begins) / (steps - begins)) ** 2
    assert factor == pytest.approx(expected, abs=1e-12)
    assert 0 < factor <= 1


def test_schedule_by_hand() -> None:
    plan = TrainingPlan(steps=10, warmup=4)
    third = math.pi / 6
    expected = [0.25, 0.5, 0.75, 1.0, 1.0] + [0.5 * (1 + math.cos(k * third)) for k in range(1, 6)]
    assert [plan.rate_factor(step) for step in range(10)] == pytest.approx(expected)


def test_the_log_tells_the_rate_of_the_step_it_follows() -> None:
    fitted = training(log_every=1, lr=0.02).run()
    plan = training().plan
    told = [row["lr"] for row in fitted.history]
    assert told == pytest.approx([0.02 * plan.rate_factor(max(step - 1, 0)) for step in range(25)])


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"steps": 0}, "steps"),
        ({"batch_size": 1}, "batch size"),
        ({"optimiser": "lion"}, "lion"),
        ({"anneal": "linear"}, "linear"),
        ({"lr": 0.0}, "lr"),
        ({"lr": math.nan}, "lr"),
        ({"objective_lr": math.inf}, "objective_lr"),
        ({"clip_norm": -1.0}, "clip_norm"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"momentum": math.nan}, "momentum"),
        ({"warmup": -1}, "warmup"),
        ({"initial_weights": {"alignment": 0.0}}, "alignment"),
        ({"log_every": 0}, "log_every"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
    ],
)
def test_bad_plans_are_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as caught:
        TrainingPlan(**wrong)
    assert_one_sentence(caught.value, named)


@pytest.mark.parametrize(("steps", "log", "checkpoint"), [(1, 20, 1), (50, 20, 5), (2000, 20, 200), (10**6, 100, 1000)])
def test_intervals(steps: int, log: int, checkpoint: int) -> None:
    assert (TrainingPlan(steps=steps).log_interval, TrainingPlan(steps=steps).checkpoint_interval) == (log, checkpoint)


def test_initial_weights_fade_to_those_of_the_objective() -> None:
    plan = TrainingPlan(steps=100, initial_weights={"alignment": 64.0, "other": 0.25})
    assert plan.weights(0, {"alignment": 0.5}) == {"alignment": 32.0, "other": 0.25}
    half = plan.weights(45, {"alignment": 0.5, "untouched": 3.0})
    assert half == {"alignment": pytest.approx(0.5 * 8), "other": pytest.approx(0.5), "untouched": 3.0}
    assert plan.weights(90, {}) == plan.weights(99, {}) == {}
    assert TrainingPlan().weights(0, {"alignment": 2.0}) == {"alignment": 2.0}


def test_a_constant_factor_on_all_terms_is_a_factor_on_the_rate() -> None:
    def trained(rate: float, initial: dict[str, float] | None) -> dict[str, torch.Tensor]:
        one = training("infonce-adam")
        one.plan = TrainingPlan(steps=1, optimiser="sgd", momentum=0.0, warmup=0, lr=rate, initial_weights=initial)
        one.run()
        return one.weights()

    both = trained(0.01, {"alignment": 3.0, "log_normaliser": 3.0})
    for name, value in trained(0.03, None).items():
        torch.testing.assert_close(both[name], value, rtol=1e-4, atol=1e-6)


# The loop against one written out by hand


@pytest.mark.parametrize("case", CASES)
def test_every_step_is_the_textbook_step(case: str) -> None:
    one, other = training(case), training(case)
    one.run()
    plan, encoder, objective = other.plan, other.encoder, other.objective
    own = plan.objective_lr or plan.lr
    groups = [
        {"params": list(encoder.parameters()), "base": plan.lr},
        {"params": list(objective.parameters()), "base": own},
    ]
    groups = [group for group in groups if group["params"]]
    if plan.optimiser == "sgd":
        optimiser: torch.optim.Optimizer = torch.optim.SGD(
            groups, lr=0.1, momentum=plan.momentum, weight_decay=plan.weight_decay
        )
    else:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[plan.optimiser]
        optimiser = kind(groups, lr=0.1, weight_decay=plan.weight_decay, fused=True)
    batches = BatchStream(len(other.data), plan.batch_size, other.seed, torch.device("cpu"))
    generator = torch.Generator().manual_seed(other.seed + 1)
    encoder.train()
    objective.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(other.seed)
        for step in range(plan.steps):
            for group in optimiser.param_groups:
                group["lr"] = group["base"] * plan.rate_factor(step)
            index = batches.next()
            views = other.pairing(other.data[index], objective.needs, generator)
            views.index = index
            loss = objective(encoder, views).total
            optimiser.zero_grad()
            loss.backward()
            if plan.clip_norm is not None:
                nn.utils.clip_grad_norm_([*encoder.parameters(), *objective.parameters()], plan.clip_norm)
            optimiser.step()
    assert_same_weights(one.weights(), other.weights())


def test_one_small_step_moves_each_part_by_its_own_rate_and_no_further_than_the_clip() -> None:
    def moved(**plan: Any) -> tuple[float, float]:
        encoder, objective = MLP.of([FEATURES, DIM]).double(), SNL().bind(dim=DIM).double()
        before = [p.detach().clone() for module in (encoder, objective) for p in module.parameters()]
        chosen = TrainingPlan(steps=1, optimiser="sgd", momentum=0.0, warmup=0, **plan)
        fit(encoder, objective, MaskAndNoise(), rows().double(), chosen)
        after = [p.detach() for module in (encoder, objective) for p in module.parameters()]
        lengths = [(a - b).norm() for a, b in zip(after, before, strict=True)]
        return float(torch.stack(lengths[:2]).norm()), float(torch.stack(lengths[2:]).norm())

    for rate, own in ((1e-3, None), (1e-3, 1e-2), (1e-2, 1e-3)):
        encoder, objective = moved(lr=rate, objective_lr=own, clip_norm=1e-3)
        gradient = math.hypot(encoder / rate, objective / (own or rate))
        assert gradient == pytest.approx(1e-3, rel=1e-2), "the clip bounds the norm of both gradients together"


@pytest.mark.parametrize(
    ("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)]
)
def test_optimiser_kinds(name: Any, kind: type) -> None:
    momentum = 0.4 if name == "sgd" else 0.9  # which others have none of
    plan = TrainingPlan(optimiser=name, lr=0.3, objective_lr=0.2, weight_decay=0.1, momentum=momentum)
    optimiser = make_optimiser(plain(), SNL().bind(dim=DIM), plan)
    assert isinstance(optimiser, kind)
    assert [group["lr"] for group in optimiser.param_groups] == [0.3, 0.2]
    assert all(group["weight_decay"] == 0.1 for group in optimiser.param_groups)
    assert all(group.get("momentum", 0.4) == 0.4 for group in optimiser.param_groups)


def test_shared_parameters_appear_once_and_frozen_ones_never() -> None:
    encoder = plain()
    for parameter in encoder[0].parameters():
        parameter.requires_grad_(False)
    predictor = nn.Linear(DIM, DIM)
    predictor.weight = encoder[2].weight if encoder[2].weight.shape == (DIM, DIM) else predictor.weight
    objective = InfoNCE(Asymmetric(Euclidean(), network=nn.Sequential(predictor, encoder[2], nn.Linear(DIM, DIM))))
    optimiser = make_optimiser(encoder, objective, TrainingPlan())
    found = Counter(id(p) for group in optimiser.param_groups for p in group["params"])
    assert set(found.values()) == {1}
    assert set(found) == {id(p) for m in (encoder, objective) for p in m.parameters() if p.requires_grad}
    assert id(encoder[2].weight) in {id(p) for p in optimiser.param_groups[0]["params"]}


def test_nothing_to_train_is_said() -> None:
    with pytest.raises(InputError, match="nothing to train"):
        fit(nn.Identity(), InfoNCE(), MaskAndNoise(), rows())


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_rows(n: int) -> None:
    with pytest.raises(InputError, match=f"two rows, not {n}"):
        fit(plain(), InfoNCE(), MaskAndNoise(), rows()[:n])


# Determinism


@pytest.mark.parametrize("case", ["nce-adamw-dropout", "simsiam-sgd-dropout-batch-norm"])
def test_one_seed_determines_a_run_and_the_global_state_does_not_matter(case: str) -> None:
    one, other, third = training(case), training(case), training(case, seed=4)
    torch.manual_seed(1)
    first = one.run()
    torch.manual_seed(2)
    second = other.run()
    third.run()
    assert_same_weights(one.weights(), other.weights())
    assert without_time(first.history) == without_time(second.history)
    assert not torch.equal(one.encoder[-1].weight, third.encoder[-1].weight)


def test_the_global_random_state_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(8)
    before = torch.get_rng_state()
    training("nce-adamw-dropout").run(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    training("nce-adamw-dropout").run(tmp_path, resume=True)
    assert torch.equal(torch.get_rng_state(), before)


@given(n=st.integers(2, 40), batch_size=st.integers(2, 50), seed=st.integers(0, 9), taken=st.integers(0, 60))
@settings(deadline=None)
def test_batches(n: int, batch_size: int, seed: int, taken: int) -> None:
    stream = BatchStream(n, batch_size, seed, torch.device("cpu"))
    size = min(n, batch_size)
    assert stream.batch_size == size
    for _ in range(3):
        dealt = torch.cat([stream.next() for _ in range(n // size)]).tolist()
        assert len(set(dealt)) == len(dealt) == n - n % size, "a pass sees no row twice and leaves out only the rest"
        assert set(dealt) <= set(range(n))
    for _ in range(taken):
        stream.next()
    state, position = stream.state()
    again = BatchStream(n, batch_size, seed + 1, torch.device("cpu"))
    again.restore(state, position)
    for _ in range(2 * (n // size) + 1):
        assert torch.equal(again.next(), stream.next())


def test_the_shuffles_differ() -> None:
    stream = BatchStream(40, 40, 0, torch.device("cpu"))
    first, second = stream.next(), stream.next()
    assert not torch.equal(first, second)
    assert not torch.equal(BatchStream(40, 40, 1, torch.device("cpu")).next(), first)


# Precision and data


@pytest.mark.parametrize(
    "objective", [InfoNCE(Cosine()), SNL().bind(dim=DIM), Fisher()], ids=lambda o: type(o).__name__
)
def test_double_precision_all_the_way(objective: Objective, tmp_path: Path) -> None:
    encoder = plain().double()
    plan = TrainingPlan(steps=12, batch_size=16, clip_norm=1.0, checkpoint_every=5)
    fitted = fit(encoder, objective.double(), MaskAndNoise(), rows().double(), plan, out=tmp_path)
    assert fitted.healthy
    assert all(p.dtype == torch.float64 for p in encoder.parameters())
    again = fit(encoder, objective, MaskAndNoise(), rows().double(), plan, out=tmp_path, resume=True)
    assert again.steps == 12
    assert all(p.dtype == torch.float64 for p in encoder.parameters())


# SimSiam's loss may rise, and that of deep clustering is 0 before it has labels.
@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith(("simsiam", "deepcluster"))])
def test_training_learns_and_leaves_the_data_alone(case: str) -> None:
    one = training(case, steps=150, log_every=150)
    data = one.data.clone()

    @torch.no_grad()
    def loss() -> float:
        one.encoder.eval()
        one.objective.eval()
        views = one.pairing(data.repeat(4, 1), one.objective.needs, torch.Generator().manual_seed(0))
        views.index = torch.arange(len(data)).repeat(4)
        return one.objective(one.encoder, views).total.item()

    before = loss()
    one.run()
    assert loss() < before - 0.01 * abs(before)
    assert torch.equal(one.data, data)


# Log and progress


def test_log_is_strict_json_and_reads_back(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log.jsonl")
    seen = {"seconds": 0.1, "lr": 0.1, **dict.fromkeys(LOOKED_AT, 1.0)}
    log.append({"step": 0, "loss": math.nan, "x": 0.1, **seen})
    log.append({"step": 5, "loss": math.inf, "x": 1e-300, **seen})
    log.append({"step": 5, "event": "failure", "message": "größer"})
    assert "NaN" not in (tmp_path / "log.jsonl").read_text()
    assert [row.get("loss") for row in read_log(tmp_path / "log.jsonl")] == [None, None, None]
    kept = RunLog(tmp_path / "log.jsonl", resume_at=5)
    assert [row["step"] for row in kept.rows] == [0, 5], "a failure is not carried over"
    first = (tmp_path / "log.jsonl").read_text().split("\n")[0]
    (tmp_path / "log.jsonl").write_text(f"{first}\nnonsense\n{first}\n")
    with pytest.raises(InputError, match="line 2"):
        read_log(tmp_path / "log.jsonl")


def test_terms_leave_the_names_of_other_columns_alone() -> None:
    class Renamed(InfoNCE):
        def terms(self, encoder: nn.Module, views: Views) -> dict[str, torch.Tensor]:
            return {"rankme": super().terms(encoder, views)["alignment"]}

    one = training()
    one.objective = Renamed(Cosine())
    with pytest.raises(InputError, match="a term of a loss cannot be called rankme"):
        one.run()
    rows_of_terms = [row for row in training().run().history if "loss" in row]
    assert {name for row in rows_of_terms for name in term_names(row)} == {"alignment", "log_normaliser"}


def test_progress_bar_shows_terms_and_warnings() -> None:
    from rich.console import Console

    screen = io.StringIO()
    bar = ProgressBar("infonce", Console(file=screen, force_terminal=True, width=120))
    one = training()
    one.encoder = nn.Sequential(nn.Linear(FEATURES, 1), nn.Linear(1, DIM))
    one.run(reporter=bar)
    shown = screen.getvalue()
    assert "24/24" in shown
    assert "log normaliser" in shown
    assert "RankMe" in shown
    assert "dimensional collapse" in shown


def test_reporter_hears_everything_in_order() -> None:
    heard: list[Any] = []

    class Listener(Reporter):
        def start(self, total: int, done: int) -> None:
            heard.append(("start", total, done))

        def advance(self, step: int) -> None:
            heard.append(step)

        def row(self, numbers: dict[str, float]) -> None:
            heard.append(("row", numbers["step"]))

    training(steps=4).run(reporter=Listener())
    assert heard == [("start", 4, 0), ("row", 0), 1, 2, ("row", 2), 3, 4, ("row", 4)]


# Bytes


def test_bytes_are_trained_on_as_the_numbers_they_stand_for() -> None:
    images = torch.randint(256, (40, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    trained = []
    for data in (images, torch.from_numpy(unit_floats(images.numpy()))):
        encoder = seeded(0, lambda: ConvEncoder((4,), 3, hidden=8).bind(shape=(1, 8, 8)))
        plan = TrainingPlan(steps=6, batch_size=8)
        fitted = fit(encoder, InfoNCE(Cosine(0.2)), ImageAugmentation("gedi-mnist"), data, plan, seed=1)
        trained.append((encoder.state_dict(), without_time(fitted.history), encode(encoder, data)))
    assert_same_weights(trained[0][0], trained[1][0])
    assert trained[0][1] == trained[1][1]
    assert torch.equal(trained[0][2], trained[1][2])


def test_parts_without_parameters_say_what_to_do() -> None:
    with pytest.raises(InputError, match="MLP has no parameters yet: bind it first"):
        fit(MLP((4,), 2), InfoNCE(Cosine()), MaskAndNoise(0.8, 0.2), rows(), TrainingPlan(steps=2, batch_size=8))
