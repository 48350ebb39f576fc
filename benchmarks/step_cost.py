"""What a training step costs: probssl's loop against a bare hand-written PyTorch loop of the same computation.

Both train the encoder 16-32-8 on pmlb:letter with batch 256, mask-and-noise augmentations and InfoNCE, one
thread, in one process, turn by turn. Prints a table and writes JSON:

    python benchmarks/step_cost.py --out step_cost.json
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from running import begin, keep
from torch import Tensor, nn

from probssl.data import Standardiser, load
from probssl.encoders import MLP, seeded
from probssl.energies import Cosine, Energy, Euclidean
from probssl.objectives import InfoNCE
from probssl.pairings import MaskAndNoise
from probssl.training import TrainingPlan, fit

FEATURES, HIDDEN, DIM, BATCH = 16, 32, 8, 256
PRESERVATION, NOISE, RATE, WARMUP = 0.8, 0.1, 0.01, 100


def letter() -> Tensor:
    """pmlb:letter, standardised; random rows of its shape where the file cannot be had."""
    try:
        features = load("pmlb:letter").features
    except ValueError:
        features = np.random.default_rng(0).normal(size=(20_000, FEATURES))
    return torch.from_numpy(Standardiser.fit(features).transform(features).astype(np.float32))


def bare_loop(x: Tensor, steps: int, energy: str) -> None:
    """The same training with nothing around it: what a careful person would write by hand."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, DIM))
    optimiser = torch.optim.Adam(encoder.parameters(), lr=RATE, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: (
            (step + 1) / WARMUP
            if step < WARMUP
            else 0.5 * (1 + np.cos(np.pi * (step - WARMUP) / max(steps - WARMUP, 1)))
        ),
    )
    target = torch.arange(BATCH)
    order = torch.randperm(len(x))
    position = 0
    for _ in range(steps):
        if position + BATCH > len(x):
            order, position = torch.randperm(len(x)), 0
        rows = x[order[position : position + BATCH]]
        position += BATCH
        mask = torch.empty_like(rows).bernoulli_(PRESERVATION)
        augmented = mask * rows + NOISE * torch.randn_like(rows)
        first, second = encoder(rows), encoder(augmented)
        if energy == "cosine":
            logits = nn.functional.normalize(second) @ nn.functional.normalize(first).T / 0.1
        else:
            squares = second.square().sum(1, keepdim=True) + first.square().sum(1)
            logits = second @ first.T - 0.5 * squares
        loss = nn.functional.cross_entropy(logits, target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        loss.item()


def our_loop(x: Tensor, steps: int, energy: str) -> None:
    """The same through `probssl.training.fit`, with its log, looks at the representation and checks."""
    chosen: Energy = Cosine(0.1) if energy == "cosine" else Euclidean()
    encoder = seeded(0, lambda: MLP.of([FEATURES, HIDDEN, DIM]))
    plan = TrainingPlan(steps=steps, batch_size=BATCH, lr=RATE, warmup=WARMUP)
    fit(encoder, InfoNCE(chosen), MaskAndNoise(PRESERVATION, NOISE), x, plan)


def measure(x: Tensor, steps: int, rounds: int, energy: str) -> dict[str, float]:
    """Milliseconds of CPU time a step, the best of `rounds` turns taken alternately, and their ratio.

    The best turn is the one that the rest of the machine disturbed least; medians are given beside it.
    """
    loops: dict[str, Callable[[Tensor, int, str], None]] = {"bare": bare_loop, "probssl": our_loop}
    times: dict[str, list[float]] = {name: [] for name in loops}
    for turn in range(rounds + 1):
        for name, loop in loops.items():
            started = time.process_time()
            loop(x, steps if turn else steps // 5, energy)
            if turn:  # the first turn warms up
                times[name].append(1000 * (time.process_time() - started) / steps)
    bare, ours = times["bare"], times["probssl"]
    return {
        "bare_ms": min(bare),
        "probssl_ms": min(ours),
        "ratio": min(ours) / min(bare),
        "median_ratio": statistics.median(ours) / statistics.median(bare),
    }


def main() -> None:
    """Run the comparison for both energies."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=8)
    options = begin(parser)
    torch.set_num_threads(1)
    x = letter()
    results: dict[str, dict[str, float]] = {}
    print(f"InfoNCE, letter, d {FEATURES}, m {DIM}, batch {BATCH}, torch {torch.__version__}, one thread")
    print(f"{'energy':<12}{'bare ms':>10}{'probssl ms':>12}{'ratio':>8}{'of medians':>12}")
    for energy in ("euclidean", "cosine"):
        r = results[energy] = measure(x, options.steps, options.rounds, energy)
        print(f"{energy:<12}{r['bare_ms']:>10.3f}{r['probssl_ms']:>12.3f}{r['ratio']:>8.2f}{r['median_ratio']:>12.2f}")
        keep(options.out, results)


if __name__ == "__main__":
    main()
