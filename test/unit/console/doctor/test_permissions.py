"""Which permissions ``cfo doctor`` asks about, and in which namespaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from cfo import operator
from cfo.config.document import ParsedConfiguration
from cfo.config.model import OperatorConfiguration
from cfo.console.doctor.facts import Installation
from cfo.console.doctor.permissions import PermissionFacts, read_permissions
from cfo.features import KINDS, OPTIONAL_ROLES
from cfo.features.scopes import CLUSTER_SCOPED, probes
from cfo.runtime import GVK, Client, Object, UnknownKind
from cfo.runtime.objects import CLUSTER_ROLE_BINDING
from envtest.builtins.catalog import all_resources

_Answer = Callable[[dict[str, str]], bool]


class ReviewingClient:
    """Answers SubjectAccessReviews with ``allows``; only ``bindings`` exist, and no optional kind is served."""

    def __init__(self, allows: _Answer, bindings: Sequence[Object] = ()) -> None:
        self._allows = allows
        self._bindings = bindings
        self.mapper = self
        self.reviews: list[dict[str, str]] = []

    async def create(self, review: Object) -> Object:
        attributes = review["spec"]["resourceAttributes"]
        self.reviews.append(attributes)
        return {"status": {"allowed": self._allows(attributes)}}

    async def list(self, kind: GVK, **_: Any) -> list[Object]:
        return list(self._bindings) if kind == CLUSTER_ROLE_BINDING else []

    async def resource(self, kind: GVK) -> None:
        raise UnknownKind(kind)


async def permissions(
    allows: _Answer, bindings: Sequence[Object] = (), **settings: Any
) -> tuple[PermissionFacts, ReviewingClient]:
    client = ReviewingClient(allows, bindings)
    configuration = OperatorConfiguration.from_document(settings)
    installation = Installation("ops", parsed=ParsedConfiguration(configuration, [], ""))
    return await read_permissions(cast("Client", client), installation, "manager"), client


def texts(facts: PermissionFacts, component: str = "") -> set[str]:
    """Return the missing permissions without their groups, and without the Ingresses of OpenShift's own group."""
    return {
        " ".join([rule.verbs[0], rule.resources[0], rule.namespace]).strip()
        for rule in facts.missing.get(component, ())
        if rule.group != "config.openshift.io"
    }


async def test_role_bindings_do_not_grant_what_is_read_in_the_whole_cluster() -> None:
    facts, _ = await permissions(
        lambda asked: bool(asked["namespace"]),
        watchNamespaces=["a", "b"],
        kuberay={"rayDashboardOAuthEnabled": False},
    )
    missing = texts(facts)
    assert {
        "list customresourcedefinitions",
        "patch mutatingwebhookconfigurations",
        "create tokenreviews",
        "watch ingresses",
        "list httproutes",
        "get leases",
    } <= missing
    assert not {"get ingresses", "list secrets", "list networkpolicies"} & missing
    not_read = {"list ingressclasses", "list clusterroles", "list clusterrolebindings"}
    assert not not_read & missing, "they are read only by an operator for all namespaces"


async def test_hosts_elsewhere_are_not_read_if_no_dashboard_is_exposed() -> None:
    facts, _ = await permissions(lambda asked: bool(asked["namespace"]), watchNamespaces=["a"])
    missing = texts(facts)
    assert not {"list ingresses", "watch ingresses", "list httproutes"} & missing
    assert {"list customresourcedefinitions", "list clusterrolebindings"} <= missing


async def test_permissions_in_the_whole_cluster_are_asked_once_for_all_namespaces() -> None:
    namespaces = [f"team-{index}" for index in range(100)]
    facts, client = await permissions(lambda asked: True, watchNamespaces=namespaces)
    assert not facts.missing
    assert facts.checked == facts.total == len(client.reviews) < 150


async def test_permission_of_one_namespace_is_missing_there_only() -> None:
    facts, _ = await permissions(
        lambda asked: asked["resource"] != "networkpolicies" or asked["namespace"] == "a",
        watchNamespaces=["a", "b"],
    )
    assert {text.rpartition(" ")[2] for text in texts(facts)} == {"b"}
    assert "list networkpolicies b" in texts(facts)


