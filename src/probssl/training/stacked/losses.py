"""The objectives of a stack: trials that differ in parameters only have their losses computed as one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from probssl.encoders import Expansion
from probssl.energies import Asymmetric, Energy
from probssl.objectives.base import Objective
from probssl.objectives.fisher import Fisher
from probssl.pairings.views import Needs, Views
from probssl.training.loop import describe, plain
from probssl.training.stacked.parts import KnownEmbeddings, ParameterStack, StackedEncoder


def alike(objective: Objective) -> tuple[Any, ...] | None:
    """What two objectives must share to be stacked; None for one that cannot be, as it has memory or hidden parts."""
    expansions = []
    for part in objective.modules():
        if isinstance(part, Expansion):
            expansions.append(part.stack_key())
            continue
        if next(part.buffers(recurse=False), None) is not None:
            return None
        public = {name: value for name, value in vars(part).items() if name[0] != "_" and name != "training"}
        if not type(part).__module__.startswith("torch.") and not all(
            plain(value) or isinstance(value, Needs) for value in public.values()
        ):
            return None
    shapes = tuple((name, tuple(p.shape), p.requires_grad) for name, p in objective.named_parameters())
    settings = tuple(sorted(describe("", objective).items()))
    return type(objective), repr(objective.needs), settings, shapes, tuple(expansions)


class StackedViews:
    """A batch for each of K models: x [K, n, d], its J related observations, and what else objectives asked for."""

    def __init__(
        self,
        inputs: Sequence[Tensor],
        score: Tensor | None = None,
        directions: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> None:
        self.inputs = inputs  # x, x̃₁, …, x̃_J
        self.score = score  # [K, J, n, d]
        self.directions = directions  # [K, D, n, d]
        self.noise = noise  # [K, 1 + J, n, m]


class StackedLosses:
    """The losses of K neighbouring trials with the same kind of objective, through `torch.vmap` of that objective."""

    def __init__(self, objectives: Sequence[Objective], encoder: StackedEncoder, span: slice) -> None:
        self.template = copy.deepcopy(objectives[0])
        self.needs = objectives[0].needs
        self.stack = ParameterStack(objectives)
        self.encoder = encoder
        self.span = span
        self.encoded: set[int] = set()  # which of the views it takes embeddings of
        self.encodes_more = True  # whether it also encodes what is not among the views
        self.names: tuple[str, ...] = ()
        self._each = torch.vmap(self._one)

    def _one(self, given: dict[str, Any]) -> tuple[Tensor, ...]:
        """Total and terms of one model."""
        inputs, embedded = given["inputs"], given["embedded"]
        known = [(inputs[number], embedded[number]) for number in embedded]
        encoder = KnownEmbeddings(self.encoder, given.get("weights", {}), known)
        extra = {name: given.get(name) for name in ("score", "directions", "noise")}
        views = Views(inputs[0], inputs[1:], **extra)
        if given["parameters"]:
            terms = functional_call(self.template, given["parameters"], (encoder, views))
        else:
            terms = self.template(encoder, views)
        self.encoded = {list(embedded)[number] for number in encoder.asked}
        self.encodes_more = encoder.computed
        self.names = tuple(terms)
        return terms.total, *terms.values()

    def __call__(self, views: StackedViews, embedded: dict[int, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Losses [K] and terms, each [K], from the views of these trials and their embeddings [K, n, m]."""
        given: dict[str, Any] = {
            "parameters": self.stack.parameters,
            "inputs": list(views.inputs),
            "embedded": embedded,
        }
        if self.encodes_more:
            given["weights"] = {name: value[self.span] for name, value in self.encoder.parameters.items()}
        for name in ("score", "directions", "noise"):
            if getattr(views, name) is not None:
                given[name] = getattr(views, name)
        total, *terms = self._each(given)
        return total, tuple(terms)


class StackedFisher(StackedLosses):
    """Fisher losses of K trials with a gradient in closed form, where a double backward pass would cost twice as much.

    With v = ∂δ/∂ψ(x) and u = ∇ₓ log p + Jᵀv, the gradient of ‖u‖² in the parameters is 2 ∂θ⟨v, Ju⟩ for u held fixed
    (see `Fisher`), and for layers of ReLU the directional derivative Ju is one more pass through the same layers.
    """

    @staticmethod
    def fits(objective: Objective) -> bool:
        """Whether an objective is one of these."""
        return type(objective) is Fisher and objective.step is None and not isinstance(objective.energy, Asymmetric)

    def __init__(self, objectives: Sequence[Objective], encoder: StackedEncoder, span: slice) -> None:
        super().__init__(objectives, encoder, span)
        self.names = ("fisher",)
        self._energies = torch.vmap(self._energy)

    def _energy(self, parameters: dict[str, Tensor], a: Tensor, b: Tensor) -> Tensor:
        own = {name.removeprefix("energy."): value for name, value in parameters.items()}
        energy = self.template.energy
        return functional_call(_Paired(energy), {f"energy.{name}": value for name, value in own.items()}, (a, b))

    def __call__(self, views: StackedViews, embedded: dict[int, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        assert views.score is not None
        x, x_aug = views.inputs[:2]
        encoder, rows = self.encoder.of(self.span), x.shape[1]
        passed: list[Tensor] = []
        both = encoder(torch.cat([x, x_aug], 1), passed=passed).mT  # [K, 2n, m]
        here = [part[..., :rows] for part in passed]
        with torch.enable_grad():
            a, b = (half if half.requires_grad else half.detach().requires_grad_() for half in both.split(rows, 1))
            energies = self._energies(self.stack.parameters, a, b)
            (pull,) = torch.autograd.grad(energies.sum(), a, create_graph=True)  # [K, n, m]
        residual = views.score[:, 0].mT + encoder.pull(pull.detach().mT, here)  # [K, d, n]
        value = residual.square().sum((1, 2)) / rows
        if not torch.is_grad_enabled():
            return value, (value,)
        along = 2 / rows * (pull.mT * encoder.push(residual, here)).sum((1, 2))
        value = value + along - along.detach()
        return value, (value.detach(),)


class _Paired(nn.Module):
    """An energy of matching rows as a module's forward, which is what functional calls take."""

    def __init__(self, energy: Energy) -> None:
        super().__init__()
        self.energy = energy

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.energy.paired(a, b)
