"""The doctor: says whether a run is healthy, how far its loss is from the best possible, what is wrong, what to try."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from probssl.energies import Euclidean
from probssl.errors import InputError, ProbsslError
from probssl.objectives.reference import Estimate, ReferenceLosses
from probssl.pairings import Needs
from probssl.parts.part import Part
from probssl.parts.registry import KINDS
from probssl.parts.resolve import Resolved
from probssl.runs.evaluation import loss_standing
from probssl.runs.folder import LOG, Run
from probssl.theory import linear
from probssl.theory.clustering import ADMITS, AGREEMENT_BELOW, open_failure_modes
from probssl.training.log import LOOKED_AT, OF_CLUSTERS, term_names
from probssl.training.watch import MEANING, MINIMUM_CONTRAST, name_of

OPTIONS = {
    "objective": "--objective",
    "energy": "--energy",
    "encoder.dim": "--dim",
    "plan.steps": "--steps",
    "plan.batch_size": "--batch-size",
    "plan.lr": "--lr",
}
"""Settings with an option of their own on the command line; others are given with --set."""


@dataclass(frozen=True)
class Remedy:
    """Something to try: a setting, what to make of it, and why."""

    text: str
    setting: str | None = None
    change: str = ""
    """A value, or "higher" or "lower"."""
    applies: Callable[[Resolved], bool] = lambda resolved: True

    def sentence(self) -> str:
        """What to do, with how it is said on the command line."""
        if self.setting is None:
            return self.text
        option = OPTIONS.get(self.setting)
        if self.change in ("higher", "lower"):
            return f"{self.text}: a {self.change} {option or self.setting}"
        return f"{self.text}: {option} {self.change}" if option else f"{self.text}: --set {self.setting}={self.change}"

    def helps(self, resolved: Resolved) -> bool:
        """Whether the run has the setting, does not have that value already, and the rest applies."""
        if self.setting is None:
            return self.applies(resolved)
        part, _, name = self.setting.partition(".")
        now = getattr(resolved, part)
        if name:
            settings = vars(now) if part == "plan" else now.settings() if isinstance(now, Part) else {}
            entry = KINDS[part].get(resolved.called(part)) if part in KINDS else None
            if name not in settings or (entry and name in entry.preset) or str(settings[name]) == self.change:
                return False
        elif resolved.called(part) == self.change or (part == "energy" and not resolved.energy_is_open):
            return False
        return self.applies(resolved)


SLOWER = Remedy("lower the learning rate", "plan.lr", "0.001")
BOUNDED = Remedy("limit its gradients", "plan.clip_norm", "0.1")
LONGER = Remedy("train longer", "plan.steps", "5000", lambda resolved: resolved.plan.steps < 5000)
WEAKER = (
    Remedy("augment less strongly", "pairing.preservation", "higher"),
    Remedy("augment less strongly", "pairing.noise", "lower"),
)
CLUSTERS = Remedy("use a loss that such clusters do not satisfy", "objective", "gedi")

BELOW_PCA = "below PCA"
"""What is found of a run that PCA of its dimension beats in everything that was measured."""

REMEDIES: dict[str, tuple[Remedy, ...]] = {
    "representation": (
        SLOWER,
        BOUNDED,
        Remedy("use a loss that a constant code does not satisfy", "objective", "infonce"),
        Remedy("use no weight decay", "plan.weight_decay", "0.0"),
        *WEAKER,
    ),
    "dimension": (
        Remedy("use an energy that spreads representations over the sphere", "energy", "cosine"),
        Remedy(
            "let augmentations be embedded differently",
            "energy",
            "asymmetric",
            lambda resolved: not resolved.objective.compares_views and resolved.pairing is not None,
        ),
        Remedy("ask for fewer dimensions", "encoder.dim", "lower"),
        *WEAKER,
    ),
    "cluster": (
        Remedy("give clusters of one size more weight", "objective.balance", "higher"),
        CLUSTERS,
        SLOWER,
    ),
    "label": (
        Remedy("give clusters that augmentations do not change more weight", "objective.invariance", "higher"),
        CLUSTERS,
        *WEAKER,
        Remedy(
            "ask for fewer clusters, of which augmentations tell more",
            "objective.clusters",
            "lower",
            lambda resolved: getattr(resolved.objective, "clusters", 0) > 2,
        ),
        LONGER,
    ),
    "nothing learnt": (
        LONGER,
        Remedy("train faster", "plan.lr", "0.03"),
        Remedy("use a loss with a stronger signal", "objective", "infonce"),
        *WEAKER,
    ),
    "nothing to learn": WEAKER,
    BELOW_PCA: (LONGER, *WEAKER, Remedy("ask for more dimensions", "encoder.dim", "higher")),
    "failure": (
        SLOWER,
        BOUNDED,
        Remedy(
            "look for columns with extreme values, even after standardising",
            applies=lambda resolved: resolved.facts.kind == "table",
        ),
    ),
}

MEASURED = ("loss", *LOOKED_AT, *OF_CLUSTERS)
"""What a row of the log says of the state of a training; the last where there are clusters."""

REGULARISERS = frozenset({"magnitude"})
"""Terms of a clustering loss that ask for nothing of the clusters."""

CHAINS_LAG = 1.0
"""Nats by which the energies of samples and of data may differ at the end before chains are said to lag behind."""

NOTHING_TO_LEARN = 0.01
"""How far the best loss must be below that of a constant encoder, in shares of it, or in nats where it is 0."""

LINEAR_FEATURES = 128
"""Most features for which the best linear encoder is computed, in seconds."""

LINEAR_PAIRS = 50_000
"""Augmentations from which it is computed."""

TOO_EASY = 0.02
"""Share of the loss of a constant encoder below which the best possible loss leaves the task trivial."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its kind, a sentence with the numbers, and what to try."""

    kind: str
    message: str
    since: int | None
    remedies: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"kind": self.kind, "message": self.message, "since": self.since, "remedies": list(self.remedies)}


