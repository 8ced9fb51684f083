"""A minimal API server that lists N RayClusters of 4.7 kB each over HTTPS, for the cold sync of a client.

The RayClusters resemble clusters in use: they have a status and the managedFields of three field managers. They are
generated in memory, so that 20,000 are available within seconds. A watch opens and delivers no events.

Usage: ``python -m test.bench.list_server N``. Prints one line of JSON when it listens:
``{"url", "ca", "object_bytes", "plain_bytes"}``; the sizes are averages, and plain means without managedFields. It
stops at the end of its standard input.
"""

from __future__ import annotations

import asyncio
import datetime
import gzip
import ipaddress
import ssl
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from test.bench.raycluster_objects import pad, raycluster, raycluster_status

LIST_VERSION = "900000"
"""The resourceVersion of the list."""


def fields_v1(value: Any) -> dict[str, Any]:
    """Return the ``fieldsV1`` of a manager that owns all fields of a value."""
    if not isinstance(value, dict):
        return {}
    return {f"f:{key}": fields_v1(inner) for key, inner in value.items()}


def stored_raycluster(number: int) -> tuple[bytes, int]:
    """Return the JSON of a RayCluster that runs, as the API server sends it, and its size without managedFields."""
    body = raycluster(number, padded=False)
    body["status"] = raycluster_status(number, number)
    metadata = body["metadata"]
    metadata |= {
        "uid": f"6f1c2a52-0f0e-4d5b-9c1e-{number:012}",
        "resourceVersion": str(100_000 + number),
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["ray.openshift.ai/oauth-finalizer"],
    }
    managed: list[dict[str, Any]] = [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "ray.io/v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": owned,
        }
        for manager, owned in (
            (
                "OpenAPI-Generator",
                fields_v1({"metadata": {"labels": metadata["labels"]}, "spec": body["spec"]}),
            ),
            ("kuberay-operator", fields_v1({"status": body["status"]})),
            ("codeflare-raycluster-controller", {"f:metadata": {"f:finalizers": {".": {}}}}),
        )
    ]
    metadata["managedFields"] = managed
    pad(body)
    encoded = orjson.dumps(body)
    del metadata["managedFields"]
    return encoded, len(orjson.dumps(body))


def resource_list(group_version: str, *resources: tuple[str, str]) -> dict[str, Any]:
    """Return the APIResourceList of a group version; ``resources`` are pairs of plural and kind."""
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": [
            {
                "name": plural,
                "singularName": kind.lower(),
                "namespaced": True,
                "kind": kind,
                "verbs": verbs,
            }
            for plural, kind in resources
        ],
    }


def api_group(name: str) -> dict[str, Any]:
    """Return an APIGroup that serves ``v1``."""
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


# kopf starts only when discovery contains namespaces and CRDs.
DISCOVERY: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": resource_list("v1", ("events", "Event"), ("namespaces", "Namespace")),
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [api_group("ray.io"), api_group("apiextensions.k8s.io")],
    },
    "/apis/apiextensions.k8s.io/v1": resource_list(
        "apiextensions.k8s.io/v1", ("customresourcedefinitions", "CustomResourceDefinition")
    ),
    "/apis/ray.io/v1": resource_list("ray.io/v1", ("rayclusters", "RayCluster")),
}


AGGREGATED: dict[str, Any] = {
    "kind": "APIGroupDiscoveryList",
    "apiVersion": "apidiscovery.k8s.io/v2",
    "items": [
        {
            "metadata": {"name": "ray.io"},
            "versions": [
                {
                    "version": "v1",
                    "freshness": "Current",
                    "resources": [
                        {
                            "resource": "rayclusters",
                            "singularResource": "raycluster",
                            "scope": "Namespaced",
                            "responseKind": {
                                "group": "ray.io",
                                "version": "v1",
                                "kind": "RayCluster",
                            },
                            "verbs": ["get", "list", "watch"],
                        }
                    ],
                }
            ],
        }
    ],
}
"""What clients get that accept it, instead of one document for each group."""


class RayClusterList:
    """The collection of RayClusters; serves it in pages of the requested size."""

    def __init__(self, count: int) -> None:
        stored = [stored_raycluster(number) for number in range(count)]
        self.items = [encoded for encoded, _ in stored]
        self.object_bytes = sum(map(len, self.items)) // count
        self.plain_bytes = sum(plain_bytes for _, plain_bytes in stored) // count
        self.page = lru_cache(maxsize=64)(self._page)

    def _page(self, start: int, limit: int, compressed: bool) -> bytes:
        end = start + limit if limit else len(self.items)
        token = str(end) if end < len(self.items) else ""
        head = orjson.dumps({"resourceVersion": LIST_VERSION, "continue": token})
        body = (
            b'{"apiVersion":"ray.io/v1","kind":"RayClusterList","metadata":%b,"items":[%b]}\n'
            % (
                head,
                b",".join(self.items[start:end]),
            )
        )
        return (
            gzip.compress(body, 1) if compressed else body
        )  # the compression level of kube-apiserver

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer discovery, list and watch requests; 404 for everything else."""
        if request.path in ("/api", "/apis") and "APIGroupDiscoveryList" in request.headers.get(
            "Accept", ""
        ):
            return web.json_response(
                AGGREGATED if request.path == "/apis" else {**AGGREGATED, "items": []}
            )
        if request.path.removesuffix("/") in DISCOVERY:
            return web.json_response(DISCOVERY[request.path.removesuffix("/")])
        if not request.path.endswith("/rayclusters"):
            not_found = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": "NotFound",
                "code": 404,
            }
            return web.json_response(not_found, status=404)
        if request.query.get("watch") in ("true", "1"):
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            await asyncio.sleep(3600)
            return response
        compressed = "gzip" in request.headers.get("Accept-Encoding", "")
        body = self.page(
            int(request.query.get("continue", "0")),
            int(request.query.get("limit", "0")),
            compressed,
        )
        headers = {"Content-Type": "application/json"} | (
            {"Content-Encoding": "gzip"} if compressed else {}
        )
        return web.Response(body=body, headers=headers)


def create_tls_context(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Return a server context with a new self-signed certificate, and the certificate as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cold-sync")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key_pair = folder / "pair.pem"
    key_pair.write_bytes(pem + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key_pair)
    return context, pem.decode()


async def serve(count: int) -> None:
    """Serve ``count`` RayClusters until the end of standard input."""
    collection = RayClusterList(count)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", collection.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    with tempfile.TemporaryDirectory() as folder:
        context, pem = create_tls_context(Path(folder))
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    sizes = {"object_bytes": collection.object_bytes, "plain_bytes": collection.plain_bytes}
    print(orjson.dumps({"url": url, "ca": pem, **sizes}).decode(), flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the benchmark closes it
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
