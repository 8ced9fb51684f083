"""The controllers on the parts of a control plane, without a server around it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cfo.envtest.assembly import SYSTEM, assemble, boot
from cfo.envtest.context import RequestContext
from cfo.envtest.controllers import UnknownController, make_runner
from cfo.envtest.controllers.queue import KeyQueue
from cfo.envtest.core import Core
from cfo.envtest.deletion import delete_object
from cfo.envtest.errors import GroupResource
from cfo.envtest.options import DeleteOptions
from cfo.envtest.storage import Change
from cfo.envtest.write import copy_object, create_object, update_object
from cfo.runtime.objects import Object

CONFIG_MAPS = GroupResource("", "configmaps")
NAMESPACES = GroupResource("", "namespaces")
ROLES = GroupResource("rbac.authorization.k8s.io", "clusterroles")


class Plane:
    """What tests do to a control plane, and how they wait for what it does."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._changed = asyncio.Event()
        core.store.journal.append(self._observe)

    def _observe(self, resource: GroupResource, change: Change) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self._changed.clear()
                await self._changed.wait()
                await asyncio.sleep(0)

    def _context(
        self, verb: str, resource: GroupResource, name: str = "", namespace: str = "default"
    ) -> RequestContext:
        info = self.core.registry.any_version(*resource)
        assert info is not None
        operation = {"create": "CREATE", "update": "UPDATE", "delete": "DELETE"}[verb]
        return RequestContext(
            SYSTEM, verb, info, namespace if info.namespaced else "", name, operation=operation, field_manager="test"
        )

    async def create(self, name: str, *owners: Object, resource: GroupResource = CONFIG_MAPS, **content: Any) -> Object:
        ctx = self._context("create", resource)
        metadata: Object = {"name": name, **content.pop("metadata", {})}
        if ctx.info.namespaced:
            metadata.setdefault("namespace", "default")
            ctx.namespace = metadata["namespace"]
        if owners:
            metadata["ownerReferences"] = [reference(owner) for owner in owners]
        obj = {"apiVersion": ctx.info.api_version, "kind": ctx.info.kind, "metadata": metadata, **content}
        ctx.info.strategy.decode(obj, ctx)
        return await create_object(self.core, ctx, obj)

    async def delete(self, obj: Object, policy: str | None = None, resource: GroupResource = CONFIG_MAPS) -> None:
        ctx = self._context("delete", resource, obj["metadata"]["name"])
        await delete_object(self.core, ctx, DeleteOptions(propagation=policy))

    async def edit(self, obj: Object, change: Callable[[Object], Any], resource: GroupResource = CONFIG_MAPS) -> None:
        ctx = self._context("update", resource, obj["metadata"]["name"])

        async def transform(old: Object | None) -> Object:
            assert old is not None
            new = copy_object(old)
            change(new)
            return new

        await update_object(self.core, ctx, transform)

    def get(self, name: str, resource: GroupResource = CONFIG_MAPS, namespace: str = "default") -> Object | None:
        record = self.core.store.get(resource, namespace, name)
        return None if record is None else record.obj()

    def owners(self, name: str) -> list[str]:
        obj = self.get(name)
        assert obj is not None
        return [owner["name"] for owner in obj["metadata"].get("ownerReferences") or ()]


def reference(owner: Object, **more: Any) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        **more,
    }


@asynccontextmanager
async def plane(*controllers: str) -> AsyncIterator[Plane]:
    machine = assemble(admin_token="t", users={}, audit_log=None)
    await boot(machine)
    runner = make_runner(machine.core, controllers, authority=b"PEM")
    runner.start()
    try:
        yield Plane(machine.core)
    finally:
        await runner.stop()


async def test_children_and_grandchildren_go_with_their_owner() -> None:
    async with plane("gc") as world:
        owner = await world.create("owner")
        child = await world.create("child", owner)
        await world.create("grandchild", child)
        await world.delete(owner)
        await world.until(lambda: world.get("child") is None and world.get("grandchild") is None)


async def test_what_was_there_before_the_collector_is_collected() -> None:
    machine = assemble(admin_token="t", users={}, audit_log=None)
    await boot(machine)
    world = Plane(machine.core)
    owner = await world.create("owner")
    await world.create("child", owner)
    await world.delete(owner)
    runner = make_runner(machine.core, ["gc"])
    runner.start()
    try:
        await world.until(lambda: world.get("child") is None)
    finally:
        await runner.stop()


