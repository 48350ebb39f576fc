"""Clusters without labels, judged by labels: GEDIClusterer beside k-means, a mixture, spectral clustering, SwAV.

NMI of clusters and classes on tables of `probssl data list`, as many clusters as classes, every feature standardised,
median over seeds; labels are seen by nobody but the score:

    python benchmarks/clusterers.py --data sklearn:digits sklearn:wine pmlb:optdigits --out clusterers.json
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics import normalized_mutual_info_score
from sklearn.mixture import GaussianMixture

import probssl
from probssl.data import Standardiser, Table, load
from probssl.estimators import GEDIClusterer

SETS = ("sklearn:digits", "sklearn:wine", "sklearn:breast_cancer", "pmlb:optdigits", "pmlb:texture")
SPECTRAL_ROWS = 6000
"""Most rows for spectral clustering, whose memory grows with their square."""


def swav(table: Table, rows: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """The default recipe of `probssl fit --objective swav`."""
    model = probssl.fit(table, objective="swav", clusters=clusters, seed=seed).model
    with torch.no_grad():
        return model.objective.logits(model.encoder, model.inputs(table.features)).argmax(1).numpy()  # type: ignore[operator]


METHODS: dict[str, Callable[[Table, np.ndarray, int, int], np.ndarray | None]] = {
    "k-means": lambda _, x, c, seed: KMeans(c, n_init=10, random_state=seed).fit_predict(x),
    "Gaussian mixture": lambda _, x, c, seed: GaussianMixture(c, reg_covar=1e-3, random_state=seed).fit_predict(x),
    "spectral": lambda _, x, c, seed: (
        SpectralClustering(c, affinity="nearest_neighbors", random_state=seed).fit_predict(x)
        if len(x) <= SPECTRAL_ROWS
        else None
    ),
    "SwAV": swav,
    "GEDI": lambda _, x, c, seed: GEDIClusterer(c, random_state=seed).fit(x).labels_,
    "GEDI, no density": lambda _, x, c, seed: GEDIClusterer(c, generative=0.0, random_state=seed).fit(x).labels_,
}


def main() -> None:
    """All methods on all sets."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", nargs="*", default=list(SETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    results: dict[str, dict[str, object]] = {}
    for name in options.data:
        table = load(name, label="target")
        assert table.labels is not None
        x = Standardiser.fit(table.features).transform(table.features)
        for method in options.methods:
            scores, started = [], time.process_time()
            for seed in range(options.seeds):
                found = METHODS[method](table, x, len(table.classes), seed)
                if found is not None:
                    scores.append(float(normalized_mutual_info_score(table.labels, found)))
            if not scores:
                continue
            seconds = (time.process_time() - started) / len(scores)
            results.setdefault(name, {})[method] = {"nmi": scores, "seconds": seconds}
            shown = " ".join(f"{score:.3f}" for score in scores)
            print(f"{name:<24}{method:<18}{np.median(scores):.3f}   ({shown})   {seconds:.1f} s", flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
