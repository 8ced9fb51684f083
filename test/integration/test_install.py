"""Installation: the manifests on a control plane, and ``cfo run`` with the permissions of its service account."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from click.testing import CliRunner

from cfo.api.flux.names import MINICLUSTER, OBJECTS_READY
from cfo.api.raycluster.conditions import EXPOSED
from cfo.api.raycluster.names import (
    CLUSTER_LABEL,
    DEFAULT_DENY_NAME,
    FIELD_MANAGER,
    NAMESPACE_LABEL,
    RAY_CLUSTER,
    ROUTE,
)
from cfo.cli import cli
from cfo.console.demo import crds
from cfo.console.demo.run import read_objects
from cfo.controllers.raycluster.certificate_requesters import desired_binding
from cfo.controllers.raycluster.policies import desired_default_deny
from cfo.features import OPTIONAL_ROLES
from cfo.manifests import guardrails, job_pod_policy
from cfo.manifests.names import DEFAULT_NAMESPACE, LABELS, MANAGER_BINDING, SERVICE_ACCOUNT
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.manifests.overlays import COMPONENTS, bundled_crds, render
from cfo.operator import WEBHOOK_SECRET_NAME
from cfo.runtime.client.status import apply_status
from cfo.runtime.objects.kinds import (
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    DEPLOYMENT,
    EVENT,
    INGRESS,
    NAMESPACE,
    NETWORK_POLICY,
    SECRET,
)
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    find_condition,
    gvk_of,
    key_of,
    name_of,
    namespace_of,
)
from cfo.runtime.webhook.ownership import OPERATOR_ANNOTATION, OperatorMark
from cfo.version import CONFIG_MAP_NAME
from envtest.formats.certificate_authority import CertificateAuthority
from test.support.config_map_webhooks import free_url
from test.support.installation import (
    ROOT,
    create_config_map,
    delete_webhooks,
    install,
    install_with_kubectl,
    kubectl,
    operator_audit_events,
    run_in_cluster,
    run_uninstall,
    start_installation,
    webhook_configurations,
)
from test.support.manifests import dump_all, kustomize, load_all
from test.support.planes import apply_all
from test.support.raycluster_environment import (
    AUTHENTICATION_CONFIG_CRD,
    DSC_INITIALIZATION_CRD,
    INGRESS_CONFIG_CRD,
    ROUTE_CRD,
    Environment,
    crd,
    eventually,
    ray_cluster,
    start_environment,
)

RAY_CLUSTERS = crds.load()
SHARED_CRDS = {"inferencestacks.models.takeoff.co", "inferencestacks.doublewordai.co"}
FEATURE_NAMES = [feature.name for feature in OPTIONAL_ROLES]


async def apply_samples(environment: Environment, *paths: Path) -> list[Object]:
    """Apply the samples in ``paths``; fail if the kind of one is not served."""
    applied = []
    for obj in read_objects([path for path in paths if path.exists()]):
        try:
            resource = await environment.client.mapper.resource(gvk_of(obj))
        except Exception as error:
            raise AssertionError(f"{gvk_of(obj)} of {paths}") from error
        if resource.namespaced:
            obj["metadata"].setdefault("namespace", "default")
        applied.append(await environment.client.apply(obj))
    return applied


def _required_verbs(event: dict[str, Any]) -> set[str]:
    """Return the RBAC verbs that a request required; an apply that created its object also required ``create``."""
    verb = event["verb"]
    if verb == "patch" and event["responseStatus"]["code"] == 201:
        return {"patch", "create"}
    return (
        {"list", "watch"} if verb == "list" else {verb}
    )  # a watch is only audited when it ends, but follows a list


@dataclass(frozen=True)
class Permission:
    """One verb on one resource: the unit that is either used or not."""

    namespace: str
    group: str
    resource: str
    verb: str
    names: tuple[str, ...]

    def allows(self, event: dict[str, Any]) -> bool:
        target = event.get("objectRef") or {}
        resource = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
        return (
            target.get("apiGroup", "") == self.group
            and fnmatchcase(resource, self.resource)
            and self.verb in _required_verbs(event)
            and (not self.namespace or target.get("namespace") == self.namespace)
            and (not self.names or target.get("name", "") in ("", *self.names))
        )

    def __str__(self) -> str:
        names = f" of {' '.join(self.names)}" if self.names else ""
        return f"{self.verb} {self.group or 'core'}/{self.resource}{names}"


def operator_permissions() -> set[Permission]:
    """Return all permissions of the operator's service account."""
    found: set[Permission] = set()
    objects = render(components=FEATURE_NAMES)
    bound = {obj["roleRef"]["name"] for obj in objects if obj["kind"].endswith("RoleBinding")}
    for role in objects:
        if role["kind"] in ("Role", "ClusterRole") and role["metadata"]["name"] in bound:
            found |= {
                Permission(
                    role["metadata"].get("namespace", ""),
                    group,
                    resource,
                    verb,
                    tuple(rule.get("resourceNames", ())),
                )
                for rule in role["rules"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


def denied_requests(events: list[dict[str, Any]]) -> list[str]:
    """Return verb and URI of each request that got the status 401 or 403."""
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in events
        if event["responseStatus"]["code"] in (401, 403)
    ]


EXPECTED_UNUSED = {
    "get *": "quorum reads after a write of unknown outcome (test_faults_*)",
    "* apps/*": "wrapped by AppWrappers (test_appwrapper_*)",
    "* batch/*": "wrapped by AppWrappers (test_appwrapper_*)",
    "* core/namespaces": "kuberay.profiles (test_raycluster_profiles)",
    "* core/pods": "wrapped by AppWrappers, and head pods without pull secrets (test_raycluster_oauth)",
    "* core/services": "wrapped by AppWrappers (test_appwrapper_*)",
    "* jobset.x-k8s.io/*": "wrapped by AppWrappers (test_appwrapper_*)",
    "* kubeflow.org/*": "wrapped by AppWrappers (test_appwrapper_*)",
    "* leaderworkerset.x-k8s.io/*": "wrapped by AppWrappers (test_appwrapper_*)",
    "* ray.io/rayjobs": "wrapped by AppWrappers (test_appwrapper_*)",
    "* ray.io/rayservices": "wrapped by AppWrappers (test_appwrapper_*)",
    "* ray.io/rayclusters": "wrapped by AppWrappers (test_appwrapper_*)",
    "* scheduling.*/podgroups": "wrapped by AppWrappers (test_appwrapper_*)",
    "* trainer.kubeflow.org/*": "wrapped by AppWrappers (test_appwrapper_*)",
    "create authentication.k8s.io/tokenreviews": "metrics.secureServing authenticates scrapes (test_metrics)",
    "create authorization.k8s.io/subjectaccessreviews": "scrapes, AppWrapper users (test_metrics, test_appwrapper_*)",
    "create core/configmaps": "the default ConfigMap if none exists (test_operator)",
    "delete admissionregistration.k8s.io/*": "created by a killed run with --webhook-url (test_operator_webhooks)",
    "delete core/*": "OAuth or mTLS is disabled (test_raycluster_oauth, test_raycluster_mtls)",
    "delete networking.k8s.io/*": "OAuth is enabled (test_raycluster_ingress)",
    "delete route.openshift.io/routes": "OAuth is disabled (test_raycluster_oauth)",
    "patch core/secrets*": "renewed certificates (test_raycluster_mtls, test_operator_webhooks)",
    "patch rbac.authorization.k8s.io/*": "a binding changed by another client (test_raycluster_oauth)",
    "use codeflare.dev/reservedhosts": "the policy of the component reserved-hosts (hostile/test_reserved_hosts)",
    "update route.openshift.io/routes": "OpenShift requires it for changing the host of a Route",
    "* workload.codeflare.dev/*": "AppWrapper lifecycle (test_appwrapper_*); OpenShift requires finalizers for owners",
    "delete flux-framework.org/*": "clean-up of finished MiniClusters and FluxJobs (test_flux_*)",
    "create flux-framework.org/fluxsetups": "flux.defaultSetup (test_flux_*)",
    "update flux-framework.org/*/finalizers": "OpenShift requires it for owners",
    "* core/events": "core Events of AppWrappers (test_appwrapper_*), the dashboard (test_dashboard)",
    "patch events.k8s.io/events": "a repeated Event becomes a series (test_events)",
    "* kueue.x-k8s.io/*": "kueueIntegration and slackQueueName, off by default (test_appwrapper_*)",
    "* autoscaling/*": "autoscalers of InferenceStacks (test_inferencestack_*)",
    "* keda.sh/*": "autoscalers of InferenceStacks (test_inferencestack_*)",
    "* gateway.networking.k8s.io/*": "routes of InferenceStacks (test_inferencestack_*)",
    "* monitoring.coreos.com/servicemonitors": "InferenceStacks (test_inferencestack_*)",
    "* policy/*": "disruption budgets of InferenceStacks (test_inferencestack_*)",
    "* core/persistentvolumeclaims": "model caches of InferenceStacks (test_inferencestack_*)",
    "patch core/serviceaccounts": "a changed InferenceStack (test_inferencestack_*)",
    "* doublewordai.co/*": "InferenceStacks of version 2 (test_inferencestack_*)",
    "* models.takeoff.co/*": "finalizers of Helm on InferenceStacks (test_inferencestack_*)",
    "update coordination.k8s.io/leases of inference-stack-operator-*": "renewals (test_inferencestack_majors)",
    "* certificates.k8s.io/*": "kuberay.ca.issuer, off by default (test_raycluster_node_certificates)",
    "* core/nodes": "nodes marked by Autopilot (test_appwrapper_*)",
}
"""Permissions that this test does not use, by pattern, with the operation that uses them."""


async def _run_lifecycle(
    environment: Environment, directory: Path, shared: Path, *, openshift: bool
) -> list[dict[str, Any]]:
    """Install and run the operator, apply and delete all samples, stop; return the audit events of the operator."""
    optional = ["appwrapper", "namespaces", "inferencestack", "openshift"] if openshift else []
    await install_with_kubectl(environment, directory, components=["flux", *optional])
    kuberay: dict[str, Any] = {
        "rayDashboardOAuthEnabled": openshift,
        "ingressDomain": "apps.test",
        "mTLSEnabled": True,
    }
    if openshift:
        kuberay["networkPolicy"] = {"defaultDeny": {"namespaceSelector": ""}}
    enabled = {"enabled": openshift}
    features = {"appwrapper": enabled, "inferenceStack": enabled, "flux": {"enabled": True}}
    await create_config_map(environment, kuberay=kuberay, **features)
    async with run_in_cluster(environment, directory, "--webhook-url", str(free_url())) as operator:
        await operator.ready()
        samples = await apply_samples(
            environment,
            ROOT / "config/samples",
            ROOT / "config/samples/all",
            *shared.glob("samples/ray-cluster.*.yaml"),
        )
        clusters = [obj for obj in samples if gvk_of(obj).kind == RAY_CLUSTER.kind]
        assert clusters
        for cluster in clusters:
            if cluster["spec"].get("suspend"):
                continue
            key = key_of(cluster)

            async def has_children(key: NamespacedName = key) -> bool:
                kinds: list[GVK] = [NETWORK_POLICY, SECRET, ROUTE if openshift else INGRESS]
                if openshift:
                    kinds.append(CLUSTER_ROLE_BINDING)
                found = [await environment.children(key.namespace, openshift=openshift)]
                return all(any(kind == gvk.kind for kind, _ in found[0]) for gvk in kinds)

            await eventually(has_children, f"the children of {key}")
            if openshift:
                await _give_routes_a_host(environment, key.namespace)
            await eventually(
                partial(_has_own_conditions, environment, key), f"the conditions of {key}"
            )
        for stack in samples:
            if stack["kind"] != "InferenceStack" or not openshift:
                continue

            async def is_deployed(stack: Object = stack) -> bool:
                found = await environment.client.get(gvk_of(stack), key_of(stack))
                conditions = ((found or {}).get("status") or {}).get("conditions")
                return (find_condition(conditions, "Deployed") or {}).get("status") == "True"

            await eventually(is_deployed, f"the objects of {key_of(stack)}")
        for obj in samples:
            if gvk_of(obj) == MINICLUSTER:
                await eventually(
                    partial(_has_flux_objects, environment, key_of(obj)),
                    f"the objects of {key_of(obj)}",
                )
        for obj in reversed(samples):
            if obj["kind"] != "Namespace":
                await environment.delete(obj)
        for cluster in clusters:

            async def is_deleted(cluster: Object = cluster) -> bool:
                return await environment.client.get(RAY_CLUSTER, key_of(cluster)) is None

            await eventually(is_deleted, f"the deletion of {key_of(cluster)}")
        operator.process.terminate()
        assert await operator.exit_code() == 0, operator.output
    return operator_audit_events(environment)


async def _give_routes_a_host(environment: Environment, namespace: str) -> None:
    """Set the host of each Route as OpenShift does; without it, conditions are written only after ten seconds."""
    for route in await environment.client.list(ROUTE, namespace=namespace):
        await environment.patch(
            route, {"spec": {"host": f"{name_of(route)}-{namespace}.apps.test"}}
        )


async def _has_own_conditions(environment: Environment, key: NamespacedName) -> bool:
    cluster = await environment.client.get(RAY_CLUSTER, key)
    return (
        find_condition(((cluster or {}).get("status") or {}).get("conditions"), EXPOSED) is not None
    )


async def _has_flux_objects(environment: Environment, key: NamespacedName) -> bool:
    cluster = await environment.client.get(MINICLUSTER, key)
    condition = find_condition(
        ((cluster or {}).get("status") or {}).get("conditions"), OBJECTS_READY
    )
    return condition is not None and condition["status"] == "True"


async def test_rbac_permissions_are_sufficient_and_all_used(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shared = ROOT.parent / "shared"
    used: list[dict[str, Any]] = []
    for openshift in (False, True):
        settings = (INGRESS_CONFIG_CRD, AUTHENTICATION_CONFIG_CRD, DSC_INITIALIZATION_CRD)
        extra = (ROUTE_CRD, *settings) if openshift else ()
        directory = tmp_path / ("openshift" if openshift else "vanilla")
        directory.mkdir()
        async with start_environment(*RAY_CLUSTERS, *extra) as environment:
            events = await _run_lifecycle(environment, directory, shared, openshift=openshift)
            assert events
            assert denied_requests(events) == []
            used += events
    unused = {
        str(permission)
        for permission in operator_permissions()
        if not any(permission.allows(event) for event in used)
    }
    print("unused permissions:", *sorted(unused), sep="\n  ")
    unexplained = {
        permission
        for permission in unused
        if not any(fnmatchcase(permission, pattern) for pattern in EXPECTED_UNUSED)
    }
    assert unexplained == set(), "unused permissions: remove them, or add them to EXPECTED_UNUSED"


async def test_missing_role_of_a_feature_is_reported_and_stops_nothing_else(tmp_path: Path) -> None:
    async with start_installation(
        *RAY_CLUSTERS, ROUTE_CRD, components=["openshift"]
    ) as environment:
        wrappers = {"enabled": True, "kueueIntegration": True}
        kuberay = {
            "ingressDomain": "apps.test",
            "networkPolicy": {"defaultDeny": {"namespaceSelector": "a=b"}},
        }
        await create_config_map(environment, kuberay=kuberay, appwrapper=wrappers)
        async with run_in_cluster(
            environment, tmp_path, "--webhook-url", str(free_url())
        ) as operator:
            await operator.ready()
            await environment.create(ray_cluster(namespace="default"))

            async def has_children() -> bool:
                return bool(await environment.children("default", openshift=True))

            await eventually(has_children, "the children of a RayCluster")
            lines = [json.loads(line) for line in operator.output.splitlines()]
            reported = {
                line["component"]: line["remedy"]
                for line in lines
                if "is not installed" in line["msg"]
            }
            remedy = (
                f"cfo doctor --namespace {DEFAULT_NAMESPACE} prints the command that installs it"
            )
            assert reported == dict.fromkeys(("appwrapper", "namespaces", "kueue"), remedy)


async def test_ray_clusters_are_protected_without_the_role_of_openshift(tmp_path: Path) -> None:
    async with start_installation(*RAY_CLUSTERS, ROUTE_CRD) as environment:
        await create_config_map(environment, kuberay={"ingressDomain": "apps.test"})
        async with run_in_cluster(
            environment, tmp_path, "--webhook-url", str(free_url())
        ) as operator:
            await operator.ready()
            await environment.create(ray_cluster(namespace="default"))

            async def is_protected() -> bool:
                policies = await environment.client.list(NETWORK_POLICY, namespace="default")
                cluster = await environment.client.get(RAY_CLUSTER, NamespacedName("default", "rc"))
                events = await environment.client.list(EVENT, namespace="default")
                reasons = {event["reason"] for event in events}
                has_status = cluster is not None and "conditions" in cluster.get("status", {})
                return len(policies) == 2 and has_status and "MissingRole" in reasons

            await eventually(
                is_protected, "NetworkPolicies, a status and an Event that names the role"
            )


async def assert_accepted(
    environment: Environment, directory: Path, documents: Sequence[Object]
) -> None:
    """Apply documents with kubectl in a dry run; fail if the API server rejects one."""
    arguments = ("--server-side", "--dry-run=server", "--force-conflicts", "-f", "-")
    code, output = await kubectl(
        environment, directory, "apply", *arguments, stdin=dump_all(documents)
    )
    assert code == 0, output
    assert output.count("serverside-applied") == len(documents)


def in_default_namespace(obj: Object) -> Object:
    """Return the object in a namespace that exists, if it is in one; a dry run creates no namespace."""
    if not namespace_of(obj):
        return obj
    return {**obj, "metadata": {**obj["metadata"], "namespace": DEFAULT_NAMESPACE}}


async def test_every_manifest_is_accepted() -> None:
    async with start_installation(*RAY_CLUSTERS) as environment:
        accepted: list[Object] = []
        for overlay in ("default", "e2e", "odh"):
            for obj in map(in_default_namespace, kustomize(ROOT / "config" / overlay)):
                if obj["kind"] == "Namespace" or obj in accepted:
                    continue
                await environment.client.apply(obj, dry_run=True)
                accepted.append(obj)
        assert len(accepted) > 20


async def test_repeated_installation_changes_nothing(tmp_path: Path) -> None:
    async with start_environment(*RAY_CLUSTERS) as environment:
        await install_with_kubectl(environment, tmp_path)
        kinds = {gvk_of(obj) for obj in render()}
        before = {
            (gvk, str(key_of(item))): item
            for gvk in kinds
            for item in await environment.client.list(gvk)
        }
        await install_with_kubectl(environment, tmp_path)
        after = {
            (gvk, str(key_of(item))): item
            for gvk in kinds
            for item in await environment.client.list(gvk)
        }
        # applying a Namespace with only a name adds managedFields on the second apply, so its version changes
        keys = {(gvk_of(obj), str(key_of(obj))) for obj in render() if obj["kind"] != "Namespace"}
        versions = {
            key: (
                before[key]["metadata"]["resourceVersion"],
                after[key]["metadata"]["resourceVersion"],
            )
            for key in keys
        }
        assert {key: pair for key, pair in versions.items() if pair[0] != pair[1]} == {}


APP_WRAPPER = GVK("workload.codeflare.dev", "v1beta2", "AppWrapper")


def app_wrapper(name: str, *, finalizers: list[str]) -> Object:
    """Return an AppWrapper of a ConfigMap as a stopped operator leaves it."""
    template = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"of-{name}"}}
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default", "finalizers": finalizers},
        "spec": {"components": [{"podSets": [], "template": template}]},
    }


