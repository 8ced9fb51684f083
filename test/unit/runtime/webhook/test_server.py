"""The HTTPS webhook server: reviews, errors, changes of its certificate, and its shutdown."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from cfo.runtime.pki.certificates import KeyPair
from cfo.runtime.pki.rotation import CertificateSet, StoredCertificates, ensure_certificates
from cfo.runtime.process.listener import bind_socket
from cfo.runtime.webhook import request_bodies
from cfo.runtime.webhook import server as server_module
from cfo.runtime.webhook import worker as worker_module
from cfo.runtime.webhook.admission import AdmissionRequest, AdmissionResponse, denied
from cfo.runtime.webhook.certificates.serving_certificate import ServingCertificate
from cfo.runtime.webhook.metrics import CertificateMetrics, WebhookMetrics
from cfo.runtime.webhook.options import RotatedCertificates
from cfo.runtime.webhook.registration import Webhook, Webhooks
from cfo.runtime.webhook.request_bodies import MAX_BODY
from cfo.runtime.webhook.review import NestedTooDeeply, read_review
from cfo.runtime.webhook.server import WebhookServer
from cfo.runtime.webhook.shares import Shares
from test.support.certificates import KeyPair as ClientKeyPair
from test.support.certificates import create_ca, create_certificate

POLICY = RotatedCertificates(secret=NamespacedName("ns", "cert"))
WIDGET = GVK("acme.io", "v1", "Widget")
TIMEOUT_SECONDS = 120.0


def create_certificates() -> CertificateSet:
    return ensure_certificates(
        StoredCertificates(), POLICY, ("127.0.0.1", "hooks.ns.svc"), now=datetime.now(UTC)
    )[0]


class ScriptedHandler:
    """A handler whose behavior depends on the name of the object: raise, deny, wait, or allow."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = False

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        match request.name:
            case "raise":
                raise IndexError("list index out of range")
            case "unencodable":
                return denied("denied by the test", details={"retryAfter": {1, 2}})
            case "deny":
                return denied("denied by the test")
            case "wait":
                self.entered.set()
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    self.cancelled = True
                    raise
        return AdmissionResponse(allowed=True)


class Harness:
    """A running server with its serving certificate, handler and metrics."""

    def __init__(
        self, server: WebhookServer, serving: ServingCertificate, handler: ScriptedHandler
    ) -> None:
        self.server = server
        self.serving = serving
        self.handler = handler
        self.registry = CollectorRegistry()

    def url(self, path: str = "/validate-widget", query: str = "") -> str:
        return f"https://127.0.0.1:{self.server.port}{path}{query}"


def trust(certificates: CertificateSet) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=certificates.bundle.decode())


def review(name: str = "w", **fields: Any) -> bytes:
    request = {"uid": f"uid-{name}", "operation": "CREATE", "name": name, **fields}
    request.setdefault("object", {"a": 1})
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(document, separators=(",", ":")).encode()  # as API servers send it


async def wait_until_listening(server: WebhookServer) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not server.listening:  # noqa: ASYNC110 (the server has no event for it)
            await asyncio.sleep(0)


class StartedEvent(asyncio.Event):
    """An event that acts as a ``task_status``."""

    def started(self, value: None = None) -> None:
        self.set()


@asynccontextmanager
async def running_server(
    pair: KeyPair | None, serving: ServingCertificate | None = None, **options: Any
) -> AsyncIterator[Harness]:
    handler, registry = ScriptedHandler(), CollectorRegistry()
    serving = serving or ServingCertificate(CertificateMetrics(registry))
    webhooks = Webhooks()
    webhooks.add(
        Webhook(
            name="v.acme.io",
            path="/validate-widget",
            handler=handler,
            mutating=False,
            groups=("acme.io",),
            versions=("v1",),
            resources=("widgets",),
        )
    )
    server = WebhookServer(
        webhooks,
        serving,
        WebhookMetrics(registry),
        bind_address="127.0.0.1:0",
        **{"drain": 0.0, **options},
    )
    if pair is not None:
        serving.serve(pair)
    harness = Harness(server, serving, handler)
    harness.registry = registry
    started = StartedEvent()
    task = asyncio.create_task(server.run(task_status=started))
    await started.wait()
    try:
        if pair is not None:
            await wait_until_listening(server)
        yield harness
    finally:
        handler.release.set()
        server.stop()
        await task


