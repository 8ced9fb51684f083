"""The table of types with which admission checks RayClusters in AppWrappers: ``cfo/api/raycluster/types.json``.

The source is the CRD of the KubeRay release that the package ships. The format is that of
``cfo/api/builtin_types.json``. Pod templates are ``object``: other functions check them.
"""

from __future__ import annotations

from typing import Any

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.console.demo import crds
from hack.generate.builtin_types import released_types
from hack.release.stack import load

TARGET = "cfo/api/raycluster/types.json"

_Types = dict[str, dict[str, str]]


def files() -> dict[str, str]:
    """Return the content of the generated file, by its path from the root of the repository."""
    return {TARGET: table()}


def table() -> str:
    """Return the table: the spec, and each object in it as a type that is named by its path."""
    types: _Types = {}
    _shape("RayClusterSpec", _spec_schema(), types)
    return released_types(f"KubeRay {_kuberay_release()}", types)


def _kuberay_release() -> str:
    """Return the minor release of KubeRay in ``config/stack.yaml``, whose CRD the package ships."""
    (version,) = (each["version"] for each in load() if each["name"] == "KubeRay")
    return version.removeprefix("v").rpartition(".")[0]


def _spec_schema() -> dict[str, Any]:
    for crd in crds.load():
        if crd["spec"]["names"]["kind"] != RAY_CLUSTER.kind:
            continue
        for version in crd["spec"]["versions"]:
            if version["name"] == RAY_CLUSTER.version:
                schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
                return schema
    raise AssertionError(f"no CRD of {RAY_CLUSTER}")


def _shape(name: str, node: dict[str, Any], types: _Types) -> str:
    """Return the shape of a field called ``name``, a path; the types of objects in it are added to ``types``."""
    if node.get("x-kubernetes-int-or-string"):
        return "IntOrString"
    kind = node["type"]
    if kind == "array":
        return f"[{_shape(name, node['items'], types)}]"
    if kind == "integer":
        return str(node.get("format", "int64"))
    if kind != "object":
        return str(kind)
    if "additionalProperties" in node:
        return f"{{{_shape(name, node['additionalProperties'], types)}}}"
    if "properties" not in node or name.endswith(".template"):
        return "object"
    types[name] = {
        field: _shape(f"{name}.{field}", child, types)
        for field, child in sorted(node["properties"].items())
    }
    return name
