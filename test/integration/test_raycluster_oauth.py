"""Tests of the OAuth controller: on OpenShift, the dashboard is served through an OAuth proxy."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import pytest

from cfo.api.raycluster.conditions import EXPOSED
from cfo.api.raycluster.names import (
    CLUSTER_LABEL,
    FIELD_MANAGER,
    FINALIZER,
    NAMESPACE_LABEL,
    RAY_CLUSTER,
    ROUTE,
    names_of,
)
from cfo.manifests import host_policy
from cfo.runtime.objects.kinds import (
    CLUSTER_ROLE_BINDING,
    INGRESS,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from cfo.runtime.objects.unstructured import (
    NamespacedName,
    Object,
    is_controlled_by,
    name_of,
    owner_reference,
    set_controller_owner,
    uid_of,
)
from cfo.summaries.conditions import condition_of, conditions_of
from test.support.clocks import next_second
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    ROUTE_CRD,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
    wait_until_deleted,
)

NAMES = names_of(ray_cluster())
PROXY_OBJECTS = [
    (ROUTE, NAMES.dashboard),
    (ROUTE, NAMES.client),
    (SERVICE, NAMES.proxy_service),
    (SERVICE_ACCOUNT, NAMES.proxy_service_account),
    (SECRET, NAMES.cookie_secret),
]


def binding_subject(binding: Object) -> tuple[str, str]:
    """Return namespace and name of the only subject."""
    (subject,) = binding["subjects"]
    return subject["namespace"], subject["name"]


def pod(name: str, cluster: Object, *, node_type: str = "head", **spec: Any) -> Object:
    """Return a pod of ``cluster``, which is ``rc``; ``spec`` adds to its spec."""
    labels = {"ray.io/cluster": "rc", "ray.io/node-type": node_type}
    containers = [{"name": "ray", "image": "ray"}]
    metadata = {
        "name": name,
        "namespace": "ns",
        "labels": labels,
        "ownerReferences": [owner_reference(cluster)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers, **spec},
    }


def cluster_with_account(**pod_spec: Any) -> Object:
    """Return a cluster as the webhook leaves it: its head pod runs as the proxy's service account."""
    cluster = ray_cluster()
    cluster["spec"]["headGroupSpec"]["template"]["spec"] |= {
        "serviceAccountName": NAMES.proxy_service_account,
        **pod_spec,
    }
    return cluster


async def test_proxy_objects_are_created_and_deleted_with_the_cluster() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            cluster = await env.get(RAY_CLUSTER, "rc")
            assert cluster["metadata"]["finalizers"] == [FINALIZER]
            children = await env.children(openshift=True)
            assert {
                key for key in children if key[0] not in ("NetworkPolicy", "ClusterRoleBinding")
            } == {
                *((kind.kind, name) for kind, name in PROXY_OBJECTS),
                ("Secret", NAMES.ca_secret),
            }
            binding = children.pop(("ClusterRoleBinding", NAMES.cluster_role_binding))
            assert binding["roleRef"]["name"] == "system:auth-delegator"
            assert binding_subject(binding) == ("ns", NAMES.proxy_service_account)
            for child in children.values():
                assert child["metadata"]["ownerReferences"] == [owner_reference(cluster)]
                assert {field["manager"] for field in child["metadata"]["managedFields"]} == {
                    FIELD_MANAGER
                }
            route = children["Route", NAMES.dashboard]["spec"]
            assert route["to"]["name"] == NAMES.proxy_service
            assert route["tls"] == {
                "termination": "reencrypt",
                "insecureEdgeTerminationPolicy": "Redirect",
            }
            assert not await env.child_names(INGRESS)

            await env.delete(cluster)
            await wait_until_deleted(
                env, [(RAY_CLUSTER, "rc"), (CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding)]
            )
            if await env.collects_garbage():

                async def all_deleted() -> bool:
                    return await env.children(openshift=True) == {}

                await eventually(all_deleted, "all children are deleted")


async def wait_until_exposed(env: Environment, reason: str) -> str:
    """Wait until the condition ``Exposed`` has this reason, and return its message."""

    async def message() -> str:
        cluster = await env.get(RAY_CLUSTER, "rc")
        exposed = condition_of(conditions_of(cluster), EXPOSED)
        assert exposed is not None
        assert exposed.reason == reason
        return exposed.message

    return str(await eventually(message, f"the reason {reason}"))


