"""Decides whether an AppWrapper was validated by the operator's webhook, so that no other AppWrapper is deployed.

The operator creates components with its own permissions, and only the webhook checks those of the creator. The API
server calls the webhook for every creation only while it is registered accordingly (:mod:`.registration`). The result
is recorded in the condition ``Validated``, with a digest of the fields that the webhook makes immutable. Users cannot
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
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson
import structlog

from cfo.api.appwrapper.names import Phase
from cfo.api.appwrapper.podsets import replicas_of
from cfo.controllers.appwrapper.names import VALIDATED
from cfo.controllers.appwrapper.registration import (
    depends_on_labels,
    obstacle_of,
    registered_since,
    selected_since,
    settings_of,
    validates_creations,
    webhooks_of,
)
from cfo.runtime import (
    Client,
    Clock,
    Event,
    Informer,
    Object,
    Request,
    find_condition,
    key_of,
    name_of,
    namespace_of,
    rfc3339,
)
from cfo.runtime.objects import NAMESPACE, VALIDATING_WEBHOOK_CONFIGURATION, parse_time

_log = structlog.get_logger("cfo.controllers.appwrapper.admission")

_MAX_PROBLEMS: Final = 5
_DIGEST: Final = "sha256:"
_CHECKED_PHASES: Final = (Phase.EMPTY, Phase.SUSPENDED, Phase.RESUMING, Phase.RESETTING)
"""The phases after which components are created."""

_FINAL_PHASES: Final = (Phase.FAILED, Phase.SUCCEEDED, Phase.TERMINATING)
_RECREATE: Final = (
    "Its components are not created. Delete it and create it again while the ValidatingWebhookConfiguration of the "
    "operator applies to all AppWrappers in its namespace."
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
        if event.old is None:
            return
        before, after = event.old.object(), event.new.object()
        if settings_of(before) == settings_of(after):
            return
        if validates_creations(after):
            self._restored[event.key.name] = self._clock.now()
            _log.info("Validating webhook is registered again", configuration=event.key.name)
        elif validates_creations(before):
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
        created = parse_time(wrapper["metadata"]["creationTimestamp"])
        webhooks = [(item, hook) for item in await self._registrations(configurations) for hook in webhooks_of(item)]
        namespace: Object = {"metadata": {"name": namespace_of(wrapper)}}
        if any(depends_on_labels(webhook) for _, webhook in webhooks if not obstacle_of(webhook)):
            namespace = await self._client.get(NAMESPACE, key_of(namespace), live=True) or namespace
        problems = []
        for configuration, webhook in webhooks:
            problem = obstacle_of(webhook)
            selected = None if problem else selected_since(webhook, namespace)
            if selected is None:
                problem = problem or f"its namespaceSelector does not select namespace {name_of(namespace)}"
            # Creation times have a precision of one second, so an AppWrapper of the same second may be older.
            elif created > (since := max(selected, self._since(configuration))):
                return _validated(wrapper, "AdmissionWebhook", "Validated by the admission webhook")
            else:
                problem = f"it applies only to AppWrappers that are created after {rfc3339(since)}"
            problems.append(f"{name_of(configuration)}: {problem}")
        why = "; ".join(problems[:_MAX_PROBLEMS]) or "no ValidatingWebhookConfiguration contains it"
        message = f"The webhook of the operator did not validate its creation: {why}. {_RECREATE}"
        return Validation(False, "CreatedWithoutValidation", message)

    async def _registrations(self, configurations: Informer) -> list[Object]:
        """Return the configurations that can contain our webhook of AppWrappers, as stored now."""
        cached = [entry for entry in configurations.reader.entries() if validates_creations(entry.object())]
        if not cached:  # the informer may not have received a new configuration yet
            return await self._client.list(VALIDATING_WEBHOOK_CONFIGURATION, live=True)
        stored = [await self._client.get(VALIDATING_WEBHOOK_CONFIGURATION, entry.key, live=True) for entry in cached]
        return [configuration for configuration in stored if configuration is not None]

    def _since(self, configuration: Object) -> datetime:
        since = registered_since(configuration)
        return max(since, self._restored.get(name_of(configuration), since))


def is_held(wrapper: Mapping[str, Any]) -> bool:
    """Return whether the recorded condition prevents the creation of components."""
    stored = find_condition((wrapper.get("status") or {}).get("conditions"), VALIDATED)
    return stored is not None and stored.get("status") != "True"


def _validated(wrapper: Mapping[str, Any], reason: str, message: str) -> Validation:
    return Validation(True, reason, f"{message}; {_DIGEST}{content_digest(wrapper)}")
