"""Kueue's LocalQueues, for tests that do not need their specs."""

from __future__ import annotations

from typing import Final

from cfo.api.kueue import LOCAL_QUEUES
from cfo.runtime import Object
from cfo.runtime.objects import new_object

LOCAL_QUEUE: Final = LOCAL_QUEUES[0]


def local_queue_crd() -> Object:
    """Return a CRD of LocalQueues that accepts any spec."""
    version = {
        "name": LOCAL_QUEUE.version,
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        },
    }
    names = {"kind": "LocalQueue", "plural": "localqueues"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"localqueues.{LOCAL_QUEUE.group}"},
        "spec": {
            "group": LOCAL_QUEUE.group,
            "names": names,
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def local_queue(name: str, namespace: str) -> Object:
    """Return a LocalQueue."""
    return new_object(LOCAL_QUEUE, name, namespace, spec={"clusterQueue": "cluster"})
