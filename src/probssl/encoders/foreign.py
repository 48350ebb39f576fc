"""Networks of other libraries, whose answer need not be one tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from probssl.errors import InputError
from probssl.parts.part import Context

TRIED = 1_000
"""Rows of a mixed table that a network is tried on."""


class OneTensor(nn.Module):
    """A network of transformers or the like as an encoder: its pooled output, else the mean of its hidden states."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return one_tensor(self.network(x))


def one_tensor(answer: Any) -> Any:
    """`pooler_output` [n, dim], or `last_hidden_state` [n, tokens, dim] in the mean over tokens, or as it is."""
    pooled = getattr(answer, "pooler_output", None)
    if isinstance(pooled, Tensor):
        return pooled.flatten(1)
    hidden = getattr(answer, "last_hidden_state", None)
    return hidden.mean(1) if isinstance(hidden, Tensor) else answer


@torch.no_grad()
def as_encoder(network: nn.Module, context: Context) -> nn.Module:
    """The network itself where it gives a tensor, else wrapped so that it does; one that gaps break is refused."""
    mixed = context.sample is not None and context.layout is not None and not context.layout.plain
    was = network.training
    try:
        answer = network.eval()(torch.zeros(2, *context.need("shape")))
        of_sample = one_tensor(network(context.sample[:TRIED])) if mixed and context.sample is not None else None
    except (RuntimeError, ValueError, TypeError):
        return network  # what does not take observations is told so by whoever asks for its size
    finally:
        network.train(was)
    if isinstance(of_sample, Tensor) and not bool(of_sample.isfinite().all()):
        raise InputError(
            f"the network {type(network).__name__} makes numbers that are not finite of rows with gaps: put "
            "probssl.encoders.Indicators(layout) first, which makes numbers of levels and gaps"
        )
    return network if isinstance(answer, Tensor) else OneTensor(network)
