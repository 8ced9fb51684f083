"""The plan for one object: targets, downtime, what blocks it, and what is kept."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from cfo.api.raycluster.cluster import SECURE_TRUSTED_NETWORK
from cfo.api.raycluster.names import FIELD_MANAGER, FINALIZER, names_of
from cfo.console.migrate.raycluster.planning import (
    SUSPENDED_ANNOTATION,
    ObservedCluster,
    Options,
    is_managed_by_cfo,
    plan_cluster,
    plan_safely,
    plan_takeover,
)
from cfo.console.migrate.raycluster.steps import Action, ObjectPlan, Step, plan_lines
from cfo.console.migrate.raycluster.targets import KubeRay, Target
from cfo.runtime.objects.unstructured import Object, name_of
from test.support.migration import (
    FIELDS,
    KUBERAY,
    NAMESPACE,
    TO_KUBERAY,
    injected,
    kuberay_policies,
    observed,
    result_of,
    user_cluster,
)

TO_RHOAI = Options(Target.RHOAI, allow_downtime=True)


def texts(plan: ObjectPlan) -> list[str]:
    return [step.text for step in plan.steps if step.action is not Action.DELETE]


def test_running_cluster_is_suspended_migrated_and_resumed() -> None:
    state = observed(injected(user_cluster("rc"), go=True))
    before = copy.deepcopy(state)
    plan = plan_cluster(state, TO_KUBERAY)
    assert state == before, "an argument was modified"
    assert (plan.restarts, plan.blockers) == (True, [])
    assert texts(plan) == [
        "suspend",
        "wait until its pods are deleted",
        "remove 11 injected parts; set tlsOptions, authOptions, networkPolicy",
        f"close the open ports of NetworkPolicy {names_of(state.cluster).head_policy}",
        "remove the finalizer",
        "resume",
    ]
    result = result_of(plan)
    assert result["spec"]["suspend"] is False, (
        "KubeRay does not resume a RayCluster whose field is unset"
    )
    assert "finalizers" not in result["metadata"]
    assert result["spec"]["tlsOptions"] == {"enabled": True}
    assert result["spec"]["authOptions"] == {"mode": "token"}
    rules = result["spec"]["networkPolicy"]["head"]["ingressRules"]
    assert [sorted(rule) for rule in rules] == [["from", "ports"]] * 3 + [["ports"]]
    assert rules[-1]["ports"] == [{"protocol": "TCP", "port": 10001}], "the proxy's port stays open"
    assert plan_cluster(ObservedCluster(result, kuberay_like(result)), TO_KUBERAY).steps == []


def kuberay_like(cluster: Object) -> list[Object]:
    return list(kuberay_policies(cluster))


def test_suspended_cluster_needs_no_downtime_and_stays_suspended() -> None:
    state = observed(injected(user_cluster("rc", suspend=True)), has_pods=False)
    plan = plan_cluster(state, Options(Target.KUBERAY, KUBERAY))
    assert (plan.restarts, plan.blockers) == (False, [])
    assert {"suspend", "resume"} & set(texts(plan)) == set()
    assert result_of(plan)["spec"]["suspend"] is True


def test_cluster_without_injected_parts_needs_no_downtime() -> None:
    state = observed(
        injected(user_cluster("rc"), go=True, oauth=False, mtls=False), oauth=False, mtls=False
    )
    plan = plan_cluster(state, Options(Target.KUBERAY, KUBERAY))
    assert (plan.restarts, plan.blockers) == (False, [])
    assert texts(plan)[-1] == "remove the finalizer"


@pytest.mark.parametrize(("strategy", "restarts"), [("Recreate", True), ("None", False)])
def test_upgrade_strategy_recreate_makes_every_change_a_restart(
    strategy: str, *, restarts: bool
) -> None:
    cluster = injected(
        user_cluster("rc", upgradeStrategy={"type": strategy}), go=True, oauth=False, mtls=False
    )
    plan = plan_cluster(observed(cluster, oauth=False, mtls=False), TO_KUBERAY)
    assert plan.restarts is restarts


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "is running: suspend it, or restart it with --allow-downtime"),
        ({"labels": {"kueue.x-k8s.io/queue-name": "q"}}, "Kueue manages it"),
        (
            {"ownerReferences": [{"kind": "RayJob", "name": "j", "uid": "u", "controller": True}]},
            "belongs to RayJob j",
        ),
    ],
)
def test_running_cluster_is_not_restarted_without_permission(
    change: dict[str, Any], reason: str
) -> None:
    cluster = injected(user_cluster("rc"))
    cluster["metadata"] |= change
    options = Options(Target.KUBERAY, KUBERAY, allow_downtime=bool(change))
    plan = plan_cluster(observed(cluster), options)
    assert plan.steps == []
    assert reason in plan.blockers[0]
    if change:
        assert plan.prevented == [], "no option lets the command restart it"
        return
    permitted = plan_cluster(observed(cluster), TO_KUBERAY)
    assert plan.prevented == [step.text for step in permitted.steps]
    assert "suspend" in plan.prevented
    assert plan.notes == permitted.notes


def test_annotation_of_a_user_does_not_resume_a_queued_cluster() -> None:
    cluster = injected(user_cluster("rc", suspend=True))
    cluster["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    cluster["metadata"]["annotations"][SUSPENDED_ANNOTATION] = "unset"
    plan = plan_cluster(observed(cluster, has_pods=False), TO_KUBERAY)
    assert "resume" not in texts(plan)


@pytest.mark.parametrize(
    ("kuberay", "reason"),
    [
        (
            KubeRay(FIELDS, frozenset({"networkPolicy"}), cert_manager=True),
            "RayClusterMTLS is not known to be enabled",
        ),
        (KubeRay(FIELDS, KUBERAY.features, cert_manager=False), "cert-manager is not installed"),
        (
            KubeRay(frozenset(), KUBERAY.features, cert_manager=True),
            "the CRD of KubeRay has no field tlsOptions",
        ),
    ],
)
def test_mutual_tls_is_not_lost_without_permission(kuberay: KubeRay, reason: str) -> None:
    state = observed(injected(user_cluster("rc"), oauth=False), oauth=False)
    (blocker,) = plan_cluster(state, Options(Target.KUBERAY, kuberay, allow_downtime=True)).blockers
    assert reason in blocker
    plan = plan_cluster(
        state, Options(Target.KUBERAY, kuberay, allow_downtime=True, without_tls=True)
    )
    assert plan.blockers == []
    spec = result_of(plan)["spec"]
    assert "tlsOptions" not in spec
    rules = spec.get("networkPolicy", {}).get("head", {}).get("ingressRules", [])
    assert all(rule.get("from") for rule in rules), (
        "the client's port is open although nothing protects it"
    )


def test_policies_are_kept_and_closed_until_kuberay_restricts_the_pods() -> None:
    kuberay = KubeRay(FIELDS, frozenset(), cert_manager=True)
    state = observed(injected(user_cluster("rc"), mtls=False), mtls=False)
    plan = plan_cluster(state, Options(Target.KUBERAY, kuberay, allow_downtime=True))
    assert "networkPolicy" not in result_of(plan)["spec"]
    assert [step.text for step in plan.steps if "delete NetworkPolicy" in step.text] == []
    (closing,) = [step for step in plan.steps if step.object["kind"] == "NetworkPolicy"]
    assert closing.change is not None
    closed = closing.change(closing.object)
    assert all(rule.get("from") for rule in closed["spec"]["ingress"])
    assert closing.change(closed) == closed
    policies = kuberay_like(state.cluster)
    assert "delete NetworkPolicy" not in str(deleted(state, policies[:1])), (
        "no policy restricts the workers yet"
    )
    assert str(deleted(state, policies)).count("delete NetworkPolicy") == 2


def deleted(state: ObservedCluster, policies: list[Object]) -> list[str]:
    changed = ObservedCluster(
        state.cluster, [*state.children, *policies], state.bindings, has_pods=True
    )
    return [
        step.text
        for step in plan_cluster(changed, TO_KUBERAY).steps
        if step.action is Action.DELETE
    ]


def test_policy_that_kuberay_took_over_is_not_deleted() -> None:
    """The head's policies of KubeRay and of the operator have the same name in RayClusters with old names."""
    cluster = injected(user_cluster("rc"), old_names=True, oauth=False)
    state = observed(cluster, oauth=False)
    others = [obj for obj in state.children if name_of(obj) != "rc-head"]
    changed = ObservedCluster(
        state.cluster, [*others, *kuberay_like(state.cluster)], (), has_pods=True
    )
    texts = [step.text for step in plan_cluster(changed, TO_KUBERAY).steps]
    assert "delete NetworkPolicy rc-head" not in texts
    assert "delete NetworkPolicy rc-workers" in texts


