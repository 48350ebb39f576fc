"""kill -9 and two processes at once, on real processes: the store ends as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from probssl.grids import engine
from probssl.grids.store import Store
from probssl.studies import experiments
from tests.grids.cheap import COHORT, COUNT, Cheap

TOTAL = COUNT["laptop"]


def start(path, jobs, log):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.grids.cheap", str(path), str(jobs)],
        env={**os.environ, "CHEAP_LOG": str(log), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


def wait_until_there_are(path, trials):
    wait_for(lambda: count(path) >= trials)


def count(path):
    if not path.exists():
        return 0
    with Store(path, read_only=True) as store:
        return sum(store.versions(Cheap.name).values())


def content(path):
    """All that a trial is, but for when and how fast it was done."""
    with Store(path) as store:
        return sorted((t.key, t.study, repr(t.config), repr(t.result), t.code) for t in store.trials())


def begun(log):
    """Process and trial of every line of the log."""
    return [tuple(map(int, line.split())) for line in log.read_text().splitlines()]


def kill(process):
    """SIGKILL, and wait until none of its workers holds its output open any more: they end with it."""
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("undisturbed") / "store.sqlite"
    engine.run(experiments.grid(Cheap(), "laptop"), path, jobs=1)
    return content(path)


def test_killed_again_and_again(tmp_path, undisturbed):
    """Killed at random moments with one process and with two workers, then left to finish."""
    path, log = tmp_path / "store.sqlite", tmp_path / "log"
    chance = random.Random(0)
    for jobs in (1, 2, 1, 2, 1):
        before = count(path)
        process = start(path, jobs, log)
        wait_until_there_are(path, before + chance.randrange(1, 20))
        time.sleep(chance.random() * 0.02)  # in the middle of a trial, of a commit, of anything
        kill(process)
        assert before < count(path) < TOTAL
    for _ in range(2):  # and before it has got anywhere
        process = start(path, 2, log)
        time.sleep(0.1 + 0.4 * chance.random())
        kill(process)
    last = start(path, 1, log)
    said, complaint = last.communicate(timeout=60)
    assert (said.strip(), complaint, last.returncode) == (str(TOTAL), "", 0)
    assert content(path) == undisturbed
    again = Counter(number for _, number in begun(log))
    assert set(again) == set(range(TOTAL))
    assert sum(again.values()) <= TOTAL + COHORT * (3 * 1 + 4 * 2)  # lost: at most what was under way


def test_two_processes_share_the_work(tmp_path, undisturbed):
    path, log = tmp_path / "store.sqlite", tmp_path / "log"
    both = [start(path, 1, log) for _ in range(2)]
    for process in both:
        said, complaint = process.communicate(timeout=90)
        assert (said.strip(), complaint) == (str(TOTAL), "")  # each waits until all is there
    assert content(path) == undisturbed
    assert Counter(number for _, number in begun(log)) == Counter(range(TOTAL))  # and none did what the other had done
    assert {pid for pid, _ in begun(log)} == {process.pid for process in both}


def test_a_stopped_process_is_taken_over_when_its_lease_is_over(tmp_path, undisturbed):
    """Frozen, not dead: others wait for its lease, do its trials, and when it wakes nothing is there twice."""
    path, log = tmp_path / "store.sqlite", tmp_path / "log"
    frozen = start(path, 1, log)
    wait_until_there_are(path, 4)
    frozen.send_signal(signal.SIGSTOP)
    with Store(path) as store:
        keys = list(experiments.grid(Cheap(), "laptop").trials)
        assert store.claimed(keys)
        store._connection.execute("UPDATE claims SET expires = 1")  # an hour later
    assert len(engine.run(experiments.grid(Cheap(), "laptop"), path, jobs=1).results) == TOTAL
    frozen.send_signal(signal.SIGCONT)
    assert frozen.communicate(timeout=60)[0].strip() == str(TOTAL)
    assert content(path) == undisturbed
