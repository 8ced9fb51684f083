"""The peers of the cold sync benchmark: each gets N RayClusters into its process, and says what that cost.

Usage: ``python -m test.bench.cold_sync_clients PEER N``, the server's first line on stdin. Prints one line of JSON:
``sync_cpu`` are CPU seconds from the first request to the last object, ``cpu`` those of the whole process,
``wall`` seconds of the sync, ``rss`` and ``peak`` MB of the whole process after it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import sys
import time
from dataclasses import dataclass
from typing import Any

import orjson


class Stopwatch:
    """CPU and wall time since it was made, and the memory of the process."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def read(self) -> dict[str, float]:
        import psutil

        cpu, wall = time.process_time(), time.perf_counter()
        return {
            "sync_cpu": cpu - self._cpu,
            "cpu": cpu,
            "wall": wall - self._wall,
            "rss": psutil.Process().memory_info().rss / 1e6,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        }


@dataclass(frozen=True)
class Server:
    url: str
    ca: str


def cfo(server: Server, count: int) -> dict[str, float]:
    import anyio
    import structlog

    from cfo.runtime.cache.cache import Cache
    from cfo.runtime.client.client import Client
    from cfo.runtime.client.config import ClientConfig
    from cfo.runtime.client.transport import Transport
    from cfo.runtime.discovery import RESTMapper
    from cfo.runtime.objects import GVK

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    kind = GVK("ray.io", "v1", "RayCluster")
    manager = "codeflare-raycluster-controller"

    async def sync() -> dict[str, float]:
        async with Transport(ClientConfig(server=server.url, ca_pem=server.ca.encode())) as transport:
            mapper = RESTMapper(transport)
            cache = Cache(transport, mapper, field_managers=[manager])
            client = Client(transport, mapper, field_manager=manager, cache=cache)
            cache.informer(kind)
            async with anyio.create_task_group() as tasks:
                watch = Stopwatch()
                tasks.start_soon(cache.run)
                await cache.wait_for_sync()
                cost = watch.read()
                assert len(await client.list(kind, namespace="team-00")) == len(range(0, count, 50))
                assert len(cache.informer(kind).reader) == count
                tasks.cancel_scope.cancel()
            return cost

    return asyncio.run(sync())


def kopf_alone(server: Server, count: int) -> dict[str, float]:
    return _kopf(server, count, index=False)


def kopf_index(server: Server, count: int) -> dict[str, float]:
    return _kopf(server, count, index=True)


def _kopf(server: Server, count: int, *, index: bool) -> dict[str, float]:
    import kopf

    logging.disable(logging.WARNING)
    seen: set[str] = set()
    done = asyncio.Event()

    @kopf.on.login()  # type: ignore[arg-type]
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=server.url, ca_data=server.ca, token="bench")

    @kopf.on.startup()
    def settle(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True

    @kopf.on.event("ray.io", "v1", "rayclusters")
    def handle(uid: str, **_: Any) -> None:
        seen.add(uid)
        if len(seen) == count:
            done.set()

    if index:

        @kopf.index("ray.io", "v1", "rayclusters")
        def by_name(namespace: str, name: str, body: kopf.Body, **_: Any) -> dict[tuple[str, str], Any]:
            return {(namespace, name): body}

    async def sync() -> dict[str, float]:
        watch = Stopwatch()
        operator = asyncio.create_task(kopf.operator(clusterwide=True, standalone=True, stop_flag=done))
        finished = asyncio.create_task(done.wait())
        await asyncio.wait({operator, finished}, return_when=asyncio.FIRST_COMPLETED)
        cost = watch.read()
        if not done.is_set():
            operator.result()
        operator.cancel()
        await asyncio.wait({operator}, timeout=10)
        return cost

    return asyncio.run(sync())


PEERS = {"cfo": cfo, "kopf": kopf_alone, "kopf-index": kopf_index}


def main() -> None:
    peer, count = sys.argv[1], int(sys.argv[2])
    told = orjson.loads(sys.stdin.readline())
    gc.collect()
    cost = PEERS[peer](Server(told["url"], told["ca"]), count)
    print(orjson.dumps(cost).decode(), flush=True)


if __name__ == "__main__":
    main()
