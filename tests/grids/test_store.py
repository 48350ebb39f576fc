"""The store: what is put is there, whole, once, for everyone, and what goes wrong is said in a sentence."""

import math
import os
import socket
import sqlite3
import subprocess
import sys
import time

import pytest

from probssl.errors import DamagedFile, InputError
from probssl.grids.grid import Outcome
from probssl.grids.keys import key_of, plain
from probssl.grids.store import Store


def put(store, number, result=None, code="c1", study="s", failure="", weights=None):
    config = {"number": number}
    key = key_of(study, config, code)
    found = None if failure else {"value": number} if result is None else result
    store.put(study, code, {key: config}, [Outcome(config, found, failure, 0.5, "here", weights)])
    return key


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path):
    with Store(path) as opened:
        yield opened


def test_a_trial_comes_back_as_it_was_put(store):
    result = {"z": [1.5, math.nan, math.inf, -math.inf], "a": {"deep": None, "true": True}, "big": 2**70, "word": "χ²"}
    key = put(store, 1, result)
    found = store.results([key])[key]
    assert list(found) == list(result)  # in the order in which the study wrote it
    assert repr(found) == repr(result)
    (trial,) = store.trials()
    assert (trial.study, trial.config, trial.code, trial.seconds) == ("s", {"number": 1}, "c1", 0.5)


def test_every_float_survives(store):
    values = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0]
    key = put(store, 1, {"values": values})
    assert repr(store.results([key])[key]["values"]) == repr(values)


def test_the_key_is_of_values_not_of_their_order_or_type():
    numpy = pytest.importorskip("numpy")
    same = [{"a": 1, "b": [2.5]}, {"b": (2.5,), "a": 1}, {"a": numpy.int64(1), "b": numpy.array([2.5])}]
    assert len({key_of("s", config, "c") for config in same}) == 1
    others = [("t", same[0], "c"), ("s", same[0], "d"), ("s", {"a": 1, "b": [2.6]}, "c"), ("s", {"a": 1}, "c")]
    assert len({key_of(*other) for other in others} | {key_of("s", same[0], "c")}) == 5
    assert [plain(config) for config in same] == [{"a": 1, "b": [2.5]}] * 3
    with pytest.raises(InputError, match="set"):
        plain({"a": {1, 2}})


def test_the_first_result_of_a_trial_stays(store):
    key = put(store, 1, {"value": 1})
    put(store, 1, {"value": 2})
    assert store.results([key]) == {key: {"value": 1}}
    assert len(list(store.trials())) == 1


def test_versions_are_kept_apart_and_studies_forgotten_one_at_a_time(store):
    old, new, other = put(store, 1, code="c1"), put(store, 1, code="c2"), put(store, 1, study="t")
    assert store.versions("s") == {"c1": 1, "c2": 1}
    assert store.finished([old, new, "nothing"]) == {old, new}
    assert [trial.code for trial in store.trials("s", "c2")] == ["c2"]
    store.forget("s")
    assert [trial.key for trial in store.trials()] == [other]


def test_thousands_of_keys_at_once(store):
    keys = [f"{number:032}" for number in range(50_000)]
    assert store.finished(keys) == set()
    assert store.claim(keys[:5000], "me", 60)
    assert store.claimed(keys) == set(keys[:5000])


def test_failures_are_counted_until_the_trial_succeeds(store):
    key = put(store, 1, failure="why")
    assert (store.failures([key]), store.attempts([key])) == ({key: "why"}, {key: 1})
    put(store, 1, failure="why again")
    assert (store.failures([key]), store.attempts([key])) == ({key: "why again"}, {key: 2})
    assert store.finished([key]) == set()
    put(store, 1)
    assert store.failures([key]) == {}
    put(store, 1, failure="too late")
    assert store.failures([key]) == {}


def test_weights_are_kept_beside_the_result_until_the_study_is_forgotten(store):
    key = put(store, 1, weights=b"\0weights")
    assert store.weights(key) == b"\0weights"
    assert store.weights(put(store, 2)) is None
    store.forget("s")
    assert store.weights(key) is None


def test_a_cohort_is_committed_whole_or_not_at_all(store):
    cohort = {"a": {"x": 1}, "b": {"x": 2}}
    outcomes = [Outcome({"x": 1}, {}, "", 0.0, ""), Outcome({"x": 2}, {"what": object()}, "", 0.0, "")]
    with pytest.raises(TypeError):
        store.put("s", "c", cohort, outcomes)
    assert store.finished(cohort) == set()


def test_the_company_of_a_trial_is_part_of_its_key():
    configs = [{"x": 1}, {"x": 2}]
    keys = {key_of("s", configs[0], "c", cohort) for cohort in ((), configs[:1], configs, [*configs, {"x": 3}])}
    assert len(keys) == 3


# claims


def test_a_claim_excludes_others_until_released(path, store):
    with Store(path) as other:
        assert store.claim(["a", "b"], "me", 60)
        assert not other.claim(["b", "c"], "you", 60)
        assert other.claim(["c"], "you", 60)
        store.release("me")
        assert other.claim(["a", "b"], "you", 60)


def test_what_is_finished_cannot_be_claimed_and_finishing_ends_a_claim(store):
    key = put(store, 1)
    assert not store.claim([key], "me", 60)
    two = key_of("s", {"number": 2}, "c1")
    assert store.claim([two], "me", 60)
    put(store, 2)
    assert store.claimed([two]) == set()


