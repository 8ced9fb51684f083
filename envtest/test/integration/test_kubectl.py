"""Common kubectl commands on a control plane; skipped if kubectl is not installed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from envtest import ControlPlane

KUBECTL = shutil.which("kubectl") or ""
pytestmark = [
    pytest.mark.skipif(not KUBECTL, reason="kubectl is not on the PATH"),
    pytest.mark.timeout(180),
]

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns:
    - {name: Size, type: string, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: string, description: How big it is., enum: [small, big]}
              replicas: {type: integer, default: 1}
          status: {type: object, properties: {replicas: {type: integer}}}
"""
WIDGET = """
apiVersion: example.com/v1
kind: Widget
metadata: {name: one}
spec: {size: small}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: nginx, ports: [{containerPort: 80}]}]
"""


class Kubectl:
    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._base = [
            KUBECTL,
            "--kubeconfig",
            str(kubeconfig),
            "--cache-dir",
            str(folder / "cache"),
        ]
        self._folder = folder

    async def run(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        """Run kubectl and check its exit code; return its standard output and error together."""
        process = await asyncio.create_subprocess_exec(
            *self._base,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(self._folder)},
        )
        out, _ = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
        output = out.decode()
        assert process.returncode == code, (
            f"kubectl {' '.join(arguments)}: {process.returncode}\n{output}"
        )
        return output


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with ControlPlane.auto() as plane:
        plane.kubeconfig(tmp_path / "kubeconfig")
        yield Kubectl(tmp_path / "kubeconfig", tmp_path)


async def test_apply_diff_edit_and_delete(kubectl: Kubectl) -> None:
    assert "deployment.apps/web created" in await kubectl.run("apply", "-f", "-", stdin=DEPLOYMENT)
    assert "deployment.apps/web unchanged" in await kubectl.run(
        "apply", "-f", "-", stdin=DEPLOYMENT
    )
    changed = DEPLOYMENT.replace("replicas: 2", "replicas: 3")
    assert "+  replicas: 3" in await kubectl.run("diff", "-f", "-", stdin=changed, code=1)
    assert "configured" in await kubectl.run("apply", "-f", "-", stdin=changed)
    assert "serverside-applied" in await kubectl.run(
        "apply", "--server-side", "-f", "-", stdin=changed
    )
    wide = await kubectl.run("get", "deploy", "-o", "wide")
    assert "0/3" in wide
    assert "app=web" in wide
    assert "scaled" in await kubectl.run("scale", "deploy/web", "--replicas=1")
    assert "patched" in await kubectl.run("patch", "deploy/web", "-p", '{"spec":{"paused":true}}')
    assert "labeled" in await kubectl.run("label", "deploy/web", "tier=front")
    assert "annotated" in await kubectl.run("annotate", "deploy/web", "note=this")
    assert "Labels:                 app=web" in await kubectl.run("describe", "deploy/web")
    await kubectl.run("delete", "deploy/web", "--cascade=orphan")
    assert "No resources found" in await kubectl.run("get", "deploy")


async def test_commands_on_custom_resources(kubectl: Kubectl) -> None:
    assert "created" in await kubectl.run("apply", "-f", "-", stdin=WIDGETS)
    await kubectl.run(
        "wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=10s"
    )
    assert "widget.example.com/one created" in await kubectl.run("apply", "-f", "-", stdin=WIDGET)
    table = await kubectl.run("get", "wd")
    assert table.splitlines()[0].split() == ["NAME", "SIZE"]
    assert table.splitlines()[1].split() == ["one", "small"]
    wrong = await kubectl.run("apply", "-f", "-", stdin=WIDGET.replace("small", "huge"), code=1)
    assert 'Unsupported value: "huge": supported values: "small", "big"' in wrong
    unknown = await kubectl.run("apply", "-f", "-", stdin=WIDGET.replace("size", "sise"), code=1)
    assert 'unknown field "spec.sise"' in unknown
    assert "How big it is." in await kubectl.run("explain", "widgets.spec.size")
    assert "scaled" in await kubectl.run("scale", "widget/one", "--replicas=4")
    assert await kubectl.run("get", "wd/one", "-o", "jsonpath={.spec.replicas}") == "4"
    await kubectl.run("delete", "wd/one", "--wait")
    await kubectl.run("delete", "crd/widgets.example.com", "--wait")
    assert "could not find the requested resource" in await kubectl.run("get", "widgets", code=1)


async def test_create_commands_send_protobuf(kubectl: Kubectl) -> None:
    await kubectl.run("create", "namespace", "team")
    await kubectl.run("create", "configmap", "settings", "--from-literal=a=b", "-n", "team")
    assert (
        await kubectl.run("get", "cm/settings", "-n", "team", "-o", "jsonpath={.data}")
        == '{"a":"b"}'
    )
    await kubectl.run("create", "deployment", "web", "--image=nginx", "--replicas=2", "-n", "team")
    image = "jsonpath={.spec.template.spec.containers[0].image}/{.spec.replicas}"
    assert await kubectl.run("get", "deploy/web", "-n", "team", "-o", image) == "nginx/2"
    await kubectl.run(
        "create", "role", "reader", "--verb=get,list", "--resource=pods", "-n", "team"
    )
    await kubectl.run("create", "serviceaccount", "robot", "-n", "team")
    await kubectl.run(
        "create", "rolebinding", "r", "--role=reader", "--serviceaccount=team:robot", "-n", "team"
    )
    robot = "--as=system:serviceaccount:team:robot"
    assert (
        await kubectl.run("auth", "can-i", "list", "pods", robot, "-n", "team")
    ).strip() == "yes"
    assert (
        await kubectl.run("auth", "can-i", "delete", "pods", robot, "-n", "team", code=1)
    ).strip() == "no"
    assert (await kubectl.run("create", "token", "robot", "-n", "team")).count(".") == 2


async def test_discovery_explain_and_raw_paths(kubectl: Kubectl) -> None:
    resources = await kubectl.run("api-resources")
    assert "networkpolicies" in resources
    assert "apps/v1" in await kubectl.run("api-versions")
    assert "Server Version: v1." in await kubectl.run("version")
    explained = await kubectl.run("explain", "deployment.spec.replicas")
    assert "integer" in explained
    assert "FIELDS" in await kubectl.run("explain", "pods.spec")
    assert "No events found" in await kubectl.run("events")
    assert "default" in await kubectl.run("get", "namespaces")
    assert "ok" in await kubectl.run("get", "--raw", "/readyz")
    assert "[+]ping ok" in await kubectl.run("get", "--raw", "/readyz?verbose")
    refused = await kubectl.run("get", "nosuchthings", code=1)
    assert "the server doesn't have a resource type" in refused
    assert "(NotFound)" in await kubectl.run("get", "cm", "nosuch", code=1)


async def test_get_watch_and_wait(kubectl: Kubectl) -> None:
    await kubectl.run("create", "configmap", "one")
    watching = asyncio.create_task(
        kubectl.run("get", "cm", "-w", "--request-timeout=3s", "--no-headers", code=0)
    )
    waiting = asyncio.create_task(kubectl.run("wait", "--for=delete", "cm/one", "--timeout=20s"))
    await asyncio.sleep(0)
    await kubectl.run("create", "configmap", "two")
    await kubectl.run("delete", "configmap", "one")
    await waiting
    assert "two" in await watching
