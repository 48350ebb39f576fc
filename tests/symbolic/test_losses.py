"""The terms of a loss with a constraint: values at collapse, at the truth, and in single precision."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from probssl.errors import InputError
from probssl.symbolic import (
    Constraint,
    classify_each,
    constraint_loss,
    constraint_terms,
    divergence_of_mean,
    entropy_of_mean,
)

ADDITION = Constraint.where(lambda a, b, c: a + b == c, sizes=(10, 10, 10))
SURE = 200.0


def sure(classes: torch.Tensor) -> torch.Tensor:
    """Logits of certain predictions, in float64."""
    return SURE * nn.functional.one_hot(classes, 10).double()


def test_entropy_of_the_mean_is_that_of_loops() -> None:
    logits = torch.randn(4, 3, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    mean = [sum(row.softmax(-1)[y].item() for row in logits.flatten(0, 1)) / 12 for y in range(10)]
    assert entropy_of_mean(logits).item() == pytest.approx(-sum(p * math.log(p) for p in mean))
    assert torch.autograd.gradcheck(entropy_of_mean, logits)
    prior = ADDITION.marginal_prior()
    expected = sum(p * math.log(p / q) for p, q in zip(mean, prior.tolist(), strict=True))
    assert divergence_of_mean(logits, prior).item() == pytest.approx(expected)
    assert divergence_of_mean(logits).item() == pytest.approx(math.log(10) - entropy_of_mean(logits).item())
    assert torch.autograd.gradcheck(lambda given: divergence_of_mean(given, prior), logits)


def test_it_is_bounded_where_the_cross_entropy_is_not() -> None:
    collapsed = sure(torch.zeros(6, dtype=torch.long)).float().requires_grad_()
    loss = divergence_of_mean(collapsed)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(10), rel=1e-6)
    assert collapsed.grad is not None
    assert collapsed.grad.isfinite().all()
    cross_entropy = -0.1 * collapsed.log_softmax(-1).logsumexp(0).sub(math.log(6)).sum()
    assert cross_entropy.item() > 100
    assert divergence_of_mean(sure(torch.arange(10))).item() == pytest.approx(0.0, abs=1e-12)


def test_only_the_prior_of_the_constraint_leaves_the_true_labelling_free() -> None:
    truth = sure(ADDITION.assignments())
    assert constraint_loss(ADDITION, truth).item() == pytest.approx(0.0, abs=1e-12)
    assert entropy_of_mean(truth).item() == pytest.approx(2.287294, abs=1e-6)
    assert 400 * divergence_of_mean(truth).item() == pytest.approx(6.12, abs=0.01)  # what GEDI's weight makes it pay
    assert divergence_of_mean(truth, ADDITION.marginal_prior()).item() == pytest.approx(0.0, abs=1e-12)


def test_terms_are_those_of_an_objective() -> None:
    logits = torch.randn(5, 3, 10, generator=torch.Generator().manual_seed(0))
    terms = constraint_terms(ADDITION, logits)
    assert list(terms) == ["constraint", "prior"]
    assert terms["constraint"].item() == pytest.approx(ADDITION.loss(logits).item())
    assert terms["prior"].item() == pytest.approx(divergence_of_mean(logits).item())
    again = constraint_terms(ADDITION, logits.log_softmax(-1))
    assert all(torch.allclose(terms[name], again[name], atol=1e-6) for name in terms)
    stacked = torch.vmap(lambda given: constraint_terms(ADDITION, given))(logits.expand(2, 5, 3, 10))
    assert all(torch.allclose(stacked[name], terms[name].expand(2)) for name in terms)


def test_the_prior_needs_a_probability_a_class() -> None:
    with pytest.raises(InputError, match="10 probabilities"):
        divergence_of_mean(torch.zeros(3, 10), torch.ones(3) / 3)


def test_one_classifier_serves_all_images_of_an_example() -> None:
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(16, 10))
    x = torch.randn(5, 3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    logits = classify_each(classifier, x)
    assert logits.shape == (5, 3, 10)
    assert torch.allclose(logits[2, 1], classifier(x[2, 1:2])[0], atol=1e-6)
