"""Validation of Jobs: their policies, the indexes of Indexed Jobs, and updates of their status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    OMIT,
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from envtest.apimachinery.name_rules import dns_label, qualified_name
from envtest.apimachinery.objects import Object
from envtest.builtins.go_rendering import (
    SUCCESS_RULE,
    UNCOUNTED_PODS,
    internal_fields,
    internal_job_policy,
)
from envtest.builtins.string_validation import domain_prefixed_path_errors, nonnegative

__all__ = ["indexed_name_errors", "job_policy_errors", "job_status_errors"]

_MAX_PARALLELISM: Final = 100_000
_MAX_RULES: Final = 20
_MAX_EXIT_CODES: Final = 255
_MAX_INDEXES_LENGTH: Final = 64 * 1024
_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_STATUSES: Final = ("False", "True", "Unknown")


def job_policy_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors in the limits per index and the policies of a Job's spec."""
    limit = spec.get("backoffLimitPerIndex")
    failed = spec.get("maxFailedIndexes")
    completions = spec.get("completions")
    indexed = spec.get("completionMode") == "Indexed"
    if failed is not None and limit is None:
        yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if indexed:
        yield from _indexed_errors(spec, path)
        if completions is not None and failed is not None and failed > completions:
            yield invalid(
                f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"
            )
    elif spec.get("completionMode") in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                yield invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")
    if spec.get("managedBy") is not None:
        yield from _controller_errors(spec["managedBy"], f"{path}.managedBy")
    if spec.get("podFailurePolicy") is not None:
        yield from _failure_policy_errors(spec, f"{path}.podFailurePolicy.rules")
    policy = spec.get("successPolicy")
    if policy is not None and not indexed:
        shown = internal_job_policy(policy, SUCCESS_RULE)
        yield invalid(f"{path}.successPolicy", shown, "requires indexed completion mode")
    elif policy is not None:
        yield from _success_policy_errors(
            policy.get("rules") or (), completions or 0, f"{path}.successPolicy.rules"
        )
    replacement = spec.get("podReplacementPolicy")
    supported = (
        ("Failed",)
        if spec.get("podFailurePolicy") is not None
        else ("Failed", "TerminatingOrFailed")
    )
    if replacement is not None and replacement not in supported:
        yield not_supported(f"{path}.podReplacementPolicy", replacement, supported)


def _indexed_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    parallelism = spec.get("parallelism") or 0
    failed = spec.get("maxFailedIndexes")
    if parallelism > _MAX_PARALLELISM:
        text = f"must be less than or equal to {_MAX_PARALLELISM} when completion mode is Indexed"
        yield invalid(f"{path}.parallelism", parallelism, text)
    if failed is not None and failed > _MAX_PARALLELISM:
        yield invalid(
            f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {_MAX_PARALLELISM}"
        )
    if (spec.get("completions") or 0) <= _MAX_PARALLELISM or spec.get(
        "backoffLimitPerIndex"
    ) is None:
        return
    text = "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index"
    if failed is None:
        yield required(
            f"{path}.maxFailedIndexes", "must be specified when completions is above 100000"
        )
    elif failed > _MAX_PARALLELISM // 10:
        yield invalid(f"{path}.maxFailedIndexes", failed, text)
    if parallelism > _MAX_PARALLELISM // 10:
        yield invalid(f"{path}.parallelism", parallelism, text)


def _controller_errors(name: str, path: str) -> Iterator[FieldError]:
    yield from domain_prefixed_path_errors(name, path)
    if len(name) > 63:
        yield too_long(path, name, 63)


def _failure_policy_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    rules = spec["podFailurePolicy"].get("rules") or ()
    if len(rules) > _MAX_RULES:
        yield too_many(path, len(rules), _MAX_RULES)
    pod = spec["template"]["spec"]
    names = {
        each.get("name")
        for kind in ("containers", "initContainers")
        for each in pod.get(kind) or ()
    }
    for position, rule in enumerate(rules):
        rule_path = f"{path}[{position}]"
        action = rule.get("action") or ""
        if not action:
            words = " ".join(f'"{each}"' for each in _ACTIONS)
            yield required(f"{rule_path}.action", f"valid values: [{words}]")
        elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            yield invalid(
                f"{rule_path}.action", action, "requires the backoffLimitPerIndex to be set"
            )
        elif action not in _ACTIONS:
            yield not_supported(f"{rule_path}.action", action, _ACTIONS)
        codes = rule.get("onExitCodes")
        conditions = rule.get("onPodConditions") or ()
        if codes is not None:
            yield from _exit_code_errors(codes, f"{rule_path}.onExitCodes", names)
        yield from _pattern_errors(conditions, f"{rule_path}.onPodConditions")
        if codes is not None and conditions:
            yield invalid(
                rule_path, OMIT, "specifying both OnExitCodes and OnPodConditions is not supported"
            )
        elif codes is None and not conditions:
            yield invalid(
                rule_path, OMIT, "specifying one of OnExitCodes and OnPodConditions is required"
            )


