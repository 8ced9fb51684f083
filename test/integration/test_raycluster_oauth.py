"""OpenShift: the dashboard behind an OAuth proxy."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from cfo.api.raycluster.kinds import RAY_CLUSTER, ROUTE
from cfo.api.raycluster.naming import CLUSTER_LABEL, FIELD_MANAGER, NAMESPACE_LABEL, names_of
from cfo.controllers.raycluster.oauth import FINALIZER
from cfo.runtime.clock import rfc3339
from cfo.runtime.kinds import CLUSTER_ROLE_BINDING, INGRESS, POD, SECRET, SERVICE, SERVICE_ACCOUNT
from cfo.runtime.objects import NamespacedName, Object, is_controlled_by, name_of, owner_reference, uid_of
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    ROUTE_CRD,
    VANILLA_CRDS,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
    wait_until_deleted,
)

NAMES = names_of(ray_cluster())
OURS = [
    (ROUTE, NAMES.dashboard),
    (ROUTE, NAMES.client),
    (SERVICE, NAMES.proxy_service),
    (SERVICE_ACCOUNT, NAMES.proxy_service_account),
    (SECRET, NAMES.cookie_secret),
]


def binding_subject(binding: Object) -> tuple[str, str]:
    (subject,) = binding["subjects"]
    return subject["namespace"], subject["name"]


def pod(name: str, *, node_type: str = "head", **spec: Any) -> Object:
    labels = {"ray.io/cluster": "rc", "ray.io/node-type": node_type}
    containers = [{"name": "ray", "image": "ray"}]
    metadata = {"name": name, "namespace": "ns", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def with_account(**pod_spec: Any) -> Object:
    """A cluster as the webhook leaves it: its head pod runs as the proxy's service account."""
    cluster = ray_cluster()
    cluster["spec"]["headGroupSpec"]["template"]["spec"] |= {
        "serviceAccountName": NAMES.proxy_service_account,
        **pod_spec,
    }
    return cluster


async def test_a_cluster_gets_what_its_proxy_needs_and_nothing_remains_of_it() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_until_idle()
            cluster = await here.get(RAY_CLUSTER, "rc")
            assert cluster["metadata"]["finalizers"] == [FINALIZER]
            children = await here.children(openshift=True)
            assert {key for key in children if key[0] not in ("NetworkPolicy", "ClusterRoleBinding")} == {
                *((kind.kind, name) for kind, name in OURS),
                ("Secret", NAMES.ca_secret),
            }
            binding = children.pop(("ClusterRoleBinding", NAMES.cluster_role_binding))
            assert binding["roleRef"]["name"] == "system:auth-delegator"
            assert binding_subject(binding) == ("ns", NAMES.proxy_service_account)
            for child in children.values():
                assert child["metadata"]["ownerReferences"] == [owner_reference(cluster)]
                assert {field["manager"] for field in child["metadata"]["managedFields"]} == {FIELD_MANAGER}
            route = children["Route", NAMES.dashboard]["spec"]
            assert route["to"]["name"] == NAMES.proxy_service
            assert route["tls"] == {"termination": "reencrypt", "insecureEdgeTerminationPolicy": "Redirect"}
            assert not await here.child_names(INGRESS)

            await here.delete(cluster)
            await wait_until_deleted(here, [(RAY_CLUSTER, "rc"), (CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding)])
            if await here.collects_garbage():

                async def collected() -> bool:
                    return await here.children(openshift=True) == {}

                await eventually(collected, "nothing left")


async def test_a_cluster_costs_one_write_for_each_child_and_one_for_the_finalizer() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            here.clear_requests()
            await here.create(ray_cluster())
            await here.wait_until_idle()
            assert len(here.requests()) == len(await here.children(openshift=True)) + 1


async def test_a_restart_writes_nothing_and_keeps_the_cookie() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await here.create(ray_cluster())
            await here.create(ray_cluster("old", version=None))
            await here.wait_until_idle()
            before = await here.children(openshift=True)
            cookie = b64decode(b64decode(before["Secret", NAMES.cookie_secret]["data"]["cookie_secret"]))
            assert len(cookie) == 20
            assert ("Secret", "old-oauth-config") in before
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await here.wait_until_idle()
            assert await here.children(openshift=True) == before
            assert {verb for verb, _ in here.requests()} <= {"discover"}


