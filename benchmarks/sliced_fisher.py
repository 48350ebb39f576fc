"""The Fisher loss without a second derivative, sliced or along its residual, against the exact one.

`SlicedFisher` takes central differences along random signs, `Fisher(step=h)` along the residual ("along" below).

Five questions, one thread, CPU time, turns taken alternately: what a step costs, how noisy its gradient is, how far
the finite difference is off, what both reach in the same CPU time, and what only one of them can train. Some three
and a half minutes of CPU time. Prints tables and writes JSON:

    python benchmarks/sliced_fisher.py --out sliced_fisher.json
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from running import begin, keep
from torch import Tensor, nn

from probssl.data import Standardiser, load
from probssl.encoders import MLP, seeded
from probssl.energies import Cosine, Energy, Euclidean
from probssl.errors import InputError
from probssl.objectives import Fisher, Objective, SlicedFisher
from probssl.pairings import MaskAndNoise
from probssl.pairings.views import Views, random_signs
from probssl.training import TrainingPlan, fit

BATCH, RATES, SLICES, STEP = 256, (0.01, 0.003), (1, 2, 4), 0.01
PAIRING = MaskAndNoise(0.5, 0.25)  # the recipe's


def mlp(activation: type[nn.Module], sizes: Sequence[int], *, layer_norm: bool = False) -> nn.Sequential:
    """`MLP` with another activation, or with layer normalisation before it."""
    hidden: list[nn.Module] = []
    for i, o in itertools.pairwise(sizes[:-1]):
        hidden += [nn.Linear(i, o), *([nn.LayerNorm(o)] if layer_norm else []), activation()]
    return nn.Sequential(*hidden, nn.Linear(sizes[-2], sizes[-1]))


class Residual(nn.Module):
    """relu(x + two 3 × 3 convolutions of x), with group normalisation; the first may halve the image."""

    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        first, second = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.change = nn.Sequential(first, nn.GroupNorm(o // 16, o), nn.ReLU(), second, nn.GroupNorm(o // 16, o))
        self.skip = nn.Identity() if (i, stride) == (o, 1) else nn.Conv2d(i, o, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.change(x) + self.skip(x))


def resnet() -> nn.Sequential:
    """Eight layers, 16 to 64 channels, 32 outputs."""
    blocks = [Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 32))


ENCODERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "16-32-8": (lambda: MLP.of([16, 32, 8]), (BATCH, 16)),
    "64-128-32": (lambda: MLP.of([64, 128, 32]), (BATCH, 64)),
    "LayerNorm MLP": (lambda: mlp(nn.ReLU, [64, 128, 128, 32], layer_norm=True), (BATCH, 64)),
    "tanh MLP": (lambda: mlp(nn.Tanh, [64, 128, 128, 32]), (BATCH, 64)),
    "GELU MLP": (lambda: mlp(nn.GELU, [64, 128, 128, 32]), (BATCH, 64)),
    "784-1200²-128": (lambda: MLP.of([784, 1200, 1200, 128]), (BATCH, 784)),
    "ResNet 32×32": (resnet, (32, 3, 32, 32)),
}


def step(objective: Objective, encoder: nn.Module, views: Views, generator: torch.Generator | None = None) -> float:
    """One forward and backward pass, with fresh directions where the loss wants them; the loss."""
    if objective.needs.directions:
        views.directions = random_signs(views.x, objective.needs.directions, generator)
    encoder.zero_grad()
    loss = objective(encoder, views).total
    loss.backward()
    return loss.item()


def graph_megabytes(objective: Objective, encoder: nn.Module, views: Views) -> float:
    """MB that autograd keeps for the backward pass, every storage once, without weights and the batch itself."""
    held = (*encoder.parameters(), *encoder.buffers(), *vars(views).values())
    given = {tensor.untyped_storage().data_ptr() for tensor in held if isinstance(tensor, Tensor)}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        objective(encoder, views).total.item()
    return sum(kept.values()) / 2**20


def turns(actions: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Milliseconds of CPU time of every action in `rounds` turns taken alternately, of 20 ms or more each."""
    for action in actions:  # warms up
        action()
    started = time.process_time()
    actions[0]()
    repeats = math.ceil(0.02 / (time.process_time() - started))
    times: list[list[float]] = [[] for _ in actions]
    for _, (action, taken) in itertools.product(range(rounds), list(zip(actions, times, strict=True))):
        started = time.process_time()
        for _ in range(repeats):
            action()
        taken.append(1000 * (time.process_time() - started) / repeats)
    return times