@dataclass(frozen=True)
class Diagnosis:
    """The state of a run in plain words."""

    healthy: bool
    summary: str
    findings: tuple[Finding, ...]
    facts: dict[str, float]  # the measurements of the last look
    risks: dict[str, str]  # failures that the objective does not rule out, with the reason
    loss: ReferenceLosses | None  # beside the best possible one, where the data can be read
    notes: tuple[str, ...]  # where the loss stands, and advice

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "healthy": self.healthy,
            "summary": self.summary,
            "findings": [finding.as_dict() for finding in self.findings],
            "facts": self.facts,
            "risks": self.risks,
            "loss": None if self.loss is None else self.loss.as_dict(),
            "notes": list(self.notes),
        }


def examine(run: Run | str | os.PathLike[str]) -> Diagnosis:
    """Diagnose a run, or that in a folder: collapse, failure, unfinished training, how far its loss is from the best.

    What happened while training is read from the log. Where the loss stands is read from the metrics of the run, or
    measured on its data if they are missing.
    """
    run = run if isinstance(run, Run) else Run(run)
    rows, resolved = run.rows, run.resolved
    risks = _risks(resolved, term_names(rows[-1]) if rows else [])
    if not rows:
        return Diagnosis(False, "training has not begun: the log is empty", (), {}, risks, None, ())
    last = rows[-1]
    if run.finished and run.step < run.steps:
        raise InputError(f"{run.folder / LOG} ends at step {run.step} of {run.steps}: restore it, or train again")
    facts = {name: last[name] for name in MEASURED if last.get(name) is not None}
    findings = _from_log(run, facts)
    loss, trouble = _standing(run)
    notes = _clusters(facts, findings, resolved) + _samples(rows) + ([trouble] if trouble else [])
    if loss is not None:
        findings += _from_loss(loss, resolved, collapsed=bool(findings))
    if not findings and (behind := _behind_pca(run)) is not None:
        findings.append(Finding(BELOW_PCA, behind, None, _remedies(BELOW_PCA, resolved)))
    if loss is not None:
        notes += [*_where_it_stands(loss, resolved), *_best_linear(run)]
    if findings:
        summary = "; ".join(finding.message for finding in findings)
    else:
        summary = (
            f"healthy: trained to step {run.step} of {run.steps}, loss {facts.get('loss', math.nan):.4g}, "
            f"RankMe {facts.get('rankme', math.nan):.2f} of {run.dim}, no collapse"
        )
    return Diagnosis(not findings, summary, tuple(findings), facts, risks, loss, tuple(notes))


def verdict(run: Run) -> str:
    """What log and metrics say of a run in a few words, as "healthy"; no part is made and no data read for it."""
    if _failures(run):
        return "failed"
    if run.collapsed:
        return ", ".join(map(name_of, run.collapsed))
    if not run.finished:
        return "stopped"
    loss = None if run.comparison is None else run.comparison.loss
    nothing = None if loss is None else _nothing(loss)
    if nothing is None and _behind_pca(run) is not None:
        return BELOW_PCA
    return nothing or ("no collapse" if loss is None else "healthy")


def _behind_pca(run: Run) -> str | None:
    """By how much PCA is better, where it is better in everything that was read off the representation."""
    found = None if run.comparison is None else run.comparison.verdict
    return None if found is None else found.behind_pca


def _failures(run: Run) -> list[dict[str, Any]]:
    """Events at the end of a log that ended the training."""
    return [row for row in run.log if row.get("event") == "failure" and row["step"] >= run.step]


