"""GEDI with a constraint: values at the truth and at collapse, what it shares with GEDI, and exact resumption."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from probssl.encoders import MLP, Prototypes, seeded
from probssl.errors import InputError
from probssl.objectives import GEDI, ConstrainedGEDI
from probssl.objectives.clustering import invariance
from probssl.pairings import Each, GaussianNoise, ImageAugmentation, Needs, Views
from probssl.samplers import SGLD, UniformStart
from probssl.symbolic import Constraint
from probssl.training import TrainingPlan, fit
from tests.objectives.members import Ends, generator, normal, smooth_encoder

ADDITION = Constraint.where(lambda a, b, c: a + b == c, sizes=(10, 10, 10))
PARITY = Constraint.where(lambda a, b: a == b, sizes=(2, 2))
SURE = 200.0


class Chances(Prototypes):
    """Takes representations for logits."""

    def forward(self, z: Tensor) -> Tensor:
        return z / self.temperature


def on_logits(rule: Constraint = ADDITION, **options: object) -> ConstrainedGEDI:
    """The objective on observations that are logits themselves."""
    classes = rule.sizes[0]
    objective = ConstrainedGEDI(rule, generative=0, **options).bind(dim=classes)  # type: ignore[arg-type]
    objective.head = Chances(classes, classes)
    return objective.double()


def sure(classes: Tensor) -> Views:
    return Views(SURE * nn.functional.one_hot(classes, 10).double(), torch.empty(0))


def test_sure_predictions_that_satisfy_the_constraint_cost_what_their_shares_do() -> None:
    truth = sure(ADDITION.assignments())  # every sum once
    terms = on_logits()(nn.Identity(), truth)
    assert terms["constraint"].item() == pytest.approx(0.0, abs=1e-12)
    assert terms["prior"].item() == pytest.approx(math.log(10) - 2.287294, abs=1e-6)
    assert terms.total.item() == pytest.approx(6.12, abs=0.01)  # at the weight of the paper
    right = on_logits(prior=ADDITION.marginal_prior().tolist())
    assert right(nn.Identity(), truth).total.item() == pytest.approx(right.optimum(55, 10) or 0.0, abs=1e-4)


def test_one_answer_for_all_is_free_without_the_prior_and_costs_its_most_with_it() -> None:
    zeros = sure(torch.zeros(7, 3, dtype=torch.long))
    alone, both = on_logits(balance=0), on_logits()
    assert alone(nn.Identity(), zeros).total.item() == pytest.approx(0.0, abs=1e-12)
    assert both(nn.Identity(), zeros).total.item() == pytest.approx(400 * math.log(10))


def test_one_wrong_digit_costs_what_the_others_leave_open() -> None:
    """3 + ? = 5 with any digit as likely: ln 10. 3 + 4 = 5, surely: any of the three may be the wrong one."""
    x = SURE * nn.functional.one_hot(torch.tensor([[3, 2, 5], [3, 4, 5]]), 10).double()
    x[0, 1] = 0
    chances = [on_logits()(nn.Identity(), Views(row[None], torch.empty(0)))["constraint"].item() for row in x]
    assert chances == pytest.approx([math.log(10), SURE - math.log(3)], rel=1e-3)


def test_its_other_terms_are_those_of_gedi_on_all_observations() -> None:
    x = normal(6, 2, 3)
    views = GaussianNoise(0.3)(x, Needs(), generator(1))
    flat = Views(views.x.flatten(0, 1), views.augmented.flatten(1, 2))
    encoder = smooth_encoder()
    start = UniformStart(torch.full((3,), -2.0), torch.full((3,), 2.0))
    mine = ConstrainedGEDI(PARITY, chains=64, start=start, sampler=SGLD(steps=2), invariance=50).bind(dim=2).double()
    gedi = GEDI(2, generative=0).bind(dim=2).double()
    gedi.head = mine.head
    assert mine(encoder, views)["invariance"].item() == pytest.approx(gedi(encoder, flat)["invariance"].item())
    p, q = (mine.log_probabilities(encoder, side) for side in (flat.x, flat.augmented[0]))
    assert mine(encoder, views)["invariance"].item() == pytest.approx(invariance(p, q).item())
    assert mine(encoder, views)["constraint"].item() == pytest.approx(PARITY.loss(p.unflatten(0, (6, 2))).item())
    assert mine.buffer is not None
    before = mine.buffer.chains.clone()
    mine(encoder, views)
    assert int((mine.buffer.chains != before).any(1).sum()) == 6, "as many chains as examples"
    assert set(mine.weights) == {"constraint", "generative", "invariance", "prior"}


@pytest.mark.parametrize(
    ("pair", "weight", "wanted"),
    [("original", 0.0, 0), ("original", 1.0, 1), ("augmented", 0.0, 1), ("augmented", 1.0, 2)],
)
def test_it_asks_for_no_augmentation_that_it_does_not_look_at(pair: str, weight: float, wanted: int) -> None:
    objective = ConstrainedGEDI(PARITY, generative=0, invariance=weight, pair=pair)  # type: ignore[arg-type]
    objective = objective.bind(dim=2).double()
    assert objective.needs.augmented == wanted
    views = GaussianNoise(0.3)(normal(4, 2, 3), objective.needs, generator(1))
    terms = objective(smooth_encoder(), views)
    assert ("invariance" in terms) == bool(weight)
    side = views.x if pair == "original" else views.augmented[0]
    log_p = objective.log_probabilities(smooth_encoder(), side.flatten(0, 1)).unflatten(0, (4, 2))
    assert terms["constraint"].item() == pytest.approx(PARITY.loss(log_p).item())


# --- training ---------------------------------------------------------------------------------------------------------


def _pairs(count: int = 40) -> Tensor:
    """Two points of the same of two classes, which lie apart."""
    classes = torch.arange(count).remainder(2)
    return (normal(count, 2, 3) + 3 * (2 * classes - 1).view(-1, 1, 1)).float()


def _trained(folder: Path | None, draws: int, resume: bool) -> tuple[nn.Module, ConstrainedGEDI]:
    encoder = seeded(0, lambda: MLP.of([3, 8, 2]))
    start = UniformStart(torch.full((3,), -4.0), torch.full((3,), 4.0))
    chains = {"chains": 64, "reinitialise": 0.2, "start": start, "sampler": SGLD(steps=2)}
    unbound = ConstrainedGEDI(PARITY, balance=100, pair="augmented", **chains)  # type: ignore[arg-type]
    objective = seeded(1, lambda: unbound.bind(dim=2))
    stop = threading.Event()
    plan = TrainingPlan(steps=12, batch_size=10, lr=0.01, checkpoint_every=4, log_every=2)
    pairing = Each(Ends(draws, stop))
    fitted = fit(encoder, objective, pairing, _pairs(), plan, seed=5, out=folder, resume=resume, stop=stop)
    assert fitted.interrupted == (draws < 12)
    assert fitted.history[-1].keys() >= {"constraint", "prior", "generative", "rankme"}
    return encoder, objective


def test_an_interrupted_training_goes_on_with_the_very_same_chains(tmp_path: Path) -> None:
    whole = _trained(None, 99, False)
    _trained(tmp_path, 6, False)
    resumed = _trained(tmp_path, 99, True)
    for of_whole, of_resumed in zip(whole, resumed, strict=True):
        states = of_whole.state_dict(), of_resumed.state_dict()
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert resumed[1].buffer is not None
    assert int(resumed[1].buffer.ages.max()) >= 4


def test_it_learns_classes_from_pairs_alone() -> None:
    encoder = seeded(0, lambda: MLP.of([3, 8, 2]))
    objective = seeded(1, lambda: ConstrainedGEDI(PARITY, generative=0, balance=100).bind(dim=2))
    fitted = fit(encoder, objective, GaussianNoise(0.1), _pairs(), TrainingPlan(steps=150, batch_size=40))
    assert fitted.healthy
    classes = objective.logits(encoder, _pairs().flatten(0, 1)).argmax(1).view(20, 2, 2)
    assert (classes == classes[0]).all()
    assert not torch.equal(classes[0, 0], classes[0, 1])
    assert fitted.history[-1]["loss"] < 0.05


# --- groups -----------------------------------------------------------------------------------------------------------


def test_each_observation_is_augmented_by_itself() -> None:
    images = torch.rand(5, 3, 1, 8, 8, generator=generator())
    pairing = ImageAugmentation("gedi-mnist")
    found = Each(pairing).sample(images, generator(1))
    assert torch.equal(found.flatten(0, 1), pairing.sample(images.flatten(0, 1), generator(1)))
    with pytest.raises(InputError, match=r"\[n, K, ...\], not \[5\]"):
        Each(pairing).sample(torch.rand(5))


@pytest.mark.parametrize(
    ("build", "part"),
    [
        (lambda: ConstrainedGEDI(Constraint.where(lambda a, b: a == b, sizes=(2, 3))), "is on 2, 3 classes"),
        (lambda: ConstrainedGEDI(PARITY).bind(dim=2), "cannot be bound without shape"),
        (lambda: ConstrainedGEDI(PARITY, generative=0, constraint=-1), "weight of constraint must be finite and ≥ 0"),
        (lambda: ConstrainedGEDI(PARITY, generative=0, constraint=0, balance=0), "a term with a weight above 0"),
        (
            lambda: on_logits(PARITY)(nn.Identity(), Views(torch.zeros(4, 3), torch.empty(0))),
            r"are \[n, 2, ...\], not \[4, 3\]",
        ),
    ],
)
def test_refusals(build: object, part: str) -> None:
    with pytest.raises(InputError, match=part):
        build()  # type: ignore[operator]
