"""Whether and since when a ValidatingWebhookConfiguration makes API servers call our webhook for each new AppWrapper.

Pure functions. A namespaceSelector is allowed if no tenant can change what it selects: it may only use the label with
the name of the namespace, which API servers set, and the label of an OperatorGroup, with which OLM marks the namespaces
for which an operator is installed. AppWrappers in other namespaces are not validated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.runtime import LabelSelector, Object
from cfo.runtime.objects import parse_time

_PATH: Final = "/validate-workload-codeflare-dev-v1beta2-appwrapper"
_RESOURCE: Final = "appwrappers"
_SETTINGS: Final = ("failurePolicy", "namespaceSelector", "objectSelector", "matchConditions", "matchPolicy", "rules")
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_OLM_PREFIX: Final = "olm.operatorgroup.uid/"


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
    return [{name: webhook.get(name) for name in _SETTINGS} for webhook in webhooks_of(configuration)]


def obstacle_of(webhook: Mapping[str, Any]) -> str:
    """Return why AppWrappers can bypass ``webhook`` in the namespaces that it selects; empty if they cannot."""
    if webhook.get("failurePolicy", "Fail") != "Fail":
        return "its failurePolicy is not Fail"
    for name in ("objectSelector", "matchConditions"):
        if webhook.get(name):
            return f"its {name} can exclude AppWrappers"
    try:
        requirements = _selector(webhook).requirements
    except ValueError as error:
        return f"its namespaceSelector is invalid: {error}"
    for requirement in requirements:
        of_group = requirement.key.startswith(_OLM_PREFIX) and requirement.operator in ("In", "Exists")
        if requirement.key != _NAME_LABEL and not of_group:
            return f"its namespaceSelector {requirement} depends on a label that can change without a trace"
    if not any(map(_matches_creations, webhook.get("rules") or ())):
        return "its rules do not match all new AppWrappers"
    return ""


def depends_on_labels(webhook: Mapping[str, Any]) -> bool:
    """Return whether the Namespace must be read to know whether ``webhook`` selects it."""
    return any(requirement.key != _NAME_LABEL for requirement in _selector(webhook).requirements)


def selected_since(webhook: Mapping[str, Any], namespace: Object) -> datetime | None:
    """Return since when ``webhook``, which has no obstacle, selects ``namespace``; ``None`` if it does not.

    A namespace of which only the name is known has been selected forever.
    """
    metadata, selector = namespace["metadata"], _selector(webhook)
    labels = {**(metadata.get("labels") or {}), _NAME_LABEL: metadata["name"]}
    if not selector.matches(labels):
        return None
    keys = {f"f:{requirement.key}" for requirement in selector.requirements} - {f"f:{_NAME_LABEL}"}
    times = [
        entry.get("time")
        for entry in metadata.get("managedFields") or ()
        if keys & (((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}).keys()
    ]
    return _latest([metadata.get("creationTimestamp"), *times], datetime.min.replace(tzinfo=UTC))


def registered_since(configuration: Mapping[str, Any]) -> datetime:
    """Return since when the webhooks of ``configuration`` have been as they are now, according to the API server.

    This is the time at which it was created, or at which a field manager last changed a field of a webhook other than
    ``clientConfig``, which contains the CA and changes when certificates are renewed. The removal of a field by a
    client that owns no other field leaves no trace; while the operator runs, :class:`.ValidationGate` notices it.
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


def _selector(webhook: Mapping[str, Any]) -> LabelSelector:
    return LabelSelector.of(webhook.get("namespaceSelector") or None)


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


def _owns_settings(fields: Mapping[str, Any]) -> bool:
    return any(set(owned) - {".", "f:name", "f:clientConfig"} for key, owned in fields.items() if key != ".")
