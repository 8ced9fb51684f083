"""Generate the schemas of the built-in kinds that ``envtest`` ships, from OpenAPI documents.

Run it in the folder ``envtest`` of the repository:

    python hack/generate_builtin_schemas.py FOLDER
    python hack/generate_builtin_schemas.py https://127.0.0.1:6443 --token TOKEN [--ca FILE | --insecure]
    python hack/generate_builtin_schemas.py src/envtest/data/types

``FOLDER`` contains ``/openapi/v3`` documents without descriptions, one file per group version; the documents of an API
server are fetched and stripped of descriptions. The third form reads the output of an earlier run, and only applies
``hack/wire.json`` again. The output, ``src/envtest/data/types``, has one gzipped JSON file per
package of types (``io.k8s.api.core.v1``), so that a process reads only the packages that it uses. All existing files
there are deleted first, so the source must have the documents of all built-in kinds.
``cfo/api/builtin_types.json`` of the repository is generated from these files: run ``make manifests`` in its root
afterwards.

OpenAPI does not specify whether a server writes an absent or zero field. These rules apply: a required field with a
default and a field with the default ``{}`` are always written; an optional string, list or map is omitted when empty;
any other optional field is omitted only when null. ``hack/wire.json`` lists the exceptions, among them the fields that
are ``never`` written because their feature gate is off by default.
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

KEPT_KEYS = frozenset(
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
CUSTOM_JSON_TYPES = frozenset(
    {"Time", "MicroTime", "Quantity", "IntOrString", "RawExtension", "FieldsV1", "JSON"}
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "source",
        help="folder of documents without descriptions, or URL of an API server that serves all kinds",
    )
    parser.add_argument("--token", default="", help="bearer token for the API server")
    parser.add_argument("--ca", default="", help="file with the CA certificate of the API server")
    parser.add_argument(
        "--insecure", action="store_true", help="do not verify the certificate of the API server"
    )
    parser.add_argument(
        "--target", type=Path, default=TARGET, help="folder to write to (default: %(default)s)"
    )
    options = parser.parse_args()
    documents = (
        from_server(options) if "://" in options.source else from_folder(Path(options.source))
    )
    types: dict[str, Any] = {}
    for document in documents:
        for name, schema in document.items():
            merge(types, name, schema)
    if not types:
        print(f"{options.source}: no schemas found", file=sys.stderr)
        return 1
    set_wire(types, json.loads(WIRE.read_text()))
    write_types(types, options.target)
    print(f"wrote {len(types)} types to {options.target}")
    return 0


def from_folder(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.json")):
        yield json.loads(path.read_text())["schemas"]
    for path in sorted(folder.glob("*.json.gz")):
        package = path.name.removesuffix(".json.gz")
        types = json.loads(gzip.decompress(path.read_bytes()))
        yield {f"{package}.{short}": schema for short, schema in types.items()}


def from_server(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    context = ssl.create_default_context(cafile=options.ca or None)
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE

    def get(path: str) -> Any:
        request = urllib.request.Request(options.source.rstrip("/") + path)
        if options.token:
            request.add_header("Authorization", f"Bearer {options.token}")
        with urllib.request.urlopen(request, context=context, timeout=60) as response:
            return json.load(response)

    for path, entry in sorted(get("/openapi/v3")["paths"].items()):
        if path.startswith(("api/", "apis/")):
            schemas = get(entry["serverRelativeURL"]).get("components", {}).get("schemas", {})
            yield {
                name: strip_descriptions(schema)
                for name, schema in schemas.items()
                if name.startswith("io.k8s.")
            }


def strip_descriptions(schema: Any) -> Any:
    """Return ``schema`` without descriptions."""
    kept_keys: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword not in KEPT_KEYS:
            continue
        if keyword == "properties":
            kept_keys[keyword] = {name: strip_descriptions(inner) for name, inner in value.items()}
        elif keyword in ("items", "additionalProperties") and isinstance(value, dict):
            kept_keys[keyword] = strip_descriptions(value)
        elif keyword in ("allOf", "oneOf"):
            kept_keys[keyword] = [strip_descriptions(inner) for inner in value]
        else:
            kept_keys[keyword] = value
    return kept_keys


def merge(types: dict[str, Any], name: str, schema: dict[str, Any]) -> None:
    """Add a type. Documents that contain the same type differ only in the kinds that they list for it."""
    known = types.setdefault(name, schema)
    kinds = "x-kubernetes-group-version-kind"
    if known is not schema and kinds in schema:
        known[kinds] = known[kinds] + [kind for kind in schema[kinds] if kind not in known[kinds]]


def set_wire(types: dict[str, Any], exceptions: dict[str, dict[str, list[str]]]) -> None:
    """Set when each property is written: ``always``, ``set``, ``nonempty``, ``nonzero`` or ``never``."""
    wire_of = {
        (type_name, field): wire
        for wire, by_type in exceptions.items()
        for type_name, fields in by_type.items()
        for field in fields
    }
    for name, schema in types.items():
        required = schema.get("required", ())
        for field, kept_keys in schema.get("properties", {}).items():
            kept_keys[WIRE_KEY] = wire_of.get((name, field)) or default_wire(
                kept_keys, field in required
            )


def default_wire(kept_keys: dict[str, Any], required: bool) -> str:
    reference = kept_keys.get("$ref") or next(
        (part.get("$ref", "") for part in kept_keys.get("allOf", ())), ""
    )
    name = reference.rpartition(".")[2]
    kind = kept_keys.get("type")
    if kind == "array":
        return "always" if required else "nonempty"
    if kind == "object":
        return "nonempty"
    if name in CUSTOM_JSON_TYPES:
        return "always" if required else "set"
    if reference:
        return (
            "always"
            if kept_keys.get("default") == {} or (required and "default" in kept_keys)
            else "set"
        )
    if kind in SCALARS and required and "default" in kept_keys:
        return "always"
    return "nonempty" if kind == "string" else "set"


def write_types(types: dict[str, Any], target: Path) -> None:
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
