"""The static types of expressions in admission: match conditions, validations and mutations.

``object``, ``oldObject`` and ``params`` have no static type. ``request``, ``namespaceObject`` and the ``variables`` of
a policy have one, as in ``k8s.io/apiserver/pkg/admission/plugin/cel``, so that ``request.verb`` is an error when the
policy is created.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from envtest.schema.cel import CELCompileError, CELProgramError, CELType, check_syntax
from envtest.schema.cel_literals import check_literals
from envtest.schema.cel_messages import Literals, parse
from envtest.schema.cel_types import TYPE_NAME, check_types
from envtest.schema.schema_node import Schema

__all__ = ["check_expression"]

_STRING: Final[Mapping[str, Any]] = {"type": "string"}
_STRINGS: Final[Mapping[str, Any]] = {"type": "array", "items": _STRING}
_INTEGER: Final[Mapping[str, Any]] = {"type": "integer"}
_TIME: Final[Mapping[str, Any]] = {"type": "string", "format": "date-time"}
_DYNAMIC: Final[Mapping[str, Any]] = {"x-kubernetes-preserve-unknown-fields": True}
_WORD: Final = re.compile(r"\w+")
_NAMED_TYPE: Final = re.compile(
    r"\bschema\.(?=(AdmissionRequest|GroupVersionKind|GroupVersionResource|UserInfo|variables"
    r"|Namespace(Condition|Metadata|Spec|Status)?)\b)"
)
"""The package before an admission type; kube-apiserver has these types in another package."""
_MAX_LENGTH: Final = 100_000
"""The maximum number of characters of an expression, as in cel-go."""


def _fields(kind: str, /, **fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object whose type has the name ``kubernetes.KIND``."""
    return {"type": "object", "properties": fields, TYPE_NAME: kind}


def _map(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": value}


_KIND: Final = _fields("GroupVersionKind", group=_STRING, version=_STRING, kind=_STRING)
_RESOURCE: Final = _fields("GroupVersionResource", group=_STRING, version=_STRING, resource=_STRING)
_USER: Final = _fields(
    "UserInfo", username=_STRING, uid=_STRING, groups=_STRINGS, extra=_map(_STRINGS)
)
_REQUEST: Final = Schema(
    _fields(
        "AdmissionRequest",
        kind=_KIND,
        resource=_RESOURCE,
        subResource=_STRING,
        requestKind=_KIND,
        requestResource=_RESOURCE,
        requestSubResource=_STRING,
        name=_STRING,
        namespace=_STRING,
        operation=_STRING,
        userInfo=_USER,
        dryRun={"type": "boolean"},
        options=_DYNAMIC,
    )
)
_NAMESPACE_METADATA: Final = _fields(
    "NamespaceMetadata",
    **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), _STRING),
    labels=_map(_STRING),
    annotations=_map(_STRING),
    creationTimestamp=_TIME,
    deletionTimestamp=_TIME,
    deletionGracePeriodSeconds=_INTEGER,
    generation=_INTEGER,
    finalizers=_STRINGS,
)
_CONDITION: Final = _fields(
    "NamespaceCondition",
    status=_STRING,
    type=_STRING,
    lastTransitionTime=_TIME,
    message=_STRING,
    reason=_STRING,
)
_NAMESPACE: Final = Schema(
    _fields(
        "Namespace",
        metadata=_NAMESPACE_METADATA,
        spec=_fields("NamespaceSpec", finalizers=_STRINGS),
        status=_fields(
            "NamespaceStatus", conditions={"type": "array", "items": _CONDITION}, phase=_STRING
        ),
    )
)
_SCHEMAS: Final[Mapping[CELType, Mapping[str, Any]]] = {
    "bool": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "duration": {"type": "string", "format": "duration"},
    "int": _INTEGER,
    "string": _STRING,
    "timestamp": _TIME,
}
"""The schemas of variables of simple types."""

_LIST: Final = re.compile(r"list\((\w+)\)")
_MAP: Final = re.compile(r"map\(string, (\w+)\)")


def _schema(kind: CELType) -> Mapping[str, Any]:
    """Return the schema of a variable; one that the descriptors cannot express has no static type."""
    match = _LIST.fullmatch(kind)
    if match:
        return {"type": "array", "items": _SCHEMAS.get(match[1], _DYNAMIC)}
    match = _MAP.fullmatch(kind)
    if match:
        return _map(_SCHEMAS.get(match[1], _DYNAMIC))
    return _SCHEMAS.get(kind, _DYNAMIC)


def check_expression(
    source: str,
    *,
    params: bool = False,
    authorizer: bool = True,
    variables: Mapping[str, CELType] | None = None,
    patches: bool = False,
    types: Mapping[str, Schema] | None = None,
) -> CELType:
    """Return the static type of an expression as cel-go prints it.

    ``params`` and ``authorizer`` add these variables; ``variables`` are the variables of a policy with their types
    (``None``: the expression cannot use them); ``patches`` adds the types and functions of mutations. ``types`` gives
    ``object``, ``oldObject`` or ``params`` a static type.
    Raises CELCompileError and CELProgramError.
    """
    if len(source) > _MAX_LENGTH:
        why = f"expression code point size exceeds limit: size: {len(source)}, limit {_MAX_LENGTH}"
        raise CELCompileError(f"ERROR: <input>:1:1: {why}")
    check_syntax(source)
    literals = parse(source) if patches else Literals(source, source, {}, {})
    schemas = {"request": _REQUEST, "namespaceObject": _NAMESPACE, **(types or {})}
    if variables is not None:
        fields = {name: _schema(kind) for name, kind in variables.items()}
        schemas["variables"] = Schema(_fields("variables", **fields))
    optional = (("params", params), ("authorizer", authorizer))
    names = ["object", "oldObject", *(name for name, is_declared in optional if is_declared)]
    names = [name for name in names if name not in schemas]
    messages = literals.types if patches else None

    def restore(text: str) -> str:
        text = _NAMED_TYPE.sub("kubernetes.", text)
        return _WORD.sub(lambda match: literals.names.get(match[0], match[0]), text)

    try:
        program = check_types(
            literals.checked, schemas, dict.fromkeys(names, "dyn"), escapes=False, messages=messages
        )
        check_literals(program, literals.checked)
    except CELProgramError:
        raise
    except CELCompileError as error:
        raise CELCompileError(restore(str(error))) from None
    return restore(program.type_name)
