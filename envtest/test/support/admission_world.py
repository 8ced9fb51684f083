"""What tests of admission share: resources, a store with a namespace, and webhooks that answer from a script."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from envtest.admission.standard import standard_chain
from envtest.admission.webhook_client import CallFailed, ServiceEndpoints, WebhookClient
from envtest.auth.rbac import RBACAuthorizer
from envtest.context import RequestContext, User
from envtest.errors import GroupResource
from envtest.objects import Object
from envtest.registry import Registry, ResourceInfo, Subresource
from envtest.storage import Store
from envtest.strategy import Strategy

GROUP = "admissionregistration.k8s.io"
ADMIN = User("admin", "admin", ("system:masters",))
MAPS = ResourceInfo("", "v1", "configmaps", "configmap", "ConfigMap", True, Strategy())
PODS = ResourceInfo("", "v1", "pods", "pod", "Pod", True, Strategy(), subresources={"status": Subresource("status")})
NODES = ResourceInfo("", "v1", "nodes", "node", "Node", False, Strategy())
NAMESPACES = ResourceInfo("", "v1", "namespaces", "namespace", "Namespace", False, Strategy())
SCALE = Subresource("scale", "Scale", "autoscaling", "v1")
DEPLOYMENTS = ResourceInfo(
    "apps", "v1", "deployments", "deployment", "Deployment", True, Strategy(), subresources={"scale": SCALE}
)


def context(info: ResourceInfo = MAPS, operation: str = "CREATE", *, name: str = "x", **more: Any) -> RequestContext:
    namespace = "a" if info.namespaced else ""
    verb = more.pop("verb", operation.lower())
    options = {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    user = more.pop("user", ADMIN)
    return RequestContext(user, verb, info, namespace, name, operation=operation, options=options, **more)


def config_map(**labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "a", "labels": labels}}


def put(
    store: Store, api_version: str, kind: str, plural: str, name: str, *, namespace: str = "", **fields: Any
) -> None:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
    obj = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
    store.create(GroupResource(api_version.rpartition("/")[0], plural), obj)


Script = Callable[[dict[str, Any]], dict[str, Any]]


class Scripted(WebhookClient):
    """Answers by url instead of calling it; keeps what was asked."""

    def __init__(self, store: Store, **answers: Script) -> None:
        super().__init__(ServiceEndpoints(store))
        self._answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def post(self, config: Mapping[str, Any], body: bytes, *, seconds: int) -> bytes:
        name = config["url"]
        request = orjson.loads(body)["request"]
        self.asked.append((name, request))
        answer = self._answers[name](request)
        if "fail" in answer:
            raise CallFailed(answer["fail"])
        if "patch" in answer:
            patch = b64encode(json.dumps(answer["patch"]).encode()).decode()
            answer = {**answer, "patch": patch, "patchType": "JSONPatch"}
        response = {"uid": request["uid"], "allowed": True, **answer}
        return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    @property
    def urls(self) -> list[str]:
        return [url for url, _ in self.asked]


def hook(name: str, **fields: Any) -> dict[str, Any]:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]
    base = {"name": f"{name}.acme.io", "clientConfig": {"url": name}, "rules": rules, "sideEffects": "None"}
    return {**base, "admissionReviewVersions": ["v1"], **fields}


def configure(store: Store, kind: str, name: str, *hooks: dict[str, Any]) -> None:
    put(
        store,
        f"{GROUP}/v1",
        f"{kind}WebhookConfiguration",
        f"{kind.lower()}webhookconfigurations",
        name,
        webhooks=hooks,
    )


def chain(store: Store, client: WebhookClient, *, service_accounts: bool = False) -> Any:
    return standard_chain(store, Registry(), RBACAuthorizer(store), client, service_accounts=service_accounts)
