"""Half precision is the encoder's alone: losses, weights and what is remembered stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probssl.encoders import MLP, seeded
from probssl.energies import Asymmetric, Cosine
from probssl.errors import CheckpointError, InputError
from probssl.objectives import BYOL, InfoNCE, Objective
from probssl.pairings import MaskAndNoise, Views
from probssl.training import TrainingPlan, Trial, fit, fit_many

from .parts import DIM, FEATURES, Signaller, assert_same_weights, rows, training


class Types(nn.Module):
    """Notes the type of the numbers that come by."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[torch.dtype] = set()

    def forward(self, x: Tensor) -> Tensor:
        self._seen.add(x.dtype)
        return x


def noting() -> tuple[nn.Module, Types]:
    types = Types()
    return nn.Sequential(nn.Linear(FEATURES, 12), types, nn.ReLU(), nn.Linear(12, DIM)), types


def hooked(encoder: nn.Module) -> bool:
    return any(module._forward_hooks or module._forward_pre_hooks for module in encoder.modules())


def train(encoder: nn.Module, objective: Objective, precision: str, **changes: Any) -> list[dict[str, Any]]:
    plan = TrainingPlan(steps=60, batch_size=32, warmup=4, log_every=1, precision=precision, **changes)
    return fit(encoder, objective, MaskAndNoise(0.8, 0.2), rows(), plan, seed=3).history[1:]


def test_only_encoders_compute_in_half_precision() -> None:
    first, types = noting()
    energy = Asymmetric(Cosine(0.5), by="encoder", network=noting()[0]).bind()
    second = energy.network

    class Watching(InfoNCE):
        def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
            assert {side.dtype for side in self.embed_pair(encoder, views)} == {torch.float32}
            return super().terms(encoder, views)

    history = train(first, Watching(energy), "bfloat16")
    assert types._seen == {torch.bfloat16, torch.float32}  # to train, and to look at it
    assert second[1]._seen == {torch.bfloat16}
    assert all(weight.dtype == torch.float32 for weight in first.parameters())
    assert history[-1]["loss"] < history[0]["loss"]
    assert not hooked(first)
    assert not hooked(second)


def test_a_teacher_does_as_the_encoder() -> None:
    encoder, _ = noting()
    objective = BYOL().bind(encoder=encoder, dim=DIM)
    train(encoder, objective, "bfloat16")
    assert objective.teacher[1]._seen == {torch.bfloat16}


def test_the_loss_is_about_the_same() -> None:
    full, half = (
        train(seeded(1, lambda: MLP.of([FEATURES, 12, DIM])), InfoNCE(Cosine(0.5)), precision)
        for precision in ("float32", "bfloat16")
    )
    for one, other in zip(full[:5], half[:5], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=0.02)
        assert one["loss"] != other["loss"]


def test_an_error_leaves_the_encoder_as_it_was() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if torch.is_autocast_enabled("cpu"):
                raise InputError("no")
            return x

    encoder = nn.Sequential(MLP.of([FEATURES, 12, DIM]), Broken())
    with pytest.raises(InputError, match="no"):
        train(encoder, InfoNCE(), "bfloat16")
    assert not hooked(encoder)
    assert not torch.is_autocast_enabled("cpu")


def test_another_precision_is_another_run(tmp_path: Path) -> None:
    training().run(tmp_path, reporter=Signaller(9))
    with pytest.raises(CheckpointError, match="precision = float32"):
        training(precision="bfloat16").run(tmp_path, resume=True)
    with pytest.raises(InputError, match="float32 or bfloat16"):
        TrainingPlan(precision="float8")  # type: ignore[arg-type]


def test_many_trainings_keep_their_precision() -> None:
    trials = [training(precision="bfloat16", seed=seed) for seed in (1, 2)]
    alone = training(precision="bfloat16", seed=2)
    fit_many([Trial(one.encoder, one.objective, one.pairing, one.data, one.plan, one.seed) for one in trials])
    alone.run()
    assert_same_weights(trials[1].weights(), alone.weights())
