"""What a trial of the scaling and mismatch studies is: isotropic worlds, and marginals that differ in training."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from probssl.encoders import encode
from probssl.energies import Cosine
from probssl.metrics import linear_r2
from probssl.objectives import InfoNCE
from probssl.studies import recovery
from probssl.studies.base import Config, Result
from probssl.worlds import Around, Marginal, Sphere, Uniform, VonMisesFisher, World
from probssl.worlds.marginals import opposite

ROWS = 4_000
BINS = 80


def scaling(config: Config) -> Result:
    """R² after a number of steps, and how far positives and negatives overlap in cosine similarity."""
    sphere = Sphere(config["dim"])
    conditional = VonMisesFisher(sphere, config["concentration"])
    world = World(Uniform(sphere), conditional, recovery.mixing(config["dim"], config["seed"]))
    found = train(world, config)
    generator = torch.Generator().manual_seed(config["seed"])
    z = world.marginal.sample(ROWS, generator)
    positives = (z * conditional.sample(z, generator)).sum(1)
    negatives = (z * world.marginal.sample(ROWS, generator)).sum(1)
    edges = np.linspace(-1, 1, BINS + 1)
    found["positives"], found["negatives"] = (
        np.histogram(cosines.numpy(), edges, density=True)[0].tolist() for cosines in (positives, negatives)
    )
    return found


def train(world: World, config: Config) -> Result:
    """InfoNCE at the world's own concentration, with negatives from the marginal."""
    encoder = recovery.encoder_for(world, config["hidden"], sphere=True, seed=config["seed"])
    loss = InfoNCE(Cosine(1 / config["concentration"]), candidates="originals")
    plan = recovery.plan(config["steps"], config["batch"], config["rate"])
    found = recovery.recover(world, encoder, loss, plan, seed=config["seed"])
    if "marginal" in config:
        found.update(elsewhere(world, encoder, config["seed"]))
    return found


def mismatch(config: Config) -> Result:
    """Trained where the marginal has its pole, tested at the antipode."""
    sphere = Sphere(config["dim"])
    marginal: Marginal = Around(VonMisesFisher(sphere, config["marginal"]))
    conditional = VonMisesFisher(sphere, config["concentration"])
    return train(World(marginal, conditional, recovery.mixing(config["dim"], config["seed"])), config)


def elsewhere(world: World, encoder: torch.nn.Module, seed: int) -> Result:
    """R² at the antipode, by an affine map fitted there and by the one fitted at home; and can the two be told apart?

    The classifier sees observations of both marginals and is judged by others.
    """
    assert isinstance(world.marginal, Around)
    away = World(opposite(world.marginal), list(world.conditionals), world.mixing)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(40_000 + seed)
    home, home_test, there, there_test = (place.observe(ROWS, generator) for place in (world, world, away, away))

    def score(fit: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> float:
        (x, z), (x_test, z_test) = fit, test
        codes, test_codes = encode(encoder, x).numpy(), encode(encoder, x_test).numpy()
        return linear_r2(codes, z.numpy(), test=(test_codes, z_test.numpy())).mean

    classifier = MLPClassifier((64,), max_iter=40, early_stopping=True, random_state=seed)
    labels = np.repeat([0, 1], ROWS)
    classifier.fit(np.concatenate([home[0], there[0]]), labels)
    accuracy = classifier.score(np.concatenate([home_test[0], there_test[0]]), labels)
    return {
        "at home": score(home, home_test),
        "away": score(there, there_test),
        "carried away": score(home, there_test),
        "accuracy": float(accuracy),
    }
