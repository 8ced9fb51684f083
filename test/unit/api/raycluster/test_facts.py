"""Tests of the decision who provides each concern; docs/raycluster.md has the principal cases."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from cfo.api.raycluster.facts import KUBERAY_FEATURES, Actor, Concern, RayClusterFacts
from cfo.config.kuberay import KubeRayConfiguration
from cfo.config.section import settings_of, value_type
from cfo.controllers.raycluster.responsibility import ACTOR_EVENTS

DOCUMENT = Path(__file__).parents[4] / "docs" / "raycluster.md"
HEADER = [
    "The RayCluster has",
    "active feature",
    "NetworkPolicies",
    "mTLS",
    "authentication",
    "exposure",
]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def documented_cases() -> list[tuple[str, str, list[str]]]:
    """Return the rows of the table: the RayCluster, the active feature, and the actors (empty cells: the operator)."""
    lines = DOCUMENT.read_text().splitlines()
    start = lines.index("| " + " | ".join(HEADER) + " |") + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        cluster, feature, *actors = cells(line)
        actors = [actor or Actor.OPERATOR.value for actor in actors]
        rows.append((cluster.strip("`"), feature.strip("`"), actors))
    return rows


DOCUMENTED = documented_cases()
NO_ONE_ELSE = [Actor.OPERATOR.value] * len(Concern)
OTHERS = [
    *[
        (f"spec: {{{setting}}}", feature, NO_ONE_ELSE)
        for setting, feature in (
            ("", "all"),
            ("tlsOptions: {enabled: false}", "tlsOptions"),
            ("authOptions: {mode: disabled}", "authOptions"),
            ("headGroupSpec: {ingressOptions: {}}", "ingressOptions"),
            ("managedBy: ray.io/kuberay-operator", "none"),
        )
    ],
    (
        'metadata: {annotations: {odh.ray.io/secure-trusted-network: "false"}}',
        "secureTrustedNetwork",
        NO_ONE_ELSE,
    ),
    *[
        (
            f"spec: {{networkPolicy: {{mode: {mode}}}}}",
            "networkPolicy",
            [Actor.KUBERAY.value, *NO_ONE_ELSE[1:]],
        )
        for mode in ("DenyAll", "DenyAllIngress")
    ],
    (
        "spec: {networkIsolation: {mode: denyAllEgress}}",
        "networkIsolation",
        [Actor.OPEN_DATA_HUB.value, *NO_ONE_ELSE[1:]],
    ),
    (
        "spec: {managedBy: kueue.x-k8s.io/multikueue, networkPolicy: {}, tlsOptions: {enabled: true}}",
        "all",
        [Actor.MULTIKUEUE.value] * len(Concern),
    ),
]
"""Variants of the documented cases, in the same form."""
CASES = [*DOCUMENTED, *OTHERS]


def active(feature: str) -> tuple[str, ...]:
    return {"all": KUBERAY_FEATURES, "none": ()}.get(feature, (feature,))


@pytest.mark.parametrize(
    ("text", "feature", "actors"), CASES, ids=[f"{case[0]} {case[1]}" for case in CASES]
)
def test_documented_actor_provides_each_concern(text: str, feature: str, actors: list[str]) -> None:
    cluster: dict[str, Any] = yaml.safe_load(text)
    facts = RayClusterFacts(cluster)
    assert [facts.actor(concern, active(feature)).value for concern in Concern] == actors
    others = [name for name in KUBERAY_FEATURES if name not in active(feature)]
    without = Actor.MULTIKUEUE if facts.is_managed_by_multikueue else Actor.OPERATOR
    assert {facts.actor(concern, others) for concern in Concern} == {without}


def test_documentation_has_a_case_for_each_feature_and_each_change_of_actor() -> None:
    assert set(KUBERAY_FEATURES) <= {feature for _, feature, _ in DOCUMENTED}
    documented = {
        (concern, actor)
        for _, _, actors in DOCUMENTED
        for concern, actor in zip(Concern, actors, strict=True)
    }
    named = set(ACTOR_EVENTS)
    assert named <= {(concern, Actor(actor)) for concern, actor in documented}


def test_each_feature_can_be_configured() -> None:
    annotation = value_type(settings_of(KubeRayConfiguration)["kubeRayFeatures"].type)
    (literal,) = get_args(annotation)
    assert set(get_args(literal)) == set(KUBERAY_FEATURES)


def test_each_change_of_actor_has_one_event() -> None:
    reasons = [reason for reason, _ in ACTOR_EVENTS.values()]
    assert len(reasons) == len(set(reasons))
    assert not any(actor is Actor.OPERATOR for _, actor in ACTOR_EVENTS)
    assert [(concern, Actor.MULTIKUEUE) in ACTOR_EVENTS for concern in Concern] == [
        True,
        False,
        False,
        False,
    ]
    assert all(re.fullmatch("[A-Z][A-Za-z]+", reason) for reason in reasons)


def test_delegation_is_unconfirmed_only_while_no_other_actor_is_responsible() -> None:
    cluster = {"spec": {"tlsOptions": {"enabled": True}}}
    delegation = RayClusterFacts(cluster).unconfirmed_delegation(Concern.MTLS, ())
    assert delegation is not None
    assert (delegation.setting, delegation.feature) == ("spec.tlsOptions", "tlsOptions")
    assert RayClusterFacts(cluster).unconfirmed_delegation(Concern.MTLS, ("tlsOptions",)) is None
    assert RayClusterFacts(cluster).unconfirmed_delegation(Concern.AUTHENTICATION, ()) is None
    managed = {"spec": {**cluster["spec"], "managedBy": "kueue.x-k8s.io/multikueue"}}
    assert RayClusterFacts(managed).unconfirmed_delegation(Concern.MTLS, ()) is None
    both = {**cluster, "metadata": {"annotations": {"odh.ray.io/secure-trusted-network": "true"}}}
    assert RayClusterFacts(both).unconfirmed_delegation(Concern.MTLS, ("tlsOptions",)) is None


@pytest.mark.parametrize(
    "spec", [None, {}, {"networkPolicy": "x"}, {"networkPolicy": {"mode": 1}}, {"headGroupSpec": 1}]
)
def test_malformed_settings_change_no_actor(spec: Any) -> None:
    facts = RayClusterFacts({"spec": spec})
    assert {facts.actor(concern, KUBERAY_FEATURES) for concern in Concern} == {Actor.OPERATOR}
