"""Messages for built-in kinds whose API version is not served."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import orjson

from envtest.builtins.catalog import all_resources
from envtest.configuration.kubernetes_version import LATEST, KubernetesVersion

__all__ = ["is_builtin_group", "not_served"]


@cache
def _lifecycles() -> dict[str, dict[str, str]]:
    content: dict[str, Any] = orjson.loads(
        (resources.files("envtest") / "data" / "lifecycle.json").read_bytes()
    )
    return content


def _minor(release: str) -> int:
    return int(release.partition(".")[2])


def not_served(api_version: str, kind: str, version: KubernetesVersion) -> str:
    """Return why a version does not serve a built-in kind; empty if the kind is not a built-in one."""
    entry = _lifecycles().get(f"{api_version} {kind}")
    if entry:
        return _message(entry, version)
    if any(
        (each.group, each.version) == _split(api_version) and each.kind == kind
        for each in all_resources()
    ):
        return f"is not served by Kubernetes {version.release}, but by {LATEST.release}"
    return ""


def _message(entry: dict[str, str], version: KubernetesVersion) -> str:
    replacement = entry.get("replacement", "")
    advice = f"; use {replacement}" if replacement else ""
    removed = entry.get("removed")
    if removed and _minor(removed) <= version.minor:
        return f"is not served since Kubernetes {removed}{advice}"
    if _minor(entry["introduced"]) > version.minor:
        return f"is not served before Kubernetes {entry['introduced']}{advice}"
    return f"is not served by default{advice}"


def _split(api_version: str) -> tuple[str, str]:
    group, _, name = api_version.rpartition("/")
    return group, name


@cache
def _builtin_groups() -> frozenset[str]:
    removed = {_split(name.partition(" ")[0])[0] for name in _lifecycles()}
    return frozenset({each.group for each in all_resources()} | removed)


def is_builtin_group(group: str) -> bool:
    """Return whether Kubernetes itself owns an API group, so that no CRD can define its kinds."""
    return group in _builtin_groups()