def routed(*, is_admitted: bool) -> Object:
    """Return the status of a Route that a router serves, or refuses because of an older one."""
    condition = {"type": "Admitted", "status": str(is_admitted)}
    if not is_admitted:
        condition["reason"] = "HostAlreadyClaimed"
        condition["message"] = "route ray-dashboard-rc-x already exposes the host and is older"
    return {"status": {"ingress": [{"routerName": "default", "conditions": [condition]}]}}


async def test_host_that_a_router_gave_to_another_route_is_not_that_of_the_dashboard() -> None:
    """Otherwise users would send their tokens to the RayCluster of another tenant."""
    async with start_environment(*OPENSHIFT_CRDS, objects=host_policy.policy()) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            key = NamespacedName("ns", NAMES.dashboard)
            await env.client.patch(ROUTE, key, {"spec": {"host": "ray-dashboard-rc-ns.apps.test"}})
            await wait_until_exposed(env, "Exposed")
            refused = routed(is_admitted=False)
            await env.client.patch(ROUTE, key, refused, subresource="status")
            message = await wait_until_exposed(env, "HostTaken")
            assert "ray-dashboard-rc-x already exposes the host" in message
            assert "apps.test" not in message
            served = routed(is_admitted=True)
            await env.client.patch(ROUTE, key, served, subresource="status")
            await wait_until_exposed(env, "Exposed")


NO_FINALIZERS: list[Object] = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-finalizers"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["ray.io"],
                        "apiVersions": ["*"],
                        "operations": ["UPDATE"],
                        "resources": ["rayclusters"],
                    }
                ]
            },
            "validations": [
                {"expression": "!has(object.metadata.finalizers)", "message": "no finalizers"}
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-finalizers"},
        "spec": {"policyName": "no-finalizers", "validationActions": ["Deny"]},
    },
]


async def test_refused_finalizer_is_reported() -> None:
    async with start_environment(*OPENSHIFT_CRDS, objects=NO_FINALIZERS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS), wait=False):
            await env.create(ray_cluster())
            await env.wait_for_event(
                "FailedToReconcile", "The operator cannot change the RayCluster", "no finalizers"
            )

            await wait_until_exposed(env, "FailedToReconcile")


async def test_new_cluster_takes_one_write_per_child_and_one_for_the_finalizer() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            env.clear_requests()
            await env.create(ray_cluster())
            await env.wait_until_idle()
            requests = [
                resource
                for _, resource in env.requests()
                if resource != "rayclusters.ray.io/status"
            ]
            assert len(requests) == len(await env.children(openshift=True)) + 1


async def test_restart_writes_nothing_and_keeps_cookie_secret() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await env.create(ray_cluster())
            await env.create(ray_cluster("old", version=None))
            await env.wait_until_idle()
            before = await env.children(openshift=True)
            cookie = b64decode(
                b64decode(before["Secret", NAMES.cookie_secret]["data"]["cookie_secret"])
            )
            assert len(cookie) == 20
            assert ("Secret", "old-oauth-config") in before
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await env.wait_until_idle()
            assert await env.children(openshift=True) == before
            assert {verb for verb, _ in env.requests()} <= {"discover"}


async def test_children_of_deleted_cluster_held_by_foreign_finalizer_are_not_recreated() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        held = ray_cluster()
        held["metadata"]["finalizers"] = ["example.com/hold"]
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await env.create(held)
            await env.wait_until_idle()
            await env.delete(held)
            await wait_until_deleted(env, [(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding)])
            for child in (await env.children(openshift=True)).values():
                await env.delete(child)
            await env.patch(held, {"metadata": {"labels": {"touched": "yes"}}})
            await env.wait_until_idle()
            assert await env.children(openshift=True) == {}
            assert (await env.get(RAY_CLUSTER, "rc"))["metadata"]["finalizers"] == [
                "example.com/hold"
            ]


