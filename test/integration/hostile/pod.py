"""A hostile pod: a process that sends requests to the webhooks without credentials.

It gets the URL of the webhooks and a number of seconds as arguments, and prints how many reviews it has sent.
"""

from __future__ import annotations

import asyncio
import gzip
import ssl
import sys
import time
from contextlib import suppress
from urllib.parse import urlsplit

import aiohttp
import orjson

from cfo.runtime.objects.unstructured import Object
from test.integration.hostile.attacks import MEGABYTE, many_groups, many_kinds, many_pod_sets

IDLE_CONNECTIONS, HALF_BODIES, SENDERS = 400, 25, 10
"""Connections without a request and with half a body, and how many senders each review has."""

PIPELINED = b"GET / HTTP/1.1\r\nHost:\r\n\r\n" * 5000
"""Requests that no client waits for: handlers that never wait answer all of them in one step of the event loop."""


def review(obj: Object, old: Object | None = None, namespace: str = "ns") -> bytes:
    """Return the body of an AdmissionReview, as any pod can send it to the webhooks."""
    group, version = obj["apiVersion"].split("/")
    request = {
        "uid": "u",
        "operation": "UPDATE" if old else "CREATE",
        "kind": {"group": group, "version": version, "kind": obj["kind"]},
        "namespace": namespace,
        "name": "x",
        "userInfo": {"username": "unknown"},
        "object": obj,
        "oldObject": old,
    }
    return orjson.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    )


_RAY_WEBHOOK, _WRAPPER_WEBHOOK = "ray-io-v1-raycluster", "workload-codeflare-dev-v1beta2-appwrapper"


def reviews() -> list[tuple[str, bytes]]:
    """Return path and body of the largest reviews, and of those with the most entries."""
    largest = many_groups(500, 20)
    return [
        (f"/mutate-{_RAY_WEBHOOK}", review(many_groups(9000))),
        (f"/mutate-{_RAY_WEBHOOK}", review(largest)),
        (f"/validate-{_RAY_WEBHOOK}", review(largest, largest)),
        (f"/validate-{_WRAPPER_WEBHOOK}", review(many_pod_sets(3000, 3000))),
        (f"/validate-{_WRAPPER_WEBHOOK}", review(many_pod_sets(8, 3000))),
        (f"/validate-{_WRAPPER_WEBHOOK}", review(many_kinds())),
    ]


async def send_reviews(url: str, path: str, body: bytes, until: float) -> int:
    """Send a review repeatedly, without credentials; return how often."""
    count = 0
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        while time.monotonic() < until:
            with suppress(aiohttp.ClientConnectionError):
                async with session.post(
                    f"{url}{path}?timeout=1s", data=body, headers=headers
                ) as response:
                    assert response.status in (200, 429)
                    await response.read()
                count += 1
    return count


def compressed_body() -> bytes:
    """Return a request of 1.3 MB with a body that inflates to 300 MB."""
    body = gzip.compress(bytes(300 * MEGABYTE), compresslevel=1)
    head = f"POST /mutate-{_RAY_WEBHOOK} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def send_bytes(url: str, content: bytes, until: float) -> None:
    """Write ``content`` again and again, without reading a response, on new connections after one was closed."""
    target = urlsplit(url)
    while time.monotonic() < until:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(
                target.hostname, target.port, ssl=_unverified()
            )
            try:
                while time.monotonic() < until:
                    writer.write(content)
                    async with asyncio.timeout(1):
                        await writer.drain()
            except TimeoutError:
                pass
            finally:
                writer.transport.abort()


def _unverified() -> ssl.SSLContext:
    tls = ssl.create_default_context()
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    return tls


async def hold_connections(url: str, until: float) -> None:
    """Open connections without a request, and connections with 3 MB of a body that never ends; hold them."""
    tls = _unverified()
    target = urlsplit(url)
    size = 3 * MEGABYTE
    head = f"POST /mutate-{_RAY_WEBHOOK} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    half = f"{head}Content-Length: {size}\r\n\r\n".encode() + b" " * (size - 1)
    writers: list[asyncio.StreamWriter] = []
    for body in [half] * HALF_BODIES + [b""] * IDLE_CONNECTIONS:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(target.hostname, target.port, ssl=tls)
            writers.append(writer)
            writer.write(body)
        if time.monotonic() > until:
            break
    await asyncio.sleep(max(0.0, until - time.monotonic()))
    for writer in writers:
        writer.transport.abort()


async def attack(url: str, seconds: float) -> int:
    """Hold connections, and send all reviews, pipelined requests and compressed bodies for this time.

    Return how many reviews were sent.
    """
    until = time.monotonic() + seconds
    holding = asyncio.create_task(hold_connections(url, until))
    pipelining = asyncio.create_task(send_bytes(url, PIPELINED, until))
    inflating = asyncio.create_task(send_bytes(url, compressed_body(), until))
    counts = await asyncio.gather(*(send_reviews(url, *one, until) for one in reviews() * SENDERS))
    await asyncio.gather(holding, pipelining, inflating)
    return sum(counts)


if __name__ == "__main__":
    print(asyncio.run(attack(sys.argv[1], float(sys.argv[2]))))
