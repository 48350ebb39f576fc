"""Constraints that list their assignments: against loops, closed forms, and in single precision."""

from __future__ import annotations

import itertools
import math
import operator
import sys

import pytest
import torch

from probssl.errors import InputError, MissingExtra
from probssl.symbolic import Constraint, variables
from probssl.symbolic.listing import Listing
from probssl.training.loop import describe

from .references import random_logits, slow

ADDITION = Constraint.where(lambda a, b, c: a + b == c, sizes=(10, 10, 10))
SMALL = [
    Constraint.where(lambda a, b, c: a + b == c, sizes=(3, 3, 5)),
    Constraint.where(lambda a, b: a != b, sizes=(4, 3)),
    Constraint.of([(0,), (3,)], sizes=(4,)),
    Constraint.of([(1, 0, 1, 2), (0, 0, 0, 0), (1, 1, 1, 1)], sizes=(2, 2, 2, 3)),
]


def uneven(sizes: tuple[int, ...] = (10, 10, 10), block: int = 40) -> Constraint:
    """Addition computed a few assignments at a time."""
    rows = ADDITION.assignments() + torch.tensor([0, 10, 20])
    return Constraint(sizes, Listing(rows, block=block))


@pytest.mark.parametrize("constraint", SMALL, ids=lambda constraint: str(constraint.sizes))
def test_probability_marginals_and_best_are_those_of_loops(constraint: Constraint) -> None:
    logits = random_logits(constraint.sizes)
    found = constraint.log_prob(logits)
    marginals, best = constraint.marginals(logits), constraint.most_probable(logits)
    for row in range(3):
        probability, shares, most = slow(constraint, [part[row] for part in logits])
        assert found[row].item() == pytest.approx(math.log(probability), abs=1e-12)
        assert tuple(best[row].tolist()) == most
        for part, expected in zip(marginals, shares, strict=True):
            assert part[row].numpy() == pytest.approx(expected, abs=1e-12)
    assert constraint.loss(logits).item() == pytest.approx(-found.mean().item())


def test_addition_has_the_55_terms_of_the_corrected_formula() -> None:
    assert ADDITION.count == len(ADDITION.assignments()) == 55
    assert ADDITION.log_prob(torch.zeros(3, 10, dtype=torch.float64)).item() == pytest.approx(math.log(0.055))
    assert ADDITION.loss(torch.zeros(7, 3, 10)).item() == pytest.approx(2.900422, abs=1e-6)
    zeros = torch.zeros(1, 3, 10, dtype=torch.float64)
    zeros[..., 0] = 60
    assert ADDITION.loss(zeros).item() == pytest.approx(0.0, abs=1e-12)  # all predicted 0: why it needs company


def test_gradient_is_marginal_minus_prediction() -> None:
    logits = [part.requires_grad_() for part in random_logits((10, 10, 10))]
    gradients = torch.autograd.grad(ADDITION.log_prob(logits).sum(), logits)
    for gradient, marginal, part in zip(gradients, ADDITION.marginals(logits), logits, strict=True):
        assert torch.allclose(gradient, marginal - part.softmax(-1), atol=1e-12)
        assert torch.allclose(marginal.sum(-1), torch.ones(3, dtype=torch.float64))


def test_first_and_second_derivatives_are_those_of_finite_differences() -> None:
    for constraint in (SMALL[0], Constraint(SMALL[0].sizes, Listing(SMALL[0]._evaluator.rows, block=7))):
        logits = [part.requires_grad_() for part in random_logits(constraint.sizes, rows=2)]
        assert torch.autograd.gradcheck(lambda *given: constraint.log_prob(given), logits)  # noqa: B023
        assert torch.autograd.gradgradcheck(lambda *given: constraint.log_prob(given), logits)  # noqa: B023


def test_blocks_of_assignments_give_the_same() -> None:
    logits = torch.stack(random_logits((10, 10, 10), rows=4), 1).requires_grad_()
    parted = uneven()
    assert len(parted._evaluator._parts(logits.flatten(1))) > 1
    for ask in (Constraint.log_prob, Constraint.most_probable, lambda c, x: torch.stack(c.marginals(x))):
        assert torch.allclose(ask(parted, logits), ask(ADDITION, logits), atol=1e-13)
    gradients = [torch.autograd.grad(each.loss(logits), logits)[0] for each in (parted, ADDITION)]
    assert torch.allclose(*gradients, atol=1e-14)


