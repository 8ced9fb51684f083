"""The objects that an API server stores: pruned, defaulted and valid according to their CRD, with valid metadata."""

from __future__ import annotations

import copy
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import orjson

from cfo.console.demo import crds
from cfo.manifests.overlays import crds as own_crds
from cfo.runtime.objects.unstructured import Object
from envtest.apimachinery.errors import StatusError
from envtest.crd.custom_resource_strategy import CustomResourceStrategy
from envtest.registry.resource import RequestContext

__all__ = ["as_stored"]

_CONTEXT = cast("RequestContext", SimpleNamespace(subresource="", warn=lambda _: None))


def as_stored(obj: Object, name: str = "", namespace: str = "ns") -> Object | None:
    """Return ``obj`` as an API server stores it, or ``None`` if it rejects it.

    Of the metadata, only labels, annotations and the time of deletion are kept. ``name``: the default is the object's.
    """
    stored = copy.deepcopy(obj)
    metadata = stored.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    current = metadata.get("name")
    stored["metadata"] = {
        "name": name or (current if isinstance(current, str) and current.isalnum() else "x"),
        "namespace": namespace,
        "uid": "0b6b2e8e-6d1a-4b1c-9f4e-000000000000",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **{
            field: _strings(metadata.get(field))
            for field in ("labels", "annotations")
            if field in metadata
        },
    }
    if metadata.get("deletionTimestamp"):
        stored["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    api_version = stored.get("apiVersion")
    if not isinstance(api_version, str):
        return None
    strategy = _strategy(str(stored.get("kind")), api_version)
    if strategy is None:
        return None
    try:
        stored = orjson.loads(orjson.dumps(stored))
        strategy.decode(stored, _CONTEXT)
        strategy.default(stored)
        return None if strategy.validate(stored, None, _CONTEXT) else stored
    except (StatusError, TypeError):  # TypeError: cannot be encoded
        return None


def _strings(value: Any) -> dict[str, str]:
    items = value.items() if isinstance(value, dict) else ()
    return {name: item for name, item in items if isinstance(name, str) and isinstance(item, str)}


@cache
def _strategy(kind: str, api_version: str) -> CustomResourceStrategy | None:
    """Return the strategy of a kind: of the group in ``api_version``, if several groups have it."""
    found = None
    for crd in (*crds.load(), *own_crds()):
        if crd["spec"]["names"]["kind"] == kind:
            version = crd["spec"]["versions"][0]
            served = f"{crd['spec']['group']}/{version['name']}"
            if found is None or served == api_version:
                schema = version["schema"]["openAPIV3Schema"]
                found = CustomResourceStrategy(kind, served, schema, has_status=True)
                found.versions = {served: found}
    return found
