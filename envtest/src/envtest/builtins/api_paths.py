"""The paths at which built-in resources are served."""

from __future__ import annotations

import re
from typing import Final

from envtest.builtins.catalog import Resource, all_resources

__all__ = ["served_elsewhere"]

_VERSION: Final = re.compile(r"v[0-9]+(?:(?:alpha|beta)[0-9]+)?")


def served_elsewhere(path: str) -> str:
    """Return where the resource in ``path`` is served, if it is a built-in one in another group or version.

    The name in the path can also be the singular, the kind or a short name. Returns an empty string for paths of
    resources that are served, and of unknown ones.
    """
    parts = path.partition("?")[0].strip("/").split("/")
    if len(parts) > 2 and parts[0] == "api":
        group, version, *rest = ("", *parts[1:])
    elif len(parts) > 2 and parts[0] == "apis" and _VERSION.fullmatch(parts[1]):
        group, version, *rest = ("no group", *parts[1:])  # /apis/v1: the core group is at /api/v1
    elif len(parts) > 3 and parts[0] == "apis":
        group, version, *rest = parts[1:]
    else:
        return ""
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    name = rest[0].lower()
    found = [each for each in all_resources() if name in _names(each)]
    if not found or any(_is_at(each, group, version, rest[0]) for each in found):
        return ""
    paths = [f"{_prefix(each)}/{each.plural}" for each in found]
    return f"{found[0].kind} is served at {' and '.join(paths)}"


def _names(resource: Resource) -> tuple[str, ...]:
    return (resource.plural, resource.singular, *resource.short_names)


def _is_at(resource: Resource, group: str, version: str, plural: str) -> bool:
    return (resource.group, resource.version, resource.plural) == (group, version, plural)


def _prefix(resource: Resource) -> str:
    """Return the path of a group and version, with the namespace if the resource has one."""
    root = f"/apis/{resource.group}" if resource.group else "/api"
    namespace = "/namespaces/NAMESPACE" if resource.namespaced else ""
    return f"{root}/{resource.version}{namespace}"
