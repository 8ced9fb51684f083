"""What the concerns of a RayCluster decide, without a server: NetworkPolicies, the CA, and the profile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from cfo.api.raycluster.certificates import REQUEST_VOLUME
from cfo.api.raycluster.cluster import TLS_VARIABLE, cluster_labels
from cfo.api.raycluster.facts import Concern, RayClusterFacts
from cfo.api.raycluster.names import CREATED_BY_LABEL, KUBERAY
from cfo.config.kuberay import KubeRayConfiguration, NamespaceSettings
from cfo.controllers.raycluster.ca import CA_LIFETIME
from cfo.controllers.raycluster.concern import Decision
from cfo.controllers.raycluster.dashboard_access import Authentication, Exposure
from cfo.controllers.raycluster.enforcement import decide_enforcement
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.controllers.raycluster.mtls import (
    ROTATE_ANNOTATION,
    DesiredSecret,
    MutualTLS,
    ObservedSecret,
    decide_ca,
)
from cfo.controllers.raycluster.networkpolicy import (
    FoundPolicies,
    decide_policies,
    needs_head_policy,
    relevant_names,
)
from cfo.controllers.raycluster.secrets import ClusterSecrets
from cfo.runtime import NETWORK_POLICY, NamespacedName, Object, Request, key_of
from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.client import ChildResults
from test.support.decisions import (
    list_objects,
    observed_cluster,
    offline_manager,
    reasons,
    written,
)
from test.support.ray_clusters import ray_cluster, worker

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = NamespaceSettings(KubeRayConfiguration())
OPEN = Exposure(Authentication.DISABLED, None)


def cluster_with_uid(**spec: Any) -> Object:
    cluster = ray_cluster(**spec)
    cluster["metadata"]["uid"] = "1"
    return cluster


def facts(**spec: Any) -> RayClusterFacts:
    return RayClusterFacts(cluster_with_uid(**spec))


def names(decision: Decision) -> list[tuple[str, str]]:
    """Return for each child whether it is present or absent, and its name."""
    return [("-" if child.is_absent else "+", child.key.name) for child in decision.children]


def kuberay_policy(cluster: Object, name: str) -> Entry:
    """Return a cached policy that KubeRay created for ``cluster``."""
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "name": cluster["metadata"]["name"],
        "uid": cluster["metadata"]["uid"],
        "controller": True,
    }
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name,
            "namespace": cluster["metadata"]["namespace"],
            "uid": f"{name}-uid",
            "labels": {CREATED_BY_LABEL: KUBERAY},
            "ownerReferences": [owner],
        },
        "spec": {"policyTypes": ["Ingress"]},
    }
    return EntryDecoder(NETWORK_POLICY).decode(orjson.dumps(policy))


def found(**policies: Entry) -> FoundPolicies:
    by_name = {entry.name: entry for entry in policies.values()}
    return FoundPolicies(by_name, frozenset(), OPEN, ("ray-system",))


def test_both_policies_are_wanted() -> None:
    own = facts()
    decision = decide_policies(own, SETTINGS, found())
    assert names(decision) == [("+", own.names.workers_policy), ("+", own.names.head_policy)]
    assert not any(child.can_wait for child in decision.children)
    assert decision.decide_next is None
    assert decision.retry_after == 0


def test_head_policy_waits_until_the_platform_is_known() -> None:
    own = facts()
    decision = decide_policies(own, SETTINGS, FoundPolicies({}, frozenset()))
    assert names(decision) == [("+", own.names.workers_policy)]
    assert decision.retry_after > 0


def test_cluster_that_multikueue_manages_gets_no_policies() -> None:
    own = facts(managedBy="kueue.x-k8s.io/multikueue")
    assert names(decide_policies(own, SETTINGS, found())) == []
    assert not needs_head_policy(own, SETTINGS, found())


def test_policies_of_kuberay_replace_the_operators() -> None:
    own = facts(networkPolicy={}, workerGroupSpecs=[])
    cluster = own.cluster
    head = kuberay_policy(cluster, f"{own.names.cluster}-head")
    decision = decide_policies(own, SETTINGS, found(head=head))
    assert names(decision) == []
    assert "NetworkPolicyByKubeRay" in reasons(decision)
    assert head.name in set(relevant_names(own))
    enforcing = NamespaceSettings(
        SETTINGS.kuberay, "strict", frozenset({Concern.NETWORK_POLICY.value})
    )
    wanted = names(decide_policies(own, enforcing, found(head=head)))
    assert [sign for sign, _ in wanted] == ["+", "+"]


def test_policy_has_another_name_if_kuberay_uses_the_usual_one() -> None:
    own = facts(workerGroupSpecs=[worker()])
    usual = own.names.head_policy
    head = kuberay_policy(own.cluster, usual)
    decision = decide_policies(own, SETTINGS, found(head=head))
    wanted = dict(reversed(pair) for pair in names(decision))
    assert usual not in wanted
    assert [name for name in wanted if name.startswith(f"{usual}-")]


def test_profile_changes_the_spec_and_reports_what_is_missing() -> None:
    settings = NamespaceSettings(
        KubeRayConfiguration(kuberay_features=["ingressOptions"]),
        "strict",
        frozenset({Concern.AUTHENTICATION.value, Concern.MTLS.value, Concern.EXPOSURE.value}),
    )
    exposed = cluster_with_uid()
    exposed["spec"]["headGroupSpec"]["enableIngress"] = True
    decision = decide_enforcement(RayClusterFacts(exposed), settings)
    assert decision.spec_patch is not None
    assert reasons(decision) == ["ProfileEnforced", "ProfileNotMet"]
    assert not reasons(decide_enforcement(facts(), SETTINGS))


def with_tls(**annotations: str) -> RayClusterFacts:
    cluster = cluster_with_uid()
    cluster["metadata"]["annotations"] = annotations
    cluster["spec"]["headGroupSpec"]["template"]["spec"] = {
        "initContainers": [{"name": "create-cert"}],
        "containers": [{"name": "ray-head", "image": "ray", "env": [TLS_VARIABLE]}],
    }
    return RayClusterFacts(cluster)


def observed(**fields: Any) -> ObservedSecret:
    defaults = {"renewal_due": None, "was_verified": False, "is_cached": False, "now": NOW}
    return ObservedSecret(**{**defaults, **fields})


def decide(own: RayClusterFacts, seen: ObservedSecret, **config: Any) -> Decision:
    kuberay = KubeRayConfiguration(**config)
    secrets = ClusterSecrets(None, ())  # type: ignore[arg-type]
    return decide_ca(own, kuberay, kuberay.ca, seen, secrets)


def test_ca_that_is_valid_is_not_written() -> None:
    decision = decide(with_tls(), observed(renewal_due=NOW + timedelta(hours=1)))
    assert names(decision) == []
    assert decision.retry_after == 3600


@pytest.mark.parametrize(
    "due",
    [
        None,
        NOW - timedelta(seconds=1),
        NOW + CA_LIFETIME * 2 / 3 + timedelta(hours=1),  # the clock was ahead
        NOW + timedelta(days=36_500),
    ],
)
def test_ca_that_is_unknown_or_due_is_written(due: datetime | None) -> None:
    own = with_tls()
    decision = decide(own, observed(renewal_due=due))
    assert names(decision) == [("+", own.names.ca_secret)]
    assert decision.decide_next is not None


def test_ca_is_deleted_without_mutual_tls() -> None:
    own = with_tls()
    decision = decide(own, observed(), mtls_enabled=False)
    assert names(decision) == [("-", own.names.ca_secret)]


def content(own: RayClusterFacts, *, was_deleted: bool = False) -> DesiredSecret:
    return DesiredSecret(own, KubeRayConfiguration().ca, NOW, was_deleted=was_deleted)


def test_usable_ca_is_kept() -> None:
    first = content(with_tls())
    secret = first.compute(None)
    assert first.note == ""
    again = content(with_tls())
    assert again.compute(secret) == secret
    assert again.note == ""


@pytest.mark.parametrize(
    ("own", "change", "cause"),
    [
        (with_tls(**{ROTATE_ANNOTATION: "1"}), {}, "requested it"),
        (with_tls(), {"ca.key": ""}, "ca.key"),
    ],
)
def test_new_ca_is_reported(own: RayClusterFacts, change: dict[str, str], cause: str) -> None:
    secret = content(with_tls()).compute(None)
    damaged = {**secret, "data": {**secret["data"], **change}}
    desired = content(own)
    assert desired.compute(damaged)["data"]["ca.key"] != secret["data"]["ca.key"]
    assert cause in desired.note


def test_deleted_ca_is_reported() -> None:
    desired = content(with_tls(), was_deleted=True)
    desired.compute(None)
    assert "was deleted" in desired.note


@pytest.mark.parametrize(
    ("now", "is_renewed"),
    [(NOW + timedelta(days=1), False), (NOW + CA_LIFETIME - timedelta(days=1), True)],
    ids=["soon", "shortly before its end"],
)
def test_certificate_is_renewed_with_its_key_before_it_ends(
    now: datetime, is_renewed: bool
) -> None:
    stored = content(with_tls()).compute(None)
    desired = DesiredSecret(with_tls(), KubeRayConfiguration().ca, now)
    secret = desired.compute(stored)
    assert secret["data"]["ca.key"] == stored["data"]["ca.key"]
    assert (secret["data"]["ca.crt"] != stored["data"]["ca.crt"]) is is_renewed
    assert desired.note == ""
    assert desired.authority is not None
    assert desired.authority.renewal_due > now


def test_certificate_that_is_not_valid_yet_is_renewed_with_its_key() -> None:
    own = with_tls()
    was_ahead = DesiredSecret(own, KubeRayConfiguration().ca, NOW + timedelta(hours=12))
    early = was_ahead.compute(None)
    desired = content(own)
    renewed = desired.compute(early)
    assert renewed["data"]["ca.key"] == early["data"]["ca.key"]
    assert desired.authority is not None
    assert desired.authority.certificate.not_valid_before_utc <= NOW
    assert "its certificate was not valid yet" in desired.note


@pytest.mark.parametrize("was_verified", [False, True], ids=["new", "deleted"])
def test_written_ca_is_remembered_and_its_renewal_is_scheduled(was_verified: bool) -> None:
    own = with_tls()
    kuberay = KubeRayConfiguration()
    secrets = ClusterSecrets(None, ())  # type: ignore[arg-type]
    seen = observed(was_verified=was_verified)
    decision = decide_ca(own, kuberay, kuberay.ca, seen, secrets)
    assert decision.decide_next is not None
    conclusion = decision.decide_next(written(decision))
    assert conclusion is not None
    assert secrets.was_verified(key_of(own.cluster))
    assert conclusion.retry_after > 0
    assert reasons(conclusion) == ["CertificateAuthorityReplaced"] * was_verified


def test_ca_that_was_not_written_is_not_remembered() -> None:
    own = with_tls()
    kuberay = KubeRayConfiguration()
    secrets = ClusterSecrets(None, ())  # type: ignore[arg-type]
    decision = decide_ca(own, kuberay, kuberay.ca, observed(), secrets)
    assert decision.decide_next is not None
    assert decision.decide_next(ChildResults(own.cluster)) is None
    assert not secrets.was_verified(key_of(own.cluster))


def test_cluster_that_kuberay_protects_keeps_the_ca_that_its_pods_mount() -> None:
    protected = {"enabled": True}
    injected = with_tls()
    injected.cluster["spec"]["tlsOptions"] = protected
    active = {"kuberay_features": ["tlsOptions"]}
    kept = decide(injected, observed(), **active)
    assert names(kept) == [("+", injected.names.ca_secret)]
    plain = facts(tlsOptions=protected)
    deleted = decide(plain, observed(), **active)
    assert names(deleted) == [("-", plain.names.ca_secret)]
    assert reasons(deleted) == ["MTLSByKubeRay"]


def test_running_head_without_a_ca_reports_that_it_was_deleted() -> None:
    own = with_tls()
    own.cluster["status"] = {"head": {"podIP": "10.0.0.1"}}
    kuberay = KubeRayConfiguration()
    secrets = ClusterSecrets(None, ())  # type: ignore[arg-type]
    decision = decide_ca(own, kuberay, kuberay.ca, observed(), secrets)
    assert decision.decide_next is not None
    conclusion = decision.decide_next(written(decision))
    assert conclusion is not None
    assert reasons(conclusion) == ["CertificateAuthorityReplaced"]


async def test_what_is_known_about_the_secret_is_observed_from_its_metadata() -> None:
    manager = offline_manager()
    config = KubeRayConfiguration()
    environment = ClusterEnvironment.detect(manager, config)
    concern = MutualTLS(manager, config, environment)
    own = with_tls()
    own.cluster["metadata"]["namespace"] = "ns"
    cluster = observed_cluster(own.cluster, config, environment)
    (informer,) = concern.required
    list_objects(informer)
    missing = await concern.observe(cluster)
    assert (missing.is_cached, missing.renewal_due, missing.was_verified) == (False, None, False)
    secret = DesiredSecret(own, config.ca, NOW).compute(None)
    secret["metadata"] |= {"uid": "2", "resourceVersion": "3"}
    list_objects(informer, [secret])
    foreign = await concern.observe(cluster)
    assert (foreign.is_cached, foreign.renewal_due) == (True, None)
    concern.forget(Request("ns", own.names.cluster))


def test_requests_that_no_one_signs_are_reported() -> None:
    own = with_tls()
    pod = own.cluster["spec"]["headGroupSpec"]["template"]["spec"]
    pod["volumes"] = [{"name": REQUEST_VOLUME, "projected": {}}]
    decision = decide(own, observed(is_cached=True))
    assert "CertificateRequestsDisabled" in reasons(decision)


def test_worker_names_are_relevant() -> None:
    own = facts(workerGroupSpecs=[worker("a"), worker("b")])
    by_group = {f"{own.names.cluster}-workers-{name}" for name in "ab"}
    assert by_group <= set(relevant_names(own))
    assert NamespacedName("", own.names.head_policy).name in set(relevant_names(own))


def own_policy(cluster: Object, name: str) -> Entry:
    """Return a cached policy that this operator created for ``cluster``."""
    metadata = {"name": name, "namespace": "ns", "uid": f"{name}-uid"}
    policy = {"metadata": {**metadata, "labels": cluster_labels(cluster)}, "spec": {}}
    return EntryDecoder(NETWORK_POLICY).decode(orjson.dumps(policy))


def test_policies_are_deleted_when_kuberay_has_its_own() -> None:
    own = facts(networkPolicy={}, workerGroupSpecs=[])
    existing = {
        "head": kuberay_policy(own.cluster, f"{own.names.cluster}-head"),
        "ours": own_policy(own.cluster, own.names.workers_policy),
    }
    decision = decide_policies(own, SETTINGS, found(**existing))
    assert names(decision) == [("-", own.names.workers_policy)]
    (child,) = decision.children
    assert child.belongs is not None
    assert child.belongs({"metadata": {"uid": f"{own.names.workers_policy}-uid"}})
    assert not child.belongs({"metadata": {"uid": "other"}})


def test_policies_of_a_copy_that_multikueue_created_are_deleted() -> None:
    own = facts(managedBy="kueue.x-k8s.io/multikueue")
    own.cluster["metadata"]["generation"] = 1
    existing = found(ours=own_policy(own.cluster, own.names.head_policy))
    decision = decide_policies(own, SETTINGS, existing)
    assert names(decision) == [("-", own.names.head_policy)]
    assert reasons(decision) == ["ManagedByMultiKueue"]


def test_policy_that_kuberay_has_not_created_yet_is_reported() -> None:
    own = facts(networkPolicy={}, workerGroupSpecs=[worker()])
    decision = decide_policies(own, SETTINGS, found())
    assert reasons(decision) == ["KubeRayFeatureUnconfirmed"]
    assert [sign for sign, _ in names(decision)] == ["+", "+"]


def test_port_that_is_not_opened_is_reported() -> None:
    cluster = cluster_with_uid()
    cluster["spec"]["headGroupSpec"]["rayStartParams"] = {"dashboard-port": "none"}
    decision = decide_policies(RayClusterFacts(cluster), SETTINGS, found())
    assert reasons(decision) == ["PortRefused"]
