"""Converts a CustomResourceDefinition to the compact data file that the package ships.

    python -m hack.generate.compact_crd rayclusters.yaml cfo/console/demo/crds/ray.io_rayclusters.json.gz
    python -m hack.generate.compact_crd rayjobs.yaml cfo/console/demo/crds/ray.io_rayjobs.json.gz v1

With versions, the file has no others: each of them delays the start of the control plane. The file keeps only the parts
that an API server uses: names, versions, schemas, columns, subresources. Descriptions and the annotations of the
generating tool are dropped. To update to a newer KubeRay, run this once.
"""

import gzip
import sys
from pathlib import Path
from typing import Any

import orjson
import yaml


def without_descriptions(node: Any) -> Any:
    """Return ``node`` without the descriptions of schema nodes; a property named ``description`` is kept."""
    if isinstance(node, list):
        return [without_descriptions(item) for item in node]
    if not isinstance(node, dict):
        return node
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key == "properties":
            result[key] = {name: without_descriptions(schema) for name, schema in value.items()}
        elif key != "description" or not isinstance(value, str):
            result[key] = without_descriptions(value)
    return result


def compact(crd: dict[str, Any]) -> bytes:
    """Return the content of the file; equal CRDs give equal bytes."""
    kept = {
        "apiVersion": crd["apiVersion"],
        "kind": crd["kind"],
        "metadata": {"name": crd["metadata"]["name"]},
        "spec": without_descriptions(crd["spec"]),
    }
    return gzip.compress(orjson.dumps(kept, option=orjson.OPT_SORT_KEYS), compresslevel=9, mtime=0)


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    crd = yaml.load(source.read_text(), Loader=yaml.CSafeLoader)
    kept = sys.argv[3:]
    if kept:
        crd["spec"]["versions"] = [each for each in crd["spec"]["versions"] if each["name"] in kept]
    target.write_bytes(compact(crd))


if __name__ == "__main__":
    main()
