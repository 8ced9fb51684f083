"""The operators of two major versions as OLM installs them: with the configuration and permissions of their bundles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import yaml

from cfo import operator
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.kinds import LEASE, SERVICE_ACCOUNT
from cfo.runtime.objects.unstructured import NamespacedName
from envtest import EmbeddedControlPlane
from test.support.inference_environment import (
    InferenceEnvironment,
    new_stack,
    start_inference_environment,
)
from test.support.planes import local_config

ROOT = Path(__file__).parents[2]
LOOPBACK = {"bindAddress": "127.0.0.1:0"}


async def install(env: InferenceEnvironment, major: str) -> str:
    """Create what OLM creates from the bundle: ConfigMap, service account and permissions. Return a token."""
    folder = ROOT / "deploy" / "inference-stack" / major / "manifests"
    objects = {
        obj["kind"]: obj
        for path in folder.glob("*.yaml")
        for obj in yaml.safe_load_all(path.read_text())
    }
    config_map, csv = objects["ConfigMap"], objects["ClusterServiceVersion"]
    document = yaml.safe_load(config_map["data"]["config.yaml"])
    document |= {
        "metrics": LOOPBACK,
        "health": LOOPBACK,
        "webhook": {"enabled": False},
    }  # both run on this machine
    config_map["data"]["config.yaml"] = yaml.safe_dump(document)
    config_map["metadata"]["namespace"] = "olm"
    await env.create(config_map)
    spec = csv["spec"]["install"]["spec"]
    permissions = [*spec["permissions"], *spec["clusterPermissions"]]
    (name,) = {each["serviceAccountName"] for each in permissions}
    account = {"kind": "ServiceAccount", "name": name, "namespace": "olm"}
    await env.create(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": "olm"},
        }
    )
    api = "rbac.authorization.k8s.io"
    rules = [
        rule for each in permissions for rule in each["rules"]
    ]  # OLM v1 grants all of them in the cluster
    role: dict[str, Any] = {
        "apiVersion": f"{api}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
    }
    await env.create({**role, "rules": rules})
    reference = {"apiGroup": api, "kind": "ClusterRole", "name": name}
    await env.create(
        {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [account]}
    )
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": {},
    }
    response = await env.client.create_subresource(
        SERVICE_ACCOUNT, NamespacedName("olm", name), "token", request
    )
    token: str = response["status"]["token"]
    return token


@asynccontextmanager
async def run_operator(env: InferenceEnvironment, major: str) -> AsyncIterator[Manager]:
    """Run the operator of the bundle ``major`` until the end of the block."""
    token = await install(env, major)
    target = local_config(env.plane, token=token)
    key = NamespacedName("olm", f"inference-stack-operator-{major}")
    async with anyio.create_task_group() as group:

        async def run(*, task_status: anyio.abc.TaskStatus[Manager]) -> None:
            await operator.run(target, key, handle_signals=False, task_status=task_status)

        manager: Manager = await group.start(run)
        yield manager
        manager.stop()


async def test_operators_of_two_major_versions_share_a_cluster() -> None:
    async with start_inference_environment() as env:
        await env.create_namespace("olm")
        async with run_operator(env, "v1"), run_operator(env, "v2"):
            for version in ("v1", "v2"):
                await env.create(new_stack({"a": {}}, name=f"stack-{version}", version=version))
            for version in ("v1", "v2"):
                await env.wait_for_condition("Ready", "True", name=f"stack-{version}")
                obj = await env.stack(f"stack-{version}")
                assert obj["status"]["operator"]["major"] == version
                lease = await env.get(LEASE, f"inference-stack-operator-{version}", "olm")
                assert lease["spec"]["holderIdentity"]
            before, count = await env.generations(), len(audit_events(env))
            await env.label("v2", name="stack-v1")
            await env.wait_for(
                lambda obj: obj["status"]["operator"]["major"] == "v2",
                "the other operator",
                name="stack-v1",
            )
            assert await env.generations() == before, "a change of the label restarts no pod"
            written = {
                event["objectRef"]["resource"]
                for event in audit_events(env)[count:]
                if event["verb"] in ("create", "delete", "patch", "update")
                and event["objectRef"]["namespace"] == "ns"
            }
            assert written <= {"inferencestacks", "events"}, (
                "the new operator writes only the status"
            )
        denied = [
            f"{event['verb']} {event['requestURI']}"
            for event in audit_events(env)
            if event["responseStatus"]["code"] in (401, 403)
        ]
        assert denied == []


def audit_events(env: InferenceEnvironment) -> list[dict[str, Any]]:
    """Return the audit events of the requests of both operators."""
    assert isinstance(env.plane, EmbeddedControlPlane)
    users = {
        f"system:serviceaccount:olm:inference-stack-operator-{major}" for major in ("v1", "v2")
    }
    return [event for event in env.plane.audit.events if event["user"]["username"] in users]
