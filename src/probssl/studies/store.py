"""The result store: one SQLite file in which every finished trial is one committed row.

A row's key is a hash of the study's name, the trial's configuration and the version of the code. Rows are only ever
added, one transaction each, so that a process that is killed loses what it had not finished and nothing else. Several
processes may use one store: a trial under way is claimed by a lease that ends when its holder dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from probssl.errors import InputError
from probssl.studies.base import Config, Result
from probssl.studies.keys import key_of, text

FORMAT = 1
APPLICATION = 0x70726F62  # "prob": what kind of SQLite file this is
PATIENCE = 60.0
"""Seconds to wait for another process that is writing."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS trials (
    key TEXT PRIMARY KEY, study TEXT NOT NULL, config TEXT NOT NULL, result TEXT NOT NULL, code TEXT NOT NULL,
    seconds REAL NOT NULL, finished TEXT NOT NULL, environment TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS failures (
    key TEXT PRIMARY KEY, study TEXT NOT NULL, config TEXT NOT NULL, message TEXT NOT NULL, code TEXT NOT NULL,
    finished TEXT NOT NULL, stamp REAL NOT NULL);
CREATE TABLE IF NOT EXISTS claims (
    key TEXT PRIMARY KEY, owner TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, expires REAL NOT NULL);
CREATE INDEX IF NOT EXISTS trials_of_study ON trials (study, code);
"""


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


class DamagedStore(InputError):
    """The file is no store, or not a whole one."""


class Store:
    """The trials in one file. Made when it is not there, unless it is only to be read."""

    def __init__(self, path: Path | str, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        if self.path.is_dir():
            raise InputError(f"{self.path} is a folder, and the store of a study is a file")
        if read_only and not self.path.is_file():
            raise InputError(f"{self.path} does not exist")
        with self._told():
            self._connection = self._open_to_read() if read_only else self._open()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")  # before a second process reads it, and so not patient
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    connection.close()
                    raise
                time.sleep(0.02)
        # a row survives the death of its process in any mode; a power cut may undo the last ones, whole
        connection.execute("PRAGMA synchronous = NORMAL")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            connection.execute("BEGIN IMMEDIATE")
            try:
                if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                    for statement in SCHEMA.split(";"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {FORMAT}")
            finally:
                connection.execute("COMMIT")
        return self._checked(connection)

    def _open_to_read(self) -> sqlite3.Connection:
        address = f"file:{quote(str(self.path.resolve()))}?mode=ro"
        connection = sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            return self._checked(connection)
        except sqlite3.OperationalError:
            connection.close()
            if self.path.with_name(f"{self.path.name}-wal").exists():
                raise
        # a folder that may not be written has no room for the file by which readers know of writers; nor are there any
        connection = sqlite3.connect(f"{address}&immutable=1", uri=True, isolation_level=None, check_same_thread=False)
        return self._checked(connection)

    def _checked(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        kind = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if kind != APPLICATION or version > FORMAT:
            connection.close()
            if kind == APPLICATION:
                raise InputError(f"{self.path} was written by a newer probssl: update probssl")
            raise DamagedStore(f"{self.path} is not the store of a study: move it away, or begin anew with --fresh")
        return connection

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
        for key, name, config, result, version, *rest in self._rows(query, study, code):
            yield Trial(key, name, self._read(config), self._read(result), version, *rest)

    def results(self, keys: Collection[str]) -> dict[str, Result]:
        """What these trials found, as far as they are finished."""
        query = "SELECT key, result FROM trials WHERE key IN (SELECT value FROM json_each(?))"
        return {key: self._read(result) for key, result in self._rows(query, json.dumps(list(keys)))}

    def versions(self, study: str) -> dict[str, int]:
        """How many trials of a study each version of the code has finished."""
        return dict(self._rows("SELECT code, count(*) FROM trials WHERE study = ? GROUP BY code", study))

    def put(self, study: str, config: Config, result: Result, code: str, seconds: float, environment: str) -> None:
        """Commit a finished trial. One that is there already stays as it is."""
        key = key_of(study, config, code)
        row = (key, study, text(config), text(result), code, seconds, _now(), environment)
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            connection.execute("DELETE FROM failures WHERE key = ?", (key,))
            connection.execute("DELETE FROM claims WHERE key = ?", (key,))

    def fail(self, study: str, config: Config, message: str, code: str) -> None:
        """Record that a trial failed, and why. It counts as not done."""
        key = key_of(study, config, code)
        row = (key, study, text(config), message, code, _now(), time.time())
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            connection.execute("DELETE FROM claims WHERE key = ?", (key,))

    def failures(self, keys: Collection[str], since: float = 0.0) -> dict[str, str]:
        """Which of these trials failed, and why; those only that failed after a time (as `time.time()` tells it)."""
        query = "SELECT key, message FROM failures WHERE stamp >= ? AND key IN (SELECT value FROM json_each(?))"
        return dict(self._rows(query, since, json.dumps(list(keys))))

    def export(self, path: Path, study: str | None = None, code: str | None = None) -> int:
        """Write trials to a CSV or Parquet file, one row each with configuration and result as columns; how many."""
        from probssl.studies.export import write_trials

        found = list(self.trials(study, code))
        write_trials(path, found)
        return len(found)

    def forget(self, study: str) -> None:
        """Delete everything about a study, of whatever version of the code."""
        with self._transaction() as connection:
            for table in ("trials", "failures"):
                connection.execute(f"DELETE FROM {table} WHERE study = ?", (study,))

    # claims

    def claim(self, keys: Iterable[str], owner: str, seconds: float) -> list[str]:
        """Claim those of the trials that are neither finished nor claimed by anyone alive; returns them."""
        taken = []
        with self._transaction() as connection:
            self._drop_dead_claims(connection)
            for key in keys:
                if connection.execute("SELECT 1 FROM trials WHERE key = ?", (key,)).fetchone() is None:
                    row = (key, owner, socket.gethostname(), os.getpid(), time.time() + seconds)
                    if connection.execute("INSERT OR IGNORE INTO claims VALUES (?, ?, ?, ?, ?)", row).rowcount:
                        taken.append(key)
        return taken

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
        with self._lock, self._told():
            return self._connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._told():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back already
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _read(self, text: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError:
            raise self._damage("a row cannot be read") from None
        return found

    def _damage(self, what: object) -> DamagedStore:
        return DamagedStore(f"{self.path} is damaged ({what}): move it away, or begin anew with --fresh")

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's errors in one sentence that names the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise InputError(f"{self.path} cannot be read or written ({error})") from None
        except sqlite3.DatabaseError as error:
            raise self._damage(error) from None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _dead(host: str, pid: int, expires: float) -> bool:
    """A claim is dead when its lease is over or, on this host, when its process is gone."""
    if expires < time.time():
        return True
    if host != socket.gethostname() or os.name != "posix":  # elsewhere its process cannot be asked without harm
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
