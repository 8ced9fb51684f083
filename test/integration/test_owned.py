"""Writes of owned objects on an API server: no object of another owner is changed, whatever the cache shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest

from cfo.runtime import (
    CONFIG_MAP,
    Client,
    ClientConfig,
    Conflict,
    Invalid,
    Object,
    key_of,
    owner_reference,
    uid_of,
)
from cfo.runtime.client import (
    NameTaken,
    OwnedWrites,
    apply_status,
    connect,
    create_or_read,
    patch_checked,
)
from envtest import ControlPlane


def config_map(name: str, owner: Object | None = None, **data: str) -> Object:
    metadata = {"namespace": "default", "name": name}
    references = {"ownerReferences": [owner_reference(owner)]} if owner is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**metadata, **references},
        "data": data,
    }


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    async with connect(ClientConfig.for_control_plane(plane), field_manager="test") as connected:
        yield connected


@pytest.fixture
async def writes(client: Client) -> OwnedWrites:
    return OwnedWrites(client, await client.create(config_map("owner")), block_owner_deletion=True)


async def stored(client: Client, name: str = "child") -> Object | None:
    return await client.get(CONFIG_MAP, key_of(config_map(name)), live=True)


@pytest.mark.parametrize("by", ["apply", "create"])
async def test_absent_object_is_created_with_its_owner(
    client: Client, writes: OwnedWrites, by: str
) -> None:
    desired = config_map("child", a="b")
    assert await (writes.apply(desired) if by == "apply" else writes.create(desired))
    found = await stored(client)
    assert found is not None
    assert found["metadata"]["ownerReferences"] == [
        owner_reference(writes.owner, block_owner_deletion=True)
    ]
    assert "ownerReferences" not in desired["metadata"]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("owner", ["", "other", "predecessor"])
async def test_object_of_another_owner_is_left_unchanged(
    client: Client, writes: OwnedWrites, owner: str, cached: bool
) -> None:
    # The garbage collector does not know this kind, so it does not delete the object.
    name = "owner" if owner == "predecessor" else "other"
    reference = {
        **owner_reference(writes.owner),
        "apiVersion": "example.com/v1",
        "name": name,
        "uid": "u",
    }
    foreign = config_map("child", theirs="yes")
    foreign["metadata"]["ownerReferences"] = [reference] if owner else []
    before = await client.create(foreign)
    desired = config_map("child", a="b")
    for write in (
        partial(writes.apply, desired, before if cached else None),
        partial(writes.create, desired),
    ):
        with pytest.raises(
            NameTaken, match="ConfigMap child already exists and does not belong to this"
        ) as raised:
            await write()
        assert raised.value.is_of_predecessor is (owner == "predecessor")
    await writes.delete_owned(CONFIG_MAP, before)
    assert await stored(client) == before


@pytest.mark.parametrize("cached", [False, True])
async def test_object_of_the_owner_is_updated_by_an_apply_and_kept_by_a_create(
    client: Client, writes: OwnedWrites, cached: bool
) -> None:
    before = await client.create(config_map("child", writes.owner, old="yes"))
    assert await writes.create(config_map("child", new="yes")) == (before, False)
    after = await writes.apply(config_map("child", new="yes"), before if cached else None)
    assert after is not None
    assert after["data"] == {"old": "yes", "new": "yes"}
    assert uid_of(after) == uid_of(before)


async def test_object_that_replaced_the_checked_one_is_left_unchanged(
    client: Client, writes: OwnedWrites
) -> None:
    cached = await client.create(config_map("child", writes.owner))
    await client.delete(CONFIG_MAP, key_of(cached))
    other = await client.create(config_map("child", writes.owner, theirs="yes"))
    desired = config_map("child", a="b")
    for write in (
        partial(writes.apply, desired, cached),
        partial(writes.apply_to, desired, uid_of(cached)),
        partial(writes.apply_to, desired, ""),
        partial(patch_checked, client, cached, {"data": {"a": "b"}}),
        partial(writes.delete_owned, CONFIG_MAP, cached),
    ):
        with pytest.raises((Conflict, Invalid)):
            await write()
    await writes.delete_owned(CONFIG_MAP, cached, ignore_conflict=True)
    assert await create_or_read(client, desired) == (other, False)
    assert await stored(client) == other


async def test_changed_object_is_not_overwritten(client: Client, writes: OwnedWrites) -> None:
    cached = await client.create(config_map("child", writes.owner))
    changed = await patch_checked(client, cached, {"data": {"theirs": "yes"}})
    with pytest.raises(Conflict):
        await writes.apply_to(
            config_map("child", a="b"), uid_of(cached), cached["metadata"]["resourceVersion"]
        )
    with pytest.raises(Conflict):
        await patch_checked(client, cached, {"data": None}, unchanged=True)
    assert await stored(client) == changed


async def test_object_that_another_client_released_is_left_unchanged(
    client: Client, writes: OwnedWrites
) -> None:
    cached = await client.create(config_map("child", writes.owner))
    released = await patch_checked(
        client, cached, {"metadata": {"ownerReferences": None}, "data": {"theirs": "yes"}}
    )
    with pytest.raises(NameTaken):
        await writes.apply(config_map("child", a="b"), cached)
    assert await stored(client) == released


async def test_object_of_the_owner_that_another_client_changed_is_applied_once_more(
    client: Client, writes: OwnedWrites
) -> None:
    cached = await client.create(config_map("child", writes.owner))
    await patch_checked(client, cached, {"data": {"theirs": "yes"}})
    applied = await writes.apply(config_map("child", a="b"), cached)
    assert applied is not None
    assert applied["data"] == {"a": "b", "theirs": "yes"}


async def test_object_of_the_owner_is_deleted_once(client: Client, writes: OwnedWrites) -> None:
    child = config_map("child", writes.owner)
    child["metadata"]["finalizers"] = ["example.com/hold"]
    child = await client.create(child)
    await writes.delete_owned(CONFIG_MAP, child, owns=lambda _: False)
    assert await stored(client) == child
    await writes.delete_owned(CONFIG_MAP, child)
    deleting = await stored(client)
    assert deleting is not None
    assert deleting["metadata"]["deletionTimestamp"]
    await writes.delete_owned(CONFIG_MAP, {**deleting, "kind": "not requested"})
    await writes.delete_owned(CONFIG_MAP, None)


async def test_status_reaches_no_recreated_object(client: Client) -> None:
    before = await client.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "recreated"}}
    )
    before["metadata"]["uid"] = "other"
    with pytest.raises((Conflict, Invalid)):
        await apply_status(client, before, {"phase": "Active"})
