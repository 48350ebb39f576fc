"""What drawing costs beside learning: time of a batch from each world of the studies, and its share of a whole step.

One thread, processor time, best of some rounds:

    python benchmarks/worlds.py --out worlds.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from running import begin, keep

from probssl.objectives import InfoNCE
from probssl.objectives.base import Objective
from probssl.studies import anisotropic, anisotropic_trials, anisotropic_twenty, identify_trials, recovery
from probssl.worlds import World

ROUNDS, STEPS = 5, 20


Case = tuple[World, Objective, int, bool, tuple[int, ...]]


def table1_cases() -> dict[str, Case]:
    """World, objective, batch size, whether codes live on the sphere, hidden layers: for CL-ICA's twelve rows."""
    found: dict[str, Case] = {}
    for number, setting in enumerate(identify_trials.SETTINGS, 1):
        recipe = setting.recipe
        objective = InfoNCE(setting.energy(), group_size=recipe.group_size, anchor="symmetric")
        world = identify_trials.world(setting, 0)
        found[f"table1, row {number}"] = world, objective, recipe.batch_size, setting.sphere, identify_trials.HIDDEN
    return found


def anisotropic_cases() -> dict[str, Case]:
    """The same for AnInfoNCE's worlds, with all three samplers of the first."""
    found: dict[str, Case] = {}
    first, second = anisotropic_twenty.FIRST, anisotropic_twenty.SECOND
    configs = {
        f"lambda, {sampler}": {**anisotropic.configuration("AnInfoNCE", 25.0, 1, 0), "sampler": sampler}
        for sampler in anisotropic_trials.SAMPLERS
    }
    configs["ensemble"] = anisotropic_twenty.configuration("", "ensemble AnInfoNCE", [first, second], 1, 0)
    for name, config in configs.items():
        world, objective = anisotropic_trials.world(config), anisotropic_trials.objective(config)
        found[name] = world, objective, config["batch"], True, tuple(config["hidden"])
    return found


def best(action: Callable[[], object]) -> float:
    """Milliseconds of the fastest round, per call."""
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(STEPS):
            action()
        times.append((time.process_time() - started) / STEPS * 1e3)
    return min(times)


def main() -> None:
    """All cases."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    options = begin(parser)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    results = {}
    print(f"{'world':<20}{'batch':>7}{'draw, ms':>10}{'step, ms':>10}{'share':>8}")
    for name, (world, objective, batch, sphere, hidden) in {**table1_cases(), **anisotropic_cases()}.items():
        encoder = recovery.encoder_for(world, hidden, sphere=sphere, seed=0).train()
        optimiser = torch.optim.Adam([*encoder.parameters(), *objective.parameters()], lr=1e-3, fused=True)
        generator = torch.Generator().manual_seed(0)

        def draw(world: World = world, objective: Objective = objective, batch: int = batch) -> object:
            return world.draw(batch, objective.needs, generator)  # noqa: B023 - called at once

        def step(world: World = world, objective: Objective = objective, batch: int = batch) -> None:
            optimiser.zero_grad()  # noqa: B023
            objective(encoder, world.draw(batch, objective.needs, generator)).total.backward()  # noqa: B023
            optimiser.step()  # noqa: B023

        found = {"batch": batch, "draw": best(draw), "step": best(step)}
        results[name] = found
        print(f"{name:<20}{batch:>7}{found['draw']:>10.2f}{found['step']:>10.2f}{found['draw'] / found['step']:>8.0%}")
        keep(options.out, results)


if __name__ == "__main__":
    main()