@pytest.fixture(scope="module")
def first() -> CertificateSet:
    return create_certificates()


@pytest.fixture
async def harness(first: CertificateSet) -> AsyncIterator[Harness]:
    async with running_server(first.pair) as server:
        yield server


@pytest.fixture
async def session(first: CertificateSet) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust(first))) as client:
        yield client


async def post(
    session: aiohttp.ClientSession, url: str, body: bytes, **options: Any
) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", **options.pop("headers", {})}
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        session.post(url, data=body, headers=headers, **options) as response,
    ):
        is_json = response.content_type == "application/json"
        return response.status, json.loads(
            await response.read()
        ) if is_json else await response.text()


async def test_one_connection_serves_several_reviews(
    harness: Harness, session: aiohttp.ClientSession
) -> None:
    for name in ("a", "b"):
        code, reply = await post(session, harness.url(), review(name))
        assert code == 200
        assert reply["response"] == {"uid": f"uid-{name}", "allowed": True, "status": {"code": 200}}
    assert session.connector is not None
    assert sum(map(len, session.connector._conns.values())) == 1  # type: ignore[attr-defined]


async def test_error_in_a_handler_is_a_500_and_the_server_continues(
    harness: Harness, session: aiohttp.ClientSession
) -> None:
    code, reply = await post(session, harness.url(), review("raise"))
    assert code == 200
    assert reply["response"]["allowed"] is False
    assert reply["response"]["status"] == {
        "status": "Failure",
        "message": "the webhook failed: IndexError: list index out of range",
        "code": 500,
    }
    assert (await post(session, harness.url(), review("w")))[1]["response"]["allowed"]
    value = harness.registry.get_sample_value
    path = {"webhook": "/validate-widget"}
    assert value("controller_runtime_webhook_panics_total") == 1
    assert value("controller_runtime_webhook_requests_total", {**path, "code": "200"}) == 2
    assert value("cfo_webhook_reviews_total", {**path, "code": "200"}) == 1
    assert value("cfo_webhook_reviews_total", {**path, "code": "500"}) == 1
    assert value("controller_runtime_webhook_requests_in_flight", path) == 0
    assert value("controller_runtime_webhook_latency_seconds_count", path) == 2


async def test_requests_that_are_not_reviews_are_rejected(
    harness: Harness, session: aiohttp.ClientSession
) -> None:
    assert (await post(session, harness.url("/nowhere"), review()))[0] == 404
    async with session.get(harness.url()) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
    code, reply = await post(
        session, harness.url(), review(), headers={"Content-Type": "text/plain"}
    )
    assert (code, reply["response"]["status"]["message"]) == (
        400,
        "contentType=text/plain, expected application/json",
    )
    with capture_logs() as logs:
        for _ in range(3):
            code, reply = await post(session, harness.url(), b"nonsense")
            assert (code, reply["response"]["allowed"]) == (400, False)
    warnings = [log for log in logs if log["log_level"] == "warning"]
    assert [warning["number"] for warning in warnings] == [1], "any pod could fill the disk"
    assert (await post(session, harness.url(), review()))[0] == 200


async def test_body_over_the_limit_is_rejected(
    harness: Harness, session: aiohttp.ClientSession
) -> None:
    padding = {"padding": "x" * MAX_BODY}
    code, reply = await post(session, harness.url(), review(object=padding))
    assert (code, reply["response"]["status"]["code"]) == (413, 413)
    assert (
        reply["response"]["status"]["message"]
        == f"request entity is too large: limit is {MAX_BODY} bytes"
    )
    fits = {"padding": "x" * (MAX_BODY - 1024)}
    assert (await post(session, harness.url(), review(object=fits)))[0] == 200


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        (200, ""),
        (201, "spec.a.a.a: nested too deeply: at most 200 levels are allowed"),
        (300, "spec.a.a.a: nested too deeply: at most 200 levels are allowed"),
        (1100, "the object: nested too deeply: at most 200 levels are allowed"),
        (50_000, "the object: nested too deeply: at most 200 levels are allowed"),
    ],
)
@pytest.mark.parametrize("field", ["object", "oldObject"])
async def test_object_that_is_nested_too_deeply_is_denied(
    harness: Harness, session: aiohttp.ClientSession, levels: int, message: str, field: str
) -> None:
    nested = b'{"spec":' + b'{"a":' * (levels - 2) + b"{}" + b"}" * (levels - 1)
    body = review(operation="UPDATE", **{field: "NESTED"}).replace(b'"NESTED"', nested)
    code, reply = await post(session, harness.url(), body)
    response = reply["response"]
    assert (code, response["uid"], response["allowed"]) == (200, "uid-w", not message)
    assert response["status"].get("message", "") == message
    assert response["status"]["code"] == (403 if message else 200)


