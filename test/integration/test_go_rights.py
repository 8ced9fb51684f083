"""The operator under the ClusterRole of the Go operator: somebody who has changed the image alone has no other.

What that role lacks is 'not available': it is told once, done without as far as that goes, and used when it comes.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.api.appwrapper import APPWRAPPER
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import names_of
from cfo.controllers.raycluster.oauth import FINALIZER
from cfo.demo import crds
from cfo.manifests.names import DEFAULT_NAMESPACE
from cfo.operator import CONFIG_MAP_NAME
from cfo.runtime.kinds import CONFIG_MAP, POD
from cfo.runtime.objects import GVK, NamespacedName, Object
from test.support.appwrapper_environment import pod, state, wrapper
from test.support.config_map_webhooks import free_url
from test.support.installation import configure, events_of_the_operator, in_cluster, install, kubectl
from test.support.network_policies import kuberay_role, kuberay_role_binding, wait_until_allowed
from test.support.operator_process import Operator
from test.support.raycluster_environment import (
    DSC_INITIALIZATION_CRD,
    INGRESS_CONFIG_CRD,
    ROUTE_CRD,
    Environment,
    eventually,
    ray_cluster,
    start_environment,
)

_LOOK = ("get", "list", "watch")
_ALL = ("create", "delete", "get", "list", "patch", "update", "watch")
_STATUS = ("get", "patch", "update")
GRANTED: dict[str, dict[str, tuple[str, ...]]] = {
    "": {
        "events": ("create", "patch", "update", "watch"),
        "nodes": _LOOK,
        "pods": _ALL,
        "secrets": _ALL,
        "serviceaccounts": _ALL,
        "services": _ALL,
    },
    "admissionregistration.k8s.io": {
        "mutatingwebhookconfigurations": (*_LOOK, "update"),
        "validatingwebhookconfigurations": (*_LOOK, "update"),
    },
    "apiextensions.k8s.io": {"customresourcedefinitions": _LOOK},
    "apps": {"deployments": _ALL, "statefulsets": _ALL},
    "authentication.k8s.io": {"tokenreviews": ("create",)},
    "authorization.k8s.io": {"subjectaccessreviews": ("create",)},
    "batch": {"jobs": _ALL},
    "config.openshift.io": {"ingresses": ("get",)},
    "dscinitialization.opendatahub.io": {"dscinitializations": _LOOK},
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
"""What its ClusterRole grants (release 1.14)."""

GRANTED_AT_HOME: dict[str, dict[str, tuple[str, ...]]] = {
    "": {"configmaps": _ALL, "events": ("create", "patch")},
    "coordination.k8s.io": {"leases": _ALL},
}
"""What its Role grants in its own namespace."""

REFUSED = {
    "create events.k8s.io/events": "once for each namespace; they are written as core Events",
    "patch admissionregistration.k8s.io/mutatingwebhookconfigurations": "updated instead",
    "patch admissionregistration.k8s.io/validatingwebhookconfigurations": "updated instead",
    "list rbac.authorization.k8s.io/clusterroles": "KubeRay's bindings are known by their role's name",
    "list config.openshift.io/ingresses": "got when the domain is needed",
}
"""What is tried in vain; docs/operations.md says so."""

RETRIED = {verb for verb in REFUSED if verb.startswith("list")}


def _rules(granted: dict[str, dict[str, tuple[str, ...]]]) -> list[dict[str, Any]]:
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
        for group, resources in granted.items()
        for resource, verbs in resources.items()
    ]


async def grant(there: Environment, directory: Path) -> None:
    """Brings the Go operator's roles in the place of ours."""
    api = "rbac.authorization.k8s.io/v1"
    leader = {"name": "codeflare-operator-leader-election-role", "namespace": DEFAULT_NAMESPACE}
    cluster_wide = {"name": "codeflare-operator-manager-role"}
    for obj in (
        {"apiVersion": api, "kind": "ClusterRole", "metadata": cluster_wide, "rules": _rules(GRANTED)},
        {"apiVersion": api, "kind": "Role", "metadata": leader, "rules": _rules(GRANTED_AT_HOME)},
    ):
        code, said = await kubectl(there, directory, "replace", "-f", "-", stdin=yaml.safe_dump(obj))
        assert code == 0, said
    ours_at_home = ("-n", DEFAULT_NAMESPACE, "role/codeflare-operator-manager-role")
    code, said = await kubectl(there, directory, "delete", *ours_at_home)
    assert code == 0, said