def compare(losses: Sequence[Objective], encoder: nn.Module, views: Views, rounds: int) -> dict[str, list[float]]:
    """Time and memory of a step of every loss, and the time of the first over that of each."""
    times = turns([lambda loss=loss: step(loss, encoder, views) for loss in losses], rounds)  # type: ignore[misc]
    memory = []
    for loss in losses:
        step(loss, encoder, views)  # draws the directions
        memory.append(graph_megabytes(loss, encoder, views))
    best, medians = [min(taken) for taken in times], [statistics.median(taken) for taken in times]
    return {
        "ms": best,
        "median_ms": medians,
        "ratio": [best[0] / other for other in best],
        "median_ratio": [medians[0] / other for other in medians],
        "graph_mb": memory,
    }


def cost(rounds: int) -> dict[str, dict[str, list[float]]]:
    """A step of the exact loss, of 1, 2 and 4 slices, and along the residual, for every encoder and energy."""
    print(f"Cost of a forward and backward pass, batch {BATCH} (ResNet 32): best of {rounds} turns")
    print("graph: MB that autograd keeps for the backward pass")
    print(f"{'':<25}{'ms':^16}{'time of exact / other':^26}{'graph MB':>12}")
    print(f"{'encoder':<15}{'energy':<10}{'exact':>8}{'1 slice':>8}", end="")
    print(f"{'1':>6}{'(median)':>9}{'4':>5}{'along':>7}{'exact':>6}{'1':>6}")
    results = {}
    for (name, (build, shape)), energy in itertools.product(ENCODERS.items(), (Euclidean(), Cosine(0.1))):
        views = PAIRING(torch.randn(shape), Fisher().needs)
        losses = [Fisher(energy), *(SlicedFisher(energy, slices=k) for k in SLICES), Fisher(energy, step=0.1)]
        r = compare(losses, seeded(0, build), views, rounds)
        results[f"{name} {type(energy).__name__}"] = r
        _, one, _, four, along = r["ratio"]
        print(f"{name:<15}{type(energy).__name__:<10}{r['ms'][0]:>8.2f}{r['ms'][1]:>8.2f}{one:>6.2f}", end="")
        print(f"{r['median_ratio'][1]:>7.2f}{four:>7.2f}{along:>6.2f}", end="")
        print(f"{r['graph_mb'][0]:>7.1f}{r['graph_mb'][1]:>6.1f}")
    return results


class Moments:
    """Mean and total variance of vectors, without keeping them."""

    def __init__(self) -> None:
        self.count, self.total, self.squares = 0, torch.zeros((), dtype=torch.float64), 0.0

    def add(self, vector: Tensor) -> None:
        self.count += 1
        self.total = self.total + vector
        self.squares += vector.square().sum().item()

    @property
    def variance(self) -> float:
        """Sum over coordinates of the unbiased variance."""
        return (self.squares - self.total.square().sum().item() / self.count) / (self.count - 1)

    @property
    def squared_mean(self) -> float:
        """‖E g‖², without the bias that the noise of the mean brings."""
        return self.total.square().sum().item() / self.count**2 - self.variance / self.count


def noise(encoder: nn.Module, x: Tensor, batches: int) -> dict[tuple[int, float], dict[str, float]]:
    """Variance of loss and gradient over fresh batches, and given the batch, over fresh directions alone.

    By (slices, step), with (0, 0) for the exact loss and (0, h) for that along the residual. Variances are relative
    to that of the exact loss's gradient.
    """
    losses: dict[tuple[int, float], Objective] = {(0, 0.0): Fisher()}
    for slices, h in (*((k, STEP) for k in SLICES), (1, 0.001), (1, 0.1)):
        losses[slices, h] = SlicedFisher(slices=slices, step=h)
    for h in (STEP, 0.1):
        losses[0, h] = Fisher(step=h)
    moments = {key: Moments() for key in losses}
    values: dict[tuple[int, float], list[float]] = {key: [] for key in losses}
    apart = dict.fromkeys(losses, 0.0)
    generator = torch.Generator().manual_seed(1)
    for _ in range(batches):
        rows = x[torch.randint(len(x), (BATCH,), generator=generator)]
        views = PAIRING(rows, Fisher().needs, generator)
        for key, loss in losses.items():
            drawn = []
            for _ in range(2 if loss.needs.directions else 1):
                values[key].append(step(loss, encoder, views, generator))
                drawn.append(torch.cat([p.grad.flatten() for p in encoder.parameters() if p.grad is not None]).double())
                moments[key].add(drawn[-1])
            apart[key] += 0.5 * (drawn[0] - drawn[-1]).square().sum().item() / batches
    exact = moments[0, 0.0]
    return {
        key: {
            "loss": statistics.mean(values[key]),
            "loss_sd": statistics.stdev(values[key]) / statistics.mean(values[0, 0.0]),
            "slicing": apart[key] / exact.variance,
            "total": moments[key].variance / exact.variance,
            "total_over_squared_mean": moments[key].variance / exact.squared_mean,
        }
        for key in losses
    }


