"""Which webhooks there are, and the configurations that announce them to an API server.

What is registered says everything: the server answers by it, and manifests are generated from it
(:meth:`Webhooks.configurations`). Paths and default names are controller-runtime's and kubebuilder's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from cfo.runtime.kinds import MUTATING_WEBHOOK_CONFIGURATION
from cfo.runtime.objects import GVK, Object
from cfo.runtime.webhook.admission import Defaulter, Handler, Operation, Validator
from cfo.runtime.webhook.conversion import Converter
from cfo.runtime.webhook.handlers import DefaultingHandler, ValidatingHandler
from cfo.runtime.webhook.options import ServiceReference, WebhookURL

__all__ = ["CONVERSION_PATH", "Webhook", "Webhooks", "plural"]

CONVERSION_PATH: Final = "/convert"

_PATH = re.compile(r"(/[a-zA-Z0-9\-_]+)+|/")
_WRITES = (Operation.CREATE, Operation.UPDATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One admission webhook: who answers it, and for which requests the API server calls it.

    The fields are those of `ValidatingWebhook`_ in an admission configuration. ``resources`` are plural names,
    ``versions`` API versions of ``groups``; ``timeout_seconds`` is 1 to 30.

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
    match_policy: Literal["Equivalent", "Exact"] = "Equivalent"
    timeout_seconds: int = 10
    reinvocation_policy: Literal["Never", "IfNeeded"] = "Never"
    namespace_selector: Mapping[str, Any] = field(default_factory=dict)
    object_selector: Mapping[str, Any] = field(default_factory=dict)
    match_conditions: Sequence[Mapping[str, str]] = ()

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise ValueError(
                f"path: {self.path!r}: must be made of segments of letters, digits, - and _, as /mutate-pods"
            )
        if self.name.count(".") < 2:
            raise ValueError(f"name: {self.name!r}: must be a domain name of at least three parts, as mpod.kb.io")
        if not 1 <= self.timeout_seconds <= 30:
            raise ValueError(f"timeout_seconds: {self.timeout_seconds}: must be 1 to 30")

    def entry(self, client_config: Mapping[str, Any]) -> Object:
        """Its entry in the list ``webhooks`` of a configuration. What is as the API server defaults it is left out,
        but for what readers look for."""
        rule: dict[str, Any] = {
            "apiGroups": list(self.groups),
            "apiVersions": list(self.versions),
            "operations": [str(operation) for operation in self.operations],
            "resources": list(self.resources),
        }
        if self.scope != "*":
            rule["scope"] = self.scope
        entry: dict[str, Any] = {
            "name": self.name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": dict(client_config),
            "failurePolicy": self.failure_policy,
            "matchPolicy": self.match_policy,
            "rules": [rule],
            "sideEffects": self.side_effects,
            "timeoutSeconds": self.timeout_seconds,
        }
        if self.mutating and self.reinvocation_policy != "Never":
            entry["reinvocationPolicy"] = self.reinvocation_policy
        for key, value in (
            ("namespaceSelector", self.namespace_selector),
            ("objectSelector", self.object_selector),
            ("matchConditions", self.match_conditions),
        ):
            if value:
                entry[key] = list(value) if key == "matchConditions" else dict(value)  # type: ignore[arg-type]
        return entry


class Webhooks:
    """The webhooks of one server; more may be registered while it runs."""

    def __init__(self) -> None:
        self._by_path: dict[str, Webhook] = {}
        self.converters: dict[tuple[str, str], Converter] = {}

    def __iter__(self) -> Iterator[Webhook]:
        return iter(tuple(self._by_path.values()))

    def __len__(self) -> int:
        return len(self._by_path)

    def get(self, path: str) -> Webhook | None:
        """The webhook that answers ``path``, or ``None``."""
        return self._by_path.get(path)

    def add(self, webhook: Webhook) -> None:
        """Registers a webhook. Raises :class:`ValueError` when its path or its name is taken."""
        if webhook.path in self._by_path or webhook.path == CONVERSION_PATH:
            raise ValueError(f"path: {webhook.path!r}: is taken by another webhook")
        if any(webhook.name == other.name and webhook.mutating == other.mutating for other in self):
            raise ValueError(f"name: {webhook.name!r}: is taken by another webhook")
        self._by_path[webhook.path] = webhook

    def register(
        self,
        gvk: GVK,
        *,
        defaulter: Defaulter | None = None,
        validator: Validator | None = None,
        converter: Converter | None = None,
        resource: str = "",
        defaulter_name: str = "",
        validator_name: str = "",
        operations: Sequence[Operation] = _WRITES,
        validator_operations: Sequence[Operation] | None = None,
        **settings: Any,
    ) -> None:
        """Registers the webhooks of one kind, as controller-runtime's webhook builder does.

        The defaulter answers ``/mutate-<group>-<version>-<kind>``, the validator ``/validate-...``, the converter
        (for all versions of the kind) ``/convert``. ``resource`` is the plural name (guessed from the kind),
        ``..._name`` the webhook's (``m<kind>.kb.io``, ``v<kind>.kb.io``); ``validator_operations`` are those of
        the validator where they differ, as with deletions. ``settings`` are more fields of :class:`Webhook` for
        both. Raises :class:`ValueError`.
        """
        if defaulter is None and validator is None and converter is None:
            raise ValueError(f"{gvk}: register a defaulter, a validator or a converter")
        kind = gvk.kind.lower()
        suffix = "-".join((gvk.group.replace(".", "-"), gvk.version, kind))
        made = partial(
            Webhook, groups=(gvk.group,), versions=(gvk.version,), resources=(resource or plural(kind),), **settings
        )
        if defaulter is not None:
            self.add(
                made(
                    name=defaulter_name or f"m{kind}.kb.io",
                    path=f"/mutate-{suffix}",
                    handler=DefaultingHandler(defaulter),
                    mutating=True,
                    operations=tuple(operations),
                )
            )
        if validator is not None:
            self.add(
                made(
                    name=validator_name or f"v{kind}.kb.io",
                    path=f"/validate-{suffix}",
                    handler=ValidatingHandler(validator),
                    mutating=False,
                    operations=tuple(operations if validator_operations is None else validator_operations),
                )
            )
        if converter is not None and self.converters.setdefault((gvk.group, gvk.kind), converter) is not converter:
            raise ValueError(f"{gvk}: there is a converter for this kind already")

    def configuration(
        self,
        kind: GVK,
        name: str,
        where: ServiceReference | WebhookURL,
        *,
        annotations: Mapping[str, str] | None = None,
        ca_bundle: str = "",
    ) -> Object | None:
        """The webhook configuration ``name`` of ``kind`` with all webhooks of that kind, ordered by name.

        ``None`` if there are none.

        ``annotations`` may ask others to fill in the bundle (``cert-manager.io/inject-ca-from``); ``ca_bundle`` is
        base64.
        """
        found = sorted(
            (hook for hook in self if hook.mutating == (kind == MUTATING_WEBHOOK_CONFIGURATION)),
            key=lambda hook: hook.name,
        )
        if not found:
            return None
        metadata: dict[str, Any] = {"name": name}
        if annotations:
            metadata["annotations"] = dict(annotations)
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": metadata,
            "webhooks": [hook.entry(_client_config(where, hook.path, ca_bundle)) for hook in found],
        }


def _client_config(where: ServiceReference | WebhookURL, path: str, ca_bundle: str) -> dict[str, Any]:
    config: dict[str, Any] = {"caBundle": ca_bundle} if ca_bundle else {}
    if isinstance(where, WebhookURL):
        return {"url": f"{where}{path}", **config}
    service: dict[str, Any] = {"namespace": where.namespace, "name": where.name, "path": path}
    if where.port != 443:
        service["port"] = where.port
    return {"service": service, **config}


def plural(kind: str) -> str:
    """The plural resource name that a kind most likely has (apimachinery's ``UnsafeGuessKindToResource``)."""
    word = kind.lower()
    if word.endswith("s"):
        return f"{word}es"
    if word.endswith("y"):
        return f"{word[:-1]}ies"
    return f"{word}s"
