"""The durable copy of all runs: one SQLite file, in write-ahead mode so that readers never wait for the writer.

A run is one row and its records are one row a round, as JSON. The file carries a schema version; a newer one is
refused, because an old program could only damage it. Each run names the process that drives it: when that process is
gone and the run was still live, the run was interrupted.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import platformdirs
import psutil

from fedviz.runs.columns import Columns, Records
from fedviz.runs.run import LIVE, RunState

SCHEMA_VERSION: Final = 3
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
    process TEXT NOT NULL            -- that drives or drove it
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
_TO_2: Final = """
ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';   -- the visitor's id, empty: nobody's any more
ALTER TABLE runs ADD COLUMN title TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN published INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN parent_id TEXT;                        -- the run that it continues, and after which round
ALTER TABLE runs ADD COLUMN forked_at INTEGER;
ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT '';         -- what stays to be said: what a fork carried over
ALTER TABLE runs ADD COLUMN config_key TEXT;                       -- equal for runs that will have equal records
ALTER TABLE runs ADD COLUMN is_reference INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET is_reference = 1 WHERE id IN (SELECT reference_id FROM runs);
CREATE INDEX runs_by_owner ON runs (owner, created);
CREATE INDEX runs_by_parent ON runs (parent_id);
CREATE INDEX runs_by_config ON runs (config_key, created);
"""
_TO_3: Final = """
ALTER TABLE runs ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;   -- whether its records came from a file
ALTER TABLE runs ADD COLUMN ended TEXT;                            -- ISO 8601, UTC
UPDATE runs SET ended = created WHERE state NOT IN ('queued', 'preparing', 'running', 'paused');
"""
_FROM_1: Final = "ALTER TABLE runs RENAME COLUMN owner TO process;"  # owner now means the visitor
_MIGRATIONS: Final = {
    0: [_SCHEMA, _TO_2, _TO_3],
    1: [_FROM_1, _TO_2, _TO_3],
    2: [_TO_3],
}  # by the version found; 0: empty
_LAST: Final = 2**62  # no round is later
DEEPEST: Final = 1000  # runs continued one from another; far more than are allowed
_STORES: Final = itertools.count()

_log = logging.getLogger(__name__)


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
    owner: str = "local"
    title: str = ""
    published: bool = False
    parent_id: str | None = None
    forked_at: int | None = None
    note: str = ""
    config_key: str | None = None
    is_reference: bool = False
    imported: bool = False
    ended: datetime | None = None


_COLUMNS: Final = ", ".join(field.name for field in fields(Row))


_LIVING: Final = (
    "state",
    "message",
    "device",
    "title",
    "published",
    "note",
    "ended",
    "process",
)  # what changes while a run lives
_SAVE: Final = (
    f"INSERT INTO runs ({_COLUMNS}, process) VALUES ({', '.join('?' * (len(fields(Row)) + 1))}) "
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _LIVING)}"
)


def home() -> Path:
    """Where fedviz keeps its files: FEDVIZ_HOME, else the user's data folder of this system."""
    return Path(os.environ.get("FEDVIZ_HOME") or platformdirs.user_data_path("fedviz", appauthor=False))


