"""Objects that are nested too deeply for the decoders."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import structlog

from cfo.runtime.cache.wire import object_without_nesting
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.process.nested_json import split_items, split_members
from test.support.reflectors import running_reflector, start_watch
from test.support.scripted_transport import list_response, raw_response, ray_cluster

DEPTHS = [500, 930, 960, *range(970, 1000, 3), 1500, 20_000]
"""Those near 1000, the default recursion limit, may or may not be decodable; they must never raise."""


def nested(depth: int) -> bytes:
    """Return JSON of this depth."""
    return b'{"f:a":' * depth + b"1" + b"}" * depth


def nested_cluster(name: str, version: int, depth: int) -> bytes:
    """Return a RayCluster whose spec and managedFields are nested to this depth."""
    head, _, tail = json.dumps(ray_cluster(name, version, spec=0)).rpartition('"spec": 0')
    fields = b'[{"manager": "m", "fieldsV1": ' + nested(depth) + b"}]"
    head = head.replace('"metadata": {', '"metadata": {"managedFields": 0, ')
    return head.encode().replace(b"0", fields, 1) + b'"spec": ' + nested(depth) + tail.encode()


def nested_page(depth: int, deep: bytes = b"") -> bytes:
    items = [
        json.dumps(ray_cluster("a", 1)).encode(),
        deep or nested_cluster("deep", 2, depth),
        json.dumps(ray_cluster("b", 3)).encode(),
    ]
    return (
        b'{"kind": "RayClusterList", "items": ['
        + b", ".join(items)
        + b'], "metadata": {"resourceVersion": "9"}}'
    )


@pytest.mark.parametrize("depth", DEPTHS)
async def test_item_of_a_page_is_skipped_and_the_others_are_kept(depth: int) -> None:
    with structlog.testing.capture_logs() as logs:
        async with running_reflector() as (server, harness):
            server.respond_with(raw_response(nested_page(depth)))
            watch = await start_watch(server, harness)
            await harness.wait_for_version("b", 3)
            assert harness.version("a") == "1"
            await watch.send("ADDED", ray_cluster("c", 10))
            await harness.wait_for_version("c", 10)
    if depth >= 1500:
        assert harness.version("deep") is None
        (error,) = [entry for entry in logs if entry["log_level"] == "error"]
        assert (error["object"], error["error"]) == ("ns/deep", "nested too deeply")


def managed_cluster(version: int, fields: bytes) -> bytes:
    """Return a RayCluster with these fields in its managedFields, and in those of a pod template."""
    managed = [{"manager": "m", "fieldsV1": 0}]
    cluster = ray_cluster(
        "deep", version, spec={"template": {"metadata": {"managedFields": managed}}}
    )
    cluster["metadata"]["managedFields"] = managed
    return json.dumps(cluster).encode().replace(b'"fieldsV1": 0', b'"fieldsV1": ' + fields)


@pytest.mark.parametrize(
    "fields",
    [
        *[nested(depth) for depth in (500, 930, 960, 990, 1030, 9000)],
        b'[["' + rb"\ud800" + b'"]]',
        b'"\xff"',
    ],
    ids=lambda fields: f"{len(fields)} bytes",
)
async def test_object_with_unreadable_managed_fields_is_stored(fields: bytes) -> None:
    """Anyone can write managedFields into own objects, and must not hide objects so."""
    async with running_reflector() as (server, harness):
        server.respond_with(raw_response(nested_page(0, managed_cluster(2, fields))))
        watch = await start_watch(server, harness)
        await harness.wait_for_version("deep", 2)
        await watch.send_raw(
            b'{"type": "MODIFIED", "object": ' + managed_cluster(10, fields) + b"}\n"
        )
        await harness.wait_for_version("deep", 10)
        stored = harness.store.get(NamespacedName("ns", "deep"))
        assert stored is not None
        assert "template" in stored.object()["spec"]


@pytest.mark.parametrize("depth", DEPTHS)
async def test_event_of_a_watch_is_skipped_and_the_others_are_processed(depth: int) -> None:
    def line(kind: str, version: int) -> bytes:
        return b'{"type": "%s", "object": %s}\n' % (
            kind.encode(),
            nested_cluster("deep", version, depth),
        )

    with structlog.testing.capture_logs() as logs:
        async with running_reflector() as (server, harness):
            server.respond_with(list_response(5, ray_cluster("deep", 1)))
            watch = await start_watch(server, harness)
            await watch.send_raw(line("MODIFIED", 6) + line("MODIFIED", 7))
            await watch.send("ADDED", ray_cluster("a", 8))
            await harness.wait_for_version("a", 8)
            assert harness.version("deep") == ("1" if depth >= 1500 else harness.version("deep"))
            await watch.send_raw(line("DELETED", 9))
            await harness.wait_for_version("deep", None)
    if depth >= 1500:
        (error,) = [entry for entry in logs if entry["log_level"] == "error"]
        assert (error["object"], error["error"]) == ("ns/deep", "nested too deeply")


async def test_nesting_does_not_matter_if_only_metadata_is_stored() -> None:
    async with running_reflector(metadata_only=True) as (server, harness):
        server.respond_with(raw_response(nested_page(1500)))
        watch = await start_watch(server, harness)
        await harness.wait_for_version("deep", 2)
        changed = nested_cluster("deep", 10, 1500)
        await watch.send_raw(b'{"type": "MODIFIED", "object": ' + changed + b"}\n")
        await harness.wait_for_version("deep", 10)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": 1, "b": "x", "c": None, "d": [], "e": {}, "f": -1.5e3, "g": True},
        {'q"uo\\te': '}]"\\', "": {"a": ['"', "\\", "}", {"b": "]:,"}]}, "ü": "\u2028"},
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_members_equal_those_of_a_decoder(value: dict[str, Any], indent: int | None) -> None:
    raw = json.dumps(value, indent=indent).encode()
    assert {key: json.loads(part) for key, part in split_members(raw).items()} == value
    array = json.dumps([value, {"x": value}, value], indent=indent).encode()
    assert [json.loads(item) for item in split_items(array)] == [value, {"x": value}, value]


def test_null_has_no_items() -> None:
    assert split_items(b"null") == []


def test_object_without_nesting_keeps_metadata_except_managed_fields() -> None:
    kept = json.loads(object_without_nesting(nested_cluster("deep", 7, 5000)))
    assert kept == {
        field: value for field, value in ray_cluster("deep", 7).items() if field != "spec"
    }


def test_members_need_valid_keys() -> None:
    with pytest.raises(msgspec.DecodeError):
        split_members(b'{"\\x": 1}')
