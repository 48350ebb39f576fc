"""Steps of stacked trials in compiled code (`kernels/mlp_steps.c`), for the trainings that grids are made of.

That is: encoders of linear layers and ReLU, mask-and-noise augmentations, single precision, positives (x, x̃), and one
of the losses in `form_of` with the Euclidean or the cosine energy. Everything else goes through torch
(`losses.py`).
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from probssl import kernels
from probssl.energies import Cosine, Energy, Euclidean
from probssl.objectives.base import Objective
from probssl.objectives.contrast import Spectral
from probssl.objectives.fisher import Fisher
from probssl.objectives.infonce import InfoNCE
from probssl.objectives.normalised import NCE, SNL, Biased, BiasNetwork
from probssl.pairings.masking import MaskAndNoise
from probssl.pairings.views import Pairing
from probssl.training.stacked.parts import Dense, ParameterStack, layers_of

LOSSES = ("infonce", "nce", "snl", "simclr", "spectral", "fisher")  # as in mlp_steps.c
ENERGIES = (Euclidean, Cosine)
TERMS = {
    "infonce": ("alignment", "log_normaliser"),
    "nce": ("positive", "negative"),
    "snl": ("alignment", "bias", "normaliser"),
    "simclr": ("alignment", "log_normaliser"),
    "spectral": ("alignment", "uniformity"),
    "fisher": ("fisher",),
}
MOST_LAYERS, MOST_DIMENSIONS = 8, 188
WIDEST = {"SSE": 96, "NEON": 96}
"""The widest layer for vectors of four numbers: a step of wider ones is matrix products, at which torch is as fast."""


@dataclass(frozen=True)
class Form:
    """An objective as compiled code knows it, but for its temperature and parameters."""

    loss: str
    energy: type[Energy]
    prior: float | None = None
    hidden: int = 0  # units of the bias network


def form_of(objective: Objective) -> Form | None:
    """The form of an objective; None for one that compiled code does not know."""
    energy, kind = type(objective.energy), type(objective)
    if objective.weights or energy not in ENERGIES or getattr(objective, "pair", "original") != "original":
        return None
    if isinstance(objective, InfoNCE) and kind.terms is InfoNCE.terms:
        if objective.candidates == "two-view":
            return Form("simclr", energy)
        usual = (objective.candidates, objective.anchor, objective.group_size) == ("batch", "augmented", None)
        return Form("infonce", energy) if usual else None
    if isinstance(objective, Biased) and kind in (NCE, SNL):
        hidden = _plain_bias(objective.bias)
        prior = objective.prior if isinstance(objective, NCE) else None
        return None if hidden is None else Form("nce" if kind is NCE else "snl", energy, prior, hidden)
    if kind is Spectral:
        return Form("spectral", energy)
    return (
        Form("fisher", energy) if isinstance(objective, Fisher) and kind is Fisher and objective.step is None else None
    )


def _plain_bias(bias: nn.Module) -> int | None:
    """Hidden units of the bias network that compiled code knows: batch normalisation with its defaults, all trained."""
    if type(bias) is not BiasNetwork or not isinstance(bias.norm, nn.BatchNorm1d):
        return None
    norm = bias.norm
    usual = norm.affine and norm.eps == 1e-5 and not norm.track_running_stats
    return bias.inner.out_features if usual and all(p.requires_grad for p in bias.parameters()) else None


def suits(encoder: nn.Module, objective: Objective, pairing: Pairing, data: Tensor) -> bool:
    """Whether a trial can be stepped by compiled code here."""
    layers = _plain_layers(encoder)
    parameters = list(encoder.parameters())
    return (
        0 < len(layers) <= MOST_LAYERS
        and all(layer.bias is not None for layer in layers)
        and [layer.rectified for layer in layers] == [True] * (len(layers) - 1) + [False]
        and all(p.requires_grad and p.dtype == torch.float32 for p in [*parameters, *objective.parameters()])
        and data.dtype == torch.float32
        and parameters[-1].shape[0] <= MOST_DIMENSIONS
        and type(pairing) is MaskAndNoise
        and form_of(objective) is not None
        and kernels.variant() is not None
        and max(size for p in parameters for size in p.shape) <= WIDEST.get(str(kernels.variant()), math.inf)
    )


def _plain_layers(encoder: nn.Module) -> list[Dense]:
    """The layers of an encoder that is a chain of linear ones; none for any other."""
    layers = layers_of(encoder) or ()
    dense = [layer for layer in layers if isinstance(layer, Dense)]
    return dense if len(dense) == len(layers) else []


class CompiledLosses:
    """Losses and gradients of neighbouring trials whose objectives have one form; their temperatures may differ."""

    def __init__(self, objectives: Sequence[Objective], encoder: nn.Module, span: slice) -> None:
        form = form_of(objectives[0])
        assert form is not None
        self.form, self.span, self.names = form, span, TERMS[form.loss]
        self.stack = ParameterStack(objectives)
        self.gradient = torch.empty_like(self.stack.values)
        scales = [_scale(objective) for objective in objectives]
        self.scales = torch.tensor(scales, dtype=torch.float32)
        shapes = [encoder.get_parameter(layer.weight).shape for layer in _plain_layers(encoder)]
        self.sizes = (ctypes.c_int * (len(shapes) + 1))(shapes[0][1], *(shape[0] for shape in shapes))

    def __call__(
        self,
        table: Tensor,
        index: Tensor,
        stream_of: Tensor,
        draws: Sequence[Tensor],
        settings: Sequence[Tensor],
        values: Tensor,
        gradient: Tensor,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Losses [K] and terms, each [K]; writes the gradients of encoders, rows of `gradient`, and of objectives.

        index [K, n] into the table; draws are noise and chance [streams, n, d], of which stream_of [K] says each
        trial's; settings are preservation and noise [K, d]. All are those of the whole stack.
        """
        span, models = self.span, self.span.stop - self.span.start
        rows = index.shape[1]
        terms = torch.empty(models, 3, dtype=torch.float64)
        own = [t[span] for t in (index, stream_of)]
        tensors = [table, *own, *draws, *(t[span] for t in (*settings, values)), self.stack.values]
        tensors += [gradient[span], self.gradient, terms]
        assert all(tensor.is_contiguous() for tensor in tensors)
        loaded = kernels.library()
        assert loaded is not None
        failed = loaded.mlp_steps(
            models,
            rows,
            len(self.sizes) - 1,
            self.sizes,
            LOSSES.index(self.form.loss),
            ENERGIES.index(self.form.energy),
            self.scales.data_ptr(),
            1 / rows if self.form.prior is None else self.form.prior,
            self.form.hidden,
            *(tensor.data_ptr() for tensor in tensors),
        )
        if failed:
            raise MemoryError("there is too little memory for a step")
        columns = tuple(terms[:, : len(self.names)].unbind(1))
        return functools.reduce(torch.add, columns), columns


def _scale(objective: Objective) -> float:
    """The temperature, or the squared radius of the spectral loss; 1 where there is none."""
    if isinstance(objective, Spectral):
        return objective.squared_radius
    return objective.energy.temperature if isinstance(objective.energy, Cosine) else 1.0
