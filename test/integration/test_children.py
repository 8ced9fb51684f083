"""Children of an owner on an API server: no object of another owner is changed, whatever the cache shows."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import anyio
import pytest
from structlog.testing import capture_logs

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.api.appwrapper.names import APPWRAPPER
from cfo.runtime import (
    CONFIG_MAP,
    GVK,
    SERVICE,
    SERVICE_ACCOUNT,
    Builder,
    Client,
    ClientConfig,
    Conflict,
    Invalid,
    Manager,
    ManagerOptions,
    NamespacedName,
    Object,
    Request,
    Result,
    Transport,
    UnknownKind,
    is_controlled_by,
    key_of,
    owner_reference,
    resource_version_of,
    uid_of,
)
from cfo.runtime.cache import Cache
from cfo.runtime.client import (
    FIRST_NAME_CHECK_SECONDS,
    PREDECESSOR_RETRY_SECONDS,
    Child,
    ChildResult,
    ChildResults,
    Exchange,
    NameTaken,
    Outcome,
    Update,
    apply_status,
    reconcile_children,
    replace_status,
)
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.name_checks import NameChecks
from cfo.runtime.client.overwrites import Overwrites
from cfo.runtime.objects import new_object
from cfo.runtime.process import function_errors
from envtest import ControlPlane
from test.support.clocks import FakeClock
from test.support.config_map_webhooks import wait_until

KEY = NamespacedName("default", "child")
TIMEOUT_SECONDS = 120.0


def config_map(name: str = "child", owner: Object | None = None, **data: str) -> Object:
    metadata: Object = {"namespace": "default", "name": name}
    if owner is not None:
        metadata["ownerReferences"] = [owner_reference(owner)]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def warnings_of(lines: list[Any]) -> list[str]:
    return [line["error"] for line in lines if line["log_level"] == "warning"]


class Events:
    """Collects Events as pairs of reason and message."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str]] = []

    def event(self, obj: Object, type_: str, reason: str, message: str) -> None:
        assert type_ == "Warning"
        self.recorded.append((reason, message))


class World(NamedTuple):
    """A client without a cache, the owner, its Events, and the verbs of all requests."""

    client: Client
    owner: Object
    events: Events
    verbs: list[str]

    async def write(self, *children: Child, **options: Any) -> ChildResults:
        self.verbs.clear()
        return await reconcile_children(
            self.client,
            self.owner,
            children,
            events=self.events,
            block_owner_deletion=True,
            **options,
        )

    async def write_one(self, child: Child) -> ChildResult:
        (result,) = await self.write(child)
        return result

    async def stored(self, name: str = "child") -> Object | None:
        return await self.client.get(CONFIG_MAP, NamespacedName("default", name), live=True)


@pytest.fixture
async def world(plane: ControlPlane) -> AsyncIterator[World]:
    verbs: list[str] = []

    def record(exchange: Exchange) -> None:
        if exchange.resource == "configmaps":
            verbs.append(exchange.verb)

    config = ClientConfig.for_control_plane(plane)
    async with Transport(config, observe=record) as transport:
        client = Client(transport, RESTMapper(transport), field_manager="test")
        owner = await client.create(config_map("owner"))
        yield World(client, owner, Events(), verbs)


@pytest.mark.parametrize("update", [Update.APPLY, Update.KEEP, Update.REPLACE, lambda _: {}])
async def test_absent_object_is_created_with_its_owner(world: World, update: Any) -> None:
    desired = config_map(a="b")
    result = await world.write_one(Child.present(desired, update=update))
    assert result.outcome is Outcome.DONE
    assert result.is_new
    assert result.obj == await world.stored()
    assert result.obj is not None
    reference = owner_reference(world.owner, block_owner_deletion=True)
    assert result.obj["metadata"]["ownerReferences"] == [reference]
    assert "ownerReferences" not in desired["metadata"]
    assert len(world.verbs) == 2  # the second one is of this test


async def test_cluster_scoped_child_of_a_namespaced_owner_has_no_owner_reference(
    world: World,
) -> None:
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "child"}}
    result = await world.write_one(Child.present(namespace, belongs=lambda _: True))
    assert result.obj is not None
    assert "ownerReferences" not in result.obj["metadata"]


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("owner", ["", "other", "other group", "predecessor"])
async def test_object_of_another_owner_is_left_unchanged(
    world: World, owner: str, is_known: bool
) -> None:
    # The garbage collector does not know this kind, so it does not delete the object.
    foreign = config_map(theirs="yes")
    if owner:
        reference = {
            **owner_reference(world.owner),
            "apiVersion": "v0" if owner == "predecessor" else "example.com/v1",
            "name": "other" if owner == "other" else "owner",
            "uid": "u",
        }
        foreign["metadata"]["ownerReferences"] = [reference]
    before = await world.client.create(foreign)
    current = before if is_known else None
    for update in (Update.APPLY, Update.KEEP, Update.REPLACE, lambda _: {"data": {"a": "b"}}):
        child = Child.present(
            config_map(a="b"), update=update, current=current, consequence="it stays"
        )
        results = await world.write(child)
        (result,) = results
        expected = Outcome.WAITING if owner == "predecessor" else Outcome.TAKEN
        assert result.outcome is expected
        message = "ConfigMap child already exists and does not belong to this ConfigMap"
        if owner == "other":
            message += ", but to ConfigMap other of example.com/v1"
        if owner == "other group":
            message += ", but to ConfigMap owner of example.com/v1"
        assert result.message == message
        if owner == "predecessor":
            assert results.retry_after == PREDECESSOR_RETRY_SECONDS
            assert world.events.recorded == []
        else:
            assert results.retry_after == FIRST_NAME_CHECK_SECONDS
            assert world.events.recorded.pop() == ("NameTaken", f"{message}: it stays")
        results.raise_errors()
    await world.write(Child.absent(CONFIG_MAP, KEY, current=before))
    assert await world.stored() == before


