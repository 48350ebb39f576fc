"""Sprites: images a second by size, against a loop that draws one image after the other, and transitions a second.

One thread, CPU time, best of several turns; batches of 256 images, grid factors, smooth and binary. The loop evaluates
the same formulas with numpy, an image at a time over all its pixels, hearts as the cheaper squares, which favours it.
Some three seconds of CPU time:

    OMP_NUM_THREADS=1 python benchmarks/sprites.py --out sprites.json
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from running import begin, keep
from torch import Tensor

from probssl.worlds.sprite_transitions import LaplaceTransition, NaturalLikeTransition, UniformTransition
from probssl.worlds.sprites import AREA, Sprites

BATCH, ROUNDS = 256, 7


def rate(action: Callable[[], object], count: int) -> float:
    """How many a second, by the fastest of several turns."""
    action()  # warms up
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return count / min(times)


def loop(values: np.ndarray, size: int) -> np.ndarray:
    """Smooth squares and ellipses, one image at a time; hearts, which cost more, are drawn as squares."""
    images = np.empty((len(values), size, size), dtype=np.float32)
    places = ((np.arange(size) + 0.5) / size).astype(np.float32)
    for image, (shape, scale, angle, x, y) in zip(images, values.tolist(), strict=True):
        right, up = places - (0.25 + x / 2), (0.25 + y / 2) - places[:, None]
        u = (math.cos(angle) * right + math.sin(angle) * up) / scale
        v = (math.cos(angle) * up - math.sin(angle) * right) / scale
        if shape == 2:
            b = math.sqrt(AREA / (2 * math.pi))
            u, v = (u / (2 * b)) ** 2, (v / b) ** 2
            distance = (u + v - 1) / (2 * np.sqrt(u / (2 * b) ** 2 + v / b**2))
        else:
            distance = np.maximum(np.abs(u), np.abs(v)) - math.sqrt(AREA) / 2
        np.clip(0.5 - distance * scale * size, 0, 1, out=image)
    return images


def draw(count: int) -> Tensor:
    return Sprites().draw(count, torch.Generator().manual_seed(0))


def main() -> None:
    """All sizes, then all transitions."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="*", default=[32, 64, 128])
    options = begin(parser)
    torch.set_num_threads(1)
    factors = draw(BATCH)
    values = Sprites().values(factors).numpy()
    results: dict[str, dict[str, float]] = {}
    print(f"images a second\n{'size':>6}{'smooth':>10}{'binary':>10}{'loop':>10}")
    for size in options.sizes:
        row = {
            "smooth": rate(lambda size=size: Sprites(size).render(factors), BATCH),  # type: ignore[misc]
            "binary": rate(lambda size=size: Sprites(size, smooth=False).render(factors), BATCH),  # type: ignore[misc]
            "loop": rate(lambda size=size: loop(values, size), BATCH),  # type: ignore[misc]
        }
        results[f"images {size}"] = row
        print(f"{size:>6}{row['smooth']:>10.0f}{row['binary']:>10.0f}{row['loop']:>10.0f}")
        keep(options.out, results)
    print("pairs of factors a second")
    many, generator = draw(10_000), torch.Generator().manual_seed(1)
    for transition in (UniformTransition(), LaplaceTransition(), NaturalLikeTransition()):
        before = Sprites().values(many) if isinstance(transition, NaturalLikeTransition) else many
        name = type(transition).__name__
        found = rate(lambda t=transition, b=before: t.sample(b, generator), len(many))  # type: ignore[misc]
        results[name] = {"pairs": found}
        print(f"{name:<24}{found:>10.0f}")
        keep(options.out, results)


if __name__ == "__main__":
    main()
