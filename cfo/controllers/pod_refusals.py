"""Asks the API server why it refuses pods of an object, which the status of a Job or StatefulSet does not say.

A pod is created as a dry run from the pod template of the object: quotas, LimitRanges, Pod Security and webhooks check
it as the real ones, and nothing is stored.
"""

from __future__ import annotations

from typing import Final

from cfo.api.job_pods import JOB_UID_LABELS
from cfo.runtime import (
    JOB,
    POD,
    Client,
    Forbidden,
    Invalid,
    Object,
    gvk_of,
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
    """Return a pod of ``obj``, without what ties it to a Job.

    In namespaces of tenants, the API server lets only the Job controller write these labels and controller references,
    and would give that as the reason.
    """
    is_job = gvk_of(obj) == JOB
    metadata = template.get("metadata") or {}
    labels = metadata.get("labels") or {}
    if is_job:
        labels = {name: value for name, value in labels.items() if name not in JOB_UID_LABELS}
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            "generateName": f"{name_of(obj)}-",
            "namespace": key_of(obj).namespace,
            "labels": labels,
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [owner_reference(obj, controller=not is_job)],
        },
        "spec": template["spec"],
    }
