from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import msgspec
import orjson
import pytest

from cfo.runtime.cache.entry import EntryDecoder, version_number
from cfo.runtime.kinds import POD
from cfo.runtime.objects import GVK

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
        {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c", "uid": "cu", "controller": True},
    ],
}
MANAGED = [
    {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}},
    {"manager": "cfo", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {"f:data": {"f:cfo": {}}}},
]


def raw(metadata: dict[str, Any], **rest: Any) -> bytes:
    return orjson.dumps({**rest, "metadata": metadata})


def test_metadata_is_decoded_and_the_rest_kept_as_it_came() -> None:
    body = raw(METADATA, apiVersion="ray.io/v1", kind="RayCluster", spec={"new": {"unknown": [1, 2.50, None]}})
    entry = EntryDecoder(RAY).decode(body)
    assert entry.raw == body
    assert entry.object() == orjson.loads(body)
    assert entry.object() is not entry.object()
    meta = entry.meta
    assert (meta.name, meta.namespace, meta.uid, meta.resource_version) == ("a", "ns", "u", "17")
    assert (meta.generation, meta.creation_timestamp, meta.deletion_timestamp) == (3, "2026-01-01T00:00:00Z", None)
    assert (meta.labels, meta.finalizers) == ({"app": "x"}, ("f",))
    assert [reference.uid for reference in meta.owner_references] == ["ou", "cu"]
    assert meta.controller is not None
    assert meta.controller.name == "c"
    assert entry.annotations == {"note": "größer"}
    assert (entry.version, entry.key, entry.managers) == (17, ("ns", "a"), ())


def test_absent_and_null_metadata_are_empty() -> None:
    nulls = dict.fromkeys(
        ("labels", "annotations", "finalizers", "ownerReferences", "creationTimestamp", "namespace", "managedFields")
    )
    for metadata in ({"name": "a"}, {"name": "a", **nulls}):
        entry = EntryDecoder(POD).decode(raw(metadata))
        assert (entry.meta.labels, entry.meta.finalizers, entry.meta.owner_references) == ({}, (), ())
        assert (entry.annotations, entry.key, entry.version) == ({}, ("", "a"), 0)
        assert (entry.meta.controller, entry.meta.is_deleting) == (None, False)


def test_managed_fields_are_taken_out_and_ours_kept_beside() -> None:
    body = raw({**METADATA, "managedFields": MANAGED}, kind="Pod", apiVersion="v1")
    ours = EntryDecoder(POD, field_managers=["cfo", "other"]).decode(body)
    assert ours.object() == {"kind": "Pod", "apiVersion": "v1", "metadata": METADATA}
    assert b"managedFields" not in ours.raw
    assert ours.managers == (MANAGED[1],)
    # "cfo" stands in the field set of an entry that is not ours: no match by text alone.
    assert EntryDecoder(POD, field_managers=["f:cfo"]).decode(body).managers == ()
    assert EntryDecoder(POD).decode(body).managers == ()


def test_items_of_built_in_lists_get_their_kind_back() -> None:
    entry = EntryDecoder(POD).decode(raw({"name": "a"}, spec={}))
    assert entry.object() == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}


def test_metadata_only_keeps_the_metadata_of_whatever_came() -> None:
    decoder = EntryDecoder(RAY, metadata_only=True)
    expected = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "a"}}
    partial = raw({"name": "a"}, kind="PartialObjectMetadata", apiVersion="meta.k8s.io/v1")
    whole = raw({"name": "a", "managedFields": MANAGED}, kind="RayCluster", apiVersion="ray.io/v1", spec={"x": 1})
    assert decoder.decode(partial).object() == expected
    assert decoder.decode(whole).object() == expected


def test_a_page_is_not_kept_alive_by_its_items() -> None:
    item = raw(METADATA, kind="Pod", apiVersion="v1")
    page = b'{"items":[' + item + b"]}"
    (part,) = msgspec.json.decode(page, type=dict[str, list[msgspec.Raw]])["items"]
    entry = EntryDecoder(POD).decode(part)
    del part
    assert type(entry.raw) is bytes
    assert entry.raw == item
    assert page not in gc.get_referents(entry, entry.meta)


def owned(*uids: str) -> dict[str, Any]:
    """Metadata with these owners, and what a manager that applied it owns."""
    return {
        "name": f"of-{'-'.join(uids)}",
        "namespace": "ns",
        "resourceVersion": "7",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": uid} for uid in uids],
        "managedFields": [
            {
                "manager": "cfo",
                "operation": "Apply",
                "time": f"2026-01-01T00:00:{len(uids):02}Z",
                "fieldsV1": {"f:metadata": {"f:ownerReferences": {f'k:{{"uid":"{uid}"}}': {} for uid in uids}}},
            }
        ],
    }


@pytest.mark.parametrize("uids", [(), ("3f2c",), ("0",), ("1", "0"), ("10", "0", "1"), ("a", "aa"), ("",)])
def test_what_our_managers_own_comes_back_with_the_uids_of_the_owners(uids: tuple[str, ...]) -> None:
    metadata = owned(*uids)
    entry = EntryDecoder(POD, field_managers=["cfo"]).decode(raw(metadata))
    entry.drop_meta()
    expected = {key: value for key, value in metadata["managedFields"][0].items() if key != "time"}
    assert entry.managers == (expected,)


def test_an_object_takes_hardly_more_memory_than_its_json() -> None:
    decoder = EntryDecoder(POD, field_managers=["cfo"])
    wires = [
        raw(
            {**METADATA, **owned(f"6f1c2a52-0f0e-4d5b-9c1e-{number:012}"), "uid": f"{number:036}"},
            kind="Pod",
            apiVersion="v1",
            spec={"note": f"{number:0800}"},
        )
        for number in range(200)
    ]
    decoder.decode(wires[0])
    tracemalloc.start()
    try:
        entries = [decoder.decode(wire) for wire in wires]
        for entry in entries:
            entry.drop_meta()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 1.3 * sum(len(entry.raw) for entry in entries)


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"{}", b'{"metadata":null}', b'{"metadata":{}}', b'{"metadata":{"name":"a","labels":{"x":1}}}'],
)
def test_what_has_no_sound_metadata_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        EntryDecoder(POD).decode(body)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("90071992547409931", 90071992547409931), ("", 0), ("0", 0), ("01", 0), ("x1", 0), ("²", 0)],
)
def test_versions_are_numbers_or_nothing(text: str, number: int) -> None:
    assert version_number(text) == number
