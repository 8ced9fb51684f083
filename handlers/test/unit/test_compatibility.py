"""What is stored in objects is what kopf stores: compared with kopf itself, which is a development dependency."""

from __future__ import annotations

import datetime
import json
from typing import Any

import kopf
import pytest
from kopf._cogs.structs import diffs as kopf_diffs
from kopf._cogs.structs import references as kopf_references

import cfo_handlers as handlers
from cfo_handlers.diffs import compute_diff
from cfo_handlers.progress import HandlerState
from cfo_handlers.resource_selectors import Resource, Selector

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC)

BODIES: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "A",
        "metadata": {"name": "a", "uid": "1"},
        "spec": {"a": 1},
        "status": {"b": 2},
    },
    {
        "kind": "A",
        "metadata": {"name": "a", "labels": {"x": "y"}, "annotations": {"a": "b"}},
        "data": {"k": "v"},
    },
    {
        "kind": "A",
        "metadata": {
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "kopf.zalando.org/create_fn": "{}",
                "other.example.com/kopf-managed": "yes",
                "other.example.com/create_fn": "{}",
                "example.com/kept": "yes",
            }
        },
        "spec": {"nested": {"list": [1, {"a": None}]}, "text": "ä\n"},
    },
    {
        "kind": "ReplicaSet",
        "metadata": {"ownerReferences": [{"kind": "Deployment"}]},
        "spec": {"replicas": 1},
    },
    {"kind": "A", "metadata": {}, "spec": {}, "status": {"phase": "x", "kopf": {"progress": {}}}},
]
FIELDS: list[list[tuple[str, ...]]] = [[], [("status", "phase")], [("metadata", "name")]]
PREFIXES = [
    "kopf.zalando.org",
    "example.com",
    "a-rather-long-name-of-an-operator.and-its.example.com",
]
KEYS = ["create_fn", "create_fn/spec.field", "Class.method.<locals>.fn/sub", "x" * 70, "y" * 55]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("fields", FIELDS)
def test_configuration_is_the_same_and_each_reads_what_the_other_stores(
    body: dict[str, Any], fields: list[tuple[str, ...]], prefix: str
) -> None:
    ours = handlers.AnnotationsDiffBaseStorage(prefix=prefix)
    theirs = kopf.AnnotationsDiffBaseStorage(prefix=prefix)
    their_body = kopf.Body(body)  # type: ignore[arg-type]
    essence = ours.build(body=body, extra_fields=fields)
    assert essence == theirs.build(body=their_body, extra_fields=fields)

    our_patch, their_patch = handlers.Patch(), kopf.Patch()
    ours.store(body=body, patch=our_patch, essence=essence)
    theirs.store(body=their_body, patch=their_patch, essence=essence)  # type: ignore[arg-type]
    decoded = [
        {
            key: json.loads(value) if value.startswith("{") else value
            for key, value in annotations.items()
        }
        for annotations in (
            our_patch["metadata"]["annotations"],
            their_patch["metadata"]["annotations"],
        )
    ]
    assert decoded[0] == decoded[1]

    stored = {
        **body,
        "metadata": {**body["metadata"], "annotations": our_patch["metadata"]["annotations"]},
    }
    assert theirs.fetch(body=kopf.Body(stored)) == ours.fetch(body=stored) == essence  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("key", KEYS)
def test_progress_has_the_names_and_fields_of_kopf(prefix: str, key: str) -> None:
    ours = handlers.AnnotationsProgressStorage(prefix=prefix)
    theirs = kopf.AnnotationsProgressStorage(prefix=prefix)
    body: dict[str, Any] = {"kind": "A", "metadata": {}}
    state = HandlerState(
        started=NOW,
        delayed=NOW,
        purpose="create",
        retries=2,
        message="Oops",
        children=frozenset("a"),
    )
    our_patch, their_patch = handlers.Patch(), kopf.Patch()
    ours.store(key=key, record=state.record(), body=body, patch=our_patch)
    theirs.store(
        key=key,  # type: ignore[arg-type]
        record=state.record(),  # type: ignore[arg-type]
        body=kopf.Body(body),  # type: ignore[arg-type]
        patch=their_patch,
    )
    assert dict(our_patch) == dict(their_patch)
    stored = {"kind": "A", "metadata": our_patch["metadata"]}
    record = ours.fetch(key=key, body=stored)
    assert record == theirs.fetch(key=key, body=kopf.Body(stored))  # type: ignore[arg-type]
    assert record is not None
    assert HandlerState.parse(record, NOW) == state


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, {"a": 1}),
        ({"a": {"b": 1, "c": [1]}}, {"a": {"b": 2, "c": [1, 2]}, "d": None}),
        ({"a": {"b": 1}}, {"a": 5}),
        ({"a": 1, "b": {"c": 2}}, {"b": {"c": 2}}),
        ({}, {}),
    ],
)
def test_diff_is_the_same(old: Any, new: Any) -> None:
    assert sorted(map(repr, compute_diff(old, new))) == sorted(map(repr, kopf_diffs.diff(old, new)))