def variance(x: Tensor, costs: dict[str, dict[str, list[float]]], batches: int) -> dict[str, Any]:
    """`noise` at initialisation and after 500 steps with the exact loss, and what it means per CPU second."""
    print(f"\nNoise on {len(x)} rows of {x.shape[1]} features, Euclidean, {batches} batches of {BATCH}")
    print("loss sd: over batches, of the mean loss; others of the gradient, exact loss = 1:")
    print("slicing: variance due to directions alone; total: variance due to everything;")
    print("per second: total variance times cost of a step")
    print(f"{'encoder':<11}{'phase':<9}{'slices':<8}{'step':<7}", end="")
    print(f"{'loss sd':>9}{'slicing':>11}{'total':>11}{'per second':>13}")
    results: dict[str, Any] = {}
    for name in ("64-128-32", "GELU MLP"):
        encoder = seeded(0, ENCODERS[name][0])
        *ratios, along = costs[f"{name} Euclidean"]["ratio"]
        cheaper = dict(zip((0, *SLICES), ratios, strict=True))
        for phase in ("start", "trained"):
            if phase == "trained":
                fit(encoder, Fisher(), PAIRING, x, TrainingPlan(steps=500, clip_norm=1.0))
            for (slices, h), r in noise(encoder, x, batches).items():
                r["per_second"] = r["total"] / (along if h and not slices else cheaper[slices])
                kind = str(slices) if slices else "along" if h else "exact"
                results[f"{name} {phase} {kind} {h:g}"] = r
                print(f"{name:<11}{phase:<9}{kind:<8}{f'{h:g}' if h else '':<7}", end="")
                print(
                    f"{r['loss_sd']:>9.1%}{r['slicing']:>11.1f}{r['total']:>11.1f}{r['per_second']:>13.1f}", flush=True
                )
    return results


def difference(x: Tensor) -> dict[str, dict[str, float]]:
    """Root mean square of (central difference in float32 − exact slope in float64), relative to the slope's."""
    steps = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
    print("\nRelative error of the central difference in float32, by step")
    print(f"{'encoder':<11}{'energy':<10}{'phase':<9}" + "".join(f"{h:>7g}" for h in steps))
    results = {}
    for name, energy in itertools.product(("64-128-32", "GELU MLP"), (Euclidean(), Cosine(0.1))):
        encoder = seeded(0, ENCODERS[name][0])
        for phase in ("start", "trained"):
            if phase == "trained":
                fit(encoder, Fisher(energy), PAIRING, x, TrainingPlan(steps=500, clip_norm=1.0))
            rows = x[:2048]
            views = PAIRING(rows, SlicedFisher().needs, torch.Generator().manual_seed(2))
            assert views.directions is not None
            v, exact = views.directions[0], copy.deepcopy(encoder).double()
            point = rows.double().requires_grad_()
            (slope,) = torch.autograd.grad(energy.paired(exact(point), exact(views.augmented[0].double())).sum(), point)
            along = (slope * v).sum(1)
            with torch.no_grad():
                errors = [central(energy, encoder, views, h * v, h).double() - along for h in steps]
            relative = [(error.square().mean() / along.square().mean()).sqrt().item() for error in errors]
            results[f"{name} {type(energy).__name__} {phase}"] = dict(zip(map(str, steps), relative, strict=True))
            print(f"{name:<11}{type(energy).__name__:<10}{phase:<9}" + "".join(f"{e:>7.0e}" for e in relative))
    return results


def central(energy: Energy, encoder: nn.Module, views: Views, move: Tensor, h: float) -> Tensor:
    """[δ(x + move, x̃) − δ(x − move, x̃)] / 2h."""
    other = encoder(views.augmented[0])
    ahead, behind = (energy.paired(encoder(x), other) for x in (views.x + move, views.x - move))
    return (ahead - behind) / (2 * h)


@torch.no_grad()
def exact_loss(encoder: nn.Module, x: Tensor) -> float:
    """The exact Fisher loss over all rows, on four fresh augmentations of each."""
    generator = torch.Generator().manual_seed(3)
    return statistics.mean(Fisher()(encoder, PAIRING(x, Fisher().needs, generator)).total.item() for _ in range(4))


