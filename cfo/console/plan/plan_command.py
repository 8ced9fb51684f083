"""``cfo plan``: print what an upgrade, a change of the label, or an edit of InferenceStacks would alter.

Access tokens in configuration files are not shown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, BinaryIO, Final

import click
import yaml

from cfo.api.inferencestack.kinds import (
    OPERATOR_VERSION_LABEL,
    is_operator_version,
    operator_version_of,
)
from cfo.api.inferencestack.profiles import Profile, newest_profile, pinned_profile
from cfo.api.inferencestack.validation.stack import validate
from cfo.api.reading import counted
from cfo.console.errors import InvalidInput, echo, one_line
from cfo.console.plan.documents import MAX_BYTES, Documents, InvalidDocument, read_documents
from cfo.console.plan.planning import Action, Change, StackPlan, plan_stack
from cfo.runtime import NamespacedName, Object, gvk_of, key_of, labels_of, name_of, namespace_of

_CHANGES_EXIT_CODE = 3


@click.command("plan")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.File("rb"))
@click.option(
    "--current",
    "current_files",
    multiple=True,
    type=click.File("rb"),
    metavar="FILE",
    help="Stacks as they are in the cluster, and optionally their objects; by default, those in FILE. Repeatable.",
)
@click.option(
    "--operator-version",
    metavar="vN",
    help="Plan a change of the label operatorVersion to this value.",
)
@click.option(
    "--spec-change",
    is_flag=True,
    help="Plan as if the spec changed, which applies the newest profile of the version.",
)
@click.option(
    "--namespace",
    default="default",
    show_default=True,
    help="Namespace of manifests without namespace.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(["diff", "summary", "objects"]),
    default="diff",
    show_default=True,
    help="Print a summary and a diff, only the summary, or all objects after the change as YAML.",
)
@click.option(
    "--exit-code",
    is_flag=True,
    help=f"Exit with {_CHANGES_EXIT_CODE} if an object would be altered.",
)
def command(
    files: tuple[BinaryIO, ...],
    current_files: tuple[BinaryIO, ...],
    operator_version: str | None,
    spec_change: bool,
    namespace: str,
    output: str,
    exit_code: bool,
) -> None:
    """Show what an upgrade, a change of the label operatorVersion or an edit of InferenceStacks would alter.

    No cluster is needed. FILE contains manifests of stacks; - reads standard input. Existing objects in the files are
    compared with the result; for kinds without any, the objects that the operator renders for the current stack are.

    \b
    kubectl get inferencestacks.doublewordai.co,deployments,configmaps -A \\
        -o yaml --show-managed-fields | cfo plan --operator-version v3 -
    """
    if operator_version is not None and not is_operator_version(operator_version):
        raise InvalidInput(
            f"--operator-version: {operator_version!r}: must be v followed by a number"
        )
    wanted, current = _read(files, namespace), _read(current_files, namespace)
    if not wanted.stacks:
        raise InvalidInput(f"{', '.join(map(_name, files))}: no InferenceStack found")
    plans, problems = [], list[str]()
    for key, stack in wanted.stacks.items():
        before = current.stacks.get(key) if current_files else stack
        changed = _with_version(stack, operator_version)
        try:
            if before is not None and before is not changed:
                _check(key, before)
            warnings = _check(key, changed)
        except InvalidInput as invalid:
            problems += invalid.problems
            continue
        for warning in warnings:
            echo(f"InferenceStack {key}: {warning}", err=True)
        plans.append(
            plan_stack(
                changed,
                before,
                [*current.others, *wanted.others] if current_files else wanted.others,
                spec_changes=spec_change,
            )
        )
    for line in _lines(plans, output):
        (click.echo if output == "objects" else echo)(line)  # YAML escapes what is not printable
    if problems:
        raise InvalidInput(*problems)
    if exit_code and any(plan.changes for plan in plans):
        raise SystemExit(_CHANGES_EXIT_CODE)


def _name(file: BinaryIO) -> str:
    return str(getattr(file, "name", "<stdin>"))


def _read(files: tuple[BinaryIO, ...], namespace: str) -> Documents:
    try:
        return read_documents(
            ((_name(file), file.read(MAX_BYTES + 1)) for file in files), namespace
        )
    except InvalidDocument as error:
        raise InvalidInput(one_line(error)) from None


def _with_version(stack: Object, version: str | None) -> Object:
    if version is None or operator_version_of(stack) == version:
        return stack
    changed = deepcopy(stack)
    changed["metadata"]["labels"] = {**labels_of(changed), OPERATOR_VERSION_LABEL: version}
    return changed


def _check(key: NamespacedName, stack: Object) -> Sequence[str]:
    """Return the warnings about ``stack``. Raises :class:`InvalidInput` with its first error."""
    profile: Profile = pinned_profile(stack) or newest_profile(operator_version_of(stack))
    result = validate(stack, profile)
    if result.errors:
        raise InvalidInput(f"InferenceStack {key}: {result.errors[0]}")
    return result.warnings


def _lines(plans: list[StackPlan], output: str) -> Iterator[str]:
    if output == "objects":
        for plan in plans:
            for obj in plan.objects:
                yield document(obj).rstrip("\n")
        return
    for plan in plans:
        yield from summary(plan)
    if output == "diff":
        for plan in plans:
            yield from diff(plan.changes)


_TOKEN: Final = re.compile(r"^([ \t]*+access_token:[ \t]*+)(\S.*)$", re.MULTILINE)


class _Dumper(yaml.SafeDumper):
    """Writes no anchors, and strings with several lines as blocks, so that their lines can be compared."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
    )


