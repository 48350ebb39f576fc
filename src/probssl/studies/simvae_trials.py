"""What the SimVAE experiments measure of a model: content, style, and how well it generates."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from probssl.encoders import as_floats, encode
from probssl.metrics.clusters import gmm_probe
from probssl.metrics.generation import Extractor, pixel_components, reconstruction_error, trained_features
from probssl.metrics.probes import knn_probe, mlp_probe
from probssl.metrics.retention import adhoc_decoder, style_retention
from probssl.model.decoding import decoded, latent_prior, log_likelihood, posteriors
from probssl.runs.pictures import as_bytes, side_by_side
from probssl.studies import pictures, simvae_models
from probssl.studies.base import Config, Result
from probssl.studies.image_sets import halves
from probssl.studies.simvae_models import TrainedModel
from probssl.studies.styles import styled

NEIGHBOURS = tuple(range(1, 16))
"""Of the paper, which reports the best of them on the test images."""

METRICS = ("k-NN", "k-NN, honest k", "MLP probe", "linear probe", "GMM accuracy", "NMI", "ARI")

CLASSIFIER_ROWS = 10_000
SHOWN = 5
"""New images of a class in the figure."""

AGAIN = 10
"""Test images in the figure of reconstructions."""


def measured_on(config: Config) -> list[tuple[Tensor, np.ndarray]]:
    """Images and labels to fit on, and those to judge by, as many as the configuration says."""
    data = config["model"]["data"]
    train, test = halves(simvae_models.images_of(data))
    kept = train.first(config["fitted"]), test.first(config["test"])
    return [(simvae_models.pixels(data, half.images), half.labels) for half in kept]


def content(config: Config, model: TrainedModel) -> Result:
    """Probe a model's representations of test images."""
    (images, labels), (test, truth) = measured_on(config)
    z, judged = (encode(model.encoder, side).double().numpy() for side in (images, test))
    fitted_on = z, labels
    mixture = gmm_probe(judged, truth, protocol="published", fitted_on=fitted_on)
    network = mlp_probe(judged, truth, fitted_on=fitted_on, epochs=config["epochs"])
    linear = mlp_probe(judged, truth, hidden=0, fitted_on=fitted_on, epochs=config["epochs"])
    of_test, of_training = (
        knn_probe(judged, truth, neighbours=NEIGHBOURS, protocol=protocol, fitted_on=fitted_on)
        for protocol in ("published", "honest")
    )
    scores = (of_test, of_training, network, linear, mixture.accuracy, mixture.nmi, mixture.ari)
    return {**dict(zip(METRICS, (score.mean for score in scores), strict=True)), "loss": model.loss}


@functools.cache
def extractors(data: str, rows: int, epochs: int) -> tuple[Extractor, Extractor]:
    """Features of a classifier trained here, which stands in for Inception, and principal components of pixels."""
    train = halves(simvae_models.images_of(data))[0].first(rows)
    images = simvae_models.pixels(data, train.images)
    flat = as_floats(images[:1_000]).numpy()
    return trained_features(images, train.labels, epochs=epochs), pixel_components(flat, 32)


def generation(config: Config, model: TrainedModel) -> Result:
    """Reconstruct test images, bound their likelihood, and draw new ones class by class."""
    chosen = config["model"]
    objective, encoder = model.generative, model.encoder
    assert objective is not None
    (fitted, labels), (test, _) = measured_on(config)
    shape = tuple(test.shape[1:])
    again = decoded(objective, posteriors(objective, encoder, test)[0], shape)
    prior = latent_prior(objective, encoder, fitted, labels=torch.from_numpy(labels.copy()), seed=chosen["seed"])
    z, _ = prior.sample(config["samples"], torch.Generator().manual_seed(chosen["seed"]))
    new = decoded(objective, z, shape).clamp(0, 1)
    bound = log_likelihood(objective, encoder, test, prior=prior, samples=config["draws"])
    shown = [
        prior.sample(SHOWN, torch.Generator().manual_seed(0), component=group)[0] for group in range(len(prior.names))
    ]
    columns = torch.stack([decoded(objective, part, shape).clamp(0, 1) for part in shown], 1)
    return {
        "MSE": reconstruction_error(as_floats(test).numpy(), again.numpy()).per_value,
        "bound": float(bound.mean()),
        "distances": distances(new, test, config),
        "floor": distances(as_floats(fitted[: config["samples"]]), test, config),
        "shown": pictures.as_text(as_bytes(columns.flatten(0, 1))),
    }


def distances(images: Tensor, test: Tensor, config: Config) -> dict[str, float]:
    """The Fréchet distance of images from test images, by both features."""
    real = as_floats(test).numpy()
    rows = min(CLASSIFIER_ROWS, config["model"]["rows"])
    return {
        extractor.title: extractor.distance(images.numpy(), real)
        for extractor in extractors(config["model"]["data"], rows, config["classifier"])
    }


def style(config: Config, model: TrainedModel) -> Result:
    """Read content and every factor of style from a model's representations."""
    chosen = config["model"]
    (images, labels), (test, truth) = measured_on(config)
    z, judged = (encode(model.encoder, side).double().numpy() for side in (images, test))
    made = styled(chosen["data"])
    factors, true_factors = (
        {name: replace(factor, values=np.asarray(factor.values)[:count]) for name, factor in side.items()}
        for side, count in ((made.train, config["fitted"]), (made.test, config["test"]))
    )
    found = style_retention(judged, true_factors, fitted_on=(z, factors), epochs=config["epochs"], seed=chosen["seed"])
    content = knn_probe(judged, truth, neighbours=NEIGHBOURS, fitted_on=(z, labels))
    decoder = adhoc_decoder(model.encoder, images, held_out=test, epochs=config["decoder"], seed=chosen["seed"])
    again = side_by_side(test[:AGAIN], {"": decoder})[1]
    return {
        "content": content.mean,
        "style": {name: {"linear": part.linear, "mlp": part.mlp} for name, part in found.items()},
        "kept of the image": decoder.explained,
        "again": pictures.as_text(again),
    }
