"""The table of built-in types with which admission checks parts of pods: ``cfo/api/builtin_types.json``.

The source is the schemas of the built-in kinds in ``envtest`` (written by
``envtest/hack/generate_builtin_schemas.py``), for the latest release that it knows. Each line is one type. The shape of
a field is a scalar (``string``, ``int32``, ``int64``, ``boolean``, ``Quantity`` ...), the name of another type,
``[shape]`` for a list, or ``{shape}`` for a map with string keys.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from envtest.configuration.kubernetes_version import LATEST
from hack import ROOT

SOURCE = ROOT / "envtest" / "src" / "envtest" / "data" / "types"
TARGET = "cfo/api/builtin_types.json"
STARTS = (
    "io.k8s.api.core.v1.PodSpec",
    "io.k8s.api.core.v1.ServicePort",
    "io.k8s.api.apps.v1.DeploymentStrategy",
    "io.k8s.api.apps.v1.DeploymentSpec",
    "io.k8s.api.apps.v1.StatefulSetSpec",
    "io.k8s.api.batch.v1.JobSpec",
    "io.k8s.api.autoscaling.v2.MetricSpec",
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior",
)


def files() -> dict[str, str]:
    """Return the content of the generated file, by its path from the root of the repository."""
    return {TARGET: table()}


def table() -> str:
    """Return the table: :data:`STARTS` and all types that these reference, directly or indirectly."""
    types: dict[str, dict[str, str]] = {}
    queue = list(STARTS)
    while queue:
        reference = queue.pop()
        name = reference.rpartition(".")[2]
        if name in types:
            continue
        properties = schema(reference).get("properties")
        if properties:
            types[name] = {field: shape(node, queue) for field, node in sorted(properties.items())}
    return released_types(f"Kubernetes {LATEST.release}", types)


def released_types(release: str, types: Mapping[str, Mapping[str, str]]) -> str:
    """Return the content of a table, with a type a line, for ``cfo.api.builtin_types.read_types``."""
    lines = ",\n".join(f'"{name}": {json.dumps(types[name])}' for name in sorted(types))
    return f'{{"release": {json.dumps(release)}, "types": {{\n{lines}\n}}}}\n'


def shape(node: dict[str, Any], queue: list[str]) -> str:
    """Return the shape of a field; types that it refers to are appended to ``queue``."""
    if "allOf" in node:
        (node,) = node["allOf"]
    if "$ref" in node:
        reference = node["$ref"].rpartition("/")[2]
        queue.append(reference)
        return str(reference.rpartition(".")[2])
    if node["type"] == "array":
        return f"[{shape(node['items'], queue)}]"
    if node["type"] == "object":
        return f"{{{shape(node['additionalProperties'], queue)}}}"
    if node["type"] == "integer":
        return str(node["format"])
    return str(node["type"])


def schema(reference: str) -> dict[str, Any]:
    """Return the schema of a type."""
    package, _, name = reference.rpartition(".")
    found: dict[str, Any] = package_types(package)[name]
    return found


@cache
def package_types(package: str) -> dict[str, Any]:
    """Return the schemas of a package of types."""
    compressed = (SOURCE / f"{package}.json.gz").read_bytes()
    types: dict[str, Any] = json.loads(gzip.decompress(compressed))
    return types
