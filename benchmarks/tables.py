"""What a representation of a table is worth, beside what a practitioner would write instead.

    python benchmarks/tables.py --out tables.json                # ours, raw features and PCA on every table and split
    python benchmarks/tables.py --out tables.json --part validation --name wide --set encoder.hidden=512,512

Tables are the 14 mixed ones below `$PROBSSL_DATA/tables`, the 18 of `pmlb:`, or those named. Every split keeps a fifth
of the rows aside; probes are fitted on the others and judged on these. With `--part validation` the test rows are left
out altogether, and a fifth of the remaining ones is judged: defaults are chosen so. What stands in the file is not
computed again. Comparisons are by pairs of the same table and split, with the standard error over tables.
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
from running import begin, keep

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

NEGLIGIBLE = 0.005
"""A difference that counts as a tie."""

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


Row = dict[str, Any]


def known(path: Path) -> list[Row]:
    """What stands in a file of results."""
    found: list[Row] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return found


def run(options: argparse.Namespace) -> None:
    """Train on every table and split that is not there yet."""
    results = known(options.out)
    settings = dict(change.split("=", 1) for change in options.set)
    for split in range(options.splits):
        for name, how in tables(options.tables).items():
            key = {"table": name, "split": split, "part": options.part}
            there = {row["method"] for row in results if all(row[part] == value for part, value in key.items())}
            if options.name in there:
                continue
            data, begun = divided(how, split, options.part), time.process_time()
            made = probssl.fit(data, seed=split, settings=settings)
            taken = time.process_time() - begun
            assert made.comparison is not None
            for code, values in made.comparison.rows.items():
                method = {TRAINED: options.name, RAW: "raw"}.get(code, code.partition(" to ")[0])
                if method not in there:
                    results.append({**key, "method": method, "dim": made.dim, "seconds": taken, **scores(values)})
            keep(options.out, results)
            found = [row for row in results if all(row[part] == value for part, value in key.items())]
            shown = "; ".join(f"{row['method']} " + " ".join(f"{row[score]:.3f}" for score in SCORES) for row in found)
            print(f"{name} {split} ({made.dim} dimensions, {taken:.0f} s): {shown}")


def show(options: argparse.Namespace) -> None:
    """Means over tables, and paired differences to each method with 1.96 standard errors."""
    found: dict[str, dict[str, dict[int, dict[str, float]]]] = defaultdict(lambda: defaultdict(dict))
    for row in known(options.out):
        if row["part"] == options.part:
            found[row["method"]][row["table"]][row["split"]] = row
    print(f"{'':24}" + "".join(f"{score:>12}" for score in SCORES))
    for method, of_tables in found.items():
        each = [[np.mean([one[score] for one in splits.values()]) for score in SCORES] for splits in of_tables.values()]
        means = "".join(f"{mean:12.3f}" for mean in np.mean(each, axis=0))
        print(f"{method:24}{means}   {len(of_tables)} tables")
    for method, of_tables in found.items():
        if method == options.name:
            continue
        print(f"{options.name} − {method}")
        for score in SCORES:
            apart = []
            for table, splits in found[options.name].items():
                both = splits.keys() & of_tables.get(table, {}).keys()
                apart += [np.mean([splits[one][score] - of_tables[table][one][score] for one in both])] if both else []
            error = 1.96 * np.std(apart, ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else float("nan")
            wins, losses = sum(one > NEGLIGIBLE for one in apart), sum(one < -NEGLIGIBLE for one in apart)
            print(f"    {score:12} {np.mean(apart):+.3f} ± {error:.3f}   {wins} wins, {losses} losses of {len(apart)}")


def main() -> None:
    """Train, then show all that there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default="all", help="names, mixed, pmlb or all")
    parser.add_argument("--part", choices=("test", "validation"), default="test")
    parser.add_argument("--splits", type=int, default=5, help="0 shows what there is")
    parser.add_argument("--name", default="probssl", help="what these settings are called")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    parser.set_defaults(out=Path("tables.json"))
    options = begin(parser)
    run(options)
    show(options)


if __name__ == "__main__":
    main()
