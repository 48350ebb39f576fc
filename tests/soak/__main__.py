"""Kill, damage and starve for so many minutes: a table of cases and failures, and an exit code that says if any.

    python -m tests.soak --minutes 30 --seed 1
    python -m tests.soak --minutes 30 --kill siamese gedi/toy

The first tries everything: extremes, then, for so many minutes, damaged files and killed jobs side by side. The second
kills only jobs whose name begins so.
"""

from __future__ import annotations

import argparse
import itertools
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from probssl.grids.store import Store
from tests import mutations
from tests.soak.extremes import EXTREMES
from tests.soak.jobs import Cell, cells, outcome

KILLS = 3
"""Of each job before it is left alone; what one kill left is where the next run of it goes on."""

SLOW, SELDOM = ("study", "compare"), 10
"""Folders whose files take long to read, because what is damaged is computed again: their turn is every tenth."""


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

    def run(self, folder: Path, cell: Cell, kill_after: float | None = None) -> tuple[int, str]:
        """How a job ended and what it said; killed after some seconds, if it still runs. Its workers end with it."""
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
    if any((folder / "checkpoints").glob("step-*")):
        return True
    if not (folder / "store.sqlite").is_file():
        return False
    with Store(folder / "store.sqlite", read_only=True) as store:
        return next(store.trials(), None) is not None


def soak_kills(
    tally: Tally,
    chance: random.Random,
    stop: threading.Event,
    place: Path,
    every: dict[str, Cell],
    rounds: int = 1_000_000,
) -> None:
    """Every cell in turn: run whole once, killed at random moments, left to end, and compared."""
    victims, folder = Victims(), place / "job"
    seconds: dict[str, float] = {}
    expected: dict[str, dict[str, str]] = {}
    try:
        for _ in range(rounds):
            for name in chance.sample(list(every), len(every)):
                if stop.is_set():
                    return
                shutil.rmtree(folder, ignore_errors=True)
                job = name.partition(" --")[0]  # with any number of processes it comes to the same
                if name not in seconds:
                    started = time.monotonic()
                    code, said = victims.run(folder, every[name])
                    wrong = said[-300:] if code else apart(outcome(folder), expected.setdefault(job, outcome(folder)))
                    if wrong:
                        tally.tried[f"whole {job}"] += 1
                        tally.broken.append((f"whole {job}", f"{name}: {wrong}"))
                        del every[name]
                        continue
                    seconds[name] = time.monotonic() - started
                    shutil.rmtree(folder, ignore_errors=True)
                _kill_and_compare(name, every[name], seconds[name], expected[job], victims, tally, chance, folder)
    finally:
        victims.close()


def apart(found: dict[str, str], expected: dict[str, str]) -> str | None:
    """Which parts of what two jobs came to are not equal."""
    names = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
    return f"ends with other {', '.join(names)}" if names else None


def _kill_and_compare(
    name: str,
    cell: Cell,
    seconds: float,
    expected: dict[str, str],
    victims: Victims,
    tally: Tally,
    chance: random.Random,
    folder: Path,
) -> None:
    case = f"killed {' '.join(name.split()[:2]) if name.startswith('fit') else name}"
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
    if wrong := f"could not be resumed: {said[-300:]}" if code else apart(outcome(folder), expected):
        tally.broken.append((case, f"{name} {wrong}"))


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


def soak_files(tally: Tally, seed: int, stop: threading.Event, place: Path) -> None:
    """Files of every kind, damaged in one way after another and read by a command."""
    for number in itertools.count():
        for case in mutations.CASES:
            if stop.is_set():
                return
            if number % SELDOM and case.made.partition("/")[0] in SLOW:
                continue
            name = f"damaged {case.name}"
            tally.tried[name] += 1
            if wrong := mutations.trial(case, place, f"{seed} {number}"):
                tally.broken.append((name, wrong))


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kill", nargs="+", metavar="NAME", help="kill only jobs whose name begins so")
    options = parser.parse_args()
    tally, chance, stop = Tally(), random.Random(options.seed), threading.Event()
    every = {name: cell for name, cell in cells().items() if name.startswith(tuple(options.kill or [""]))}
    clock = threading.Timer(60 * options.minutes, stop.set)
    clock.daemon = True
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(1) as aside:
        place = Path(temporary)
        try:
            if not options.kill:
                soak_extremes(tally, place)
                (place / "files").mkdir()
                mutations.make_good(place / "files")
                mutations.make_grids(place / "files")
            clock.start()
            kills = aside.submit(soak_kills, tally, chance, stop, place, every)
            if not options.kill:
                soak_files(tally, options.seed, stop, place / "files")
            kills.result()
        except KeyboardInterrupt:
            stop.set()
            print("stopped, and waiting for the job under way")
    tally.show()
    sys.exit(bool(tally.broken))


if __name__ == "__main__":
    main()