def lines_after(prefix: str, output: str) -> set[str]:
    """Return what follows ``prefix`` in the lines of ``output`` that begin with it."""
    return {line.removeprefix(prefix) for line in output.splitlines() if line.startswith(prefix)}


def cluster_with_finalizer() -> Object:
    """Return the RayCluster ns/rc with the finalizer of the Go operator."""
    cluster = ray_cluster()
    cluster["metadata"]["finalizers"] = ["ray.openshift.ai/oauth-finalizer"]
    return cluster


CLUSTER_WITH_FINALIZER = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}},
    cluster_with_finalizer(),
]


def proxy_binding(name: str) -> Object:
    """Return a ClusterRoleBinding as the operator creates it for the proxy of the RayCluster ``rc``."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": {CLUSTER_LABEL: "rc", NAMESPACE_LABEL: "ns"}},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:auth-delegator"},
    }


def held_lease(namespace: str, holder: str) -> Object:
    """Return the Lease of an operator in ``namespace`` that ``holder`` has just renewed for an hour."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": namespace, "name": "codeflare-operator-lock"},
        "spec": {
            "holderIdentity": holder,
            "renewTime": now,
            "leaseDurationSeconds": 3600,
        },
    }


async def apply_cluster_scoped(environment: Environment, namespace: str) -> None:
    """Apply what the manifests for ``namespace`` leave if that namespace is deleted."""
    for obj in render(namespace=namespace):
        if not namespace_of(obj) and obj["kind"] != "Namespace":
            await environment.client.apply(obj)