async def test_deleted_or_changed_children_are_restored() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            before = await env.children(openshift=True)
            for child in before.values():
                await env.delete(child)

            async def all_recreated() -> bool:
                return set(await env.children(openshift=True)) == set(before)

            await eventually(all_recreated, "all children are recreated")
            route = await env.get(ROUTE, NAMES.dashboard)
            await env.patch(route, {"spec": {"to": {"name": "other-service"}}})
            binding = await env.get(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding, "")
            await env.patch(binding, {"subjects": None})

            async def repaired() -> bool:
                route = await env.get(ROUTE, NAMES.dashboard)
                binding = await env.get(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding, "")
                return bool(
                    route["spec"]["to"]["name"] == NAMES.proxy_service and binding.get("subjects")
                )

            await eventually(repaired, "Route and ClusterRoleBinding are repaired")


async def test_removed_finalizer_is_restored() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            await env.patch(cluster, {"metadata": {"finalizers": None}})

            async def has_finalizer() -> bool:
                return (await env.get(RAY_CLUSTER, "rc"))["metadata"].get("finalizers") == [
                    FINALIZER
                ]

            await eventually(has_finalizer, "the finalizer is set again")


@pytest.mark.parametrize("namespaces", [None, ["ns"]], ids=["all namespaces", "its namespace"])
async def test_clusters_without_oauth_are_released(namespaces: list[str] | None) -> None:
    """The Go operator, and an earlier configuration with OAuth, leave finalizers and ClusterRoleBindings."""
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            for name in ("kept", "deleted"):
                await env.create(ray_cluster(name))
            await env.wait_until_idle()
        await env.delete(await env.get(RAY_CLUSTER, "deleted"))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS), namespaces=namespaces):

            async def is_released() -> bool:
                kept = await env.get(RAY_CLUSTER, "kept")
                bindings = await env.client.list(CLUSTER_ROLE_BINDING, label_selector=CLUSTER_LABEL)
                has_deleted = await env.find(RAY_CLUSTER, "deleted") is not None
                return not kept["metadata"].get("finalizers") and not bindings and not has_deleted

            await eventually(is_released, "no finalizer and no binding")


async def test_objects_of_go_operator_are_adopted_unchanged() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        cluster = await env.create(ray_cluster())
        go_client = env.client.with_field_manager(FIELD_MANAGER)
        cookie = b64encode(b64encode(b"created by Go op. 20")).decode()
        metadata = {"name": NAMES.cookie_secret, "namespace": "ns", "labels": {CLUSTER_LABEL: "rc"}}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "data": {"cookie_secret": cookie},
        }
        created = [await go_client.apply(set_controller_owner(secret, cluster))]
        labels = {CLUSTER_LABEL: "rc", NAMESPACE_LABEL: "ns"}
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAMES.cluster_role_binding, "labels": labels},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:auth-delegator",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": NAMES.proxy_service_account, "namespace": "ns"}
            ],
        }
        created.append(await go_client.apply(binding))
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await env.wait_until_idle()
            children = await env.children(openshift=True)
            for item in created:
                assert children[item["kind"], name_of(item)] == item


async def test_foreign_secret_is_kept_and_other_children_are_created() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        metadata = {"name": NAMES.cookie_secret, "namespace": "ns"}
        foreign = await env.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "b"}}
        )
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_for_event("NameTaken", NAMES.cookie_secret)
            await env.wait_until_idle()
            assert await env.get(SECRET, NAMES.cookie_secret) == foreign
            assert await env.child_names(ROUTE) == {NAMES.dashboard, NAMES.client}


async def test_clusters_with_colliding_binding_names_get_separate_bindings() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        first, second = ray_cluster("a-b", "c"), ray_cluster("a", "b-c")
        colliding_name = names_of(first).cluster_role_binding
        assert colliding_name == names_of(second).cluster_role_binding
        for namespace in ("c", "b-c"):
            await env.create_namespace(namespace)
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            for cluster in (first, second):
                await env.create(cluster)
                await env.wait_until_idle()
            (of_first,) = [
                item
                for key, item in (await env.children("c")).items()
                if key[0] == "ClusterRoleBinding"
            ]
            (of_second,) = [
                item
                for key, item in (await env.children("b-c")).items()
                if key[0] == "ClusterRoleBinding"
            ]
            assert name_of(of_first) == colliding_name
            assert name_of(of_second).startswith(f"{colliding_name}-")
            assert binding_subject(of_first) == ("c", names_of(first).proxy_service_account)
            assert binding_subject(of_second) == ("b-c", names_of(second).proxy_service_account)
            await env.delete(first)
            await wait_until_deleted(env, [(RAY_CLUSTER, "a-b")], "c")
            await env.wait_until_idle()
            assert await env.get(CLUSTER_ROLE_BINDING, name_of(of_second), "") == of_second
            assert await env.find(CLUSTER_ROLE_BINDING, colliding_name, "") is None


