"""What the concern of the OAuth proxies decides, without a server: their objects, Routes, and head pods to replace."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import (
    CLUSTER_LABEL,
    NAMESPACE_LABEL,
    RAY_CLUSTER,
    ROUTE,
    label_value,
)
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.raycluster.concern import Decision
from cfo.controllers.raycluster.dashboard_access import Authentication, Backend, Exposure
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.controllers.raycluster.oauth import DashboardProxies, FoundProxy
from cfo.controllers.raycluster.watches import add_indexes
from cfo.runtime import SECRET, Forbidden, NamespacedName, Object
from cfo.runtime.client import ChildResult, ChildResults, Outcome
from cfo.runtime.manager import Manager
from test.support.decisions import (
    children,
    list_objects,
    observed_cluster,
    offline_manager,
    owned,
    reasons,
    serve,
    stored_cluster,
    written,
)

PROXY = Backend("rc-proxy", 443, "https", tls=True)
OIDC = {"issuerURL": "https://login.test", "secretName": "oidc-client"}


class World:
    """The concern with a configuration, the stored RayClusters and what else is in its informers."""

    def __init__(self, *clusters: Object, **settings: Any) -> None:
        self.manager: Manager = offline_manager()
        fields = {"rayDashboardOAuthEnabled": True, "ingressDomain": "apps.test"}
        self.config = KubeRayConfiguration.from_document({**fields, **settings})
        self.environment = ClusterEnvironment.detect(self.manager, self.config)
        self.concern = DashboardProxies(self.manager, self.config, self.environment)
        self.clusters = clusters or (stored_cluster(),)
        informer = self.manager.cache.informer(RAY_CLUSTER)
        add_indexes(informer)
        list_objects(informer, self.clusters)
        self.bind()
        for informer in self.concern.required:
            if not informer.has_synced:
                list_objects(informer)

    def bind(self, *bindings: Object) -> None:
        """List these ClusterRoleBindings."""
        list_objects(self.concern._bound, bindings)

    def start_openshift(self) -> None:
        """Let Routes be served; nothing of OpenShift is listed yet."""
        serve(self.environment.routes, ROUTE, self.manager)
        routes = self.environment.routes.informer
        assert routes is not None
        self.concern._watch_openshift(Mock(), routes)  # a controller that does not run

    def list_openshift(self, accounts: Any = (), pods: Any = ()) -> None:
        """List what OpenShift's proxy needs."""
        self.start_openshift()
        proxy = self.concern._proxy
        openshift = self.concern._openshift
        assert proxy is not None
        assert openshift is not None
        assert openshift.pods is not None
        list_objects(proxy.services)
        list_objects(proxy.accounts, accounts)
        list_objects(openshift.pods.informer, pods)

    def decide(
        self,
        authentication: Authentication,
        backend: Backend | None = PROXY,
        *,
        is_openshift: bool = False,
        **exposure: Any,
    ) -> Decision:
        cluster = observed_cluster(self.clusters[0], self.config, self.environment)
        found = FoundProxy(is_openshift, Exposure(authentication, backend, **exposure))
        return self.concern.decide(cluster, found)


def kinds(decision: Decision) -> list[str]:
    return [child.split()[0] for child in children(decision)]


PROXY_KINDS = ["+ServiceAccount", "+Service"]


def test_own_proxies_have_their_objects_and_a_finalizer() -> None:
    world = World(authentication={"enabled": True})
    decision = world.decide(Authentication.AUTH_PROXY)
    assert kinds(decision) == [*PROXY_KINDS, "+Secret", "+Secret", "+ClusterRoleBinding"]
    assert decision.needs_finalizer
    assert decision.decide_next is not None
    following = decision.decide_next(written(decision))
    assert following is not None
    assert children(following) == []
    assert following.retry_after > 0


def test_openshift_is_awaited_until_its_objects_are_listed() -> None:
    world = World()
    unserved = world.decide(Authentication.OAUTH_PROXY, is_openshift=True)
    assert (children(unserved), unserved.retry_after > 0) == ([], True)
    world.start_openshift()
    unlisted = world.decide(Authentication.OAUTH_PROXY, is_openshift=True)
    assert (children(unlisted), unlisted.retry_after > 0) == ([], True)


def test_missing_role_for_openshift_is_reported() -> None:
    world = World()
    world.start_openshift()
    assert world.concern._proxy is not None
    forbidden = SimpleNamespace(forbidden=True)
    world.concern._proxy.services._reflectors = [forbidden]  # type: ignore[list-item]
    decision = world.decide(Authentication.OAUTH_PROXY, is_openshift=True)
    assert reasons(decision) == ["MissingRole"]
    assert "list Service," in decision.notices[0].message
    assert decision.retry_after == 60


