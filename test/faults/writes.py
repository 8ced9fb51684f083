"""What the operator wrote, by the audit log of the API server."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import orjson

__all__ = [
    "CREATED",
    "FLUX_JOBS",
    "AuditReader",
    "Expected",
    "Write",
    "created_twice",
    "expected_writes",
    "repeated",
    "writers",
]

_VERBS = frozenset({"create", "update", "patch", "delete"})
_BOOKKEEPING = frozenset({"events", "leases", "subjectaccessreviews", "tokenreviews"})
"""Resources of which every write is expected: Events, the heartbeat of leaders, and reviews, which store nothing."""

FLUX_JOBS: Final = ("first", "second")
"""The FluxJobs of each tenant, of which one waits for quota."""

CREATED: Final = 201
"""The status code of a write that created its object."""


class Write(msgspec.Struct, frozen=True):
    """A write that the API server accepted; ``resource`` includes the subresource, as ``rayclusters/status``."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int

    @property
    def target(self) -> str:
        """The object, and its subresource."""
        return f"{self.resource} {self.namespace}/{self.name}"

    @property
    def is_status(self) -> bool:
        """Whether the write is one of a subresource."""
        return "/" in self.resource

    @property
    def stable_name(self) -> str:
        """The name, which is the same in all namespaces: that of a pod ends in random characters.

        The FluxJobs in a namespace share a name, because either can be the one that runs after etcd was restored.
        """
        name = self.name
        if self.resource == "pods":
            name = name.rpartition("-")[0]
        first, *others = FLUX_JOBS
        for other in others:
            name = name.replace(other, first)
        return name

    @classmethod
    def of(cls, event: dict[str, Any]) -> Write:
        """Return the write of an audit event."""
        reference = event.get("objectRef") or {}
        resource = reference.get("resource", "")
        if reference.get("subresource"):
            resource = f"{resource}/{reference['subresource']}"
        return cls(
            user=event["user"]["username"],
            verb=event["verb"],
            resource=resource,
            namespace=reference.get("namespace", ""),
            name=reference.get("name", ""),
            code=(event.get("responseStatus") or {}).get("code", 0),
        )


class AuditReader:
    """Reads the writes of ``users`` that a control plane accepted, from its audit log."""

    def __init__(self, file: Path, users: Iterable[str]) -> None:
        self.file = file
        self._users = frozenset(users)
        self._offset = 0
        self._found: list[Write] = []

    def writes(self) -> list[Write]:
        """Return all accepted writes so far, oldest first, without those of bookkeeping."""
        with self.file.open("rb") as lines:
            lines.seek(self._offset)
            for line in lines:
                if not line.endswith(b"\n"):
                    break  # it is still being written
                self._offset += len(line)
                self._add(orjson.loads(line))
        return list(self._found)

    def forget(self, namespaces: Iterable[str]) -> None:
        """Ignore the writes in these namespaces up to now."""
        forgotten = frozenset(namespaces)
        self._found = [write for write in self.writes() if write.namespace not in forgotten]

    def _add(self, event: dict[str, Any]) -> None:
        if event["verb"] not in _VERBS or event["user"]["username"] not in self._users:
            return
        if "dryRun=" in event.get("requestURI", ""):
            return  # the question whether a pod would be refused
        write = Write.of(event)
        if write.code < 300 and write.resource not in _BOOKKEEPING:
            self._found.append(write)


def created_twice(writes: Sequence[Write], deleted: Iterable[str] = ()) -> list[str]:
    """Return the objects that were created more than once, except once more for each in ``deleted``."""
    counts = Counter(write.target for write in writes if write.code == CREATED)
    counts.subtract(deleted)
    return sorted(target for target, count in counts.items() if count > 1)


Expected: TypeAlias = Mapping[tuple[str, str], int]
"""How often each object is written, by resource and name."""


def expected_writes(writes: Sequence[Write], namespace: str) -> Expected:
    """Return how often each object in ``namespace`` was written; writes of a status do not count."""
    return Counter(
        (write.resource, write.stable_name)
        for write in writes
        if write.namespace == namespace and not write.is_status
    )


def repeated(
    writes: Sequence[Write], expected: Expected, deleted: Iterable[str] = ()
) -> dict[str, int]:
    """Return how many more writes there were of each object than of the object with its name in ``expected``.

    One more is expected for each object in ``deleted``, which a user deleted.
    """
    counts = Counter(write.target for write in writes if not write.is_status)
    counts.subtract(deleted)
    limits = {
        write.target: expected.get((write.resource, write.stable_name), 0) for write in writes
    }
    found = {}
    for target, count in counts.items():
        if count > limits.get(target, 0):
            found[target] = count - limits.get(target, 0)
    return found


def writers(writes: Sequence[Write]) -> list[str]:
    """Return which users wrote, in order, without repeats in a row."""
    return [user for user, _ in itertools.groupby(write.user for write in writes)]
