"""Every metric that applies, by name, with the table that says how to read them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError
from probssl.metrics._inputs import Array, label_codes, representations
from probssl.metrics._splits import FittedOn, check_lengths
from probssl.metrics.alignment import alignment, uniformity
from probssl.metrics.clid import cluster_learnability, intrinsic_dimension
from probssl.metrics.identifiability import linear_r2, mcc
from probssl.metrics.mcr import mcr2
from probssl.metrics.probes import GMMProbe, Probe, gmm_probe, knn_probe, linear_probe
from probssl.metrics.rank import rankme, spectra
from probssl.metrics.readers import NumberProbe, boosting_probe, few_probe, number_probe

NEIGHBOURS = 10
"""Nearest neighbours that vote, or whose numbers are averaged."""

FEW = (10, 60, 100)
"""Rows with a label, where few have one."""

ITERATIONS = 200
"""Of the logistic regression, at most, in coordinates that suit it."""

MIXTURE_FEATURES = 256
"""Most features to which a mixture with full covariances is fitted here; more take long, and more rows."""

JACKKNIFE = 20
"""Groups of rows that are left out in turn, for the error of a score that is not a mean over rows."""

Direction = Literal["higher", "lower", "neither"]
Needs = tuple[Literal["labels", "numbers", "partner", "latents", "rows"], ...]


@dataclass(frozen=True)
class Metric:
    """How to read one number of `summarise`.

    `name` is its key, `title` what people read, `direction` which way is better, `range` where it lies and `source`
    where it was published. `needs` says what it is computed from beside representations: a second representation
    (partner), the rows as they are. `quick` ones are cheap enough for every evaluation. `reads` is how a verdict names
    what was read off a representation; of metrics that say nothing of that it is empty.
    """

    name: str
    title: str
    direction: Direction
    range: str
    source: str
    needs: Needs = ()
    quick: bool = False
    reads: str = ""


@dataclass(frozen=True)
class Evaluation:
    """The numbers of `summarise`, and for each the protocol that gave it or the reason it is None.

    `values`, `protocols` and `each` go by the names of the metrics; `each` is what rows add to scores that are means
    over rows [draws, rows], by which two representations are compared (`paired.difference`).
    """

    values: dict[str, float | None]
    protocols: dict[str, str]
    each: dict[str, Array] = field(default_factory=dict, compare=False, repr=False)

    def __or__(self, other: Evaluation) -> Evaluation:
        return Evaluation(
            {**self.values, **other.values}, {**self.protocols, **other.protocols}, {**self.each, **other.each}
        )

    def named(self, suffix: str) -> Evaluation:
        """The same under longer names."""
        values = {f"{name}{suffix}": value for name, value in self.values.items()}
        protocols = {f"{name}{suffix}": protocol for name, protocol in self.protocols.items()}
        return Evaluation(values, protocols, {f"{name}{suffix}": each for name, each in self.each.items()})


_SPREAD = "_spread"
_ACCURACY: tuple[Direction, str] = ("higher", "[0, 1]")
_R2: tuple[Direction, str] = ("higher", "(-inf, 1]")
_ERROR: tuple[Direction, str] = ("lower", "[0, inf)")
_LATENTS: Needs = ("latents",)
_LABELS: Needs = ("labels",)
_NUMBERS: Needs = ("numbers",)
_NEAR = f"{NEIGHBOURS}-NN"
_RIDGE, _NEIGHBOURS, _BOOSTING = "Hoerl and Kennard 1970", "Cover 1968", "Friedman 2001"

METRICS: tuple[Metric, ...] = (
    Metric("linear_r2", "Latents found, linear R²", *_R2, "CL-ICA", _LATENTS, True, "linear R² of the latents"),
    Metric("mcc", "Latents found, one by one (MCC)", *_ACCURACY, "CL-ICA", _LATENTS, True, "MCC"),
    Metric("linear_probe", "Linear probe accuracy", *_ACCURACY, "Chen et al. 2020", _LABELS, True, "linear accuracy"),
    Metric("knn_probe", "Nearest-neighbour accuracy", *_ACCURACY, "Wu et al. 2018", _LABELS, True, f"{_NEAR} accuracy"),
    Metric("few_10", "Accuracy with 10 labels", *_ACCURACY, _RIDGE, _LABELS, False, "10-label accuracy"),
    Metric("few_60", "Accuracy with 60 labels", *_ACCURACY, _RIDGE, _LABELS, True, "60-label accuracy"),
    Metric("few_100", "Accuracy with 100 labels", *_ACCURACY, _RIDGE, _LABELS, False, "100-label accuracy"),
    Metric("boosting", "Gradient boosting, accuracy", *_ACCURACY, _BOOSTING, ("labels", "rows")),
    Metric("ridge_r2", "Linear R²", *_R2, _RIDGE, _NUMBERS, True, "linear R²"),
    Metric("ridge_mae", "Linear, mean error", *_ERROR, _RIDGE, _NUMBERS, True),
    Metric("knn_r2", "Nearest-neighbour R²", *_R2, _NEIGHBOURS, _NUMBERS, True, f"{_NEAR} R²"),
    Metric("knn_mae", "Nearest neighbours, mean error", *_ERROR, _NEIGHBOURS, _NUMBERS, True),
    Metric("few_10_r2", "R² with 10 labels", *_R2, _RIDGE, _NUMBERS, False, "10-label R²"),
    Metric("few_10_mae", "Mean error with 10 labels", *_ERROR, _RIDGE, _NUMBERS),
    Metric("few_60_r2", "R² with 60 labels", *_R2, _RIDGE, _NUMBERS, True, "60-label R²"),
    Metric("few_60_mae", "Mean error with 60 labels", *_ERROR, _RIDGE, _NUMBERS, True),
    Metric("few_100_r2", "R² with 100 labels", *_R2, _RIDGE, _NUMBERS, False, "100-label R²"),
    Metric("few_100_mae", "Mean error with 100 labels", *_ERROR, _RIDGE, _NUMBERS),
    Metric("boosting_r2", "Gradient boosting, R²", *_R2, _BOOSTING, ("numbers", "rows")),
    Metric("boosting_mae", "Gradient boosting, mean error", *_ERROR, _BOOSTING, ("numbers", "rows")),
    Metric("gmm_accuracy", "Mixture clusters, accuracy", *_ACCURACY, "SimVAE", _LABELS),
    Metric("gmm_nmi", "Mixture clusters, NMI", *_ACCURACY, "SimVAE", _LABELS),
    Metric("gmm_ari", "Mixture clusters, ARI", "higher", "[-0.5, 1]", "SimVAE", _LABELS),
    Metric("rankme", "RankMe", "neither", "[1, min(n, m)]", "Garrido et al. 2023", quick=True),
    Metric("effective_rank", "Effective rank", "neither", "[1, min(n-1, m)]", "Roy and Vetterli 2007"),
    Metric("numerical_rank", "Numerical rank", "neither", "[0, min(n-1, m)]", "eigenvalues over 1e-5"),
    Metric("intrinsic_dimension", "Intrinsic dimension", "higher", "(0, inf)", "Facco et al. 2017"),
    Metric("cluster_learnability", "Cluster learnability", "higher", "[0, 1]", "Lu et al. 2023"),
    Metric("alignment", "Alignment", "lower", "[0, 4]", "Wang and Isola 2020", ("partner",)),
    Metric("uniformity", "Uniformity", "lower", "[-4n/(n-1), 0]", "Wang and Isola 2020"),
    Metric("mcr2", "Coding rate reduction, k-means", "higher", "[0, inf)", "Yu et al. 2020"),
    Metric("mcr2_labels", "Coding rate reduction, labels", "higher", "[0, inf)", "Yu et al. 2020", _LABELS),
)


def summarise(
    z: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    numbers: ArrayLike | None = None,
    partner: ArrayLike | None = None,
    latents: ArrayLike | None = None,
    seed: int = 0,
) -> dict[str, float | None]:
    """Every metric that applies, as name -> number.

    Metrics of labels appear only with `labels`, those of a number to predict only with `numbers` (both with NaN where
    the value is unknown), alignment only with `partner` (representations of observations related to the rows of z, one
    to one), R² and MCC only with `latents` (the truth behind the rows, [n, d]). Each probe is followed by its spread
    over splits, named "..._spread". A metric that is undefined for this input (one class, too few rows, a constant
    code) is None. Bad arguments (shapes, missing values) raise InputError.
    """
    return evaluate(z, labels=labels, numbers=numbers, partner=partner, latents=latents, seed=seed).values


def evaluate(
    z: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    numbers: ArrayLike | None = None,
    partner: ArrayLike | None = None,
    latents: ArrayLike | None = None,
    fitted_on: FittedOn | None = None,
    quick: bool = False,
    seed: int = 0,
) -> Evaluation:
    """As `summarise`, with a line beside each number that says how it was computed or why it is None.

    `fitted_on`: representations of other rows and their labels, or numbers, on which probes are fitted in place of
    splits of these. `quick`: only metrics that are marked so.
    """
    if fitted_on is not None and labels is not None and numbers is not None:
        raise InputError("fitted_on holds labels or numbers: evaluate one after the other")
    found = of_codes(z, partner=partner, latents=latents, quick=quick, seed=seed)
    for target, numeric in ((labels, False), (numbers, True)):
        if target is not None:
            found |= of_target(z, target, numbers=numeric, fitted_on=fitted_on, quick=quick, seed=seed)
    return found


def of_codes(
    z: ArrayLike,
    *,
    partner: ArrayLike | None = None,
    latents: ArrayLike | None = None,
    quick: bool = False,
    seed: int = 0,
) -> Evaluation:
    """The metrics that ask for no labels."""
    x = representations(z)
    if partner is not None and (related := representations(partner, "partner")).shape != x.shape:
        raise InputError(f"partner must have the shape of the representations, {x.shape}, not {related.shape}")
    if latents is not None and len(truth := representations(latents, "latents")) != len(x):
        raise InputError(f"there must be as many latents as representations, {len(x)}, not {len(truth)}")
    spectrum = functools.cache(lambda: spectra(x))

    def sampled(limit: int) -> str:
        return f"{min(limit, len(x))} of {len(x)} rows, seed {seed}"

    def found_linearly() -> Probe:
        scores = linear_r2(x, _given(latents), seed=seed)
        how = f"affine fit, mean over latents, 20% of {len(x)} rows held out, seed {seed}"
        return Probe(scores.mean, None, (scores.mean,), how, each=scores.each[None])

    def found_singly() -> Probe:
        truth = representations(_given(latents), "latents")
        value = mcc(x, truth).value
        each = _pseudo_values(lambda rows: mcc(x[rows], truth[rows]).value, value, len(x))
        return Probe(value, None, (value,), f"Pearson, best one-to-one assignment, {len(x)} rows", each=each)

    compute: dict[str, tuple[Callable[[], Probe | float], str]] = {
        "rankme": (lambda: rankme(x), "exp entropy of the singular values, not centred"),
        "effective_rank": (lambda: spectrum().effective_rank, "exp entropy of the covariance eigenvalues"),
        "numerical_rank": (lambda: spectrum().numerical_rank, "covariance eigenvalues above 1e-5 of the largest"),
        "intrinsic_dimension": (
            lambda: intrinsic_dimension(x, seed=seed),
            f"TwoNN, distinct rows, largest 10% of ratios left out, at most {sampled(60_000)}",
        ),
        "cluster_learnability": (
            lambda: cluster_learnability(x, seed=seed),
            f"5 nearest neighbours on k-means labels, 20% held out, {sampled(20_000)}",
        ),
        "uniformity": (lambda: uniformity(x, seed=seed), f"unit sphere, t = 2, {sampled(10_000)}"),
        "mcr2": (
            lambda: mcr2(x, seed=seed).reduction,
            f"unit sphere, 10 k-means clusters, epsilon² 0.5, seed {seed}",
        ),
    }
    if latents is not None:
        compute |= {"linear_r2": (found_linearly, ""), "mcc": (found_singly, "")}
    if partner is not None:
        compute["alignment"] = lambda: alignment(x, partner), "unit sphere, power 2"
    return _computed(compute, quick)


def of_target(
    z: ArrayLike,
    target: ArrayLike,
    *,
    numbers: bool = False,
    fitted_on: FittedOn | None = None,
    quick: bool = False,
    seed: int = 0,
) -> Evaluation:
    """The metrics that ask how well labels, or numbers, are read off representations, where they are known."""
    x, y = _known(z, target)
    apart = None if fitted_on is None else _known(*fitted_on)
    fitting = len(x) if apart is None else len(apart[0])
    neighbours = min(NEIGHBOURS, max(1, fitting // 2))
    shared: dict[str, Any] = {"fitted_on": apart, "seed": seed}
    if numbers:
        return _computed(_of_numbers(x, y, neighbours, shared), quick)

    @functools.cache
    def mixture() -> GMMProbe:
        classes = len(label_codes(y, len(x))[1])
        if x.shape[1] > min(MIXTURE_FEATURES, fitting // classes):
            raise InputError(
                f"full covariances of {x.shape[1]} features, above {MIXTURE_FEATURES} or the {fitting // classes} rows "
                f"of a class, are not fitted here"
            )
        splits = 5 if fitting <= 1000 else 1  # few rows make a noisy judge
        return gmm_probe(x, y, splits=splits, starts=5, max_rows=4000, **shared)

    def linear() -> Probe:
        return linear_probe(x, y, standardise=True, solver="whitened", iterations=ITERATIONS, **shared)

    compute: dict[str, tuple[Callable[[], Probe | float], str]] = {
        "linear_probe": (linear, ""),
        "knn_probe": (lambda: knn_probe(x, y, neighbours=neighbours, **shared), ""),
        **{f"few_{count}": (functools.partial(few_probe, x, y, labelled=count, **shared), "") for count in FEW},
        "gmm_accuracy": (lambda: mixture().accuracy, ""),
        "gmm_nmi": (lambda: mixture().nmi, ""),
        "gmm_ari": (lambda: mixture().ari, ""),
        "mcr2_labels": (lambda: mcr2(x, y).reduction, "unit sphere, groups by label, epsilon² 0.5"),
    }
    return _computed(compute, quick)


def _of_numbers(
    x: NDArray[Any], y: NDArray[Any], neighbours: int, shared: dict[str, Any]
) -> dict[str, tuple[Callable[[], Probe], str]]:
    readers: dict[str, dict[str, Any]] = {
        "ridge": {},
        "knn": {"neighbours": neighbours},
        **{f"few_{count}": {"labelled": count} for count in FEW},
    }
    compute: dict[str, tuple[Callable[[], Probe], str]] = {}
    for name, settings in readers.items():
        probe = functools.cache(functools.partial(number_probe, x, y, **settings, **shared))
        compute |= _both(name, probe)
    return compute


def _both(name: str, probe: Callable[[], NumberProbe]) -> dict[str, tuple[Callable[[], Probe], str]]:
    """Both numbers of a reader of numbers."""
    return {f"{name}_r2": (lambda: probe().r2, ""), f"{name}_mae": (lambda: probe().error, "")}


def of_rows(
    rows: ArrayLike,
    target: ArrayLike,
    *,
    categorical: tuple[int, ...] = (),
    numbers: bool = False,
    fitted_on: FittedOn | None = None,
    seed: int = 0,
) -> Evaluation:
    """What gradient boosting reads off the rows themselves, where the target is known."""
    x, y = _known(rows, target)
    apart = None if fitted_on is None else _known(*fitted_on)
    probe: Callable[[], Any] = functools.cache(
        lambda: boosting_probe(x, y, categorical=categorical, numbers=numbers, fitted_on=apart, seed=seed)
    )
    return _computed(_both("boosting", probe) if numbers else {"boosting": (probe, "")}, quick=False)


def _computed(compute: dict[str, Any], quick: bool) -> Evaluation:
    """Of each metric, in the order of the table, its number and how it was computed or why there is none."""
    found = Evaluation({}, {})
    for metric in METRICS:
        if metric.name not in compute or (quick and not metric.quick):
            continue
        function, protocol = compute[metric.name]
        value = spread = None
        try:
            result = function()
        except InputError as error:
            result, protocol = None, f"undefined: {error}"
        if isinstance(result, Probe):
            value, spread, protocol = result.mean, result.spread, result.protocol
            if result.each is not None:
                found.each[metric.name] = result.each
        elif result is not None:
            value = float(result)
        found.values[metric.name] = value
        if metric.name in _SPREADING:
            found.values[metric.name + _SPREAD] = spread
        found.protocols[metric.name] = protocol
    return found


_SPREADING = frozenset(
    metric.name for metric in METRICS if metric.name.startswith(("linear_probe", "knn", "few", "ridge"))
)


def _known(z: ArrayLike, target: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows whose target is known, and their targets."""
    x, y = np.asarray(z), np.asarray(target)
    check_lengths((y, len(x)))
    unknown = np.isnan(y) if y.dtype.kind == "f" else np.array([each is None or each != each for each in y], bool)
    return (x[~unknown], y[~unknown]) if unknown.any() else (x, y)


def _pseudo_values(score: Callable[[NDArray[np.intp]], float], whole: float, rows: int) -> Array | None:
    """Of a score θ, G θ − (G − 1) θ without group g of rows, [1, G]: they vary as terms of a mean (the jackknife)."""
    groups = min(JACKKNIFE, rows // 2)
    if groups < 2:
        return None
    every = np.arange(rows)
    left_out = [score(every[every % groups != group]) for group in range(groups)]
    return groups * whole - (groups - 1) * np.array(left_out)[None]


def _given(argument: ArrayLike | None) -> ArrayLike:
    assert argument is not None  # what is computed from it is left out without it
    return argument