@pytest.mark.parametrize("everything", [False, True])
async def test_uninstall_removes_finalizers_and_webhooks(tmp_path: Path, everything: bool) -> None:
    async with start_installation(
        *RAY_CLUSTERS, before=CLUSTER_WITH_FINALIZER, components=FEATURE_NAMES
    ) as environment:
        await delete_webhooks(environment)
        await environment.create(
            app_wrapper("wrapped", finalizers=["workload.codeflare.dev/finalizer", "test/other"])
        )
        cluster = await environment.get(RAY_CLUSTER, "rc")
        condition = {
            "type": EXPOSED,
            "status": "False",
            "reason": "NotExposed",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        operator = environment.client.with_field_manager(FIELD_MANAGER)
        await apply_status(operator, cluster, {"conditions": [condition]})
        await environment.create(desired_binding("ns"))
        await install(environment)
        await environment.create(desired_default_deny("ns"))
        foreign = {
            **desired_default_deny("default"),
            "metadata": {"name": DEFAULT_DENY_NAME, "namespace": "default"},
        }
        await environment.create(foreign)
        await environment.create(proxy_binding("rc-ns-auth"))
        for guardrail in [*guardrails.namespaced("ns"), *job_pod_policy.policies()]:
            await environment.create(guardrail)

        options = ["--crds"] if everything else []
        output = await run_uninstall(
            environment, tmp_path, "--timeout", "1", *options, code=int(everything)
        )

        assert ("not deleted: 1 AppWrapper (default/wrapped)" in output) is everything
        why = "is being deleted, waiting for test/other"
        assert (
            f"still not deleted after 1 s: AppWrapper default/wrapped {why}" in output
        ) is everything
        assert f"deleted NetworkPolicy ns/{DEFAULT_DENY_NAME}" in output
        assert await environment.find(NETWORK_POLICY, DEFAULT_DENY_NAME, "default") is not None

        assert "removed finalizer ray.openshift.ai/oauth-finalizer from RayCluster ns/rc" in output
        assert (
            "removed finalizer workload.codeflare.dev/finalizer from AppWrapper default/wrapped"
            in output
        )
        assert "removed the operator's conditions from 1 RayCluster (ns/rc)" in output
        stored = await environment.get(RAY_CLUSTER, "rc")
        assert EXPOSED not in str(stored["status"])
        assert "deleted ClusterRoleBinding codeflare-certificate-requesters-ns" in output
        unguarded = (
            "1 ClusterRoleBinding (rc-ns-auth), which objects of users need and no operator deletes any more; after "
            "these objects, delete them: kubectl delete clusterrolebinding --selector ray.openshift.ai/cluster-name"
        )
        assert f"kept {unguarded}\n" in output
        assert "kept 1 ResourceQuota (ns/codeflare-operator-tenant-quota), 1 LimitRange (" in output
        assert f"2 ValidatingAdmissionPolicies ({job_pod_policy.NAME}, " in output
        assert ("--namespace openshift-operators --crds --leftovers\n" in output) is not everything
        remaining = [
            obj
            for obj in render(components=FEATURE_NAMES)
            if await environment.client.get(gvk_of(obj), key_of(obj)) is not None
        ]
        kept = {"Namespace", *([] if everything else ["CustomResourceDefinition"])}
        assert {obj["kind"] for obj in remaining} - {"CustomResourceDefinition"} == kept - {
            "CustomResourceDefinition"
        }
        assert {name_of(obj) for obj in remaining} >= SHARED_CRDS
        await environment.delete(cluster)  # neither a webhook nor a finalizer blocks it
        assert await environment.find(RAY_CLUSTER, "rc") is None
        wrapper = await environment.find(APP_WRAPPER, "wrapped", "default")
        assert wrapper is not None
        assert wrapper["metadata"]["finalizers"] == ["test/other"]
        assert bool(wrapper["metadata"].get("deletionTimestamp")) is everything
        again = await run_uninstall(environment, tmp_path, "--timeout", "1")
        nothing = "nothing to remove: the cluster has no operator and none of its finalizers"
        assert again == f"{nothing}; it has {unguarded}\n"
        repeated = await run_uninstall(environment, tmp_path, "--timeout", "1", "--leftovers")
        assert repeated.startswith(f"{nothing}\nkept ")
        assert f"\nkept {unguarded}\n" in repeated
        for command in re.findall("kubectl (delete .+)", repeated):
            code, output = await kubectl(environment, tmp_path, *command.split())
            assert code == 0, output
        left = await run_uninstall(environment, tmp_path, "--timeout", "1", "--leftovers")
        assert re.findall("ClusterRoleBinding|ResourceQuota", left) == []
        refusal = await run_uninstall(environment, tmp_path, "--timeout", "1", "--crds", code=1)
        assert "namespace openshift-operators has no operator, but CustomResource" in refusal
        assert "--leftovers removes" in refusal


async def test_uninstall_changes_nothing_if_the_namespace_has_no_operator(tmp_path: Path) -> None:
    async with start_environment(*RAY_CLUSTERS) as environment:
        await environment.create_namespace()
        await environment.create(cluster_with_finalizer())
        assert (
            "namespace openshift-operators has no operator, but 1 RayCluster (ns/rc) with the finalizer "
            "ray.openshift.ai/oauth-finalizer exist;"
        ) in await run_uninstall(environment, tmp_path, code=1)
        await install(environment)
        output = await run_uninstall(
            environment, tmp_path, "--namespace", "ns", "--leftovers", code=1
        )
        assert "belongs to an operator in namespace openshift-operators, not ns" in output
        assert len(output.splitlines()) == 1
        objects = [obj for obj in render() if obj["kind"] != "CustomResourceDefinition"]
        assert None not in [
            await environment.client.get(gvk_of(obj), key_of(obj)) for obj in objects
        ]
        assert (await environment.get(RAY_CLUSTER, "rc"))["metadata"]["finalizers"]


async def test_uninstall_names_what_an_operator_outside_the_cluster_left(tmp_path: Path) -> None:
    async with start_environment(*RAY_CLUSTERS) as environment:
        metadata = {"name": CONFIG_MAP_NAME, "namespace": "default"}
        await environment.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        arguments = ("--namespace", "default", "--timeout", "1")
        unnamed = await run_uninstall(environment, tmp_path)
        found = f"other namespaces contain ConfigMap default/{CONFIG_MAP_NAME}"
        remedy = "if cfo run left them there, --namespace and --leftovers remove them"
        assert unnamed.startswith("nothing to remove: the cluster has no operator")
        assert unnamed.endswith(f"; {found}: {remedy}\n")
        refusal = await run_uninstall(environment, tmp_path, *arguments, code=1)
        assert f"but it contains ConfigMap {CONFIG_MAP_NAME}; " in refusal
        assert "--leftovers removes" in refusal
        await run_uninstall(environment, tmp_path, *arguments, "--leftovers")
        assert "nothing to remove" in await run_uninstall(environment, tmp_path, *arguments)


async def test_uninstall_is_refused_only_for_leases_that_no_tenant_can_create(
    tmp_path: Path,
) -> None:
    """An operator of OLM is living elsewhere: its objects have generated names, and it still needs the finalizers."""
    async with start_environment(*RAY_CLUSTERS) as environment:
        await environment.create(held_lease("default", "laptop_0"))
        output = await run_uninstall(environment, tmp_path)
        assert output.startswith("nothing to remove: the cluster has no operator")
        assert "other namespaces contain Lease default/codeflare-operator-lock" in output
        await environment.create_namespace()
        await environment.create(cluster_with_finalizer())
        note = "Note: Lease default/codeflare-operator-lock is held by laptop_0: users can create"
        assert note in await run_uninstall(environment, tmp_path, "--leftovers", "--dry-run")
        (binding,) = [obj for obj in render(namespace="default") if key_of(obj) == MANAGER_BINDING]
        binding["metadata"] = {"name": "olm-generated"}
        await environment.create(binding)
        for options in ([], ["--leftovers"]):
            refusal = await run_uninstall(environment, tmp_path, *options, code=1)
            assert "an administrator has installed an operator in namespace default, not" in refusal
        await install(environment)
        output = await run_uninstall(environment, tmp_path, "--timeout", "1")
        assert "deleted Deployment openshift-operators/codeflare-operator-manager" in output
        assert "kept what the operator in namespace default needs" in output
        assert (await environment.get(RAY_CLUSTER, "rc"))["metadata"]["finalizers"]


async def test_uninstall_names_webhooks_of_an_ended_operator_outside_the_cluster(
    tmp_path: Path,
) -> None:
    async with start_environment(*RAY_CLUSTERS) as environment:
        for obj in render():
            if obj["kind"].endswith("WebhookConfiguration"):
                for webhook in obj["webhooks"]:
                    webhook["clientConfig"] = {"url": "https://[::1]:9443/path"}
                await environment.create(obj)
        refusal = await run_uninstall(environment, tmp_path, code=1)
        assert re.search("but MutatingWebhookConfiguration [a-z-]+ exists; ", refusal)
        assert "--leftovers removes" in refusal
        await run_uninstall(environment, tmp_path, "--leftovers", "--timeout", "1")
        assert await webhook_configurations(environment) == []


async def test_uninstall_of_one_of_two_installations_keeps_the_other(tmp_path: Path) -> None:
    """The manifests of a second namespace took permissions and webhooks from the first operator."""
    async with start_installation(*RAY_CLUSTERS, before=CLUSTER_WITH_FINALIZER) as environment:
        second = render(namespace="codeflare")
        for obj in second:
            await environment.client.apply(obj)
        refusal = await run_uninstall(environment, tmp_path, "--crds", code=1)
        assert "belongs to an operator in namespace codeflare, which needs the CRDs" in refusal

        planned = await run_uninstall(environment, tmp_path, "--dry-run")
        output = await run_uninstall(environment, tmp_path, "--timeout", "1")

        removed = lines_after("deleted ", output)
        assert removed == lines_after("would delete ", planned)
        assert "Deployment openshift-operators/codeflare-operator-manager" in removed
        assert all(" openshift-operators/" in line for line in removed)
        assert "kept what the operator in namespace codeflare needs" in output.splitlines()[-1]
        assert (await environment.get(RAY_CLUSTER, "rc"))["metadata"]["finalizers"]
        for obj in second:
            assert await environment.client.get(gvk_of(obj), key_of(obj)) is not None
        await environment.client.apply(next(obj for obj in render() if obj["kind"] == "Deployment"))
        planned = await run_uninstall(environment, tmp_path, "-n", "codeflare", "--dry-run")
        sign = "Deployment openshift-operators/codeflare-operator-manager exists"
        assert f"Note: {sign}: users can create these; if it is an operator of yours," in planned
        output = await run_uninstall(
            environment, tmp_path, "--namespace", "codeflare", "--timeout", "1"
        )
        assert "deleted ClusterRole codeflare-operator-manager-role" in output
        assert "removed finalizer" in output


async def test_uninstall_removes_what_refers_to_a_deleted_namespace(tmp_path: Path) -> None:
    """No operator is in a namespace that does not exist, but its webhooks would block all writes."""
    async with start_installation(*RAY_CLUSTERS, before=CLUSTER_WITH_FINALIZER) as environment:
        await apply_cluster_scoped(environment, "codeflare")

        output = await run_uninstall(environment, tmp_path, "--timeout", "1")

        assert "removed finalizer ray.openshift.ai/oauth-finalizer from RayCluster ns/rc" in output
        assert await webhook_configurations(environment) == []
        again = await run_uninstall(environment, tmp_path, "--timeout", "1")
        assert again.startswith("nothing to remove")


async def test_uninstall_names_the_deleted_namespace_of_an_operator(tmp_path: Path) -> None:
    async with start_environment() as environment:
        await environment.create_namespace("openshift-operators")
        await apply_cluster_scoped(environment, "codeflare")
        for options in ([], ["--namespace", "openshift-operators"]):
            refusal = await run_uninstall(environment, tmp_path, *options, code=1)
            (command,) = re.findall("remove what it left with: cfo uninstall (.+)", refusal)
            assert command == "--namespace codeflare"
        output = await run_uninstall(environment, tmp_path, *command.split(), "--timeout", "1")
        assert "deleted ClusterRole codeflare-operator-manager-role" in output
        assert await webhook_configurations(environment) == []


async def test_uninstall_changes_nothing_while_an_operator_runs_that_it_does_not_remove(
    tmp_path: Path,
) -> None:
    async with start_installation(*RAY_CLUSTERS) as environment:
        holder = "codeflare-operator-manager-1_0"
        for key, identity in (
            (NamespacedName("openshift-operators", "codeflare-operator-lock"), holder),
            (NamespacedName("default", "codeflare-operator-lock"), "laptop_0_https://[::1]:9443"),
        ):
            await environment.create(held_lease(key.namespace, identity))
        refusal = await run_uninstall(environment, tmp_path, code=1)
        assert refusal.strip().endswith(
            f"Lease openshift-operators/codeflare-operator-lock is held by {holder}; "
            "stop that operator, which would create its objects again"
        )
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": "openshift-operators",
                "name": "codeflare-operator-manager-1",
                "labels": dict(LABELS),
            },
            "spec": {"containers": [{"name": "manager", "image": "i"}]},
        }
        await environment.create(pod)
        assert "would delete" in await run_uninstall(environment, tmp_path, "--dry-run")
        for configuration in await webhook_configurations(environment):
            mark = OperatorMark("https://[::1]:9443", "default", "codeflare-operator-lock")
            annotations = configuration["metadata"].setdefault("annotations", {})
            annotations[OPERATOR_ANNOTATION] = mark.encode()
            for webhook in configuration["webhooks"]:
                webhook["clientConfig"] = {"url": "https://[::1]:9443/path"}
            await environment.client.update(configuration)
        refusal = await run_uninstall(environment, tmp_path, code=1)
        assert "Lease default/codeflare-operator-lock is held by laptop_0_https" in refusal
        objects = [obj for obj in render() if obj["kind"] != "CustomResourceDefinition"]
        for obj in objects:
            assert await environment.client.get(gvk_of(obj), key_of(obj)) is not None


