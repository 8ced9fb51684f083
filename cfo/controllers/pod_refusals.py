"""Asks the API server why it refuses pods of an object, which the status of a Job or StatefulSet does not say.

A pod is created as a dry run from the pod template of the object: quotas, LimitRanges, Pod Security and webhooks check
it as the real ones, and nothing is stored.
"""

from __future__ import annotations

from typing import Final

from cfo.runtime import (
    POD,
    Client,
    Forbidden,
    Invalid,
    Object,
    key_of,
    name_of,
    owner_reference,
)

_NO_PERMISSION: Final = "pods is forbidden: "
"""What the API server says if this operator has no permission to create pods; other refusals name the pod."""


async def refusal_of_pod(client: Client, obj: Object, template: Object) -> str:
    """Return why the API server refuses a pod of ``obj`` from its pod ``template``; empty if it does not.

    Sends one request. Raises its :class:`~cfo.runtime.APIError` if that says nothing about the pod, and
    :class:`~cfo.runtime.TransportError`.
    """
    try:
        await client.create(_pod_of(obj, template), dry_run=True)
    except (Forbidden, Invalid) as error:
        if error.message.startswith(_NO_PERMISSION):
            raise
        return error.message
    return ""


def _pod_of(obj: Object, template: Object) -> Object:
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            "generateName": f"{name_of(obj)}-",
            "namespace": key_of(obj).namespace,
            "labels": metadata.get("labels") or {},
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [owner_reference(obj)],
        },
        "spec": template["spec"],
    }
