"""Tests of the manifests for namespaces of tenants: each rule refuses what it should, and the operator still works."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_JOB, MINICLUSTER
from cfo.controllers.appwrapper import readiness
from cfo.controllers.flux.minicluster import job_changes
from cfo.manifests import guardrails
from cfo.runtime.client.errors import APIError
from cfo.runtime.objects.kinds import INGRESS, JOB, NETWORK_POLICY, POD
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object, key_of, name_of
from test.integration.hostile.attacks import ingress
from test.support.appwrapper_environment import configuration as appwrapper_configuration
from test.support.appwrapper_environment import job, pod, run_appwrapper_controllers, wrapper
from test.support.flux_environment import (
    FluxEnvironment,
    condition,
    flux_job,
    flux_setup,
    mini_cluster,
    run_flux_controllers,
)
from test.support.inference_environment import new_stack
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
)
from test.support.tenants import ATTACKER, CONTROLLERS, VICTIM, TenantPlane, start_tenant_plane

QUOTA = GVK("", "v1", "ResourceQuota")


@asynccontextmanager
async def start_guarded_plane(*controllers: str, **hard: str) -> AsyncIterator[TenantPlane]:
    """Run a plane with the guardrails in the attacker's namespace, and the limits ``hard`` in its quota.

    ``controllers`` are those of Kubernetes that a test needs in addition.
    """
    async with start_tenant_plane(
        controllers=(*CONTROLLERS, "resourcequota", *controllers)
    ) as tenants:
        quota = guardrails.quota(ATTACKER)
        for obj in guardrails.render([ATTACKER]):
            if obj["kind"] != quota["kind"]:
                await tenants.client.apply(obj)
        quota["spec"]["hard"] |= hard
        await tenants.client.apply(quota)

        async def is_counted() -> bool:
            stored = await tenants.client.get(QUOTA, key_of(quota), live=True)
            assert stored is not None
            status = stored.get("status") or {}
            return bool(status.get("hard") == stored["spec"]["hard"])

        await eventually(is_counted, "the quota is effective")
        yield tenants


def of_attacker(obj: Object) -> Object:
    """Return ``obj`` in the attacker's namespace."""
    return {**obj, "metadata": {**obj["metadata"], "namespace": ATTACKER}}


