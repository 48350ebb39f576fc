"""The doctor: says whether a run is healthy, how far its loss is from the best possible, what is wrong, what to try."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import Any

import torch

from probssl.errors import InputError, ProbsslError
from probssl.evaluation import loss_standing
from probssl.objectives.reference import Estimate, ReferenceLosses
from probssl.pairings import Needs
from probssl.recipe import ENERGY_OF, SYMMETRIC_ONLY, Recipe
from probssl.runs import Run
from probssl.theory import linear
from probssl.theory.clustering import ADMITS, AGREEMENT_BELOW, open_failure_modes
from probssl.training.log import LOOKED_AT, OF_CLUSTERS, term_names
from probssl.training.watch import MEANING, MINIMUM_CONTRAST

REMEDIES = {
    "representation": (
        "lower the learning rate (--lr 0.001) or limit its gradients (--clip-norm 0.1)",
        "use a loss that a constant code does not satisfy: --objective infonce",
        "set --weight-decay 0",
        "augment less strongly: a higher --preservation, a lower --noise",
    ),
    "dimension": (
        "use the cosine energy, which spreads representations over the sphere: --energy cosine",
        "let augmentations be embedded differently: --asymmetry encoder",
        "ask for fewer dimensions: a lower --dim",
        "augment less strongly: a higher --preservation, a lower --noise",
    ),
    "cluster": (
        "give clusters of one size more weight: a larger --balance",
        "use a loss that one cluster does not satisfy: --objective gedi, or swav",
        "lower the learning rate (--lr 0.001)",
    ),
    "label": (
        "give clusters that augmentations do not change more weight: a larger --invariance",
        "use a loss that asks for such clusters: --objective gedi, or swav",
        "augment less strongly: a higher --preservation, a lower --noise",
        "ask for fewer clusters, of which augmentations tell more: a lower --clusters",
        "train longer (--steps 5000)",
    ),
    "nothing learnt": (
        "train longer (--steps 5000) or faster (--lr 0.03)",
        "use a loss with a stronger signal: --objective infonce",
        "augment less strongly: a higher --preservation, a lower --noise",
    ),
    "nothing to learn": ("augment less strongly: a higher --preservation, a lower --noise",),
    "failure": (
        "lower the learning rate (--lr 0.001) or limit its gradients (--clip-norm 0.1)",
        "look for columns with extreme values, even after standardising",
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


def examine(run: Run) -> Diagnosis:
    """Diagnose a run: collapse, failure, unfinished training, and how far its loss is from the best possible.

    What happened while training is read from the log. Where the loss stands is read from the metrics of the run, or
    measured on its data if they are missing.
    """
    rows = [row for row in run.log if "event" not in row]
    recipe = run.recipe
    risks = _risks(run, term_names(rows[-1]) if rows else [])
    if not rows:
        return Diagnosis(False, "training has not begun: the log is empty", (), {}, risks, None, ())
    last = rows[-1]
    facts = {name: last[name] for name in MEASURED if last.get(name) is not None}
    findings = _from_log(run, facts, last["step"])
    loss, trouble = _standing(run)
    notes = _clusters(facts, findings, recipe) + _samples(rows) + ([trouble] if trouble else [])
    if loss is not None:
        findings += _from_loss(loss, recipe, collapsed=bool(findings))
        notes += [*_where_it_stands(loss, recipe), *_best_linear(run)]
    done = f"step {last['step']} of {recipe.steps}"
    if findings:
        summary = "; ".join(finding.message for finding in findings)
    else:
        summary = (
            f"healthy: trained to {done}, loss {last['loss']:.4g}, RankMe {last['rankme']:.2f} of {recipe.dim}, "
            "no collapse"
        )
    return Diagnosis(not findings, summary, tuple(findings), facts, risks, loss, tuple(notes))


def _risks(run: Run, terms: list[str]) -> dict[str, str]:
    """Failures that the loss leaves open: of a clustering loss by its terms, else as the objective says."""
    names = [name for name in terms if name not in REGULARISERS]
    if names and set(names) <= ADMITS.keys():  # a single name may be that of another loss's term
        return open_failure_modes(names)
    return run.recipe.build_objective(run.model.features if run.finished else 2).admits


def _from_log(run: Run, facts: dict[str, float], step: int) -> list[Finding]:
    recipe = run.recipe
    findings = [
        Finding("failure", row["message"], row["step"], REMEDIES["failure"])
        for row in run.log
        if row.get("event") == "failure" and row["step"] >= step
    ]
    for kind, since in run.standing_collapses.items():
        message = f"{MEANING[kind]}, {_evidence(kind, facts, recipe)}"
        findings.append(Finding(kind, message, since, _remedies(kind, recipe)))
    if not run.finished and not findings:
        again = f"probssl fit --resume --out {shlex.quote(str(run.folder))}"
        findings.append(Finding("unfinished", f"training stopped at step {step} of {recipe.steps}", step, (again,)))
    return findings


def _standing(run: Run) -> tuple[ReferenceLosses | None, str | None]:
    """Where the loss of a finished run stands, or why that cannot be said."""
    if not run.finished:
        return None, None
    if run.comparison is not None and run.comparison.loss is not None:
        found = run.comparison.loss
        return (found, None) if math.isfinite(found.model.mean) else (None, "the loss is not finite in evaluation")
    try:
        return loss_standing(run.model, run.data(), seed=run.recipe.seed), None
    except (ProbsslError, OSError) as error:
        what = str(error) if isinstance(error, InputError) else type(error).__name__
        return None, f"how far the loss is from the best possible is not known: {what}"


def _from_loss(loss: ReferenceLosses, recipe: Recipe, collapsed: bool) -> list[Finding]:
    """What the loss alone reveals: nothing could be learnt, or nothing was, which goes without saying of a collapse."""
    if loss.constant is None or loss.gain is None:
        return []
    scale = abs(loss.constant.mean) or 1.0
    if loss.optimum is not None and loss.constant.mean - loss.optimum.mean < NOTHING_TO_LEARN * scale:
        message = (
            f"nothing to learn: a model that knew the {_pairs(recipe)} exactly would have {_shown(loss.optimum)}, "
            f"a constant encoder has {_shown(loss.constant)}: augmentations say next to nothing about their source"
        )
        return [Finding("nothing to learn", message, None, _remedies("nothing to learn", recipe))]
    if not collapsed and loss.gain.mean <= 2 * loss.gain.error:
        message = (
            f"nothing learnt: the loss is {_shown(loss.model)}, and a constant encoder has {_shown(loss.constant)}"
        )
        return [Finding("nothing learnt", message, None, _remedies("nothing learnt", recipe))]
    return []


def _where_it_stands(loss: ReferenceLosses, recipe: Recipe) -> list[str]:
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
        f"the loss is {_shown(loss.model)}; {constant}, a model that knew the {_pairs(recipe)} exactly would have "
        f"{_shown(loss.optimum)}{share}; the gap is {_shown(loss.gap)} {measured}"
    ]
    ceiling = loss.constant.mean if loss.constant is not None else 0.0
    if recipe.objective == "infonce" and loss.optimum.mean < TOO_EASY * ceiling:
        harder = ["a larger --batch-size"] * (loss.batch_size < loss.rows)
        harder += ["a lower --preservation"] * (recipe.world is None and recipe.images is None)
        notes.append(
            f"the task is nearly decided: {loss.batch_size} candidates can show {ceiling:.2f} nats at most and these "
            "augmentations carry all of them" + (f"; {' or '.join(harder)} would ask for more" if harder else "")
        )
    return notes


def _pairs(recipe: Recipe) -> str:
    """What decides which observations are related."""
    return "augmentation" if recipe.world is None else "world"


def _best_linear(run: Run) -> list[str]:
    """For the Fisher loss of a Siamese network with the Euclidean energy: what the best linear encoder would have."""
    recipe = run.recipe
    siamese = recipe.energy == "euclidean" and recipe.asymmetry == "none"
    if not (recipe.objective.endswith("fisher") and siamese and len(run.model.feature_names) <= LINEAR_FEATURES):
        return []
    try:
        x = run.model.inputs(run.table().features)
        chance = torch.Generator().manual_seed(recipe.seed)
        x = x.repeat(-(-LINEAR_PAIRS // len(x)), 1)  # as many augmentations as it takes not to fit their noise
        x = x[torch.randperm(len(x), generator=chance)[:LINEAR_PAIRS]].double()
        views = recipe.build_pairing()(x, Needs(score=True), chance)
        assert views.score is not None
        moments = linear.Moments.of_samples(x.numpy(), views.augmented[0].numpy(), views.score[0].numpy())
        least = linear.fisher_minimum(moments, recipe.dim)
    except (ProbsslError, OSError):
        return []
    return [f"the best linear encoder to {recipe.dim} dimensions would have {least:.4g}"]


def _shown(estimate: Estimate) -> str:
    """A mean with its standard error, where that is known and not nothing; rounding is shown as 0."""
    if abs(estimate.mean) < 1e-9:
        return "0"
    certain = not 0 < estimate.error < float("inf") or estimate.error < 1e-6 * abs(estimate.mean)
    return f"{estimate.mean:.4g}" if certain else f"{estimate.mean:.4g} ± {estimate.error:.2g}"


def _clusters(facts: dict[str, float], findings: list[Finding], recipe: Recipe) -> list[str]:
    """The terms of a clustering beside their known minima, unless a finding says it already   (GEDI Figure 4)."""
    if "prior_term" not in facts or {"cluster", "label"} & {finding.kind for finding in findings}:
        return []
    return [f"{_in_use(facts, recipe)}; {_of_prior(facts)}; {_of_labels(facts)}"]


def _samples(rows: list[dict[str, Any]]) -> list[str]:
    """Whether a density tells its samples from data, by the mean of its generative term over the end of a training."""
    terms = [row["generative"] for row in rows[-max(1, len(rows) // 5) :] if row.get("generative") is not None]
    if not terms:
        return []
    gap = sum(terms) / len(terms)
    said = f"the energy of data less that of samples is {gap:.3g} nats, 0 where samples look like data"
    if abs(gap) <= CHAINS_LAG:
        return [said]
    return [f"{said}: chains lag behind the density, and a larger --sgld-steps or a lower --lr lets them keep up"]


def _in_use(facts: dict[str, float], recipe: Recipe) -> str:
    return (
        f"the largest cluster has {facts['largest_cluster']:.1%} of the inputs, {facts['clusters_used']:.3g} of "
        f"{recipe.clusters} clusters are in use"
    )


def _of_prior(facts: dict[str, float]) -> str:
    return f"the prior term is {facts['prior_term']:.3g}, its minimum is {facts['prior_minimum']:.3g}"


def _of_labels(facts: dict[str, float]) -> str:
    return (
        f"labels of inputs and of augmentations agree {facts['label_agreement']:.0%} of the way beyond chance, "
        f"and the invariance term is {facts['invariance_term']:.3g}, its minimum is 0"
    )


def _evidence(kind: str, facts: dict[str, float], recipe: Recipe) -> str:
    if kind in ("cluster", "label") and "prior_term" not in facts:
        return "as far as predictions were finite"
    if kind == "cluster":
        return f"{_in_use(facts, recipe)}, and {_of_prior(facts)}"
    if kind == "label":
        unsure = facts["label_certainty"] < AGREEMENT_BELOW
        why = "predictions are undecided" if unsure else "augmentations change the prediction"
        return f"{why}: {_of_labels(facts)} (healthy: above {AGREEMENT_BELOW:.0%})"
    if kind == "representation":
        return (
            f"energies between points vary by {facts.get('contrast', 0.0):.1g} nats (healthy: above "
            f"{MINIMUM_CONTRAST:g}) and the spread is {facts.get('spread', 0.0):.1g}"
        )
    return f"{facts.get('numerical_rank', 0):.0f} of {recipe.dim} directions carry variance"


def _remedies(kind: str, recipe: Recipe) -> tuple[str, ...]:
    """What to try, leaving out what the recipe does already or cannot do."""
    settled = {
        "--energy cosine": recipe.energy == "cosine" or recipe.objective in ENERGY_OF,
        "--weight-decay 0": recipe.weight_decay == 0,
        "--objective infonce": recipe.objective in ("infonce", "spectral"),
        "--asymmetry": recipe.asymmetry != "none" or recipe.objective in SYMMETRIC_ONLY or recipe.world is not None,
        "--objective gedi": recipe.objective in ("gedi", "swav"),
        "--balance": recipe.objective != "gedi",
        "--invariance": recipe.objective != "gedi",
        "--clusters": recipe.clusters == 2,
        "--preservation": recipe.world is not None or recipe.images is not None,
        "columns": recipe.images is not None,
    }
    return tuple(
        remedy for remedy in REMEDIES[kind] if not any(done and flag in remedy for flag, done in settled.items())
    )
