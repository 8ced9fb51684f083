"""Tests that no field makes a record of the queue large, because the budget of the cache does not include records."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER
from cfo.controllers.flux.queue.governance import INVALID, setup_of
from cfo.controllers.flux.queue.records import cluster_record, job_record
from cfo.features.flux import Flux
from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.objects.unstructured import GVK, Object
from test.support.flux_environment import flux_job, flux_setup, mini_cluster
from test.support.flux_queue import Queue

_LARGE = 300_000
_OWNER = {"apiVersion": FLUX_JOB.api_version, "kind": FLUX_JOB.kind, "controller": True}

Path = tuple[str, ...]

_NAMES = [f"example.com/{number:05}" for number in range(_LARGE // 20)]
_MANY_STRINGS = dict.fromkeys(_NAMES, "1")
_MANY_LISTS = {name: ["1"] for name in _NAMES}
"""Objects with many keys, which all fields share: one for each would take most of the time to collect the tests."""


def spec_schema(gvk: GVK) -> dict[str, Any]:
    """Return the schema of the spec of a kind."""
    (crd,) = (each for each in Flux().crds() if each["spec"]["names"]["kind"] == gvk.kind)
    (version,) = (each for each in crd["spec"]["versions"] if each["name"] == gvk.version)
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def large_fields(schema: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each field that a user can make large, with a large value; items of lists have the path element 0."""
    kind = schema.get("type")
    if kind == "string" or schema.get("x-kubernetes-int-or-string"):
        yield path, "1" * _LARGE
    elif kind == "array":
        yield path, [{}] * (_LARGE // 3)
        yield from large_fields(schema["items"], (*path, "0"))
    elif kind == "object":
        for name, field in schema.get("properties", {}).items():
            yield from large_fields(field, (*path, name))
        values = schema.get("additionalProperties", {})
        if values or schema.get("x-kubernetes-preserve-unknown-fields"):
            many = _MANY_LISTS if values.get("type") == "array" else _MANY_STRINGS
            yield path, many
            yield path, {"x" * _LARGE: many[_NAMES[0]]}


def with_field(obj: Object, path: Path, value: Any) -> Entry:
    """Return an entry for ``obj`` whose spec has ``value`` at ``path``."""
    changed = orjson.loads(orjson.dumps(obj))
    for name in reversed(path):
        value = [value] if name == "0" else {name: value}
    changed["spec"] = {**(changed.get("spec") or {}), **value}
    return entry_of(changed)


def entry_of(obj: Object) -> Entry:
    """Return an entry for an object that an API server has stored."""
    obj["metadata"] |= {"uid": "u", "resourceVersion": "1", "generation": 1}
    gvk = GVK.parse(obj["apiVersion"], obj["kind"])
    return EntryDecoder(gvk).decode(orjson.dumps(obj))


def size_of(record: Any) -> int:
    """Return how many bytes a record takes, about."""
    return len(pickle.dumps(record))


@pytest.mark.parametrize(
    ("path", "value"),
    [pytest.param(*field, id="/".join(field[0])) for field in large_fields(spec_schema(FLUX_JOB))],
)
def test_no_field_makes_the_record_of_a_job_large(path: Path, value: Any) -> None:
    try:
        record = job_record(with_field(flux_job("j"), path, value))
    except ValueError:
        return  # of another type: there is no record
    assert size_of(record) < 10_000


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(*field, id="/".join(field[0]))
        for field in large_fields(spec_schema(MINICLUSTER))
    ],
)
def test_no_field_makes_the_record_of_a_minicluster_large(path: Path, value: Any) -> None:
    try:
        record = cluster_record(with_field(mini_cluster("j"), path, value))
    except ValueError:
        return
    assert size_of(record) < 1000


def test_owner_reference_makes_no_record_large() -> None:
    cluster = mini_cluster("j")
    cluster["metadata"]["ownerReferences"] = [{**_OWNER, "name": "j", "uid": "u" * _LARGE}]
    assert size_of(cluster_record(entry_of(cluster))) < 1000


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(*field, id="/".join(field[0]))
        for field in large_fields(spec_schema(FLUX_SETUP))
    ],
)
def test_no_field_makes_a_setup_large(path: Path, value: Any) -> None:
    entry = with_field(flux_setup("s"), path, value)
    assert size_of(setup_of(entry.object(), ["ns"])) < 10_000


def test_setup_with_large_defaults_governs_nothing() -> None:
    requests = {f"example.com/{number:05}": "1" for number in range(1000)}
    setup = flux_setup("s")
    resources = {"requests": requests, "limits": requests}
    setup["spec"]["mini-cluster"] = {"flux": {"container": {"resources": resources}}}
    problem = setup_of(entry_of(setup).object(), []).problem
    assert problem is not None
    assert problem[0] == INVALID
    assert problem[1].startswith("spec.mini-cluster: the resources take ")


def test_job_with_too_many_resources_is_not_queued_and_the_reason_is_reported() -> None:
    queue = Queue(max_size=4)
    requests = {f"example.com/{number:05}": "1" for number in range(1000)}
    queue.put_job("large", resources={"requests": requests})
    queue.put_job("small")
    queue.decide()
    assert (queue.reason("large"), queue.reason("small")) == ("TooComplex", "Admitted")
