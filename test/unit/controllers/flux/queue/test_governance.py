"""Which FluxSetup governs which namespace."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.controllers.flux.queue.governance import Governance, Setup, setup_of
from cfo.runtime.objects.unstructured import NamespacedName
from test.support.flux_environment import flux_setup

ADMINS = ("operator",)


def setup(name: str, namespace: str = "ns", *, created: int = 0, **spec: Any) -> Setup:
    obj = flux_setup(name, namespace, **spec)
    obj["metadata"] |= {
        "uid": name,
        "generation": 1,
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
    }
    return setup_of(obj, ADMINS)


def governance_of(setups: list[Setup], namespaces: dict[str, dict[str, str]]) -> Governance:
    """Return who governs namespaces, which are given with their labels."""
    governance = Governance()
    newest_first = sorted(setups, key=lambda item: item.created, reverse=True)
    selecting = [item for item in newest_first if item.selector is not None]
    for namespace, labels in namespaces.items():
        local = [item for item in newest_first if item.key.namespace == namespace]
        governance.govern(namespace, labels, local, selecting)
    return governance


def govern(*setups: Setup, **labels: str) -> dict[str, str]:
    """Return the names of the setups by the namespaces they govern; ``labels`` are the teams of the namespaces."""
    namespaces = {name: {"team": team} for name, team in labels.items()}
    governance = governance_of(list(setups), namespaces)
    return {namespace: key.name for namespace, key in governance.governors.items()}


def test_setup_without_selector_governs_its_own_namespace() -> None:
    assert govern(setup("a", "one"), one="x", two="x") == {"one": "a"}


def test_setup_in_the_namespace_has_precedence_over_a_newer_one_that_selects_it() -> None:
    everything = setup("all", "operator", created=9, namespaceSelector={})
    assert govern(setup("a", "one"), everything, one="x", two="y", operator="z") == {
        "one": "a",
        "two": "all",
        "operator": "all",
    }


def test_newest_setup_governs_and_replaces_the_older_one() -> None:
    old, new = setup("old", created=1), setup("new", created=2)
    governance = governance_of([new, old], {"ns": {}})
    assert governance.governors == {"ns": new.key}
    assert governance.replaced_by(old.key) == new.key
    assert governance.replaced_by(new.key) is None
    assert governance.govern("ns", {}, [old], []) == [new.key, old.key]
    assert governance.replaced_by(old.key) is None
    assert governance.forget("ns") == [old.key]
    assert governance == Governance()


def test_setups_that_select_different_namespaces_are_all_active() -> None:
    one = setup("one", "operator", created=1, namespaceSelector={"matchLabels": {"team": "x"}})
    two = setup("two", "operator", created=2, namespaceSelector={"matchLabels": {"team": "y"}})
    namespaces = {"operator": {}, "a": {"team": "x"}, "b": {"team": "y"}}
    governance = governance_of([one, two], namespaces)
    assert governance.governors == {"operator": two.key, "a": one.key, "b": two.key}
    no_match = governance_of([one, two], {"operator": {}})
    for item in (one, two):
        assert governance.replaced_by(item.key) is None
        assert no_match.replaced_by(item.key) is None


@pytest.mark.parametrize(
    ("namespace", "spec", "reason"),
    [
        ("ns", {"namespaceSelector": {}}, "InvalidSelector"),
        (
            "operator",
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
            "InvalidSelector",
        ),
        ("operator", {"queue": "Kueue"}, "Invalid"),
        ("operator", {"queueingStrategy": "Random"}, "Invalid"),
    ],
)
def test_invalid_setup_governs_nothing(namespace: str, spec: dict[str, Any], reason: str) -> None:
    invalid = setup("a", namespace, **spec)
    assert invalid.problem is not None
    assert invalid.problem[0] == reason
    assert governance_of([invalid], {namespace: {}}).governors == {}


def test_policy_of_a_setup() -> None:
    policy = setup(
        "a",
        max_size=7,
        max_jobs=2,
        resources={"cpu": "1500m", "memory": "1Ki"},
        fairness="Namespace",
        weights={"n": 2},
    ).policy
    assert (policy.pods, policy.jobs, policy.resources) == (7, 2, {"cpu": 1500, "memory": 1024_000})
    assert policy.shares_by_namespace
    assert policy.weights == {"n": 2}
    assert NamespacedName("ns", "a") == setup("a").key
