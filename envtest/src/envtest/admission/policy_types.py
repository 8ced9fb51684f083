"""Type checking of ValidatingAdmissionPolicies against the types that they match, for their status.

Follows ``k8s.io/apiserver/pkg/admission/plugin/policy/validating/typechecking.go``. The warnings do not change what a
policy does: its expressions are compiled without the types of objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from envtest.apimachinery.objects import Object
from envtest.builtins.catalog import object_meta, resolve
from envtest.registry.registry import Registry
from envtest.registry.resource import ResourceInfo
from envtest.schema.cel import CELCompileError, CELType
from envtest.schema.cel_admission import check_expression
from envtest.schema.schema_node import Schema

__all__ = ["expression_warnings"]

_MAX_TYPES: Final = 10
"""The maximum number of types that one rule selects; after a rule with more, the other rules are not considered."""

_STRING: Final = {"type": "string"}


class _Type(NamedTuple):
    """A kind that a policy matches, with the static type of its objects."""

    group: str
    version: str
    kind: str
    schema: Schema

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


def expression_warnings(policy: Object, registry: Registry) -> list[dict[str, str]]:
    """Return ``expressionWarnings`` of the policy's status: the type errors of its validations."""
    spec = policy.get("spec") or {}
    types = _matched_types(spec, registry)
    params = _parameter_type(spec, registry)
    sources = [
        (f"spec.validations[{position}].{field}", validation[field])
        for position, validation in enumerate(spec.get("validations") or ())
        for field in ("expression", "messageExpression")
        if validation.get(field)
    ]
    environments = [_Environment(each, params, spec) for each in types]
    warnings = []
    for path, source in sources:
        texts = []
        for each in environments:
            problem = each.problem(source)
            if problem:
                texts.append(f"{each.type}: {problem}\n")
        if texts:
            warnings.append({"fieldRef": path, "warning": "\n".join(texts)})
    return warnings


class _Environment:
    """The variables of a policy's expressions for the objects of one type."""

    def __init__(self, checked: _Type, params: Schema | None, spec: Mapping[str, Any]) -> None:
        self.type = checked
        self._has_params = spec.get("paramKind") is not None
        self._types = {"object": checked.schema, "oldObject": checked.schema}
        if params is not None:
            self._types["params"] = params
        self._variables: dict[str, CELType] = {}
        for variable in spec.get("variables") or ():
            try:
                kind = self._check(variable.get("expression") or "")
            except CELCompileError:
                kind = "dyn"
            self._variables[variable.get("name") or ""] = kind

    def _check(self, source: str) -> CELType:
        return check_expression(
            source, params=self._has_params, variables=self._variables, types=self._types
        )

    def problem(self, source: str) -> str:
        """Return the type error of an expression, or an empty string."""
        try:
            self._check(source)
        except CELCompileError as error:
            return str(error)
        return ""


def _matched_types(spec: Mapping[str, Any], registry: Registry) -> list[_Type]:
    """Return the types that the rules of a policy name without wildcards, sorted."""
    found: dict[tuple[str, str, str], ResourceInfo] = {}
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        matched = list(islice(_resources(rule, registry), _MAX_TYPES))
        found |= {(each.group, each.version, each.kind): each for each in matched}
        if len(matched) == _MAX_TYPES:
            break
    return _typed(found)


def _resources(rule: Mapping[str, Any], registry: Registry) -> Iterator[ResourceInfo]:
    groups = _literal(rule.get("apiGroups"))
    versions = _literal(rule.get("apiVersions"))
    plurals = sorted(each for each in rule.get("resources") or () if not {"*", "/"} & set(each))
    for group in groups:
        for version in versions:
            for plural in plurals:
                info = registry.lookup(group, version, plural)
                if info is not None:
                    yield info


def _literal(names: Sequence[str] | None) -> list[str]:
    """Return the sorted names of a rule, none if one of them is a wildcard."""
    return [] if any("*" in each for each in names or ()) else sorted(names or ())


def _typed(found: Mapping[tuple[str, str, str], ResourceInfo]) -> list[_Type]:
    types = ((identity, _schema(found[identity])) for identity in sorted(found))
    return [_Type(*identity, schema) for identity, schema in types if schema is not None]


def _parameter_type(spec: Mapping[str, Any], registry: Registry) -> Schema | None:
    kind = spec.get("paramKind") or {}
    group, _, version = (kind.get("apiVersion") or "").rpartition("/")
    info = registry.by_kind(group, version, kind.get("kind") or "")
    return None if info is None else _schema(info)


def _schema(info: ResourceInfo) -> Schema | None:
    """Return the type of a kind's objects; those of CRDs have the metadata of all objects."""
    if info.schema is None or not info.is_crd or info.schema.is_schemaless:
        return info.schema
    general = {"apiVersion": _STRING, "kind": _STRING, "metadata": object_meta().raw}
    return Schema(
        {**info.schema.raw, "properties": {**info.schema.raw.get("properties", {}), **general}},
        resolve,
    )