async def test_clusters_with_colliding_binding_names_at_startup_get_separate_bindings() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        first, second = ray_cluster("a-b", "c"), ray_cluster("a", "b-c")
        for namespace in ("c", "b-c"):
            await env.create_namespace(namespace)
        for cluster in (first, second):
            await env.create(cluster)
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await env.wait_until_idle()
            found = await env.client.list(CLUSTER_ROLE_BINDING, label_selector=CLUSTER_LABEL)
            assert {binding_subject(item) for item in found} == {
                ("c", names_of(first).proxy_service_account),
                ("b-c", names_of(second).proxy_service_account),
            }


async def test_foreign_binding_with_colliding_name_is_kept() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
        foreign = await env.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": NAMES.cluster_role_binding},
                "roleRef": role,
                "subjects": [],
            }
        )
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            (own,) = [
                item
                for key, item in (await env.children()).items()
                if key[0] == "ClusterRoleBinding"
            ]
            assert name_of(own) != NAMES.cluster_role_binding
            assert not [event for event in await env.events() if event[0] == "Warning"]
            await env.delete(cluster)
            await wait_until_deleted(
                env, [(RAY_CLUSTER, "rc"), (CLUSTER_ROLE_BINDING, name_of(own))]
            )
            assert await env.get(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding, "") == foreign


async def test_head_pods_without_pull_secrets_of_their_account_are_deleted() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await env.create(cluster_with_account())
            for item in (
                pod("head-1", cluster),
                pod("head-2", cluster, imagePullSecrets=[{"name": "other"}]),
                pod(
                    "head-with-secret",
                    cluster,
                    imagePullSecrets=[{"name": "dockercfg"}, {"name": "more"}],
                ),
                pod("worker", cluster, node_type="worker"),
            ):
                await env.create(item)
            await env.wait_until_idle()
            account = await env.get(SERVICE_ACCOUNT, NAMES.proxy_service_account)
            await env.patch(account, {"imagePullSecrets": [{"name": "dockercfg"}]})
            await wait_until_deleted(env, [(POD, "head-1"), (POD, "head-2")])
            await env.wait_until_idle()
            await env.get(POD, "head-with-secret")
            await env.get(POD, "worker")
            await env.create(pod("late", cluster))
            await wait_until_deleted(env, [(POD, "late")])


async def test_head_pods_with_own_pull_secrets_or_account_are_kept() -> None:
    for cluster in (
        cluster_with_account(imagePullSecrets=[{"name": "chosen"}]),
        cluster_with_account(serviceAccountName="chosen"),
    ):
        async with start_environment(*OPENSHIFT_CRDS) as env:
            await env.create_namespace()
            async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
                await env.create(pod("head", await env.create(cluster)))
                await env.wait_until_idle()
                account = await env.get(SERVICE_ACCOUNT, NAMES.proxy_service_account)
                await env.patch(account, {"imagePullSecrets": [{"name": "dockercfg"}]})
                await env.wait_until_idle()
                assert "deletionTimestamp" not in (await env.get(POD, "head"))["metadata"]


async def test_large_head_pods_are_kept_without_pull_secrets() -> None:
    """A tenant decides how large its pods are, and how often the pull secrets of its account change."""
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await env.create(cluster_with_account())
            large = pod("large", cluster)
            large["metadata"]["annotations"] = {"large": "x" * (64 << 10)}
            await env.create(large)
            await env.create(pod("usual", cluster))
            await env.wait_until_idle()
            account = await env.get(SERVICE_ACCOUNT, NAMES.proxy_service_account)
            await env.patch(account, {"imagePullSecrets": [{"name": "dockercfg"}]})
            await wait_until_deleted(env, [(POD, "usual")])
            assert "deletionTimestamp" not in (await env.get(POD, "large"))["metadata"]