@pytest.mark.parametrize("update", [Update.APPLY, Update.REPLACE])
async def test_object_that_is_overwritten_again_and_again_is_corrected_and_reported(
    world: World, update: Update
) -> None:
    world.client.overwrites = Overwrites(clock=FakeClock())
    child = Child.present(config_map(a="ours"), update=update)
    await world.write(child)
    other = world.client.with_field_manager("other")
    for expected in ([], ["ChildOverwritten"], [], []):
        await other.patch(CONFIG_MAP, KEY, {"data": {"a": "theirs"}})
        world.events.recorded.clear()
        await world.write(child)
        stored = await world.stored()
        assert stored is not None
        assert stored["data"] == {"a": "ours"}
        assert [reason for reason, _ in world.events.recorded] == expected
    for _ in range(5):
        await world.write(child)
    assert world.events.recorded == [], "nothing is written"


@pytest.mark.parametrize("can_wait", [False, True])
async def test_child_that_another_client_deletes_again_and_again_is_reported(
    world: World, *, can_wait: bool
) -> None:
    world.client.overwrites = Overwrites(clock=FakeClock())
    child = Child.present(config_map(a="ours"), can_wait=can_wait)
    outcomes = []
    for _ in range(5):
        results = await world.write(child)
        outcomes.append(results.is_done())
        await world.client.delete(CONFIG_MAP, KEY)
    assert outcomes == [True, True, True, not can_wait, not can_wait]
    assert [reason for reason, _ in world.events.recorded] == ["ChildOverwritten"]


async def test_taken_name_costs_two_requests_for_each_check_until_it_is_free(world: World) -> None:
    clock = FakeClock()
    world.client.name_checks = NameChecks(clock=clock)
    foreign = await world.client.create(config_map(theirs="yes"))
    child = Child.present(config_map(a="b"))
    delays = []
    for _ in range(9):
        results = await world.write(child)
        assert len(world.verbs) == 2
        delays.append(results.retry_after)
        clock.advance(results.retry_after)
    assert delays == [5, 5, 10, 20, 40, 80, 160, 300, 300]
    await world.client.delete(CONFIG_MAP, KEY, uid=uid_of(foreign))
    results = await world.write(child)
    assert results.is_done()
    assert results.retry_after == 0
    for deadline in (60, 30, 90):
        results.retry(deadline)
    assert results.retry_after == 30
    with pytest.raises(ValueError, match="retry: 0 seconds: must be more than 0"):
        results.retry(0)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(
    ("update", "data"),
    [
        (Update.APPLY, {"old": "yes", "new": "yes"}),
        (Update.KEEP, {"old": "yes"}),
        (Update.REPLACE, {"new": "yes"}),
        (lambda _: {"data": {"patched": "yes"}}, {"old": "yes", "patched": "yes"}),
        (lambda _: {}, {"old": "yes"}),
    ],
)
async def test_object_of_the_owner_is_updated(
    world: World, is_known: bool, update: Any, data: dict[str, str]
) -> None:
    before = await world.client.create(config_map(owner=world.owner, old="yes"))
    current = before if is_known else None
    result = await world.write_one(
        Child.present(config_map(new="yes"), update=update, current=current)
    )
    assert result.outcome is Outcome.DONE
    assert not result.is_new
    assert result.obj is not None
    assert result.obj["data"] == data
    assert uid_of(result.obj) == uid_of(before)


async def test_object_that_is_as_desired_is_not_replaced(world: World) -> None:
    before = await world.client.create(config_map(owner=world.owner, a="b"))
    child = Child.present(config_map(a="b"), update=Update.REPLACE, current=before)
    assert (await world.write_one(child)).obj == before
    assert world.verbs == []


async def test_object_that_replaced_the_checked_one_is_not_changed(world: World) -> None:
    known = await world.client.create(config_map(owner=world.owner))
    await world.client.delete(CONFIG_MAP, KEY)
    other = await world.client.create(config_map(owner=world.owner, theirs="yes"))
    for update in (Update.APPLY, lambda _: {"data": {"a": "b"}}):
        results = await world.write(Child.present(config_map(a="b"), update=update, current=known))
        assert not results.is_done()
        with pytest.raises(Conflict):
            results.raise_errors()
    assert await world.stored() == other


async def test_object_of_another_owner_that_replaced_the_checked_one_is_not_deleted(
    world: World,
) -> None:
    known = await world.client.create(config_map(owner=world.owner))
    await world.client.delete(CONFIG_MAP, KEY)
    other = await world.client.create(config_map(theirs="yes"))
    result = await world.write_one(Child.absent(CONFIG_MAP, KEY, current=known))
    assert result.outcome is Outcome.DONE
    assert await world.stored() == other


