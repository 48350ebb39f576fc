"""What a comparison trains, and when it must be over: rounds of successive halving, and a clock that cuts them off.

Many configurations train shortly, the better ones longer, the best ones longest and from several seeds. How many and
how long depends on what was asked for and never on the speed of the machine: time only decides how far it gets.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from probssl.errors import InputError

LEAST_MINUTES = 0.25
FINALISTS = 8
SEEDS = 3
"""Seeds of each finalist."""

LENGTHS = {1.0: (100, 300, 600), 4.0: (200, 600, 1200), math.inf: (300, 1000, 2000)}
"""Steps of the three rounds, in less time than so many minutes, where a training usually takes `USUAL`."""

USUAL = 2000
"""Steps that a training on a table usually takes; the rounds of other data are longer or shorter in proportion."""

COHORT = 12
"""Most models that train as one stack: the more, the better they stack; the fewer, the less is lost when time is up."""

SHARES = (0.45, 0.45, 1.0)
"""Share of the time that is left after which nothing more is begun in each round."""


@dataclass(frozen=True)
class Clock:
    """When the comparison began and when it must be over, in seconds of `time.monotonic`; never, without minutes."""

    started: float
    minutes: float | None = None
    reserve: float = 0.0

    @classmethod
    def start(cls, minutes: float | None, started: float | None = None) -> Clock:
        """A clock for a budget in minutes, from now or from when the program began."""
        if minutes is not None and not LEAST_MINUTES <= minutes < math.inf:
            raise InputError(f"the time budget must be at least {LEAST_MINUTES:g} minutes, not {minutes:g}")
        return cls(time.monotonic() if started is None else started, minutes)

    @property
    def budget(self) -> float:
        """All seconds there are."""
        return math.inf if self.minutes is None else 60 * self.minutes

    @property
    def deadline(self) -> float:
        """When it must be over."""
        return self.started + self.budget

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
        if self.minutes is None:
            return self
        needed = max(6.0, 2.5 * self.elapsed, 0.15 * self.budget)
        return replace(self, reserve=min(needed, max(25.0, 2 * self.elapsed), 0.4 * self.budget))

    @property
    def training_ends(self) -> float:
        """When training must end."""
        return self.deadline - self.reserve

    def begin_until(self, number: int) -> float:
        """When nothing more is begun in a round that begins now."""
        now = time.monotonic()
        return now + SHARES[number - 1] * (self.training_ends - now)


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
        return self.number == len(SHARES)

    @property
    def steps(self) -> str:
        """Its lengths in words."""
        *others, last = (f"{length:,}" for length in self.lengths)
        return f"{', '.join(others)} and {last}" if others else last

    @property
    def described(self) -> str:
        """The round in words."""
        seeds = f", {self.seeds} seeds" if self.seeds > 1 else ""
        many = f"configuration{'s' * (self.configurations != 1)}"
        return f"{self.configurations:,} {many}, {self.steps} steps{seeds}"


def rounds_of(entrants: int, minutes: float | None, usual: int = USUAL) -> list[Round]:
    """The rounds for so many configurations, of which one usually takes so many steps; a handful is not screened."""
    given = math.inf if minutes is None else minutes
    lengths = next(lengths for most, lengths in LENGTHS.items() if given < most or math.isinf(most))
    short, middle, long = (max(1, length * usual // USUAL) for length in lengths)
    screening = [Round(1, entrants, (short,)), Round(2, survivors(1, entrants), (middle,))]
    final = Round(3, min(entrants, FINALISTS), (middle, long), SEEDS)
    return [*(screening if entrants > FINALISTS else []), final]


def survivors(number: int, finished: int) -> int:
    """How many of the configurations of a round go on to the next: a quarter, in the end the finalists."""
    return min(finished, FINALISTS if number + 1 == len(SHARES) else max(FINALISTS, -(-finished // 4)))
