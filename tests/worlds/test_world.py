"""Worlds: mixings that can be undone, batches as objectives want them, training on one to the same weights."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from probssl.encoders import MLP, seeded
from probssl.energies import Cosine
from probssl.errors import InputError
from probssl.objectives import Fisher, InfoNCE
from probssl.pairings import GaussianNoise, Needs
from probssl.training import TrainingPlan, fit
from probssl.worlds import (
    Box,
    Decoder,
    FisherBingham,
    Identity,
    InvertibleMLP,
    Sphere,
    Uniform,
    VonMisesFisher,
    World,
    normal,
)
from probssl.worlds.mixings import well_conditioned


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_world(**options: object) -> World:
    space = Sphere(4)
    return World(Uniform(space), VonMisesFisher(space, 8.0), InvertibleMLP(4, draws=200), **options)


@pytest.mark.parametrize(("dim", "layers", "slope"), [(2, 1, 0.2), (10, 3, 0.2), (10, 5, 0.5), (40, 3, 0.2)])
def test_an_invertible_mixing_can_be_undone(dim, layers, slope):
    mixing = InvertibleMLP(dim, layers=layers, slope=slope, draws=500).double()
    z = torch.randn(200, dim, dtype=torch.double, generator=generator())
    x = mixing(z)
    torch.testing.assert_close(mixing.inverse(x), z, rtol=1e-8, atol=1e-8)
    if layers > 1:
        assert not torch.allclose(mixing(2 * z - 1), 2 * x - mixing(torch.ones_like(z)))  # it is not affine


def test_more_draws_condition_better_and_the_seed_decides():
    few, many = (well_conditioned(10, draws, generator()) for draws in (1, 2000))
    assert torch.linalg.cond(many) < 0.5 * torch.linalg.cond(few)
    torch.testing.assert_close(many.norm(dim=0), torch.ones(10, dtype=torch.double))
    one, other, another = (InvertibleMLP(5, draws=50, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.weights, other.weights)
    assert not torch.equal(one.weights, another.weights)


def test_a_decoder_is_frozen_and_sees_scaled_latents():
    network = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    mixing = Decoder(network, scale=2.0).train()
    assert not any(part.training for part in mixing.modules())
    z = torch.randn(6, 3, generator=generator())
    torch.testing.assert_close(mixing(z), network(2 * z))
    assert not mixing(z).requires_grad
    with pytest.raises(InputError, match="no inverse"):
        mixing.inverse(z)


def test_a_batch_holds_what_was_asked_for():
    world = small_world()
    views = world.draw(50, Needs(augmented=3, negatives=True, directions=2), generator())
    assert views.x.shape == (50, 4)
    assert views.augmented.shape == (3, 50, 4)
    assert views.latents.shape == (50, 4)
    assert views.negatives.shape == (50, 4)
    assert views.directions.shape == (2, 50, 4)
    torch.testing.assert_close(world.mixing(views.latents), views.x)
    again = world.draw(50, Needs(augmented=3, negatives=True, directions=2), generator())
    assert torch.equal(views.augmented, again.augmented)
    z = world.mixing.inverse(views.augmented[0])
    assert 0.55 < float((z * views.latents).sum(1).mean()) < 0.85  # mean cosine of vMF(8) in four dimensions: 0.80
    lone = world.draw(7, Needs(augmented=0), generator())
    assert lone.augmented.shape == (0, 7, 4)


def test_negatives_are_fresh_or_hard():
    assert small_world(negatives=9).draw(5, Needs(negatives=True), generator()).negatives.shape == (9, 4)
    space = Sphere(4)
    hard = World(Uniform(space), VonMisesFisher(space, 50.0), hard=VonMisesFisher(space, 500.0), negatives=3)
    views = hard.draw(100, Needs(negatives=True), generator())
    assert views.negatives.shape == (100, 3, 4)
    assert float((views.negatives * views.latents.unsqueeze(1)).sum(-1).mean()) > 0.98


def test_several_conditionals_take_turns():
    space = Sphere(6)
    near, far = FisherBingham(space, 1000.0), FisherBingham(space, 1.0)
    views = World(Uniform(space), [near, far]).draw(400, Needs(augmented=4), generator())
    cosines = (views.augmented * views.x).sum(-1).mean(1)
    assert float(cosines[0]) > 0.95 < float(cosines[2])
    assert float(cosines[1]) < 0.5 > float(cosines[3])


def test_the_default_mixing_shows_the_latents():
    world = World(Uniform(Box(2)), normal(Box(2), 0.1))
    assert isinstance(world.mixing, Identity)
    x, z = world.observe(20, generator())
    assert torch.equal(x, z)


def train(steps: int, out=None, resume: bool = False):
    encoder = seeded(0, lambda: MLP.of([4, 8, 4]))
    plan = TrainingPlan(steps=steps, batch_size=64, checkpoint_every=10, log_every=10)
    fitted = fit(encoder, InfoNCE(Cosine(0.2)), small_world(), plan=plan, seed=3, out=out, resume=resume)
    return encoder, fitted


def test_training_on_a_world_follows_the_seed_and_learns():
    one, fitted = train(60)
    other, _ = train(60)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    losses = [row["loss"] for row in fitted.history if "loss" in row]
    assert losses[-1] < losses[0]


def test_a_resumed_training_on_a_world_reaches_the_same_weights(tmp_path):
    whole, _ = train(40)
    stop = tmp_path / "run"
    _train_until(20, stop)
    resumed, fitted = train(40, stop, resume=True)
    assert fitted.steps == 40
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))


def _train_until(step: int, out) -> None:
    """Stop a training of forty steps by an event, as Ctrl-C does."""
    import threading

    from probssl.training.progress import Reporter

    stop = threading.Event()

    class Stopper(Reporter):
        def advance(self, at: int) -> None:
            if at == step:
                stop.set()

    encoder = seeded(0, lambda: MLP.of([4, 8, 4]))
    plan = TrainingPlan(steps=40, batch_size=64, checkpoint_every=10, log_every=10)
    fitted = fit(
        encoder, InfoNCE(Cosine(0.2)), small_world(), plan=plan, seed=3, out=out, reporter=Stopper(), stop=stop
    )
    assert fitted.interrupted


def test_refusals():
    encoder, world = MLP.of([4, 4]), small_world()
    with pytest.raises(InputError, match="a world makes its own"):
        fit(encoder, InfoNCE(), world, torch.randn(10, 4))
    with pytest.raises(InputError, match="a pairing needs data"):
        fit(encoder, InfoNCE(), GaussianNoise(0.1))
    with pytest.raises(InputError, match="knows no score"):
        fit(encoder, Fisher(), world)
    with pytest.raises(InputError, match="at least one negative"):
        small_world(negatives=0)
    with pytest.raises(InputError, match="slope of an invertible"):
        InvertibleMLP(3, slope=0.0)


def test_the_example_of_the_page_prints_what_it_says(capsys):
    page = (Path(__file__).parents[2] / "docs" / "worlds.md").read_text(encoding="utf-8")
    code, said = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", page, flags=re.DOTALL)[0]
    exec(compile(code, "worlds.md", "exec"), {})
    raw, learnt = (float(n) for n in re.findall(r"\d\.\d+", capsys.readouterr().out))
    assert [raw, learnt] == pytest.approx([float(n) for n in re.findall(r"\d\.\d+", said)], abs=0.015)
