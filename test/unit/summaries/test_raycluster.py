"""Summaries of RayClusters: level, facts, problems, and the pods of an older spec."""

from __future__ import annotations

import pytest

from cfo.api.gateway import TLS_ROUTES
from cfo.api.raycluster.certificates import RENEWAL_ANNOTATION
from cfo.api.raycluster.conditions import EXPOSED, MUTUAL_TLS
from cfo.api.raycluster.names import RAY_CLUSTER, ROUTE
from cfo.console.summary_text import essence
from cfo.runtime import INGRESS, NETWORK_POLICY, SECRET, Object
from cfo.summaries.summary import Level
from test.support.summary_objects import (
    OLD,
    cluster,
    condition,
    event,
    messages,
    obj,
    pod,
    related,
    summarize,
)

TLS_HEAD = {
    "initContainers": [{"name": "create-cert"}],
    "containers": [{"name": "ray", "env": [{"name": "RAY_USE_TLS", "value": "1"}]}],
}


@pytest.mark.parametrize(
    ("ray_cluster", "level"),
    [
        (cluster(), Level.OK),
        (cluster(""), Level.PROGRESSING),
        (cluster("failed"), Level.FAILED),
        (cluster("suspended", suspend=True), Level.WAITING),
        (cluster("", suspend=True), Level.WAITING),
        (cluster("ready", suspend=True), Level.PROGRESSING),
        (cluster("suspended"), Level.PROGRESSING),
    ],
)
def test_level_of_a_raycluster_follows_its_state(ray_cluster: Object, level: Level) -> None:
    summary = summarize(RAY_CLUSTER, ray_cluster)
    assert (summary.state, summary.level, summary.ready) == (
        ray_cluster["status"]["state"],
        level,
        "2/3",
    )


@pytest.mark.parametrize("state", ["ready", ""])
def test_raycluster_without_running_pods_has_a_problem(state: str) -> None:
    ended = related(pods=[pod("Succeeded"), pod("Failed")])
    summary = summarize(RAY_CLUSTER, cluster(state), ended)
    assert summary.level is Level.WARNING
    assert messages(summary) == ["All pods have ended, so no Ray node runs"]
    one_runs = related(pods=[pod("Succeeded"), pod("Running")])
    assert messages(summarize(RAY_CLUSTER, cluster(state), one_runs)) == []
    deleted = cluster(state)
    deleted["metadata"]["deletionTimestamp"] = "2026-06-01T00:00:00Z"
    assert messages(summarize(RAY_CLUSTER, deleted, ended)) == []


def test_facts_name_address_authentication_certificates_and_policies() -> None:
    ingress = {
        "metadata": {"name": "ray-dashboard-x"},
        "spec": {"rules": [{"host": "d.test"}], "tls": [{}]},
    }
    client = {"metadata": {"name": "rayclient-x"}, "spec": {"rules": [{"host": "c.test"}]}}
    secret = {
        "metadata": {
            "name": "ca-secret-x",
            "annotations": {RENEWAL_ANNOTATION: "2030-01-01T00:00:00Z"},
        }
    }
    children = {INGRESS: [client, ingress], SECRET: [secret], NETWORK_POLICY: [{}, {}]}
    summary = summarize(RAY_CLUSTER, cluster(pod=TLS_HEAD), related(children=children))
    assert dict(summary.facts) == {
        "dashboard": "https://d.test",
        "ray client": "ray://c.test",
        "authentication": "none",
        "mTLS": "by the operator",
        "CA expires": "2033-05-01 (renewed from 2030-01-01)",
        "network policies": "2 by the operator",
    }
    assert (summary.level, summary.problems) == (Level.OK, ())


RAY_CONTAINER = {"name": "ray"}
PROXY_PORTS = [{"name": "oauth-proxy", "containerPort": 8443}]
LOGIN_PROXY = {"name": "oauth-proxy", "ports": PROXY_PORTS}


