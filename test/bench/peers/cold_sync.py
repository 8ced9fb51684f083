"""Loads N RayClusters into memory with one of several libraries, and reports the cost.

Usage: ``python -m test.bench.peers.cold_sync LIBRARY N``, with the line that :mod:`test.bench.list_server` prints on
standard input. Prints one line of JSON: seconds and MB of the whole process, from its exec until all objects were in
memory. The libraries are imported in functions, so that each process contains only the measured one.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import orjson


def measure() -> dict[str, float]:
    """Return the time and memory that this process has used so far."""
    cpu = time.process_time()
    # Imported only now, so that its own CPU time is not measured.
    import psutil

    process = psutil.Process()
    return {
        "cpu s": cpu,
        "wall s": time.time() - process.create_time(),
        "rss MB": process.memory_info().rss / 1e6,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    }


@dataclass(frozen=True)
class Server:
    """URL of the list server, and its CA as PEM."""

    url: str
    ca: str


def sync_cfo(server: Server, count: int) -> dict[str, float]:
    """Load the objects into a Cache of cfo.runtime."""
    import anyio
    import structlog

    from cfo.runtime.cache.cache import Cache
    from cfo.runtime.client.client import Client
    from cfo.runtime.client.config import ClientConfig
    from cfo.runtime.client.discovery import RESTMapper
    from cfo.runtime.client.transport import Transport
    from cfo.runtime.objects.unstructured import GVK

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    kind = GVK("ray.io", "v1", "RayCluster")
    manager = "codeflare-raycluster-controller"

    async def sync() -> dict[str, float]:
        async with Transport(
            ClientConfig(server=server.url, ca_pem=server.ca.encode())
        ) as transport:
            mapper = RESTMapper(transport)
            cache = Cache(transport, mapper, field_managers=[manager])
            client = Client(transport, mapper, field_manager=manager, cache=cache)
            cache.informer(kind)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cache.run)
                with anyio.fail_after(300):
                    await cache.wait_for_sync()
                used = measure()
                assert len(await client.list(kind, namespace="team-00")) == len(range(0, count, 50))
                assert len(cache.informer(kind).reader) == count
                tasks.cancel_scope.cancel()
            return used

    return asyncio.run(sync())


def sync_kubernetes_asyncio(server: Server, count: int) -> dict[str, float]:
    """Load the objects into a dictionary with list and watch of kubernetes_asyncio."""
    from kubernetes_asyncio import client, watch

    async def sync() -> dict[str, float]:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as ca:
            ca.write(server.ca)
            ca.flush()
            configuration = client.Configuration(host=server.url, ssl_ca_cert=ca.name)
            async with client.ApiClient(configuration) as connection:
                api = client.CustomObjectsApi(connection)
                kind: dict[str, Any] = {"group": "ray.io", "version": "v1", "plural": "rayclusters"}
                listed = await api.list_cluster_custom_object(**kind)
                objects = {
                    (obj["metadata"]["namespace"], obj["metadata"]["name"]): obj
                    for obj in listed["items"]
                }
                version = listed["metadata"]["resourceVersion"]
                del listed

                async def follow() -> None:
                    stream = watch.Watch().stream(
                        api.list_cluster_custom_object, **kind, resource_version=version
                    )
                    async for event in stream:
                        metadata = event["object"]["metadata"]
                        objects[metadata["namespace"], metadata["name"]] = event["object"]

                following = asyncio.create_task(follow())
                used = measure()
                assert len(objects) == count
                following.cancel()
                await asyncio.wait({following})
                return used

    return asyncio.run(sync())


def sync_kopf(server: Server, count: int) -> dict[str, float]:
    """Call an event handler of kopf for each object, without keeping the objects."""
    return _sync_kopf(server, count, index=False)


def sync_kopf_index(server: Server, count: int) -> dict[str, float]:
    """Load the objects into an index of kopf."""
    return _sync_kopf(server, count, index=True)


def _sync_kopf(server: Server, count: int, *, index: bool) -> dict[str, float]:
    import kopf

    logging.disable(logging.WARNING)
    seen: set[str] = set()
    done = asyncio.Event()

    @kopf.on.login()
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=server.url, ca_data=server.ca, token="bench")

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True

    @kopf.on.event("ray.io", "v1", "rayclusters")
    def handle(uid: str, **_: Any) -> None:
        seen.add(uid)
        if len(seen) == count:
            done.set()

    if index:

        @kopf.index("ray.io", "v1", "rayclusters")
        def by_name(
            namespace: str | None, name: str, body: kopf.Body, **_: Any
        ) -> dict[tuple[str | None, str], Any]:
            return {(namespace, name): body}

    async def sync() -> dict[str, float]:
        operator = asyncio.create_task(
            kopf.operator(clusterwide=True, standalone=True, stop_flag=done)
        )
        finished = asyncio.create_task(done.wait())
        await asyncio.wait({operator, finished}, return_when=asyncio.FIRST_COMPLETED)
        used = measure()
        if not done.is_set():
            operator.result()
        operator.cancel()
        await asyncio.wait({operator}, timeout=10)
        return used

    return asyncio.run(sync())


LIBRARIES = {
    "cfo": sync_cfo,
    "kubernetes_asyncio": sync_kubernetes_asyncio,
    "kopf": sync_kopf,
    "kopf-index": sync_kopf_index,
}


def main() -> None:
    """Measure the library that the command line names."""
    document = orjson.loads(sys.stdin.readline())
    server = Server(document["url"], document["ca"])
    print(orjson.dumps(LIBRARIES[sys.argv[1]](server, int(sys.argv[2]))).decode(), flush=True)


if __name__ == "__main__":
    main()
