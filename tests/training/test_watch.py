"""Collapse is seen and named, health is left in peace, and numbers that are not finite never reach the weights."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probssl.data import load
from probssl.encoders import MLP, WithHead, seeded
from probssl.energies import Anisotropic, Cosine, Dot, Energy, Euclidean
from probssl.model import Model
from probssl.objectives import SNL, Fisher, InfoNCE, Objective, SimSiam
from probssl.pairings import MaskAndNoise
from probssl.training import Fitted, Reporter, TrainingPlan, fit
from probssl.training.files import load_tensors
from probssl.training.log import read_log
from probssl.training.watch import CollapseWatch, look

from ..fitting import recipe
from .parts import DIM, Signaller, assert_same_weights, plain, rows, training, without_time

every_energy = pytest.mark.parametrize(
    "energy", [Euclidean(), Cosine(), Cosine(1.0), Dot(), Anisotropic().bind(dim=8)], ids=lambda energy: repr(energy)
)


def isotropic(n: int = 200, m: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(n, m, generator=torch.Generator().manual_seed(seed))


# One look


@every_energy
@pytest.mark.parametrize("centre", [0.0, 2.0])
def test_isotropic_codes_are_healthy(energy: Energy, centre: float) -> None:
    seen = look(isotropic() + centre, energy)
    assert seen.collapsed == ()
    assert seen.numerical_rank == 8
    assert seen.finite
    assert 7 < seen.effective_rank <= 8


@every_energy
@pytest.mark.parametrize("value", [0.0, 1.0, -300.0])
def test_constant_codes_are_collapsed(energy: Energy, value: float) -> None:
    seen = look(torch.full((200, 8), value), energy)
    assert seen.collapsed == ("representation",)
    assert seen.spread == 0
    assert seen.contrast < 1e-4
    assert seen.numerical_rank == 0


@every_energy
@pytest.mark.parametrize("centre", [1.0, -10.0])
def test_codes_of_tiny_variance_are_collapsed(energy: Energy, centre: float) -> None:
    assert look(centre + 1e-4 * isotropic(), energy).collapsed == ("representation",)


def test_shrinking_codes_are_collapsed_for_an_energy_that_has_a_scale() -> None:
    assert look(0.01 * isotropic(), Euclidean()).collapsed == ("representation",)
    assert look(0.01 * isotropic(), Cosine()).collapsed == ()


@every_energy
def test_rank_one_is_dimensional_collapse(energy: Energy) -> None:
    seen = look(isotropic(m=1) @ torch.randn(1, 8), energy)
    assert seen.collapsed == ("dimension",)
    assert seen.numerical_rank == 1


@pytest.mark.parametrize(("rank", "collapsed"), [(1, True), (4, True), (5, False), (8, False)])
def test_half_of_the_directions_are_too_few(rank: int, collapsed: bool) -> None:
    code = isotropic(m=rank) @ torch.randn(rank, 8, generator=torch.Generator().manual_seed(1))
    assert look(code, Euclidean()).collapsed == (("dimension",) if collapsed else ())


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_handful_of_rows_is_no_collapse(n: int) -> None:
    assert look(isotropic(n), Euclidean()).collapsed == ()
    simplex = torch.eye(8)[:n]  # every two points equally far apart
    assert look(simplex, Cosine()).collapsed == ()


def test_one_dimension_is_all_there_is() -> None:
    assert look(isotropic(m=1), Euclidean()).collapsed == ()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_codes_that_are_not_finite_are_told_apart_from_collapse(value: float) -> None:
    code = isotropic()
    code[3, 2] = value
    seen = look(code, Euclidean())
    assert not seen.finite
    assert seen.collapsed == ()


def test_energies_are_those_of_the_embeddings() -> None:
    assert look(isotropic(), Euclidean(), torch.ones(200, 3)).collapsed == ("representation",)
    assert look(isotropic(), Anisotropic().bind(dim=3), isotropic(m=3)).collapsed == ()


# Keeping score


def test_two_looks_announce_and_two_withdraw() -> None:
    encoder = nn.Linear(8, 8)
    watch = CollapseWatch(isotropic(), Euclidean())
    alive = encoder.weight.detach().clone()

    def inspect(weight: Tensor, step: int) -> list[tuple[str, str]]:
        with torch.no_grad():
            encoder.weight.copy_(weight)
        return watch.inspect(encoder, step)[1]

    dead = torch.zeros(8, 8)
    assert inspect(dead, 1) == []
    assert inspect(alive, 2) == [], "one look may be an accident"
    assert inspect(dead, 3) == []
    assert inspect(dead, 4) == [("collapse", "representation")]
    assert inspect(dead, 5) == []
    assert watch.standing == {"representation": 4}
    assert inspect(alive, 6) == []
    resumed = CollapseWatch(watch.sample, watch.energy)
    resumed.restore(watch.state())
    watch = resumed
    assert inspect(torch.full((8, 8), math.nan), 7) == [], "a look that sees nothing says nothing"
    assert inspect(alive, 8) == [("recovery", "representation")]
    assert watch.standing == {}
    flat = alive * torch.tensor([1.0] + 7 * [0.0])[:, None]
    assert inspect(flat, 9) == []
    assert inspect(flat, 10) == [("collapse", "dimension")]


# Trainings that collapse


def wine() -> Tensor:
    table = load("sklearn:wine")
    return Model.untrained(recipe(), table).inputs(table.features)


def train(encoder: nn.Module, objective: Objective, data: Tensor | None = None, **plan: Any) -> Fitted:
    chosen = TrainingPlan(**{"steps": 200, "batch_size": 64, "log_every": 4, "warmup": 20, **plan})
    return fit(encoder, objective, MaskAndNoise(), wine() if data is None else data, chosen)


def collapses(fitted: Fitted) -> list[tuple[str, int]]:
    return [(row["kind"], row["step"]) for row in fitted.history if row.get("event") == "collapse"]


def assert_collapsed(fitted: Fitted, kind: str, within: int = 150) -> None:
    assert list(fitted.collapsed) == [kind]
    assert fitted.collapsed[kind] <= within
    assert not fitted.healthy
    assert fitted.failure is None
    assert (kind, fitted.collapsed[kind]) in collapses(fitted)


@pytest.mark.parametrize("seed", range(3))
def test_simsiam_without_its_stop_gradient(seed: int) -> None:
    objective = SimSiam(stop_gradient=False).bind(dim=6)
    objective.predictor = nn.Identity()
    assert_collapsed(train(seeded(seed, lambda: MLP.of([13, 26, 6])), objective), "representation")


def test_weights_decayed_to_nothing() -> None:
    fitted = train(MLP.of([13, 26, 6]), InfoNCE(Euclidean()), optimiser="sgd", weight_decay=10.0, lr=0.05)
    assert_collapsed(fitted, "representation")


@pytest.mark.parametrize("energy", [Euclidean(), Cosine()])
def test_bottleneck_of_one_unit(energy: Energy) -> None:
    encoder = seeded(0, lambda: nn.Sequential(MLP.of([13, 26, 1]), nn.Linear(1, 6)))
    assert_collapsed(train(encoder, InfoNCE(energy), steps=60), "dimension")


def test_collapse_behind_a_projection_head_is_seen() -> None:
    encoder = WithHead(MLP.of([13, 26, 6]), MLP.of([6, 3]))
    fitted = train(encoder, InfoNCE(Anisotropic()).bind(dim=3), optimiser="sgd", weight_decay=10.0, lr=0.05)
    assert_collapsed(fitted, "representation")


def test_recovery_is_announced_and_survives_a_resumed_run(tmp_path: Path) -> None:
    class Sabotage(Reporter):
        """Empties the last layer for a while."""

        def __init__(self, layer: nn.Linear, stop: int | None = None) -> None:
            self.layer, self.stop = layer, stop
            self.weight = layer.weight.detach().clone()

        def advance(self, step: int) -> None:
            if 6 <= step < 14:
                self.layer.weight.data.zero_()
            elif step == 14:
                self.layer.weight.data.copy_(self.weight)
            if step == self.stop:
                Signaller(step).send()

    def run(out: Path | None, stop: int | None = None) -> Fitted:
        one = training(checkpoint_every=1)
        weight = one.encoder[2].weight.detach().clone()
        sabotage = Sabotage(one.encoder[2], stop)
        sabotage.weight = weight
        return one.run(out, resume=out is not None, reporter=sabotage)

    whole = run(None)
    events = [(row["event"], row["kind"], row["step"]) for row in whole.history if "event" in row]
    assert events == [("collapse", "representation", 8), ("recovery", "representation", 16)]
    assert whole.healthy
    for stop in (7, 11, 15):
        assert run(tmp_path, stop).collapsed == ({"representation": 8} if stop > 8 else {})
    assert without_time(run(tmp_path).history) == without_time(whole.history)


# Trainings that do not


HEALTHY = [
    *itertools.product(("infonce", "snl", "nce", "fisher", "simclr", "triplet"), ("euclidean", "cosine")),
    ("spectral", None),
]


@pytest.mark.parametrize("data", ["sklearn:wine", "sklearn:digits"])
def test_healthy_runs_are_left_in_peace(data: str) -> None:
    table = load(data)
    for objective, energy in HEALTHY:
        parts = {"objective": objective} if energy is None else {"objective": objective, "energy": energy}
        model = Model.untrained(recipe(**parts, steps=80, batch_size=64, warmup=20), table)
        inputs = model.inputs(table.features)[:400]
        fitted = fit(model.encoder, model.objective, model.pairing, inputs, replace(model.resolved.plan, log_every=5))
        assert fitted.healthy, (objective, energy, fitted)
        assert collapses(fitted) == [], (objective, energy)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_a_handful_of_rows_can_be_learnt(n: int) -> None:
    assert train(plain(), InfoNCE(Cosine()), rows(n), steps=60).healthy


# Numbers that are not finite


def finite(*modules: nn.Module) -> bool:
    return all(bool(p.isfinite().all()) for module in modules for p in module.parameters())


@pytest.mark.parametrize("log_every", [1, 50])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
@pytest.mark.parametrize(
    ("objective", "term"),
    [
        (lambda: InfoNCE(Euclidean()), "alignment"),
        (lambda: SNL().bind(dim=DIM), "normaliser"),
        (lambda: Fisher(), "fisher"),
    ],
    ids=["infonce", "snl", "fisher"],
)
def test_an_absurd_learning_rate(objective: Any, term: str, optimiser: str, log_every: int, tmp_path: Path) -> None:
    encoder, loss = plain(), objective()
    plan = TrainingPlan(steps=100, optimiser=optimiser, lr=1e30, warmup=0, log_every=log_every, checkpoint_every=1)
    fitted = fit(encoder, loss, MaskAndNoise(), rows(), plan, out=tmp_path)
    assert fitted.failure is not None
    assert term in fitted.failure
    assert fitted.steps < 5
    assert not fitted.healthy
    assert not fitted.interrupted
    assert finite(encoder, loss)
    for path in (tmp_path / "checkpoints").iterdir():
        tensors, _ = load_tensors(path)
        assert all(t.isfinite().all() for name, t in tensors.items() if name.startswith(("encoder", "objective")))
    event = read_log(tmp_path / "log.jsonl")[-1]
    assert event["event"] == "failure"
    assert fitted.failure in event["message"]


@pytest.mark.parametrize("scale", [1e20, 3e38])
def test_data_of_absurd_size(scale: float) -> None:
    encoder, objective = plain(), SNL().bind(dim=DIM)
    before = [p.detach().clone() for p in encoder.parameters()]
    fitted = train(encoder, objective, rows().clamp(-1, 1) * scale, steps=20)
    assert fitted.steps == 0
    assert "alignment" in str(fitted.failure)
    assert all(torch.equal(p, b) for p, b in zip(encoder.parameters(), before, strict=True))


class Root(InfoNCE):
    """Finite itself, but not its gradient: the root of a distance that is zero."""

    def terms(self, encoder: nn.Module, views: Any) -> dict[str, Tensor]:
        z = encoder(views.x)
        return {**super().terms(encoder, views), "root": (z - z).square().sum(-1).sqrt().mean()}


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_gradient_that_is_not_finite_never_reaches_the_weights(clip: float | None) -> None:
    encoder = plain()
    before = [p.detach().clone() for p in encoder.parameters()]
    fitted = train(encoder, Root(), rows(), steps=10, clip_norm=clip)
    assert fitted.steps == 0
    assert "gradient" in str(fitted.failure)
    assert all(torch.equal(p, b) for p, b in zip(encoder.parameters(), before, strict=True))


class Steep(InfoNCE):
    """A finite loss whose finite gradient overflows the weights in one update at a large rate."""

    def terms(self, encoder: nn.Module, views: Any) -> dict[str, Tensor]:
        return {"steep": 1e20 * encoder(views.x).mean()}


@pytest.mark.parametrize("steps", [1, 10])
@pytest.mark.parametrize("checkpoint_every", [1, 5])
def test_weights_that_overflow_in_an_update_reach_no_file(steps: int, checkpoint_every: int, tmp_path: Path) -> None:
    plan = TrainingPlan(
        steps=steps, optimiser="sgd", lr=1e25, warmup=0, log_every=50, checkpoint_every=checkpoint_every
    )
    fitted = fit(plain(), Steep(), MaskAndNoise(), rows(), plan, out=tmp_path)
    assert fitted.failure is not None
    assert "not finite" in fitted.failure
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000000.safetensors"]


def test_a_failed_run_fails_the_same_way_again(tmp_path: Path) -> None:
    first, again = (training(optimiser="sgd", lr=1e30, checkpoint_every=1) for _ in range(2))
    one = first.run(tmp_path)
    two = again.run(tmp_path, resume=True)
    assert two.failure == one.failure is not None
    assert without_time(two.history) == without_time(one.history)
    assert without_time(read_log(tmp_path / "log.jsonl")) == without_time(one.history)
    assert_same_weights(first.weights(), again.weights())
