"""The garbage collector, namespace, service account and role controllers, and their queue, without a server."""

import asyncio

import pytest

from envtest.admission.plugin_names import enabled_plugins
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object, find_condition
from envtest.controllers import UnknownController, create_runner, key_queue
from envtest.controllers.key_queue import KeyQueue
from envtest.server.assembly import assemble, create_initial_objects
from envtest.writes.create_update import copy_object
from test.support.headless_plane import HeadlessPlane, headless_plane, reference

NAMESPACES = GroupResource("", "namespaces")
SECRETS = GroupResource("", "secrets")
ROLES = GroupResource("rbac.authorization.k8s.io", "clusterroles")


async def test_dependents_are_deleted_with_their_owner() -> None:
    async with headless_plane("gc") as plane:
        owner = await plane.create("owner")
        child = await plane.create("child", owner)
        await plane.create("grandchild", child)
        await plane.delete(owner)
        await plane.until(lambda: plane.get("child") is None and plane.get("grandchild") is None)


async def test_objects_from_before_the_start_are_collected() -> None:
    api_server = assemble(
        admin_token="t",
        users={},
        audit_log=None,
        plugins=enabled_plugins(disable=["ServiceAccount"]),
    )
    await create_initial_objects(api_server)
    plane = HeadlessPlane(api_server.core)
    owner = await plane.create("owner")
    await plane.create("child", owner)
    await plane.delete(owner)
    runner = create_runner(api_server.core, ["gc"])
    runner.start()
    try:
        await plane.until(lambda: plane.get("child") is None)
    finally:
        await runner.stop()