async def test_a_deleted_cluster_that_somebody_holds_gets_nothing_again() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        held = ray_cluster()
        held["metadata"]["finalizers"] = ["example.com/hold"]
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await here.create(held)
            await here.wait_until_idle()
            await here.delete(held)
            await wait_until_deleted(here, [(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding)])
            for child in (await here.children(openshift=True)).values():
                await here.delete(child)
            await here.patch(held, {"metadata": {"labels": {"touched": "yes"}}})
            await here.wait_until_idle()
            assert await here.children(openshift=True) == {}
            assert (await here.get(RAY_CLUSTER, "rc"))["metadata"]["finalizers"] == ["example.com/hold"]


async def test_what_somebody_deletes_or_changes_comes_back() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_until_idle()
            before = await here.children(openshift=True)
            for child in before.values():
                await here.delete(child)

            async def back() -> bool:
                return set(await here.children(openshift=True)) == set(before)

            await eventually(back, "everything back")
            route = await here.get(ROUTE, NAMES.dashboard)
            await here.patch(route, {"spec": {"to": {"name": "elsewhere"}}})
            binding = await here.get(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding, "")
            await here.patch(binding, {"subjects": None})

            async def repaired() -> bool:
                route = await here.get(ROUTE, NAMES.dashboard)
                binding = await here.get(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding, "")
                return bool(route["spec"]["to"]["name"] == NAMES.proxy_service and binding.get("subjects"))

            await eventually(repaired, "repaired")


async def test_a_finalizer_that_somebody_removes_comes_back() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await here.create(ray_cluster())
            await here.wait_until_idle()
            await here.patch(cluster, {"metadata": {"finalizers": None}})

            async def back() -> bool:
                return (await here.get(RAY_CLUSTER, "rc"))["metadata"].get("finalizers") == [FINALIZER]

            await eventually(back, "the finalizer")


async def test_the_go_operators_objects_are_taken_over_as_they_are() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        cluster = await here.create(ray_cluster())
        go = here.client.with_field_manager(FIELD_MANAGER)
        cookie = b64encode(b64encode(b"made by the Go op-20")).decode()
        owner = {"name": NAMES.cookie_secret, "namespace": "ns", "labels": {CLUSTER_LABEL: "rc"}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": owner, "data": {"cookie_secret": cookie}}
        made = [await go.apply(secret, owner=cluster)]
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
            "subjects": [{"kind": "ServiceAccount", "name": NAMES.proxy_service_account, "namespace": "ns"}],
        }
        made.append(await go.apply(binding))
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await here.wait_until_idle()
            children = await here.children(openshift=True)
            for item in made:
                assert children[item["kind"], name_of(item)] == item


async def test_a_foreign_secret_is_left_alone_and_the_rest_is_made() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        metadata = {"name": NAMES.cookie_secret, "namespace": "ns"}
        mine = await here.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "b"}})
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_for_event("NameTaken", NAMES.cookie_secret)
            await here.wait_until_idle()
            assert await here.get(SECRET, NAMES.cookie_secret) == mine
            assert await here.child_names(ROUTE) == {NAMES.dashboard, NAMES.client}


async def test_one_object_that_cannot_be_written_stops_no_other_and_is_reported() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "boss", "namespace": "ns"}}
        boss = await here.create(config_map)
        metadata = {
            "name": NAMES.proxy_service_account,
            "namespace": "ns",
            "ownerReferences": [owner_reference(boss)],
        }
        taken = await here.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_for_event("FailedToReconcile", f"ServiceAccount {NAMES.proxy_service_account}")

            async def rest() -> bool:
                return set(await here.children(openshift=True)) >= {
                    (kind.kind, name) for kind, name in OURS if kind != SERVICE_ACCOUNT
                }

            await eventually(rest, "the others")
            assert await here.get(SERVICE_ACCOUNT, NAMES.proxy_service_account) == taken
            await here.delete(taken)

            async def healed() -> bool:
                account = await here.get(SERVICE_ACCOUNT, NAMES.proxy_service_account)
                return is_controlled_by(account, await here.get(RAY_CLUSTER, "rc"))

            await eventually(healed, "the service account")


