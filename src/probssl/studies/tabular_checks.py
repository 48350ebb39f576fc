"""How sentences of the paper about the tabular study are checked: numbers of ours, compared as each sentence says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from probssl.studies.tabular_grid import ENERGIES, LEARNING_RATES, LOSSES, MODELS, Model
from probssl.studies.tabular_scores import METRICS, Array, Scores, mean, standard_error


@dataclass(frozen=True)
class Part:
    """One comparison: what was compared, the number it turned on, and whether it came out as the paper says."""

    name: str
    number: float
    holds: bool


Check = Callable[[Scores], Iterator[Part]]


# Numbers that claims are about.


@dataclass(frozen=True)
class Line:
    """Numbers to be read from scores: a line of a figure, [table, position], or [table] once reduced over the axis."""

    read: Callable[[Scores], Array]

    def __sub__(self, other: Line | float) -> Line:
        return Line(lambda scores: self.read(scores) - (other.read(scores) if isinstance(other, Line) else other))

    def __rsub__(self, other: float) -> Line:
        return Line(lambda scores: other - self.read(scores))

    @property
    def everywhere(self) -> Line:
        """Mean over the axis."""
        return Line(lambda scores: mean(self.read(scores), 1))

    @property
    def first(self) -> Line:
        """Mean over the first third of the axis: the widest outputs, or the strongest augmentations."""
        return Line(lambda scores: mean(self.read(scores)[:, : _third(scores)], 1))

    @property
    def last(self) -> Line:
        """Mean over the last third of the axis: the narrowest outputs, or the weakest augmentations."""
        return Line(lambda scores: mean(self.read(scores)[:, -_third(scores) :], 1))

    @property
    def rise(self) -> Line:
        """How much higher the last third is than the first."""
        return self.last - self.first

    @property
    def fall(self) -> Line:
        """How much lower the last third is than the first."""
        return self.first - self.last


def _third(scores: Scores) -> int:
    return max(1, len(scores.positions) // 3)


USUAL = LEARNING_RATES.index(0.01)


def relative(metric: str, model: Model) -> Line:
    """Relative score in per cent, at learning rate 0.01."""
    return Line(lambda scores: scores.relative(metric)[:, MODELS.index(model), USUAL])


def regret(metric: str, model: Model) -> Line:
    """Gap to the best model, at learning rate 0.01."""
    return Line(lambda scores: scores.regret(metric)[:, MODELS.index(model), USUAL])


def raw(metric: str, model: Model, rate: float) -> Line:
    """The score itself."""
    return Line(lambda scores: scores.raw(metric)[:, MODELS.index(model), LEARNING_RATES.index(rate)])


def change(metric: str, model: Model) -> Line:
    """The score at learning rate 1 minus that at 0.01."""
    return Line(lambda scores: scores.change(metric)[:, MODELS.index(model)])


def average(lines: Sequence[Line]) -> Line:
    """The mean of several lines."""
    return Line(lambda scores: mean(np.stack([line.read(scores) for line in lines]), 0))


def stack(lines: Iterable[Line]) -> Line:
    """Lines of several models beside each other along a further axis, for `placed`."""
    every = tuple(lines)
    return Line(lambda scores: np.stack([line.read(scores) for line in every], -1))


# How numbers are judged: [table, …] -> the number that it turns on, and whether it is as claimed.

Test = Callable[[Array], tuple[float, bool]]


def middle(values: Array) -> float:
    """Mean over tables."""
    return float(mean(values, 0))


def positive(values: Array) -> tuple[float, bool]:
    """Whether a difference is above zero, by more than a standard error over tables."""
    error, size = float(standard_error(values)), middle(values)
    return size, size > (error if np.isfinite(error) else 0.0)


def negative(values: Array) -> tuple[float, bool]:
    """Whether a difference is below zero, by more than a standard error over tables."""
    size, holds = positive(-values)
    return -size, holds


def between(low: float, high: float) -> Test:
    """Whether the mean over tables is no less than the one and no more than the other."""
    return lambda values: (middle(values), low <= middle(values) <= high)


def placed(model: Model, models: Sequence[Model], places: int, *, lowest: bool = True) -> Test:
    """Whether a model is among the first few of `models` by its mean over tables; the number is its place, from 1."""

    def test(values: Array) -> tuple[float, bool]:
        means = {other: middle(own) for other, own in zip(models, values.T, strict=True)}
        order = sorted((m for m in means if np.isfinite(means[m])), key=lambda m: means[m] if lowest else -means[m])
        place = order.index(model) + 1 if model in order else float("nan")
        return place, place <= places

    return test


def denied(test: Test) -> Test:
    """Whether a test fails."""

    def opposite(values: Array) -> tuple[float, bool]:
        number, holds = test(values)
        return number, not holds

    return opposite


# Checks: which numbers are judged, and how.


def check(name: str, line: Line, test: Test = positive) -> Check:
    """One part, from a line as a whole."""
    return lambda scores: iter([Part(name, *test(line.read(scores)))])


def each(name: str, line: Line, test: Test = positive, only: Callable[[Fraction], bool] | None = None) -> Check:
    """A part for every position of a line (those that `only` takes), which stands in the name as `{}`."""

    def parts(scores: Scores) -> Iterator[Part]:
        for position, values in zip(scores.positions, np.moveaxis(line.read(scores), 1, 0), strict=True):
            if only is None or only(position):
                yield Part(name.format(scores.setup.label(position)), *test(values))

    return parts


def alike(name: str, lines: dict[str, Line], least: float = 0.9) -> Check:
    """For each model, the correlation over positions of its mean line with the mean of the others' lines."""

    def parts(scores: Scores) -> Iterator[Part]:
        means = {model: mean(line.read(scores), 0) for model, line in lines.items()}
        for model, own in means.items():
            others = mean(np.stack([line for other, line in means.items() if other != model]), 0)
            varies = own.std() > 0 and others.std() > 0 and len(own) > 2
            number = float(np.corrcoef(own, others)[0, 1]) if varies else float("nan")
            yield Part(f"{name}, {model}", number, number >= least)

    return parts