@pytest.mark.parametrize(
    ("proxies", "expected"),
    [
        ([], "none"),
        ([{"name": "oauth-proxy"}], "none"),
        ([{"name": "rbac-proxy", "ports": PROXY_PORTS}], "bearer token (kube-rbac-proxy)"),
        (
            [{"name": "rbac-proxy", "ports": PROXY_PORTS}, LOGIN_PROXY],
            "bearer token (kube-rbac-proxy)",
        ),
        (
            [LOGIN_PROXY, {"name": "rbac-proxy"}],
            "OIDC login (oauth2-proxy) or bearer token (kube-rbac-proxy)",
        ),
        ([LOGIN_PROXY], "OpenShift login (oauth-proxy)"),
    ],
)
def test_authentication_is_that_of_the_proxies_in_the_head(
    proxies: list[Object], expected: str
) -> None:
    ray_cluster = cluster(pod={"containers": [RAY_CONTAINER, *proxies]})
    assert summarize(RAY_CLUSTER, ray_cluster).fact("authentication") == expected


def test_what_cannot_be_read_is_neither_a_fact_nor_a_problem() -> None:
    summary = summarize(RAY_CLUSTER, cluster(pod=TLS_HEAD), related())
    assert dict(summary.facts) == {"authentication": "none", "mTLS": "by the operator"}
    assert summary.level is Level.OK


def test_missing_protection_of_a_running_cluster_is_a_problem() -> None:
    children = {INGRESS: [], NETWORK_POLICY: [], SECRET: []}
    summary = summarize(RAY_CLUSTER, cluster(pod=TLS_HEAD), related(children=children))
    assert messages(summary) == [
        "No NetworkPolicy protects the RayCluster",
        "The Secret ca-secret-x with the CA is missing, so new pods cannot start",
    ]
    assert all("watchNamespaces and labelSelector" in item.remedy for item in summary.problems)
    assert (summary.level, summary.fact("dashboard")) == (Level.WARNING, "not exposed")


@pytest.mark.parametrize(("reason", "expected"), [("NotInjected", 1), ("Disabled", 0)])
def test_mutual_tls_that_was_not_injected_is_a_problem(reason: str, expected: int) -> None:
    plain = cluster()
    plain["status"]["conditions"] = [{"type": MUTUAL_TLS, "status": "False", "reason": reason}]
    found = messages(summarize(RAY_CLUSTER, plain, related()))
    assert len(found) == expected
    assert all(each.startswith("No mutual TLS protects the RayCluster") for each in found)


@pytest.mark.parametrize(("created", "is_missed"), [("23:59:50", False), ("23:59:00", True)])
def test_ca_of_a_new_cluster_is_not_missed_yet(created: str, *, is_missed: bool) -> None:
    new = cluster(pod=TLS_HEAD)
    new["metadata"]["creationTimestamp"] = f"2026-05-31T{created}Z"
    found = messages(summarize(RAY_CLUSTER, new, related(children={SECRET: []})))
    assert any("with the CA is missing" in message for message in found) is is_missed


def test_other_actors_are_named_and_their_parts_are_not_missed() -> None:
    ray_cluster = cluster(managedBy="kueue.x-k8s.io/multikueue")
    summary = summarize(
        RAY_CLUSTER, ray_cluster, related(children={ROUTE: [], NETWORK_POLICY: [], SECRET: []})
    )
    names = ("dashboard", "authentication", "mTLS", "network policies")
    assert [summary.fact(name) for name in names] == [
        "by MultiKueue",
        "MultiKueue",
        "by MultiKueue",
        "by MultiKueue",
    ]
    assert summary.problems == ()


def ray_pod(name: str, image: str, reason: str, group: str = "headgroup") -> Object:
    waiting = {"state": {"waiting": {"reason": reason}}}
    return {
        "metadata": {"namespace": "n", "name": name, "labels": {"ray.io/group": group}},
        "spec": {"containers": [{"name": "ray", "image": image}]},
        "status": {"containerStatuses": [{"name": "ray", **waiting}]},
    }