async def test_clusters_whose_bindings_would_have_one_name_share_none() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        first, second = ray_cluster("a-b", "c"), ray_cluster("a", "b-c")
        usual = names_of(first).cluster_role_binding
        assert usual == names_of(second).cluster_role_binding
        for namespace in ("c", "b-c"):
            await here.create_namespace(namespace)
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            for cluster in (first, second):
                await here.create(cluster)
                await here.wait_until_idle()
            (of_first,) = [item for key, item in (await here.children("c")).items() if key[0] == "ClusterRoleBinding"]
            (of_second,) = [
                item for key, item in (await here.children("b-c")).items() if key[0] == "ClusterRoleBinding"
            ]
            assert name_of(of_first) == usual
            assert name_of(of_second).startswith(f"{usual}-")
            assert binding_subject(of_first) == ("c", names_of(first).proxy_service_account)
            assert binding_subject(of_second) == ("b-c", names_of(second).proxy_service_account)
            await here.delete(first)
            await wait_until_deleted(here, [(RAY_CLUSTER, "a-b")], "c")
            await here.wait_until_idle()
            assert await here.get(CLUSTER_ROLE_BINDING, name_of(of_second), "") == of_second
            assert await here.find(CLUSTER_ROLE_BINDING, usual, "") is None


async def test_clusters_with_one_binding_name_that_come_together_share_none() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        first, second = ray_cluster("a-b", "c"), ray_cluster("a", "b-c")
        for namespace in ("c", "b-c"):
            await here.create_namespace(namespace)
        for cluster in (first, second):
            await here.create(cluster)
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await here.wait_until_idle()
            found = await here.client.list(CLUSTER_ROLE_BINDING, label_selector=CLUSTER_LABEL)
            assert {binding_subject(item) for item in found} == {
                ("c", names_of(first).proxy_service_account),
                ("b-c", names_of(second).proxy_service_account),
            }


async def test_a_binding_of_that_name_which_is_nobodys_cluster_is_left_alone() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
        foreign = await here.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": NAMES.cluster_role_binding},
                "roleRef": role,
                "subjects": [],
            }
        )
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await here.create(ray_cluster())
            await here.wait_until_idle()
            (ours,) = [item for key, item in (await here.children()).items() if key[0] == "ClusterRoleBinding"]
            assert name_of(ours) != NAMES.cluster_role_binding
            assert not [event for event in await here.events() if event[0] == "Warning"]
            await here.delete(cluster)
            await wait_until_deleted(here, [(RAY_CLUSTER, "rc"), (CLUSTER_ROLE_BINDING, name_of(ours))])
            assert await here.get(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding, "") == foreign


async def test_every_head_pod_without_its_accounts_pull_secrets_is_replaced() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await here.create(with_account())
            for item in (
                pod("head-1"),
                pod("head-2", imagePullSecrets=[{"name": "other"}]),
                pod("has", imagePullSecrets=[{"name": "dockercfg"}, {"name": "more"}]),
                pod("worker", node_type="worker"),
            ):
                await here.create(item)
            await here.wait_until_idle()
            account = await here.get(SERVICE_ACCOUNT, NAMES.proxy_service_account)
            await here.patch(account, {"imagePullSecrets": [{"name": "dockercfg"}]})
            await wait_until_deleted(here, [(POD, "head-1"), (POD, "head-2")])
            await here.wait_until_idle()
            await here.get(POD, "has")
            await here.get(POD, "worker")
            await here.create(pod("late"))
            await wait_until_deleted(here, [(POD, "late")])


async def test_head_pods_stay_when_the_user_chose_pull_secrets_or_another_account() -> None:
    for cluster in (with_account(imagePullSecrets=[{"name": "mine"}]), with_account(serviceAccountName="mine")):
        async with start_environment(*OPENSHIFT_CRDS) as here:
            await here.create_namespace()
            async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
                await here.create(cluster)
                await here.create(pod("head"))
                await here.wait_until_idle()
                account = await here.get(SERVICE_ACCOUNT, NAMES.proxy_service_account)
                await here.patch(account, {"imagePullSecrets": [{"name": "dockercfg"}]})
                await here.wait_until_idle()
                assert "deletionTimestamp" not in (await here.get(POD, "head"))["metadata"]