async def test_head_pod_of_template_without_account_is_deleted_only_once() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.create(pod("head", cluster))
            await env.wait_until_idle()
            account = await env.get(SERVICE_ACCOUNT, NAMES.proxy_service_account)
            await env.patch(account, {"imagePullSecrets": [{"name": "dockercfg"}]})
            await wait_until_deleted(env, [(POD, "head")])

            await next_second()
            await env.create(pod("successor", cluster))
            await env.wait_until_idle()
            assert "deletionTimestamp" not in (await env.get(POD, "successor"))["metadata"]


async def test_only_bindings_of_deleted_clusters_are_garbage_collected() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        bindings = []
        for name, role, namespace in (
            ("leftover", "system:auth-delegator", "ns"),
            ("other-namespace", "system:auth-delegator", "elsewhere"),
            ("other-role", "view", "ns"),
        ):
            binding = await env.create(
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "ClusterRoleBinding",
                    "metadata": {
                        "name": name,
                        "labels": {CLUSTER_LABEL: "deleted", NAMESPACE_LABEL: "ns"},
                    },
                    "roleRef": {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "ClusterRole",
                        "name": role,
                    },
                    "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": namespace}],
                }
            )
            bindings.append(binding)
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await wait_until_deleted(env, [(CLUSTER_ROLE_BINDING, "leftover")])
            for binding in bindings[1:]:
                assert await env.get(CLUSTER_ROLE_BINDING, name_of(binding), "") == binding


async def test_oauth_on_vanilla_kubernetes_exposes_nothing_and_emits_event() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.wait_for_event("OAuthUnavailable", "not OpenShift")
            await env.wait_until_idle()
            kinds = {kind for kind, _ in await env.children()}
            assert kinds == {"Secret", "NetworkPolicy"}
            assert "finalizers" not in (await env.get(RAY_CLUSTER, "rc"))["metadata"]
            await env.delete(cluster)
            await wait_until_deleted(env, [(RAY_CLUSTER, "rc")])


async def test_finalizer_of_go_operator_is_removed_on_vanilla_kubernetes() -> None:
    for settings in (OAUTH_SETTINGS, PLAIN_SETTINGS):
        async with start_environment(*VANILLA_CRDS) as env:
            await env.create_namespace()
            cluster = ray_cluster()
            cluster["metadata"]["finalizers"] = [FINALIZER]
            await env.create(cluster)
            await env.delete(cluster)
            async with run_controllers(env, kuberay_config(**settings)):
                await wait_until_deleted(env, [(RAY_CLUSTER, "rc")])


async def test_openshift_without_oauth_creates_no_route() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            children = await env.children(openshift=True)
            assert {kind for kind, _ in children} == {"Secret", "NetworkPolicy"}
            assert ("Secret", NAMES.cookie_secret) not in children


async def test_disabling_oauth_deletes_its_objects_also_for_suspended_clusters() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            await env.patch(cluster, {"spec": {"suspend": True}})
            await env.wait_until_idle()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.wait_until_idle()
            await wait_until_deleted(env, PROXY_OBJECTS)
            await wait_until_deleted(env, [(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding)])
            assert "finalizers" not in (await env.get(RAY_CLUSTER, "rc"))["metadata"]


async def test_kuberay_auth_options_replace_oauth_proxy_only_if_configured() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await env.create(ray_cluster(authOptions={"mode": "token"}))
            await env.wait_for_event("KubeRayFeatureUnconfirmed", "authOptions")
            await env.wait_until_idle()
            assert await env.child_names(ROUTE) == {NAMES.dashboard, NAMES.client}
            await env.patch(cluster, {"spec": {"authOptions": None}})
            await env.wait_until_idle()
        async with run_controllers(
            env, kuberay_config(**OAUTH_SETTINGS, kubeRayFeatures=["authOptions"])
        ):
            await env.patch(cluster, {"spec": {"authOptions": {"mode": "token"}}})
            await env.wait_for_event("OAuthByKubeRay", "authOptions")
            await wait_until_deleted(env, PROXY_OBJECTS[2:])
            await env.wait_until_idle()
            assert (await env.get(ROUTE, NAMES.dashboard))["spec"]["to"]["name"] == "rc-head-svc"
            assert not [
                key for key in await env.children(openshift=True) if key[0] == "ClusterRoleBinding"
            ]
            await env.patch(cluster, {"spec": {"authOptions": {"mode": "disabled"}}})
            await env.wait_until_idle()
            assert await env.child_names(ROUTE) == {NAMES.dashboard, NAMES.client}
            assert (await env.get(ROUTE, NAMES.dashboard))["spec"]["to"][
                "name"
            ] == NAMES.proxy_service


