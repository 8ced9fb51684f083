"""Tests of the operator with the Go operator's ClusterRole, as after a change of only the image.

A permission that this role lacks is reported once in the log. The operator works without it as far as possible, and
uses it as soon as it is granted.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.raycluster.names import FINALIZER, RAY_CLUSTER, names_of
from cfo.console.demo import crds
from cfo.manifests.names import DEFAULT_NAMESPACE
from cfo.runtime.client.errors import Forbidden
from cfo.runtime.objects.kinds import CONFIG_MAP, POD
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from cfo.version import CONFIG_MAP_NAME
from test.support.appwrapper_environment import pod, state, wrapper
from test.support.clocks import next_second
from test.support.config_map_webhooks import free_url
from test.support.installation import (
    create_config_map,
    kubectl,
    operator_audit_events,
    run_in_cluster,
    start_installation,
)
from test.support.network_policies import kuberay_role, kuberay_role_binding, wait_until_allowed
from test.support.operator_process import OperatorProcess
from test.support.raycluster_environment import (
    DSC_INITIALIZATION_CRD,
    INGRESS_CONFIG_CRD,
    ROUTE_CRD,
    Environment,
    eventually,
    ray_cluster,
)

_READ = ("get", "list", "watch")
_ALL = ("create", "delete", "get", "list", "patch", "update", "watch")
_STATUS = ("get", "patch", "update")
GRANTED: dict[str, dict[str, tuple[str, ...]]] = {
    "": {
        "events": ("create", "patch", "update", "watch"),
        "nodes": _READ,
        "pods": _ALL,
        "secrets": _ALL,
        "serviceaccounts": _ALL,
        "services": _ALL,
    },
    "admissionregistration.k8s.io": {
        "mutatingwebhookconfigurations": (*_READ, "update"),
        "validatingwebhookconfigurations": (*_READ, "update"),
    },
    "apiextensions.k8s.io": {"customresourcedefinitions": _READ},
    "apps": {"deployments": _ALL, "statefulsets": _ALL},
    "authentication.k8s.io": {"tokenreviews": ("create",)},
    "authorization.k8s.io": {"subjectaccessreviews": ("create",)},
    "batch": {"jobs": _ALL},
    "config.openshift.io": {"ingresses": ("get",)},
    "dscinitialization.opendatahub.io": {"dscinitializations": _READ},
    "jobset.x-k8s.io": {"jobsets": _ALL},
    "kubeflow.org": {"pytorchjobs": _ALL},
    "networking.k8s.io": {"ingresses": _ALL, "networkpolicies": _ALL},
    "ray.io": {
        "rayclusters": _ALL,
        "rayclusters/finalizers": ("update",),
        "rayclusters/status": _STATUS,
        "rayjobs": _ALL,
    },
    "rbac.authorization.k8s.io": {"clusterrolebindings": _ALL},
    "route.openshift.io": {"routes": _ALL, "routes/custom-host": _ALL},
    "scheduling.sigs.k8s.io": {"podgroups": _ALL},
    "scheduling.x-k8s.io": {"podgroups": _ALL},
    "workload.codeflare.dev": {
        "appwrappers": _ALL,
        "appwrappers/finalizers": ("update",),
        "appwrappers/status": _STATUS,
    },
}
"""Verbs by API group and resource that the Go operator's ClusterRole grants (release 1.14)."""

GRANTED_IN_OWN_NAMESPACE: dict[str, dict[str, tuple[str, ...]]] = {
    "": {"configmaps": _ALL, "events": ("create", "patch")},
    "coordination.k8s.io": {"leases": _ALL},
}
"""Verbs by API group and resource that its Role grants in its own namespace."""

DENIED = {
    "create events.k8s.io/events": "once per namespace; then Events are written to the core API",
    "patch admissionregistration.k8s.io/mutatingwebhookconfigurations": "replaced by an update",
    "patch admissionregistration.k8s.io/validatingwebhookconfigurations": "replaced by an update",
    "list rbac.authorization.k8s.io/clusterroles": "then KubeRay's bindings are recognized by the name of their role",
    "list config.openshift.io/ingresses": "read with a get when the domain is needed",
    "list networking.k8s.io/ingressclasses": "then the controller of Ingresses is assumed to be ingress-nginx",
}
"""Requests that are sent and denied, with the consequences; docs/migration.md lists them."""

RETRIED = {request for request in DENIED if request.startswith("list")} | {
    "create events.k8s.io/events"
}
"""Denied requests that are sent again, with a back-off; Events are tried once in each namespace."""


def _rules(granted: dict[str, dict[str, tuple[str, ...]]]) -> list[dict[str, Any]]:
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
        for group, resources in granted.items()
        for resource, verbs in resources.items()
    ]


