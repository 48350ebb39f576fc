"""Many small trainings: model-iterations a second, stacked against bare loops, in one process and thread.

For each loss, at d = 16 (pmlb:letter) and d = 64 (pmlb:optdigits), m = d/2, batch 256: (a) a bare hand-written loop,
(b) the same with a DataLoader, (c) probssl alone, (d) probssl stacked for K = 16, 64 and 256, in turns, as CPU time.
Also the arithmetic limit (matrix products of the same shapes and nothing else), memory, and where the time goes:

    OMP_NUM_THREADS=1 python benchmarks/grids.py --long --out grids.json

Some four minutes, and an hour with `--long`: turns of four seconds or more, of which the best of three counts.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import bare_loops
import numpy as np
import torch
from running import begin, keep
from torch import Tensor

from probssl.data import Standardiser, load
from probssl.pairings import MaskAndNoise
from probssl.parts.facts import Facts
from probssl.parts.recipe import Recipe
from probssl.parts.resolve import Resolved, resolve
from probssl.training import Trial, fit, fit_many
from probssl.training.stacked.stack import Stack

TABLES = {16: "pmlb:letter", 64: "pmlb:optdigits"}
RECIPES: dict[str, dict[str, Any]] = {
    "KL Euclidean": {"objective": "infonce", "energy": "euclidean"},
    "KL cosine": {"objective": "infonce", "energy": "cosine"},
    "NCE": {"objective": "nce", "energy": "euclidean"},
    "SNL": {"objective": "snl", "energy": "euclidean"},
    "Fisher": {"objective": "fisher", "energy": "euclidean"},
    "SimCLR": {"objective": "simclr", "energy": "cosine"},
    "Spectral": {"objective": "spectral"},
}


def table(features: int) -> Tensor:
    """A real table, standardised; random rows of its shape where the file cannot be had."""
    try:
        raw = load(TABLES[features]).features
    except ValueError:
        raw = np.random.default_rng(0).normal(size=(6000, features))
    return torch.from_numpy(Standardiser.fit(raw).transform(raw).astype(np.float32))


def trials(loss: str, x: Tensor, steps: int, count: int) -> list[Trial]:
    """Trials of one loss that differ in their seeds."""
    made = []
    for seed in range(count):
        recipe = resolved(loss, x, seed, {"pairing.preservation": 0.8, "pairing.noise": 0.1, "plan.steps": steps})
        bound = recipe.bind()
        plan = replace(recipe.plan, log_every=100)  # as in trainings of 10,000 steps and more
        made.append(Trial(bound.encoder, bound.objective, bound.pairing, x, plan, seed))
    return made


def resolved(loss: str, x: Tensor, seed: int, settings: dict[str, Any]) -> Resolved:
    """Parts of a loss for a table."""
    own = {"encoder.dim": x.shape[1] // 2, "plan.clip_norm": None, **settings}
    facts = Facts("table", (x.shape[1],), len(x))
    return resolve(Recipe(**RECIPES[loss], seed=seed).with_settings(own), facts)


def alone(loss: str, x: Tensor, steps: int) -> None:
    """probssl's single training."""
    (one,) = trials(loss, x, steps, 1)
    fit(one.encoder, one.objective, one.pairing, one.data, one.plan, seed=0)


def cpu_milliseconds(work: Callable[[], object], iterations: int) -> float:
    """CPU time of an iteration."""
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started) / iterations


def measure(loss: str, x: Tensor, stacks: Sequence[int], budget: float, rounds: int) -> dict[str, float]:
    """Milliseconds of CPU time a model-iteration of every way, the best of some turns of about `budget` seconds."""
    m, n = x.shape[1] // 2, 120  # steps: after one look at the start there is one every 20 to 100 steps
    ways: dict[str, tuple[Callable[[int], object], int]] = {
        "bare": (lambda steps: bare_loops.train(loss, x, m, steps), 1),
        "loader": (lambda steps: bare_loops.train(loss, x, m, steps, loader=True), 1),
        "alone": (lambda steps: alone(loss, x, steps), 1),
    }
    for count in stacks:
        ways[f"stacked {count}"] = (lambda steps, count=count: fit_many(trials(loss, x, steps, count)), count)
    best: dict[str, float] = {}
    for turn in range(rounds + 1):
        for name, (work, models) in ways.items():
            guess = best.get(name, 1.0)
            steps = n if turn == 0 and models == 1 else 20 if turn == 0 else int(1000 * budget / guess / models)
            steps = max(150, min(steps, 4000)) if turn else steps  # or setting up would be a large share
            spent = cpu_milliseconds(lambda work=work, steps=steps: work(steps), steps * models)
            best[name] = spent if turn <= 1 else min(best[name], spent)
    return best


