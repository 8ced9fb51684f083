"""The HTTP transport: credentials, errors, retries, rate limits, logs, streams and connections."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
from aiohttp import web

from cfo.runtime import (
    APIError,
    ClientConfig,
    Conflict,
    Forbidden,
    Invalid,
    Transport,
    TransportError,
)
from cfo.runtime.client import (
    APIRequest,
    Exchange,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from cfo.runtime.client.credentials import Credentials
from test.support.api_server import (
    ApiServer,
    AutoAdvancingClock,
    abort_connection,
    error_response,
    json,
    text,
)

TOKEN = "s3cret-token"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().run() as server:
        yield server


@pytest.fixture
async def transport(server: ApiServer) -> AsyncIterator[Transport]:
    async with Transport(
        ClientConfig(server=server.url, token=TOKEN), clock=AutoAdvancingClock()
    ) as transport:
        yield transport


def clock_of(transport: Transport) -> AutoAdvancingClock:
    clock = transport._clock
    assert isinstance(clock, AutoAdvancingClock)
    return clock


async def test_request_has_credentials_and_user_agent(
    server: ApiServer, transport: Transport
) -> None:
    server.answer("POST", "/api/v1/things", json({"ok": True}, 201, {"X-Some": "thing"}))
    response = await transport.request(
        APIRequest("POST", "/api/v1/things", params={"a": "b=c,d"}, body=b'{"x":1}')
    )
    assert (response.code, response.body, response.headers["X-Some"]) == (
        201,
        b'{"ok":true}',
        "thing",
    )
    request = server.all_requests[0]
    assert request.headers["Authorization"] == f"Bearer {TOKEN}"
    assert request.headers["User-Agent"].startswith("cfo/")
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Accept-Encoding"] == "identity"
    assert request.query == {"a": "b=c,d"}
    assert request.body == {"x": 1}


async def test_compressed_responses_are_decoded(server: ApiServer, transport: Transport) -> None:
    async def compressed(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "gzip"
        return web.Response(body=gzip.compress(b"content"), headers={"Content-Encoding": "gzip"})

    server.answer("GET", "/list", compressed)
    assert (await transport.request(APIRequest("GET", "/list", compress=True))).body == b"content"


async def test_path_of_the_server_url_is_a_prefix_of_request_paths(server: ApiServer) -> None:
    server.answer("GET", "/k8s/clusters/c-1/version", json({}))
    async with Transport(ClientConfig(server=f"{server.url}/k8s/clusters/c-1/")) as transport:
        await transport.request(APIRequest("GET", "/version"))
    assert "Authorization" not in server.all_requests[0].headers


async def test_quoted_paths_are_sent_unchanged(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/a/system:x y", json({}))
    await transport.request(APIRequest("GET", "/a/system:x%20y"))
    assert server.all_requests[0].path == "/a/system:x y"


async def test_api_error_contains_the_status_of_the_response(
    server: ApiServer, transport: Transport
) -> None:
    causes = [{"reason": "FieldValueInvalid", "message": "bad", "field": "spec.x"}]
    server.answer(
        "PUT", "/x", error_response(422, "Invalid", "x is invalid", name="x", causes=causes)
    )
    with pytest.raises(Invalid) as caught:
        await transport.request(
            APIRequest("PUT", "/x", body=b"{}", verb="update", resource="things.example.com")
        )
    error = caught.value
    assert (error.code, error.verb, error.resource) == (422, "update", "things.example.com")
    assert str(error) == "update things.example.com: x is invalid"
    assert error.causes == causes
    assert error.retry_after is None


class Large:
    """An object of a caller, which no error may keep."""


async def test_error_that_was_handled_keeps_no_objects_of_the_callers(
    server: ApiServer, transport: Transport
) -> None:
    """Otherwise a caller that expects errors, such as a taken name, fills the memory until garbage is collected."""
    server.answer("POST", "/x", error_response(409, "AlreadyExists"))
    server.answer("POST", "/y", abort_connection)

    async def send(path: str) -> weakref.ref[Large]:
        large = Large()
        with contextlib.suppress(APIError, TransportError):
            await transport.request(APIRequest("POST", path))
        return weakref.ref(large)

    gc.disable()
    try:
        for path in ("/x", "/y"):
            assert (await send(path))() is None
    finally:
        gc.enable()


async def test_error_of_a_request_without_verb_names_method_and_path(
    server: ApiServer, transport: Transport
) -> None:
    server.answer("GET", "/x", error_response(403, "Forbidden", "access denied"))
    with pytest.raises(Forbidden, match=r"^GET /x: access denied$"):
        await transport.request(APIRequest("GET", "/x"))


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (text("404 page not found\n", 404), "404 page not found"),
        (
            text("<html>secret page</html>", 502, "text/html"),
            "the server responded with 502 Bad Gateway",
        ),
        (
            text('{"kind": "Other"}', 500, "application/json"),
            "the server responded with 500 Internal Server Error",
        ),
        (text("", 302, headers={"Location": "/elsewhere"}), "the server responded with 302 Found"),
    ],
)
async def test_error_response_that_is_not_a_status_gets_a_plain_message(
    server: ApiServer, transport: Transport, response: Any, message: str
) -> None:
    server.answer("GET", "/x", response)
    with pytest.raises(APIError) as caught:
        await transport.request(APIRequest("GET", "/x"))
    assert caught.value.message == message
    assert caught.value.status == {}


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_request_is_retried_after_retry_after_seconds(
    server: ApiServer, transport: Transport, code: int, method: str
) -> None:
    server.answer(
        method, "/x", text("later", code, headers={"Retry-After": "7"}), json({"done": True})
    )
    response = await transport.request(APIRequest(method, "/x"))
    assert response.body == b'{"done":true}'
    assert clock_of(transport).sleeps == [7.0]


async def test_retry_after_can_be_a_date(server: ApiServer, transport: Transport) -> None:
    header = {"Retry-After": "Thu, 01 Jan 2026 00:00:09 GMT"}
    server.answer("GET", "/x", text("later", 429, headers=header), json({}))
    await transport.request(APIRequest("GET", "/x"))
    assert clock_of(transport).sleeps == [9.0]


async def test_request_is_retried_at_most_five_times_for_retry_after(
    server: ApiServer, transport: Transport
) -> None:
    server.answer("GET", "/x", text("later", 429, headers={"Retry-After": "1"}))
    with pytest.raises(TooManyRequests) as caught:
        await transport.request(APIRequest("GET", "/x"))
    assert caught.value.retry_after == 1.0
    assert clock_of(transport).sleeps == [1.0] * 5
    assert len(server.all_requests) == 6


async def test_retry_after_of_more_than_30_seconds_is_not_retried(
    server: ApiServer, transport: Transport
) -> None:
    server.answer("GET", "/x", error_response(429, "TooManyRequests", retryAfterSeconds=31))
    with pytest.raises(TooManyRequests) as caught:
        await transport.request(APIRequest("GET", "/x"))
    assert caught.value.retry_after == 31.0
    assert clock_of(transport).sleeps == []


async def test_retry_after_beyond_the_request_timeout_is_not_retried(
    server: ApiServer, transport: Transport
) -> None:
    server.answer("GET", "/x", text("later", 503, headers={"Retry-After": "6"}))
    with pytest.raises(ServiceUnavailable):
        await transport.request(APIRequest("GET", "/x", timeout=5))
    assert clock_of(transport).sleeps == []


async def test_error_without_retry_after_is_not_retried(
    server: ApiServer, transport: Transport
) -> None:
    server.answer("GET", "/x", error_response(503, "ServiceUnavailable"))
    with pytest.raises(ServiceUnavailable):
        await transport.request(APIRequest("GET", "/x"))
    assert len(server.all_requests) == 1


async def test_conflict_with_retry_after_is_not_retried(
    server: ApiServer, transport: Transport
) -> None:
    server.answer("PUT", "/x", error_response(409, "Conflict", headers={"Retry-After": "1"}))
    with pytest.raises(Conflict):
        await transport.request(APIRequest("PUT", "/x"))
    assert len(server.all_requests) == 1


async def test_lost_read_is_retried(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/x", abort_connection, abort_connection, json({"done": True}))
    assert (await transport.request(APIRequest("GET", "/x"))).body == b'{"done":true}'


async def test_lost_write_is_not_retried(server: ApiServer, transport: Transport) -> None:
    server.answer("POST", "/x", abort_connection)
    with pytest.raises(
        TransportError, match=r"create things: lost the connection to 127\.0\.0\.1"
    ) as caught:
        await transport.request(
            APIRequest("POST", "/x", body=b"{}", verb="create", resource="things")
        )
    assert caught.value.outcome_unknown
    assert (caught.value.verb, caught.value.resource) == ("create", "things")
    assert len(server.all_requests) == 1


async def test_lost_idempotent_write_is_retried(server: ApiServer, transport: Transport) -> None:
    server.answer("PATCH", "/x", abort_connection, json({}))
    await transport.request(APIRequest("PATCH", "/x", body=b"{}", idempotent=True))
    assert len(server.all_requests) == 2


async def test_idempotent_write_lost_in_every_attempt_has_unknown_outcome(
    server: ApiServer, transport: Transport
) -> None:
    server.answer("PATCH", "/x", abort_connection)
    with pytest.raises(TransportError) as caught:
        await transport.request(APIRequest("PATCH", "/x", body=b"{}", idempotent=True))
    assert caught.value.outcome_unknown
    assert clock_of(transport).sleeps == [0.1, 0.2, 0.4]


async def test_lost_read_has_no_unknown_outcome(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/x", abort_connection)
    with pytest.raises(TransportError) as caught:
        await transport.request(APIRequest("GET", "/x"))
    assert not caught.value.outcome_unknown


async def test_refused_connection_is_retried_and_has_no_unknown_outcome(
    unused_tcp_port: int,
) -> None:
    config = ClientConfig(server=f"https://127.0.0.1:{unused_tcp_port}")
    async with Transport(config, clock=AutoAdvancingClock()) as transport:
        with pytest.raises(TransportError) as caught:
            await transport.request(APIRequest("POST", "/x", body=b"{}"))
        assert not caught.value.outcome_unknown
        assert f"cannot connect to 127.0.0.1:{unused_tcp_port}: " in str(caught.value)
        assert "refused" in str(caught.value)
        assert len(clock_of(transport).sleeps) == 3


@pytest.mark.parametrize(("method", "unknown"), [("GET", False), ("POST", True)])
async def test_response_timeout_is_an_error_with_unknown_outcome_for_writes(
    server: ApiServer, method: str, unknown: bool
) -> None:
    never = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    server.answer(method, "/x", wait)
    async with Transport(ClientConfig(server=server.url)) as transport:
        with pytest.raises(TransportError, match=r"no response from .* within 1 s") as caught:
            await transport.request(APIRequest(method, "/x", timeout=1.0))
    never.set()
    assert caught.value.outcome_unknown is unknown
    assert server.all_requests[0].query == {"timeout": "1s"}


class RenewableCredentials:
    """A credentials source whose first token is rejected; renewal returns ``valid_token``."""

    def __init__(self, valid_token: str) -> None:
        self.valid_token = valid_token
        self.token = "old"
        self.renewals = 0

    async def __call__(self, *, renew: bool) -> Credentials:
        if renew:
            self.renewals += 1
            self.token = self.valid_token
        return Credentials(f"Bearer {self.token}")


async def test_rejected_credentials_are_renewed(server: ApiServer) -> None:
    async def check(request: web.Request) -> web.StreamResponse:
        is_valid = request.headers["Authorization"] == "Bearer new"
        return await (json({}) if is_valid else error_response(401, "Unauthorized"))(request)

    server.answer("GET", "/x", check)
    source = RenewableCredentials("new")
    async with Transport(ClientConfig(server=server.url, credentials=source)) as transport:
        await transport.request(APIRequest("GET", "/x"))
        await transport.request(APIRequest("GET", "/x"))
        async with transport.stream(APIRequest("GET", "/x")) as content:
            assert await content.read() == b"{}"
    assert source.renewals == 1
    assert len(server.all_requests) == 4


async def test_credentials_are_renewed_once_per_request(server: ApiServer) -> None:
    server.answer("GET", "/x", error_response(401, "Unauthorized", "unknown token"))
    source = RenewableCredentials("also rejected")
    async with Transport(ClientConfig(server=server.url, credentials=source)) as transport:
        with pytest.raises(Unauthorized, match="unknown token"):
            await transport.request(APIRequest("GET", "/x"))
    assert (source.renewals, len(server.all_requests)) == (1, 2)


async def test_requests_are_limited_to_qps_and_burst(server: ApiServer) -> None:
    server.answer("GET", "/x", json({}))
    clock = AutoAdvancingClock()
    async with Transport(ClientConfig(server=server.url), qps=2, burst=3, clock=clock) as transport:
        for _ in range(5):
            await transport.request(APIRequest("GET", "/x"))
    assert clock.sleeps == [0.5, 0.5]


@pytest.mark.parametrize("qps", [None, 0, -1])
async def test_requests_are_not_limited_without_positive_qps(
    server: ApiServer, qps: float | None
) -> None:
    server.answer("GET", "/x", json({}))
    clock = AutoAdvancingClock()
    async with Transport(
        ClientConfig(server=server.url), qps=qps, burst=1, clock=clock
    ) as transport:
        for _ in range(5):
            await transport.request(APIRequest("GET", "/x"))
    assert clock.sleeps == []


async def test_warning_headers_are_logged_once(server: ApiServer, transport: Transport) -> None:
    header = '299 - "v1beta1 is deprecated, use \\"v1\\"", 299 - "unknown field \\"spec.x\\""'
    server.answer("GET", "/x", json({}, headers={"Warning": header}))
    expected = ['v1beta1 is deprecated, use "v1"', 'unknown field "spec.x"']
    received: list[str] = []
    with structlog.testing.capture_logs() as logs:
        await transport.request(APIRequest("GET", "/x"))
        await transport.request(APIRequest("GET", "/x", on_warning=received.append))
    warnings = [entry["warning"] for entry in logs if entry["log_level"] == "warning"]
    assert warnings == expected
    assert received == expected, "each request gets its own warnings"


async def test_logs_and_errors_contain_no_secrets(server: ApiServer, transport: Transport) -> None:
    server.answer("POST", "/x", json({"answer": "hidden-answer"}), abort_connection)
    with structlog.testing.capture_logs() as logs:
        await transport.request(APIRequest("POST", "/x", body=b'{"data": "hidden-body"}'))
        with pytest.raises(TransportError) as caught:
            await transport.request(APIRequest("POST", "/x", body=b'{"data": "hidden-body"}'))
    assert [entry["code"] for entry in logs] == ["200", "<error>"]
    output = f"{logs} {caught.value!r} {caught.value.__cause__!r} {transport.config!r}"
    assert not any(secret in output for secret in (TOKEN, "hidden-body", "hidden-answer"))


async def test_every_exchange_is_observed(server: ApiServer) -> None:
    exchanges: list[Exchange] = []
    server.answer(
        "GET", "/x", text("later", 429, headers={"Retry-After": "1"}), abort_connection, json({})
    )
    async with Transport(
        ClientConfig(server=server.url), observe=exchanges.append, clock=AutoAdvancingClock()
    ) as transport:
        await transport.request(APIRequest("GET", "/x", verb="get", resource="things"))
    assert [
        (exchange.method, exchange.code, exchange.verb, exchange.resource) for exchange in exchanges
    ] == [("GET", code, "get", "things") for code in ("429", "<error>", "200")]
    assert {exchange.host for exchange in exchanges} == {server.url.removeprefix("http://")}


async def test_stream_can_be_read_while_it_arrives(server: ApiServer, transport: Transport) -> None:
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


async def test_rejected_stream_raises_api_error(server: ApiServer, transport: Transport) -> None:
    server.answer("GET", "/watch", error_response(403, "Forbidden", "watch is denied"))
    with pytest.raises(Forbidden, match=r"^watch things: watch is denied$"):
        async with transport.stream(APIRequest("GET", "/watch", resource="things")):
            pytest.fail("the stream must not open")


async def test_broken_stream_raises_transport_error(
    server: ApiServer, transport: Transport
) -> None:
    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"half a li")
        return await abort_connection(request)

    server.answer("GET", "/watch", watch)
    with pytest.raises(TransportError, match="watch things: lost the connection"):
        async with transport.stream(APIRequest("GET", "/watch", resource="things")) as content:
            await content.read()


async def test_stream_without_a_response_times_out(
    server: ApiServer, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    server.answer("GET", "/watch", wait)
    monkeypatch.setattr("cfo.runtime.client.transport._TIMEOUT_SECONDS", 1.0)
    with pytest.raises(TransportError, match=r"watch things: no response from .* within 1 s"):
        async with transport.stream(APIRequest("GET", "/watch", resource="things")):
            pytest.fail("the stream must not open")
    never.set()


async def test_request_outside_the_context_is_an_error(server: ApiServer) -> None:
    transport = Transport(ClientConfig(server=server.url))
    with pytest.raises(RuntimeError, match="async with Transport"):
        await transport.request(APIRequest("GET", "/x"))


async def test_exchange_reports_sizes_and_the_code_that_it_retries(server: ApiServer) -> None:
    exchanges: list[Exchange] = []
    server.answer(
        "PUT",
        "/thing",
        error_response(429, "TooManyRequests", headers={"Retry-After": "1"}),
        json({"a": 1}),
    )
    config = ClientConfig(server=server.url)
    async with Transport(
        config, clock=AutoAdvancingClock(), observe=exchanges.append, qps=1000.0
    ) as transport:
        await transport.request(APIRequest("PUT", "/thing", body=b'{"x":1}'))
    first, second = exchanges
    assert (first.code, first.retry_of, first.sent) == ("429", "", 7)
    assert (second.code, second.retry_of, second.sent, second.received) == ("200", "429", 7, 7)
    assert second.rate_limit_delay == 0.0


async def test_response_timeout_closes_all_idle_connections_of_the_pool(server: ApiServer) -> None:
    ports: list[int] = []

    async def record_port(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return web.Response(body=b"{}")

    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    server.answer("GET", "/record", record_port)
    server.answer("GET", "/silent", silent)
    async with Transport(ClientConfig(server=server.url)) as transport:
        await asyncio.gather(*(transport.request(APIRequest("GET", "/record")) for _ in range(3)))
        pooled = set(ports)
        await transport.request(APIRequest("GET", "/record"))
        assert set(ports) == pooled
        with pytest.raises(TransportError, match="no response"):
            await transport.request(APIRequest("GET", "/silent", timeout=1.0))
        await transport.request(APIRequest("GET", "/record"))
        assert ports[-1] not in pooled


async def test_stream_never_uses_an_idle_connection(
    server: ApiServer, transport: Transport
) -> None:
    ports: list[int] = []

    async def record_port(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return web.Response(body=b"{}")

    server.answer("GET", "/record", record_port)
    await transport.request(APIRequest("GET", "/record"))
    for _ in range(2):
        async with transport.stream(APIRequest("GET", "/record")) as body:
            await body.read()
    assert len(set(ports)) == 3


async def test_endless_error_response_is_read_in_part(server: ApiServer) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=403)
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65_536)

    server.answer("GET", "/x", endless)
    async with Transport(ClientConfig(server=server.url)) as transport:
        with pytest.raises(Forbidden, match="403"):
            await asyncio.wait_for(transport.request(APIRequest("GET", "/x")), 10)


async def test_request_on_a_closed_transport_fails_like_a_broken_connection(
    server: ApiServer,
) -> None:
    async with Transport(ClientConfig(server=server.url)) as transport:
        pass
    with pytest.raises(TransportError, match="the transport is closed") as caught:
        await transport.request(APIRequest("PUT", "/x", body=b"{}"))
    assert not caught.value.outcome_unknown
    with pytest.raises(
        RuntimeError, match=r"no connection is open: .*async with manager.*async with connect"
    ):
        await Transport(ClientConfig(server=server.url)).request(APIRequest("GET", "/x"))
