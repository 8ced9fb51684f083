"""The valid objects that the generator starts from, with the resource and the schema of each."""

from __future__ import annotations

import json
from base64 import b64encode
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from envtest.builtins.catalog import all_resources, schema_of
from envtest.schema.schema_node import Schema

__all__ = ["Sample", "builtin_samples"]

_FILE = Path(__file__).parent / "data" / "samples.yaml"


_WRITTEN_BY_SERVER = ("apiservices", "flowschemas", "customresourcedefinitions")
"""Kinds whose status kube-apiserver writes at a time of its own."""
_OTHER_ROOTS = {
    ("autoscaling/v2", "horizontalpodautoscalers"): "/apis/autoscaling/v1",
    ("autoscaling/v1", "horizontalpodautoscalers"): "/apis/autoscaling/v2",
}


class Sample(msgspec.Struct, frozen=True):
    """A kind with one valid object.

    ``root`` is the path of the API version (``/apis/apps/v1``). ``subresources`` names the subresources that the
    generator uses. ``fixed_name`` is true if the name of an object follows from its content. ``dry_run`` is true if
    kube-apiserver itself writes the status of such objects, at a time of its own: they are only written in dry runs.
    ``other_root`` is the path of another version of the same objects.
    """

    root: str
    plural: str
    namespaced: bool
    verbs: tuple[str, ...]
    subresources: tuple[str, ...]
    schema: Schema
    obj: dict[str, Any]
    fixed_name: bool = False
    dry_run: bool = False
    other_root: str = ""

    def collection(self, namespace: str) -> str:
        """Return the path of the collection, in a namespace if the resource has one."""
        if self.namespaced:
            return f"{self.root}/namespaces/{namespace}/{self.plural}"
        return f"{self.root}/{self.plural}"


def builtin_samples() -> list[Sample]:
    """Return a sample of each built-in kind."""
    objects = {}
    for document in yaml.safe_load(_FILE.read_text()):
        obj = json.loads(json.dumps(document).replace('"CSR"', json.dumps(_signing_request())))
        objects[obj["apiVersion"], obj["kind"]] = obj
    samples = []
    for resource in all_resources():
        version = f"{resource.group}/{resource.version}".lstrip("/")
        if (version, resource.kind) not in objects:
            continue
        prefix = "/apis" if resource.group else "/api"
        samples.append(
            Sample(
                root=f"{prefix}/{version}",
                plural=resource.plural,
                namespaced=resource.namespaced,
                verbs=resource.verbs,
                subresources=tuple(each.name for each in resource.subresources),
                schema=schema_of(resource.type),
                obj=deepcopy(objects[version, resource.kind]),
                fixed_name=resource.plural in ("apiservices", "ipaddresses"),
                dry_run=resource.plural in _WRITTEN_BY_SERVER,
                other_root=_OTHER_ROOTS.get((version, resource.plural), ""),
            )
        )
    return samples


def _signing_request() -> str:
    """Return a certificate signing request as base64, the same in each run."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "user")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, None)
    return b64encode(request.public_bytes(Encoding.PEM)).decode()
