"""How models with a decoder should begin: the variance of posteriors, and the scale of weights   (docs/objectives.md).

The perceptrons of `simvae/content` on binary MNIST, trained on the first 50,000 images; the loss at the end, and the
share of 5,000 other training images whose digit ten neighbours among 20,000 know. No test image is looked at.
Some two minutes, five with 600 steps:

    OMP_NUM_THREADS=1 python benchmarks/generative_start.py --steps 600 --out benchmarks/results/generative_start.json
"""

from __future__ import annotations

import argparse
import json
import math

import torch
from running import begin, keep
from torch import nn

from probssl.encoders import encode, seeded
from probssl.metrics.probes import knn_probe
from probssl.objectives import GenerativeObjective
from probssl.studies import simvae_models
from probssl.studies.simvae_content import SCALES

VARIANCES = (1.0, 0.1, 0.02, 0.01, 0.005)
FITTED, JUDGED = slice(0, 20_000), slice(50_000, 55_000)


def with_torch_weights(module: nn.Module, seed: int) -> None:
    """Draw linear layers anew, as torch does."""

    def draw() -> nn.Module:
        for layer in module.modules():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
        return module

    seeded(seed, draw)


def measure(method: str, steps: int, rate: float, variance: float | None, weights: str) -> dict[str, object]:
    """Train one model and look at what it knows."""
    config = simvae_models.model_config("mnist", method, 0, SCALES["laptop"], steps=steps, rate=rate)
    encoder, objective = simvae_models.build(config)
    assert objective is not None
    if weights == "torch":
        with_torch_weights(encoder, 0)
    if isinstance(objective, GenerativeObjective):
        if weights == "torch":
            with_torch_weights(objective.decoder, 1)
        last = objective.log_variance[-1]
        assert isinstance(last, nn.Linear)
        if variance is not None:
            nn.init.constant_(last.bias, math.log(variance))
    loss = simvae_models.train(config, encoder, objective)
    found = simvae_models.images_of("mnist")
    assert found.train_labels is not None
    z, judged = (
        encode(encoder, simvae_models.pixels("mnist", found.train_images[rows])).numpy() for rows in (FITTED, JUDGED)
    )
    known = knn_probe(judged, found.train_labels[JUDGED], neighbours=10, fitted_on=(z, found.train_labels[FITTED]))
    return {"method": method, "rate": rate, "variance": variance, "weights": weights, "loss": loss, "k-NN": known.mean}


def main() -> None:
    """Both comparisons, a line each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    options = begin(parser)
    torch.set_num_threads(1)
    grid = [("VAE", 2e-3, variance, "he") for variance in VARIANCES]
    grid += [(method, 3e-3, None, weights) for method in ("VAE", "SimVAE", "SimCLR") for weights in ("torch", "he")]
    rows = []
    for method, rate, variance, weights in grid:
        rows.append(measure(method, options.steps, rate, variance, weights))
        print(json.dumps(rows[-1], ensure_ascii=False))
        keep(options.out, {"steps": options.steps, "rows": rows})


if __name__ == "__main__":
    main()
