"""Writes a CustomResourceDefinition as the compact data file which the package ships.

    python hack/compact_crd.py rayclusters.yaml cfo/crds/ray.io_rayclusters.json.gz

Kept are the facts that an API server works with: names, versions, schemas, columns, subresources. Prose, and what
the generating tool noted for itself, is left out. A newer KubeRay is one run of this script.
"""

import gzip
import sys
from pathlib import Path
from typing import Any

import orjson
import yaml


def facts(node: Any) -> Any:
    """``node`` without descriptions of schema nodes (a property that is called "description" stays)."""
    if isinstance(node, list):
        return [facts(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {name: facts(schema) for name, schema in value.items()} if key == "properties" else facts(value)
        for key, value in node.items()
        if not (key == "description" and isinstance(value, str))
    }


def compact(crd: dict[str, Any]) -> bytes:
    """The file's content: equal input gives equal bytes."""
    kept = {
        "apiVersion": crd["apiVersion"],
        "kind": crd["kind"],
        "metadata": {"name": crd["metadata"]["name"]},
        "spec": facts(crd["spec"]),
    }
    return gzip.compress(orjson.dumps(kept, option=orjson.OPT_SORT_KEYS), compresslevel=9, mtime=0)


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    target.write_bytes(compact(yaml.load(source.read_text(), Loader=yaml.CSafeLoader)))


if __name__ == "__main__":
    main()
