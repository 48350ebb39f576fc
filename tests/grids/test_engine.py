"""The engine: runs what is not in the store, once, survives failing trials, and is stopped without loss."""

import itertools
import os
import signal
import threading
import time
from collections import Counter

import pytest

from probssl import studies
from probssl.errors import InputError, ProbsslError
from probssl.grids import engine
from probssl.grids.grid import Outcome, even_parts
from probssl.grids.store import Store
from probssl.grids.workers import WorkerDied
from probssl.studies import Row, Study, experiments
from tests.grids.cheap import COUNT, Cheap


class Small(Study):
    """A study of numbers 0 to 9 whose doings are given by the test."""

    name = "tests/small"
    claim = "squares are squares"
    seen: list = []  # noqa: RUF012 - what ran, in this process

    def configs(self, budget):
        return [{"x": x} for x in range(10)]

    def trial(self, config):
        self.seen.append(config["x"])
        return {"square": config["x"] ** 2}

    def summarise(self, results, budget):
        return [Row(str(c["x"]), "square", r["square"], None, None, "not comparable") for c, r in results]


@pytest.fixture(autouse=True)
def nothing_seen():
    Small.seen.clear()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


def run(study, path, **options):
    return engine.run(experiments.grid(study, "smoke"), path, **{"jobs": 1, **options})


def test_runs_the_grid_once_in_its_order(path):
    first = run(Small(), path)
    assert first.results == [({"x": x}, {"square": x * x}) for x in range(10)]
    assert first.failures == []
    assert run(Small(), path) == first
    assert Counter(Small.seen) == Counter(range(10))


def test_runs_only_what_is_missing(path):
    class Fewer(Small):
        def configs(self, budget):
            return [{"x": x} for x in (3, 5)]

    code = experiments.grid(Small(), "smoke").code
    assert experiments.grid(Fewer(), "smoke").code == code
    run(Fewer(), path)
    Small.seen.clear()
    run(Small(), path)
    assert sorted(Small.seen) == [0, 1, 2, 4, 6, 7, 8, 9]


def test_results_of_other_code_are_not_used_and_stay(path, monkeypatch):
    run(Small(), path)
    monkeypatch.setattr(experiments, "code_version", lambda modules: "another")
    Small.seen.clear()
    run(Small(), path)
    assert len(Small.seen) == 10
    with Store(path) as store:
        assert sorted(store.versions("tests/small").values()) == [10, 10]


def test_one_process_and_several_find_the_same(tmp_path):
    found = [run(Cheap(), tmp_path / f"{jobs}.sqlite", jobs=jobs) for jobs in (1, 2)]
    assert len(found[0].results) == COUNT["smoke"]
    assert len({repr(one.results) for one in found}) == 1


def test_what_summarise_sees_has_been_through_json(path):
    config, result = run(Cheap(), path).results[1]
    assert config == {"number": 1, "draws": 40}
    assert type(result["mean"]) is float
    assert type(result["parts"]["rest"]) is list
    assert repr(result["odd"]) == "[nan, -inf]"


# failures


class Failing(Small):
    name = "tests/failing"
    broken = (2, 7)

    def trial(self, config):
        if config["x"] in self.broken:
            raise ZeroDivisionError(f"by {config['x']}\nas always")
        return super().trial(config)


def test_a_failing_trial_does_not_end_the_study(path):
    found = run(Failing(), path)
    assert [config["x"] for config, _ in found.results] == [0, 1, 3, 4, 5, 6, 8, 9]
    assert found.failures == [({"x": x}, f"ZeroDivisionError: by {x} as always") for x in (2, 7)]


def test_a_clock_that_steps_back_repeats_no_failing_trial(path, monkeypatch):
    clock = itertools.count(2e9, -1000.0)
    monkeypatch.setattr(time, "time", lambda: next(clock))
    assert len(run(Failing(), path).failures) == 2
    with Store(path) as store:
        assert set(store.attempts(list(experiments.grid(Failing(), "smoke").trials)).values()) == {1}


def test_failures_are_tried_again_next_time_and_no_other_cohort(path, monkeypatch):
    run(Failing(), path)
    Small.seen.clear()
    monkeypatch.setattr(Failing, "broken", (7,))
    found = run(Failing(), path)
    assert Small.seen == [2]
    assert [config["x"] for config, _ in found.failures] == [7]
    with Store(path) as store:
        assert len(store.failures(list(experiments.grid(Failing(), "smoke").trials))) == 1


