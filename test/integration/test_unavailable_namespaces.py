"""A manager for several namespaces of which one is missing, or lacks the permissions that the others grant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from structlog.testing import capture_logs

from cfo.runtime import (
    CONFIG_MAP,
    GVK,
    NAMESPACE,
    SERVICE,
    Builder,
    ManagerOptions,
    NamespacedName,
    Object,
    Request,
    Result,
    Rule,
)
from cfo.runtime import Manager as RuntimeManager
from cfo.runtime.objects import new_object
from cfo.runtime.objects.rbac import READ, policy_rules
from test.support.operator_roles import RBAC
from test.support.planes import local_config
from test.support.raycluster_environment import Environment, eventually, start_environment
from test.support.tenant_clients import new_account_token

ACCOUNT = NamespacedName("default", "operator")
BOTH = Rule("", ("configmaps", "services"), READ)
NAMESPACES = Rule("", "namespaces", READ)
ROLE_BINDING = GVK(RBAC, "v1", "RoleBinding")
WARNING = "Permission denied in a namespace, leaving it out, will retry"


class Recorder:
    """Records its requests, and how many Services the cache has in their namespaces."""

    def __init__(self, manager: RuntimeManager) -> None:
        self._services = manager.cache.informer(SERVICE).reader
        self.seen: set[tuple[Request, int]] = set()

    async def reconcile(self, request: Request) -> Result:
        self.seen.add((request, len(self._services.list(request.namespace))))
        return Result()


class Setup:
    """A control plane with the roles of an operator, and its managers."""

    def __init__(self, environment: Environment, token: str) -> None:
        self.environment = environment
        self._config = local_config(environment.plane, token=token)

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[tuple[RuntimeManager, Recorder]]:
        """Run a manager for the namespaces ``a`` and ``b`` until the end of the block."""
        manager = RuntimeManager(self._config, ManagerOptions(namespaces=("a", "b")))
        recorder = Recorder(manager)
        builder = Builder(manager, "recorder").for_(CONFIG_MAP).owns(SERVICE)
        builder.complete(recorder)
        async with manager:
            await manager.ready()
            yield manager, recorder

    async def create_namespace(self, name: str) -> None:
        """Create a namespace with a ConfigMap and a Service."""
        await self.environment.create_namespace(name)
        await self.environment.create(new_object(CONFIG_MAP, "c", name))
        service = new_object(SERVICE, "s", name)
        await self.environment.create({**service, "spec": {"ports": [{"port": 80}]}})

    async def bind(self, namespace: str, role: str = "both") -> Object:
        """Grant the operator the permissions of a ClusterRole in a namespace; return the RoleBinding."""
        account = {
            "kind": "ServiceAccount",
            "name": ACCOUNT.name,
            "namespace": ACCOUNT.namespace,
        }
        binding = new_object(ROLE_BINDING, f"operator-{role}", namespace)
        reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
        return await self.environment.create(
            {**binding, "roleRef": reference, "subjects": [account]}
        )


@asynccontextmanager
async def start(*, may_watch_namespaces: bool = False) -> AsyncIterator[Setup]:
    async with start_environment() as environment:
        token = await new_account_token(environment.client, ACCOUNT)
        roles = {
            "both": BOTH,
            "config-maps": Rule("", "configmaps", READ),
            "namespaces": NAMESPACES,
        }
        for name, rule in roles.items():
            role = new_object(GVK(RBAC, "v1", "ClusterRole"), name)
            await environment.create({**role, "rules": policy_rules([rule])})
        setup = Setup(environment, token)
        if may_watch_namespaces:
            binding = new_object(GVK(RBAC, "v1", "ClusterRoleBinding"), "operator")
            subject = {
                "kind": "User",
                "name": f"system:serviceaccount:{ACCOUNT.namespace}:operator",
            }
            reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "namespaces"}
            await environment.create({**binding, "roleRef": reference, "subjects": [subject]})
        await setup.create_namespace("a")
        await setup.bind("a")
        yield setup


def left_out(manager: RuntimeManager) -> float | None:
    return manager.metrics.registry.get_sample_value("cfo_unavailable_namespaces")


def request(namespace: str, name: str = "c", *, services: int = 1) -> tuple[Request, int]:
    return Request(namespace, name), services


async def wait_for(recorder: Recorder, expected: tuple[Request, int]) -> None:
    async def is_seen() -> bool:
        return expected in recorder.seen

    await eventually(is_seen, f"the reconcile of {expected[0]}")


async def wait_until_left_out(manager: RuntimeManager, *, number: int) -> None:
    async def is_left_out() -> bool:
        return left_out(manager) == number

    await eventually(is_left_out, f"{number} namespaces that are left out")


async def wait_until_namespaces_are_watched(manager: RuntimeManager, *, expected: bool) -> None:
    async def is_expected() -> bool:
        found = [each for each in manager.cache.informers if each.gvk == NAMESPACE]
        return any(each.has_synced for each in found) if expected else not found

    await eventually(is_expected, "the watch of Namespaces" if expected else "its end")


@pytest.mark.parametrize("may_watch_namespaces", [False, True])
async def test_manager_starts_without_a_missing_namespace_and_serves_it_once_it_is_created(
    *, may_watch_namespaces: bool
) -> None:
    async with start(may_watch_namespaces=may_watch_namespaces) as setup:
        with capture_logs() as logs:
            async with setup.operator() as (manager, recorder):
                await wait_for(recorder, request("a"))
                assert left_out(manager) == 1
                if may_watch_namespaces:
                    await wait_until_namespaces_are_watched(manager, expected=True)
                state = manager._check_started()
                assert state.startswith("namespaces left out: b (missing rule {apiGroups: ")

                await setup.create_namespace("b")
                await setup.bind("b")

                await wait_for(recorder, request("b"))
                assert left_out(manager) == 0
                await wait_until_namespaces_are_watched(manager, expected=False)
                assert manager._check_started() == ""
        denied = [entry for entry in logs if "enied" in entry["event"]]
        assert [entry["event"] for entry in denied] == [WARNING]
        assert denied[0]["namespace"] == "b"


async def test_nothing_is_reconciled_in_a_namespace_in_which_one_kind_is_not_listed() -> None:
    async with start() as setup:
        await setup.create_namespace("b")
        await setup.bind("b", "config-maps")
        async with setup.operator() as (manager, recorder):
            await wait_for(recorder, request("a"))
            await setup.environment.create(new_object(CONFIG_MAP, "later", "b"))
            informer = manager.cache.informer(CONFIG_MAP)
            later = NamespacedName("b", "later")
            await informer.wait_for(later, lambda found: found is not None, timeout=120)
            await setup.environment.create(new_object(CONFIG_MAP, "later", "a"))
            await wait_for(recorder, request("a", "later"))
            assert {seen.namespace for seen, _ in recorder.seen} == {"a"}
            assert left_out(manager) == 1

            await setup.bind("b")

            await wait_for(recorder, request("b"))
            await wait_for(recorder, request("b", "later"))
            # Never as if the Service did not exist.
            assert {services for _, services in recorder.seen} == {1}


async def test_namespace_is_left_out_and_served_again_while_the_manager_runs() -> None:
    async with start() as setup:
        await setup.create_namespace("b")
        binding = await setup.bind("b")
        async with setup.operator() as (manager, recorder):
            await wait_for(recorder, request("a"))
            await wait_for(recorder, request("b"))
            assert left_out(manager) == 0

            await setup.environment.delete(binding)
            for informer in manager.cache.informers:
                informer.rebuild()  # as after the end of a watch
            await wait_until_left_out(manager, number=1)
            for namespace in ("a", "b"):
                await setup.environment.create(new_object(CONFIG_MAP, "later", namespace))
            await wait_for(recorder, request("a", "later"))
            assert request("b", "later") not in recorder.seen

            await setup.bind("b")
            await wait_for(recorder, request("b", "later"))
            await wait_until_left_out(manager, number=0)


async def test_controller_that_waits_for_its_permissions_leaves_no_namespace_out() -> None:
    """The permission is missing in all namespaces: the kind is forbidden, and the message names it once."""
    async with start() as setup:
        await setup.create_namespace("b")
        for binding in await setup.environment.client.list(ROLE_BINDING, namespace="a"):
            await setup.environment.delete(binding)
        for namespace in ("a", "b"):
            await setup.bind(namespace, "config-maps")
        with capture_logs() as logs:
            manager = RuntimeManager(setup._config, ManagerOptions(namespaces=("a", "b")))
            recorder = Recorder(manager)
            Builder(manager, "recorder").for_(CONFIG_MAP).owns(SERVICE).complete(recorder)
            async with manager:
                with anyio.fail_after(120):
                    services = manager.cache.informer(SERVICE)
                    await services.wait_for_sync(unless_forbidden=True)
                assert services.is_forbidden
                assert left_out(manager) == 0
                assert not recorder.seen
                for namespace in ("a", "b"):
                    await setup.bind(namespace)
                await wait_for(recorder, request("a"))
                await wait_for(recorder, request("b"))
        denied = [entry for entry in logs if entry["event"] == "Permission denied, will retry"]
        assert len(denied) == 1
