"""What the client costs: importing it, an apply that changes nothing, a request.

pytest -m bench test/bench/test_client.py -s
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import orjson
import pytest
import structlog

from cfo.envtest import ControlPlane
from cfo.runtime.client import Client, Transport, is_applied
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.objects import GVK, NamespacedName

pytestmark = pytest.mark.bench

KUBECONFIG = """
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'https://x'}}]
users: [{name: u, user: {token: abc}}]
"""
MEASURE = """
import asyncio, time
started = time.perf_counter()
%s
seconds = time.perf_counter() - started
import psutil
print(f"{seconds:5.2f} s {psutil.Process().memory_info().rss >> 20:4} MB")
"""
PROGRAMS = {
    "import aiohttp": "import aiohttp",
    "import cfo.runtime": "import cfo.runtime",
    "import cfo.runtime.client": "import cfo.runtime.client",
    "... and load a kubeconfig": "import cfo.runtime.client\nasyncio.run(cfo.runtime.client.load_config(FILE))",
    "... as kubernetes_asyncio does it": (
        "import cfo.runtime.client, kubernetes_asyncio.client, kubernetes_asyncio.config\n"
        "settings = kubernetes_asyncio.client.Configuration()\n"
        "asyncio.run(kubernetes_asyncio.config.load_kube_config(FILE, client_configuration=settings))"
    ),
    "from cfo.runtime import Manager": "from cfo.runtime import Manager",
}


def test_imports(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    for name, program in PROGRAMS.items():
        code = MEASURE % program.replace("FILE", repr(str(file)))
        runs = [
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
            for _ in range(3)
        ]
        print(f"{name:34} {min(runs).strip()}")


def test_an_apply_that_changes_nothing() -> None:
    labels = {f"label-{number}": "x" for number in range(5)}
    paths = [
        {
            "path": f"/{number}",
            "pathType": "Prefix",
            "backend": {"service": {"name": "s", "port": {"number": 8265}}},
        }
        for number in range(3)
    ]
    desired = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "a", "namespace": "b", "labels": labels},
        "spec": {"ingressClassName": "nginx", "rules": [{"host": "h", "http": {"paths": paths}}]},
    }
    owned = {
        "f:metadata": {"f:labels": {f"f:{name}": {} for name in labels}},
        "f:spec": {"f:ingressClassName": {}, "f:rules": {}},
    }
    managers = [{"manager": "m", "operation": "Apply", "apiVersion": "networking.k8s.io/v1", "fieldsV1": owned}]
    stored = orjson.dumps(desired)
    count = 20_000
    started = time.process_time()
    for _ in range(count):
        assert is_applied(desired, orjson.loads(stored), managers, "m")
    print(f"decode and compare an Ingress      {(time.process_time() - started) / count * 1e6:5.1f} us")


async def test_requests() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    count = 1_000
    async with ControlPlane.auto() as plane, Transport(plane.client_config()) as transport:
        client = Client(transport, RESTMapper(transport), field_manager="bench")
        gvk, key = GVK("", "v1", "Namespace"), NamespacedName("", "default")
        await client.get(gvk, key)
        started = time.perf_counter()
        for _ in range(count):
            await client.get(gvk, key)
        ours = time.perf_counter() - started
        url = f"{plane.url}/api/v1/namespaces/default"
        headers = {"Authorization": f"Bearer {plane.token}"}
        context = plane.client_config().ssl_context(await plane.client_config().authenticate())
        async with aiohttp.ClientSession(headers=headers) as session:
            started = time.perf_counter()
            for _ in range(count):
                async with session.get(url, ssl=context) as response:
                    orjson.loads(await response.read())
            bare = time.perf_counter() - started
    print(
        f"a get, the server's work included  {ours / count * 1e6:5.0f} us; by bare aiohttp {bare / count * 1e6:.0f} us"
    )