def _risks(resolved: Resolved, terms: list[str]) -> dict[str, str]:
    """Failures that the loss leaves open: of a clustering loss by its terms, else as the objective says."""
    names = [name for name in terms if name not in REGULARISERS]
    if names and set(names) <= ADMITS.keys():  # a single name may be that of another loss's term
        return open_failure_modes(names)
    return resolved.objective.admits


def _from_log(run: Run, facts: dict[str, float]) -> list[Finding]:
    resolved, step = run.resolved, run.step
    findings = [
        Finding("failure", row["message"], row["step"], _remedies("failure", resolved)) for row in _failures(run)
    ]
    for kind, since in run.collapsed.items():
        message = f"{MEANING[kind]}, {_evidence(kind, facts, resolved)}"
        findings.append(Finding(kind, message, since, _remedies(kind, resolved)))
    if not run.finished and not findings:
        again = f"probssl fit --resume --out {shlex.quote(str(run.folder))}"
        findings.append(Finding("unfinished", f"training stopped at step {step} of {run.steps}", step, (again,)))
    return findings


def _standing(run: Run) -> tuple[ReferenceLosses | None, str | None]:
    """Where the loss of a finished run stands, or why that cannot be said."""
    if not run.finished:
        return None, None
    if run.comparison is not None and run.comparison.loss is not None:
        found = run.comparison.loss
        return (found, None) if math.isfinite(found.model.mean) else (None, "the loss is not finite in evaluation")
    try:
        return loss_standing(run.model, run.dataset, seed=run.recipe.seed), None
    except (ProbsslError, OSError) as error:
        what = str(error) if isinstance(error, InputError) else type(error).__name__
        return None, f"how far the loss is from the best possible is not known: {what}"


def _from_loss(loss: ReferenceLosses, resolved: Resolved, collapsed: bool) -> list[Finding]:
    """What the loss alone reveals; that nothing was learnt goes without saying of a collapse."""
    kind = _nothing(loss)
    if kind is None or (collapsed and kind == "nothing learnt"):
        return []
    assert loss.constant is not None
    message = f"nothing learnt: the loss is {_shown(loss.model)}, and a constant encoder has {_shown(loss.constant)}"
    if kind == "nothing to learn":
        assert loss.optimum is not None
        message = (
            f"nothing to learn: a model that knew the {_pairs(resolved)} exactly would have {_shown(loss.optimum)}, "
            f"a constant encoder has {_shown(loss.constant)}: augmentations say next to nothing about their source"
        )
    return [Finding(kind, message, None, _remedies(kind, resolved))]


def _nothing(loss: ReferenceLosses) -> str | None:
    """Whether nothing could be learnt, or nothing was."""
    if loss.constant is None or loss.gain is None:
        return None
    scale = abs(loss.constant.mean) or 1.0
    if loss.optimum is not None and loss.constant.mean - loss.optimum.mean < NOTHING_TO_LEARN * scale:
        return "nothing to learn"
    return "nothing learnt" if loss.gain.mean <= 2 * loss.gain.error else None


def _where_it_stands(loss: ReferenceLosses, resolved: Resolved) -> list[str]:
    """The loss, its optimum and the gap in plain words, and what the optimum says about the task."""
    measured = f"({loss.rows:,} rows, batches of {loss.batch_size})"
    constant = "" if loss.constant is None else f"a constant encoder has {_shown(loss.constant)}"
    if loss.optimum is None or loss.gap is None:
        least = "" if loss.bound is None else f"on no data is it below {loss.bound:.4g}"
        return [
            "; ".join(part for part in (f"the loss is {_shown(loss.model)}", constant, least) if part) + f" {measured}"
        ]
    share = f", so this one is {loss.share_learnt:.0%} of the way" if (loss.share_learnt or 0) > 0 else ""
    notes = [
        f"the loss is {_shown(loss.model)}; {constant}, a model that knew the {_pairs(resolved)} exactly would have "
        f"{_shown(loss.optimum)}{share}; the gap is {_shown(loss.gap)} {measured}"
    ]
    ceiling = loss.constant.mean if loss.constant is not None else 0.0
    if resolved.objective.limited_by_batch and loss.optimum.mean < TOO_EASY * ceiling:
        harder = ["a larger --batch-size"] * (loss.batch_size < loss.rows)
        harder += ["a lower pairing.preservation"] * (resolved.facts.kind == "table")
        notes.append(
            f"the task is nearly decided: {loss.batch_size} candidates can show {ceiling:.2f} nats at most and these "
            "augmentations carry all of them" + (f"; {' or '.join(harder)} would ask for more" if harder else "")
        )
    return notes


