"""The durable copy of all runs: one SQLite file, in write-ahead mode so that readers never wait for the writer.

A run is one row and its records are one row a round, as JSON. The file carries a schema version; a newer one is
refused, because an old program could only damage it. Each run names the process that owns it: when that process is
gone and the run was still live, the run was interrupted.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Final

import platformdirs
import psutil

from fedviz.runs.columns import Columns, Records
from fedviz.runs.run import LIVE, RunState

SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    created TEXT NOT NULL,           -- ISO 8601, UTC
    state TEXT NOT NULL,
    message TEXT NOT NULL,
    config TEXT NOT NULL,            -- JSON
    reference_id TEXT,               -- the run it is compared with
    version TEXT NOT NULL,           -- of fedviz
    device TEXT,
    owner TEXT NOT NULL              -- the process that drives or drove it
) WITHOUT ROWID;
CREATE INDEX runs_by_time ON runs (created);
CREATE INDEX runs_by_reference ON runs (reference_id);
CREATE TABLE records (
    run_id TEXT NOT NULL,
    round INTEGER NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (run_id, round)
) WITHOUT ROWID;
"""


class StoreError(RuntimeError):
    """The database cannot be used; the message says which file, why, and what to do."""


@dataclass(frozen=True)
class Row:
    """What the database keeps of a run besides its records."""

    id: str
    created: datetime
    state: RunState
    message: str
    config: str  # JSON
    reference_id: str | None
    version: str
    device: str | None


_COLUMNS: Final = ", ".join(field.name for field in fields(Row))


def home() -> Path:
    """Where fedviz keeps its files: FEDVIZ_HOME, else the user's data folder of this system."""
    return Path(os.environ.get("FEDVIZ_HOME") or platformdirs.user_data_path("fedviz", appauthor=False))


class RunStore:
    """The database at `path`. Any thread may read; one thread at a time writes (`save`)."""

    def __init__(self, path: Path | None = None, *, patience: float = 5.0) -> None:
        """patience: seconds to wait for another process that holds the database. Raises StoreError."""
        self.path = path or home() / "runs.sqlite"
        self._patience = patience
        self._owner = _this_process()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._writer = self._connect()
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._writer.close()
            raise self._unusable(error) from error
        except StoreError:
            self._writer.close()
            raise

    # --- writing

    def save(self, row: Row | None, records: Sequence[tuple[str, int, str]]) -> None:
        """Write a run's row, new or changed, and records (run id, round, JSON): all or none.

        Raises sqlite3.Error, and StoreError when the file is no longer there: SQLite would go on writing to nowhere.
        """
        if _identity(self.path) != self._file:
            raise StoreError(
                f"{self.path} was deleted or replaced while fedviz was using it. Start fedviz again to make a new one."
            )
        with self._transaction():
            if row is not None:
                self._writer.execute(
                    f"INSERT INTO runs ({_COLUMNS}, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) "
                    "DO UPDATE SET state = excluded.state, message = excluded.message, device = excluded.device",
                    (row.id, row.created.isoformat(), *astuple(row)[2:], self._owner),
                )
            self._writer.executemany("INSERT INTO records (run_id, round, json) VALUES (?, ?, ?)", records)

    def close(self) -> None:
        self._writer.close()

    # --- reading; each reader has a connection of its own

    def load(self, run_id: str) -> Row | None:
        """The row of a run, None if there is no such run. Raises StoreError."""
        return next(iter(self._rows("WHERE id = ?", run_id)), None)

    def records(self, run_id: str) -> Records:
        """All stored records of a run. Raises StoreError."""
        with self._reading() as reader:
            found = reader.execute("SELECT json FROM records WHERE run_id = ? ORDER BY round", (run_id,))
            return Columns(json.loads(text) for (text,) in found).view()

    def recent(self, limit: int) -> list[Row]:
        """The newest runs, newest first, without those that are only another run's reference. Raises StoreError."""
        return self._rows(
            "WHERE NOT EXISTS (SELECT 1 FROM runs AS other WHERE other.reference_id = runs.id) "
            "ORDER BY created DESC, id LIMIT ?",
            limit,
        )

    # --- inside

    def _connect(self) -> sqlite3.Connection:
        # Explicit transactions; the writer is opened by one thread and used by another, never by two at once.
        return sqlite3.connect(self.path, timeout=self._patience, isolation_level=None, check_same_thread=False)

    def _prepare(self) -> None:
        with self._transaction():  # another process may be doing the same
            (version,) = self._writer.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path} was written by a newer fedviz (schema {version}; this one reads up to "
                    f"{SCHEMA_VERSION}). Update fedviz, or set FEDVIZ_HOME to another folder."
                )
            if version == 0:
                if self._writer.execute("SELECT 1 FROM sqlite_master").fetchone():
                    raise StoreError(
                        f"{self.path} belongs to another program. Move it away, or set FEDVIZ_HOME to another folder."
                    )
                for statement in _SCHEMA.split(";"):  # one by one: executescript would commit
                    self._writer.execute(statement)
                self._writer.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._file = _identity(self.path)
        self._keep_a_log()
        self._writer.execute("PRAGMA synchronous = FULL")  # at a few commits a second, a power cut need not cost any
        for row in self._rows("WHERE state IN (SELECT value FROM json_each(?))", json.dumps(sorted(LIVE))):
            if row.state is RunState.INTERRUPTED:
                self.save(row, ())

    def _keep_a_log(self) -> None:
        """Turn on write-ahead logging. SQLite refuses at once, patience or not, while another process prepares the same file."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._writer.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:  # some errors roll back by themselves
                self._writer.execute("ROLLBACK")
            raise

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(self._connect()) as reader:
                yield reader
        except (sqlite3.Error, ValueError) as error:
            raise self._unusable(error) from error

    def _rows(self, condition: str, *values: object) -> list[Row]:
        with self._reading() as reader:
            found = reader.execute(f"SELECT {_COLUMNS}, owner FROM runs {condition}", values).fetchall()
            rows = []
            for id, created, state, *rest, owner in found:
                row = Row(id, datetime.fromisoformat(created), RunState(state), *rest)
                if row.state.live and not _is_alive(owner):
                    (last,) = reader.execute("SELECT max(round) FROM records WHERE run_id = ?", (id,)).fetchone()
                    row = replace(row, state=RunState.INTERRUPTED, message=interruption(last))
                rows.append(row)
            return rows

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(
            f"Runs cannot be kept in {self.path}: {error}. Check the folder's space and permissions, or set FEDVIZ_HOME to "
            "another one."
        )


def interruption(last_round: int | None) -> str:
    """What is said of a run whose process ended first; last_round: the last that was kept."""
    where = "before its first record" if last_round is None else f"after round {last_round}"
    return f"Interrupted {where}: the server ended. Run it again to see it whole."


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _this_process() -> str:
    process = psutil.Process()
    return json.dumps([socket.gethostname(), process.pid, process.create_time()])


def _is_alive(owner: str) -> bool:
    """Whether the process is there. Ids are used again after a restart, so its start is compared too."""
    host, pid, created = json.loads(owner)
    try:
        return host == socket.gethostname() and abs(psutil.Process(pid).create_time() - created) < 2
    except psutil.Error:
        return False