# What the sentences are about.

EUCLIDEAN, COSINE = (tuple(m for m in MODELS if m.energy == energy) for energy in ENERGIES)
LIKELIHOOD = tuple(m for m in MODELS if m.loss != "fisher")
COSINE_LIKELIHOOD, EUCLIDEAN_LIKELIHOOD = (tuple(m for m in some if m in LIKELIHOOD) for some in (COSINE, EUCLIDEAN))
FISHER_EUCLIDEAN, FISHER_COSINE = FISHER = tuple(Model("fisher", energy) for energy in ENERGIES)
SNL, SIMCLR, SPECTRAL = Model("snl", "euclidean"), Model("simclr", "cosine"), Model("spectral", "cosine")

ACCURACY, RANKME, ALIGNMENT, UNIFORMITY = "linear_probe", "rankme", "alignment", "uniformity"
TITLES = {metric: METRICS[metric].title for metric in (ACCURACY, RANKME)}
UNIFORMITY_REGRETS = stack(regret(UNIFORMITY, m) for m in COSINE)


def pairs(
    score: Callable[[str, Model], Line], metric: str, models: tuple[Model, ...] = EUCLIDEAN
) -> Iterator[tuple[str, Line, Line]]:
    """The losses of Euclidean models, which have the cosine energy too: their names, and their lines with each."""
    for m in models:
        yield LOSSES[m.loss], score(metric, m), score(metric, Model(m.loss, "cosine"))


def follow_each_other(metric: str) -> Check:
    """The likelihood-based cosine losses by a metric."""
    lines = {LOSSES[m.loss]: relative(metric, m) for m in COSINE_LIKELIHOOD}
    return alike(METRICS[metric].title, lines)


def narrow(position: Fraction) -> bool:
    """Outputs smaller than inputs."""
    return position < 1


def weaker(position: Fraction) -> bool:
    """All but augmentations that leave a tenth; no output is that narrow."""
    return position != Fraction(1, 10)


# Checks of one claim each.


