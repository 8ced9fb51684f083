"""Trackers of registered resources: reset fields of endpoints, other versions, conversion webhooks."""

from collections.abc import Sequence
from typing import Any

import pytest

from envtest.apimachinery.errors import StatusError, plain_error
from envtest.apimachinery.objects import Object
from envtest.apply.trackers import Trackers
from envtest.registry.registry import Registry
from envtest.registry.resource import Converter, ResourceInfo, Strategy, Subresource
from envtest.schema.schema_node import Schema


def info(version: str, field: str, convert: Converter | None = None, **more: Any) -> ResourceInfo:
    spec = {"type": "object", "properties": {field: {"type": "string"}}}
    schema = Schema({"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}})
    return ResourceInfo(
        "g",
        version,
        "things",
        "thing",
        "Thing",
        True,
        Strategy(),
        schema=schema,
        is_crd=True,
        convert=convert,
        converts_by_webhook=convert is not None,
        **more,
    )


def thing(version: str, **content: Any) -> Object:
    return {"apiVersion": f"g/{version}", "kind": "Thing", "metadata": {"name": "a"}, **content}


class ConversionWebhook:
    """A converter that renames the field ``size`` of v1 to ``length`` in v2."""

    def __init__(self) -> None:
        self.calls = 0
        self.broken = False

    async def convert(self, objects: Sequence[Object], api_version: str) -> list[Object]:
        self.calls += 1
        if self.broken:
            raise plain_error("conversion webhook failed")
        names = {"size": "length"} if api_version == "g/v2" else {"length": "size"}
        converted = []
        for obj in objects:
            spec = {names.get(name, name): value for name, value in (obj.get("spec") or {}).items()}
            converted.append({**obj, "apiVersion": api_version, "spec": spec})
        return converted


async def _live(trackers: Trackers, one: ResourceInfo, webhook: ConversionWebhook) -> Object:
    """Return an object that the manager ``old`` applied in v1, converted to v2."""
    live = trackers.of(one).apply(
        None, thing("v1", spec={"size": "1"}), manager="old", force=False, now="t"
    )
    converted_live: Object = (await webhook.convert([live], "g/v2"))[0]
    converted_live["metadata"]["uid"] = "u"
    webhook.calls = 0
    return converted_live


async def test_fields_are_compared_in_the_version_of_their_owner() -> None:
    webhook, registry = ConversionWebhook(), Registry()
    one, two = info("v1", "size", webhook.convert), info("v2", "length", webhook.convert)
    registry.register(one)
    registry.register(two)
    trackers = Trackers(registry)
    live = await _live(trackers, one, webhook)
    tracker = trackers.of(two)
    unchanged = thing("v2", spec={"length": "1"})
    applied = await tracker.run_with_conversions(
        lambda: tracker.apply(live, unchanged, manager="new", force=False, now="t")
    )
    assert {entry["manager"] for entry in applied["metadata"]["managedFields"]} == {"old", "new"}
    changed = thing("v2", spec={"length": "2"})
    with pytest.raises(StatusError) as caught:
        await tracker.run_with_conversions(
            lambda: tracker.apply(live, changed, manager="new", force=False, now="t")
        )
    assert caught.value.message == 'Apply failed with 1 conflict: conflict with "old": .spec.size'
    assert webhook.calls


async def test_failed_conversion_drops_owners_on_update_and_rejects_apply() -> None:
    webhook, registry = ConversionWebhook(), Registry()
    one, two = info("v1", "size", webhook.convert), info("v2", "length", webhook.convert)
    registry.register(one)
    registry.register(two)
    trackers = Trackers(registry)
    live = await _live(trackers, one, webhook)
    webhook.broken = True
    tracker, new = trackers.of(two), thing("v2", spec={"length": "2"})
    with pytest.raises(StatusError, match="conversion webhook failed"):
        await tracker.run_with_conversions(
            lambda: tracker.apply(live, new, manager="new", force=True, now="t")
        )
    await tracker.run_with_conversions(lambda: tracker.track(live, new, manager="new", now="t"))
    assert "managedFields" not in new["metadata"]


def test_object_and_status_endpoints_own_separate_fields() -> None:
    registry = Registry()
    one = info("v1", "size", subresources={"status": Subresource("status")})
    registry.register(one)
    trackers, both = Trackers(registry), thing("v1", spec={"size": "1"}, status={"x": 1})
    for subresource, owned in (
        ("", {"f:spec": {"f:size": {}}}),
        ("status", {"f:status": {"f:x": {}}}),
    ):
        created = trackers.of(one, subresource).apply(None, both, manager="m", force=False, now="t")
        assert created["metadata"]["managedFields"][0]["fieldsV1"] == owned


def test_tracker_is_recreated_when_its_resource_changes() -> None:
    registry = Registry()
    one = info("v1", "size")
    registry.register(one)
    trackers = Trackers(registry)
    assert trackers.of(one) is trackers.of(one)
    changed = info("v1", "length")
    registry.register(changed)
    assert trackers.of(changed) is not trackers.of(one)
