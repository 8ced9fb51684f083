"""What it costs to have 5,000 RayClusters of 4.7 kB at hand after a start: ours, and the same work done by kopf.

    pytest -m bench test/bench -s

``CFO_BENCH_OBJECTS`` is their number (5000), ``CFO_BENCH_KOPF_INDEX_OBJECTS`` that for kopf with an index (1000: its
cost grows with the square of the number, 5,000 take minutes; 0 leaves it out).
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

OBJECTS = int(os.environ.get("CFO_BENCH_OBJECTS", "5000"))
KOPF_INDEX_OBJECTS = int(os.environ.get("CFO_BENCH_KOPF_INDEX_OBJECTS", "1000"))
REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.bench


@contextmanager
def server(count: int) -> Iterator[bytes]:
    """Runs the server; gives the line with which it says where it is."""
    command = [sys.executable, "-m", "test.bench.cold_sync_server", str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline()
        finally:
            process.stdin.close()


def measure(peer: str, count: int) -> dict[str, Any]:
    """Runs one peer in a process of its own; the second of two runs, for the server's pages are ready then."""
    command = [sys.executable, "-m", "test.bench.cold_sync_clients", peer, str(count)]
    with server(count) as address:
        for _ in range(2 if peer == "cfo" else 1):
            result = subprocess.run(command, input=address, stdout=subprocess.PIPE, cwd=REPOSITORY, check=True)
        return {**orjson.loads(result.stdout), "count": count, "object_bytes": orjson.loads(address)["object_bytes"]}


def show(title: str, cost: dict[str, Any]) -> None:
    print(
        f"\n{title:<34} {cost['count']:>6} x {cost['object_bytes']} B:"
        f" {cost['sync_cpu']:7.2f} CPU s ({cost['cpu']:.2f} with start-up), {cost['wall']:.2f} s,"
        f" {cost['rss']:.0f} MB RSS (peak {cost['peak']:.0f})"
    )


@pytest.mark.timeout(600)
def test_cold_sync_of_cfo() -> None:
    cost = measure("cfo", OBJECTS)
    show("cfo (goal 5000: 1.2 s, 130 MB)", cost)
    assert cost["count"] == OBJECTS


@pytest.mark.timeout(600)
@pytest.mark.skipif(importlib.util.find_spec("kopf") is None, reason="kopf is not installed (pip install .[bench])")
def test_cold_sync_of_kopf_with_a_handler_alone() -> None:
    cost = measure("kopf", OBJECTS)
    show("kopf, on.event alone (no cache)", cost)
    assert cost["count"] == OBJECTS


@pytest.mark.timeout(3600)
@pytest.mark.skipif(importlib.util.find_spec("kopf") is None, reason="kopf is not installed (pip install .[bench])")
@pytest.mark.skipif(KOPF_INDEX_OBJECTS == 0, reason="CFO_BENCH_KOPF_INDEX_OBJECTS is 0")
def test_cold_sync_of_kopf_with_an_index() -> None:
    count = min(OBJECTS, KOPF_INDEX_OBJECTS)
    cost = measure("kopf-index", count)
    note = "" if count == OBJECTS else f" (!) {OBJECTS} would take too long"
    show(f"kopf, with an index{note}", cost)
    assert cost["count"] == count
