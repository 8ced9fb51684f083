"""Install the operator: apply its manifests, and run ``cfo run`` with its service account."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from cfo.manifests.names import DEFAULT_NAMESPACE, SERVICE_ACCOUNT
from cfo.manifests.overlays import render
from cfo.runtime.client.transport import APIRequest
from cfo.runtime.objects.kinds import (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.objects.unstructured import Object
from cfo.version import CONFIG_MAP_NAME
from envtest import EmbeddedControlPlane
from test.support.manifests import dump_all, load_all
from test.support.operator_process import OperatorProcess
from test.support.planes import apply_all
from test.support.preloaded import PreloadedCommand, run_preloaded
from test.support.raycluster_environment import Environment, start_environment

ROOT = Path(__file__).parents[2]
OPERATOR_USER = f"system:serviceaccount:{DEFAULT_NAMESPACE}:{SERVICE_ACCOUNT}"


async def kubectl(
    environment: Environment, directory: Path, *arguments: str, stdin: str = ""
) -> tuple[int, str]:
    """Run kubectl as an administrator; return its exit code and its output (stdout and stderr).

    Skips the test if kubectl is not installed.
    """
    executable = shutil.which("kubectl")
    if executable is None:
        pytest.skip("kubectl is not installed")
    kubeconfig = directory / "admin.kubeconfig"
    environment.plane.kubeconfig(kubeconfig)
    process = await asyncio.create_subprocess_exec(
        *(executable, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig), "HOME": str(directory)},
        cwd=ROOT,
    )
    output, _ = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return process.returncode, output.decode()


@asynccontextmanager
async def start_installation(
    *crds: Object, before: Sequence[Object] = (), components: Sequence[str] = ()
) -> AsyncIterator[Environment]:
    """Run a control plane with these CRDs, the objects ``before``, and then the operator with ``components``.

    Without a running operator, its webhooks refuse objects of the kinds in ``before`` later.
    """
    objects = [*before, *render(components=components)]
    async with start_environment(*crds, objects=objects) as environment:
        yield environment


async def install(environment: Environment, components: Sequence[str] = ()) -> None:
    """Install the operator with ``components`` as :func:`install_with_kubectl`, but without the time of kubectl."""
    await apply_all(environment.plane, render(components=components))


async def webhook_configurations(environment: Environment) -> list[Object]:
    """Return all webhook configurations of the API server."""
    found: list[Object] = []
    for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
        found += await environment.client.list(kind, live=True)
    return found


async def delete_webhooks(environment: Environment) -> None:
    """Delete the webhook configurations of an operator that does not run, so that objects can be written."""
    for configuration in await webhook_configurations(environment):
        await environment.delete(configuration)


async def install_with_kubectl(
    environment: Environment, directory: Path, components: Sequence[str] = ()
) -> None:
    """Install the operator as the README describes: kustomize and apply ``config/default``, and ``components``."""
    code, manifests = await kubectl(environment, directory, "kustomize", "config/default")
    assert code == 0, manifests
    known = {(obj["kind"], obj["metadata"]["name"]) for obj in load_all(manifests)}
    added = [
        obj
        for obj in render(components=components)
        if (obj["kind"], obj["metadata"]["name"]) not in known
    ]
    if added:
        manifests += "---\n" + dump_all(added)
    code, output = await kubectl(
        environment, directory, "apply", "--server-side", "-f", "-", stdin=manifests
    )
    assert code == 0, output


async def write_service_account_files(
    environment: Environment, directory: Path, namespace: str = DEFAULT_NAMESPACE
) -> Path:
    """Write the files that a pod of the operator has mounted: token, CA certificate and namespace."""
    token_url = f"{environment.plane.url}/api/v1/namespaces/{namespace}/serviceaccounts/{SERVICE_ACCOUNT}/token"
    response = await environment.client.transport.request(
        APIRequest(
            "POST",
            urlsplit(token_url).path,
            body=b'{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}',
        )
    )
    folder = directory / f"serviceaccount-{namespace}"
    folder.mkdir()
    (folder / "token").write_text(yaml.safe_load(response.body)["status"]["token"])
    (folder / "ca.crt").write_bytes(environment.plane.ca_pem)
    (folder / "namespace").write_text(namespace)
    return folder


@asynccontextmanager
async def run_in_cluster(
    environment: Environment, directory: Path, *arguments: str, namespace: str = DEFAULT_NAMESPACE
) -> AsyncIterator[OperatorProcess]:
    """Run ``cfo run`` as in a pod: only with the files and environment variables that a pod has."""
    server = urlsplit(environment.plane.url)
    process = await PreloadedCommand.start(
        "run",
        "--log-format",
        "json",
        *arguments,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(directory / "empty-home"),
            "NAMESPACE": namespace,
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "CFO_SERVICE_ACCOUNT_DIR": str(
                await write_service_account_files(environment, directory, namespace)
            ),
        },
        cwd=directory,
    )
    running = OperatorProcess(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.terminate()
        await running.exit_code()


async def run_uninstall(
    environment: Environment,
    directory: Path,
    *arguments: str,
    code: int = 0,
    stdin: int | None = None,
) -> str:
    """Run ``cfo uninstall`` as an administrator, assert its exit code, and return its output.

    ``stdin`` is the number of a file; without it, the command is run with ``--yes``.
    """
    kubeconfig = directory / "admin.kubeconfig"
    environment.plane.kubeconfig(kubeconfig)
    command = (
        "uninstall",
        "--kubeconfig",
        str(kubeconfig),
        *arguments,
        *(["--yes"] if stdin is None else []),
    )
    found, output = await run_preloaded(*command, env=os.environ, cwd=ROOT, stdin=stdin)
    assert found == code, output
    return output


async def create_config_map(environment: Environment, **sections: Any) -> None:
    """Create the operator's ConfigMap from ``sections``; the metrics and health servers bind to free ports."""
    loopback = {"bindAddress": "127.0.0.1:0"}
    document = yaml.safe_dump({"metrics": loopback, "health": loopback, **sections})
    metadata = {"namespace": DEFAULT_NAMESPACE, "name": CONFIG_MAP_NAME}
    await environment.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"config.yaml": document},
        }
    )


def operator_audit_events(environment: Environment) -> list[dict[str, Any]]:
    """Return the audit events of the operator's requests; skip the test on a real API server."""
    if not isinstance(environment.plane, EmbeddedControlPlane):
        pytest.skip("the audit log of the real API server is not collected")
    return [
        event
        for event in environment.plane.audit.events
        if event["user"]["username"] == OPERATOR_USER
    ]
