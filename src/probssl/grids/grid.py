"""A grid as it is declared: trials in cohorts, and how a cohort is computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeVar

from probssl import memory
from probssl.errors import InputError
from probssl.grids.keys import Config, Result, key_of, plain
from probssl.grids.versions import environment

Entry = TypeVar("Entry")


class Computation(Protocol):
    """What computes the trials of a grid.

    It is pickled to the processes that work and keeps no state: everything that a trial depends on is in its
    configuration.
    """

    @property
    def name(self) -> str:
        """The grid's name, under which its trials are stored."""

    def run_batch(self, configs: list[Config]) -> Iterator[tuple[Any, ...]]:
        """The trials of a cohort, each (configuration, result), or with a third entry, bytes to keep."""


Cohort = dict[str, Config]
"""Trials by their keys that are computed together: claimed, stored and, after a kill, redone as one."""


@dataclass(frozen=True)
class Grid:
    """Trials of one computation by one version of the code, and the cohorts that they are computed in, in order."""

    computation: Computation
    code: str
    trials: Cohort
    cohorts: list[Cohort]

    @classmethod
    def of(
        cls,
        computation: Computation,
        code: str,
        cohorts: Iterable[Sequence[Config]],
        order: Sequence[Config] = (),
        parts: Callable[[Config], str] = lambda config: "",
    ) -> Grid:
        """The grid of cohorts that are given by their configurations; results come in their order, or in another.

        `parts` gives the version of what a configuration names, where `code` does not cover it.
        """
        made: list[Cohort] = []
        keys: dict[str, str] = {}
        for configs in cohorts:
            company = [plain(config) for config in configs]
            versions = [code, *dict.fromkeys(parts(config) for config in company)]
            made.append({key_of(computation.name, config, " ".join(versions), company): config for config in company})
            keys |= {key_of("", config, ""): key for key, config in made[-1].items()}
        ordered = [plain(config) for config in order] or [config for cohort in made for config in cohort.values()]
        wanted = [key_of("", config, "") for config in ordered]
        if twice := len(wanted) - len(set(wanted)):
            raise InputError(f"the grid of {computation.name} names {twice} of its trials twice")
        if keys.keys() != set(wanted) or sum(map(len, made)) != len(wanted):
            raise InputError(f"the cohorts of {computation.name} do not hold each trial once")
        return cls(computation, code, {keys[name]: config for name, config in zip(wanted, ordered, strict=True)}, made)


@dataclass(frozen=True)
class Outcome:
    """One trial that ended: with a result, or with the reason why there is none."""

    config: Config
    result: Result | None
    message: str
    seconds: float  # since the one before in its cohort, so that the sum is what the grid cost
    environment: str
    weights: bytes | None = None


def compute(computation: Computation, configs: list[Config]) -> list[Outcome]:
    """Run a cohort on one thread, of which a bad trial does not spoil the others."""
    from probssl.training.surroundings import one_thread

    with one_thread():
        return list(_outcomes(computation, configs))


def _outcomes(computation: Computation, configs: list[Config]) -> Iterator[Outcome]:
    """Every trial as it ends; where the computation raises, halves of the rest are tried, down to the one at fault."""
    left = {key_of("", config, ""): config for config in configs}
    before = time.perf_counter()
    message = "run_batch gave no result for it"
    try:
        for config, result, *weights in computation.run_batch(configs):
            given = plain(result)
            if left.pop(key_of("", config, ""), None) is None:
                raise InputError(f"run_batch gave a result for a trial that it was not asked for: {config}")
            now = time.perf_counter()
            yield Outcome(config, given, "", now - before, environment(), *weights)
            before = now
    except Exception as error:
        if memory.ran_out(error):  # no fault of a trial, and its halves would train in other company
            raise
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"
    rest = list(left.values())
    if len(rest) > 1:
        for part in (rest[: len(rest) // 2], rest[len(rest) // 2 :]):
            yield from _outcomes(computation, part)
    elif rest:
        yield Outcome(rest[0], None, message, time.perf_counter() - before, environment())


def even_parts(entries: Sequence[Entry], parts: int) -> list[list[Entry]]:
    """Cut into at most `parts` runs of consecutive members whose lengths differ by one at most; none is empty."""
    parts = max(1, min(parts, len(entries)))
    ends = [len(entries) * number // parts for number in range(parts + 1)]
    return [list(entries[low:high]) for low, high in pairwise(ends) if high > low]


def by(key: Any, configs: Iterable[Config]) -> list[list[Config]]:
    """Configurations with equal `key(config)` together, in the order of their first."""
    groups: dict[Any, list[Config]] = {}
    for config in configs:
        groups.setdefault(key(config), []).append(config)
    return list(groups.values())
