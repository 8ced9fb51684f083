"""Scenarios: scheduling, failures of pods and nodes on the clock of the plane, and the controllers around pods."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.apimachinery.objects import find_condition
from envtest.command import command
from envtest.controllers.kubelet import STOP_SECONDS
from envtest.planes.plane import EmbeddedControlPlane

PODS = "/api/v1/namespaces/default/pods"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


class Setup:
    """A running plane with a client; :meth:`settled` waits until the controllers have nothing to do."""

    def __init__(self, plane: EmbeddedControlPlane, api: APIClient) -> None:
        self.plane, self.api = plane, api

    async def pod(self, name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> None:
        """Create a pod, and wait until it is handled."""
        metadata = {"name": name, "labels": {"app": name, **(labels or {})}}
        spec = {"containers": [{"name": "main", "image": "i"}], **spec}
        created = await self.api.post(PODS, {"metadata": metadata, "spec": spec})
        assert created.code == 201, created.body
        await self.plane.advance(0)

    async def delete(self, name: str) -> None:
        """Delete a pod, and wait until its containers have stopped."""
        assert (await self.api.delete(f"{PODS}/{name}")).code == 200
        await self.plane.advance(STOP_SECONDS)

    async def get(self, path: str) -> Any:
        """Return an object, or the items of a list."""
        await self.plane.advance(0)
        body = (await self.api.get(path)).body
        return body.get("items", body)

    async def status(self, name: str) -> Any:
        """Return the status of a pod."""
        return (await self.get(f"{PODS}/{name}"))["status"]

    async def node_of(self, name: str) -> str:
        """Return the node of a pod."""
        return str((await self.get(f"{PODS}/{name}"))["spec"].get("nodeName", ""))


@asynccontextmanager
async def running(
    scenario: dict[str, Any], controllers: Sequence[str] = ("gc",)
) -> AsyncIterator[Setup]:
    async with (
        ControlPlane.embedded(scenario=scenario, controllers=controllers) as plane,
        APIClient(plane) as api,
    ):
        await plane.advance(0)
        yield Setup(plane, api)


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    return dict(find_condition(status.get("conditions"), kind) or {})


async def test_pods_are_scheduled_where_they_fit() -> None:
    zone = {"topology.kubernetes.io/zone": "z"}
    nodes = [
        {"name": "small", "labels": zone, "capacity": {"cpu": 1}},
        {
            "name": "gpu",
            "taints": [{"key": "gpu", "effect": "NoSchedule"}],
            "capacity": {"nvidia.com/gpu": 1},
        },
        {"name": "off", "unschedulable": True},
    ]
    async with running({"nodes": nodes}) as setup:
        await setup.pod("any")
        gpu = [{"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
        await setup.pod("gpu", containers=gpu, tolerations=[{"key": "gpu", "operator": "Exists"}])
        assert [await setup.node_of(name) for name in ("any", "gpu")] == ["small", "gpu"]
        pod = await setup.get(f"{PODS}/any")
        assert pod["metadata"]["labels"] == {"app": "any", **zone}
        assert (pod["status"]["phase"], condition(pod["status"], "Ready")["status"]) == (
            "Running",
            "True",
        )
        events = await setup.get("/api/v1/namespaces/default/events")
        assert events[0]["message"] == "Successfully assigned default/any to small"

        large = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "2"}}}]
        await setup.pod("large", containers=large)
        scheduled = condition(await setup.status("large"), "PodScheduled")
        assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
        assert scheduled["message"] == (
            "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), "
            "1 node(s) were unschedulable. no new claims to deallocate, preemption: "
            "0/3 nodes are available: 3 Preemption is not helpful for scheduling."
        )
        await setup.api.merge("/api/v1/nodes/off", {"spec": {"unschedulable": False}})
        assert await setup.node_of("large") == "off", "it is retried when a node changes"

        await setup.pod("gpu-2", containers=gpu, tolerations=[{"key": "gpu", "operator": "Exists"}])
        assert await setup.node_of("gpu-2") == ""
        await setup.delete("gpu")
        assert await setup.node_of("gpu-2") == "gpu", "it is retried when resources are released"


async def test_space_of_preempted_pods_is_kept_for_the_pod_that_waits_for_it() -> None:
    def using(cpu: int) -> dict[str, Any]:
        resources = {"requests": {"cpu": str(cpu)}}
        return {"containers": [{"name": "main", "image": "i", "resources": resources}]}

    nodes = [{"name": "n", "capacity": {"cpu": 10}}]
    rule = {"match": {"name": "a"}, "stopAfter": 20}
    async with running({"nodes": nodes, "pods": [rule]}) as setup:
        for name, value in (("low", 1), ("middle", 2), ("high", 3)):
            body = {"metadata": {"name": name}, "value": value}
            assert (await setup.api.post(PRIORITY_CLASSES, body)).code == 201
        await setup.pod("a", priorityClassName="low", **using(4))
        await setup.pod("b", priorityClassName="low", **using(3))
        await setup.pod("preemptor", priorityClassName="middle", **using(6))
        assert (await setup.status("preemptor"))["nominatedNodeName"] == "n"
        await setup.pod("other", priorityClassName="low", **using(3))
        assert await setup.node_of("other") == "", "the free space is kept for the preemptor"
        await setup.pod("important", priorityClassName="high", **using(1))
        assert await setup.node_of("important") == "n", "more important pods can take any space"
        await setup.plane.advance(20)
        assert await setup.node_of("preemptor") == "n"
        assert await setup.node_of("other") == ""
        await setup.delete("preemptor")
        assert await setup.node_of("other") == "n", "the space is free without the preemptor"


async def test_nodes_that_a_test_creates_and_gated_pods() -> None:
    async with running({"nodes": []}) as setup:
        await setup.pod("p", schedulingGates=[{"name": "g"}])
        assert condition(await setup.status("p"), "PodScheduled")["reason"] == "SchedulingGated"
        await setup.api.merge(f"{PODS}/p", {"spec": {"schedulingGates": None}})
        assert (
            condition(await setup.status("p"), "PodScheduled")["message"]
            == "no nodes available to schedule pods"
        )
        await setup.api.post("/api/v1/nodes", {"metadata": {"name": "own"}})
        assert await setup.node_of("p") == "own"
        node = await setup.get("/api/v1/nodes/own")
        assert "taints" not in node["spec"]
        assert condition(node["status"], "Ready")["status"] == "True"


async def test_failures_of_pods_follow_the_clock() -> None:
    rules = [
        {"match": {"name": "crash"}, "containers": {"main": [{"after": 1, "reason": "OOMKilled"}]}},
        {"match": {"name": "image"}, "image": {"message": "denied"}},
        {
            "match": {"labels": {"retry": "yes"}, "start": [1]},
            "containers": {"*": [{"after": 5, "exitCode": 3}]},
        },
        {"match": {"labels": {"retry": "yes"}}, "containers": {"*": [{"after": 5}]}},
        {"match": {"name": "evicted"}, "evict": {"after": 60}},
        {"match": {"name": "slow"}, "startAfter": 30, "stopAfter": 20},
    ]
    async with running({"pods": rules}) as setup:
        for name in ("crash", "image", "evicted", "slow"):
            await setup.pod(name)
        for name in ("first", "second"):
            await setup.pod(name, labels={"retry": "yes"}, restartPolicy="Never")
        assert await setup.node_of("slow") == "envtest"
        await setup.plane.advance(15)
        crash = (await setup.status("crash"))["containerStatuses"][0]
        assert (crash["state"]["waiting"]["reason"], crash["restartCount"]) == (
            "CrashLoopBackOff",
            2,
        )
        assert crash["lastState"]["terminated"]["exitCode"] == 137
        image = (await setup.status("image"))["containerStatuses"][0]["state"]["waiting"]
        assert image == {
            "reason": "ImagePullBackOff",
            "message": 'Back-off pulling image "i": ErrImagePull: denied',
        }
        assert [(await setup.status(name))["phase"] for name in ("first", "second")] == [
            "Failed",
            "Succeeded",
        ]
        assert (await setup.status("slow"))["phase"] == "Pending"
        await setup.plane.advance(50)
        evicted = await setup.status("evicted")
        assert (evicted["phase"], evicted["reason"]) == ("Failed", "Evicted")
        assert (await setup.status("slow"))["phase"] == "Running"
        await setup.api.delete(f"{PODS}/slow")
        await setup.plane.advance(19)
        assert (await setup.api.get(f"{PODS}/slow")).code == 200
        await setup.plane.advance(2)
        assert (await setup.api.get(f"{PODS}/slow")).code == 404
        events = {
            (each["involvedObject"]["name"], each["reason"])
            for each in await setup.get("/api/v1/events")
        }
        assert {("crash", "BackOff"), ("image", "Failed"), ("evicted", "Evicted")} <= events


async def test_deleted_pod_remains_until_its_containers_have_stopped() -> None:
    rules = [{"match": {"name": "fast"}, "stopAfter": 0}]
    async with running({"pods": rules}) as setup:
        for name in ("slow", "fast", "forced", "impatient"):
            await setup.pod(name)
        await setup.pod("waits", containers=[{"name": "main", "image": "does-not-exist"}])
        grace = {"slow": 60, "fast": 60, "forced": 0, "impatient": 1, "waits": 60}
        for name, seconds in grace.items():
            options = {"gracePeriodSeconds": str(seconds)}
            deleted = await setup.api.delete(f"{PODS}/{name}", query=options)
            assert deleted.body["metadata"]["deletionGracePeriodSeconds"] == seconds
        await setup.plane.advance(0)
        pod = (await setup.api.get(f"{PODS}/slow")).body
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 60
        assert (pod["metadata"]["generation"], pod["status"]["phase"]) == (2, "Running")
        codes = [(await setup.api.get(f"{PODS}/{name}")).code for name in grace]
        assert [codes[1], codes[2], codes[4]] == [404, 404, 404], "nothing has to stop"
        await setup.plane.advance(1)
        assert (await setup.api.get(f"{PODS}/impatient")).code == 404, (
            "killed after its grace period"
        )
        await setup.plane.advance(1)
        assert (await setup.api.get(f"{PODS}/slow")).code == 404


@pytest.mark.parametrize(
    ("container", "phase"),
    [
        ({"image": "busybox"}, "Succeeded"),
        ({"image": "docker.io/library/busybox:1.37@sha256:" + "a" * 64}, "Succeeded"),
        ({"image": "registry:5000/e2e/alpine:3"}, "Succeeded"),
        ({"image": "busybox", "tty": True, "stdin": True}, "Running"),
        ({"image": "busybox", "command": ["sleep", "9"]}, "Running"),
        ({"image": "busybox", "args": ["top"]}, "Running"),
        ({"image": "nginx"}, "Running"),
    ],
)
async def test_shell_without_command_and_input_ends(container: dict[str, Any], phase: str) -> None:
    async with running({}) as setup:
        await setup.pod("p", containers=[{"name": "main", **container}], restartPolicy="Never")
        status = await setup.status("p")
        assert status["phase"] == phase
        if phase == "Succeeded":
            assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_a_lost_node_is_tainted_and_its_pods_are_evicted() -> None:
    failures = [{"after": 100, "reason": "Lost", "seconds": 900}]
    nodes = [{"name": "bad", "failures": failures}, {"name": "good", "unschedulable": True}]
    async with running({"nodes": nodes}) as setup:
        await setup.pod("p")
        await setup.pod(
            "tolerant",
            tolerations=[{"operator": "Exists"}],
            nodeSelector={"kubernetes.io/hostname": "bad"},
        )
        assert await setup.node_of("p") == "bad"
        await setup.plane.advance(101)
        node = await setup.get("/api/v1/nodes/bad")
        assert condition(node["status"], "Ready")["reason"] == "NodeStatusUnknown"
        assert {(each["key"], each["effect"]) for each in node["spec"]["taints"]} == {
            ("node.kubernetes.io/unreachable", "NoSchedule"),
            ("node.kubernetes.io/unreachable", "NoExecute"),
        }
        assert condition(await setup.status("p"), "Ready")["status"] == "False"
        await setup.plane.advance(300)
        pod = await setup.get(f"{PODS}/p")
        assert pod["metadata"]["deletionTimestamp"], (
            "the API server adds a toleration of 300 seconds"
        )
        assert condition(pod["status"], "DisruptionTarget")["reason"] == "DeletionByTaintManager"
        await setup.plane.advance(300)
        assert (await setup.api.get(f"{PODS}/p")).code == 200, (
            "its kubelet cannot confirm the deletion"
        )
        await setup.plane.advance(400)
        assert (await setup.api.get(f"{PODS}/p")).code == 404
        assert condition(await setup.status("tolerant"), "Ready")["status"] == "True"
        assert "taints" not in (await setup.get("/api/v1/nodes/bad"))["spec"]


async def test_pods_of_a_deleted_node_are_removed() -> None:
    async with running({}) as setup:
        await setup.pod("p")
        await setup.api.delete("/api/v1/nodes/envtest")
        await setup.plane.advance(39)
        assert (await setup.api.get(f"{PODS}/p")).code == 200
        await setup.plane.advance(2)
        assert (await setup.api.get(f"{PODS}/p")).code == 404


async def test_nothing_is_written_at_rest() -> None:
    controllers = (
        "gc",
        "endpoint",
        "endpointslice",
        "disruption",
        "persistentvolume",
        "csrsigning",
    )
    async with running({"pods": [{"match": {"name": "image"}, "image": {}}]}, controllers) as setup:
        for name in ("p", "image"):
            await setup.pod(name)
        await setup.plane.advance(60)
        revision = setup.plane.store.revision
        await setup.plane.advance(3000)
        assert setup.plane.store.revision == revision


async def test_a_copy_of_the_plane_continues_the_scenario() -> None:
    rules = [{"match": {"start": [1]}, "containers": {"*": [{"after": 30, "exitCode": 1}]}}]
    async with running({"pods": rules}) as setup:
        await setup.pod("p", restartPolicy="Never")
        async with setup.plane.fork() as copy, APIClient(copy) as api:
            other = Setup(copy, api)
            await copy.advance(31)
            assert (await other.status("p"))["phase"] == "Failed"
            await other.pod("q", restartPolicy="Never")
            await copy.advance(31)
            assert (await other.status("q"))["phase"] == "Running", (
                "it is the second pod that starts"
            )
        assert (await setup.status("p"))["phase"] == "Running"


def claim(name: str, storage_class: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": {**spec, "storageClassName": storage_class}}


async def test_claims_are_bound() -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    async with running({}, ("gc", "persistentvolume")) as setup:
        for name, mode in (("fast", "Immediate"), ("wait", "WaitForFirstConsumer")):
            storage_class = {
                "metadata": {"name": name},
                "provisioner": "envtest.cfo/provisioner",
                "volumeBindingMode": mode,
            }
            await setup.api.post("/apis/storage.k8s.io/v1/storageclasses", storage_class)
        for name in ("fast", "wait", "manual"):
            assert (await setup.api.post(claims, claim(name, name))).code == 201
        phases = {
            each["metadata"]["name"]: each["status"]["phase"] for each in await setup.get(claims)
        }
        assert phases == {"fast": "Bound", "wait": "Pending", "manual": "Pending"}
        spec = {
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
        }
        volume = {"metadata": {"name": "pv"}, "spec": {**spec, "storageClassName": "manual"}}
        await setup.api.post("/api/v1/persistentvolumes", volume)
        await setup.pod(
            "p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "wait"}}]
        )
        bound = {each["metadata"]["name"]: each for each in await setup.get(claims)}
        assert {each["status"]["phase"] for each in bound.values()} == {"Bound"}
        assert (bound["manual"]["spec"]["volumeName"], bound["manual"]["status"]["capacity"]) == (
            "pv",
            {"storage": "2Gi"},
        )
        assert bound["fast"]["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"

        for name in ("fast", "wait", "manual"):
            await setup.api.delete(f"{claims}/{name}")
        assert [each["metadata"]["name"] for each in await setup.get(claims)] == ["wait"], (
            "a pod uses it"
        )
        await setup.delete("p")
        assert await setup.get(claims) == []
        volumes = {
            each["metadata"]["name"]: each["status"]["phase"]
            for each in await setup.get("/api/v1/persistentvolumes")
        }
        assert volumes == {"pv": "Released"}


async def test_approved_requests_are_signed() -> None:
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    request = (
        x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    )
    text = base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()
    async with running({}, ("csrsigning",)) as setup:
        for name, usage in (
            ("good", "client auth"),
            ("bad", "server auth"),
            ("waiting", "client auth"),
        ):
            spec = {
                "request": text,
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": [usage],
            }
            created = (await setup.api.post(path, {"metadata": {"name": name}, "spec": spec})).body
            if name != "waiting":
                created["status"] = {
                    "conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]
                }
                assert (await setup.api.put(f"{path}/{name}/approval", created)).code == 200
        certificate = base64.b64decode((await setup.get(f"{path}/good"))["status"]["certificate"])
        authority = x509.load_pem_x509_certificate(setup.plane.ca_pem)
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(authority)
        failed = condition((await setup.get(f"{path}/bad"))["status"], "Failed")
        assert failed["message"] == "invalid usage for client certificate: server auth"
        assert "certificate" not in (await setup.get(f"{path}/waiting"))["status"]


async def test_services_list_their_pods() -> None:
    async with running(
        {"pods": [{"match": {"name": "b"}, "ready": False}]}, ("gc", "endpoint", "endpointslice")
    ) as setup:
        spec = {"selector": {"tier": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
        services = "/api/v1/namespaces/default/services"
        await setup.api.post(
            services, {"metadata": {"name": "s", "labels": {"own": "label"}}, "spec": spec}
        )
        for name in ("a", "b"):
            await setup.pod(name, labels={"tier": "web"})
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        (found,) = await setup.get(slices)
        ready = {
            each["targetRef"]["name"]: each["conditions"]["ready"] for each in found["endpoints"]
        }
        assert ready == {"a": True, "b": False}
        assert found["metadata"]["labels"]["own"] == "label"
        (subset,) = (await setup.get("/api/v1/namespaces/default/endpoints/s"))["subsets"]
        assert [each["targetRef"]["name"] for each in subset["addresses"]] == ["a"]
        assert [each["targetRef"]["name"] for each in subset["notReadyAddresses"]] == ["b"]
        for name in ("a", "b"):
            await setup.api.delete(f"{PODS}/{name}", query={"gracePeriodSeconds": "0"})
        (empty,) = await setup.get(slices)
        assert (empty["metadata"]["name"], empty["endpoints"]) == (found["metadata"]["name"], None)
        await setup.api.delete(f"{services}/s")
        assert await setup.get(slices) == []
        assert (await setup.api.get("/api/v1/namespaces/default/endpoints/s")).code == 404


def test_errors_in_the_file_of_the_option(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("nodes: [{name: node, capacity: {cpu: many}}]")
    result = CliRunner().invoke(command, ["--scenario", str(file)])
    assert result.exit_code == 2
    assert f'{file}: nodes[0].capacity.cpu: "many": must be a quantity' in result.output


async def test_a_plane_without_a_scenario() -> None:
    async with ControlPlane.embedded(controllers=()) as plane:
        with pytest.raises(RuntimeError, match="has no scenario"):
            _ = plane.scenario
