"""Strategies of core/v1 kinds other than nodes, pods, services and volumes, and of events.k8s.io."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from envtest.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    key,
    not_supported,
    required,
    too_long,
)
from envtest.apimachinery.name_rules import (
    dns_label,
    dns_subdomain,
    mask_trailing_dash,
    qualified_name,
)
from envtest.apimachinery.objects import Object
from envtest.builtins.catalog import Resource
from envtest.builtins.go_rendering import REFERENCE, internal_fields
from envtest.builtins.ip_rules import ip_errors, ip_warnings, special_address_errors
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import config_key, port_number
from envtest.formats.go_json_errors import find_syntax_error
from envtest.registry.object_metadata import validate_metadata
from envtest.registry.resource import RequestContext
from envtest.schema.shaping import copy_json

__all__ = [
    "ConfigMapStrategy",
    "EndpointsStrategy",
    "EventStrategy",
    "NamespaceStrategy",
    "SecretStrategy",
    "ServiceAccountStrategy",
]

_MAX_SIZE = 1024 * 1024
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_IMMUTABLE = "field is immutable when `immutable` is set"


def _immutable_errors(obj: Object, old: Object, names: Sequence[str]) -> Iterator[FieldError]:
    if not old.get("immutable"):
        return
    if not obj.get("immutable"):
        yield forbidden("immutable", _IMMUTABLE)
    for name in names:
        if (obj.get(name) or {}) != (old.get(name) or {}):
            yield forbidden(name, _IMMUTABLE)


class ConfigMapStrategy(BuiltinStrategy):
    """Strategy of v1 ConfigMap."""

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the keys and the size, and of changes to an immutable ConfigMap."""
        data = obj.get("data") or {}
        binary = obj.get("binaryData") or {}
        size = 0
        for name, value in data.items():
            for problem in config_key(name):
                yield invalid(key("data", name), name, problem)
            if name in binary:
                yield invalid(key("data", name), name, "duplicate of key present in binaryData")
            size += len(value.encode())
        for name, value in binary.items():
            for problem in config_key(name):
                yield invalid(key("binaryData", name), name, problem)
            size += len(base64.b64decode(value))
        if size > _MAX_SIZE:
            yield too_long("[]", "", _MAX_SIZE)
        if old is not None:
            yield from _immutable_errors(obj, old, ("data", "binaryData"))