async def test_a_head_pod_of_a_template_without_an_account_is_replaced_but_not_for_ever() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)) as manager:
            await here.create(ray_cluster())
            await here.create(pod("head"))
            await here.wait_until_idle()
            account = await here.get(SERVICE_ACCOUNT, NAMES.proxy_service_account)
            await here.patch(account, {"imagePullSecrets": [{"name": "dockercfg"}]})
            await wait_until_deleted(here, [(POD, "head")])

            async def a_second_later() -> bool:
                stamp = (await here.create(pod("probe", node_type="probe")))["metadata"]["creationTimestamp"]
                await here.client.delete(POD, NamespacedName("ns", "probe"), grace_period_seconds=0)
                return bool(stamp > rfc3339(began))

            began = manager.clock.now()
            await eventually(a_second_later, "the next second")
            await here.create(pod("successor"))
            await here.wait_until_idle()
            assert "deletionTimestamp" not in (await here.get(POD, "successor"))["metadata"]


async def test_bindings_that_outlived_their_cluster_are_collected_and_no_others() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        kept = []
        for name, role, namespace in (
            ("leftover", "system:auth-delegator", "ns"),
            ("for-more", "system:auth-delegator", "elsewhere"),
            ("other-role", "view", "ns"),
        ):
            binding = await here.create(
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": name, "labels": {CLUSTER_LABEL: "gone", NAMESPACE_LABEL: "ns"}},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                    "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": namespace}],
                }
            )
            kept.append(binding)
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await wait_until_deleted(here, [(CLUSTER_ROLE_BINDING, "leftover")])
            for binding in kept[1:]:
                assert await here.get(CLUSTER_ROLE_BINDING, name_of(binding), "") == binding


async def test_on_vanilla_kubernetes_nothing_is_exposed_and_the_user_is_told() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await here.create(ray_cluster())
            await here.wait_for_event("OAuthUnavailable", "not OpenShift")
            await here.wait_until_idle()
            kinds = {kind for kind, _ in await here.children()}
            assert kinds == {"Secret", "NetworkPolicy"}
            assert "finalizers" not in (await here.get(RAY_CLUSTER, "rc"))["metadata"]
            await here.delete(cluster)
            await wait_until_deleted(here, [(RAY_CLUSTER, "rc")])


async def test_the_go_operators_finalizer_holds_no_cluster_on_vanilla_kubernetes() -> None:
    for settings in (OAUTH_SETTINGS, PLAIN_SETTINGS):
        async with start_environment(*VANILLA_CRDS) as here:
            await here.create_namespace()
            left = ray_cluster()
            left["metadata"]["finalizers"] = [FINALIZER]
            await here.create(left)
            await here.delete(left)
            async with run_controllers(here, kuberay_config(**settings)):
                await wait_until_deleted(here, [(RAY_CLUSTER, "rc")])


async def test_openshift_without_oauth_makes_no_route() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_until_idle()
            children = await here.children(openshift=True)
            assert {kind for kind, _ in children} == {"Secret", "NetworkPolicy"}
            assert ("Secret", NAMES.cookie_secret) not in children


async def test_turning_oauth_off_removes_what_belonged_to_it_from_suspended_clusters_too() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await here.create(ray_cluster())
            await here.wait_until_idle()
            await here.patch(cluster, {"spec": {"suspend": True}})
            await here.wait_until_idle()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.wait_until_idle()
            await wait_until_deleted(here, OURS)
            await wait_until_deleted(here, [(CLUSTER_ROLE_BINDING, NAMES.cluster_role_binding)])
            assert "finalizers" not in (await here.get(RAY_CLUSTER, "rc"))["metadata"]


