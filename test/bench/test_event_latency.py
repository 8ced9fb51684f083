"""How long after a write its reconcile begins (``make bench``; it prints, and judges nothing).

The API server is a process of its own. A writer changes ConfigMaps at a steady rate; the latency is from the moment
in which the API server has answered the write to the call of the reconciler.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from pathlib import Path

import pytest
import structlog

from cfo.runtime import Builder, Client, Manager, ManagerOptions, RESTMapper, Transport, load_config
from cfo.runtime.objects import GVK, NamespacedName
from cfo.runtime.reconcile import Request, Result

pytestmark = pytest.mark.bench

CONFIG_MAP = GVK("", "v1", "ConfigMap")
SECONDS = float(os.environ.get("CFO_BENCH_SECONDS", "5"))
OBJECTS = 50


class Clocked:
    """Notes when each object was reconciled with which value."""

    def __init__(self, manager: Manager) -> None:
        self._client = manager.client
        self.began: dict[str, float] = {}
        self.reconciled = asyncio.Event()

    async def reconcile(self, request: Request) -> Result:
        now = time.perf_counter()
        found = await self._client.get(CONFIG_MAP, request)
        if found is not None and (serial := (found.get("data") or {}).get("serial")):
            self.began.setdefault(serial, now)
            self.reconciled.set()
        return Result()


@pytest.fixture(autouse=True)
def _quiet_logs() -> object:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("rate", [10, 100, 200, 500])
async def test_from_event_to_reconcile(tmp_path: Path, rate: int) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cfo.envtest", "--controllers", "none", "--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        while not (await server.stdout.readline()).startswith(b"export"):
            assert server.returncode is None
        config = await load_config(str(kubeconfig))
        manager = Manager(config, ManagerOptions(field_manager="bench"))
        clocked = Clocked(manager)
        Builder(manager, "latency").for_(CONFIG_MAP).complete(clocked)
        async with manager, Transport(config) as transport:
            await manager.started()
            client = Client(transport, RESTMapper(transport), field_manager="writer")
            keys = [NamespacedName("default", f"latency-{number}") for number in range(OBJECTS)]
            for key in keys:
                metadata = {"namespace": key.namespace, "name": key.name}
                await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            answered: dict[str, float] = {}

            async def write(serial: int) -> None:
                await client.patch(CONFIG_MAP, keys[serial % OBJECTS], {"data": {"serial": str(serial)}})
                answered[str(serial)] = time.perf_counter()

            async with asyncio.TaskGroup() as writers:
                began = time.perf_counter()
                for serial in range(int(rate * SECONDS)):
                    await asyncio.sleep(max(0.0, began + serial / rate - time.perf_counter()))
                    writers.create_task(write(serial))
            async with asyncio.timeout(10):
                last = {str(serial) for serial in range(int(rate * SECONDS) - OBJECTS, int(rate * SECONDS))}
                while not (last & answered.keys()) <= clocked.began.keys():
                    await clocked.reconciled.wait()
                    clocked.reconciled.clear()
        # a watch may tell before the writer has read its answer: that is no latency at all
        latencies = [max(0.0, clocked.began[key] - at) * 1000 for key, at in answered.items() if key in clocked.began]
        cuts = statistics.quantiles(latencies, n=100)
        print(
            f"\n{rate} events/s: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, max {max(latencies):.1f} ms "
            f"({len(latencies)} of {len(answered)} writes seen one by one)"
        )
    finally:
        server.terminate()
        await server.wait()
