"""The specs of kubectl, with the kubectl of this machine."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from envtest import ControlPlane
from test.conformance.client import SpecClient
from test.conformance.specs import plays
from test.conformance.test_custom_resources import KUBECTL, kubectl
from test.conformance.test_garbage_collector import controller

pytestmark = pytest.mark.skipif(not KUBECTL, reason="kubectl is not on the PATH")

HTTPD, BUSYBOX = (
    "registry.k8s.io/e2e-test-images/httpd:2.4.38-4",
    "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
)


class Command:
    """Runs kubectl in the namespace of a test."""

    def __init__(self, plane: ControlPlane, folder: Path, namespace: str) -> None:
        self._plane, self._folder, self.namespace = plane, folder, namespace

    async def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """Run a command that ends with ``code``, and return what it prints."""
        words = ("--namespace", self.namespace, *arguments)
        returned, output = await kubectl(self._plane, self._folder, *words, stdin=stdin)
        assert returned == code, output
        return output


@pytest.fixture
async def command(cluster: ControlPlane, tmp_path: Path, namespace: str) -> Command:
    return Command(cluster, tmp_path, namespace)


@plays(
    "Kubectl client Kubectl api-versions should check if v1 is in available api versions",
    "Kubectl client Kubectl cluster-info should check if Kubernetes control plane services is included in cluster-info",
    "Kubectl client Kubectl version should check is all data is printed",
)
async def test_information_about_the_server(command: Command) -> None:
    assert "v1" in (await command("api-versions")).splitlines()
    assert "Kubernetes control plane" in await command("cluster-info")
    versions, _ = json.JSONDecoder().raw_decode(
        await command("version", "--output=json")
    )  # a warning may follow
    assert versions["serverVersion"].keys() >= {
        "major",
        "minor",
        "gitCommit",
        "gitVersion",
        "goVersion",
        "platform",
    }


@plays(
    "Kubectl client Kubectl run pod should create a pod from an image when restart is Never",
    "Kubectl client Kubectl replace should update a single-container pod's image",
    "Kubectl client Kubectl server-side dry-run should check if kubectl can dry-run update Pods",
    "Kubectl client Kubectl label should update the label on a resource",
)
async def test_pods_are_run_replaced_and_labeled(client: SpecClient, command: Command) -> None:
    one = f"/api/v1/namespaces/{command.namespace}/pods/e2e-pod"
    await command("run", "e2e-pod", "--restart=Never", f"--image={HTTPD}", "--labels=run=e2e-pod")
    created = await client.read(one)
    assert (created["spec"]["restartPolicy"], created["spec"]["containers"][0]["image"]) == (
        "Never",
        HTTPD,
    )
    await command("wait", "--for=condition=Ready", "pod/e2e-pod", "--timeout=30s")
    patch = json.dumps({"spec": {"containers": [{"name": "e2e-pod", "image": BUSYBOX}]}})
    await command("patch", "pod", "e2e-pod", "-p", patch, "--dry-run=server")
    assert (await client.read(one))["spec"]["containers"][0]["image"] == HTTPD
    text = await command("get", "pod", "e2e-pod", "-o", "json")
    await command("replace", "-f", "-", stdin=text.replace(HTTPD, BUSYBOX))
    assert (await client.read(one))["spec"]["containers"][0]["image"] == BUSYBOX
    await command("label", "pods", "e2e-pod", "testing-label=testing-label-value")
    assert "testing-label-value" in await command("get", "pod", "e2e-pod", "-L", "testing-label")
    await command("label", "pods", "e2e-pod", "testing-label-")
    assert "testing-label-value" not in await command(
        "get", "pod", "e2e-pod", "-L", "testing-label"
    )


@plays(
    "Kubectl client Kubectl describe should check if kubectl describe prints relevant information for rc and pods",
    "Kubectl client Kubectl patch should add annotations for pods in rc",
    "Kubectl client Kubectl expose should create services for rc",
)
async def test_replication_controllers(client: SpecClient, command: Command) -> None:
    core = f"/api/v1/namespaces/{command.namespace}"
    labels = {"app": "agnhost", "role": "primary"}
    body = controller("agnhost-primary", 1, labels)
    port = {"name": "agnhost-server", "containerPort": 6379}
    body["spec"]["template"]["spec"] = {
        "containers": [{"name": "agnhost-primary", "image": "agnhost:2", "ports": [port]}]
    }
    await command("create", "-f", "-", stdin=json.dumps(body))
    await client.eventually(
        f"{core}/replicationcontrollers/agnhost-primary",
        lambda body: body["status"].get("readyReplicas") == 1,
    )
    service = {"ports": [{"port": 6379, "targetPort": "agnhost-server"}], "selector": labels}
    metadata = {"name": "agnhost-primary", "labels": labels}
    text = json.dumps(
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service}
    )
    await command("create", "-f", "-", stdin=text)
    (name,) = await client.names(f"{core}/pods")
    node = (await client.read(f"{core}/pods/{name}"))["spec"]["nodeName"]
    for what, patterns in {
        f"pod {name}": (
            "Name:",
            "Namespace:",
            "Node:",
            "Labels:.*app=agnhost",
            "role=primary",
            "Status:.*Running",
            "IP:",
        ),
        "rc agnhost-primary": (
            "Selector:.*app=agnhost,role=primary",
            "Replicas:.*1 current.*1 desired",
            "Pods Status:.*1 Running",
            "Pod Template:",
            "Image:",
            "Events:",
        ),
        "service agnhost-primary": (
            "Selector:",
            "Type:.*ClusterIP",
            "IP:",
            "Port:",
            "Endpoints:",
            "Session Affinity:",
        ),
        f"node {node}": (
            "Labels:",
            "Conditions:",
            "Ready",
            "Addresses:",
            "Capacity:",
            "Kubelet Version:",
            "System Info:",
        ),
        f"namespace {command.namespace}": (
            "Name:",
            "Labels:",
            "Annotations:",
            "Status:.*Active",
            "No resource quota",
        ),
    }.items():
        described = await command("describe", *what.split(" "))
        assert [pattern for pattern in patterns if not re.search(pattern, described)] == [], (
            described
        )
    await command("patch", "pod", name, "-p", '{"metadata":{"annotations":{"x":"y"}}}')
    assert (await client.read(f"{core}/pods/{name}"))["metadata"]["annotations"]["x"] == "y"
    await command(
        "expose", "rc", "agnhost-primary", "--name=rm2", "--port=1234", "--target-port=6379"
    )
    await command("expose", "service", "rm2", "--name=rm3", "--port=2345", "--target-port=6379")
    for service_name, number in (("rm2", 1234), ("rm3", 2345)):
        (exposed,) = (await client.read(f"{core}/services/{service_name}"))["spec"]["ports"]
        assert (exposed["port"], exposed["targetPort"]) == (number, 6379)
        await client.eventually(
            f"{core}/endpoints/{service_name}",
            lambda body: [each["ports"][0]["port"] for each in body.get("subsets") or ()] == [6379],
        )


@plays(
    "Kubectl client Kubectl diff should check if kubectl diff finds a difference for Deployments"
)
async def test_diff(command: Command) -> None:
    labels = {"app": "httpd"}
    template: dict[str, Any] = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "httpd", "image": HTTPD}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    body = json.dumps(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "httpd"}, "spec": spec}
    )
    await command("create", "-f", "-", stdin=body)
    difference = await command("diff", "-f", "-", stdin=body.replace(HTTPD, BUSYBOX), code=1)
    assert f"image: {HTTPD}" in difference
    assert f"image: {BUSYBOX}" in difference


@plays(
    "Kubectl client Proxy server should support --unix-socket=/path",
    "Kubectl client Proxy server should support proxy with --port 0",
)
@pytest.mark.parametrize("socket", [True, False])
async def test_proxy(cluster: ControlPlane, tmp_path: Path, socket: bool) -> None:
    cluster.kubeconfig(tmp_path / "kubeconfig")
    path = tmp_path / "socket"
    flags = [f"--unix-socket={path}"] if socket else ["--port=0", "--disable-filter"]
    environment = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "HOME": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(
        KUBECTL,
        "proxy",
        *flags,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        assert process.stdout is not None
        line = ""
        while not line.startswith("Starting to serve"):
            line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
        connector = aiohttp.UnixConnector(str(path)) if socket else None
        address = "127.0.0.1" if socket else line.strip().rpartition(" ")[2]
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"http://{address}/api/") as response,
        ):
            assert (await response.json())["versions"] == ["v1"]
    finally:
        process.terminate()
        await process.wait()
