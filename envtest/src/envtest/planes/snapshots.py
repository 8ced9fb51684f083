"""Snapshots: the whole state of a control plane in one file, in the format of the data folder (``storage.archive``).

A file is data from elsewhere: it is checked completely before a control plane starts with it. SQLite reads it without
writing, only if it has exactly the tables of this format, and each object must be one that the API server could have
stored.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from envtest.apimachinery.clock import checked_offset
from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.file_errors import reason_of
from envtest.auth.token_keys import PrivateKey
from envtest.configuration.kubernetes_version import parse_version
from envtest.configuration.service_network import parse_service_network
from envtest.formats.certificate_authority import CertificateAuthority, KeyPair
from envtest.registry.resource import RequestContext
from envtest.server.assembly import SYSTEM, APIServer, resume
from envtest.storage.archive import FORMAT, SCHEMA

if TYPE_CHECKING:
    from envtest.apimachinery.objects import Object
    from envtest.registry.resource import ResourceInfo
    from envtest.storage import Store

__all__ = ["Snapshot", "SnapshotError", "read_snapshot", "write_snapshot"]

MAX_BYTES: Final = 1 << 30
MAX_OBJECTS: Final = 1_000_000
MAX_VALUE_BYTES: Final = 8 << 20
"""Maximum bytes of one row; kube-apiserver accepts objects of up to 3 MiB."""
MAX_REVISION: Final = 1 << 53
_MAGIC: Final = b"SQLite format 3\0"
_CRDS: Final = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")


class SnapshotError(ValueError):
    """Raised when a file cannot be restored; the message contains the file and the reason."""


class _Row(NamedTuple):
    group: str
    resource: str
    namespace: str
    name: str
    revision: int
    data: bytes


class Snapshot(NamedTuple):
    """The content of a file: the settings of the control plane, its revision, and its objects in order of revision."""

    path: Path
    settings: Mapping[str, bytes]
    revision: int
    rows: list[_Row]

    def load(self, api_server: APIServer) -> None:
        """Load the objects into an API server without objects. Raises SnapshotError."""
        core = api_server.core
        builtin = {info.storage: info for info in core.registry.stored()}
        row = None
        try:
            for row in self.rows:
                table = GroupResource(row.group, row.resource)
                _check_object(row, builtin.get(table))
                core.store.restore(table, row.data)
            row = None
            core.store.advance(self.revision)
            resume(api_server)
        except StatusError as error:
            raise SnapshotError(f"{self.path}: {_shown(row)}: {error.message}") from error
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise SnapshotError(f"{self.path}: {_shown(row)}: {error}") from error


def _shown(row: _Row | None) -> str:
    if row is None:
        return "cannot restore"
    return f"{GroupResource(row.group, row.resource)} {'/'.join(filter(None, (row.namespace, row.name)))}"[
        :300
    ]


def write_snapshot(path: Path, settings: Mapping[str, bytes], store: Store) -> None:
    """Write settings and objects to ``path``, which only its owner can read; the file is replaced atomically.

    ``store`` must not change meanwhile. Raises SnapshotError, also for an existing file that is not a snapshot.
    """
    try:
        problem = _target_problem(path)
        if problem:
            raise SnapshotError(f"cannot write the snapshot {path}: {problem}")
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".tmp")
    except OSError as error:
        raise SnapshotError(f"cannot write the snapshot {path}: {reason_of(error)}") from error
    os.close(descriptor)
    try:
        with closing(sqlite3.connect(name, isolation_level=None)) as database:
            database.executescript(f"PRAGMA journal_mode = OFF; {SCHEMA}; BEGIN")
            named = {
                **settings,
                "format": FORMAT.encode(),
                "revision": str(store.revision).encode(),
            }
            database.executemany("INSERT INTO settings VALUES (?, ?)", named.items())
            database.executemany("INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?)", _rows_of(store))
            database.execute("COMMIT")
        os.replace(name, path)  # noqa: PTH105 - both are plain names in one folder
    except (OSError, sqlite3.Error) as error:
        raise SnapshotError(f"cannot write the snapshot {path}: {reason_of(error)}") from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)  # noqa: PTH108


def _target_problem(path: Path) -> str:
    """Return why a snapshot must not be written to ``path``; an empty string if it can be. Raises OSError."""
    if not path.parent.is_dir():
        return "must be a file in a folder that exists"
    if not path.exists():
        return ""
    if not path.is_file():  # a folder, or a device, which would be replaced
        return "must be a file, or a path that does not exist"
    with path.open("rb") as existing:
        start = existing.read(len(_MAGIC))
    if start in (b"", _MAGIC):
        return ""
    return "exists and is not a snapshot, which could be replaced"


def _rows_of(store: Store) -> Iterator[_Row]:
    for group, resource in store.resources():
        for record in store.list(GroupResource(group, resource)):
            yield _Row(group, resource, record.namespace, record.name, record.revision, record.data)


def read_snapshot(path: Path) -> Snapshot:
    """Read and check a snapshot, or the closed file of a data folder. Raises SnapshotError."""
    try:
        _check_file(path)
        address = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            settings = _read_settings(path, database)
            if [row[0] for row in database.execute("PRAGMA quick_check(1)")] != ["ok"]:
                raise SnapshotError(f"{path} is damaged")
            (count,) = database.execute("SELECT count(*) FROM objects").fetchone()
            if count > MAX_OBJECTS:
                raise SnapshotError(f"{path} has {count} objects, the maximum is {MAX_OBJECTS}")
            columns = ", ".join(("api_group", *_Row._fields[1:]))
            query = f"SELECT {columns} FROM objects ORDER BY revision"  # noqa: S608 - names of fields
            rows = [_Row(*row) for row in database.execute(query)]
    except (OSError, sqlite3.Error) as error:
        raise SnapshotError(f"cannot read the snapshot {path}: {reason_of(error)}") from error
    return Snapshot(path, settings, _revision(path, settings, rows), rows)


def _check_file(path: Path) -> None:
    with open(path, "rb", opener=_open_without_waiting) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or file.read(len(_MAGIC)) != _MAGIC:
            raise SnapshotError(f"{path} is not a snapshot of envtest")
        if found.st_size > MAX_BYTES:
            raise SnapshotError(f"{path} has {found.st_size} bytes, the maximum is {MAX_BYTES}")


def _open_without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)  # a FIFO has no writer


@cache
def _tables() -> dict[str, tuple[str, str]]:
    """Return the type and the definition of each table of the format."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(SCHEMA)
        return _definitions(database)


