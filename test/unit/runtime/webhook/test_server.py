"""The HTTPS server, asked over TLS: reviews, refusals, swaps of its certificate, and its end."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from cfo.runtime.objects import GVK, NamespacedName, Object, name_of
from cfo.runtime.webhook.admission import AdmissionRequest, AdmissionResponse, allowed, denied
from cfo.runtime.webhook.certificates.certificate_authority import (
    CertificateSet,
    StoredCertificates,
    ensure_certificates,
)
from cfo.runtime.webhook.certificates.serving_certificate import KeyPair, ServingCertificate
from cfo.runtime.webhook.metrics import CertificateMetrics, WebhookMetrics
from cfo.runtime.webhook.options import RotatedCertificates
from cfo.runtime.webhook.registration import Webhook, Webhooks
from cfo.runtime.webhook.server import MAX_BODY, WebhookServer

POLICY = RotatedCertificates(secret=NamespacedName("ns", "cert"))
WIDGET = GVK("acme.io", "v1", "Widget")
WITHIN = 20.0


def material() -> CertificateSet:
    return ensure_certificates(StoredCertificates(), POLICY, ("127.0.0.1", "hooks.ns.svc"), now=datetime.now(UTC))[0]


class Script:
    """A handler that does as the name of the object says."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = False

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        match request.name:
            case "raise":
                raise IndexError("list index out of range")
            case "deny":
                return denied("not that one")
            case "wait":
                self.entered.set()
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    self.cancelled = True
                    raise
        return allowed()


class Running:
    """A server under test, and how to ask it."""

    def __init__(self, server: WebhookServer, serving: ServingCertificate, script: Script) -> None:
        self.server = server
        self.serving = serving
        self.script = script
        self.registry = CollectorRegistry()

    def url(self, path: str = "/validate-widget", query: str = "") -> str:
        return f"https://127.0.0.1:{self.server.port}{path}{query}"


def trusting(one: CertificateSet) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=one.bundle.decode())


def review(name: str = "w", **more: Any) -> bytes:
    request = {"uid": f"uid-{name}", "operation": "CREATE", "name": name, "object": {"a": 1}, **more}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


class Upgrading:
    def convert(self, obj: Object, api_version: str) -> Object:
        match name_of(obj):
            case "bug":
                raise KeyError("spec")
            case "impossible":
                raise ValueError("v2 knows no such size")
            case "renamed":
                return {**obj, "apiVersion": api_version, "metadata": {"name": "other"}}
        return {**obj, "apiVersion": api_version}


async def listening(server: WebhookServer) -> None:
    async with asyncio.timeout(WITHIN):
        while not server.listening:  # noqa: ASYNC110 (nobody else needs to know)
            await asyncio.sleep(0)


class Started(asyncio.Event):
    def started(self, value: None = None) -> None:
        self.set()


@asynccontextmanager
async def running(pair: KeyPair | None, **options: Any) -> AsyncIterator[Running]:
    script, serving, registry = Script(), None, CollectorRegistry()
    serving = ServingCertificate(CertificateMetrics(registry))
    webhooks = Webhooks()
    webhooks.register(WIDGET, converter=Upgrading())
    webhooks.add(
        Webhook(
            name="v.acme.io",
            path="/validate-widget",
            handler=script,
            mutating=False,
            groups=("acme.io",),
            versions=("v1",),
            resources=("widgets",),
        )
    )
    server = WebhookServer(
        webhooks, serving, WebhookMetrics(registry), bind_address="127.0.0.1:0", **{"drain": 0.0, **options}
    )
    if pair is not None:
        serving.serve(pair)
    it = Running(server, serving, script)
    it.registry = registry
    started = Started()
    task = asyncio.create_task(server.run(task_status=started))
    await started.wait()
    try:
        if pair is not None:
            await listening(server)
        yield it
    finally:
        script.release.set()
        server.stop()
        await task


@pytest.fixture(scope="module")
def first() -> CertificateSet:
    return material()


@pytest.fixture
async def it(first: CertificateSet) -> AsyncIterator[Running]:
    async with running(first.pair) as server:
        yield server


@pytest.fixture
async def session(first: CertificateSet) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting(first))) as opened:
        yield opened


async def ask(session: aiohttp.ClientSession, url: str, body: bytes, **more: Any) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", **more.pop("headers", {})}
    async with asyncio.timeout(WITHIN), session.post(url, data=body, headers=headers, **more) as response:
        is_json = response.content_type == "application/json"
        return response.status, json.loads(await response.read()) if is_json else await response.text()