async def test_owner_reference_with_wrong_uid_does_not_keep_a_child() -> None:
    async with headless_plane("gc") as plane:
        owner = await plane.create("owner")
        wrong_owner = copy_object(owner)
        wrong_owner["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
        await plane.create("kept", owner)
        await plane.create("child", wrong_owner)
        await plane.until(lambda: plane.get("child") is None)
        assert plane.get("kept") is not None
        assert plane.get("owner") is not None


async def test_child_is_kept_until_its_last_owner_is_deleted() -> None:
    async with headless_plane("gc") as plane:
        one, two = await plane.create("one"), await plane.create("two")
        await plane.create("child", one, two)
        await plane.delete(one)
        await plane.until(lambda: plane.owners("child") == ["two"])
        await plane.delete(two)
        await plane.until(lambda: plane.get("child") is None)


async def test_orphan_deletion_removes_references_and_keeps_children() -> None:
    async with headless_plane("gc") as plane:
        owner = await plane.create("owner")
        await plane.create("child", owner)
        await plane.delete(owner, "Orphan")
        await plane.until(lambda: plane.get("owner") is None)
        assert plane.owners("child") == []


async def test_foreground_deletion_waits_for_blocking_children() -> None:
    async with headless_plane("gc") as plane:
        owner = await plane.create("owner")
        blocking = reference(owner, blockOwnerDeletion=True)
        finalizers = {"finalizers": ["x.io/hold"]}
        child = await plane.create("child", metadata={"ownerReferences": [blocking], **finalizers})
        await plane.create("loose", owner)
        await plane.delete(owner, "Foreground")
        await plane.until(lambda: (plane.get("child") or {})["metadata"].get("deletionTimestamp"))
        await plane.until(lambda: plane.get("loose") is None)
        assert plane.get("owner") is not None
        await plane.edit(child, lambda obj: obj["metadata"].pop("finalizers"))
        await plane.until(lambda: plane.get("owner") is None)


async def test_foreground_deletion_includes_grandchildren() -> None:
    async with headless_plane("gc") as plane:
        owner = await plane.create("owner")
        child = await plane.create(
            "child", metadata={"ownerReferences": [reference(owner, blockOwnerDeletion=True)]}
        )
        await plane.create(
            "grandchild", metadata={"ownerReferences": [reference(child, blockOwnerDeletion=True)]}
        )
        await plane.delete(owner, "Foreground")
        await plane.until(lambda: plane.get("owner") is None)
        assert plane.get("child") is None
        assert plane.get("grandchild") is None


async def test_circular_owners_are_deleted() -> None:
    async with headless_plane("gc") as plane:
        one = await plane.create("one")
        two = await plane.create(
            "two", metadata={"ownerReferences": [reference(one, blockOwnerDeletion=True)]}
        )

        def close_circle(obj: Object) -> None:
            obj["metadata"]["ownerReferences"] = [reference(two, blockOwnerDeletion=True)]

        await plane.edit(one, close_circle)
        await plane.delete(one, "Foreground")
        await plane.until(lambda: plane.get("one") is None and plane.get("two") is None)


async def test_child_of_an_unknown_kind_is_kept() -> None:
    async with headless_plane("gc") as plane:
        owner = await plane.create("owner")
        unknown = {**reference(owner), "apiVersion": "x.io/v1", "kind": "Nothing"}
        await plane.create("child", metadata={"ownerReferences": [unknown]})
        await plane.create("sentinel", {**owner, "metadata": {"name": "owner", "uid": "gone"}})
        await plane.until(lambda: plane.get("sentinel") is None)
        assert plane.get("child") is not None


async def test_namespace_is_deleted_when_it_is_empty() -> None:
    async with headless_plane("namespace") as plane:
        namespace = await plane.create("n", resource=NAMESPACES)
        await plane.create("a", metadata={"namespace": "n"})
        finalizers = await plane.create(
            "b", metadata={"namespace": "n", "finalizers": ["x.io/hold"]}, resource=SECRETS
        )
        await plane.delete(namespace, resource=NAMESPACES)

        def remaining() -> str:
            conditions = ((plane.get("n", NAMESPACES, "") or {}).get("status") or {}).get(
                "conditions"
            )
            return (find_condition(conditions, "NamespaceContentRemaining") or {}).get(
                "message", ""
            )

        await plane.until(
            lambda: remaining() == "Some resources are remaining: secrets. has 1 resource instances"
        )
        assert plane.get("a", namespace="n") is None
        await plane.edit(
            finalizers, lambda obj: obj["metadata"].pop("finalizers"), resource=SECRETS
        )
        await plane.until(lambda: plane.get("n", NAMESPACES, "") is None)


async def test_default_service_account_is_created_in_every_namespace() -> None:
    accounts = GroupResource("", "serviceaccounts")
    async with headless_plane("serviceaccount") as plane:
        await plane.until(lambda: plane.get("default", accounts) is not None)
        await plane.create("new", resource=NAMESPACES)
        await plane.until(lambda: plane.get("default", accounts, "new") is not None)
        account = plane.get("default", accounts)
        assert account is not None
        await plane.delete(account, resource=accounts)
        await plane.until(lambda: (plane.get("default", accounts) or account) != account)


async def test_token_secret_is_filled_and_deleted_with_its_account() -> None:
    accounts = GroupResource("", "serviceaccounts")
    async with headless_plane("serviceaccount") as plane:
        await plane.create("robot", resource=accounts)
        annotations = {"kubernetes.io/service-account.name": "robot"}
        await plane.create(
            "token",
            resource=SECRETS,
            metadata={"annotations": annotations},
            type="kubernetes.io/service-account-token",
        )
        await plane.until(
            lambda: "token" in ((plane.get("token", SECRETS) or {}).get("data") or {})
        )
        secret = plane.get("token", SECRETS)
        assert secret is not None
        assert secret["data"]["ca.crt"] == "UEVN"
        robot = plane.get("robot", accounts)
        assert robot is not None
        assert (
            secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"]
            == robot["metadata"]["uid"]
        )
        await plane.delete(robot, resource=accounts)
        await plane.until(lambda: plane.get("token", SECRETS) is None)


async def test_ca_certificate_is_published() -> None:
    async with headless_plane("root-ca") as plane:
        await plane.until(lambda: plane.get("kube-root-ca.crt") is not None)
        published = plane.get("kube-root-ca.crt")
        assert published is not None
        assert published["data"] == {"ca.crt": "PEM"}
        await plane.edit(published, lambda obj: obj.pop("data"))
        await plane.until(
            lambda: (plane.get("kube-root-ca.crt") or {}).get("data") == {"ca.crt": "PEM"}
        )


def rule(resource: str) -> Object:
    return {"apiGroups": [""], "resources": [resource], "verbs": ["get"]}


async def test_cluster_roles_are_aggregated() -> None:
    async with headless_plane("clusterrole-aggregation") as plane:
        selectors = {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}
        await plane.create("whole", resource=ROLES, aggregationRule=selectors)
        labels = {"labels": {"part": "yes"}}
        await plane.create(
            "b", resource=ROLES, metadata=dict(labels), rules=[rule("pods"), rule("secrets")]
        )
        await plane.create("a", resource=ROLES, metadata=dict(labels), rules=[rule("pods")])

        def rules() -> list[str]:
            whole = plane.get("whole", ROLES, "") or {}
            return [each["resources"][0] for each in whole.get("rules") or ()]

        await plane.until(lambda: rules() == ["pods", "secrets"])
        part = plane.get("b", ROLES, "")
        assert part is not None
        await plane.delete(part, resource=ROLES)
        await plane.until(lambda: rules() == ["pods"])


def test_unknown_controller_is_rejected() -> None:
    core = assemble(
        admin_token="t",
        users={},
        audit_log=None,
        plugins=enabled_plugins(disable=["ServiceAccount"]),
    ).core
    with pytest.raises(UnknownController, match="'kubelet'"):
        create_runner(core, ["gc", "kubelet"])


async def test_queue_deduplicates_keys_and_serializes_each() -> None:
    queue: KeyQueue[str] = KeyQueue()
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    queue.add("a")
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done("a")
    assert await waiting == "a"


async def test_slow_key_rests_as_long_as_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an owner with thousands of pods reads all pods whenever one changes."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    monkeypatch.setattr(key_queue, "thread_time", lambda: now)
    queue: KeyQueue[str] = KeyQueue()
    queue.add("slow")
    key = await queue.get()
    queue.add("slow")
    now += 0.5
    queue.done(key)
    waiting = asyncio.create_task(queue.get())
    now += 0.4
    queue.add("other")
    assert await waiting == "other"
    assert not queue.idle
    waiting = asyncio.create_task(queue.get())
    now += 0.2
    assert await waiting == "slow"


async def test_queue_retries_failed_keys() -> None:
    queue: KeyQueue[str] = KeyQueue()
    queue.add("a")
    queue.done(await queue.get(), failed=True)
    async with asyncio.timeout(120):
        assert await queue.get() == "a"
    queue.close()
