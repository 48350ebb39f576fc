"""The schedule and its clock, and a race that neither kills nor processes change."""

import csv
import json
import math
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from probssl import Table, compare
from probssl.comparing import schedule
from probssl.comparing.grid import candidates
from probssl.comparing.race import cohorts_of
from probssl.comparing.schedule import COHORT, Clock, Round, rounds_of, survivors
from probssl.errors import InputError
from probssl.grids.store import Store
from probssl.parts.facts import Facts


def test_rounds_of_a_size():
    assert rounds_of(378, None) == [
        Round(1, 378, (300,)),
        Round(2, 95, (1000,)),
        Round(3, 8, (1000, 2000), schedule.SEEDS),
    ]
    assert [r.number for r in rounds_of(8, None)] == [3], "a handful needs no screening"
    assert rounds_of(3, None)[0].configurations == 3


def test_less_time_trains_more_shortly_and_never_depends_on_the_clock():
    lengths = [rounds_of(100, minutes)[0].lengths[0] for minutes in (0.5, 2.0, 5.0, 60.0, None)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1] == lengths[2]


def test_rounds_are_as_long_as_the_data_needs():
    assert [r.lengths for r in rounds_of(378, None, 4000)] == [(600,), (2000,), (2000, 4000)]
    assert rounds_of(378, 0.5, 1000)[0].lengths == (50,)


def test_a_round_in_words():
    assert Round(1, 378, (300,)).described == "378 configurations, 300 steps"
    assert Round(3, 8, (100, 300, 2000), 3).described == "8 configurations, 100, 300 and 2,000 steps, 3 seeds"


def test_survivors():
    assert survivors(1, 378) == 95
    assert survivors(1, 20) == 8
    assert survivors(1, 5) == 5
    assert survivors(2, 95) == 8


def test_cohorts_hold_every_job_once_and_what_matters_first():
    entrants = candidates(Facts("table", (12,), 100))[1]
    cohorts = cohorts_of(Round(1, len(entrants), (300,)), entrants, 5, lambda entrant: True)
    assert sorted(job.candidate for cohort in cohorts for job in cohort) == sorted(entrants)
    assert max(map(len, cohorts)) <= COHORT
    levels = [{job.candidate.level for job in cohort} for cohort in cohorts]
    assert [min(level) for level in levels] == sorted(min(level) for level in levels)
    for cohort in cohorts:
        assert len({(job.candidate.dim, job.steps, job.seed) for job in cohort}) == 1
    alone = cohorts_of(Round(1, len(entrants), (300,)), entrants, 5, lambda entrant: entrant.objective != "nce")
    assert all(len(cohort) == 1 for cohort in alone if cohort[0].candidate.objective == "nce")
    assert sorted(job.candidate for cohort in alone for job in cohort) == sorted(entrants)
    finals = cohorts_of(Round(3, 8, (20, 40), 3), entrants[:8], 5, lambda entrant: True)
    assert [finals[0][0].steps, finals[-1][0].steps] == [20, 40]
    assert {job.seed for cohort in finals for job in cohort} == {5, 6, 7}


def test_the_clock():
    clock = Clock.start(1.0, time.monotonic() - 5)
    assert 54 < clock.left <= 55
    assert clock.reserved().training_ends < clock.deadline - 6
    assert Clock.start(None).reserved().training_ends == math.inf
    for minutes in (0.0, -1.0, 0.1, math.nan, math.inf):
        with pytest.raises(InputError, match="minutes"):
            Clock.start(minutes)


def test_time_that_is_over_before_it_begins_still_ends_with_a_leaderboard(tmp_path, monkeypatch):
    """As on a machine that took all of it to load and to share out the work."""
    monkeypatch.setattr(schedule, "LENGTHS", dict.fromkeys(schedule.LENGTHS, (10, 20, 40)))
    labels = np.arange(160) % 2
    table = Table(
        "shifted", np.random.default_rng(0).normal(size=(160, 5)), tuple("abcde"), labels=labels, classes=("a", "b")
    )
    late = time.monotonic() - 3600
    found = compare(table, minutes=1, started=late, objectives=["infonce"], dims=[2], jobs=1, out=tmp_path / "late")
    assert [(done.number, done.configurations) for done in found.rounds] == [(1, len(found.leaderboard))]
    assert 0 < len(found.leaderboard) <= schedule.COHORT


PROGRAM = """
import sys
import numpy as np
from probssl import Table, compare
from probssl.comparing import schedule
from probssl import Table, compare

schedule.LENGTHS = {float("inf"): (10, 20, 40)}
random = np.random.default_rng(0)
labels = random.integers(0, 2, 160)
features = random.normal(size=(160, 5)) + labels[:, None]
table = Table("shifted", features, tuple("abcde"), labels=labels, classes=("left", "right"), label_name="side")
compare(
    table, trials=16, objectives=["infonce", "fisher", "spectral"], dims=[2], resume=True, out=sys.argv[1],
    jobs=int(sys.argv[2]),
)
"""


def start(folder, jobs):
    command = [sys.executable, "-c", PROGRAM, str(folder), str(jobs)]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True)


def stored(folder):
    if not (folder / "store.sqlite").is_file():
        return []
    with Store(folder / "store.sqlite", read_only=True) as store:
        return sorted((t.key, json.dumps(t.config), json.dumps(t.result)) for t in store.trials())


def test_killed_again_and_again_it_ends_with_the_same_leaderboard(tmp_path):
    chance = random.Random(1)
    assert start(tmp_path / "whole", 1).wait(300) == 0
    whole = stored(tmp_path / "whole")
    for jobs in (2, 1, 2):
        victim = start(tmp_path / "killed", jobs)
        wanted = len(stored(tmp_path / "killed")) + chance.randint(1, len(whole) // 5)
        while len(stored(tmp_path / "killed")) < wanted and victim.poll() is None:
            time.sleep(0.01)
        victim.send_signal(signal.SIGKILL)
        victim.wait(60)
    assert 0 < len(stored(tmp_path / "killed")) < len(whole)
    assert start(tmp_path / "killed", 2).wait(300) == 0
    assert stored(tmp_path / "killed") == whole
    for name in ("leaderboard.csv", "leaderboard.json"):
        one, other = ((tmp_path / run / name).read_text() for run in ("whole", "killed"))
        assert one.replace("/whole/", "/killed/") == other
    with (tmp_path / "killed" / "leaderboard.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 16
