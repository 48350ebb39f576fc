"""What a representation is worth beside PCA and the features themselves, in words and as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probssl.metrics.paired import Difference, difference
from probssl.metrics.summary import METRICS, Evaluation, Metric
from probssl.objectives.reference import ReferenceLosses

PCA = "PCA"
"""What the name of the baseline begins with that a healthy run equals in something."""

_TABLE = {metric.name: metric for metric in METRICS}


def metric_of(key: str) -> Metric | None:
    """The metric of a key, which of further targets ends in their name: `knn_probe:income`."""
    return _TABLE.get(key.partition(":")[0])


def _reads(key: str) -> str:
    """How a sentence names what a metric reads, with a further target; empty where it reads nothing."""
    metric, (_, _, target) = metric_of(key), key.partition(":")
    if metric is None or not metric.reads:
        return ""
    return f"{metric.reads} ({target})" if target else metric.reads


@dataclass(frozen=True)
class Verdict:
    """Differences to the baselines on the rows judged, and what they come to.

    A difference is clear where it exceeds two standard errors (`metrics.paired`).
    """

    sentences: tuple[str, ...]
    """One of every target and baseline; what was lost comes first."""
    against: dict[str, dict[str, Difference]]
    """Baseline → metric → the trained encoder's score less the baseline's."""
    wins: dict[str, str]
    """Metric → the code that is clearly better than every other."""

    @property
    def behind_pca(self) -> str | None:
        """By how much PCA is better, in a clause, where it is better in everything."""
        for name, scores in self.against.items():
            if name.startswith(PCA) and scores and all(apart.mean < 0 for apart in scores.values()):
                return f"{name} is better in {_listed({_reads(key): apart for key, apart in scores.items()})}"
        return None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        against = {
            name: {key: apart.as_dict() for key, apart in scores.items()} for name, scores in self.against.items()
        }
        return {"sentences": list(self.sentences), "against": against, "wins": self.wins}


def reach(
    found: Mapping[str, Evaluation],
    trained: str,
    baselines: Sequence[str],
    targets: Mapping[str, str],
    unlabelled: str,
) -> Verdict:
    """The verdict on the code `trained` beside others of the same rows, by name.

    targets: how each is called, by the suffix of its keys. `unlabelled` is what is said where nothing can be compared.
    """
    against = {name: _apart(found[trained], found[name]) for name in baselines}
    said = []
    for suffix, target in targets.items():
        for name, scores in against.items():
            own = {key: apart for key, apart in scores.items() if key.removeprefix(key.partition(":")[0]) == suffix}
            if own:
                said.append(_sentence(name, own, target))
    said.sort(key=lambda pair: -pair[0])  # what was lost first; else in this order
    wins = {key: best for key in found[trained].each if _reads(key) and (best := _winner(key, found)) is not None}
    return Verdict(tuple(words for _, words in said) or (unlabelled,), against, wins)


def _apart(one: Evaluation, other: Evaluation) -> dict[str, Difference]:
    """Differences of what was read off two codes, where their errors are known."""
    both = [key for key in one.each if key in other.each and _reads(key)]
    apart = {key: difference(one.each[key], other.each[key]) for key in both}
    return {key: value for key, value in apart.items() if math.isfinite(value.error)}


def _winner(key: str, found: Mapping[str, Evaluation]) -> str | None:
    values = {name: value for name, code in found.items() if (value := code.values.get(key)) is not None}
    best = max(values, key=lambda name: values[name])
    others = [difference(found[best].each[key], found[name].each[key]) for name in values if name != best]
    return best if others and all(apart.clear and apart.mean > 0 for apart in others) else None


def _sentence(name: str, scores: dict[str, Difference], target: str) -> tuple[int, str]:
    """How many scores were lost to a baseline, and all of them in words."""
    named = {_TABLE[key.partition(":")[0]].reads: apart for key, apart in scores.items()}
    worse = {words: apart for words, apart in named.items() if apart.clear and apart.mean < 0}
    better = {words: apart for words, apart in named.items() if apart.clear and apart.mean > 0}
    level = [words for words, apart in named.items() if not apart.clear]
    if worse:
        parts = [f"worse than {name} in {_listed(worse)}"]
        parts += [f"better in {_listed(better)}"] if better else []
        parts += [f"no clear difference in {_level(level)}"] if level else []
    elif better:
        parts = [f"better than {name} in {_listed(better)}"]
        parts += [f"no better in {_level(level)}"] if level else []
    else:
        parts = [f"no better than {name} in {_level(level)}"]
    said = "; ".join(parts)
    return len(worse), f"{target}: {said}." if target else f"{said[0].upper()}{said[1:]}."


def _listed(apart: dict[str, Difference]) -> str:
    """10-NN accuracy by 0.05 ± 0.02 and 60-label accuracy by 0.03 ± 0.01."""
    return _joined([f"{words} by {by}" for words, by in apart.items()], "and")


def _level(scores: list[str]) -> str:
    """10-NN or 60-label accuracy."""
    kinds = {words.rpartition(" ")[2] for words in scores}
    short = [words.rpartition(" ")[0] for words in scores[:-1]] if len(kinds) == 1 else scores[:-1]
    return _joined([*short, scores[-1]], "or")


def _joined(words: Sequence[str], last: str) -> str:
    return f" {last} ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def without_targets(read: Evaluation, dim: int, loss: ReferenceLosses | None) -> str:
    """What can be said where nothing was predicted: there are no labels, or too few."""
    undefined = next((how for key, how in read.protocols.items() if _reads(key)), None)
    if undefined is not None:
        return f"No comparison with PCA ({undefined})."
    facts = [] if (rank := read.values.get("rankme")) is None else [f"RankMe is {rank:.1f} of {dim}"]
    if loss is not None and loss.share_learnt is not None:
        share = max(loss.share_learnt, 0.0)
        facts.append(f"the loss is {share:.0%} of the way from that of a constant encoder to the least possible")
    said = "Without labels nothing tells whether it is better than PCA"
    return f"{said}; {_joined(facts, 'and')}." if facts else f"{said}."