async def test_suspended_cluster_keeps_children_and_gets_no_new_proxy_objects() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            active = await env.create(ray_cluster())
            await env.wait_until_idle()
            before = await env.children(openshift=True)
            await env.patch(active, {"spec": {"suspend": True}})
            await env.create(ray_cluster("suspended", suspend=True))
            await env.wait_until_idle()
            after = await env.children(openshift=True)
            assert {key: after[key] for key in before} == before
            assert {kind for kind, _ in set(after) - set(before)} == {"Secret", "NetworkPolicy"}
            await env.patch(ray_cluster("suspended"), {"spec": {"suspend": False}})
            await env.wait_until_idle()
            assert "ray-dashboard-suspended" in await env.child_names(ROUTE)


async def test_client_route_follows_head_service_and_other_status_updates_are_ignored() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await env.create(ray_cluster())
            await env.wait_until_idle()
            assert (await env.get(ROUTE, NAMES.client))["spec"]["to"]["name"] == "rc-head-svc"
            env.clear_requests()
            reconciles = _count_reconciles(env)
            for ready in range(5):
                await env.patch(
                    cluster, {"status": {"readyWorkerReplicas": ready}}, subresource="status"
                )
            await env.wait_until_idle()
            assert env.requests() == []
            assert _count_reconciles(env) == reconciles
            await env.patch(
                cluster, {"status": {"head": {"serviceName": "reported"}}}, subresource="status"
            )
            await env.wait_until_idle()
            assert (await env.get(ROUTE, NAMES.client))["spec"]["to"]["name"] == "reported"


def _count_reconciles(env: Environment) -> float:
    assert env.manager is not None
    metric = next(
        family
        for family in env.manager.metrics.registry.collect()
        if family.name == "controller_runtime_reconcile"
    )
    return sum(sample.value for sample in metric.samples if sample.name.endswith("_total"))


async def test_clusters_with_names_invalid_for_services_get_all_children() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        for number, name in enumerate(("n" * 63, "my.ray.cluster", "m" * 100)):
            namespace = await env.create_namespace(f"space-{number}")
            async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
                await env.create(ray_cluster(name, namespace))
                await env.wait_until_idle()
                children = await env.children(namespace, openshift=True)
                kinds = sorted(kind for kind, _ in children)
                assert kinds == sorted(
                    [
                        "ClusterRoleBinding",
                        *["NetworkPolicy", "Route", "Secret"] * 2,
                        "Service",
                        "ServiceAccount",
                    ]
                )
                assert not [event for event in await env.events(namespace) if event[0] == "Warning"]


async def test_platform_becomes_openshift_when_route_crd_is_installed() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.wait_until_idle()
            assert await env.child_names(INGRESS)
            await env.plane.install_crds(ROUTE_CRD)

            async def no_ingress() -> bool:
                return not await env.child_names(INGRESS)

            await eventually(no_ingress, "the Ingresses are deleted")


async def test_secret_of_deleted_cluster_with_same_name_is_not_adopted() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        predecessor = await env.create(ray_cluster())
        await env.delete(predecessor)
        reference = owner_reference(predecessor)
        metadata = {
            "name": NAMES.cookie_secret,
            "namespace": "ns",
            "labels": {CLUSTER_LABEL: "rc"},
            "ownerReferences": [reference],
        }
        stale = await env.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {}}
        )
        cluster = await env.create(ray_cluster())
        assert uid_of(cluster) != reference["uid"]
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            await env.wait_until_idle()
            found = await env.find(SECRET, NAMES.cookie_secret)
            assert found is None or found == stale or is_controlled_by(found, cluster)
            if found == stale:
                await env.delete(stale)

            async def is_own() -> bool:
                return is_controlled_by(await env.get(SECRET, NAMES.cookie_secret), cluster)

            await eventually(is_own, "a cookie Secret of the new cluster")
