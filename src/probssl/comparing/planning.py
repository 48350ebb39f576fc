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
MOST_SEEDS = (1, 3, 10)
"""Seeds in each round, where there is time after all steps."""

LONGEST = (300, 1000, 2000)
"""Most steps in each round; the last is the default of a recipe."""

SHORTEST = 50
"""Least steps that a configuration is judged by; with less time for each, fewer configurations are tried."""

LONGER = 1.5
"""How many times as long the longer training of the last round must be to be worth a second one."""

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
    setting_up: float = 0.0  # seconds to build a model and to look at it, however few steps it trains

    def seconds(self, models: int, steps: int, processes: int) -> float:
        """How long models take to train and measure."""
        return models * (self.setting_up + steps / self.rate + self.measuring) / processes


@dataclass(frozen=True)
class Round:
    """How many configurations train, for how many steps, from how many seeds.

    In the last round each trains for two lengths, that of the round before and a longer one, which is not always better.
    """

    number: int  # 1, 2, 3
    configurations: int
    lengths: tuple[int, ...]  # steps
    seeds: int = 1

    @property
    def final(self) -> bool:
        """Whether it decides."""
        return self.number == len(LONGEST)

    @property
    def models(self) -> int:
        """Trainings in all."""
        return self.configurations * self.seeds * len(self.lengths)

    def seconds(self, pace: Pace, processes: int) -> float:
        """How long it takes."""
        each = self.configurations * self.seeds
        return sum(pace.seconds(each, steps, processes) for steps in self.lengths)

    @property
    def described(self) -> str:
        """The round in words."""
        steps = " and ".join(f"{length:,}" for length in self.lengths)
        seeds = f", {self.seeds} seeds" if self.seeds > 1 else ""
        return f"{self.configurations:,} configurations, {steps} steps{seeds}"


def plan(number: int, configurations: int, seconds: float, pace: Pace, processes: int, *, least: int) -> Round | None:
    """The round that fits into `seconds`: as many steps as there is time for, then seeds; else fewer configurations.

    `least` is the number of steps of the round before, which no model should train less than. None where not even
    one model fits.
    """
    time_for = SAFETY * seconds
    longest = LONGEST[number - 1]
    shortest = min(max(least, SHORTEST), longest)
    again = (least,) if number == len(LONGEST) and least else ()
    fewest = 1 if number == 1 else min(configurations, 3)

    def planned(configurations: int, steps: int, seeds: int) -> Round:
        return Round(number, configurations, (*(s for s in again if LONGER * s <= steps), steps), seeds)

    affordable = seeds = 0
    for seeds in range(SEEDS if number == len(LONGEST) else 1, 0, -1):
        affordable = int(time_for / planned(1, shortest, seeds).seconds(pace, processes))
        if affordable >= fewest:
            break
    if affordable < 1:
        return None
    count = min(configurations, affordable)
    fixed = planned(count, longest, seeds).seconds(replace(pace, rate=math.inf), processes)
    spare = (time_for - fixed) * processes * pace.rate / (count * seeds)
    steps = int(min(max(spare - sum(again), shortest), longest))
    chosen = planned(count, steps, seeds)
    while steps == longest and seeds < MOST_SEEDS[number - 1]:
        seeds += 1
        if planned(count, steps, seeds).seconds(pace, processes) > time_for:
            break
        chosen = planned(count, steps, seeds)
    return chosen


def survivors(number: int, finished: int) -> int:
    """How many of the configurations of a round go on to the next: a quarter, in the end the finalists."""
    return min(finished, FINALISTS if number + 1 == len(LONGEST) else max(FINALISTS, -(-finished // 4)))
