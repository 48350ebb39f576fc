"""The doctor: reads a run's log and says whether it is healthy, what went wrong, since when, and what to try."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from probssl.objectives import Objective
from probssl.recipe import Recipe
from probssl.runs import Run
from probssl.training.watch import MEANING, MINIMUM_CONTRAST

REMEDIES = {
    "representation": (
        "lower the learning rate (--lr 0.001) or limit its gradients (--clip-norm 0.1)",
        "use a loss that a constant code does not satisfy: --objective infonce or spectral",
        "set --weight-decay 0",
        "augment less strongly: a higher --preservation, a lower --noise",
    ),
    "dimension": (
        "use the cosine energy, which spreads representations over the sphere: --energy cosine",
        "ask for fewer dimensions: a lower --dim",
        "augment less strongly: a higher --preservation, a lower --noise",
    ),
    "failure": (
        "lower the learning rate (--lr 0.001) or limit its gradients (--clip-norm 0.1)",
        "look for columns with extreme values, even after standardising",
    ),
}


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
    risks: dict[str, str]  # collapses that the objective does not rule out, with the reason

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "healthy": self.healthy,
            "summary": self.summary,
            "findings": [finding.as_dict() for finding in self.findings],
            "facts": self.facts,
            "risks": self.risks,
        }


def examine(run: Run) -> Diagnosis:
    """Diagnose a run from its log: finite losses, representation and dimensional collapse, unfinished training."""
    rows = [row for row in run.log if "event" not in row]
    events = [row for row in run.log if "event" in row]
    recipe = run.recipe
    objective = _objective(recipe, run)
    if not rows:
        return Diagnosis(False, "training has not begun: the log is empty", (), {}, objective.admits)
    last = rows[-1]
    measured = ("loss", "rankme", "effective_rank", "numerical_rank", "spread", "contrast")
    facts = {name: last[name] for name in measured if last.get(name) is not None}
    findings = [
        Finding("failure", row["message"], row["step"], REMEDIES["failure"])
        for row in events
        if row["event"] == "failure" and row["step"] >= last["step"]
    ]
    for kind in run.standing_collapses:
        finding = f"{MEANING[kind]}, {_evidence(kind, facts, recipe)}"
        findings.append(Finding(kind, finding, run.standing_collapses[kind], _remedies(kind, recipe)))
    done = f"step {last['step']} of {recipe.steps}"
    if not run.finished and not findings:
        findings.append(
            Finding(
                "unfinished",
                f"training stopped at {done}",
                last["step"],
                (f"probssl fit --resume --out {shlex.quote(str(run.folder))}",),
            )
        )
    if findings:
        summary = "; ".join(finding.message for finding in findings)
    else:
        summary = (
            f"healthy: trained to {done}, loss {last['loss']:.4g}, RankMe {last['rankme']:.2f} of {recipe.dim}, "
            "no collapse"
        )
    return Diagnosis(not findings, summary, tuple(findings), facts, objective.admits)


def _objective(recipe: Recipe, run: Run) -> Objective:
    features = run.model.feature_names if run.finished else None
    return recipe.build_objective(len(features) if features else 2)


def _evidence(kind: str, facts: dict[str, float], recipe: Recipe) -> str:
    if kind == "representation":
        return (
            f"energies between points vary by {facts.get('contrast', 0.0):.1g} nats (healthy: above "
            f"{MINIMUM_CONTRAST:g}) and the spread is {facts.get('spread', 0.0):.1g}"
        )
    return f"{facts.get('numerical_rank', 0):.0f} of {recipe.dim} directions carry variance"


def _remedies(kind: str, recipe: Recipe) -> tuple[str, ...]:
    """What to try, leaving out what the recipe does already."""
    settled = {
        "--energy cosine": recipe.energy == "cosine",
        "--weight-decay 0": recipe.weight_decay == 0,
        "--objective infonce": recipe.objective in ("infonce", "spectral"),
    }
    return tuple(
        remedy for remedy in REMEDIES[kind] if not any(done and flag in remedy for flag, done in settled.items())
    )
