from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
from aiohttp import web

from cfo.runtime import (
    APIError,
    APIRequest,
    ClientConfig,
    Conflict,
    Credentials,
    Exchange,
    Forbidden,
    Invalid,
    ServiceUnavailable,
    TooManyRequests,
    Transport,
    TransportError,
    Unauthorized,
)
from test.support.api_server import ApiServer, ImpatientClock, cut, json, refusal, text

TOKEN = "s3cret-token"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().run() as server:
        yield server


@pytest.fixture
async def transport(server: ApiServer) -> AsyncIterator[Transport]:
    async with Transport(ClientConfig(server=server.url, token=TOKEN), clock=ImpatientClock()) as transport:
        yield transport


def clock_of(transport: Transport) -> ImpatientClock:
    clock = transport._clock
    assert isinstance(clock, ImpatientClock)
    return clock


async def test_asks_with_credentials_and_a_name(server: ApiServer, transport: Transport) -> None:
    server.answer("POST", "/api/v1/things", json({"ok": True}, 201, {"X-Some": "thing"}))
    response = await transport.request(APIRequest("POST", "/api/v1/things", params={"a": "b=c,d"}, body=b'{"x":1}'))
    assert (response.code, response.body, response.headers["X-Some"]) == (201, b'{"ok":true}', "thing")
    asked = server.asked[0]
    assert asked.headers["Authorization"] == f"Bearer {TOKEN}"
    assert asked.headers["User-Agent"].startswith("cfo/")
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.headers["Accept-Encoding"] == "identity"
    assert asked.query == {"a": "b=c,d"}
    assert asked.body == {"x": 1}


