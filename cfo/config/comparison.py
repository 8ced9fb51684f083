"""Compares configurations, to report which settings differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cfo.config.model import OperatorConfiguration


def effective_document(configuration: OperatorConfiguration) -> dict[str, Any]:
    """Return every setting of ``configuration`` under its key; those that are unset are ``None``."""
    return configuration.model_dump(mode="json", by_alias=True)


def changed_settings(old: OperatorConfiguration, new: OperatorConfiguration) -> list[str]:
    """Return the paths of the settings that differ, such as ``kuberay.ingressDomain``, in order.

    A list or map counts as one setting.
    """
    before, after = dict(_settings(effective_document(old))), dict(_settings(effective_document(new)))
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _settings(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict) and value and prefix.count(".") < _DEPTH:
            yield from _settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


_DEPTH = 3
"""The number of nested sections; maps are not deeper in the document."""