async def test_object_that_the_owner_lost_is_left_unchanged(world: World) -> None:
    known = await world.client.create(config_map(owner=world.owner))
    change = {"metadata": {"ownerReferences": None}, "data": {"theirs": "yes"}}
    released = await world.client.patch(CONFIG_MAP, KEY, change)
    result = await world.write_one(Child.present(config_map(a="b"), current=known))
    assert result.outcome is Outcome.TAKEN
    assert await world.stored() == released


async def test_changed_object_of_the_owner_is_checked_again_and_updated(world: World) -> None:
    known = await world.client.create(config_map(owner=world.owner))
    await world.client.patch(CONFIG_MAP, KEY, {"data": {"theirs": "yes"}})
    result = await world.write_one(Child.present(config_map(a="b"), current=known))
    assert result.obj is not None
    assert result.obj["data"] == {"a": "b", "theirs": "yes"}
    assert world.verbs == ["apply", "get", "apply"]


@pytest.mark.parametrize("update", [Update.APPLY, lambda _: {"data": {"a": "b"}}])
async def test_client_that_changes_the_object_all_the_time_prevents_no_update(
    world: World, monkeypatch: pytest.MonkeyPatch, update: Any
) -> None:
    known = await world.client.create(config_map(owner=world.owner))
    numbers = count()
    read = Client.get

    async def change() -> None:
        annotations = {"example.com/number": str(next(numbers))}
        await world.client.patch(CONFIG_MAP, KEY, {"metadata": {"annotations": annotations}})

    async def read_and_change(client: Client, *args: Any, **options: Any) -> Any:
        obj = await read(client, *args, **options)
        await change()
        return obj

    await change()
    monkeypatch.setattr(Client, "get", read_and_change)
    child = Child.present(config_map(a="b"), update=update, current=known)
    result = await world.write_one(child)
    assert result.is_done
    assert result.obj is not None
    assert result.obj["data"] == {"a": "b"}
    assert result.obj["metadata"]["annotations"] == {"example.com/number": "1"}


async def test_object_that_is_being_deleted_is_not_changed(world: World) -> None:
    child = config_map(owner=world.owner)
    child["metadata"]["finalizers"] = ["example.com/hold"]
    await world.client.create(child)
    await world.client.delete(CONFIG_MAP, KEY)
    before = await world.stored()
    results = await world.write(Child.present(config_map(a="b")))
    (result,) = results
    assert (result.outcome, result.message) == (
        Outcome.WAITING,
        "ConfigMap child is being deleted",
    )
    assert (
        results.retry_after == 0
    )  # its owner reference causes a reconcile when it does not exist any more
    assert await world.stored() == before
    await world.write(Child.absent(CONFIG_MAP, KEY, current=before))
    assert world.verbs == []


async def test_name_is_checked_again_if_the_object_that_is_being_deleted_has_no_owner(
    world: World,
) -> None:
    restored = config_map()
    restored["metadata"]["finalizers"] = ["example.com/hold"]
    await world.client.create(restored)
    await world.client.delete(CONFIG_MAP, KEY)
    child = Child.present(config_map(a="b"), belongs=lambda _: True)
    results = await world.write(child)
    (result,) = results
    assert result.outcome is Outcome.WAITING
    assert results.retry_after == FIRST_NAME_CHECK_SECONDS
    await world.client.patch(CONFIG_MAP, KEY, {"metadata": {"finalizers": None}})
    assert (await world.write_one(child)).is_done


async def test_object_of_the_owner_is_deleted(world: World) -> None:
    known = await world.client.create(config_map(owner=world.owner))
    results = await world.write(
        Child.absent(CONFIG_MAP, KEY, current=known, belongs=lambda _: False)
    )
    assert results.is_done()
    assert await world.stored() == known
    await world.write(Child.absent(CONFIG_MAP, KEY, current=known))
    assert world.verbs == ["delete"]
    assert await world.stored() is None


def counted(current: Object | None) -> Object:
    """Return the object with its number increased by one, up to two."""
    number = int((current or {}).get("data", {}).get("number", 0))
    return config_map(number=str(min(number + 1, 2)))


@pytest.mark.parametrize("in_thread", [False, True])
async def test_object_is_computed_from_the_existing_one(world: World, in_thread: bool) -> None:
    child = Child.computed(CONFIG_MAP, KEY, counted, in_thread=in_thread)
    numbers = []
    for _ in range(3):
        result = await world.write_one(child)
        assert result.obj is not None
        numbers.append(result.obj["data"]["number"])
    assert numbers == ["1", "2", "2"]
    assert world.verbs == ["create", "get"]  # the object has everything already


