"""A study whose trials take milliseconds, and a program that runs it: what the tests of the engine kill and share.

    python -m tests.grids.cheap STORE [jobs]

Where CHEAP_LOG names a file, every trial that is begun adds a line to it: the process and the trial's number. Where
CHEAP_BROKEN names a file that is there, every tenth trial fails.
"""

import math
import os
import sys
import time
from pathlib import Path

import numpy as np

from probssl.grids import engine
from probssl.studies import Row, Study, experiments

COUNT = {"smoke": 12, "laptop": 150, "full": 400}
COHORT = 5


class Cheap(Study):
    name = "tests/cheap"
    claim = "means of normal numbers are near zero"

    def configs(self, budget):
        return [{"number": number, "draws": (3, 40)[number % 2]} for number in range(COUNT[budget])]

    def cohort(self, config):
        return config["number"] // COHORT

    def trial(self, config):
        if log := os.environ.get("CHEAP_LOG"):
            with open(log, "a") as file:
                file.write(f"{os.getpid()} {config['number']}\n")
        if Path(os.environ.get("CHEAP_BROKEN", "nowhere")).exists() and config["number"] % 10 == 7:
            raise RuntimeError(f"number {config['number']}\nis broken")
        time.sleep(0.01)
        drawn = np.random.default_rng(config["number"]).normal(size=config["draws"])
        return {"mean": drawn.mean(), "parts": {"first": drawn[0], "rest": drawn[1:3]}, "odd": (math.nan, -math.inf)}

    def summarise(self, results, budget):
        values = [result["mean"] for _, result in results]
        return [Row("all", "mean", float(np.mean(values)), float(np.std(values)), 0.0, "not comparable")]


if __name__ == "__main__":
    from tests.grids.cheap import Cheap as Importable  # workers must find it by its name

    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(len(engine.run(experiments.grid(Importable(), "laptop"), Path(sys.argv[1]), jobs=jobs).results))