def train(loss: Objective, x: Tensor, steps: int, rate: float, seed: int) -> nn.Module:
    """The recipe's encoder d-2d-d/2 after `steps` steps."""
    d = x.shape[1]
    encoder = seeded(seed, lambda: MLP.of([d, 2 * d, d // 2]))
    plan = TrainingPlan(steps=steps, lr=rate, clip_norm=1.0, log_every=100)
    fit(encoder, loss, PAIRING, x, plan, seed=seed)
    return encoder


def training(x: Tensor, seconds: float) -> dict[str, Any]:
    """The exact loss after as many steps as `seconds` of CPU time allow, at two learning rates and from two seeds."""
    losses: dict[str, Objective] = {"exact": Fisher(), **{f"{k} slices": SlicedFisher(slices=k) for k in SLICES}}
    losses["1 slice, step 0.1"] = SlicedFisher(step=0.1)
    losses["along, step 0.1"] = Fisher(step=0.1)
    actions = [lambda loss=loss: train(loss, x, 100, RATES[0], 0) for loss in losses.values()]
    costs = [min(ms) / 100 for ms in turns(actions, 3)]
    constant = nn.Linear(x.shape[1], 1)
    nn.init.zeros_(constant.weight)
    results: dict[str, Any] = {"constant encoder": exact_loss(constant, x)}
    print(f"{'constant encoder':<30}{results['constant encoder']:>12.1f}")
    runs = [(name, loss, round(1000 * seconds / ms)) for (name, loss), ms in zip(losses.items(), costs, strict=True)]
    runs.insert(1, ("exact, a tenth of it", losses["exact"], round(100 * seconds / costs[0])))
    for name, loss, steps in runs:
        reached = {str(rate): [exact_loss(train(loss, x, steps, rate, s), x) for s in (0, 1)] for rate in RATES}
        results[name] = {"steps": steps, "loss": reached}
        print(f"{name:<22}{steps:>8}" + "".join(f"{a:>12.1f}{b:>8.1f}" for a, b in reached.values()))
    return results


class Attention(nn.Module):
    """A transformer layer over eight tokens of eight features, averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.unflatten(1, (8, 8))).mean(1)


def layers() -> dict[str, dict[str, bool]]:
    """What can be trained with either loss."""
    builds: dict[str, Callable[[], Any]] = {
        "ReLU and LayerNorm": lambda: mlp(nn.ReLU, [64, 32, 8], layer_norm=True),
        "transformer layer": Attention,
        "torch.compile": lambda: torch.compile(MLP.of([64, 32, 8]), backend="aot_eager"),
    }
    print(f"\n{'can be trained':<24}{'exact':>8}{'sliced':>8}{'along':>8}")
    results: dict[str, dict[str, bool]] = {}
    for name, build in builds.items():
        results[name] = {}
        for kind, loss in (("exact", Fisher()), ("sliced", SlicedFisher()), ("along", Fisher(step=0.1))):
            try:
                step(loss, seeded(0, build), PAIRING(torch.randn(32, 64), loss.needs))
                results[name][kind] = True
            except RuntimeError:  # the derivative of a backward pass is not implemented
                results[name][kind] = False
        print(f"{name:<24}" + "".join(f"{'yes' if can else 'no':>8}" for can in results[name].values()))
    return results


def main() -> None:
    """Answer the five questions."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=6, help="turns of every measurement of cost")
    parser.add_argument("--batches", type=int, default=150, help="batches that variances are estimated from")
    parser.add_argument("--seconds", type=float, default=2.5, help="CPU time of one training")
    options = begin(parser)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as training does
    torch.manual_seed(0)
    tables = {}
    for name in ("pmlb:optdigits", "pmlb:satimage"):
        try:
            features = load(name).features
            tables[name] = torch.from_numpy(Standardiser.fit(features).transform(features).astype(np.float32))
        except InputError as error:
            print(f"left out: {error}")
    results: dict[str, Any] = {"training": {}}

    def add(name: str, found: dict[str, Any]) -> None:
        results[name] = {**results.get(name, {}), **found}
        keep(options.out, results)

    add("cost", cost(options.rounds))
    add("layers", layers())
    if "pmlb:optdigits" in tables:
        add("variance", variance(tables["pmlb:optdigits"], results["cost"], options.batches))
        add("difference", difference(tables["pmlb:optdigits"]))
    for name, x in tables.items():
        print(f"\nExact Fisher loss on {name}, {options.seconds:g} s of CPU time, Euclidean, two seeds")
        print(f"{'trained with':<22}{'steps':>8}" + "".join(f"{f'rate {rate:g}':>20}" for rate in RATES))
        add("training", {name: training(x, options.seconds)})


if __name__ == "__main__":
    main()
