"""A process that measures the operator's latency, undisturbed by the API server in the process of the test.

It gets the URLs of the health server and the webhooks and a number of seconds as arguments, and prints the latencies
for ``/healthz`` and a small review in seconds, as JSON.
"""

from __future__ import annotations

import ssl
import sys
import threading
import time
import urllib.request
from collections.abc import Callable

import orjson

from test.integration.hostile.pod import review
from test.support.raycluster_environment import ray_cluster

INTERVAL = 0.05


def healthz(url: str) -> None:
    with urllib.request.urlopen(f"{url}/healthz", timeout=120) as response:
        assert response.status == 200


def small_review(url: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/mutate-ray-io-v1-raycluster", body, headers)
    with urllib.request.urlopen(
        request, timeout=120, context=ssl._create_unverified_context()
    ) as response:
        assert orjson.loads(response.read())["response"]["allowed"]


def measure(seconds: float, probes: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
    """Repeat each probe in its own thread for this time; return its latencies. A failed request counts as 30 s."""
    found: dict[str, list[float]] = {name: [] for name in probes}
    until = time.monotonic() + seconds

    def repeat(name: str) -> None:
        while (started := time.monotonic()) < until:
            try:
                probes[name]()
                found[name].append(time.monotonic() - started)
            except (OSError, AssertionError) as error:
                print(f"{name}: {error}", file=sys.stderr)
                found[name].append(30.0)
            time.sleep(INTERVAL)

    threads = [threading.Thread(target=repeat, args=(name,)) for name in probes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


if __name__ == "__main__":
    health, webhook, seconds = sys.argv[1:]
    body = review(ray_cluster("honest", "honest"))
    probes = {"/healthz": lambda: healthz(health), "review": lambda: small_review(webhook, body)}
    print(orjson.dumps(measure(float(seconds), probes)).decode())