def test_openshift_proxy_has_its_objects_and_then_its_routes() -> None:
    world = World()
    world.list_openshift()
    decision = world.decide(Authentication.OAUTH_PROXY, is_openshift=True)
    assert kinds(decision) == [*PROXY_KINDS, "-Secret", "+Secret", "+ClusterRoleBinding"]
    assert not any(child.can_wait for child in decision.children), "they authenticate users"
    assert decision.decide_next is not None
    following = decision.decide_next(written(decision))
    assert following is not None
    assert kinds(following) == ["+Route", "+Route"]
    assert all(child.can_wait for child in following.children)


def test_routes_of_a_cluster_that_is_not_exposed_are_absent() -> None:
    world = World()
    world.list_openshift()
    decision = world.decide(Authentication.OAUTH_PROXY, is_openshift=True, is_by_operator=False)
    assert decision.decide_next is not None
    following = decision.decide_next(written(decision))
    assert following is not None
    assert kinds(following) == ["-Route", "-Route"]


def test_objects_are_deleted_if_another_actor_authenticates() -> None:
    world = World(authentication={"enabled": True})
    decision = world.decide(Authentication.OTHER, None)
    assert kinds(decision) == ["-Service", "-ServiceAccount", "-Secret", "-Secret"]
    assert decision.removes_finalizer


def test_routes_target_ray_if_it_requires_tokens() -> None:
    world = World()
    world.list_openshift()
    ray = Backend("rc-head-svc", 8265, "dashboard", tls=False)
    decision = world.decide(Authentication.RAY_TOKEN, ray, is_openshift=True)
    assert kinds(decision)[:2] == ["+Route", "+Route"]
    assert decision.removes_finalizer


def test_reason_for_a_hidden_dashboard_is_reported_once() -> None:
    world = World(authentication={"enabled": True})
    why = {"reason": "OAuthUnavailable", "message": "no login"}
    assert reasons(world.decide(Authentication.UNAVAILABLE, None, **why)) == ["OAuthUnavailable"]
    assert reasons(world.decide(Authentication.UNAVAILABLE, None, **why)) == []
    assert reasons(world.decide(Authentication.UNAVAILABLE, None)) == []
    assert reasons(world.decide(Authentication.UNAVAILABLE, None, **why)) == ["OAuthUnavailable"]
    world.concern.forget(NamespacedName("ns", "rc"))
    assert reasons(world.decide(Authentication.UNAVAILABLE, None, **why)) == ["OAuthUnavailable"]


def test_missing_oidc_client_is_reported() -> None:
    world = World(authentication={"enabled": True, "oidc": OIDC})
    assert reasons(world.decide(Authentication.AUTH_PROXY)) == ["OIDCSecretMissing"]
    secret = {"metadata": {"name": "oidc-client", "namespace": "ns"}}
    assert world.concern._oidc_secrets is not None
    assert world.concern._oidc_secrets.gvk == SECRET
    list_objects(world.concern._oidc_secrets, [secret])
    assert reasons(world.decide(Authentication.AUTH_PROXY)) == []


def test_ray_tokens_that_a_variable_disables_are_reported() -> None:
    cluster = stored_cluster(authOptions={"mode": "token"})
    world = World(cluster, authentication={"enabled": True}, kubeRayFeatures=["authOptions"])
    pod = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    pod["containers"][0]["env"] = [{"name": "RAY_AUTH_MODE", "value": "disabled"}]
    assert "RayTokenDisabled" in reasons(world.decide(Authentication.AUTH_PROXY))


# ClusterRoleBindings


def binding(name: str, cluster: Object) -> Object:
    metadata = cluster["metadata"]
    labels = {CLUSTER_LABEL: metadata["name"], NAMESPACE_LABEL: metadata["namespace"]}
    return {"metadata": {"name": name, "labels": labels}}


def binding_child(decision: Decision) -> str:
    (name,) = [child for child in children(decision) if "ClusterRoleBinding" in child]
    return name


