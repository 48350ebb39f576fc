"""What a trial of the anisotropic studies is: an anisotropic world, a loss, how it is trained on, what is measured.

And of the study of hard negatives: a curve of the loss at the true latents, or a training and two that go on from it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from probssl.energies import Anisotropic, Cosine
from probssl.metrics import concentration_error, loss_gap
from probssl.objectives import Ensemble, InfoNCE, Objective, TriCL
from probssl.pairings import Needs
from probssl.studies import recovery
from probssl.studies.base import Config, Result
from probssl.worlds import (
    Conditional,
    FisherBingham,
    InvertibleMLP,
    ProjectedGaussian,
    ShellGaussian,
    Sphere,
    Uniform,
    World,
)

SAMPLERS: dict[str, Callable[[Sphere, Tensor], Conditional]] = {
    "exact": FisherBingham,
    "shell": ShellGaussian,
    "projected": ProjectedGaussian,
}
GAP_BATCHES = 16


def world(config: Config) -> World:
    """The world of a configuration: `concentrations` is one list, or several for as many conditionals."""
    sphere = Sphere(config["dim"])
    given = config["concentrations"]
    lists = given if isinstance(given[0], list) else [given]
    sampler = SAMPLERS[config.get("sampler", "exact")]
    conditionals = [sampler(sphere, torch.tensor(entry, dtype=torch.double)) for entry in lists]
    return World(Uniform(sphere), conditionals, recovery.mixing(config["dim"], config["seed"]))


def objective(config: Config) -> Objective:
    """The loss of a configuration."""
    dim, loss, start = config["dim"], config["loss"], config.get("start", 5.0)
    if loss == "InfoNCE":
        return InfoNCE(Cosine(config["temperature"]), candidates="originals")
    if loss == "AnInfoNCE":
        return aninfonce(start, dim, candidates=config.get("candidates", "originals"))
    if loss == "ensemble AnInfoNCE":
        return Ensemble([aninfonce(start, dim) for _ in config["concentrations"]]).bind(dim=dim)
    if loss in ("TriCL", "TriCL InfoNCE"):
        return TriCL(contrast="spectral" if loss == "TriCL" else "infonce").bind(dim=dim)
    raise ValueError(f"no such loss: {loss}")


def aninfonce(start: float | Sequence[float] | Tensor, dim: int, **settings: Any) -> InfoNCE:
    """InfoNCE that learns its concentrations, from where they start."""
    return InfoNCE(Anisotropic(start, normalise=True), **{"candidates": "originals", **settings}).bind(dim=dim)


def content_and_style(concentrations: Sequence[float]) -> dict[str, list[int]]:
    """Latents that positives keep, and those that they change: above and below the geometric mean of the extremes."""
    middle = math.sqrt(min(concentrations) * max(concentrations))
    if min(concentrations) == max(concentrations):
        return {}
    return {
        "content": [number for number, value in enumerate(concentrations) if value > middle],
        "style": [number for number, value in enumerate(concentrations) if value <= middle],
    }


def trial(config: Config) -> Result:
    """Train one encoder; R² of all latents, of content and of style, the learnt concentrations and their error."""
    made, loss = world(config), objective(config)
    first = config["concentrations"]
    first = first[0] if isinstance(first[0], list) else first
    encoder = recovery.encoder_for(made, config["hidden"], sphere=config["loss"] != "TriCL", seed=config["seed"])
    plan = recovery.plan(
        config["steps"], config["batch"], config["rate"], objective_lr=config.get("concentration rate")
    )
    found = recovery.recover(made, encoder, loss, plan, seed=config["seed"], groups=content_and_style(first))
    if config["loss"] == "AnInfoNCE":
        found["error"] = concentration_error(found["concentrations"], first).maximum
    if config["loss"] in ("AnInfoNCE", "InfoNCE") and not config.keys() & {"sampler", "candidates"}:
        found.update(gap(made, encoder, loss, config))
    return found


def gap(made: World, encoder: nn.Module, loss: Objective, config: Config) -> dict[str, float]:
    """How far the loss is above the least possible one, that of the true latents and concentrations, batch by batch."""
    best, invert = aninfonce(config["concentrations"], made.dim), _Inverse(made)
    generator = torch.Generator().manual_seed(30_000 + config["seed"])
    ours, least = [], []
    encoder.eval()
    with torch.no_grad():
        for _ in range(GAP_BATCHES):
            views = made.draw(config["batch"], loss.needs, generator)
            ours.append(loss(encoder, views).total.item())
            least.append(best(invert, views).total.item())
    found = loss_gap(ours, least)
    return {"least loss": sum(least) / len(least), "gap": found.gap, "gap error": found.standard_error}


class _Inverse(nn.Module):
    """The encoder that returns the true latents."""

    def __init__(self, made: World) -> None:
        super().__init__()
        self.mixing = made.mixing

    def forward(self, x: Tensor) -> Any:
        return self.mixing.inverse(x)


def loss_curve(config: Config) -> Result:
    """The loss over one concentration of the model at the true latents, with all negatives hard, and where it is least.

    Theory puts the minimum at Λ⁺ − Λ⁻ (AnInfoNCE Corollary B.1). In double precision, on one large sample.
    """
    needs = Needs(augmented=1, negatives=True)
    made, _ = with_and_without(config, None)
    views = made.draw(config["anchors"], needs, torch.Generator().manual_seed(config["seed"]))

    def loss(concentration: float) -> float:
        energy = Anisotropic(concentration).bind(dim=config["dim"])
        with torch.no_grad():
            return InfoNCE(energy, candidates="given", anchor="original")(nn.Identity(), views).total.item()

    grid = torch.linspace(0.2, 2.0, 19).mul(config["positive"] - config["negative"]).tolist()
    least = minimize_scalar(loss, bounds=(grid[0], grid[-1]), method="bounded", options={"xatol": 1e-3})
    return {"concentrations": grid, "losses": [loss(value) for value in grid], "least": float(least.x)}


def with_and_without(config: Config, mixing: InvertibleMLP | None) -> tuple[World, World]:
    """Positives of one concentration, with hard negatives of another and with those of the batch alone."""
    sphere = Sphere(config["dim"])
    positive, negative = (FisherBingham(sphere, config[kind]) for kind in ("positive", "negative"))
    usual = World(Uniform(sphere), positive, mixing)
    return World(Uniform(sphere), positive, mixing, hard=negative, negatives=config["negatives"]), usual


def fine_tuning(config: Config) -> Result:
    """Train with negatives from the batch, then go on from there twice: so, and with hard negatives beside them."""
    dim, seed, batch = config["dim"], config["seed"], config["batch"]
    hard, usual = with_and_without(config, recovery.mixing(dim, seed))
    encoder = recovery.encoder_for(usual, config["hidden"], sphere=True, seed=seed)
    rates = {"objective_lr": config["concentration rate"]}
    first = aninfonce(config["start"], dim, candidates="batch", anchor="original")
    plan = recovery.plan(config["steps"], batch, config["rate"], anneal="constant", **rates)
    before = recovery.recover(usual, encoder, first, plan, seed=seed)
    found: Result = {"before": before["r2"], "curve": before["curve"]}
    for name, made, candidates in (("usual", usual, "batch"), ("hard", hard, "batch-and-given")):
        learnt = torch.tensor(before["concentrations"])
        again = aninfonce(learnt, dim, candidates=candidates, anchor="original")
        plan = recovery.plan(config["more steps"], batch, config["rate"], **rates)
        after = recovery.recover(made, copy.deepcopy(encoder), again, plan, seed=seed + 1)
        found |= {name: after["r2"], f"{name} curve": after["curve"]}
    return found
