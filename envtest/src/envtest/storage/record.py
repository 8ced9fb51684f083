"""Stored objects and the changes between their revisions."""

from __future__ import annotations

from sys import intern
from typing import Any

import orjson

from envtest.apimachinery.objects import Object

__all__ = ["ADDED", "DELETED", "MODIFIED", "Change", "Record", "encode", "record_from", "record_of"]

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"


class Record:
    """One object at one revision: its encoded bytes and the metadata needed to find and select it.

    Immutable. ``obj()`` decodes, so that every caller owns its copy. ``is_new`` is whether this process created the
    object and nothing has updated it since.

    ``written`` is what kube-apiserver has written of a custom resource, encoded, if it differs from ``data``, which has
    the defaults of the stored version and no fields that it lacks. An update that results in ``data`` then is a change.
    """

    __slots__ = (
        "data",
        "deleting",
        "is_new",
        "labels",
        "name",
        "namespace",
        "revision",
        "uid",
        "written",
    )

    def __init__(
        self,
        namespace: str,
        name: str,
        uid: str,
        revision: int,
        data: bytes,
        labels: dict[str, str] | None,
        deleting: bool,
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.uid = uid
        self.revision = revision
        self.data = data
        self.labels = labels
        self.deleting = deleting
        self.is_new = False
        self.written: bytes | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name, the order of lists."""
        return self.namespace, self.name

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` in which the object is stored, with which :func:`encode` begins."""
        head = b'{"apiVersion":"'
        return self.data[len(head) : self.data.index(b'"', len(head))].decode()

    def obj(self) -> Object:
        """Decode the object."""
        obj: Object = orjson.loads(self.data)
        return obj

    def __repr__(self) -> str:
        return f"Record({self.namespace}/{self.name}@{self.revision})"


def encode(obj: Object) -> bytes:
    """Encode an object: apiVersion and kind first, the other keys sorted, so that equal objects have equal bytes.

    Items in lists of built-in kinds have no apiVersion and kind: they are a slice of these bytes.
    """
    rest = obj.copy()
    head = orjson.dumps({"apiVersion": rest.pop("apiVersion"), "kind": rest.pop("kind")})
    return b"%s,%s" % (head[:-1], orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)[1:])


def record_of(obj: Object, revision: int) -> Record:
    """Encode ``obj``, whose ``metadata.resourceVersion`` is set to ``revision``."""
    obj["metadata"]["resourceVersion"] = str(revision)
    return _record(obj["metadata"], revision, encode(obj))


def record_from(data: bytes) -> Record:
    """Return the record of an object that was encoded earlier."""
    metadata = orjson.loads(data)["metadata"]
    return _record(metadata, int(metadata["resourceVersion"]), data)


def _record(metadata: dict[str, Any], revision: int, data: bytes) -> Record:
    labels = metadata.get("labels")
    if labels:
        labels = {intern(key): intern(value) for key, value in labels.items()}
    return Record(
        intern(metadata.get("namespace") or ""),
        metadata["name"],
        metadata.get("uid") or "",
        revision,
        data,
        labels or None,
        bool(metadata.get("deletionTimestamp")),
    )


class Change:
    """One change of an object: ``ADDED``, ``MODIFIED`` or ``DELETED``.

    ``record`` is the object after the change; for a deletion, its last content with the revision of the deletion.
    ``previous`` is the record before the change (``None`` if added).

    Watchers share what they have encoded: ``chunk`` is what those of the stored form send, ``lines`` are the lines of
    the others by a key that the encoder chooses.
    """

    __slots__ = ("chunk", "lines", "previous", "record", "revision", "type")

    def __init__(self, kind: str, record: Record, previous: Record | None) -> None:
        self.type = kind
        self.record = record
        self.previous = previous
        self.revision = record.revision
        self.chunk: bytes | None = None
        self.lines: dict[Any, bytes] | None = None

    def __repr__(self) -> str:
        return f"Change({self.type}, {self.record!r})"
