"""Strategies of the kinds that run pods from a template: Deployment, ReplicaSet, StatefulSet, DaemonSet and others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import orjson

from envtest.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from envtest.apimachinery.name_rules import dns_label
from envtest.apimachinery.objects import Object
from envtest.builtins.claims import claim_errors
from envtest.builtins.go_rendering import (
    STATEFUL_ROLLOUT,
    internal_fields,
    internal_selector,
    internal_update_strategy,
)
from envtest.builtins.normalization import ConversionError
from envtest.builtins.pod_rules import template_errors
from envtest.builtins.pod_warnings import claim_warnings, name_warnings, template_warnings
from envtest.builtins.pods import template_defaults
from envtest.builtins.strategy import BuiltinStrategy
from envtest.builtins.string_validation import (
    label_selector_errors,
    nonnegative,
    percent_above_100_errors,
    percent_or_int,
    percent_or_int_errors,
    percent_or_int_value,
    selects,
)
from envtest.formats.go_integers import parse_int64
from envtest.registry.resource import RequestContext
from envtest.schema.shaping import copy_json

__all__ = [
    "ControllerRevisionStrategy",
    "DaemonSetStrategy",
    "DeploymentStrategy",
    "PodTemplateStrategy",
    "ReplicaSetStrategy",
    "ReplicationControllerStrategy",
    "StatefulSetStrategy",
    "WorkloadStrategy",
    "immutable",
]


def _selector_errors(spec: Mapping[str, Any], *, empty: str) -> Iterator[FieldError]:
    """Yield the errors of the selector, which is required and must not be empty."""
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
    else:
        yield from label_selector_errors(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            yield invalid(
                "spec.selector",
                internal_selector(selector),
                f"empty selector is invalid for {empty}",
            )


def _mismatch_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield an error if the selector does not match the labels of the template."""
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if not selects(spec.get("selector"), labels or {}):
        text = "`selector` does not match template `labels`"
        yield invalid("spec.template.metadata.labels", labels, text)


def _selected_template_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of the template of a ReplicaSet; they are only determined if the selector can be parsed."""
    selector = spec.get("selector")
    if any(label_selector_errors(selector, "")):
        yield invalid("spec.selector", internal_selector(selector), "invalid label selector")
        return
    yield from _mismatch_errors(spec)
    yield from template_errors(spec["template"], "spec.template")
    yield from _lifetime_errors(spec, "ReplicaSet")


def _lifetime_errors(spec: Mapping[str, Any], kind: str) -> Iterator[FieldError]:
    """Yield the errors of the fields that limit the lifetime of pods, which ``kind`` always restarts."""
    pod = (spec.get("template") or {}).get("spec") or {}
    policy = pod.get("restartPolicy") or ""
    if policy != "Always":
        yield not_supported("spec.template.spec.restartPolicy", policy, ("Always",))
    if pod.get("activeDeadlineSeconds") is not None:
        path = "spec.template.spec.activeDeadlineSeconds"
        yield forbidden(path, f"activeDeadlineSeconds in {kind} is not Supported")


def immutable(new: Mapping[str, Any], old: Mapping[str, Any], name: str) -> Iterator[FieldError]:
    """Yield an error if ``spec.<name>`` differs between the specs ``new`` and ``old``."""
    value = new.get(name)
    if value == old.get(name):
        return
    if name == "selector":
        value = internal_selector(value)
    yield invalid(f"spec.{name}", value, "field is immutable")


class PodTemplateStrategy(BuiltinStrategy):
    """Strategy of v1 PodTemplate."""

    has_spec_generation = True

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults of the pod spec."""
        template_defaults(obj["template"]["spec"])

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the template."""
        yield from template_errors(obj["template"], "template")

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`."""
        return list(template_warnings(obj["template"], "template"))


