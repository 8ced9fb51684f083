"""Writes the table of a pod spec's fields by which AppWrappers are judged: ``cfo/api/appwrapper/pod_spec.json``.

    hack/generate_pod_spec.py [--check]

The facts are those that ``envtest`` ships of the built-in kinds (``hack/generate_builtin_schemas.py``). One type is
one line; a field's shape is a scalar (``string``, ``int32``, ``int64``, ``boolean``, ``Quantity`` ...), the name of
another type, ``[shape]`` for a list and ``{shape}`` for a map with texts as keys.
"""

from __future__ import annotations

import gzip
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "envtest" / "src" / "envtest" / "data" / "types"
TARGET = ROOT / "cfo" / "api" / "appwrapper" / "pod_spec.json"
START = "io.k8s.api.core.v1.PodSpec"


def table() -> str:
    """The content of the file."""
    types: dict[str, dict[str, str]] = {}
    waiting = [START]
    while waiting:
        reference = waiting.pop()
        name = reference.rpartition(".")[2]
        if name not in types and (properties := definition(reference).get("properties")):
            types[name] = {field: shape(node, waiting) for field, node in sorted(properties.items())}
    lines = ",\n".join(f'"{name}": {json.dumps(types[name])}' for name in sorted(types))
    return f"{{\n{lines}\n}}\n"


def shape(node: dict[str, Any], waiting: list[str]) -> str:
    """The shape of one field; adds the types that it refers to to ``waiting``."""
    if "allOf" in node:
        (node,) = node["allOf"]
    if "$ref" in node:
        reference = node["$ref"].rpartition("/")[2]
        waiting.append(reference)
        return str(reference.rpartition(".")[2])
    if node["type"] == "array":
        return f"[{shape(node['items'], waiting)}]"
    if node["type"] == "object":
        return f"{{{shape(node['additionalProperties'], waiting)}}}"
    return str(node["format"] if node["type"] == "integer" else node["type"])


def definition(reference: str) -> dict[str, Any]:
    """The schema of one type."""
    package, _, name = reference.rpartition(".")
    found: dict[str, Any] = package_types(package)[name]
    return found


@cache
def package_types(package: str) -> dict[str, Any]:
    """The schemas of one package of types."""
    types: dict[str, Any] = json.loads(gzip.decompress((SOURCE / f"{package}.json.gz").read_bytes()))
    return types


def main() -> None:
    """Writes the file, or says that it is stale."""
    content = table()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(content)
    elif TARGET.read_text() != content:
        sys.exit(f"stale, run {Path(__file__).name}: {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