async def test_content_that_is_not_trusted_is_replaced(world: World) -> None:
    labelled = config_map(theirs="yes")
    labelled["metadata"]["labels"] = {"owner": "owner"}
    before = await world.client.create(labelled)
    child = Child.computed(
        CONFIG_MAP,
        KEY,
        counted,
        belongs=lambda obj: bool(obj["metadata"].get("labels")),
        is_trusted=lambda obj: is_controlled_by(obj, world.owner),
    )
    result = await world.write_one(child)
    assert result.obj is not None
    assert result.obj["data"] == {"number": "1"}
    assert uid_of(result.obj) != uid_of(before)
    ((reason, message),) = world.events.recorded
    assert reason == "UntrustedContentReplaced"
    assert message.startswith("ConfigMap child had the labels of this ConfigMap")


async def test_content_that_is_not_trusted_is_not_used_while_a_finalizer_keeps_it(
    world: World,
) -> None:
    kept = config_map(theirs="yes")
    kept["metadata"]["finalizers"] = ["example.com/hold"]
    before = await world.client.create(kept)
    child = Child.computed(
        CONFIG_MAP,
        KEY,
        counted,
        belongs=lambda _: True,
        is_trusted=lambda _: False,
        consequence="nothing works",
    )
    results = await world.write(child)
    assert results.retry_after == FIRST_NAME_CHECK_SECONDS
    (result,) = results
    assert result.outcome is Outcome.TAKEN
    assert result.obj is not None
    assert uid_of(result.obj) == uid_of(before)
    ((reason, message),) = world.events.recorded
    assert reason == "NameTaken"
    assert message == (
        "ConfigMap child is being deleted, and its content is from another client: nothing works"
    )


async def test_object_is_adopted_before_its_update(world: World) -> None:
    await world.client.create(config_map(owner=world.owner, theirs="yes"))
    child = Child.present(config_map(a="b"), adoption=lambda _: {"data": {"theirs": None}})
    result = await world.write_one(child)
    assert result.obj is not None
    assert result.obj["data"] == {"a": "b"}


async def test_another_child_is_written_if_the_name_is_taken(world: World) -> None:
    await world.client.create(config_map(theirs="yes"))
    child = Child.present(
        config_map(a="b"),
        consequence="another name is used",
        fallback=Child.present(config_map("other", a="b")),
    )
    results = await world.write(child)
    assert results.is_done()
    assert results.retry_after == 0
    assert results.stored(CONFIG_MAP, KEY) is None
    assert results.stored(CONFIG_MAP, NamespacedName("default", "other")) is not None
    ((reason, message),) = world.events.recorded
    assert (reason, message.rpartition(": ")[2]) == ("NameTaken", "another name is used")


async def test_taken_name_without_a_consequence_is_an_event(world: World) -> None:
    await world.client.create(config_map(theirs="yes"))
    with capture_logs() as lines:
        await world.write(Child.present(config_map(a="b")))
    message = "ConfigMap child already exists and does not belong to this ConfigMap"
    assert world.events.recorded == [("NameTaken", message)]
    assert warnings_of(lines) == []


async def test_taken_name_with_a_fallback_and_without_a_consequence_is_no_event(
    world: World,
) -> None:
    await world.client.create(config_map(theirs="yes"))
    fallback = Child.present(config_map("other", a="b"))
    results = await world.write(Child.present(config_map(a="b"), fallback=fallback))
    assert results.is_done()
    assert world.events.recorded == []


async def test_taken_name_is_logged_once_without_events(world: World) -> None:
    await world.client.create(config_map(theirs="yes"))
    fallback = Child.present(config_map("other", a="b"))
    child = Child.present(config_map(a="b"), consequence="nothing works")
    with capture_logs() as lines:
        await reconcile_children(
            world.client, world.owner, [Child.present(config_map(a="b"), fallback=fallback)]
        )
        assert warnings_of(lines) == []  # the fallback is written
        await reconcile_children(world.client, world.owner, [child])
        await reconcile_children(world.client, world.owner, [child])
    assert warnings_of(lines) == [
        "ConfigMap child already exists and does not belong to this ConfigMap: nothing works"
    ]


@pytest.mark.usefixtures("debug_messages")
async def test_error_that_is_not_raised_is_logged_at_debug_level(world: World) -> None:
    invalid = config_map()
    invalid["metadata"]["labels"] = {"-": "-"}
    with capture_logs() as lines:
        await reconcile_children(world.client, world.owner, [Child.present(invalid)])
    (line,) = [line for line in lines if line["event"] == "Child could not be written or deleted"]
    assert line["log_level"] == "debug"
    assert line["error"].startswith("ConfigMap child could not be written: ")


async def test_child_with_an_unmet_requirement_is_skipped(world: World) -> None:
    await world.client.create(config_map(theirs="yes"))
    first = Child.present(config_map(a="b"))
    second = Child.present(config_map("second"), requires=(first.id,))
    third = Child.present(
        config_map("third"),
        requires=(second.id,),
        fallback=Child.present(config_map("instead")),
    )
    results = await world.write(first, second, third)
    outcomes = [result.outcome for result in results]
    assert outcomes == [Outcome.TAKEN, Outcome.SKIPPED, Outcome.SKIPPED, Outcome.DONE]
    messages = [result.message for result in results if result.outcome is Outcome.SKIPPED]
    assert messages == [
        "ConfigMap second waits for ConfigMap default/child",
        "ConfigMap third waits for ConfigMap default/second",
    ]
    assert await world.stored("second") is None
    assert await world.stored("instead") is not None


