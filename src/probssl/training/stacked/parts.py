"""Parts of a stack: K sets of parameters in one matrix, K optimisers in one, K encoders in one."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders import WithHead
from probssl.training.plan import TrainingPlan


class ParameterStack:
    """The trainable parameters of K modules of one shape: a matrix [K, P], and views of it [K, ...] by name.

    The views are what autograd sees, the matrix is what the optimiser updates. Parameters that are not trained are
    stacked too (`fixed`), since their values may differ.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules = modules
        named = [dict(module.named_parameters()) for module in modules]
        trained = [name for name, parameter in named[0].items() if parameter.requires_grad]
        self.fixed = {
            name: torch.stack([own[name].detach() for own in named]) for name in named[0] if name not in trained
        }
        self.shapes = {name: named[0][name].shape for name in trained}
        rows = [[own[name].detach().flatten() for name in trained] for own in named]
        self.values = torch.stack([torch.cat(row) for row in rows]) if trained else torch.empty(len(modules), 0)
        ends = list(itertools.accumulate(shape.numel() for shape in self.shapes.values()))
        self.leaves = {
            name: self.values[:, end - shape.numel() : end].view(-1, *shape).requires_grad_()
            for (name, shape), end in zip(self.shapes.items(), ends, strict=True)
        }

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Every parameter by name, [K, ...]."""
        return {**self.leaves, **self.fixed}

    @torch.no_grad()
    def unstack(self) -> None:
        """Write the values back into the modules."""
        for name, leaf in self.leaves.items():
            for module, value in zip(self.modules, leaf, strict=True):
                module.get_parameter(name).copy_(value)

    def gather(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """Gradients of the leaves, in their order, as one matrix [K, P]; what a loss does not depend on gets zeros."""
        parts = [
            torch.zeros_like(leaf) if gradient is None else gradient
            for leaf, gradient in zip(self.leaves.values(), gradients, strict=True)
        ]
        return torch.cat([part.reshape(len(part), -1) for part in parts], 1)


class StackOptimiser:
    """Adam, AdamW or SGD as torch has them, for K rows of a matrix [K, P], each with its own rates."""

    def __init__(self, values: Tensor, plans: Sequence[TrainingPlan], rates: Sequence[float]) -> None:
        self.values = values
        self.kind = plans[0].optimiser
        self.rates = torch.tensor(rates, dtype=torch.float64)[:, None]
        self.decay = values.new_tensor([plan.weight_decay for plan in plans])[:, None]
        self.momentum = values.new_tensor([plan.momentum for plan in plans])[:, None]
        self.decays = bool((self.decay > 0).any())
        self.first = torch.zeros_like(values)  # mean of gradients, or the momentum of SGD
        self.second = torch.zeros_like(values)  # mean of squared gradients
        self.steps = 0

    @torch.no_grad()
    def step(self, gradient: Tensor, factors: Tensor, alive: Tensor | None) -> None:
        """One update with learning rates times `factors` [K, 1]; rows that are not `alive` [K, 1] stay as they are."""
        self.steps += 1
        rate = (self.rates * factors).to(self.values.dtype)
        if self.decays and self.kind == "adamw":
            shrink = 1 - rate * self.decay
            self.values.mul_(shrink if alive is None else torch.where(alive, shrink, torch.ones_like(shrink)))
        elif self.decays:
            gradient = torch.addcmul(gradient, self.values, self.decay)
        if self.kind == "sgd":
            self.first.mul_(self.momentum).add_(gradient)
            change = self.first * rate
        else:
            self.first.lerp_(gradient, 0.1)
            self.second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            scale = self.second.sqrt().div_(math.sqrt(1 - 0.999**self.steps)).add_(1e-8)
            change = self.first.div(scale).mul_(rate / (1 - 0.9**self.steps))
        self.values.sub_(change if alive is None else change.where(alive, change.new_zeros(())))


Layer = tuple[str, str | None, bool]  # names of weight and bias, and whether ReLU follows


def layers_of(encoder: nn.Module, prefix: str = "") -> list[Layer] | None:
    """The linear layers of an encoder made of nothing but these and ReLU between them; None for any other."""
    if isinstance(encoder, WithHead):
        parts = [layers_of(part, f"{prefix}{name}.") for name, part in encoder.named_children()]
        return None if any(part is None for part in parts) else [layer for part in parts if part for layer in part]
    if type(encoder) is nn.Linear:
        return [(f"{prefix}weight", None if encoder.bias is None else f"{prefix}bias", False)]
    if type(encoder).forward is not nn.Sequential.forward:
        return None
    layers: list[Layer] = []
    for name, part in encoder.named_children():
        if type(part) is nn.ReLU and layers:
            weight, bias, _ = layers[-1]
            layers[-1] = weight, bias, True
        elif (inner := layers_of(part, f"{prefix}{name}.")) is not None:
            layers += inner
        else:
            return None
    return layers


class StackedEncoder:
    """K encoders of linear layers and ReLU as batched matrix products.

    Within, the numbers of a feature stand side by side, [K, features, rows]: products with few columns are slower than
    those with few rows.
    """

    def __init__(self, encoders: Sequence[nn.Module]) -> None:
        self.stack = ParameterStack(encoders)
        self.parameters = self.stack.parameters
        layers = layers_of(encoders[0])
        assert layers is not None
        self.layers = layers
        template = encoders[0]
        backbone = layers_of(template.backbone) if isinstance(template, WithHead) else layers
        self.depth = len(backbone or [])  # layers up to the representation

    def of(self, span: slice) -> StackedEncoder:
        """Some of the encoders, sharing parameters with all of them."""
        some = copy.copy(self)
        some.parameters = {name: value[span] for name, value in self.parameters.items()}
        return some

    def __call__(self, x: Tensor, *, layers: int | None = None, signs: list[Tensor] | None = None) -> Tensor:
        """Embeddings [K, m, rows] of x [K, rows, d]; `signs` collects where each ReLU passes, as zeros and ones."""
        return self.advance(x.mT, self.layers[:layers], signs)

    def advance(self, h: Tensor, layers: Sequence[Layer], signs: list[Tensor] | None = None) -> Tensor:
        """h [K, features, rows] through some of the layers."""
        for weight, bias, rectified in layers:
            if bias is None:
                h = torch.bmm(self.parameters[weight], h)
            else:
                h = torch.baddbmm(self.parameters[bias].unsqueeze(-1), self.parameters[weight], h)
            if rectified:
                h = h.relu_()
                if signs is not None:
                    signs.append(h.detach().sign())
        return h

    def push(self, tangent: Tensor, signs: list[Tensor]) -> Tensor:
        """J·tangent: how embeddings move as inputs move by `tangent` [K, d, rows], at the inputs that gave `signs`."""
        passed = iter(signs)
        for weight, _, rectified in self.layers:
            tangent = torch.bmm(self.parameters[weight], tangent)
            if rectified:
                tangent = tangent * next(passed)
        return tangent

    @torch.no_grad()
    def pull(self, cotangent: Tensor, signs: list[Tensor]) -> Tensor:
        """Jᵀ·cotangent: the slope in the inputs of ⟨cotangent, embeddings⟩, [K, d, rows]."""
        passed = iter(reversed(signs))
        for weight, _, rectified in reversed(self.layers):
            if rectified:
                cotangent = cotangent * next(passed)
            cotangent = torch.bmm(self.parameters[weight].mT, cotangent)
        return cotangent


class KnownEmbeddings(nn.Module):
    """One encoder of a stack as an objective sees it: embeddings of a batch are there already, others are computed."""

    def __init__(
        self, layers: Sequence[Layer], weights: dict[str, Tensor], known: Sequence[tuple[Tensor, Tensor]]
    ) -> None:
        super().__init__()
        self.layers, self.weights, self.known = layers, weights, known
        self.asked: set[int] = set()  # which of the known ones were
        self.computed = False

    def forward(self, x: Tensor) -> Tensor:
        for number, (given, embedding) in enumerate(self.known):
            if x is given:
                self.asked.add(number)
                return embedding
        self.computed = True
        for weight, bias, rectified in self.layers:
            x = F.linear(x, self.weights[weight], None if bias is None else self.weights[bias])
            x = F.relu(x) if rectified else x
        return x
