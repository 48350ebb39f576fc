"""Small trainings that several tests share, each built anew from nothing but its name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from probssl import runs
from probssl.encoders import MLP, ConvEncoder, Encoder, ResNet8, ResNet18, WithHead, seeded
from probssl.energies import Anisotropic, Cosine, Euclidean
from probssl.model import Model
from probssl.objectives import (
    BYOL,
    GEDI,
    NCE,
    SNL,
    DeepClustering,
    Fisher,
    InfoNCE,
    InstanceDiscrimination,
    MoCo,
    Objective,
    SimSiam,
    SwAV,
    Triplet,
    VICReg,
)
from probssl.pairings import ImageAugmentation, MaskAndNoise, Pairing
from probssl.samplers import SGLD
from probssl.training import Fitted, Reporter, TrainingPlan, fit

FEATURES = 6
DIM = 4


def rows(n: int = 64, features: int = FEATURES, seed: int = 5) -> Tensor:
    """Correlated, standardised columns."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(features, features, generator=generator)
    x = torch.randn(n, features, generator=generator) @ mixing
    return (x - x.mean(0)) / x.std(0)


def with_dropout(*, batch_norm: bool = False) -> nn.Module:
    """An encoder that draws from the global random state in every forward pass."""
    norm = nn.BatchNorm1d(12) if batch_norm else nn.Identity()
    return nn.Sequential(nn.Linear(FEATURES, 12), norm, nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, DIM))


def plain() -> nn.Module:
    return MLP.of([FEATURES, 12, DIM])


def residual() -> nn.Module:
    """A residual network on images that are made of rows: its weights are not in row order."""
    return nn.Sequential(nn.Linear(FEATURES, 48), nn.Unflatten(1, (3, 4, 4)), ResNet8(4, DIM).bind(shape=(3, 4, 4)))


@dataclass
class Training:
    """The parts of one training."""

    encoder: nn.Module
    objective: Objective
    plan: TrainingPlan
    pairing: Pairing
    data: Tensor
    seed: int = 3

    def run(self, out: Path | None = None, *, resume: bool = False, reporter: Reporter | None = None) -> Fitted:
        return fit(
            self.encoder,
            self.objective,
            self.pairing,
            self.data,
            self.plan,
            seed=self.seed,
            out=out,
            resume=resume,
            reporter=reporter,
        )

    def weights(self) -> dict[str, Tensor]:
        """Copies of every parameter and buffer."""
        both = nn.ModuleDict({"encoder": self.encoder, "objective": self.objective})
        return {name: tensor.detach().clone() for name, tensor in both.state_dict().items()}


def bound(objective: Objective) -> Objective:
    """Ready for these encoders and 64 rows of data."""
    return objective.bind(dim=DIM, shape=(FEATURES,), rows=64)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Objective], dict[str, Any]]] = {
    "infonce-adam": (plain, lambda: InfoNCE(Cosine()), {}),
    "infonce-adam-residual": (residual, lambda: InfoNCE(Cosine()), {}),
    "snl-adam-clip-own-rate-batch-norm": (
        lambda: MLP.of([FEATURES, 12, DIM], batch_norm=True),
        SNL,
        {"clip_norm": 0.5, "objective_lr": 0.03},
    ),
    "nce-adamw-dropout": (with_dropout, NCE, {"optimiser": "adamw", "weight_decay": 0.1}),
    "fisher-sgd": (plain, Fisher, {"optimiser": "sgd", "lr": 0.01, "clip_norm": 1.0}),
    "simsiam-sgd-dropout-batch-norm": (
        lambda: with_dropout(batch_norm=True),
        lambda: SimSiam(stop_gradient=True),
        {"optimiser": "sgd", "lr": 0.05},
    ),
    "anisotropic-sgd-no-momentum": (
        plain,
        lambda: InfoNCE(Anisotropic()),
        {"optimiser": "sgd", "momentum": 0.0, "objective_lr": 0.1},
    ),
    "triplet-head-constant": (
        lambda: WithHead(MLP.of([FEATURES, 12, DIM]), MLP.of([DIM, 3])),
        lambda: Triplet(Euclidean()),
        {"anneal": "constant", "warmup": 0},
    ),
    "swav-adam": (plain, lambda: SwAV(3), {}),
    "gedi-adam-dropout": (
        with_dropout,
        lambda: GEDI(3, chains=300, reinitialise=0.1, sampler=SGLD(steps=2), prior="learnt"),
        {},
    ),
    "instance-adam-dropout": (with_dropout, InstanceDiscrimination, {}),
    "deepcluster-adam-dropout": (with_dropout, lambda: DeepClustering(3, every=6), {}),
}