class RunStore:
    """The database at `path`, for all threads."""

    def __init__(self, path: Path | None = None, *, patience: float = 5.0) -> None:
        """patience: seconds to wait for another process that holds the database. Raises StoreError."""
        self.path = path or home() / "runs.sqlite"
        self._patience = patience
        self._process = _this_process()
        # Whether a run that this store wrote as live is so: what could not be written of its end must not have it live for ever.
        self.is_live: Callable[[str], bool] = lambda _: True
        self._lock = threading.RLock()  # of the writer
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
        self._write(() if row is None else (row,), records)

    def _write(self, rows: Sequence[Row], records: Sequence[tuple[str, int, str]]) -> None:
        if _identity(self.path) != self._file:
            raise StoreError(
                f"{self.path} was deleted or replaced while fedviz was using it. Start fedviz again to make a new one."
            )
        with self._transaction():
            for row in rows:
                values = [value.isoformat() if isinstance(value, datetime) else value for value in astuple(row)]
                self._writer.execute(_SAVE, (*values, self._process))
            self._writer.executemany("INSERT INTO records (run_id, round, json) VALUES (?, ?, ?)", records)

    def insert(self, rows: Sequence[Row], records: Sequence[tuple[str, int, str]]) -> None:
        """Write whole runs, with the records of all of them: all or none. Raises StoreError."""
        with self._saying_why():
            self._write(rows, records)

    def change(self, run_id: str, **values: str | bool) -> None:
        """Write owner, title or published of a run that has ended. Raises StoreError."""
        assert values.keys() <= {"owner", "title", "published"}
        settings = ", ".join(f"{name} = ?" for name in values)
        with self._saying_why(), self._transaction():
            self._writer.execute(f"UPDATE runs SET {settings} WHERE id = ?", (*values.values(), run_id))

    def delete(self, run_id: str) -> None:
        """Take a run and its records out. Raises StoreError."""
        with self._saying_why(), self._transaction():
            self._writer.execute("DELETE FROM records WHERE run_id = ?", (run_id,))
            self._writer.execute("DELETE FROM runs WHERE id = ?", (run_id,))

    def close(self) -> None:
        with self._lock:
            self._writer.close()

    # --- reading; each reader has a connection of its own

    def load(self, run_id: str) -> Row | None:
        """The row of a run, None if there is no such run. Raises StoreError, also where the row cannot be read."""
        with self._reading() as reader:
            found = reader.execute(f"SELECT {_COLUMNS}, process FROM runs WHERE id = ?", (run_id,)).fetchone()
            try:
                return None if found is None else self._row(reader, found)
            except (ValueError, TypeError) as error:
                raise StoreError(
                    f"Run {run_id} in {self.path} cannot be read: {error}. It can only be left."
                ) from error

    def records(self, run_id: str) -> Records:
        """All stored records of a run, those before a fork from the run that it continues. Raises StoreError."""
        with self._reading() as reader:
            columns = Columns()
            for part, after, last in reversed(_lineage(reader, run_id)):
                found = reader.execute(
                    "SELECT json FROM records WHERE run_id = ? AND round > ? AND round <= ? ORDER BY round",
                    (part, after, last),
                )
                for (text,) in found:
                    columns.append(json.loads(text))
            return columns.view()

    def listed(self, owner: str | None, limit: int | None = None) -> list[Row]:
        """The runs of an owner and those that are published, newest first; everybody's where owner is None. Without those
        that are only another run's reference. Raises StoreError.
        """
        whose, values = ("owner != ''", ()) if owner is None else ("(owner = ? OR published)", (owner,))
        return self._rows(
            f"WHERE {whose} AND NOT is_reference ORDER BY created DESC, id LIMIT ?",
            *values,
            -1 if limit is None else limit,
        )

    def same(self, config_key: str) -> list[Row]:
        """The runs of a config key that run or are finished, newest first. Raises StoreError."""
        rows = self._rows("WHERE config_key = ? AND owner != '' ORDER BY created DESC, id", config_key)
        return [row for row in rows if row.state.live or row.state is RunState.FINISHED]

    def children(self, run_id: str) -> list[Row]:
        """The runs that continue a run. Raises StoreError."""
        return self._rows("WHERE parent_id = ?", run_id)

    def ended_before(self, when: datetime) -> list[Row]:
        """Runs that ended before `when` and that nobody has published. Raises StoreError."""
        rows = self._rows("WHERE ended < ? AND NOT published AND NOT is_reference", when.isoformat())
        return [row for row in rows if not row.state.live]

    def ids_of(self, owner: str) -> set[str]:
        """The runs of an owner, without those that are only another run's reference. Raises StoreError."""
        with self._reading() as reader:
            found = reader.execute("SELECT id FROM runs WHERE owner = ? AND NOT is_reference", (owner,)).fetchall()
            return {id for (id,) in found}

    def size(self) -> tuple[int, int]:
        """(runs, bytes that they take; the file may be larger, for what was deleted leaves room in it). Raises StoreError."""
        with self._reading() as reader:
            (runs,) = reader.execute("SELECT count(*) FROM runs").fetchone()
            pages, free, size = (
                reader.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
            )
        return runs, (pages - free) * size

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
            if version == 0 and self._writer.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise StoreError(
                    f"{self.path} belongs to another program. Move it away, or set FEDVIZ_HOME to another folder."
                )
            for statement in "".join(_MIGRATIONS.get(version, [])).split(";"):  # one by one: executescript would commit
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
        with self._lock:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:  # some errors roll back by themselves
                    self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def _saying_why(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(self._connect()) as reader:
                yield reader
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise self._unusable(error) from error

    def _rows(self, condition: str, *values: object) -> list[Row]:
        """Rows that cannot be read are left out: one bad row hides no others."""
        with self._reading() as reader:
            rows = []
            for found in reader.execute(f"SELECT {_COLUMNS}, process FROM runs {condition}", values).fetchall():
                try:
                    rows.append(self._row(reader, found))
                except (ValueError, TypeError) as error:
                    _log.warning("Run %s in %s cannot be read: %s", found[0], self.path, error)
            return rows

    def _row(self, reader: sqlite3.Connection, found: tuple[Any, ...]) -> Row:
        """Raises ValueError or TypeError where it is not as this program writes rows."""
        named = dict(zip((field.name for field in fields(Row)), found, strict=False))
        row = Row(
            **{
                **named,
                "created": _time(named["created"]),
                "ended": None if named["ended"] is None else _time(named["ended"]),
                "state": RunState(named["state"]),
                "published": bool(named["published"]),
                "is_reference": bool(named["is_reference"]),
                "imported": bool(named["imported"]),
            }
        )
        if row.state.live and not self._goes_on(row.id, found[-1]):
            now = reader.execute(f"SELECT {_COLUMNS}, process FROM runs WHERE id = ?", (row.id,)).fetchone()
            if now is not None and now != found:  # its end was written in this moment
                return self._row(reader, now)
            (last,) = reader.execute("SELECT max(round) FROM records WHERE run_id = ?", (row.id,)).fetchone()
            last = row.forked_at if last is None else last
            row = replace(row, state=RunState.INTERRUPTED, message=interruption(last), ended=datetime.now(UTC))
        return row

    def _goes_on(self, run_id: str, process: str) -> bool:
        return self.is_live(run_id) if process == self._process else _is_alive(process)

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(
            f"Runs cannot be kept in {self.path}: {error}. Check the folder's space and permissions, or set FEDVIZ_HOME to "
            "another one."
        )


def interruption(last_round: int | None) -> str:
    """What is said of a run whose process ended first; last_round: the last that was kept."""
    where = "before its first record" if last_round is None else f"after round {last_round:,}"
    return f"Interrupted {where}: the server ended. Resume continues it."


def _lineage(reader: sqlite3.Connection, run_id: str) -> list[tuple[str, int, int]]:
    """The runs that a run's records come from, itself first: (id, after which round its own records come, its last to take).

    Raises ValueError where one of them is no longer there.
    """
    parts: list[tuple[str, int, int]] = []
    last, part = _LAST, run_id
    for _ in range(DEEPEST):
        found = reader.execute("SELECT parent_id, forked_at FROM runs WHERE id = ?", (part,)).fetchone()
        if found is None and parts:
            raise ValueError(f"run {part}, with which the records of run {run_id} begin, is no longer there")
        if found is None or found[0] is None:
            return [*parts, (part, -1, last)]
        parts.append((part, found[1], last))
        part, last = found[0], min(last, found[1])
    raise ValueError(f"run {run_id} continues more than {DEEPEST} others, one from another")


def _time(text: str) -> datetime:
    """With a time zone, so that all can be compared."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _this_process() -> str:
    """Names the process and, as there may be several in it, the store."""
    process = psutil.Process()
    return json.dumps([socket.gethostname(), process.pid, process.create_time(), next(_STORES)])


def _is_alive(process: str) -> bool:
    """Whether the process is there. Ids are used again after a restart, so its start is compared too."""
    try:
        host, pid, created, *_ = json.loads(process)
        return host == socket.gethostname() and abs(psutil.Process(pid).create_time() - created) < 2
    except (psutil.Error, ValueError, TypeError):
        return False
