"""What a comparison found, and what it says in plain words."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probssl.comparing.measuring import LABEL_FREE, PROBE, R2, Score
from probssl.comparing.schedule import Round
from probssl.comparing.standings import Predictor, Standing
from probssl.comparing.testing import Marks
from probssl.comparing.work import Outcome
from probssl.metrics.paired import Difference
from probssl.parts.facts import Facts
from probssl.runs import Run
from probssl.runs.evaluation import RAW, RAW_IMAGES, UNTRAINED, pca_name

LARGEST_CLASS = "always the largest class"
PAGE, BEST = "index.html", "best"


def beside(facts: Facts, dim: int) -> tuple[str, str, str]:
    """The names of what a model of so many dimensions is set beside."""
    return pca_name(dim), RAW_IMAGES if facts.kind == "images" else RAW, f"{UNTRAINED} to {dim}"


@dataclass(frozen=True)
class Final:
    """The winner on rows that nothing was chosen by, beside what no training gives."""

    fitted_rows: int
    rows: int
    seeds: tuple[float, ...]  # the score of the winner from each seed
    winner: Marks  # of the model that was written
    others: dict[str, Marks]

    def ahead_of(self, name: str) -> Difference:
        """By how much the winner is better than a baseline."""
        return self.winner.ahead_of(self.others[name])

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "fitted_rows": self.fitted_rows,
            "rows": self.rows,
            "winner": self.winner.mean,
            "seeds": list(self.seeds),
            "baselines": {name: tested.mean for name, tested in self.others.items()},
            "ahead_of": {name: self.ahead_of(name).as_dict() for name in self.others},
        }


@dataclass(frozen=True)
class CompareResult:
    """A comparison of configurations on one data set: leaderboard, winner and what predicted it.

    `leaderboard` is a list of rows, best first; `best` is the run of the winner, `page` the report.
    """

    source: str
    label: str | None
    rows: int
    facts: Facts
    classes: int
    scores: tuple[Score, ...]
    """What was measured; the first is what configurations were chosen by."""
    families: dict[str, str]  # objective -> what it has in common with others
    parts: dict[str, Any] = field(repr=False)  # of the winner, as they were named or handed in
    protocol: str
    grid: int  # configurations that could have been tried
    rounds: list[Round]
    leaderboard: list[Standing]
    outcomes: list[Outcome] = field(repr=False)
    baselines: dict[str, dict[str, float]]  # name -> scores on the rows that the first round is measured on
    final_baselines: dict[str, dict[str, float]]  # the same on the rows that finalists are measured on
    predictors: list[Predictor]
    final: Final | None
    folder: Path
    seconds: float
    minutes: float | None  # that were given, if any
    notes: list[str]
    interrupted: bool = False

    @property
    def winner(self) -> Standing:
        """The first of the leaderboard."""
        return self.leaderboard[0]

    @property
    def criterion(self) -> Score:
        """What configurations were chosen by."""
        return self.scores[0]

    @property
    def beside(self) -> tuple[str, str, str]:
        """What the winner is set beside: PCA, raw features and no training."""
        return beside(self.facts, self.winner.candidate.dim)

    @property
    def about(self) -> str:
        """The data in a few words."""
        classes = f"{self.classes} classes" if self.classes else "no label"
        if self.facts.kind == "world":
            return f"{self.rows:,} rows to measure on, {self.facts.features:,} latents"
        size = f"{self.facts.features:,} features"
        if self.facts.kind == "images":
            size = " × ".join(map(str, self.facts.shape))
        return f"{self.rows:,} {'images' if self.facts.kind == 'images' else 'rows'}, {size}, {classes}"

    @property
    def best(self) -> Run:
        """The run of the winning model, which every command that takes a run accepts."""
        named = Run(self.folder / BEST).handed_in(self.parts)
        objects = {slot: part for slot, part in self.parts.items() if not isinstance(part, str | None)}
        return Run(self.folder / BEST, **{**named, **objects})

    @property
    def page(self) -> Path:
        """The report."""
        return self.folder / PAGE

    @property
    def findings(self) -> list[str]:
        """What the comparison says, a sentence each, the good and the bad."""
        return findings(self)

    def finished(self, number: int) -> int:
        """How many trainings of a round were finished."""
        return sum(outcome.job.round == number for outcome in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """The document that `compare --json` prints."""
        return {
            "source": self.source,
            "label": self.label,
            "rows": self.rows,
            "features": self.facts.features,
            "classes": self.classes,
            "minutes": self.minutes,
            "interrupted": self.interrupted,
            "criterion": self.criterion.name,
            "protocol": self.protocol,
            "configurations": self.grid,
            "rounds": [
                {
                    "configurations": r.configurations,
                    "steps": list(r.lengths),
                    "seeds": r.seeds,
                    "finished": self.finished(r.number),
                }
                for r in self.rounds
            ],
            "findings": self.findings,
            "notes": self.notes,
            "winner": self.winner.as_dict(self.scores),
            "test": None if self.final is None else self.final.as_dict(),
            "baselines": self.final_baselines,
            "predictors": [predictor.as_dict() for predictor in self.predictors],
            "leaderboard": [standing.as_dict(self.scores) for standing in self.leaderboard],
            "best": str(self.folder / BEST),
            "page": str(self.page),
        }


def findings(result: CompareResult) -> list[str]:
    """What the comparison says, a sentence each, the good and the bad."""
    found = [_winner(result)]
    if result.final is not None:
        found += [_tested(result, result.final), *_beside_baselines(result, result.final)]
    if result.criterion not in LABEL_FREE:
        return [*found, *_predicted(result)]
    on_tables = (
        ", which on 14 public tables agreed with the order by a probe at a rank correlation of 0.5 on average, from "
        "0.1 to 0.9; it tells models that learnt something from models that did not"
    )
    return [
        *found,
        "Without a label nobody can say what these representations are good for: the order is by how much of an "
        f"augmentation each undoes{on_tables if result.facts.kind == 'table' else ''}",
    ]


def _winner(result: CompareResult) -> str:
    best, score = result.winner, result.criterion
    over = f" ± {best.spreads[score.name]:.3f} over {best.seeds} seeds" if best.seeds > 1 else ", one seed"
    on = {PROBE: "validation rows", R2: "fresh rows of the world"}.get(score, "the rows that it trained on")
    return f"{best.candidate.name} came first: {score.title} {best.means[score.name]:.3f}{over}, on {on}"


def _tested(result: CompareResult, final: Final) -> str:
    mean = sum(final.seeds) / len(final.seeds)
    seeds = f" (mean of {len(final.seeds)} seeds {mean:.3f})" if len(final.seeds) > 1 else ""
    others = ", ".join(f"{name} {tested.mean:.3f}" for name, tested in final.others.items())
    its = "its linear probe is right in" if result.criterion is PROBE else f"{result.criterion.title}"
    return (
        f"On {final.rows:,} rows kept aside from training and from every choice, {its} "
        f"{final.winner.mean:.3f}{seeds}; {others}"
    )


def _beside_baselines(result: CompareResult, final: Final) -> list[str]:
    """Where the winner stands beside PCA, raw features and no training, plainly."""
    said = []
    for name in result.beside:
        if name not in final.others:
            continue
        ahead = final.ahead_of(name)
        amount = f"{abs(ahead.mean):.3f} ± {ahead.error:.3f}"
        if ahead.clear:
            said.append(f"{'Better' if ahead.mean > 0 else 'WORSE'} than {name}, by {amount}")
        elif ahead.mean == 0:
            said.append(f"Level with {name}, ± {ahead.error:.3f}")
        elif ahead.mean < 0:
            said.append(f"NOT better than {name}: lower by {amount}, which is within chance")
        else:
            said.append(f"No clear difference from {name}: ahead by {amount}, which is within chance")
    return said


def _predicted(result: CompareResult) -> list[str]:
    if not result.predictors:
        return []
    best, without = result.predictors[0], "latents" if result.criterion is R2 else "label"
    if not best.low > 0:
        return [f"No score that needs no {without} predicts the order by the {result.criterion.title} here"]
    equal = f", {best.within_dimension:.2f} among models of equal dimension" if result.facts.kind == "table" else ""
    return [
        f"Without the {without}, {best.score.title} predicts the order best: rank correlation with the "
        f"{result.criterion.title} {best.correlation:.2f} [{best.low:.2f}, {best.high:.2f}]{equal}"
    ]
