"""Decides whether an AppWrapper was validated by the operator's webhook, so that no other AppWrapper is deployed.

The operator creates components with its own permissions, and only the webhook checks those of the creator. The API
server calls the webhook for every creation only while it is registered with ``failurePolicy: Fail``. The result is
recorded in the condition ``Validated``, with a digest of the fields that the webhook makes immutable. Users cannot
write this condition: the roles for users do not include ``appwrappers/status``, and the API server drops the status of
a new object. They cannot change components without changing the digest. The rules are:

* A new AppWrapper is validated if the webhook was registered before the second in which it was created.
* A changed digest means that components were changed while the webhook was not registered.
* An AppWrapper with a phase but without the condition was accepted by the Go operator or an earlier version.

An AppWrapper that was not validated stays suspended, also after the webhook is registered again, because nothing has
checked its creator. It has to be created again.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import structlog

from cfo.api.appwrapper.names import APPWRAPPER, Phase
from cfo.api.appwrapper.podsets import replicas_of
from cfo.controllers.appwrapper.names import VALIDATED
from cfo.runtime import Client, Clock, Event, Informer, Object, Request, find_condition, key_of, name_of
from cfo.runtime.objects import VALIDATING_WEBHOOK_CONFIGURATION

_log = structlog.get_logger("cfo.controllers.appwrapper.admission")

_PATH: Final = "/validate-workload-codeflare-dev-v1beta2-appwrapper"
_RESOURCE: Final = "appwrappers"
_DIGEST: Final = "sha256:"
_CHECKED_PHASES: Final = (Phase.EMPTY, Phase.SUSPENDED, Phase.RESUMING, Phase.RESETTING)
"""The phases after which components are created."""

_FINAL_PHASES: Final = (Phase.FAILED, Phase.SUCCEEDED, Phase.TERMINATING)
_RECREATE: Final = (
    "Its components are not created. Delete it and create it again while the ValidatingWebhookConfiguration of the "
    "operator is installed."
)


@dataclass(frozen=True, slots=True)
class Validation:
    """The condition ``Validated`` of an AppWrapper; ``status`` is ``None`` if it cannot be determined yet."""

    status: bool | None
    reason: str
    message: str


def content_digest(wrapper: Mapping[str, Any]) -> str:
    """Return the digest of the fields of ``wrapper`` that validation makes immutable; linear in its size."""
    content = [
        (component.get("template"), [(item.get("path"), replicas_of(item)) for item in component.get("podSets") or ()])
        for component in (wrapper.get("spec") or {}).get("components") or ()
    ]
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()


def validates_creations(configuration: Mapping[str, Any]) -> bool:
    """Return whether a ValidatingWebhookConfiguration makes the API server call our webhook for each new AppWrapper.

    A selector, a match condition, a narrower rule or ``failurePolicy: Ignore`` lets AppWrappers bypass the webhook.
    """
    return any(map(_validates_creations, configuration.get("webhooks") or ()))


def _validates_creations(webhook: Mapping[str, Any]) -> bool:
    config = webhook.get("clientConfig") or {}
    path = (config.get("service") or {}).get("path") or urlsplit(config.get("url") or "").path
    if not path.endswith(_PATH) or webhook.get("failurePolicy", "Fail") != "Fail":
        return False
    if any(webhook.get(name) for name in ("namespaceSelector", "objectSelector", "matchConditions")):
        return False
    return any(map(_matches_creations, webhook.get("rules") or ()))


def _matches_creations(rule: Mapping[str, Any]) -> bool:
    def has(key: str, *values: str) -> bool:
        return any(value in values for value in rule.get(key) or ())

    return (
        has("apiGroups", APPWRAPPER.group, "*")
        and has("apiVersions", APPWRAPPER.version, "*")
        and has("operations", "CREATE", "*")
        and has("resources", _RESOURCE, "*", "*/*")
        and rule.get("scope", "*") in ("*", "Namespaced")
    )


def registered_since(configuration: Mapping[str, Any]) -> datetime:
    """Return since when the webhooks of ``configuration`` have been as they are now, according to the API server.

    This is the time at which it was created, or at which a field manager last changed a field of a webhook other than
    ``clientConfig``, which contains the CA and changes when certificates are renewed. The removal of a field by a
    client that owns no other field leaves no trace; while the operator runs, :class:`ValidationGate` notices it.
    """
    metadata = configuration["metadata"]
    times = [metadata.get("creationTimestamp")]
    times += [
        entry.get("time")
        for entry in metadata.get("managedFields") or ()
        if _owns_settings((entry.get("fieldsV1") or {}).get("f:webhooks") or {})
    ]
    known = [datetime.fromisoformat(time) for time in times if time]
    return max(known, default=datetime.max.replace(tzinfo=UTC))


def _owns_settings(fields: Mapping[str, Any]) -> bool:
    return any(set(owned) - {".", "f:name", "f:clientConfig"} for key, owned in fields.items() if key != ".")


class ValidationGate:
    """Determines the condition ``Validated`` of AppWrappers.

    Each new AppWrapper causes one read of the webhook configuration, which begins after the AppWrapper was observed: a
    watch could report a new AppWrapper before the deletion of the webhook configuration that preceded it. All other
    changes cause none. Validation is not required if ``configurations`` is ``None``.
    """

    def __init__(self, client: Client, configurations: Informer | None, clock: Clock) -> None:
        self._client = client
        self._configurations = configurations
        self._clock = clock
        self._restored: dict[str, datetime] = {}
        self._waiting: set[Request] = set()
        if configurations is not None:
            configurations.add_handler(self._on_event)

    def waiting(self) -> Collection[Request]:
        """Return the AppWrappers whose validation could not be determined, to enqueue them, and forget them."""
        waiting, self._waiting = self._waiting, set()
        return waiting

    def _on_event(self, event: Event) -> None:
        """Remember when a configuration begins to validate AppWrappers again, because this can leave no trace in it."""
        if event.new is None:
            self._restored.pop(event.key.name, None)
            return
        before = event.old is None or validates_creations(event.old.object())
        after = validates_creations(event.new.object())
        if after and not before:
            self._restored[event.key.name] = self._clock.now()
            _log.info("Validating webhook is registered again", configuration=event.key.name)
        elif before and not after and event.old is not None:
            _log.warning("Validating webhook does not validate all new AppWrappers", configuration=event.key.name)

    async def validation_of(self, wrapper: Object) -> Validation | None:
        """Return the condition that ``wrapper`` should have; ``None`` if it need not have one.

        Raises the errors of API requests.
        """
        status = wrapper.get("status") or {}
        stored = find_condition(status.get("conditions"), VALIDATED) or {}
        phase = status.get("phase") or ""
        if self._configurations is None:
            accepted = not stored or stored.get("status") == "True"
            return None if accepted else _validated(wrapper, "NotRequired", "Validation is not required")
        if phase in _FINAL_PHASES:
            return None
        if not stored and phase != Phase.EMPTY:
            return _validated(wrapper, "AcceptedEarlier", "Accepted before validation was recorded")
        if stored.get("status") == "True":
            if phase not in _CHECKED_PHASES or str(stored.get("message")).endswith(_DIGEST + content_digest(wrapper)):
                return None
            message = f"Its components were changed while the validating webhook was not registered. {_RECREATE}"
            return Validation(False, "ChangedWithoutValidation", message)
        if stored.get("status") == "False":
            return None
        return await self._validation_of_new(wrapper, self._configurations)

    async def _validation_of_new(self, wrapper: Object, configurations: Informer) -> Validation:
        if not configurations.has_synced:
            self._waiting.add(key_of(wrapper))
            problem = configurations.problem or "list in progress"
            message = f"ValidatingWebhookConfigurations cannot be read, so its components are not created: {problem}"
            return Validation(None, "WebhookUnknown", message)
        created = datetime.fromisoformat(wrapper["metadata"]["creationTimestamp"])
        # Creation times have a precision of one second, so an AppWrapper of the same second may be older.
        if any([created > since async for since in self._registrations(configurations)]):
            return _validated(wrapper, "AdmissionWebhook", "Validated by the admission webhook")
        message = f"It was created while the validating webhook was not registered with failurePolicy Fail. {_RECREATE}"
        return Validation(False, "CreatedWithoutValidation", message)

    async def _registrations(self, configurations: Informer) -> AsyncIterator[datetime]:
        """Yield since when each configuration has validated all new AppWrappers, as stored now."""
        cached = [entry for entry in configurations.reader.entries() if validates_creations(entry.object())]
        for entry in cached:
            stored = await self._client.get(VALIDATING_WEBHOOK_CONFIGURATION, entry.key, live=True)
            if stored is not None and validates_creations(stored):
                yield self._since(stored)
        if not cached:  # the informer may not have received a new configuration yet
            for stored in await self._client.list(VALIDATING_WEBHOOK_CONFIGURATION, live=True):
                if validates_creations(stored):
                    yield self._since(stored)

    def _since(self, configuration: Object) -> datetime:
        since = registered_since(configuration)
        return max(since, self._restored.get(name_of(configuration), since))


def is_held(wrapper: Mapping[str, Any]) -> bool:
    """Return whether the recorded condition prevents the creation of components."""
    stored = find_condition((wrapper.get("status") or {}).get("conditions"), VALIDATED)
    return stored is not None and stored.get("status") != "True"


def _validated(wrapper: Mapping[str, Any], reason: str, message: str) -> Validation:
    return Validation(True, reason, f"{message}; {_DIGEST}{content_digest(wrapper)}")