def euclidean_collapses(scores: Scores) -> Iterator[Part]:
    """Shares of trainings that collapse or fail."""
    euclidean, cosine = (
        sum(scores.share(state, models, 0.01) for state in ("collapsed", "failed"))
        for models in (EUCLIDEAN_LIKELIHOOD, COSINE_LIKELIHOOD)
    )
    yield Part("Euclidean, %", 100 * euclidean, euclidean >= 0.1)
    yield Part("cosine, %", 100 * cosine, cosine < euclidean)


def width_as_input(scores: Scores) -> Array:
    """The relative accuracy of Fisher with the Euclidean energy at the last m/d that is not below 1: [table, 1]."""
    last = sum(not narrow(position) for position in scores.positions) - 1
    return relative(ACCURACY, FISHER_EUCLIDEAN).read(scores)[:, [last]]


def near_their_median(scores: Scores) -> Iterator[Part]:
    """Mean relative accuracy of the likelihood-based models."""
    lines = {m: relative(ACCURACY, m).everywhere for m in LIKELIHOOD}
    median = float(np.median([middle(line.read(scores)) for line in lines.values()]))
    for m, line in lines.items():
        yield from check(m.title, line, between(median - 5, median + 5))(scores)


def accurate_where_narrow(scores: Scores) -> Iterator[Part]:
    """Relative accuracy of the likelihood-based Euclidean losses whose relative RankMe is below 100 %."""
    for m in EUCLIDEAN_LIKELIHOOD:
        if middle(relative(RANKME, m).everywhere.read(scores)) < 100:
            name = f"{LOSSES[m.loss]} accuracy above 100 by"
            yield from check(name, relative(ACCURACY, m).everywhere - 100)(scores)


def least_change(*models: Model) -> Line:
    """The lowest mean change of accuracy and RankMe over positions, of any of the models: one number."""

    def read(scores: Scores) -> Array:
        lines = [mean(change(metric, m).read(scores), 0) for metric in TITLES for m in models]
        return np.array([min(np.nanmin(line) if np.isfinite(line).any() else np.nan for line in lines)])

    return Line(read)


def varies_by_at_most_ten(line: Array) -> tuple[float, bool]:
    """Whether the mean over tables does, over positions."""
    means = mean(line, 0)
    spread = float(np.nanmax(means) - np.nanmin(means)) if np.isfinite(means).any() else float("nan")
    return spread, spread <= 10


def spectral_trades_off(scores: Scores) -> Iterator[Part]:
    """Places of the cosine losses by alignment and by uniformity, added up."""
    total: dict[Model, int] = dict.fromkeys(COSINE, 0)
    for metric in (ALIGNMENT, UNIFORMITY):
        means = {m: middle(regret(metric, m).everywhere.read(scores)) for m in COSINE}
        for place, m in enumerate(sorted(means, key=lambda m: means[m]), 1):
            total[m] += place
    yield Part("sum of places", total[SPECTRAL], total[SPECTRAL] == min(total.values()))
    best = min((m for m in total if m != SPECTRAL), key=lambda m: total[m])
    yield Part(f"best other, {LOSSES[best.loss]}", total[best], total[best] >= total[SPECTRAL])


def worse_rival(metric: str) -> Line:
    """The regret of the worse of SimCLR and Spectral."""
    rivals = [regret(metric, m).everywhere for m in (SIMCLR, SPECTRAL)]
    return Line(lambda scores: max((line.read(scores) for line in rivals), key=middle))


def mostly_no_fall(line: Array) -> tuple[float, bool]:
    """The share of positions at which the mean over tables is not below zero by more than a standard error."""
    means, errors = mean(line, 0), np.nan_to_num(standard_error(line))
    known = np.isfinite(means)
    share = float(np.mean(means[known] >= -errors[known])) if known.any() else float("nan")
    return share, share > 0.5


def only_fall_of_fisher(scores: Scores) -> Iterator[Part]:
    """At ρ = 1 RankMe falls with one energy at least; elsewhere neither RankMe nor accuracy does with any."""
    falls = [negative(change(RANKME, m).read(scores)[:, -1]) for m in FISHER]
    yield Part("RankMe at 1", min(number for number, _ in falls), any(holds for _, holds in falls))
    for m in FISHER:
        for metric, title in TITLES.items():
            line = change(metric, m).read(scores)[:, :-1]
            means, errors = mean(line, 0), standard_error(line)
            if np.isfinite(means).any():
                worst = int(np.nanargmin(means))
                holds = bool(means[worst] >= -np.nan_to_num(errors[worst]))
                yield Part(f"least change of {title} elsewhere, {m.energy}", float(means[worst]), holds)