def test_newer_cluster_with_the_same_binding_gets_one_with_a_hash() -> None:
    older = stored_cluster("rc-x", "ns")
    newer = stored_cluster("rc", "x-ns")
    newer["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
    names = RayClusterFacts(newer).names
    world = World(newer, older, authentication={"enabled": True})
    hashed = f"+ClusterRoleBinding {names.hashed_cluster_role_binding}"
    usual = f"+ClusterRoleBinding {names.cluster_role_binding}"
    assert binding_child(world.decide(Authentication.AUTH_PROXY)) == hashed
    world.bind(binding(names.cluster_role_binding, older))
    assert binding_child(world.decide(Authentication.AUTH_PROXY)) == usual
    world.bind(binding(names.hashed_cluster_role_binding, newer))
    assert binding_child(world.decide(Authentication.AUTH_PROXY)) == hashed


def test_bindings_with_any_name_are_deleted_before_the_finalizer() -> None:
    world = World(authentication={"enabled": True})
    (cluster,) = world.clusters
    world.bind(binding("former-name", cluster), binding("other", stored_cluster("other")))
    decision = world.concern.decide_release(cluster)
    assert children(decision) == ["-ClusterRoleBinding former-name"]
    assert decision.removes_finalizer


@pytest.mark.parametrize(
    "decide",
    [
        lambda world: world.decide(Authentication.UNAVAILABLE, None),
        lambda world: world.concern.decide_release(world.clusters[0]),
    ],
)
def test_binding_that_may_not_be_deleted_without_the_role_is_reported(
    decide: Callable[[World], Decision],
) -> None:
    world = World()
    (cluster,) = world.clusters
    world.bind(binding("former-name", cluster))
    decision = decide(world)
    assert decision.decide_next is not None
    assert decision.decide_next(written(decision)) is None
    forbidden = ChildResults(cluster)
    for child in decision.children:
        error = Forbidden(403, {"reason": "Forbidden"})
        forbidden.add(ChildResult(child=child, outcome=Outcome.REFUSED, error=error))
    following = decision.decide_next(forbidden)
    assert following is not None
    assert reasons(following) == ["MissingRole"]
    message = following.notices[0].message
    assert "not allowed to delete the ClusterRoleBinding former-name" in message
    assert "install the role authentication (cfo doctor prints the command)" in message


def test_binding_reconciles_the_cluster_in_its_labels() -> None:
    world = World(authentication={"enabled": True})
    (cluster,) = world.clusters
    world.bind(
        binding("one", cluster),
        binding("two", stored_cluster("gone")),
        {"metadata": {"name": "three"}},
        binding("four", stored_cluster(label_value("left-out-" * 8 + "x"))),
    )
    entries = world.concern._bound.reader.entries()
    found = {entry.name: list(world.concern._bindings.clusters_of(entry)) for entry in entries}
    assert found == {
        "one": [NamespacedName("ns", "rc")],
        "two": [NamespacedName("ns", "gone")],
        "three": [],
        "four": [],  # its label is not the name of a RayCluster
    }


# Head pods


def head(
    name: str, cluster: Object, *secrets: str, created: str = "2026-01-01T00:00:00Z"
) -> Object:
    metadata = {"name": name, "namespace": "ns", "labels": {POD_CLUSTER_LABEL: "rc"}}
    spec = {"imagePullSecrets": [{"name": secret} for secret in secrets]}
    return owned({"metadata": metadata, "spec": spec}, cluster, creationTimestamp=created)


def replaced_pods(world: World) -> list[str]:
    decision = world.decide(Authentication.OAUTH_PROXY, is_openshift=True)
    assert decision.decide_next is not None
    following = decision.decide_next(written(decision))
    assert following is not None
    return [child for child in children(following) if "Pod" in child]


def account_of(cluster: Object) -> str:
    return RayClusterFacts(cluster).names.proxy_service_account


@pytest.mark.parametrize("names_account", [True, False])
def test_head_pod_without_the_pull_secrets_of_its_account_is_replaced(names_account: bool) -> None:
    cluster = stored_cluster()
    account = {"metadata": {"name": account_of(cluster), "namespace": "ns"}}
    account["imagePullSecrets"] = [{"name": "pull"}]
    if names_account:
        pod = cluster["spec"]["headGroupSpec"]["template"]["spec"]
        pod["serviceAccountName"] = account_of(cluster)
    world = World(cluster)
    foreign = head("foreign", stored_cluster("other"))
    late = head("late", cluster, created="2999-01-01T00:00:00Z")
    pods = [head("old", cluster), head("good", cluster, "pull"), foreign, late]
    world.list_openshift([account], pods)
    expected = ["-Pod old"]
    if names_account:
        expected = ["-Pod late", "-Pod old"]
    assert sorted(replaced_pods(world)) == expected
    world.concern.decide_release(cluster)


@pytest.mark.parametrize(
    "pod", [{"imagePullSecrets": [{"name": "own"}]}, {"serviceAccountName": "chosen"}, {}]
)
def test_head_pod_with_its_own_choice_is_not_replaced(pod: Object) -> None:
    cluster = stored_cluster()
    cluster["spec"]["headGroupSpec"]["template"]["spec"].update(pod)
    account = {"metadata": {"name": account_of(cluster), "namespace": "ns"}}
    if pod:
        account["imagePullSecrets"] = [{"name": "pull"}]
    world = World(cluster)
    world.list_openshift([account], [head("old", cluster)])
    assert replaced_pods(world) == []