def refused(events: Iterable[dict[str, Any]]) -> Counter[str]:
    """What was answered 403, and how often."""
    return Counter(
        f"{event['verb']} {'/'.join(filter(None, (_of(event, 'apiGroup'), _of(event, 'resource'))))}"
        for event in events
        if event["responseStatus"]["code"] in (401, 403)
    )


def _of(event: dict[str, Any], part: str) -> str:
    return str((event.get("objectRef") or {}).get(part, ""))


def warnings(running: Operator, word: str) -> list[str]:
    """The lines of the log that report a missing permission and contain ``word``."""
    messages = ("Permission denied", "a right is missing")
    return [line for line in running.output.splitlines() if any(map(line.__contains__, messages)) and word in line]


async def made(there: Environment, *, openshift: bool) -> None:
    """Waits until the cluster ``rc`` has everything."""
    names = names_of(ray_cluster())
    expected = {
        ("Secret", names.ca_secret),
        ("NetworkPolicy", names.head_policy),
        ("NetworkPolicy", names.workers_policy),
        *((("Route" if openshift else "Ingress"), name) for name in (names.dashboard, names.client)),
    }
    if openshift:
        expected |= {
            ("Secret", names.cookie_secret),
            ("Service", names.proxy_service),
            ("ServiceAccount", names.proxy_service_account),
            ("ClusterRoleBinding", names.cluster_role_binding),
        }

    async def look() -> bool:
        assert set(await there.children(openshift=openshift)) == expected
        return True

    await eventually(look, "all that the RayCluster gets")


async def wrapped_and_run(there: Environment) -> None:
    """Plays an AppWrapper from its creation to its success."""
    await there.create(wrapper(pod("of-w")))

    async def created() -> Object | None:
        return await there.find(POD, "of-w")

    made = await eventually(created, "the pod of the AppWrapper")
    for phase in ("Running", "Succeeded"):
        await there.patch(made, {"status": {"phase": phase}}, subresource="status")

        async def reached(phase: str = phase) -> bool:
            return str(state(await there.get(APPWRAPPER, "w"))[0]) == phase

        await eventually(reached, f"the AppWrapper is {phase}")
    await there.delete(await there.get(APPWRAPPER, "w"))

    async def gone() -> bool:
        return await there.find(APPWRAPPER, "w") is None

    await eventually(gone, "the AppWrapper is gone")


def cert_generator_hosts(cluster: Object) -> str:
    """What the init container is told that makes the head's certificate."""
    (container,) = cluster["spec"]["headGroupSpec"]["template"]["spec"]["initContainers"]
    return str(container)


@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
async def test_a_cluster_gets_everything_with_the_rights_of_the_go_operator(tmp_path: Path, openshift: bool) -> None:
    extra = (ROUTE_CRD, INGRESS_CONFIG_CRD, DSC_INITIALIZATION_CRD) if openshift else ()
    async with start_environment(*crds.load(), *extra) as there:
        await install(there, tmp_path)
        await grant(there, tmp_path)
        await there.create_namespace()
        kuberay: dict[str, Any] = {"rayDashboardOAuthEnabled": openshift}
        if openshift:
            metadata = {"name": "cluster"}
            api = "config.openshift.io/v1"
            await there.create(
                {"apiVersion": api, "kind": "Ingress", "metadata": metadata, "spec": {"domain": "apps.ocp.test"}}
            )
        else:
            kuberay["ingressDomain"] = "apps.test"
        await there.create(kuberay_role_binding("kuberay-system"))
        await configure(there, kuberay=kuberay, appwrapper={"enabled": True})
        async with in_cluster(there, tmp_path, "--webhook-url", str(free_url())) as running:
            await running.ready()
            cluster = await there.create(ray_cluster(version=None))
            assert ("apps.ocp.test" in cert_generator_hosts(cluster)) is openshift
            await made(there, openshift=openshift)
            await wait_until_allowed(there, "kuberay-system")
            await wrapped_and_run(there)
            found = refused(events_of_the_operator(there))
            assert set(found) == {each for each in REFUSED if openshift or "openshift" not in each}, (
                "each is documented, and still the case"
            )
            assert all(count == 1 for each, count in found.items() if each not in RETRIED), found
            assert all(count < 8 for count in found.values()), found  # a backoff, no loop
            for resource in ("clusterroles", *(["config.openshift.io"] if openshift else [])):
                assert len(warnings(running, resource)) == 1, running.output
            await _permitted(there, tmp_path, openshift=openshift)
            await there.delete(await there.get(RAY_CLUSTER, "rc"))

            async def gone() -> bool:
                return await there.find(RAY_CLUSTER, "rc") is None

            await eventually(gone, f"let go by {FINALIZER}")
            running.process.terminate()
            assert await running.exit_code() == 0, running.output
        config = await there.get(CONFIG_MAP, CONFIG_MAP_NAME, DEFAULT_NAMESPACE)
        assert "operatorNamespaces" not in config["data"]["config.yaml"]