@pytest.mark.parametrize(
    ("group", "image", "strategy", "remedy"),
    [
        ("headgroup", "old", {}, "kubectl delete pod -n n a b,"),
        ("headgroup", "new", {}, "check the name of the image"),
        ("headgroup", "old", {"type": "Recreate"}, "check the name of the image"),
        ("headgroup", "old", {"type": "None"}, "kubectl delete pod -n n a b,"),
        ("workers", "old", {}, "kubectl delete pod -n n a b,"),
        ("workers", "other", {}, "check the name of the image"),
        ("unknown", "old", {}, "check the name of the image"),
    ],
)
def test_pods_with_an_image_of_an_older_spec_have_to_be_deleted(
    group: str, image: str, strategy: Object, remedy: str
) -> None:
    def container(image: str) -> Object:
        return {"containers": [{"name": "ray", "image": image}]}

    workers = {"groupName": "workers", "template": {"spec": container("other")}}
    corrected = cluster(
        "", pod=container("new"), workerGroupSpecs=[workers], upgradeStrategy=strategy
    )
    pods = [ray_pod(name, image, "ImagePullBackOff", group) for name in ("a", "b")]
    (problem,) = summarize(RAY_CLUSTER, corrected, related(pods=pods)).problems
    assert problem.message.startswith("Pods a, b: container ray waits: ImagePullBackOff")
    assert remedy in problem.remedy


def test_command_for_many_pods_with_an_old_image_names_the_first() -> None:
    corrected = cluster("", pod={"containers": [{"name": "ray", "image": "new"}]})
    pods = [ray_pod(name, "old", "ErrImagePull") for name in "abcde"]
    (problem,) = summarize(RAY_CLUSTER, corrected, related(pods=pods)).problems
    assert "kubectl delete pod -n n a b c (and 2 more)," in problem.remedy


def test_raycluster_without_a_state_and_without_pods_has_a_problem() -> None:
    pending = cluster()
    pending["metadata"]["creationTimestamp"] = "2026-05-01T00:00:00Z"
    pending["status"] = {"desiredWorkerReplicas": 2}
    assert messages(summarize(RAY_CLUSTER, pending, related(pods=[]))) == [
        "No pod of the RayCluster exists"
    ]
    starting = {**running_pod("a"), "spec": pending["spec"]["headGroupSpec"]["template"]["spec"]}
    assert messages(summarize(RAY_CLUSTER, pending, related(pods=[starting]))) == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("n" * 53, "KubeRay has not written a state since it was created"),
        ("n" * 54, "KubeRay ignores the RayCluster, because its name is longer than 53 characters"),
        ("9lives", "KubeRay ignores the RayCluster, because its name is not a DNS-1035 label"),
    ],
)
def test_raycluster_with_a_name_that_kuberay_does_not_accept_has_one_problem(
    name: str, problem: str
) -> None:
    ray_cluster = cluster()
    ray_cluster["metadata"] |= {"name": name, "creationTimestamp": "2026-05-01T00:00:00Z"}
    ray_cluster["status"] = {
        "conditions": [condition(EXPOSED, "False", "HostTooLong", "too long")] * (len(name) > 53)
    }
    (found,) = messages(summarize(RAY_CLUSTER, ray_cluster, related()))
    assert found.startswith(problem)


def running_pod(name: str, **resources: str) -> Object:
    container = {"name": "ray", "image": "ray", "resources": {"requests": resources}}
    return {
        "metadata": {"namespace": "n", "name": name, "labels": {"ray.io/group": "headgroup"}},
        "spec": {"containers": [container]},
        "status": {"phase": "Running", "conditions": [condition("Ready", "True")]},
    }


def test_pods_that_run_with_an_older_spec_are_a_warning() -> None:
    changed = cluster(pod=running_pod("", cpu="2")["spec"])
    pods = [running_pod("a", cpu="1"), running_pod("b", cpu="2"), running_pod("c", cpu="1")]
    summary = summarize(RAY_CLUSTER, changed, related(pods=pods))
    assert (summary.level, messages(summary)) == (
        Level.WARNING,
        ["Pods are older than the spec: a, c (changed since: resources of container ray)"],
    )
    assert "kubectl delete pod -n n a c, or create the RayCluster" in summary.problems[0].remedy
    deleted = running_pod("a", cpu="1")
    deleted["metadata"]["deletionTimestamp"] = "2026-06-01T00:00:00Z"
    ended = {**running_pod("b", cpu="1"), "status": {"phase": "Failed"}}
    ignored = [deleted, ended, running_pod("c", cpu="2")]
    assert summarize(RAY_CLUSTER, changed, related(pods=ignored)).problems == ()
    changed["spec"]["upgradeStrategy"] = {"type": "Recreate"}
    assert summarize(RAY_CLUSTER, changed, related(pods=pods)).level is Level.OK