async def test_dry_run_of_uninstall_lists_all_objects_and_changes_nothing(tmp_path: Path) -> None:
    foreign = "appwrappers.workload.codeflare.dev"
    (crd_of_others,) = [crd for crd in bundled_crds() if name_of(crd) == foreign]
    finalizer = "workload.codeflare.dev/finalizer"
    wrapped = app_wrapper("wrapped", finalizers=[finalizer])
    async with start_installation(
        *RAY_CLUSTERS, crd_of_others, before=[*CLUSTER_WITH_FINALIZER, wrapped]
    ) as environment:
        await environment.create(proxy_binding("rc-ns-auth"))
        unlabelled = {"metadata": {"labels": dict.fromkeys(LABELS)}}
        await environment.client.patch(
            CUSTOM_RESOURCE_DEFINITION, NamespacedName("", foreign), unlabelled
        )
        output = await run_uninstall(environment, tmp_path, "--crds", "--dry-run")
        lines = output.splitlines()
        assert f"would keep CustomResourceDefinition {foreign} with its objects, because" in output
        assert (
            f"would keep the finalizer {finalizer} of 1 AppWrapper (default/wrapped), because"
            in output
        )
        assert f"would remove finalizer {finalizer}" not in output
        assert (
            "would remove finalizer ray.openshift.ai/oauth-finalizer from RayCluster ns/rc" in lines
        )
        for obj in render():
            line = f"would delete {obj['kind']} {key_of(obj)}"
            is_kept = obj["kind"] == "Namespace" or name_of(obj) in {foreign, *SHARED_CRDS}
            assert lines.count(line) == (0 if is_kept else 1), line
            assert await environment.client.get(gvk_of(obj), key_of(obj)) is not None
        assert (await environment.get(RAY_CLUSTER, "rc"))["metadata"]["finalizers"]
        assert "would keep 1 ClusterRoleBinding (rc-ns-auth), which" in output


