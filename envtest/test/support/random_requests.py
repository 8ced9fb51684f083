"""Random invalid requests, as a hostile client sends them; reproducible by seed."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any, NamedTuple
from urllib.parse import quote

__all__ = ["RandomRequests", "Request", "initial_objects"]

SEGMENTS = (
    "api", "apis", "v1", "v2", "apps", "batch", "acme.io", "toys", "namespaces", "default", "absent", "pods",
    "configmaps", "secrets", "deployments", "jobs", "nodes", "services", "serviceaccounts", "roles", "clusterroles",
    "leases", "events", "customresourcedefinitions", "widgets", "status", "scale", "log", "exec", "token",
    "binding", "eviction", "finalize", "watch", "proxy", "openapi", "v3", "version", "healthz", "readyz", "metrics",
    "cfo", "..", ".", "%2F", "%2e%2e", "%2E", "a%2Fb", "%00", "%ff", "%C3%A9", "é", "a", "b", "kubernetes", "admin",
    "view", "x*", "-a", "A_b", "rbac.authorization.k8s.io", "apiextensions.k8s.io", "", "a" * 300, "a b", "%25",
    ";", "a:b", "@", "~",
)  # fmt: skip
ROOTS = (
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/namespaces/default/events",
    "/api/v1/namespaces/default/serviceaccounts",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/acme.io/v1/namespaces/default/toys",
    "/openapi/v3",
    "/apis",
)
TAILS = (
    "",
    "",
    "/a",
    "/a/status",
    "/a/scale",
    "/a/token",
    "/a/log",
    "/a/binding",
    "/a/eviction",
    "/a/finalize",
    "/",
    "//",
)
WORDS = (
    "", "0", "1", "-1", "+1", "1e9", "99999999999999999999999", "-9223372036854775809", "9223372036854775807", "true",
    "false", "maybe", "null", "All", "all", "Strict", "Warn", "Ignore", "Exact", "NotOlderThan", "Foreground", "Orphan",
    "a=b", "a==b,c!=d", "a in (b,c)", "a in (", "!a", "a notin ()", "metadata.name=a", "metadata.name!=a", "spec.x=1",
    "metadata.namespace=default", "=", ",", "a" * 5000, "\x00", "\ud83d", "é", "%", "eyJ2IjoxfQ", "eyJ2Ijoi", "e30=",
    "{}", "[]", "../..", "Metadata", "Object", "2006-01-02T15:04:05Z", "x" * 129, "٣", "1_000", " 1", "0x10",
)  # fmt: skip
PARAMETERS = (
    "watch", "limit", "continue", "resourceVersion", "resourceVersionMatch", "timeoutSeconds",
    "allowWatchBookmarks", "sendInitialEvents", "labelSelector", "fieldSelector", "dryRun", "fieldManager",
    "fieldValidation", "force", "pretty", "includeObject", "gracePeriodSeconds", "propagationPolicy",
    "orphanDependents", "container", "follow", "tailLines", "exact", "export", "verbose", "exclude", "hash",
    "timeout", "unknown",
)  # fmt: skip
ACCEPTS = (
    "*/*", "application/*", "text/html", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v9;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/yaml", ";", ",",
    "application/json;q=x",
    "application/vnd.kubernetes.protobuf", "application/json;as", "a" * 3000, "application/json;stream=watch",
)  # fmt: skip
TYPES = (
    "application/json", "application/yaml", "application/merge-patch+json", "application/json-patch+json",
    "application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/vnd.kubernetes.protobuf",
    "text/plain", "", ";;;", "application/json; charset=utf-16", "application/x-www-form-urlencoded",
)  # fmt: skip
PATCHES = TYPES[2:6]
METHODS = ("GET", "GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS")
CONTAINER = {
    "name": "c", "image": "i", "ports": [{"containerPort": 80, "name": "http"}], "env": [{"name": "A", "value": "b"}],
    "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Gi"}},
    "livenessProbe": {"httpGet": {"port": "http", "path": "/"}, "periodSeconds": 1},
}  # fmt: skip
POD = {
    "containers": [CONTAINER],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "tolerations": [{"operator": "Exists"}],
}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["secrets"],
    "scope": "*",
}
HOOK = {
    "name": "a.b.c", "clientConfig": {"url": "https://127.0.0.1:1/x"}, "rules": [RULE], "sideEffects": "None",
    "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "timeoutSeconds": 1,
    "matchConditions": [{"name": "a", "expression": "object.metadata.name == 'a'"}],
}  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 0, "default": 1},
                "names": {"type": "array", "items": {"type": "string", "pattern": "^a+$"},
                    "x-kubernetes-list-type": "set"},
                "port": {"x-kubernetes-int-or-string": True},
                "parts": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
                },
            },
            "x-kubernetes-validations": [{"rule": "self.size < 10", "message": "too big"}],
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}  # fmt: skip
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "toys.acme.io"},
    "spec": {
        "group": "acme.io",
        "scope": "Namespaced",
        "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"},
        "versions": [
            {
                "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size",
                    "statusReplicasPath": ".status.n"}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            }
        ],
    },
}  # fmt: skip


def _object(version: str, kind: str, **fields: Any) -> dict[str, Any]:
    metadata = {
        "name": "a", "labels": {"a": "b"}, "annotations": {"a": "b"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}],
    }  # fmt: skip
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


OBJECTS: dict[str, dict[str, Any]] = {
    "configmaps": _object("v1", "ConfigMap", data={"a": "b"}, binaryData={"c": "ZA=="}),
    "pods": _object(
        "v1",
        "Pod",
        spec=POD,
        status={"phase": "Running", "conditions": [{"type": "A", "status": "True"}]},
    ),
    "services": _object(
        "v1", "Service", spec={"ports": [{"port": 80}], "selector": {"a": "b"}, "type": "NodePort"}
    ),
    "namespaces": _object("v1", "Namespace", spec={"finalizers": ["kubernetes"]}),
    "nodes": _object("v1", "Node", spec={"taints": [{"key": "a", "effect": "NoExecute"}]}),
    "serviceaccounts": _object("v1", "ServiceAccount", secrets=[{"name": "a"}]),
    "deployments": _object(
        "apps/v1",
        "Deployment",
        spec={"selector": {"matchLabels": {"a": "b"}}, "replicas": 1, "template": TEMPLATE},
    ),
    "jobs": _object(
        "batch/v1",
        "Job",
        spec={"template": {**TEMPLATE, "spec": {**POD, "restartPolicy": "Never"}}},
    ),
    "clusterroles": _object(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        rules=[{"apiGroups": [""], "resources": ["x"], "verbs": ["get"]}],
    ),
    "leases": _object(
        "coordination.k8s.io/v1",
        "Lease",
        spec={"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z"},
    ),
    "customresourcedefinitions": CRD,
    "validatingwebhookconfigurations": _object(
        "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", webhooks=[HOOK]
    ),
    "subjectaccessreviews": _object(
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        spec={
            "user": "a",
            "groups": ["b"],
            "resourceAttributes": {"verb": "get", "resource": "pods"},
        },
    ),
    "tokenreviews": _object("authentication.k8s.io/v1", "TokenReview", spec={"token": "a.b.c"}),
    "toys": _object(
        "acme.io/v1", "Toy", spec={"size": 2, "names": ["a"], "port": 80, "parts": [{"name": "x"}]}
    ),
    "events": _object(
        "v1", "Event", involvedObject={"kind": "Pod", "namespace": "default"}, reason="A", count=1
    ),
    "scale": _object("autoscaling/v1", "Scale", spec={"replicas": 3}),
    "token": {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600},
    },
    "eviction": _object("policy/v1", "Eviction", deleteOptions={"gracePeriodSeconds": 1}),
    "binding": _object("v1", "Binding", target={"kind": "Node", "name": "n"}),
    "options": {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "x"},
        "propagationPolicy": "Orphan",
    },
}
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63) - 1, 1.5, 1e300, "", "a", "0", "-1", "a" * 400, "\x00", "é",
    "1Gi", "{",
    [], {}, [None], [[]], {"": None}, {"a": {"b": []}}, [{"name": "a"}, {"name": "a"}], [1, "a", None], "🦊", "..",
    "a/b/c",
    {"$patch": "delete"}, [{"$patch": "replace"}], {"$patch": "sideways"}, {"f:metadata": {}}, "2026-01-01", "(((",
    "\n",
)  # fmt: skip
PATHS = (
    "",
    "/",
    "/metadata",
    "/metadata/name",
    "/data",
    "/data/a",
    "/spec",
    "/spec/x/-1",
    "/~2",
    "a",
    "/metadata/labels/-",
    "/0",
)


def initial_objects() -> list[tuple[str, dict[str, Any]]]:
    """Return the objects that the requests refer to, with the path of their collection; tests create them first."""
    objects = []
    for root in ROOTS:
        obj = OBJECTS.get(root.rpartition("/")[2])
        if obj is not None and "reviews" not in root and obj is not CRD:
            objects += [(root, obj), (root, {**obj, "metadata": {"name": "b"}})]
    return objects


class Request(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes | None

    def __str__(self) -> str:
        return f"{self.method} {self.target[:300]} {self.headers} {(self.body or b'')[:2000]!r}"


class RandomRequests:
    """A generator of random requests."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def request(self) -> Request:
        """Return the next request: nearly valid, or random in all parts (15 %)."""
        rng = self._random
        all_random = rng.random() < 0.15
        method, path = (rng.choice(METHODS), self._path()) if all_random else self._plausible()
        headers = {"Content-Type": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = rng.choice(PATCHES)
        if all_random or rng.random() < 0.05:
            headers["Content-Type"] = rng.choice(TYPES)
        if all_random or rng.random() < 0.1:
            headers["Accept"] = rng.choice(ACCEPTS)
        if rng.random() < 0.03:
            name = rng.choice(
                (
                    "Impersonate-User",
                    "Impersonate-Group",
                    "Impersonate-Extra-a%2",
                    "Impersonate-Uid",
                )
            )
            headers[name] = rng.choice(("a", "system:serviceaccount:x", "", "%"))
        if rng.random() < 0.03:
            headers["Authorization"] = rng.choice(
                ("Bearer", "Bearer x", "Basic YTpi", "Bearer a.b.c", "", "x y z")
            )
        body = (
            self._body(method, path, headers["Content-Type"])
            if method in ("POST", "PUT", "PATCH", "DELETE")
            else None
        )
        query = self._query() if all_random or method == "GET" or rng.random() < 0.2 else ""
        if method == "PATCH" and "fieldManager" not in query:
            query += ("&" if query else "?") + "fieldManager=hostile"
        return Request(method, path + query, headers, body)

    def _plausible(self) -> tuple[str, str]:
        rng = self._random
        root = rng.choice(ROOTS)
        method = rng.choice(
            ("GET", "POST", "POST", "PUT", "PUT", "PATCH", "PATCH", "PATCH", "PATCH", "DELETE")
        )
        if method == "POST":
            return method, root + (rng.choice(TAILS) if rng.random() < 0.2 else "")
        if method == "DELETE":
            return method, root + rng.choice(("/a", "/b", ""))
        return method, root + rng.choice(("/a", "/a", "/b", rng.choice(TAILS)))

    def _path(self) -> str:
        rng = self._random
        if rng.random() < 0.5:
            return rng.choice(ROOTS) + rng.choice(TAILS)
        return quote(
            "/" + "/".join(rng.choice(SEGMENTS) for _ in range(rng.randrange(8))), safe="/%;:@~*"
        )

    def _query(self) -> str:
        rng = self._random
        pairs = []
        for _ in range(rng.randrange(1, 4)):
            value = rng.choice(WORDS).encode("utf-8", "surrogatepass")
            pairs.append(
                f"{rng.choice(PARAMETERS)}={quote(value) if rng.random() < 0.9 else '%zz%'}"
            )
        return "?" + "&".join(pairs)

    def _body(self, method: str, path: str, media: str) -> bytes | None:
        rng = self._random
        kind = rng.random()
        if kind < 0.1:
            return rng.choice((
                None, b"", b"{", b"null", b"[]", b"1", b'"a"', b"\xff\xfe", b'{"a":"\xff"}', b"k8s\x00",
                    b"k8s\x00\x0a\xff",
                b"[" * 5000, b'{"a":' * 5000, b"a: &a [*a]", b"a: !!python/object:os.system x", b"\x00" * 100,
                    b"{}" * 2,
                b"[" * 1200 + b"]" * 1200, b'{"a":' * 1200 + b"1" + b"}" * 1200, b"? [a]\n: b", b"- a\n- b", b"NaN",
                b'{"metadata":{"name":1e999}}', b'{"kind":"\\ud800"}', b"<xml/>", b"a: b: c", b"'", b"--- a\n--- b",
            ))  # fmt: skip
        name = next((name for name in reversed(path.split("/")) if name in OBJECTS), "")
        if method == "DELETE":
            name = "options"
        obj = deepcopy(OBJECTS.get(name) or rng.choice(list(OBJECTS.values())))
        for _ in range(rng.choice((0, 1, 1, 1, 2))):
            self._corrupt(obj)
        if "metadata" in obj and isinstance(obj["metadata"], dict) and path.endswith("/b"):
            obj["metadata"]["name"] = "b"
        if media == "application/json-patch+json" and rng.random() < 0.9:
            return json.dumps([self._operation() for _ in range(rng.randrange(1, 4))]).encode()
        return json.dumps(obj).encode()

    def _operation(self) -> Any:
        rng = self._random
        operation = {
            "op": rng.choice(("add", "remove", "replace", "move", "copy", "test", "jump")),
            "path": rng.choice(PATHS),
            "from": rng.choice(PATHS),
            "value": rng.choice(VALUES),
        }
        if rng.random() < 0.3:
            operation.pop(rng.choice(list(operation)))
        return operation if rng.random() < 0.95 else rng.choice(VALUES)

    def _corrupt(self, value: Any) -> None:
        """Replace a random value inside ``value`` with another random value."""
        rng = self._random
        while True:
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            if not keys:
                return
            key = rng.choice(keys)
            if isinstance(value[key], (dict, list)) and value[key] and rng.random() < 0.8:
                value = value[key]
                continue
            if isinstance(value, dict) and rng.random() < 0.2:
                value[rng.choice(("", "x", "a/b", "metadata", "é", "$patch", "a" * 300))] = (
                    deepcopy(rng.choice(VALUES))
                )
            else:
                value[key] = deepcopy(rng.choice(VALUES))
            return
