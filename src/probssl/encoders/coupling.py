"""Layers in which the rows of a batch meet, so that the embedding of one row depends on the others."""

from __future__ import annotations

from torch import nn


def sees_batch(layer: nn.Module) -> bool:
    """Whether this is a kind of layer in which rows may meet: batch normalisation, or one that says `whole_batch`."""
    return isinstance(layer, nn.modules.batchnorm._BatchNorm) or bool(getattr(layer, "whole_batch", False))


def rows_meet(layer: nn.Module) -> bool:
    """Whether rows meet in this layer as it is now.

    In evaluation mode they do not, but for batch normalisation without running averages, which has no other statistics
    than those of the batch.
    """
    if not sees_batch(layer):
        return False
    return layer.training or (isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.running_mean is None)
