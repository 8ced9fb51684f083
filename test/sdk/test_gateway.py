"""The newest CodeFlare SDK creates, lists, locates and deletes a RayCluster, through Ingresses and through a Gateway.

``CODEFLARE_SDK`` is the directory that :mod:`test.sdk.test_codeflare_sdk` describes.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from cfo.api.gateway import GATEWAY, GROUP
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime.objects.kinds import INGRESS
from test.sdk import RELEASES
from test.support.gateways import GATEWAY_CRDS, GATEWAY_SETTINGS
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    crd,
    kuberay_config,
    run_controllers,
    start_environment,
)

PYTHON = RELEASES / "newest" / "bin" / "python"
SESSION = Path(__file__).with_name("session.py")
GATEWAY_CRD = crd(GROUP, "v1", "Gateway", "gateways")
HOST = "ray.apps.test"
SHARED_HOST = {**GATEWAY_SETTINGS, "dashboardHost": HOST}

pytestmark = [
    pytest.mark.skipif(
        not RELEASES.is_dir(), reason="CODEFLARE_SDK is not a directory (make test-sdk)"
    ),
    pytest.mark.timeout(300),
]


async def run_sdk(env: Environment, directory: Path, action: str) -> Any:
    """Run one action of the session, and return what it printed last."""
    env.plane.kubeconfig(directory / "kubeconfig")
    variables = {
        "KUBECONFIG": str(directory / "kubeconfig"),
        "HOME": str(directory),
        "PATH": os.environ["PATH"],
    }
    process = await asyncio.create_subprocess_exec(
        PYTHON,
        SESSION,
        action,
        "rc",
        "ns",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=variables,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, f"{output.decode()}\n{errors.decode()}"
    return json.loads(output.decode().splitlines()[-1])


async def create_gateway(env: Environment) -> None:
    """Create the Gateway of the settings; the SDK reads the host of its first listener."""
    listeners = [{"name": "https", "port": 443, "protocol": "HTTPS", "hostname": HOST}]
    metadata = {"name": "shared", "namespace": await env.create_namespace("gateways")}
    await env.create(
        {
            "apiVersion": GATEWAY.api_version,
            "kind": "Gateway",
            "metadata": metadata,
            "spec": {"listeners": listeners},
        }
    )


@pytest.mark.parametrize(
    ("settings", "dashboard", "ingresses"),
    [
        ({}, "http://ray-dashboard-rc-ns.apps.test", {"ray-dashboard-rc", "rayclient-rc"}),
        ({"gateway": SHARED_HOST}, f"https://{HOST}/ray/ns/rc", set()),
    ],
    ids=["ingress", "gateway"],
)
async def test_sdk_creates_lists_locates_and_deletes_a_cluster(
    settings: dict[str, Any], dashboard: str, ingresses: set[str], tmp_path: Path
) -> None:
    async with start_environment(*VANILLA_CRDS, *GATEWAY_CRDS, GATEWAY_CRD) as env:
        await env.create_namespace()
        await create_gateway(env)
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS, **settings)):
            await run_sdk(env, tmp_path, "create")
            await env.wait_until_idle()
            assert await env.child_names(INGRESS) == ingresses
            found = await run_sdk(env, tmp_path, "describe")
            assert found["dashboard"] == dashboard
            assert list(found["listed"]) == ["rc"]
            assert await run_sdk(env, tmp_path, "delete") == {"listed": []}
            assert await env.find(RAY_CLUSTER, "rc") is None
