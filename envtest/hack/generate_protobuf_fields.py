"""Generate the built-in kinds' table of protobuf field numbers, for decoding protobuf bodies of Go clients.

Run it in the folder ``envtest`` of the repository:

    python hack/generate_protobuf_fields.py FOLDER...

Each ``FOLDER`` is a checkout of k8s.io/api, k8s.io/apimachinery or k8s.io/apiextensions-apiserver, whose
``generated.proto`` files contain the numbers. Only packages whose types are in ``src/envtest/data/types`` are included.

An embedded Go struct is a field in protobuf, but its fields are inlined in JSON; such a field gets an empty name. It is
recognized because the JSON type contains all fields of the embedded message. Fields that the types do not have, because
the checkouts are of a newer Kubernetes version, are reported and skipped.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envtest.builtins.catalog import schema_of

DATA = Path(__file__).parents[1] / "src" / "envtest" / "data"
FIELD = re.compile(r"\s*(optional|repeated|required)?\s*(map<(\w+),\s*([\w.]+)>|[\w.]+)\s+(\w+)\s*=\s*(\d+)\s*;")
SCALARS = {
    "string": "s",
    "bytes": "b",
    "bool": "z",
    "double": "d",
    "int32": "i",
    "int64": "i",
    "uint32": "i",
    "uint64": "i",
    "sint32": "i",
}
RENAMED = {
    "schema": "$schema",
    "ref": "$ref",
    "xPreserveUnknownFields": "x-kubernetes-preserve-unknown-fields",
    "xEmbeddedResource": "x-kubernetes-embedded-resource",
    "xIntOrString": "x-kubernetes-int-or-string",
    "xListMapKeys": "x-kubernetes-list-map-keys",
    "xListType": "x-kubernetes-list-type",
    "xMapType": "x-kubernetes-map-type",
    "xValidations": "x-kubernetes-validations",
    "xKubernetesPreserveUnknownFields": "x-kubernetes-preserve-unknown-fields",
    "xKubernetesEmbeddedResource": "x-kubernetes-embedded-resource",
    "xKubernetesIntOrString": "x-kubernetes-int-or-string",
    "xKubernetesListMapKeys": "x-kubernetes-list-map-keys",
    "xKubernetesListType": "x-kubernetes-list-type",
    "xKubernetesMapType": "x-kubernetes-map-type",
    "xKubernetesValidations": "x-kubernetes-validations",
}


def package_name(proto: str) -> str:
    """Return the OpenAPI name of a package: ``io.k8s.api.core.v1`` for ``k8s.io.api.core.v1``."""
    return proto.replace("k8s.io.", "io.k8s.", 1)


def messages(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the lines of each message; no message is nested in another."""
    name = ""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("message "):
            name, lines = line.split()[1], []
        elif line.startswith("}") and name:
            yield name, lines
            name = ""
        elif name:
            lines.append(line.split("//")[0])


def field_kind(type_name: str, package: str) -> str:
    """Return the kind of a field: a letter for scalars, the full name for messages."""
    if type_name in SCALARS:
        return SCALARS[type_name]
    return package_name(type_name.removeprefix(".")) if type_name.startswith(".") else f"{package}.{type_name}"


def properties(package: str, name: str) -> set[str] | None:
    """Return the JSON fields of a type, or ``None`` if the type is unknown."""
    try:
        return set(schema_of(f"{package}.{name}").properties)
    except KeyError:
        return None


MessageLines = dict[tuple[str, str], list[str]]


def json_names(kind: str, messages_by_type: MessageLines) -> set[str]:
    """Return the JSON names of a message's fields, including the fields of embedded messages."""
    package, _, name = kind.rpartition(".")
    json_fields = properties(package, name)
    if json_fields is not None:
        return json_fields
    return {match.group(5) for match in map(FIELD.match, messages_by_type.get((package, name), ())) if match}


def fields(
    package: str, name: str, lines: list[str], messages_by_type: MessageLines, problems: list[str]
) -> dict[str, list[str]]:
    """Return, by field number: the JSON name (empty if embedded), the kind, and the container.

    The container is ``list``, ``map`` (with the kind of the values) or empty. Skipped fields are added to
    ``problems``.
    """
    json_fields = properties(package, name)
    numbered: dict[str, list[str]] = {}
    for line in lines:
        match = FIELD.match(line)
        if not match:
            continue
        label, type_name, key, value, field, number = match.groups()
        field = RENAMED.get(field, field) if name == "JSONSchemaProps" else field
        kind = field_kind(value or type_name, package)
        if json_fields and field not in json_fields:
            field = next((json_field for json_field in json_fields if json_field.lower() == field.lower()), "")
            embedded_names = json_names(kind, messages_by_type)
            if not field and not (embedded_names and embedded_names <= json_fields):
                problems.append(f"{package}.{name}.{match.group(5)}: not a field of the JSON type")
                continue
        numbered[number] = [field, kind, "map" if key else "list" if label == "repeated" else ""]
    return numbered


def main(folders: list[str]) -> None:
    """Read the ``generated.proto`` files below the folders, and write the table."""
    packages = {file.name.removesuffix(".json.gz") for file in (DATA / "types").glob("*.json.gz")}
    messages_by_type: MessageLines = {}
    for folder in folders:
        for file in sorted(Path(folder).rglob("generated.proto")):
            text = file.read_text()
            declared = re.search(r"^package (\S+);", text, re.MULTILINE)
            assert declared, file
            package = package_name(declared.group(1))
            if package in packages:
                messages_by_type |= {(package, name): lines for name, lines in messages(text)}
    table: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for (package, name), lines in messages_by_type.items():
        if not name.endswith("List") or properties(package, name) is not None:
            table.setdefault(package, {})[name] = fields(package, name, lines, messages_by_type, problems)
    target = DATA / "protobuf.json.gz"
    target.write_bytes(gzip.compress(json.dumps(table, separators=(",", ":"), sort_keys=True).encode(), 9, mtime=0))
    count = sum(map(len, table.values()))
    print(f"wrote {count} messages of {len(table)} packages to {target} ({target.stat().st_size} bytes)")
    for problem in problems:
        print(f"skipped {problem}")


if __name__ == "__main__":
    main(sys.argv[1:])
