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

LONGER = 2
"""How many times as long as in the round before a round trains at least."""

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

    In the last round each trains for two lengths, that of the round before and a longer one: longer may be worse.
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
    def steps(self) -> str:
        """Its lengths in words."""
        *others, last = (f"{length:,}" for length in self.lengths)
        return f"{', '.join(others)} and {last}" if others else last

    @property
    def described(self) -> str:
        """The round in words."""
        seeds = f", {self.seeds} seeds" if self.seeds > 1 else ""
        return f"{self.configurations:,} configurations, {self.steps} steps{seeds}"


def plan(number: int, configurations: int, seconds: float, pace: Pace, processes: int, *, least: int) -> Round | None:
    """The round that fits into `seconds`: as many steps as there is time for, then seeds; else fewer configurations.

    `least` is the number of steps of the round before; a round trains at least twice as long, and the last one also
    as long from several seeds, or that alone when there is no time for more. None where not even one model fits.
    """
    final, longest = number == len(LONGEST), LONGEST[number - 1]
    longer = min(max(LONGER * least, SHORTEST), longest)
    if not final:
        return _fitted(number, configurations, SAFETY * seconds, pace, processes, (), longer, seeds=1)
    found = None
    for again, shortest, seeds in (
        ((least,), longer, SEEDS),
        ((least,), longer, 2),
        ((), least, SEEDS),
        ((), least, 1),
    ):
        if shortest > sum(again) > 0 or not again:
            found = _fitted(
                number, configurations, SAFETY * seconds, pace, processes, again, max(shortest, SHORTEST), seeds
            )
        if found is not None and found.configurations >= min(configurations, 3):
            break
    return found


def _fitted(
    number: int,
    configurations: int,
    seconds: float,
    pace: Pace,
    processes: int,
    again: tuple[int, ...],
    shortest: int,
    seeds: int,
) -> Round | None:
    """As many of the configurations as can train for the shortest time; then as many steps, then seeds, as fit."""
    longest = LONGEST[number - 1]
    way = Round(number, 1, (*again, min(shortest, longest)), seeds)
    count = min(configurations, int(seconds / way.seconds(pace, processes)))
    if count < 1:
        return None
    way = replace(way, configurations=count)
    spare = (seconds - way.seconds(pace, processes)) * processes * pace.rate / (count * seeds)
    way = replace(way, lengths=(*again, min(way.lengths[-1] + int(spare), longest)))
    while way.lengths[-1] == longest and way.seeds < MOST_SEEDS[number - 1]:
        more = replace(way, seeds=way.seeds + 1)
        if more.seconds(pace, processes) > seconds:
            break
        way = more
    return way


def prolonged(last: Round, seconds: float, pace: Pace, processes: int) -> int | None:
    """Steps for which the finalists of the last round can train once more, at least twice as long, if there is time."""
    longest = LONGEST[-1]
    way = replace(last, lengths=(min(LONGER * last.lengths[-1], longest),))
    spare = SAFETY * seconds - way.seconds(pace, processes)
    if spare < 0 or way.lengths[0] <= last.lengths[-1]:
        return None
    return min(way.lengths[0] + int(spare * processes * pace.rate / way.models), longest)


def survivors(number: int, finished: int) -> int:
    """How many of the configurations of a round go on to the next: a quarter, in the end the finalists."""
    return min(finished, FINALISTS if number + 1 == len(LONGEST) else max(FINALISTS, -(-finished // 4)))