async def test_events_are_reported_in_the_operators_namespace_too() -> None:
    facts, _ = await permissions(lambda asked: asked["namespace"] == "a", watchNamespaces=["a"])
    in_namespaces = {text for text in texts(facts) if text.endswith(" ops")}
    assert {"create events ops", "patch events ops"} <= in_namespaces
    of_configuration = {text for text in in_namespaces if "configmaps" in text}
    of_election = {text for text in in_namespaces if "leases" in text}
    of_webhooks = {text for text in in_namespaces if "secrets" in text}
    rest = in_namespaces - of_configuration - of_election - of_webhooks
    assert rest == {"create events ops", "patch events ops"}


@pytest.mark.parametrize(
    ("watched", "retained"),
    [([], {"authentication"}), (["team-a", "c"], {"authentication"}), (["team-b"], set())],
)
async def test_bindings_of_clusters_in_other_namespaces_need_no_role(
    watched: list[str], retained: set[str]
) -> None:
    """A binding of a RayCluster in team-a exists, and only another operator reconciles that namespace."""
    labels = {
        "ray.openshift.ai/cluster-name": "rc",
        "ray.openshift.ai/cluster-namespace": "team-a",
    }
    binding = {"metadata": {"name": "proxy", "labels": labels}}
    facts, client = await permissions(
        lambda asked: asked["resource"] != "clusterrolebindings" or asked["verb"] != "delete",
        [binding],
        watchNamespaces=watched,
    )
    assert facts.retained == retained
    assert set(facts.missing) == retained
    asked = {review["verb"] for review in client.reviews if "bindings" in review["resource"]}
    assert ("delete" in asked) == bool(retained)


def test_roles_are_probed_where_they_are_needed() -> None:
    """An operator with RoleBindings in its namespaces has no permission on pods in the whole cluster."""
    everywhere = OperatorConfiguration()
    some = OperatorConfiguration.from_document({"watchNamespaces": ["a", "b"]})
    (authentication,) = [role for role in OPTIONAL_ROLES if role.name == "authentication"]
    (found,) = probes(authentication, everywhere, "ops")
    assert [rule.namespace for rule in found] == ["", ""]
    in_some = [
        {rule.resources[0]: rule.namespace for rule in found}
        for found in probes(authentication, some, "ops")
    ]
    assert in_some == [
        {"serviceaccounts": "a", "clusterrolebindings": ""},
        {"serviceaccounts": "b", "clusterrolebindings": ""},
    ]


async def test_too_many_permissions_are_checked_of_each_component_and_namespace() -> None:
    """RoleBindings of the base role in many namespaces; the component appwrapper is bound nowhere."""
    base = {(rule.group, resource) for rule in operator.rules("ops") for resource in rule.resources}
    namespaces = [f"team-{index}" for index in range(40)]

    def allows(asked: dict[str, str]) -> bool:
        is_base = (asked["group"], asked["resource"]) in base
        return is_base and (
            bool(asked["namespace"]) or (asked["group"], asked["resource"]) in CLUSTER_SCOPED
        )

    facts, client = await permissions(
        allows, watchNamespaces=namespaces, appwrapper={"enabled": True}
    )
    assert facts.checked <= len(client.reviews) == 2000 < facts.total
    assert {rule.namespace for rule in facts.missing["appwrapper"]} >= set(namespaces)


def test_each_resource_of_the_rules_has_its_scope() -> None:
    """The kinds of other projects are compared by hand."""
    resources: set[tuple[str, str]] = set()
    for rules in (operator.rules("ops"), *(role.rules() for role in OPTIONAL_ROLES)):
        for rule in rules:
            resources.update((rule.group, name.partition("/")[0]) for name in rule.resources)
    assert resources >= CLUSTER_SCOPED
    for builtin in all_resources():
        if (builtin.group, builtin.plural) in resources:
            is_cluster_scoped = (builtin.group, builtin.plural) in CLUSTER_SCOPED
            assert is_cluster_scoped is not builtin.namespaced, builtin
    for kind in KINDS:
        for crd in kind.crds():
            assert crd["spec"]["scope"] == "Namespaced"