class WorkloadStrategy(BuiltinStrategy):
    """Base strategy of kinds that run pods from a template at ``spec.template``."""

    has_spec_generation = True
    replica_counts: ClassVar[tuple[str, ...]] = ()
    """The counts of the status that must not exceed its ``replicas``."""
    ready_count: ClassVar[str] = "readyReplicas"
    """The count that ``availableReplicas`` must not exceed, as the message names it."""
    counts_replicas: ClassVar[bool] = False
    """Whether an object without content has zero replicas, because kube-apiserver's internal type has no pointer."""
    warns_about_name: ClassVar[bool] = True
    """Whether creation warns about a name that is not a DNS label, because the names of the pods begin with it."""

    def empty(self) -> Object:
        """See :meth:`Strategy.empty`."""
        empty = super().empty()
        if self.counts_replicas:
            empty["spec"]["replicas"] = 0
        return empty

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults of the template and of the spec."""
        spec = obj["spec"]
        if isinstance(spec.get("template"), dict):
            template_defaults(spec["template"]["spec"])
        self.spec_defaults(spec)

    def spec_defaults(self, spec: Object) -> None:
        """Set the defaults of the fields that only this kind has."""

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors in the spec or, for an update of the status, in its counts."""
        if ctx.subresource == "status":
            status = obj.get("status") or {}
            yield from _status_errors(status, self.replica_counts, self.ready_count)
            yield from _collision_errors(status, (old or {}).get("status") or {})
            return
        old_spec = old["spec"] if old is not None else None
        yield from self.spec_errors(obj["spec"], old_spec)

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: about the name on creation, about the template whenever the spec changes."""
        is_same = (
            old is not None and old["metadata"].get("generation") == obj["metadata"]["generation"]
        )
        if is_same or ctx.subresource not in ("", "scale"):
            return ()
        texts = (
            list(name_warnings(obj["metadata"]["name"]))
            if self.warns_about_name and old is None
            else []
        )
        return [*texts, *self.spec_warnings(obj["spec"])]

    def spec_warnings(self, spec: Mapping[str, Any]) -> Iterator[str]:
        """Yield the warnings about the spec."""
        yield from template_warnings(spec.get("template"), "spec.template")

    def spec_errors(
        self, spec: Mapping[str, Any], old: Mapping[str, Any] | None
    ) -> Iterator[FieldError]:
        """Yield the errors of the spec and, if ``old`` is given, of its changes."""
        yield from ()


_COUNTS: Final = ("observedGeneration", "active", "succeeded", "failed", "collisionCount")


def _status_errors(
    status: Mapping[str, Any], parts: Sequence[str], ready_count: str
) -> Iterator[FieldError]:
    """Yield an error for each negative count, and for each of ``parts`` that exceeds the replicas."""
    for name, value in status.items():
        if name.endswith(("eplicas", "Scheduled")) or name.startswith("number") or name in _COUNTS:
            yield from nonnegative(f"status.{name}", value)
    if not parts:
        return
    counts = {
        name: status.get(name) or 0
        for name in (*parts, "replicas", "readyReplicas", "availableReplicas")
    }
    for name in parts:
        if counts[name] > counts["replicas"]:
            yield invalid(f"status.{name}", counts[name], "cannot be greater than status.replicas")
    if counts["availableReplicas"] > counts["readyReplicas"]:
        text = f"cannot be greater than {ready_count}"
        yield invalid("status.availableReplicas", counts["availableReplicas"], text)


def _collision_errors(status: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield an error if the number of hash collisions, which names of future objects depend on, becomes smaller."""
    count = status.get("collisionCount")
    before = old.get("collisionCount")
    if before is not None and (count is None or count < before):
        yield invalid("status.collisionCount", count or 0, "cannot be decremented")