def _pattern_errors(patterns: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    if len(patterns) > _MAX_RULES:
        yield too_many(path, len(patterns), _MAX_RULES)
    for position, pattern in enumerate(patterns):
        for problem in qualified_name(pattern.get("type") or ""):
            yield invalid(f"{path}[{position}].type", pattern.get("type") or "", problem)
        if pattern.get("status") not in _STATUSES:
            yield not_supported(
                f"{path}[{position}].status", pattern.get("status") or "", _STATUSES
            )


def _exit_code_errors(
    codes: Mapping[str, Any], path: str, containers: set[Any]
) -> Iterator[FieldError]:
    operator = codes.get("operator") or ""
    values = codes.get("values") or []
    name = codes.get("containerName")
    if not operator:
        yield required(f"{path}.operator", 'valid values: ["In" "NotIn"]')
    elif operator not in ("In", "NotIn"):
        yield not_supported(f"{path}.operator", operator, ("In", "NotIn"))
    if name is not None and name not in containers:
        text = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", name, text)
    if not values:
        yield invalid(f"{path}.values", None, "at least one value is required")
    elif len(values) > _MAX_EXIT_CODES:
        yield too_many(f"{path}.values", len(values), _MAX_EXIT_CODES)
        return
    seen: set[int] = set()
    for position, value in enumerate(values):
        if value == 0 and operator == "In":
            yield invalid(f"{path}.values[{position}]", value, "must not be 0 for the In operator")
        if value in seen:
            yield duplicate(f"{path}.values[{position}]", value)
        seen.add(value)
    if values != sorted(values):
        yield invalid(f"{path}.values", values, "must be ordered")


def _success_policy_errors(
    rules: Sequence[Mapping[str, Any]], completions: int, path: str
) -> Iterator[FieldError]:
    if not rules:
        yield required(
            path, "at least one rules must be specified when the successPolicy is specified"
        )
    if len(rules) > _MAX_RULES:
        yield too_many(path, len(rules), _MAX_RULES)
    for position, rule in enumerate(rules[:_MAX_RULES]):
        rule_path = f"{path}[{position}]"
        indexes = rule.get("succeededIndexes")
        count = rule.get("succeededCount")
        total = 0
        if indexes is None and count is None:
            yield required(
                rule_path, "at least one of succeededCount or succeededIndexes must be specified"
            )
        if indexes is not None:
            if len(indexes) > _MAX_INDEXES_LENGTH:
                yield too_long(f"{rule_path}.succeededIndexes", indexes, _MAX_INDEXES_LENGTH)
                continue
            try:
                total = _count_indexes(indexes, completions)
            except ValueError as error:
                yield invalid(
                    f"{rule_path}.succeededIndexes",
                    indexes,
                    f"error parsing succeededIndexes: {error}",
                )
        if count is None:
            continue
        count_path = f"{rule_path}.succeededCount"
        yield from nonnegative(count_path, count)
        if count > completions:
            text = (
                f"must be less than or equal to {completions} (the number of specified completions)"
            )
            yield invalid(count_path, count, text)
        if indexes is not None and count > total:
            text = "the number of indexes in the specified succeededIndexes field"
            yield invalid(count_path, count, f"must be less than or equal to {total} ({text})")


def _count_indexes(text: str, completions: int) -> int:
    """Return the number of indexes in a list of intervals such as ``1,3-5``. Raises ``ValueError``."""
    total = 0
    last = -1
    if not text:
        return 0
    for interval in text.split(","):
        bounds = interval.split("-")
        if len(bounds) > 2:
            rule = "violates the requirement that an index interval can have at most two parts separated by '-'"
            raise ValueError(f'the fragment "{interval}" {rule}')
        first = last
        for bound in bounds:
            if not (bound.isascii() and bound.isdigit() and len(bound) < 12):
                raise ValueError(f'cannot convert string to integer for index: "{bound}"')
            if int(bound) >= completions:
                raise ValueError(f'too large index: "{bound}"')
            if int(bound) <= last:
                raise ValueError(f"non-increasing order, previous: {last}, current: {int(bound)}")
            first = last
            last = int(bound)
        is_range = len(bounds) == 2
        total += last - first + 1 if is_range else 1
    return total


def indexed_name_errors(obj: Object) -> Iterator[FieldError]:
    """Yield an error if the host names of an Indexed Job's pods, which end with an index, would be too long."""
    spec = obj["spec"]
    name = obj["metadata"].get("name") or ""
    if spec.get("completionMode") != "Indexed" or not spec.get("completions"):
        return
    host = f"{name}-{spec['completions'] - 1}"
    if dns_label(host):
        yield invalid(
            "metadata.name", name, f"will not able to create pod with invalid DNS label: {host}"
        )


# --- Status -----------------------------------------------------------------------------------------------------------


def job_status_errors(new: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of a new status; what was already wrong with the old status is not reported again."""
    before = set(map(str, _status_errors(old)))
    yield from (error for error in _status_errors(new) if str(error) not in before)
    status = new.get("status") or {}
    earlier = old.get("status") or {}
    for kind in ("Failed", "Complete", "FailureTarget", "SuccessCriteriaMet"):
        if _has(earlier, kind) and not _has(status, kind):
            yield invalid(
                "status.conditions", OMIT, f"cannot disable the terminal {kind}=True condition"
            )
    for name in ("failed", "succeeded"):
        if (status.get(name) or 0) < (earlier.get(name) or 0):
            yield invalid(
                f"status.{name}", status.get(name) or 0, f"cannot decrease the {name} counter"
            )
    start = earlier.get("startTime")
    # the only way to start a Job once more
    resumes = _has(earlier, "Suspended") and not _has(status, "Suspended")
    if (
        start is not None
        and status.get("startTime") != start
        and not new["spec"].get("suspend")
        and not resumes
    ):
        if status.get("startTime") is None:
            yield required("status.startTime", "startTime cannot be removed for unsuspended job")
        else:
            yield invalid(
                "status.startTime",
                status["startTime"],
                "startTime cannot be updated for unsuspended job",
            )


def _has(status: Mapping[str, Any], kind: str) -> bool:
    return any(
        each.get("type") == kind and each.get("status") == "True"
        for each in status.get("conditions") or ()
    )


_EXCLUSIVE: Final = (
    ("Complete", "Failed", "cannot set Complete=True and Failed=true conditions"),
    ("Complete", "FailureTarget", "cannot set Complete=True and FailureTarget=true conditions"),
    (
        "SuccessCriteriaMet",
        "Failed",
        "cannot set Failed=True and SuccessCriteriaMet=true conditions",
    ),
    (
        "SuccessCriteriaMet",
        "FailureTarget",
        "cannot set FailureTarget=True and SuccessCriteriaMet=true conditions",
    ),
)
_IMPLIED: Final = (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet"))


def _status_errors(job: Object) -> Iterator[FieldError]:
    status: Mapping[str, Any] = job.get("status") or {}
    counts = {
        name: status.get(name) or 0
        for name in ("active", "succeeded", "failed", "ready", "terminating")
    }
    for name, count in counts.items():
        yield from nonnegative(f"status.{name}", count)
    conditions = "status.conditions"
    for kind, other, text in _EXCLUSIVE:
        if _has(status, kind) and _has(status, other):
            yield invalid(conditions, OMIT, text)
    for kind, cause in _IMPLIED:
        if _has(status, kind) and not _has(status, cause):
            yield invalid(
                conditions,
                OMIT,
                f"cannot set {kind}=True condition without the {cause}=true condition",
            )
    yield from _time_errors(status)
    if _has(status, "Complete") or _has(status, "Failed"):
        for name in ("active", "terminating"):
            if counts[name] > 0:
                yield invalid(
                    f"status.{name}", counts[name], f"{name}>0 is invalid for finished job"
                )
        if status.get("startTime") is None:
            yield required("status.startTime", "startTime is required for finished job")
        uncounted = status.get("uncountedTerminatedPods") or {}
        if uncounted.get("succeeded") or uncounted.get("failed"):
            text = "uncountedTerminatedPods needs to be empty for finished job"
            yield invalid(
                "status.uncountedTerminatedPods", internal_fields(UNCOUNTED_PODS, uncounted), text
            )
    yield from _uncounted_errors(status)
    yield from _index_errors(status, job["spec"])
    if status.get("ready") is not None and counts["ready"] > counts["active"]:
        yield invalid("status.ready", counts["ready"], "cannot set more ready pods than active")


def _uncounted_errors(status: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of the uids of ended pods that are not counted yet: each pod is there once."""
    seen: set[str] = set()
    for name in ("succeeded", "failed"):
        path = f"status.uncountedTerminatedPods.{name}"
        uids = (status.get("uncountedTerminatedPods") or {}).get(name) or ()
        for position, uid in enumerate(uids):
            if not uid:
                yield invalid(f"{path}[{position}]", uid, "must not be empty")
            elif uid in seen:
                yield duplicate(f"{path}[{position}]", uid)
            seen.add(uid)


def _time_errors(status: Mapping[str, Any]) -> Iterator[FieldError]:
    start = status.get("startTime")
    end = status.get("completionTime")
    complete = _has(status, "Complete")
    if end is not None and not complete:
        text = "cannot set completionTime when there is no Complete=True condition"
        yield invalid("status.completionTime", end, text)
    if end is None and complete:
        yield required("status.completionTime", "completionTime is required for Complete jobs")
    if start is not None and end is not None and end < start:
        yield invalid("status.completionTime", end, "completionTime cannot be set before startTime")


def _index_errors(status: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[FieldError]:
    for name in ("completedIndexes", "failedIndexes"):
        text = status.get(name) or ""
        if text and spec.get("completions") is not None:
            try:
                _count_indexes(text[:_MAX_INDEXES_LENGTH], spec["completions"])
            except ValueError as error:
                yield invalid(f"status.{name}", text, f"error parsing {name}: {error}")
    if status.get("completedIndexes") and spec.get("completionMode") != "Indexed":
        text = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield invalid("status.completedIndexes", status["completedIndexes"], text)
    if status.get("failedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield invalid("status.failedIndexes", status["failedIndexes"], text)
