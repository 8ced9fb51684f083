"""Generate the built-in kinds' table of protobuf field numbers, for decoding protobuf bodies of Go clients.

Run it in the folder ``envtest`` of the repository:

    python hack/generate_protobuf_fields.py FOLDER...

The folders are checkouts of k8s.io/api, k8s.io/apimachinery, k8s.io/apiextensions-apiserver and k8s.io/kube-aggregator
at the Kubernetes version of ``src/envtest/data/types``. Their ``generated.proto`` files contain the numbers of all
packages whose types are there.

An embedded Go struct is a field in protobuf, but its fields are inlined in JSON; such a field gets an empty name. It is
recognized because the JSON type contains all fields of the embedded message.

Nothing is skipped: if a type or a field exists on one side only, the generator lists it, writes nothing and fails.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from envtest.builtins.catalog import schema_of

DATA = Path(__file__).parents[1] / "src" / "envtest" / "data"
FIELD = re.compile(
    r"\s*(optional|repeated|required)?\s*(map<(\w+),\s*([\w.]+)>|[\w.]+)\s+(\w+)\s*=\s*(\d+)\s*;"
)
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
    """Return the OpenAPI name of a package or type: ``io.k8s.api.core.v1`` for ``k8s.io.api.core.v1``.

    Hyphens of Go modules are underscores in protobuf, and no other part of a package's name contains either.
    """
    return proto.replace("k8s.io.", "io.k8s.", 1).replace("_", "-")


def type_names(package: str) -> list[str]:
    """Return the names of a package's types in ``src/envtest/data/types``."""
    return list(json.loads(gzip.decompress((DATA / "types" / f"{package}.json.gz").read_bytes())))


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
    return (
        package_name(type_name.removeprefix("."))
        if type_name.startswith(".")
        else f"{package}.{type_name}"
    )


def properties(package: str, name: str) -> set[str] | None:
    """Return the JSON fields of a type, or ``None`` if the type is unknown."""
    try:
        return set(schema_of(f"{package}.{name}").properties)
    except KeyError:
        return None


MessageLines = dict[tuple[str, str], list[str]]
Table = dict[str, dict[str, dict[str, list[str]]]]


def json_names(kind: str, messages_by_type: MessageLines) -> set[str]:
    """Return the JSON names of a message's fields, including the fields of embedded messages."""
    package, _, name = kind.rpartition(".")
    json_fields = properties(package, name)
    if json_fields is not None:
        return json_fields
    return {
        match.group(5)
        for match in map(FIELD.match, messages_by_type.get((package, name), ()))
        if match
    }


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
            field = next(
                (json_field for json_field in json_fields if json_field.lower() == field.lower()),
                "",
            )
            embedded_names = json_names(kind, messages_by_type)
            if not field and not (embedded_names and embedded_names <= json_fields):
                problems.append(f"{package}.{name}.{match.group(5)}: not a field of the JSON type")
                continue
        numbered[number] = [field, kind, "map" if key else "list" if label == "repeated" else ""]
    return numbered


def missing(package: str, table: Table, messages_by_type: MessageLines) -> Iterator[str]:
    """Yield the types of a package, and their fields, that ``table`` lacks."""
    for name in type_names(package):
        if name not in table.get(package, {}):
            yield f"{package}.{name}: no such message"
            continue
        numbered = {"apiVersion", "kind"}
        for field, kind, _ in table[package][name].values():
            numbered |= {field} if field else json_names(kind, messages_by_type)
        for field in sorted((properties(package, name) or set()) - numbered):
            yield f"{package}.{name}.{field}: no such field of the message"


def generate(folders: Iterable[Path]) -> tuple[Table, list[str]]:
    """Return the table of the ``generated.proto`` files below the folders, and what it lacks."""
    packages = sorted(
        file.name.removesuffix(".json.gz") for file in (DATA / "types").glob("*.json.gz")
    )
    messages_by_type: MessageLines = {}
    for folder in folders:
        for file in sorted(folder.rglob("generated.proto")):
            text = file.read_text()
            declared = re.search(r"^package (\S+);", text, re.MULTILINE)
            assert declared, file
            package = package_name(declared.group(1))
            if package in packages:
                messages_by_type |= {(package, name): lines for name, lines in messages(text)}
    table: Table = {}
    problems: list[str] = []
    for (package, name), lines in messages_by_type.items():
        table.setdefault(package, {})[name] = fields(
            package, name, lines, messages_by_type, problems
        )
    for package in packages:
        problems += missing(package, table, messages_by_type)
    return table, problems


def main(folders: list[str]) -> None:
    """Write the table, or exit with the list of what it would lack."""
    table, problems = generate(map(Path, folders))
    if problems:
        sys.exit("\n".join(problems))
    target = DATA / "protobuf.json.gz"
    target.write_bytes(
        gzip.compress(json.dumps(table, separators=(",", ":"), sort_keys=True).encode(), 9, mtime=0)
    )
    count = sum(map(len, table.values()))
    print(
        f"wrote {count} messages of {len(table)} packages to {target} ({target.stat().st_size} bytes)"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
