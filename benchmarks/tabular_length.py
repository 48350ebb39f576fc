"""What do fewer steps change in the tabular study? The same trainings at several lengths, with all else equal.

All eleven models of Siamese-EBM's tables on six of the narrower ones, at m = d/2, preservation 0.8, noise 0.1, learning
rate 0.01: accuracy of the probe and RankMe, as it is and centred, in per cent of the untrained encoder's, at 1,000 and
3,000 steps and, with `--long`, at 20,000. Some two minutes on one core, six with `--long`:

    OMP_NUM_THREADS=1 python benchmarks/tabular_length.py --long --out tabular_length.json
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from running import begin, keep

from probssl.studies.tabular_grid import ENERGIES, MODELS, SHAPES
from probssl.studies.tabular_trials import UNTRAINED, run_batch

TABLES = ("pmlb:appendicitis", "pmlb:yeast", "pmlb:wine_quality_red", "pmlb:vehicle", "pmlb:letter", "pmlb:churn")
STEPS, LONG = (1_000, 3_000), 20_000
METRICS = ("linear_probe", "rankme", "rankme_centred")


def measure(table: str, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Relative scores of every model and length on one table."""
    where = {"table": table, "dim": max(2, SHAPES[table][1] // 2), "preservation": 0.8, "noise": 0.1, "seed": 0}
    configs: list[dict[str, Any]] = [{**where, "objective": UNTRAINED, "energy": energy} for energy in ENERGIES]
    for steps in lengths:
        configs += [{**where, "objective": m.loss, "energy": m.energy, "lr": 0.01, "steps": steps} for m in MODELS]
    found = list(run_batch(configs))
    start = {c["energy"]: r for c, r in found if c["objective"] == UNTRAINED}
    return [
        {
            "table": table,
            "model": f"{c['objective']} {c['energy']}",
            "steps": c["steps"],
            **{m: 100 * r[m] / start[c["energy"]][m] for m in METRICS},
        }
        for c, r in found
        if c["objective"] != UNTRAINED and not r["state"].startswith("failed")
    ]


def main() -> None:
    """Measure, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--long", action="store_true", help="20,000 steps too")
    options = begin(parser)
    lengths = (*STEPS, LONG) if options.long else STEPS
    rows = []
    for table in options.tables:
        rows += measure(table, lengths)
        print(table)
        keep(options.out, {"rows": rows})
    print(f"relative scores in % of the untrained encoder, mean over {len(options.tables)} tables")
    print(f"{'':20}" + "".join(f"{metric:^27}" for metric in METRICS))
    print(f"{'model':20}" + "".join(f"{steps:9,}" for _ in METRICS for steps in lengths))
    for m in MODELS:
        name = f"{m.loss} {m.energy}"
        cells = [
            float(np.mean([row[metric] for row in rows if row["model"] == name and row["steps"] == steps]))
            for metric in METRICS
            for steps in lengths
        ]
        print(f"{name:20}" + "".join(f"{cell:9.1f}" for cell in cells))


if __name__ == "__main__":
    main()
