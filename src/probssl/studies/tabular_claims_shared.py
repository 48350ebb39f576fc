"""What Siamese-EBM claims of both sweeps (§4 and F, figures 8 to 13); each is checked on the sweep at hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from probssl.studies.tabular_claims import (
    ACCURACY,
    COSINE,
    COSINE_LIKELIHOOD,
    EUCLIDEAN_LIKELIHOOD,
    FISHER_COSINE,
    FISHER_EUCLIDEAN,
    LIKELIHOOD,
    TITLES,
    Claim,
    Lines,
    Part,
    exceeds,
    fluctuates_alike,
    middle,
    ranked,
    within,
)
from probssl.studies.tabular_claims_dimension import CLAIMS as DIMENSION_CLAIMS
from probssl.studies.tabular_claims_preservation import CLAIMS as PRESERVATION_CLAIMS
from probssl.studies.tabular_grid import LOSSES, Model, Setup
from probssl.studies.tabular_scores import mean, standard_error

ALIGNMENT, UNIFORMITY = "alignment", "uniformity"
SIMCLR, SPECTRAL = Model("simclr", "cosine"), Model("spectral", "cosine")


def euclidean_collapses(lines: Lines) -> Iterator[Part]:
    lost = [
        sum(lines.scores.share(state, models, 0.01) for state in ("collapsed", "failed"))
        for models in (EUCLIDEAN_LIKELIHOOD, COSINE_LIKELIHOOD)
    ]
    yield Part("Euclidean, %", 100 * lost[0], lost[0] >= 0.1)
    yield Part("cosine, %", 100 * lost[1], lost[1] < lost[0])


def fisher_misaligns(lines: Lines) -> Iterator[Part]:
    for label, values in lines.at(lines.relative(ALIGNMENT, FISHER_COSINE)):
        yield exceeds(f"above 100 at {label} by", values, 100)


def fisher_does_not_spread(lines: Lines) -> Iterator[Part]:
    for label, values in lines.at(lines.relative(UNIFORMITY, FISHER_COSINE)):
        yield within(label, values, 100, 10)


def _place_of_uniformity(lines: Lines, model: Model, places: int) -> Iterator[Part]:
    """Its place among the cosine losses by regret, at every position."""
    each = {m: lines.regret(UNIFORMITY, m) for m in COSINE}
    for number, position in enumerate(lines.positions):
        label = lines.scores.setup.label(position)
        at = {m: line[:, number] for m, line in each.items()}
        yield ranked(f"{LOSSES[model.loss]} at {label}", model, at, places, lowest=True)


def nce_and_snl_spread(lines: Lines) -> Iterator[Part]:
    for loss in ("nce", "snl"):
        yield from _place_of_uniformity(lines, Model(loss, "cosine"), 2)


def simclr_spreads(lines: Lines) -> Iterator[Part]:
    for part in _place_of_uniformity(lines, SIMCLR, 3):
        strongest = lines.scores.setup.name == "preservation" and part.name.endswith(" 0.1")
        yield Part(f"{part.name}, not", part.number, not part.holds) if strongest else part


def simclr_misaligns(lines: Lines) -> Iterator[Part]:
    own = lines.everywhere(lines.regret(ALIGNMENT, SIMCLR))
    for m in COSINE_LIKELIHOOD:
        if m != SIMCLR:
            yield exceeds(f"{LOSSES[m.loss]} by", own, lines.everywhere(lines.regret(ALIGNMENT, m)))


def spectral_trades_off(lines: Lines) -> Iterator[Part]:
    total: dict[Model, int] = dict.fromkeys(COSINE, 0)
    for metric in (ALIGNMENT, UNIFORMITY):
        means = {m: middle(lines.everywhere(lines.regret(metric, m))) for m in COSINE}
        for place, m in enumerate(sorted(means, key=lambda m: means[m]), 1):
            total[m] += place
    yield Part("sum of places", total[SPECTRAL], total[SPECTRAL] == min(total.values()))
    best = min((m for m in total if m != SPECTRAL), key=lambda m: total[m])
    yield Part(f"best other, {LOSSES[best.loss]}", total[best], total[best] >= total[SPECTRAL])


def sphere_fluctuates_alike(lines: Lines) -> Iterator[Part]:
    for metric in (ALIGNMENT, UNIFORMITY):
        for part in fluctuates_alike({m: lines.relative(metric, m) for m in COSINE_LIKELIHOOD}):
            yield Part(f"{metric}, {part.name.removesuffix(', cosine')}", part.number, part.holds)


def proposals_are_on_par(lines: Lines) -> Iterator[Part]:
    """Neither KL, SNL nor NCE is behind the worse of SimCLR and the spectral loss, by more than a standard error."""
    for metric in (ALIGNMENT, UNIFORMITY):
        each = {m: lines.everywhere(lines.regret(metric, m)) for m in COSINE_LIKELIHOOD}
        worse = max((SIMCLR, SPECTRAL), key=lambda m: middle(each[m]))
        for m in COSINE_LIKELIHOOD:
            if m not in (SIMCLR, SPECTRAL):
                part = exceeds(f"{LOSSES[m.loss]} behind in {metric} by", each[m], each[worse])
                yield Part(part.name, part.number, not part.holds)


def higher_rate_is_worse(lines: Lines) -> Iterator[Part]:
    for metric, title in TITLES.items():
        for m in LIKELIHOOD:
            part = exceeds(f"{m.title} {title}", np.asarray(-lines.everywhere(lines.change(metric, m))), 0)
            yield Part(part.name, -part.number, part.holds)


def fisher_does_not_fall(lines: Lines) -> Iterator[Part]:
    for m in (FISHER_EUCLIDEAN, FISHER_COSINE):
        for metric, title in TITLES.items():
            line = lines.change(metric, m)
            means, errors = mean(line, 0), np.nan_to_num(standard_error(line))
            share = (
                float(np.mean(means[np.isfinite(means)] >= -errors[np.isfinite(means)]))
                if np.isfinite(means).any()
                else float("nan")
            )
            yield Part(f"{m.energy} {title}, share of positions", share, share > 0.5)


def fisher_wants_euclidean(lines: Lines) -> Iterator[Part]:
    for m in (FISHER_EUCLIDEAN, FISHER_COSINE):
        yield exceeds(f"{m.energy} gains", lines.everywhere(lines.change(ACCURACY, m)), 0)
    euclidean, cosine = (lines.everywhere(lines.raw(ACCURACY, m, 1.0)) for m in (FISHER_EUCLIDEAN, FISHER_COSINE))
    yield exceeds("Euclidean over cosine at 1 by", euclidean, cosine)


def claims(setup: Setup) -> tuple[Claim, ...]:
    """All claims that can be checked on a sweep, in the order of the paper."""
    dimension = setup.name == "dimension"
    alignment, uniformity, rates = ("Fig. 8", "Fig. 10", "Fig. 12") if dimension else ("Fig. 9", "Fig. 11", "Fig. 13")
    own = DIMENSION_CLAIMS if dimension else PRESERVATION_CLAIMS
    before = (
        Claim(
            "Euclidean collapses",
            "§4",
            "Likelihood-based losses often collapse with the Euclidean distance",
            "at least 10 % of such trainings at learning rate 0.01 collapse or fail, and more than with the cosine",
            euclidean_collapses,
        ),
    )
    spheres = [
        Claim(
            "Fisher misaligns",
            f"F.1, {alignment}",
            "With the cosine energy Fisher is the worst: alignment grows",
            "relative alignment above 100 % at each position (lower is better)",
            fisher_misaligns,
        ),
        Claim(
            "NCE and SNL spread",
            f"F.1, {uniformity}",
            "NCE and SNL spread features best over the sphere, in all settings",
            "among the two least regrets of uniformity of the cosine losses at each position",
            nce_and_snl_spread,
        ),
        Claim(
            "SimCLR spreads",
            f"F.1, {uniformity}",
            "SimCLR spreads features nearly as well" + ("" if dimension else ", but for ρ = 0.1"),
            "among the three least regrets of uniformity at each position" + ("" if dimension else ", not at 0.1"),
            simclr_spreads,
        ),
        Claim(
            "SimCLR misaligns",
            f"F.1, {alignment}",
            "The alignment of SimCLR is worse than that of all other likelihood-based losses",
            "larger regret of alignment than each, mean over positions",
            simclr_misaligns,
        ),
        Claim(
            "Spectral trades off best",
            f"F.1, {alignment}, {uniformity.removeprefix('Fig. ')}",
            "The spectral loss has the best trade-off of alignment and uniformity",
            "least sum of its places by mean regret in both, among the cosine losses",
            spectral_trades_off,
        ),
        Claim(
            "sphere: lines alike",
            f"F.1, {alignment}, {uniformity.removeprefix('Fig. ')}",
            "All losses but Fisher follow the same variations",
            "correlation over positions of each with the mean of the others at least 0.9",
            sphere_fluctuates_alike,
        ),
        Claim(
            "proposals on par",
            f"F.1, {alignment}, {uniformity.removeprefix('Fig. ')}",
            "KL, SNL and NCE are on par with the other likelihood-based losses",
            "mean regret no larger than that of the worse of SimCLR and Spectral, by more than a standard error",
            proposals_are_on_par,
        ),
    ]
    if not dimension:
        moved = Claim(
            "Fisher does not spread",
            f"F.1, {uniformity}",
            "With the cosine energy the uniformity of Fisher hardly moves",
            "relative uniformity between 90 % and 110 % at each ρ",
            fisher_does_not_spread,
        )
        spheres.insert(1, moved)
    shared = [
        Claim(
            "rate 1 is worse",
            f"F.2, {rates}",
            "Learning rate 1 lowers performance everywhere (Fisher is spoken of apart)",
            "accuracy and RankMe fall, mean over positions, for each likelihood-based model",
            higher_rate_is_worse,
        ),
        Claim(
            "rate 1: not for Fisher",
            f"F.2, {rates}",
            "Fisher improves or stays as it is in most cases, whatever the energy",
            "accuracy and RankMe fall by no more than a standard error at most positions, with each energy",
            fisher_does_not_fall,
        ),
        Claim(
            "rate 1: Euclidean Fisher",
            f"F.2, {rates}",
            "A higher learning rate is good for Fisher, which should have the Euclidean energy",
            "accuracy rises with each energy, mean over positions, and at 1 the Euclidean is ahead",
            fisher_wants_euclidean,
        ),
    ]
    main = [claim for claim in own if claim.place.startswith("§")]
    rest = [claim for claim in own if not claim.place.startswith("§")]
    return (*before, *main, *spheres, shared[0], *rest, *shared[1:])
