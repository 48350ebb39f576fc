"""Logistic regression in coordinates that suit it: the loss of scikit-learn's, its optimum in far fewer iterations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from probssl.metrics._inputs import Array

_BLOCK = 4096  # rows at a time: their logits stay in the cache
_DECREASE = 1e-6  # relative decrease of the loss in one iteration below which it is done


@dataclass(frozen=True, eq=False)
class Logistic:
    """A fitted classifier: argmax over classes of x @ weights + offset, or its sign where there are two classes."""

    classes: NDArray[np.intp]
    weights: Array  # [m, k], [m, 1] for two classes
    offset: Array  # [k], [1]
    loss: float
    converged: bool

    def predict(self, x: Array) -> NDArray[np.intp]:
        """The likeliest class of each row, [n]."""
        logits = x @ self.weights + self.offset
        return self.classes[(logits[:, 0] > 0).astype(np.intp) if logits.shape[1] == 1 else logits.argmax(axis=1)]


def fit_whitened(x: Array, y: NDArray[np.intp], iterations: int) -> Logistic:
    """Minimise sum_i -log p(y_i | x_i) + |W|^2 / 2 over weights W and offsets: scikit-learn's loss at C = 1.

    L-BFGS in the coordinates V = S W, S^2 = q (centred x)^T (centred x) + I. There q (1/4 for two classes, else 1/2)
    times the covariance bounds the curvature of the likelihood (Boehning 1992), so that no direction is steeper than
    another by the scale of the features: the loss and its minimiser are those of x as given, at a fraction of the
    iterations. Sums over rows are made in float32 and gathered in float64; the loss is known to about 1e-6 of itself.
    """
    from scipy.optimize import minimize

    classes, codes = np.unique(y, return_inverse=True)
    n, m = x.shape
    columns = 1 if len(classes) == 2 else len(classes)
    bound = 0.25 if columns == 1 else 0.5
    mean = x.mean(axis=0)
    centred = x - mean
    eigenvalues, axes = np.linalg.eigh(centred.T @ centred)
    scale = 1 / np.sqrt(bound * np.maximum(eigenvalues, 0.0) + 1.0)
    back = axes * scale  # W = back @ V
    level = 1 / np.sqrt(bound * n)  # the offset, in the same units
    rows = np.hstack([centred @ back, np.full((n, 1), level)])  # [n, m + 1]
    penalty = torch.from_numpy(np.append(scale**2, 0.0))  # |W|^2 = sum penalty V^2, and none on the offset
    blocks = [_block(rows[start : start + _BLOCK], codes[start : start + _BLOCK], columns) for start in _starts(n)]

    def loss_and_gradient(flat: Array) -> tuple[float, Array]:
        v = torch.from_numpy(flat).view(columns, m + 1)
        loss = 0.5 * (penalty * v.square()).sum().item()
        gradient = penalty * v
        for some, truth in blocks:
            total, residual = _nll(v.float() @ some, truth)
            loss += total
            gradient += residual @ some.mT
        return loss, gradient.numpy().ravel()

    found = minimize(
        loss_and_gradient,
        np.zeros(columns * (m + 1)),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": iterations, "maxfun": 20 * iterations, "maxls": 50, "gtol": 0.0, "ftol": _DECREASE},
    )
    v = found.x.reshape(columns, m + 1)
    weights = back @ v[:, :m].T
    return Logistic(classes, weights, level * v[:, m] - mean @ weights, float(found.fun), found.nit < iterations)


def _starts(rows: int) -> range:
    return range(0, rows, _BLOCK)


def _block(rows: Array, codes: NDArray[np.intp], columns: int) -> tuple[Tensor, Tensor]:
    """Some rows as [m + 1, b], and which class they are of as [columns, b]."""
    truth = torch.from_numpy(codes)
    hot = truth.unsqueeze(0) if columns == 1 else F.one_hot(truth, columns).mT
    return torch.from_numpy(np.ascontiguousarray(rows.T)).float(), hot.float()


def _nll(logits: Tensor, truth: Tensor) -> tuple[float, Tensor]:
    """Negative log-likelihood of a block, and its gradient with respect to the logits [columns, b], in place."""
    own = (logits * truth).sum(0)
    if len(logits) == 1:
        each = F.softplus(logits[0]) - own
        probability = logits.sigmoid_()
    else:
        top = logits.amax(0)
        probability = logits.sub_(top).exp_()
        total = probability.sum(0)
        each = (top - own) + total.log()
        probability /= total
    return each.sum(dtype=torch.float64).item(), probability.sub_(truth)