def _pairs(resolved: Resolved) -> str:
    """What decides which observations are related."""
    return "augmentation" if resolved.facts.relation is None else "world"


def _best_linear(run: Run) -> list[str]:
    """For the Fisher loss of a Siamese network with the Euclidean energy: what the best linear encoder would have."""
    model, objective = run.model, run.resolved.objective
    of_rows = model.preparation is not None and model.facts.layout.plain and model.facts.features <= LINEAR_FEATURES
    if not (objective.scores and isinstance(objective.energy, Euclidean) and of_rows and model.pairing is not None):
        return []
    try:
        x = model.observe(run.dataset).x
        chance = torch.Generator().manual_seed(run.recipe.seed)
        x = x.repeat(-(-LINEAR_PAIRS // len(x)), 1)  # as many augmentations as it takes not to fit their noise
        x = x[torch.randperm(len(x), generator=chance)[:LINEAR_PAIRS]].double()
        views = model.pairing(x, Needs(score=True), chance)
        assert views.score is not None
        moments = linear.Moments.of_samples(x.numpy(), views.augmented[0].numpy(), views.score[0].numpy())
        least = linear.fisher_minimum(moments, model.dim)
    except (ProbsslError, OSError):
        return []
    return [f"the best linear encoder to {model.dim} dimensions would have {least:.4g}"]


def _shown(estimate: Estimate) -> str:
    """A mean with its standard error, where that is known and not nothing; rounding is shown as 0."""
    if abs(estimate.mean) < 1e-9:
        return "0"
    certain = not 0 < estimate.error < float("inf") or estimate.error < 1e-6 * abs(estimate.mean)
    return f"{estimate.mean:.4g}" if certain else f"{estimate.mean:.4g} ± {estimate.error:.2g}"


def _clusters(facts: dict[str, float], findings: list[Finding], resolved: Resolved) -> list[str]:
    """The terms of a clustering beside their known minima, unless a finding says it already   (GEDI Figure 4)."""
    if not facts.keys() >= set(OF_CLUSTERS) or {"cluster", "label"} & {finding.kind for finding in findings}:
        return []
    return [f"{_in_use(facts, resolved)}; {_of_prior(facts)}; {_of_labels(facts)}"]


def _samples(rows: list[dict[str, Any]]) -> list[str]:
    """Whether a density tells its samples from data, by the mean of its generative term over the end of a training."""
    terms = [row["generative"] for row in rows[-max(1, len(rows) // 5) :] if row.get("generative") is not None]
    if not terms:
        return []
    gap = sum(terms) / len(terms)
    said = f"the energy of data less that of samples is {gap:.3g} nats, 0 where samples look like data"
    if abs(gap) <= CHAINS_LAG:
        return [said]
    return [
        f"{said}: chains lag behind the density, and a larger objective.sampler.steps or a lower --lr lets them keep up"
    ]


def _in_use(facts: dict[str, float], resolved: Resolved) -> str:
    return (
        f"the largest cluster has {facts['largest_cluster']:.1%} of the inputs, {facts['clusters_used']:.3g} of "
        f"{getattr(resolved.objective, 'clusters', 0)} clusters are in use"
    )


def _of_prior(facts: dict[str, float]) -> str:
    return f"the prior term is {facts['prior_term']:.3g}, its minimum is {facts['prior_minimum']:.3g}"


def _of_labels(facts: dict[str, float]) -> str:
    return (
        f"labels of inputs and of augmentations agree {facts['label_agreement']:.0%} of the way beyond chance, "
        f"and the invariance term is {facts['invariance_term']:.3g}, its minimum is 0"
    )


def _evidence(kind: str, facts: dict[str, float], resolved: Resolved) -> str:
    if kind in ("cluster", "label") and not facts.keys() >= set(OF_CLUSTERS):
        return "as far as predictions were finite"
    if kind == "cluster":
        return f"{_in_use(facts, resolved)}, and {_of_prior(facts)}"
    if kind == "label":
        unsure = facts["label_certainty"] < AGREEMENT_BELOW
        why = "predictions are undecided" if unsure else "augmentations change the prediction"
        return f"{why}: {_of_labels(facts)} (healthy: above {AGREEMENT_BELOW:.0%})"
    if kind == "representation":
        return (
            f"energies between points vary by {facts.get('contrast', 0.0):.1g} nats (healthy: above "
            f"{MINIMUM_CONTRAST:g}) and the spread is {facts.get('spread', 0.0):.1g}"
        )
    return f"only {facts.get('numerical_rank', 0):.0f} directions carry variance"


def _remedies(kind: str, resolved: Resolved) -> tuple[str, ...]:
    """What to try, without what the run does already or cannot do."""
    return tuple(remedy.sentence() for remedy in REMEDIES[kind] if remedy.helps(resolved))