async def test_failed_write_does_not_prevent_the_others(world: World) -> None:
    invalid = config_map("first")
    invalid["metadata"]["labels"] = {"-": "-"}
    results = await world.write(
        Child.present(invalid, update=Update.KEEP), Child.present(config_map())
    )
    assert [result.outcome for result in results] == [Outcome.REFUSED, Outcome.DONE]
    ((reason, message),) = world.events.recorded
    assert reason == "FailedToReconcile"
    assert message.startswith("ConfigMap first could not be written: ")
    with pytest.raises(Invalid):
        results.raise_errors()


async def test_results_keep_only_what_the_caller_needs_of_objects(world: World) -> None:
    """A tenant can make objects large, and all results exist at the same time."""
    await world.client.create(config_map("taken", large="x"))
    refused = config_map("refused", world.owner, large="x")
    await world.client.create({**refused, "immutable": True})
    kinds: list[str] = []

    def keep(obj: Object) -> Object:
        kinds.append(obj["kind"])
        return {"metadata": {"name": obj["metadata"]["name"]}}

    names = ("taken", "refused", "done")
    children = [Child.present(config_map(name, large="y")) for name in names]
    results = await world.write(*children, keep=keep)
    outcomes = [Outcome.TAKEN, Outcome.REFUSED, Outcome.DONE]
    assert [result.outcome for result in results] == outcomes
    kept = [result.obj for result in results]
    assert kept == [{"metadata": {"name": "taken"}}, None, {"metadata": {"name": "done"}}]
    assert kinds == ["ConfigMap", "ConfigMap"]
    taken, error = (result.error for result in results if result.error is not None)
    assert isinstance(taken, NameTaken)
    assert taken.obj == kept[0]
    for cause in (taken, taken.__context__, error):
        assert cause is not None
        frames = [frame for frame, _ in traceback.walk_tb(cause.__traceback__)]
        assert frames
        assert not any(frame.f_locals for frame in frames)


async def test_manifest_that_does_not_fit_the_schema_is_refused(world: World) -> None:
    results = await world.write(
        Child.present({**config_map("first"), "dat": {"a": "b"}}),
        Child.present({**config_map("second"), "data": "text"}),
    )
    assert [result.outcome for result in results] == [Outcome.REFUSED, Outcome.REFUSED]
    assert [reason for reason, _ in world.events.recorded] == ["FailedToReconcile"] * 2
    with pytest.raises(ExceptionGroup):
        results.raise_errors()


async def test_kind_that_is_not_served_is_an_error(world: World) -> None:
    mistyped = new_object(GVK("app", "v1", "Deployment"), "child", "default")
    results = await world.write(Child.present(mistyped), Child.present(config_map("other")))
    assert [result.outcome for result in results] == [Outcome.UNSERVED, Outcome.DONE]
    with pytest.raises(UnknownKind, match='no matches for kind "Deployment" in version "app/v1"'):
        results.raise_errors()


async def test_optional_or_absent_child_of_a_kind_that_is_not_served_is_no_error(
    world: World,
) -> None:
    gvk = GVK("example.com", "v1", "Missing")
    optional = Child.present(new_object(gvk, "child", "default"), is_optional=True)
    other = config_map("other", owner=world.owner)
    results = await world.write(optional, Child.absent(gvk, key_of(other), current=other))
    assert {result.outcome for result in results} == {Outcome.UNSERVED}
    assert results.errors == []
    results.raise_errors()


async def test_number_of_created_objects_is_limited(world: World) -> None:
    children = [Child.present(config_map(f"child-{number}")) for number in range(4)]
    results = await world.write(*children, max_created=2)
    assert results.is_limited
    assert results.created == 2
    assert await world.stored("child-2") is None
    results = await world.write(*children, max_created=2)
    assert results.created == 2
    assert not results.is_limited, "nothing is left to be created"
    assert await world.stored("child-3") is not None


async def test_unwanted_objects_of_the_owner_are_pruned(plane: ControlPlane, world: World) -> None:
    for name, owner in (("own", world.owner), ("foreign", None)):
        await world.client.create(config_map(name, owner=owner))
    names = ("own", "foreign", "child", "unknown")
    await world.write(
        Child.present(config_map()),
        prune=[(CONFIG_MAP, NamespacedName("default", name)) for name in names],
    )
    # Without a cache nothing is known about them, so nothing is deleted.
    assert await world.stored("own") is not None


async def test_number_of_deleted_objects_is_limited(plane: ControlPlane, world: World) -> None:
    names = [f"own-{number}" for number in range(5)]
    for name in names:
        await world.client.create(config_map(name, owner=world.owner))
    foreign = await world.client.create(config_map("foreign"))
    keys = [NamespacedName("default", name) for name in ("foreign", *names)]
    absent = Child.absent(CONFIG_MAP, keys[1])
    async with with_cache(world, plane, metadata_only=False) as cached:
        prune = [(CONFIG_MAP, key) for key in keys]
        results = await cached.write(absent, prune=prune, max_deleted=3)
        assert results.is_limited
        assert results.deleted == 3
        assert cached.verbs == ["delete"] * 3
        results = await cached.write(absent, prune=prune, max_deleted=3)
        assert not results.is_limited
        assert results.deleted == 2
        assert (await cached.write(absent, prune=prune, max_deleted=1)).deleted == 0
    assert [await world.stored(name) for name in names] == [None] * 5
    assert await world.stored("foreign") == foreign


