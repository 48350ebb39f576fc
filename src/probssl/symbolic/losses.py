"""What an objective needs to learn from a constraint: terms of a loss, pure functions of predictions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from probssl.errors import InputError
from probssl.symbolic.constraint import Constraint, Logits


def classify_each(classifier: nn.Module, x: Tensor) -> Tensor:
    """Logits [n, K, c] of the K observations of each example, x [n, K, ...], all by the same classifier."""
    return classifier(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def constraint_loss(constraint: Constraint, logits: Logits) -> Tensor:
    """L = −mean log p(c), in [0, ∞): see `Constraint`. Log-probabilities do as well as logits."""
    return constraint.loss(logits)


def entropy_of_mean(logits: Tensor) -> Tensor:
    """H(p̄) = −Σ_y p̄(y) log p̄(y), p̄ the mean of softmax(logits) [..., c] over all predictions: in [0, ln c].

    To be maximised, so that not all predictions are the same (GEDI appendix O, after Manhaeve et al. 2021). It is 0
    where one class takes all; the cross-entropy CE(uniform, p̄) of GEDI Eq. 3 has no bound there.
    """
    log_mean = _log_mean(logits)
    return -(log_mean.exp() * log_mean).sum()


def divergence_of_mean(logits: Tensor, prior: Tensor | None = None) -> Tensor:
    """L = KL(p̄ ‖ prior) = −H(p̄) − Σ_y p̄(y) log prior(y), to minimise: 0 iff the mean prediction p̄ is the prior.

    Uniform without a prior: then it is ln c − H(p̄), in [0, ln c], the regulariser of GEDI appendix O as a loss. With a
    prior [c], in [0, −ln min prior]. `Constraint.marginal_prior` is the right one if examples are drawn uniformly among
    satisfying assignments: on sums of digits the uniform one costs the true labelling 0.0153 nats, times its weight.
    """
    log_mean = _log_mean(logits)
    if prior is None:
        log_prior = torch.full_like(log_mean, 1 / len(log_mean)).log()
    elif prior.shape != log_mean.shape:
        raise InputError(f"the prior needs {len(log_mean)} probabilities, one a class, not {list(prior.shape)}")
    else:
        log_prior = prior.to(log_mean).log()
    return (log_mean.exp() * (log_mean - log_prior)).sum()


def constraint_terms(constraint: Constraint, logits: Tensor, prior: Tensor | None = None) -> dict[str, Tensor]:
    """`constraint_loss` and `divergence_of_mean` as the terms of an objective, from logits [n, K, c].

    Alone, the constraint is satisfied by the same answer for all (every digit a 0); the term `prior` rules that out.
    """
    return {"constraint": constraint_loss(constraint, logits), "prior": divergence_of_mean(logits, prior)}


def _log_mean(logits: Tensor) -> Tensor:
    """log p̄ [c], through log-sum-exp: finite where classes have no probability left that a float can hold."""
    rows = logits.log_softmax(-1).reshape(-1, logits.shape[-1])
    return rows.logsumexp(0) - torch.tensor(float(len(rows)), dtype=rows.dtype, device=rows.device).log()