class DeploymentStrategy(WorkloadStrategy):
    """Strategy of apps/v1 Deployment."""

    counts_replicas = True
    replica_counts = ("updatedReplicas", "readyReplicas", "availableReplicas")

    def spec_defaults(self, spec: Object) -> None:
        """Set the defaults: one replica, a rolling update by 25 %, the history limit and the progress deadline."""
        spec.setdefault("replicas", 1)
        strategy = spec["strategy"]
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """Count changes of the annotations as changes of the spec."""
        super().prepare_update(new, old, ctx)
        if not ctx.subresource and new["metadata"].get("annotations") != old["metadata"].get(
            "annotations"
        ):
            new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1

    def spec_errors(
        self, spec: Mapping[str, Any], old: Mapping[str, Any] | None
    ) -> Iterator[FieldError]:
        """See :meth:`WorkloadStrategy.spec_errors`."""
        yield from nonnegative("spec.replicas", spec.get("replicas"))
        yield from _selector_errors(spec, empty="deployment")
        yield from _selected_template_errors(spec)
        yield from _deployment_strategy_errors(spec["strategy"], "spec.strategy")
        for name in ("minReadySeconds", "revisionHistoryLimit"):
            yield from nonnegative(f"spec.{name}", spec.get(name))
        deadline = spec.get("progressDeadlineSeconds")
        ready = spec.get("minReadySeconds") or 0
        if deadline is not None:
            yield from nonnegative("spec.progressDeadlineSeconds", deadline)
            if deadline <= ready:
                yield invalid(
                    "spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"
                )
        if old is not None:
            yield from immutable(spec, old, "selector")


