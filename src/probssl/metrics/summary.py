"""Every metric that applies, by name, with the table that says how to read them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.metrics._inputs import label_codes, representations
from probssl.metrics.alignment import alignment, uniformity
from probssl.metrics.clid import cluster_learnability, intrinsic_dimension
from probssl.metrics.identifiability import linear_r2, mcc
from probssl.metrics.mcr import mcr2
from probssl.metrics.probes import GMMProbe, Probe, gmm_probe, knn_probe, linear_probe
from probssl.metrics.rank import rankme, spectra


@dataclass(frozen=True)
class Metric:
    """How to read one number of `summarise`.

    `name` is its key, `title` what people read, `range` where it lies and `source` where it was published.
    `needs_labels`, `needs_partner` (a second representation) and `needs_latents` say what it is computed from.
    """

    name: str
    title: str
    direction: Literal["higher", "lower", "neither"]  # which way is better
    range: str
    needs_labels: bool
    source: str
    needs_partner: bool = False
    needs_latents: bool = False


@dataclass(frozen=True)
class Evaluation:
    """The numbers of `summarise`, and for each the protocol that gave it or the reason it is None.

    `values` and `protocols` go by the names of the metrics.
    """

    values: dict[str, float | None]
    protocols: dict[str, str]


NEIGHBOURS = 15
"""Most neighbours among which the nearest-neighbour probe chooses, as in SimVAE, but on rows kept for it."""

MIXTURE_FEATURES = 256
"""Most features to which a mixture with full covariances is fitted here; more take long, and more rows."""


METRICS: tuple[Metric, ...] = (
    Metric("linear_r2", "Latents found, linear R²", "higher", "(-inf, 1]", False, "CL-ICA", needs_latents=True),
    Metric("mcc", "Latents found, one by one (MCC)", "higher", "[0, 1]", False, "CL-ICA", needs_latents=True),
    Metric("linear_probe", "Linear probe accuracy", "higher", "[0, 1]", True, "Chen et al. 2020"),
    Metric("knn_probe", "Nearest-neighbour accuracy", "higher", "[0, 1]", True, "Wu et al. 2018"),
    Metric("gmm_accuracy", "Mixture clusters, accuracy", "higher", "[0, 1]", True, "SimVAE"),
    Metric("gmm_nmi", "Mixture clusters, NMI", "higher", "[0, 1]", True, "SimVAE"),
    Metric("gmm_ari", "Mixture clusters, ARI", "higher", "[-0.5, 1]", True, "SimVAE"),
    Metric("rankme", "RankMe", "neither", "[1, min(n, m)]", False, "Garrido et al. 2023"),
    Metric("effective_rank", "Effective rank", "neither", "[1, min(n-1, m)]", False, "Roy and Vetterli 2007"),
    Metric("numerical_rank", "Numerical rank", "neither", "[0, min(n-1, m)]", False, "eigenvalues over 1e-5"),
    Metric("intrinsic_dimension", "Intrinsic dimension", "higher", "(0, inf)", False, "Facco et al. 2017"),
    Metric("cluster_learnability", "Cluster learnability", "higher", "[0, 1]", False, "Lu et al. 2023"),
    Metric("alignment", "Alignment", "lower", "[0, 4]", False, "Wang and Isola 2020", needs_partner=True),
    Metric("uniformity", "Uniformity", "lower", "[-4n/(n-1), 0]", False, "Wang and Isola 2020"),
    Metric("mcr2", "Coding rate reduction, k-means", "higher", "[0, inf)", False, "Yu et al. 2020"),
    Metric("mcr2_labels", "Coding rate reduction, labels", "higher", "[0, inf)", True, "Yu et al. 2020"),
)


def summarise(
    z: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    partner: ArrayLike | None = None,
    latents: ArrayLike | None = None,
    standardise: bool = False,
    seed: int = 0,
) -> dict[str, float | None]:
    """Every metric that applies, at its default settings, as name -> number in the order of METRICS.

    Metrics of labels appear only with `labels`, alignment only with `partner` (representations of
    observations related to the rows of z, one to one), R² and MCC only with `latents` (the truth behind the
    rows, [n, d]). Each probe is followed by its spread over splits, named "..._spread". A metric that is
    undefined for this input (one class, too few rows, a constant code) is None. `standardise` is for the
    probes. Bad arguments (shapes, missing values) raise InputError.
    """
    return evaluate(z, labels=labels, partner=partner, latents=latents, standardise=standardise, seed=seed).values


def evaluate(
    z: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    partner: ArrayLike | None = None,
    latents: ArrayLike | None = None,
    fitted_on: tuple[ArrayLike, ArrayLike] | None = None,
    standardise: bool = False,
    quick: bool = False,
    seed: int = 0,
) -> Evaluation:
    """As `summarise`, with a line beside each number that says how it was computed or why it is None.

    `fitted_on`: representations and labels of other rows, on which probes are fitted in place of splits of these.
    `quick`: mixtures of clusters, which take longest, are fitted to fewer rows.
    """
    x = representations(z)
    if labels is not None:
        label_codes(labels, len(x))
    if partner is not None and (related := representations(partner, "partner")).shape != x.shape:
        raise InputError(f"partner must have the shape of the representations, {x.shape}, not {related.shape}")
    if latents is not None and len(truth := representations(latents, "latents")) != len(x):
        raise InputError(f"there must be as many latents as representations, {len(x)}, not {len(truth)}")
    spectrum = spectra(x)

    fitting = len(x) if fitted_on is None else len(representations(fitted_on[0]))
    neighbours = range(1, min(NEIGHBOURS, max(1, fitting // 2)) + 1)  # of which a split has more to choose by

    def probe(kind: Callable[..., Probe]) -> Probe:
        return kind(x, _given(labels), fitted_on=fitted_on, standardise=standardise, seed=seed)

    @functools.cache
    def mixture() -> GMMProbe:
        classes = len(label_codes(_given(labels), len(x))[1])
        if x.shape[1] > min(MIXTURE_FEATURES, fitting // classes):
            raise InputError(
                f"full covariances of {x.shape[1]} features, above {MIXTURE_FEATURES} or the {fitting // classes} rows "
                f"of a class, are not fitted here"
            )
        splits = 5 if fitting <= 1000 else 1  # few rows make a noisy judge
        starts, rows = (2, 1000) if quick else (5, 4000)
        return gmm_probe(x, _given(labels), fitted_on=fitted_on, splits=splits, starts=starts, max_rows=rows, seed=seed)

    def sampled(limit: int) -> str:
        return f"{min(limit, len(x))} of {len(x)} rows, seed {seed}"

    compute: dict[str, tuple[Callable[[], Probe | float], str]] = {
        "linear_r2": (
            lambda: linear_r2(x, _given(latents), seed=seed).mean,
            f"affine fit, mean over latents, 20% of {len(x)} rows held out, seed {seed}",
        ),
        "mcc": (lambda: mcc(x, _given(latents)).value, f"Pearson, best one-to-one assignment, {len(x)} rows"),
        "linear_probe": (lambda: probe(linear_probe), ""),
        "knn_probe": (lambda: probe(functools.partial(knn_probe, neighbours=neighbours)), ""),
        "gmm_accuracy": (lambda: mixture().accuracy, ""),
        "gmm_nmi": (lambda: mixture().nmi, ""),
        "gmm_ari": (lambda: mixture().ari, ""),
        "rankme": (lambda: rankme(x), "exp entropy of the singular values, not centred"),
        "effective_rank": (lambda: spectrum.effective_rank, "exp entropy of the covariance eigenvalues"),
        "numerical_rank": (
            lambda: spectrum.numerical_rank,
            "covariance eigenvalues above 1e-5 of the largest",
        ),
        "intrinsic_dimension": (
            lambda: intrinsic_dimension(x, seed=seed),
            f"TwoNN, distinct rows, largest 10% of ratios left out, at most {sampled(60_000)}",
        ),
        "cluster_learnability": (
            lambda: cluster_learnability(x, seed=seed),
            f"5 nearest neighbours on k-means labels, 20% held out, {sampled(20_000)}",
        ),
        "alignment": (lambda: alignment(x, _given(partner)), "unit sphere, power 2"),
        "uniformity": (lambda: uniformity(x, seed=seed), f"unit sphere, t = 2, {sampled(10_000)}"),
        "mcr2": (
            lambda: mcr2(x, seed=seed).reduction,
            f"unit sphere, 10 k-means clusters, epsilon² 0.5, seed {seed}",
        ),
        "mcr2_labels": (lambda: mcr2(x, labels).reduction, "unit sphere, groups by label, epsilon² 0.5"),
    }
    values: dict[str, float | None] = {}
    protocols: dict[str, str] = {}
    for metric in METRICS:
        asked = (metric.needs_labels, labels), (metric.needs_partner, partner), (metric.needs_latents, latents)
        if any(needs and given is None for needs, given in asked):
            continue
        function, protocol = compute[metric.name]
        result: Probe | float | None
        try:
            result = function()
        except InputError as error:
            result, protocol = None, f"undefined: {error}"
        if isinstance(result, Probe):
            values[metric.name], protocol = result.mean, result.protocol
            if metric.name.endswith("_probe"):
                values[f"{metric.name}_spread"] = result.spread
        else:
            values[metric.name] = None if result is None else float(result)
            if metric.name.endswith("_probe"):
                values[f"{metric.name}_spread"] = None
        protocols[metric.name] = protocol
    return Evaluation(values, protocols)


def _given(argument: ArrayLike | None) -> ArrayLike:
    assert argument is not None  # the loop above skips metrics whose argument is missing
    return argument
