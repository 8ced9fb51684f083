"""Custom resources in the OpenAPI documents: their types and operations, in the forms of v3 and v2.

The rules are those of apiextensions' OpenAPI controller. Descriptions of what Kubernetes defines are own words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from envtest.builtins.catalog import META, OBJECT_META
from envtest.pages.openapi_parameters import (
    CREATE,
    DELETE,
    GET,
    LIST,
    PATCH,
    shared_parameters,
    v2_parameter,
    v3_parameter,
)
from envtest.registry.resource import ResourceInfo

__all__ = [
    "CUSTOM_INFO",
    "CUSTOM_TYPES",
    "V2_PARAMETERS",
    "custom_definitions",
    "custom_operations",
    "custom_operations_v2",
    "custom_schemas",
    "custom_type_name",
    "delete_options_kinds",
]

CUSTOM_INFO: Final = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
"""The title and version of the v3 document of a group that only has custom resources."""
DELETE_OPTIONS_VERSIONS: Final = {
    "": ("v1",),
    "admissionregistration.k8s.io": ("v1", "v1alpha1", "v1beta1"),
    "apps": ("v1", "v1beta1", "v1beta2"),
    "authentication.k8s.io": ("v1", "v1alpha1", "v1beta1"),
    "authorization.k8s.io": ("v1", "v1beta1"),
    "autoscaling": ("v1", "v2"),
    "batch": ("v1", "v1beta1"),
    "certificates.k8s.io": ("v1", "v1alpha1", "v1beta1"),
    "coordination.k8s.io": ("v1", "v1alpha2", "v1beta1"),
    "discovery.k8s.io": ("v1", "v1beta1"),
    "events.k8s.io": ("v1", "v1beta1"),
    "extensions": ("v1beta1",),
    "flowcontrol.apiserver.k8s.io": ("v1", "v1beta1", "v1beta2", "v1beta3"),
    "internal.apiserver.k8s.io": ("v1alpha1",),
    "networking.k8s.io": ("v1", "v1beta1"),
    "node.k8s.io": ("v1", "v1alpha1", "v1beta1"),
    "policy": ("v1", "v1beta1"),
    "rbac.authorization.k8s.io": ("v1", "v1alpha1", "v1beta1"),
    "resource.k8s.io": ("v1", "v1alpha3", "v1beta1", "v1beta2"),
    "scheduling.k8s.io": ("v1", "v1alpha2", "v1beta1"),
    "storage.k8s.io": ("v1", "v1alpha1", "v1beta1"),
    "storagemigration.k8s.io": ("v1beta1",),
}
"""The group versions of DeleteOptions that the document of a custom resource names: those of Kubernetes' client."""
CUSTOM_TYPES: Final = (
    OBJECT_META,
    f"{META}.ListMeta",
    f"{META}.DeleteOptions",
    f"{META}.Patch",
    f"{META}.Status",
)
"""The types of Kubernetes to which the types and operations of custom resources refer."""

_V3: Final = "#/components/schemas/"
_V2: Final = "#/definitions/"
_SCALE: Final = "io.k8s.api.autoscaling.v1.Scale"
_STATUS: Final = f"{META}.Status"
_KIND: Final = "x-kubernetes-group-version-kind"
_SELECTABLE: Final = "x-kubernetes-selectable-fields"
_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
_MEDIA_TYPES: Final = ("application/json", "application/yaml")
_PATCH_TYPES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
_TYPE_META: Final = {
    "apiVersion": {
        "type": "string",
        "description": "APIVersion defines the group and version of the object's schema.",
    },
    "kind": {
        "type": "string",
        "description": "Kind is the name of the object's type, in CamelCase.",
    },
}
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_RESPONSES: Final = {200: "OK", 201: "Created", 202: "Accepted"}
_BODIES: Final = {
    f"{META}.DeleteOptions": "body-2Y1dVQaQ",
    f"{META}.Patch": "body-78PwaGsr",
}
"""The names of the bodies that all operations of a v2 document share."""

V2_PARAMETERS: Final = {
    **shared_parameters(),
    "body-2Y1dVQaQ": {
        "name": "body",
        "in": "body",
        "schema": {"$ref": f"{_V2}{META}.DeleteOptions"},
    },
    "body-78PwaGsr": {
        "name": "body",
        "in": "body",
        "required": True,
        "schema": {"$ref": f"{_V2}{META}.Patch"},
    },
}
"""The parameters to which the operations of a v2 document refer."""

Change = Callable[[Mapping[str, Any]], dict[str, Any]]


def custom_type_name(info: ResourceInfo, kind: str) -> str:
    """Return the name of a custom type: ``io.ray.v1.RayCluster``."""
    return ".".join([*reversed(info.group.split(".")), info.version, kind])