def arithmetic_limit(features: int, loss: str, models: int = 8, rows: int = bare_loops.BATCH) -> float:
    """Milliseconds that one core takes for the matrix products of a step and nothing else, a model-iteration."""
    d, h, m = features, 2 * features, features // 2
    both, p = 2 * rows, m + 2
    shapes = [(h, d, both), (m, h, both), (m, both, h), (h, m, both), (h, both, d)]  # two layers, forward and back
    if loss == "Fisher":
        shapes += [(h, m, rows), (d, h, rows), (h, d, rows), (m, h, rows)]  # pull and push
        shapes += [(m, rows, h), (h, m, rows), (h, rows, d)]  # and back through the push
    else:
        n = both if loss == "SimCLR" else rows
        shapes += [(n, p, n), (p, n, n), (p, n, n)]
    pairs = [(torch.randn(models, a, b), torch.randn(models, b, c)) for a, b, c in shapes]
    best = float("inf")
    for _ in range(8):
        spent = cpu_milliseconds(lambda: [[torch.bmm(a, b) for a, b in pairs] for _ in range(10)], 10 * models)
        best = min(best, spent)
    return best


def where_the_time_goes(loss: str, x: Tensor, models: int = 32) -> dict[str, float]:
    """Milliseconds a model-iteration of the parts of a stacked step, each the best of eight turns."""
    quiet = [replace(t, plan=replace(t.plan, log_every=10**6)) for t in trials(loss, x, 10**5, models)]
    stack = Stack(quiet)
    stack.advance()
    parts: dict[str, Callable[[], object]] = {
        "rows": stack.next_index,
        "random numbers": stack.draw,
        "rows, random numbers, losses and gradients": stack.gradients,
        "whole step": stack.advance,
        "a look": lambda: stack.look({}, 0.0),
    }
    found = dict.fromkeys(parts, float("inf"))
    for _ in range(8):
        for name, work in parts.items():
            turns = 1 if name == "a look" else 5
            spent = cpu_milliseconds(lambda work=work, turns=turns: [work() for _ in range(turns)], turns * models)
            found[name] = min(found[name], spent)
    return found


def whole_grid(x: Tensor, steps: int = 200) -> float:
    """Milliseconds a model-iteration of a grid as studies have it: every loss, eight augmentations, one seed."""
    made = []
    for loss in RECIPES:
        (one,) = trials(loss, x, steps, 1)
        for tenths in range(2, 10):
            bound = resolved(loss, x, 0, {}).bind()
            made.append(Trial(bound.encoder, bound.objective, MaskAndNoise(tenths / 10, 0.1), x, one.plan, 0))
    return cpu_milliseconds(lambda: fit_many(made), steps * len(made))


def main() -> None:
    """Measure, print tables, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--long", action="store_true", help="the best of three long turns, and K = 256")
    parser.add_argument("--features", type=int, nargs="*", default=list(TABLES))
    parser.add_argument("--losses", nargs="*", default=list(RECIPES))
    options = begin(parser)
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    stacks, seconds, rounds = ((16, 64, 256), 4.0, 3) if options.long else ((16, 64), 1.0, 1)
    columns = ["bare", "loader", "alone", *(f"stacked {count}" for count in stacks)]
    for features in options.features:
        x = table(features)
        print(f"d = {features}, m = {features // 2}: ms a model-iteration, and bare / stacked 64")
        print(f"{'loss':<14}" + "".join(f"{name:>12}" for name in columns) + f"{'limit':>8}{'times':>8}")
        for loss in options.losses:
            times = measure(loss, x, stacks, seconds, rounds)
            times["limit"] = arithmetic_limit(features, loss)
            results[f"{features} {loss}"] = {**times, "parts": where_the_time_goes(loss, x)}
            ratio = times["bare"] / times["stacked 64"]
            shown = "".join(f"{times[name]:>12.3f}" for name in columns)
            print(f"{loss:<14}{shown}{times['limit']:>8.3f}{ratio:>8.1f}")
            keep(options.out, results)
        grid = min(whole_grid(x) for _ in range(rounds))
        mean = sum(results[f"{features} {loss}"]["bare"] for loss in options.losses) / len(options.losses)
        results[f"{features} grid"] = grid
        print(f"all losses, eight augmentations, one seed: {grid:.3f}, {mean / grid:.1f} times as fast as bare loops")
        for loss in options.losses:
            parts = ", ".join(f"{name} {value:.3f}" for name, value in results[f"{features} {loss}"]["parts"].items())
            print(f"{loss}: {parts}")
    results["peak memory MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    keep(options.out, results)


if __name__ == "__main__":
    main()