def _deployment_strategy_errors(strategy: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = strategy.get("type") or ""
    rolling = strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            yield forbidden(
                f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'"
            )
    elif kind == "RollingUpdate":
        if rolling is None:
            yield required(f"{path}.rollingUpdate", "this should be defaulted and never be nil")
            return
        surge = rolling.get("maxSurge")
        unavailable = rolling.get("maxUnavailable")
        yield from percent_or_int_errors(f"{path}.rollingUpdate.maxUnavailable", unavailable)
        yield from percent_or_int_errors(f"{path}.rollingUpdate.maxSurge", surge)
        if percent_or_int_value(surge) == 0 and percent_or_int_value(unavailable) == 0:
            text = "may not be 0 when `maxSurge` is 0"
            shown = percent_or_int(unavailable)
            yield invalid(f"{path}.rollingUpdate.maxUnavailable", shown, text)
        yield from percent_above_100_errors(f"{path}.rollingUpdate.maxUnavailable", unavailable)
    else:
        yield not_supported(path, internal_update_strategy(strategy), ("Recreate", "RollingUpdate"))


class ReplicaSetStrategy(WorkloadStrategy):
    """Strategy of apps/v1 ReplicaSet."""

    counts_replicas = True
    replica_counts = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")

    def spec_defaults(self, spec: Object) -> None:
        """Set the number of replicas to one."""
        spec.setdefault("replicas", 1)

    def spec_errors(
        self, spec: Mapping[str, Any], old: Mapping[str, Any] | None
    ) -> Iterator[FieldError]:
        """See :meth:`WorkloadStrategy.spec_errors`."""
        yield from nonnegative("spec.replicas", spec.get("replicas"))
        yield from nonnegative("spec.minReadySeconds", spec.get("minReadySeconds"))
        yield from _selector_errors(spec, empty="deployment")
        yield from _selected_template_errors(spec)
        if old is not None:
            yield from immutable(spec, old, "selector")


class ReplicationControllerStrategy(WorkloadStrategy):
    """Strategy of v1 ReplicationController."""

    default_propagation = "orphan"
    replica_counts = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")

    def set_defaults(self, obj: Object) -> None:
        """Derive the selector and the labels from the template."""
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        template = spec.get("template")
        if template is not None:
            template_defaults(template["spec"])
            labels = template["metadata"].get("labels")
            if labels:
                spec["selector"] = spec.get("selector") or copy_json(labels)
                if not obj["metadata"].get("labels"):
                    obj["metadata"]["labels"] = copy_json(labels)

    def spec_errors(
        self, spec: Mapping[str, Any], old: Mapping[str, Any] | None
    ) -> Iterator[FieldError]:
        """See :meth:`WorkloadStrategy.spec_errors`."""
        yield from nonnegative("spec.minReadySeconds", spec.get("minReadySeconds"))
        if not spec.get("selector"):
            yield required("spec.selector")
        yield from nonnegative("spec.replicas", spec.get("replicas"))
        if spec.get("template") is None:
            yield required("spec.template")
            return
        labels = (spec["template"].get("metadata") or {}).get("labels") or {}
        if any(labels.get(name) != value for name, value in (spec.get("selector") or {}).items()):
            text = "`selector` does not match template `labels`"
            yield invalid("spec.template.metadata.labels", labels or None, text)
        yield from template_errors(spec["template"], "spec.template")
        yield from _lifetime_errors(spec, "ReplicationController")


_RETENTION_POLICIES: Final = ("Retain", "Delete")


def _with_claims(spec: Mapping[str, Any]) -> Object:
    """Return the pod template of a StatefulSet as its pods get it: a volume for each claim, before all others."""
    claim_templates = spec.get("volumeClaimTemplates") or ()
    names = dict.fromkeys(
        (each.get("metadata") or {}).get("name") or "" for each in claim_templates
    )
    template: Object = copy_json(spec["template"])
    volumes = [
        each for each in template["spec"].get("volumes") or () if each.get("name") not in names
    ]
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    template["spec"]["volumes"] = [*claims, *volumes]
    return template


class StatefulSetStrategy(WorkloadStrategy):
    """Strategy of apps/v1 StatefulSet."""

    counts_replicas = True
    warns_about_name = False
    replica_counts = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    ready_count = "status.readyReplicas"

    def drop_disabled(self, obj: Object) -> None:
        """See :meth:`Strategy.drop_disabled`: MaxUnavailableStatefulSet is off by default."""
        super().drop_disabled(obj)
        rolling = obj["spec"]["updateStrategy"].get("rollingUpdate")
        if rolling is not None:
            rolling.pop("maxUnavailable", None)

    def spec_defaults(self, spec: Object) -> None:
        """Set the defaults: ordered pods, a rolling update, retained claims.

        A strategy whose type is given keeps its parameters as they are, also without any.
        """
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec["updateStrategy"]
        if "type" not in strategy:
            strategy["type"] = "RollingUpdate"
            strategy.setdefault("rollingUpdate", {})
        if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
            strategy["rollingUpdate"].setdefault("partition", 0)
        retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        retention.setdefault("whenDeleted", "Retain")
        retention.setdefault("whenScaled", "Retain")
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        for claim in spec.get("volumeClaimTemplates") or ():
            claim["apiVersion"] = "v1"
            claim["kind"] = "PersistentVolumeClaim"
            claim["spec"].setdefault("volumeMode", "Filesystem")
            claim["status"].setdefault("phase", "Pending")

    def spec_errors(
        self, spec: Mapping[str, Any], old: Mapping[str, Any] | None
    ) -> Iterator[FieldError]:
        """See :meth:`WorkloadStrategy.spec_errors`."""
        policy = spec.get("podManagementPolicy")
        if policy not in ("OrderedReady", "Parallel"):
            yield invalid(
                "spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"
            )
        yield from _stateful_strategy_errors(spec["updateStrategy"], "spec.updateStrategy")
        retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
        for name in ("whenDeleted", "whenScaled"):
            policy = retention.get(name) or ""
            if policy not in _RETENTION_POLICIES:
                path = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
                yield not_supported(path, policy, _RETENTION_POLICIES)
        if old is None:
            for position, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
                path = f"spec.volumeClaimTemplates[{position}].spec"
                yield from claim_errors(claim["spec"], path)
        yield from nonnegative("spec.replicas", spec.get("replicas"))
        yield from nonnegative("spec.minReadySeconds", spec.get("minReadySeconds"))
        yield from nonnegative("spec.ordinals.start", (spec.get("ordinals") or {}).get("start"))
        service = spec.get("serviceName")
        if service and old is None:
            for problem in dns_label(service):
                yield invalid("spec.serviceName", service, problem)
        yield from _selector_errors(spec, empty="statefulset")
        selector = spec.get("selector")
        if any(label_selector_errors(selector, "")):
            yield invalid("spec.selector", internal_selector(selector), "")
        else:
            yield from _mismatch_errors(spec)
            yield from template_errors(_with_claims(spec), "spec.template")
        yield from _lifetime_errors(spec, "StatefulSet")
        if old is not None:
            yield from self._change_errors(spec, old)

    def spec_warnings(self, spec: Mapping[str, Any]) -> Iterator[str]:
        """See :meth:`WorkloadStrategy.spec_warnings`."""
        yield from super().spec_warnings(spec)
        if (spec.get("revisionHistoryLimit") or 0) < 0:
            text = "a negative value retains all historical revisions; a value >= 0 is recommended"
            yield f"spec.revisionHistoryLimit: {text}"

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: also about the claim templates, by the paths of kube-apiserver."""
        texts = super().warnings(obj, old, ctx)
        claim_templates = obj["spec"].get("volumeClaimTemplates")
        if not claim_templates or ctx.subresource not in ("", "scale"):
            return texts
        suffix = "" if old is None else ".Spec"
        found = [*texts]
        for position, claim in enumerate(claim_templates):
            path = f"spec.volumeClaimTemplates[{position}]{suffix}"
            found += claim_warnings(claim.get("spec") or {}, path)
        return found

    @staticmethod
    def _change_errors(spec: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
        mutable = {
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        }
        if {k: v for k, v in spec.items() if k not in mutable} != {
            k: v for k, v in old.items() if k not in mutable
        }:
            text = (
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
                "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
                "'minReadySeconds' are forbidden"
            )
            yield forbidden("spec", text)


def _stateful_strategy_errors(strategy: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = strategy.get("type") or ""
    rolling = strategy.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is not None:
            text = "only allowed for updateStrategy 'RollingUpdate'"
            yield invalid(f"{path}.rollingUpdate", internal_fields(STATEFUL_ROLLOUT, rolling), text)
    elif kind == "RollingUpdate":
        yield from nonnegative(f"{path}.rollingUpdate.partition", (rolling or {}).get("partition"))
    else:
        text = "must be 'RollingUpdate' or 'OnDelete'"
        yield invalid(path, internal_update_strategy(strategy, STATEFUL_ROLLOUT), text)


_GENERATION = "deprecated.daemonset.template.generation"


def _template_generation(obj: Object) -> int:
    """Return the generation of the template in the annotation of a decoded object."""
    return parse_int64((obj["metadata"].get("annotations") or {}).get(_GENERATION, "0"))


class DaemonSetStrategy(WorkloadStrategy):
    """Strategy of apps/v1 DaemonSet.

    The template's generation, which is a field of kube-apiserver's internal type, is an annotation in apps/v1.
    """

    warns_about_name = False

    def empty(self) -> Object:
        """See :meth:`Strategy.empty`: with the annotation, which the generation of the template is converted to."""
        empty = super().empty()
        empty["metadata"] = {"annotations": {_GENERATION: "0"}}
        return empty

    def decode(self, obj: Object, ctx: RequestContext) -> list[str]:
        """See :meth:`Strategy.decode`: the generation in the annotation must be an integer."""
        unknown = super().decode(obj, ctx)
        try:
            _template_generation(obj)
        except ValueError as error:
            cause = ConversionError(str(error), f"metadata.annotations.{_GENERATION}")
            raise self.undecodable(cause) from cause
        return unknown

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults of the spec, and the annotation with the template's generation."""
        super().set_defaults(obj)
        annotations = {**(obj["metadata"].get("annotations") or {})}
        annotations[_GENERATION] = str(_template_generation(obj))
        obj["metadata"]["annotations"] = annotations

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Begin with generation 1 of the template."""
        super().prepare_create(obj, ctx)
        generation = _template_generation(obj)
        obj["metadata"]["annotations"][_GENERATION] = str(max(generation, 1))

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`: counts the changes of the template."""
        super().prepare_update(new, old, ctx)
        changed = not ctx.subresource and new["spec"].get("template") != old["spec"].get("template")
        new["metadata"].setdefault("annotations", {})[_GENERATION] = str(
            _template_generation(old) + changed
        )

    def spec_defaults(self, spec: Object) -> None:
        """Set the defaults: a rolling update of one node at a time."""
        strategy = spec["updateStrategy"]
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("maxUnavailable", 1)
        rolling = strategy.get("rollingUpdate")
        if rolling is not None:
            # kube-apiserver's internal type has no unset values
            rolling.setdefault("maxUnavailable", 0)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)

    def spec_errors(
        self, spec: Mapping[str, Any], old: Mapping[str, Any] | None
    ) -> Iterator[FieldError]:
        """See :meth:`WorkloadStrategy.spec_errors`."""
        selector = spec.get("selector")
        problems = list(label_selector_errors(selector, "spec.selector"))
        yield from problems
        if not problems:
            yield from _mismatch_errors(spec)
        if selector is not None and not (
            selector.get("matchLabels") or selector.get("matchExpressions")
        ):
            yield invalid(
                "spec.selector",
                internal_selector(selector),
                "empty selector is invalid for daemonset",
            )
        yield from template_errors(spec["template"], "spec.template")
        yield from _lifetime_errors(spec, "DaemonSet")
        yield from nonnegative("spec.minReadySeconds", spec.get("minReadySeconds"))
        strategy = spec["updateStrategy"]
        kind = strategy.get("type") or ""
        if kind == "RollingUpdate":
            yield from self._rolling_errors(strategy.get("rollingUpdate") or {})
        elif kind != "OnDelete":
            shown = internal_update_strategy(strategy)
            yield not_supported("spec.updateStrategy", shown, ("RollingUpdate", "OnDelete"))
        yield from nonnegative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
        if old is not None:
            yield from immutable(spec, old, "selector")

    @staticmethod
    def _rolling_errors(rolling: Mapping[str, Any]) -> Iterator[FieldError]:
        path = "spec.updateStrategy.rollingUpdate"
        surge = "maxSurge"
        unavailable = "maxUnavailable"
        for name in (unavailable, surge):
            yield from percent_or_int_errors(f"{path}.{name}", rolling.get(name))
        for name in (unavailable, surge):
            yield from percent_above_100_errors(f"{path}.{name}", rolling.get(name))
        nonzero = [name for name in (unavailable, surge) if percent_or_int_value(rolling.get(name))]
        if not nonzero:
            yield required(f"{path}.{unavailable}", "cannot be 0 when maxSurge is 0")
        elif len(nonzero) == 2:
            yield invalid(
                f"{path}.{surge}", rolling[surge], "may not be set when maxUnavailable is non-zero"
            )


def _sorted_json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


class ControllerRevisionStrategy(BuiltinStrategy):
    """Strategy of apps/v1 ControllerRevision."""

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the revision and of the data, a JSON object that is immutable.

        kube-apiserver compares the data as text: ``1.0`` for ``1`` is a change. It also takes other spaces or another
        order of the keys for a change; the stored object does not have them.
        """
        data = obj.get("data")
        if old is not None:
            if _sorted_json(data) != _sorted_json(old.get("data")):
                yield invalid("data", data, "field is immutable")
        elif data is None:
            yield required("data", "data is mandatory")
        elif not isinstance(data, dict):
            yield required("data", "data must be a valid JSON object")
        yield from nonnegative("revision", obj.get("revision"))
