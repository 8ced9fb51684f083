"""Lists whose objects are decoded one by one: pages, expired tokens, and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from typing import Any, cast
from unittest import mock

import orjson
import pytest

from cfo.runtime import CONFIG_MAP, Client, key_of
from cfo.runtime.client import APIRequest, Expired, Resource, ResponseTooLarge, listed_items

COLLECTION = "/api/v1/configmaps"


def page(*names: str, token: str = "", **fields: Any) -> bytes:
    items = [{"metadata": {"namespace": "ns", "name": name}, **fields} for name in names]
    return orjson.dumps({"metadata": {"continue": token}, "items": items})


class FakeTransport:
    """Answers with ``answers`` in turn, and records the parameters of the requests."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.params: list[Mapping[str, str]] = []

    async def request(self, request: APIRequest) -> Any:
        self.params.append(request.params)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer

        class Found:
            body = answer

        return Found


async def names_of_items(transport: Any, page_size: int = 500) -> list[str]:
    request = APIRequest("GET", COLLECTION, params={"labelSelector": "a"})
    return [
        orjson.loads(bytes(item))["metadata"]["name"]
        async for item in listed_items(transport, request, page_size)
    ]


async def test_pages_follow_each_other() -> None:
    transport = FakeTransport(page("a", "b", token="t"), page("c"))
    assert await names_of_items(transport) == ["a", "b", "c"]
    first = {"labelSelector": "a", "limit": "500"}
    assert transport.params == [first, {**first, "continue": "t"}]


async def test_page_that_is_too_large_is_requested_with_fewer_objects() -> None:
    large = ResponseTooLarge("too large", outcome_unknown=False)
    transport = FakeTransport(page("a", token="t"), large, large, page("b"))
    assert await names_of_items(transport) == ["a", "b"]
    assert [params["limit"] for params in transport.params] == ["500", "500", "50", "10"]
    assert [params.get("continue") for params in transport.params] == [None, "t", "t", "t"]
    with pytest.raises(ResponseTooLarge):
        await names_of_items(FakeTransport(large, large), page_size=10)


def expired(token: str) -> Expired:
    return Expired(410, {"metadata": {"continue": token}})


async def test_list_continues_after_its_token_expired() -> None:
    transport = FakeTransport(page("a", token="t"), expired("rest"), page("b"))
    assert await names_of_items(transport) == ["a", "b"]
    assert transport.params[2]["continue"] == "rest"


@pytest.mark.parametrize("token", ["", "t"])
async def test_expired_token_without_another_one_is_an_error(token: str) -> None:
    with pytest.raises(Expired):
        await names_of_items(FakeTransport(page("a", token="t"), expired(token)))


async def test_expired_first_page_is_an_error() -> None:
    with pytest.raises(Expired):
        await names_of_items(FakeTransport(expired("rest")))


async def test_objects_of_a_selection_are_decoded_one_by_one() -> None:
    body = page("a", "b", "c", "d", "e", "f", "g", "h", data=[{}] * 20_000)
    resource = Resource(gvk=CONFIG_MAP, plural="configmaps", namespaced=True)
    mapper = mock.Mock()
    mapper.resource = mock.AsyncMock(return_value=resource)
    client = Client(cast("Any", FakeTransport(body)), mapper, field_manager="test")
    tracemalloc.start()
    try:
        found = await client.select(CONFIG_MAP, key_of)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [key.name for key in found] == [*"abcdefgh"]
    tracemalloc.start()
    try:
        orjson.loads(body)
        _, decoded = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < decoded / 3