def test_objects_of_other_owners_are_kept() -> None:
    state = observed(injected(user_cluster("rc")))
    for obj in state.children:
        del obj["metadata"]["ownerReferences"]  # the labels alone, which users can write
    state.bindings[0]["roleRef"]["name"] = "cluster-admin"
    plan = plan_cluster(state, TO_KUBERAY)
    assert [step.text for step in plan.steps if step.action is Action.DELETE] == []
    assert (
        f"ClusterRoleBinding {name_of(state.bindings[0])} is not the operator's: kept" in plan.notes
    )
    assert any(note.startswith("NetworkPolicy rc-head") for note in plan.notes)


def test_secret_that_a_pod_template_still_uses_is_kept() -> None:
    cluster = injected(user_cluster("rc"))
    pod = cluster["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    secret = names_of(cluster).ca_secret
    pod["volumes"].append({"name": "mine", "secret": {"secretName": secret}})
    plan = plan_cluster(observed(cluster), TO_KUBERAY)
    assert f"Secret {secret}, which its pod templates use" in plan.kept


def test_dashboard_keeps_its_host() -> None:
    state = observed(
        injected(user_cluster("rc"), oauth=False, mtls=False), oauth=False, mtls=False, exposed=True
    )
    head = result_of(plan_cluster(state, TO_KUBERAY))["spec"]["headGroupSpec"]
    host = f"ray-dashboard-rc-{NAMESPACE}.apps.test"
    assert head["ingressOptions"] == {"host": host, "path": "/", "pathType": "Prefix"}
    assert head["enableIngress"] is True


@pytest.mark.parametrize("version", ["2.40.0", "", "nightly", "10.0"])
def test_tokens_need_a_new_ray(version: str) -> None:
    state = observed(injected(user_cluster("rc", rayVersion=version), mtls=False), mtls=False)
    assert ("authOptions" in result_of(plan_cluster(state, TO_KUBERAY))["spec"]) is (
        version == "10.0"
    )


def test_group_name_that_kuberay_rejects_keeps_the_policies() -> None:
    cluster = injected(user_cluster("rc"), oauth=False, mtls=False)
    cluster["spec"]["workerGroupSpecs"][0]["groupName"] = "Workers"
    plan = plan_cluster(observed(cluster, oauth=False, mtls=False), TO_KUBERAY)
    assert "networkPolicy" not in result_of(plan)["spec"]


def test_rhoai_gets_its_annotation_and_none_of_the_fields() -> None:
    state = observed(injected(user_cluster("rc"), go=True))
    result = result_of(plan_cluster(state, TO_RHOAI))
    assert result["metadata"]["annotations"][SECURE_TRUSTED_NETWORK] == "true"
    assert "finalizers" not in result["metadata"]
    assert {"tlsOptions", "authOptions", "networkPolicy"} & result["spec"].keys() == set()


def test_finalizer_is_removed_without_downtime_on_request() -> None:
    cluster = injected(user_cluster("rc"), go=True)
    cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][1]["args"] = ["edited"]
    plan = plan_cluster(observed(cluster), Options(Target.RHOAI, finalizers_only=True))
    assert [step.action for step in plan.steps] == [Action.DELETE, Action.RELEASE]
    assert (plan.restarts, plan.blockers) == (False, [])
    assert result_of(plan)["spec"] == plan.object["spec"]


