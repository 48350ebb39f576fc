"""What a trial of the hard-negatives study is: a curve of the loss at the true latents, or a training and two more."""

from __future__ import annotations

import copy

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from probssl.energies import Anisotropic
from probssl.objectives import InfoNCE
from probssl.objectives.infonce import Candidates
from probssl.pairings import Needs
from probssl.studies import recovery
from probssl.studies.base import Config, Result
from probssl.worlds import FisherBingham, Sphere, Uniform, World


def trial(config: Config) -> Result:
    """One of the two kinds."""
    return loss_curve(config) if config["setting"].startswith("Λ⁺") else fine_tuning(config)


def loss_curve(config: Config) -> Result:
    """The loss over one concentration of the model at the true latents, with all negatives hard, and where it is least.

    Theory puts the minimum at Λ⁺ − Λ⁻ (AnInfoNCE Corollary B.1). In double precision, on one large sample.
    """
    sphere = Sphere(config["dim"])
    positive, negative = config["positive"], config["negative"]
    world = World(
        Uniform(sphere),
        FisherBingham(sphere, positive),
        hard=FisherBingham(sphere, negative),
        negatives=config["negatives"],
    )
    needs = Needs(augmented=1, negatives=True)
    views = world.draw(config["anchors"], needs, torch.Generator().manual_seed(config["seed"]))
    identity = nn.Identity()

    def loss(concentration: float) -> float:
        energy = Anisotropic(concentration).bind(dim=config["dim"])
        with torch.no_grad():
            return InfoNCE(energy, candidates="given", anchor="original")(identity, views).total.item()

    grid = torch.linspace(0.2, 2.0, 19).mul(positive - negative).tolist()
    least = minimize_scalar(loss, bounds=(grid[0], grid[-1]), method="bounded", options={"xatol": 1e-3})
    return {"concentrations": grid, "losses": [loss(value) for value in grid], "least": float(least.x)}


def fine_tuning(config: Config) -> Result:
    """Train with negatives from the batch, then go on from there twice: so, and with hard negatives beside them."""
    dim, seed, batch = config["dim"], config["seed"], config["batch"]
    sphere = Sphere(dim)
    mixing = recovery.mixing(dim, seed)
    positive = FisherBingham(sphere, config["positive"])
    usual = World(Uniform(sphere), positive, mixing)
    hard = World(
        Uniform(sphere),
        positive,
        mixing,
        hard=FisherBingham(sphere, config["negative"]),
        negatives=config["negatives"],
    )
    encoder = recovery.encoder_for(usual, config["hidden"], sphere=True, seed=seed)
    rates = {"objective_lr": config["concentration rate"]}
    before = recovery.recover(
        usual,
        encoder,
        objective := _aninfonce(config["start"], "batch").bind(dim=dim),
        recovery.plan(config["steps"], batch, config["rate"], anneal="constant", **rates),
        seed=seed,
    )
    found: Result = {"before": before["r2"], "curve": before["curve"]}
    for name, world in (("usual", usual), ("hard", hard)):
        assert isinstance(objective.energy, Anisotropic)
        learnt = objective.energy.concentration.detach()
        again = _aninfonce(learnt, "batch" if name == "usual" else "batch-and-given").bind(dim=dim)
        more = recovery.plan(config["more steps"], batch, config["rate"], **rates)
        after = recovery.recover(world, copy.deepcopy(encoder), again, more, seed=seed + 1)
        found[name] = after["r2"]
        found[f"{name} curve"] = after["curve"]
    return found


def _aninfonce(start: float | Tensor, candidates: Candidates) -> InfoNCE:
    return InfoNCE(Anisotropic(start, normalise=True), candidates=candidates, anchor="original")
