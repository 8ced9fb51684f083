"""Reads the metadata of a namespace's pods from the API server, for decisions that a cache by label cannot make.

Users can remove labels. The lists have pages, of which only the fields of :class:`PodMeta` are decoded.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cfo.api.appwrapper.names import APPWRAPPER_LABEL
from cfo.runtime import POD, Client
from cfo.runtime.cache import OwnerReference
from cfo.runtime.client import METADATA_LIST, APIRequest, listed_items
from cfo.runtime.process import decode_object

ACTIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of pods that have not ended."""

SUCCEEDED: Final = "status.phase=Succeeded"
"""The field selector of pods that have succeeded."""

_ON_NODE: Final = f"{ACTIVE},spec.nodeName!="
"""The field selector of pods that have not ended and that have a node."""

_PAGE_SIZE: Final = 100
"""The number of pods of a page."""


class _Labels(msgspec.Struct, gc=False):
    wrapper: str = msgspec.field(default="", name=APPWRAPPER_LABEL)


class PodMeta(msgspec.Struct, gc=False, rename="camel"):
    """The metadata of a pod that shows which one it is, and from which AppWrapper it descends."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: list[OwnerReference] | None = None
    labels: _Labels | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference whose ``controller`` is true, or ``None``."""
        for owner in self.owner_references or ():
            if owner.controller:
                return owner.limited()
        return None

    def drop_other_owners(self) -> None:
        """Keep only the controller, because lists are kept, and owner references can be of any number and length."""
        controller = self.controller
        self.owner_references = [controller] if controller is not None else None

    @property
    def is_forced(self) -> bool:
        """Whether it is being deleted with a grace period of zero, as each pod without a node that is being deleted."""
        return self.deletion_timestamp is not None and self.deletion_grace_period_seconds == 0

    @property
    def wrapper_label(self) -> str:
        """The AppWrapper that its label names, or empty; any client can set the label."""
        return self.labels.wrapper if self.labels is not None else ""


class _Pod(msgspec.Struct, gc=False):
    metadata: PodMeta


_pods = msgspec.json.Decoder(_Pod)


async def list_pods(
    client: Client, namespace: str, *, labels: str = "", fields: str = ACTIVE
) -> list[PodMeta]:
    """Return the metadata of the pods that both selectors match. Raises the errors of API requests."""
    request = APIRequest(
        "GET",
        f"/api/{POD.version}/namespaces/{namespace}/pods",
        params={"labelSelector": labels, "fieldSelector": fields},
        accept=METADATA_LIST,
        compress=True,
        verb="list",
        resource="pods",
    )
    found: list[PodMeta] = []
    async for item in listed_items(client.transport, request, _PAGE_SIZE):
        pod = (await decode_object(_pods.decode, item)).metadata
        pod.drop_other_owners()
        found.append(pod)
    return found


async def list_pods_that_can_run(client: Client, namespace: str) -> list[PodMeta]:
    """Return the metadata of the active pods, without those that are being deleted and have no node.

    Such a pod never gets a node: schedulers skip it, and the API server refuses the binding. But its finalizers, which
    are its tenant's, can keep it. Metadata has no node, so a second list has the pods with one, if that matters. Raises
    the errors of API requests.
    """
    active = await list_pods(client, namespace)
    if not any(pod.is_forced for pod in active):
        return active
    on_nodes = {pod.uid for pod in await list_pods(client, namespace, fields=_ON_NODE)}
    return [pod for pod in active if not pod.is_forced or pod.uid in on_nodes]