@pytest.mark.parametrize("managed", [False, True])
def test_deleted_and_remote_clusters_are_only_released(*, managed: bool) -> None:
    cluster = injected(
        user_cluster("rc", **({"managedBy": "kueue.x-k8s.io/multikueue"} if managed else {})),
        go=True,
    )
    if not managed:
        cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    plan = plan_cluster(observed(cluster), TO_KUBERAY)
    assert [step.action for step in plan.steps] == [Action.DELETE, Action.RELEASE]


def test_malformed_objects_block_only_their_cluster() -> None:
    cluster = injected(user_cluster("rc"))
    state = observed(cluster)
    cluster["spec"]["workerGroupSpecs"] = "none"
    assert "malformed" in plan_safely(observed(cluster), TO_KUBERAY).blockers[0]
    state.children[0]["spec"] = "none"
    plan = plan_safely(state, TO_KUBERAY)
    assert "cannot be read" in plan.blockers[0]


def test_plan_is_printed_as_indented_lines() -> None:
    (steps, blocked, nothing) = (ObjectPlan(user_cluster("rc")) for _ in range(3))
    steps.has = ["finalizer", "suspended"]
    steps.restarts = True
    steps.steps = [Step(Action.DELETE, steps.object, "delete Secret s")]
    steps.kept = ["NetworkPolicy p"]
    steps.notes = ["loses something"]
    assert list(plan_lines(steps)) == [
        "RayCluster team-a/rc (finalizer, suspended): restarts all pods",
        "  delete Secret s",
        "  keep NetworkPolicy p",
        "  note: loses something",
    ]
    blocked.blockers = ["is running"]
    blocked.prevented = ["suspend"]
    assert list(plan_lines(blocked)) == [
        "RayCluster team-a/rc",
        "  BLOCKED: is running",
        "  then: suspend",
    ]
    assert list(plan_lines(nothing)) == ["RayCluster team-a/rc", "  nothing to do"]