async def test_reviews_are_answered_on_one_connection(it: Running, session: aiohttp.ClientSession) -> None:
    for name in ("a", "b"):
        code, answer = await ask(session, it.url(), review(name))
        assert code == 200
        assert answer["response"] == {"uid": f"uid-{name}", "allowed": True, "status": {"code": 200}}
    assert session.connector is not None
    assert sum(map(len, session.connector._conns.values())) == 1  # type: ignore[attr-defined]


async def test_a_handler_that_raises_is_a_500_and_the_server_goes_on(
    it: Running, session: aiohttp.ClientSession
) -> None:
    code, answer = await ask(session, it.url(), review("raise"))
    assert code == 200
    assert answer["response"]["allowed"] is False
    assert answer["response"]["status"] == {
        "status": "Failure",
        "message": "the webhook failed: IndexError: list index out of range",
        "code": 500,
    }
    assert (await ask(session, it.url(), review("w")))[1]["response"]["allowed"]
    value = it.registry.get_sample_value
    path = {"webhook": "/validate-widget"}
    assert value("controller_runtime_webhook_panics_total") == 1
    assert value("controller_runtime_webhook_requests_total", {**path, "code": "200"}) == 2
    assert value("controller_runtime_webhook_requests_in_flight", path) == 0
    assert value("controller_runtime_webhook_latency_seconds_count", path) == 2


async def test_what_is_no_review_is_refused(it: Running, session: aiohttp.ClientSession) -> None:
    assert (await ask(session, it.url("/nowhere"), review()))[0] == 404
    async with session.get(it.url()) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
    code, answer = await ask(session, it.url(), review(), headers={"Content-Type": "text/plain"})
    assert (code, answer["response"]["status"]["message"]) == (
        400,
        "contentType=text/plain, expected application/json",
    )
    code, answer = await ask(session, it.url(), b"nonsense")
    assert (code, answer["response"]["allowed"]) == (400, False)
    assert (await ask(session, it.url(), review()))[0] == 200


async def test_a_body_over_the_limit_is_refused(it: Running, session: aiohttp.ClientSession) -> None:
    padding = {"padding": "x" * MAX_BODY}
    code, answer = await ask(session, it.url(), review(object=padding))
    assert (code, answer["response"]["status"]["code"]) == (413, 413)
    assert answer["response"]["status"]["message"] == f"request entity is too large: limit is {MAX_BODY} bytes"

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, MAX_BODY + 2, 65536):
            yield b"x" * min(65536, MAX_BODY + 2 - start)

    code, _ = await ask(session, it.url(), chunks())  # type: ignore[arg-type]
    assert code == 413
    fits = {"padding": "x" * (MAX_BODY - 1024)}
    assert (await ask(session, it.url(), review(object=fits)))[0] == 200


async def test_a_handler_is_not_waited_for_longer_than_the_api_server_waits(
    it: Running, session: aiohttp.ClientSession
) -> None:
    _, answer = await ask(session, it.url(query="?timeout=50ms"), review("wait"))
    assert answer["response"]["status"]["code"] == 504
    assert it.script.cancelled


async def test_the_certificate_changes_without_dropping_a_connection(
    it: Running, session: aiohttp.ClientSession, first: CertificateSet
) -> None:
    waiting = asyncio.ensure_future(ask(session, it.url(), review("wait")))
    await asyncio.wait_for(it.script.entered.wait(), WITHIN)
    second = material()
    it.serving.serve(second.pair)
    it.script.release.set()
    assert (await waiting)[0] == 200
    assert (await ask(session, it.url(), review()))[0] == 200, "the connection is still good"
    async with aiohttp.ClientSession() as other:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(other, it.url(), review(), ssl=trusting(first))
        for server_name in (None, "hooks.ns.svc"):
            code, _ = await ask(other, it.url(), review(), ssl=trusting(second), server_hostname=server_name)
            assert code == 200
    assert it.registry.get_sample_value("certwatcher_read_certificate_total") == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_old_tls_is_refused(it: Running, first: CertificateSet) -> None:
    context = trusting(first)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    for newest in (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1):
        context.maximum_version = newest
        with pytest.raises(OSError):  # noqa: PT011 (what is said depends on who notices first)
            await asyncio.open_connection("127.0.0.1", it.server.port, ssl=context, server_hostname="127.0.0.1")
        context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    _, writer = await asyncio.open_connection("127.0.0.1", it.server.port, ssl=context, server_hostname="127.0.0.1")
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
    writer.close()


