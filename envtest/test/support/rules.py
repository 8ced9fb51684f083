"""Paths and objects for the rules that random requests have shown (``make differential``)."""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "APPS",
    "AUTOSCALERS",
    "CUSTOM",
    "DRY_RUN",
    "JSON_PATCH",
    "METADATA_LIST",
    "NOTE",
    "STRATEGIC",
    "TEMPLATE",
    "causes",
]

CUSTOM: Final = "/apis/rules.example.com/v1/namespaces/default"
APPS: Final = "/apis/apps/v1/namespaces/default"
AUTOSCALERS: Final = "namespaces/default/horizontalpodautoscalers"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
DRY_RUN: Final = {"dryRun": "All"}
NOTE: Final = {"a": {"type": "string"}}
TEMPLATE: Final[dict[str, Any]] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


def causes(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the fields and the messages of the errors in a Status."""
    return [(each["field"], each["message"]) for each in body["details"]["causes"]]
