"""What Warning Events say about pods whose containers kubelet cannot create, such as for lack of a Secret.

The status of such a pod only says ``ContainerCreating``, as that of a pod whose image is being pulled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cfo.api.reading import MAX_MESSAGE, items, path, text
from cfo.api.waiting_reasons import CREATING_REASONS
from cfo.summaries.conditions import conditions_of, is_true
from cfo.summaries.summary import statement

_REASONS: Final = frozenset(
    {"FailedMount", "FailedMapVolume", "FailedAttachVolume", "FailedCreatePodSandBox"}
)
"""Reasons of Warning Events about what a pod needs before its first container is created: volumes and a network."""

_MISSING: Final = ('" not found', "references non-existent ")
"""Parts of the messages that name an object, or a key of one, that does not exist."""

_NOT_READ_YET: Final = "failed to sync "
"""What kubelet says in the first seconds, while it has not read the Secrets and ConfigMaps of a new pod."""

_MAX_CAUSES: Final = 3
"""The maximum number of missing objects that are named for one pod."""

_COMBINED: Final = "(combined from similar events): "
"""What client-go's recorder writes before the message if it has recorded many Events about an object."""


_REFUSED_POD: Final = re.compile(
    r'\b(pods|Pod) "([a-z0-9.-]{0,247}-)[bcdfghjklmnpqrstvwxz2456789]{5}" is (forbidden|invalid)\b'
)
"""How the API server names a pod that it refuses, with the characters of random suffixes."""


def without_random_names(message: str) -> str:
    """Return ``message`` without the random suffix of a refused pod: each attempt to create the pod has another one."""
    return _REFUSED_POD.sub(r'\1 "\2*" is \3', message)


def event_message(event: Mapping[str, Any]) -> str:
    """Return what an Event of either Event API says, without the recorder's prefix and random names of pods."""
    message = text(event.get("message") or event.get("note"), MAX_MESSAGE)
    return without_random_names(message.removeprefix(_COMBINED))


def awaits_containers(pod: Mapping[str, Any]) -> bool:
    """Return whether ``pod`` has a node, but not all that it needs before its first container is created."""
    if path(pod, "status", "phase") != "Pending" or path(pod, "metadata", "deletionTimestamp"):
        return False
    conditions = conditions_of(pod)
    # Since Kubernetes 1.29, kubelet sets the second one before it pulls images.
    if not is_true(conditions, "PodScheduled") or is_true(conditions, "PodReadyToStartContainers"):
        return False
    return all(
        text(path(status, "state", "waiting", "reason"), 80) in CREATING_REASONS
        for field in ("initContainerStatuses", "containerStatuses")
        for status in items(path(pod, "status", field))
    )


def start_failures(
    pods: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Return why kubelet cannot create the containers of ``pods``, by the uids of the pods.

    ``events`` are Warning Events about them. Of the messages of one pod, those that name something that does not exist
    are the cause; others, such as that a volume was not mounted in time, follow from it.
    """
    awaiting = {text(path(pod, "metadata", "uid"), 63) for pod in pods if awaits_containers(pod)}
    found: dict[str, list[str]] = {}
    for event in events:
        uid = text(path(event, "involvedObject", "uid"), 63)
        message = start_failure(event)
        if uid in awaiting and message:
            found.setdefault(uid, []).append(message)
    return {uid: _most_specific(of_pod) for uid, of_pod in found.items()}


def failures_by_name(events: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the same for pods that are not known, such as deleted ones, by the names of the pods."""
    found: dict[str, list[str]] = {}
    for event in events:
        name = text(path(event, "involvedObject", "name"), 253)
        message = start_failure(event)
        if message:
            found.setdefault(name, []).append(message)
    return {name: _most_specific(of_pod) for name, of_pod in found.items()}


def start_failure(event: Mapping[str, Any]) -> str:
    """Return reason and message of a Warning Event if it says why a pod has no containers; otherwise empty."""
    reason = text(event.get("reason"), 80)
    message = event_message(event)
    if reason not in _REASONS or _NOT_READ_YET in message:
        return ""
    return statement(reason, message)


def _names_missing_object(message: str) -> bool:
    return any(part in message for part in _MISSING)


def _most_specific(found: list[str]) -> list[str]:
    missing = filter(_names_missing_object, found)
    distinct = list(dict.fromkeys(missing)) or found[-1:]
    return distinct[:_MAX_CAUSES]
