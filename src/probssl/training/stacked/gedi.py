"""GEDI in a stack: K networks that cluster and sample, whose chains move on together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from probssl.encoders import Prototypes
from probssl.objectives.base import Objective
from probssl.objectives.clustering import invariance, prior_cross_entropy
from probssl.objectives.gedi import GEDI
from probssl.samplers import Box
from probssl.training.loop import describe
from probssl.training.plan import TrainingPlan
from probssl.training.stacked.losses import StackedLosses, StackedViews, alike
from probssl.training.stacked.parts import StackedEncoder


class StackedGEDI(StackedLosses):
    """GEDI losses of K trials that have the same terms and the same sampler, each with weights and chains of its own.

    Data, augmentations and samples go through all networks in one pass. For layers of ReLU the slope of log p(x) in x
    is one more pass backwards, ∇ log p = Jᵀ U p(y | x)/τ − x/s², so that chains move on without automatic
    differentiation. Every trial draws what it would draw alone, from the seed that torch's random state would have.
    """

    @staticmethod
    def fits(objective: Objective) -> bool:
        """Whether an objective is one of these: GEDI of data and its augmentation, with a plain head and nothing to
        remember but its chains."""
        if type(objective) is not GEDI or objective.learns_prior:
            return False
        return objective.pair == "original" and _plain(objective.head)

    def __init__(
        self,
        objectives: Sequence[GEDI],
        encoder: StackedEncoder,
        span: slice,
        plans: Sequence[TrainingPlan],
        seeds: Sequence[int],
    ) -> None:
        super().__init__(objectives, encoder, span)
        first = objectives[0]
        self.names = tuple(first.weights)
        self.own_weights = [own.weights for own in objectives]
        self.plans, self.step = plans, 0
        self.buffers = [own.buffer for own in objectives if own.buffer is not None]
        self.random = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.sampler = first.sampler
        self.temperature, self.base_scale = first.head.temperature, first.base_scale
        self.weights = self._weights()

    def __call__(self, views: StackedViews, embedded: dict[int, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        encoder = self.encoder.of(self.span)
        first, second = views.inputs[:2]
        inputs = [first]
        if "invariance" in self.names:
            inputs.append(second)
        if self.buffers:
            inputs.append(self._samples(encoder, first.shape[1]) if torch.is_grad_enabled() else first)
        z = encoder(torch.cat(inputs, 1))  # [K, m, rows]
        logits = list((torch.bmm(self._centres, z) / self.temperature).mT.split(first.shape[1], 1))
        log_p = logits[0].log_softmax(-1)  # [K, n, c]
        found: dict[str, Tensor] = {}
        if self.buffers:
            of_data, of_samples = self._energies(first, logits[0]), self._energies(inputs[-1], logits[-1])
            found["generative"] = of_data.mean(1) - of_samples.mean(1)
            if "magnitude" in self.names:
                found["magnitude"] = of_data.square().mean(1) + of_samples.square().mean(1)
        if "invariance" in self.names:
            found["invariance"] = torch.vmap(invariance)(log_p, logits[1].log_softmax(-1))
        if "prior" in self.names:
            found["prior"] = torch.vmap(prior_cross_entropy)(self.stack.parameters["prior"], log_p)
        terms = [found[name] for name in self.names]
        if any(plan.initial_weights for plan in self.plans):
            self.weights = self._weights()
        total = torch.stack([term * weight for term, weight in zip(terms, self.weights, strict=True)]).sum(0)
        self.step += torch.is_grad_enabled()
        return total, tuple(term.detach() for term in terms)

    def _weights(self) -> Tensor:
        """The weight of every term of every trial at this step: [terms, K]."""
        now = [plan.weights(self.step, own) for plan, own in zip(self.plans, self.own_weights, strict=True)]
        return self.stack.values.new_tensor([[weights[name] for weights in now] for name in self.names])

    @property
    def _centres(self) -> Tensor:
        """Uᵀ of every trial: [K, c, m]."""
        return self.stack.parameters["head.weight"]

    def _energies(self, x: Tensor, logits: Tensor) -> Tensor:
        """−log p(x) up to a constant: [K, n]."""
        energies = -logits.logsumexp(-1)
        return energies if self.base_scale is None else energies + x.square().sum(-1) / (2 * self.base_scale**2)

    @torch.no_grad()
    def _samples(self, encoder: StackedEncoder, count: int) -> Tensor:
        """Chains of every trial, moved on and put back: [K, n, d]."""
        taken = [buffer.take(count, random) for buffer, random in zip(self.buffers, self.random, strict=True)]
        x = torch.stack([begun for *_, begun in taken])
        sampler, noise = self.sampler, torch.empty_like(x)
        for _ in range(sampler.steps):
            slope = self._slope(encoder, x)
            if sampler.clip is not None:
                slope = slope.clamp(-sampler.clip, sampler.clip)
            x = x.add(slope, alpha=sampler.step_size)
            if sampler.noise:
                for own, random in zip(noise, self.random, strict=True):
                    own.normal_(generator=random)
                x = x.add_(noise, alpha=sampler.noise)
            x = sampler.box.reflect(x) if isinstance(sampler.box, Box) else x
        for buffer, (chosen, renewed, _), ended in zip(self.buffers, taken, x, strict=True):
            buffer.put(chosen, renewed, ended, sampler.steps)
        return x

    def _slope(self, encoder: StackedEncoder, x: Tensor) -> Tensor:
        """∇ log p(x): [K, n, d]."""
        passed: list[Tensor] = []
        logits = torch.bmm(self._centres, encoder(x, passed=passed)) / self.temperature
        pull = torch.bmm(self._centres.mT, logits.softmax(1)) / self.temperature
        slope = encoder.pull(pull, passed).mT
        return slope if self.base_scale is None else slope - x / self.base_scale**2


def together(objective: Objective) -> tuple[Any, ...] | None:
    """What two objectives must share to have their losses computed as one; None for one that trains alone.

    GEDIs may differ in weights and in chains. Any other objective is asked by `alike`.
    """
    if not StackedGEDI.fits(objective):
        return alike(objective)
    assert isinstance(objective, GEDI)
    head = objective.head
    return (
        GEDI,
        (tuple(objective.weights), objective.base_scale, repr(objective.sampler)),
        (tuple(head.weight.shape), head.weight.requires_grad, head.temperature),
        None if objective.buffer is None else sorted(describe("", objective.buffer).items()),
    )


def _plain(head: Prototypes) -> bool:
    return type(head) is Prototypes and not head.normalise
