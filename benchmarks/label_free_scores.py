"""Which label-free score tells the order of configurations by their probe, over tables?

For each table, a sample of the grid of `probssl compare` trains for as many steps each, and every label-free score
is set against the linear probe on validation rows: Spearman's rank correlation over all, among configurations of equal
dimension, and how far below the best the probe of the score's own choice is. One thread; some three minutes, ten with
`--long`:

    python benchmarks/label_free_scores.py --long --out label_free_scores.json
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from running import begin, keep

from probssl.comparing.grid import candidates
from probssl.comparing.measuring import LABEL_FREE, RECOVERED
from probssl.comparing.setup import Setup
from probssl.comparing.standings import Predictor, predictors, with_clid
from probssl.comparing.work import Contest, Job, Outcome
from probssl.data import load
from probssl.model import facts_of

SMALL = (
    "sklearn:wine",
    "pmlb:sonar",
    "pmlb:spectf",
    "pmlb:vehicle",
    "pmlb:yeast",
    "pmlb:wine_quality_red",
    "pmlb:led24",
)
LARGE = (
    "pmlb:spambase",
    "pmlb:churn",
    "pmlb:waveform_40",
    "pmlb:texture",
    "pmlb:optdigits",
    "pmlb:satimage",
    "pmlb:letter",
)
SAMPLE, STEPS, SEED = 120, 100, 0
OWN = "undone, of its own strength only"


def measure(name: str) -> dict[str, dict[str, float]]:
    """For each score: `all`, `equal dimension` and `regret` on one table."""
    table = load(name, test=0.2, seed=SEED)
    parts, grid = candidates(facts_of(table), seed=SEED)
    setup = Setup(table, parts, grid, SEED)
    sample = [grid[index] for index in np.random.default_rng(SEED).permutation(len(grid))[:SAMPLE]]
    jobs = [Job(c, STEPS, SEED, 1) for c in sorted(sample, key=lambda c: (c.dim, c.objective, c.energy))]
    contest = Contest(parts, {SEED: setup.bench}, "probe")
    outcomes = with_clid([Outcome.of(*found) for found in contest.run_batch([job.as_config() for job in jobs])])
    best = max(outcome.value("probe") for outcome in outcomes)
    usual = float(np.mean([best - outcome.value("probe") for outcome in outcomes if outcome.scores]))
    found = {p.score.name: numbers(p, best) for p in predictors(outcomes, "probe", SEED)}
    own = [o.value(f"recovered_{o.job.candidate.pairing}") for o in outcomes]
    marked = [replace(o, scores={**o.scores, "recovered": mark}) for o, mark in zip(outcomes, own, strict=True)]
    found[OWN] = next(numbers(p, best) for p in predictors(marked, "probe", SEED) if p.score is RECOVERED)
    return {**found, "by chance": {"all": 0.0, "equal dimension": 0.0, "regret": usual}}


def numbers(p: Predictor, best: float) -> dict[str, float]:
    """The three answers about one score."""
    return {"all": p.correlation, "equal dimension": p.within_dimension, "regret": best - p.chosen_value}


def show(results: dict[str, dict[str, dict[str, float]]]) -> None:
    """One Markdown table a question: scores down, tables across."""
    short = [name.split(":")[1] for name in results]
    titles = {score.name: score.title for score in LABEL_FREE}
    for question in ("all", "equal dimension", "regret"):
        print(f"\n| {question} | mean | {' | '.join(short)} |")
        print(f"| --- |{' --- |' * (len(short) + 1)}")
        for name in (*titles, OWN, *(["by chance"] if question == "regret" else [])):
            each = [table.get(name, {}).get(question, float("nan")) for table in results.values()]
            digits = 3 if question == "regret" else 2
            cells = " | ".join(f"{number:.{digits}f}" for number in each)
            print(f"| {titles.get(name, name)} | {np.nanmean(each):.{digits}f} | {cells} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=SMALL)
    parser.add_argument("--long", action="store_true", help="the larger tables too")
    options = begin(parser)
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for name in (*options.tables, *(LARGE if options.long else ())):
        results[name] = measure(name)
        print(name)
        keep(options.out, results)
    show(results)


if __name__ == "__main__":
    main()
