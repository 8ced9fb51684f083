"""Tests of the status of routes."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.gateway import RouteProblem, is_accepted, route_problems

REFERENCE = {
    "group": "gateway.networking.k8s.io",
    "kind": "Gateway",
    "name": "gw",
    "namespace": "gateways",
}
LISTENER = {**REFERENCE, "sectionName": "https"}


def condition(kind: str, status: str = "True", generation: int = 2) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": "Why",
        "message": "text",
        "observedGeneration": generation,
    }


def route(
    *conditions: dict[str, Any], reference: dict[str, Any] = LISTENER, namespace: str = "ns"
) -> dict[str, Any]:
    """Return a route of generation 2 for the listener ``https``, with the status of one parent."""
    return {
        "metadata": {"name": "r", "namespace": namespace, "generation": 2},
        "spec": {"parentRefs": [LISTENER]},
        "status": {"parents": [{"parentRef": reference, "conditions": list(conditions)}]},
    }


ACCEPTED, RESOLVED = condition("Accepted"), condition("ResolvedRefs")


@pytest.mark.parametrize(
    ("found", "accepted"),
    [
        (route(ACCEPTED, RESOLVED), True),
        (route(ACCEPTED), False),
        (route(ACCEPTED, condition("ResolvedRefs", "False")), False),
        (route(condition("Accepted", "Unknown"), RESOLVED), False),
        (route(condition("Accepted", generation=1), RESOLVED), False),
        (route(ACCEPTED, RESOLVED, reference=REFERENCE), False),
        (route(ACCEPTED, RESOLVED, reference={**LISTENER, "name": "other"}), False),
        ({**route(ACCEPTED, RESOLVED), "status": {}}, False),
        ({**route(ACCEPTED, RESOLVED), "spec": {}}, False),
    ],
)
def test_route_is_accepted_if_its_parents_accept_the_current_generation(
    found: dict[str, Any], accepted: bool
) -> None:
    assert is_accepted(found) == accepted


def test_route_with_several_parents_is_accepted_if_all_of_them_accept_it() -> None:
    found = route(ACCEPTED, RESOLVED)
    found["spec"]["parentRefs"].append(REFERENCE)
    assert not is_accepted(found)
    found["status"]["parents"].append({"parentRef": REFERENCE, "conditions": [ACCEPTED, RESOLVED]})
    assert is_accepted(found)


def test_parent_without_namespace_is_in_the_namespace_of_the_route() -> None:
    reference = {key: value for key, value in LISTENER.items() if key != "namespace"}
    assert is_accepted(route(ACCEPTED, RESOLVED, reference=reference, namespace="gateways"))
    assert not is_accepted(route(ACCEPTED, RESOLVED, reference=reference))


def test_problems_are_the_false_conditions_of_the_current_generation() -> None:
    failed = condition("ResolvedRefs", "False")
    expected = RouteProblem("Gateway gateways/gw, listener https", "ResolvedRefs", "Why", "text")
    assert list(route_problems(route(ACCEPTED, failed))) == [expected]
    assert not list(route_problems(route(condition("Accepted", "False", generation=1), RESOLVED)))
    assert not list(route_problems(route(condition("Accepted", "False"), reference=REFERENCE)))
    assert not list(route_problems({}))