@asynccontextmanager
async def with_cache(
    world: World, plane: ControlPlane, *, metadata_only: bool
) -> AsyncIterator[World]:
    """Yield the same world with a client whose informer has listed the ConfigMaps."""
    verbs: list[str] = []

    def record(exchange: Exchange) -> None:
        if exchange.resource == "configmaps" and exchange.verb not in ("list", "watch"):
            verbs.append(exchange.verb)

    config = ClientConfig.for_control_plane(plane)
    async with Transport(config, observe=record) as transport:
        mapper = RESTMapper(transport)
        cache = Cache(transport, mapper, field_managers=["test"])
        cache.informer(CONFIG_MAP, metadata_only=metadata_only)
        client = Client(transport, mapper, field_manager="test", cache=cache)
        async with anyio.create_task_group() as tasks:
            await tasks.start(cache.run)
            with anyio.fail_after(TIMEOUT_SECONDS):
                await cache.wait_for_sync()
            yield World(client, world.owner, world.events, verbs)
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("kind_of_child", ["apply", "replace", "computed"])
async def test_only_children_that_can_wait_are_corrected_later(
    plane: ControlPlane, world: World, kind_of_child: str
) -> None:
    def child_of(name: str, *, can_wait: bool) -> Child:
        desired = config_map(name, a="ours")
        key = key_of(desired)
        if kind_of_child == "computed":
            return Child.computed(CONFIG_MAP, key, lambda _: desired, can_wait=can_wait)
        update = Update.REPLACE if kind_of_child == "replace" else Update.APPLY
        return Child.present(desired, update=update, can_wait=can_wait)

    waiting = child_of("waiting", can_wait=True)
    protection = child_of("protection", can_wait=False)
    clock = FakeClock()
    other = world.client.with_field_manager("other")
    async with with_cache(world, plane, metadata_only=False) as cached:
        cached.client.overwrites = Overwrites(clock=clock)

        async def overwrite() -> None:
            for child in (waiting, protection):
                stored = await other.patch(CONFIG_MAP, child.key, {"data": {"a": "theirs"}})
                is_cached = partial(_has_version, cached.client, child, resource_version_of(stored))
                await wait_until(is_cached, "the overwritten object in the cache")

        async def write(first: Outcome, *, requests: int, retry_after: float = 0) -> None:
            results = await cached.write(waiting, protection)
            assert [result.outcome for result in results] == [first, Outcome.DONE]
            assert len(cached.verbs) == requests
            assert results.retry_after == retry_after

        await write(Outcome.DONE, requests=2)
        for _ in range(2):
            await overwrite()
            await write(Outcome.DONE, requests=2)
        for delay in (1, 2, 4):
            for _ in range(3):
                await overwrite()
                await write(Outcome.OVERWRITTEN, requests=1, retry_after=delay)
            clock.advance(delay)
            await write(Outcome.DONE, requests=1)
        await write(Outcome.DONE, requests=0)  # there is nothing to correct


async def _has_version(client: Client, child: Child, version: str) -> bool:
    known = client.cached(child.gvk, child.key)
    return known is not None and resource_version_of(known.object) == version


@pytest.mark.parametrize("metadata_only", [False, True])
async def test_unwanted_objects_in_the_cache_are_pruned_if_they_are_the_owners(
    plane: ControlPlane, world: World, metadata_only: bool
) -> None:
    other = await world.client.create(config_map("other-owner"))
    await world.client.create(config_map("own", owner=world.owner))
    await world.client.create(config_map("wanted", owner=world.owner))
    foreign = await world.client.create(config_map("foreign"))
    controlled = await world.client.create(config_map("controlled", owner=other))
    names = ("own", "wanted", "foreign", "controlled", "unknown")
    prune = [(CONFIG_MAP, NamespacedName("default", name)) for name in names]
    async with with_cache(world, plane, metadata_only=metadata_only) as cached:
        wanted = Child.present(config_map("wanted"), update=Update.KEEP)
        results = await cached.write(wanted, prune=prune)
        assert results.is_done()
        assert cached.verbs == ["delete"]
    assert await world.stored("own") is None
    assert await world.stored("wanted") is not None
    assert await world.stored("foreign") == foreign
    assert await world.stored("controlled") == controlled


async def test_content_that_the_informer_leaves_out_is_read_once(
    plane: ControlPlane, world: World
) -> None:
    await world.client.create(config_map(owner=world.owner, number="1"))
    child = Child.computed(CONFIG_MAP, KEY, counted)
    async with with_cache(world, plane, metadata_only=True) as cached:
        result = await cached.write_one(child)
        assert result.obj is not None
        assert result.obj["data"] == {"number": "2"}
        assert cached.verbs == ["get", "apply"]
        assert (await cached.write_one(child)).is_done
        assert cached.verbs == ["get"], "nothing changes, so nothing is written"


