"""How a time budget is spent: successive halving, planned from measured speed, and a clock that is kept.

Many configurations train shortly, the better ones longer, the best ones longest and from several seeds. Each round is
planned when it begins, from the time that is left and the speed measured so far.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from probssl.errors import InputError

LEAST_MINUTES = 0.25
SAFETY = 0.85
"""Share of a round's time that is planned for; the rest is for what was not foreseen."""

FINALISTS = 8
SEEDS = 3
MOST_SEEDS = 5
LONGEST = (300, 1000, 2000)
"""Most steps in each round; the last is the default of a recipe."""

SHORTEST = 50
"""Least steps that a configuration is judged by; with less time for each, fewer configurations are tried."""

SHARES = (0.45, 0.45, 1.0)
"""Share of the time that is left that each round may take."""


@dataclass(frozen=True)
class Clock:
    """When the comparison began and when it must be over, in seconds of `time.monotonic`."""

    started: float
    deadline: float
    reserve: float = 0.0

    @classmethod
    def start(cls, minutes: float, started: float | None = None) -> Clock:
        """A clock for a budget in minutes, from now or from when the program began."""
        if not LEAST_MINUTES <= minutes < math.inf:
            raise InputError(f"the time budget must be at least {LEAST_MINUTES:g} minutes, not {minutes:g}")
        began = time.monotonic() if started is None else started
        return cls(began, began + 60 * minutes)

    @property
    def budget(self) -> float:
        """All seconds there are."""
        return self.deadline - self.started

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.started

    @property
    def left(self) -> float:
        """Seconds until it must be over."""
        return self.deadline - time.monotonic()

    def reserved(self) -> Clock:
        """The same clock with the time set aside that testing, writing and drawing will need, asked when all is loaded.

        That takes some seconds on a quick machine; on one that was slow to get here, in proportion.
        """
        needed = max(6.0, 2.5 * self.elapsed, 0.15 * self.budget)
        return replace(self, reserve=min(needed, 25.0, 0.4 * self.budget))

    @property
    def training_ends(self) -> float:
        """When training must end."""
        return self.deadline - self.reserve


@dataclass(frozen=True)
class Pace:
    """Measured speed of one process."""

    rate: float  # model-steps a second
    measuring: float  # seconds to measure a model

    def seconds(self, models: int, steps: int, processes: int) -> float:
        """How long models take to train and measure."""
        return models * (steps / self.rate + self.measuring) / processes


@dataclass(frozen=True)
class Round:
    """How many configurations train, for how many steps, from how many seeds."""

    number: int  # 1, 2, 3
    configurations: int
    steps: int
    seeds: int = 1

    @property
    def final(self) -> bool:
        """Whether it decides."""
        return self.number == len(LONGEST)

    @property
    def models(self) -> int:
        """Trainings in all."""
        return self.configurations * self.seeds


def plan(number: int, configurations: int, seconds: float, pace: Pace, processes: int, *, least: int) -> Round | None:
    """The round that fits into `seconds`: as many steps as there is time for, then seeds; else fewer configurations.

    `least` is the number of steps of the round before, which no model should train less than. None where not even
    one model fits.
    """
    time_for = SAFETY * seconds
    longest = LONGEST[number - 1]
    shortest = min(max(least, SHORTEST), longest)
    fewest = 1 if number == 1 else min(configurations, 3)

    def fits(r: Round) -> bool:
        return pace.seconds(r.models, r.steps, processes) <= time_for

    ways = [Round(number, configurations, shortest, seeds) for seeds in range(SEEDS if number == 3 else 1, 0, -1)]
    for way in ways:
        affordable = int(time_for / pace.seconds(way.seeds, shortest, processes))
        chosen = replace(way, configurations=min(configurations, affordable))
        if chosen.configurations >= fewest:
            break
    if chosen.configurations < 1:
        return None
    spare = time_for * processes / chosen.models - pace.measuring
    chosen = replace(chosen, steps=int(min(max(spare * pace.rate, shortest), longest)))
    while number > 1 and chosen.steps == longest and chosen.seeds < MOST_SEEDS:
        more = replace(chosen, seeds=chosen.seeds + 1)
        if not fits(more):
            break
        chosen = more
    return chosen


def survivors(number: int, finished: int) -> int:
    """How many of the configurations of a round go on to the next: a quarter, in the end the finalists."""
    return min(finished, FINALISTS if number + 1 == len(LONGEST) else max(FINALISTS, -(-finished // 4)))