async def test_uninstall_requires_confirmation(tmp_path: Path) -> None:
    async with start_installation(*RAY_CLUSTERS) as environment:
        terminal, stdin = os.openpty()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            os.write(terminal, b"n\n")
            output = await run_uninstall(
                environment, tmp_path, "--timeout", "1", code=1, stdin=stdin
            )
            assert (
                f"Remove the operator in namespace openshift-operators from {environment.plane.url}?"
                in output
            )
            assert "deleted" not in output
            os.write(terminal, b"n\n")
            output = await run_uninstall(environment, tmp_path, "--crds", code=1, stdin=stdin)
            kinds = "AppWrappers, FluxJobs, MiniClusters, FluxSetups"
            assert f", its CRDs and all {kinds} of all namespaces, from" in output
            output = await run_uninstall(environment, tmp_path, code=2, stdin=nothing)
            assert (
                len(output.splitlines()),
                "Without a terminal, --yes is required" in output,
            ) == (1, True), output
            output = await run_uninstall(environment, tmp_path, "--dry-run", stdin=nothing)
            assert (
                "would delete Deployment openshift-operators/codeflare-operator-manager" in output
            )
            output = await run_uninstall(
                environment, tmp_path, "--timeout", "1", "--yes", stdin=nothing
            )
            assert "deleted Deployment openshift-operators/codeflare-operator-manager" in output
        finally:
            for descriptor in (stdin, terminal, nothing):
                os.close(descriptor)


