"""The table of built-in kinds: strategies, schemas, and validation of incomplete objects."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import User
from envtest.builtins.catalog import Resource, all_resources, schema_of
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.table import strategy_for
from envtest.registry.resource import RequestContext, ResourceInfo

RESOURCES = list(all_resources())


def resource_id(resource: Resource) -> str:
    return f"{resource.group}-{resource.version}-{resource.plural}"


@pytest.mark.parametrize("resource", RESOURCES, ids=resource_id)
def test_every_kind_has_a_strategy_and_a_schema(resource: Resource) -> None:
    strategy = strategy_for(resource)
    assert isinstance(strategy, BuiltinStrategy)
    assert strategy.resource is resource
    assert schema_of(resource.type).type == "object"


SCALARS: dict[str, dict[str, Any]] = {
    "zero": {"string": "", "integer": 0, "boolean": False, "number": 0},
    "unusual": {"string": "a b", "integer": -1, "boolean": True, "number": -1.5},
}


def fill(schema: Any, scalars: dict[str, Any], depth: int = 0) -> Any:
    """Return a value with all fields of a type, with the given scalars as leaves."""
    if "Quantity" in schema.ref:
        return "0"
    if schema.type == "object":
        if schema.additional is not None:
            return {"k": fill(schema.additional, scalars, depth + 1)}
        names = [] if depth > 9 else [name for name in schema.properties if name != "metadata"]
        return {name: fill(schema.properties[name], scalars, depth + 1) for name in names}
    if schema.type == "array":
        return [] if depth > 9 or schema.items is None else [fill(schema.items, scalars, depth + 1)]
    if schema.format == "date-time":
        return (
            "2024-01-02T03:04:05.000000Z" if "MicroTime" in schema.ref else "2024-01-02T03:04:05Z"
        )
    return "YQ==" if schema.format == "byte" else scalars.get(schema.type)


@pytest.mark.parametrize("content", ["nothing", "empty", "null", "zero", "unusual"])
@pytest.mark.parametrize(
    "resource", [each for each in RESOURCES if "create" in each.verbs], ids=resource_id
)
def test_incomplete_objects_can_be_validated(resource: Resource, content: str) -> None:
    strategy = strategy_for(resource)
    info = ResourceInfo(
        resource.group,
        resource.version,
        resource.plural,
        resource.singular,
        resource.kind,
        True,
        strategy,
    )
    ctx = RequestContext(User("u"), "create", info, "default", "a", operation="CREATE")
    obj: dict[str, Any] = {
        "apiVersion": info.api_version,
        "kind": info.kind,
        "metadata": {"name": "a", "uid": "u"},
    }
    for name, schema in schema_of(resource.type).properties.items():
        if name in obj or content == "nothing":
            continue
        if content in SCALARS:
            obj[name] = fill(schema, SCALARS[content])
        elif schema.type == "object":
            obj[name] = {} if content == "empty" else None
    strategy.decode(obj, ctx)
    strategy.default(obj)
    strategy.prepare_create(obj, ctx)
    errors = [str(error) for error in strategy.validate(obj, None, ctx)]
    errors += [str(error) for error in strategy.validate(obj, obj, ctx)]
    assert all(errors)
    assert all(strategy.warnings(obj, None, ctx))
