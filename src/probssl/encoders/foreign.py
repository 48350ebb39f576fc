"""Networks of other libraries, whose answer need not be one tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


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
def as_encoder(network: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """The network itself where it gives a tensor, else wrapped so that it does."""
    was = network.training
    try:
        answer = network.eval()(torch.zeros(2, *shape))
    except (RuntimeError, ValueError, TypeError):
        return network  # what does not take observations is told so by whoever asks for its size
    finally:
        network.train(was)
    return network if isinstance(answer, Tensor) else OneTensor(network)
