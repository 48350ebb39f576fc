"""What Siamese-EBM claims of its first sweep, over the output dimension (§4.2 and F, figures 4, 5 and 12)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from probssl.studies.tabular_claims import (
    ACCURACY,
    BOTH_ENERGIES,
    COSINE_LIKELIHOOD,
    EUCLIDEAN,
    EUCLIDEAN_LIKELIHOOD,
    FISHER_COSINE,
    FISHER_EUCLIDEAN,
    LIKELIHOOD,
    RANKME,
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
from probssl.studies.tabular_grid import LOSSES, MODELS, Model
from probssl.studies.tabular_scores import mean

SNL = Model("snl", "euclidean")


def snl_accuracy(lines: Lines) -> Iterator[Part]:
    values = {m: lines.everywhere(lines.relative(ACCURACY, m)) for m in EUCLIDEAN}
    yield ranked("place", SNL, values, 2, lowest=False)


def snl_rankme(lines: Lines) -> Iterator[Part]:
    each = {m: lines.relative(RANKME, m) for m in EUCLIDEAN}
    for number, position in enumerate(lines.positions):
        at = {m: line[:, number] for m, line in each.items()}
        yield ranked(f"place at {lines.scores.setup.label(position)}", SNL, at, 1, lowest=True)


def fisher_cosine_rankme(lines: Lines) -> Iterator[Part]:
    for label, values in lines.at(lines.relative(RANKME, FISHER_COSINE)):
        yield within(label, values, 100, 10)


def accuracy_grows(lines: Lines) -> Iterator[Part]:
    for m in MODELS:
        line = lines.relative(ACCURACY, m)
        part = exceeds(m.title, lines.last(line), lines.first(line))
        yield Part(f"not {m.title}", part.number, not part.holds) if m == FISHER_COSINE else part


def fisher_euclidean_falls(lines: Lines) -> Iterator[Part]:
    line = lines.relative(ACCURACY, FISHER_EUCLIDEAN)
    wide = max(number for number, position in enumerate(lines.positions) if position >= 1)
    for (label, values), position in zip(lines.at(line), lines.positions, strict=True):
        if position < 1:
            yield exceeds(f"fall at {label}", line[:, wide], values)


def nearly_equal_accuracy(lines: Lines) -> Iterator[Part]:
    values = {m: lines.everywhere(lines.relative(ACCURACY, m)) for m in LIKELIHOOD}
    centre = float(np.median([middle(v) for v in values.values()]))
    for m, v in values.items():
        yield within(m.title, v, centre, 5)


def cosine_raises_rankme(lines: Lines) -> Iterator[Part]:
    for m in COSINE_LIKELIHOOD:
        yield exceeds(m.title, lines.everywhere(lines.relative(RANKME, m)), 100)


def euclidean_lowers_rankme(lines: Lines) -> Iterator[Part]:
    for m in EUCLIDEAN:
        yield exceeds(
            f"{LOSSES[m.loss]} below 100 by", np.asarray(100 - lines.everywhere(lines.relative(RANKME, m))), 0
        )
        yield exceeds(f"{LOSSES[m.loss]} regret", lines.everywhere(lines.regret(RANKME, m)), 0)


def collapse_is_harmless(lines: Lines) -> Iterator[Part]:
    for m in EUCLIDEAN_LIKELIHOOD:
        if middle(lines.everywhere(lines.relative(RANKME, m))) < 100:
            yield exceeds(f"{LOSSES[m.loss]} accuracy above 100 by", lines.everywhere(lines.relative(ACCURACY, m)), 100)


def gap_tightens(lines: Lines) -> Iterator[Part]:
    for loss in (loss for loss in BOTH_ENERGIES if loss != "fisher"):
        gap = np.asarray(
            lines.relative(RANKME, Model(loss, "cosine")) - lines.relative(RANKME, Model(loss, "euclidean"))
        )
        yield exceeds(f"{LOSSES[loss]} narrower by", lines.first(gap), lines.last(gap))


def euclidean_loses_its_lead(lines: Lines) -> Iterator[Part]:
    for loss in (loss for loss in BOTH_ENERGIES if loss != "fisher"):
        lead = np.asarray(
            lines.relative(ACCURACY, Model(loss, "euclidean")) - lines.relative(ACCURACY, Model(loss, "cosine"))
        )
        yield exceeds(f"{LOSSES[loss]} less by", lines.first(lead), lines.last(lead))


def cosine_fluctuates_alike(lines: Lines) -> Iterator[Part]:
    for metric, title in TITLES.items():
        for part in fluctuates_alike({m: lines.relative(metric, m) for m in COSINE_LIKELIHOOD}):
            yield Part(f"{title}, {part.name.removesuffix(', cosine')}", part.number, part.holds)


def small_decrease(lines: Lines) -> Iterator[Part]:
    for m in MODELS:
        changes = [mean(lines.change(metric, m), 0) for metric in (ACCURACY, RANKME)]
        worst = float(min(np.nanmin(c) if np.isfinite(c).any() else np.nan for c in changes))
        if m.loss != "snl":
            yield Part(m.title, worst, worst >= -10)
    snl = [mean(lines.change(metric, m), 0) for metric in (ACCURACY, RANKME) for m in MODELS if m.loss == "snl"]
    worst = float(min(np.nanmin(c) if np.isfinite(c).any() else np.nan for c in snl))
    yield Part("beyond it SNL", worst, worst < -10)


def fisher_euclidean_gains(lines: Lines) -> Iterator[Part]:
    for (label, values), position in zip(
        lines.at(lines.change(ACCURACY, FISHER_EUCLIDEAN)), lines.positions, strict=True
    ):
        if position < 1:
            yield exceeds(f"at {label}", values, 0)


CLAIMS = (
    Claim(
        "SNL is accurate",
        "§4.2, Fig. 4",
        "With the Euclidean energy SNL has one of the highest relative accuracies",
        "among the two highest of five losses, mean over m/d",
        snl_accuracy,
    ),
    Claim(
        "SNL uses few dimensions",
        "§4.2, Fig. 5",
        "With the Euclidean energy SNL has the lowest RankMe: it uses the fewest dimensions",
        "lowest relative RankMe of the Euclidean losses at each m/d",
        snl_rankme,
    ),
    Claim(
        "Fisher keeps RankMe",
        "§4.2, Fig. 5",
        "Fisher with the cosine energy barely changes the number of useful dimensions",
        "relative RankMe between 90 % and 110 % at each m/d",
        fisher_cosine_rankme,
    ),
    Claim(
        "narrower gains more",
        "§4.2, Fig. 4",
        "Accuracy improves the more, the smaller the output, for all losses but Fisher with the cosine energy",
        "relative accuracy higher over the narrowest third of m/d than over the widest",
        accuracy_grows,
    ),
    Claim(
        "Fisher loses if narrow",
        "§4.2, Fig. 4",
        "For outputs smaller than inputs Fisher with the Euclidean energy loses accuracy too",
        "relative accuracy lower at each m/d < 1 than at m/d = 1",
        fisher_euclidean_falls,
    ),
    Claim(
        "losses gain alike",
        "§4.2, Fig. 4",
        "Most losses gain nearly the same accuracy",
        "mean over m/d of each likelihood-based model within 5 points of their median",
        nearly_equal_accuracy,
    ),
    Claim(
        "cosine raises RankMe",
        "§4.2, Fig. 5",
        "The cosine energy raises RankMe: representations spread over all dimensions",
        "relative RankMe of each likelihood-based loss above 100 %, mean over m/d",
        cosine_raises_rankme,
    ),
    Claim(
        "Euclidean lowers RankMe",
        "§4.2, Fig. 5",
        "With the Euclidean energy dimensions collapse: relative RankMe below 100 %, regret away from zero",
        "both, for each loss, mean over m/d",
        euclidean_lowers_rankme,
    ),
    Claim(
        "at no cost in accuracy",
        "§4.2, Fig. 4-5",
        "The dimensions that the Euclidean energy gives up cost no accuracy",
        "relative accuracy above 100 % for each likelihood-based Euclidean loss whose RankMe is below",
        collapse_is_harmless,
    ),
    Claim(
        "RankMe gap closes",
        "§4.2, Fig. 5",
        "As m/d falls, the gap in RankMe between the energies closes",
        "cosine minus Euclidean relative RankMe smaller over the narrowest third of m/d than over the widest",
        gap_tightens,
    ),
    Claim(
        "Euclidean loses its lead",
        "§4.2, Fig. 4",
        "and this costs relative accuracy (read as: Euclidean beside cosine)",
        "Euclidean minus cosine relative accuracy smaller over the narrowest third of m/d than over the widest",
        euclidean_loses_its_lead,
    ),
    Claim(
        "cosine lines alike",
        "§4.2, Fig. 4-5",
        "Under the cosine energy all likelihood-based losses fluctuate alike",
        "correlation over m/d of each with the mean of the others at least 0.9",
        cosine_fluctuates_alike,
    ),
    Claim(
        "rate 1: small losses",
        "F.2, Fig. 12",
        "Learning rate 1 costs at most 10 points of accuracy and 10 of RankMe at any m/d, but for SNL",
        "least mean change over m/d of each model but SNL at least −10 in both, and below it for SNL",
        small_decrease,
    ),
    Claim(
        "rate 1: narrow Fisher gains",
        "F.2, Fig. 12",
        "For small outputs Fisher with the Euclidean energy profits from learning rate 1",
        "accuracy rises at each m/d < 1",
        fisher_euclidean_gains,
    ),
)