def test_a_batch_that_breaks_is_halved_down_to_the_trial_at_fault(path):
    asked = []

    class Together(Small):
        def cohort(self, config):
            return "all"

        def run_batch(self, configs):
            asked.append([config["x"] for config in configs])
            if 6 in asked[-1]:
                raise ValueError("six")
            yield from super().run_batch(configs)

    found = run(Together(), path)
    assert [(config["x"], why) for config, why in found.failures] == [(6, "ValueError: six")]
    assert asked == [list(range(10)), [0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [5, 6], [5], [6], [7, 8, 9]]
    assert Counter(Small.seen) == Counter(x for x in range(10) if x != 6)


def test_what_was_yielded_before_a_batch_broke_is_kept(path):
    class Halfway(Small):
        def cohort(self, config):
            return "all"

        def run_batch(self, configs):
            for number, entry in enumerate(super().run_batch(configs)):
                if number == 4:
                    raise ValueError("enough")
                yield entry

    assert len(run(Halfway(), path).results) == 10
    assert Counter(Small.seen)[0] == 1


@pytest.mark.parametrize(
    ("yielded", "message"),
    [
        (lambda config: [], "gave no result"),
        (lambda config: [(config, {"what": object()})], "plain values: object is not one"),
        (lambda config: [({"x": 99}, {})], "not asked for"),
    ],
)
def test_a_study_that_breaks_its_contract_is_told_so(path, yielded, message):
    class Wrong(Small):
        def run_batch(self, configs):
            for config in configs:
                yield from yielded(config) if config["x"] == 4 else [(config, {})]

    ((config, why),) = run(Wrong(), path).failures
    assert config == {"x": 4}
    assert message in why


def test_grids_and_batches_must_hold_each_trial_once(path):
    class Twice(Small):
        def configs(self, budget):
            return [{"x": 1, "y": 2}, {"y": 2, "x": 1}]

    class Lost(Small):
        def cohorts(self, configs):
            return [configs[1:]]

    with pytest.raises(InputError, match="names 1 of its trials twice"):
        run(Twice(), path)
    with pytest.raises(InputError, match="do not hold each trial once"):
        run(Lost(), path)


def test_no_trial_at_all(tmp_path):
    class Hopeless(Failing):
        broken = range(10)

    with pytest.raises(ProbsslError, match="every trial of tests/failing failed, the first with: ZeroDivisionError"):
        studies.run(Hopeless(), "smoke", tmp_path / "out", quiet=True, jobs=1)


class Suicidal(Cheap):
    name = "tests/suicidal"

    def trial(self, config):
        if config["number"] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().trial(config)


def test_a_worker_that_is_killed(path):
    with pytest.raises(WorkerDied, match="memory ran out"):
        run(Suicidal(), path, jobs=2)
    with Store(path) as store:
        assert 3 not in [trial.config["number"] for trial in store.trials()]


# stopping and sharing


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_keeps_what_is_finished_and_gives_up_the_rest(path, number):
    class Stopping(Small):
        def trial(self, config):
            if config["x"] == 5:
                os.kill(os.getpid(), number)
                time.sleep(5)
            return super().trial(config)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run(Stopping(), path)
    assert signal.getsignal(signal.SIGTERM) is before
    with Store(path) as store:
        keys = list(experiments.grid(Stopping(), "smoke").trials)
        assert len(store.finished(keys)) == 5
        assert store.claimed(keys) == set()


def test_waits_for_what_another_is_doing(path):
    """A trial that someone alive has claimed is waited for, and taken over when they give it up."""
    keys = list(experiments.grid(Small(), "smoke").trials)
    with Store(path) as other:
        for key in keys[:2]:
            other.claim([key], "other", 60)
        results = []
        thread = threading.Thread(target=lambda: results.append(run(Small(), path)))
        thread.start()
        for _ in range(200):
            if len(other.finished(keys)) == 8:
                break
            time.sleep(0.05)
        assert len(other.finished(keys)) == 8
        code = experiments.grid(Small(), "smoke").code
        other.put("tests/small", code, {keys[0]: {"x": 0}}, [Outcome({"x": 0}, {"square": -1}, "", 0.0, "other")])
        other.release("other")
        thread.join(timeout=20)
    assert results[0].results[0] == ({"x": 0}, {"square": -1})
    assert sorted(Small.seen) == list(range(1, 10))


def test_even_parts():
    for count in (0, 1, 7, 16, 100):
        for parts in (1, 3, 16):
            cut = even_parts(list(range(count)), parts)
            assert [x for part in cut for x in part] == list(range(count))
            assert len(cut) == min(count, parts)
            assert not cut or max(map(len, cut)) - min(map(len, cut)) <= 1


# into a folder


def test_run_writes_a_page_and_the_result(tmp_path):
    result = studies.run(Small(), "smoke", tmp_path / "out", quiet=True, jobs=1)
    assert (result.trials, result.failures, len(result.rows)) == (10, (), 10)
    assert "squares are squares" in result.page.read_text()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"index.html", "result.json", "store.sqlite"}


