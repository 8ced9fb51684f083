"""An installation of the operator: manifests applied with kubectl, the operator run with its service account."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from cfo.manifests.names import DEFAULT_NAMESPACE, SERVICE_ACCOUNT
from cfo.operator import CONFIG_MAP_NAME
from cfo.runtime.client.api_request import APIRequest
from envtest.embedded import EmbeddedControlPlane
from test.support.operator_process import Operator
from test.support.raycluster_environment import (
    Environment,
)

ROOT = Path(__file__).parents[2]


USER = f"system:serviceaccount:{DEFAULT_NAMESPACE}:{SERVICE_ACCOUNT}"


async def kubectl(there: Environment, directory: Path, *arguments: str, stdin: str = "") -> tuple[int, str]:
    """Runs kubectl against the world as an administrator: exit code, and all that it said."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed")
    kubeconfig = directory / "admin.kubeconfig"
    there.plane.kubeconfig(kubeconfig)
    process = await asyncio.create_subprocess_exec(
        *(program, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig), "HOME": str(directory)},
        cwd=ROOT,
    )
    output, _ = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return process.returncode, output.decode()


async def install(there: Environment, directory: Path, folder: str = "config/default") -> None:
    """Installs it as the README says."""
    code, built = await kubectl(there, directory, "kustomize", folder)
    assert code == 0, built
    code, said = await kubectl(there, directory, "apply", "--server-side", "-f", "-", stdin=built)
    assert code == 0, said


async def service_account(there: Environment, directory: Path) -> Path:
    """What a pod of the operator finds in its file system: token, authority, namespace."""
    resource = f"{there.plane.url}/api/v1/namespaces/{DEFAULT_NAMESPACE}/serviceaccounts/{SERVICE_ACCOUNT}/token"
    answer = await there.client.transport.request(
        APIRequest(
            "POST",
            urlsplit(resource).path,
            body=b'{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}',
        )
    )
    folder = directory / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text(yaml.safe_load(answer.body)["status"]["token"])
    (folder / "ca.crt").write_bytes(there.plane.ca_pem)
    (folder / "namespace").write_text(DEFAULT_NAMESPACE)
    return folder


@asynccontextmanager
async def in_cluster(there: Environment, directory: Path, *arguments: str) -> AsyncIterator[Operator]:
    """Runs ``cfo run`` as in a pod: with the files and the environment of one, and nothing else."""
    server = urlsplit(there.plane.url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cfo", "run", "--log-format", "json", *arguments),
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(directory / "nobody"),
            "NAMESPACE": DEFAULT_NAMESPACE,
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "CFO_SERVICE_ACCOUNT_DIR": str(await service_account(there, directory)),
            "PYTHONPATH": str(ROOT),
        },
        cwd=directory,
        stderr=asyncio.subprocess.PIPE,
    )
    running = Operator(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.terminate()
        await running.exit_code()


async def configure(there: Environment, **sections: Any) -> None:
    """Brings the ConfigMap, with endpoints on ports that are free."""
    loopback = {"bindAddress": "127.0.0.1:0"}
    document = yaml.safe_dump({"metrics": loopback, "health": loopback, **sections})
    metadata = {"namespace": DEFAULT_NAMESPACE, "name": CONFIG_MAP_NAME}
    await there.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": document}}
    )


def events_of_the_operator(there: Environment) -> list[dict[str, Any]]:
    if not isinstance(there.plane, EmbeddedControlPlane):
        pytest.skip("the audit log of the real API server is not collected")
    return [event for event in there.plane.audit.events if event["user"]["username"] == USER]