async def start_additional(environment: Environment) -> None:
    """Install the additional operator of docs/operations.md; create its ConfigMap as it does when it starts."""
    namespace = "codeflare-b"
    await apply_additional(environment)
    deployment = await environment.get(DEPLOYMENT, DEPLOYMENT_NAME, namespace)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (argument,) = container["args"]
    metadata = {"name": CONFIG_MAP_NAME, "namespace": namespace}
    data = {"config.yaml": argument.removeprefix("--default-config=")}
    await environment.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    )


def additional_manifests() -> tuple[str, list[str]]:
    """Return what the command of docs/operations.md prints for the namespace ``team-b``, and how it applies that."""
    text = (ROOT / "docs" / "operations.md").read_text()
    section = text.split("### Several operators\n")[1].split("\n### ")[0]
    command = section.split("```sh\n")[1].split("```")[0]
    printing, applying = command.strip().split(" | ")
    assert printing.startswith("cfo ")
    result = CliRunner().invoke(cli, printing.split()[1:], prog_name="cfo")
    assert result.exit_code == 0, result.output
    return result.stdout, applying.split()


async def apply_additional(environment: Environment) -> None:
    """Apply the manifests of docs/operations.md for the namespace ``team-b``, which is created."""
    if await environment.client.get(NAMESPACE, NamespacedName("", "team-b")) is None:
        await environment.create_namespace("team-b")
    manifests, _ = additional_manifests()
    await apply_all(environment.plane, load_all(manifests))


async def can_list_clusters(
    environment: Environment, directory: Path, namespace: str, *, watched: str = ""
) -> bool:
    """Return whether the operator in ``namespace`` is allowed to list RayClusters: everywhere, or in ``watched``."""
    account = f"--as=system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}"
    where = f"--namespace={watched}" if watched else "--all-namespaces"
    rule = ("auth", "can-i", "list", "rayclusters.ray.io", where, account)
    _, output = await kubectl(environment, directory, *rule)
    return output == "yes\n"


async def test_documented_additional_operator_takes_nothing_from_the_first(tmp_path: Path) -> None:
    second = "codeflare-b"
    async with start_installation(*RAY_CLUSTERS) as environment:
        first = [obj for obj in render() if not namespace_of(obj) or obj["kind"] == "Service"]
        before = [await environment.client.get(gvk_of(obj), key_of(obj)) for obj in first]
        assert None not in before

        await environment.create_namespace("team-b")
        manifests, (program, *arguments) = additional_manifests()
        assert program == "kubectl"
        code, applied = await kubectl(environment, tmp_path, *arguments, stdin=manifests)
        assert code == 0, applied

        after = [await environment.client.get(gvk_of(obj), key_of(obj)) for obj in first]
        assert after == before
        assert await can_list_clusters(environment, tmp_path, DEFAULT_NAMESPACE)
        assert await can_list_clusters(environment, tmp_path, second, watched="team-b")
        assert not await can_list_clusters(environment, tmp_path, second)

        options = ("--namespace", second, "--timeout", "1")
        planned = await run_uninstall(environment, tmp_path, *options, "--dry-run")
        output = await run_uninstall(environment, tmp_path, *options)

        removed = lines_after("deleted ", output)
        assert removed == lines_after("would delete ", planned)
        assert "ClusterRole codeflare-operator-manager-role-codeflare-b" in removed
        assert all(second in line for line in removed)
        await environment.create(held_lease(second, "laptop_0"))
        again = await run_uninstall(environment, tmp_path, *options)
        assert again.startswith(f"nothing to remove: namespace {second} has no operator; ")
        assert f"kubectl --namespace {second} delete lease/codeflare-operator-lock\n" in again
        missing = await run_uninstall(environment, tmp_path, "--namespace", "nope", code=2)
        assert (
            missing
            == "Error: --namespace: namespace nope does not exist; kubectl get namespaces lists all\n"
        )
        kinds = "clusterroles,clusterrolebindings,rolebindings"
        code, left = await kubectl(
            environment, tmp_path, "get", kinds, "--all-namespaces", "-o", "name"
        )
        assert code == 0, left
        assert second not in left
        after = [await environment.client.get(gvk_of(obj), key_of(obj)) for obj in first]
        assert after == before
        assert await can_list_clusters(environment, tmp_path, DEFAULT_NAMESPACE)


