"""A controller of ConfigMaps that does nothing but note when it was called for which value.

Usage: ``python -m test.bench.peers.clocked LIBRARY`` (cfo or kopf), with KUBECONFIG. Prints a line when it is ready;
when its input ends, one line of JSON: seconds of the machine's monotonic clock by value.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import Any

import orjson


async def until_input_ends() -> None:
    await asyncio.to_thread(sys.stdin.read)


async def cfo(began: dict[str, float]) -> None:
    import structlog

    from cfo.runtime import Builder, Manager, ManagerOptions, Request, Result, load_config
    from cfo.runtime.objects import GVK

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    config_map = GVK("", "v1", "ConfigMap")
    manager = Manager(await load_config(), ManagerOptions(field_manager="clocked"))

    class Clocked:
        async def reconcile(self, request: Request) -> Result:
            now = time.perf_counter()
            found = await manager.client.get(config_map, request)
            if found is not None and (serial := (found.get("data") or {}).get("serial")):
                began.setdefault(serial, now)
            return Result()

    Builder(manager, "clocked").for_(config_map).complete(Clocked())
    async with manager:
        await manager.started()
        print("ready", flush=True)
        await until_input_ends()


async def kopf(began: dict[str, float]) -> None:
    import kopf

    logging.disable(logging.WARNING)

    @kopf.on.event("", "v1", "configmaps")
    async def note(body: kopf.Body, **_: Any) -> None:
        now = time.perf_counter()
        if serial := body.get("data", {}).get("serial"):
            began.setdefault(serial, now)

    ready = asyncio.Event()
    operator = asyncio.create_task(kopf.operator(clusterwide=True, standalone=True, ready_flag=ready))
    await ready.wait()
    await asyncio.sleep(2)  # it says that it is ready before its watches are
    print("ready", flush=True)
    await until_input_ends()
    operator.cancel()
    await asyncio.wait({operator}, timeout=5)


def main() -> None:
    began: dict[str, float] = {}
    asyncio.run({"cfo": cfo, "kopf": kopf}[sys.argv[1]](began))
    print(orjson.dumps(began).decode(), flush=True)


if __name__ == "__main__":
    main()
