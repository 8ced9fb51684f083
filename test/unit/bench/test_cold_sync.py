"""The cold sync loads the objects of the list server with each library."""

from __future__ import annotations

import pytest

from test.bench.scenarios.cold_sync import measure_sync


@pytest.mark.parametrize("library", ["cfo", "kopf", "kubernetes_asyncio"])
async def test_cold_sync_measures_a_library(library: str) -> None:
    values, sizes = await measure_sync(library, 100)
    assert all(values[name] > 0 for name in ("cpu s", "wall s", "rss MB", "peak MB"))
    assert 3_000 < sizes["plain_bytes"] < sizes["object_bytes"] < 5_000
