"""Reads the active pods of a namespace that have lost the label by which the pods of AppWrappers are cached.

Users can remove the label from a running pod. So before quota is released, these pods are read from the API server: one
request for each AppWrapper that ends, in pages of metadata, of which only names and controllers are decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from cfo.api.appwrapper.names import APPWRAPPER_LABEL
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.runtime import POD, Client, NamespacedName
from cfo.runtime.client import APIRequest

_PAGE_SIZE: Final = "100"
_MAX_PAGE_BYTES: Final = 64 << 20
"""More than the metadata of a page can have, compressed or not."""
_ACCEPT: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class _Owner(msgspec.Struct, gc=False):
    uid: str = ""
    controller: bool | None = None


class _PodMeta(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None
    owner_references: list[_Owner] | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _PodMeta


class _PageMeta(msgspec.Struct, gc=False, rename="camel"):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, gc=False):
    metadata: _PageMeta
    items: list[_Pod] | None = None


_decoder = msgspec.json.Decoder(_Page)


async def unlabelled_pods(
    client: Client, namespace: str, ancestors: Mapping[str, str]
) -> list[WrapperPod]:
    """Return the active pods in ``namespace`` without the label that, or whose controller, is in ``ancestors``.

    ``ancestors`` maps the uids of pods and controllers to that of the component or AppWrapper from which they descend.
    Raises the errors of API requests.
    """
    params = {
        "labelSelector": f"!{APPWRAPPER_LABEL}",
        "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
        "limit": _PAGE_SIZE,
    }
    found: list[WrapperPod] = []
    while True:
        request = APIRequest(
            "GET",
            f"/api/{POD.version}/namespaces/{namespace}/pods",
            params=params,
            accept=_ACCEPT,
            compress=True,
            max_response_bytes=_MAX_PAGE_BYTES,
            verb="list",
            resource="pods",
        )
        page = _decoder.decode((await client.transport.request(request)).body)
        for pod in page.items or ():
            metadata = pod.metadata
            ancestor = ancestors.get(metadata.uid) or ancestors.get(_controller(metadata), "")
            if ancestor:
                found.append(_active(namespace, metadata, ancestor))
        if not page.metadata.continue_:
            return found
        params = {**params, "continue": page.metadata.continue_}


def _controller(metadata: _PodMeta) -> str:
    """Return the uid of the controller of a pod; empty if it has none."""
    for owner in metadata.owner_references or ():
        if owner.controller:
            return owner.uid
    return ""


def _active(namespace: str, metadata: _PodMeta, ancestor: str) -> WrapperPod:
    """Return a pod that counts as waiting: whether it runs is not in its metadata, and does not matter."""
    return WrapperPod(
        phase="Pending",
        deleting=metadata.deletion_timestamp is not None,
        key=NamespacedName(namespace, metadata.name),
        uid=metadata.uid,
        ancestor=ancestor,
    )
