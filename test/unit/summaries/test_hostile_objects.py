"""Objects whose fields have any type: a summary never fails, and its strings are bounded and printable."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from cfo.api.gateway import HTTP_ROUTE
from cfo.api.raycluster.names import RAY_CLUSTER, ROUTE
from cfo.api.reading import MAX_MESSAGE, MAX_TEXT, text
from cfo.runtime import GVK, INGRESS, NETWORK_POLICY, SECRET
from cfo.summaries.kind_view import Related, summarize
from cfo.summaries.summary import Summary
from test.support.summaries import VIEWS

ODD: list[Any] = [
    "text",
    None,
    [],
    {},
    [None],
    [1, "x"],
    {"conditions": "no"},
    7,
    -1,
    1e308,
    True,
    10**400,
    "\x1b[2J",
]

FIELDS = {
    "spec": [
        "suspend",
        "components",
        "max-size",
        "size",
        "headGroupSpec",
        "workerGroupSpecs",
        "managedBy",
        "command",
    ],
    "status": [
        "state",
        "conditions",
        "componentStatus",
        "applications",
        "phase",
        "position",
        "head",
        "operator",
    ],
    "metadata": [
        "annotations",
        "labels",
        "finalizers",
        "ownerReferences",
        "deletionTimestamp",
        "creationTimestamp",
    ],
}


def objects(gvk: GVK) -> Iterator[dict[str, Any]]:
    base: dict[str, Any] = {
        "apiVersion": gvk.api_version,
        "kind": gvk.kind,
        "metadata": {"name": "x", "namespace": "n", "uid": "u"},
        "spec": {},
        "status": {},
    }
    for part, fields in FIELDS.items():
        for value in ODD:
            if part != "metadata":
                yield {**base, part: value}
            for field in fields:
                odd = copy.deepcopy(base)
                odd[part][field] = value
                yield odd


def strings(summary: Summary) -> Iterator[str]:
    yield from (summary.state, summary.ready, summary.created)
    for name, value in summary.facts:
        yield from (name, value)
    for problem in summary.problems:
        yield from (problem.message, problem.remedy)
    for condition in summary.conditions:
        yield from (
            condition.type,
            condition.status,
            condition.reason,
            condition.message,
            condition.since,
        )
    for warning in summary.warnings:
        yield from (warning.reason, warning.message, warning.last)


@pytest.mark.parametrize("gvk", VIEWS, ids=str)
def test_fields_of_any_type_never_raise(gvk: GVK) -> None:
    odd = [each for each in ODD if isinstance(each, dict)] + [
        {"metadata": value, "spec": value} for value in ODD
    ]
    related = Related(
        children=dict.fromkeys((INGRESS, ROUTE, HTTP_ROUTE, NETWORK_POLICY, SECRET), odd),
        pods=odd,
        events=odd,
    )
    for obj in objects(gvk):
        for others in (None, related):
            summary = summarize(VIEWS[gvk], obj, others)
            for value in strings(summary):
                assert isinstance(value, str)
                assert value.isprintable()
                assert len(value) <= MAX_MESSAGE + MAX_TEXT


@pytest.mark.parametrize("value", ODD)
def test_conditions_with_fields_of_any_type_are_read(value: Any) -> None:
    keys = ("type", "status", "reason", "message", "lastTransitionTime")
    conditions = [{key: value if key == odd else "Ready" for key in keys} for odd in keys]
    obj = {"metadata": {"name": "x"}, "status": {"conditions": conditions}}
    for gvk in VIEWS:
        assert summarize(VIEWS[gvk], obj).level


def test_an_unreadable_object_has_a_problem() -> None:
    summary = summarize(
        VIEWS[RAY_CLUSTER], {"metadata": {"name": "x", "namespace": "n", "annotations": 7}}
    )
    assert summary.key == ("n", "x")
    assert summary.problems[0].message.startswith("Fields of the object have types")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\tc", "a b c"),
        ("\u202eabc", r"\u202eabc"),
        ("x" * 10**6, "x" * (MAX_TEXT - 1) + "…"),
        (None, ""),
        (True, ""),
        ([], ""),
        (3, "3"),
        (10**400, ""),
    ],
)
def test_text_is_bounded_and_printable(value: Any, expected: str) -> None:
    assert text(value) == expected


def test_a_million_conditions_are_not_read() -> None:
    condition = {"type": "T", "status": "True"}
    obj = {
        "metadata": {"name": "x"},
        "status": {"conditions": [condition] * 10**6, "componentStatus": [{}] * 10**6},
    }
    for gvk in VIEWS:
        assert len(summarize(VIEWS[gvk], obj).conditions) <= 24
