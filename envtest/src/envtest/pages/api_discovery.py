"""Discovery: the legacy documents and aggregated discovery (KEP-3352).

All documents are generated from the :class:`~envtest.registry.registry.Registry`, once for each of its generations.
Built-in groups come first, in the order of their priorities in the aggregator (``kube-aggregator``'s APIServices), then
the groups that CRDs and other API servers add, by priority and name. The versions of a group are in kube-aware version
order (``v2``, ``v1``, ``v1beta1``), unless other servers have given them priorities.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final

import orjson

from envtest.aggregation.api_services import APIServices, Remote
from envtest.apimachinery.errors import resource_not_found
from envtest.endpoints.negotiation import Output, check_route, negotiate
from envtest.endpoints.request import PageResponse
from envtest.endpoints.response_transform import encode_as
from envtest.registry.registry import Registry
from envtest.registry.resource import ResourceInfo, Subresource

__all__ = ["Discovery", "storage_version_hash", "version_order"]

_JSON: Final = "application/json"
_GROUPS: Final = (
    "",
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
)
_OTHER_PATHS: Final = (
    "/.well-known/openid-configuration",
    "/flagz",
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/statusz",
    "/version",
)
_CRD_GROUP_PRIORITY: Final = 1000
_CRD_VERSION_PRIORITY: Final = 100
_CUSTOM_VERBS: Final = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)
_TERMINATING_VERBS: Final = ("delete", "deletecollection", "get", "list", "watch")
_CUSTOM_SUBRESOURCES: Final = ("status", "scale")
_VERSION = re.compile(r"^v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?$")


class Discovery:
    """Serves ``/``, ``/api``, ``/apis`` and the paths below; ``health`` are the paths of the health checks."""

    def __init__(
        self,
        registry: Registry,
        health: Iterable[str] = (),
        api_services: APIServices | None = None,
    ) -> None:
        self._registry = registry
        self._api_services = api_services
        self._health = tuple(health)
        self._generation = (-1, 0)
        self._encoded: dict[tuple[str, str], bytes] = {}

    def respond(
        self, path: str, accept: str = "", if_none_match: str = "", *, address: str = ""
    ) -> PageResponse | None:
        """Return the response to a GET, or ``None`` if the path is not served at all (a plain 404).

        ``address`` is the ``host:port`` of this server. Raises StatusError: 404 for a version that a built-in group
        does not have, 406 if ``accept`` contains no supported media type.
        """
        parts = path.strip("/").split("/")
        if parts in (["api"], ["apis"]):
            aggregated = aggregated_version(accept)
            if aggregated:
                return self._aggregated(parts[0], aggregated, if_none_match)
        if parts[:-1] == ["api"] or (len(parts) == 3 and parts[1] in _GROUPS):
            check_route(accept, on_collection=False)
        output = negotiate(accept, is_crd=False, kinds=frozenset())
        if parts == [""]:  # the list of paths has no kind
            output = output._replace(protobuf=False)
        body = self._document(parts, address, output)
        return (
            None if body is None else PageResponse(200, {"Content-Type": output.content_type}, body)
        )

    def _document(self, parts: list[str], address: str, output: Output) -> bytes | None:
        self._refresh()
        key = (f"{output.content_type} {address if parts == ['api'] else ''}", "/".join(parts))
        body = self._encoded.get(key)
        if body is None:
            document = self._legacy(parts, address)
            if document is None:
                return None
            body = encode_as(document, output)
            self._encoded[key] = body
        return body

    def _refresh(self) -> None:
        generation = (
            self._registry.generation,
            self._api_services.generation if self._api_services else 0,
        )
        if self._generation != generation:
            self._generation = generation
            self._encoded.clear()

    def _legacy(self, parts: list[str], address: str) -> dict[str, Any] | None:
        match parts:
            case [""]:
                return {"paths": self._paths()}
            case ["api"]:
                cidr = {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
                return {
                    "kind": "APIVersions",
                    "versions": ["v1"],
                    "serverAddressByClientCIDRs": [cidr],
                }
            case ["apis"]:
                groups = [self._group(group) for group in self._ordered_groups() if group]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
            case ["api", version]:
                return self._resources("", version)
            case ["apis", group] if group and (
                self._registry.has_group(group) or self._remotes(group)
            ):
                return {"kind": "APIGroup", "apiVersion": "v1", **self._group(group)}
            case ["apis", group, version] if group and self._registry.has_group(group):
                return self._resources(group, version)
        return None

    def _paths(self) -> list[str]:
        paths = ["/api", "/apis", *_OTHER_PATHS, *self._health]
        for group in self._registry.groups():
            root = f"/apis/{group}" if group else "/api"
            paths += [root, *(f"{root}/{version}" for version in self._registry.versions(group))]
        for remote in self._remotes():
            paths += [f"/apis/{remote.group}", f"/apis/{remote.group}/{remote.version}"]
        return sorted(set(paths))

    def _remotes(self, group: str = "") -> list[Remote]:
        """Return the APIServices of other servers, in one group or in all."""
        return list(self._api_services.remotes(group)) if self._api_services is not None else []

    def _ordered_groups(self) -> list[str]:
        served = self._registry.groups()
        builtin = [group for group in _GROUPS if group in served]
        priorities = {group: _CRD_GROUP_PRIORITY for group in served if group not in _GROUPS}
        for remote in self._remotes():
            if remote.group not in builtin:
                priority = remote.spec["groupPriorityMinimum"]
                priorities[remote.group] = max(priority, priorities.get(remote.group, 0))
        return builtin + sorted(priorities, key=lambda group: (-priorities[group], group))

    def _versions(self, group: str) -> list[str]:
        priorities = dict.fromkeys(self._registry.versions(group), _CRD_VERSION_PRIORITY)
        for remote in self._remotes(group):
            priorities.setdefault(remote.version, remote.spec["versionPriority"])
        return sorted(
            priorities, key=lambda version: (-priorities[version], *version_order(version))
        )

    def _group(self, group: str) -> dict[str, Any]:
        versions = [
            {"groupVersion": f"{group}/{version}", "version": version}
            for version in self._versions(group)
        ]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _infos(self, group: str, version: str) -> list[ResourceInfo]:
        infos = [info for info in self._registry if info.group == group and info.version == version]
        return sorted(infos, key=lambda info: info.plural)

    def _resources(self, group: str, version: str) -> dict[str, Any] | None:
        infos = self._infos(group, version)
        if not infos:
            if group in _GROUPS:
                raise resource_not_found()
            return None
        head = {"kind": "APIResourceList"}
        if group:
            head["apiVersion"] = "v1"
        resources = [document for info in infos for document in _api_resources(info)]
        group_version = f"{group}/{version}" if group else version
        return {**head, "groupVersion": group_version, "resources": resources}

    def _aggregated(self, root: str, version: str, if_none_match: str) -> PageResponse:
        self._refresh()
        body = self._encoded.get((version, root))
        if body is None:
            groups = [""] if root == "api" else [group for group in self._ordered_groups() if group]
            document = {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": f"apidiscovery.k8s.io/{version}",
                "metadata": {},
                "items": [self._discovered_group(group) for group in groups],
            }
            body = orjson.dumps(document) + b"\n"
            self._encoded[version, root] = body
        etag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
        headers = {
            "Content-Type": f"{_JSON};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList",
            "ETag": etag,
            "Vary": "Accept",
            "Cache-Control": "public",
        }
        if if_none_match and if_none_match.strip() in (etag, etag.strip('"')):
            return PageResponse(304, headers, b"")
        return PageResponse(200, headers, body)

    def _discovered_group(self, group: str) -> dict[str, Any]:
        versions = [
            {
                "version": version,
                "resources": [_discovered_resource(info) for info in self._infos(group, version)],
                "freshness": "Current",
            }
            if self._registry.has_version(group, version)
            else self._remote_version(group, version)
            for version in self._versions(group)
        ]
        return {"metadata": {"name": group} if group else {}, "versions": versions}

    def _remote_version(self, group: str, version: str) -> dict[str, Any]:
        """Return a version of another server; without its resources while it cannot be reached."""
        assert self._api_services is not None
        remote = self._api_services.find(group, version)
        if remote is None or not remote.available:
            return {"version": version, "resources": [], "freshness": "Stale"}
        return {"version": version, "resources": _remote_resources(remote), "freshness": "Current"}


def _remote_resources(remote: Remote) -> list[dict[str, Any]]:
    """Return the resources that another server has listed in the form of aggregated discovery."""
    discovered: dict[str, dict[str, Any]] = {}
    for resource in remote.resources:
        name, _, subresource = str(resource.get("name")).partition("/")
        group = resource.get("group") or remote.group
        version = resource.get("version") or remote.version
        kind = {"group": group, "version": version, "kind": resource.get("kind") or ""}
        verbs = resource.get("verbs") or []
        if subresource:
            document = {"subresource": subresource, "responseKind": kind, "verbs": verbs}
            if name in discovered:
                discovered[name].setdefault("subresources", []).append(document)
            continue
        discovered[name] = {
            "resource": name,
            "responseKind": kind,
            "scope": "Namespaced" if resource.get("namespaced") else "Cluster",
            "singularResource": resource.get("singularName") or "",
            "verbs": verbs,
            **{key: resource[key] for key in ("shortNames", "categories") if resource.get(key)},
        }
    return list(discovered.values())


def version_order(version: str) -> tuple[int, int, int, str]:
    """Return a sort key for kube-aware version priority: GA before beta before alpha, higher numbers first."""
    match = _VERSION.match(version)
    if match is None:
        return (3, 0, 0, version)
    major, stage, minor = match.groups()
    return ({None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0), "")


def storage_version_hash(group: str, version: str, kind: str) -> str:
    """Return the hash by which clients detect that the storage version of a resource has changed."""
    digest = hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()
    return b64encode(digest[:8]).decode()


def aggregated_version(accept: str) -> str:
    """Return the version of aggregated discovery that ``Accept`` prefers to plain JSON, or an empty string."""
    for media_type in accept.split(","):
        name, *parameters = [part.strip() for part in media_type.split(";")]
        if name in (_JSON, "*/*", "application/*"):
            given = dict(parameter.partition("=")[::2] for parameter in parameters)
            if given.get("as") != "APIGroupDiscoveryList":
                return ""
            if given.get("g") == "apidiscovery.k8s.io" and given.get("v") in ("v2", "v2beta1"):
                return given["v"]
    return ""


def _verbs(info: ResourceInfo) -> Iterable[str]:
    if not info.is_crd:
        return sorted(info.verbs)
    return _TERMINATING_VERBS if info.terminating else _CUSTOM_VERBS


def _subresources(info: ResourceInfo) -> list[Subresource]:
    if info.is_crd:
        return [
            info.subresources[name] for name in _CUSTOM_SUBRESOURCES if name in info.subresources
        ]
    return [info.subresources[name] for name in sorted(info.subresources)]


def _api_resources(info: ResourceInfo) -> Iterable[dict[str, Any]]:
    resource: dict[str, Any] = {
        "name": info.plural,
        "singularName": info.singular,
        "namespaced": info.namespaced,
        "kind": info.kind,
        "verbs": list(_verbs(info)),
        **_names(info),
    }
    if info.storage_version_hash:
        resource["storageVersionHash"] = info.storage_version_hash
    elif "list" in info.verbs and "create" in info.verbs:
        group, _, version = info.storage_version.rpartition("/")
        resource["storageVersionHash"] = storage_version_hash(group, version, info.kind)
    yield resource
    for subresource in _subresources(info):
        document: dict[str, Any] = {
            "name": f"{info.plural}/{subresource.name}",
            "singularName": "",
            "namespaced": info.namespaced,
        }
        if subresource.version and (subresource.group, subresource.version) != (
            info.group,
            info.version,
        ):
            document["group"] = subresource.group
            document["version"] = subresource.version
        document["kind"] = subresource.kind or info.kind
        document["verbs"] = list(subresource.verbs)
        yield document


def _names(info: ResourceInfo) -> dict[str, list[str]]:
    names = {}
    if info.short_names:
        names["shortNames"] = list(info.short_names)
    if info.categories:
        names["categories"] = list(info.categories)
    return names


def _discovered_resource(info: ResourceInfo) -> dict[str, Any]:
    own = (info.group, info.version) if info.is_crd else ("", "")
    document: dict[str, Any] = {
        "resource": info.plural,
        "responseKind": {"group": own[0], "version": own[1], "kind": info.kind},
        "scope": "Namespaced" if info.namespaced else "Cluster",
        "singularResource": info.singular,
        "verbs": list(_verbs(info)),
        **_names(info),
    }
    subresources = []
    for subresource in _subresources(info):
        foreign = subresource.version and (subresource.group, subresource.version) != (
            info.group,
            info.version,
        )
        if foreign:
            group = subresource.group
            version = subresource.version
        else:
            group, version = own
        kind = {"group": group, "version": version, "kind": subresource.kind or info.kind}
        subresources.append(
            {
                "subresource": subresource.name,
                "responseKind": kind,
                "verbs": list(subresource.verbs),
            }
        )
    if subresources:
        document["subresources"] = subresources
    return document