def test_uid_of_a_nested_object_is_searched_only_at_the_start_of_the_body() -> None:
    """A search in all of a body takes a second of CPU time for 2.4 MB, which any pod can send."""
    nested = b'{"a":' * 50_000
    start = b'{"kind":"AdmissionReview","request":{'
    with pytest.raises(NestedTooDeeply) as first:
        read_review(start + b'"uid":"u-1","object":' + nested)
    with pytest.raises(NestedTooDeeply) as last:
        read_review(start + b'"object":' + nested + b"}" * 50_000 + b',"uid":"u-1"}}')
    assert first.value.uid == "u-1"
    assert last.value.uid == ""


async def test_response_that_cannot_be_encoded_is_a_500_with_the_uid(
    harness: Harness, session: aiohttp.ClientSession
) -> None:
    code, reply = await post(session, harness.url(), review("unencodable"))
    assert (code, reply["response"]["uid"], reply["response"]["status"]["code"]) == (
        200,
        "uid-unencodable",
        500,
    )
    assert "cannot be encoded" in reply["response"]["status"]["message"]


async def test_handler_is_cancelled_after_the_timeout_of_the_api_server(
    harness: Harness, session: aiohttp.ClientSession
) -> None:
    _, reply = await post(session, harness.url(query="?timeout=50ms"), review("wait"))
    assert reply["response"]["status"]["code"] == 504
    assert harness.handler.cancelled


async def test_certificate_change_keeps_open_connections(
    harness: Harness, session: aiohttp.ClientSession, first: CertificateSet
) -> None:
    waiting = asyncio.ensure_future(post(session, harness.url(), review("wait")))
    await asyncio.wait_for(harness.handler.entered.wait(), TIMEOUT_SECONDS)
    second = create_certificates()
    harness.serving.serve(second.pair)
    harness.handler.release.set()
    assert (await waiting)[0] == 200
    assert (await post(session, harness.url(), review()))[0] == 200, (
        "the open connection must still work"
    )
    async with aiohttp.ClientSession() as other:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await post(other, harness.url(), review(), ssl=trust(first))
        for server_name in (None, "hooks.ns.svc"):
            code, _ = await post(
                other, harness.url(), review(), ssl=trust(second), server_hostname=server_name
            )
            assert code == 200
    assert harness.registry.get_sample_value("certwatcher_read_certificate_total") == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_tls_versions_before_1_2_are_rejected(
    harness: Harness, first: CertificateSet
) -> None:
    context = trust(first)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    for newest in (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1):
        context.maximum_version = newest
        with pytest.raises(OSError):  # noqa: PT011 (the error depends on which side detects it first)
            await asyncio.open_connection(
                "127.0.0.1", harness.server.port, ssl=context, server_hostname="127.0.0.1"
            )
        context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    _, writer = await asyncio.open_connection(
        "127.0.0.1", harness.server.port, ssl=context, server_hostname="127.0.0.1"
    )
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
    writer.close()


