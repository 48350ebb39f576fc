"""Clusters without labels, judged by labels: GEDIClusterer beside k-means, a mixture, spectral clustering, SwAV.

NMI of clusters and classes on tables of `probssl data list`, as many clusters as classes, every feature standardised,
median over seeds; labels are seen by nobody but the score. Some two minutes a seed:

    python benchmarks/clusterers.py --seeds 5 --out clusterers.json
    python benchmarks/clusterers.py --data pmlb:vehicle --methods k-means GEDI --seeds 3
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from running import begin, keep
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics import normalized_mutual_info_score
from sklearn.mixture import GaussianMixture

from probssl.data import Standardiser, load
from probssl.estimators import GEDIClusterer, SiameseEncoder

SETS = ("sklearn:digits", "pmlb:optdigits", "pmlb:satimage", "pmlb:texture", "toy:moons", "toy:circles")

PLANE: dict[str, Any] = {
    "init": "random",  # k-means cuts both toys across
    "generative": 1.0,
    "lr": 0.005,
    "settings": {
        "pairing.preservation": 1.0,  # of two features none can be spared
        "pairing.noise": 0.1,
        "encoder.hidden": (100, 100),
        "objective.sampler.steps": 4,
        "objective.sampler.step_size": 0.004,  # steps that stay within an arm of a moon
    },
}
"""What GEDI takes for two features: clusters that follow the density, which k-means and masks know nothing of."""


def k_means(x: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    return KMeans(clusters, n_init=10, random_state=seed).fit_predict(x)


def mixture(x: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    return GaussianMixture(clusters, reg_covar=1e-3, random_state=seed).fit_predict(x)


def spectral(x: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """On the graph of ten nearest neighbours."""
    return SpectralClustering(clusters, affinity="nearest_neighbors", random_state=seed).fit_predict(x)


def swav(x: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """The defaults of `probssl fit --objective swav`."""
    fitted = SiameseEncoder("swav", settings={"objective.clusters": clusters}, random_state=seed).fit(x)
    with torch.no_grad():
        return fitted.objective_.head(torch.from_numpy(fitted.transform(x)).float()).argmax(1).numpy()


def gedi(**options: Any) -> Callable[[np.ndarray, int, int], np.ndarray]:
    return lambda x, clusters, seed: GEDIClusterer(clusters, random_state=seed, **options).fit(x).labels_


METHODS: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {
    "k-means": k_means,
    "Gaussian mixture": mixture,
    "spectral": spectral,
    "SwAV": swav,
    "GEDI": gedi(),
    "GEDI, no density": gedi(generative=0.0),
    "GEDI, for a plane": gedi(**PLANE),
}


def main() -> None:
    """All methods on all sets."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", nargs="*", default=list(SETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=1)
    options = begin(parser)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    results: dict[str, dict[str, object]] = {}
    for name in options.data:
        table = load(name)
        assert table.labels is not None
        x = Standardiser.fit(table.features).transform(table.features)
        for method in options.methods:
            if method == "GEDI, for a plane" and table.n_features != 2:
                continue
            started = time.process_time()
            found = [METHODS[method](x, len(table.classes), seed) for seed in range(options.seeds)]
            seconds = (time.process_time() - started) / options.seeds
            scores = [float(normalized_mutual_info_score(table.labels, labels)) for labels in found]
            results.setdefault(name, {})[method] = {"nmi": scores, "seconds": seconds}
            shown = " ".join(f"{score:.3f}" for score in scores)
            print(f"{name:<24}{method:<18}{np.median(scores):.3f}   ({shown})   {seconds:.1f} s")
            keep(options.out, results)


if __name__ == "__main__":
    main()
