"""Decides whether an AppWrapper was validated by the operator's webhook, so that no other AppWrapper is deployed.

The operator creates components with its own permissions, and only the webhook checks those of the creator. The API
server calls the webhook for every creation only while it is registered accordingly (:func:`obstacle_of`). The result is
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
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import orjson
import structlog

from cfo.api.appwrapper.names import APPWRAPPER, VALIDATED, Phase
from cfo.api.appwrapper.podsets import replicas_of
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
from cfo.runtime.webhook import NAMESPACE_NAME_LABEL, gaps_of, namespace_selector

_log = structlog.get_logger("cfo.controllers.appwrapper.admission")

_PATH: Final = "/validate-workload-codeflare-dev-v1beta2-appwrapper"
_SETTINGS: Final = (
    "failurePolicy",
    "namespaceSelector",
    "objectSelector",
    "matchConditions",
    "matchPolicy",
    "rules",
)
_CREATIONS: Final = {
    "rules": [
        {
            "apiGroups": [APPWRAPPER.group],
            "apiVersions": [APPWRAPPER.version],
            "operations": ["CREATE"],
            "resources": ["appwrappers"],
        }
    ]
}
"""The webhook that the operator needs: all new AppWrappers."""

_MAX_PROBLEMS: Final = 5
_DIGEST: Final = "sha256:"
_CHECKED_PHASES: Final = (Phase.EMPTY, Phase.SUSPENDED, Phase.RESUMING, Phase.RESETTING)
"""The phases after which components are created."""

_FINAL_PHASES: Final = (Phase.FAILED, Phase.SUCCEEDED, Phase.TERMINATING)
_RECREATE: Final = (
    "Its components are not created. Delete it and create it again while the ValidatingWebhookConfiguration of the "
    "operator applies to all AppWrappers in its namespace."
)


class ValidatedCondition(msgspec.Struct, frozen=True):
    """The condition ``Validated`` of an AppWrapper; ``status`` is ``None`` if it cannot be determined yet."""

    status: bool | None
    reason: str
    message: str


def content_digest(wrapper: Mapping[str, Any]) -> str:
    """Return the digest of the fields of ``wrapper`` that validation makes immutable; linear in its size."""
    content = []
    for component in (wrapper.get("spec") or {}).get("components") or ():
        pod_sets = [
            (item.get("path"), replicas_of(item)) for item in component.get("podSets") or ()
        ]
        content.append((component.get("template"), pod_sets))
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
        waiting = self._waiting
        self._waiting = set()
        return waiting

    def _on_event(self, event: Event) -> None:
        """Remember when a configuration begins to validate AppWrappers again, because this can leave no trace in it."""
        if event.new is None:
            self._restored.pop(event.key.name, None)
            return
        if event.old is None:
            return
        before = event.old.object()
        after = event.new.object()
        if settings_of(before) == settings_of(after):
            return
        if validates_creations(after):
            self._restored[event.key.name] = self._clock.now()
            _log.info("Validating webhook is registered again", configuration=event.key.name)
        elif validates_creations(before):
            _log.warning(
                "Validating webhook does not validate all new AppWrappers",
                configuration=event.key.name,
            )

    async def validation_of(self, wrapper: Object) -> ValidatedCondition | None:
        """Return the condition that ``wrapper`` should have; ``None`` if it need not have one.

        Raises the errors of API requests.
        """
        status = wrapper.get("status") or {}
        stored = find_condition(status.get("conditions"), VALIDATED) or {}
        phase = status.get("phase") or ""
        if self._configurations is None:
            accepted = not stored or stored.get("status") == "True"
            return (
                None
                if accepted
                else _validated(wrapper, "NotRequired", "Validation is not required")
            )
        if phase in _FINAL_PHASES:
            return None
        if not stored and phase != Phase.EMPTY:
            return _validated(wrapper, "AcceptedEarlier", "Accepted before validation was recorded")
        if stored.get("status") == "True":
            if phase not in _CHECKED_PHASES or str(stored.get("message")).endswith(
                _DIGEST + content_digest(wrapper)
            ):
                return None
            message = f"Its components were changed while the validating webhook was not registered. {_RECREATE}"
            return ValidatedCondition(False, "ChangedWithoutValidation", message)
        if stored.get("status") == "False":
            return None
        return await self._validation_of_new(wrapper, self._configurations)

    async def _validation_of_new(
        self, wrapper: Object, configurations: Informer
    ) -> ValidatedCondition:
        if not configurations.has_synced:
            self._waiting.add(key_of(wrapper))
            problem = configurations.problem or "list in progress"
            message = f"ValidatingWebhookConfigurations cannot be read, so its components are not created: {problem}"
            return ValidatedCondition(None, "WebhookUnknown", message)
        created = parse_time(wrapper["metadata"]["creationTimestamp"])
        webhooks = [
            (item, hook)
            for item in await self._registrations(configurations)
            for hook in webhooks_of(item)
        ]
        namespace: Object = {"metadata": {"name": namespace_of(wrapper)}}
        if any(depends_on_labels(webhook) for _, webhook in webhooks if not obstacle_of(webhook)):
            namespace = await self._client.get(NAMESPACE, key_of(namespace), live=True) or namespace
        problems = []
        for configuration, webhook in webhooks:
            problem = obstacle_of(webhook)
            restored = self._restored.get(name_of(configuration), datetime.min.replace(tzinfo=UTC))
            selected = None if problem else selected_since(webhook, namespace)
            if selected is None:
                problem = (
                    problem
                    or f"its namespaceSelector does not select namespace {name_of(namespace)}"
                )
            # Creation times have a precision of one second, so an AppWrapper of the same second may be older.
            elif created > (since := max(selected, registered_since(configuration), restored)):
                return _validated(wrapper, "AdmissionWebhook", "Validated by the admission webhook")
            else:
                problem = f"it applies only to AppWrappers that are created after {rfc3339(since)}"
            problems.append(f"{name_of(configuration)}: {problem}")
        why = "; ".join(problems[:_MAX_PROBLEMS]) or "no ValidatingWebhookConfiguration contains it"
        message = f"The webhook of the operator did not validate its creation: {why}. {_RECREATE}"
        return ValidatedCondition(False, "CreatedWithoutValidation", message)

    async def _registrations(self, configurations: Informer) -> list[Object]:
        """Return the configurations that can contain our webhook of AppWrappers, as stored now."""
        cached = [
            entry
            for entry in configurations.reader.entries()
            if validates_creations(entry.object())
        ]
        if not cached:  # the informer may not have received a new configuration yet
            return await self._client.list(VALIDATING_WEBHOOK_CONFIGURATION, live=True)
        stored = [
            await self._client.get(VALIDATING_WEBHOOK_CONFIGURATION, entry.key, live=True)
            for entry in cached
        ]
        return [configuration for configuration in stored if configuration is not None]


def is_held(wrapper: Mapping[str, Any]) -> bool:
    """Return whether the recorded condition prevents the creation of components."""
    stored = find_condition((wrapper.get("status") or {}).get("conditions"), VALIDATED)
    return stored is not None and stored.get("status") != "True"


def _validated(wrapper: Mapping[str, Any], reason: str, message: str) -> ValidatedCondition:
    return ValidatedCondition(True, reason, f"{message}; {_DIGEST}{content_digest(wrapper)}")


# --- Registrations ----------------------------------------------------------------------------------------------------
# Whether and since when a ValidatingWebhookConfiguration makes API servers call our webhook for each new AppWrapper.


def webhooks_of(configuration: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield our webhooks of AppWrappers in a ValidatingWebhookConfiguration."""
    for webhook in configuration.get("webhooks") or ():
        config = webhook.get("clientConfig") or {}
        path = (config.get("service") or {}).get("path") or urlsplit(config.get("url") or "").path
        if path.endswith(_PATH):
            yield webhook