def test_pods_are_not_deleted_before_a_spec_is_correct_that_allows_no_new_ones() -> None:
    changed = cluster(pod=running_pod("", cpu="2")["spec"])
    (container,) = changed["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    container["resources"]["limits"] = {"cpu": "1"}
    (problem,) = summarize(RAY_CLUSTER, changed, related(pods=[running_pod("a", cpu="1")])).problems
    field = "spec.headGroupSpec.template.spec.containers[0].resources.requests"
    assert f"first correct {field}" in problem.remedy
    assert "with which no pod is created; then kubectl delete pod -n n a" in problem.remedy


def test_pods_that_cannot_be_scheduled_have_to_be_deleted_after_a_change_of_the_spec() -> None:
    pending = running_pod("a", cpu="9")
    unschedulable = condition("PodScheduled", "False", "Unschedulable", "Insufficient cpu")
    pending["status"] = {"phase": "Pending", "conditions": [unschedulable]}
    before = cluster("", pod=pending["spec"])
    (problem,) = summarize(RAY_CLUSTER, before, related(pods=[pending])).problems
    assert problem.remedy.startswith("request less")
    assert "after a change of the spec, delete the pods" in problem.remedy
    after = cluster("", pod=running_pod("", cpu="1")["spec"])
    (problem,) = summarize(RAY_CLUSTER, after, related(pods=[pending])).problems
    assert problem.message == "Pod a: cannot be scheduled: Insufficient cpu"
    assert "kubectl delete pod -n n a, or create the RayCluster again" in problem.remedy
    after["metadata"]["ownerReferences"] = [
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": "u", "controller": True}
    ]
    (problem,) = summarize(RAY_CLUSTER, after, related(pods=[pending])).problems
    assert problem.remedy.endswith("or create the RayJob again")


@pytest.mark.parametrize(
    ("created", "is_problem"),
    [
        (["2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"], True),
        (["2026-01-03T00:00:00Z", "2026-01-01T00:00:00Z"], True),
        (["2026-01-03T00:00:00Z", "2026-01-03T00:00:00Z"], False),
    ],
)
@pytest.mark.parametrize("ready", ["2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"])
def test_replaced_ca_is_a_problem_until_all_pods_are_younger(
    created: list[str], ready: str, *, is_problem: bool
) -> None:
    ray_cluster = cluster()
    ray_cluster["status"]["stateTransitionTimes"] = {"ready": ready}
    pods = []
    for time in created:
        running = pod("Running")
        running["metadata"]["creationTimestamp"] = time
        pods.append(running)
    events = [event("CertificateAuthorityReplaced", "2026-01-02T00:00:00Z")]
    summary = summarize(RAY_CLUSTER, ray_cluster, related(events=events, pods=pods))
    remedies = [problem.remedy for problem in summary.problems]
    assert len(remedies) == is_problem
    assert all("kubectl delete pod -n n -l ray.io/cluster=x" in each for each in remedies)


def test_raycluster_has_settled_when_it_is_exposed_and_protected() -> None:
    ray_cluster, nothing = cluster(pod=TLS_HEAD), {INGRESS: [], NETWORK_POLICY: [], SECRET: []}
    pending = summarize(RAY_CLUSTER, ray_cluster, related(children=nothing)).pending
    assert pending.startswith("is missing NetworkPolicy ")
    assert pending.endswith(
        ", an address of the dashboard, an address of the client, Secret ca-secret-x"
    )
    assert summarize(RAY_CLUSTER, ray_cluster, related()).pending == ""  # nothing of it can be read
    suspended = cluster("suspended", pod=TLS_HEAD, suspend=True)
    assert summarize(RAY_CLUSTER, suspended, related(children=nothing)).pending == ""


def test_client_behind_a_gateway_is_shown_with_what_the_gateway_reports() -> None:
    parent = {"name": "shared", "sectionName": "ray-client", "port": 8443}
    rejected = {
        **condition("Accepted", "False", "NotAllowedByListeners", "no"),
        "observedGeneration": 1,
    }
    route = obj(
        TLS_ROUTES[0],
        spec={"parentRefs": [parent], "hostnames": ["c.example.com"]},
        status={"parents": [{"parentRef": parent, "conditions": [rejected]}]},
        name="rayclient-x",
        generation=1,
    )
    summary = summarize(RAY_CLUSTER, cluster(), related(children={TLS_ROUTES[0]: [route]}))
    assert summary.fact("ray client") == "ray://c.example.com:8443"
    assert "The Gateway shared, listener ray-client does not accept the TLSRoute: no" in messages(
        summary
    )


def test_suspended_raycluster_of_multikueue_needs_no_state() -> None:
    """MultiKueue writes one when the RayCluster runs in another cluster."""
    spec = {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}
    summary = summarize(RAY_CLUSTER, obj(RAY_CLUSTER, creationTimestamp=OLD, spec=spec), related())
    assert (summary.level, messages(summary)) == (Level.WAITING, [])


def test_quota_is_the_first_problem_of_a_raycluster_without_pods() -> None:
    refusal = {
        **event("FailedToCreateHeadPod", "2026-01-01T00:00:00Z"),
        "message": "exceeded quota: compute",
    }
    found = cluster("")
    found["status"]["conditions"] = [condition(EXPOSED, "False", "IngressDomainMissing")]
    summary = summarize(RAY_CLUSTER, found, related(events=[refusal]))
    assert messages(summary) == [
        "FailedToCreateHeadPod: exceeded quota: compute",
        "IngressDomainMissing: message",
    ]


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({"kueue.x-k8s.io/queue-name": "team"}, "waits for quota in the LocalQueue team"),
        ({}, "spec.suspend is true"),
    ],
)
def test_suspended_raycluster_shows_its_queue_in_place_of_a_missing_address(
    labels: dict[str, str], why: str
) -> None:
    suspended = cluster("suspended", suspend=True)
    suspended["metadata"]["labels"] = labels
    summary = summarize(RAY_CLUSTER, suspended, related(children={INGRESS: []}))
    assert (essence(summary), summary.fact("dashboard")) == (why, "")