async def test_an_owner_of_another_uid_is_no_owner() -> None:
    async with plane("gc") as world:
        owner = await world.create("owner")
        stranger = copy_object(owner)
        stranger["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
        await world.create("kept", owner)
        await world.create("child", stranger)
        await world.until(lambda: world.get("child") is None)
        assert world.get("kept") is not None
        assert world.get("owner") is not None


async def test_one_owner_that_is_left_keeps_the_child() -> None:
    async with plane("gc") as world:
        one, two = await world.create("one"), await world.create("two")
        await world.create("child", one, two)
        await world.delete(one)
        await world.until(lambda: world.owners("child") == ["two"])
        await world.delete(two)
        await world.until(lambda: world.get("child") is None)


async def test_orphans_lose_their_reference_and_stay() -> None:
    async with plane("gc") as world:
        owner = await world.create("owner")
        await world.create("child", owner)
        await world.delete(owner, "Orphan")
        await world.until(lambda: world.get("owner") is None)
        assert world.owners("child") == []


async def test_foreground_waits_for_those_that_block() -> None:
    async with plane("gc") as world:
        owner = await world.create("owner")
        blocking = reference(owner, blockOwnerDeletion=True)
        held = {"finalizers": ["x.io/hold"]}
        child = await world.create("child", metadata={"ownerReferences": [blocking], **held})
        await world.create("loose", owner)
        await world.delete(owner, "Foreground")
        await world.until(lambda: (world.get("child") or {})["metadata"].get("deletionTimestamp"))
        await world.until(lambda: world.get("loose") is None)
        assert world.get("owner") is not None
        await world.edit(child, lambda obj: obj["metadata"].pop("finalizers"))
        await world.until(lambda: world.get("owner") is None)


async def test_foreground_goes_down_the_generations() -> None:
    async with plane("gc") as world:
        owner = await world.create("owner")
        child = await world.create("child", metadata={"ownerReferences": [reference(owner, blockOwnerDeletion=True)]})
        await world.create("grandchild", metadata={"ownerReferences": [reference(child, blockOwnerDeletion=True)]})
        await world.delete(owner, "Foreground")
        await world.until(lambda: world.get("owner") is None)
        assert world.get("child") is None
        assert world.get("grandchild") is None


async def test_circles_that_block_each_other_go() -> None:
    async with plane("gc") as world:
        one = await world.create("one")
        two = await world.create("two", metadata={"ownerReferences": [reference(one, blockOwnerDeletion=True)]})

        def close(obj: Object) -> None:
            obj["metadata"]["ownerReferences"] = [reference(two, blockOwnerDeletion=True)]

        await world.edit(one, close)
        await world.delete(one, "Foreground")
        await world.until(lambda: world.get("one") is None and world.get("two") is None)


async def test_what_is_owned_by_an_unknown_kind_stays() -> None:
    async with plane("gc") as world:
        owner = await world.create("owner")
        unknown = {**reference(owner), "apiVersion": "x.io/v1", "kind": "Nothing"}
        await world.create("child", metadata={"ownerReferences": [unknown]})
        await world.create("sentinel", {**owner, "metadata": {"name": "owner", "uid": "gone"}})
        await world.until(lambda: world.get("sentinel") is None)
        assert world.get("child") is not None


async def test_every_namespace_has_a_default_account() -> None:
    accounts = GroupResource("", "serviceaccounts")
    async with plane("serviceaccount") as world:
        await world.until(lambda: world.get("default", accounts) is not None)
        await world.create("new", resource=NAMESPACES)
        await world.until(lambda: world.get("default", accounts, "new") is not None)
        account = world.get("default", accounts)
        assert account is not None
        await world.delete(account, resource=accounts)
        await world.until(lambda: (world.get("default", accounts) or account) != account)


async def test_secrets_for_tokens_are_filled() -> None:
    secrets, accounts = GroupResource("", "secrets"), GroupResource("", "serviceaccounts")
    async with plane("serviceaccount") as world:
        await world.create("robot", resource=accounts)
        annotations = {"kubernetes.io/service-account.name": "robot"}
        await world.create(
            "token",
            resource=secrets,
            metadata={"annotations": annotations},
            type="kubernetes.io/service-account-token",
        )
        await world.until(lambda: "token" in ((world.get("token", secrets) or {}).get("data") or {}))
        secret = world.get("token", secrets)
        assert secret is not None
        assert secret["data"]["ca.crt"] == "UEVN"
        robot = world.get("robot", accounts)
        assert robot is not None
        assert secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == robot["metadata"]["uid"]
        await world.delete(robot, resource=accounts)
        await world.until(lambda: world.get("token", secrets) is None)


async def test_the_authority_is_published() -> None:
    async with plane("root-ca") as world:
        await world.until(lambda: world.get("kube-root-ca.crt") is not None)
        published = world.get("kube-root-ca.crt")
        assert published is not None
        assert published["data"] == {"ca.crt": "PEM"}
        await world.edit(published, lambda obj: obj.pop("data"))
        await world.until(lambda: (world.get("kube-root-ca.crt") or {}).get("data") == {"ca.crt": "PEM"})


def rule(resource: str) -> Object:
    return {"apiGroups": [""], "resources": [resource], "verbs": ["get"]}


async def test_roles_are_aggregated() -> None:
    async with plane("clusterrole-aggregation") as world:
        selectors = {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}
        await world.create("whole", resource=ROLES, aggregationRule=selectors)
        labels = {"labels": {"part": "yes"}}
        await world.create("b", resource=ROLES, metadata=dict(labels), rules=[rule("pods"), rule("secrets")])
        await world.create("a", resource=ROLES, metadata=dict(labels), rules=[rule("pods")])

        def rules() -> list[str]:
            whole = world.get("whole", ROLES, "") or {}
            return [each["resources"][0] for each in whole.get("rules") or ()]

        await world.until(lambda: rules() == ["pods", "secrets"])
        part = world.get("b", ROLES, "")
        assert part is not None
        await world.delete(part, resource=ROLES)
        await world.until(lambda: rules() == ["pods"])


def test_an_unknown_controller_is_refused_by_name() -> None:
    core = assemble(admin_token="t", users={}, audit_log=None).core
    with pytest.raises(UnknownController, match="'kubelet'"):
        make_runner(core, ["gc", "kubelet"])


async def test_a_queue_keeps_keys_apart_and_once() -> None:
    queue: KeyQueue[str] = KeyQueue()
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await queue.take(), await queue.take()] == ["a", "b"]
    queue.add("a")
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done("a")
    assert await waiting == "a"


async def test_a_queue_tries_failed_keys_again() -> None:
    queue: KeyQueue[str] = KeyQueue()
    queue.add("a")
    queue.done(await queue.take(), failed=True)
    async with asyncio.timeout(5):
        assert await queue.take() == "a"
    queue.close()
