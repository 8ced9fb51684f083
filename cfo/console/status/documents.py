"""Summaries as JSON documents, for scripts; the fields are documented in docs/status.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cfo.console.summaries import Summary

__all__ = ["document", "object_document"]


def document(summaries: Sequence[Summary], unavailable: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of all ``summaries``; ``unavailable`` are the kinds that could not be read, with reasons."""
    return {
        "healthy": not any(summary.level.is_wrong for summary in summaries),
        "items": [object_document(summary) for summary in summaries],
        "unavailable": dict(unavailable),
    }


def object_document(summary: Summary) -> dict[str, Any]:
    """Return the document of one object."""
    return {
        "apiVersion": summary.gvk.api_version,
        "kind": summary.gvk.kind,
        "namespace": summary.key.namespace,
        "name": summary.key.name,
        "uid": summary.uid,
        "state": summary.state,
        "level": summary.level.value,
        "ready": summary.ready,
        "created": summary.created,
        "facts": dict(summary.facts),
        "problems": [asdict(problem) for problem in summary.problems],
        "conditions": [asdict(condition) for condition in summary.conditions],
        "warnings": [asdict(warning) for warning in summary.warnings],
    }