def test_fresh_forgets_even_what_cannot_be_read(tmp_path):
    out = tmp_path / "out"
    studies.run(Small(), "smoke", out, quiet=True, jobs=1)
    studies.run(Small(), "smoke", out, quiet=True, jobs=1, fresh=True)
    assert Counter(Small.seen) == Counter(2 * list(range(10)))
    (out / "store.sqlite").write_text("damaged " * 1000)
    with pytest.raises(InputError, match="--fresh"):
        studies.run(Small(), "smoke", out, quiet=True, jobs=1)
    assert len(studies.run(Small(), "smoke", out, quiet=True, jobs=1, fresh=True).rows) == 10


def test_standing(tmp_path, monkeypatch):
    study, out = Failing(), tmp_path / "out"
    assert studies.standing(study, "smoke", out).as_dict() == {
        "total": 10,
        "done": 0,
        "failed": 0,
        "older": 0,
        "problem": None,
    }
    studies.run(study, "smoke", out, quiet=True, jobs=1)
    now = studies.standing(study, "smoke", out)
    assert (now.done, now.failed, now.older) == (8, 2, 0)
    monkeypatch.setattr(experiments, "code_version", lambda modules: "another")
    now = studies.standing(study, "smoke", out)
    assert (now.done, now.failed, now.older) == (0, 0, 8)
    (out / "store.sqlite").write_text("damaged " * 1000)
    assert "store.sqlite is damaged" in studies.standing(study, "smoke", out).problem


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"backend": "slurm"}, "'slurm'"),
        ({"jobs": 0}, "--jobs"),
        ({"address": "tcp://x:1"}, "--address"),
        ({"backend": "dask", "address": "tcp://x:1", "jobs": 2}, "--jobs"),
    ],
)
def test_refusals_leave_nothing_behind(tmp_path, options, named):
    with pytest.raises(InputError, match=named):
        studies.run(Small(), "smoke", tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_workers_import_nothing_from_the_current_folder(path, tmp_path, monkeypatch):
    """Torch imports `secrets`, and whoever runs a grid in a folder of somebody else's must not run what lies there."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secrets.py").write_text("open('executed', 'w').close()\n")
    monkeypatch.chdir(elsewhere)
    monkeypatch.syspath_prepend("")
    assert len(run(Cheap(), path, jobs=2).results) == COUNT["smoke"]
    assert [found.name for found in elsewhere.iterdir()] == ["secrets.py"]


def test_time_cuts_a_grid_between_cohorts(path):
    class Slow(Small):
        def trial(self, config):
            time.sleep(0.05)
            return super().trial(config)

    grid = experiments.grid(Slow(), "smoke")
    with Store(path) as store, engine.started(Slow(), store, jobs=1) as running:
        running.finish(grid, begin_until=time.monotonic() - 1)
        assert store.finished(grid.trials) == set()
        running.finish(grid, begin_until=time.monotonic() + 0.12)
        assert 0 < len(store.finished(grid.trials)) < 10
        assert store.claimed(grid.trials) == set()


def test_what_runs_beyond_its_time_is_given_up_and_done_later(path):
    grid = experiments.grid(Cheap(), "smoke")
    with Store(path) as store, engine.started(Cheap(), store, jobs=2) as running:
        running.finish(grid, until=time.monotonic() + 0.2)  # workers take longer to start
        assert len(store.finished(grid.trials)) < len(grid.trials)
        running.finish(grid)
        assert len(store.finished(grid.trials)) == len(grid.trials)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_cohort_that_runs_out_of_memory_is_neither_halved_nor_stored(path, error):
    """Its halves would train in other company, and their numbers would depend on how much memory there was."""

    class Greedy(Small):
        def cohort(self, config):
            return "all"

        def run_batch(self, configs):
            self.seen.append(len(configs))
            raise error
            yield

    with pytest.raises(type(error)):
        run(Greedy(), path)
    assert Small.seen == [10]
    with Store(path) as store:
        keys = list(experiments.grid(Greedy(), "smoke").trials)
        assert (store.finished(keys), store.failures(keys), store.claimed(keys)) == (set(), {}, set())
