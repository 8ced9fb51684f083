"""Hostile clients: the server handles or rejects any request, and stays available to other clients."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
import pytest
import yarl

from envtest import ControlPlane, EmbeddedControlPlane
from envtest.api_client import APIClient
from envtest.endpoints import request as http
from envtest.formats import yaml_codec
from test.support.config_maps import CONFIG_MAPS, config_map
from test.support.random_requests import CRD, RandomRequests, Request, initial_objects

SEED = int(os.environ.get("ENVTEST_HOSTILE_SEED", "36"))
COUNT = int(os.environ.get("ENVTEST_HOSTILE_COUNT", "1200"))
TIMEOUT_SECONDS = 120.0


@pytest.fixture
async def embedded() -> AsyncIterator[EmbeddedControlPlane]:
    async with ControlPlane.embedded(controllers=()) as running:
        yield running


@pytest.fixture
async def victim(embedded: EmbeddedControlPlane) -> AsyncIterator[APIClient]:
    async with APIClient(embedded) as requests:
        yield requests


class Attacker:
    """Sends requests without normalizing their target or body."""

    def __init__(self, plane: ControlPlane, session: aiohttp.ClientSession) -> None:
        self._plane = plane
        self._session = session

    async def send(self, request: Request) -> tuple[int, bytes]:
        url = yarl.URL(self._plane.url + request.target, encoded=True)
        headers = {"Authorization": f"Bearer {self._plane.token}", **request.headers}
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            self._session.request(
                request.method, url, data=request.body, headers=headers
            ) as response,
        ):
            may_stream = "watch" in request.target
            return response.status, b"" if may_stream else await response.read()


@pytest.fixture
async def attacker(embedded: EmbeddedControlPlane) -> AsyncIterator[Attacker]:
    context = ssl.create_default_context(cadata=embedded.ca_pem.decode())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        yield Attacker(embedded, session)


def is_expected(code: int, body: bytes) -> bool:
    """Return whether the real server also gives this response.

    These are all responses below 500, errors of storage and apply without a reason, and 504 for future versions.
    """
    if code < 500 or code == 504:
        return True
    return (
        not body
        or json.loads(body).get("reason") != "InternalError"
        or b"error dialing backend" in body
    )


async def test_random_requests_never_cause_internal_errors(
    embedded: EmbeddedControlPlane, victim: APIClient, attacker: Attacker
) -> None:
    print(f"ENVTEST_HOSTILE_SEED={SEED}")
    await embedded.install_crds(CRD)
    requests = RandomRequests(SEED)
    codes: dict[int, int] = {}
    for number in range(COUNT):
        if number % 100 == 0:
            for root, obj in initial_objects():
                assert (await victim.post(root, obj)).code in (201, 409)
        request = requests.request()
        try:
            code, body = await attacker.send(request)
        except TimeoutError:
            pytest.fail(f"no response to request {number} of seed {SEED}: {request}")
        codes[code] = codes.get(code, 0) + 1
        assert is_expected(code, body), (
            f"request {number} of seed {SEED}: {request}\n{body.decode()}"
        )
    assert {200, 400, 404, 405, 409, 422} <= codes.keys(), codes
    assert (await victim.get("/readyz")).code == 200
    assert (await victim.post(CONFIG_MAPS, config_map("after"))).code == 201


NESTING = 20_000


@pytest.mark.parametrize("media", ["application/json", "application/yaml"])
@pytest.mark.parametrize(
    "body",
    [
        b"[" * NESTING,
        b'{"a":' * NESTING,
        b"[" * NESTING + b"]" * NESTING,
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":' + b'{"a":' * 600 + b"1" + b"}" * 601,
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","generation":'
        + b"1" * 5000
        + b"}}",
        b'{"kind":"ConfigMap","apiVersion":"v1",\xff"metadata":{"name":"a"}}',
        b"\xff\xfe\x00\x01",
        b"\x00",
    ],
)
async def test_malformed_body_is_a_bad_request(victim: APIClient, body: bytes, media: str) -> None:
    response = await victim.post(CONFIG_MAPS, body, content_type=media)
    assert response.code == 400, response
    assert response.body["reason"] == "BadRequest"


async def test_deeply_nested_custom_resource_is_rejected(
    embedded: EmbeddedControlPlane, victim: APIClient
) -> None:
    await embedded.install_crds(CRD)
    deep = b'{"a":' * 500 + b"1" + b"}" * 500
    body = (
        b'{"kind":"Toy","apiVersion":"acme.io/v1","metadata":{"name":"a"},"status":' + deep + b"}"
    )
    response = await victim.post("/apis/acme.io/v1/namespaces/default/toys", body)
    assert (response.code, response.body["message"]) == (400, "exceeded max depth")


@pytest.mark.parametrize("opener", ["[", "{a: ", "- ", "? ", "[? ", "- ["])
def test_deeply_nested_yaml_is_rejected(opener: str) -> None:
    with pytest.raises(yaml_codec.YAMLError):
        yaml_codec.load(opener.encode() * 50_000)


def test_moderately_nested_yaml_is_accepted() -> None:
    levels = 60
    text = "\n".join("  " * level + "a:" for level in range(levels)) + " [" + "[1]," * 500 + "]"
    value = yaml_codec.load(text.encode())
    for _ in range(levels):
        value = value["a"]
    assert value == [[1]] * 500


async def test_yaml_alias_bomb_is_rejected(victim: APIClient) -> None:
    lines = ["kind: ConfigMap", "apiVersion: v1", "x0: &x0 [a,a,a,a,a,a,a,a,a,a]"]
    lines += [
        f"x{level}: &x{level} [{','.join([f'*x{level - 1}'] * 10)}]" for level in range(1, 10)
    ]
    response = await victim.post(
        CONFIG_MAPS, "\n".join(lines).encode(), content_type="application/yaml"
    )
    assert response.code == 400
    assert "document contains excessive aliasing" in response.body["message"]
    response = await victim.post(CONFIG_MAPS, b"a: &a [*a]", content_type="application/yaml")
    assert "anchor value contains itself" in response.body["message"]


async def test_oversized_json_patch_is_rejected(victim: APIClient) -> None:
    assert (await victim.post(CONFIG_MAPS, config_map("a", {"x": "y" * 1000}))).code == 201
    doubling = [{"op": "copy", "from": "/data", "path": f"/data/k{number}"} for number in range(40)]
    media = "application/json-patch+json"
    response = await victim.request("PATCH", f"{CONFIG_MAPS}/a", doubling, content_type=media)
    assert (response.code, response.body["reason"]) == (422, "Invalid")
    many = [{"op": "remove", "path": "/data/x"}] * 10_001
    response = await victim.request("PATCH", f"{CONFIG_MAPS}/a", many, content_type=media)
    assert response.code == 413
    assert (
        response.body["message"]
        == "The allowed maximum operations in a JSON patch is 10000, got 10001"
    )


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/api/v1/namespaces/default/configmaps/a%2Fb", 404),
        ("/api/v1/namespaces/default/configmaps/..%2f..%2f..%2fsecrets", 404),
        ("/api/v1/namespaces/../../version", 404),
        ("/api//v1/pods", 404),
        ("//api/v1/pods", 404),
        ("/api/v1/namespaces/default/configmaps/%00", 404),
        ("/api/v1/namespaces/default/configmaps/%ff", 404),
        ("/api/v1/pods?limit=-1", 200),
        ("/api/v1/pods?limit=9223372036854775807", 200),
        ("/api/v1/pods?limit=9223372036854775808", 400),
        ("/api/v1/pods?limit=" + "9" * 5000, 400),
        ("/api/v1/pods?resourceVersion=-1", 400),
        ("/api/v1/pods?resourceVersion=" + "9" * 5000, 400),
        ("/api/v1/namespaces/default/pods/a?resourceVersion=-1", 500),
        ("/api/v1/pods?resourceVersion=" + "0" * 5000, 200),
        ("/api/v1/pods?continue=%00%ff", 400),
        ("/api/v1/pods?unknown=value&this=", 200),
        ("/api/v1/pods?labelSelector=" + "a" * 100_000, 400),
        ("/api/v1/pods?labelSelector=a+in+(" + "b," * 30_000 + "b)", 200),
        ("/api/v1/pods?%zz=%&&&===", 200),
        ("/version?%", 200),
    ],
)
async def test_unusual_request_targets(attacker: Attacker, target: str, code: int) -> None:
    received, body = await attacker.send(Request("GET", target, {}, None))
    assert received == code, body
    assert is_expected(received, body)


@pytest.mark.parametrize(
    ("timeout", "problem"),
    [
        ("10s", ""),
        ("1h30m.5s", ""),
        ("0", ""),
        ("-1s", ""),
        ("10", 'missing unit in duration "10"'),
        ("soon", 'invalid duration "soon"'),
        ("+", 'invalid duration "+"'),
        ("1s2", 'missing unit in duration "1s2"'),
        ("3 days", 'unknown unit " days" in duration "3 days"'),
    ],
)
async def test_timeout_parameter_is_validated(
    victim: APIClient, timeout: str, problem: str
) -> None:
    response = await victim.get("/api/v1/pods", {"timeout": timeout})
    assert response.code == (400 if problem else 200)
    if problem:
        assert (
            response.body["message"]
            == f"invalid timeout specified in the request URL - time: {problem}"
        )
    async with victim.watch("/api/v1/pods", {"timeout": timeout}):
        pass


async def connect(plane: ControlPlane) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context(cadata=plane.ca_pem.decode())
    host, port = urlsplit(plane.url).hostname, urlsplit(plane.url).port
    return await asyncio.open_connection(host, port, ssl=context)


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x00",
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ],
)
async def test_invalid_http_is_rejected(
    embedded: EmbeddedControlPlane, victim: APIClient, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await connect(embedded)
    writer.write(data)
    if writer.can_write_eof():
        writer.write_eof()
    line = b""
    if b"\r\n" in data:
        line = await asyncio.wait_for(reader.readline(), TIMEOUT_SECONDS)
        assert line.split()[1] in (b"400", b"505")
    writer.close()
    assert (await victim.get("/readyz")).code == 200
    assert caplog.records == []


async def test_incomplete_body_times_out(
    embedded: EmbeddedControlPlane, victim: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS", 0.05)
    reader, writer = await connect(embedded)
    request_head = (
        f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
        f"{embedded.token}\r\nContent-Length: 1000\r\n"
    )
    writer.write(request_head.encode() + b"\r\n{")
    line = await asyncio.wait_for(reader.readline(), TIMEOUT_SECONDS)
    assert line.split()[1] == b"504"
    writer.close()
    assert (await victim.get("/readyz")).code == 200


async def test_many_concurrent_watches_receive_an_event(
    embedded: EmbeddedControlPlane, victim: APIClient
) -> None:
    context = ssl.create_default_context(cadata=embedded.ca_pem.decode())
    headers = {"Authorization": f"Bearer {embedded.token}"}
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    async with (
        asyncio.timeout(120),
        aiohttp.ClientSession(embedded.url, connector=connector, headers=headers) as http,
    ):
        query = {"watch": "true", "fieldSelector": "metadata.name=seen"}
        watches = await asyncio.gather(*(http.get(CONFIG_MAPS, params=query) for _ in range(200)))
        assert (await victim.post(CONFIG_MAPS, config_map("seen"))).code == 201
        lines = await asyncio.gather(*(watch.content.readline() for watch in watches))
        assert {json.loads(line)["object"]["metadata"]["name"] for line in lines} == {"seen"}
    assert (await victim.get("/readyz")).code == 200
