"""The mutations of a MutatingAdmissionPolicy: ``ApplyConfiguration`` and ``JSONPatch``.

Follows ``k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from envtest.admission.conditions import Expression
from envtest.admission.policy_bindings import Evaluation
from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.objects import Object
from envtest.apply.jsonpatch import PatchTestFailed, json_patch
from envtest.apply.overlay import InvalidConfiguration, overlay
from envtest.apply.schema_types import ObjectType
from envtest.schema.cel_messages import TYPE, plain, type_errors

__all__ = ["Mutation", "MutationError", "mutation_of"]


class MutationError(Exception):
    """Raised if a mutation does not apply; the message is kube-apiserver's."""


class Mutation:
    """One compiled mutation."""

    strict: bool = False
    """Whether fields that the kind does not have are an error."""

    def __init__(self, expression: str) -> None:
        self.expression = Expression(expression, patches=True)

    def apply(self, obj: Object, kind: ObjectType, evaluation: Evaluation) -> Object:
        """Return the mutated object; ``obj`` is not modified. Raises ExpressionError and MutationError."""
        raise NotImplementedError


class _ApplyConfiguration(Mutation):
    def apply(self, obj: Object, kind: ObjectType, evaluation: Evaluation) -> Object:
        """See :meth:`Mutation.apply`: merge the configuration by the schema of the kind."""
        value = evaluation.evaluate(self.expression)
        if not isinstance(value, dict) or TYPE not in value:
            raise MutationError(
                "unsupported return type from ApplyConfiguration expression: null_type"
            )
        configuration = {**_json(value), "apiVersion": obj["apiVersion"], "kind": obj["kind"]}
        try:
            merged = overlay(kind, obj, configuration)
        except InvalidConfiguration as error:
            raise MutationError(f"error applying patch: {error}") from error
        copy: Object = orjson.loads(orjson.dumps(merged))
        return copy


class _JSONPatch(Mutation):
    strict = True

    def apply(self, obj: Object, kind: ObjectType, evaluation: Evaluation) -> Object:
        """See :meth:`Mutation.apply`; a ``test`` that fails leaves the object as it is."""
        operations = [_operation(each) for each in evaluation.evaluate(self.expression) or ()]
        try:
            patched: Object = json_patch(obj, operations)
        except StatusError as error:
            if isinstance(error.__cause__, PatchTestFailed):
                return obj
            raise MutationError(f"JSON Patch: {error.__cause__ or error.message}") from error
        return patched


def _operation(value: Any) -> dict[str, Any]:
    """Return one operation in its JSON form."""
    if not isinstance(value, dict) or value.get(TYPE) != "JSONPatch":
        raise MutationError(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch"
        )
    for name in ("op", "path", "from"):
        if not isinstance(value.get(name, ""), str):
            raise MutationError(
                f"unexpected type {type(value[name]).__name__} for JSONPatchType '{name}' field"
            )
    operation = {"op": value.get("op", ""), "path": value.get("path", "")}
    if value.get("from"):
        operation["from"] = value["from"]
    if "value" in value:
        operation["value"] = _json(value["value"])
    return operation


def _json(value: Any) -> Any:
    """Return a value as JSON after a check of the types in it. Raises MutationError."""
    errors = type_errors(value)
    if errors:
        raise MutationError("type mismatch: " + "\n".join(errors))
    try:
        return plain(value)
    except TypeError as error:
        raise MutationError(str(error)) from error


_PATCHES: Final[Mapping[str, tuple[str, type[Mutation]]]] = {
    "ApplyConfiguration": ("applyConfiguration", _ApplyConfiguration),
    "JSONPatch": ("jsonPatch", _JSONPatch),
}


def mutation_of(mutation: Mapping[str, Any]) -> Mutation:
    """Compile an item of a policy's ``mutations``."""
    field, create = _PATCHES[mutation["patchType"]]
    return create(mutation[field]["expression"])
