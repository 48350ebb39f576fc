"""What `gedi/images` and `gedi/ood` measure of a model.

Clusters, representation and samples, and what these stand between; how well scores tell its test images from others.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders import ConvEncoder, encode, seeded
from probssl.metrics.generation import Extractor, pixel_components
from probssl.metrics.outliers import detection
from probssl.model.density import scores_of
from probssl.runs.pictures import as_bytes
from probssl.studies import gedi_models as models
from probssl.studies.base import Config, Result
from probssl.studies.gedi_models import TrainedModel, floats
from probssl.studies.image_sets import halves, images_of
from probssl.studies.pictures import as_text

CLASSIFIER = "classifier"
"""Name of the features that sets of images are compared by: those of a small network trained on the labels."""

COMPONENTS, FEATURES = 32, 32
CLASSIFIER_BATCH, CLASSIFIER_RATE = 64, 2e-3
PROBE_ITERATIONS = 200
SHOWN = 40
"""Images of a method in the figure."""

NOISE, CONSTANT = "uniform noise", "one colour"
MADE = (NOISE, CONSTANT)
"""Images that are made up, beside those of other sets."""


@functools.cache
def classifier(data: str, rows: int, steps: int) -> tuple[nn.Sequential, float]:
    """A network that tells the classes of a set apart, from the first `rows` training images, and its test accuracy.

    Two convolutions of stride 2, then three linear layers, of which the last reads 32 features. Adam with a half
    cosine, seed 0; once a process.
    """
    found = images_of(data)
    train, test = halves(found)
    x, labels = floats(train.images[:rows]), torch.from_numpy(np.array(train.labels[:rows]))
    network = seeded(
        0,
        lambda: nn.Sequential(
            ConvEncoder((16, 32), FEATURES, hidden=128).bind(shape=found.shape),
            nn.ReLU(),
            nn.Linear(FEATURES, len(found.classes)),
        ),
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=CLASSIFIER_RATE)
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        chosen = torch.randint(len(x), (CLASSIFIER_BATCH,), generator=generator)
        optimiser.param_groups[0]["lr"] = CLASSIFIER_RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(network(x[chosen]), labels[chosen]).backward()
        optimiser.step()
    predicted = encode(network, floats(test.images), batch_size=models.AT_ONCE).argmax(1)
    return network, float(np.mean(predicted.numpy() == test.labels))


@functools.cache
def extractors(data: str, rows: int, steps: int) -> tuple[Extractor, ...]:
    """The classifier's features, each with variance 1 over training images, and principal components of pixels."""
    network, _ = classifier(data, rows, steps)
    train = floats(images_of(data).train_images[:rows])
    z = encode(network[0], train).double().numpy()
    mean, deviation = z.mean(0), z.std(0) + 1e-6

    def features(images: np.ndarray) -> np.ndarray:
        return (encode(network[0], torch.from_numpy(images)).double().numpy() - mean) / deviation

    return Extractor(CLASSIFIER, features), pixel_components(train[:1_000].numpy(), COMPONENTS)


def image_trial(config: Config, model: TrainedModel) -> Result:
    """Measure a model on test images and by samples from noise."""
    chosen = config["model"]
    samples, energies = sampled(model, config["samples"], config["walk"], chosen)
    return {
        "NMI": agreement(model, chosen, config["test"]),
        "linear probe": probe(model.encoder, chosen, config["test"]),
        "distances": distances(samples.numpy(), chosen, config),
        "energies": energies,
        "samples": as_text(as_bytes(samples[:SHOWN])),
        "loss": model.loss,
    }


def reference_trial(config: Config) -> Result:
    """Without a trained model: data against data, noise against data, the classifier, probes of pixels and of a network
    as it starts."""
    chosen, count = config["untrained"], config["samples"]
    found = images_of(chosen["data"])
    noise = torch.rand(count, *found.shape, generator=torch.Generator().manual_seed(0))
    untrained, _, _ = models.build(chosen)
    return {
        "accuracy": classifier(chosen["data"], chosen["rows"], config["classifier"])[1],
        "floor": distances(floats(found.train_images[:count]).numpy(), chosen, config),
        "ceiling": distances(noise.numpy(), chosen, config),
        "untrained": probe(untrained, chosen, config["test"]),
        "pixels": probe(nn.Flatten(), chosen, config["test"]),
        "data": as_text(found.test_images[:SHOWN]),
    }


def agreement(model: TrainedModel, chosen: Config, count: int) -> float:
    """Normalised mutual information of labels and the likeliest clusters of the first `count` test images.

    Barlow Twins has no clusters: those of k-means on its standardised projection stand in.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    found = images_of(chosen["data"])
    test = halves(found)[1].first(count)
    network = nn.Sequential(model.encoder, model.head)
    logits = encode(network, floats(test.images), batch_size=models.AT_ONCE).numpy()
    clusters = logits.argmax(1)
    if chosen["method"] == "BarlowTwins":
        clusters = KMeans(len(found.classes), n_init=4, random_state=chosen["seed"]).fit_predict(logits)
    return float(normalized_mutual_info_score(test.labels, clusters))


def probe(encoder: nn.Module, chosen: Config, count: int) -> float:
    """Accuracy on `count` test images of a logistic regression of standardised representations of training images."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, test = halves(images_of(chosen["data"]))
    sides = train.first(chosen["rows"]), test.first(count)
    z, judged = (encode(encoder, floats(side.images), batch_size=models.AT_ONCE).numpy() for side in sides)
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=PROBE_ITERATIONS))
    linear.fit(z, sides[0].labels)
    return float(linear.score(judged, sides[1].labels))


def sampled(model: TrainedModel, count: int, steps: int, chosen: Config) -> tuple[Tensor, list[float]]:
    """Chains from uniform noise after `steps` steps of the training's dynamics, and their mean energy on the way."""
    generator = torch.Generator().manual_seed(40_000 + chosen["seed"])
    start = torch.rand(count, *images_of(chosen["data"]).shape, generator=generator)
    x, trace = model.sampler.traced(model.log_density, start, generator, steps=steps)
    return x, trace.energy[:: max(1, steps // 10)].tolist()


def distances(images: np.ndarray, chosen: Config, config: Config) -> dict[str, float]:
    """The Fréchet distance of images from test images, by both features."""
    real = floats(images_of(chosen["data"]).test_images[: config["test"]]).numpy()
    found = extractors(chosen["data"], chosen["rows"], config["classifier"])
    return {extractor.title: extractor.distance(images, real) for extractor in found}


# --- images from outside ----------------------------------------------------------------------------------------------


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


def ood_trial(config: Config, model: TrainedModel) -> Result:
    """Compare a model's scores of its test images with those of every set outside."""
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
