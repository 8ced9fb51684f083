"""Admission of MiniClusters, FluxJobs and FluxSetups by an API server with the operator's webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from cfo.api.flux.models.minicluster import minicluster_crd
from cfo.api.flux.models.queue import fluxjob_crd, fluxsetup_crd
from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER, QUOTA_RESERVED
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.unstructured import GVK, Object
from cfo.webhooks import flux
from envtest import ControlPlane
from envtest.api_client import APIClient, Response
from test.support.config_map_webhooks import OPTIONS, free_url, wait_until

VALID: dict[GVK, dict[str, Any]] = {
    MINICLUSTER: {"size": 2, "containers": [{"image": "ubuntu", "command": "hostname"}]},
    FLUX_JOB: {"size": 2, "command": "sleep"},
    FLUX_SETUP: {"max-size": 20, "mini-cluster": {"size": 1}},
}
INVALID: dict[GVK, tuple[dict[str, Any], str]] = {
    MINICLUSTER: ({"maxSize": 1}, "spec.maxSize: Invalid value: 1: must not be less than size (2)"),
    FLUX_JOB: (
        {"resources": {"requests": {"cpu": "-1"}}},
        'spec.resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ),
    FLUX_SETUP: (
        {"queue": "Kueue"},
        "spec.kueue.localQueue: Required value: must be set if queue is Kueue",
    ),
}


def path_of(kind: GVK, name: str = "") -> str:
    path = f"/apis/{kind.group}/{kind.version}/namespaces/default/{kind.kind.lower()}s"
    return f"{path}/{name}" if name else path


def build(kind: GVK, name: str, **spec: Any) -> Object:
    """Return a valid object of ``kind`` with these fields of its spec."""
    version = f"{kind.group}/{kind.version}"
    return {
        "apiVersion": version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "spec": {**VALID[kind], **spec},
    }


async def patch(api: APIClient, kind: GVK, name: str, body: Any, subresource: str = "") -> Response:
    path = path_of(kind, name) + (f"/{subresource}" if subresource else "")
    return await api.request("PATCH", path, body, content_type="application/merge-patch+json")


@asynccontextmanager
async def admission() -> AsyncIterator[APIClient]:
    """Run a control plane and a manager with the webhooks until the end of the block.

    Before the webhooks are registered, an object ``old`` of each kind is created, which they would reject.
    """
    crds = [minicluster_crd(), fluxjob_crd(), fluxsetup_crd()]
    async with ControlPlane.auto(crds=crds) as plane, APIClient(plane) as api:
        for kind, (invalid, _) in INVALID.items():
            assert (await api.post(path_of(kind), build(kind, "old", **invalid))).code == 201
        async with Transport(ClientConfig.for_control_plane(plane)) as transport:
            webhook = replace(OPTIONS, url=free_url())
            manager = Manager(
                transport, ManagerOptions(field_manager="codeflare-operator", webhook=webhook)
            )
            flux.setup(manager, ["admins"])
            async with manager:
                await manager.started()
                for kind, (invalid, _) in INVALID.items():

                    async def is_webhook_called(
                        kind: GVK = kind, invalid: dict[str, Any] = invalid
                    ) -> bool:
                        probe = build(kind, "probe", **invalid)
                        return (
                            await api.post(path_of(kind), probe, query={"dryRun": "All"})
                        ).code == 403

                    await wait_until(is_webhook_called, f"the webhook of {kind.kind}")
                yield api


async def test_invalid_objects_are_rejected_with_path_and_value() -> None:
    async with admission() as api:
        for kind, (invalid, message) in INVALID.items():
            rejected = await api.post(path_of(kind), build(kind, "new", **invalid))
            assert rejected.code == 403
            assert message in rejected.body["message"]
            assert (await api.post(path_of(kind), build(kind, "new"))).code == 201
            assert (await patch(api, kind, "new", {"spec": invalid})).code == 403

            # Objects that were created before the webhooks can be labeled, mended and deleted.
            assert (await patch(api, kind, "old", {"metadata": {"labels": {"a": "b"}}})).code == 200
            assert (await patch(api, kind, "old", {"spec": dict.fromkeys(invalid)})).code == 200
            assert (await api.delete(path_of(kind, "old"))).code == 200

        # A FluxJob that holds quota is immutable, except for its priority.
        condition = {"type": QUOTA_RESERVED, "status": "True", "reason": "Admitted", "message": ""}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        status = {"status": {"jobid": "new-1", "conditions": [condition]}}
        assert (await patch(api, FLUX_JOB, "new", status, "status")).code == 200
        changed = await patch(api, FLUX_JOB, "new", {"spec": {"command": "hostname"}})
        assert (changed.code, "spec.command: Forbidden" in changed.body["message"]) == (403, True)
        assert (await patch(api, FLUX_JOB, "new", {"spec": {"priority": 5}})).code == 200
        queued = await patch(
            api, FLUX_JOB, "new", {"metadata": {"labels": {QUEUE_NAME_LABEL: "x"}}}
        )
        assert (queued.code, "queue-name]: Forbidden" in queued.body["message"]) == (403, True)

        # Fields without an effect cause warnings.
        for kind, fields, warning in (
            (MINICLUSTER, {"flux": {"arch": "arm64"}}, "spec.flux.arch: has no effect"),
            (
                FLUX_JOB,
                {"priority": 5, "template": {"jobLabels": {QUEUE_NAME_LABEL: "lq"}}},
                "spec.priority: has no effect with a queue of Kueue",
            ),
            (
                FLUX_SETUP,
                {"namespaceSelector": {}},
                "spec.namespaceSelector: the FluxSetup is inactive",
            ),
        ):
            created = await api.post(path_of(kind), build(kind, "warned", **fields))
            assert created.code == 201
            assert warning in created.headers["Warning"]

        # A FluxSetup can leave the jobs of its namespace to Kueue.
        kueue = build(FLUX_SETUP, "kueue", queue="Kueue", kueue={"localQueue": "lq"})
        assert (await api.post(path_of(FLUX_SETUP), kueue)).code == 201
        active = {"type": "Active", "status": "True", "reason": "Ready", "message": ""}
        active["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        assert (
            await patch(api, FLUX_SETUP, "kueue", {"status": {"conditions": [active]}}, "status")
        ).code == 200

        async def is_warned() -> bool:
            answer = await api.post(
                path_of(FLUX_JOB), build(FLUX_JOB, "probe", priority=5), query={"dryRun": "All"}
            )
            return "as FluxSetup default/kueue says" in answer.headers.get("Warning", "")

        await wait_until(is_warned, "the warning")

        # The schema rejects unknown strategies, also without webhooks.
        answer = await api.post(
            path_of(FLUX_SETUP), build(FLUX_SETUP, "unknown", queueingStrategy="LIFO")
        )
        assert answer.code == 422
        assert (
            'supported values: "BestEffortFIFO", "StrictFIFO", "Backfill"' in answer.body["message"]
        )
