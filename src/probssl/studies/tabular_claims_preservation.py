"""What Siamese-EBM claims of its second sweep, over the preservation rate (§4.2 and F, figures 6, 7 and 13)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from probssl.studies.tabular_claims import (
    ACCURACY,
    BOTH_ENERGIES,
    COSINE,
    COSINE_LIKELIHOOD,
    EUCLIDEAN_LIKELIHOOD,
    FISHER_COSINE,
    FISHER_EUCLIDEAN,
    RANKME,
    TITLES,
    Claim,
    Lines,
    Part,
    at_most,
    exceeds,
    middle,
    ranked,
    within,
)
from probssl.studies.tabular_grid import LOSSES, MODELS, Model
from probssl.studies.tabular_scores import Array, mean, standard_error

SPECTRAL = Model("spectral", "cosine")


def weaker_is_worse(lines: Lines) -> Iterator[Part]:
    for m in MODELS:
        line = lines.relative(ACCURACY, m)
        yield exceeds(m.title, lines.first(line), lines.last(line))


def cosine_falls_more(lines: Lines) -> Iterator[Part]:
    for loss in BOTH_ENERGIES:
        euclidean, cosine = (lines.relative(ACCURACY, Model(loss, energy)) for energy in ("euclidean", "cosine"))
        fall = [np.asarray(lines.first(line) - lines.last(line)) for line in (cosine, euclidean)]
        yield exceeds(f"{LOSSES[loss]} more by", *fall)


def only_spectral_keeps_up(lines: Lines) -> Iterator[Part]:
    best = lines.last(lines.relative(ACCURACY, SPECTRAL))
    for m in COSINE:
        if m != SPECTRAL:
            yield exceeds(f"above {LOSSES[m.loss]} by", best, lines.last(lines.relative(ACCURACY, m)))


def likelihood_beats_fisher(lines: Lines) -> Iterator[Part]:
    others = _together(lines, EUCLIDEAN_LIKELIHOOD)
    for (label, values), (_, fisher) in zip(
        lines.at(others), lines.at(lines.relative(ACCURACY, FISHER_EUCLIDEAN)), strict=True
    ):
        yield exceeds(f"at {label}", values, fisher)


def _together(lines: Lines, models: tuple[Model, ...]) -> Array:
    """Mean relative accuracy of several models, [table, position]."""
    return mean(np.stack([lines.relative(ACCURACY, m) for m in models]), 0)


def cosine_rankme_rises(lines: Lines) -> Iterator[Part]:
    for m in COSINE:
        line = lines.relative(RANKME, m)
        yield exceeds(LOSSES[m.loss], lines.last(line), lines.first(line))


def cosine_has_no_regret(lines: Lines) -> Iterator[Part]:
    for m in COSINE_LIKELIHOOD:
        yield at_most(LOSSES[m.loss], lines.everywhere(lines.regret(RANKME, m)), 1)


def fisher_is_worst(lines: Lines) -> Iterator[Part]:
    for metric, title in TITLES.items():
        values = {m: lines.everywhere(lines.relative(metric, m)) for m in COSINE}
        yield ranked(f"place from below by {title}", FISHER_COSINE, values, 1, lowest=True)


def nce_is_indifferent(lines: Lines) -> Iterator[Part]:
    means = mean(lines.relative(RANKME, Model("nce", "euclidean")), 0)
    spread = float(np.nanmax(means) - np.nanmin(means)) if np.isfinite(means).any() else float("nan")
    yield Part("highest minus lowest", spread, spread <= 10)


def snl_rankme_falls(lines: Lines) -> Iterator[Part]:
    line = lines.relative(RANKME, Model("snl", "euclidean"))
    yield exceeds("fall", lines.first(line), lines.last(line))


def fisher_rankme_rises(lines: Lines) -> Iterator[Part]:
    line = lines.relative(RANKME, FISHER_EUCLIDEAN)
    yield exceeds("rise", lines.last(line), lines.first(line))


def energy_does_not_matter(lines: Lines) -> Iterator[Part]:
    for loss in BOTH_ENERGIES:
        euclidean, cosine = (lines.relative(ACCURACY, Model(loss, energy)) for energy in ("euclidean", "cosine"))
        yield within(LOSSES[loss], np.asarray(lines.first(euclidean) - lines.first(cosine)), 0, 2)


def cosine_spreads(lines: Lines) -> Iterator[Part]:
    for loss in BOTH_ENERGIES:
        euclidean, cosine = (lines.relative(RANKME, Model(loss, energy)) for energy in ("euclidean", "cosine"))
        yield exceeds(LOSSES[loss], lines.everywhere(cosine), lines.everywhere(euclidean))


def only_spectral_competes(lines: Lines) -> Iterator[Part]:
    rival = lines.last(_together(lines, EUCLIDEAN_LIKELIHOOD))
    for m in COSINE_LIKELIHOOD:
        own = lines.last(lines.relative(ACCURACY, m))
        if m == SPECTRAL:
            behind = np.asarray(rival - own)
            yield Part("Spectral behind by", middle(behind), middle(behind) <= 2)
        else:
            yield exceeds(f"{LOSSES[m.loss]} behind by", rival, own)


def euclidean_suffers_more(lines: Lines) -> Iterator[Part]:
    for metric, title in TITLES.items():
        for loss in (loss for loss in BOTH_ENERGIES if loss != "fisher"):
            euclidean, cosine = (
                lines.everywhere(lines.change(metric, Model(loss, e))) for e in ("euclidean", "cosine")
            )
            yield exceeds(f"{LOSSES[loss]} {title} more by", cosine, euclidean)


def only_fall_of_fisher(lines: Lines) -> Iterator[Part]:
    """At ρ = 1 RankMe falls with one energy at least; elsewhere neither RankMe nor accuracy does with any."""
    whole = [lines.change(RANKME, m)[:, -1] for m in (FISHER_EUCLIDEAN, FISHER_COSINE)]
    parts = [exceeds("", np.asarray(-values), 0) for values in whole]
    yield Part("RankMe at 1", -max(p.number for p in parts), any(p.holds for p in parts))
    for m in (FISHER_EUCLIDEAN, FISHER_COSINE):
        for metric, title in TITLES.items():
            line = lines.change(metric, m)[:, :-1]
            means, errors = mean(line, 0), standard_error(line)
            if np.isfinite(means).any():
                worst = int(np.nanargmin(means))
                holds = bool(means[worst] >= -np.nan_to_num(errors[worst]))
                yield Part(f"least change of {title} elsewhere, {m.energy}", float(means[worst]), holds)


CLAIMS = (
    Claim(
        "weak is worse",
        "§4.2, Fig. 6",
        "The more features are preserved, the lower the relative accuracy",
        "lower over the weakest third of augmentations than over the strongest, for each model",
        weaker_is_worse,
    ),
    Claim(
        "more so with cosine",
        "§4.2, Fig. 6",
        "and especially so with the cosine energy",
        "that fall is larger with the cosine than with the Euclidean energy, for each loss",
        cosine_falls_more,
    ),
    Claim(
        "Spectral keeps up",
        "§4.2, Fig. 6",
        "With the cosine energy only the spectral loss keeps a competitive accuracy",
        "over the weakest third its relative accuracy exceeds that of each other cosine loss",
        only_spectral_keeps_up,
    ),
    Claim(
        "Fisher is behind",
        "§4.2, Fig. 6",
        "With the Euclidean energy likelihood-based losses are slightly better than Fisher at all rates",
        "mean relative accuracy of KL, SNL, NCE and SimCLR above that of Fisher at each ρ",
        likelihood_beats_fisher,
    ),
    Claim(
        "weak raises RankMe",
        "§4.2, Fig. 7",
        "For all losses with the cosine energy, weaker augmentations raise the relative RankMe",
        "higher over the weakest third than over the strongest, for each",
        cosine_rankme_rises,
    ),
    Claim(
        "cosine has no regret",
        "§4.2, Fig. 7",
        "and their regret of RankMe stays near zero",
        "at most one dimension, mean over ρ, for each likelihood-based cosine loss",
        cosine_has_no_regret,
    ),
    Claim(
        "Fisher cosine is worst",
        "§4.2, Fig. 6-7",
        "Fisher is the worst of the cosine losses, in accuracy and in useful dimensions",
        "lowest relative accuracy and lowest relative RankMe of the cosine losses, mean over ρ",
        fisher_is_worst,
    ),
    Claim(
        "NCE keeps RankMe",
        "§4.2, Fig. 7",
        "With the Euclidean energy the strength of augmentations has next to no effect on NCE’s RankMe",
        "mean relative RankMe varies by at most 10 points over ρ",
        nce_is_indifferent,
    ),
    Claim(
        "SNL’s RankMe falls",
        "§4.2, Fig. 7",
        "With the Euclidean energy weaker augmentations lower the RankMe of SNL",
        "lower over the weakest third than over the strongest",
        snl_rankme_falls,
    ),
    Claim(
        "Fisher’s RankMe rises",
        "§4.2, Fig. 7",
        "and raise the RankMe of Fisher",
        "higher over the weakest third than over the strongest",
        fisher_rankme_rises,
    ),
    Claim(
        "strong: energies alike",
        "§4.2, end",
        "For strong augmentations the choice of energy may not matter to the probe",
        "over the strongest third the relative accuracies of the energies differ by at most 2 points, for each loss",
        energy_does_not_matter,
    ),
    Claim(
        "cosine is wider",
        "§4.2, end",
        "The cosine energy is for wide representations, the Euclidean for low-dimensional ones",
        "relative RankMe higher with the cosine energy, mean over ρ, for each loss",
        cosine_spreads,
    ),
    Claim(
        "only Spectral competes",
        "§4.2, end",
        "Of the likelihood-based cosine losses only the spectral competes with Euclidean ones",
        "over the weakest third it is at most 2 points behind their mean, and each other one is behind",
        only_spectral_competes,
    ),
    Claim(
        "rate 1: Euclidean suffers",
        "F.2, Fig. 13",
        "At learning rate 1 all Euclidean losses but Fisher suffer more heavily",
        "accuracy and RankMe fall further than with the cosine energy, mean over ρ, for each loss",
        euclidean_suffers_more,
    ),
    Claim(
        "rate 1: Fisher’s one fall",
        "F.2, Fig. 13",
        "The only notable fall of Fisher is in RankMe at ρ = 1",
        "RankMe falls there with an energy, and nowhere else does RankMe or accuracy",
        only_fall_of_fisher,
    ),
)
