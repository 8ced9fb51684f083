"""Cache entries: decoded metadata, kept bytes, managed fields and memory."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import msgspec
import orjson
import pytest

from cfo.runtime.cache import entry as entry_module
from cfo.runtime.cache.entry import MAX_METADATA_BYTES, EntryDecoder, Parts, version_number
from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import GVK

RAY = GVK("ray.io", "v1", "RayCluster")

METADATA: dict[str, Any] = {
    "name": "a",
    "namespace": "ns",
    "uid": "u",
    "resourceVersion": "17",
    "generation": 3,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "labels": {"app": "x"},
    "annotations": {"note": "größer"},
    "finalizers": ["f"],
    "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "ou"},
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "name": "c",
            "uid": "cu",
            "controller": True,
        },
    ],
}
MANAGED_FIELDS = [
    {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}},
    {
        "manager": "cfo",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsV1": {"f:data": {"f:cfo": {}}},
    },
]


def raw(metadata: dict[str, Any], **rest: Any) -> bytes:
    return orjson.dumps({**rest, "metadata": metadata})


def test_metadata_is_decoded_and_the_bytes_are_kept_unchanged() -> None:
    body = raw(
        METADATA,
        apiVersion="ray.io/v1",
        kind="RayCluster",
        spec={"new": {"unknown": [1, 2.50, None]}},
    )
    entry = EntryDecoder(RAY).decode(body)
    assert sorted(entry.raw) == sorted(body)  # the metadata comes after apiVersion and kind
    assert entry.object() == orjson.loads(body)
    assert entry.object() is not entry.object()
    meta = entry.meta
    assert (meta.name, meta.namespace, meta.uid, meta.resource_version) == ("a", "ns", "u", "17")
    assert (meta.generation, meta.creation_timestamp, meta.deletion_timestamp) == (
        3,
        "2026-01-01T00:00:00Z",
        None,
    )
    assert (meta.labels, meta.finalizers) == ({"app": "x"}, ("f",))
    assert [reference.uid for reference in meta.owner_references] == ["ou", "cu"]
    assert meta.controller is not None
    assert meta.controller.name == "c"
    assert entry.annotations == {"note": "größer"}
    assert (entry.version, entry.key, entry.managers) == (17, ("ns", "a"), ())


def test_absent_and_null_metadata_fields_are_empty() -> None:
    nulls = dict.fromkeys(
        (
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
            "creationTimestamp",
            "namespace",
            "managedFields",
        )
    )
    for metadata in ({"name": "a"}, {"name": "a", **nulls}):
        entry = EntryDecoder(POD).decode(raw(metadata))
        assert (entry.meta.labels, entry.meta.finalizers, entry.meta.owner_references) == (
            {},
            (),
            (),
        )
        assert (entry.annotations, entry.key, entry.version) == ({}, ("", "a"), 0)
        assert (entry.meta.controller, entry.meta.is_deleting) == (None, False)


def test_managed_fields_are_removed_and_own_entries_are_kept_separately() -> None:
    body = raw({**METADATA, "managedFields": MANAGED_FIELDS}, kind="Pod", apiVersion="v1")
    ours = EntryDecoder(POD, field_managers=["cfo", "other"]).decode(body)
    assert ours.object() == {"kind": "Pod", "apiVersion": "v1", "metadata": METADATA}
    assert b"managedFields" not in ours.raw
    assert ours.managers == (MANAGED_FIELDS[1],)
    # "f:cfo" is in the field set of an entry of another manager; this textual match must be ignored.
    assert EntryDecoder(POD, field_managers=["f:cfo"]).decode(body).managers == ()
    assert EntryDecoder(POD).decode(body).managers == ()


def test_items_of_built_in_lists_get_api_version_and_kind() -> None:
    entry = EntryDecoder(POD).decode(raw({"name": "a"}, spec={}))
    assert entry.object() == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {},
    }


def test_metadata_only_keeps_the_metadata_of_partial_and_whole_objects() -> None:
    decoder = EntryDecoder(RAY, metadata_only=True)
    expected = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "a"}}
    partial = raw({"name": "a"}, kind="PartialObjectMetadata", apiVersion="meta.k8s.io/v1")
    whole = raw(
        {"name": "a", "managedFields": MANAGED_FIELDS},
        kind="RayCluster",
        apiVersion="ray.io/v1",
        spec={"x": 1},
    )
    assert decoder.decode(partial).object() == expected
    assert decoder.decode(whole).object() == expected


@pytest.mark.parametrize("before", [{}, {"a": {"metadata": {"name": "b"}}}])
def test_metadata_is_found_in_a_large_object_without_reading_the_rest(
    before: dict[str, Any],
) -> None:
    own = {**METADATA, "annotations": {"a": ',"metadata":{'}}
    body = orjson.dumps({**before, "kind": 'x,"metadata":', "metadata": own, "apiVersion": "v1"})
    entry = EntryDecoder(RAY).decode(body)
    expected = entry.meta
    entry.drop_meta()
    assert (entry.meta.name, entry.meta.annotations) == (expected.name, own["annotations"])
    assert orjson.loads(bytes(entry.part("metadata"))) == own
    damaged = msgspec.structs.replace(entry, raw=entry.raw[:-1])
    damaged.drop_meta()
    assert damaged.meta.uid == expected.uid


def test_entry_keeps_its_list_page_only_until_metadata_is_dropped() -> None:
    item = b'{"apiVersion":"v1","kind":"Pod",' + raw(METADATA).removeprefix(b"{")
    page = b'{"items":[' + item + b"]}"
    references = sys.getrefcount(page)
    entry = EntryDecoder(POD).decode(
        msgspec.json.decode(page, type=dict[str, list[Parts]])["items"][0]
    )
    assert type(entry.raw) is bytes
    assert entry.raw == item
    assert sys.getrefcount(page) > references
    entry.drop_meta()
    assert sys.getrefcount(page) == references


def test_part_is_the_json_of_a_top_level_field() -> None:
    entry = EntryDecoder(POD).decode(
        raw(METADATA, kind="Pod", apiVersion="v1", status={"phase": "Running"})
    )

    def check() -> None:
        assert bytes(entry.part("status")) == b'{"phase":"Running"}'
        assert entry.part("status") is entry.part("status")  # decoded once
        assert not entry.part("spec")
        assert entry.meta is entry.meta
        assert entry.meta.labels == METADATA["labels"]

    check()
    entry.drop_meta()
    assert bytes(entry.part("status")) == b'{"phase":"Running"}'
    assert entry.part("status") is not entry.part("status")
    assert not entry.part("spec")
    entry.keep_meta()
    check()


MANY = tuple(map(str, range(100)))
"""More owners than a store replaces, with uids that are contained in each other."""


def owned_metadata(*uids: str) -> dict[str, Any]:
    """Return metadata with owner references of these uids, and the managed fields of their apply."""
    return {
        "name": f"of-{'-'.join(uids)}",
        "namespace": "ns",
        "resourceVersion": "7",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": uid} for uid in uids
        ],
        "managedFields": [
            {
                "manager": "cfo",
                "operation": "Apply",
                "time": f"2026-01-01T00:00:{len(uids):02}Z",
                "fieldsV1": {
                    "f:metadata": {
                        "f:ownerReferences": {f'k:{{"uid":"{uid}"}}': {} for uid in uids}
                    }
                },
            }
        ],
    }


@pytest.mark.parametrize(
    "uids", [(), ("3f2c",), ("0",), ("1", "0"), ("10", "0", "1"), ("a", "aa"), ("",), MANY]
)
def test_own_managed_fields_are_restored_with_the_uids_of_the_owners(uids: tuple[str, ...]) -> None:
    metadata = owned_metadata(*uids)
    entry = EntryDecoder(POD, field_managers=["cfo"]).decode(raw(metadata))
    entry.drop_meta()
    expected = {key: value for key, value in metadata["managedFields"][0].items() if key != "time"}
    assert entry.managers == (expected,)


def container_metadata(name: str, uid: str = "0") -> dict[str, Any]:
    """Return metadata of an object whose apply owns its container, which has the name of the object."""
    metadata = owned_metadata(uid)
    container = {f'k:{{"name":"{name}"}}': {"f:image": {}}, 'k:{"name":"other"}': {}}
    metadata["managedFields"][0]["fieldsV1"]["f:spec"] = {"f:containers": container}
    return {**metadata, "name": name}


@pytest.mark.parametrize("name", ["a", "0", "name", "f:image", "other", "k"])
def test_own_managed_fields_are_restored_with_the_name_of_the_object(name: str) -> None:
    metadata = container_metadata(name)
    entry = EntryDecoder(POD, field_managers=["cfo"]).decode(raw(metadata))
    expected = {key: value for key, value in metadata["managedFields"][0].items() if key != "time"}
    assert entry.managers == (expected,)


def test_managed_fields_that_any_client_wrote_as_our_manager_use_no_more_memory_than_their_json() -> (
    None
):
    decoder = EntryDecoder(POD, field_managers=["cfo"])
    uids = [
        str(number) for number in range(3000)
    ]  # at index 1010, a placeholder would contain later uids
    metadata = owned_metadata(*uids)
    entry = decoder.decode(raw(metadata))
    assert len(entry._managers) <= len(orjson.dumps(metadata["managedFields"]))
    metadata["managedFields"][0]["fieldsV1"]["f:data"] = {
        f"f:{number:06}": {} for number in range(5000)
    }
    entry = decoder.decode(raw(metadata))
    assert entry._managers == b""
    assert entry.managers == ()


def test_managed_fields_that_differ_only_in_names_and_owners_are_stored_once() -> None:
    decoder = EntryDecoder(POD, field_managers=["cfo"])
    one, other = (
        decoder.decode(raw(container_metadata(name, name * 3))) for name in ("x-1", "x-2")
    )
    assert one._managers is other._managers


def test_entries_use_less_than_1_3_times_the_memory_of_their_json() -> None:
    decoder = EntryDecoder(POD, field_managers=["cfo"])
    bodies = [
        raw(
            {
                **METADATA,
                **owned_metadata(f"6f1c2a52-0f0e-4d5b-9c1e-{number:012}"),
                "uid": f"{number:036}",
            },
            kind="Pod",
            apiVersion="v1",
            spec={"note": f"{number:0800}"},
        )
        for number in range(200)
    ]
    decoder.decode(bodies[0])
    tracemalloc.start()
    try:
        entries = [decoder.decode(body) for body in bodies]
        for entry in entries:
            entry.drop_meta()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 1.3 * sum(len(entry.raw) for entry in entries)


def test_only_selected_fields_are_kept() -> None:
    decoder = EntryDecoder(POD, fields=("spec.nodeName", "spec.a.b", "spec.none.c", "status"))
    obj = {
        "metadata": METADATA,
        "spec": {"nodeName": "n", "a": {"b": {"c": 1}, "d": 2}, "containers": [{"env": []}]},
        "status": {"phase": "Running"},
        "other": 1,
    }
    entry = decoder.decode(orjson.dumps(obj))
    kept = {"nodeName": "n", "a": {"b": {"c": 1}}}
    expected = {"apiVersion": "v1", "kind": "Pod", "metadata": METADATA}
    assert entry.object() == {**expected, "spec": kept, "status": {"phase": "Running"}}
    assert not entry.part("other")
    entry.drop_meta()
    assert orjson.loads(bytes(entry.part("status"))) == {"phase": "Running"}


@pytest.mark.parametrize("spec", [None, 1, "x", [1]])
def test_parent_of_a_selected_field_that_is_not_an_object_is_kept(spec: object) -> None:
    decoder = EntryDecoder(POD, fields=("spec.nodeName",))
    entry = decoder.decode(orjson.dumps({"metadata": METADATA, "spec": spec}))
    assert entry.object()["spec"] == spec


def test_selecting_fields_does_not_copy_the_others() -> None:
    decoder = EntryDecoder(POD, fields=("status",))
    body = orjson.dumps({"metadata": METADATA, "spec": "x" * 1_000_000, "status": {}})
    entry = decoder.decode(body)
    assert len(entry.raw) < 2000


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"metadata":null}',
        b'{"metadata":{}}',
        b'{"metadata":{"name":"a","labels":{"x":1}}}',
    ],
)
def test_body_without_valid_metadata_is_rejected(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        EntryDecoder(POD).decode(body)


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("1", 1),
        ("90071992547409931", 90071992547409931),
        ("", 0),
        ("0", 0),
        ("01", 0),
        ("x1", 0),
        ("²", 0),
    ],
)
def test_version_number_is_0_for_versions_that_are_not_numbers(version: str, number: int) -> None:
    assert version_number(version) == number


@pytest.mark.parametrize("level", [b'{"f":%s}', b"[%s]"], ids=["objects", "lists"])
@pytest.mark.parametrize("levels", [100, 900, 1030, 1500, 5000])
def test_object_that_readers_cannot_decode_is_refused(level: bytes, levels: int) -> None:
    """Since Python 3.12, the decoder of the metadata accepts more levels than that of the whole object."""
    before, _, after = level.partition(b"%s")
    spec = before * levels + b"1" + after * levels
    raw = b'{"kind":"A","apiVersion":"v1","metadata":{"name":"a"},"spec":' + spec + b"}"
    decoder = EntryDecoder(RAY)
    if levels > 1000:
        with pytest.raises(RecursionError):
            decoder.decode(raw)
        return
    assert decoder.decode(raw).object()["metadata"] == {"name": "a"}


def test_object_with_many_members_is_not_nested() -> None:
    spec = [{"a": []} for _ in range(5000)]
    raw = orjson.dumps({"kind": "A", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": spec})
    assert EntryDecoder(RAY).decode(raw).object()["spec"] == spec


@pytest.mark.parametrize(("owners", "is_checked"), [(1, True), (MAX_METADATA_BYTES // 20, False)])
def test_object_that_no_store_keeps_is_not_decoded_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, owners: int, is_checked: bool
) -> None:
    checked: list[bytes] = []
    monkeypatch.setattr(entry_module, "_require_readable", checked.append)
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "o"}
    metadata = {"name": "a", "ownerReferences": [reference] * owners}
    entry = EntryDecoder(POD).decode(raw(metadata, spec=[[]] * 3000))
    assert checked == ([entry.raw] if is_checked else [])