def test_a_lease_that_is_over_is_free_and_a_renewed_one_is_not(store):
    store.claim(["a"], "me", -1)
    assert store.claimed(["a"]) == set()
    assert store.claim(["a"], "you", -1)
    store.renew("you", 60)
    assert not store.claim(["a"], "me", 60)


@pytest.mark.parametrize("waited_for", [True, False])
def test_claims_of_dead_processes_are_free_at_once_but_only_on_this_host(store, path, waited_for):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    if waited_for:
        gone.wait()
    else:
        os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
    rows = [("here", socket.gethostname()), ("there", "another-host")]
    with sqlite3.connect(path) as raw:
        for key, host in rows:
            raw.execute("INSERT INTO claims VALUES (?, ?, ?, ?, ?)", (key, key, host, gone.pid, time.time() + 60))
    assert store.claimed(["here", "there"]) == {"there"}
    assert not store.claim(["here", "there"], "me", 60)
    assert store.claim(["here"], "me", 60)


# what goes wrong


def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(path):
    with Store(path) as store:
        kept = put(store, 1)
        store._connection.execute(
            f"PRAGMA max_page_count = {store._connection.execute('PRAGMA page_count').fetchone()[0]}"
        )
        with pytest.raises(InputError, match=r"store\.sqlite cannot be read or written \(database or disk is full\)"):
            put(store, 2, {"value": "x" * 100_000})
        assert [trial.key for trial in store.trials()] == [kept]
        store._connection.execute("PRAGMA max_page_count = 100000")
        put(store, 2)
    with Store(path) as store:
        assert len(list(store.trials())) == 2


def test_read_only(path):
    with pytest.raises(InputError, match="does not exist"):
        Store(path, read_only=True)
    assert not path.exists()
    with Store(path) as store:
        key = put(store, 1)
    with Store(path, read_only=True) as store:
        assert store.finished([key]) == {key}
        with pytest.raises(InputError, match="readonly"):
            put(store, 2)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(path):
    with Store(path) as store:
        key = put(store, 1)
    path.parent.chmod(0o500)
    try:
        with Store(path, read_only=True) as store:
            assert store.finished([key]) == {key}
    finally:
        path.parent.chmod(0o700)


def test_a_store_that_is_only_just_being_made_is_empty(path):
    path.touch()
    with Store(path, read_only=True) as reader:
        assert list(reader.trials()) == []
    assert path.stat().st_size == 0
    with Store(path) as store:
        put(store, 1)


def test_reading_while_another_writes(path, store):
    key = put(store, 1)
    with store._transaction(), Store(path, read_only=True) as reader:
        assert reader.finished([key]) == {key}


@pytest.mark.parametrize("damage", ["text", "other database", "overwritten", "row"])
def test_damage_is_an_error_that_names_the_file(path, damage):
    if damage == "text":
        path.write_text("not a database, and long enough to be looked at " * 40)
    elif damage == "other database":
        with sqlite3.connect(path) as raw:
            raw.execute("CREATE TABLE mine (x)")
        raw.close()
    else:
        with Store(path) as store:
            for number in range(200):
                put(store, number, {"value": "x" * 300})
        if damage == "overwritten":
            content = bytearray(path.read_bytes())
            content[4096:] = b"\xff" * (len(content) - 4096)
            path.write_bytes(content)
        else:
            with sqlite3.connect(path) as raw:
                raw.execute("UPDATE trials SET result = '{' WHERE rowid = 7")
            raw.close()
    for read_only in (False, True):
        with (
            pytest.raises(DamagedFile, match=r"store\.sqlite is (damaged|not a store)"),
            Store(path, read_only=read_only) as store,
        ):
            list(store.trials())
    if damage == "other database":
        with sqlite3.connect(path) as raw:
            assert raw.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]


@pytest.mark.parametrize(("version", "said"), [(99, "newer probssl"), (1, "older probssl: move it away")])
def test_another_format_is_not_touched(path, version, said):
    with Store(path):
        pass
    with sqlite3.connect(path) as raw:
        raw.execute(f"PRAGMA user_version = {version}")
    raw.close()
    with pytest.raises(InputError, match=said):
        Store(path)


def test_a_folder_in_its_place(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        Store(tmp_path)
    with pytest.raises(InputError, match="cannot be read or written"):
        Store(tmp_path / "nowhere" / "store.sqlite")


def test_a_clock_that_stepped_back_frees_what_a_host_that_died_had_claimed(store, path):
    """Its lease then ends in the far future, and its process cannot be asked."""
    with sqlite3.connect(path) as raw:
        raw.execute("INSERT INTO claims VALUES ('key', 'it', 'another-host', 1, ?)", (time.time() + 1e5,))
    assert not store.claimed(["key"])
    assert store.claim(["key"], "me", 60)


@pytest.mark.parametrize(("pid", "expires"), [("x", 9e9), (-1, 9e9), (2**62, 9e9), (0, "soon"), (1, b"soon"), (b"", 1)])
def test_claims_that_nobody_wrote_like_that_are_dead(store, path, pid, expires):
    with sqlite3.connect(path) as raw:
        raw.execute("INSERT INTO claims VALUES ('key', 'it', ?, ?, ?)", (socket.gethostname(), pid, expires))
    assert not store.claimed(["key"])
