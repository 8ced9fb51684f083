"""Access to the shipped tables: the types of the built-in kinds, and the resources that serve them.

Types come from ``data/types`` (written by ``hack/generate_builtin_schemas.py``), one gzipped file per package, read
when the first of its types is needed. Resources come from ``data/resources.json``.

Both describe the newest Kubernetes version. A type that is different in an older version, or contains such a type, has
a name of its own there: ``1.34:io.k8s.api.core.v1.Pod``. All other types are shared. The differences come from
``data/versions`` (written by ``hack/generate_version_differences.py``).
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

from envtest.builtins import review_types
from envtest.configuration.kubernetes_version import LATEST, KubernetesVersion
from envtest.schema.schema_node import Schema

__all__ = [
    "META",
    "OBJECT_META",
    "Resource",
    "all_resources",
    "object_meta",
    "plain_name",
    "resolve",
    "resource_of_kind",
    "schema_of",
    "storage_hash",
    "type_name",
]

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
OBJECT_META = f"{META}.ObjectMeta"

_ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_DATA = resources.files("envtest") / "data"
_PREFIX = "#/components/schemas/"


@cache
def _package(name: str) -> Mapping[str, Any]:
    if name in review_types.PACKAGES:
        return review_types.PACKAGES[name]
    file = _DATA / "types" / f"{name}.json.gz"
    if not file.is_file():
        raise KeyError(name)
    content: Mapping[str, Any] = orjson.loads(gzip.decompress(file.read_bytes()))
    return content


def resolve(name: str) -> Mapping[str, Any]:
    """Return the JSON schema of a type (``io.k8s.api.core.v1.Pod``). Raises ``KeyError`` for an unknown type."""
    if ":" in name:
        return _different(name)
    package, _, short = name.rpartition(".")
    found: Mapping[str, Any] = _package(package)[short]
    return found


@cache
def _differences(release: str) -> Mapping[str, Any]:
    """Return what is different in a release: see ``hack/generate_version_differences.py``."""
    content: dict[str, Any] = orjson.loads((_DATA / "versions" / f"{release}.json").read_bytes())
    content["changed"] = frozenset(content["changed"]) | content["types"].keys()
    return content


@cache
def _different(name: str) -> Mapping[str, Any]:
    """Return the JSON schema of a type in the release that its name contains."""
    release, _, plain = name.partition(":")
    differences = _differences(release)
    raw = differences["types"].get(plain) or resolve(plain)
    absent = differences["absent"].get(plain, ())
    disabled = differences["disabled"].get(plain, ())
    fields = {**raw.get("properties", {}), **differences["added"].get(plain, {})}
    properties = {
        field: {**_renamed(schema, release), "x-envtest-wire": "never"}
        if field in disabled
        else _renamed(schema, release)
        for field, schema in sorted(fields.items())
        if field not in absent
    }
    return {**raw, "properties": properties}


def _renamed(raw: Any, release: str) -> Any:
    """Return a schema that references the types of a release."""
    if isinstance(raw, dict):
        target = raw.get("$ref")
        renamed = {word: _renamed(value, release) for word, value in raw.items()}
        if isinstance(target, str):  # JSONSchemaProps has a field of this name
            renamed["$ref"] = _PREFIX + type_name(target.removeprefix(_PREFIX), release)
        return renamed
    return [_renamed(item, release) for item in raw] if isinstance(raw, list) else raw


def type_name(name: str, release: str) -> str:
    """Return the name of a type in a release, which is ``name`` unless the type is different there."""
    return (
        f"{release}:{name}"
        if release != LATEST.release and name in _differences(release)["changed"]
        else name
    )


def plain_name(name: str) -> str:
    """Return the name of a type as Kubernetes has it, without a release."""
    return name.partition(":")[2] or name


@cache
def schema_of(name: str) -> Schema:
    """Return the schema node of a type. All callers share one node."""
    return Schema({"$ref": _PREFIX + name}, resolve)


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


def all_resources(version: KubernetesVersion = LATEST) -> Iterator[Resource]:
    """Yield every resource that a version serves, in the order in which discovery lists the groups."""
    unserved = (
        frozenset() if version.is_latest else frozenset(_differences(version.release)["resources"])
    )
    for group in orjson.loads((_DATA / "resources.json").read_bytes()):
        for name, entry in group["resources"].items():
            if f"{group['group']}/{group['version']}/{name}" not in unserved:
                found = _resource(group, name, entry)
                yield (
                    found
                    if version.is_latest
                    else found._replace(type=type_name(found.type, version.release))
                )


def resource_of_kind(api_version: str, kind: str) -> Resource | None:
    """Return the resource of a kind, or ``None``."""
    group, _, version = api_version.rpartition("/")
    wanted = (group, version, kind)
    return next(
        (each for each in all_resources() if (each.group, each.version, each.kind) == wanted), None
    )


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


_STORED_VERSIONS = {
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): "v1beta1",
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): "v1beta1",
    ("apiextensions.k8s.io", "CustomResourceDefinition"): "v1beta1",
}
"""The versions in which kube-apiserver stores kinds that are served in v1."""


def storage_hash(group: str, version: str, kind: str) -> str:
    """Return ``storageVersionHash`` of discovery: a short digest of the storage version."""
    version = _STORED_VERSIONS.get((group, kind), version)
    name = f"{group}/{version}/{kind}"
    return base64.b64encode(hashlib.sha256(name.encode()).digest()[:8]).decode()
