"""What `gedi/ood` measures of a model: how well each of three scores tells its test images from other images."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from probssl.metrics.outliers import detection
from probssl.model.density import scores_of
from probssl.studies import gedi_models as models
from probssl.studies.base import Config, Result
from probssl.studies.gedi_models import TrainedModel, floats, images_of

NOISE, CONSTANT = "uniform noise", "one colour"
MADE = (NOISE, CONSTANT)
"""Images that are made up, beside those of other sets."""


def outside_of(name: str, shape: tuple[int, ...], count: int) -> Tensor:
    """The first test images of a set, or made-up ones, in the shape of the set trained on: [count, *shape].

    Images of another size get a margin of zeros, or lose theirs; grey becomes three equal channels, and colours become
    their mean where the model sees one channel.
    """
    if name == NOISE:
        return torch.rand(count, *shape, generator=torch.Generator().manual_seed(50_000))
    if name == CONSTANT:
        colours = torch.rand(count, shape[0], 1, 1, generator=torch.Generator().manual_seed(50_001))
        return colours.expand(count, *shape).contiguous()
    x = floats(images_of(name).test_images[:count])
    channels, height, width = shape
    if x.shape[1] != channels:
        x = x.mean(1, keepdim=True).expand(-1, channels, -1, -1)
    down, across = height - x.shape[2], width - x.shape[3]
    return F.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2)).contiguous()


def trial(config: Config, code: str) -> Result:
    """Train a model, or find it, and compare scores of its test images with those of every set outside."""
    model = models.trained(config["model"], code)
    found = images_of(config["model"]["data"])
    inside = scores(model, floats(found.test_images[: config["test"]]))
    result: Result = {}
    for name in config["outside"]:
        other = scores(model, outside_of(name, found.shape, config["test"]))
        result[name] = {score: detection(inside[score], other[score]).as_dict() for score in inside}
    return {"detections": result, "loss": model.loss}


def scores(model: TrainedModel, x: Tensor) -> dict[str, np.ndarray]:
    """Every score of `probssl.model.density.SCORES` for images x, [n] each."""
    return scores_of(model.log_density, model.log_probabilities, x, at_once=models.AT_ONCE)
