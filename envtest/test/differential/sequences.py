"""Random sequences of requests about one kind: nearly valid ones, in an order that a client could send.

A sequence is complete before its first request is sent, so that a seed repeats it, and both servers get the same. A
body names what only the server knows: ``$version`` and ``$uid`` mean those of the object at the request's path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from random import Random
from typing import Any

import msgspec

from test.differential.mutations import Mutator
from test.differential.samples import Sample
from test.differential.steps import (
    APPLY,
    JSON,
    JSON_PATCH,
    MERGE,
    PARTIAL,
    PARTIAL_LIST,
    STRATEGIC,
    TABLE,
    UID,
    VERSION,
    Step,
)
from test.differential.unusual import UnusualRequests

__all__ = ["Sequence", "SequenceGenerator"]

LABELS = (
    "app=a",
    "app!=a",
    "app in (a,b)",
    "!app",
    "app",
    "tier notin (front)",
    "a=",
    "app=a,tier=front",
    "=x",
    "a in (",
)
FIELDS = (
    "metadata.name=NAME", "metadata.name!=NAME", "metadata.namespace=default", "status.phase=Running", "type=Opaque",
    "spec.nodeName=", "metadata.name", "metadata.uid=a", "spec.type=ClusterIP", "reason=Started", "x=y",
)  # fmt: skip
SPECIAL = (
    "scale",
    "binding",
    "eviction",
    "token",
    "approval",
    "finalize",
    "resize",
    "ephemeralcontainers",
)
"""Subresources besides ``status`` that the generator uses."""


class Sequence(msgspec.Struct, frozen=True):
    """Steps in one namespace. ``setup`` creates what they need, ``cleanup`` names the objects to delete afterwards."""

    label: str
    namespace: str
    setup: list[dict[str, Any]]
    steps: list[Step]
    cleanup: list[str]


class SequenceGenerator:
    """Generates sequences about a sample, in ``namespace``, with the random numbers of ``rng``."""

    def __init__(self, rng: Random, sample: Sample, namespace: str) -> None:
        self._rng = rng
        self._sample = sample
        self._namespace = namespace
        self._mutator = Mutator(rng)
        self._collection = sample.collection(namespace)
        self._names = [f"{namespace}-a", f"{namespace}-b"]
        if sample.fixed_name:
            self._names = [sample.obj["metadata"]["name"]]
        self._unusual = UnusualRequests(rng, sample, namespace, self._object)

    def sequence(self, length: int, setup: list[dict[str, Any]]) -> Sequence:
        """Return a sequence of ``length`` steps."""
        rng = self._rng
        steps = [self._create(self._names[0], mutations=rng.choice((0, 0, 1)))]
        operations = self._operations()
        choices = rng.choices(list(operations), weights=list(operations.values()), k=length - 1)
        steps += [operation(rng.choice(self._names)) for operation in choices]
        if self._sample.other_root:
            steps = [self._in_some_version(step) for step in steps]
        if self._sample.dry_run:
            steps = [_dry_run(step) for step in steps]
        cleanup = []
        if not self._sample.namespaced:
            cleanup = [f"{self._collection}/{name}" for name in self._names]
        return Sequence(self._sample.plural, self._namespace, setup, steps, cleanup)

    def _in_some_version(self, step: Step) -> Step:
        """Return a step, or the same one in the other version of the kind."""
        root = self._sample.root
        other = self._sample.other_root
        if self._rng.random() < 0.7 or not step.path.startswith(f"{root}/"):
            return step
        body = step.body
        version = root.removeprefix("/apis/")
        if isinstance(body, dict) and body.get("apiVersion") == version:
            body = {**body, "apiVersion": other.removeprefix("/apis/")}
        return msgspec.structs.replace(step, path=other + step.path.removeprefix(root), body=body)

    def _operations(self) -> Mapping[Callable[[str], Step], int]:
        """Return the operations with their weights."""
        sample = self._sample
        chosen: dict[Callable[[str], Step], int] = {self._create: 5, self._unusual.step: 12}
        if "update" in sample.verbs:
            chosen |= {self._update: 4, self._merge_patch: 3, self._json_patch: 3, self._apply: 4}
            chosen |= {
                self._strategic_patch: 3,
                self._get: 1,
                self._list: 2,
                self._delete: 2,
                self._watch: 1,
            }
        if "deletecollection" in sample.verbs:
            chosen[self._delete_collection] = 1
        if "status" in sample.subresources:
            chosen |= {self._update_status: 3, self._patch_status: 3}
        if any(name in SPECIAL for name in sample.subresources):
            chosen[self._special] = 4
        return chosen

    def _object(self, name: str, mutations: int | None = None) -> dict[str, Any]:
        """Return the sample under a name, with none to three changes."""
        rng = self._rng
        if mutations is None:
            mutations = rng.choice((0, 1, 1, 1, 2, 3))
        obj = deepcopy(self._sample.obj)
        obj.pop("status", None)
        _substitute(obj, self._namespace)
        if obj["metadata"].get("name"):
            obj["metadata"]["name"] = name
        return self._mutator.mutate(obj, self._sample.schema, count=mutations)

    def _write_options(self) -> dict[str, str]:
        rng = self._rng
        query = {}
        if rng.random() < 0.12:
            query["dryRun"] = rng.choice(("All", "All", "All", "Some"))
        if rng.random() < 0.3:
            query["fieldValidation"] = rng.choice(("Strict", "Strict", "Ignore", "Warn", "Odd"))
        if rng.random() < 0.2:
            query["fieldManager"] = rng.choice(("a", "b", "a" * 129, "é"))
        return query

    def _create(self, name: str, mutations: int | None = None) -> Step:
        obj = self._object(name, mutations)
        rng = self._rng
        metadata = obj.get("metadata")
        if isinstance(metadata, dict):
            if rng.random() < 0.05:
                metadata["generateName"] = "gen-"
                if rng.random() < 0.8:
                    metadata.pop("name", None)
            if rng.random() < 0.08:
                metadata["finalizers"] = [
                    rng.choice(("example.com/f", "foregroundDeletion", "bad"))
                ]
            if rng.random() < 0.08:
                metadata["ownerReferences"] = [
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "name": "o",
                        "uid": "u",
                        "controller": True,
                    }
                ] * rng.choice((1, 1, 2))
            if rng.random() < 0.04:
                metadata["namespace"] = rng.choice((self._namespace, "other"))
            if rng.random() < 0.02:
                metadata["resourceVersion"] = "1"
        if rng.random() < 0.03:
            obj.pop(rng.choice(("apiVersion", "kind", "metadata")))
        status = self._sample.obj.get("status")
        if status is not None and rng.random() < 0.1:
            obj["status"] = deepcopy(status)
        accept = rng.choice((JSON,) * 9 + (TABLE,))
        return Step("POST", self._collection, self._write_options(), accept=accept, body=obj)

    def _update(self, name: str) -> Step:
        path = f"{self._collection}/{name}"
        obj = self._object(name)
        self._add_version(obj)
        return Step("PUT", path, self._write_options(), body=obj, target=path)

    def _add_version(self, obj: dict[str, Any]) -> None:
        rng = self._rng
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            return
        chosen = rng.random()
        if chosen < 0.75:
            metadata["resourceVersion"] = VERSION
        elif chosen < 0.85:
            metadata["resourceVersion"] = rng.choice(("1", "x", "0", ""))
        if rng.random() < 0.1:
            metadata["uid"] = rng.choice((UID, "other"))

    def _merge_patch(self, name: str) -> Step:
        return self._patch(name, MERGE, self._difference(name))

    def _strategic_patch(self, name: str) -> Step:
        body = self._difference(name)
        if self._rng.random() < 0.15:
            body["$patch"] = self._rng.choice(("replace", "delete", "merge", "odd"))
        return self._patch(name, STRATEGIC, body)

    def _difference(self, name: str) -> dict[str, Any]:
        """Return the merge patch from the sample to a changed sample."""
        before = self._object(name, 0)
        after = self._mutator.mutate(before, self._sample.schema, count=self._rng.choice((1, 1, 2)))
        return _merge_patch(before, after)

    def _patch(self, name: str, content_type: str, body: Any) -> Step:
        path = f"{self._collection}/{name}"
        return Step("PATCH", path, self._write_options(), content_type, body=body, target=path)

    def _json_patch(self, name: str) -> Step:
        before = self._object(name, 0)
        after = self._mutator.mutate(before, self._sample.schema, count=1)
        operations = list(_json_patch(before, after))
        rng = self._rng
        if rng.random() < 0.2:
            operations.append(
                rng.choice(
                    (
                        {"op": "test", "path": "/metadata/name", "value": name},
                        {"op": "test", "path": "/kind", "value": "Other"},
                        {"op": "copy", "path": "/metadata/labels/copied", "from": "/metadata/name"},
                        {"op": "move", "path": "/metadata/labels", "from": "/metadata/annotations"},
                        {"op": "remove", "path": "/metadata/absent"},
                        {"op": "odd", "path": "/metadata/name"},
                    )
                )
            )
        return self._patch(name, JSON_PATCH, operations)

    def _apply(self, name: str) -> Step:
        rng = self._rng
        obj = self._object(name)
        query = {**self._write_options(), "fieldManager": rng.choice(("a", "b", "c"))}
        if rng.random() < 0.5:
            query["force"] = rng.choice(("true", "true", "false"))
        if rng.random() < 0.05:
            query.pop("fieldManager")
        path = f"{self._collection}/{name}"
        return Step("PATCH", path, query, APPLY, body=obj, target=path)

    def _get(self, name: str) -> Step:
        rng = self._rng
        path = f"{self._collection}/{name}"
        query = {}
        if rng.random() < 0.2:
            query["resourceVersion"] = rng.choice(("0", "1", "x"))
        names = [each for each in ("status", "scale") if each in self._sample.subresources]
        if names and rng.random() < 0.3:
            path += "/" + rng.choice(names)
        return Step("GET", path, query, accept=rng.choice((JSON, TABLE, TABLE, PARTIAL)), target="")

    def _list(self, name: str) -> Step:
        query = self._selectors(name)
        rng = self._rng
        if rng.random() < 0.3:
            query["limit"] = rng.choice(("1", "2", "-1", "x"))
        if rng.random() < 0.2:
            query["resourceVersion"] = rng.choice(("0", "x", "1"))
        if rng.random() < 0.1:
            query["resourceVersionMatch"] = rng.choice(("Exact", "NotOlderThan", "Odd"))
        if rng.random() < 0.04:
            query["continue"] = "x"
        if not self._sample.namespaced and not query.get("labelSelector"):
            query["fieldSelector"] = f"metadata.name={name}"
        accept = rng.choice((JSON, TABLE, TABLE, PARTIAL_LIST))
        return Step("GET", self._collection, query, accept=accept)

    def _selectors(self, name: str) -> dict[str, str]:
        rng = self._rng
        query = {}
        if rng.random() < 0.3:
            query["labelSelector"] = rng.choice(LABELS)
        if rng.random() < 0.3:
            query["fieldSelector"] = rng.choice(FIELDS).replace("NAME", name)
        return query

    def _watch(self, name: str) -> Step:
        """Watch one object from its first version, for a second."""
        query = {"watch": "true", "timeoutSeconds": "1", "resourceVersion": "$first"}
        query["fieldSelector"] = f"metadata.name={name}"
        if self._rng.random() < 0.3:
            query["labelSelector"] = self._rng.choice(LABELS)
        if self._rng.random() < 0.3:
            query["sendInitialEvents"] = "true"
            query["resourceVersionMatch"] = "NotOlderThan"
            query["allowWatchBookmarks"] = "true"
            query["resourceVersion"] = self._rng.choice(("", "0"))
        accept = self._rng.choice((JSON, JSON, TABLE))
        return Step("GET", self._collection, query, accept=accept)

    def _delete(self, name: str) -> Step:
        rng = self._rng
        query = {}
        options: dict[str, Any] = {}
        if rng.random() < 0.3:
            options["propagationPolicy"] = rng.choice(("Foreground", "Background", "Orphan", "Odd"))
        if rng.random() < 0.2:
            options["gracePeriodSeconds"] = rng.choice((0, 1, 30, -1))
        if rng.random() < 0.2:
            options["preconditions"] = rng.choice(
                ({"uid": UID}, {"uid": "x"}, {"resourceVersion": VERSION})
            )
        if rng.random() < 0.1:
            query["dryRun"] = "All"
        if rng.random() < 0.1:
            query["gracePeriodSeconds"] = rng.choice(("0", "5", "x"))
        if rng.random() < 0.05:
            options["orphanDependents"] = rng.choice((True, False))
        path = f"{self._collection}/{name}"
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options} if options else None
        return Step("DELETE", path, query, body=body, target=path)

    def _delete_collection(self, name: str) -> Step:
        query = self._selectors(name)
        if not self._sample.namespaced:
            query["fieldSelector"] = f"metadata.name={name}"
        if self._rng.random() < 0.3:
            query["dryRun"] = "All"
        return Step("DELETE", self._collection, query)

    def _status(self, name: str) -> dict[str, Any]:
        obj = self._object(name, 0)
        status = deepcopy(self._sample.obj.get("status") or {})
        schema = self._sample.schema.field("status")
        obj["status"] = self._mutator.mutate_value(status, schema)
        return obj

    def _update_status(self, name: str) -> Step:
        path = f"{self._collection}/{name}"
        obj = self._status(name)
        self._add_version(obj)
        return Step("PUT", f"{path}/status", self._write_options(), body=obj, target=path)

    def _patch_status(self, name: str) -> Step:
        rng = self._rng
        path = f"{self._collection}/{name}"
        obj = self._status(name)
        kind = rng.choice((MERGE, STRATEGIC, APPLY))
        query = self._write_options()
        body: dict[str, Any] = {"status": obj["status"]}
        if kind == APPLY:
            query["fieldManager"] = rng.choice(("a", "b"))
            body = {
                "apiVersion": obj["apiVersion"],
                "kind": obj["kind"],
                "metadata": {"name": name},
                **body,
            }
        if rng.random() < 0.2:
            body["metadata"] = {**body.get("metadata", {}), "labels": {"added": "status"}}
        return Step("PATCH", f"{path}/status", query, kind, body=body, target=path)

    def _special(self, name: str) -> Step:
        rng = self._rng
        sub = rng.choice([each for each in self._sample.subresources if each in SPECIAL])
        path = f"{self._collection}/{name}"
        metadata = {"name": name}
        if self._sample.namespaced:
            metadata["namespace"] = self._namespace
        if sub == "scale":
            replicas = rng.choice((0, 1, 5, -1, 2**31, "x", None))
            if rng.random() < 0.5:
                return Step(
                    "PATCH",
                    f"{path}/scale",
                    content_type=MERGE,
                    body={"spec": {"replicas": replicas}},
                    target=path,
                )
            if rng.random() < 0.3:
                metadata["resourceVersion"] = rng.choice((VERSION, "1"))
            scale = {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": metadata,
                "spec": {"replicas": replicas},
            }
            return Step("PUT", f"{path}/scale", body=scale, target=path)
        if sub == "binding":
            target = {
                "apiVersion": "v1",
                "kind": rng.choice(("Node", "Node", "Pod", "")),
                "name": rng.choice(("n", "n", "")),
            }
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
            return Step("POST", f"{path}/binding", self._write_options(), body=body, target=path)
        if sub == "eviction":
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
            if rng.random() < 0.5:
                body["deleteOptions"] = rng.choice(
                    (
                        {"gracePeriodSeconds": 0},
                        {"preconditions": {"uid": "x"}},
                        {"dryRun": ["All"]},
                        {"propagationPolicy": "Odd"},
                    )
                )
            return Step("POST", f"{path}/eviction", self._write_options(), body=body, target=path)
        if sub == "token":
            spec: dict[str, Any] = {
                "audiences": [rng.choice(("a", ""))],
                "expirationSeconds": rng.choice((600, 3600, 1, 2**33)),
            }
            if rng.random() < 0.3:
                spec["boundObjectRef"] = {
                    "kind": rng.choice(("Pod", "Secret", "Node", "Other")),
                    "apiVersion": "v1",
                    "name": "n",
                }
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            return Step("POST", f"{path}/token", self._write_options(), body=body, target=path)
        if sub == "ephemeralcontainers":
            added = {
                "name": rng.choice(("debug", "main", "A")),
                "image": "i:1",
                "targetContainerName": rng.choice(("main", "absent")),
            }
            field = rng.choice(("ports", "livenessProbe", "resources", ""))
            if field:
                added[field] = {
                    "ports": [{"containerPort": 1}],
                    "livenessProbe": {"exec": {"command": ["a"]}},
                }.get(field, {"limits": {"cpu": "1"}})
            patch = {"spec": {"ephemeralContainers": [added]}}
            return Step("PATCH", f"{path}/{sub}", content_type=STRATEGIC, body=patch, target=path)
        if sub == "resize":
            resources = {
                rng.choice(("requests", "limits")): {
                    rng.choice(("cpu", "memory", "example.com/gpu")): rng.choice(
                        ("2", "0", "-1", None)
                    )
                }
            }
            patch = {
                "spec": {
                    "containers": [
                        {"name": rng.choice(("main", "main", "new")), "resources": resources}
                    ]
                }
            }
            return Step("PATCH", f"{path}/{sub}", content_type=STRATEGIC, body=patch, target=path)
        obj = self._status(name) if sub == "approval" else self._object(name)
        self._add_version(obj)
        return Step("PUT", f"{path}/{sub}", self._write_options(), body=obj, target=path)


def _dry_run(step: Step) -> Step:
    if step.method == "GET":
        return step
    return msgspec.structs.replace(step, query={**step.query, "dryRun": "All"})


def _substitute(obj: Any, namespace: str) -> None:
    """Replace the word ``NAMESPACE`` in all strings of an object."""
    items = obj.items() if isinstance(obj, dict) else enumerate(obj)
    for key, value in list(items):
        if value == "NAMESPACE":
            obj[key] = namespace
        elif isinstance(value, (dict, list)):
            _substitute(value, namespace)


def _merge_patch(before: Any, after: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        if key not in before:
            patch[key] = value
        elif before[key] != value:
            patch[key] = _merge_patch(before[key], value)
    return patch


def _json_patch(before: Any, after: Any, path: str = "") -> Any:
    """Yield the operations that change one document to another."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before | after:
            pointer = f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
            if key not in after:
                yield {"op": "remove", "path": pointer}
            elif key not in before:
                yield {"op": "add", "path": pointer, "value": after[key]}
            else:
                yield from _json_patch(before[key], after[key], pointer)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from _json_patch(*pair, f"{path}/{index}")
    elif before != after:
        yield {"op": "replace", "path": path, "value": after}