CHECKS: dict[str, list[Check]] = {
    "Euclidean collapses": [euclidean_collapses],
    "SNL is accurate": [
        check(
            "place",
            stack(relative(ACCURACY, m).everywhere for m in EUCLIDEAN),
            placed(SNL, EUCLIDEAN, 2, lowest=False),
        )
    ],
    "SNL uses few dimensions": [
        each("place at {}", stack(relative(RANKME, m) for m in EUCLIDEAN), placed(SNL, EUCLIDEAN, 1))
    ],
    "Fisher keeps RankMe": [each("{}", relative(RANKME, FISHER_COSINE), between(90, 110))],
    "narrower gains more": [
        check(f"not {m.title}", relative(ACCURACY, m).rise, denied(positive))
        if m == FISHER_COSINE
        else check(m.title, relative(ACCURACY, m).rise)
        for m in MODELS
    ],
    "Fisher loses if narrow": [
        each("fall at {}", Line(width_as_input) - relative(ACCURACY, FISHER_EUCLIDEAN), only=narrow)
    ],
    "losses gain alike": [near_their_median],
    "cosine raises RankMe": [check(m.title, relative(RANKME, m).everywhere - 100) for m in COSINE_LIKELIHOOD],
    "Euclidean lowers RankMe": [
        part
        for m in EUCLIDEAN
        for part in (
            check(f"{LOSSES[m.loss]} below 100 by", 100 - relative(RANKME, m).everywhere),
            check(f"{LOSSES[m.loss]} regret", regret(RANKME, m).everywhere),
        )
    ],
    "at no cost in accuracy": [accurate_where_narrow],
    "RankMe gap closes": [
        check(f"{loss} narrower by", (cosine - euclidean).fall)
        for loss, euclidean, cosine in pairs(relative, RANKME, EUCLIDEAN_LIKELIHOOD)
    ],
    "Euclidean loses its lead": [
        check(f"{loss} less by", (euclidean - cosine).fall)
        for loss, euclidean, cosine in pairs(relative, ACCURACY, EUCLIDEAN_LIKELIHOOD)
    ],
    "cosine lines alike": [follow_each_other(metric) for metric in TITLES],
    "weak is worse": [check(m.title, relative(ACCURACY, m).fall) for m in MODELS],
    "more so with cosine": [
        check(f"{loss} more by", cosine.fall - euclidean.fall) for loss, euclidean, cosine in pairs(relative, ACCURACY)
    ],
    "Spectral keeps up": [
        check(f"above {LOSSES[m.loss]} by", relative(ACCURACY, SPECTRAL).last - relative(ACCURACY, m).last)
        for m in COSINE
        if m != SPECTRAL
    ],
    "Fisher is behind": [
        each(
            "at {}",
            average([relative(ACCURACY, m) for m in EUCLIDEAN_LIKELIHOOD]) - relative(ACCURACY, FISHER_EUCLIDEAN),
        )
    ],
    "weak raises RankMe": [check(LOSSES[m.loss], relative(RANKME, m).rise) for m in COSINE],
    "cosine has no regret": [
        check(LOSSES[m.loss], regret(RANKME, m).everywhere, between(-np.inf, 1)) for m in COSINE_LIKELIHOOD
    ],
    "Fisher cosine is worst": [
        check(
            f"place from below by {title}",
            stack(relative(metric, m).everywhere for m in COSINE),
            placed(FISHER_COSINE, COSINE, 1),
        )
        for metric, title in TITLES.items()
    ],
    "NCE keeps RankMe": [
        check("highest minus lowest", relative(RANKME, Model("nce", "euclidean")), varies_by_at_most_ten)
    ],
    "SNL’s RankMe falls": [check("fall", relative(RANKME, SNL).fall)],
    "Fisher’s RankMe rises": [check("rise", relative(RANKME, FISHER_EUCLIDEAN).rise)],
    "strong: energies alike": [
        check(loss, euclidean.first - cosine.first, between(-2, 2))
        for loss, euclidean, cosine in pairs(relative, ACCURACY)
    ],
    "cosine is wider": [
        check(loss, cosine.everywhere - euclidean.everywhere) for loss, euclidean, cosine in pairs(relative, RANKME)
    ],
    "only Spectral competes": [
        check(
            f"{LOSSES[m.loss]} behind by",
            average([relative(ACCURACY, rival) for rival in EUCLIDEAN_LIKELIHOOD]).last - relative(ACCURACY, m).last,
            between(-np.inf, 2) if m == SPECTRAL else positive,
        )
        for m in COSINE_LIKELIHOOD
    ],
    "Fisher misaligns": [each("above 100 at {} by", relative(ALIGNMENT, FISHER_COSINE) - 100)],
    "Fisher does not spread": [each("{}", relative(UNIFORMITY, FISHER_COSINE), between(90, 110))],
    "NCE and SNL spread": [
        each(LOSSES[loss] + " at {}", UNIFORMITY_REGRETS, placed(Model(loss, "cosine"), COSINE, 2))
        for loss in ("nce", "snl")
    ],
    "SimCLR spreads": [
        each("SimCLR at {}, not", UNIFORMITY_REGRETS, denied(placed(SIMCLR, COSINE, 3)), only=lambda p: not weaker(p)),
        each("SimCLR at {}", UNIFORMITY_REGRETS, placed(SIMCLR, COSINE, 3), only=weaker),
    ],
    "SimCLR misaligns": [
        check(f"{LOSSES[m.loss]} by", regret(ALIGNMENT, SIMCLR).everywhere - regret(ALIGNMENT, m).everywhere)
        for m in COSINE_LIKELIHOOD
        if m != SIMCLR
    ],
    "Spectral trades off best": [spectral_trades_off],
    "sphere: lines alike": [follow_each_other(metric) for metric in (ALIGNMENT, UNIFORMITY)],
    "proposals on par": [
        check(
            f"{LOSSES[m.loss]} behind in {metric} by",
            regret(metric, m).everywhere - worse_rival(metric),
            denied(positive),
        )
        for metric in (ALIGNMENT, UNIFORMITY)
        for m in COSINE_LIKELIHOOD
        if m not in (SIMCLR, SPECTRAL)
    ],
    "rate 1 is worse": [
        check(f"{m.title} {title}", change(metric, m).everywhere, negative)
        for metric, title in TITLES.items()
        for m in LIKELIHOOD
    ],
    "rate 1: small losses": [
        *(check(m.title, least_change(m), between(-10, np.inf)) for m in MODELS if m.loss != "snl"),
        check("beyond it SNL", least_change(*(m for m in MODELS if m.loss == "snl")), denied(between(-10, np.inf))),
    ],
    "rate 1: narrow Fisher gains": [each("at {}", change(ACCURACY, FISHER_EUCLIDEAN), only=narrow)],
    "rate 1: Euclidean suffers": [
        check(f"{loss} {title} more by", cosine.everywhere - euclidean.everywhere)
        for metric, title in TITLES.items()
        for loss, euclidean, cosine in pairs(change, metric, EUCLIDEAN_LIKELIHOOD)
    ],
    "rate 1: Fisher’s one fall": [only_fall_of_fisher],
    "rate 1: not for Fisher": [
        check(f"{m.energy} {title}, share of positions", change(metric, m), mostly_no_fall)
        for m in FISHER
        for metric, title in TITLES.items()
    ],
    "rate 1: Euclidean Fisher": [
        *(check(f"{m.energy} gains", change(ACCURACY, m).everywhere) for m in FISHER),
        check(
            "Euclidean over cosine at 1 by",
            raw(ACCURACY, FISHER_EUCLIDEAN, 1.0).everywhere - raw(ACCURACY, FISHER_COSINE, 1.0).everywhere,
        ),
    ],
}
"""By the name of the claim."""
