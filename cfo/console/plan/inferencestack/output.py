"""The texts that ``cfo plan`` prints: a summary of each plan, and the diff of its objects.

Access tokens in configuration files are not shown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import yaml

from cfo.api.inferencestack.kinds import operator_version_of
from cfo.console.plan.inferencestack.planning import Action, Change, StackPlan
from cfo.runtime import Object, gvk_of, key_of, name_of, namespace_of

_TOKEN: Final = re.compile(r"^(\s*access_token:\s*)(\S.*)$", re.MULTILINE)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Dumper(yaml.SafeDumper):
    """Writes no anchors, and strings with several lines as blocks, so that their lines can be compared."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _represent_string)


def document(obj: Object) -> str:
    """Return ``obj`` as a YAML document, without its status and managed fields."""
    shown = {key: value for key, value in obj.items() if key != "status"}
    metadata = shown.get("metadata")
    if isinstance(metadata, dict):
        shown["metadata"] = {key: value for key, value in metadata.items() if key != "managedFields"}
    return yaml.dump(shown, Dumper=_Dumper, width=120, explicit_start=True)


def summary(plan: StackPlan) -> Iterator[str]:
    """Yield the lines of the summary of ``plan``."""
    yield f"InferenceStack {key_of(plan.stack)}: {', '.join(_transitions(plan))}"
    for change in plan.changes:
        yield f"  {change.action}  {gvk_of(change.object).kind} {name_of(change.object)}{_effect(change)}"
    compared = f"{'existing' if plan.is_compared_with_existing else 'rendered'} object"
    yield f"  {_counted(plan.unchanged, compared)} unchanged, {_counted(plan.restarted_pods, 'pod')} restarted"
    if plan.pending is not None:
        yield f"  the next change of the spec applies profile {plan.pending.name}; to plan it, add --spec-change"


def _transitions(plan: StackPlan) -> Iterator[str]:
    before = operator_version_of(plan.current) if plan.current is not None else ""
    yield _transition("operatorVersion", before or None, operator_version_of(plan.stack) or "none")
    yield _transition("profile", plan.profile_before.name if plan.profile_before else None, plan.profile.name)


def _transition(title: str, before: str | None, after: str) -> str:
    return f"{title} {after}" if before in (None, after) else f"{title} {before} -> {after}"


def _effect(change: Change) -> str:
    if change.action is Action.KEEP:
        return " (retained, not used any more)"
    return f" (restarts {_counted(change.restarted_pods, 'pod')})" if change.restarted_pods else ""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def diff(changes: Iterable[Change]) -> Iterator[str]:
    """Yield the lines of a unified diff of ``changes``; objects that are kept are left out."""
    for change in changes:
        if change.action is Action.KEEP:
            continue
        path = f"{gvk_of(change.object).kind}/{namespace_of(change.object)}/{name_of(change.object)}"
        before, after = _masked(_text(change.before), _text(change.after))
        lines = difflib.unified_diff(
            before.splitlines(),
            after.splitlines(),
            f"before/{path}" if change.before is not None else "/dev/null",
            f"after/{path}" if change.after is not None else "/dev/null",
            lineterm="",
        )
        yield from (_UNPRINTABLE.sub("?", line) for line in lines)


def _text(obj: Object | None) -> str:
    return document(obj) if obj is not None else ""


def _masked(before: str, after: str) -> tuple[str, str]:
    """Replace access tokens; if they differ, the replacements differ as well."""
    if _TOKEN.findall(before) == _TOKEN.findall(after):
        return _TOKEN.sub(r"\1***", before), _TOKEN.sub(r"\1***", after)
    return _TOKEN.sub(r"\1*** (before)", before), _TOKEN.sub(r"\1*** (after)", after)
