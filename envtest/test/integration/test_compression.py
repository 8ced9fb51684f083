"""Large responses are compressed, but only for clients that accept gzip."""

from __future__ import annotations

import gzip
import json
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient
from test.support.config_maps import CONFIG_MAPS, config_map

THRESHOLD_BYTES = 128 * 1024
OBJECT_SIZE = 60_000


@pytest.fixture
async def http_client(plane: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield an HTTP client that does not decompress responses."""
    context = ssl.create_default_context(cadata=plane.ca_pem.decode())
    async with aiohttp.ClientSession(
        plane.url,
        connector=aiohttp.TCPConnector(ssl=context),
        headers={"Authorization": f"Bearer {plane.token}"},
        auto_decompress=False,
    ) as session:
        yield session


async def create_config_maps(api: APIClient, count: int) -> None:
    for number in range(count):
        assert (
            await api.post(CONFIG_MAPS, config_map(f"big-{number}", {"text": "a" * OBJECT_SIZE}))
        ).code == 201


@pytest.mark.parametrize("count", [3, 12])
async def test_list_above_the_threshold_is_compressed(
    api: APIClient, http_client: aiohttp.ClientSession, count: int
) -> None:
    await create_config_maps(api, count)
    async with http_client.get(
        CONFIG_MAPS, headers={"Accept-Encoding": "deflate, gzip"}
    ) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert response.headers["Vary"] == "Accept-Encoding"
        body = await response.read()
    assert len(body) < count * OBJECT_SIZE / 10
    compressed = json.loads(gzip.decompress(body))
    async with http_client.get(CONFIG_MAPS, headers={"Accept-Encoding": "identity"}) as response:
        assert "Content-Encoding" not in response.headers
        plain = await response.read()
    assert len(plain) > count * OBJECT_SIZE
    names = [item["metadata"]["name"] for item in compressed["items"]]
    assert compressed == json.loads(plain)
    assert len([name for name in names if name.startswith("big-")]) == count


async def test_small_responses_and_watches_are_not_compressed(
    api: APIClient, http_client: aiohttp.ClientSession
) -> None:
    await create_config_maps(api, 3)
    accepts = {"Accept-Encoding": "gzip"}
    async with http_client.get(f"{CONFIG_MAPS}/big-0", headers=accepts) as response:
        assert "Content-Encoding" not in response.headers
        assert len(await response.read()) < THRESHOLD_BYTES
    async with http_client.get(CONFIG_MAPS, headers={"Accept-Encoding": "gzip;q=1"}) as response:
        assert "Content-Encoding" not in response.headers
    async with http_client.get(
        CONFIG_MAPS, params={"watch": "1", "timeoutSeconds": "1"}, headers=accepts
    ) as response:
        assert "Content-Encoding" not in response.headers
        assert json.loads(await response.content.readline())["type"] == "ADDED"


async def test_large_object_is_compressed(
    api: APIClient, http_client: aiohttp.ClientSession
) -> None:
    assert (await api.post(CONFIG_MAPS, config_map("huge", {"text": "b" * 700_000}))).code == 201
    async with http_client.get(
        f"{CONFIG_MAPS}/huge", headers={"Accept-Encoding": "gzip"}
    ) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert len(json.loads(gzip.decompress(await response.read()))["data"]["text"]) == 700_000
