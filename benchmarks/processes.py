"""Steps a second of one training in several processes: the convolutional encoder on 28 × 28 images, InfoNCE, batch 256.

One process with one thread and with two, two processes with one thread each, and bfloat16, in turns: steps a second by
the clock and CPU time of one process, best of several turns. Random images stand for MNIST: values change no cost.
Two minutes or so on idle cores:

    python benchmarks/processes.py --out benchmarks/results/processes.json
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from running import CHILDREN, begin, keep

BATCH, IMAGES = 256, 2048
CASES = {
    "1 process, 1 thread": (1, 1, "float32"),
    "1 process, 2 threads": (1, 2, "float32"),
    "2 processes, 1 thread each": (2, 1, "float32"),
    "1 process, 1 thread, bfloat16": (1, 1, "bfloat16"),
}


def work(answer: Path, steps: int, precision: str) -> None:
    """One process of a training; the first writes the seconds of its steps after the first few."""
    import torch

    from probssl.parts.facts import Facts
    from probssl.parts.recipe import Recipe
    from probssl.parts.resolve import resolve
    from probssl.training import Reporter, fit

    class Clock(Reporter):
        def advance(self, step: int) -> None:
            if step in (3, steps):
                times.append((time.perf_counter(), time.process_time()))

    times: list[tuple[float, float]] = []
    plan = {"batch_size": BATCH, "steps": steps, "precision": precision}
    resolved = resolve(Recipe(plan=plan), Facts("images", (1, 28, 28), IMAGES))
    bound = resolved.bind()
    x = torch.rand(IMAGES, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    fit(bound.encoder, bound.objective, bound.pairing, x, resolved.plan, seed=0, reporter=Clock())
    if os.environ["RANK"] == "0":
        (begun, begun_cpu), (ended, ended_cpu) = times
        answer.write_text(
            json.dumps({"wall": (ended - begun) / (steps - 3), "cpu": (ended_cpu - begun_cpu) / (steps - 3)})
        )


def measure(size: int, threads: int, precision: str, steps: int) -> dict[str, float]:
    """Seconds a step, by the clock and of one process's CPU."""
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        port = some.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, __file__, "--work", str(answer), "--steps", str(steps), "--precision", precision]
        shared = {"OMP_NUM_THREADS": str(threads), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
        CHILDREN.clear()
        for rank in range(size):
            place = {**shared, "MASTER_PORT": str(port), "RANK": str(rank)}
            CHILDREN.append(subprocess.Popen(command, text=True, env={**os.environ, **place}))
        if any(process.wait() for process in CHILDREN):
            raise SystemExit("a process failed")
        return json.loads(answer.read_text())


def main() -> None:
    """All cases, in turns."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--steps", type=int, default=23)
    parser.add_argument("--turns", type=int, default=4)
    options = begin(parser)
    if options.work is not None:
        work(options.work, options.steps, options.precision)
        return
    best: dict[str, dict[str, float]] = {}
    for turn in range(options.turns):
        for name, case in CASES.items():
            found = measure(*case, options.steps)
            best[name] = {key: min(value, best.get(name, found)[key]) for key, value in found.items()}
            print(f"turn {turn + 1}: {name}: {1 / found['wall']:.2f} steps/s")
            keep(options.out, {"load": os.getloadavg(), "seconds a step": best})
    for name, found in best.items():
        print(f"{name:<40}{1 / found['wall']:8.2f} steps/s   {1000 * found['cpu']:8.0f} ms of CPU a step and process")


if __name__ == "__main__":
    main()
