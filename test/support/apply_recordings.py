"""Server-side applies recorded from a real API server; tests that use them are skipped if no recordings exist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

RECORDING = Path(__file__).parents[3] / "shared" / "conformance" / "recorded" / "apply.json"


class Step(NamedTuple):
    """One recorded apply, with the object and its managed fields before and after."""

    desired: dict[str, Any]
    manager: str
    subresource: str
    before: dict[str, Any]
    managers: list[dict[str, Any]]
    after: dict[str, Any]
    managers_after: list[dict[str, Any]]
    unchanged: bool
    repeatable: bool
    """Whether the response has every value as sent, so that a second identical apply can be skipped."""


def apply_steps(*, repeatable: bool = False) -> list[Any]:
    """Return a test parameter for each recorded apply that succeeded, or one skipped parameter without recordings.

    With ``repeatable``, only applies whose response has every value as sent are returned.
    """
    if not RECORDING.exists():
        return [
            pytest.param(
                None, marks=pytest.mark.skip(reason="no recordings next to the repository")
            )
        ]
    text = RECORDING.read_text()
    for placeholder, value in (
        ("${ns}", "ct-RUNID"),
        ("${r}", "RUNID"),
        ("${group}", "g-RUNID.conformance.test"),
    ):
        text = text.replace(placeholder, value)
    scenarios = json.loads(text)["scenarios"]
    return [
        pytest.param(step, id=f"{scenario['name']}-{number}")
        for scenario in scenarios
        for number, step in _steps(scenario["steps"])
        if step.repeatable or not repeatable
    ]


def _steps(steps: list[dict[str, Any]]) -> Iterator[tuple[str, Step]]:
    last: dict[str, dict[str, Any]] = {}
    for step in steps:
        body = (step.get("expect") or {}).get("body")
        if (
            not isinstance(body, dict)
            or step["expect"]["code"] not in {200, 201}
            or not step.get("path")
        ):
            continue
        path = step["path"].removesuffix("/status").removesuffix("/scale")
        dry_run = "dryRun" in (step.get("query") or {})
        content_type = (step.get("headers") or {}).get("Content-Type")
        if content_type == "application/apply-patch+yaml" and isinstance(step.get("body"), dict):
            before, managers = _split(last.get(path, {}))
            after, managers_after = _split(body)
            desired = step["body"]
            subresource = step["path"].removeprefix(path).removeprefix("/")
            yield (
                step["id"],
                Step(
                    desired,
                    step["query"]["fieldManager"],
                    subresource,
                    before,
                    managers,
                    after,
                    managers_after,
                    not dry_run
                    and before.get("metadata", {}).get("resourceVersion")
                    == after["metadata"]["resourceVersion"],
                    _contains(after, desired) and "resourceVersion" not in desired["metadata"],
                ),
            )
        if body.get("metadata", {}).get("uid") and not dry_run and step["method"] != "DELETE":
            last[path] = body
        elif step["method"] == "DELETE":
            last.pop(path, None)


def _split(obj: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    metadata = dict(obj.get("metadata") or {})
    managers = metadata.pop("managedFields", [])
    return {**obj, "metadata": metadata}, managers


def _contains(current: Any, desired: Any) -> bool:
    """Return whether the response has every value that was sent; an empty container counts as missing."""
    if desired in ({}, []):
        return False
    if isinstance(desired, dict):
        return isinstance(current, dict) and all(
            _contains(current.get(key), value) for key, value in desired.items()
        )
    if isinstance(desired, list):
        return isinstance(current, list) and all(
            any(_contains(element, item) for element in current) for item in desired
        )
    return bool(current == desired)