def test_what_cannot_work_in_the_spec_is_a_problem_without_webhooks() -> None:
    groups = [{"groupName": name} for name in ("a", "b", "a", "a", "a", "a")]
    problems = summarize(RAY_CLUSTER, cluster(workerGroupSpecs=groups)).problems
    assert len(problems) == 3
    assert problems[0].message.startswith(
        "spec.workerGroupSpecs[2].groupName: 'a' is also the name of"
    )
    assert problems[0].remedy == "give one of them another groupName"
    reversed_range = {"groupName": "b", "minReplicas": 3, "maxReplicas": 1}
    (problem,) = summarize(RAY_CLUSTER, cluster(workerGroupSpecs=[None, reversed_range])).problems
    assert problem.message == (
        "spec.workerGroupSpecs[1]: minReplicas (3) is greater than maxReplicas (1)"
    )
    assert problem.remedy == "lower minReplicas, or raise maxReplicas"
    adjusted = {"groupName": "b", "replicas": 3, "maxReplicas": 1}
    assert summarize(RAY_CLUSTER, cluster(workerGroupSpecs=[None, adjusted])).problems == ()


def test_refused_group_name_is_the_first_problem_with_its_remedy() -> None:
    message = 'Pod "rc-w w" is invalid: metadata.labels: Invalid value: "w w": a valid label must'
    failure = condition("ReplicaFailure", "True", "FailedCreatePods", message)
    obj = cluster(workerGroupSpecs=[{"groupName": "w w"}])
    obj["status"]["conditions"] = [failure]
    cause, consequence = summarize(RAY_CLUSTER, obj).problems
    assert cause.message.startswith("spec.workerGroupSpecs[0].groupName: 'w w' (3 characters)")
    assert cause.remedy == "choose another groupName"
    assert "the groupName of their worker group in both" in consequence.remedy


def test_workers_that_kuberay_adds_or_leaves_out_are_a_fact() -> None:
    group = {"groupName": "b", "replicas": 3, "maxReplicas": 1}
    summary = summarize(RAY_CLUSTER, cluster(workerGroupSpecs=[group]))
    assert summary.fact("workers") == (
        "spec.workerGroupSpecs[0]: replicas is 3, but KubeRay runs maxReplicas: 1"
    )
    assert summarize(RAY_CLUSTER, cluster()).fact("workers") == ""
