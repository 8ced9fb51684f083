"""A request of a sequence, and the media types of its bodies."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "APPLY",
    "CONTINUE",
    "JSON",
    "JSON_PATCH",
    "MERGE",
    "PARTIAL",
    "PARTIAL_LIST",
    "STRATEGIC",
    "TABLE",
    "UID",
    "VERSION",
    "Step",
]

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"

VERSION = "$version"
UID = "$uid"
CONTINUE = "$continue"
"""The token of the last list, or none."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request. Its body may name the version and the uid that the object at ``target`` has.

    ``raw`` is a text to send instead of ``body``, unless it is ``None``.
    """

    method: str
    path: str
    query: dict[str, str] = {}
    content_type: str = JSON
    accept: str = JSON
    body: Any = None
    target: str = ""
    raw: str | None = None
    headers: dict[str, str] = {}

    def __str__(self) -> str:
        query = "&".join(f"{name}={value}" for name, value in self.query.items())
        parts = [f"{self.method} {self.path}", f"?{query}" if query else ""]
        if self.accept != JSON:
            parts.append(f" Accept: {self.accept}")
        if self.headers:
            parts.append(f" {msgspec.json.encode(self.headers).decode()}")
        if self.raw is not None:
            parts.append(f" {self.content_type} {self.raw!r}")
        if self.body is not None:
            parts.append(f" {self.content_type} {msgspec.json.encode(self.body).decode()}")
        return "".join(parts)