async def test_manifests_of_an_additional_operator_applied_again_keep_its_configuration(
    tmp_path: Path,
) -> None:
    async with start_installation(*RAY_CLUSTERS) as environment:
        await start_additional(environment)
        config_map = await environment.get(CONFIG_MAP, CONFIG_MAP_NAME, "codeflare-b")
        assert yaml.safe_load(config_map["data"]["config.yaml"]) == {
            "webhook": {"enabled": False},
            "watchNamespaces": ["team-b"],
        }
        changed = {"data": {"config.yaml": "watchNamespaces: [team-b, team-c]"}}
        patch = ("patch", "configmap", CONFIG_MAP_NAME, "--patch", json.dumps(changed))
        code, output = await kubectl(environment, tmp_path, "--namespace", "codeflare-b", *patch)
        assert code == 0, output

        await apply_additional(environment)

        config_map = await environment.get(CONFIG_MAP, CONFIG_MAP_NAME, "codeflare-b")
        assert config_map["data"] == changed["data"]


async def test_additional_operator_reconciles_its_part_next_to_the_first(tmp_path: Path) -> None:
    second = "codeflare-b"
    async with start_installation(*RAY_CLUSTERS) as environment:
        for namespace in ("team-a", "team-b", "team-c"):
            await environment.create_namespace(namespace)
        await create_config_map(environment, watchNamespaces=["team-a"])
        await start_additional(environment)
        key = NamespacedName(second, CONFIG_MAP_NAME)
        config_map = await environment.client.get(CONFIG_MAP, key)
        assert config_map is not None
        loopback = {"bindAddress": "127.0.0.1:0"}
        document = yaml.safe_load(config_map["data"]["config.yaml"])
        document |= {"metrics": loopback, "health": loopback}
        data = {"config.yaml": yaml.safe_dump(document)}
        await environment.client.patch(CONFIG_MAP, key, {"data": data})
        url = str(free_url())
        async with run_in_cluster(environment, tmp_path, "--webhook-url", url) as first:
            await first.ready()
            async with run_in_cluster(environment, tmp_path, namespace=second) as additional:
                await additional.ready()
                for namespace in ("team-c", "team-a", "team-b"):
                    await environment.create(ray_cluster(namespace=namespace))
                await wait_for_policies(environment, "rc", "team-a", "team-b")
                refusal = await run_uninstall(environment, tmp_path, "--namespace", second, code=1)
                assert "stop that operator" in refusal
                additional.process.terminate()
                assert await additional.exit_code() == 0
            await run_uninstall(environment, tmp_path, "--namespace", second, "--timeout", "1")
            for namespace in ("team-b", "team-a"):
                await environment.create(ray_cluster("later", namespace))
            await wait_for_policies(environment, "later", "team-a")


async def wait_for_policies(environment: Environment, cluster: str, *namespaces: str) -> None:
    """Wait until ``cluster`` is protected in these namespaces; fail if it is in any other one."""

    async def are_protected() -> bool:
        found = await environment.client.list(NETWORK_POLICY)
        protected = {
            namespace_of(policy)
            for policy in found
            if policy["metadata"]["ownerReferences"][0]["name"] == cluster
        }
        assert protected <= set(namespaces)
        return protected == set(namespaces)

    await eventually(are_protected, f"NetworkPolicies of {cluster} in {namespaces}")


async def test_uninstall_of_the_first_operator_keeps_what_an_additional_one_needs(
    tmp_path: Path,
) -> None:
    async with start_installation(*RAY_CLUSTERS) as environment:
        await start_additional(environment)

        output = await run_uninstall(environment, tmp_path, "--timeout", "1")

        assert (
            "kept what the operator in namespace codeflare-b needs; it serves no webhooks: first"
            in output
        )
        assert (
            "kept the CRDs, the ClusterRoles for users and the policy of reserved-hosts" in output
        )
        assert not await can_list_clusters(environment, tmp_path, DEFAULT_NAMESPACE)
        assert await can_list_clusters(environment, tmp_path, "codeflare-b", watched="team-b")
        roles = await cluster_role_names(environment, tmp_path)
        assert "codeflare-operator-manager-role" not in roles
        assert "codeflare-operator-appwrapper-editor-role" in roles

        options = ("--namespace", "codeflare-b", "--timeout", "1")
        await run_uninstall(environment, tmp_path, *options)

        roles = await cluster_role_names(environment, tmp_path)
        assert [name for name in roles if "codeflare" in name] == []


async def cluster_role_names(environment: Environment, directory: Path) -> list[str]:
    """Return the names of all ClusterRoles."""
    jsonpath = "jsonpath={.items[*].metadata.name}"
    code, output = await kubectl(environment, directory, "get", "clusterroles", "-o", jsonpath)
    assert code == 0, output
    return output.split()


async def test_uninstall_reports_finalizers_that_no_other_operator_removes(tmp_path: Path) -> None:
    async with start_environment(*RAY_CLUSTERS) as environment:
        for namespace in ("team-a", "team-b"):
            await environment.create_namespace(namespace)
            for number in range(7):
                cluster = ray_cluster(f"rc-{number}", namespace)
                finalizers = ["test/other", "ray.openshift.ai/oauth-finalizer"]
                cluster["metadata"]["finalizers"] = finalizers
                await environment.create(cluster)
        await install(environment)
        await create_config_map(environment, watchNamespaces=["team-a"])
        await apply_additional(environment)
        options = ("--namespace", "codeflare-b", "--timeout", "1")
        planned = await run_uninstall(environment, tmp_path, *options, "--dry-run")

        output = await run_uninstall(environment, tmp_path, *options, code=1)

        clusters = "team-b/rc-0, team-b/rc-1, team-b/rc-2, team-b/rc-3, team-b/rc-4, ..."
        report = (
            f"no operator removes the finalizer ray.openshift.ai/oauth-finalizer of 7 RayClusters ({clusters}) any "
            "more: let another operator reconcile them"
        )
        assert report in output
        assert report in planned
        assert "team-a" not in output
        assert output.splitlines()[-1].startswith(
            "Error: the operator was removed, but not everything"
        )
        await delete_webhooks(environment)
        command = output.split("of the object: kubectl ")[1].splitlines()[0]
        patched = await kubectl(environment, tmp_path, *shlex.split(command))
        assert patched[0] == 0, patched
        cluster = await environment.get(RAY_CLUSTER, "rc-0", "team-b")
        assert cluster["metadata"]["finalizers"] == ["test/other"]
        again = await kubectl(environment, tmp_path, *shlex.split(command))
        assert again[0] != 0, "the finalizer of another controller stays"


