"""The servers that specs run in pods, played by one server of this process.

They are the webhooks, the conversion and the echo server of ``agnhost``, and the sample API server.

The cluster's scenario names this server as the port of their pods, so the API server reaches it through the Services
that a spec creates. It shows the certificate of the Secret in the namespace that the client asks for by a Service's
name.
"""

from __future__ import annotations

import asyncio
import copy
import ssl
import tempfile
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from envtest import ControlPlane
from envtest.apimachinery.errors import GroupResource
from envtest.formats.certificate_authority import CertificateAuthority

__all__ = ["SpecServers", "listen", "run_servers", "server_context"]

LABEL = "webhook-e2e-test"
SLOW_SECONDS = 5.0
PORTS = {"webhook": 8444, "crd-webhook": 9444, "apiserver": 443}
"""The port of the pods with each label."""
ECHOES = ({"test": "response"}, {"e2e-test": "proxy-endpoints"})
"""The labels of pods that echo requests on port 80."""
PORTERS = {
    80: '<a href="/rewriteme">test</a>',
    1080: '<a href="/rewriteme">test</a>',
    160: "foo",
    162: "bar",
    443: '<a href="/tlsrewriteme">test</a>',
    460: "tls baz",
    462: "tls qux",
}
"""What the pods of a ReplicationController of a spec answer on each port."""
PORTER_LABEL = "proxy-service-target"

WATCHES: list[str] = []
"""The namespaces of the open watches of the sample API server."""

_SECRETS = GroupResource("", "secrets")

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class SpecServers:
    """The server, which echoes requests without TLS; ``cluster`` is set as soon as its control plane runs."""

    def __init__(self) -> None:
        self.port = 0
        self.echo_port = 0
        self.porters: dict[int, int] = {}
        self.cluster: ControlPlane | None = None
        self._contexts: dict[bytes, ssl.SSLContext] = {}

    def pods(self) -> list[dict[str, Any]]:
        """Return the rules of a scenario for the pods that this server plays."""
        address, echo = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.echo_port}"
        rules = [
            {"match": {"labels": {label: "true"}}, "ports": {port: address}}
            for label, port in PORTS.items()
        ]
        ports = {number: f"127.0.0.1:{port}" for number, port in self.porters.items()}
        rules.append({"match": {"labels": {PORTER_LABEL: "true"}}, "ports": ports})
        return [*rules, *({"match": {"labels": labels}, "ports": {80: echo}} for labels in ECHOES)]

    def context_of(self, server_name: str) -> ssl.SSLContext | None:
        """Return the context with the certificate in the namespace of a Service, ``NAME.NAMESPACE.svc``."""
        assert self.cluster is not None
        assert self.cluster._api_server is not None
        namespace = server_name.split(".")[1]
        for record in self.cluster._api_server.core.store.list(_SECRETS, namespace):
            data = record.obj().get("data") or {}
            if "tls.crt" in data:
                return self._context(b64decode(data["tls.crt"]), b64decode(data["tls.key"]))
        return None

    def _context(self, certificate: bytes, key: bytes) -> ssl.SSLContext:
        if certificate not in self._contexts:
            self._contexts[certificate] = server_context(certificate, key)
        return self._contexts[certificate]


