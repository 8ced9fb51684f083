"""Recordings of the Go operator with RayClusters, normalized for comparison."""

from __future__ import annotations

import re
from typing import Any

from cfo.api.raycluster.certificates import RENEWAL_ANNOTATION
from cfo.runtime.objects.unstructured import Object, annotations_of
from test.support.recordings import load_crd
from test.support.sweeps import ALL

CONFIGURATIONS = [
    f"{platform}-{oauth}-{mtls}"
    for platform in ("k8s", "os")
    for oauth in ("oauth", "plain")
    for mtls in ("clear", "mtls")
]
PAIRS = ["k8s-oauth-clear", "k8s-plain-mtls", "os-oauth-mtls", "os-plain-clear"]
"""Four configurations that together have each pair of two settings, and that of OpenShift with all settings."""
TESTED_CONFIGURATIONS = CONFIGURATIONS if ALL else PAIRS
"""The configurations that this run tries: all in a run with all cases, otherwise the pairs."""


def recorded_crds(*, openshift: bool) -> list[Object]:
    """Return the CRDs of the recorded clusters; tests share them and must not modify them."""
    names = ["ray.io_rayclusters"]
    if openshift:
        names += [
            "route.openshift.io_routes",
            "minimal_config_ingresses",
            "minimal_dscinitializations",
        ]
    return [load_crd(name) for name in names]


def without_server_fields(obj: Object) -> Object:
    """Return a recorded object without status and the metadata that an API server sets, so that it can be created."""
    server_fields = {"uid", "creationTimestamp", "generation", "managedFields", "resourceVersion"}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in server_fields}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


def managed_fields(obj: Object) -> list[dict[str, Any]]:
    """Return the managedFields of an object."""
    found: list[dict[str, Any]] = obj["metadata"].get("managedFields") or []
    return found


def comparable_part(obj: Object) -> Object:
    """Return all fields except status, fields that an API server sets, and the content of Secrets.

    The annotation with the renewal of a CA, which only this operator sets, is left out as well.
    """
    part = {key: value for key, value in obj.items() if key not in ("status", "metadata", "data")}
    metadata = {
        key: obj["metadata"].get(key) for key in ("name", "namespace", "labels", "annotations")
    }
    metadata["owners"] = [
        {key: value for key, value in reference.items() if key != "uid"}
        for reference in obj["metadata"].get("ownerReferences") or ()
    ]
    if obj["kind"] == "Service":
        part["spec"] = {
            key: value for key, value in obj["spec"].items() if not re.fullmatch("clusterIPs?", key)
        }
    if obj["kind"] == "Secret":
        annotations = {
            key: value for key, value in annotations_of(obj).items() if key != RENEWAL_ANNOTATION
        }
        metadata["annotations"] = annotations or None
        part["keys"] = sorted(obj.get("data") or ())
    return {**part, "metadata": metadata}


PARTLY_RECONCILED = {"name-of-63", "name-with-dots"}
"""Recordings in which the Go operator creates only some of the children; this one creates them all.

The Routes differ, too: here they point to the proxy's Service under its shortened name.
"""
