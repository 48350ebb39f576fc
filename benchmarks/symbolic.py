"""Constraints as a loss: what compiling and a step cost, and how well unlabelled sums teach digits.

One thread, CPU time, about two minutes. Needs the extra `symbolic`.

    OMP_NUM_THREADS=1 python benchmarks/symbolic.py --out symbolic.json
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from running import begin, keep
from sklearn.datasets import load_digits

from probssl.data.addition import addition_triples
from probssl.encoders import MLP, seeded
from probssl.symbolic import (
    Constraint,
    Formula,
    Variable,
    adds_up,
    all_different,
    all_of,
    classify_each,
    constraint_terms,
    sum_is,
    variables,
)
from probssl.symbolic.circuit import Circuit

BATCH, SEEDS = 100, 8
WEIGHTS = (0.0, 1.0, 4.0, 16.0, 64.0)


def sudoku(cells: Sequence[Variable]) -> Formula:
    """Rows, columns and boxes of a 4 × 4 Sudoku."""
    rows, columns = [cells[4 * i : 4 * i + 4] for i in range(4)], [cells[i::4] for i in range(4)]
    boxes = [[cells[4 * (a + i) + b + j] for i in (0, 1) for j in (0, 1)] for a in (0, 2) for b in (0, 2)]
    return all_of(map(all_different, rows + columns + boxes))


FORMULAS: dict[str, tuple[list[int], Callable[[Sequence[Variable]], Formula]]] = {
    "a + b = c, one digit each": ([10] * 3, lambda v: adds_up(v[:1], v[1:2], v[2:])),
    "a + b = c, four digits each": ([10] * 12, lambda v: adds_up(v[:4], v[4:8], v[8:])),
    "a + b = c, eight digits each": ([10] * 24, lambda v: adds_up(v[:8], v[8:16], v[16:])),
    "the sum of eight digits is 36": ([10] * 8, lambda v: sum_is(v, 36)),
    "4 × 4 Sudoku": ([4] * 16, sudoku),
}


def compile_time(make: Callable[[Sequence[Variable]], Formula], sizes: Sequence[int]) -> tuple[Constraint, float]:
    """A compiled constraint and the CPU seconds it took."""
    started = time.process_time()
    chosen = variables(sizes)
    return Constraint.from_formula(make(chosen), chosen), time.process_time() - started


def step_time(constraint: Constraint) -> float:
    """Milliseconds of CPU time for the loss of a batch and its gradient, the median of 20."""
    logits = [torch.randn(BATCH, size, requires_grad=True) for size in constraint.sizes]
    times = []
    for _ in range(20):
        started = time.process_time()
        constraint.loss(logits).backward()
        times.append(time.process_time() - started)
    return 1000 * statistics.median(times)


def cost() -> Iterator[tuple[str, dict[str, float]]]:
    """Compiling once, and loss and gradient of a batch."""
    print(f"batch {BATCH}, forward and backward, median of 20")
    print(f"{'constraint':<30}{'assignments':>12}{'satisfying':>22}{'compile s':>11}{'edges':>7}{'levels':>8}{'ms':>7}")
    listed = Constraint.where(lambda a, b, c: a + b == c, sizes=(10, 10, 10))
    taken = step_time(listed)
    print(f"{'a + b = c, listed':<30}{1e3:>12.0e}{listed.count:>22,}{'':>26}{taken:>7.2f}")
    yield "a + b = c, listed", {"ms": taken}
    for name, (sizes, make) in FORMULAS.items():
        constraint, taken = compile_time(make, sizes)
        circuit = constraint._evaluator
        assert isinstance(circuit, Circuit)
        print(f"{name:<30}{float(math.prod(sizes)):>12.0e}{constraint.count:>22,}{taken:>11.2f}", end="")
        found = {"compile s": taken, "ms": step_time(constraint)}
        print(f"{circuit.edges:>7}{len(circuit.levels):>8}{found['ms']:>7.2f}")
        yield name, found


def learn(weight: float, seed: int, *, true_prior: bool = False) -> tuple[float, float]:
    """Digits learnt from 300 sums: accuracy on images in no sum, and the constraint's loss on 60 other sums."""
    pixels, labels = load_digits(return_X_y=True)
    x, digits = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
    generator = torch.Generator().manual_seed(seed)
    triples = addition_triples(digits, 360, generator)
    train, other = triples[:300], triples[300:]
    addition = Constraint.where(lambda a, b, c: a + b == c, sizes=(10, 10, 10))
    prior = addition.marginal_prior() if true_prior else None
    classifier = seeded(seed, lambda: MLP.of([64, 100, 10]))
    optimiser = torch.optim.Adam(classifier.parameters(), 3e-3)
    for _ in range(600):
        images = x[train[torch.randint(300, (60,), generator=generator)]]
        noisy = images + 0.1 * torch.randn(images.shape, generator=generator)
        terms = constraint_terms(addition, classify_each(classifier, noisy), prior)
        optimiser.zero_grad()
        (terms["constraint"] + weight * terms["prior"]).backward()
        optimiser.step()
    unseen = torch.ones(len(x), dtype=torch.bool)
    unseen[triples.flatten()] = False
    with torch.no_grad():
        right = classifier(x[unseen]).argmax(1) == digits[unseen]
        return right.float().mean().item(), addition.loss(classify_each(classifier, x[other])).item()


def learning() -> Iterator[tuple[str, dict[str, object]]]:
    """Accuracy by the weight of the prior, and by the prior."""
    print(f"\n300 sums of digits of 8 × 8, 600 steps: accuracy on unseen digits, {SEEDS} seeds in order of accuracy")
    print("chosen: the accuracy of the seed with the least constraint loss on 60 other sums, which takes no labels")
    for weight, true_prior in (*((weight, False) for weight in WEIGHTS), (16.0, True)):
        started = time.process_time()
        found = sorted(learn(weight, seed, true_prior=true_prior) for seed in range(SEEDS))
        taken = (time.process_time() - started) / SEEDS
        accuracies, chosen = [accuracy for accuracy, _ in found], min(found, key=lambda one: one[1])[0]
        name = f"weight {weight:g}, {'true' if true_prior else 'uniform'} prior"
        print(f"{name:<26}", end="")
        print(" ".join(f"{accuracy:.2f}" for accuracy in accuracies), end="")
        print(f"   median {statistics.median(accuracies):.3f}   chosen {chosen:.3f}   {taken:.1f} s")
        yield name, {"accuracies": accuracies, "chosen": chosen, "seconds": taken}


def main() -> None:
    """What constraints cost, and what they teach."""
    options = begin(argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    results: dict[str, object] = {}
    for name, found in itertools.chain(cost(), learning()):
        results[name] = found
        keep(options.out, results)


if __name__ == "__main__":
    main()