def delete_options_kinds() -> list[dict[str, str]]:
    """Return the group versions of DeleteOptions in the document of a custom resource."""
    return [
        {"group": group, "kind": "DeleteOptions", "version": version}
        for group, versions in DELETE_OPTIONS_VERSIONS.items()
        for version in versions
    ]


def custom_schemas(info: ResourceInfo) -> dict[str, Any]:
    """Return the v3 schemas of a custom resource and of its list, by their names."""
    metadata = {
        "allOf": [{"$ref": f"{_V3}{OBJECT_META}"}],
        "description": "Standard object's metadata.",
    }

    def embed(raw: Mapping[str, Any]) -> dict[str, Any]:
        return _with_embedded(_with_children(raw, embed), metadata)

    raw = _own_schema(info)
    published: dict[str, Any] = {"type": "object"}
    if raw is not None:
        published = embed(_unfolded(raw))
        published["properties"] = {
            **published.get("properties", {}),
            **_TYPE_META,
            "metadata": metadata,
        }
    list_metadata = {"allOf": [{"$ref": f"{_V3}{META}.ListMeta"}]}
    name = custom_type_name(info, info.kind)
    return {
        name: {**published, **_extensions(info, info.kind)},
        custom_type_name(info, info.list_kind): _list_schema(info, f"{_V3}{name}", list_metadata),
    }


def custom_definitions(info: ResourceInfo) -> dict[str, Any]:
    """Return the v2 schemas of a custom resource and of its list, by their names.

    The root of a resource with unknown fields has no fields: kubectl would reject the unknown ones.
    """
    metadata = {"$ref": f"{_V2}{OBJECT_META}", "description": "Standard object's metadata."}

    def embed(raw: Mapping[str, Any]) -> dict[str, Any]:
        changed = _with_children(raw, embed)
        return changed if changed.get(_PRESERVES) else _with_embedded(changed, metadata)

    raw = _own_schema(info)
    published: dict[str, Any] = {"type": "object"}
    if raw is not None and not raw.get(_PRESERVES):
        published = embed(_reduced(raw))
        published["properties"] = {
            **published.get("properties", {}),
            **_TYPE_META,
            "metadata": metadata,
        }
    name = custom_type_name(info, info.kind)
    list_metadata = {"$ref": f"{_V2}{META}.ListMeta"}
    return {
        name: {**published, **_extensions(info, info.kind)},
        custom_type_name(info, info.list_kind): _list_schema(info, f"{_V2}{name}", list_metadata),
    }


def _own_schema(info: ResourceInfo) -> Mapping[str, Any] | None:
    """Return the schema of the CRD without the fields that all objects have; ``None`` if it has none."""
    if info.schema is None:
        return None
    properties = info.schema.raw.get("properties") or {}
    own = {name: inner for name, inner in properties.items() if name not in _TYPE_META}
    own.pop("metadata", None)
    return {**info.schema.raw, "properties": own}


def _extensions(info: ResourceInfo, kind: str) -> dict[str, Any]:
    extensions: dict[str, Any] = {
        _KIND: [{"group": info.group, "version": info.version, "kind": kind}]
    }
    if info.selectable_fields:
        extensions[_SELECTABLE] = [
            {"fieldPath": path.removeprefix(".")} for path in info.selectable_fields
        ]
    return extensions


def _list_schema(info: ResourceInfo, item: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "description": f"{info.list_kind} is a list of {info.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            **_TYPE_META,
            "items": {
                "description": f"List of {info.plural}.",
                "type": "array",
                "items": {"$ref": item},
            },
            "metadata": {**metadata, "description": "Standard list metadata."},
        },
        **_extensions(info, info.list_kind),
    }


