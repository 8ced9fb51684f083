"""Requests that clients seldom send: odd bodies, options, media types, paths and users.

Each method returns a request about the object ``name`` of a sample; :class:`UnusualRequests` chooses between them.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import msgspec

from test.differential.mutations import Mutator
from test.differential.samples import Sample
from test.differential.steps import (
    APPLY,
    CONTINUE,
    JSON,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    TABLE,
    VERSION,
    Step,
)

__all__ = ["UnusualRequests"]

ACCEPTS = (
    "*/*", "application/*", "application/yaml", "application/cbor", "text/html", "text/plain",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io", "application/json;as=Table;v=v2;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=other.k8s.io", "application/json;as=Odd;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", TABLE,
    "application/json;q=0.1,application/yaml;q=0.2", "application/json;pretty=1", "odd",
)  # fmt: skip
CONTENT_TYPES = (
    "application/yaml", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8",
    "application/cbor", "odd",
)  # fmt: skip
RAW_BODIES = (
    "", "null", "[]", '"a"', "1", "true", "{", "{}", '{"a"', '{"kind":"Other"}', '{"apiVersion":"v1"}',
    '{"apiVersion":"v1","kind":"List","items":[]}', '{"apiVersion":"example.com/v1","kind":"Absent"}',
    '{"apiVersion":1,"kind":"ConfigMap"}', '{"apiVersion":"a/b/c","kind":"ConfigMap"}', '{"metadata":[]}',
    '{"metadata":{"name":1}}', '{"metadata":{"labels":{"a":1}}}', '{"metadata":null}', "a: b", "- a", "a: [", "\t",
)  # fmt: skip
PATCHES = (
    "null", "[]", "{}", "[{}]", "[1]", '[{"op":"add"}]', '[{"op":"add","path":"a","value":1}]',
    '[{"op":"remove","path":""}]', '[{"op":"replace","path":"","value":{}}]',
    '[{"op":"add","path":"/metadata/labels/-","value":"a"}]', '[{"op":"test","path":"/metadata/name"}]',
    '[{"op":"add","path":"/spec/unknown","value":1}]', '[{"op":"copy","path":"/metadata/labels"}]',
    '[{"op":"add","path":"/metadata/labels","value":null}]', '{"metadata":null}', '{"metadata":{"name":null}}',
    '{"metadata":{"name":"other"}}', '{"metadata":{"namespace":"other"}}', '{"metadata":{"uid":"other"}}',
    '{"metadata":{"resourceVersion":"1"}}', '{"metadata":{"resourceVersion":"x"}}',
    '{"metadata":{"labels":{"a":null,"b":1}}}', '{"metadata":{"labels":null,"annotations":{"a":"b"}}}',
    '{"metadata":{"finalizers":["example.com/x"]}}', '{"metadata":{"managedFields":[]}}',
    '{"metadata":{"managedFields":[{}]}}', '{"metadata":{"creationTimestamp":null,"generation":7}}',
    '{"metadata":{"deletionTimestamp":"2026-01-02T03:04:05Z","deletionGracePeriodSeconds":3}}',
    '{"metadata":{"ownerReferences":[{}]}}', '{"kind":"Other"}', '{"apiVersion":"v9"}', '{"apiVersion":null}',
    '{"unknown":{"a":1}}', '{"metadata":{"unknown":1}}', '{"metadata":{"labels":{"a":"b"},"labels":{"a":"c"}}}',
    '{"$patch":"odd"}', '{"metadata":{"labels":{"$patch":"replace","x":"y"}}}',
    '{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/x"]}}', '{"metadata":{"$retainKeys":["name"]}}',
    '{"metadata":{"$setElementOrder/finalizers":["a"]}}',
)  # fmt: skip
DELETE_BODIES = (
    "{}", "null", "[]", "1", "{", '{"kind":"Other"}', '{"apiVersion":"v1","kind":"DeleteOptions","unknown":1}',
    '{"apiVersion":"v2","kind":"DeleteOptions"}', '{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions"}',
    '{"gracePeriodSeconds":"1"}', '{"gracePeriodSeconds":1.5}', '{"preconditions":{"uid":1}}', '{"dryRun":["Odd"]}',
    '{"dryRun":["All","All"]}', '{"dryRun":"All"}', '{"preconditions":{}}', '{"propagationPolicy":""}',
    '{"ignoreStoreReadErrorWithClusterBreakingPotential":true}', '{"propagationPolicy":null,"orphanDependents":true}',
)  # fmt: skip
READ_OPTIONS = (
    {"resourceVersion": ""}, {"resourceVersion": "-1"}, {"resourceVersion": "1.5"}, {"pretty": "true"},
    {"unknown": "a"}, {"timeout": "1s"}, {"timeout": "x"}, {"timeout": "-1s"}, {"timeout": "1h"},
    {"includeObject": "None"}, {"includeObject": "Object"}, {"includeObject": "Metadata"}, {"includeObject": "Odd"},
    {"watch": "false"}, {"watch": "x"}, {"timeoutSeconds": "1"}, {"timeoutSeconds": "x"}, {"limit": ""},
    {"limit": "0"}, {"limit": "1.5"}, {"limit": "1"}, {"continue": CONTINUE}, {"limit": "1", "continue": CONTINUE},
    {"continue": CONTINUE, "resourceVersion": "0"}, {"continue": CONTINUE, "resourceVersionMatch": "Exact"},
    {"resourceVersionMatch": "Exact"}, {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
    {"resourceVersion": "0", "resourceVersionMatch": ""},
    {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan", "limit": "1"}, {"labelSelector": ","},
    {"resourceVersion": "1", "resourceVersionMatch": "Unset"}, {"labelSelector": "a=b=c"}, {"labelSelector": "a>1"},
    {"labelSelector": "a>x"}, {"labelSelector": "a in ()"}, {"labelSelector": "a notin (b,)"},
    {"labelSelector": "-a=b"}, {"labelSelector": "a=" + "b" * 64}, {"labelSelector": "x/y/z"},
    {"labelSelector": "!a,!b"}, {"labelSelector": "a=="}, {"labelSelector": "app==a,app!=b"},
    {"labelSelector": " app = a "}, {"fieldSelector": ","}, {"fieldSelector": "a"},
    {"fieldSelector": "metadata.name==NAME"}, {"fieldSelector": "metadata.name=NAME,metadata.namespace=SPACE"},
    {"fieldSelector": "metadata.name=a=b"}, {"fieldSelector": "metadata.name!=NAME,metadata.namespace!=x"},
    {"fieldSelector": "metadata.name=a\\,b"}, {"fieldSelector": "metadata.labels=a"}, {"fieldSelector": "=x"},
    {"fieldSelector": "spec.nodeName=,status.phase!=Failed"}, {"fieldSelector": "metadata.name in (a)"},
    {"allowWatchBookmarks": "true"}, {"allowWatchBookmarks": "x"}, {"sendInitialEvents": "true"},
    {"sendInitialEvents": "x"}, {"fieldValidation": "Strict"}, {"dryRun": "All"},
)  # fmt: skip
WATCH_OPTIONS = (
    {"resourceVersion": "x"}, {"resourceVersion": "0"}, {"resourceVersion": ""},
    {"resourceVersionMatch": "NotOlderThan"}, {"sendInitialEvents": "true"}, {"sendInitialEvents": "false"},
    {"labelSelector": "a="}, {"labelSelector": "!x"},
    {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}, {"labelSelector": "a in ("},
    {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"}, {"limit": "1"}, {"continue": "x"},
    {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}, {"watch": "1"},
    {"allowWatchBookmarks": "true"},
    {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "0"},
    {"resourceVersion": "0", "resourceVersionMatch": "Exact"}, {"timeoutSeconds": "x"}, {"includeObject": "Object"},
)  # fmt: skip
WRITE_OPTIONS = (
    {"dryRun": ""}, {"dryRun": "all"}, {"dryRun": "All,All"}, {"fieldValidation": ""}, {"fieldValidation": "strict"},
    {"fieldManager": ""}, {"fieldManager": "a\u0007"}, {"fieldManager": "a b"}, {"force": "true"}, {"force": "x"},
    {"pretty": "1"}, {"unknown": "a"}, {"timeout": "1s"}, {"timeout": "x"}, {"gracePeriodSeconds": "0"},
    {"fieldManager": "a", "fieldValidation": "Strict", "dryRun": "All"}, {"resourceVersion": "0"},
)  # fmt: skip
DELETE_OPTIONS = (
    {"propagationPolicy": "Foreground"}, {"propagationPolicy": "Orphan"}, {"propagationPolicy": "x"},
    {"orphanDependents": "true"}, {"orphanDependents": "x"}, {"gracePeriodSeconds": "-1"}, {"gracePeriodSeconds": ""},
    {"dryRun": "x"}, {"dryRun": "All", "propagationPolicy": "Foreground"}, {"fieldValidation": "Strict"},
    {"unknown": "a"},
)  # fmt: skip
USERS: tuple[dict[str, str], ...] = (
    {"Impersonate-User": "alice"},
    {"Impersonate-User": "alice", "Impersonate-Group": "system:masters"},
    {"Impersonate-User": "system:serviceaccount:default:default"},
    {"Impersonate-User": "system:anonymous"},
    {"Impersonate-Group": "a"},
    {"Impersonate-User": "alice", "Impersonate-Uid": "u", "Impersonate-Extra-A": "b"},
    {"Authorization": "Bearer wrong"},
    {"Authorization": "Basic YTpi"},
)
UNKNOWN_PATHS = (
    "/absent",
    "/status/absent",
    "/scale/x",
    "/log",
    "/exec",
    "/proxy",
    "/attach",
    "/finalize",
)


class UnusualRequests:
    """Requests about the objects of a sample, with the random numbers of ``rng``.

    ``create`` returns an object of the sample with a name.
    """

    def __init__(
        self,
        rng: Random,
        sample: Sample,
        namespace: str,
        create: Callable[[str], dict[str, Any]],
    ) -> None:
        self._rng = rng
        self._sample = sample
        self._namespace = namespace
        self._collection = sample.collection(namespace)
        self._object = create
        self._mutator = Mutator(rng)

    def step(self, name: str) -> Step:
        """Return a request."""
        rng = self._rng
        choices = [self._raw_create, self._write_with_options, self._method, self._page, self._user]
        if "update" in self._sample.verbs:
            choices += [
                self._raw_update,
                self._patch_text,
                self._patch_text,
                self._raw_delete,
                self._read,
                self._list,
                self._list,
                self._everywhere,
                self._watch,
                self._subresource,
                self._subresource,
                self._metadata,
            ]
        return rng.choice(choices)(name)

    def _path(self, name: str) -> str:
        return f"{self._collection}/{name}"

    def _text(self, name: str) -> str:
        """Return a body that a client seldom sends: not an object, or the object with a changed text."""
        rng = self._rng
        if rng.random() < 0.6:
            return rng.choice(RAW_BODIES)
        text = msgspec.json.encode(self._object(name)).decode()
        return rng.choice(
            (
                text + " x",
                text[:-1],
                text.replace('"metadata":{', '"metadata":{"name":"twice",', 1),
                text.replace("{", '{"kind":"Twice",', 1),
                text.replace('"metadata"', '"Metadata"', 1),
                text.replace('"spec"', '"SPEC"', 1),
                text.replace('"name"', '"name":null,"x"', 1),
                text.replace(":1,", ":1e400,", 1),
                text.replace(":1,", ":01,", 1),
                text.replace(":1,", ":1.0,", 1),
                text.replace(":1,", ":9223372036854775808,", 1),
                text.replace(":true", ":'true'", 1),
                text.replace("a", "\\u0000", 1),
                text.replace("a", "\\ud800", 1),
                f"// comment\n{text}",
                f"{text}\n---\n{text}",
                f"[{text}]",
            )
        )

    def _raw_create(self, name: str) -> Step:
        return Step("POST", self._collection, raw=self._text(name), content_type=self._body_type())

    def _body_type(self) -> str:
        if self._rng.random() < 0.7:
            return JSON
        return self._rng.choice(CONTENT_TYPES)

    def _raw_update(self, name: str) -> Step:
        path = self._path(name)
        text = self._text(name)
        return Step("PUT", path, raw=text, content_type=self._body_type(), target=path)

    def _write_with_options(self, name: str) -> Step:
        rng = self._rng
        query = dict(rng.choice(WRITE_OPTIONS))
        path = self._path(name)
        obj = self._object(name)
        accept = rng.choice((JSON, JSON, *ACCEPTS))
        if rng.random() < 0.4 or "update" not in self._sample.verbs:
            return Step("POST", self._collection, query, accept=accept, body=obj)
        if rng.random() < 0.5:
            return Step("PUT", path, query, accept=accept, body=obj, target=path)
        media = rng.choice((APPLY, MERGE))
        return Step("PATCH", path, query, media, accept, body=obj, target=path)

    def _patch_text(self, name: str) -> Step:
        rng = self._rng
        path = self._path(name)
        media = rng.choice((JSON_PATCH, MERGE, MERGE, STRATEGIC, STRATEGIC, APPLY, "odd", JSON))
        query = rng.choice(({}, {}, {"fieldValidation": "Strict"}, {"fieldValidation": "Ignore"}))
        query = {**query, **rng.choice(({}, {"fieldManager": "a"}, {"force": "true"}))}
        text = rng.choice(PATCHES)
        if media == JSON_PATCH:
            text = rng.choice([each for each in PATCHES if each.startswith("[")] * 3 + ["{}", "{"])
        return Step("PATCH", path, query, media, raw=text, target=path)

    def _metadata(self, name: str) -> Step:
        """Update an object, or apply it, with a change of its metadata."""
        rng = self._rng
        path = self._path(name)
        obj = self._object(name)
        schema = self._sample.schema.field("metadata")
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            metadata = {}
        obj["metadata"] = self._mutator.mutate_value(metadata, schema)
        if rng.random() < 0.3:
            query = {"fieldManager": "a", "force": "true"}
            return Step("PATCH", path, query, APPLY, body=obj, target=path)
        if rng.random() < 0.5 and isinstance(obj["metadata"], dict):
            obj["metadata"].setdefault("resourceVersion", VERSION)
        return Step("PUT", path, body=obj, target=path)

    def _raw_delete(self, name: str) -> Step:
        rng = self._rng
        path = self._path(name)
        query = rng.choice(({}, *DELETE_OPTIONS))
        text = rng.choice(("", *DELETE_BODIES))
        if "deletecollection" in self._sample.verbs and rng.random() < 0.3:
            query = {**query, "fieldSelector": f"metadata.name={name}"}
            return Step("DELETE", self._collection, query, raw=text)
        return Step("DELETE", path, query, raw=text, target=path)

    def _read(self, name: str) -> Step:
        rng = self._rng
        options = rng.choice(READ_OPTIONS)
        path = self._path(name)
        if self._sample.subresources and rng.random() < 0.4:
            path += "/" + rng.choice(self._sample.subresources)
        if path.endswith(("/exec", "/attach", "/portforward")):
            path = self._path(name)
        query = {} if rng.random() < 0.5 else self._filled(options, name)
        if "watch" in query:
            query = {}
        return Step("GET", path, query, accept=rng.choice(ACCEPTS))

    def _list(self, name: str) -> Step:
        rng = self._rng
        query = self._filled(rng.choice(READ_OPTIONS), name)
        if not self._sample.namespaced and "labelSelector" not in query:
            query.setdefault("fieldSelector", f"metadata.name={name}")
        return Step("GET", self._collection, query, accept=rng.choice((JSON, JSON, *ACCEPTS)))

    def _everywhere(self, name: str) -> Step:
        """List a resource in all namespaces, or in one that does not exist."""
        rng = self._rng
        sample = self._sample
        selected = f"metadata.name={name}"
        if not sample.namespaced:
            wrong = f"{sample.root}/namespaces/{self._namespace}/{sample.plural}"
            return Step("GET", wrong, {"fieldSelector": selected})
        if rng.random() < 0.5:
            query = {"fieldSelector": f"metadata.namespace={self._namespace}"}
            return Step(
                "GET", f"{sample.root}/{sample.plural}", query, accept=rng.choice((JSON, TABLE))
            )
        absent = f"{sample.root}/namespaces/absent/{sample.plural}"
        if rng.random() < 0.5:
            return Step("POST", absent, body=self._object(name))
        return Step(rng.choice(("GET", "DELETE")), absent)

    def _watch(self, name: str) -> Step:
        rng = self._rng
        query = {"watch": "true", "timeoutSeconds": "1", "resourceVersion": "$first"}
        query |= rng.choice(WATCH_OPTIONS)
        query["fieldSelector"] = f"metadata.name={name}"
        return Step("GET", self._collection, query, accept=rng.choice((JSON, *ACCEPTS)))

    def _filled(self, options: dict[str, str], name: str) -> dict[str, str]:
        return {
            key: value.replace("NAME", name).replace("SPACE", self._namespace)
            for key, value in options.items()
        }

    def _method(self, name: str) -> Step:
        """Use a path or a method that no handler has."""
        rng = self._rng
        path = self._path(name)
        if rng.random() < 0.5:
            method = rng.choice(("GET", "PUT", "DELETE"))
            return Step(method, path + rng.choice(UNKNOWN_PATHS), body=None)
        if rng.random() < 0.5:
            return Step("POST", path, body=self._object(name))
        method = rng.choice(("PUT", "PATCH", "OPTIONS", "TRACE"))
        return Step(method, self._collection, content_type=rng.choice((JSON, MERGE)), raw="{}")

    def _page(self, name: str) -> Step:
        """Read the discovery documents of the sample's group and version."""
        rng = self._rng
        path = rng.choice((self._sample.root, self._sample.root + "/"))
        if self._sample.root.startswith("/apis/") and rng.random() < 0.3:
            path = path.rstrip("/").rpartition("/")[0]
        return Step(
            "GET", path, accept=rng.choice((JSON, "application/yaml", "text/html", TABLE, "odd"))
        )

    def _user(self, name: str) -> Step:
        """Send a request as another user."""
        rng = self._rng
        path = self._path(name)
        headers = rng.choice(USERS)
        method = rng.choice(("GET", "POST", "PUT", "PATCH", "DELETE"))
        if method == "GET" or "update" not in self._sample.verbs:
            return Step("GET", rng.choice((path, self._collection)), headers=headers)
        if method == "POST":
            return Step("POST", self._collection, headers=headers, body=self._object(name))
        if method == "DELETE":
            return Step("DELETE", path, headers=headers, query={"dryRun": "All"}, target=path)
        media = JSON if method == "PUT" else APPLY
        query = {} if method == "PUT" else {"fieldManager": "u"}
        return Step(
            method, path, query, media, headers=headers, body=self._object(name), target=path
        )

    def _subresource(self, name: str) -> Step:
        """Change a subresource with each type of patch."""
        rng = self._rng
        path = self._path(name)
        names = [
            each
            for each in ("status", "scale", "resize", "approval")
            if each in self._sample.subresources
        ]
        if not names:
            return self._patch_text(name)
        sub = rng.choice(names)
        media = rng.choice((JSON_PATCH, MERGE, STRATEGIC, APPLY))
        query: dict[str, str] = {}
        if media == APPLY:
            query = rng.choice(({"fieldManager": "s"}, {"fieldManager": "s", "force": "true"}))
        body = self._scale(name, media) if sub == "scale" else self._status(name, media)
        return Step("PATCH", f"{path}/{sub}", query, media, body=body, target=path)

    def _scale(self, name: str, media: str) -> Any:
        rng = self._rng
        replicas = rng.choice((0, 1, 3, -1, "1", None, 1.5, 2**31))
        if media == JSON_PATCH:
            return [
                {
                    "op": rng.choice(("add", "replace", "test")),
                    "path": "/spec/replicas",
                    "value": replicas,
                }
            ]
        body: dict[str, Any] = {"spec": {"replicas": replicas}}
        if rng.random() < 0.3:
            body["metadata"] = rng.choice(
                ({"labels": {"a": "b"}}, {"resourceVersion": "1"}, {"name": "other"})
            )
        if media == APPLY:
            head = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
            body = {**head, **body, "metadata": {"name": name}}
        return body

    def _status(self, name: str, media: str) -> Any:
        rng = self._rng
        obj = self._object(name)
        status = deepcopy(self._sample.obj.get("status") or {})
        schema = self._sample.schema.field("status")
        status = self._mutator.mutate_value(status, schema)
        if media == JSON_PATCH:
            path = rng.choice(
                ("/status", "/status/unknown", "/metadata/labels", "/status/conditions")
            )
            return [{"op": rng.choice(("add", "replace", "remove")), "path": path, "value": status}]
        body: dict[str, Any] = {"status": status}
        if rng.random() < 0.2:
            body["spec"] = obj.get("spec")
        if media == APPLY:
            body |= {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind")}
            body["metadata"] = {"name": name}
        return body
