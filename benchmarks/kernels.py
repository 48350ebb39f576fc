"""Compiled kernels against plain torch: every variant that this machine runs, by every compiler there is.

A row is a process of its own in which torch keeps to the instructions of the variant, as it would on such a machine
(its matrix products excepted: MKL chooses for itself). Cross-entropy is that of n pairs with 10 factors, with
gradients; a step is the loss and all gradients of eight models, encoders d-2d-m with InfoNCE and the Euclidean energy,
which `fit_many` computes as it would, and torch one after the other. CPU time in ms of torch / probssl = the median of
the ratios of their turns; one thread. A star: the kernel is not for these sizes, and probssl's is torch as well.

    python benchmarks/kernels.py --out benchmarks/results/kernels.json
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from running import CHILDREN, begin, keep

VARIANTS = {  # by option of the compiler: what Linux calls the instructions needed, and what torch does
    "-march=x86-64-v2": ({"sse4_2", "ssse3", "popcnt"}, "default"),
    "-march=x86-64-v2 -mavx": ({"avx"}, "default"),
    "-march=x86-64-v3": ({"avx2", "fma", "bmi2"}, "avx2"),
    "-march=x86-64-v4": ({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}, "avx512"),
}
PAIRS = (256, 1024)
STEPS = ((16, 8, 256), (16, 8, 1024), (48, 24, 256), (64, 32, 256), (128, 64, 256))  # d, m, n
NAMES = [*(f"pairs {n}" for n in PAIRS), *(f"step {d}-{m}, {n}" for d, m, n in STEPS)]


def plain_pairs(n: int) -> tuple[Callable[[], object], Callable[[], object], bool]:
    """Cross-entropy of n pairs by torch and by probssl, and whether that is the kernel."""
    import torch

    from probssl import kernels
    from probssl.objectives.pairwise import blocked_sums

    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(1, n, 10, generator=generator) for _ in range(2))
    one, other = (tensor[0].clone().requires_grad_() for tensor in (left, right))

    def plain() -> None:
        loss = torch.nn.functional.cross_entropy(one @ other.T, torch.arange(n))
        torch.autograd.grad(loss, [one, other])

    used = kernels.suits(left, right)
    sums = kernels.pair_sums if used else blocked_sums
    return plain, lambda: sums(left, right, None, "cross-entropy", True), used


def plain_step(d: int, m: int, n: int) -> tuple[Callable[[], object], Callable[[], object], bool]:
    """Losses and gradients of eight models by torch and by probssl, and whether that is the kernel."""
    import torch
    from torch import nn

    from probssl import Euclidean, InfoNCE, MaskAndNoise
    from probssl.encoders import MLP, seeded
    from probssl.training import TrainingPlan, Trial
    from probssl.training.stacked.stack import Stack, can_compile

    x = torch.randn(2 * n, d, generator=torch.Generator().manual_seed(0))
    ours = [seeded(seed, lambda: MLP.of([d, 2 * d, m])) for seed in range(8)]
    objective, plan = InfoNCE(Euclidean()), TrainingPlan(batch_size=n)
    trials = [Trial(encoder, objective.bind(dim=m), MaskAndNoise(0.8, 0.1), x, plan, 0) for encoder in ours]
    stack = Stack(trials)
    index, draws = stack.next_index(), stack.draw()
    stack.next_index, stack.draw = lambda: index, lambda: draws  # type: ignore[method-assign]
    encoders = [nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, m)) for _ in ours]

    def plain() -> None:
        for encoder in encoders:
            rows = x[index[0]]
            augmented = torch.where(draws[1][0, 0] < 0.8, rows, 0.0) + 0.1 * draws[0][0, 0]
            first, second = encoder(rows), encoder(augmented)
            squares = second.square().sum(1, keepdim=True) + first.square().sum(1)
            loss = nn.functional.cross_entropy(second @ first.T - 0.5 * squares, torch.arange(n))
            torch.autograd.grad(loss, list(encoder.parameters()))

    return plain, stack.gradients, can_compile(trials[0])


def compare(plain: Callable[[], object], ours: Callable[[], object], used: bool, seconds: float) -> list[float | bool]:
    """Milliseconds of both, the least; the median ratio of neighbouring turns; and `used`."""
    times: list[list[float]] = [[], []]
    until = time.monotonic() + seconds
    while len(times[0]) < 4 or time.monotonic() < until:
        for own, function in zip(times, (plain, ours), strict=True):
            started = time.process_time()
            function()
            own.append(1000 * (time.process_time() - started))
    ratios = [one / other for one, other in zip(times[0][1:], times[1][1:], strict=True)]  # the first turn warms up
    return [*(round(number, 4) for number in (min(times[0]), min(times[1]), statistics.median(ratios))), used]


def measure(seconds: float) -> None:
    """One row, as JSON: in a process that was started with the compiler and the instructions of torch to use."""
    import torch

    from probssl import kernels

    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as training does
    cases = [*((plain_pairs, (n,)) for n in PAIRS), *((plain_step, case) for case in STEPS)]
    row = {name: compare(*make(*sizes), seconds) for name, (make, sizes) in zip(NAMES, cases, strict=True)}
    print(json.dumps({"variant": kernels.variant(), **row}))


def runnable() -> Iterator[tuple[str, str, str]]:
    """Compiler, option and instructions of torch, for all that this processor can run."""
    compilers = [name for name in ("gcc", "clang") if shutil.which(name)]
    if platform.machine() not in ("x86_64", "AMD64"):
        yield from ((name, "-march=native", "") for name in compilers)
        return
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next(line for line in lines if line.startswith("flags")).split())
    for option, (needed, torch_does) in VARIANTS.items():
        yield from ((name, option, torch_does) for name in compilers if needed <= flags)


def main() -> None:
    """Measure each variant in turn and print as they come."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each number")
    parser.add_argument("--one", action="store_true", help="only the variant that CC makes, as JSON")
    options = begin(parser)
    if options.one:
        measure(options.seconds)
        return
    print(" " * 38 + "".join(f"{name:>24}" for name in NAMES))
    rows = {}
    for compiler, option, torch_does in runnable():
        environment = {**os.environ, "CC": f"{compiler} {option}"}
        if torch_does:
            environment["ATEN_CPU_CAPABILITY"] = torch_does
        command = [sys.executable, __file__, "--one", "--seconds", str(options.seconds)]
        CHILDREN[:] = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)]
        printed, _ = CHILDREN[0].communicate()
        if CHILDREN[0].returncode:
            raise SystemExit(f"{compiler} {option} failed")
        row = rows[f"{compiler} {option}"] = json.loads(printed)
        cells = ("{:>8.3f} /{:>7.3f} ={:>5.1f}{}".format(*row[name][:3], " *"[not row[name][3]]) for name in NAMES)
        print(f"{row['variant']:<8}{compiler} {option}".ljust(38) + "".join(cells))
        keep(options.out, rows)


if __name__ == "__main__":
    main()
