"""Releases of the CodeFlare SDK against ``cfo run --embedded``; ``make test-sdk`` installs them and runs these tests.

``CODEFLARE_SDK`` is a directory with a virtual environment of each release: ``newest`` and ``oldest``. The SDK runs in
a process of its own, because its dependencies are not those of the operator. A proxy is the ingress controller: it
answers as Ray's dashboard, for the hosts of Ingresses only. To test another way to reach the dashboard (such as an
HTTPRoute), add its hosts to :func:`exposed_hosts`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime import GVK, POD, Client, NamespacedName, RESTMapper, Transport, load_config
from test.sdk import RELEASES
from test.support.raycluster_environment import eventually

SCENARIO = Path(__file__).with_name("scenario.py")
PAGE = Path(__file__).parents[2] / "docs" / "data-scientists.md"
INGRESS = GVK("networking.k8s.io", "v1", "Ingress")
NAMESPACE = GVK("", "v1", "Namespace")
DOMAIN = "apps.example.test"

pytestmark = [
    pytest.mark.skipif(
        not RELEASES.is_dir(), reason="CODEFLARE_SDK is not a directory (make test-sdk)"
    ),
    pytest.mark.timeout(300),
]

CASES = {
    "newest": ("newest",),
    "oldest": ("oldest",),
    "oldest-appwrapper": ("oldest", "--appwrapper"),
}
"""The namespace of each case, its release and the arguments of the scenario."""


@asynccontextmanager
async def run_operator(directory: Path) -> AsyncIterator[Client]:
    """Run a control plane, the operator and a fake KubeRay; yield a client when their webhooks serve."""
    kubeconfig, manifest = directory / "kubeconfig", directory / "namespaces.yaml"
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in CASES
    ]
    manifest.write_text(yaml.safe_dump_all(namespaces))
    command = (
        "-m",
        "cfo",
        "run",
        "--embedded",
        "--kubeconfig",
        str(kubeconfig),
        "--apply",
        str(manifest),
    )
    with (directory / "operator.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=log, stderr=log
        )
    try:

        async def has_written_kubeconfig() -> bool:
            assert process.returncode is None, (directory / "operator.log").read_text()
            return kubeconfig.is_file()

        await eventually(has_written_kubeconfig, "the kubeconfig")
        async with Transport(await load_config(str(kubeconfig))) as transport:
            client = Client(transport, RESTMapper(transport), field_manager="tester")

            async def has_namespaces() -> bool:
                return all(
                    [await client.get(NAMESPACE, NamespacedName("", name)) for name in CASES]
                )

            await eventually(has_namespaces, "the namespaces")
            yield client
    finally:
        process.terminate()
        await process.wait()


async def exposed_hosts(client: Client) -> dict[str, str]:
    """Return the Services of the dashboards, by the host that exposes them."""
    found: dict[str, str] = {}
    for ingress in await client.list(INGRESS):
        for rule in ingress["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                found[rule["host"]] = path["backend"]["service"]["name"]
    return found


@asynccontextmanager
async def run_ingress_controller(client: Client, requests: list[str]) -> AsyncIterator[str]:
    """Run a proxy that answers as Ray's dashboard for each exposed host; record the URLs of ``requests``."""

    async def answer(request: web.Request) -> web.Response:
        requests.append(f"{request.host}{request.path}")
        if request.host not in await exposed_hosts(client):
            return web.Response(status=404)
        if request.path == "/api/version":
            return web.json_response(
                {"version": "4", "ray_version": "2.50.0", "ray_commit": "", "session_name": ""}
            )
        return web.json_response([])

    server = web.Server(answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def run_scenario(directory: Path, proxy: str, case: str) -> dict[str, Any]:
    """Run the scenario in the environment of a release, and return what the SDK returned."""
    release, *arguments = CASES[case]
    directory = directory / case
    directory.mkdir()
    variables = {**os.environ, "HOME": str(directory), "http_proxy": proxy, "no_proxy": "127.0.0.1"}
    process = await asyncio.create_subprocess_exec(
        str(RELEASES.resolve() / release / "bin/python"),
        str(SCENARIO),
        str(directory.parent / "kubeconfig"),
        case,
        *arguments,
        cwd=directory,
        env=variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, f"{output.decode()}\n{errors.decode()}"
    result: dict[str, Any] = json.loads(errors.decode().splitlines()[-1])
    return result


async def test_sdk_creates_reaches_and_deletes_clusters(tmp_path: Path) -> None:
    requests: list[str] = []
    async with run_operator(tmp_path) as client, run_ingress_controller(client, requests) as proxy:
        for case in CASES:
            result = await run_scenario(tmp_path, proxy, case)
            host = f"ray-dashboard-sdk-{case}.{DOMAIN}"
            assert result == {
                "status": "READY",
                "ready": True,
                "listed": ["sdk"],
                "found": ["sdk", 1],
                "dashboard": f"http://{host}",
                "dashboard_ready": True,
                "client": f"ray://rayclient-sdk-{case}.{DOMAIN}",
                "job_client": f"http://{host}",
                "jobs": [],
                "certificates": ["ca.crt", "tls.crt"],
            }, case
            assert {f"{host}/api/version", f"{host}/api/jobs/"} <= set(requests)

        async def is_everything_deleted() -> bool:
            for gvk in (RAY_CLUSTER, APPWRAPPER, INGRESS, POD):
                left = [
                    obj["metadata"]
                    for obj in await client.list(gvk)
                    if obj["metadata"]["namespace"] in CASES
                ]
                assert not left, (gvk, left)
            return True

        await eventually(is_everything_deleted, "the deletion of all objects")


async def test_program_on_the_page_for_data_scientists_runs(tmp_path: Path) -> None:
    (program,) = re.findall(
        r"```python\n(# first_cluster.py\n.*?)```", PAGE.read_text(), flags=re.DOTALL
    )
    async with run_operator(tmp_path) as client:
        await client.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "my-team"}}
        )
        process = await asyncio.create_subprocess_exec(
            *(str(RELEASES.resolve() / "newest/bin/python"), "-c", program),
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "kubeconfig")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        host = f"my-cluster-my-team.{DOMAIN}"
        assert f"https://ray-dashboard-{host} ray://rayclient-{host}" in output.decode()

        async def is_deleted() -> bool:
            return await client.get(RAY_CLUSTER, NamespacedName("my-team", "my-cluster")) is None

        await eventually(is_deleted, "the deletion of the RayCluster")