def server_context(certificate: bytes, key: bytes) -> ssl.SSLContext:
    """Return the context of a server with a certificate and its key, as PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.write_bytes(certificate + key)
        context.load_cert_chain(path)
    return context


@asynccontextmanager
async def run_servers() -> AsyncIterator[SpecServers]:
    """Serve until the block ends."""
    servers = SpecServers()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def choose(connection: ssl.SSLObject, server_name: str | None, _: ssl.SSLContext) -> int | None:
        chosen = servers.context_of(server_name) if server_name else None
        if chosen is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        connection.context = chosen
        return None

    context.sni_callback = choose
    pair = CertificateAuthority().server(["localhost"])
    own = server_context(pair.certificate, pair.key)
    async with AsyncExitStack() as stack:
        servers.port = await stack.enter_async_context(listen(context))
        servers.echo_port = await stack.enter_async_context(serve(_echoes(), None))
        for number, text in PORTERS.items():
            served = serve(_porter(text), own if "tls" in text else None)
            servers.porters[number] = await stack.enter_async_context(served)
        yield servers


@asynccontextmanager
async def listen(context: ssl.SSLContext) -> AsyncIterator[int]:
    """Listen with TLS on a local port, which is yielded, until the block ends."""
    application = web.Application()
    application.router.add_get("/readyz", _ready)
    application.router.add_post("/crdconvert", _convert)
    _Flunders().serve(application)
    application.router.add_post("/{path:.*}", _review)
    async with serve(application, context) as port:
        yield port


@asynccontextmanager
async def serve(application: web.Application, context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """Serve an application on a local port, which is yielded, until the block ends."""
    runner = web.AppRunner(
        application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _porter(text: str) -> web.Application:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(
            text=text, content_type="text/html" if text.startswith("<") else "text/plain"
        )

    application = web.Application()
    application.router.add_get("/", answer)
    return application


def _echoes() -> web.Application:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response({"Method": request.method, "Body": "foo"})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", echo)
    return application


async def _ready(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _review(request: web.Request) -> web.Response:
    """Answer an AdmissionReview at the path of one of the webhooks."""
    answer = ANSWERS.get(request.path)
    if answer is None:
        raise web.HTTPNotFound
    document = orjson.loads(await request.read())
    review = document["request"]
    if request.path == "/always-allow-delay-5s":
        await asyncio.sleep(SLOW_SECONDS)
    if request.path == "/pods" and _labels(review).get(LABEL) == "wait-forever":
        await asyncio.Event().wait()
    fields = answer(review)
    if "patch" in fields:
        patch = b64encode(orjson.dumps(fields["patch"])).decode()
        fields = {**fields, "patch": patch, "patchType": "JSONPatch"}
    response = {"uid": review["uid"], "allowed": True, **fields}
    return web.json_response(
        {"kind": "AdmissionReview", "apiVersion": document["apiVersion"], "response": response}
    )


def _denied(message: str) -> dict[str, Any]:
    return {"allowed": False, "status": {"message": message}}


def _labels(review: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = review["object"]["metadata"].get("labels") or {}
    return labels


def _data(review: dict[str, Any]) -> dict[str, str]:
    data: dict[str, str] = (review["object"] or review["oldObject"]).get("data") or {}
    return data


def _check_pod(review: dict[str, Any]) -> dict[str, Any]:
    problems = []
    if _labels(review).get(LABEL) == "webhook-disallow":
        problems.append("the pod contains unwanted label;")
    if any("webhook-disallow" in each["name"] for each in review["object"]["spec"]["containers"]):
        problems.append("the pod contains unwanted container name;")
    return _denied(" ".join(problems)) if problems else {}


def _check_attach(review: dict[str, Any]) -> dict[str, Any]:
    assert (review["kind"]["kind"], review["resource"]["resource"]) == ("PodAttachOptions", "pods")
    assert (review["operation"], review["subResource"]) == ("CONNECT", "attach")
    options = review["object"]
    if (review["name"], options.get("stdin"), options.get("container")) == (
        "to-be-attached-pod",
        True,
        "container1",
    ):
        return _denied("attaching to pod 'to-be-attached-pod' is not allowed")
    return {}


def _check_config_map(review: dict[str, Any]) -> dict[str, Any]:
    if _data(review).get(LABEL) == "webhook-disallow":
        return _denied("the configmap contains unwanted key and value")
    return {}


def _check_custom_resource(review: dict[str, Any]) -> dict[str, Any]:
    value = _data(review).get(LABEL)
    if review["operation"] == "DELETE":
        text = "the custom resource cannot be deleted because it contains unwanted key and value"
        return (
            {"allowed": False, "status": {"reason": text}}
            if value == "webhook-nondeletable"
            else {}
        )
    text = "the custom resource contains unwanted data"
    return {"allowed": False, "status": {"reason": text}} if value == "webhook-disallow" else {}


def _check_definition(review: dict[str, Any]) -> dict[str, Any]:
    return (
        _denied("the crd contains unwanted label")
        if _labels(review).get(LABEL) == "webhook-disallow"
        else {}
    )


def _add_data(review: dict[str, Any]) -> dict[str, Any]:
    """Add the next stage to the data: stage 2 after stage 1, which comes after the start."""
    data = _data(review)
    for before, name in (
        ("mutation-stage-1", "mutation-stage-2"),
        ("mutation-start", "mutation-stage-1"),
    ):
        if data.get(before) == "yes":
            return {"patch": [{"op": "add", "path": f"/data/{name}", "value": "yes"}]}
    return {}


def _add_init_container(review: dict[str, Any]) -> dict[str, Any]:
    added = {
        "image": "webhook-added-image",
        "name": "webhook-added-init-container",
        "resources": {},
    }
    if review["object"]["metadata"].get("name") != "webhook-to-be-mutated":
        return {}
    return {"patch": [{"op": "add", "path": "/spec/initContainers", "value": [added]}]}


ANSWERS: dict[str, Answer] = {
    "/add-label": lambda _: {
        "patch": [{"op": "add", "path": "/metadata/labels", "value": {"added-label": "yes"}}]
    },
    "/always-allow-delay-5s": lambda _: {},
    "/always-deny": lambda _: _denied("this webhook denies all requests"),
    "/configmaps": _check_config_map,
    "/crd": _check_definition,
    "/custom-resource": _check_custom_resource,
    "/mutating-configmaps": _add_data,
    "/mutating-custom-resource": _add_data,
    "/mutating-pods": _add_init_container,
    "/pods": _check_pod,
    "/pods/attach": _check_attach,
}


async def _convert(request: web.Request) -> web.Response:
    """Convert between v1, which has ``hostPort``, and v2, which has ``host`` and ``port``."""
    document = orjson.loads(await request.read())
    review = document["request"]
    converted = [_converted(each, review["desiredAPIVersion"]) for each in review["objects"]]
    response = {
        "uid": review["uid"],
        "convertedObjects": converted,
        "result": {"status": "Success"},
    }
    return web.json_response(
        {"kind": "ConversionReview", "apiVersion": document["apiVersion"], "response": response}
    )


def _converted(source: dict[str, Any], version: str) -> dict[str, Any]:
    obj = copy.deepcopy(source)
    obj["apiVersion"] = version
    if version.endswith("/v2") and "hostPort" in obj:
        obj["host"], _, obj["port"] = obj.pop("hostPort").partition(":")
    elif version.endswith("/v1") and "host" in obj:
        obj["hostPort"] = f"{obj.pop('host')}:{obj.pop('port', '')}"
    return obj


class _Flunders:
    """The API of the sample API server, which keeps its objects in memory, with the user that created each."""

    ROOT = "/apis/wardle.example.com/v1alpha1"

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._changed = asyncio.Event()

    def serve(self, application: web.Application) -> None:
        """Add the routes."""
        collection = f"{self.ROOT}/namespaces/{{namespace}}/flunders"
        application.router.add_get(self.ROOT, self._resources)
        application.router.add_get(collection, self._list)
        application.router.add_post(collection, self._create)
        application.router.add_get(f"{collection}/{{name}}", self._read)
        application.router.add_delete(f"{collection}/{{name}}", self._delete)

    async def _resources(self, _: web.Request) -> web.Response:
        verbs = ["create", "delete", "get", "list", "watch"]
        names = {
            "name": "flunders",
            "singularName": "flunder",
            "kind": "Flunder",
            "namespaced": True,
        }
        head = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": "wardle.example.com/v1alpha1",
        }
        return web.json_response({**head, "resources": [{**names, "verbs": verbs}]})

    async def _list(self, request: web.Request) -> web.StreamResponse:
        namespace = request.match_info["namespace"]
        if request.query.get("watch"):
            return await self._watch(request, namespace)
        items = [obj for key, obj in self._objects.items() if key[0] == namespace]
        return web.json_response(
            {**self._type("FlunderList"), "metadata": {"resourceVersion": "1"}, "items": items}
        )

    async def _watch(self, request: web.Request, namespace: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        sent: set[str] = set()
        WATCHES.append(namespace)
        try:
            while True:
                for key, obj in self._objects.items():
                    if key[0] == namespace and key[1] not in sent:
                        sent.add(key[1])
                        await response.write(orjson.dumps({"type": "ADDED", "object": obj}) + b"\n")
                self._changed.clear()
                await self._changed.wait()
        finally:
            WATCHES.remove(namespace)

    async def _create(self, request: web.Request) -> web.Response:
        obj = {**self._type("Flunder"), **orjson.loads(await request.read())}
        groups = request.headers.getall("X-Remote-Group")
        obj["metadata"] |= {
            "annotations": {"user": request.headers["X-Remote-User"], "groups": ",".join(groups)}
        }
        assert "Authorization" not in request.headers
        self._objects[request.match_info["namespace"], obj["metadata"]["name"]] = obj
        self._changed.set()
        return web.json_response(obj, status=201)

    async def _read(self, request: web.Request) -> web.Response:
        obj = self._objects.get((request.match_info["namespace"], request.match_info["name"]))
        return web.json_response(obj or {"kind": "Status", "code": 404}, status=200 if obj else 404)

    async def _delete(self, request: web.Request) -> web.Response:
        obj = self._objects.pop((request.match_info["namespace"], request.match_info["name"]), None)
        status = {"kind": "Status", "apiVersion": "v1", "status": "Success" if obj else "Failure"}
        return web.json_response(status, status=200 if obj else 404)

    @staticmethod
    def _type(kind: str) -> dict[str, str]:
        return {"apiVersion": "wardle.example.com/v1alpha1", "kind": kind}
