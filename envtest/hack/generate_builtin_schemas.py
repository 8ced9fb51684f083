"""Writes the compact tables of the built-in kinds that ``envtest`` ships.

    hack/generate_builtin_schemas.py ../shared/openapi
    hack/generate_builtin_schemas.py https://127.0.0.1:6443 --token TOKEN [--ca FILE | --insecure]

The input is a folder of ``/openapi/v3`` documents reduced to facts (one file a group version), or a live API server
whose documents are fetched and reduced here. The output, ``src/envtest/data/types``, has one gzipped JSON file for
each package of types (``io.k8s.api.core.v1``), so that a process reads only the packages that it meets.

OpenAPI does not tell whether a server writes an absent or zero field; ``hack/wire.json`` holds what deviates from
these rules: a field that is required and has a default is always written, one with default ``{}`` too, an optional
text, list or map is dropped when empty, any other optional field is dropped only when null.
"""

from __future__ import annotations

import argparse
import gzip
import json
import ssl
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "envtest" / "data" / "types"
WIRE = ROOT / "hack" / "wire.json"
WIRE_KEY = "x-envtest-wire"

FACTS = frozenset(
    {
        "$ref",
        "additionalProperties",
        "allOf",
        "default",
        "enum",
        "format",
        "items",
        "oneOf",
        "properties",
        "required",
        "type",
        "x-kubernetes-group-version-kind",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-patch-merge-key",
        "x-kubernetes-patch-strategy",
        "x-kubernetes-unions",
    }
)
SCALARS = frozenset({"string", "integer", "number", "boolean"})
SPECIAL = frozenset({"Time", "MicroTime", "Quantity", "IntOrString", "RawExtension", "FieldsV1", "JSON"})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", help="a folder of reduced documents, or the URL of an API server")
    parser.add_argument("--token", default="")
    parser.add_argument("--ca", default="", help="the server's certificate authority")
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--target", type=Path, default=TARGET)
    options = parser.parse_args()
    documents = from_server(options) if "://" in options.source else from_folder(Path(options.source))
    types: dict[str, Any] = {}
    for document in documents:
        for name, schema in document.items():
            merge(types, name, schema)
    if not types:
        print(f"no schemas at {options.source}", file=sys.stderr)
        return 1
    apply_wire(types, json.loads(WIRE.read_text()))
    write(types, options.target)
    print(f"{len(types)} types written to {options.target}")
    return 0


def from_folder(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.json")):
        yield json.loads(path.read_text())["schemas"]


def from_server(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    context = ssl.create_default_context(cafile=options.ca or None)
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE

    def get(path: str) -> Any:
        request = urllib.request.Request(options.source.rstrip("/") + path)
        if options.token:
            request.add_header("Authorization", f"Bearer {options.token}")
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            return json.load(answer)

    for path, entry in sorted(get("/openapi/v3")["paths"].items()):
        if path.startswith(("api/", "apis/")):
            schemas = get(entry["serverRelativeURL"]).get("components", {}).get("schemas", {})
            yield {name: reduced(schema) for name, schema in schemas.items() if name.startswith("io.k8s.")}


def reduced(schema: Any) -> Any:
    """``schema`` without prose."""
    facts: dict[str, Any] = {}
    for word, value in schema.items():
        if word not in FACTS:
            continue
        if word == "properties":
            facts[word] = {name: reduced(inner) for name, inner in value.items()}
        elif word in ("items", "additionalProperties") and isinstance(value, dict):
            facts[word] = reduced(value)
        elif word in ("allOf", "oneOf"):
            facts[word] = [reduced(inner) for inner in value]
        else:
            facts[word] = value
    return facts


def merge(types: dict[str, Any], name: str, schema: dict[str, Any]) -> None:
    """Takes a type over; what several documents publish differs only in the kinds that they list."""
    known = types.setdefault(name, schema)
    kinds = "x-kubernetes-group-version-kind"
    if known is not schema and kinds in schema:
        known[kinds] = known[kinds] + [kind for kind in schema[kinds] if kind not in known[kinds]]


def apply_wire(types: dict[str, Any], exceptions: dict[str, dict[str, list[str]]]) -> None:
    """Marks each property with how it is written: ``always``, ``set``, ``nonempty`` or ``nonzero``."""
    exceptional = {
        (type_name, field): how
        for how, by_type in exceptions.items()
        for type_name, fields in by_type.items()
        for field in fields
    }
    for name, schema in types.items():
        required = schema.get("required", ())
        for field, facts in schema.get("properties", {}).items():
            facts[WIRE_KEY] = exceptional.get((name, field)) or rule(facts, field in required)


def rule(facts: dict[str, Any], required: bool) -> str:
    reference = facts.get("$ref") or next((part.get("$ref", "") for part in facts.get("allOf", ())), "")
    name = reference.rpartition(".")[2]
    kind = facts.get("type")
    if kind == "array":
        return "always" if required else "nonempty"
    if kind == "object":
        return "nonempty"
    if name in SPECIAL:
        return "always" if required else "set"
    if reference:
        return "always" if facts.get("default") == {} or (required and "default" in facts) else "set"
    if kind in SCALARS and required and "default" in facts:
        return "always"
    return "nonempty" if kind == "string" else "set"


def write(types: dict[str, Any], target: Path) -> None:
    packages: dict[str, dict[str, Any]] = defaultdict(dict)
    for name in sorted(types):
        package, _, short = name.rpartition(".")
        packages[package][short] = types[name]
    target.mkdir(parents=True, exist_ok=True)
    for stale in target.glob("*.json.gz"):
        stale.unlink()
    for package, content in packages.items():
        text = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
        (target / f"{package}.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    sys.exit(main())
