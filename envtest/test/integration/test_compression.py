"""Big answers are compressed for clients that take gzip, and only those."""

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

THRESHOLD = 128 * 1024
OBJECT = 60_000


@pytest.fixture
async def raw(plane: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that takes bodies as they come."""
    context = ssl.create_default_context(cadata=plane.ca_pem.decode())
    async with aiohttp.ClientSession(
        plane.url,
        connector=aiohttp.TCPConnector(ssl=context),
        headers={"Authorization": f"Bearer {plane.token}"},
        auto_decompress=False,
    ) as session:
        yield session


async def fill(api: APIClient, count: int) -> None:
    for number in range(count):
        assert (await api.post(CONFIG_MAPS, config_map(f"big-{number}", {"text": "a" * OBJECT}))).code == 201


@pytest.mark.parametrize("count", [3, 12])
async def test_lists_beyond_the_threshold(api: APIClient, raw: aiohttp.ClientSession, count: int) -> None:
    await fill(api, count)
    async with raw.get(CONFIG_MAPS, headers={"Accept-Encoding": "deflate, gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert answer.headers["Vary"] == "Accept-Encoding"
        body = await answer.read()
    assert len(body) < count * OBJECT / 10
    compressed = json.loads(gzip.decompress(body))
    async with raw.get(CONFIG_MAPS, headers={"Accept-Encoding": "identity"}) as answer:
        assert "Content-Encoding" not in answer.headers
        plain = await answer.read()
    assert len(plain) > count * OBJECT
    names = [item["metadata"]["name"] for item in compressed["items"]]
    assert compressed == json.loads(plain)
    assert len([name for name in names if name.startswith("big-")]) == count


async def test_what_stays_as_it_is(api: APIClient, raw: aiohttp.ClientSession) -> None:
    await fill(api, 3)
    accepts = {"Accept-Encoding": "gzip"}
    async with raw.get(f"{CONFIG_MAPS}/big-0", headers=accepts) as answer:
        assert "Content-Encoding" not in answer.headers
        assert len(await answer.read()) < THRESHOLD
    async with raw.get(CONFIG_MAPS, headers={"Accept-Encoding": "gzip;q=1"}) as answer:
        assert "Content-Encoding" not in answer.headers
    async with raw.get(CONFIG_MAPS, params={"watch": "1", "timeoutSeconds": "1"}, headers=accepts) as answer:
        assert "Content-Encoding" not in answer.headers
        assert json.loads(await answer.content.readline())["type"] == "ADDED"


async def test_a_single_object_that_is_big(api: APIClient, raw: aiohttp.ClientSession) -> None:
    assert (await api.post(CONFIG_MAPS, config_map("huge", {"text": "b" * 700_000}))).code == 201
    async with raw.get(f"{CONFIG_MAPS}/huge", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert len(json.loads(gzip.decompress(await answer.read()))["data"]["text"]) == 700_000
