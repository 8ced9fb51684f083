"""PodSecurity: enforces the Pod Security Standards that the labels of a namespace select.

Follows ``k8s.io/pod-security-admission/admission``: pods that violate the level ``enforce`` are rejected; pods, and
objects that contain a pod template, cause warnings if they violate the level ``warn``, which is that of ``enforce``
without a label. A stricter level of a namespace causes warnings about its existing pods. The level ``audit`` only
affects audit events, which have no annotations here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from envtest.admission.chain import StorePlugin
from envtest.admission.matching import NAMESPACES
from envtest.admission.namespace_lifecycle import display_name
from envtest.admission.pod_security_checks import LATEST, LEVELS, Level, Violation, violations
from envtest.apimachinery.errors import GroupResource, forbidden, invalid_object
from envtest.apimachinery.field_errors import FieldError, invalid, key
from envtest.apimachinery.objects import Object
from envtest.registry.resource import RequestContext

__all__ = ["PodSecurity"]

_PREFIX: Final = "pod-security.kubernetes.io/"
_PODS: Final = GroupResource("", "pods")
_TEMPLATES: Final = {
    GroupResource("", "podtemplates"): ("template",),
    GroupResource("", "replicationcontrollers"): ("spec", "template"),
    **{
        GroupResource("apps", name): ("spec", "template")
        for name in ("daemonsets", "deployments", "replicasets", "statefulsets")
    },
    GroupResource("batch", "jobs"): ("spec", "template"),
    GroupResource("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
}
"""The path of the pod template in the kinds that have one."""
_PROFILE_ANNOTATIONS: Final = (
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
)
_MAX_PODS: Final = 3000
"""How many pods of a namespace are checked when its level changes."""


class _Policy(NamedTuple):
    """The levels that the labels of a namespace select, and the errors of the labels."""

    enforce: Level
    warn: Level
    errors: tuple[FieldError, ...]

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> _Policy:
        errors: list[FieldError] = []
        modes = {mode: _level_of(labels, mode, errors) for mode in ("enforce", "audit", "warn")}
        enforce = modes["enforce"]
        warn = modes["warn"]
        if labels.get(_PREFIX + "enforce") in LEVELS and _PREFIX + "warn" not in labels:
            has_version = _PREFIX + "warn-version" in labels
            warn = Level(enforce.name, warn.version if has_version else enforce.version)
        return cls(enforce, warn, tuple(errors))


def _level_of(labels: Mapping[str, str], mode: str, errors: list[FieldError]) -> Level:
    name = labels.get(_PREFIX + mode)
    version = labels.get(f"{_PREFIX}{mode}-version")
    minor = LATEST
    if name is not None and name not in LEVELS:
        errors.append(
            invalid(
                key("metadata.labels", _PREFIX + mode), name, f"must be one of {', '.join(LEVELS)}"
            )
        )
        name = "restricted" if mode == "enforce" else None
    if version is not None and version != "latest":
        match = re.fullmatch(r"v1\.(0|[1-9][0-9]{0,5})", version)
        if match is None:
            path = key("metadata.labels", f"{_PREFIX}{mode}-version")
            errors.append(invalid(path, version, 'must be "latest" or "v1.x"'))
        else:
            minor = int(match[1])
    return Level(name or "privileged", minor)


class PodSecurity(StorePlugin):
    """The plugin PodSecurity, without exemptions and with the default level ``privileged``."""

    resources = (NAMESPACES, _PODS, *_TEMPLATES)

    def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Check a namespace, a pod or a pod template. Raises StatusError: 403 for a pod, 422 for a namespace."""
        resource = ctx.info.resource
        is_write = ctx.operation in ("CREATE", "UPDATE")
        if resource == NAMESPACES and is_write and not ctx.subresource:
            self._check_namespace(ctx, obj, old)
        elif resource == _PODS and is_write and ctx.subresource in ("", "ephemeralcontainers"):
            if old is None or _is_significant(obj, old):
                self._check_pod(ctx, obj)
        elif resource in _TEMPLATES and is_write and not ctx.subresource:
            template: Any = obj
            for name in _TEMPLATES[resource]:
                template = (template or {}).get(name)
            if template:
                self._warn(ctx, self._policy(ctx).warn, template)

    def _policy(self, ctx: RequestContext) -> _Policy:
        record = self._store.get(NAMESPACES, "", ctx.namespace)
        return _Policy.of((record.labels if record is not None else None) or {})

    def _check_pod(self, ctx: RequestContext, pod: Object) -> None:
        policy = self._policy(ctx)
        found = violations(policy.enforce, pod["metadata"], pod["spec"])
        if found:
            why = f'violates PodSecurity "{policy.enforce}": {_joined(found)}'
            raise forbidden(ctx.info.resource, display_name(ctx, pod), why)
        self._warn(ctx, policy.warn, pod)

    @staticmethod
    def _warn(ctx: RequestContext, level: Level, pod: Mapping[str, Any]) -> None:
        found = violations(level, pod.get("metadata") or {}, pod.get("spec") or {})
        if found:
            ctx.warn(f'would violate PodSecurity "{level}": {_joined(found)}')

    def _check_namespace(self, ctx: RequestContext, namespace: Object, old: Object | None) -> None:
        policy = _Policy.of(namespace["metadata"].get("labels") or {})
        if old is None:
            if policy.errors:
                raise invalid_object(
                    "", "Namespace", namespace["metadata"].get("name") or "", policy.errors
                )
            return
        before = _Policy.of(old["metadata"].get("labels") or {})
        if policy.errors and policy.errors != before.errors:
            raise invalid_object("", "Namespace", ctx.name, policy.errors)
        is_weaker = LEVELS.index(policy.enforce.name) <= LEVELS.index(before.enforce.name)
        same_version = policy.enforce.version == before.enforce.version
        if (
            policy.enforce == before.enforce
            or policy.enforce.name == "privileged"
            or (is_weaker and same_version)
        ):
            return
        for text in self._existing_violations(ctx.name, policy.enforce):
            ctx.warn(text)

    def _existing_violations(self, namespace: str, level: Level) -> Iterator[str]:
        """Yield warnings about the pods in ``namespace`` that violate ``level``, one for all with the same reasons."""
        pods: dict[str, list[str]] = {}
        for record in self._store.list(_PODS, namespace)[:_MAX_PODS]:
            pod = record.obj()
            found = violations(level, pod["metadata"], pod["spec"])
            if found:
                reasons = ", ".join(each.reason for each in found)
                pods.setdefault(reasons, []).append(record.name)
        if pods:
            yield f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{level}"'
        for reasons, names in pods.items():
            others = len(names) - 1
            more = ""
            if others:
                word = "pod" if others == 1 else "pods"
                more = f" (and {others} other {word})"
            yield f"{names[0]}{more}: {reasons}"


def _joined(found: list[Violation]) -> str:
    return ", ".join(map(str, found))


def _is_significant(pod: Object, old: Object) -> bool:
    """Return whether an update can change the result: a new image, container or security profile."""
    annotations = pod["metadata"].get("annotations") or {}
    old_annotations = old["metadata"].get("annotations") or {}
    names = {
        name
        for name in annotations.keys() | old_annotations.keys()
        if name.startswith(_PROFILE_ANNOTATIONS)
    }
    if any(annotations.get(name) != old_annotations.get(name) for name in names):
        return True
    return any(_images(pod, kind) != _images(old, kind) for kind in _CONTAINERS)


def _images(pod: Object, kind: str) -> list[tuple[Any, Any]]:
    return [(each.get("name"), each.get("image")) for each in pod["spec"].get(kind) or ()]


_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
