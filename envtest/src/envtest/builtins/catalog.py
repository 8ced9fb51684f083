"""Access to the shipped tables: the types of the built-in kinds, and the resources that serve them.

Types come from ``data/types`` (written by ``hack/generate_builtin_schemas.py``), one gzipped file per package, read
when the first of its types is needed. Resources come from ``data/resources.json``.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import orjson

from envtest.schema.node import Schema

__all__ = ["META", "OBJECT_META", "Resource", "all_resources", "object_meta", "resolve", "schema_of", "storage_hash"]

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
OBJECT_META = f"{META}.ObjectMeta"

_ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_DATA = resources.files("envtest") / "data"


@cache
def _package(name: str) -> Mapping[str, Any]:
    file = _DATA / "types" / f"{name}.json.gz"
    if not file.is_file():
        raise KeyError(name)
    content: Mapping[str, Any] = orjson.loads(gzip.decompress(file.read_bytes()))
    return content


def resolve(name: str) -> Mapping[str, Any]:
    """Return the JSON schema of a type (``io.k8s.api.core.v1.Pod``). Raises ``KeyError`` for an unknown type."""
    package, _, short = name.rpartition(".")
    found: Mapping[str, Any] = _package(package)[short]
    return found


@cache
def schema_of(name: str) -> Schema:
    """Return the schema node of a type. All callers share one node."""
    return Schema({"$ref": f"#/components/schemas/{name}"}, resolve)


def object_meta() -> Schema:
    """Return the schema node of ``metadata``."""
    return schema_of(OBJECT_META)


class Subresource(NamedTuple):
    """The table entry of a subresource; ``group``, ``version`` and ``kind`` describe its request body."""

    name: str
    kind: str
    group: str
    version: str
    verbs: tuple[str, ...]


class Resource(NamedTuple):
    """The table entry of a built-in resource; ``type`` is the name of its type."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    type: str
    verbs: tuple[str, ...]
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    subresources: tuple[Subresource, ...]


_SUBRESOURCES = {
    "status": ("", "", "", ("get", "patch", "update")),
    "scale": ("Scale", "autoscaling", "v1", ("get", "patch", "update")),
}


def all_resources() -> Iterator[Resource]:
    """Yield every resource of the table, in the order in which discovery lists the groups."""
    for group in orjson.loads((_DATA / "resources.json").read_bytes()):
        for name, entry in group["resources"].items():
            yield _resource(group, name, entry)


def _resource(group: Mapping[str, Any], plural: str, entry: Mapping[str, Any]) -> Resource:
    kind = entry["kind"]
    return Resource(
        group=group["group"],
        version=group["version"],
        plural=plural,
        singular=kind.lower(),
        kind=kind,
        namespaced=entry.get("namespaced", True),
        type=f"{group['package']}.{kind}",
        verbs=tuple(entry.get("verbs", _ALL_VERBS)),
        short_names=tuple(entry.get("shortNames", ())),
        categories=tuple(entry.get("categories", ())),
        subresources=tuple(_subresource(name, kind, sub) for name, sub in _subresources(entry)),
    )


def _subresources(entry: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in entry.get("standard", ()):
        kind, group, version, verbs = _SUBRESOURCES[name]
        yield name, {"kind": kind, "group": group, "version": version, "verbs": verbs}
    yield from entry.get("subresources", {}).items()


def _subresource(name: str, kind: str, entry: Mapping[str, Any]) -> Subresource:
    return Subresource(
        name=name,
        kind=entry.get("kind") or kind,
        group=entry.get("group", ""),
        version=entry.get("version", ""),
        verbs=tuple(entry["verbs"]),
    )


def storage_hash(group: str, version: str, kind: str) -> str:
    """Return ``storageVersionHash`` of discovery: a short digest of the storage version."""
    name = f"{group}/{version}/{kind}" if group else f"{version}/{kind}"
    return base64.b64encode(hashlib.sha256(name.encode()).digest()[:8]).decode()
