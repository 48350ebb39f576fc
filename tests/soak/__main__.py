"""Kill, damage and starve for so many minutes: a table of cases and failures, and an exit code that says if any."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import mutations
from tests.soak.extremes import EXTREMES
from tests.soak.jobs import cells, outcome

KILLS = 3
"""Of each job before it is left alone; all but the first fall after its first checkpoint where that can be."""


@dataclass
class Tally:
    """What was tried, and what broke."""

    tried: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[str, str]] = field(default_factory=list)
    after_checkpoint: int = 0

    @property
    def kills(self) -> int:
        """All kills."""
        return sum(count for name, count in self.tried.items() if name.startswith("killed "))

    def show(self) -> None:
        """The table."""
        print(f"\n{'case':<40} {'tried':>8} {'failed':>8}")
        for name, count in sorted(self.tried.items()):
            print(f"{name:<40} {count:>8,} {sum(case == name for case, _ in self.broken):>8}")
        files = sum(count for name, count in self.tried.items() if name.startswith("damaged "))
        share = self.after_checkpoint / max(self.kills, 1)
        print(f"\n{self.kills:,} kills, {share:.0%} of them after the first checkpoint; {files:,} damaged files")
        print(f"{len(self.broken)} failures")
        for name, why in self.broken:
            print(f"  {name}: {why}")


class Victims:
    """Runs jobs in forks of one warm process, and kills them."""

    def __init__(self) -> None:
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )

    def run(self, folder: Path, cell: tuple[str, dict[str, Any]], kill_after: float | None = None) -> tuple[int, str]:
        """How a job ended and what it said; killed with all its workers after some seconds, if it still runs."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        errors = folder.with_suffix(".errors")
        order = {"function": cell[0], "arguments": cell[1], "folder": str(folder), "errors": str(errors)}
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        victim = int(self.server.stdout.readline())
        timer = threading.Timer(kill_after or 1e6, _kill, [victim])
        timer.daemon = True
        timer.start()
        code = int(self.server.stdout.readline())
        timer.cancel()
        return code, errors.read_text()

    def close(self) -> None:
        """End the warm process."""
        self.server.kill()
        self.server.wait()


def _kill(victim: int) -> None:
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return


def checkpointed(folder: Path) -> bool:
    """Whether something that a job goes on from is on disk."""
    return any((folder / "checkpoints").glob("step-*")) or (folder / "store.sqlite").is_file()


def soak_kills(
    tally: Tally,
    chance: random.Random,
    until: float,
    place: Path,
    every: dict[str, tuple[str, dict[str, Any]]],
    rounds: int = 1_000_000,
) -> None:
    """Every cell in turn: run whole once, killed at random moments, left to end, and compared."""
    victims = Victims()
    whole: dict[str, tuple[float, dict[str, str]]] = {}
    try:
        for _ in range(rounds):
            for name in chance.sample(list(every), len(every)):
                if time.monotonic() > until:
                    return
                folder = place / "job"
                shutil.rmtree(folder, ignore_errors=True)
                if name not in whole:
                    started = time.monotonic()
                    code, said = victims.run(folder, every[name])
                    if code:
                        tally.tried[f"whole {name.split()[0]}"] += 1
                        tally.broken.append((f"whole {name.split()[0]}", f"{name}: {said[-300:]}"))
                        del every[name]
                        continue
                    whole[name] = time.monotonic() - started, outcome(folder)
                    shutil.rmtree(folder, ignore_errors=True)
                _kill_and_compare(name, every[name], whole[name], victims, tally, chance, folder)
    finally:
        victims.close()


def _kill_and_compare(
    name: str,
    cell: tuple[str, dict[str, Any]],
    whole: tuple[float, dict[str, str]],
    victims: Victims,
    tally: Tally,
    chance: random.Random,
    folder: Path,
) -> None:
    seconds, expected = whole
    case = f"killed {' '.join(name.split()[:2]) if name.startswith('fit') else name.split(' --')[0]}"
    for _ in range(KILLS):
        code, said = victims.run(folder, cell, kill_after=chance.uniform(0, seconds))
        if code == 0:
            break
        tally.tried[case] += 1
        tally.after_checkpoint += checkpointed(folder)
        if code != -signal.SIGKILL:
            tally.broken.append((case, f"{name} ended with {code}: {said[-300:]}"))
            return
    code, said = victims.run(folder, cell)
    found = outcome(folder)
    if code:
        tally.broken.append((case, f"{name} could not be resumed: {said[-300:]}"))
    elif found != expected:
        apart = [part for part in {**expected, **found} if expected.get(part) != found.get(part)]
        tally.broken.append((case, f"{name} ends with other {', '.join(apart)}"))


def soak_extremes(tally: Tally, place: Path) -> None:
    """Every extreme once."""
    for extreme in EXTREMES:
        folder = place / extreme.__name__
        folder.mkdir()
        name = f"extreme {extreme.__name__.replace('_', ' ')}"
        try:
            wrong = extreme(folder)
        except OSError as error:
            print(f"{name}: not tried ({error})")
            continue
        tally.tried[name] += 1
        if wrong:
            tally.broken.append((name, wrong))


def soak_files(tally: Tally, seed: int, seconds: float, place: Path) -> None:
    """Files of every kind, damaged in one way after another and read by a command."""
    mutations.make_good(place)
    mutations.make_grids(place)
    number, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        for case in mutations.CASES:
            name = f"damaged {case.name}"
            tally.tried[name] += 1
            if wrong := mutations.trial(case, place, f"{seed} {number}"):
                tally.broken.append((name, wrong))
        number += 1


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tally, chance = Tally(), random.Random(options.seed)
    with tempfile.TemporaryDirectory() as place:
        try:
            soak_extremes(tally, Path(place))
            (Path(place) / "files").mkdir()
            soak_files(tally, options.seed, 30 * options.minutes, Path(place) / "files")
            soak_kills(tally, chance, time.monotonic() + 30 * options.minutes, Path(place), cells())
        except KeyboardInterrupt:
            print("stopped")
    tally.show()
    sys.exit(bool(tally.broken))


if __name__ == "__main__":
    main()
