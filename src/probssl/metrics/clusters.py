"""Clusters and classes: do the groups that a mixture of normal laws finds agree with the labels?"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError
from probssl.metrics._inputs import Array, label_codes, positive, subsample, whole
from probssl.metrics._splits import FittedOn, Probe, Selection, chosen_selection, folds

SCREENED = 4000
"""Rows on which starts of a mixture are compared."""

SCREENING = 10
"""Iterations after which they are."""


@dataclass(frozen=True)
class ClusteringScores:
    """Agreement of clusters with classes."""

    accuracy: float  # [0, 1]: rows in the cluster of their class, clusters matched to classes one to one as is best
    nmi: float  # [0, 1]: I(cluster; class) over the mean of their entropies; 0 if independent
    ari: float  # at most 1: pairs of rows together or apart in both, adjusted for chance; 0 expected of random clusters


@dataclass(frozen=True)
class GMMProbe:
    """The scores of `gmm_probe`, each over the splits.

    They are `accuracy`, `nmi` and `ari`, as of `ClusteringScores`.
    """

    accuracy: Probe
    nmi: Probe
    ari: Probe


def clustering_scores(labels: ArrayLike, clusters: ArrayLike) -> ClusteringScores:
    """How well clusters agree with labels: accuracy under the best one-to-one matching, NMI and ARI.

    All are unchanged by renaming clusters or classes; 1 where they are the same. One cluster has the accuracy of the
    largest class, and NMI and ARI of 0 where there are several classes.
    """
    truth, _ = label_codes(labels, len(np.asarray(labels)))
    found, _ = label_codes(clusters, len(truth))
    return _scores(truth, found, _matching(truth, found))


def gmm_probe(
    representations: ArrayLike,
    labels: ArrayLike,
    *,
    components: int | None = None,
    protocol: Selection = "honest",
    fitted_on: FittedOn | None = None,
    splits: int = 5,
    test_size: float = 0.2,
    starts: int = 20,
    ridge: float = 1e-6,
    max_rows: int | None = 10_000,
    seed: int = 0,
) -> GMMProbe:
    """Held-out accuracy, NMI and ARI of the clusters of a Gaussian mixture with full covariances   (SimVAE A.7.5).

    As many components as there are classes unless told otherwise, fitted to the representations without labels, and
    held-out rows put into their likeliest component. Accuracy needs to know which component is which class: by the
    protocol `honest` the one-to-one matching is the best one on the fitting rows and their labels; by `published` the
    best one on the rows judged. NMI and ARI need no matching and are the same by both.

    EM finds local optima. Twenty `starts` by k-means each make ten iterations on 4,000 rows, and the likeliest is
    finished on at most `max_rows` (SimVAE finishes all, of 200 starts in the paper and 20 in its code). `ridge` times
    the mean variance of the features is added to every variance, so that constant and duplicated features do no harm.
    Unchanged by rotation, translation and a common scale, up to rounding that k-means may amplify.
    """
    selection = chosen_selection(protocol)
    whole(starts, "starts", 1)
    positive(ridge, "ridge")
    found = folds(representations, labels, fitted_on, splits, test_size, False, seed)
    count = found.classes if components is None else whole(components, "components", 1)
    scores: list[ClusteringScores] = []
    unfinished = 0
    for index, fold in enumerate(found):
        fitted = _Mixture(fold.x, count, starts, ridge, max_rows, seed + index)
        unfinished += not fitted.converged
        clusters = fitted.predict(fold.judged)
        if selection == "honest":
            matching = _matching(fold.y, fitted.predict(fold.x))
        else:
            matching = _matching(fold.truth, clusters)
        scores.append(_scores(fold.truth, clusters, matching))
    used = "" if max_rows is None or found.fitting <= max_rows else f", on {max_rows} of {found.fitting} rows"
    how = f"{count} normal laws with full covariances ({starts} starts, ridge {ridge:g}{used}), "
    tail = f"{found.protocol}; "
    tail += f"{unfinished} of {len(scores)} fits stopped before converging" if unfinished else "all fits converged"
    where = "the fitting rows" if selection == "honest" else "the rows judged"
    matched = f"accuracy, {selection}: components matched to classes on {where}"

    def probe(each: list[float], what: str, by: Selection) -> Probe:
        return Probe.of(each, f"{how}{what}, {tail}", converged=not unfinished, selection=by)

    return GMMProbe(
        probe([s.accuracy for s in scores], matched, selection),
        probe([s.nmi for s in scores], "NMI", "honest"),
        probe([s.ari for s in scores], "ARI", "honest"),
    )


class _Mixture:
    """A mixture of normal laws fitted to rows, which it first centres and divides by one scale."""

    def __init__(self, x: Array, components: int, starts: int, ridge: float, max_rows: int | None, seed: int) -> None:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture

        x = subsample(x, max_rows, seed)
        if components > len(x):
            raise InputError(f"{components} normal laws are more than the {len(x)} rows that they are fitted to")
        self.mean = x.mean(axis=0)
        self.scale = float(np.sqrt(x.var(axis=0).mean())) if np.ptp(x, axis=0).any() else 1.0
        z = self._scaled(x)
        settings = {"n_components": components, "covariance_type": "full", "reg_covar": ridge}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # also of k-means, where rows are fewer than clusters
            first = GaussianMixture(**settings, n_init=starts, max_iter=SCREENING, random_state=seed)
            first.fit(subsample(z, SCREENED, seed))
            start = {"weights_init": first.weights_, "means_init": first.means_, "precisions_init": first.precisions_}
            self.model = GaussianMixture(**settings, max_iter=200, random_state=seed, **start).fit(z)
        self.converged = bool(self.model.converged_)

    def _scaled(self, x: Array) -> Array:
        scaled: Array = (x - self.mean) / self.scale
        return scaled

    def predict(self, x: Array) -> NDArray[np.intp]:
        """The likeliest component of each row."""
        return np.asarray(self.model.predict(self._scaled(x)))


def _matching(truth: NDArray[np.intp], clusters: NDArray[np.intp]) -> dict[int, int]:
    """Cluster → class, one to one, with the most rows in the cluster of their class."""
    from scipy.optimize import linear_sum_assignment

    table = np.zeros((clusters.max() + 1, truth.max() + 1), dtype=np.intp)
    np.add.at(table, (clusters, truth), 1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return dict(zip(rows.tolist(), columns.tolist(), strict=True))


def _scores(truth: NDArray[np.intp], clusters: NDArray[np.intp], matching: dict[int, int]) -> ClusteringScores:
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    name = np.full(clusters.max() + 1, -1)
    for cluster, label in matching.items():
        if cluster < len(name):
            name[cluster] = label
    return ClusteringScores(
        float(np.mean(name[clusters] == truth)),
        min(1.0, float(normalized_mutual_info_score(truth, clusters))),
        float(adjusted_rand_score(truth, clusters)),
    )