async def test_object_in_a_namespace_that_is_being_deleted_is_no_error(world: World) -> None:
    namespace: Object = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "going", "finalizers": ["example.com/hold"]},
    }
    await world.client.create(namespace)
    await world.client.delete(GVK("", "v1", "Namespace"), NamespacedName("", "going"))
    child = config_map()
    child["metadata"]["namespace"] = "going"
    results = await world.write(
        Child.present(child, has_owner_reference=False, belongs=lambda _: True)
    )
    assert [result.outcome for result in results] == [Outcome.TERMINATING]
    assert world.events.recorded == []
    results.raise_errors()


async def test_status_reaches_no_recreated_object(world: World) -> None:
    namespace: Object = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "recreated"},
    }
    before = await world.client.create(namespace)
    before["metadata"]["uid"] = "other"
    with pytest.raises((Conflict, Invalid)):
        await apply_status(world.client, before, {"phase": "Active"})


async def test_status_reaches_no_recreated_custom_resource(
    plane: ControlPlane, world: World
) -> None:
    """The API server ignores the uid in the status of a custom resource."""
    await plane.install_crds(appwrapper_crd())
    obj: Object = {
        "apiVersion": APPWRAPPER.api_version,
        "kind": APPWRAPPER.kind,
        "metadata": {"namespace": "default", "name": "recreated"},
        "spec": {"components": []},
    }
    before = await world.client.create(obj)
    await world.client.delete(APPWRAPPER, key_of(before), uid=uid_of(before))
    after = await world.client.create(obj)
    with pytest.raises(Conflict, match="was recreated"):
        await apply_status(world.client, before, {"phase": "Failed"})
    with pytest.raises(Conflict, match="was recreated"):
        await world.client.patch_object(
            before, {"status": {"phase": "Failed"}}, subresource="status"
        )
    with pytest.raises(Invalid):
        await replace_status(world.client, before, {"phase": "Failed"})
    stored = await world.client.get(APPWRAPPER, key_of(after), live=True)
    assert stored == after
    applied = await apply_status(world.client, after, {"phase": "Running"})
    assert applied["status"] == {"phase": "Running"}
    replaced = await replace_status(world.client, after, {"phase": "Failed"})
    assert replaced["status"] == {"phase": "Failed"}


async def test_patch_has_preconditions(world: World) -> None:
    before = await world.client.create(config_map())
    changed = await world.client.patch(CONFIG_MAP, KEY, {"data": {"a": "b"}}, uid=uid_of(before))
    for preconditions in (
        {"uid": "other"},
        {"uid": uid_of(before), "resource_version": before["metadata"]["resourceVersion"]},
    ):
        with pytest.raises((Conflict, Invalid)):
            await world.client.patch(CONFIG_MAP, KEY, {"data": None}, **preconditions)
    assert await world.stored() == changed
    assert key_of(changed) == KEY


@pytest.mark.parametrize("is_absent", [False, True])
async def test_child_in_another_namespace_must_be_recognized_without_an_owner(
    world: World, is_absent: bool
) -> None:
    obj = config_map()
    obj["metadata"]["namespace"] = "elsewhere"
    child = Child.absent(CONFIG_MAP, key_of(obj)) if is_absent else Child.present(obj)
    with pytest.raises(
        ValueError, match=r"ConfigMap elsewhere/.* not in the namespace of its owner"
    ):
        await world.write(child)


@pytest.mark.parametrize("option", ["belongs", "is_trusted", "adoption", "update"])
async def test_async_functions_of_children_are_refused(world: World, option: str) -> None:
    async def function(_: Object) -> bool:
        return True

    options: Any = {option: function}
    with pytest.raises(TypeError, match=f"{option}: async function .* without async"):
        await world.write(Child.present(config_map(), **options))
    assert world.events.recorded == []


@pytest.mark.parametrize(
    ("option", "is_absent"), [("belongs", False), ("belongs", True), ("is_trusted", False)]
)
async def test_coroutine_is_not_taken_for_true(world: World, option: str, is_absent: bool) -> None:
    """A lambda that calls an async function returns a coroutine, which counts as true."""

    async def answer() -> bool:
        return False

    before = await world.client.create(config_map(mine="no"))
    functions: Any = {"belongs": lambda _: True, option: lambda _: answer()}
    child = Child.present(config_map(mine="yes"), **functions)
    if is_absent:
        child = Child.absent(CONFIG_MAP, KEY, current=before, **functions)
    message = rf"^ConfigMap default/child: {option}: returned a value of type coroutine: must return True or False$"
    with pytest.raises(TypeError, match=message):
        await world.write(child)
    assert await world.stored() == before


async def test_computed_object_must_be_the_child(world: World) -> None:
    def compute(_: Object | None) -> Object:
        computed = config_map()
        computed["metadata"]["namespace"] = "kube-public"
        return computed

    with pytest.raises(ValueError, match="ConfigMap default/child") as caught:
        await world.write(Child.computed(CONFIG_MAP, KEY, compute))
    assert str(caught.value) == (
        "children: ConfigMap default/child: compute returned ConfigMap kube-public/child: must return an object of "
        "the child's kind, namespace and name"
    )
    assert await world.client.get(CONFIG_MAP, NamespacedName("kube-public", "child")) is None