@pytest.mark.parametrize("constraint", [ADDITION, uneven()], ids=["whole", "blocks"])
def test_stacks_by_vmap(constraint: Constraint) -> None:
    logits = torch.randn(2, 5, 3, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    together = torch.vmap(torch.func.grad_and_value(constraint.loss))(logits)
    alone = [torch.func.grad_and_value(constraint.loss)(each) for each in logits]
    for number in range(2):
        assert torch.allclose(together[number], torch.stack([each[number] for each in alone]), atol=1e-14)
    assert torch.equal(torch.vmap(constraint.most_probable)(logits), constraint.most_probable(logits))
    assert torch.allclose(constraint.log_prob(logits), torch.vmap(constraint.log_prob)(logits))  # any leading shape


@pytest.mark.parametrize("constraint", [ADDITION, uneven()], ids=["whole", "blocks"])
@pytest.mark.parametrize(("size", "expected"), [(120.0, -119.3069), (-120.0, -2.7850), (1e4, -1e4), (1e30, -1e30)])
def test_extreme_logits_in_single_precision(constraint: Constraint, size: float, expected: float) -> None:
    logits = torch.zeros(1, 3, 10)
    logits[..., 9] = size
    logits.requires_grad_()
    value = constraint.log_prob(logits)
    value.sum().backward()
    assert value.item() == pytest.approx(expected, rel=1e-4)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad.abs().sum() > 0
    assert all(part.isfinite().all() for part in constraint.marginals(logits))


def test_satisfied_is_the_predicate() -> None:
    grid = torch.cartesian_prod(*[torch.arange(10)] * 3)
    assert torch.equal(ADDITION.satisfied(grid), grid[:, 0] + grid[:, 1] == grid[:, 2])
    assert ADDITION.satisfied(ADDITION.most_probable(torch.randn(50, 3, 10))).all()


def test_classes_of_uniform_sums_are_not_uniform() -> None:
    expected = (21 - torch.arange(10, dtype=torch.float64)) / 165
    assert torch.allclose(ADDITION.marginal_prior(), expected, atol=1e-15)
    counted = torch.stack([torch.bincount(column, minlength=10) for column in ADDITION.assignments().T]) / 55
    for variable in range(3):
        assert torch.allclose(ADDITION.marginal_prior(variable), counted[variable].double(), atol=1e-7)


def test_constraints_combine_as_sets() -> None:
    sizes = (4, 4)
    equal, small = (Constraint.where(rule, sizes) for rule in (operator.eq, lambda a, b: a + b < 3))
    grid = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    one, two = equal.satisfied(grid), small.satisfied(grid)
    for found, expected in ((equal & small, one & two), (equal | small, one | two), (~equal, ~one)):
        assert torch.equal(found.satisfied(grid), expected)
    logits = random_logits(sizes)
    chances = [each.log_prob(logits).exp() for each in (equal, small, equal & small, equal | small, ~equal)]
    assert torch.allclose(chances[0] + chances[1], chances[2] + chances[3])
    assert torch.allclose(chances[0] + chances[4], torch.ones(3, dtype=torch.float64))
    assert (~~equal).fingerprint == equal.fingerprint != small.fingerprint


def test_an_objective_can_hold_one_and_still_be_stacked_and_told_apart() -> None:
    assert not list(ADDITION.buffers())
    assert not list(ADDITION.parameters())
    assert ADDITION.fingerprint in describe("constraint", ADDITION)["constraint"]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Constraint.where(lambda a, b: False, (2, 2)), "no assignment satisfies"),
        (lambda: Constraint.where(lambda a, b: True, (2, 2)), "every assignment satisfies"),
        (lambda: SMALL[1] | ~SMALL[1], "every assignment satisfies"),
        (lambda: SMALL[1] & SMALL[0], "cannot be combined"),
        (lambda: Constraint.where(lambda a: True, (2, 2)), "must take 2 classes"),
        (lambda: Constraint.where(lambda *a: True, [10] * 7), "10,000,000 assignments .* 1,048,576: .*from_formula"),
        (lambda: Constraint.where(lambda *a: True, [10] * 400), "too many assignments .*from_formula"),
        (lambda: ~Constraint.of([(0,) * 7], [10] * 7), "10,000,000 assignments"),
        (lambda: Constraint.of([(0, 2)], (2, 2)), r"\(0, 2\) does not fit"),
        (lambda: Constraint.of([(0, 1, 1)], (2, 2)), r"\(0, 1, 1\) does not fit"),
        (lambda: Constraint.of([(0, 1)], (2, 1)), "at least 2 each"),
        (lambda: Constraint.of([], ()), "at least 2 each"),
        (lambda: ADDITION.log_prob(torch.zeros(5, 3, 9)), r"needs logits of 10 and 10 and 10 classes.*\[5, 3, 9\]"),
        (lambda: ADDITION.log_prob(torch.zeros(5, 2, 10)), "needs logits"),
        (lambda: ADDITION.log_prob(torch.zeros(30)), "needs logits"),
        (lambda: SMALL[1].log_prob([torch.zeros(5, 4), torch.zeros(6, 3)]), "equally many rows"),
        (lambda: ADDITION.satisfied(torch.tensor([1, 2])), "whole numbers"),
        (lambda: ADDITION.satisfied(torch.tensor([1.0, 2.0, 3.0])), "whole numbers"),
        (lambda: ADDITION.satisfied(torch.tensor([1, 9, 10])), "below 10, 10, 10"),
        (lambda: ADDITION.marginal_prior(3), "no 3"),
        (lambda: SMALL[1].marginal_prior(), "no common prior"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(make, told: str) -> None:
    with pytest.raises(InputError, match=told):
        make()


def test_a_table_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probssl.symbolic.constraint.LIMIT", 8)
    with pytest.raises(InputError, match=r"9 assignments and more are too many to list, .* 8: write a formula"):
        Constraint.of(itertools.product(range(4), range(4)), (4, 5))


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pysdd", None)
    monkeypatch.setitem(sys.modules, "pysdd.sdd", None)
    with pytest.raises(MissingExtra, match=r"pip install 'probssl\[symbolic\]'"):
        Constraint.from_formula(variables([2, 2])[0].equals(1), variables([2, 2]))
