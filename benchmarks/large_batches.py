"""InfoNCE over batches of thousands: fused against the plain n × n matrix, forward and backward, one thread.

d = 128: cosine, Euclidean, anisotropic and 1-norm energies; AnInfoNCE as it is trained, with negatives from the
marginal and gradients in its concentrations; SimCLR's two views against the matrix of 2n × 2n that libraries build; and
whole steps of training (encoder 128-256-128, both views, Adam). Memory is what the process grew by at its peak, each
case in a process of its own. The limit is three matrix products of the same size and nothing else. Some four minutes,
and ten more with 65,536 among the `--sizes`:

    OMP_NUM_THREADS=1 python benchmarks/large_batches.py --out large_batches.json
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from running import CHILDREN, begin, keep
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders import MLP
from probssl.energies import Anisotropic, Cosine, Energy, Euclidean, PNorm
from probssl.objectives import InfoNCE, Objective
from probssl.objectives.pairwise import PairLogits
from probssl.pairings import Views

DIMENSIONS, TEMPERATURE = 128, 0.1


def fused(energy: Energy) -> Callable[[Tensor, Tensor], Tensor]:
    """Every b picks its a, as `InfoNCE` does."""

    def loss(a: Tensor, b: Tensor) -> Tensor:
        pairs = PairLogits.of(energy, a, b)
        return pairs.transposed().mean_cross_entropy()

    return loss


def plain_cosine(a: Tensor, b: Tensor) -> Tensor:
    """The same with the matrix."""
    return F.cross_entropy(F.normalize(b) @ F.normalize(a).T / TEMPERATURE, torch.arange(len(a)))


def plain_euclidean(a: Tensor, b: Tensor) -> Tensor:
    """The same with the matrix."""
    squares = b.square().sum(1, keepdim=True) + a.square().sum(1)
    return F.cross_entropy(b @ a.T - 0.5 * squares, torch.arange(len(a)))


def plain_anisotropic(a: Tensor, b: Tensor) -> Tensor:
    """The same with the matrix, Λ = 1."""
    weights = torch.ones(DIMENSIONS, requires_grad=True)
    squares = (b * weights * b).sum(1, keepdim=True) + (a * weights * a).sum(1)
    return F.cross_entropy(b * weights @ a.T - 0.5 * squares, torch.arange(len(a)))


def two_view_fused(a: Tensor, b: Tensor) -> Tensor:
    """NT-Xent, as `InfoNCE(candidates="two-view")` does."""
    both, energy = torch.cat([a, b]), Cosine(TEMPERATURE)
    return PairLogits.of(energy, both, both).mean_log_sum_exp(without_diagonal=True) + energy.paired(a, b).mean()


def two_view_plain(a: Tensor, b: Tensor) -> Tensor:
    """NT-Xent as it is usually written: all 2n × 2n cosines, less the diagonal."""
    z, n = F.normalize(torch.cat([a, b])), len(a)
    logits = (z @ z.T / TEMPERATURE)[~torch.eye(2 * n, dtype=torch.bool)].view(2 * n, -1)
    first = torch.arange(n)
    return F.cross_entropy(logits, torch.cat([first + n - 1, first]))


def plain_one_norm(a: Tensor, b: Tensor) -> Tensor:
    """InfoNCE with the 1-norm and the matrix, by torch's fastest way to it."""
    return F.cross_entropy(-torch.cdist(b, a, p=1.0), torch.arange(len(a)))


def made_aninfonce() -> InfoNCE:
    return InfoNCE(Anisotropic(normalise=True), candidates="originals").bind(dim=DIMENSIONS)


def aninfonce(a: Tensor, b: Tensor) -> Tensor:
    """The objective itself: x̃ and all other originals as candidates of x."""
    return made_aninfonce()(nn.Identity(), Views(a, b.unsqueeze(0))).total