def plain(api_version: str, kind: str, **fields: Any) -> Object:
    """Return an object with only these fields."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **fields}


COUNTED: list[Object] = [
    plain("v1", "ConfigMap"),
    plain("v1", "Secret"),
    plain("v1", "ServiceAccount"),
    plain("v1", "Service", spec={"ports": [{"port": 80}]}),
    plain("coordination.k8s.io/v1", "Lease"),
    plain("networking.k8s.io/v1", "NetworkPolicy", spec={"podSelector": {}}),
    plain(
        "v1",
        "PersistentVolumeClaim",
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    ),
    ingress("x", ATTACKER, "shop.apps.test"),
    pod(),
    job(),
    ray_cluster(),
    wrapper(pod()),
    flux_job(),
    flux_setup(),
    mini_cluster(),
    new_stack({}),
]


async def test_quota_refuses_each_kind_beyond_its_limit() -> None:
    none = dict.fromkeys(guardrails.quota()["spec"]["hard"], "0")
    async with start_guarded_plane(**none) as tenants:
        for obj in COUNTED:
            with pytest.raises(APIError, match="exceeded quota: codeflare-operator-tenant-quota"):
                await tenants.client.create(of_attacker(obj))


async def test_quota_counts_pods_that_have_ended() -> None:
    async with start_guarded_plane(**{"count/pods": "1"}) as tenants:
        stored = await tenants.client.create(of_attacker(pod("ended")))
        ended = {"status": {"phase": "Succeeded"}}
        await tenants.client.patch(POD, key_of(stored), ended, subresource="status")
        with pytest.raises(APIError, match="exceeded quota: codeflare-operator-tenant-quota"):
            await tenants.client.create(of_attacker(pod("next")))


async def test_pods_have_requests_and_no_privileges() -> None:
    async with start_guarded_plane() as tenants:
        stored = await tenants.attacker.create(of_attacker(pod("plain")))
        assert stored["spec"]["containers"][0]["resources"] == {
            "requests": {"cpu": "0", "memory": "0"}
        }
        privileged = of_attacker(pod("privileged"))
        privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
        with pytest.raises(APIError, match='violates PodSecurity "baseline'):
            await tenants.attacker.create(privileged)


async def until_refused(tenants: TenantPlane, obj: Object, message: str) -> None:
    """Wait until a policy refuses ``obj`` of the attacker with ``message``."""

    async def is_refused() -> bool:
        try:
            await tenants.attacker.create(obj, dry_run=True)
        except APIError as error:
            return message in error.message
        return False

    await eventually(is_refused, "the policy is effective")


async def test_reserved_hosts_are_refused() -> None:
    async with start_guarded_plane() as tenants:
        taken = ingress("taken", ATTACKER, "ray-dashboard-prod-victim.apps.test")
        await until_refused(tenants, taken, "reserved for RayClusters")


def controlled_by(controller: Object, name: str) -> Object:
    """Return a pod of the attacker with a controller reference to a stored object."""
    obj = of_attacker(pod(name))
    obj["metadata"]["ownerReferences"] = [
        {
            "apiVersion": controller["apiVersion"],
            "kind": controller["kind"],
            "name": controller["metadata"]["name"],
            "uid": controller["metadata"]["uid"],
            "controller": True,
        }
    ]
    return obj


def labelled(name: str, **labels: str) -> Object:
    """Return a pod of the attacker with ``labels``."""
    obj = of_attacker(pod(name))
    obj["metadata"]["labels"] = labels
    return obj


async def suspended_job(tenants: TenantPlane) -> Object:
    """Create a Job that has no pods, and wait until the policy of pods is effective."""
    created = of_attacker(job("victim"))
    created["spec"]["suspend"] = True
    stored = await tenants.attacker.create(created)
    await until_refused(
        tenants, controlled_by(stored, "forged"), "written only by the Job controller"
    )
    return stored


IMITATED_LABELS = [
    {"batch.kubernetes.io/controller-uid": "a-uid"},
    {"controller-uid": "a-uid"},
]


async def test_tenant_cannot_imitate_the_pods_of_a_job() -> None:
    async with start_guarded_plane() as tenants:
        owner = await suspended_job(tenants)
        imitations = [controlled_by(owner, "imitation")]
        imitations += [labelled("imitation", **labels) for labels in IMITATED_LABELS]
        for imitation in imitations:
            with pytest.raises(APIError, match="written only by the Job controller"):
                await tenants.attacker.create(imitation)
        # other controllers, other labels, and references that do not control
        observed = controlled_by(owner, "observed")
        del observed["metadata"]["ownerReferences"][0]["controller"]
        await tenants.attacker.create(observed)
        config_map = await tenants.attacker.create(of_attacker(plain("v1", "ConfigMap")))
        await tenants.attacker.create(controlled_by(config_map, "of-config-map"))
        stored = await tenants.attacker.create(labelled("own", app="web"))
        for imitation in imitations:
            imitated = imitation["metadata"]
            metadata = {key: imitated.get(key) for key in ("labels", "ownerReferences")}
            with pytest.raises(APIError, match="written only by the Job controller"):
                await tenants.attacker.patch(POD, key_of(stored), {"metadata": metadata})


async def test_tenant_cannot_create_a_job_that_adopts_other_pods() -> None:
    async with start_guarded_plane() as tenants:
        owner = await suspended_job(tenants)
        labels = {"batch.kubernetes.io/controller-uid": owner["metadata"]["uid"]}
        adopting = of_attacker(job("adopting"))
        adopting["spec"] |= {"manualSelector": True, "selector": {"matchLabels": labels}}
        adopting["spec"]["template"]["metadata"] = {"labels": labels}
        await until_refused(tenants, adopting, "manualSelector must not be true")
        elsewhere = {**adopting, "metadata": {**adopting["metadata"], "namespace": VICTIM}}
        stored = await tenants.victim.create(elsewhere)
        await tenants.victim.patch(JOB, key_of(stored), {"spec": {"parallelism": 2}})


async def test_tenant_can_change_the_pod_of_a_job_but_not_its_job() -> None:
    async with start_guarded_plane() as tenants:
        of_job = controlled_by(await suspended_job(tenants), "of-job")
        of_job["metadata"]["labels"] = {"batch.kubernetes.io/controller-uid": "a-uid"}
        key = key_of(await tenants.client.create(of_job))
        await tenants.attacker.patch(POD, key, {"metadata": {"labels": {"app": "web"}}})
        released: list[dict[str, Any]] = [
            {"ownerReferences": None},
            {"labels": {"batch.kubernetes.io/controller-uid": None}},
            {"labels": {"batch.kubernetes.io/controller-uid": "another-uid"}},
        ]
        for metadata in released:
            with pytest.raises(APIError, match="written only by the Job controller"):
                await tenants.attacker.patch(POD, key, {"metadata": metadata})
        await tenants.attacker.delete(POD, key)


async def test_pods_outside_the_namespaces_of_tenants_are_not_affected() -> None:
    async with start_guarded_plane() as tenants:
        await suspended_job(tenants)
        for number, labels in enumerate(IMITATED_LABELS):
            other = labelled(f"other-{number}", **labels)
            other["metadata"]["namespace"] = VICTIM
            await tenants.victim.create(other)


async def test_job_controller_creates_adopts_and_orphans_pods_in_a_guarded_namespace() -> None:
    async with start_guarded_plane("job") as tenants:
        await suspended_job(tenants)
        stored = await tenants.attacker.create(of_attacker(job("run")))
        uid = stored["metadata"]["uid"]
        label = f"batch.kubernetes.io/controller-uid={uid}"

        async def owners() -> dict[str, list[str]]:
            pods = await tenants.client.list(
                POD, namespace=ATTACKER, label_selector=label, live=True
            )
            found = {}
            for each in pods:
                references = each["metadata"].get("ownerReferences", ())
                found[name_of(each)] = [reference["uid"] for reference in references]
            return found

        async def is_controlled() -> bool:
            return list((await owners()).values()) == [[uid]]

        await eventually(is_controlled, "the Job has its pod")
        (name,) = await owners()
        orphaned = {"metadata": {"ownerReferences": None}}
        await tenants.client.patch(POD, NamespacedName(ATTACKER, name), orphaned)
        await eventually(is_controlled, "the Job controller adopts the pod")
        assert name in await owners()
        await tenants.attacker.delete(JOB, key_of(stored), propagation_policy="Orphan")

        async def is_orphaned() -> bool:
            found = await owners()
            return bool(found) and not any(found.values())

        await eventually(is_orphaned, "the pods of the Job are orphans")


async def test_quota_is_reported_as_the_reason_why_pods_of_an_appwrapper_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "_USUAL_CREATION", timedelta(seconds=1))
    async with start_guarded_plane("job", pods="0") as tenants:
        await suspended_job(tenants)
        async with run_appwrapper_controllers(tenants, appwrapper_configuration()):
            await tenants.attacker.create(of_attacker(wrapper(job())))

            async def is_reported() -> bool:
                stored = await tenants.client.get(
                    APPWRAPPER, NamespacedName(ATTACKER, "w"), live=True
                )
                status = str(stored and stored.get("status"))
                assert "written only by the Job controller" not in status
                return "FailedCreate: Job j: " in status and "exceeded quota: " in status

            await eventually(is_reported, "the quota as the reason")


async def test_failed_jobs_make_room_for_the_pods_of_another_in_the_quota(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_changes, "USUAL_CREATION", timedelta(seconds=1))
    async with start_guarded_plane("job", **{"count/pods": "1"}) as tenants:
        await suspended_job(tenants)
        env = FluxEnvironment(tenants.plane, tenants.client)
        async with run_flux_controllers(env):
            await tenants.client.create(of_attacker(flux_setup()))
            await tenants.attacker.create(of_attacker(flux_job("kept", size=1)))
            (kept,) = await eventually(lambda: env.pods(ATTACKER), "a pod")
            container = {
                "name": "kept",
                "image": "flux",
                "imageID": "flux",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": {"exitCode": 3}},
            }
            failure = {"status": {"phase": "Failed", "containerStatuses": [container]}}
            await tenants.client.patch(POD, key_of(kept), failure, subresource="status")
            await env.wait_for(
                lambda obj: condition(obj, "Succeeded").get("status") == "False",
                "the failure",
                name="kept",
                namespace=ATTACKER,
                gvk=FLUX_JOB,
            )
            assert await env.get(MINICLUSTER, "kept", ATTACKER)
            await tenants.attacker.create(of_attacker(flux_job("other", size=1)))
            await env.wait_until_removed(MINICLUSTER, "kept", ATTACKER)


async def test_tenant_cannot_change_the_guardrails_except_network_policies() -> None:
    async with start_guarded_plane() as tenants:
        for obj in guardrails.render([ATTACKER]):
            if obj["kind"] == "NetworkPolicy":
                continue
            with pytest.raises(APIError, match="forbidden"):
                await tenants.attacker.apply(obj)


async def test_operator_works_within_the_guardrails() -> None:
    async with start_guarded_plane() as tenants:
        async with run_controllers(tenants, kuberay_config(**PLAIN_SETTINGS)):
            await tenants.attacker.create(of_attacker(ray_cluster("rc")))
            await tenants.wait_until_idle()
            created = await tenants.children(ATTACKER)
            assert {kind for kind, _ in created} >= {INGRESS.kind, NETWORK_POLICY.kind}
            host = created[INGRESS.kind, "ray-dashboard-rc"]["spec"]["rules"][0]["host"]
            assert host == f"ray-dashboard-rc-{ATTACKER}.apps.test"
        async with run_appwrapper_controllers(tenants, appwrapper_configuration()):
            await tenants.attacker.create(of_attacker(wrapper(pod("wrapped"))))

            async def is_created() -> bool:
                key = NamespacedName(ATTACKER, "wrapped")
                return await tenants.client.get(POD, key, live=True) is not None

            await eventually(is_created, "the AppWrapper's pod")
