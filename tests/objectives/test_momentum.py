"""MoCo and BYOL: the teacher that follows, the queue, and what a constant encoder gets."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from probssl.encoders import MLP, WithHead, seeded
from probssl.energies import Cosine
from probssl.errors import InputError
from probssl.objectives import BYOL, InfoNCE, MoCo
from probssl.pairings import GaussianNoise, Needs, Views
from probssl.training import TrainingPlan, fit
from tests.objectives.members import EMBEDDING, INPUT, Ends, constant_encoder, generator, normal, smooth_encoder


def views_of(rows: int = 6, seed: int = 0) -> Views:
    return GaussianNoise(0.3)(normal(rows, INPUT, seed=seed), Needs(augmented=2), generator(seed + 1))


def moco(**options: object) -> MoCo:
    return seeded(3, lambda: MoCo(**options).bind(encoder=smooth_encoder(5), dim=EMBEDDING)).double()  # type: ignore[arg-type]


def byol(encoder: nn.Module) -> BYOL:
    """Without a predictor."""
    objective = BYOL().bind(encoder=encoder, dim=EMBEDDING)
    objective.predictor = nn.Identity()
    return objective.double()


def test_the_teacher_is_the_encoder_at_first_and_then_a_running_mean_of_it() -> None:
    objective, encoder = moco(momentum=0.9, queue=8), smooth_encoder(1)
    objective(encoder, views_of())
    for name, value in objective.teacher.named_parameters():
        torch.testing.assert_close(value, encoder.get_parameter(name))
    later = smooth_encoder(2)
    objective(later, views_of())
    for name, value in objective.teacher.named_parameters():
        expected = 0.9 * encoder.get_parameter(name) + 0.1 * later.get_parameter(name)
        torch.testing.assert_close(value, expected)
    assert not any(value.requires_grad for value in objective.teacher.parameters())


def test_the_queue_holds_the_newest_keys() -> None:
    objective, encoder = moco(queue=8, momentum=0.0), smooth_encoder(1)
    batches = [views_of(3, seed) for seed in range(4)]
    for views in batches:
        objective(encoder, views)
    with torch.no_grad():
        keys = torch.cat([nn.functional.normalize(encoder(views.augmented[1]), dim=1) for views in batches])
    kept = {tuple(row) for row in objective.keys.round(decimals=9).tolist()}
    assert kept == {tuple(row) for row in keys[-8:].round(decimals=9).tolist()}
    objective(encoder, views_of(20, 9))  # more than it holds
    assert objective.keys.isfinite().all()
    assert int(objective.place) == (12 + 20) % 8


def test_evaluation_changes_nothing() -> None:
    objective = moco(queue=8).eval()
    before = {name: value.clone() for name, value in objective.state_dict().items()}
    objective(smooth_encoder(1), views_of())
    assert all(torch.equal(value, before[name]) for name, value in objective.state_dict().items())


def test_with_the_other_keys_of_the_batch_as_queue_it_is_infonce() -> None:
    """A teacher that is the encoder, and a batch of two: the queue of one anchor is the other's positive."""
    encoder, views = smooth_encoder(1), views_of(2)
    objective = moco(queue=1, momentum=0.0, temperature=0.5).eval()
    objective.teacher.load_state_dict(encoder.state_dict())
    with torch.no_grad():
        keys = nn.functional.normalize(encoder(views.augmented[1]), dim=1)
        losses = []
        for row in (0, 1):
            objective.keys = keys[[1 - row]]
            one = Views(views.x[[row]].repeat(2, 1), views.augmented[:, [row]].repeat(1, 2, 1))
            losses.append(objective(encoder, one).total.item())
        expected = InfoNCE(Cosine(0.5), pair="augmented", anchor="original")(encoder, views).total.item()
    assert sum(losses) / 2 == pytest.approx(expected)


def test_a_constant_encoder() -> None:
    encoder = constant_encoder()
    objective = MoCo(queue=7).bind(encoder=encoder, dim=EMBEDDING).double().eval()
    with torch.no_grad():
        objective.keys = nn.functional.normalize(encoder(normal(7, INPUT)), dim=1)
    assert objective(encoder, views_of()).total.item() == pytest.approx(math.log(8))
    alike = byol(encoder)
    assert alike(encoder, views_of()).total.item() == pytest.approx(0)


def test_no_gradient_reaches_the_encoder_through_the_teacher() -> None:
    encoder = smooth_encoder(1)
    objective = byol(encoder)
    objective(encoder, views_of()).total.backward()
    assert all(value.grad is None for value in objective.teacher.parameters())
    assert all(value.grad is not None for value in encoder.parameters())


@pytest.mark.parametrize("build", [MoCo, BYOL], ids=["moco", "byol"])
def test_the_teacher_is_a_copy(build: type) -> None:
    encoder = smooth_encoder(5)
    teacher = build().bind(encoder=encoder, dim=EMBEDDING).teacher
    for own, theirs in zip(teacher.parameters(), encoder.parameters(), strict=True):
        assert torch.equal(own, theirs)
        assert own is not theirs
        assert theirs.requires_grad
        assert not own.requires_grad


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="momentum"):
        moco(momentum=1.0)
    with pytest.raises(InputError, match="queue"):
        moco(queue=0)
    with pytest.raises(InputError, match="its layers differ"):
        moco()(nn.Linear(INPUT, EMBEDDING).double(), views_of())
    with pytest.raises(InputError, match="two augmented views"):
        moco()(smooth_encoder(), GaussianNoise(0.3)(normal(4, INPUT), Needs(), generator()))


def _trained(kind: str, out: Path | None, draws: int, resume: bool) -> tuple[nn.Module, nn.Module]:
    encoder = seeded(0, lambda: WithHead(MLP.of([8, 16, 6]), MLP.of([6, 8, 4])))
    unbound = MoCo(temperature=0.2, queue=128) if kind == "moco" else BYOL()
    objective = seeded(1, lambda: unbound.bind(encoder=encoder, dim=4))
    x, stop = torch.randn(200, 8, generator=torch.Generator().manual_seed(2)), threading.Event()
    plan = TrainingPlan(steps=30, batch_size=32, checkpoint_every=10)
    fitted = fit(encoder, objective, Ends(draws, stop), x, plan, seed=0, out=out, resume=resume, stop=stop)
    assert fitted.interrupted == (draws < 60)
    assert fitted.failure is None
    return encoder, objective


@pytest.mark.parametrize("kind", ["moco", "byol"])
def test_a_training_that_was_stopped_ends_as_one_that_was_not(kind: str, tmp_path: Path) -> None:
    """Checkpoints carry the teacher and the queue."""
    expected = _trained(kind, None, 10_000, False)
    _trained(kind, tmp_path, 25, False)
    for one, other in zip(expected, _trained(kind, tmp_path, 10_000, True), strict=True):
        for name, value in one.state_dict().items():
            torch.testing.assert_close(other.state_dict()[name], value, rtol=0, atol=0)