class SecretStrategy(BuiltinStrategy):
    """Strategy of v1 Secret."""

    _REQUIRED_KEYS: ClassVar = {
        "kubernetes.io/dockercfg": ".dockercfg",
        "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
        "kubernetes.io/ssh-auth": "ssh-privatekey",
    }

    def set_defaults(self, obj: Object) -> None:
        """Set the type to ``Opaque``, and move ``stringData`` to ``data``."""
        obj.setdefault("type", "Opaque")
        texts = obj.pop("stringData", None)
        if texts:
            data = obj.setdefault("data", {})
            for name, text in texts.items():
                data[name] = base64.b64encode(text.encode()).decode()

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the keys, the size, the type and its keys, and of changes to an immutable Secret."""
        data = obj.get("data") or {}
        kind = obj.get("type") or ""
        size = 0
        for name, value in data.items():
            for problem in config_key(name):
                yield invalid(key("data", name), name, problem)
            size += len(base64.b64decode(value))
        if size > _MAX_SIZE:
            yield too_long("data", "", _MAX_SIZE)
        yield from self._type_errors(obj, kind, data)
        if old is not None:
            if kind != old.get("type"):
                yield invalid("type", kind, "field is immutable")
            yield from _immutable_errors(obj, old, ("data",))

    def _type_errors(self, obj: Object, kind: str, data: Mapping[str, str]) -> Iterator[FieldError]:
        if kind == "kubernetes.io/service-account-token":
            name = "kubernetes.io/service-account.name"
            if not (obj["metadata"].get("annotations") or {}).get(name):
                yield required(key("metadata.annotations", name))
        elif kind in self._REQUIRED_KEYS:
            name = self._REQUIRED_KEYS[kind]
            if name not in data:
                yield required(key("data", name))
            elif kind != "kubernetes.io/ssh-auth":
                problem = _json_object_problem(base64.b64decode(data[name]))
                if problem:
                    yield invalid(key("data", name), "<secret contents redacted>", problem)
        elif kind == "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                yield required(key("data", "username"))
                yield required(key("data", "password"))
        elif kind == "kubernetes.io/tls":
            for name in ("tls.crt", "tls.key"):
                if name not in data:
                    yield required(key("data", name))

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """Warn about a TLS certificate or key that is not PEM."""
        if obj.get("type") != "kubernetes.io/tls" or (
            old is not None and obj.get("data") == old.get("data")
        ):
            return ()
        data = obj.get("data") or {}
        certificate = base64.b64decode(data.get("tls.crt", ""))
        private = base64.b64decode(data.get("tls.key", ""))
        if not certificate or not private:
            return ()
        if b"-----BEGIN" not in certificate:
            return ("tls: failed to find any PEM data in certificate input",)
        if b"-----BEGIN" not in private:
            return ("tls: failed to find any PEM data in key input",)
        return ()


_JSON_TYPES = {b"[": "array", b'"': "string", b"t": "bool", b"f": "bool"}
"""The types of JSON values, except of numbers, by their first characters."""


def _json_object_problem(text: bytes) -> str:
    """Return why Go cannot decode ``text`` as a JSON object; an empty string if it can."""
    problem = find_syntax_error(text)
    start = text.lstrip()[:1]
    if problem or start in (b"{", b"n"):
        return problem
    kind = _JSON_TYPES.get(start, "number")
    return f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"


_MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"


class ServiceAccountStrategy(BuiltinStrategy):
    """Strategy of v1 ServiceAccount."""

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_create`."""
        super().prepare_create(obj, ctx)
        _keep_only_names(obj)

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`."""
        super().prepare_update(new, old, ctx)
        _keep_only_names(new)

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """Warn about a deprecated annotation when it is added."""
        if not _is_annotated(obj, _MOUNTABLE_SECRETS) or (
            old is not None and _is_annotated(old, _MOUNTABLE_SECRETS)
        ):
            return ()
        path = key("metadata.annotations", _MOUNTABLE_SECRETS)
        return (
            f"{path}: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
        )


def _keep_only_names(account: Object) -> None:
    """Remove all but the names from references to secrets, in place."""
    secrets = account.get("secrets")
    if secrets:
        account["secrets"] = [
            {"name": each["name"]} if each.get("name") else {} for each in secrets
        ]


def _is_annotated(obj: Object, name: str) -> bool:
    return name in (obj["metadata"].get("annotations") or ())


class NamespaceStrategy(BuiltinStrategy):
    """Strategy of v1 Namespace."""

    foreground_without_orphans = True

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str] | None:
        """Require a DNS label."""
        if prefix:
            name = mask_trailing_dash(name)
        return dns_label(name)

    def set_defaults(self, obj: Object) -> None:
        """Set the phase to Active, and the label that holds the name."""
        obj["status"].setdefault("phase", "Active")
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Add the finalizer of the namespace controller."""
        obj["status"] = {"phase": "Active"}
        finalizers = obj["spec"].get("finalizers") or []
        if "kubernetes" not in finalizers:
            finalizers = [*finalizers, "kubernetes"]
        obj["spec"]["finalizers"] = finalizers
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = (
            obj["metadata"].get("name") or ""
        )

    def begin_deletion(self, obj: Object, ctx: RequestContext) -> bool:
        """Set the phase to Terminating; removal of the namespace controller's finalizer completes the deletion."""
        if not obj["metadata"].get("deletionTimestamp"):
            obj["metadata"]["deletionTimestamp"] = ctx.now
            obj["status"]["phase"] = "Terminating"
            return True
        return bool(obj["spec"].get("finalizers"))

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """Restore the finalizers of the spec, which are changed through the subresource ``finalize``."""
        super().prepare_update(new, old, ctx)
        if ctx.subresource == "finalize":
            new["status"] = copy_json(old["status"])
        elif not ctx.subresource:
            new["spec"]["finalizers"] = copy_json(old["spec"].get("finalizers"))
            if not new["spec"]["finalizers"]:
                new["spec"].pop("finalizers")

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the finalizers, which are qualified names with a prefix or standard, or of the phase."""
        if ctx.subresource == "status":
            deleting = bool(obj["metadata"].get("deletionTimestamp"))
            phase = obj["status"].get("phase") or ""
            if deleting:
                wanted = "Terminating"
                state = "not empty"
            else:
                wanted = "Active"
                state = "empty"
            if phase != wanted:
                yield invalid(
                    "status.Phase",
                    phase,
                    f"may only be '{wanted}' if `deletionTimestamp` is {state}",
                )
        for position, name in enumerate(obj["spec"].get("finalizers") or ()):
            path = "spec.finalizers"
            if ctx.subresource == "finalize":
                path = f"{path}[{position}]"
            problems = qualified_name(name)
            if "/" not in name and name != "kubernetes":
                problems = [
                    *problems,
                    "name is neither a standard finalizer name nor is it fully qualified",
                ]
            for problem in problems:
                yield invalid(path, name, problem)


class EventStrategy(BuiltinStrategy):
    """Strategy of v1 Event and events.k8s.io/v1 Event, which are two views of the same objects."""

    allow_create_on_update = True
    default_propagation = "unsupported"
    validates_metadata = False

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource)
        self.has_qualified_finalizers = resource.group == "events.k8s.io"

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of an event.

        An event with an ``eventTime`` must name its reporter, action and reason; events.k8s.io requires ``eventTime``.
        """
        is_new_api = self.resource.group == "events.k8s.io"
        regarded_field = "regarding" if is_new_api else "involvedObject"
        reporter_field = "reportingController" if is_new_api else "reportingComponent"
        regarded = obj.get(regarded_field) or {}
        namespace = regarded.get("namespace") or ""
        event_namespace = obj["metadata"].get("namespace") or ""
        has_event_time = obj.get("eventTime") is not None
        allowed_namespaces = ("", "default", "kube-system") if has_event_time else ("", "default")
        if (not namespace and event_namespace not in allowed_namespaces) or (
            namespace and not has_event_time and namespace != event_namespace
        ):
            yield invalid("involvedObject.namespace", namespace, "does not match event.namespace")
        if has_event_time:
            yield from _reporter_errors(obj, reporter_field)
        if not is_new_api:
            return
        if old is None:
            yield from validate_metadata(obj, ctx.info)
            yield from _series_errors(obj)
            yield from _new_api_event_errors(obj, has_event_time=has_event_time)
            return
        if obj.get("series") != old.get("series"):
            yield from _series_errors(obj)
        for name, rendered in _IMMUTABLE_EVENT_FIELDS.items():
            if obj.get(name) != old.get(name):
                value = obj.get(name)
                if name in ("regarding", "related"):
                    value = None if value is None else internal_fields(REFERENCE, value)
                elif name != "eventTime":
                    value = value or ""
                yield invalid(rendered, value, "field is immutable")
                if name == "reason":  # which kube-apiserver compares twice
                    yield invalid(rendered, value, "field is immutable")


_IMMUTABLE_EVENT_FIELDS = {
    "regarding": "involvedObject",
    "reason": "reason",
    "note": "message",
    "type": "type",
    "eventTime": "eventTime",
    "action": "action",
    "related": "related",
    "reportingController": "reportingController",
    "reportingInstance": "reportingInstance",
}


def _reporter_errors(obj: Object, controller: str) -> Iterator[FieldError]:
    name = obj.get(controller) or ""
    if not name:
        yield required(controller)
    for problem in qualified_name(name):
        yield invalid(controller, name, problem)
    for field in ("reportingInstance", "action", "reason"):
        value = obj.get(field) or ""
        if not value:
            yield required(field)
        elif len(value) > 128:
            yield invalid(field, "", "can have at most 128 characters")
    if len(obj.get("note") or obj.get("message") or "") > 1024:
        yield invalid("message", "", "can have at most 1024 characters")


def _series_errors(event: Object) -> Iterator[FieldError]:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        yield invalid("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


def _new_api_event_errors(obj: Object, *, has_event_time: bool) -> Iterator[FieldError]:
    if not has_event_time:
        yield required("eventTime")
    if obj.get("type") not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {obj.get('type') or ''}")
    for name, rendered in (
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ):
        if obj.get(name):
            yield invalid(rendered, "", "needs to be unset")


class EndpointsStrategy(BuiltinStrategy):
    """Strategy of v1 Endpoints."""

    allow_create_on_update = True

    def set_defaults(self, obj: Object) -> None:
        """Set the protocol of the ports to TCP."""
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                port.setdefault("protocol", "TCP")

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the addresses and ports."""
        for position, subset in enumerate(obj.get("subsets") or ()):
            path = f"subsets[{position}]"
            if not subset.get("addresses") and not subset.get("notReadyAddresses"):
                yield required(path, "must specify `addresses` or `notReadyAddresses`")
            for kind in ("addresses", "notReadyAddresses"):
                for number, address in enumerate(subset.get(kind) or ()):
                    yield from _endpoint_address_errors(address, f"{path}.{kind}[{number}]")
            ports = subset.get("ports") or ()
            for number, port in enumerate(ports):
                field_path = f"{path}.ports[{number}]"
                if len(ports) > 1 and not port.get("name"):
                    yield required(f"{field_path}.name")
                elif port.get("name"):
                    for problem in dns_label(port["name"]):
                        yield invalid(f"{field_path}.name", port["name"], problem)
                for problem in port_number(port.get("port")):
                    yield invalid(f"{field_path}.port", port.get("port"), problem)
                if not port.get("protocol"):
                    yield required(f"{field_path}.protocol")
                elif port["protocol"] not in _PROTOCOLS:
                    yield not_supported(f"{field_path}.protocol", port["protocol"], _PROTOCOLS)
                if port.get("appProtocol") is not None:
                    for problem in qualified_name(port["appProtocol"]):
                        yield invalid(f"{field_path}.appProtocol", port["appProtocol"], problem)

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: about addresses that no controller has written."""
        if (obj["metadata"].get("labels") or {}).get(
            "endpoints.kubernetes.io/managed-by"
        ) == "endpoint-controller":
            return ()
        warnings: list[str] = []
        for position, subset in enumerate(obj.get("subsets") or ()):
            for kind in ("addresses", "notReadyAddresses"):
                for number, address in enumerate(subset.get(kind) or ()):
                    path = f"subsets[{position}].{kind}[{number}].ip"
                    warnings += ip_warnings(path, address.get("ip") or "")
        return warnings


def _endpoint_address_errors(address: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    ip = address.get("ip") or ""
    yield from ip_errors(f"{path}.ip", ip)
    if address.get("hostname"):
        for problem in dns_label(address["hostname"]):
            yield invalid(f"{path}.hostname", address["hostname"], problem)
    if address.get("nodeName") is not None:
        for problem in dns_subdomain(address["nodeName"]):
            yield invalid(f"{path}.nodeName", address["nodeName"], problem)
    yield from special_address_errors(ip, f"{path}.ip")
