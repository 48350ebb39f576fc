"""What a representation of a table is worth, beside what a practitioner would write instead, and beside peers.

    python benchmarks/tables.py run FOLDER                     # ours, raw features and PCA on every table and split
    python benchmarks/tables.py run FOLDER --part validation --name wide --set encoder.hidden=512,512
    python benchmarks/tables.py export FOLDER                  # arrays for peers, which have an environment apart
    python benchmarks/table_peers.py FOLDER                    # there: SCARF, VIME, SubTab (ts3l) and skrub
    python benchmarks/tables.py show FOLDER

Tables are the 14 mixed ones below `$PROBSSL_DATA/tables`, the 18 of `pmlb:`, or those named. Every split keeps a fifth
of the rows aside; probes are fitted on the others and judged on these. With `--part validation` the test rows are left
out altogether, and a fifth of the remaining ones is judged: defaults are chosen so. Results are lines of
FOLDER/results.jsonl; what stands there is not computed again. `show` compares by pairs of the same table and split,
with the standard error over tables.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import probssl
from probssl.data import catalogue
from probssl.runs.evaluation import RAW, TRAINED

SCORES = {
    "linear": ("linear_probe", "ridge_r2"),
    "10-NN": ("knn_probe", "knn_r2"),
    "60 labels": ("few_60", "few_60_r2"),
}
"""What is compared: of classes, and of numbers."""

LARGEST = 12_000
"""Rows that a split has at most; of larger tables some, which the split chooses."""

OUTSIDE = 1000
"""What is added to the seed of a split for the rows that choices are made on."""


def tables(names: str) -> dict[str, dict[str, Any]]:
    """How each table is read, by name: those named, all of `mixed` or `pmlb`, or everything."""
    folder = Path(os.environ["PROBSSL_DATA"]) / "tables"
    with (folder / "index.csv").open(encoding="utf-8") as file:
        mixed = {
            row["name"]: {"source": folder / f"{row['name']}.csv.gz", "label": row["label"]}
            for row in csv.DictReader(file)
        }
    published = {one.name: {"source": one.name} for one in catalogue() if one.name.startswith("pmlb:") and one.rows}
    groups = {"mixed": mixed, "pmlb": published, "all": mixed | published}
    found: dict[str, dict[str, Any]] = {}
    for name in names.split(","):
        found |= groups[name] if name in groups else {name: groups["all"][name]}
    return found


def divided(how: dict[str, Any], split: int, part: str) -> probssl.Dataset:
    """A table with the rows of one split set aside."""
    data = probssl.load(**how)
    if len(data) > LARGEST:
        data = data.take(np.sort(np.random.default_rng(split).permutation(len(data))[:LARGEST]))
    data = data.with_test(0.2, seed=split)
    if part == "validation":
        data = data.take(data.rows("train")).with_test(0.2, seed=split + OUTSIDE)
    return data


def scores(values: dict[str, float | None]) -> dict[str, float]:
    """The three scores of a code, of whichever kind its target is."""
    found = {}
    for score, names in SCORES.items():
        known = [values[name] for name in names if values.get(name) is not None]
        found[score] = float(known[0]) if known else float("nan")
    return found


class Results:
    """Lines of JSON: what was computed for a table, a split and a method."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "results.jsonl"
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        self.rows = [json.loads(line) for line in lines]

    def has(self, table: str, split: int, part: str, method: str) -> bool:
        return any(
            (row["table"], row["split"], row["part"], row["method"]) == (table, split, part, method)
            for row in self.rows
        )

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def run(arguments: argparse.Namespace) -> None:
    """Train on every table and split that is not there yet."""
    results = Results(arguments.folder)
    settings = dict(change.split("=", 1) for change in arguments.set)
    for split in range(arguments.splits):
        for name, how in tables(arguments.tables).items():
            if results.has(name, split, arguments.part, arguments.name):
                continue
            data, begun = divided(how, split, arguments.part), time.process_time()
            made = probssl.fit(data, seed=split, settings=settings)
            taken = time.process_time() - begun
            assert made.comparison is not None
            for code, values in made.comparison.rows.items():
                method = {TRAINED: arguments.name, RAW: "raw"}.get(code, code.partition(" to ")[0])
                if not results.has(name, split, arguments.part, method):
                    results.add(
                        table=name,
                        split=split,
                        part=arguments.part,
                        method=method,
                        dim=made.dim,
                        seconds=taken,
                        **scores(values),
                    )
            shown = {
                row["method"]: [round(row[score], 3) for score in SCORES]
                for row in results.rows
                if (row["table"], row["split"]) == (name, split)
            }
            print(f"{name} {split} ({made.dim} dimensions, {taken:.0f} s): {shown}", flush=True)


def show(arguments: argparse.Namespace) -> None:
    """Means over tables, and paired differences to each method with their standard errors."""
    found: dict[str, dict[str, dict[int, dict[str, float]]]] = defaultdict(lambda: defaultdict(dict))
    for row in Results(arguments.folder).rows:
        if row["part"] == arguments.part:
            found[row["method"]][row["table"]][row["split"]] = row
    print(f"{'':24}" + "".join(f"{score:>12}" for score in SCORES))
    for method, by_table in found.items():
        means = [
            np.mean([np.mean([one[score] for one in splits.values()]) for splits in by_table.values()])
            for score in SCORES
        ]
        print(f"{method:24}" + "".join(f"{mean:12.3f}" for mean in means) + f"   {len(by_table)} tables")
    mine = found[arguments.name]
    for method, by_table in found.items():
        if method == arguments.name:
            continue
        print(f"{arguments.name} − {method}")
        for score in SCORES:
            apart = []
            for table, splits in mine.items():
                both = splits.keys() & by_table.get(table, {}).keys()
                if both:
                    apart.append(np.mean([splits[one][score] - by_table[table][one][score] for one in both]))
            error = 1.96 * np.std(apart, ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else float("nan")
            wins, losses = sum(one > 0.005 for one in apart), sum(one < -0.005 for one in apart)
            print(f"    {score:12} {np.mean(apart):+.3f} ± {error:.3f}   {wins} wins, {losses} losses of {len(apart)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, action in (("run", run), ("show", show)):
        command = commands.add_parser(name)
        command.set_defaults(action=action)
        command.add_argument("folder", type=Path)
        command.add_argument("--part", choices=("test", "validation"), default="test")
        command.add_argument("--name", default="probssl", help="what these settings are called")
        if name == "run":
            command.add_argument("--tables", default="all", help="names, mixed, pmlb or all")
            command.add_argument("--splits", type=int, default=5)
            command.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    arguments = parser.parse_args()
    arguments.action(arguments)


if __name__ == "__main__":
    main()