async def test_function_that_computes_no_object_is_refused(world: World) -> None:
    async def computed() -> Object:
        return config_map()

    function: Any = lambda _: computed()  # noqa: E731 - a lambda is what authors write
    with pytest.raises(
        TypeError,
        match=r"ConfigMap default/child: compute: returned a value of type coroutine: must return an object",
    ):
        await world.write(Child.computed(CONFIG_MAP, KEY, function))


class UnusedReconciler:
    async def reconcile(self, request: Request) -> Result:
        """Do nothing: the tests write the children."""
        return Result()


def service_account(name: str, **labels: str) -> Object:
    obj = new_object(SERVICE_ACCOUNT, name, "default")
    obj["metadata"]["labels"] = labels
    return obj


async def test_child_that_owns_does_not_select_is_logged_once_and_fails_tests(world: World) -> None:
    manager = Manager(world.client.transport)
    builder = Builder(manager, "owner").for_(CONFIG_MAP)
    builder.owns(SERVICE_ACCOUNT, label_selector="app=web").complete(UnusedReconciler())
    selected = Child.present(service_account("selected", app="web"))
    unselected = [Child.present(service_account(name, app="other")) for name in ("a", "b")]
    unwatched = Child.present(config_map())
    with function_errors.collected() as found, capture_logs() as lines:
        await reconcile_children(manager.client, world.owner, [selected])
        assert warnings_of(lines) == []
        for _ in range(2):
            await reconcile_children(
                manager.client, world.owner, [*unselected, selected, unwatched]
            )
    message = (
        "ServiceAccount default/a: not selected by owns(ServiceAccount.v1) of the controller of ConfigMap, which has "
        "labelSelector 'app=web': its changes and its deletion are not seen"
    )
    assert warnings_of(lines) == [message]
    assert [(str(each.error), each.is_bug) for each in found.errors] == [(message, True)]


async def test_child_is_not_reported_if_another_informer_selects_it_or_owns_is_not_used(
    world: World,
) -> None:
    manager = Manager(world.client.transport)
    builder = Builder(manager, "owner").for_(CONFIG_MAP)
    builder.owns(SERVICE_ACCOUNT, label_selector="app=web").complete(UnusedReconciler())
    manager.cache.informer(SERVICE_ACCOUNT, label_selector="app=other")
    manager.cache.informer(SERVICE, label_selector="app=web")
    spec = {"ports": [{"port": 80}]}
    children = [
        Child.present(service_account("a", app="other")),
        Child.present(new_object(SERVICE, "a", "default", spec=spec)),
        Child.present(service_account("b"), has_owner_reference=False),
    ]
    with capture_logs() as lines:
        await reconcile_children(manager.client, world.owner, children)
    assert warnings_of(lines) == []


async def test_children_of_a_kind_without_owns_are_logged_once(world: World) -> None:
    manager = Manager(world.client.transport)
    Builder(manager, "owner").for_(CONFIG_MAP).complete(UnusedReconciler())
    children = [Child.present(service_account(name)) for name in ("a", "b")]
    with function_errors.collected() as found, capture_logs() as lines:
        for _ in range(2):
            await reconcile_children(manager.client, world.owner, children)
    message = (
        "ServiceAccount default/a: no controller watches this kind: its changes and its deletion are not seen; add "
        "owns(ServiceAccount.v1) to the controller of ConfigMap"
    )
    assert warnings_of(lines) == [message]
    assert not found.errors


class ForgetfulReconciler:
    """Writes two children that the API server refuses, and reads only the results of the first one."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def reconcile(self, request: Request) -> Result:
        """Write the children."""
        owner = await self.client.get(CONFIG_MAP, request)
        assert owner is not None
        for name in ("read", "forgotten"):
            service = new_object(SERVICE, name, "default", spec={"ports": [{"port": "x"}]})
            results = await reconcile_children(self.client, owner, [Child.present(service)])
            if name == "read":
                assert not results.is_done()
        return Result()


async def test_errors_that_a_reconciler_does_not_read_are_logged_and_fail_tests(
    world: World,
) -> None:
    manager = Manager(world.client.transport)
    builder = Builder(manager, "owner").for_(CONFIG_MAP, field_selector="metadata.name=owner")
    builder.complete(ForgetfulReconciler(manager.client))

    async def is_reported() -> bool:
        return bool(found.errors)

    with function_errors.collected() as found, capture_logs() as lines:
        async with manager:
            await wait_until(is_reported, "the errors")
    (error,) = found.errors
    assert error.is_bug
    assert str(error.error).startswith(
        "errors of children were not read, call results.raise_errors(): "
    )
    (line,) = [line for line in lines if line["event"] == "Errors of children were not read"]
    assert "default/forgotten" in line["error"]
    assert "default/read" not in line["error"]


async def test_child_outside_the_namespaces_of_its_informer_is_reported(world: World) -> None:
    manager = Manager(world.client.transport, ManagerOptions(namespaces=["a", "b"]))
    Builder(manager, "owner").for_(CONFIG_MAP).owns(SERVICE_ACCOUNT).complete(UnusedReconciler())
    with capture_logs() as lines:
        child = Child.present(service_account("a"))
        await reconcile_children(manager.client, world.owner, [child])
    (warning,) = warnings_of(lines)
    assert "which has namespaces a, b: " in warning
