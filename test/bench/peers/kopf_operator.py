"""An operator written with kopf that gives RayClusters what cfo gives them on vanilla Kubernetes with mTLS.

It is written as kopf's documentation shows: handlers for what is created, updated, or found at the start; children
from templates, owned by the cluster, applied by kubernetes_asyncio's dynamic client; handlers of events that put a
child right which somebody has changed or deleted. In kopf's favour it has one handler for all children (several are
progress to be noted in annotations), no webhooks, and takes part in no election.

Usage: ``python -m test.bench.peers.kopf_operator HEALTH_PORT TEMPLATES``; see :mod:`test.bench.peers.children`.
"""

from __future__ import annotations

import base64
import datetime
import json
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import kopf
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubernetes_asyncio import client, config
from kubernetes_asyncio.dynamic import DynamicClient
from kubernetes_asyncio.dynamic.exceptions import ConflictError, NotFoundError

MANAGER = "kopf-raycluster"
KINDS = {
    "RayCluster": "ray.io/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "Ingress": "networking.k8s.io/v1",
    "Secret": "v1",
}
LABEL = "ray.openshift.ai/cluster-name"


class Templates:
    """The manifests of the children."""

    def __init__(self, file: Path) -> None:
        document = json.loads(file.read_bytes())
        self._holes = document["name"], document["namespace"]
        self._children = json.dumps(document["children"])
        self._authority = json.dumps(document["authority"])

    def children(self, name: str, namespace: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._filled(self._children, name, namespace))
        return found

    def authority(self, name: str, namespace: str) -> dict[str, Any]:
        secret: dict[str, Any] = json.loads(self._filled(self._authority, name, namespace))
        secret["data"] = {key: base64.b64encode(value).decode() for key, value in new_authority().items()}
        return secret

    def _filled(self, text: str, name: str, namespace: str) -> str:
        return text.replace(self._holes[1], namespace).replace(self._holes[0], name)


def new_authority() -> dict[str, bytes]:
    """A P-256 key, and a certificate for ten years that it has signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "root-ca")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.TraditionalOpenSSL
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return {"ca.key": private, "ca.crt": certificate.public_bytes(serialization.Encoding.PEM)}


class Cluster:
    """The API server, as the handlers use it."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self._dynamic: DynamicClient
        self._kinds: dict[str, Any] = {}

    async def connect(self) -> None:
        await config.load_kube_config()
        self._dynamic = await DynamicClient(client.ApiClient())
        for kind, api_version in KINDS.items():
            self._kinds[kind] = await self._dynamic.resources.get(api_version=api_version, kind=kind)

    async def close(self) -> None:
        await self._dynamic.client.close()

    async def provide(self, body: Any) -> None:
        """Gives a RayCluster all that it is to have."""
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        for child in self._templates.children(name, namespace):
            kopf.append_owner_reference(child, owner=body)
            await self._dynamic.server_side_apply(
                self._kinds[child["kind"]], child, field_manager=MANAGER, force_conflicts=True
            )
        secret = self._templates.authority(name, namespace)
        kopf.append_owner_reference(secret, owner=body)
        with suppress(ConflictError):  # an authority that is there stays
            await self._dynamic.create(self._kinds["Secret"], secret, namespace=namespace)

    async def raycluster(self, name: str, namespace: str) -> dict[str, Any] | None:
        try:
            found = await self._dynamic.get(self._kinds["RayCluster"], name, namespace)
        except NotFoundError:
            return None
        body: dict[str, Any] = found.to_dict()
        return body


def register(cluster: Cluster) -> None:
    """Registers the handlers."""

    @kopf.on.startup()
    async def connect(**_: Any) -> None:
        await cluster.connect()

    @kopf.on.cleanup()
    async def close(**_: Any) -> None:
        await cluster.close()

    @kopf.on.resume("ray.io", "v1", "rayclusters")
    @kopf.on.create("ray.io", "v1", "rayclusters")
    @kopf.on.update("ray.io", "v1", "rayclusters")
    async def provide(body: kopf.Body, **_: Any) -> None:
        await cluster.provide(body)

    @kopf.on.event("networking.k8s.io", "v1", "networkpolicies", labels={LABEL: kopf.PRESENT})
    @kopf.on.event("networking.k8s.io", "v1", "ingresses", labels={LABEL: kopf.PRESENT})
    @kopf.on.event("", "v1", "secrets", labels={LABEL: kopf.PRESENT})
    async def mend(type: str | None, labels: kopf.Labels, namespace: str | None, **_: Any) -> None:  # noqa: A002 (kopf's)
        if type in ("MODIFIED", "DELETED"):
            body = await cluster.raycluster(labels[LABEL], str(namespace))
            if body is not None and "deletionTimestamp" not in body["metadata"]:
                await cluster.provide(body)


def main() -> None:
    kopf.configure(log_format=kopf.LogFormat.JSON)
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    register(Cluster(Templates(Path(sys.argv[2]))))
    kopf.run(clusterwide=True, standalone=True, liveness_endpoint=f"http://127.0.0.1:{sys.argv[1]}/healthz")


if __name__ == "__main__":
    main()
