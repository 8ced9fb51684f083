"""How fast the embedded control plane is: ready, creates, memory, fan-out. Prints; judges nothing."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psutil
import pytest

from cfo.envtest import ControlPlane

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

TOKEN = "bench"
GROUP = "bench.example.com"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
WIDGETS = f"/apis/{GROUP}/v1/namespaces/default/widgets"


def widget(number: int) -> bytes:
    """A custom resource of some 5 kB, with the texture of a real one."""
    containers = [
        {
            "name": f"container-{index}",
            "image": f"registry.example.com/some/image:{index}",
            "env": [{"name": f"VARIABLE_{each}", "value": f"value-{each}"} for each in range(20)],
            "resources": {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}},
        }
        for index in range(4)
    ]
    obj = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": f"widget-{number:05}", "labels": {"app": "bench", "shard": str(number % 10)}},
        "spec": {"template": {"spec": {"containers": containers}}},
    }
    return orjson.dumps(obj)


class Server:
    """The control plane in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        crds = folder / "crd.json"
        crds.write_bytes(orjson.dumps(CRD))
        started = time.perf_counter()
        command = [sys.executable, "-m", "cfo.envtest", "--token", TOKEN, "--controllers", "none", "--crds", str(crds)]
        self.process = subprocess.Popen(
            [*command, "--kubeconfig", str(self.kubeconfig)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]
        self.ready_seconds = time.perf_counter() - started
        self.stats = psutil.Process(self.process.pid)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture
def server(tmp_path: Path) -> Any:
    running = Server(tmp_path)
    yield running
    running.stop()


def session(url: str, connections: int) -> aiohttp.ClientSession:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return aiohttp.ClientSession(
        url,
        connector=aiohttp.TCPConnector(ssl=context, limit=connections),
        headers={"Authorization": f"Bearer {TOKEN}", "User-Agent": "bench/1"},
        read_bufsize=1 << 22,
    )


async def create(http: aiohttp.ClientSession, count: int, connections: int) -> float:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            async with http.post(WIDGETS, data=widget(number), headers={"Content-Type": "application/json"}) as answer:
                assert answer.status == 201, await answer.text()
                await answer.read()

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    return time.perf_counter() - started


async def test_ready_in_process() -> None:
    started = time.perf_counter()
    async with ControlPlane.embedded(controllers=()):
        print(f"\nready, first in a process that has imported it: {time.perf_counter() - started:.3f} s")
    started = time.perf_counter()
    async with ControlPlane.embedded(controllers=()):
        print(f"ready, second: {time.perf_counter() - started:.3f} s")


def test_commands() -> None:
    """The best of some, as a developer meets them: with everything in the page cache."""
    times: dict[str, list[float]] = {}
    for _ in range(5):
        for arguments in (["envtest", "--controllers", "none"], ["envtest"], ["version"], ["--help"]):
            started = time.perf_counter()
            command = [sys.executable, "-c", "from cfo.cli import main; main()", *arguments]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            assert process.stdout.readline()
            times.setdefault("cfo " + " ".join(arguments), []).append(time.perf_counter() - started)
            process.terminate()
            process.communicate(timeout=10)
    for command_line, seconds in times.items():
        print(f"\n{command_line}: first line after {min(seconds):.3f} s", end="")
    print()


async def test_creates_lists_and_memory(server: Server) -> None:
    print(f"\nready as a process: {server.ready_seconds:.3f} s, object {len(widget(0))} bytes")
    empty = server.stats.memory_info().rss
    async with session(server.url, 16) as http:
        count = 10_000
        before = server.stats.cpu_times()
        seconds = await create(http, count, 16)
        after = server.stats.cpu_times()
        cpu = after.user + after.system - before.user - before.system
        print(f"creates over 16 connections: {count / seconds:.0f}/s, server {1e6 * cpu / count:.0f} us CPU each")
        started = time.perf_counter()
        async with http.get(WIDGETS) as answer:
            size = len(await answer.read())
        print(f"list of {count}: {time.perf_counter() - started:.2f} s, {size / 1e6:.0f} MB")
        rss = server.stats.memory_info().rss
        print(f"RSS {rss / 1e6:.0f} MB with {count} objects, {empty / 1e6:.0f} MB without")


async def test_watchers(server: Server) -> None:
    watchers, events = 20, 1000
    async with session(server.url, watchers + 16) as http:

        async def watch(ready: asyncio.Event) -> int:
            async with http.get(WIDGETS, params={"watch": "true", "resourceVersion": ""}) as answer:
                ready.set()
                for seen in range(events):
                    line = await answer.content.readline()
                    assert b'"ADDED"' in line[:30], (seen, line[:80])
                return events

        readies = [asyncio.Event() for _ in range(watchers)]
        tasks = [asyncio.create_task(watch(ready)) for ready in readies]
        for ready in readies:
            await ready.wait()
        started = time.perf_counter()
        await create(http, events, 16)
        created = time.perf_counter() - started
        total = sum(await asyncio.gather(*tasks))
        seconds = time.perf_counter() - started
        print(f"\n{watchers} watchers received {total} events in {seconds:.2f} s (created in {created:.2f} s)")


def test_import_cost() -> None:
    code = "import time; t=time.perf_counter(); import cfo.envtest.embedded; print(time.perf_counter()-t)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    print(f"\nimport cfo.envtest.embedded: {float(out.stdout):.2f} s")
