"""A controller of ConfigMaps that records when it was called for each value, and does nothing else.

Usage: ``python -m test.bench.peers.event_times LIBRARY`` (cfo or kopf), with KUBECONFIG. Prints ``ready`` when it is
ready, and at the end of its standard input one line of JSON: the times of the first calls, in seconds on the machine's
monotonic clock, by the ConfigMaps' values.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import Any

import orjson


async def wait_for_end_of_input() -> None:
    """Wait until the benchmark closes standard input."""
    await asyncio.to_thread(sys.stdin.read)


async def run_cfo(called: dict[str, float]) -> None:
    """Record the calls of a reconciler of cfo.runtime."""
    import structlog

    from cfo.runtime import Builder, Manager, ManagerOptions, Request, Result, load_config
    from cfo.runtime.objects.unstructured import GVK

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    config_map = GVK("", "v1", "ConfigMap")
    manager = Manager(await load_config(), ManagerOptions(field_manager="bench"))

    class Recorder:
        async def reconcile(self, request: Request) -> Result:
            now = time.perf_counter()
            obj = await manager.client.get(config_map, request)
            if obj is not None and (serial := (obj.get("data") or {}).get("serial")):
                called.setdefault(serial, now)
            return Result()

    Builder(manager, "event-times").for_(config_map).complete(Recorder())
    async with manager:
        await manager.started()
        print("ready", flush=True)
        await wait_for_end_of_input()


async def run_kopf(called: dict[str, float]) -> None:
    """Record the calls of an event handler of kopf."""
    import kopf

    logging.disable(logging.WARNING)

    @kopf.on.event("", "v1", "configmaps")
    async def record(body: kopf.Body, **_: Any) -> None:
        now = time.perf_counter()
        if serial := body.get("data", {}).get("serial"):
            called.setdefault(serial, now)

    ready = asyncio.Event()
    operator = asyncio.create_task(
        kopf.operator(clusterwide=True, standalone=True, ready_flag=ready)
    )
    await ready.wait()
    await asyncio.sleep(2)  # kopf sets the flag before its watches are open
    print("ready", flush=True)
    await wait_for_end_of_input()
    operator.cancel()
    await asyncio.wait({operator}, timeout=5)


def main() -> None:
    """Run the controller of the library that the command line names."""
    called: dict[str, float] = {}
    asyncio.run({"cfo": run_cfo, "kopf": run_kopf}[sys.argv[1]](called))
    print(orjson.dumps(called).decode(), flush=True)


if __name__ == "__main__":
    main()
