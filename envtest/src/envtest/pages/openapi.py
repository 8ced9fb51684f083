"""``/openapi/v3`` and ``/openapi/v2``: the types and paths of the served resources.

The documents contain the parts that kubectl needs: types and paths for ``explain``, merge keys for ``apply`` and
``diff``, and for ``create --validate`` whether the server itself validates unknown fields. Types come from the shipped
tables and from CRDs; of the built-in fields, only the metadata of objects has descriptions.

A document is built on the first request for it and kept until the resources that it describes change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from envtest.builtins.catalog import (
    META,
    OBJECT_META,
    all_resources,
    plain_name,
    resolve,
    type_name,
)
from envtest.configuration.kubernetes_version import LATEST, KubernetesVersion
from envtest.endpoints.request import PageResponse
from envtest.pages.openapi_custom import (
    CUSTOM_INFO,
    CUSTOM_TYPES,
    custom_definitions,
    custom_operations,
    custom_operations_v2,
    custom_schemas,
    delete_options_kinds,
)
from envtest.pages.openapi_v2 import swagger, swagger_protobuf
from envtest.registry.registry import Registry
from envtest.registry.resource import ResourceInfo

__all__ = ["OpenAPI"]

_V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_V2_PROTOBUF_OLD: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_PREFIX: Final = "#/components/schemas/"
_WIRE: Final = "x-envtest-wire"
_ALWAYS: Final = tuple(
    f"{META}.{name}"
    for name in ("DeleteOptions", "ListMeta", "Status", "WatchEvent", "APIResourceList", "Patch")
)
_QUERY: Final = {
    "get": ("pretty",),
    "post": ("dryRun", "fieldManager", "fieldValidation", "pretty"),
    "put": ("dryRun", "fieldManager", "fieldValidation", "pretty"),
    "patch": ("dryRun", "fieldManager", "fieldValidation", "force", "pretty"),
    "delete": ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy", "pretty"),
}
_METHODS: Final = {
    "get": "get",
    "list": "get",
    "create": "post",
    "update": "put",
    "patch": "patch",
    "delete": "delete",
}
_PATCH_TYPES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_METADATA: Final = {
    "annotations": "Annotations are values for tools; no selector matches them.",
    "creationTimestamp": "CreationTimestamp is a timestamp that the server sets when the object is created.",
    "deletionTimestamp": "DeletionTimestamp is the time after which the object is deleted, once it has no finalizers.",
    "finalizers": "Finalizers prevent the removal of the object until each of them was removed.",
    "generateName": "GenerateName is a prefix to which the server adds a random suffix if there is no name.",
    "generation": "Generation is a number that increases when the desired state changes.",
    "labels": "Labels are values that selectors match.",
    "managedFields": "ManagedFields are the fields that each client has set.",
    "name": "Name is unique among the objects of a type in a namespace.",
    "namespace": "Namespace is the space in which the name is unique.",
    "ownerReferences": "OwnerReferences name the objects with which this one is deleted.",
    "resourceVersion": "ResourceVersion changes with each write of the object.",
    "uid": "UID identifies the object, also after another one gets its name.",
}


class OpenAPI:
    """Serves requests below ``/openapi``."""

    def __init__(self, registry: Registry, version: KubernetesVersion = LATEST) -> None:
        self._registry = registry
        self._release = version.release
        self._info = {"title": "Kubernetes", "version": version.release}
        self._types = {
            (each.group, each.version, each.kind): each.type for each in all_resources(version)
        }
        self._generation = -1
        self._hashes: dict[str, str] = {}
        self._documents: dict[tuple[str, str], bytes] = {}

    def respond(
        self, path: str, accept: str = "", if_none_match: str = "", digest: str = ""
    ) -> PageResponse | None:
        """Return the response to a GET, or ``None`` if the path is not below ``/openapi``.

        ``digest`` is the query parameter ``hash``: a response to the current hash is immutable.
        """
        path = path.rstrip("/")
        if path == "/openapi/v2":
            return self._swagger(accept, if_none_match)
        if path != "/openapi/v3" and not path.startswith("/openapi/v3/"):
            return None
        if accept and not any(word in accept for word in ("json", "*/*", "application/*")):
            return PageResponse(406, {"Content-Type": "application/json"}, b"")
        self._refresh()
        if path == "/openapi/v3":
            return _document(orjson.dumps({"paths": self._index()}), if_none_match)
        name = path.removeprefix("/openapi/v3/")
        known = self._hashes.get(name)
        if known is None:
            return PageResponse(404, {"Content-Type": ""}, b"")
        return self._group_version(name, known, if_none_match, digest)

    def _refresh(self) -> None:
        if self._generation != self._registry.generation:
            self._generation = self._registry.generation
            self._hashes = {
                name: self._hash(name, infos) for name, infos in self._grouped().items()
            }

    def _grouped(self) -> dict[str, list[ResourceInfo]]:
        grouped: dict[str, list[ResourceInfo]] = {}
        for info in self._registry:
            name = f"apis/{info.group}/{info.version}" if info.group else f"api/{info.version}"
            grouped.setdefault(name, []).append(info)
        return grouped

    @staticmethod
    def _hash(name: str, infos: Iterable[ResourceInfo]) -> str:
        digest = hashlib.sha512(name.encode())
        for info in infos:
            digest.update(f"{info.plural} {info.kind} {sorted(info.subresources)}".encode())
            if info.is_crd and info.schema is not None:
                digest.update(orjson.dumps(info.schema.raw, option=orjson.OPT_SORT_KEYS))
        return digest.hexdigest().upper()

    def _index(self) -> dict[str, Any]:
        return {
            name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
            for name, digest in sorted(self._hashes.items())
        }

    def _group_version(
        self, name: str, known: str, if_none_match: str, digest: str
    ) -> PageResponse:
        headers = {"Content-Type": "application/json", "Etag": f'"{known}"', "Vary": "Accept"}
        if digest == known:
            headers |= {
                "Cache-Control": "public, immutable",
                "Expires": "Thu, 31 Dec 2099 23:59:59 GMT",
            }
        elif digest:
            location = f"/openapi/v3/{name}?hash={known}"
            return PageResponse(
                301, {"Location": location, "Content-Type": "application/json"}, b""
            )
        if known in if_none_match:
            return PageResponse(304, headers, b"")
        body = self._documents.get((name, known))
        if body is None:
            self._documents = {key: kept for key, kept in self._documents.items() if key[0] != name}
            body = orjson.dumps(self._build(self._grouped()[name]))
            self._documents[name, known] = body
        return PageResponse(200, headers, body)

    def _build(self, infos: list[ResourceInfo]) -> dict[str, Any]:
        schemas: dict[str, Any] = {}
        paths: dict[str, Any] = {}
        for info in infos:
            if info.is_crd:
                schemas |= self._custom_schemas(info)
                paths |= custom_operations(info)
            else:
                schemas |= self._schemas(info)
                paths |= dict(_paths(info))
        about = CUSTOM_INFO
        if not all(info.is_crd for info in infos):
            about = self._info
            for name in _ALWAYS:
                _add_type(schemas, name, self._release)
        ordered = dict(sorted(schemas.items()))
        return {
            "openapi": "3.0.0",
            "info": about,
            "paths": paths,
            "components": {"schemas": ordered},
        }

    def _schemas(self, info: ResourceInfo) -> dict[str, Any]:
        """Return the types of a built-in resource: itself, its list, and all types that they reference."""
        schemas: dict[str, Any] = {}
        name = self._types.get((info.group, info.version, info.kind))
        if name is not None:
            _add_type(schemas, name, self._release)
            with suppress(KeyError):
                _add_type(schemas, f"{name}List", self._release)
        return schemas | self._subresource_schemas(info)

    def _subresource_schemas(self, info: ResourceInfo) -> dict[str, Any]:
        schemas: dict[str, Any] = {}
        for sub in info.subresources.values():
            name = self._types.get((sub.group, sub.version, sub.kind))
            if name is not None:
                _add_type(schemas, name, self._release)
        return schemas

    def _referenced_types(self, info: ResourceInfo) -> dict[str, Any]:
        """Return the types of Kubernetes to which those of a custom resource refer."""
        schemas = self._subresource_schemas(info)
        for name in CUSTOM_TYPES:
            _add_type(schemas, name, self._release)
        return schemas

    def _custom_schemas(self, info: ResourceInfo) -> dict[str, Any]:
        """Return the types of a custom resource: itself, its list, and all types that they reference."""
        schemas = {**custom_schemas(info), **self._referenced_types(info)}
        name = f"{META}.DeleteOptions"
        schemas[name] = {**schemas[name], "x-kubernetes-group-version-kind": delete_options_kinds()}
        return schemas

    def _swagger(self, accept: str, if_none_match: str) -> PageResponse:
        self._refresh()
        digest = hashlib.sha512("".join(sorted(self._hashes.values())).encode()).hexdigest().upper()
        protobuf = _V2_PROTOBUF in accept or _V2_PROTOBUF_OLD in accept
        kind = "application/octet-stream" if protobuf else "application/json"
        headers = {"Content-Type": kind, "Etag": f'"{digest}"', "Vary": "Accept"}
        if digest in if_none_match:
            return PageResponse(304, headers, b"")
        key = f"v2 {kind}", digest
        body = self._documents.get(key)
        if body is None:
            document = self._v2_document()
            body = swagger_protobuf(document) if protobuf else orjson.dumps(document)
            self._documents[key] = body
        return PageResponse(200, headers, body)

    def _v2_document(self) -> dict[str, Any]:
        schemas: dict[str, Any] = {}
        paths: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        operations: dict[str, Any] = {}
        for info in self._registry:
            if info.is_crd:
                schemas |= self._referenced_types(info)
                definitions |= custom_definitions(info)
                operations |= custom_operations_v2(info)
            else:
                schemas |= self._schemas(info)
                paths |= dict(_paths(info))
        document = swagger(schemas, paths, self._info)
        document["definitions"] = dict(sorted({**document["definitions"], **definitions}.items()))
        document["paths"] = dict(sorted({**document["paths"], **operations}.items()))
        return document


def _document(body: bytes, if_none_match: str) -> PageResponse:
    digest = hashlib.sha512(body).hexdigest().upper()
    headers = {"Content-Type": "application/json", "Etag": f'"{digest}"', "Vary": "Accept"}
    if digest in if_none_match:
        return PageResponse(304, headers, b"")
    return PageResponse(200, headers, body)


def _add_type(schemas: dict[str, Any], name: str, release: str) -> None:
    """Add a built-in type of a release and all types that it references. Raises KeyError for an unknown type."""
    name = plain_name(name)
    if name in schemas:
        return
    raw = _published(resolve(type_name(name, release)))
    if name == plain_name(OBJECT_META):
        described = {
            field: {**raw["properties"][field], "description": text}
            for field, text in _METADATA.items()
        }
        raw = {**raw, "properties": {**raw["properties"], **described}}
    schemas[name] = raw
    for other in _references(raw):
        _add_type(schemas, other, release)


def _published(raw: Any) -> Any:
    """Return a schema without the extensions and the names of types that only this package uses."""
    if isinstance(raw, Mapping):
        return {
            word: _PREFIX + plain_name(value.removeprefix(_PREFIX))
            if _is_reference(word, value)
            else _published(value)
            for word, value in raw.items()
            if word != _WIRE
        }
    if isinstance(raw, (list, tuple)):
        return [_published(item) for item in raw]
    return raw


def _is_reference(word: str, value: Any) -> bool:
    return word == "$ref" and isinstance(value, str)  # JSONSchemaProps has a field of this name


def _references(raw: Any) -> Iterator[str]:
    if isinstance(raw, Mapping):
        target = raw.get("$ref")
        if isinstance(target, str):
            yield target.removeprefix(_PREFIX)
        for value in raw.values():
            yield from _references(value)
    elif isinstance(raw, list):
        for item in raw:
            yield from _references(item)


def _paths(info: ResourceInfo) -> Iterator[tuple[str, Any]]:
    root = f"/apis/{info.group}/{info.version}" if info.group else f"/api/{info.version}"
    scope = "/namespaces/{namespace}" if info.namespaced else ""
    kind = {"group": info.group, "version": info.version, "kind": info.kind}
    collection = [verb for verb in ("list", "create") if verb in info.verbs]
    if collection:
        yield (
            f"{root}{scope}/{info.plural}",
            _operations(collection, kind),
        )
    if info.namespaced and "list" in info.verbs:
        yield f"{root}/{info.plural}", _operations(["list"], kind)
    single = [verb for verb in ("get", "update", "patch", "delete") if verb in info.verbs]
    if single:
        yield (
            f"{root}{scope}/{info.plural}/{{name}}",
            _operations(single, kind),
        )
    for name, sub in info.subresources.items():
        verbs = [verb for verb in ("get", "create", "update", "patch") if verb in sub.verbs]
        of_sub = {
            "group": sub.group or (info.group if not sub.kind else ""),
            "version": sub.version or info.version,
            "kind": sub.kind or info.kind,
        }
        yield (
            f"{root}{scope}/{info.plural}/{{name}}/{name}",
            _operations(verbs, of_sub),
        )


def _operations(verbs: Iterable[str], kind: Mapping[str, str]) -> dict[str, Any]:
    """Return the operations of a path; kubectl chooses the patch type from them."""
    operations: dict[str, Any] = {}
    for verb in verbs:
        method = _METHODS[verb]
        operation: dict[str, Any] = {
            "x-kubernetes-action": verb
            if verb not in ("create", "update")
            else {"create": "post", "update": "put"}[verb],
            "x-kubernetes-group-version-kind": dict(kind),
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
                for name in _QUERY[method]
            ],
            "responses": {"200": {"description": "OK"}},
        }
        if method == "patch":
            patch = {"schema": {"$ref": f"{_PREFIX}{META}.Patch"}}
            operation["requestBody"] = {"content": dict.fromkeys(_PATCH_TYPES, patch)}
        operations[method] = operation
    return operations