def _definitions(database: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    found = database.execute("SELECT name, type, sql FROM sqlite_master LIMIT 10").fetchall()
    return {name: (kind, sql) for name, kind, sql in found}


def _read_settings(path: Path, database: sqlite3.Connection) -> dict[str, bytes]:
    """Return the settings of a file of this format. Raises SnapshotError for any other file."""
    tables = _definitions(database)
    if tables.get("settings") != _tables()["settings"]:
        raise SnapshotError(f"{path} is not a snapshot of envtest")
    settings = dict(database.execute("SELECT name, value FROM settings LIMIT 100").fetchall())
    if not all(
        isinstance(name, str) and isinstance(value, bytes) for name, value in settings.items()
    ):
        raise SnapshotError(f"{path} is not a snapshot of envtest")
    version = settings.get("format", b"").decode("ascii", "replace")[:20]
    if version != FORMAT:
        newer = (
            " Use the version of envtest that wrote it, or a newer one."
            if version.isdigit()
            else ""
        )
        raise SnapshotError(
            f"{path} has format {version or 'unknown'}, this version reads {FORMAT}.{newer}"
        )
    if tables != _tables():
        raise SnapshotError(f"{path} is not a snapshot of envtest")
    _check_settings(path, settings)
    return settings


def _check_settings(path: Path, settings: Mapping[str, bytes]) -> None:
    name = ""
    try:
        for name in ("ca.crt", "ca.key", "token", "token-key", "clock-offset", "revision"):
            if not settings[name].decode():
                raise ValueError("is empty")  # noqa: TRY301
        name = "ca.crt"
        _check_authority(KeyPair(settings["ca.crt"], settings["ca.key"]))
        name = "token-key"
        PrivateKey(settings["token-key"])
        name = "clock-offset"
        checked_offset(float(settings[name]))
        name = "service-network"
        if name in settings:
            parse_service_network(settings[name].decode())
        name = "kubernetes-version"
        parse_version(settings.get(name, b"").decode())
    except (KeyError, ValueError, TypeError) as error:
        reason = "is missing" if isinstance(error, KeyError) else f"is invalid: {error}"
        raise SnapshotError(f"{path}: the setting {name} {reason}") from error


def _check_authority(pair: KeyPair) -> None:
    authority = CertificateAuthority(pair)
    if not authority.matches():
        raise ValueError("the key does not belong to the certificate")


def _revision(path: Path, settings: Mapping[str, bytes], rows: list[_Row]) -> int:
    text = settings["revision"].decode("ascii", "replace")
    types = (str, str, str, str, int, bytes)
    if any(type(value) is not kind for row in rows for value, kind in zip(row, types, strict=True)):
        raise SnapshotError(f"{path} is damaged: a column has a value of another type")
    if not (text.isdigit() and len(text) < 20 and 1 <= int(text) <= MAX_REVISION):
        raise SnapshotError(f"{path} is damaged: revision {text[:20]!r}")
    if any(not 1 <= row.revision <= int(text) for row in rows):
        raise SnapshotError(f"{path} is damaged: an object is newer than revision {text}")
    return int(text)


def _check_object(row: _Row, info: ResourceInfo | None) -> None:
    """Check one object; ``info`` is its built-in resource. Raises ValueError, TypeError, LookupError, StatusError."""
    obj = orjson.loads(row.data)
    metadata = obj["metadata"]
    key = (metadata.get("namespace") or "", metadata["name"], metadata["resourceVersion"])
    if key != (row.namespace, row.name, str(row.revision)):
        raise ValueError("its metadata does not match its key")
    for name in ("apiVersion", "kind"):
        if not (isinstance(obj[name], str) and obj[name]):
            raise ValueError(f"{name} is not a string")
    if info is None:
        _check_metadata(metadata)
        return
    if (obj["apiVersion"], obj["kind"]) != (info.storage_version, info.storage_kind or info.kind):
        raise ValueError(f"is {obj['kind']} of {obj['apiVersion']}")
    if bool(row.namespace) != info.namespaced:
        problem = "is namespaced" if row.namespace else "has no namespace"
        raise ValueError(problem)
    _decode(obj, info, row)


def _decode(obj: Object, info: ResourceInfo, row: _Row) -> None:
    """Check the types of all fields, and the schema of a CRD, which is compiled."""
    ctx = RequestContext(
        SYSTEM,
        "update",
        info,
        row.namespace,
        row.name,
        operation="UPDATE",
        field_validation="Ignore",
    )
    info.strategy.decode(obj, ctx)
    if info.storage == _CRDS:
        errors = info.strategy.validate(obj, None, ctx)
        if errors:
            raise ValueError(str(errors[0]))


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    """Check the types of the metadata of a custom resource."""
    if not all(
        isinstance(metadata.get(name), str) for name in ("name", "uid", "creationTimestamp")
    ):
        raise ValueError("metadata is incomplete")
    for name in ("labels", "annotations"):
        pairs = metadata.get(name) or {}
        if not isinstance(pairs, dict) or not all(
            isinstance(value, str) for value in pairs.values()
        ):
            raise ValueError(f"metadata.{name} is not a map of strings")
    if not all(isinstance(each, str) for each in _list(metadata, "finalizers")):
        raise ValueError("metadata.finalizers is not a list of strings")
    for owner in _list(metadata, "ownerReferences"):
        if not all(isinstance(owner[name], str) for name in ("apiVersion", "kind", "name", "uid")):
            raise ValueError("metadata.ownerReferences has an invalid reference")


def _list(metadata: Mapping[str, Any], name: str) -> list[Any]:
    found = metadata.get(name) or []
    if not isinstance(found, list):
        raise TypeError(f"metadata.{name} is not a list")
    return found