SELECTORS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("kopfexamples",), {}),
    (("kex",), {}),
    (("KopfExample",), {}),
    (("kopfexamples.kopf.dev",), {}),
    (("kopfexamples.v1.kopf.dev",), {}),
    (("pods.v1",), {}),
    (("kopf.dev", "kopfexamples"), {}),
    (("kopf.dev/v1", "kopfexamples"), {}),
    (("kopf.dev", "v1", "kopfexamples"), {}),
    (("v1", "pods"), {}),
    (("", "v1", "pods"), {}),
    ((), {"kind": "Pod"}),
    ((), {"plural": "pods", "group": ""}),
    ((), {"singular": "kopfexample"}),
    ((), {"shortcut": "po"}),
    ((), {"category": "all"}),
    ((handlers.EVERYTHING,), {}),
    ((lambda resource: resource.plural.startswith("p"),), {}),
    (("apps/v1", handlers.EVERYTHING), {}),
]
RESOURCES = [
    ("kopf.dev", "v1", "kopfexamples", "KopfExample", "kopfexample", {"kex"}, set(), True),
    ("kopf.dev", "v1alpha1", "kopfexamples", "KopfExample", "kopfexample", {"kex"}, set(), False),
    ("", "v1", "pods", "Pod", "pod", {"po"}, {"all"}, True),
    ("", "v1", "events", "Event", "event", {"ev"}, set(), True),
    ("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", "", set(), set(), True),
    ("apps", "v1", "deployments", "Deployment", "deployment", {"deploy"}, {"all"}, True),
]


def is_wanted(_: Resource) -> bool:
    return True


@pytest.mark.parametrize(
    ("arguments", "fields", "text"),
    [
        (("kopfexamples",), {}, "kopfexamples"),
        (("kopf.dev", "v1", "kopfexamples"), {}, "kopfexamples.v1.kopf.dev"),
        ((), {"group": "kopf.dev", "kind": "KopfExample"}, "KopfExample.kopf.dev"),
        (("v1", "pods"), {}, "pods.v1"),
        (("apps", handlers.EVERYTHING), {}, "EVERYTHING.apps"),
        ((), {"category": "all"}, "category all"),
        ((is_wanted,), {}, "is_wanted"),
    ],
)
def test_selector_is_shown_as_kubectl_names_resources(
    arguments: tuple[Any, ...], fields: dict[str, Any], text: str
) -> None:
    assert str(Selector.of(arguments, **fields)) == text


@pytest.mark.parametrize(("arguments", "fields"), SELECTORS)
def test_selector_selects_the_same_resources(
    arguments: tuple[Any, ...], fields: dict[str, Any]
) -> None:
    names = (
        "group",
        "version",
        "plural",
        "kind",
        "singular",
        "shortcuts",
        "categories",
        "preferred",
    )
    ours, theirs = [], []
    for values in RESOURCES:
        known: dict[str, Any] = {
            name: frozenset(value) if isinstance(value, set) else value
            for name, value in zip(names, values, strict=True)
        }
        ours.append(Resource(**known))
        theirs.append(
            kopf.Resource(**known, namespaced=True, verbs=frozenset(), subresources=frozenset())
        )
    their_arguments = [
        kopf.EVERYTHING if item is handlers.EVERYTHING else item for item in arguments
    ]
    found = Selector.of(arguments, **fields).select(ours)
    expected = kopf_references.Selector(*their_arguments, **fields).select(theirs)
    assert {(item.group, item.version, item.plural) for item in found} == {
        (item.group, item.version, item.plural) for item in expected
    }


def test_public_names_are_those_of_kopf() -> None:
    missing = {
        "AiohttpSession",  # requests are not sent with aiohttp's sessions
        "WebhookClientConfig",
        "WebhookClientConfigService",
        "WebhookFn",
        "WebhookServerProtocol",  # no webhook servers of other projects
        "run_tasks",
        "spawn_tasks",  # a manager runs the tasks
    }
    assert set(kopf.__all__) - set(handlers.__all__) == missing


@pytest.mark.parametrize("module", [handlers, kopf])
def test_parts_of_patches_and_objects_cannot_be_assigned(module: Any) -> None:
    """What is assigned would not be sent."""
    patch, body = module.Patch(), module.Body({})
    parts = ("metadata", "meta", "spec", "status")
    assignments = [(view, part) for view in (patch, body) for part in parts]
    maps = ("labels", "annotations")
    assignments += [(view, part) for view in (patch.metadata, body.metadata) for part in maps]
    for view, part in assignments:
        with pytest.raises(AttributeError, match=f"'{part}' of .* has no setter"):
            setattr(view, part, {"a": 1})