async def _permitted(there: Environment, directory: Path, *, openshift: bool) -> None:
    """What was missing is granted: ClusterRoles count by what they grant, and the domain is followed."""
    await there.create(kuberay_role("ray-controller"))
    await there.create(kuberay_role_binding("elsewhere", "ray-controller", role="ray-controller"))
    missing = {"rbac.authorization.k8s.io": "clusterroles", "config.openshift.io": "ingresses"}
    patch = [
        {
            "op": "add",
            "path": "/rules/-",
            "value": {"apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"]},
        }
        for group, resource in missing.items()
    ]
    code, said = await kubectl(
        *(there, directory, "patch", "clusterrole", "codeflare-operator-manager-role"),
        *("--type", "json", "-p", yaml.safe_dump(patch, default_flow_style=True, width=10_000)),
    )
    assert code == 0, said
    with contextlib.suppress(AssertionError):
        await wait_until_allowed(there, "elsewhere")  # on a slow machine the backoff has outgrown a test's patience
    await wait_until_allowed(there, "elsewhere")
    if openshift:
        settings = GVK("config.openshift.io", "v1", "Ingress")
        await there.client.patch(settings, NamespacedName("", "cluster"), {"spec": {"domain": "apps.moved.test"}})

        async def moved() -> bool:
            cluster = await there.client.create(ray_cluster("late", version=None), dry_run=True)
            return "apps.moved.test" in cert_generator_hosts(cluster)

        with contextlib.suppress(AssertionError):
            await eventually(moved)
        await eventually(moved, "the domain that was moved")


async def test_the_domain_is_nobodys_where_it_may_not_even_be_read(tmp_path: Path) -> None:
    async with start_environment(*crds.load(), ROUTE_CRD, INGRESS_CONFIG_CRD) as there:
        await install(there, tmp_path)
        await grant(there, tmp_path)
        code, said = await kubectl(
            *(there, tmp_path, "get", "clusterrole", "codeflare-operator-manager-role", "-o", "yaml"),
        )
        assert code == 0, said
        lesser = yaml.safe_load(said)
        lesser["rules"] = [rule for rule in lesser["rules"] if rule["apiGroups"] != ["config.openshift.io"]]
        code, said = await kubectl(there, tmp_path, "replace", "-f", "-", stdin=yaml.safe_dump(lesser))
        assert code == 0, said
        await there.create_namespace()
        await configure(there, kuberay={})
        async with in_cluster(there, tmp_path, "--webhook-url", str(free_url())) as running:
            await running.ready()
            for name in ("rc", "second"):
                cluster = await there.create(ray_cluster(name, version=None))
                assert "rayclient" not in cert_generator_hosts(cluster)
            await there.delete(cluster)
            await made(there, openshift=True)
            (warning,) = warnings(running, "set kuberay.ingressDomain")
            assert '"get"' in warning.replace("\\", "")
            running.process.terminate()
            assert await running.exit_code() == 0, running.output
        events = events_of_the_operator(there)
        assert sum(event["verb"] == "get" and "ingresses" in event["requestURI"] for event in events) == 1
