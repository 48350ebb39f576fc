"""The SQLite file of a store: how it is made, opened to write and to read, and known for what it is."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from probssl.errors import DamagedFile, InputError

FORMAT = 2
WAY_OUT = "move it away and start again"
"""What to do about a store that is damaged."""

APPLICATION = 0x70726F62  # "prob": what kind of SQLite file this is
PATIENCE = 60.0
"""Seconds to wait for another process that is writing."""

SCHEMA = """
CREATE TABLE trials (
    key TEXT PRIMARY KEY, study TEXT NOT NULL, config TEXT NOT NULL, result TEXT NOT NULL, code TEXT NOT NULL,
    seconds REAL NOT NULL, finished TEXT NOT NULL, environment TEXT NOT NULL);
CREATE TABLE failures (
    key TEXT PRIMARY KEY, study TEXT NOT NULL, config TEXT NOT NULL, message TEXT NOT NULL, code TEXT NOT NULL,
    attempts INTEGER NOT NULL);
CREATE TABLE weights (key TEXT PRIMARY KEY, weights BLOB NOT NULL);
CREATE TABLE claims (
    key TEXT PRIMARY KEY, owner TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, expires REAL NOT NULL);
CREATE INDEX trials_of_study ON trials (study, code);
"""


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open a store, and make it where there is none. Each statement is its own transaction, unless one is begun."""
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        _write_ahead(connection)
        # a row survives the death of its process in any mode; a power cut may undo the last ones, whole
        connection.execute("PRAGMA synchronous = NORMAL")
        if _is_unborn(connection):
            connection.execute("BEGIN IMMEDIATE")
            if _is_unborn(connection):  # another process may have been first
                _make(connection)
            connection.execute("COMMIT")
        return _checked(path, connection)
    except BaseException:
        connection.close()
        raise


def _write_ahead(connection: sqlite3.Connection) -> None:
    """WAL mode: readers do not wait for a writer. Unlike other statements, this one does not wait for its turn."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a store without changing it."""
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        unborn = _is_unborn(connection)
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(f"{path.name}-wal").exists():
            raise
        # a folder that may not be written has no room for the file by which readers know of writers, nor has it any
        address += "&immutable=1"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
        unborn = _is_unborn(connection)
    except BaseException:
        connection.close()
        raise
    if unborn:  # its maker is at it, or was killed at it
        connection.close()
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        _make(connection)
    return _checked(path, connection)


def _checked(path: Path, connection: sqlite3.Connection) -> sqlite3.Connection:
    kind = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if kind == APPLICATION and version == FORMAT:
        return connection
    connection.close()
    if kind == APPLICATION and version > FORMAT:
        raise InputError(f"{path} was written by a newer probssl: update probssl")
    what = "was written by an older probssl" if kind == APPLICATION else "is not a store of trials"
    raise DamagedFile(f"{path} {what}: {WAY_OUT}")


def _is_unborn(connection: sqlite3.Connection) -> bool:
    """Whether there is nothing in the file yet."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return tables == 0 and connection.execute("PRAGMA user_version").fetchone()[0] == 0


def _make(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
