"""The components of an AppWrapper: what each is called, what is created for it, and what was seen of it.

A component is identified by its kind and name; it is *ours* only if its controller reference has the AppWrapper's uid.
A name that is to be generated is computed from that uid, the component's index and the moment at which the deployment
began, so that a second attempt at the same creation meets the first one's object.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cfo.api.appwrapper import PodSetError, pod_sets_of
from cfo.config import AppWrapperConfiguration
from cfo.controllers.appwrapper.injection import InjectionError, inject
from cfo.controllers.appwrapper.names import RESOURCES_DEPLOYED
from cfo.runtime.objects import (
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

__all__ = [
    "CREATED",
    "CREATION_ERRORED",
    "DELETED",
    "Component",
    "Seen",
    "components_of",
    "desired",
    "identity",
    "initial_status",
    "recorded_uids",
]

CREATED: Final = "ComponentCreatedSuccessfully"
CREATION_ERRORED: Final = "ComponentCreationErrored"
DELETED: Final = "ComponentDeleted"
"""What the Go operator spells ``CompononetDeleted``."""

_SUFFIX_LENGTH: Final = 10
_GENERATED_PREFIX_LENGTH: Final = 63 - _SUFFIX_LENGTH
_UID = re.compile(r".*, uid ([0-9a-fA-F-]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Component:
    """One component, as far as spec and status tell.

    ``deployed`` is its condition's status, or nothing where it has none; ``reason`` that condition's reason.
    """

    index: int
    gvk: GVK
    key: NamespacedName
    pod_sets: tuple[Mapping[str, Any], ...]
    deployed: str = ""
    reason: str = ""

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{self.gvk.kind} {self.key.name}"

    @property
    def may_exist(self) -> bool:
        """Whether there can be such an object: it was created, or its creation has not been given up for sure."""
        return not (self.deployed == "False" and self.reason != CREATION_ERRORED)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a component's object; ``None`` in its place means that there is none.

    ``ours``: the AppWrapper is its controller, by uid. ``failed`` and ``completed`` are what its own controller says.
    """

    uid: str = ""
    ours: bool = True
    deleting: bool = False
    failed: bool = False
    completed: bool = False


def components_of(wrapper: Mapping[str, Any]) -> list[Component]:
    """The components of ``wrapper``, those in the status by what the status says of them."""
    namespace = namespace_of(wrapper)
    status = wrapper.get("status") or {}
    recorded: list[Mapping[str, Any]] = status.get("componentStatus") or []
    began = (find_condition(status.get("conditions"), RESOURCES_DEPLOYED) or {}).get("lastTransitionTime") or ""
    found = []
    for index, component in enumerate((wrapper.get("spec") or {}).get("components") or ()):
        template: Object = component.get("template") or {}
        said = recorded[index] if index < len(recorded) else {}
        condition = find_condition(said.get("conditions"), RESOURCES_DEPLOYED) or {}
        deployed = condition.get("status") or ""
        # what is about to be created goes by the spec, what exists by what was created
        known = bool(said.get("name")) and deployed in ("True", "Unknown")
        gvk = GVK.parse(said.get("apiVersion") or "", said["kind"]) if known else gvk_of(template)
        name = said["name"] if known else _name(wrapper, template, index, began)
        pod_sets = said["podSets"] if "podSets" in said else _pod_sets(component)
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
    """``status.componentStatus`` of an AppWrapper that is seen for the first time: its pod sets, and no objects.

    Raises :class:`~cfo.api.appwrapper.PodSetError` where they cannot be told, which admission refuses.
    """
    return [
        {"apiVersion": "", "kind": "", "name": "", "podSets": copy.deepcopy(pod_sets_of(component))}
        for component in (wrapper.get("spec") or {}).get("components") or ()
    ]


def desired(wrapper: Mapping[str, Any], component: Component, config: AppWrapperConfiguration) -> Object:
    """The object to create for ``component``. Raises :class:`InjectionError`."""
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


def identity(component: Component, uid: str) -> str:
    """What a component's condition says of the object that was created: who it is, for :func:`recorded_uids`."""
    return f"{component.label}, uid {uid}"


def recorded_uids(wrapper: Mapping[str, Any]) -> set[str]:
    """The uids of the objects that were created for ``wrapper``, also of those that are gone by now."""
    found: set[str] = set()
    for said in (wrapper.get("status") or {}).get("componentStatus") or ():
        condition = find_condition(said.get("conditions"), RESOURCES_DEPLOYED) or {}
        told = _UID.fullmatch(condition.get("message") or "")
        if told is not None and condition.get("reason") in (CREATED, DELETED):  # other messages are not ours alone
            found.add(told[1])
    return found
