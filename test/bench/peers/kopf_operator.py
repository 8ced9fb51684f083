"""An operator written with kopf that creates the same children of RayClusters as cfo on vanilla Kubernetes with mTLS.

It is written as kopf's documentation shows: handlers for clusters that are created, updated, or found at the start;
children from templates, owned by the cluster, applied with kubernetes_asyncio's dynamic client; event handlers that
restore changed or deleted children. In kopf's favor, it has one handler for all children (with several handlers, kopf
stores their progress in annotations), serves no webhooks and does not take part in leader election.

Usage: ``python -m test.bench.peers.kopf_operator HEALTH_PORT TEMPLATES``. :mod:`test.bench.peers.child_templates`
renders the file TEMPLATES.
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
    """The manifests of the children, with placeholders for the cluster's name and namespace."""

    def __init__(self, file: Path) -> None:
        document = json.loads(file.read_bytes())
        self._placeholders = document["name"], document["namespace"]
        self._children = json.dumps(document["children"])
        self._ca_secret = json.dumps(document["ca_secret"])

    def children(self, name: str, namespace: str) -> list[dict[str, Any]]:
        """Return the children of a cluster, without its CA Secret."""
        children: list[dict[str, Any]] = json.loads(self._render(self._children, name, namespace))
        return children

    def ca_secret(self, name: str, namespace: str) -> dict[str, Any]:
        """Return the Secret of a cluster with a new CA."""
        secret: dict[str, Any] = json.loads(self._render(self._ca_secret, name, namespace))
        secret["data"] = {
            key: base64.b64encode(value).decode() for key, value in create_ca().items()
        }
        return secret

    def _render(self, template: str, name: str, namespace: str) -> str:
        return template.replace(self._placeholders[1], namespace).replace(
            self._placeholders[0], name
        )


def create_ca() -> dict[str, bytes]:
    """Create a CA: a P-256 key and a self-signed certificate that is valid for ten years."""
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


class APIOperations:
    """The operations of the handlers on the API server."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self._dynamic: DynamicClient
        self._kinds: dict[str, Any] = {}

    async def connect(self) -> None:
        """Connect to the API server of the kubeconfig, and discover the kinds."""
        await config.load_kube_config()
        self._dynamic = await DynamicClient(client.ApiClient())
        for kind, api_version in KINDS.items():
            self._kinds[kind] = await self._dynamic.resources.get(
                api_version=api_version, kind=kind
            )

    async def close(self) -> None:
        """Close the connections."""
        await self._dynamic.client.close()

    async def reconcile(self, body: Any) -> None:
        """Apply the children of a RayCluster, and create its CA if it has none."""
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        for child in self._templates.children(name, namespace):
            kopf.append_owner_reference(child, owner=body)
            await self._dynamic.server_side_apply(
                self._kinds[child["kind"]], child, field_manager=MANAGER, force_conflicts=True
            )
        secret = self._templates.ca_secret(name, namespace)
        kopf.append_owner_reference(secret, owner=body)
        with suppress(ConflictError):  # an existing CA is kept
            await self._dynamic.create(self._kinds["Secret"], secret, namespace=namespace)

    async def get_raycluster(self, name: str, namespace: str) -> dict[str, Any] | None:
        """Read a RayCluster; return ``None`` if it does not exist."""
        try:
            resource = await self._dynamic.get(self._kinds["RayCluster"], name, namespace)
        except NotFoundError:
            return None
        body: dict[str, Any] = resource.to_dict()
        return body


def register_handlers(operations: APIOperations) -> None:
    """Register the handlers with kopf."""

    @kopf.on.startup()
    async def connect(**_: Any) -> None:
        await operations.connect()

    @kopf.on.cleanup()
    async def close(**_: Any) -> None:
        await operations.close()

    @kopf.on.resume("ray.io", "v1", "rayclusters")
    @kopf.on.create("ray.io", "v1", "rayclusters")
    @kopf.on.update("ray.io", "v1", "rayclusters")
    async def reconcile(body: kopf.Body, **_: Any) -> None:
        await operations.reconcile(body)

    @kopf.on.event("networking.k8s.io", "v1", "networkpolicies", labels={LABEL: kopf.PRESENT})
    @kopf.on.event("networking.k8s.io", "v1", "ingresses", labels={LABEL: kopf.PRESENT})
    @kopf.on.event("", "v1", "secrets", labels={LABEL: kopf.PRESENT})
    async def restore(
        type: str | None,  # noqa: A002 - kopf's name
        labels: kopf.Labels,
        namespace: str | None,
        **_: Any,
    ) -> None:
        if type in ("MODIFIED", "DELETED"):
            body = await operations.get_raycluster(labels[LABEL], str(namespace))
            if body is not None and "deletionTimestamp" not in body["metadata"]:
                await operations.reconcile(body)


def main() -> None:
    """Run the operator."""
    kopf.configure(log_format=kopf.LogFormat.JSON)
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    register_handlers(APIOperations(Templates(Path(sys.argv[2]))))
    kopf.run(
        clusterwide=True,
        standalone=True,
        liveness_endpoint=f"http://127.0.0.1:{sys.argv[1]}/healthz",
    )


if __name__ == "__main__":
    main()
