"""Small networks on frozen representations, those of several splits trained as one."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from probssl.metrics._inputs import Array

_AT_ONCE = 16_384  # rows that are judged together


@dataclass(frozen=True)
class Schedule:
    """How a network is trained: one hidden layer of ReLUs (none at 0), Adam, and when to stop.

    It stops `patience` epochs after the best one; None goes through all `epochs`. The best is that with the least loss
    or the fewest errors on the rows to choose by, the first of those.
    """

    hidden: int
    learning_rate: float
    epochs: int
    batch_size: int
    patience: int | None
    criterion: Literal["loss", "errors"] = "loss"


@dataclass(frozen=True, eq=False)
class Fitted:
    """Of each of S networks, as it was after its best epoch: outputs for the rows judged, and which epoch that was."""

    outputs: Array  # [S, q, outputs]
    epochs: tuple[int, ...]  # from 1
    stopped: bool  # all of them before the last epoch, or the last epoch was meant


def fit_networks(
    x: Array,
    targets: NDArray[np.generic],
    choosing: tuple[Array, NDArray[np.generic]],
    judged: Array,
    outputs: int,
    schedule: Schedule,
    seed: int,
) -> Fitted:
    """S networks of x [S, n, m], chosen by other rows and targets [S, v, m], applied to rows [S, q, m].

    Targets [S, n] of whole numbers are classes (softmax, cross-entropy); of real numbers [S, n, outputs] they are
    regressed on (squared error). Network s draws its first weights and the order of its rows from seed + s, and all
    steps are its own: it is the network that it would be alone.
    """
    count, rows, features = x.shape
    draws = [torch.Generator().manual_seed((seed + s) % 2**63) for s in range(count)]
    data, goals, others, judging, truth = (_tensor(a) for a in (x, targets, choosing[0], judged, choosing[1]))
    sizes = [features, schedule.hidden, outputs] if schedule.hidden else [features, outputs]
    layers = list(itertools.pairwise(sizes))
    weights = [torch.stack([_uniform((a, b), a, draw) for draw in draws]).requires_grad_() for a, b in layers]
    offsets = [torch.stack([_uniform((1, b), a, draw) for draw in draws]).requires_grad_() for a, b in layers]
    optimiser = torch.optim.Adam([*weights, *offsets], lr=schedule.learning_rate, fused=True)

    def apply(inputs: Tensor) -> Tensor:
        for layer, (weight, offset) in enumerate(zip(weights, offsets, strict=True)):
            inputs = torch.baddbmm(offset, inputs.relu() if layer else inputs, weight)
        return inputs

    @torch.no_grad()
    def applied(inputs: Tensor) -> Tensor:
        return torch.cat([apply(part) for part in inputs.split(_AT_ONCE, 1)], 1)

    batch = min(schedule.batch_size, max(1, rows // 8))  # at least eight steps an epoch
    network = torch.arange(count)[:, None]
    best, epochs, found = torch.full((count,), math.inf), torch.zeros(count, dtype=torch.long), applied(judging)
    waiting = torch.ones(count, dtype=torch.bool)  # for a better epoch
    for epoch in range(1, schedule.epochs + 1):
        order = torch.stack([torch.randperm(rows, generator=draw) for draw in draws])
        for at in order.split(batch, 1):
            optimiser.zero_grad()
            _losses(apply(data[network, at]), goals[network, at]).sum().backward()
            optimiser.step()
        said = applied(others)
        score = _losses(said, truth) if schedule.criterion == "loss" else _errors(said, truth)
        better = waiting & (score < best)
        if better.any():
            best, epochs = torch.where(better, score, best), torch.where(better, epoch, epochs)
            found[better] = applied(judging)[better]
        if schedule.patience is not None:
            waiting &= epoch - epochs < schedule.patience
        if not waiting.any():
            break
    stopped = schedule.patience is None or not bool(waiting.any())
    return Fitted(found.double().numpy(), tuple(epochs.tolist()), stopped)


def _losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of each network, [S]."""
    if targets.is_floating_point():
        return (outputs - targets).square().mean((1, 2))
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape).mean(1)


def _errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of rows whose likeliest class is not theirs, [S]."""
    return (outputs.argmax(2) != targets).float().mean(1)


def _tensor(array: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int64))


def _uniform(shape: tuple[int, ...], inputs: int, generator: torch.Generator) -> Tensor:
    """Uniform in ±1/√inputs, as torch begins linear layers."""
    bound = 1 / math.sqrt(inputs)
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
