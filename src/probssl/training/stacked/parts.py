"""Parts of a stack: K sets of parameters in one matrix, K optimisers in one, K encoders in one."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders import Branches, Expansion, WithHead
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


@dataclass(frozen=True)
class Dense:
    """A linear layer: names of weight and bias, and whether ReLU follows."""

    weight: str
    bias: str | None
    rectified: bool = False


@dataclass(frozen=True)
class Sum:
    """Branches that see the same input, and whose outputs are added."""

    branches: tuple[tuple[Layer, ...], ...]


@dataclass(frozen=True)
class Fixed:
    """An `Expansion` of the observations: its name, and what all encoders of a stack have in common."""

    name: str
    key: Hashable


Layer = Dense | Sum | Fixed


def layers_of(encoder: nn.Module, prefix: str = "", *, first: bool = True) -> tuple[Layer, ...] | None:
    """The layers of an encoder made of linear maps, ReLU between them, sums of branches, and an `Expansion` of what
    it observes (`first`); None for any other."""
    if isinstance(encoder, Expansion):
        fixed = first and next(encoder.parameters(), None) is None
        return (Fixed(prefix.removesuffix("."), encoder.stack_key()),) if fixed else None
    if type(encoder) is nn.Linear:
        return (Dense(f"{prefix}weight", None if encoder.bias is None else f"{prefix}bias"),)
    if isinstance(encoder, Branches):
        found = [layers_of(part, f"{prefix}{name}.", first=first) for name, part in encoder.named_children()]
        branches = tuple(branch for branch in found if branch is not None)
        return (Sum(branches),) if len(branches) == len(found) > 0 else None
    if not isinstance(encoder, WithHead) and type(encoder).forward is not nn.Sequential.forward:
        return None
    layers: tuple[Layer, ...] = ()
    for name, part in encoder.named_children():
        if type(part) is nn.ReLU and layers and isinstance(layers[-1], Dense):
            layers = *layers[:-1], dataclasses.replace(layers[-1], rectified=True)
        elif (inner := layers_of(part, f"{prefix}{name}.", first=first and not layers)) is not None:
            layers += inner
        else:
            return None
    return layers


class StackedEncoder:
    """K encoders as batched matrix products, of the layers that `layers_of` finds.

    Within, the numbers of a feature stand side by side, [K, features, rows]: products with few columns are slower than
    those with few rows.
    """

    def __init__(self, encoders: Sequence[nn.Module]) -> None:
        self.stack = ParameterStack(encoders)
        self.parameters = self.stack.parameters
        layers = layers_of(encoders[0])
        assert layers is not None
        self.layers, self.template = layers, encoders[0]
        backbone = layers_of(self.template.backbone) if isinstance(self.template, WithHead) else layers
        self.depth = len(backbone or ())  # layers up to the representation

    def of(self, span: slice) -> StackedEncoder:
        """Some of the encoders, sharing parameters with all of them."""
        some = copy.copy(self)
        some.parameters = {name: value[span] for name, value in self.parameters.items()}
        return some

    def __call__(self, x: Tensor, *, layers: int | None = None, passed: list[Tensor] | None = None) -> Tensor:
        """Embeddings [K, m, rows] of x [K, rows, d]; `passed` collects what `push` and `pull` need."""
        return self.advance(x.mT, self.layers[:layers], passed)

    def advance(self, h: Tensor, layers: Sequence[Layer], passed: list[Tensor] | None = None) -> Tensor:
        """h [K, features, rows] through some of the layers.

        `passed` collects, layer by layer, where each ReLU passes, as zeros and ones, and what an expansion is given.
        """
        for layer in layers:
            if isinstance(layer, Sum):
                h = _total(self.advance(h, branch, passed) for branch in layer.branches)
                continue
            if isinstance(layer, Fixed):
                if passed is not None:
                    passed.append(h.detach())
                h = self._expand(layer)(h)
                continue
            if layer.bias is None:
                h = torch.bmm(self.parameters[layer.weight], h)
            else:
                h = torch.baddbmm(self.parameters[layer.bias].unsqueeze(-1), self.parameters[layer.weight], h)
            if layer.rectified:
                h = h.relu_()
                if passed is not None:
                    passed.append(h.detach().sign())
        return h

    def _expand(self, layer: Fixed) -> Callable[[Tensor], Tensor]:
        """The expansion as a map of [K, d, rows]."""
        module = self.template.get_submodule(layer.name)
        return lambda h: module(h.mT.flatten(0, 1)).unflatten(0, (len(h), -1)).mT

    def push(self, tangent: Tensor, passed: Sequence[Tensor]) -> Tensor:
        """J·tangent: how embeddings move as inputs move by `tangent` [K, d, rows], at the inputs that `passed`."""
        return self._push(tangent, self.layers, iter(passed))

    def _push(self, tangent: Tensor, layers: Sequence[Layer], passed: Iterator[Tensor]) -> Tensor:
        for layer in layers:
            if isinstance(layer, Sum):
                tangent = _total(self._push(tangent, branch, passed) for branch in layer.branches)
            elif isinstance(layer, Fixed):
                expanded, pulled, *_ = torch.func.vjp(self._expand(layer), next(passed))
                (tangent,) = torch.func.vjp(pulled, torch.zeros_like(expanded))[1]((tangent,))
            else:
                tangent = torch.bmm(self.parameters[layer.weight], tangent)
                if layer.rectified:
                    tangent = tangent * next(passed)
        return tangent

    @torch.no_grad()
    def pull(self, cotangent: Tensor, passed: Sequence[Tensor]) -> Tensor:
        """Jᵀ·cotangent: the slope in the inputs of ⟨cotangent, embeddings⟩, [K, d, rows]."""
        return self._pull(cotangent, self.layers, iter(reversed(passed)))

    def _pull(self, cotangent: Tensor, layers: Sequence[Layer], passed: Iterator[Tensor]) -> Tensor:
        for layer in reversed(layers):
            if isinstance(layer, Sum):
                cotangent = _total(self._pull(cotangent, branch, passed) for branch in reversed(layer.branches))
            elif isinstance(layer, Fixed):
                (cotangent,) = torch.func.vjp(self._expand(layer), next(passed))[1](cotangent)
            else:
                if layer.rectified:
                    cotangent = cotangent * next(passed)
                cotangent = torch.bmm(self.parameters[layer.weight].mT, cotangent)
        return cotangent

    def alone(self, x: Tensor, weights: dict[str, Tensor], layers: Sequence[Layer] | None = None) -> Tensor:
        """Embeddings [rows, m] of x [rows, d] by one encoder of these weights, as `torch.vmap` computes them."""
        for layer in self.layers if layers is None else layers:
            if isinstance(layer, Sum):
                x = _total(self.alone(x, weights, branch) for branch in layer.branches)
            elif isinstance(layer, Fixed):
                x = self.template.get_submodule(layer.name)(x)
            else:
                x = F.linear(x, weights[layer.weight], None if layer.bias is None else weights[layer.bias])
                x = F.relu(x) if layer.rectified else x
        return x


def _total(parts: Iterator[Tensor]) -> Tensor:
    return functools.reduce(torch.add, parts)


class KnownEmbeddings(nn.Module):
    """One encoder of a stack as an objective sees it: embeddings of a batch are there already, others are computed."""

    def __init__(
        self, encoder: StackedEncoder, weights: dict[str, Tensor], known: Sequence[tuple[Tensor, Tensor]]
    ) -> None:
        super().__init__()
        self.encoder, self.weights, self.known = encoder, weights, known
        self.asked: set[int] = set()  # which of the known ones were
        self.computed = False

    def forward(self, x: Tensor) -> Tensor:
        for number, (given, embedding) in enumerate(self.known):
            if x is given:
                self.asked.add(number)
                return embedding
        self.computed = True
        return self.encoder.alone(x, self.weights)