async def use_go_roles(env: Environment, directory: Path) -> None:
    """Replace the operator's roles with the Go operator's roles."""
    api = "rbac.authorization.k8s.io/v1"
    leader = {"name": "codeflare-operator-leader-election-role", "namespace": DEFAULT_NAMESPACE}
    cluster_wide = {"name": "codeflare-operator-manager-role"}
    for obj in (
        {
            "apiVersion": api,
            "kind": "ClusterRole",
            "metadata": cluster_wide,
            "rules": _rules(GRANTED),
        },
        {
            "apiVersion": api,
            "kind": "Role",
            "metadata": leader,
            "rules": _rules(GRANTED_IN_OWN_NAMESPACE),
        },
    ):
        code, output = await kubectl(
            env, directory, "replace", "-f", "-", stdin=yaml.safe_dump(obj)
        )
        assert code == 0, output
    own_role = ("-n", DEFAULT_NAMESPACE, "role/codeflare-operator-manager-role")
    code, output = await kubectl(env, directory, "delete", *own_role)
    assert code == 0, output


def count_denied(events: Iterable[dict[str, Any]]) -> Counter[str]:
    """Count the denied requests in the audit log."""
    return Counter(
        f"{event['verb']} {'/'.join(filter(None, (_field(event, 'apiGroup'), _field(event, 'resource'))))}"
        for event in events
        if event["responseStatus"]["code"] in (401, 403)
    )


def _field(event: dict[str, Any], name: str) -> str:
    return str((event.get("objectRef") or {}).get(name, ""))


def warnings(running: OperatorProcess, word: str) -> list[str]:
    """Return the lines of the log that report a missing permission and contain ``word``."""
    return [
        line for line in running.output.splitlines() if "Permission denied" in line and word in line
    ]


async def wait_for_children(env: Environment, *, openshift: bool) -> None:
    """Wait until the cluster ``rc`` has all of its children."""
    names = names_of(ray_cluster())
    expected = {
        ("Secret", names.ca_secret),
        ("NetworkPolicy", names.head_policy),
        ("NetworkPolicy", names.workers_policy),
        *(
            (("Route" if openshift else "Ingress"), name)
            for name in (names.dashboard, names.client)
        ),
    }
    if openshift:
        expected |= {
            ("Secret", names.cookie_secret),
            ("Service", names.proxy_service),
            ("ServiceAccount", names.proxy_service_account),
            ("ClusterRoleBinding", names.cluster_role_binding),
        }

    async def has_all() -> bool:
        assert set(await env.children(openshift=openshift)) == expected
        return True

    await eventually(has_all, "all children of the RayCluster exist")


async def run_appwrapper(env: Environment) -> None:
    """Run an AppWrapper from its creation to its success, and delete it."""
    # An AppWrapper is not deployed if the webhooks were installed in the second of its creation.
    await next_second()
    await env.create(wrapper(pod("of-w")))

    async def find_pod() -> Object | None:
        return await env.find(POD, "of-w")

    created_pod = await eventually(find_pod, "the pod of the AppWrapper exists")
    for phase in ("Running", "Succeeded"):
        await env.patch(created_pod, {"status": {"phase": phase}}, subresource="status")

        async def reached(phase: str = phase) -> bool:
            return str(state(await env.get(APPWRAPPER, "w"))[0]) == phase

        await eventually(reached, f"the AppWrapper is {phase}")
    await env.delete(await env.get(APPWRAPPER, "w"))

    async def is_deleted() -> bool:
        return await env.find(APPWRAPPER, "w") is None

    await eventually(is_deleted, "the AppWrapper is deleted")


def certificate_container(cluster: Object) -> str:
    """Return the init container that creates the head's certificate, as a string; it contains the hosts."""
    (container,) = cluster["spec"]["headGroupSpec"]["template"]["spec"]["initContainers"]
    return str(container)