async def test_compressed_answers_are_read(server: ApiServer, transport: Transport) -> None:
    async def zipped(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "gzip"
        return web.Response(body=gzip.compress(b"content"), headers={"Content-Encoding": "gzip"})

    server.answer("GET", "/list", zipped)
    assert (await transport.request(APIRequest("GET", "/list", compress=True))).body == b"content"


async def test_the_path_of_the_server_counts(server: ApiServer) -> None:
    server.answer("GET", "/k8s/clusters/c-1/version", json({}))
    async with Transport(ClientConfig(server=f"{server.url}/k8s/clusters/c-1/")) as transport:
        await transport.request(APIRequest("GET", "/version"))
    assert "Authorization" not in server.asked[0].headers


async def test_quoted_paths_arrive_unchanged(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/a/system:x y", json({}))
    await transport.request(APIRequest("GET", "/a/system:x%20y"))
    assert server.asked[0].path == "/a/system:x y"


async def test_a_refusal_carries_its_status(server: ApiServer, transport: Transport) -> None:
    causes = [{"reason": "FieldValueInvalid", "message": "bad", "field": "spec.x"}]
    server.answer("PUT", "/x", refusal(422, "Invalid", "x is invalid", name="x", causes=causes))
    with pytest.raises(Invalid) as caught:
        await transport.request(APIRequest("PUT", "/x", body=b"{}", verb="update", resource="things.example.com"))
    error = caught.value
    assert (error.code, error.verb, error.resource) == (422, "update", "things.example.com")
    assert str(error) == "update things.example.com: x is invalid"
    assert error.causes == causes
    assert error.retry_after is None


async def test_a_request_without_a_name_is_named_by_method_and_path(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/x", refusal(403, "Forbidden", "you may not"))
    with pytest.raises(Forbidden, match=r"^GET /x: you may not$"):
        await transport.request(APIRequest("GET", "/x"))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (text("404 page not found\n", 404), "404 page not found"),
        (text("<html>secret page</html>", 502, "text/html"), "the server responded with 502 Bad Gateway"),
        (text('{"kind": "Other"}', 500, "application/json"), "the server responded with 500 Internal Server Error"),
        (text("", 302, headers={"Location": "/elsewhere"}), "the server responded with 302 Found"),
    ],
)
async def test_an_answer_that_is_no_status(server: ApiServer, transport: Transport, answer: Any, message: str) -> None:
    server.answer("GET", "/x", answer)
    with pytest.raises(APIError) as caught:
        await transport.request(APIRequest("GET", "/x"))
    assert caught.value.message == message
    assert caught.value.status == {}


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_waits_as_long_as_it_is_told(server: ApiServer, transport: Transport, code: int, method: str) -> None:
    server.answer(method, "/x", text("later", code, headers={"Retry-After": "7"}), json({"done": True}))
    response = await transport.request(APIRequest(method, "/x"))
    assert response.body == b'{"done":true}'
    assert clock_of(transport).slept == [7.0]


async def test_a_retry_after_that_is_a_date(server: ApiServer, transport: Transport) -> None:
    header = {"Retry-After": "Thu, 01 Jan 2026 00:00:09 GMT"}
    server.answer("GET", "/x", text("later", 429, headers=header), json({}))
    await transport.request(APIRequest("GET", "/x"))
    assert clock_of(transport).slept == [9.0]


async def test_gives_up_waiting(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/x", text("later", 429, headers={"Retry-After": "1"}))
    with pytest.raises(TooManyRequests) as caught:
        await transport.request(APIRequest("GET", "/x"))
    assert caught.value.retry_after == 1.0
    assert clock_of(transport).slept == [1.0] * 5
    assert len(server.asked) == 6


async def test_does_not_wait_longer_than_reasonable(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/x", refusal(429, "TooManyRequests", retryAfterSeconds=31))
    with pytest.raises(TooManyRequests) as caught:
        await transport.request(APIRequest("GET", "/x"))
    assert caught.value.retry_after == 31.0
    assert clock_of(transport).slept == []


async def test_does_not_wait_beyond_its_own_timeout(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/x", text("later", 503, headers={"Retry-After": "6"}))
    with pytest.raises(ServiceUnavailable):
        await transport.request(APIRequest("GET", "/x", timeout=5))
    assert clock_of(transport).slept == []


async def test_a_refusal_that_says_nothing_of_later_is_final(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/x", refusal(503, "ServiceUnavailable"))
    with pytest.raises(ServiceUnavailable):
        await transport.request(APIRequest("GET", "/x"))
    assert len(server.asked) == 1


async def test_a_conflict_with_retry_after_is_not_repeated(server: ApiServer, transport: Transport) -> None:
    server.answer("PUT", "/x", refusal(409, "Conflict", headers={"Retry-After": "1"}))
    with pytest.raises(Conflict):
        await transport.request(APIRequest("PUT", "/x"))
    assert len(server.asked) == 1


async def test_a_lost_read_is_repeated(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/x", cut, cut, json({"done": True}))
    assert (await transport.request(APIRequest("GET", "/x"))).body == b'{"done":true}'


async def test_a_lost_write_is_not_repeated(server: ApiServer, transport: Transport) -> None:
    server.answer("POST", "/x", cut)
    with pytest.raises(TransportError, match=r"create things: lost the connection to 127\.0\.0\.1") as caught:
        await transport.request(APIRequest("POST", "/x", body=b"{}", verb="create", resource="things"))
    assert caught.value.outcome_unknown
    assert (caught.value.verb, caught.value.resource) == ("create", "things")
    assert len(server.asked) == 1


async def test_a_lost_write_that_may_be_repeated_is(server: ApiServer, transport: Transport) -> None:
    server.answer("PATCH", "/x", cut, json({}))
    await transport.request(APIRequest("PATCH", "/x", body=b"{}", idempotent=True))
    assert len(server.asked) == 2


async def test_losing_every_attempt(server: ApiServer, transport: Transport) -> None:
    server.answer("PATCH", "/x", cut)
    with pytest.raises(TransportError) as caught:
        await transport.request(APIRequest("PATCH", "/x", body=b"{}", idempotent=True))
    assert caught.value.outcome_unknown
    assert clock_of(transport).slept == [0.1, 0.2, 0.4]


async def test_a_read_never_has_an_unknown_outcome(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/x", cut)
    with pytest.raises(TransportError) as caught:
        await transport.request(APIRequest("GET", "/x"))
    assert not caught.value.outcome_unknown


async def test_a_server_that_is_not_there(unused_tcp_port: int) -> None:
    config = ClientConfig(server=f"https://127.0.0.1:{unused_tcp_port}")
    async with Transport(config, clock=ImpatientClock()) as transport:
        with pytest.raises(TransportError) as caught:
            await transport.request(APIRequest("POST", "/x", body=b"{}"))
        assert not caught.value.outcome_unknown
        assert f"cannot connect to 127.0.0.1:{unused_tcp_port}: " in str(caught.value)
        assert "refused" in str(caught.value)
        assert len(clock_of(transport).slept) == 3


@pytest.mark.parametrize(("method", "unknown"), [("GET", False), ("POST", True)])
async def test_no_answer_in_time(server: ApiServer, method: str, unknown: bool) -> None:
    never = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    server.answer(method, "/x", wait)
    async with Transport(ClientConfig(server=server.url)) as transport:
        with pytest.raises(TransportError, match=r"no response from .* within 0\.2 s") as caught:
            await transport.request(APIRequest(method, "/x", timeout=0.2))
    never.set()
    assert caught.value.outcome_unknown is unknown
    assert server.asked[0].query == {"timeout": "1s"}


class Renewable:
    """Credentials of which the first are not good any more."""

    def __init__(self, good: str) -> None:
        self.good = good
        self.token = "old"
        self.renewals = 0

    async def __call__(self, *, renew: bool) -> Credentials:
        if renew:
            self.renewals += 1
            self.token = self.good
        return Credentials(f"Bearer {self.token}")


async def test_renews_credentials_that_are_refused(server: ApiServer) -> None:
    async def check(request: web.Request) -> web.StreamResponse:
        good = request.headers["Authorization"] == "Bearer new"
        return await (json({}) if good else refusal(401, "Unauthorized"))(request)

    server.answer("GET", "/x", check)
    source = Renewable("new")
    async with Transport(ClientConfig(server=server.url, credentials=source)) as transport:
        await transport.request(APIRequest("GET", "/x"))
        await transport.request(APIRequest("GET", "/x"))
        async with transport.stream(APIRequest("GET", "/x")) as content:
            assert await content.read() == b"{}"
    assert source.renewals == 1
    assert len(server.asked) == 4


async def test_renews_once_for_each_request(server: ApiServer) -> None:
    server.answer("GET", "/x", refusal(401, "Unauthorized", "who are you?"))
    source = Renewable("also refused")
    async with Transport(ClientConfig(server=server.url, credentials=source)) as transport:
        with pytest.raises(Unauthorized, match="who are you"):
            await transport.request(APIRequest("GET", "/x"))
    assert (source.renewals, len(server.asked)) == (1, 2)


async def test_keeps_to_its_rate(server: ApiServer) -> None:
    server.answer("GET", "/x", json({}))
    clock = ImpatientClock()
    async with Transport(ClientConfig(server=server.url), qps=2, burst=3, clock=clock) as transport:
        for _ in range(5):
            await transport.request(APIRequest("GET", "/x"))
    assert clock.slept == [0.5, 0.5]


@pytest.mark.parametrize("qps", [None, 0, -1])
async def test_has_no_rate_unless_told(server: ApiServer, qps: float | None) -> None:
    server.answer("GET", "/x", json({}))
    clock = ImpatientClock()
    async with Transport(ClientConfig(server=server.url), qps=qps, burst=1, clock=clock) as transport:
        for _ in range(5):
            await transport.request(APIRequest("GET", "/x"))
    assert clock.slept == []


async def test_warnings_are_logged_once(server: ApiServer, transport: Transport) -> None:
    header = '299 - "v1beta1 is deprecated, use \\"v1\\"", 299 - "unknown field \\"spec.x\\""'
    server.answer("GET", "/x", json({}, headers={"Warning": header}))
    with structlog.testing.capture_logs() as logs:
        await transport.request(APIRequest("GET", "/x"))
        await transport.request(APIRequest("GET", "/x"))
    warnings = [entry["warning"] for entry in logs if entry["log_level"] == "warning"]
    assert warnings == ['v1beta1 is deprecated, use "v1"', 'unknown field "spec.x"']


async def test_logs_hold_no_secret(server: ApiServer, transport: Transport) -> None:
    server.answer("POST", "/x", json({"answer": "hidden-answer"}), cut)
    with structlog.testing.capture_logs() as logs:
        await transport.request(APIRequest("POST", "/x", body=b'{"data": "hidden-body"}'))
        with pytest.raises(TransportError) as caught:
            await transport.request(APIRequest("POST", "/x", body=b'{"data": "hidden-body"}'))
    assert [entry["code"] for entry in logs] == ["200", "<error>"]
    everything = f"{logs} {caught.value!r} {caught.value.__cause__!r} {transport.config!r}"
    assert not any(secret in everything for secret in (TOKEN, "hidden-body", "hidden-answer"))


async def test_every_exchange_is_observed(server: ApiServer) -> None:
    seen: list[Exchange] = []
    server.answer("GET", "/x", text("later", 429, headers={"Retry-After": "1"}), cut, json({}))
    async with Transport(ClientConfig(server=server.url), observe=seen.append, clock=ImpatientClock()) as transport:
        await transport.request(APIRequest("GET", "/x", verb="get", resource="things"))
    assert [(one.method, one.code, one.verb, one.resource) for one in seen] == [
        ("GET", code, "get", "things") for code in ("429", "<error>", "200")
    ]
    assert {one.host for one in seen} == {server.url.removeprefix("http://")}


async def test_a_stream_is_read_as_it_comes(server: ApiServer, transport: Transport) -> None:
    more = asyncio.Event()

    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        await more.wait()
        await response.write(b"two\n")
        return response

    server.answer("GET", "/watch", watch)
    async with transport.stream(APIRequest("GET", "/watch", params={"watch": "1"})) as content:
        assert await content.readline() == b"one\n"
        more.set()
        assert await content.readline() == b"two\n"
        assert await content.readline() == b""


async def test_a_refused_stream(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/watch", refusal(403, "Forbidden", "you may not watch"))
    with pytest.raises(Forbidden, match=r"^watch things: you may not watch$"):
        async with transport.stream(APIRequest("GET", "/watch", resource="things")):
            pytest.fail("there is nothing to read")


async def test_a_stream_that_breaks(server: ApiServer, transport: Transport) -> None:
    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"half a li")
        return await cut(request)

    server.answer("GET", "/watch", watch)
    with pytest.raises(TransportError, match="watch things: lost the connection"):
        async with transport.stream(APIRequest("GET", "/watch", resource="things")) as content:
            await content.read()


async def test_a_stream_that_falls_silent(server: ApiServer, transport: Transport) -> None:
    never = asyncio.Event()

    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        await never.wait()
        return response

    server.answer("GET", "/watch", watch)
    with pytest.raises(TransportError, match="read timed out"):
        async with transport.stream(APIRequest("GET", "/watch", resource="things"), read_timeout=0.2) as content:
            await content.read()
    never.set()


async def test_a_stream_that_never_begins(
    server: ApiServer, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    server.answer("GET", "/watch", wait)
    monkeypatch.setattr("cfo.runtime.client.transport._TIMEOUT_SECONDS", 0.2)
    with pytest.raises(TransportError, match=r"watch things: no response from .* within 0\.2 s"):
        async with transport.stream(APIRequest("GET", "/watch", resource="things")):
            pytest.fail("there is nothing to read")
    never.set()


async def test_a_closed_transport_says_so(server: ApiServer) -> None:
    transport = Transport(ClientConfig(server=server.url))
    with pytest.raises(RuntimeError, match="async with Transport"):
        await transport.request(APIRequest("GET", "/x"))


async def test_exchanges_tell_sizes_and_what_they_repeat(server: ApiServer) -> None:
    seen: list[Exchange] = []
    server.answer("PUT", "/thing", refusal(429, "TooManyRequests", headers={"Retry-After": "1"}), json({"a": 1}))
    config = ClientConfig(server=server.url)
    async with Transport(config, clock=ImpatientClock(), observe=seen.append, qps=1000.0) as transport:
        await transport.request(APIRequest("PUT", "/thing", body=b'{"x":1}'))
    first, second = seen
    assert (first.code, first.retry_of, first.sent) == ("429", "", 7)
    assert (second.code, second.retry_of, second.sent, second.received) == ("200", "429", 7, 7)
    assert second.rate_limit_delay == 0.0


async def test_a_request_without_an_answer_costs_its_pool_all_other_idle_connections(server: ApiServer) -> None:
    ports: list[int] = []

    async def note(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return web.Response(body=b"{}")

    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    server.answer("GET", "/note", note)
    server.answer("GET", "/silent", silent)
    async with Transport(ClientConfig(server=server.url)) as transport:
        await asyncio.gather(*(transport.request(APIRequest("GET", "/note")) for _ in range(3)))
        pooled = set(ports)
        await transport.request(APIRequest("GET", "/note"))
        assert set(ports) == pooled
        with pytest.raises(TransportError, match="no response"):
            await transport.request(APIRequest("GET", "/silent", timeout=0.05))
        await transport.request(APIRequest("GET", "/note"))
        assert ports[-1] not in pooled


async def test_a_watch_never_begins_on_a_connection_that_was_idle(server: ApiServer, transport: Transport) -> None:
    ports: list[int] = []

    async def note(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return web.Response(body=b"{}")

    server.answer("GET", "/note", note)
    await transport.request(APIRequest("GET", "/note"))
    for _ in range(2):
        async with transport.stream(APIRequest("GET", "/note")) as body:
            await body.read()
    assert len(set(ports)) == 3