async def test_server_side_apply_has_no_conflict_after_a_client_side_apply() -> None:
    """What the API server defaults in a list or map that has one owner is in the manifests."""
    external = EXTERNAL_GROUPS  # whose CRDs do not exist here
    objects = [
        *render(components=COMPONENTS, api_servers=["192.0.2.0/28"]),
        *render("codeflare-b", part={"watchNamespaces": ["team"]}),
        *guardrails.render(["team"]),
    ]
    async with start_environment() as environment:
        first = environment.client.with_field_manager("kubectl-client-side-apply")
        second = environment.client.with_field_manager("kubectl")
        await environment.create_namespace("team")
        for obj in objects:
            if gvk_of(obj).group in external:
                continue
            if await environment.client.get(gvk_of(obj), key_of(obj)) is None:
                await first.create(obj)
            await second.apply(obj, force=False)


KINDS_OF_COMPONENTS = (
    crd("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    crd("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    crd("cert-manager.io", "v1", "Certificate", "certificates"),
    crd("cert-manager.io", "v1", "Issuer", "issuers"),
)


async def test_documented_manual_removal_is_complete(tmp_path: Path) -> None:
    """Runs the commands of docs/install.md, with all components."""
    text = (ROOT / "docs" / "install.md").read_text()
    block = text.split("<!-- manual removal -->")[1].split("```sh\n")[1].split("```")[0]
    commands = [shlex.split(line, comments=True) for line in block.splitlines() if line.strip()]
    async with start_environment(*RAY_CLUSTERS, *KINDS_OF_COMPONENTS) as environment:
        await environment.create_namespace()
        cluster = await environment.create(cluster_with_finalizer())
        await install_with_kubectl(environment, tmp_path, components=sorted(COMPONENTS))
        for command in commands:
            assert command[0] == "kubectl"
            arguments = [word.replace("NAME", "rc").replace("THEIRS", "ns") for word in command[1:]]
            code, output = await kubectl(environment, tmp_path, *arguments)
            assert code == 0, (command, output)
        await environment.delete(cluster)
        assert await environment.find(RAY_CLUSTER, "rc") is None
        remaining = [
            obj["kind"]
            for obj in render(components=COMPONENTS)
            if await environment.client.get(gvk_of(obj), key_of(obj)) is not None
        ]
        assert set(remaining) <= {"Namespace", "CustomResourceDefinition"}


EXTERNAL_GROUPS = {
    *(
        "cert-manager.io",
        "monitoring.coreos.com",
        "olm.operatorframework.io",
        "operators.coreos.com",
    ),
    *("kustomize.config.k8s.io", "kind.x-k8s.io", "scorecard.operatorframework.io"),
}
"""API groups of other operators, or of client-side files that no API server serves."""


async def test_every_file_of_a_served_api_is_valid(tmp_path: Path) -> None:
    files = [
        path
        for folder in ("config", "deploy/bundle")
        for path in sorted((ROOT / folder).rglob("*.yaml"))
    ]
    documents = [obj for path in files for obj in load_all(path.read_text())]
    objects = [
        obj for obj in documents if isinstance(obj, dict) and "kind" in obj and "apiVersion" in obj
    ]
    documents_to_apply = [obj for obj in objects if gvk_of(obj).group not in EXTERNAL_GROUPS]
    crds_by_name = {
        name_of(obj): obj for obj in documents_to_apply if obj["kind"] == "CustomResourceDefinition"
    }
    assert len(documents_to_apply) > 20
    async with start_environment(*RAY_CLUSTERS, *crds_by_name.values()) as environment:
        for name in ("system", DEFAULT_NAMESPACE, "data-science"):
            await environment.create_namespace(name)
        await assert_accepted(environment, tmp_path, documents_to_apply)


async def test_make_install_creates_our_crds_and_make_uninstall_deletes_them(
    tmp_path: Path,
) -> None:
    async with start_environment(*RAY_CLUSTERS) as environment:
        before = await crd_names(environment)
        await make(environment, tmp_path, "install")
        assert await crd_names(environment) - before == {
            name_of(crd) for crd in render() if crd["kind"] == "CustomResourceDefinition"
        }
        await make(environment, tmp_path, "install")
        await make(environment, tmp_path, "uninstall")
        assert await crd_names(environment) == before
        await make(environment, tmp_path, "uninstall")


@pytest.mark.parametrize("target", ["install", "uninstall"])
def test_make_target_without_a_cluster_ends_with_one_line(tmp_path: Path, target: str) -> None:
    variables = {
        "PATH": os.environ["PATH"],
        "KUBECONFIG": str(tmp_path / "none"),
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        ["make", "-s", target], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    error, of_make = done.stderr.splitlines()
    assert done.returncode == 2
    assert error.startswith("Error: no cluster responds (")
    assert error.endswith("; select one with kubectl config use-context, or set KUBECONFIG")
    assert of_make.startswith("make: ***")


async def make(environment: Environment, directory: Path, target: str) -> None:
    """Run a make target that calls kubectl as an administrator; it must succeed."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    environment.plane.kubeconfig(directory / "admin.kubeconfig")
    done = await anyio.run_process(
        ["make", "-s", target],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(directory / "admin.kubeconfig"),
            "HOME": str(directory),  # of the cache of kubectl
        },
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()


async def crd_names(environment: Environment) -> set[str]:
    return {name_of(crd) for crd in await environment.client.list(CUSTOM_RESOURCE_DEFINITION)}


async def test_external_certificates_are_served_and_nothing_is_written(tmp_path: Path) -> None:
    """As with cert-manager and OLM: ``--webhook-cert-dir``, and webhook configurations of unknown names."""
    folder = tmp_path / "certs"
    folder.mkdir()
    host = f"codeflare-operator-webhook-service.{DEFAULT_NAMESPACE}.svc"
    pair = CertificateAuthority(name="olm").server([host])
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    async with start_installation(*RAY_CLUSTERS) as environment:
        await delete_webhooks(environment)
        await create_config_map(
            environment,
            webhook={"bindAddress": "127.0.0.1:0"},
            kuberay={"rayDashboardOAuthEnabled": False},
        )
        async with run_in_cluster(
            environment, tmp_path, "--webhook-cert-dir", str(folder)
        ) as operator:
            await operator.ready()
            operator.process.terminate()
            assert await operator.exit_code() == 0, operator.output
        assert await environment.find(SECRET, WEBHOOK_SECRET_NAME, DEFAULT_NAMESPACE) is None
        requested_resources = {
            (event.get("objectRef") or {}).get("resource")
            for event in operator_audit_events(environment)
        }
        assert not requested_resources & {
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
        }
        assert denied_requests(operator_audit_events(environment)) == []
