"""Tests of what a profile changes in a RayCluster."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cfo.api.raycluster.cluster import MULTIKUEUE_CONTROLLER, SECURE_TRUSTED_NETWORK
from cfo.api.raycluster.enforcement import Enforcement, enforce
from cfo.api.raycluster.facts import KUBERAY_FEATURES, Concern, RayClusterFacts
from cfo.runtime.objects import merged

ENFORCED = frozenset({Concern.NETWORK_POLICY, Concern.MTLS, Concern.AUTHENTICATION})
ACTIVE = ("tlsOptions", "authOptions", "secureTrustedNetwork")
TLS = {"enabled": True}
TOKEN = {"mode": "token"}
RULES = [{"from": []}]


def required_in(
    cluster: Any, old: Any, enforced: frozenset[Concern], features: tuple[str, ...]
) -> Enforcement:
    return enforce(
        RayClusterFacts(cluster),
        RayClusterFacts(old) if old is not None else None,
        enforced,
        features,
    )


def changed(spec: Any, old: Any = None, features: tuple[str, ...] = ACTIVE) -> dict[str, Any]:
    """Return the spec that is stored; check that a second call changes nothing and that no argument is modified."""
    cluster, former = {"spec": spec}, None if old is None else {"spec": old}
    before = copy.deepcopy(cluster)
    result = merged(spec, required_in(cluster, former, ENFORCED, features).patch)
    assert cluster == before
    assert not required_in({"spec": result}, former, ENFORCED, features)
    return result


def test_new_cluster_gets_fields_of_kuberay_that_are_active() -> None:
    assert changed({"a": 1}) == {"a": 1, "tlsOptions": TLS, "authOptions": TOKEN}
    assert changed({"a": 1}, features=()) == {"a": 1}
    required = required_in({"spec": {}}, None, ENFORCED, ACTIVE)
    assert required
    assert required.reasons == {}


@pytest.mark.parametrize(
    "spec",
    [
        {"tlsOptions": {"enabled": False}, "authOptions": {"mode": "disabled"}},
        {"tlsOptions": {}, "authOptions": {"mode": ""}},
        {"tlsOptions": None, "authOptions": None},
    ],
)
def test_options_of_user_cannot_weaken_profile(spec: dict[str, Any]) -> None:
    strong = {"tlsOptions": TLS, "authOptions": TOKEN}
    assert changed(spec) == strong
    assert changed(spec, old=strong) == strong


def test_other_options_of_user_stay() -> None:
    options = {"mode": "disabled", "secretName": "mine"}
    stored = changed({"authOptions": options, "tlsOptions": TLS})
    assert stored == {"authOptions": {"mode": "token", "secretName": "mine"}, "tlsOptions": TLS}


def test_stored_cluster_without_protection_of_kuberay_is_not_changed() -> None:
    """Its running pods would not be restarted."""
    spec = {"workerGroupSpecs": []}
    assert changed(spec, old=spec) == spec


@pytest.mark.parametrize(
    ("name", "policy", "expected"),
    [
        ("networkPolicy", {"mode": "DenyAll", "head": {"ingressRules": RULES, "egressRules": RULES}},
         {"mode": "DenyAll", "head": {"egressRules": RULES}}),
        ("networkPolicy", {"worker": {"ingressRules": RULES}}, {"worker": {}}),
        ("networkPolicy", {"workerGroups": [{"groupName": "a", "ingressRules": RULES}, {"groupName": "b"}]},
         {"workerGroups": [{"groupName": "a"}, {"groupName": "b"}]}),
        ("networkIsolation", {"mode": "denyAll", "ingressRules": RULES}, {"mode": "denyAll"}),
        ("networkPolicy", {"mode": "DenyAllEgress"}, {"mode": "DenyAllEgress"}),
        ("networkPolicy", "open", "open"),
        ("networkPolicy", {"head": 1, "workerGroups": [1, None]}, {"head": 1, "workerGroups": [1, None]}),
    ],
)  # fmt: skip
def test_rules_that_open_ports_are_removed(name: str, policy: Any, expected: Any) -> None:
    spec = {name: policy}
    assert changed(spec, features=()) == {name: expected}
    assert changed(spec, old=spec, features=()) == {name: expected}
    required = required_in({"spec": spec}, None, ENFORCED, ())
    assert bool(required.reasons) is (policy != expected)


def test_ingress_of_kuberay_is_turned_off() -> None:
    head = {"enableIngress": True, "template": {}}
    expected = {"headGroupSpec": {"enableIngress": False, "template": {}}}
    assert changed({"headGroupSpec": head}, features=()) == expected
    assert changed({"headGroupSpec": head}, old={"headGroupSpec": head}, features=()) == expected


def test_nothing_is_changed_without_profile_or_for_another_actor() -> None:
    weak = {"networkPolicy": {"head": {"ingressRules": RULES}}, "tlsOptions": {"enabled": False}}
    assert not required_in({"spec": weak}, None, frozenset(), KUBERAY_FEATURES)
    assert not required_in(
        {"spec": {**weak, "managedBy": MULTIKUEUE_CONTROLLER}}, None, ENFORCED, KUBERAY_FEATURES
    )
    annotated = {"metadata": {"annotations": {SECURE_TRUSTED_NETWORK: "true"}}, "spec": {}}
    assert not required_in(annotated, None, ENFORCED, ACTIVE)
    withdrawn = required_in({"spec": {}}, annotated, ENFORCED, ACTIVE)
    assert not withdrawn  # the operator's own parts are injected again


def test_missing_tls_is_reported() -> None:
    assert RayClusterFacts({"spec": {}}).lacks_tls(ENFORCED, ())
    others = {Concern.NETWORK_POLICY, Concern.AUTHENTICATION}
    assert not RayClusterFacts({"spec": {}}).lacks_tls(others, ())
    assert RayClusterFacts({"spec": {"tlsOptions": TLS}}).lacks_tls(ENFORCED, ())
    assert not RayClusterFacts({"spec": {"tlsOptions": TLS}}).lacks_tls(ENFORCED, ACTIVE)
