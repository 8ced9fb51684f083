"""Helpers for admission tests: resources, request contexts, stored objects, and a fake webhook client."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from envtest import User
from envtest.admission.plugin_names import enabled_plugins
from envtest.admission.standard import standard_chain
from envtest.admission.webhook_client import CallFailed, ServiceEndpoints, WebhookClient
from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.auth.rbac import RBACAuthorizer
from envtest.registry.registry import Registry
from envtest.registry.resource import RequestContext, ResourceInfo, Strategy, Subresource
from envtest.storage import Store

GROUP = "admissionregistration.k8s.io"
ADMIN = User("admin", "admin", ("system:masters",))
CONFIG_MAPS = ResourceInfo("", "v1", "configmaps", "configmap", "ConfigMap", True, Strategy())
PODS = ResourceInfo(
    "", "v1", "pods", "pod", "Pod", True, Strategy(), subresources={"status": Subresource("status")}
)
NODES = ResourceInfo("", "v1", "nodes", "node", "Node", False, Strategy())
NAMESPACES = ResourceInfo("", "v1", "namespaces", "namespace", "Namespace", False, Strategy())
SCALE = Subresource("scale", "Scale", "autoscaling", "v1")
DEPLOYMENTS = ResourceInfo(
    "apps",
    "v1",
    "deployments",
    "deployment",
    "Deployment",
    True,
    Strategy(),
    subresources={"scale": SCALE},
)


def context(
    info: ResourceInfo = CONFIG_MAPS, operation: str = "CREATE", *, name: str = "x", **more: Any
) -> RequestContext:
    namespace = "a" if info.namespaced else ""
    verb = more.pop("verb", operation.lower())
    options = {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    user = more.pop("user", ADMIN)
    return RequestContext(
        user, verb, info, namespace, name, operation=operation, options=options, **more
    )


def config_map(**labels: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x", "namespace": "a", "labels": labels},
    }


def store_object(
    store: Store,
    api_version: str,
    kind: str,
    plural: str,
    name: str,
    *,
    namespace: str = "",
    **fields: Any,
) -> None:
    metadata = {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        **fields.pop("metadata", {}),
    }
    obj = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
    store.create(GroupResource(api_version.rpartition("/")[0], plural), obj)


Responder = Callable[[dict[str, Any]], dict[str, Any]]


class FakeWebhookClient(WebhookClient):
    """A webhook client without network: responds by URL, and records the requests in ``calls``."""

    def __init__(self, store: Store, **responders: Responder) -> None:
        super().__init__(ServiceEndpoints(store))
        self._responders = responders
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def post(self, config: Mapping[str, Any], body: bytes, *, seconds: int) -> bytes:
        name = config["url"]
        request = orjson.loads(body)["request"]
        self.calls.append((name, request))
        fields = self._responders[name](request)
        if "fail" in fields:
            raise CallFailed(fields["fail"])
        if "patch" in fields:
            patch = b64encode(json.dumps(fields["patch"]).encode()).decode()
            fields = {**fields, "patch": patch, "patchType": "JSONPatch"}
        response = {"uid": request["uid"], "allowed": True, **fields}
        return orjson.dumps(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        )

    @property
    def called_urls(self) -> list[str]:
        return [url for url, _ in self.calls]


def webhook(name: str, **fields: Any) -> dict[str, Any]:
    rules = [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    ]
    base = {
        "name": f"{name}.acme.io",
        "clientConfig": {"url": name},
        "rules": rules,
        "sideEffects": "None",
    }
    return {**base, "admissionReviewVersions": ["v1"], **fields}


def add_configuration(store: Store, kind: str, name: str, *hooks: dict[str, Any]) -> None:
    store_object(
        store,
        f"{GROUP}/v1",
        f"{kind}WebhookConfiguration",
        f"{kind.lower()}webhookconfigurations",
        name,
        webhooks=hooks,
    )


def admission_chain(store: Store, client: WebhookClient, *, service_accounts: bool = False) -> Any:
    plugins = enabled_plugins(disable=() if service_accounts else ["ServiceAccount"])
    return standard_chain(store, Registry(), RBACAuthorizer(store), client, enabled=plugins)
