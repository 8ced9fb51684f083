"""Writes the field numbers of the built-in kinds, so that protobuf bodies of Go clients can be read.

    python hack/generate_protobuf_fields.py FOLDER...

``FOLDER`` are check-outs of k8s.io/api, k8s.io/apimachinery and k8s.io/apiextensions-apiserver, whose
``generated.proto`` files hold the numbers. Only packages of which ``src/envtest/data/types`` knows the types are taken.
A message that Go embeds is recognised by its fields, which the JSON form of the type has instead of it; its entry's
name is empty. Fields of a newer Kubernetes than the types are of are named and passed over.
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
    """``k8s.io.api.core.v1`` as OpenAPI has it: ``io.k8s.api.core.v1``."""
    return proto.replace("k8s.io.", "io.k8s.", 1)


def messages(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each message's name and its lines (no message nests another)."""
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


def reference(word: str, package: str) -> str:
    """The kind of a field: a letter for scalars, the full name of a message."""
    if word in SCALARS:
        return SCALARS[word]
    return package_name(word.removeprefix(".")) if word.startswith(".") else f"{package}.{word}"


def properties(package: str, name: str) -> set[str] | None:
    """The JSON fields of a type; ``None`` where it is not known."""
    try:
        return set(schema_of(f"{package}.{name}").properties)
    except KeyError:
        return None


Messages = dict[tuple[str, str], list[str]]


def json_names(kind: str, messages_of: Messages) -> set[str]:
    """The names that the fields of a message have in JSON, with those of what it embeds."""
    package, _, name = kind.rpartition(".")
    known = properties(package, name)
    if known is not None:
        return known
    return {match.group(5) for match in map(FIELD.match, messages_of.get((package, name), ())) if match}


def fields(
    package: str, name: str, lines: list[str], messages_of: Messages, problems: list[str]
) -> dict[str, list[str]]:
    """By number: JSON name (empty for embedded ones), kind, ``*`` for lists or the kind of a map's values."""
    known = properties(package, name)
    found: dict[str, list[str]] = {}
    for line in lines:
        match = FIELD.match(line)
        if not match:
            continue
        label, word, key, value, field, number = match.groups()
        field = RENAMED.get(field, field) if name == "JSONSchemaProps" else field
        kind = reference(value or word, package)
        if known and field not in known:
            field = next((each for each in known if each.lower() == field.lower()), "")
            inner = json_names(kind, messages_of)
            if not field and not (inner and inner <= known):
                problems.append(f"{package}.{name}.{match.group(5)} is not in its type")
                continue
        found[number] = [field, kind, "map" if key else "list" if label == "repeated" else ""]
    return found


def main(folders: list[str]) -> None:
    """Reads the folders, writes the table."""
    wanted = {file.name.removesuffix(".json.gz") for file in (DATA / "types").glob("*.json.gz")}
    found: Messages = {}
    for folder in folders:
        for file in sorted(Path(folder).rglob("generated.proto")):
            text = file.read_text()
            declared = re.search(r"^package (\S+);", text, re.MULTILINE)
            assert declared, file
            package = package_name(declared.group(1))
            if package in wanted:
                found |= {(package, name): lines for name, lines in messages(text)}
    table: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for (package, name), lines in found.items():
        if not name.endswith("List") or properties(package, name) is not None:
            table.setdefault(package, {})[name] = fields(package, name, lines, found, problems)
    out = DATA / "protobuf.json.gz"
    out.write_bytes(gzip.compress(json.dumps(table, separators=(",", ":"), sort_keys=True).encode(), 9, mtime=0))
    count = sum(map(len, table.values()))
    print(f"{out.name}: {count} messages of {len(table)} packages, {out.stat().st_size} bytes")
    for problem in problems:
        print(f"passed over: {problem}")


if __name__ == "__main__":
    main(sys.argv[1:])
