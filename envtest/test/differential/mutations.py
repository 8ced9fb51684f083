"""Random changes of an object at one place, which know the schema of that place."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any, NamedTuple

from envtest.schema.schema_node import Schema

__all__ = ["Mutator"]

STRINGS = (
    "", "a", "b", "A", "a_b", "a.b", "-a", "a-", "a b", "é", "1", "0", "-1", "1.5", "a/b", "example.com/a", "/a",
    "../a", "a" * 64, "a" * 254, "10.0.0.1", "::1", "10.0.0.0/8", "true", "None", "Always", "*", "*.a.b", "%", "50%",
    "a\nb", "kubernetes.io/a", "a:b", "https://a.b/c", "2026-01-02T03:04:05Z", "a..b", "0x1", "1e3", "aA", ".", "..",
    "a=b", "a,b", " a", "system:a", "k8s.io/a", "10.0.0.01", "::ffff:1.2.3.4", "2001:DB8::1", "1.2.3.4/33",
    "a\u0000b", "a/b/c",
)  # fmt: skip
INTEGERS = (
    -1, 0, 1, 2, 3, 100, 101, 1000, 65535, 65536, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, 1.0, 1.5, 1e3, "1",
)  # fmt: skip
QUANTITIES = (
    "0", "1", "-1", "1.5", "100m", "1Gi", "3Ki", "1e3", "x", "", 5, "0.1m", "1.25Gi", 1.5, "1E", "1e-3", "+1", ".5",
    "1n", "9223372036854775808", "100000000000Gi", " 1", "1 Gi", "1gi", "0.5Ki", "1M", "1e400",
)  # fmt: skip
TIMES = (
    "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000006Z", "2026-01-02", "", "x", "2026-01-02T03:04:05+02:00",
    "2026-01-02t03:04:05z", "2026-13-02T03:04:05Z", "0000-01-01T00:00:00Z", "2026-01-02T03:04:05,5Z", 1,
)  # fmt: skip
DURATIONS = ("1s", "1h2m", "-1s", "0", "0s", "1.5s", "1", "", "x", "1d", "9223372037s", 5)
BYTES = ("YQ==", "", "!", "YQ")
WRONG: tuple[Any, ...] = (None, "a", 1, True, [], {}, ["a"], {"a": "b"}, -1.5)
"""Values for places of any type."""
KEYS = ("a", "A_b", "example.com/a", "-a", "", "a/b/c", "é", "a" * 64, "cpu", "storage")
MAX_DEPTH = 3
"""How deep generated values are nested."""


class Place(NamedTuple):
    """A value in an object: the container that holds it, its key or index there, and its schema."""

    parent: Any
    key: Any
    schema: Schema | None


class Mutator:
    """Changes objects at random, with the random numbers of ``rng``."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def mutate(self, obj: dict[str, Any], schema: Schema, *, count: int) -> dict[str, Any]:
        """Return a copy of an object with ``count`` random changes, none in its status."""
        return self._mutate(obj, schema, count, top=True)

    def mutate_value(self, value: dict[str, Any], schema: Schema | None) -> dict[str, Any]:
        """Return a copy of a part of an object with one random change."""
        return self._mutate(value, schema, 1, top=False)

    def _mutate(
        self, value: dict[str, Any], schema: Schema | None, count: int, *, top: bool
    ) -> dict[str, Any]:
        changed = deepcopy(value)
        for _ in range(count):
            places = self._places(changed, schema, top=top)
            if places:
                self._change(self._rng.choice(places))
        return changed

    def _places(self, value: Any, schema: Schema | None, *, top: bool = False) -> list[Place]:
        """Return all places below a value, deepest last."""
        found: list[Place] = []
        if isinstance(value, dict):
            for key, child in value.items():
                if top and key in ("apiVersion", "kind", "metadata", "status"):
                    if key == "metadata" and self._rng.random() < 0.3:
                        found.append(Place(value, key, _field(schema, key)))
                        found += self._places(child, _field(schema, key))
                    continue
                found.append(Place(value, key, _field(schema, key)))
                found += self._places(child, _field(schema, key))
        elif isinstance(value, list):
            items = schema.items if schema is not None else None
            for index, child in enumerate(value):
                found.append(Place(value, index, items))
                found += self._places(child, items)
        return found

    def _change(self, place: Place) -> None:
        rng = self._rng
        parent, key, schema = place
        value = parent[key]
        if rng.random() < 0.04:
            parent[key] = deepcopy(rng.choice(WRONG))
        elif rng.random() < 0.12:
            del parent[key]
        elif isinstance(value, dict):
            self._change_map(value, schema)
        elif isinstance(value, list):
            self._change_list(value, schema)
        else:
            parent[key] = self.value(schema)

    def _change_map(self, value: dict[str, Any], schema: Schema | None) -> None:
        """Add a field or a key, or remove all."""
        rng = self._rng
        absent = []
        if schema is not None:
            absent = [name for name in schema.properties if name not in value]
        if absent and rng.random() < 0.8:
            name = rng.choice(absent)
            value[name] = self.value(_field(schema, name))
        elif schema is not None and schema.additional is not None and rng.random() < 0.8:
            value[rng.choice(KEYS)] = self.value(schema.additional)
        elif rng.random() < 0.5:
            value["unknown"] = "a"
        else:
            value.clear()

    def _change_list(self, value: list[Any], schema: Schema | None) -> None:
        rng = self._rng
        items = schema.items if schema is not None else None
        choice = rng.randrange(5)
        if choice == 0:
            value.clear()
        elif choice == 1 and value:
            value.append(deepcopy(rng.choice(value)))
        elif choice == 2:
            value.reverse()
        else:
            value.append(self.value(items))

    def value(self, schema: Schema | None, depth: int = 0) -> Any:
        """Return a random value that often fits a schema."""
        rng = self._rng
        if schema is None:
            return deepcopy(rng.choice(WRONG))
        if schema.enum and rng.random() < 0.8:
            return rng.choice(schema.enum)
        if "Quantity" in schema.ref:
            return rng.choice(QUANTITIES)
        if schema.ref.endswith(".Duration"):
            return rng.choice(DURATIONS)
        if schema.int_or_string:
            return rng.choice((rng.choice(INTEGERS), rng.choice(STRINGS)))
        if schema.type == "object":
            return self._object(schema, depth)
        if schema.type == "array":
            length = rng.choice((0, 1, 1, 1, 2))
            if depth >= MAX_DEPTH:
                length = 0
            return [self.value(schema.items, depth + 1) for _ in range(length)]
        return self._scalar(schema)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        rng = self._rng
        if schema.additional is not None:
            return {rng.choice(KEYS): self.value(schema.additional, depth + 1)}
        created = {}
        for name, field in schema.properties.items():
            likely = 0.9 if name in schema.required else 0.25
            if depth < MAX_DEPTH and rng.random() < likely:
                created[name] = self.value(field, depth + 1)
        return created

    def _scalar(self, schema: Schema) -> Any:
        rng = self._rng
        if schema.type == "boolean":
            return rng.choice((True, False))
        if schema.type in ("integer", "number"):
            return rng.choice(INTEGERS)
        if schema.format == "date-time":
            return rng.choice(TIMES)
        if schema.format == "byte":
            return rng.choice(BYTES)
        if schema.type == "string":
            return rng.choice(STRINGS)
        return deepcopy(rng.choice(WRONG))


def _field(schema: Schema | None, name: str) -> Schema | None:
    """Return the schema of a field or a key."""
    if schema is None:
        return None
    found = schema.properties.get(name)
    return schema.additional if found is None else found