@pytest.mark.parametrize("has_proxies", [False, True])
def test_takeover_changes_policies_and_unneeded_finalizers(*, has_proxies: bool) -> None:
    state = observed(injected(user_cluster("rc"), go=True))
    plan = plan_takeover(state, has_proxies=has_proxies)
    names = names_of(plan.object)
    expected = [
        f"set policyTypes of NetworkPolicy {name}"
        for name in (names.head_policy, names.workers_policy)
    ]
    assert not is_managed_by_cfo(state)
    assert texts(plan)[:2] == expected
    assert ("remove the finalizer, which nothing needs" in texts(plan)) is not has_proxies
    assert not plan.restarts


@pytest.mark.parametrize("has_proxies", [False, True])
@pytest.mark.parametrize("has_finalizer", [False, True])
def test_cluster_of_this_operator_is_already_managed(
    *, has_proxies: bool, has_finalizer: bool
) -> None:
    cluster = injected(user_cluster("rc"))
    cluster["metadata"]["finalizers"] = [FINALIZER] if has_finalizer else []
    state = observed(cluster)
    policies = [obj for obj in state.children if obj["kind"] == "NetworkPolicy"]
    for policy in policies:
        assert not is_managed_by_cfo(state)
        entry = {"manager": FIELD_MANAGER, "fieldsV1": {"f:spec": {"f:policyTypes": {}}}}
        policy["metadata"]["managedFields"] = [entry]
    assert is_managed_by_cfo(state)
    plan = plan_takeover(state, has_proxies=has_proxies)
    removes_finalizer = has_finalizer and not has_proxies
    expected = ["remove the finalizer, which nothing needs"] if removes_finalizer else []
    assert (texts(plan), plan.notes) == (expected, ["already managed by cfo"])


def test_takeover_names_settings_that_the_configuration_does_not_confirm() -> None:
    cluster = user_cluster("rc", tlsOptions={"enabled": True}, networkPolicy={})
    cluster["spec"]["headGroupSpec"]["enableIngress"] = True
    plan = plan_takeover(observed(cluster), has_proxies=False, active_features=["tlsOptions"])
    (note, _) = plan.notes
    assert note == (
        "sets spec.headGroupSpec.enableIngress: if KubeRay acts on it, add ingressOptions to "
        "kuberay.kubeRayFeatures in the operator's configuration, otherwise the operator acts as well"
    )
    cluster["spec"]["tlsOptions"] = "unreadable"
    assert len(plan_takeover(observed(cluster), has_proxies=False).notes) == 1


def test_finalizers_of_others_are_kept() -> None:
    cluster = injected(user_cluster("rc"), go=True)
    cluster["metadata"]["finalizers"] = ["example.com/a", FINALIZER, "example.com/b"]
    result = result_of(plan_cluster(observed(cluster), TO_KUBERAY))
    assert result["metadata"]["finalizers"] == ["example.com/a", "example.com/b"]


def test_egress_rules_are_kept() -> None:
    state = observed(injected(user_cluster("rc"), oauth=False, mtls=False), oauth=False, mtls=False)
    (head,) = [obj for obj in state.children if name_of(obj) == names_of(state.cluster).head_policy]
    dns = {"to": [{"namespaceSelector": {}}], "ports": [{"protocol": "UDP", "port": 53}]}
    head["spec"] |= {"policyTypes": ["Ingress", "Egress"], "egress": [dns]}
    head["spec"]["ingress"].append({"ports": [{"protocol": "TCP", "port": 8000}]})
    plan = plan_cluster(state, TO_KUBERAY)
    policy = result_of(plan)["spec"]["networkPolicy"]
    assert policy["mode"] == "DenyAll"
    assert policy["head"]["egressRules"] == [dns]
    assert policy["worker"] == {"egressRules": [{}]}, (
        "KubeRay would restrict the egress of the workers"
    )
    assert (
        "ports 8000 are not open to everyone any more: open them in spec.networkPolicy"
        in plan.notes
    )


def test_conditions_of_the_operator_are_removed_before_the_finalizer() -> None:
    cluster = injected(user_cluster("rc", suspend=True))
    foreign = [{"type": "Ready", "status": "True"}, {"type": {}}, "x"]
    own = [{"type": "ray.openshift.ai/MutualTLS", "status": "True"}]
    cluster["status"] = {"state": "suspended", "conditions": [foreign[0], *own, *foreign[1:]]}
    plan = plan_cluster(observed(cluster), TO_KUBERAY)
    (step,) = [step for step in plan.steps if step.action is Action.UPDATE_STATUS]
    assert texts(plan).index(step.text) < texts(plan).index("remove the finalizer")
    assert step.change is not None
    changed = step.change(cluster)
    assert changed["status"] == {"state": "suspended", "conditions": foreign}
    again = plan_cluster(observed(changed), TO_KUBERAY)
    assert step.text not in texts(again)
    only_released = replace(TO_KUBERAY, finalizers_only=True)
    assert step.text not in texts(plan_cluster(observed(cluster), only_released))