def plain_aninfonce(a: Tensor, b: Tensor) -> Tensor:
    """The same with the matrix, Λ̂ = 1."""
    weights = torch.ones(DIMENSIONS, requires_grad=True)
    a, b = F.normalize(a), F.normalize(b)
    squares = (a * weights * a).sum(1)
    logits = a * weights @ a.T - 0.5 * (squares.unsqueeze(1) + squares)
    positive = -0.5 * ((a - b).square() * weights).sum(1)
    return F.cross_entropy(logits.diagonal_scatter(positive), torch.arange(len(a)))


def training_step(objective: Objective) -> Callable[[Tensor, Tensor], Tensor]:
    """Encode both views, and the loss; its `backward` and Adam's step are timed with it."""
    encoder = MLP.of([DIMENSIONS, 256, DIMENSIONS])
    optimiser = torch.optim.Adam([*encoder.parameters(), *objective.parameters()], lr=0.001, fused=True)

    def step(a: Tensor, b: Tensor) -> Tensor:
        optimiser.zero_grad()
        loss = objective(encoder, Views(a.detach(), b.detach().unsqueeze(0))).total
        loss.backward()
        optimiser.step()
        return (a * 0).sum()

    return step


def products(a: Tensor, b: Tensor) -> Tensor:
    """Three products of size n × n × d, in strips, and nothing else."""
    with torch.no_grad():
        for rows in a.split(256):
            block = rows @ b.T
            torch.mm(block, b)
            torch.mm(block.T, rows)
    return (a * b).sum()


CASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine plain": plain_cosine,
    "cosine fused": fused(Cosine(TEMPERATURE)),
    "euclidean plain": plain_euclidean,
    "euclidean fused": fused(Euclidean()),
    "anisotropic plain": plain_anisotropic,
    "anisotropic fused": fused(Anisotropic().bind(dim=DIMENSIONS)),
    "1-norm plain": plain_one_norm,
    "1-norm fused": fused(PNorm(1)),
    "AnInfoNCE plain": plain_aninfonce,
    "AnInfoNCE fused": aninfonce,
    "step, InfoNCE": training_step(InfoNCE(Cosine(TEMPERATURE))),
    "step, AnInfoNCE": training_step(made_aninfonce()),
    "two views plain": two_view_plain,
    "two views fused": two_view_fused,
    "three products": products,
}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(case: str, n: int, rounds: int) -> dict[str, float]:
    """Seconds of CPU time, best of some rounds, and how much memory the process grew by."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, DIMENSIONS, generator=generator).div_(5).requires_grad_() for _ in range(2))
    warm = [torch.randn(64, DIMENSIONS, requires_grad=True) for _ in range(2)]
    CASES[case](*warm).backward()
    before, best = peak(), float("inf")
    for _ in range(rounds):
        a.grad = b.grad = None
        started = time.process_time()
        CASES[case](a, b).backward()
        best = min(best, time.process_time() - started)
    return {"seconds": best, "megabytes": peak() - before}


def main() -> None:
    """All cases, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--case")
    parser.add_argument("--n", type=int)
    parser.add_argument("--sizes", type=int, nargs="*", default=[4096, 16384])
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="some of the cases only")
    options = begin(parser)
    if options.case:
        print(json.dumps(measure(options.case, options.n, 3 if options.n < 10_000 else 1)))
        return
    results = {}
    print(f"{'case':<20}{'n':>8}{'seconds':>10}{'MB':>8}")
    for n in options.sizes:
        for case in options.cases:
            if (n > 5000 and case.startswith(("two views", "1-norm"))) or (n > 20_000 and "plain" in case):
                continue
            command = [sys.executable, __file__, "--case", case, "--n", str(n)]
            CHILDREN[:] = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True)]
            printed, _ = CHILDREN[0].communicate()
            if CHILDREN[0].returncode:
                raise SystemExit(f"{case} at n = {n} failed")
            found = json.loads(printed)
            results[f"{case} {n}"] = found
            print(f"{case:<20}{n:>8}{found['seconds']:>10.3f}{found['megabytes']:>8.0f}")
            keep(options.out, results)


if __name__ == "__main__":
    main()
