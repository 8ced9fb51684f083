"""The components of an AppWrapper: their names, the objects created for them, and the observed state of these objects.

A component is identified by its kind and name. The AppWrapper owns its object only if the controller reference of the
object has the AppWrapper's uid. A generated name is derived from that uid, the component's index and the time at which
the deployment began, so that a retried creation finds the object of the first attempt.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cfo.api.appwrapper import PodSetError, expected_pods, pod_sets_of
from cfo.config import AppWrapperConfiguration
from cfo.controllers.appwrapper.injection import InjectionError, inject
from cfo.controllers.appwrapper.names import RESOURCES_DEPLOYED
from cfo.runtime import (
    GVK,
    NamespacedName,
    Object,
    find_condition,
    gvk_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)

CREATED: Final = "ComponentCreatedSuccessfully"
CREATION_ERRORED: Final = "ComponentCreationErrored"
DELETED: Final = "ComponentDeleted"
"""The Go operator spells this reason ``CompononetDeleted``."""

_SUFFIX_LENGTH: Final = 10
_GENERATED_PREFIX_LENGTH: Final = 63 - _SUFFIX_LENGTH
_UID = re.compile(r".*, uid ([0-9a-fA-F-]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Component:
    """One component, according to the AppWrapper's spec and status.

    ``deployed`` and ``reason`` are the status and reason of its condition, or empty if there is no condition.
    """

    index: int
    gvk: GVK
    key: NamespacedName
    pod_sets: tuple[Mapping[str, Any], ...]
    deployed: str = ""
    reason: str = ""

    @property
    def display_name(self) -> str:
        """Kind and name, for messages."""
        return f"{self.gvk.kind} {self.key.name}"

    @property
    def expected_pods(self) -> int:
        """The number of pods that it must have to be ready."""
        return expected_pods(self.gvk, self.pod_sets)

    @property
    def may_exist(self) -> bool:
        """Whether its object may exist: it was created, or its creation has not definitely failed."""
        return not (self.deployed == "False" and self.reason != CREATION_ERRORED)


@dataclass(frozen=True, slots=True)
class ComponentObject:
    """The observed state of a component's object.

    ``owned``: the AppWrapper is its controller, by uid. ``failed`` and ``completed`` are reported by the controller of
    the object's kind.
    """

    uid: str = ""
    owned: bool = True
    deleting: bool = False
    failed: bool = False
    completed: bool = False


def components_of(wrapper: Mapping[str, Any]) -> list[Component]:
    """Return the components of ``wrapper``, with the kinds and names recorded in its status, if any."""
    namespace = namespace_of(wrapper)
    status = wrapper.get("status") or {}
    statuses: list[Mapping[str, Any]] = status.get("componentStatus") or []
    began = (find_condition(status.get("conditions"), RESOURCES_DEPLOYED) or {}).get("lastTransitionTime") or ""
    found = []
    for index, component in enumerate((wrapper.get("spec") or {}).get("components") or ()):
        template: Object = component.get("template") or {}
        recorded = statuses[index] if index < len(statuses) else {}
        condition = find_condition(recorded.get("conditions"), RESOURCES_DEPLOYED) or {}
        deployed = condition.get("status") or ""
        # The spec identifies an object that is about to be created; the status identifies an object that was created.
        exists = bool(recorded.get("name")) and deployed in ("True", "Unknown")
        gvk = GVK.parse(recorded.get("apiVersion") or "", recorded["kind"]) if exists else gvk_of(template)
        name = recorded["name"] if exists else _name(wrapper, template, index, began)
        pod_sets = recorded["podSets"] if "podSets" in recorded else _pod_sets(component)
        found.append(
            Component(
                index,
                gvk,
                NamespacedName(namespace, name),
                tuple(pod_sets or ()),
                deployed,
                condition.get("reason") or "",
            )
        )
    return found


def _pod_sets(component: Mapping[str, Any]) -> list[Object]:
    try:
        return pod_sets_of(component)
    except PodSetError:
        return []


def _name(wrapper: Mapping[str, Any], template: Mapping[str, Any], index: int, began: str) -> str:
    name = name_of(template)
    prefix: str = (template.get("metadata") or {}).get("generateName") or ""
    if name or not prefix:
        return name
    text = f"{uid_of(wrapper)}/{index}/{began}"
    return prefix[:_GENERATED_PREFIX_LENGTH] + hashlib.sha256(text.encode()).hexdigest()[:_SUFFIX_LENGTH]


def initial_status(wrapper: Mapping[str, Any]) -> list[Object]:
    """Return ``status.componentStatus`` of a new AppWrapper: the pod sets of its components, and no objects.

    Raises :class:`~cfo.api.appwrapper.PodSetError` if they cannot be determined, which admission rejects.
    """
    return [
        {"apiVersion": "", "kind": "", "name": "", "podSets": copy.deepcopy(pod_sets_of(component))}
        for component in (wrapper.get("spec") or {}).get("components") or ()
    ]


def desired_object(wrapper: Mapping[str, Any], component: Component, config: AppWrapperConfiguration) -> Object:
    """Return the object to create for ``component``. Raises :class:`InjectionError`."""
    specified = wrapper["spec"]["components"][component.index]
    obj: Object = copy.deepcopy(specified.get("template") or {})
    metadata: Object = obj.get("metadata") or {}
    obj["metadata"] = metadata
    namespace = metadata.setdefault("namespace", component.key.namespace) or component.key.namespace
    if namespace != component.key.namespace:
        raise InjectionError(
            f'component namespace "{namespace}" is different from appwrapper namespace "{component.key.namespace}"'
        )
    if not component.key.name:
        raise InjectionError(f"component {component.index}: metadata.name or generateName is required")
    metadata |= {"namespace": namespace, "name": component.key.name}
    metadata.pop("generateName", None)
    infos = specified.get("podSetInfos") or ()
    inject(obj, component.pod_sets, infos, name_of(wrapper), config)
    metadata["ownerReferences"] = [
        *(metadata.get("ownerReferences") or ()),
        owner_reference(wrapper, block_owner_deletion=True),
    ]
    return obj


def identity_message(component: Component, uid: str) -> str:
    """Return the condition message that identifies the created object, for :func:`recorded_uids`."""
    return f"{component.display_name}, uid {uid}"


def recorded_uids(wrapper: Mapping[str, Any]) -> set[str]:
    """Return the uids of the objects that were created for ``wrapper``, including those that were deleted."""
    found: set[str] = set()
    for recorded in (wrapper.get("status") or {}).get("componentStatus") or ():
        condition = find_condition(recorded.get("conditions"), RESOURCES_DEPLOYED) or {}
        match = _UID.fullmatch(condition.get("message") or "")
        # Messages with other reasons may contain arbitrary text, such as an API server error.
        if match is not None and condition.get("reason") in (CREATED, DELETED):
            found.add(match[1])
    return found