async def test_it_listens_when_there_is_a_certificate(first: CertificateSet, session: aiohttp.ClientSession) -> None:
    async with running(None) as it:
        assert it.server.port > 0
        with pytest.raises(aiohttp.ClientConnectorError):
            await ask(session, it.url(), review())
        it.serving.serve(first.pair)
        await listening(it.server)
        assert (await ask(session, it.url(), review()))[0] == 200


async def test_it_can_be_stopped_before_there_is_a_certificate() -> None:
    async with asyncio.timeout(WITHIN), running(None):
        pass


async def test_two_can_share_a_port_if_they_want_to(first: CertificateSet) -> None:
    async with running(first.pair, reuse_port=True) as one:
        port = one.server.port
        shared = WebhookServer(
            Webhooks(),
            one.serving,
            WebhookMetrics(CollectorRegistry()),
            bind_address=f"127.0.0.1:{port}",
            reuse_port=True,
            drain=0.0,
        )
        started = Started()
        task = asyncio.create_task(shared.run(task_status=started))
        await started.wait()
        shared.stop()
        await task
        alone = WebhookServer(
            Webhooks(), one.serving, WebhookMetrics(CollectorRegistry()), bind_address=f"127.0.0.1:{port}"
        )
        with pytest.raises(OSError, match="in use"):
            await alone.run()


async def test_what_runs_at_the_end_is_answered_and_open_connections_are_served_once_more(
    first: CertificateSet, session: aiohttp.ClientSession
) -> None:
    drained = asyncio.Event()

    async def before_drain() -> None:
        drained.set()

    async with asyncio.timeout(WITHIN), running(first.pair, drain=WITHIN, before_drain=before_drain) as it:
        assert (await ask(session, it.url(), review()))[0] == 200
        url = it.url()
        it.server.stop()
        await drained.wait()
        async with session.post(url, data=review(), headers={"Content-Type": "application/json"}) as response:
            assert response.status == 200
            assert response.headers["Connection"] == "close"
        with pytest.raises(aiohttp.ClientConnectorError):
            await ask(session, url, review())


def conversion(*names: str, kind: str = "Widget") -> bytes:
    objects = [{"apiVersion": "acme.io/v1", "kind": kind, "metadata": {"name": name}} for name in names]
    request = {"uid": "c1", "desiredAPIVersion": "acme.io/v2", "objects": objects}
    return json.dumps(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    ).encode()


async def test_objects_are_converted(it: Running, session: aiohttp.ClientSession) -> None:
    code, answer = await ask(session, it.url("/convert"), conversion("a", "b"))
    assert code == 200
    assert answer["response"]["uid"] == "c1"
    assert answer["response"]["result"] == {"status": "Success"}
    assert [obj["apiVersion"] for obj in answer["response"]["convertedObjects"]] == ["acme.io/v2"] * 2


@pytest.mark.parametrize(
    ("body", "why", "bugs"),
    [
        (conversion("a", "impossible"), "Widget 'impossible' to acme.io/v2: v2 knows no such size", 0),
        (conversion("bug"), "Widget 'bug' to acme.io/v2: 'spec'", 1),
        (conversion("renamed"), "the converter changed the object's name or uid", 1),
        (conversion("a", kind="Gadget"), "no converter is registered for this kind", 0),
    ],
)
async def test_what_cannot_be_converted_is_said(
    it: Running, session: aiohttp.ClientSession, body: bytes, why: str, bugs: int
) -> None:
    code, answer = await ask(session, it.url("/convert"), body)
    assert code == 200
    assert answer["response"]["convertedObjects"] == []
    assert answer["response"]["result"]["status"] == "Failure"
    assert why in answer["response"]["result"]["message"]
    assert it.registry.get_sample_value("controller_runtime_conversion_webhook_panics_total") == bugs


async def test_patches_are_in_the_answer(first: CertificateSet, session: aiohttp.ClientSession) -> None:
    class Defaulting:
        def default(self, obj: Object, request: AdmissionRequest) -> None:
            obj["b"] = 2

    async with running(first.pair) as it:
        it.server._webhooks.register(WIDGET, defaulter=Defaulting())
        _, answer = await ask(session, it.url("/mutate-acme-io-v1-widget"), review())
        assert json.loads(b64decode(answer["response"]["patch"])) == [{"op": "add", "path": "/b", "value": 2}]