async def test_client_that_disconnects_is_not_an_error_of_the_webhook(
    harness: Harness, first: CertificateSet, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", harness.server.port, ssl=trust(first))
    writer.write(b"POST /validate-widget HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
    writer.write(b"Content-Length: 9\r\n\r\n{")
    await writer.drain()
    path = {"webhook": "/validate-widget"}
    value = harness.registry.get_sample_value
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while value("controller_runtime_webhook_requests_in_flight", path) == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        writer.transport.abort()
        while value("controller_runtime_webhook_requests_in_flight", path) == 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert value("controller_runtime_webhook_requests_total", {**path, "code": "500"}) == 0
    assert not caplog.records


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_clients_without_a_certificate_of_the_client_ca_are_refused(
    first: CertificateSet, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    old, new = create_ca("old"), create_ca("new")

    def client(ca: ClientKeyPair | None) -> ssl.SSLContext:
        context = trust(first)
        context.maximum_version = version
        if ca is not None:
            pair = create_certificate(ca, "kube-apiserver")
            (tmp_path / "client.pem").write_bytes(pair.cert_pem + pair.key_pem)
            context.load_cert_chain(tmp_path / "client.pem")
        return context

    async def is_served(harness: Harness, ca: ClientKeyPair | None) -> bool:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client(ca))) as session:
            try:
                return (await post(session, harness.url(), review()))[0] == 200
            except aiohttp.ClientError:
                return False

    serving = ServingCertificate(require_clients=True)
    serving.serve(first.pair)
    assert not serving.available.is_set(), "the server must not listen before it can verify clients"
    serving.trust_clients(old.cert_pem)
    async with running_server(first.pair, serving) as harness:
        assert [await is_served(harness, ca) for ca in (old, new, None)] == [True, False, False]
        with pytest.raises(ValueError, match="PEM"):
            serving.trust_clients(b"nonsense")
        assert await is_served(harness, old)
        serving.trust_clients(new.cert_pem)
        serving.serve(create_certificates().pair)
        serving.serve(first.pair)
        assert [await is_served(harness, ca) for ca in (old, new, None)] == [False, True, False]


async def test_server_listens_once_it_has_a_certificate(
    first: CertificateSet, session: aiohttp.ClientSession
) -> None:
    async with running_server(None) as harness:
        assert harness.server.port > 0
        with pytest.raises(aiohttp.ClientConnectorError):
            await post(session, harness.url(), review())
        harness.serving.serve(first.pair)
        await wait_until_listening(harness.server)
        assert (await post(session, harness.url(), review()))[0] == 200


async def test_server_can_be_stopped_before_it_has_a_certificate() -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS), running_server(None):
        pass