def training(case: str = "infonce-adam", **changes: Any) -> Training:
    """A case from its initial weights; `changes` to the plan, `data`, or `seed`."""
    encoder, objective, own = CASES[case]
    data = changes.pop("data", None)
    seed = changes.pop("seed", 3)
    plan = {"steps": 24, "batch_size": 20, "warmup": 4, "log_every": 2, "checkpoint_every": 5, **own, **changes}
    return Training(
        seeded(1, encoder),
        seeded(2, lambda: bound(objective())),
        TrainingPlan(**plan),
        MaskAndNoise(0.8, 0.2),
        rows() if data is None else data,
        seed,
    )


NETWORKS: dict[str, tuple[Encoder, Objective]] = {
    "mlp": (MLP((12,), DIM), VICReg(pair="augmented")),
    "conv": (ConvEncoder((4, 8), DIM, hidden=8), InfoNCE(Cosine(), pair="augmented")),
    "resnet8": (ResNet8(4, DIM), MoCo(queue=20)),
    "resnet18": (ResNet18(2, DIM), BYOL()),
}
"""Networks of images of 8 × 8 pixels, each with an objective of another kind."""


def image_training(network: str, optimiser: str) -> Training:
    """A network of images from its initial weights."""
    encoder, objective = NETWORKS[network]
    built = seeded(1, lambda: encoder.bind(shape=(3, 8, 8)))
    plan = TrainingPlan(
        steps=9,
        batch_size=8,
        optimiser=optimiser,  # type: ignore[arg-type]
        weight_decay=0.1,
        warmup=2,
        log_every=4,
        checkpoint_every=2,
    )
    images = torch.rand(24, 3, 8, 8, generator=torch.Generator().manual_seed(5))
    bound_to = seeded(2, lambda: objective.bind(dim=DIM, encoder=built))
    return Training(built, bound_to, plan, ImageAugmentation("gedi-cifar10"), images)


def train_folder(folder: str | Path) -> Model:
    """A whole run, or the rest of it."""
    own = {"plan.clip_norm": 2.0, "plan.objective_lr": 0.02, "plan.warmup": 20}
    options: dict[str, Any] = {"objective": "snl", "steps": 150, "batch_size": 32, "seed": 6, "settings": own}
    return runs.fit(rows().numpy(), out=folder, test=0, evaluate="none", resume=True, **options).model


class Signaller(Reporter):
    """Sends this process a signal once a step is done (0: before the first)."""

    def __init__(self, step: int, number: int = signal.SIGINT, times: int = 1) -> None:
        self.step, self.number, self.times = step, number, times

    def start(self, total: int, done: int) -> None:
        if done == self.step == 0:
            self.send()

    def advance(self, step: int) -> None:
        if step == self.step:
            self.send()

    def send(self) -> None:
        for _ in range(self.times):
            os.kill(os.getpid(), self.number)


def assert_same_weights(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Bit for bit."""
    assert one.keys() == other.keys()
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert not different, f"not the same bits: {different}"


def without_time(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a log less the one field that depends on the clock."""
    return [{key: value for key, value in row.items() if key != "seconds"} for row in history]


def assert_one_sentence(error: BaseException, *named: str) -> None:
    """The message is a single line and names what it is about."""
    message = str(error)
    assert "\n" not in message, message
    assert 10 < len(message) < 400, message
    for name in named:
        assert name in message, message
