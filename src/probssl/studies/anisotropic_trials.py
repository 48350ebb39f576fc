"""What a trial of the anisotropic studies is: an anisotropic world, a loss, how it is trained on, what is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from probssl.energies import Anisotropic, Cosine
from probssl.metrics import concentration_error, loss_gap
from probssl.objectives import Ensemble, InfoNCE, Objective, TriCL
from probssl.objectives.infonce import Candidates
from probssl.studies import recovery
from probssl.studies.base import Config, Result
from probssl.worlds import Conditional, FisherBingham, ProjectedGaussian, ShellGaussian, Sphere, Uniform, World

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
        return _aninfonce(start, config.get("candidates", "originals")).bind(dim=dim)
    if loss == "ensemble AnInfoNCE":
        return Ensemble([_aninfonce(start) for _ in config["concentrations"]]).bind(dim=dim)
    if loss in ("TriCL", "TriCL InfoNCE"):
        return TriCL(contrast="spectral" if loss == "TriCL" else "infonce").bind(dim=dim)
    raise ValueError(f"no such loss: {loss}")


def _aninfonce(start: float | Sequence[float], candidates: Candidates = "originals") -> InfoNCE:
    return InfoNCE(Anisotropic(start, normalise=True), candidates=candidates)


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
    best = _aninfonce(config["concentrations"]).bind(dim=made.dim)
    invert = _Inverse(made)
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
