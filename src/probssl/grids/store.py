"""The result store: one SQLite file in which every finished trial is a committed row.

A row's key is a hash of the grid's name, the trial's configuration and cohort, and the version of the code. Rows are
only ever added, one transaction a cohort, so that a process that is killed loses what it had not finished and nothing
else. Several processes may use one store: a trial under way is claimed by a lease that ends when its holder dies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from probssl.errors import DamagedFile, InputError
from probssl.grids.database import WAY_OUT, open_to_read, open_to_write
from probssl.grids.grid import Cohort, Outcome
from probssl.grids.keys import Config, Result, text
from probssl.schema import conform, intact

Value = TypeVar("Value")


@dataclass(frozen=True)
class Trial:
    """One row of the store: a trial and what it found."""

    key: str
    study: str
    config: Config
    result: Result
    code: str
    seconds: float
    finished: str
    environment: str


class Store:
    """The trials in one file. Made when it is not there, unless it is only to be read."""

    def __init__(self, path: Path | str, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        if self.path.is_dir():
            raise InputError(f"{self.path} is a folder, and the store of trials is a file")
        if read_only and not self.path.is_file():
            raise InputError(f"{self.path} does not exist")
        with self._in_one_sentence():
            self._connection = open_to_read(self.path) if read_only else open_to_write(self.path)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was committed is there."""
        with self._lock:
            self._connection.close()

    # trials

    def finished(self, keys: Collection[str]) -> set[str]:
        """Which of these trials are in the store."""
        query = "SELECT key FROM trials WHERE key IN (SELECT value FROM json_each(?))"
        return {key for (key,) in self._rows(query, json.dumps(list(keys)))}

    def trials(self, study: str | None = None, code: str | None = None) -> Iterator[Trial]:
        """Trials in the order in which they were finished: all, or those of a study or of a version of the code."""
        query = "SELECT key, study, config, result, code, seconds, finished, environment FROM trials "
        query += "WHERE (?1 IS NULL OR study = ?1) AND (?2 IS NULL OR code = ?2) ORDER BY rowid"
        names = [field.name for field in dataclasses.fields(Trial)]
        for row in self._rows(query, study, code):
            values = dict(zip(names, row, strict=True))
            with intact(self.path, WAY_OUT):
                found = {
                    name: self._read(value) if name in ("config", "result") else value for name, value in values.items()
                }
                trial = conform(found, Trial)
            yield trial

    def results(self, keys: Collection[str]) -> dict[str, Result]:
        """What these trials found, as far as they are finished."""
        query = "SELECT key, result FROM trials WHERE key IN (SELECT value FROM json_each(?))"
        return {key: self._read(result) for key, result in self._rows(query, json.dumps(list(keys)))}

    def versions(self, study: str) -> dict[str, int]:
        """How many trials of a study each version of the code has finished."""
        return dict(self._rows("SELECT code, count(*) FROM trials WHERE study = ? GROUP BY code", study))

    def put(self, name: str, code: str, cohort: Cohort, outcomes: Sequence[Outcome]) -> None:
        """Commit what came of a cohort, all or nothing of it. A result that is there already stays as it is."""
        keys = {text(config, ordered=True): key for key, config in cohort.items()}
        with self._transaction() as connection:
            for outcome in outcomes:
                key, config = keys[text(outcome.config, ordered=True)], text(outcome.config)
                if outcome.result is not None:
                    row = (key, name, config, text(outcome.result), code, outcome.seconds, _now(), outcome.environment)
                    connection.execute("INSERT OR IGNORE INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
                    connection.execute("DELETE FROM failures WHERE key = ?", (key,))
                    if outcome.weights is not None:
                        connection.execute("INSERT OR IGNORE INTO weights VALUES (?, ?)", (key, outcome.weights))
                elif connection.execute("SELECT 1 FROM trials WHERE key = ?", (key,)).fetchone() is None:
                    connection.execute(
                        "INSERT INTO failures VALUES (?1, ?2, ?3, ?4, ?5, 1) "
                        "ON CONFLICT (key) DO UPDATE SET message = ?4, attempts = attempts + 1",
                        (key, name, config, outcome.message, code),
                    )
            for key in cohort:
                connection.execute("DELETE FROM claims WHERE key = ?", (key,))

    def weights(self, key: str) -> bytes | None:
        """What was kept of a trial beside its result."""
        return next((found for (found,) in self._rows("SELECT weights FROM weights WHERE key = ?", key)), None)

    def failures(self, keys: Collection[str]) -> dict[str, str]:
        """Which of these trials failed, and why. They count as not done."""
        query = "SELECT key, message FROM failures WHERE key IN (SELECT value FROM json_each(?))"
        return self._of(str, self._rows(query, json.dumps(list(keys))))

    def attempts(self, keys: Collection[str]) -> dict[str, int]:
        """How often each of these trials failed, of those that did."""
        query = "SELECT key, attempts FROM failures WHERE key IN (SELECT value FROM json_each(?))"
        return self._of(int, self._rows(query, json.dumps(list(keys))))

    def export(self, path: Path, study: str | None = None, code: str | None = None) -> int:
        """Write trials to a CSV or Parquet file, one row each with configuration and result as columns; how many."""
        from probssl.grids.export import write_trials

        found = list(self.trials(study, code))
        write_trials(path, found)
        return len(found)

    def forget(self, study: str) -> None:
        """Delete everything about a study, of whatever version of the code."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM weights WHERE key IN (SELECT key FROM trials WHERE study = ?)", (study,))
            for table in ("trials", "failures"):
                connection.execute(f"DELETE FROM {table} WHERE study = ?", (study,))

    # claims

    def claim(self, keys: Collection[str], owner: str, seconds: float) -> bool:
        """Claim all of the trials, unless someone alive has claimed one of them, or all are finished."""
        with self._transaction() as connection:
            self._drop_dead_claims(connection)
            if self.claimed(keys) or len(self.finished(keys)) == len(keys):
                return False
            mine = (owner, socket.gethostname(), os.getpid(), time.time() + seconds)
            connection.executemany("INSERT INTO claims VALUES (?, ?, ?, ?, ?)", [(key, *mine) for key in keys])
        return True

    def renew(self, owner: str, seconds: float) -> None:
        """Hold an owner's claims for that many seconds from now."""
        with self._transaction() as connection:
            connection.execute("UPDATE claims SET expires = ? WHERE owner = ?", (time.time() + seconds, owner))

    def release(self, owner: str) -> None:
        """Give up all claims of an owner."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM claims WHERE owner = ?", (owner,))

    def claimed(self, keys: Collection[str]) -> set[str]:
        """Which of these trials someone alive is working on."""
        query = "SELECT key, host, pid, expires FROM claims WHERE key IN (SELECT value FROM json_each(?))"
        return {key for key, *claim in self._rows(query, json.dumps(list(keys))) if not _dead(*claim)}

    def _drop_dead_claims(self, connection: sqlite3.Connection) -> None:
        held = connection.execute("SELECT DISTINCT owner, host, pid, expires FROM claims").fetchall()
        for owner in {owner for owner, *claim in held if _dead(*claim)}:
            connection.execute("DELETE FROM claims WHERE owner = ?", (owner,))

    # SQLite

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock, self._in_one_sentence():
            return self._connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._in_one_sentence():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back already
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _read(self, text: str) -> dict[str, Any]:
        with intact(self.path, WAY_OUT):
            return conform(json.loads(text), dict)

    def _of(self, kind: type[Value], rows: list[tuple[Any, ...]]) -> dict[str, Value]:
        with intact(self.path, WAY_OUT):
            return conform(dict(rows), dict[str, kind])  # type: ignore[valid-type]

    @contextlib.contextmanager
    def _in_one_sentence(self) -> Iterator[None]:
        """SQLite's errors in one sentence that names the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "no such" in str(error):
                raise DamagedFile(f"{self.path} is damaged ({error}): {WAY_OUT}") from None
            raise InputError(f"{self.path} cannot be read or written ({error})") from None
        except sqlite3.DatabaseError as error:
            raise DamagedFile(f"{self.path} is damaged ({error}): {WAY_OUT}") from None


@dataclass(frozen=True)
class Kept:
    """Weights of models in the store of a grid whose trials trained them."""

    path: Path
    keys: dict[str, str]
    """Configuration of a model, as text -> key of its trial."""

    def of(self, model: Config) -> bytes | None:
        """The weights of a model, if they are there."""
        key = self.keys.get(text(model, ordered=True))
        if key is None or not self.path.is_file():
            return None
        with Store(self.path, read_only=True) as store:
            return store.weights(key)


AHEAD = 3600.0
"""Seconds from now that no lease reaches."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _dead(host: str, pid: int, expires: float) -> bool:
    """A claim is dead when its lease is over or, on this host, when its process has ended.

    A lease that is far ahead is over too: the clock has stepped back since.
    """
    if not (isinstance(pid, int) and isinstance(expires, float) and pid > 0):
        return True  # not as we write it
    if not 0 <= expires - time.time() < AHEAD:
        return True
    if host != socket.gethostname() or os.name != "posix":  # elsewhere its process cannot be asked without harm
        return False
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_text()  # one that ended may be listed until its parent takes note
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] == "Z"
