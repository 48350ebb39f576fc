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
    lr: float
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
    data, goals, others, truth, judging = (_tensor(a) for a in (x, targets, *choosing, judged))
    networks = Networks([features, *([schedule.hidden] if schedule.hidden else []), outputs], draws)
    batch = min(schedule.batch_size, max(1, rows // 8))  # at least eight steps an epoch
    index = torch.arange(count)[:, None]
    best, epochs, found = torch.full((count,), math.inf), torch.zeros(count, dtype=torch.long), networks(judging)
    waiting = torch.ones(count, dtype=torch.bool)  # for a better epoch
    for epoch in range(1, schedule.epochs + 1):
        order = torch.stack([torch.randperm(rows, generator=draw) for draw in draws])
        for at in order.split(batch, 1):
            networks.step(data[index, at], goals[index, at], schedule.lr)
        said = networks(others)
        score = _losses(said, truth) if schedule.criterion == "loss" else _errors(said, truth)
        better = waiting & (score < best)
        if better.any():
            best, epochs = torch.where(better, score, best), torch.where(better, epoch, epochs)
            found[better] = networks(judging)[better]
        if schedule.patience is not None:
            waiting &= epoch - epochs < schedule.patience
        if not waiting.any():
            break
    stopped = schedule.patience is None or not bool(waiting.any())
    return Fitted(found.double().numpy(), tuple(epochs.tolist()), stopped)


class Networks:
    """S perceptrons with at most one hidden layer, and the state of their Adam; gradients by hand.

    All weights lie in one vector, so that a step of Adam is five operations: on networks as small as these it is the
    number of operations that takes time, and autograd has several times as many.
    """

    def __init__(self, sizes: list[int], draws: list[torch.Generator]) -> None:
        count, self.steps = len(draws), 0
        layers = list(itertools.pairwise(sizes))
        shapes = [shape for a, b in layers for shape in ((count, a, b), (count, 1, b))]  # weights, offsets, in turn
        self.values, self.gradient, self.mean, self.square = torch.zeros(4, sum(map(math.prod, shapes)))
        self.parameters, self.gradients = (
            [part.view(shape) for part, shape in zip(flat.split([*map(math.prod, shapes)]), shapes, strict=True)]
            for flat in (self.values, self.gradient)
        )
        for parameter, (a, _) in zip(self.parameters, [layer for layer in layers for _ in range(2)], strict=True):
            for network, draw in enumerate(draws):  # uniform in ±1/√inputs, as torch begins linear layers
                parameter[network].uniform_(-1 / math.sqrt(a), 1 / math.sqrt(a), generator=draw)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Outputs for inputs [S, n, m], [S, n, outputs]."""
        return torch.cat([self._layers(part)[1] for part in inputs.split(_AT_ONCE, 1)], 1)

    def _layers(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """What enters the last layer, and what leaves it."""
        *first, weight, offset = self.parameters
        if first:
            inputs = torch.baddbmm(first[1], inputs, first[0]).relu_()
        return inputs, torch.baddbmm(offset, inputs, weight)

    def step(self, inputs: Tensor, targets: Tensor, rate: float) -> None:
        """One step of Adam (Kingma & Ba 2015) down each network's mean loss on its batch."""
        entering, outputs = self._layers(inputs)
        if targets.is_floating_point():
            slope = (outputs - targets).mul_(2 / (targets.shape[1] * targets.shape[2]))
        else:
            slope = outputs.softmax(2)
            slope.scatter_add_(2, targets[..., None], slope.new_full((), -1.0).expand(*targets.shape, 1))
            slope /= targets.shape[1]
        *first, weight, offset = self.gradients
        torch.bmm(entering.mT, slope, out=weight)
        torch.sum(slope, 1, keepdim=True, out=offset)
        if first:
            slope = (slope @ self.parameters[2].mT).mul_(entering > 0)
            torch.bmm(inputs.mT, slope, out=first[0])
            torch.sum(slope, 1, keepdim=True, out=first[1])
        self.steps += 1
        self.mean.lerp_(self.gradient, 0.1)
        self.square.mul_(0.999).addcmul_(self.gradient, self.gradient, value=0.001)
        scale = (self.square / (1 - 0.999**self.steps)).sqrt_().add_(1e-8)
        self.values.addcdiv_(self.mean, scale, value=-rate / (1 - 0.9**self.steps))


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