async def test_idle_connections_and_incomplete_requests_do_not_lock_out_others(
    first: CertificateSet, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients without credentials open many connections; the number of them stays bounded, and reviews are served."""
    limit = 6
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", limit, raising=False)
    headers = (
        b"POST /validate-widget HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 9\r\n\r\n{"
    )
    async with running_server(first.pair) as harness, asyncio.timeout(TIMEOUT_SECONDS):
        port, writers, ended = harness.server.port, [], []
        in_progress = asyncio.create_task(post(session, harness.url(), review("wait")))
        await harness.handler.entered.wait()
        for number in range(5 * limit):
            tls = trust(first) if number % 3 else None
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            writers.append(writer)
            if number % 3 == 2:
                writer.write(headers)
            ended.append(asyncio.ensure_future(reader.read()))
        while sum(task.done() for task in ended) < len(ended) - limit:  # noqa: ASYNC110 (bounded by the timeout)
            await asyncio.sleep(0.01)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust(first))) as other:
            _, reply = await post(other, harness.url(), review())
        assert reply["response"]["allowed"]
        harness.handler.release.set()
        assert (await in_progress)[1]["response"]["allowed"], (
            "a review in progress must not be aborted"
        )
        for writer in writers:
            writer.close()
        await asyncio.gather(*ended, return_exceptions=True)


async def test_servers_can_share_a_port_with_reuse_port(first: CertificateSet) -> None:
    async with running_server(first.pair, reuse_port=True) as one:
        port = one.server.port
        shared = WebhookServer(
            Webhooks(),
            one.serving,
            WebhookMetrics(CollectorRegistry()),
            bind_address=f"127.0.0.1:{port}",
            reuse_port=True,
            drain=0.0,
        )
        started = StartedEvent()
        task = asyncio.create_task(shared.run(task_status=started))
        await started.wait()
        shared.stop()
        await task
        exclusive = WebhookServer(
            Webhooks(),
            one.serving,
            WebhookMetrics(CollectorRegistry()),
            bind_address=f"127.0.0.1:{port}",
        )
        with pytest.raises(OSError, match="in use"):
            await exclusive.run()


async def test_port_is_not_shared_with_a_server_with_another_ca(
    first: CertificateSet, session: aiohttp.ClientSession
) -> None:
    """Otherwise half of the connections of an API server would fail with "unable to get local issuer certificate"."""
    other = ServingCertificate()
    other.serve(create_certificates().pair)
    async with running_server(first.pair, reuse_port=True) as one:
        shared = WebhookServer(
            Webhooks(),
            other,
            WebhookMetrics(CollectorRegistry()),
            bind_address=f"127.0.0.1:{one.server.port}",
            reuse_port=True,
        )
        async with asyncio.timeout(TIMEOUT_SECONDS):
            with pytest.raises(
                OSError, match="certificate is not signed by the CA of these webhooks"
            ):
                await shared.run()
        for _ in range(10):
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=trust(first))
            ) as client:
                assert (await post(client, one.url(), review()))[0] == 200


async def test_port_is_not_shared_with_a_process_that_does_not_serve_webhooks(
    first: CertificateSet,
) -> None:
    serving = ServingCertificate()
    serving.serve(first.pair)
    sock = bind_socket(("127.0.0.1", 0), reuse_port=True)
    port = sock.getsockname()[1]
    other = await asyncio.start_server(lambda _, writer: writer.close(), sock=sock)
    webhooks, metrics = Webhooks(), WebhookMetrics(CollectorRegistry())
    server = WebhookServer(
        webhooks, serving, metrics, bind_address=f"127.0.0.1:{port}", reuse_port=True
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        with pytest.raises(
            OSError, match="in use by another process, which does not serve webhooks"
        ):
            await server.run()
    other.close()
    await other.wait_closed()


async def test_stopping_server_serves_open_connections_once_more_and_closes_them(
    first: CertificateSet, session: aiohttp.ClientSession
) -> None:
    drained = asyncio.Event()

    async def before_drain() -> None:
        drained.set()

    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        running_server(first.pair, drain=TIMEOUT_SECONDS, before_drain=before_drain) as harness,
    ):
        assert (await post(session, harness.url(), review()))[0] == 200
        url = harness.url()
        harness.server.stop()
        await drained.wait()
        async with session.post(
            url, data=review(), headers={"Content-Type": "application/json"}
        ) as response:
            assert response.status == 200
            assert response.headers["Connection"] == "close"
        with pytest.raises(aiohttp.ClientConnectorError):
            await post(session, url, review())


async def test_patch_is_in_the_response(
    first: CertificateSet, session: aiohttp.ClientSession
) -> None:
    class Defaulter:
        def default(self, obj: Object, request: AdmissionRequest) -> None:
            obj["b"] = 2

    async with running_server(first.pair) as harness:
        harness.server._webhooks.register(WIDGET, defaulter=Defaulter())
        _, reply = await post(session, harness.url("/mutate-acme-io-v1-widget"), review())
        assert json.loads(b64decode(reply["response"]["patch"])) == [
            {"op": "add", "path": "/b", "value": 2}
        ]


class ComputingHandler:
    """A handler of some ``weight`` whose computation ends when ``release`` is set and ``endless`` is not."""

    def __init__(
        self, path: str = "/compute-widget", *, endless: bool = False, weight: int = 0
    ) -> None:
        self.path = path
        self.weight = weight
        self.release = threading.Event()
        self.endless = endless

    def webhook(self) -> Webhook:
        return Webhook(
            name=f"{self.path[1:]}.acme.io",
            path=self.path,
            handler=self,
            mutating=False,
            groups=("acme.io",),
            versions=("v1",),
            resources=("widgets",),
        )

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        request.weigh(self.weight)
        await request.compute(self._compute)
        return AdmissionResponse(allowed=True)

    def _compute(self) -> None:
        while self.endless:
            pass
        self.release.wait(TIMEOUT_SECONDS)


async def test_timeout_ends_the_review_of_a_large_object_that_is_computed(
    first: CertificateSet, session: aiohttp.ClientSession
) -> None:
    computing = ComputingHandler()
    async with running_server(first.pair) as harness:
        harness.server._webhooks.add(computing.webhook())
        body = review(object={"a": "x" * 100_000})
        code, reply = await post(session, harness.url(computing.path, "?timeout=100ms"), body)
        assert code == 200
        assert reply["response"]["status"]["code"] == 504
        code, reply = await post(session, harness.url(), review())  # the event loop is not blocked
        assert reply["response"]["allowed"]
        computing.release.set()


async def test_validator_that_loops_forever_times_out_and_delays_no_others(
    first: CertificateSet, session: aiohttp.ClientSession
) -> None:
    endless, computing = ComputingHandler("/endless", endless=True), ComputingHandler()
    computing.release.set()
    async with running_server(first.pair) as harness:
        for handler in (endless, computing):
            harness.server._webhooks.add(handler.webhook())
        body = review(object={"a": "x" * 100_000})
        try:
            _, reply = await post(session, harness.url(endless.path, "?timeout=100ms"), body)
            assert reply["response"]["status"]["code"] == 504
            _, reply = await post(session, harness.url(computing.path), body)
            assert reply["response"]["allowed"]
        finally:
            endless.endless = False


async def test_too_many_reviews_are_rejected(
    harness: Harness, session: aiohttp.ClientSession
) -> None:
    harness.server._reviews = Shares(1, "reviews in flight")
    waiting = asyncio.create_task(post(session, harness.url(), review("wait")))
    await harness.handler.entered.wait()
    code, reply = await post(session, harness.url(), review())
    assert code == 429
    assert reply["response"]["status"]["message"].startswith(
        "too many requests: limit is 1 reviews"
    )
    harness.handler.release.set()
    assert (await waiting)[0] == 200
    assert (await post(session, harness.url(), review()))[0] == 200


async def test_reviews_of_one_namespace_lock_out_no_others(
    harness: Harness, session: aiohttp.ClientSession
) -> None:
    harness.server._reviews = Shares(5, "reviews in flight")
    computing = ComputingHandler()
    harness.server._webhooks.add(computing.webhook())
    waiting = asyncio.create_task(post(session, harness.url(), review("wait", namespace="a")))
    await harness.handler.entered.wait()
    computed_in_a_thread = review("x", namespace="a", object={"a": "x" * 20_000})
    second = asyncio.create_task(post(session, harness.url(computing.path), computed_in_a_thread))
    while harness.server._reviews.free > 3:  # noqa: ASYNC110 (the server has no event for it)
        await asyncio.sleep(0.01)
    async with session.post(
        harness.url(), data=review(namespace="a"), headers={"Content-Type": "application/json"}
    ) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert "Connection" not in response.headers, "the next attempt needs no other handshake"
        reply = await response.json()
    limit = (
        "too many requests: limit is 2 reviews in flight of one namespace, while others need the "
        "rest"
    )
    assert reply["response"]["status"]["message"] == limit
    assert (await post(session, harness.url(), review(namespace="b")))[0] == 200
    harness.handler.release.set()
    computing.release.set()
    assert ((await waiting)[0], (await second)[0]) == (200, 200)
    assert (await post(session, harness.url(), review(namespace="a")))[0] == 200
    assert harness.server._reviews.free == 5


async def test_unread_reviews_of_one_namespace_lock_out_no_others(
    harness: Harness, session: aiohttp.ClientSession
) -> None:
    harness.server._large_reviews = Shares(5, "large reviews in flight")
    computing = ComputingHandler()
    harness.server._webhooks.add(computing.webhook())

    def send(namespace: str) -> asyncio.Task[tuple[int, Any]]:
        body = review("x", namespace=namespace, object={"a": "x" * 20_000})
        return asyncio.create_task(post(session, harness.url(computing.path), body))

    async def wait_until_free(expected: int) -> None:
        while harness.server._large_reviews.free != expected:  # noqa: ASYNC110 (the server has no event for it)
            await asyncio.sleep(0.01)

    in_thread = send("a")
    await wait_until_free(4)
    unread = send("a")
    await wait_until_free(3)
    code, reply = await send("a")
    limit = "limit is 2 large reviews in flight of one namespace, while others need the rest"
    assert (code, limit in reply["response"]["status"]["message"]) == (429, True)
    of_another = send("b")
    await wait_until_free(2)
    computing.release.set()
    for accepted in (in_thread, unread, of_another):
        assert (await accepted)[0] == 200


async def test_client_that_names_the_namespace_of_others_locks_out_none_of_them(
    harness: Harness, session: aiohttp.ClientSession
) -> None:
    harness.server._reviews = Shares(2, "reviews in flight")
    other = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0), ssl=False)
    async with aiohttp.ClientSession(connector=other) as pod:
        waiting = asyncio.create_task(post(pod, harness.url(), review("wait", namespace="a")))
        await harness.handler.entered.wait()
        code, reply = await post(pod, harness.url(), review(namespace="b"))
        limit = "limit is 1 reviews in flight of one client, while others need the rest"
        assert (code, limit in reply["response"]["status"]["message"]) == (429, True)
        assert (await post(session, harness.url(), review(namespace="a")))[0] == 200
        harness.handler.release.set()
        assert (await waiting)[0] == 200


async def test_reviews_of_one_webhook_lock_out_no_others(
    harness: Harness, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_REVIEWS_OF_WEBHOOK", 1)
    computing = ComputingHandler()
    computing.release.set()
    harness.server._webhooks.add(computing.webhook())
    waiting = asyncio.create_task(post(session, harness.url(), review("wait", namespace="a")))
    await harness.handler.entered.wait()
    code, reply = await post(session, harness.url(), review(namespace="b"))
    assert (code, "of one webhook" in reply["response"]["status"]["message"]) == (429, True)
    assert (await post(session, harness.url(computing.path), review(namespace="b")))[0] == 200
    harness.handler.release.set()
    assert (await waiting)[0] == 200


async def test_small_review_that_causes_much_work_is_rejected_if_too_many_wait(
    first: CertificateSet, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "MAX_WAITING", 0)
    computing = ComputingHandler(weight=worker_module.MAX_INLINE + 1)
    async with running_server(first.pair) as harness:
        harness.server._webhooks.add(computing.webhook())
        code, reply = await post(session, harness.url(computing.path), review())
        assert code == 429
        assert "reviews that wait" in reply["response"]["status"]["message"]
        assert (await post(session, harness.url(), review()))[0] == 200


@pytest.mark.parametrize(
    ("name", "limit"), [("_large_bytes", 40_000), ("_large_reviews", 1), ("_large_reviews", 2)]
)
async def test_large_reviews_in_flight_lock_out_only_large_ones(
    harness: Harness, session: aiohttp.ClientSession, name: str, limit: int
) -> None:
    setattr(harness.server, name, Shares(limit, "in flight"))
    large = {"a": "x" * 20_000}
    waiting = asyncio.create_task(post(session, harness.url(), review("wait", object=large)))
    await harness.handler.entered.wait()
    code, reply = await post(session, harness.url(), review(object=large))
    assert code == 429
    assert "in flight" in reply["response"]["status"]["message"]
    assert (await post(session, harness.url(), review()))[0] == 200
    harness.handler.release.set()
    assert (await waiting)[0] == 200
    assert (await post(session, harness.url(), review(object=large)))[0] == 200


async def test_oldest_incomplete_body_is_rejected_if_all_are_too_large(
    harness: Harness, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_bodies, "MAX_BYTES", 1000)
    monkeypatch.setattr(server_module, "MAX_BYTES", 1000)
    harness.server._bodies = request_bodies.RequestBodies()
    never = asyncio.Event()

    async def incomplete() -> AsyncIterator[bytes]:
        yield b"x" * 600
        await never.wait()

    headers = {"Content-Type": "application/json", "Content-Length": "700"}
    async with asyncio.timeout(TIMEOUT_SECONDS):
        slow = asyncio.create_task(session.post(harness.url(), data=incomplete(), headers=headers))
        while not harness.server._bodies._budget._total:  # noqa: ASYNC110 (the server has no event for it)
            await asyncio.sleep(0.01)
        assert (await post(session, harness.url(), review(object={"a": "x" * 500})))[0] == 200
        response = await slow
        assert response.status == 429
        assert b"limit is 1000 bytes that are being received" in await response.read()
        response.close()
