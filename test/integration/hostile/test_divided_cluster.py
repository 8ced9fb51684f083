"""Two operators that divide a cluster by namespaces or labels: neither sends a request about the other's objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from cfo.api.raycluster.names import CLUSTER_LABEL, FIELD_MANAGER, RAY_CLUSTER
from cfo.controllers import raycluster
from cfo.controllers.raycluster.policies import desired_default_deny
from cfo.runtime.client.transport import APIRequest, Response, Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import CLUSTER_ROLE_BINDING, NETWORK_POLICY
from cfo.runtime.objects.unstructured import Object, key_of, name_of, resource_version_of
from test.support.planes import local_config
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    start_environment,
)

SETTINGS = {**OAUTH_SETTINGS, "operatorNamespaces": ["kuberay"]}
LONG_NAME = "a-name-that-is-too-long-for-the-value-of-a-label-" + 20 * "x"


class RecordingTransport(Transport):
    """Records method and path of each request, except for watches."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sent: list[str] = []

    async def request(self, request: APIRequest) -> Response:
        self.sent.append(f"{request.method} {request.path}")
        return await super().request(request)


class Part(NamedTuple):
    """The operator of a part of the RayClusters."""

    manager: Manager
    sent: list[str]

    async def wait_until_idle(self, bindings: Iterable[Object]) -> None:
        """Wait until the operator has seen these ClusterRoleBindings, and has nothing left to do."""
        reader = self.manager.cache.informer(CLUSTER_ROLE_BINDING).reader
        versions = {key_of(binding): resource_version_of(binding) for binding in bindings}

        async def is_idle() -> bool:
            for key, version in versions.items():
                entry = reader.entry(key)
                if entry is None or int(entry.meta.resource_version) < int(version):
                    return False
            queues = [controller.queue for controller in self.manager.controllers]
            return all(len(queue) == 0 and queue.processing == 0 for queue in queues)

        await eventually(is_idle, "no work for the operator")


@asynccontextmanager
async def run_part(env: Environment, **part: Any) -> AsyncIterator[Part]:
    """Run an operator for one part of the RayClusters, until the block ends."""
    target = local_config(env.plane)
    async with RecordingTransport(target) as transport:
        options = ManagerOptions(
            field_manager="codeflare-operator", field_managers=[FIELD_MANAGER], **part
        )
        manager = Manager(transport, options)
        raycluster.setup(manager, kuberay_config(**SETTINGS))
        async with manager:
            await manager.started()
            yield Part(manager, transport.sent)


async def bindings(env: Environment) -> list[Object]:
    return await env.client.list(CLUSTER_ROLE_BINDING, label_selector=CLUSTER_LABEL)


async def wait_for_bindings(env: Environment, number: int) -> list[Object]:
    async def exist() -> list[Object] | None:
        found = await bindings(env)
        return found if len(found) == number else None

    found: list[Object] = await eventually(exist, f"{number} ClusterRoleBindings")
    return found


async def test_operator_of_some_namespaces_sends_no_request_about_others() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        for namespace in ("team-a", "team-b"):
            await env.create_namespace(namespace)
        for name in ("rc", LONG_NAME):
            await env.create(ray_cluster(name, "team-a"))
        await env.create(ray_cluster(namespace="team-b"))
        async with run_part(env, namespaces=["team-a"]) as first:
            of_first = await wait_for_bindings(env, 2)
            async with run_part(env, namespaces=["team-b"]) as second:
                await second.wait_until_idle(await wait_for_bindings(env, 3))
                for binding in of_first:
                    changed = await env.patch(binding, {"metadata": {"labels": {"a": "b"}}})
                    await second.wait_until_idle([changed])
                await env.delete(of_first[0])
                await second.wait_until_idle(await wait_for_bindings(env, 3))
        about_first = [f"/{name_of(binding)}" for binding in of_first]
        about_first.append("/namespaces/team-a/")
        found = [line for line in second.sent if any(part in line for part in about_first)]
        assert found == []
        assert [line for line in first.sent if "/namespaces/team-b/" in line] == []
        assert [line for line in second.sent if "/namespaces/team-b/" in line]


async def test_operator_of_some_labels_writes_nothing_of_others() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace("team")
        for name, part in (("rc", "a"), (LONG_NAME, "a"), ("own", "b")):
            cluster = ray_cluster(name, "team")
            cluster["metadata"]["labels"] = {"part": part}
            await env.create(cluster)
        async with run_part(env, selectors={RAY_CLUSTER: "part=a"}) as first:
            of_first = await wait_for_bindings(env, 2)
            await first.wait_until_idle(of_first)
            policies = await env.client.list(NETWORK_POLICY, namespace="team")
            async with run_part(env, selectors={RAY_CLUSTER: "part=b"}) as second:
                await second.wait_until_idle(await wait_for_bindings(env, 3))
                for binding in of_first:
                    changed = await env.patch(binding, {"metadata": {"labels": {"a": "b"}}})
                    await second.wait_until_idle([changed])
        names = [f"/{name_of(obj)}" for obj in (*of_first, *policies)]
        names += ["/rayclusters/rc", f"/rayclusters/{LONG_NAME}"]
        writes = [line for line in second.sent if not line.startswith("GET ")]
        assert writes
        assert [line for line in writes if any(name in line for name in names)] == []


@pytest.mark.parametrize("part", ["", "part=b"])
async def test_only_an_operator_of_all_rayclusters_deletes_old_default_deny_policies(
    part: str,
) -> None:
    """Another operator may have selected the namespace."""
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace("team")
        policy = await env.create(desired_default_deny("team"))
        cluster = ray_cluster("own", "team")
        cluster["metadata"]["labels"] = {"part": "b"}
        await env.create(cluster)
        async with run_part(env, selectors={RAY_CLUSTER: part}) as operator:
            await operator.wait_until_idle(await wait_for_bindings(env, 1))
            found = await env.client.get(NETWORK_POLICY, key_of(policy))
            assert (found is not None) is bool(part)
