"""Persistence: objects and the control plane's keys, in one SQLite file.

Each change is committed before the client gets the response, so that it survives the end of the process, also by
SIGKILL. It is not flushed to the disk: the last changes can be lost with the power of the machine. History is not kept:
after a restart, older watches get 410, and clients relist.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.file_errors import reason_of
from envtest.storage.record import DELETED, Change
from envtest.storage.store import Store

__all__ = ["FORMAT", "SCHEMA", "Archive", "ArchiveError"]

FORMAT = "1"
SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
    api_group TEXT NOT NULL, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (api_group, resource, namespace, name)
) WITHOUT ROWID;
"""


class ArchiveError(ValueError):
    """Raised when the data folder cannot be used; the message contains the reason."""


class Archive:
    """The file of one control plane, in ``folder``. Only one process at a time can open it."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise ArchiveError(
                f"the data folder {folder} must be a folder, or a path where one can be created"
            )
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / "control-plane.sqlite"
            file.touch(mode=0o600)
            self._database = sqlite3.connect(file, isolation_level=None, timeout=0.5)
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(SCHEMA)
            self._check_format(file)
        except (OSError, sqlite3.Error) as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code == sqlite3.SQLITE_BUSY:
                reason = "is in use by another process; stop it, or use another folder"
                raise ArchiveError(f"the data folder {folder} {reason}") from error
            raise ArchiveError(
                f"cannot use the data folder {folder}: {reason_of(error)}"
            ) from error

    def _check_format(self, file: Path) -> None:
        found = self.get("format")
        if found is None:
            self.put("format", FORMAT.encode())
        elif found.decode() != FORMAT:
            raise ArchiveError(f"{file} has format {found.decode()}, this version reads {FORMAT}")

    def get(self, name: str) -> bytes | None:
        """Return a setting (a key, a certificate, ...), or ``None``."""
        row = self._database.execute(
            "SELECT value FROM settings WHERE name = ?", (name,)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def settings(self) -> dict[str, bytes]:
        """Return all settings. Raises ArchiveError."""
        try:
            rows = self._database.execute("SELECT name, value FROM settings").fetchall()
        except sqlite3.Error as error:
            raise self._damaged(error) from error
        return {name: bytes(value) for name, value in rows}

    def put(self, name: str, value: bytes) -> None:
        """Store a setting."""
        self._database.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def restore(self, store: Store) -> int:
        """Load all objects into an empty store and record its changes from now on; return the number of objects.

        Raises ArchiveError.
        """
        try:
            count = self._load(store)
        except (sqlite3.Error, ValueError, TypeError, LookupError) as error:
            raise self._damaged(error) from error
        store.journal.append(self.record)
        return count

    def _damaged(self, error: Exception) -> ArchiveError:
        return ArchiveError(
            f"the data folder {self._folder} is damaged ({error}): use another folder, or a copy of it"
        )

    def _load(self, store: Store) -> int:
        """Load all objects; return their number."""
        revision = self.get("revision")
        rows = self._database.execute(
            "SELECT api_group, resource, data FROM objects ORDER BY revision"
        )
        count = 0
        for group, resource, data in rows:
            store.restore(GroupResource(group, resource), bytes(data))
            count += 1
        if revision is not None:
            store.advance(int(revision))
        return count

    def record(self, resource: GroupResource, change: Change) -> None:
        """Write a change, and the revision with it."""
        with self._database:
            self._database.execute("BEGIN")
            self._write(resource, change)

    def _write(self, resource: GroupResource, change: Change) -> None:
        record = change.record
        key = (resource.group, resource.resource, record.namespace, record.name)
        if change.type == DELETED:
            self._database.execute(
                "DELETE FROM objects WHERE api_group = ? AND resource = ? AND namespace = ? AND name = ?",
                key,
            )
        else:
            self._database.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)",
                (*key, record.revision, record.data),
            )
        self.put("revision", str(record.revision).encode())

    def close(self) -> None:
        """Close the file."""
        self._database.close()
