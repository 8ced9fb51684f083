"""Recordings of the Go operator with RayClusters, in the form in which tests compare them."""

from __future__ import annotations

import copy
import re
from functools import cache
from typing import Any

import yaml

from cfo.runtime.objects import Object
from test.support.recordings import RAYCLUSTER

CONFIGURATIONS = [
    f"{platform}-{oauth}-{mtls}"
    for platform in ("k8s", "os")
    for oauth in ("oauth", "plain")
    for mtls in ("clear", "mtls")
]


def definitions(*, openshift: bool) -> list[Object]:
    names = ["ray.io_rayclusters"]
    if openshift:
        names += ["route.openshift.io_routes", "minimal_config_ingresses", "minimal_dscinitializations"]
    return [copy.deepcopy(_definition(name)) for name in names]


@cache
def _definition(name: str) -> Object:
    path = RAYCLUSTER.parents[1] / "crds" / f"{name}.yaml"
    found: Object = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found


def as_persisted(obj: Object) -> Object:
    """A recorded object, as it can be created again."""
    drop = {"uid", "creationTimestamp", "generation", "managedFields", "resourceVersion"}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in drop}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


def managed(obj: Object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = obj["metadata"].get("managedFields") or []
    return found


def comparable(obj: Object) -> Object:
    """What must be the same: all but what a server gives, and the content of Secrets."""
    same = {key: value for key, value in obj.items() if key not in ("status", "metadata", "data")}
    metadata = {key: obj["metadata"].get(key) for key in ("name", "namespace", "labels", "annotations")}
    metadata["owners"] = [
        {key: value for key, value in reference.items() if key != "uid"}
        for reference in obj["metadata"].get("ownerReferences") or ()
    ]
    if obj["kind"] == "Service":
        same["spec"] = {key: value for key, value in obj["spec"].items() if not re.fullmatch("clusterIPs?", key)}
    if obj["kind"] == "Secret":
        same["keys"] = sorted(obj.get("data") or ())
    return {**same, "metadata": metadata}


COMPLETED = {"name-of-63", "name-with-dots"}
"""The Go operator's half a set is made a whole one, and its Routes lead to the Service that there is now."""