async def test_kuberays_own_auth_makes_ours_step_aside() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await here.create(ray_cluster())
            await here.wait_until_idle()
            await here.patch(cluster, {"spec": {"authOptions": {"mode": "token"}}})
            await here.wait_for_event("OAuthByKubeRay", "authOptions")
            await wait_until_deleted(here, OURS)
            await here.wait_until_idle()
            assert not [key for key in await here.children(openshift=True) if key[0] == "ClusterRoleBinding"]
            await here.patch(cluster, {"spec": {"authOptions": {"mode": "disabled"}}})
            await here.wait_until_idle()
            assert await here.child_names(ROUTE) == {NAMES.dashboard, NAMES.client}


async def test_suspending_keeps_what_is_there_and_makes_nothing_new() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            awake = await here.create(ray_cluster())
            await here.wait_until_idle()
            before = await here.children(openshift=True)
            await here.patch(awake, {"spec": {"suspend": True}})
            await here.create(ray_cluster("asleep", suspend=True))
            await here.wait_until_idle()
            after = await here.children(openshift=True)
            assert {key: after[key] for key in before} == before
            assert {kind for kind, _ in set(after) - set(before)} == {"Secret", "NetworkPolicy"}
            await here.patch(ray_cluster("asleep"), {"spec": {"suspend": False}})
            await here.wait_until_idle()
            assert "ray-dashboard-asleep" in await here.child_names(ROUTE)


async def test_the_client_route_follows_the_real_head_service_and_other_status_costs_nothing() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            cluster = await here.create(ray_cluster())
            await here.wait_until_idle()
            assert (await here.get(ROUTE, NAMES.client))["spec"]["to"]["name"] == "rc-head-svc"
            here.clear_requests()
            reconciles = _reconciles(here)
            for ready in range(5):
                await here.patch(cluster, {"status": {"readyWorkerReplicas": ready}}, subresource="status")
            await here.wait_until_idle()
            assert here.requests() == []
            assert _reconciles(here) == reconciles
            await here.patch(cluster, {"status": {"head": {"serviceName": "real"}}}, subresource="status")
            await here.wait_until_idle()
            assert (await here.get(ROUTE, NAMES.client))["spec"]["to"]["name"] == "real"


def _reconciles(here: Any) -> float:
    metric = next(
        family for family in here.manager.metrics.registry.collect() if family.name == "controller_runtime_reconcile"
    )
    return sum(sample.value for sample in metric.samples if sample.name.endswith("_total"))


async def test_names_that_an_api_server_would_refuse_do_not_leave_half_a_set() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        for number, name in enumerate(("n" * 63, "my.ray.cluster", "m" * 100)):
            namespace = await here.create_namespace(f"space-{number}")
            async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
                await here.create(ray_cluster(name, namespace))
                await here.wait_until_idle()
                children = await here.children(namespace, openshift=True)
                kinds = sorted(kind for kind, _ in children)
                assert kinds == sorted(
                    ["ClusterRoleBinding", *["NetworkPolicy", "Route", "Secret"] * 2, "Service", "ServiceAccount"]
                )
                assert not [event for event in await here.events(namespace) if event[0] == "Warning"]


async def test_routes_that_come_later_make_it_openshift() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)):
            await here.create(ray_cluster())
            await here.wait_until_idle()
            assert await here.child_names(INGRESS)
            await here.plane.install_crds(ROUTE_CRD)

            async def closed() -> bool:
                return not await here.child_names(INGRESS)

            await eventually(closed, "no Ingress")


async def test_a_leftover_of_a_deleted_cluster_of_the_same_name_is_not_taken() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        predecessor = await here.create(ray_cluster())
        await here.delete(predecessor)
        reference = owner_reference(predecessor)
        metadata = {
            "name": NAMES.cookie_secret,
            "namespace": "ns",
            "labels": {CLUSTER_LABEL: "rc"},
            "ownerReferences": [reference],
        }
        left = await here.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {}})
        cluster = await here.create(ray_cluster())
        assert uid_of(cluster) != reference["uid"]
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            await here.wait_until_idle()
            found = await here.find(SECRET, NAMES.cookie_secret)
            assert found is None or found == left or is_controlled_by(found, cluster)
            if found == left:
                await here.delete(left)

            async def ours() -> bool:
                return is_controlled_by(await here.get(SECRET, NAMES.cookie_secret), cluster)

            await eventually(ours, "a cookie of our own")
