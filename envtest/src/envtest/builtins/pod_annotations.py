"""Validation of the annotations that pods and pod templates have a meaning for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from envtest.builtins.path_rules import relative_path_errors
from envtest.builtins.pod_updates import APP_ARMOR
from envtest.field_errors import FieldError, go_quote, invalid, key

__all__ = ["pod_annotation_errors"]

_MIRROR: Final = "kubernetes.io/config.mirror"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
_CONTAINER_SECCOMP: Final = "container.seccomp.security.alpha.kubernetes.io/"
_SECCOMP_PROFILES: Final = ("runtime/default", "docker/default", "unconfined")
_APP_ARMOR_PROFILES: Final = ("", "runtime/default", "unconfined")
_LOCALHOST: Final = "localhost/"
_INTEGER: Final = re.compile(r"0|[1-9][0-9]{0,9}|-0*[0-9]{1,10}")


def pod_annotation_errors(annotations: Mapping[str, str], spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the annotations at ``path`` of a pod or a pod template with this ``spec``."""
    if not annotations:
        return
    if _MIRROR in annotations and not spec.get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        yield invalid(key(path, _MIRROR), annotations[_MIRROR], text)
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not _is_int32(cost):
        yield invalid(key(path, _DELETION_COST), cost, "must be a 32bit integer")
    for name in sorted(annotations):
        if name == _SECCOMP or name.startswith(_CONTAINER_SECCOMP):
            yield from _seccomp_errors(annotations[name], f"{path}.{name}")
    for name in sorted(annotations):
        if name.startswith(APP_ARMOR):
            yield from _app_armor_errors(name, annotations[name], spec, path)


def _is_int32(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and -(2**31) <= int(text) < 2**31


def _seccomp_errors(profile: str, path: str) -> Iterator[FieldError]:
    if profile.startswith(_LOCALHOST):
        yield from relative_path_errors(profile.removeprefix(_LOCALHOST), path)
    elif profile not in _SECCOMP_PROFILES:
        yield invalid(path, profile, "must be a valid seccomp profile")


def _app_armor_errors(name: str, profile: str, spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    container = name.removeprefix(APP_ARMOR)
    kinds = ("initContainers", "containers", "ephemeralContainers")
    if not any(each.get("name") == container for kind in kinds for each in spec.get(kind) or ()):
        yield invalid(key(path, name), container, "container not found")
    if profile not in _APP_ARMOR_PROFILES and not profile.startswith(_LOCALHOST):
        yield invalid(key(path, name), profile, f"invalid AppArmor profile name: {go_quote(profile)}")
