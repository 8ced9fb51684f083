"""Strategies of batch/v1: Jobs and CronJobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from envtest.apimachinery.field_errors import FieldError, invalid, not_supported, required
from envtest.apimachinery.objects import Object
from envtest.builtins.cron_schedule import ScheduleError, parse_schedule
from envtest.builtins.go_rendering import (
    FAILURE_RULE,
    SUCCESS_RULE,
    internal_job_policy,
    internal_pod_spec,
    internal_pod_template,
    internal_selector,
)
from envtest.builtins.job_rules import indexed_name_errors, job_policy_errors, job_status_errors
from envtest.builtins.pod_rules import template_errors
from envtest.builtins.pod_warnings import template_warnings
from envtest.builtins.pods import template_defaults
from envtest.builtins.string_validation import label_selector_errors, nonnegative, selects
from envtest.builtins.workloads import WorkloadStrategy, immutable
from envtest.registry.resource import RequestContext
from envtest.schema.shaping import copy_json

__all__ = ["CronJobStrategy", "JobStrategy"]


def _job_defaults(spec: Object) -> None:
    template_defaults(spec["template"]["spec"])
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
        spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    policy = spec.get("podFailurePolicy")
    for rule in (policy or {}).get("rules") or ():
        for condition in rule.get("onPodConditions") or ():
            if not condition.get("status"):
                condition["status"] = "True"
    spec.setdefault("manualSelector", False)
    replacement = "TerminatingOrFailed" if policy is None else "Failed"
    spec.setdefault("podReplacementPolicy", replacement)


def _job_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name in (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ):
        yield from nonnegative(f"{path}.{name}", spec.get(name))
    mode = spec.get("completionMode")
    if mode not in ("NonIndexed", "Indexed"):
        yield not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed" and spec.get("completions") is None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    yield from job_policy_errors(spec, path)
    yield from template_errors(spec["template"], f"{path}.template")
    policy = spec["template"]["spec"].get("restartPolicy")
    field_path = f"{path}.template.spec.restartPolicy"
    if policy == "Always":
        yield required(field_path, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield not_supported(field_path, policy, ("OnFailure", "Never"))
    if spec.get("podFailurePolicy") is not None and policy == "OnFailure":
        text = 'only "Never" is supported when podFailurePolicy is specified'
        yield invalid(field_path, policy, text)


class JobStrategy(WorkloadStrategy):
    """Strategy of batch/v1 Job."""

    default_propagation = "orphan"

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults: one completion and a back-off limit of 6."""
        _job_defaults(obj["spec"])

    def default(self, obj: Object) -> None:
        """See :meth:`Strategy.default`: a Job without labels shares the map of its template.

        Therefore the labels that are generated for the template are added to both, as in kube-apiserver.
        """
        super().default(obj)
        labels = (obj["spec"]["template"].get("metadata") or {}).get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = labels

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Derive the selector, and the template labels that it matches, from the uid of the Job."""
        super().prepare_create(obj, ctx)
        spec = obj["spec"]
        if spec.get("manualSelector"):
            return
        uid = obj["metadata"].get("uid") or ""
        labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
        for label, value in _generated_labels(obj).items():
            labels.setdefault(label, value)
        selector = spec.get("selector") or {}
        selector.setdefault("matchLabels", {}).setdefault("batch.kubernetes.io/controller-uid", uid)
        spec["selector"] = selector

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """See :meth:`WorkloadStrategy.check`; pods of Indexed Jobs have names with an index."""
        if ctx.subresource == "status":
            yield from job_status_errors(obj, old or obj)
            return
        yield from indexed_name_errors(obj)
        selector = obj["spec"].get("selector")
        if selector is not None and not obj["spec"].get("manualSelector"):
            if not _is_generated(selector, obj) and not any(label_selector_errors(selector, "")):
                text = "`selector` not auto-generated"
                yield invalid("spec.selector", internal_selector(selector), text)
            yield from _generated_label_errors(obj)
        yield from super().check(obj, old, ctx)
        if old is not None:
            yield from _template_change_errors(obj["spec"]["template"], old)
        elif not obj["metadata"].get("labels"):
            # The stored Job has none: kube-apiserver sets those of the template whenever it reads it.
            obj["metadata"]["labels"] = obj["spec"]["template"]["metadata"].get("labels")

    def spec_errors(
        self, spec: Mapping[str, Any], old: Mapping[str, Any] | None
    ) -> Iterator[FieldError]:
        """See :meth:`WorkloadStrategy.spec_errors`; an update reports the errors of the new spec twice."""
        errors = list(self._new_spec_errors(spec))
        yield from errors
        if old is not None:
            yield from errors
            yield from self._change_errors(spec, old)

    @staticmethod
    def _new_spec_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
        yield from _job_errors(spec, "spec")
        selector = spec.get("selector")
        if selector is None:
            yield required("spec.selector")
        problems = list(label_selector_errors(selector, "spec.selector"))
        yield from problems
        if problems:
            return
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        if not selects(selector, labels or {}):
            text = "`selector` does not match template `labels`"
            yield invalid("spec.template.metadata.labels", labels, text)

    @staticmethod
    def _change_errors(spec: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
        completions = spec.get("completions")
        if spec.get("completionMode") != "Indexed":
            yield from immutable(spec, old, "completions")
        elif completions not in (old.get("completions"), spec.get("parallelism"), None):
            yield invalid(
                "spec.completions",
                completions,
                "can only be modified in tandem with spec.parallelism",
            )
        for name in (
            "selector",
            "completionMode",
            "backoffLimitPerIndex",
            "managedBy",
        ):
            yield from immutable(spec, old, name)
        for name, layout in (("podFailurePolicy", FAILURE_RULE), ("successPolicy", SUCCESS_RULE)):
            if spec.get(name) != old.get(name):
                yield invalid(
                    f"spec.{name}",
                    internal_job_policy(spec.get(name), layout),
                    "field is immutable",
                )


def _is_generated(selector: Mapping[str, Any], job: Object) -> bool:
    """Return whether a selector is the one that a Job gets without ``manualSelector``."""
    expected = {"batch.kubernetes.io/controller-uid": job["metadata"].get("uid")}
    labels = selector.get("matchLabels") or {}
    return labels == expected and not selector.get("matchExpressions")


def _generated_labels(job: Object) -> dict[str, str]:
    """Return the labels that the template of a Job gets."""
    uid = job["metadata"].get("uid") or ""
    name = job["metadata"].get("name") or ""
    labels = {"controller-uid": uid, "batch.kubernetes.io/controller-uid": uid}
    return labels | {"job-name": name, "batch.kubernetes.io/job-name": name}


def _generated_label_errors(job: Object) -> Iterator[FieldError]:
    labels = (job["spec"]["template"].get("metadata") or {}).get("labels") or {}
    for label, expected in _generated_labels(job).items():
        path = f"spec.template.metadata.labels[{label}]"
        if label not in labels:
            yield required(path, f"must be '{expected}'")
        elif labels[label] != expected:
            yield invalid(path, labels[label], f"must be '{expected}'")


def _template_change_errors(template: Object, old: Object) -> Iterator[FieldError]:
    """Yield the error of a changed template: while no pods run, it may change how they are scheduled."""
    before = old["spec"]["template"]
    if template == before:
        return
    if not _has_mutable_template(old):
        yield invalid("spec.template", internal_pod_template(template), "field is immutable")
        return
    changed = copy_json(template)
    _keep(changed["metadata"], before["metadata"], ("labels", "annotations"))
    scheduling = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
    _keep(changed["spec"], before["spec"], scheduling)
    for name in ("initContainers", "containers"):
        containers = changed["spec"].get(name) or ()
        previous = before["spec"].get(name) or ()
        if len(containers) == len(previous):
            for container, unchanged in zip(containers, previous, strict=True):
                _keep(container, unchanged, ("resources",))
    if changed != before:
        yield invalid(
            "spec.template.spec", internal_pod_spec(template["spec"]), "field is immutable"
        )


def _keep(changed: Object, before: Object, names: Sequence[str]) -> None:
    """Replace fields by those from before."""
    for name in names:
        changed.pop(name, None)
        if name in before:
            changed[name] = before[name]


def _has_mutable_template(job: Object) -> bool:
    """Return whether a Job is suspended and has no pods: it has not begun, or all of them ended."""
    if not job["spec"].get("suspend"):
        return False
    status = job.get("status") or {}
    if status.get("startTime") is None:
        return True
    return not status.get("active") and any(
        condition.get("type") == "Suspended" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


class CronJobStrategy(WorkloadStrategy):
    """Strategy of batch/v1 CronJob."""

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults: concurrent runs are allowed; three successful Jobs and one failed Job are kept."""
        spec = obj["spec"]
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        template_defaults(spec["jobTemplate"]["spec"]["template"]["spec"])

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """See :meth:`WorkloadStrategy.check`; names are limited because Jobs append eleven characters to them."""
        name = obj["metadata"].get("name") or ""
        if old is None and len(name) > _NAME_LIMIT:
            yield invalid("metadata.name", name, f"must be no more than {_NAME_LIMIT} characters")
        yield from super().check(obj, old, ctx)

    def spec_warnings(self, spec: Mapping[str, Any]) -> Iterator[str]:
        """See :meth:`WorkloadStrategy.spec_warnings`."""
        yield from template_warnings(
            spec["jobTemplate"]["spec"]["template"], "spec.jobTemplate.spec.template"
        )
        if "TZ" in (spec.get("schedule") or ""):
            link = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/"
            yield f"CRON_TZ or TZ used in spec.schedule is not officially supported, see {link} for more details"

    def spec_errors(
        self, spec: Mapping[str, Any], old: Mapping[str, Any] | None
    ) -> Iterator[FieldError]:
        """See :meth:`WorkloadStrategy.spec_errors`."""
        schedule = spec.get("schedule") or ""
        if not schedule:
            yield required("spec.schedule")
        elif "TZ" in schedule:
            if old is None or old.get("schedule") != schedule:
                text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
                yield invalid("spec.schedule", schedule, text)
        else:
            problem = _schedule_problem(schedule)
            if problem:
                yield invalid("spec.schedule", schedule, problem)
        for name in (
            "startingDeadlineSeconds",
            "successfulJobsHistoryLimit",
            "failedJobsHistoryLimit",
        ):
            yield from nonnegative(f"spec.{name}", spec.get(name))
        if spec.get("timeZone") is not None:
            problem = _time_zone_problem(spec["timeZone"])
            if problem:
                yield invalid("spec.timeZone", spec["timeZone"], problem)
        policy = spec.get("concurrencyPolicy") or ""
        if not policy:
            yield required("spec.concurrencyPolicy")
        elif policy not in ("Allow", "Forbid", "Replace"):
            yield not_supported("spec.concurrencyPolicy", policy, ("Allow", "Forbid", "Replace"))
        job = spec["jobTemplate"]["spec"]
        yield from _job_errors({"completionMode": "NonIndexed", **job}, "spec.jobTemplate.spec")
        if job.get("selector") is not None:
            yield invalid(
                "spec.jobTemplate.spec.selector",
                job["selector"],
                "`selector` will be auto-generated",
            )
        if job.get("manualSelector"):
            yield not_supported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false"))


_NAME_LIMIT = 63 - 11


def _time_zone_problem(zone: str) -> str:
    """Return the error in a time zone name, or an empty string."""
    if not zone:
        return "timeZone must be nil or non-empty string"
    if zone.lower() == "local":
        return (
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        )
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"unknown time zone {zone}"
    return ""


def _schedule_problem(schedule: str) -> str:
    """Return the error in a cron schedule, or an empty string."""
    try:
        parse_schedule(schedule)
    except ScheduleError as error:
        return str(error)
    return ""
