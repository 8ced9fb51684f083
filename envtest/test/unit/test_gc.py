"""The controllers on the parts of a control plane, without a server around it."""

import asyncio

import pytest

from envtest.assembly import assemble, create_initial_objects
from envtest.controllers import UnknownController, make_runner
from envtest.controllers.queue import KeyQueue
from envtest.create_update import copy_object
from envtest.errors import GroupResource
from envtest.objects import Object, find_condition
from test.support.planes import Plane, plane, reference

NAMESPACES = GroupResource("", "namespaces")
SECRETS = GroupResource("", "secrets")
ROLES = GroupResource("rbac.authorization.k8s.io", "clusterroles")


async def test_children_and_grandchildren_go_with_their_owner() -> None:
    async with plane("gc") as world:
        owner = await world.create("owner")
        child = await world.create("child", owner)
        await world.create("grandchild", child)
        await world.delete(owner)
        await world.until(lambda: world.get("child") is None and world.get("grandchild") is None)


async def test_what_was_there_before_the_collector_is_collected() -> None:
    api_server = assemble(admin_token="t", users={}, audit_log=None)
    await create_initial_objects(api_server)
    world = Plane(api_server.core)
    owner = await world.create("owner")
    await world.create("child", owner)
    await world.delete(owner)
    runner = make_runner(api_server.core, ["gc"])
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


async def test_a_namespace_goes_when_it_is_empty() -> None:
    async with plane("namespace") as world:
        namespace = await world.create("n", resource=NAMESPACES)
        await world.create("a", metadata={"namespace": "n"})
        held = await world.create("b", metadata={"namespace": "n", "finalizers": ["x.io/hold"]}, resource=SECRETS)
        await world.delete(namespace, resource=NAMESPACES)

        def remaining() -> str:
            conditions = ((world.get("n", NAMESPACES, "") or {}).get("status") or {}).get("conditions")
            return (find_condition(conditions, "NamespaceContentRemaining") or {}).get("message", "")

        await world.until(lambda: remaining() == "Some resources are remaining: secrets. has 1 resource instances")
        assert world.get("a", namespace="n") is None
        await world.edit(held, lambda obj: obj["metadata"].pop("finalizers"), resource=SECRETS)
        await world.until(lambda: world.get("n", NAMESPACES, "") is None)


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
    accounts = GroupResource("", "serviceaccounts")
    async with plane("serviceaccount") as world:
        await world.create("robot", resource=accounts)
        annotations = {"kubernetes.io/service-account.name": "robot"}
        await world.create(
            "token",
            resource=SECRETS,
            metadata={"annotations": annotations},
            type="kubernetes.io/service-account-token",
        )
        await world.until(lambda: "token" in ((world.get("token", SECRETS) or {}).get("data") or {}))
        secret = world.get("token", SECRETS)
        assert secret is not None
        assert secret["data"]["ca.crt"] == "UEVN"
        robot = world.get("robot", accounts)
        assert robot is not None
        assert secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == robot["metadata"]["uid"]
        await world.delete(robot, resource=accounts)
        await world.until(lambda: world.get("token", SECRETS) is None)


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
