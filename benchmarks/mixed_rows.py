"""Rows of numbers, levels and gaps: how indicators are scaled, and what the spread of a posterior looks at.

Of every table of a folder with an index (`index.csv`: name, label, task) at most `--rows` rows. Probes of PCA are
fitted on 70 % of them and judged on the rest, over two splits. Bounds are of rows that training did not see; in both
halves a share of the values of each row is hidden, from none to 90 %:

    OMP_NUM_THREADS=1 python benchmarks/mixed_rows.py FOLDER --out benchmarks/results/mixed_rows.json
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from running import begin, keep
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.preprocessing import StandardScaler
from torch import Tensor

import probssl
from probssl.data import Preparation, Table
from probssl.encoders import MLP, Indicators, seeded
from probssl.layout import Layout
from probssl.metrics import likelihood_bound
from probssl.objectives import VAE, ColumnsLikelihood
from probssl.pairings import GaussianNoise
from probssl.training import TrainingPlan, fit


def prepared(path: Path, label: str, rows: int) -> tuple[Tensor, Layout, np.ndarray]:
    """Some rows as encoders take them, and their target."""
    data = probssl.load(path, label=label)
    assert isinstance(data, Table)
    target = np.asarray(data.targets[0].values if data.labels is None else data.labels, dtype=float)
    known = np.random.default_rng(0).permutation(np.flatnonzero(~np.isnan(target)))
    chosen = np.sort(known[:rows])
    found = Preparation.fit(data.layout, data.features[chosen])
    x = torch.from_numpy(found.transform(data.layout, data.features[chosen])).float()
    return x, found.layout, target[chosen]


def scaled(x: Tensor, layout: Layout, how: str) -> np.ndarray:
    """Numbers and indicators, the second as they are, with a variance of 1 for all of a column, or for each of them."""
    found = Indicators(layout)(x).double().numpy()
    variance, start = found.var(0), len(layout.numbers)
    factors = np.ones(len(variance))
    if how == "each":
        factors[start:] = 1 / np.sqrt(np.maximum(variance[start:], 1e-9))
    elif how == "column":
        for place in layout.coded:
            size = len(layout.columns[place].levels)
            factors[start : start + size] = 1 / np.sqrt(max(variance[start : start + size].sum(), 1e-9))
            start += size
    return (found - found.mean(0)) * factors


def probes(z: np.ndarray, y: np.ndarray, classes: bool, seed: int) -> dict[str, float]:
    """Accuracy or R² of a linear map, of ten neighbours, and of a linear map fitted to 60 labels."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(y))
    fitted, judged = np.split(order, [int(0.7 * len(y))])
    white = StandardScaler().fit(z[fitted]).transform(z)

    def linear(rows: np.ndarray) -> float:
        model = LogisticRegression(max_iter=200) if classes else RidgeCV(np.logspace(-2, 3, 11))
        return max(-1.0, model.fit(white[rows], y[rows]).score(white[judged], y[judged]))

    near = (KNeighborsClassifier if classes else KNeighborsRegressor)(10).fit(z[fitted], y[fitted])
    few = np.mean([linear(random.choice(fitted, 60, replace=False)) for _ in range(8)])
    return {"linear": linear(fitted), "10-NN": near.score(z[judged], y[judged]), "60 labels": float(few)}


def scales(x: Tensor, layout: Layout, y: np.ndarray, classes: bool) -> dict[str, dict[str, float]]:
    """Probes of PCA in half as many dimensions, by the scale of indicators."""
    found = {}
    for how in ("as they are", "column", "each"):
        left, sizes, _ = np.linalg.svd(scaled(x, layout, how), full_matrices=False)
        z = (left * sizes)[:, : max(2, layout.width // 2)]
        each = [probes(z, y, classes, seed) for seed in (0, 1)]
        found[how] = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
    return found


def bounds(x: Tensor, layout: Layout, steps: int) -> dict[str, dict[str, float]]:
    """Nats a held-out row, with the spread of the posterior from its mean and from the row."""
    chance = torch.Generator().manual_seed(5)
    share = 0.9 * torch.rand(len(x), 1, generator=chance)
    x = x.where(torch.rand(x.shape, generator=chance) >= share, torch.nan)
    columns = tuple(
        type(column)(column.name, column.kind, column.levels, column.part_of, True) for column in layout.columns
    )
    layout = Layout("table", layout.shape, columns)
    order = torch.randperm(len(x), generator=chance)
    fitted, judged = x[order[: int(0.7 * len(x))]], x[order[int(0.7 * len(x)) :]][:1500]
    known: dict[str, Any] = {"shape": layout.shape, "layout": layout, "dim": min(16, layout.width // 2)}
    found = {}
    for of in ("mean", "row"):
        encoder = seeded(0, lambda: MLP((256, 256), linear="pca").bind(sample=fitted, **known))
        objective = VAE(ColumnsLikelihood(), of="data")
        objective = seeded(1, functools.partial(objective.bind, encoder=encoder, **known))
        if of == "mean":
            objective.of_rows = False
            objective.log_variance = VAE(decoder=torch.nn.Identity()).bind(dim=known["dim"]).log_variance
        plan = TrainingPlan(steps=steps, lr=0.003, warmup=100, clip_norm=1.0)
        assert fit(encoder, objective, GaussianNoise(0.1), fitted, plan, seed=0).failure is None
        one, many = (likelihood_bound(objective, encoder, judged, samples=samples) for samples in (1, 100))
        found[of] = {"ELBO": one.nats, "100 samples": many.nats, "standard error": many.standard_error}
    return found


def main() -> None:
    """A line for each table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=2500)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--bounds", default="adult,wage", help="tables whose bounds are found too")
    options = begin(parser)
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    with (options.folder / "index.csv").open(encoding="utf-8", newline="") as file:
        tables = list(csv.DictReader(file))
    for table in tables:
        name = table["name"]
        x, layout, y = prepared(next(options.folder.glob(f"{name}.csv*")), table["label"], options.rows)
        results[name] = {"scales": scales(x, layout, y, table["task"] == "classes")}
        if name in options.bounds.split(","):
            results[name]["bounds"] = bounds(x, layout, options.steps)
        print(json.dumps({name: results[name]}))
        keep(options.out, results)
    for how in ("as they are", "column", "each"):
        each = [result["scales"][how] for result in results.values()]
        print(how, {probe: round(float(np.mean([one[probe] for one in each])), 3) for probe in each[0]})


if __name__ == "__main__":
    main()