def validates_creations(configuration: Mapping[str, Any]) -> bool:
    """Return whether API servers call our webhook for each new AppWrapper, at least in some namespaces."""
    return any(not obstacle_of(webhook) for webhook in webhooks_of(configuration))


def settings_of(configuration: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings that decide for which AppWrappers API servers call our webhooks."""
    return [_settings_of(webhook) for webhook in webhooks_of(configuration)]


def _settings_of(webhook: Mapping[str, Any]) -> dict[str, Any]:
    return {name: webhook.get(name) for name in _SETTINGS}


def obstacle_of(webhook: Mapping[str, Any]) -> str:
    """Return why AppWrappers can bypass ``webhook`` in the namespaces that it selects; empty if they cannot.

    The namespaceSelectors that :func:`.gaps_of` allows are no obstacle: AppWrappers in other namespaces are not
    validated.
    """
    gap = next(gaps_of(webhook, _CREATIONS), None)
    return gap.reason if gap is not None else ""


def depends_on_labels(webhook: Mapping[str, Any]) -> bool:
    """Return whether the Namespace must be read to know whether ``webhook`` selects it."""
    return any(
        requirement.key != NAMESPACE_NAME_LABEL
        for requirement in namespace_selector(webhook).requirements
    )


def selected_since(webhook: Mapping[str, Any], namespace: Object) -> datetime | None:
    """Return since when ``webhook``, which has no obstacle, selects ``namespace``; ``None`` if it does not.

    A namespace of which only the name is known has been selected forever.
    """
    metadata = namespace["metadata"]
    selector = namespace_selector(webhook)
    labels = {**(metadata.get("labels") or {}), NAMESPACE_NAME_LABEL: metadata["name"]}
    if not selector.matches(labels):
        return None
    keys = {f"f:{requirement.key}" for requirement in selector.requirements} - {
        f"f:{NAMESPACE_NAME_LABEL}"
    }
    times = [
        entry.get("time")
        for entry in metadata.get("managedFields") or ()
        if keys
        & (((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}).keys()
    ]
    return _latest([metadata.get("creationTimestamp"), *times], datetime.min.replace(tzinfo=UTC))


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
    return _latest(times, datetime.max.replace(tzinfo=UTC))


def _latest(times: list[str | None], default: datetime) -> datetime:
    known = [parse_time(time) for time in times if time]
    return max(known, default=default)


def _owns_settings(fields: Mapping[str, Any]) -> bool:
    return any(
        set(owned) - {".", "f:name", "f:clientConfig"}
        for key, owned in fields.items()
        if key != "."
    )
