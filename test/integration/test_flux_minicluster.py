"""Tests of the life of MiniClusters on the embedded control plane, whose controllers run the pods."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from cfo.api.flux.names import MINICLUSTER
from cfo.controllers.flux.minicluster import job_changes
from cfo.runtime import GVK, NAMESPACE
from cfo.runtime.client import name_checks
from cfo.runtime.objects import new_object
from cfo.runtime.objects.kinds import CONFIG_MAP, JOB, POD, SECRET, SERVICE
from cfo.runtime.objects.unstructured import (
    NamespacedName,
    Object,
    find_condition,
    key_of,
    name_of,
    owner_reference,
    uid_of,
)
from envtest import EmbeddedControlPlane
from envtest.api_client import APIClient
from test.support.flux_environment import (
    SCHEDULED,
    FluxEnvironment,
    condition,
    mini_cluster,
    pod_annotations,
    run_minicluster_controller,
    start_flux_environment,
    state,
)
from test.support.raycluster_environment import eventually
from test.support.z85 import z85_decode

READY, RUNNING, WAITING, FINISHED = (
    "JobMiniClusterReady",
    "JobRunning",
    "JobWaitingForResources",
    "JobFinished",
)
KEY = NamespacedName("ns", "flux-sample")
LIMIT_RANGE = GVK("", "v1", "LimitRange")


@pytest.fixture
async def env() -> AsyncIterator[FluxEnvironment]:
    """Run a control plane with the Job controller and a namespace; the MiniCluster controller is not running."""
    async with start_flux_environment(controllers=SCHEDULED) as environment:
        await environment.create_namespace()
        yield environment


async def scale(env: FluxEnvironment, size: int) -> None:
    """Set the size with the scale subresource, as kubectl scale and autoscalers do."""
    await env.client.patch(MINICLUSTER, KEY, {"spec": {"replicas": size}}, subresource="scale")


async def test_suspended_cluster_has_all_objects_but_no_pods_until_it_is_launched(
    env: FluxEnvironment,
) -> None:
    services = [{"name": "registry", "image": "registry:2"}]
    async with run_minicluster_controller(env):
        cluster = await env.create(mini_cluster(suspend=True, services=services))
        waiting = await env.wait_for_state(WAITING)
        assert condition(waiting, "ObjectsReady")["status"] == "True"
        assert condition(waiting, "ObjectsReady")["observedGeneration"] == 1
        assert waiting["status"]["size"] == 2
        children = await env.flux_children()
        assert children == {
            "ConfigMap": {"flux-sample-entrypoint"},
            "Secret": {"flux-sample-curve"},
            "Service": {"flux-sample"},
            "Job": {"flux-sample"},
            "Pod": set(),
        }
        await env.patch(cluster, {"spec": {"suspend": False}})
        await env.wait_for_state(READY, RUNNING)
        assert {name_of(pod).rpartition("-")[0] for pod in await env.pods()} == {
            "flux-sample-0",
            "flux-sample-1",
            "flux-sample",
        }
        await env.patch(cluster, {"spec": {"suspend": True}})
        await env.wait_for_state(WAITING)

        async def has_no_pods() -> bool:
            return not await env.pods()

        await eventually(has_no_pods, "the pods of the suspended cluster are deleted")
        for reason in ("Waiting", "Started", "Running"):
            await env.wait_for_event(reason)


async def test_finished_cluster_keeps_its_result_and_does_not_run_again(
    env: FluxEnvironment,
) -> None:
    async with run_minicluster_controller(env):
        await env.create(mini_cluster(services=[{"name": "svc", "image": "i"}]))
        await env.wait_for_state(READY, RUNNING)
        lead = next(pod for pod in await env.pods() if name_of(pod).startswith("flux-sample-0"))
        assert lead["metadata"]["labels"]["job-index"] == "0"
        terminated = {
            "name": "flux-sample",
            "image": "i",
            "imageID": "i",
            "ready": False,
            "restartCount": 0,
        }
        status = {
            "phase": "Succeeded",
            "containerStatuses": [{**terminated, "state": {"terminated": {"exitCode": 0}}}],
        }
        await env.client.patch(POD, key_of(lead), {"status": status}, subresource="status")
        finished = await env.wait_for_state(FINISHED)
        assert finished["status"]["exitCode"] == 0
        assert finished["status"]["completionTime"]
        assert condition(finished, "Succeeded")["status"] == "True"

        async def only_lead_remains() -> bool:
            return [name_of(pod) for pod in await env.pods()] == [name_of(lead)]

        await eventually(only_lead_remains, "workers and the service pod end with the lead broker")
        await env.client.delete(JOB, KEY, propagation_policy="Background")
        await env.wait_until_removed(JOB, "flux-sample")
        await env.wait_until_idle()
        assert state(await env.get(MINICLUSTER, "flux-sample")) == [FINISHED]
        assert await env.find(JOB, "flux-sample") is None


@pytest.mark.parametrize("code", [3, 137])
@pytest.mark.parametrize(("spec", "failed"), [({}, range(1, 50)), ({"backoffLimit": 2}, [3])])
async def test_failed_command_fails_the_cluster(
    env: FluxEnvironment, spec: dict[str, Any], failed: Sequence[int], code: int
) -> None:
    async with run_minicluster_controller(env):
        pod = pod_annotations(phase="Failed", exit_code=str(code), finish_after="0.1")
        await env.create(mini_cluster(size=1, pod=pod, **spec))

        async def has_finished() -> bool:
            if isinstance(env.plane, EmbeddedControlPlane):
                await env.plane.advance(30)  # past the delay before a Job replaces a failed pod
            return state(await env.get(MINICLUSTER, "flux-sample")) == [FINISHED]

        await eventually(has_finished, "the Job fails")
        cluster = await env.get(MINICLUSTER, "flux-sample")
        outcome = condition(cluster, "Succeeded")
        assert (outcome["status"], outcome["reason"]) == ("False", "BackoffLimitExceeded")
        assert f"exit code {code}" in outcome["message"]
        assert cluster["status"]["exitCode"] == code
        assert f"exit code {code}" in await env.wait_for_event("Failed")
        assert (await env.get(JOB, "flux-sample"))["status"]["failed"] in failed
        cells = await printed_columns(env, "flux-sample")
        assert {"JobFinished", "BackoffLimitExceeded"} <= set(cells)


async def printed_columns(env: FluxEnvironment, name: str) -> list[object]:
    """Return the cells that kubectl get prints for a MiniCluster."""
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    path = f"/apis/{MINICLUSTER.api_version}/namespaces/ns/miniclusters/{name}"
    async with APIClient(env.plane) as api:
        response = await api.request("GET", path, headers=accept)
    cells: list[object] = response.body["rows"][0]["cells"]
    return cells


async def test_size_follows_the_scale_subresource_within_its_limits(env: FluxEnvironment) -> None:
    async with run_minicluster_controller(env):
        cluster = await env.create(mini_cluster(size=2, maxSize=4))
        await env.wait_for_state(READY, RUNNING)

        async def has_size(size: int) -> bool:
            job = await env.get(JOB, "flux-sample")
            assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (size, size)
            current = await env.get(MINICLUSTER, "flux-sample")
            assert (current["spec"]["size"], current["status"]["size"]) == (size, size)
            return len(await env.pods()) == size

        shown = await env.client.get_subresource(MINICLUSTER, KEY, "scale")
        assert shown is not None
        assert shown["status"] == {"replicas": 2, "selector": "hpa-selector=flux-sample"}
        for asked, size in ((4, 4), (9, 4), (1, 1), (3, 3), (0, 3)):
            await scale(env, asked)
            await eventually(lambda size=size: has_size(size), f"{size} pods")
        message = await env.wait_for_event("SizeOutOfRange", "was set to 4")
        assert "spec.size: 9: must be at least 1 and at most 4," in message
        assert await env.wait_for_event("Scaled", "from 2 to 4 pods")
        assert (
            "-Sbroker.quorum=3"
            in (await env.get(CONFIG_MAP, "flux-sample-entrypoint"))["data"]["wait-0"]
        )
        await env.patch(cluster, {"spec": {"maxSize": 6, "size": 6}})
        await env.wait_for_event("ChangeNotApplied", "spec.maxSize: 6", "4 hosts")
        await eventually(lambda: has_size(4), "4 pods")
        assert state(await env.get(MINICLUSTER, "flux-sample")) == [RUNNING, READY]


async def test_cluster_is_deleted_after_its_end_if_its_spec_requires_it(
    env: FluxEnvironment,
) -> None:
    pod = pod_annotations(phase="Succeeded")
    owner = await env.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "job", "namespace": "ns"}}
    )
    async with run_minicluster_controller(env):
        owned = mini_cluster("owned", size=1, pod=pod, cleanup=True)
        reference = {
            "apiVersion": "flux-framework.org/v1alpha1",
            "kind": "FluxJob",
            "name": "job",
            "uid": uid_of(owner),
        }
        owned["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
        kept, removed = (
            mini_cluster("kept", size=1, pod=pod),
            mini_cluster("removed", size=1, pod=pod, cleanup=True),
        )
        later = mini_cluster("later", size=1, pod=pod, ttlSecondsAfterFinished=1)
        for cluster in (kept, removed, later):
            await env.create(cluster)
        for name in ("removed", "later"):
            await env.wait_until_removed(MINICLUSTER, name)
        finished = await env.wait_for_state(FINISHED, name="kept")
        await env.patch(finished, {"spec": {"cleanup": True}})
        await env.wait_until_removed(MINICLUSTER, "kept")
        for gvk in (JOB, SECRET, CONFIG_MAP):
            await env.wait_until_removed(
                gvk, f"kept{'' if gvk == JOB else '-curve' if gvk == SECRET else '-entrypoint'}"
            )


async def test_objects_of_others_are_left_unchanged(
    env: FluxEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_checks, "FIRST_NAME_CHECK_SECONDS", 0.5)
    foreign: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "config-entrypoint"},
            "data": {"a": "b"},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "secret-curve"},
            "data": {"curve.cert": "YQ=="},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "service"},
            "spec": {"ports": [{"port": 80}]},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "job", "labels": {"flux-framework.org/minicluster": "job"}},
            "spec": {
                "suspend": True,
                "template": {
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}
                },
            },
        },
    ]
    before = [
        await env.create({**obj, "metadata": {**obj["metadata"], "namespace": "ns"}})
        for obj in foreign
    ]
    async with run_minicluster_controller(env):
        for name in ("config", "secret", "service", "job"):
            await env.create(mini_cluster(name))
            cluster = await env.wait_for_state("JobRequested", name=name)
            assert condition(cluster, "ObjectsReady")["reason"] == "NameTaken"
        await env.wait_until_idle()
        for obj in before:
            kind = obj["kind"]
            assert await env.wait_for_event("NameTaken", f"{kind} {name_of(obj)} already exists")
            gvk = {"ConfigMap": CONFIG_MAP, "Secret": SECRET, "Service": SERVICE, "Job": JOB}[kind]
            now = await env.get(gvk, name_of(obj))
            assert {**now, "status": None, "metadata": None} == {
                **obj,
                "status": None,
                "metadata": None,
            }
            assert not now["metadata"].get("ownerReferences")
        await env.delete(before[3])
        await env.wait_for_state(READY, RUNNING, name="job")


async def test_clusters_that_request_the_same_service_names_get_their_own(
    env: FluxEnvironment,
) -> None:
    sidecar = {"name": "web", "image": "nginx", "ports": [80, 443]}
    containers = [{"image": "i", "runFlux": True, "command": "sleep 1"}, sidecar]
    async with run_minicluster_controller(env):
        for name in ("one", "two"):
            await env.create(
                mini_cluster(name, containers=containers, network={"headlessName": "shared"})
            )
            await env.wait_for_state(READY, RUNNING, name=name)
        assert (await env.flux_children())["Service"] == {"shared", "web", "two", "two-web"}
        job = await env.get(JOB, "two")
        assert job["spec"]["template"]["spec"]["subdomain"] == "two"
        config_map = await env.get(CONFIG_MAP, "two-entrypoint")
        assert "%h.two.ns.svc.cluster.local" in config_map["data"]["flux-view"]
        assert await env.wait_for_event("NameTaken", "Service shared", "below two")
        assert await env.wait_for_event("NameTaken", "Service web", "two-web")
        ports = (await env.get(SERVICE, "web"))["spec"]["ports"]
        assert [(port["name"], port["port"]) for port in ports] == [
            ("port-80", 80),
            ("port-443", 443),
        ]
        env.clear_requests()
        await env.client.delete(MINICLUSTER, NamespacedName("ns", "one"))
        await env.wait_until_removed(SERVICE, "shared")
        await env.wait_until_idle()
        assert env.requests() == []
        assert (await env.flux_children())["Service"] == {"two", "two-web"}


async def test_deleted_objects_are_recreated_and_changed_ones_restored(
    env: FluxEnvironment,
) -> None:
    async with run_minicluster_controller(env):
        await env.create(mini_cluster(services=[{"name": "svc", "image": "i"}]))
        await env.wait_for_state(READY, RUNNING)
        names = {
            CONFIG_MAP: "-entrypoint",
            SECRET: "-curve",
            SERVICE: "",
            POD: "-services",
            JOB: "",
        }
        for gvk, suffix in names.items():
            key = NamespacedName("ns", f"flux-sample{suffix}")
            old = await env.get(gvk, key.name)
            await env.client.delete(
                gvk, key, propagation_policy="Background", grace_period_seconds=0
            )

            async def is_new(gvk: Any = gvk, old: Object = old) -> bool:
                found = await env.find(gvk, name_of(old))
                return found is not None and uid_of(found) != uid_of(old)

            await eventually(is_new, f"a new {gvk.kind}")
        await env.wait_for_state(READY, RUNNING)
        config_map = await env.get(CONFIG_MAP, "flux-sample-entrypoint")
        await env.patch(config_map, {"data": {"wait-0": "exit"}})

        async def is_restored() -> bool:
            return (await env.get(CONFIG_MAP, "flux-sample-entrypoint"))["data"] == config_map[
                "data"
            ]

        await eventually(is_restored, "the script is restored")


async def test_certificate_is_a_key_pair_in_an_immutable_secret_only(env: FluxEnvironment) -> None:
    async with run_minicluster_controller(env):
        await env.create(mini_cluster())
        await env.create(mini_cluster("given", flux={"curveCert": "given certificate"}))
        for name in ("flux-sample", "given"):
            await env.wait_for_state(READY, RUNNING, name=name)
        secret = await env.get(SECRET, "flux-sample-curve")
        assert secret["immutable"] is True
        text = base64.b64decode(secret["data"]["curve.cert"]).decode()
        values = dict(line.strip().split(" = ") for line in text.splitlines() if " = " in line)
        public, private = (
            z85_decode(values[key].strip('"')) for key in ("public-key", "secret-key")
        )
        assert (
            X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw() == public
        )
        given = await env.get(SECRET, "given-curve")
        assert base64.b64decode(given["data"]["curve.cert"]) == b"given certificate"
        for name in ("flux-sample", "given"):
            data = (await env.get(CONFIG_MAP, f"{name}-entrypoint"))["data"]
            assert set(data) == {"wait-0", "flux-view"}
            assert not any(
                values["secret-key"] in script or "given certificate" in script
                for script in data.values()
            )


async def test_changed_spec_replaces_a_job_only_before_it_starts(env: FluxEnvironment) -> None:
    async with run_minicluster_controller(env):
        cluster = await env.create(mini_cluster(suspend=True))
        await env.wait_for_state(WAITING)
        first = await env.get(JOB, "flux-sample")
        await env.patch(
            cluster, {"spec": {"containers": [{"image": "other", "command": "echo changed"}]}}
        )

        async def is_replaced() -> bool:
            job = await env.get(JOB, "flux-sample")
            return (
                uid_of(job) != uid_of(first)
                and job["spec"]["template"]["spec"]["containers"][0]["image"] == "other"
            )

        await eventually(is_replaced, "the Job has the new image")
        await env.wait_for_state(WAITING)
        launched = {
            "suspend": False,
            "size": 3,
            "deadlineSeconds": 60,
            "jobLabels": {"team": "a"},
        }
        await env.patch(cluster, {"spec": launched})
        launched_cluster = await env.wait_for_state(READY, RUNNING)
        assert launched_cluster["status"]["maximumSize"] == 3
        started = await env.get(JOB, "flux-sample")
        assert started["spec"]["parallelism"] == 3
        assert started["spec"]["activeDeadlineSeconds"] == 60
        assert started["metadata"]["labels"]["team"] == "a"
        script = (await env.get(CONFIG_MAP, "flux-sample-entrypoint"))["data"]["wait-0"]
        assert "echo changed" in script
        containers = [{"image": "third", "command": "echo again"}]
        await env.patch(cluster, {"spec": {"containers": containers}})
        outdated = await env.wait_for(
            lambda obj: condition(obj, "UpToDate").get("status") == "False",
            "the change is reported",
        )
        assert state(outdated) == [RUNNING, READY]
        assert await env.wait_for_event("ChangeNotApplied", "Delete and recreate")
        assert (await env.get(CONFIG_MAP, "flux-sample-entrypoint"))["data"]["wait-0"] == script
        assert uid_of(await env.get(JOB, "flux-sample")) == uid_of(started)


async def test_invalid_cluster_reports_its_errors_and_starts_once_it_is_valid(
    env: FluxEnvironment,
) -> None:
    async with run_minicluster_controller(env):
        cluster = await env.create(mini_cluster(size=3, maxSize=2))
        invalid = await env.wait_for(
            lambda obj: condition(obj, "Valid").get("status") == "False", "Valid is false"
        )
        assert "spec.maxSize: Invalid value: 2" in condition(invalid, "Valid")["message"]
        assert state(invalid) == ["JobRequested"]
        assert await env.wait_for_event("InvalidSpec", "spec.maxSize")
        assert (await env.flux_children())["Job"] == set()
        await env.patch(cluster, {"spec": {"maxSize": 5}})
        mended = await env.wait_for_state(READY, RUNNING)
        assert condition(mended, "Valid")["status"] == "True"
        assert mended["status"]["maximumSize"] == 5
        await env.patch(cluster, {"spec": {"minSize": 9, "suspend": True}})
        await env.wait_for_state(WAITING)  # also an invalid cluster can be stopped
        assert condition(await env.get(MINICLUSTER, "flux-sample"), "Valid")["status"] == "False"


async def test_rejected_object_is_reported(env: FluxEnvironment) -> None:
    async with run_minicluster_controller(env):
        bad = mini_cluster(pod={"hostPID": True}, shareProcessNamespace=True)
        await env.create(bad)
        cluster = await env.wait_for_state("JobRequested")
        assert "ShareProcessNamespace and HostPID" in condition(cluster, "ObjectsReady")["message"]
        assert await env.wait_for_event("FailedToReconcile", "ShareProcessNamespace and HostPID")


@pytest.mark.parametrize(
    ("labels", "limits", "expected"),
    [
        ({"pod-security.kubernetes.io/enforce": "restricted"}, [], "violates PodSecurity"),
        ({}, [{"type": "Container", "max": {"memory": "1Gi"}}], "maximum memory usage per"),
    ],
    ids=["Pod Security", "LimitRange"],
)
async def test_reason_why_pods_are_missing_is_that_of_the_api_server(
    env: FluxEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    labels: Object,
    limits: list[Object],
    expected: str,
) -> None:
    monkeypatch.setattr(job_changes, "USUAL_CREATION", timedelta(seconds=0.5))
    resources = {"limits": {"memory": "2Gi"}, "requests": {"memory": "2Gi"}}
    container = {"image": "ubuntu:noble", "command": "true", "resources": resources}
    await env.create(new_object(NAMESPACE, "team", labels=labels))
    await env.create(new_object(LIMIT_RANGE, "limits", "team", spec={"limits": limits}))
    async with run_minicluster_controller(env):
        await env.create(mini_cluster(namespace="team", containers=[container]))
        note = await env.wait_for_event(
            "PodsNotReady", "2 of 2 pods cannot be created: ", expected, namespace="team"
        )
        cluster = await env.get(MINICLUSTER, "flux-sample", "team")
        assert condition(cluster, "PodsReady")["message"] == note


async def test_job_of_kueue_is_started_and_stopped_by_kueue(env: FluxEnvironment) -> None:
    async def job_is_suspended() -> bool:
        stored = await env.get(JOB, "flux-sample")
        suspended = (
            find_condition((stored.get("status") or {}).get("conditions"), "Suspended") or {}
        )
        return bool(suspended.get("status") == "True")

    async with run_minicluster_controller(env):
        labels = {"kueue.x-k8s.io/queue-name": "q"}
        await env.create(mini_cluster(suspend=False, jobLabels=labels))
        await env.wait_for_state(WAITING)
        job = await env.get(JOB, "flux-sample")
        assert await env.pods() == []
        await eventually(job_is_suspended, "the Job is suspended")
        await env.patch(job, {"spec": {"suspend": False}})
        await env.wait_for_state(READY, RUNNING)
        template = {"spec": {"nodeSelector": {"pool": "gold"}}}
        await env.patch(job, {"spec": {"suspend": True}})
        waiting = await env.wait_for_state(WAITING)
        assert "Kueue" in condition(waiting, WAITING)["message"]
        await eventually(job_is_suspended, "the Job is suspended again")  # Kueue waits for it, too
        await env.patch(job, {"spec": {"suspend": False, "template": template}})
        await env.wait_for_state(READY, RUNNING)
        resumed = await env.get(JOB, "flux-sample")
        assert resumed["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "gold"}
        assert uid_of(resumed) == uid_of(job)


async def test_pods_of_others_are_not_labelled(env: FluxEnvironment) -> None:
    spec = {"containers": [{"name": "a", "image": "b"}]}
    labels = {
        "flux-framework.org/minicluster": "flux-sample",
        "batch.kubernetes.io/job-completion-index": "0",
    }
    async with run_minicluster_controller(env):
        for name, given in (("bare", {}), ("planted", labels)):
            metadata = {"name": name, "namespace": "ns", "labels": given}
            await env.create(
                {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            )
        await env.create(mini_cluster())
        await env.create(mini_cluster("flux-sample-0"))
        for name in ("flux-sample", "flux-sample-0"):
            await env.wait_for_state(READY, RUNNING, name=name)
        await env.wait_until_idle()
        for pod in await env.pods():
            found = pod["metadata"].get("labels") or {}
            assert found.get("job-index") == (
                None
                if name_of(pod) in ("bare", "planted")
                else found["batch.kubernetes.io/job-completion-index"]
            )


async def test_foreground_deletion_ends(env: FluxEnvironment) -> None:
    async with run_minicluster_controller(env):
        await env.create(mini_cluster(services=[{"name": "svc", "image": "i"}]))
        await env.wait_for_state(READY, RUNNING)
        await env.client.delete(MINICLUSTER, KEY, propagation_policy="Foreground")
        await env.wait_until_removed(MINICLUSTER, "flux-sample")
    assert await env.flux_children() == {
        "ConfigMap": set(),
        "Secret": set(),
        "Service": set(),
        "Job": set(),
        "Pod": set(),
    }


async def test_job_of_the_go_operator_is_kept_with_its_certificate(env: FluxEnvironment) -> None:
    cluster = await env.create(mini_cluster(services=[{"name": "svc", "image": "i"}]))
    conditions = [
        {
            "type": kind,
            "status": str(kind == READY),
            "reason": kind,
            "message": kind,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind in ("JobRequested", WAITING, RUNNING, READY, FINISHED)
    ]
    status = {
        "jobid": "",
        "size": 0,
        "maximumSize": 2,
        "selector": "hpa-selector=flux-sample",
        "conditions": conditions,
    }
    await env.client.patch(MINICLUSTER, KEY, {"status": status}, subresource="status")
    metadata = {
        "namespace": "ns",
        "ownerReferences": [owner_reference(cluster, block_owner_deletion=True)],
    }
    volume = {"name": "flux-sample-entrypoint", "configMap": {"name": "flux-sample-entrypoint"}}
    containers = [{"name": "flux-sample", "image": "ubuntu:noble"}]
    template = {
        "metadata": {"labels": {"app": "flux-operator"}},
        "spec": {
            "subdomain": "flux-sample",
            "restartPolicy": "OnFailure",
            "containers": containers,
            "volumes": [volume],
        },
    }
    job_spec = {
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "backoffLimit": 100,
        "activeDeadlineSeconds": 31500000,
        "template": template,
    }
    service_spec = {"clusterIP": "None", "selector": {"job-name": "flux-sample"}}
    objects: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "flux-sample-entrypoint"},
            "data": {"wait-0": "x"},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "flux-sample"},
            "spec": service_spec,
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "flux-sample-services"},
            "spec": {"containers": containers},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "flux-sample"},
            "spec": job_spec,
        },
    ]
    before = [
        await env.create({**obj, "metadata": {**obj["metadata"], **metadata}}) for obj in objects
    ]
    async with run_minicluster_controller(env):
        await env.wait_for_state(READY, RUNNING)
        await env.wait_until_idle()
        assert await env.get(CONFIG_MAP, "flux-sample-entrypoint") == before[0]
        assert await env.find(SECRET, "flux-sample-curve") is None
        kept = await env.get(JOB, "flux-sample")
        assert (uid_of(kept), kept["spec"]) == (uid_of(before[3]), before[3]["spec"])
        assert uid_of(await env.get(POD, "flux-sample-services")) == uid_of(before[2])
        await scale(env, 1)

        await env.wait_for(
            lambda obj: (obj["status"]["size"], obj["status"]["ready"]) == (1, 1),
            "the Job is scaled",
        )
        await env.wait_until_idle()
    async with run_minicluster_controller(env):
        assert [request for request in env.requests() if request[0] != "discover"] == []


async def test_cluster_runs_with_the_crd_of_the_go_operator() -> None:
    async with start_flux_environment(controllers=SCHEDULED, upstream=True) as env:
        await env.create_namespace("ns")
        spec = {"flux": {"minimalService": True}, "pod": pod_annotations(phase="Running")}
        async with run_minicluster_controller(env):
            await env.create(mini_cluster(**spec))
            cluster = await env.wait_for_state(READY, RUNNING)
            assert set(cluster["status"]) == {
                "conditions",
                "jobid",
                "maximumSize",
                "selector",
                "size",
            }
            assert condition(cluster, "ObjectsReady")["observedGeneration"] == 1

            async def is_selected() -> bool:
                (service,) = await env.client.list(SERVICE, namespace="ns")
                wanted = service["spec"]["selector"].items()
                assert [
                    pod for pod in await env.pods() if wanted <= pod["metadata"]["labels"].items()
                ]
                return True

            await eventually(is_selected, "the minimal Service selects the lead broker")
            await env.wait_until_idle()
            before = await env.get(MINICLUSTER, "flux-sample")
        async with run_minicluster_controller(env):
            await env.wait_until_idle()
            assert await env.get(MINICLUSTER, "flux-sample") == before
            assert [verb for verb, _ in env.requests() if verb not in ("get", "discover")] == [
                "apply"
            ]  # refused, once
