"""The registered webhooks, and the webhook configurations that register them with API servers.

The registrations are the single source of truth: the server dispatches requests to them, and manifests are generated
from them (:meth:`Webhooks.configuration`). Paths and default names match controller-runtime and kubebuilder.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

from cfo.runtime.objects.kinds import MUTATING_WEBHOOK_CONFIGURATION
from cfo.runtime.objects.resource.declaration import plural_of
from cfo.runtime.objects.unstructured import GVK, Object, ObjectKind, require_kind
from cfo.runtime.process.arguments import require_parameters
from cfo.runtime.process.strings import require_strings
from cfo.runtime.webhook.admission import Defaulter, Handler, Operation, Validator
from cfo.runtime.webhook.options import ServiceReference, WebhookURL
from cfo.runtime.webhook.review_handlers import DefaultingHandler, ValidatingHandler

T = TypeVar("T")


_PATH = re.compile(r"(/[a-zA-Z0-9\-_]+)+|/")
_WRITES = (Operation.CREATE, Operation.UPDATE)
_VALIDATING_METHODS = {
    Operation.CREATE: "validate_create",
    Operation.UPDATE: "validate_update",
    Operation.DELETE: "validate_delete",
}
_ALLOWED = {
    "scope": ("*", "Namespaced", "Cluster"),
    "failure_policy": ("Fail", "Ignore"),
    "side_effects": ("None", "NoneOnDryRun"),
    "reinvocation_policy": ("Never", "IfNeeded"),
}
"""The values of fields that have a few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One admission webhook: its handler, and the requests for which the API server calls it.

    The fields match `ValidatingWebhook`_ in a webhook configuration. ``resources`` are plural names, ``versions`` are
    API versions of ``groups``, and ``timeout_seconds`` must be 1 to 30.

    .. _ValidatingWebhook: https://kubernetes.io/docs/reference/kubernetes-api/extend-resources/
    """

    name: str
    path: str
    handler: Handler
    mutating: bool
    groups: tuple[str, ...]
    versions: tuple[str, ...]
    resources: tuple[str, ...]
    operations: tuple[Operation, ...] = _WRITES
    scope: Literal["*", "Namespaced", "Cluster"] = "*"
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    side_effects: Literal["None", "NoneOnDryRun"] = "None"
    timeout_seconds: int = 10
    reinvocation_policy: Literal["Never", "IfNeeded"] = "Never"
    object_selector: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("groups", "versions", "resources", "operations"):
            require_strings(name, getattr(self, name))
        _check_operations("operations", self.operations)
        for name, allowed in _ALLOWED.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name}: {value!r:.200}: must be one of {', '.join(allowed)}")
        if not _PATH.fullmatch(self.path):
            raise ValueError(
                f"path: {self.path!r}: must consist of segments of letters, digits, - and _, such as /mutate-pods"
            )
        if self.name.count(".") < 2:
            raise ValueError(
                f"name: {self.name!r}: must be a domain name of at least three parts, such as mpod.kb.io"
            )
        if not 1 <= self.timeout_seconds <= 30:
            raise ValueError(f"timeout_seconds: {self.timeout_seconds}: must be 1 to 30")

    def entry(self, client_config: Mapping[str, Any]) -> Object:
        """Return the entry for the list ``webhooks`` of a webhook configuration.

        Fields that have the API server's default value are left out, except in rules: server-side apply treats the list
        of rules as one value, so a rule without a defaulted field conflicts with the stored one.
        """
        rule: dict[str, Any] = {
            "apiGroups": list(self.groups),
            "apiVersions": list(self.versions),
            "operations": [str(operation) for operation in self.operations],
            "resources": list(self.resources),
            "scope": self.scope,
        }
        entry: dict[str, Any] = {
            "name": self.name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": dict(client_config),
            "failurePolicy": self.failure_policy,
            "matchPolicy": "Equivalent",  # otherwise requests in other versions are not reviewed
            "rules": [rule],
            "sideEffects": self.side_effects,
            "timeoutSeconds": self.timeout_seconds,
        }
        if self.mutating and self.reinvocation_policy != "Never":
            entry["reinvocationPolicy"] = self.reinvocation_policy
        if self.object_selector:
            entry["objectSelector"] = dict(self.object_selector)
        return entry


class Webhooks:
    """The webhooks of one server. More webhooks can be registered while it runs."""

    def __init__(self) -> None:
        self._by_path: dict[str, Webhook] = {}

    def __iter__(self) -> Iterator[Webhook]:
        return iter(tuple(self._by_path.values()))

    def __len__(self) -> int:
        return len(self._by_path)

    def get(self, path: str) -> Webhook | None:
        """Return the webhook that is registered for ``path``, or ``None``."""
        return self._by_path.get(path)

    def add(self, webhook: Webhook) -> None:
        """Register a webhook. Raises :class:`ValueError` if its path or name is already registered."""
        if webhook.path in self._by_path:
            raise ValueError(
                f"path: {webhook.path!r}: already used by another webhook; set path_suffix of register"
            )
        if any(webhook.name == other.name and webhook.mutating == other.mutating for other in self):
            parameter = "defaulter_name" if webhook.mutating else "validator_name"
            raise ValueError(
                f"name: {webhook.name!r}: already used by another webhook; set {parameter} of register"
            )
        self._by_path[webhook.path] = webhook

    def register(
        self,
        kind: ObjectKind[T],
        *,
        defaulter: Defaulter[T] | None = None,
        validator: Validator[T] | None = None,
        resource: str = "",
        defaulter_name: str = "",
        validator_name: str = "",
        operations: Sequence[Operation] = _WRITES,
        validator_operations: Sequence[Operation] | None = None,
        path_suffix: str = "",
        **settings: Any,
    ) -> None:
        """Register the webhooks of one kind, as controller-runtime's webhook builder does.

        ``kind`` is a GVK or a class; a defaulter and a validator of a class receive its instances. An object that does
        not fit the class is denied with one cause for each field.

        The defaulter gets the path ``/mutate-<group>-<version>-<kind>``, and the validator ``/validate-...``.
        ``resource`` is the plural name of the resource, by default the one that the class declares, or derived from the
        kind. ``defaulter_name`` and ``validator_name`` are the names of the webhooks, by default ``m<kind>.kb.io`` and
        ``v<kind>.kb.io``. ``validator_operations`` are the operations of the validator, by default ``operations``.
        ``path_suffix`` is appended to the paths, for a second webhook of a kind. ``settings`` are further fields of
        :class:`Webhook`, for both webhooks.

        Raises :class:`ValueError` if there is nothing to register, if a field is invalid, or if a path or a name is
        already registered, and :class:`TypeError` if the defaulter or the validator lacks a method that is called, or
        if the operations are one string.
        """
        require_strings("operations", operations)
        require_strings("validator_operations", validator_operations)
        _check_operations("operations", operations)
        gvk = require_kind("register", kind)
        if defaulter is None and validator is None:
            raise ValueError(f"{gvk}: a defaulter or a validator is required")
        if validator_operations is None:
            validator_operations = operations
        _check_operations("validator_operations", validator_operations)
        if defaulter is not None:
            _check_method(gvk, defaulter, Defaulter, "default")
        if validator is not None:
            for operation in validator_operations:
                if operation in _VALIDATING_METHODS:
                    _check_method(gvk, validator, Validator, _VALIDATING_METHODS[operation])
        word = gvk.kind.lower()
        group = gvk.group.replace(".", "-")
        suffix = f"{group}-{gvk.version}-{word}{path_suffix}"
        new_webhook = partial(
            Webhook,
            groups=(gvk.group,),
            versions=(gvk.version,),
            resources=(resource or plural_of(kind),),
            **settings,
        )
        if defaulter is not None:
            self.add(
                new_webhook(
                    name=defaulter_name or f"m{word}.kb.io",
                    path=f"/mutate-{suffix}",
                    handler=DefaultingHandler(defaulter, kind),
                    mutating=True,
                    operations=tuple(operations),
                )
            )
        if validator is not None:
            self.add(
                new_webhook(
                    name=validator_name or f"v{word}.kb.io",
                    path=f"/validate-{suffix}",
                    handler=ValidatingHandler(validator, kind),
                    mutating=False,
                    operations=tuple(validator_operations),
                )
            )

    def configuration(
        self, kind: GVK, name: str, address: ServiceReference | WebhookURL
    ) -> Object | None:
        """Return the webhook configuration ``name`` of ``kind``, with all webhooks of that kind sorted by name.

        Returns ``None`` if there are no such webhooks. ``address`` is the address at which API servers call them.
        """
        mutating = kind == MUTATING_WEBHOOK_CONFIGURATION
        found = [hook for hook in self if hook.mutating == mutating]
        if not found:
            return None
        found.sort(key=lambda hook: hook.name)
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "webhooks": [hook.entry(_client_config(address, hook.path)) for hook in found],
        }


def _check_operations(name: str, operations: Collection[str]) -> None:
    """Raise :class:`ValueError` for no operation, and one that no API server has."""
    if not operations:
        raise ValueError(f"{name}: must not be empty")
    for operation in operations:
        if operation not in tuple(Operation):
            raise ValueError(
                f"{name}: {operation!r:.200}: must be one of {', '.join(Operation)}, such as Operation.DELETE"
            )


def _check_method(gvk: GVK, handler: object, protocol: type, name: str) -> None:
    """Raise :class:`TypeError` if ``handler`` is a class, or has no method ``name`` of its own."""
    role = protocol.__name__.lower()
    if isinstance(handler, type):
        raise TypeError(f"{gvk}: {role} {handler.__name__}: must be an instance, not a class")
    inherited = getattr(protocol, name)
    # The method of the protocol accepts everything, which is only meant for deletions.
    is_inherited = getattr(type(handler), name, None) is inherited and name != "validate_delete"
    if is_inherited or not callable(getattr(handler, name, None)):
        raise TypeError(f"{gvk}: {role} {type(handler).__name__}: must have a method {name}")
    _, *parameters = inspect.signature(inherited).parameters
    method_name = f"{gvk}: {role} {type(handler).__name__}.{name}"
    require_parameters(method_name, getattr(handler, name), *parameters)


def _client_config(address: ServiceReference | WebhookURL, path: str) -> dict[str, Any]:
    if isinstance(address, WebhookURL):
        return {"url": f"{address}{path}"}
    service: dict[str, Any] = {"namespace": address.namespace, "name": address.name, "path": path}
    if address.port != 443:
        service["port"] = address.port
    return {"service": service}
