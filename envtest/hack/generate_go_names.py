"""Write ``src/envtest/data/go_names.json`` from the messages of a kube-apiserver about values of wrong types.

Run it in the folder ``envtest`` of the repository, with the programs in ``KUBEBUILDER_ASSETS``:

    python hack/generate_go_names.py

One request is sent for each field of each built-in type, with a value that the field cannot have. The message names the
type of the field, and after the path the structs in which it is embedded.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.builtins.catalog import Resource, all_resources, plain_name, schema_of
from envtest.builtins.normalization import DecodeError, WrongTypeError, decode
from envtest.schema.schema_node import Schema

TARGET = Path(__file__).resolve().parent.parent / "src" / "envtest" / "data" / "go_names.json"
KEY = "k"
MESSAGE = re.compile(r"into Go struct field (\S+) of type (\S+)$")


class Probe(NamedTuple):
    """An object with one value of a wrong type; ``type_name`` has the ``field`` that contains it."""

    resource: Resource
    type_name: str
    field: str
    body: dict[str, Any]


def probes() -> Iterator[Probe]:
    """Yield the probes for all fields, and for the items of lists and maps."""
    seen: set[str] = set()
    for resource in all_resources():
        queue: list[tuple[Schema, list[str | int]]] = [(schema_of(resource.type), [])]
        while queue:
            schema, path = queue.pop(0)
            type_name = plain_name(schema.ref) if schema.ref else resource.type
            if type_name in seen:
                continue
            seen.add(type_name)
            for field, node in schema.properties.items():
                inner: Schema | None = node
                steps = [*path, field]
                while inner is not None:
                    yield Probe(resource, type_name, field, body_of(steps, inner))
                    if inner.properties:
                        queue.append((inner, steps))
                    steps = [*steps, 0 if inner.type == "array" else KEY]
                    inner = inner.items if inner.type == "array" else inner.additional


def body_of(steps: list[str | int], node: Schema) -> dict[str, Any]:
    """Return an object that has a value of a wrong type at a path."""
    value: Any = 5 if node.type == "string" else "x"
    for step in reversed(steps):
        value = [value] if isinstance(step, int) else {step: value}
    body: dict[str, Any] = value
    return body


async def answer(api: APIClient, probe: Probe) -> tuple[list[str], str] | None:
    """Return the path in Go and the type that the API server names, or ``None`` if it reports something else."""
    resource = probe.resource
    group = f"/apis/{resource.group}" if resource.group else "/api"
    namespace = "namespaces/default/" if resource.namespaced else ""
    path = f"{group}/{resource.version}/{namespace}{resource.plural}"
    response = await api.post(path, probe.body, {"dryRun": "All"})
    found = MESSAGE.search(str(response.body.get("message", "")))
    return (found[1].split("."), found[2]) if found else None


def underlying_type(probe: Probe) -> str:
    """Return the type that envtest knows, or an empty string if it reports something else."""
    try:
        decode(probe.resource.type, probe.body)
    except WrongTypeError as error:
        return error.expected
    except DecodeError:
        pass
    return ""


def embedding_structs(path: list[str]) -> str:
    """Return the structs before the last field of a path, whose first part is the type that has the field."""
    structs: list[str] = []
    for part in reversed(path[1:-1]):
        if not part[0].isupper():
            break
        structs.insert(0, part)
    return ".".join(structs)


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return JSON with a type a line."""
    lines = (f'"{name}": {json.dumps(rows[name], sort_keys=True)}' for name in sorted(rows))
    return "{\n" + ",\n".join(lines) + "\n}"


async def main() -> None:
    """Ask a kube-apiserver about all fields, and write the names."""
    embedded: dict[str, dict[str, str]] = defaultdict(dict)
    named: dict[str, dict[str, Any]] = defaultdict(dict)
    async with ControlPlane.real() as plane, APIClient(plane) as api:
        for probe in probes():
            found = await answer(api, probe)
            underlying = underlying_type(probe)
            if found is None or not underlying:
                continue
            path, go_type = found
            structs = embedding_structs(path)
            if structs and path[-1] == probe.field:
                embedded[probe.type_name][probe.field] = structs
            if go_type != underlying:
                named[probe.type_name].setdefault(probe.field, {})[underlying] = go_type
    TARGET.write_text(f'{{\n"embedded": {table(embedded)},\n"named": {table(named)}\n}}\n')


if __name__ == "__main__":
    asyncio.run(main())