def _with_children(raw: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """Return a schema whose fields, items and values are changed."""
    out = dict(raw)
    if "properties" in raw:
        out["properties"] = {name: change(inner) for name, inner in raw["properties"].items()}
    for word in ("items", "additionalProperties"):
        if isinstance(raw.get(word), Mapping):
            out[word] = change(raw[word])
    return out


def _unfolded(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Spell out that a value is an integer or a string, unless the schema says so itself."""
    out = _with_children(raw, _unfolded)
    if not raw.get("x-kubernetes-int-or-string"):
        return out
    all_of = raw.get("allOf") or []
    is_first = bool(all_of) and all_of[0].get("anyOf") == _INT_OR_STRING
    if raw.get("anyOf") == _INT_OR_STRING or is_first:
        return out
    if raw.get("anyOf"):
        out["allOf"] = [{"anyOf": _INT_OR_STRING}, *all_of]
    else:
        out["anyOf"] = _INT_OR_STRING
    return out


def _with_embedded(raw: dict[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Add the fields that all objects have to the schema of an embedded object."""
    if not raw.get("x-kubernetes-embedded-resource"):
        return raw
    required = list(raw.get("required") or ())
    required += [name for name in ("kind", "apiVersion") if name not in required]
    properties = {**(raw.get("properties") or {}), **_TYPE_META, "metadata": metadata}
    return {**raw, "properties": properties, "required": required}


def _reduced(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without what v2 does not have: alternatives, null, defaults, untyped fields and items."""
    dropped = {"allOf", "anyOf", "oneOf", "not", "nullable", "default"}
    if raw.get("nullable"):
        dropped |= {"type", "items", "properties"}
    if raw.get(_PRESERVES):
        dropped |= {"items", "properties"}
    if raw.get("type") == "array" and ("items" in dropped or "items" not in raw):
        dropped.add("type")
    if raw.get(_PRESERVES) and raw.get("type") == "object":
        dropped.add("type")
    out = {word: value for word, value in raw.items() if word not in dropped}
    if "required" in out:
        out["required"] = _required(out)
        if not out["required"]:
            del out["required"]
    return _with_children(out, _reduced)


def _required(raw: Mapping[str, Any]) -> list[str]:
    """Return the required fields that cannot be null."""
    values = raw.get("additionalProperties")
    if isinstance(values, Mapping) and values.get("nullable"):
        return []
    fields = raw.get("properties") or {}
    return [name for name in raw["required"] if not (fields.get(name) or {}).get("nullable")]


class _Operation(Struct, frozen=True):
    """A request for a custom resource.

    ``verb`` begins its identifier, ``action`` is the verb of the API; ``parameters`` are those of its query, ``body``
    and ``result`` the names of types, ``codes`` its successful responses.
    """

    method: str
    verb: str
    action: str
    parameters: tuple[str, ...]
    body: str
    result: str
    codes: tuple[int, ...] = (200,)
    suffix: str = ""
    body_required: bool = True


class _Path(Struct, frozen=True):
    """A path with its operations; ``parameters`` are those of all of them, in the path and the query."""

    path: str
    parameters: tuple[str, ...]
    operations: tuple[_Operation, ...]
    subresource: str = ""


def _paths(info: ResourceInfo) -> list[_Path]:
    root = f"/apis/{info.group}/{info.version}"
    scope = ""
    in_path: tuple[str, ...] = ()
    if info.namespaced:
        scope = "/namespaces/{namespace}"
        in_path = ("namespace",)
    kind = custom_type_name(info, info.kind)
    listed = custom_type_name(info, info.list_kind)
    collection = f"{root}{scope}/{info.plural}"
    paths = [
        _Path(
            collection,
            (*in_path, "pretty"),
            (
                _Operation("get", "list", "list", LIST, "", listed),
                _Operation("post", "create", "post", CREATE, kind, kind, (200, 201, 202)),
                _Operation("delete", "deletecollection", "deletecollection", LIST, "", _STATUS),
            ),
        ),
        _Path(
            f"{collection}/{{name}}",
            ("name", *in_path, "pretty"),
            (
                *_object_operations(kind),
                _Operation(
                    "delete",
                    "delete",
                    "delete",
                    DELETE,
                    f"{META}.DeleteOptions",
                    _STATUS,
                    (200, 202),
                    body_required=False,
                ),
            ),
        ),
    ]
    for name in info.subresources:
        body = kind
        if name == "scale":
            body = _SCALE
        operations = _object_operations(body)
        path = f"{collection}/{{name}}/{name}"
        paths.append(_Path(path, ("name", *in_path, "pretty"), operations, name))
    if info.namespaced:
        everywhere = _Operation("get", "list", "list", (), "", listed, suffix="ForAllNamespaces")
        parameters = tuple(sorted((*LIST, "pretty")))
        paths.append(_Path(f"{root}/{info.plural}", parameters, (everywhere,)))
    return paths


def _object_operations(kind: str) -> tuple[_Operation, ...]:
    """Return the operations of an object, or of a subresource, whose body has the type ``kind``."""
    return (
        _Operation("get", "read", "get", GET, "", kind),
        _Operation("put", "replace", "put", CREATE, kind, kind, (200, 201)),
        _Operation("patch", "patch", "patch", PATCH, f"{META}.Patch", kind),
    )


def _described(info: ResourceInfo, path: _Path, operation: _Operation) -> dict[str, Any]:
    """Return the parts of an operation that v3 and v2 have in common."""
    group = info.group.removesuffix(".k8s.io")
    return {
        "tags": [f"{_identifier(group, capital=False)}_{info.version}"],
        "description": _description(info, path, operation),
        "operationId": _operation_id(info, path, operation),
        "x-kubernetes-action": operation.action,
        _KIND: {"group": info.group, "version": info.version, "kind": info.kind},
    }


def _operation_id(info: ResourceInfo, path: _Path, operation: _Operation) -> str:
    group = _identifier(info.group.removesuffix(".k8s.io"), capital=True)
    version = _identifier(info.version, capital=True)
    verb = operation.verb
    collection = ""
    if verb == "deletecollection":
        verb = "delete"
        collection = "Collection"
    scope = ""
    if info.namespaced and not operation.suffix:
        scope = "Namespaced"
    return (
        f"{verb}{group}{version}{collection}{scope}{info.kind}"
        f"{path.subresource.title()}{operation.suffix}"
    )


def _identifier(text: str, *, capital: bool) -> str:
    """Return ``text`` in camel case, with a capital first letter or without."""
    out: list[str] = []
    for position, character in enumerate(text):
        is_part = character.isalpha() or character == "_" or (position and character.isdigit())
        if not is_part:
            capital = True
        elif capital:
            out.append(character.upper())
            capital = False
        else:
            out.append(character)
    return "".join(out)


def _description(info: ResourceInfo, path: _Path, operation: _Operation) -> str:
    kind = info.kind
    verb = operation.verb
    sub = ""
    if path.subresource:
        sub = f" {path.subresource} of"
    if verb == "list":
        return f"list objects of kind {kind}"
    if verb == "deletecollection":
        return f"delete collection of {kind}"
    if verb == "patch":
        return f"partially update{sub} the specified {kind}"
    if verb in ("read", "replace"):
        return f"{verb}{sub} the specified {kind}"
    return f"{verb}{_article(kind)}{kind}"


def _article(noun: str) -> str:
    """Return the indefinite article of a noun with spaces around it; a plural has none."""
    if noun.endswith("s") and not noun.endswith("ss"):
        return " "
    return " an " if noun[0].lower() in "aeiou" else " a "


def custom_operations(info: ResourceInfo) -> dict[str, Any]:
    """Return the paths of a custom resource in the form of v3."""
    paths: dict[str, Any] = {}
    for path in _paths(info):
        item: dict[str, Any] = {}
        for operation in path.operations:
            described = _described(info, path, operation)
            if operation.parameters:
                described["parameters"] = [
                    v3_parameter(name, info.kind) for name in operation.parameters
                ]
            if operation.body:
                described["requestBody"] = _v3_body(operation)
            responses: dict[str, Any] = {"401": {"description": "Unauthorized"}}
            content = _v3_content(_MEDIA_TYPES, operation.result)
            for code in operation.codes:
                responses[str(code)] = {"description": _RESPONSES[code], "content": content}
            item[operation.method] = {**described, "responses": responses}
        item["parameters"] = [v3_parameter(name, info.kind) for name in path.parameters]
        paths[path.path] = item
    return paths


def _v3_body(operation: _Operation) -> dict[str, Any]:
    media_types = _PATCH_TYPES if operation.method == "patch" else _MEDIA_TYPES
    body: dict[str, Any] = {"content": _v3_content(media_types, operation.body)}
    if operation.body_required:
        body["required"] = True
    return body


def _v3_content(media_types: Iterable[str], name: str) -> dict[str, Any]:
    return {kind: {"schema": {"$ref": f"{_V3}{name}"}} for kind in media_types}


def custom_operations_v2(info: ResourceInfo) -> dict[str, Any]:
    """Return the paths of a custom resource in the form of v2."""
    paths: dict[str, Any] = {}
    for path in _paths(info):
        item: dict[str, Any] = {}
        for operation in path.operations:
            is_patch = operation.method == "patch"
            parameters = _v2_bodies(operation)
            parameters += [
                v2_parameter(name, info.kind, patch=is_patch) for name in operation.parameters
            ]
            responses: dict[str, Any] = {"401": {"description": "Unauthorized"}}
            schema = {"$ref": f"{_V2}{operation.result}"}
            for code in operation.codes:
                responses[str(code)] = {"description": _RESPONSES[code], "schema": schema}
            consumed = _PATCH_TYPES if is_patch else _MEDIA_TYPES
            described = {
                **_described(info, path, operation),
                "consumes": list(consumed),
                "produces": list(_MEDIA_TYPES),
                "schemes": ["https"],
                "responses": responses,
            }
            if parameters:
                described["parameters"] = parameters
            item[operation.method] = described
        item["parameters"] = [v2_parameter(name, info.kind) for name in path.parameters]
        paths[path.path] = item
    return paths


def _v2_bodies(operation: _Operation) -> list[dict[str, Any]]:
    """Return the body as v2 describes it: as a parameter."""
    if not operation.body:
        return []
    if operation.body in _BODIES:
        return [{"$ref": f"#/parameters/{_BODIES[operation.body]}"}]
    schema = {"$ref": f"{_V2}{operation.body}"}
    return [{"name": "body", "in": "body", "required": True, "schema": schema}]
