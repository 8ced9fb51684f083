"""A subscription delivers each change of a summary once, and remembers only what has changed since."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime import NamespacedName
from cfo.summaries import changes as changes_module
from cfo.summaries.changes import ChangeType, Subscription
from test.support.summaries import summary

IDENTITY = (RAY_CLUSTER, NamespacedName("ns", "x"))


async def refresh() -> None:
    """Compute no summaries: the tests record them."""


async def test_subscription_forgets_what_was_added_and_removed_between_two_reads() -> None:
    subscription = Subscription({}, refresh)
    subscription.record(IDENTITY, None, summary("x"))
    subscription.record(IDENTITY, summary("x"), None)
    assert not subscription._last_read
    subscription.record(IDENTITY, summary("x"), None)
    (change,) = await subscription.next()
    assert change.type is ChangeType.REMOVED
    assert change.summary == summary("x")


async def test_subscription_begins_with_an_addition_for_each_object() -> None:
    summaries: dict[Any, Any] = {IDENTITY: summary("x")}
    subscription = Subscription(summaries, refresh)
    (change,) = await subscription.next()
    assert (change.type, change.summary) == (ChangeType.ADDED, summary("x"))


async def test_several_changes_of_an_object_are_one() -> None:
    summaries: dict[Any, Any] = {IDENTITY: summary("x")}
    subscription = Subscription(summaries, refresh)
    await subscription.next()
    for ready in ("1/3", "2/3"):
        subscription.record(IDENTITY, summaries[IDENTITY], summary("x", ready=ready))
        summaries[IDENTITY] = summary("x", ready=ready)
    (change,) = await subscription.next()
    assert (change.type, change.summary.ready) == (ChangeType.CHANGED, "2/3")


async def test_what_takes_long_to_compute_does_not_delay_what_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Users can have any number of large objects, whose summaries take long."""
    monkeypatch.setattr(changes_module, "MAX_DELAY_SECONDS", 0.01)
    summaries: dict[Any, Any] = {}
    to_compute = ["", "a", "b", ""]

    async def refresh_slowly() -> None:
        name = to_compute.pop(0)
        if name:
            identity = (RAY_CLUSTER, NamespacedName("ns", name))
            summaries[identity] = summary(name)
            subscription.record(identity, None, summary(name))
        if to_compute:
            await anyio.sleep_forever()

    subscription = Subscription(summaries, refresh_slowly)
    deliveries = aiter(subscription)
    for name in ("a", "b"):
        (change,) = await anext(deliveries)
        assert change.summary.key.name == name


@pytest.mark.parametrize("is_read", [True, False])
async def test_changes_can_be_awaited_until_they_are_read_or_cancel_each_other(
    *, is_read: bool
) -> None:
    summaries: dict[Any, Any] = {}
    subscription = Subscription(summaries, refresh)
    await subscription.wait_until_read()
    subscription.record(IDENTITY, None, summary("x"))
    ended: list[bool] = []

    async def wait() -> None:
        await subscription.wait_until_read()
        ended.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        assert not ended
        if is_read:
            summaries[IDENTITY] = summary("x")
            await subscription.next()
        else:
            subscription.record(IDENTITY, summary("x"), None)
    assert ended