_Dumper.add_representer(str, _represent_string)


def document(obj: Object) -> str:
    """Return ``obj`` as a YAML document, without its status and managed fields."""
    shown = {key: value for key, value in obj.items() if key != "status"}
    metadata = shown.get("metadata")
    if isinstance(metadata, dict):
        shown["metadata"] = {
            key: value for key, value in metadata.items() if key != "managedFields"
        }
    return yaml.dump(shown, Dumper=_Dumper, width=120, explicit_start=True)


def summary(plan: StackPlan) -> Iterator[str]:
    """Yield the lines of the summary of ``plan``."""
    yield f"InferenceStack {key_of(plan.stack)}: {', '.join(_transitions(plan))}"
    for change in plan.changes:
        yield f"  {change.action}  {gvk_of(change.object).kind} {name_of(change.object)}{_effect(change)}"
    compared = f"{'existing' if plan.is_compared_with_existing else 'rendered'} object"
    yield f"  {counted(plan.unchanged, compared)} unchanged, {counted(plan.restarted_pods, 'pod')} restarted"
    if plan.pending is not None:
        yield f"  the next change of the spec applies profile {plan.pending.name}; to plan it, add --spec-change"


def _transitions(plan: StackPlan) -> Iterator[str]:
    before = operator_version_of(plan.current) if plan.current is not None else ""
    yield _transition("operatorVersion", before or None, operator_version_of(plan.stack) or "none")
    yield _transition(
        "profile", plan.profile_before.name if plan.profile_before else None, plan.profile.name
    )


def _transition(title: str, before: str | None, after: str) -> str:
    return f"{title} {after}" if before in (None, after) else f"{title} {before} -> {after}"


def _effect(change: Change) -> str:
    if change.action is Action.KEEP:
        return " (retained, not used any more)"
    return f" (restarts {counted(change.restarted_pods, 'pod')})" if change.restarted_pods else ""


def diff(changes: Iterable[Change]) -> Iterator[str]:
    """Yield the lines of a unified diff of ``changes``; objects that are kept are left out."""
    for change in changes:
        if change.action is Action.KEEP:
            continue
        path = (
            f"{gvk_of(change.object).kind}/{namespace_of(change.object)}/{name_of(change.object)}"
        )
        before, after = _masked(_text(change.before), _text(change.after))
        lines = difflib.unified_diff(
            before.splitlines(),
            after.splitlines(),
            f"before/{path}" if change.before is not None else "/dev/null",
            f"after/{path}" if change.after is not None else "/dev/null",
            lineterm="",
        )
        yield from lines


def _text(obj: Object | None) -> str:
    return document(obj) if obj is not None else ""


def _masked(before: str, after: str) -> tuple[str, str]:
    """Replace access tokens; if they differ, the replacements differ as well."""
    if _TOKEN.findall(before) == _TOKEN.findall(after):
        return _TOKEN.sub(r"\1***", before), _TOKEN.sub(r"\1***", after)
    return _TOKEN.sub(r"\1*** (before)", before), _TOKEN.sub(r"\1*** (after)", after)
