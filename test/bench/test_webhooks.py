"""How fast admission is: latency and throughput at 1, 8 and 32 connections. Prints; judges nothing.

Server and client are processes of their own; the client writes prepared requests and reads no more of the answers than
their length.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator

import orjson
import psutil
import pytest

from test.bench.test_envtest_server import widget

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

SECONDS = 4.0


@pytest.fixture
def server() -> Iterator[tuple[int, psutil.Process]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "test.bench.webhook_server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield int(process.stdout.readline()), psutil.Process(process.pid)
    finally:
        process.stdin.close()
        process.wait(20)


def request(path: str) -> bytes:
    obj = orjson.loads(widget(1))
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "6f8ae0f2-9f0d-4a3d-9d3b-3f5a3c0a7b11",
            "kind": {"group": "bench.example.com", "version": "v1", "kind": "Widget"},
            "resource": {"group": "bench.example.com", "version": "v1", "resource": "widgets"},
            "name": "widget",
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "bench", "groups": ["system:authenticated"]},
            "object": obj,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }
    body = orjson.dumps(review)
    head = (
        f"POST {path}?timeout=10s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def ask(port: int, message: bytes, until: float, latencies: list[float]) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    while (started := time.perf_counter()) < until:
        writer.write(message)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        await reader.readexactly(length)
        latencies.append(time.perf_counter() - started)
    writer.close()


@pytest.mark.parametrize("path", ["/mutate-bench-example-com-v1-widget", "/validate-bench-example-com-v1-widget"])
async def test_admission(server: tuple[int, psutil.Process], path: str) -> None:
    port, process = server
    message = request(path)
    print(f"\nadmission of {len(message):,} bytes by {path}")
    for connections in (1, 8, 32):
        latencies: list[float] = []
        cpu = sum(process.cpu_times()[:2])
        started = time.perf_counter()
        until = started + SECONDS
        await asyncio.gather(*(ask(port, message, until, latencies) for _ in range(connections)))
        elapsed = time.perf_counter() - started
        cpu = sum(process.cpu_times()[:2]) - cpu
        latencies.sort()
        p50, p99 = (latencies[int(len(latencies) * share)] * 1000 for share in (0.5, 0.99))
        print(
            f"  {connections:2} connections: {len(latencies) / elapsed:8,.0f} requests/s   p50 {p50:6.2f} ms   "
            f"p99 {p99:6.2f} ms   server CPU {cpu / len(latencies) * 1e6:6.0f} us a request"
        )
    print(f"  server memory: {process.memory_info().rss / 1e6:.0f} MB")