@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
async def test_cluster_gets_all_objects_with_permissions_of_go_operator(
    tmp_path: Path, openshift: bool
) -> None:
    extra = (ROUTE_CRD, INGRESS_CONFIG_CRD, DSC_INITIALIZATION_CRD) if openshift else ()
    async with start_installation(*crds.load(), *extra) as env:
        await use_go_roles(env, tmp_path)
        await env.create_namespace()
        kuberay: dict[str, Any] = {"rayDashboardOAuthEnabled": openshift}
        if openshift:
            metadata = {"name": "cluster"}
            api = "config.openshift.io/v1"
            await env.create(
                {
                    "apiVersion": api,
                    "kind": "Ingress",
                    "metadata": metadata,
                    "spec": {"domain": "apps.ocp.test"},
                }
            )
        else:
            kuberay["ingressDomain"] = "apps.test"
        await env.create(kuberay_role_binding("kuberay-system"))
        await create_config_map(env, kuberay=kuberay, appwrapper={"enabled": True})
        async with run_in_cluster(env, tmp_path, "--webhook-url", str(free_url())) as running:
            await running.ready()
            cluster = await env.create(ray_cluster(version=None))
            assert ("apps.ocp.test" in certificate_container(cluster)) is openshift
            await wait_for_children(env, openshift=openshift)
            await wait_until_allowed(env, "kuberay-system")
            await run_appwrapper(env)
            found = count_denied(operator_audit_events(env))
            assert set(found) == {
                request for request in DENIED if openshift or "openshift" not in request
            }, "docs/migration.md must list exactly these requests"
            assert all(count == 1 for request, count in found.items() if request not in RETRIED), (
                found
            )
            assert all(count < 8 for count in found.values()), (
                found
            )  # retried with a back-off, not in a loop
            for resource in ("clusterroles", *(["config.openshift.io"] if openshift else [])):
                assert len(warnings(running, resource)) == 1, running.output
            await _grant_missing_permissions(env, tmp_path, openshift=openshift)
            await env.delete(await env.get(RAY_CLUSTER, "rc"))

            async def is_deleted() -> bool:
                return await env.find(RAY_CLUSTER, "rc") is None

            await eventually(is_deleted, f"the RayCluster is deleted without {FINALIZER}")
            running.process.terminate()
            assert await running.exit_code() == 0, running.output
        config = await env.get(CONFIG_MAP, CONFIG_MAP_NAME, DEFAULT_NAMESPACE)
        assert "operatorNamespaces" not in config["data"]["config.yaml"]


async def _grant_missing_permissions(env: Environment, directory: Path, *, openshift: bool) -> None:
    """Grant the missing permissions, and wait until the operator watches ClusterRoles and the domain."""
    await env.create(kuberay_role("ray-controller"))
    await env.create(
        kuberay_role_binding("other-namespace", "ray-controller", role="ray-controller")
    )
    missing = {"rbac.authorization.k8s.io": "clusterroles", "config.openshift.io": "ingresses"}
    patch = [
        {
            "op": "add",
            "path": "/rules/-",
            "value": {"apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"]},
        }
        for group, resource in missing.items()
    ]
    code, output = await kubectl(
        *(env, directory, "patch", "clusterrole", "codeflare-operator-manager-role"),
        *("--type", "json", "-p", yaml.safe_dump(patch, default_flow_style=True, width=10_000)),
    )
    assert code == 0, output
    with contextlib.suppress(AssertionError):
        # on a slow machine the back-off may exceed the timeout of one wait
        await wait_until_allowed(env, "other-namespace")
    await wait_until_allowed(env, "other-namespace")
    if openshift:
        settings = GVK("config.openshift.io", "v1", "Ingress")
        await env.client.patch(
            settings, NamespacedName("", "cluster"), {"spec": {"domain": "apps.changed.test"}}
        )

        async def has_new_domain() -> bool:
            try:
                cluster = await env.client.create(ray_cluster("late", version=None), dry_run=True)
            except Forbidden:  # the domain changed between defaulting and validation
                return False
            return "apps.changed.test" in certificate_container(cluster)

        with contextlib.suppress(AssertionError):
            await eventually(has_new_domain)
        await eventually(has_new_domain, "clusters get the changed domain")


async def test_domain_is_empty_without_permission_to_read_it(tmp_path: Path) -> None:
    async with start_installation(*crds.load(), ROUTE_CRD, INGRESS_CONFIG_CRD) as env:
        await use_go_roles(env, tmp_path)
        code, output = await kubectl(
            *(env, tmp_path, "get", "clusterrole", "codeflare-operator-manager-role", "-o", "yaml"),
        )
        assert code == 0, output
        role = yaml.safe_load(output)
        role["rules"] = [
            rule for rule in role["rules"] if rule["apiGroups"] != ["config.openshift.io"]
        ]
        code, output = await kubectl(
            env, tmp_path, "replace", "-f", "-", stdin=yaml.safe_dump(role)
        )
        assert code == 0, output
        await env.create_namespace()
        await create_config_map(env, kuberay={})
        async with run_in_cluster(env, tmp_path, "--webhook-url", str(free_url())) as running:
            await running.ready()
            for name in ("rc", "second"):
                cluster = await env.create(ray_cluster(name, version=None))
                assert "rayclient" not in certificate_container(cluster)
            await env.delete(cluster)
            await wait_for_children(env, openshift=True)
            (warning,) = warnings(running, "set kuberay.ingressDomain")
            assert '"get"' in warning.replace("\\", "")
            running.process.terminate()
            assert await running.exit_code() == 0, running.output
        events = operator_audit_events(env)
        assert (
            sum(event["verb"] == "get" and "ingresses" in event["requestURI"] for event in events)
            == 1
        )
