"""Strategy of v1 Pod, with the pod spec defaults that templates share, and the rules for updates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.builtins.go_rendering import difference
from envtest.builtins.pod_rules import pod_spec_errors
from envtest.builtins.pod_warnings import pod_warnings
from envtest.builtins.strategy import BuiltinStrategy
from envtest.context import RequestContext
from envtest.field_errors import FieldError, forbidden, invalid, required
from envtest.objects import Object
from envtest.schema.shaping import copy_json

__all__ = ["PodStrategy", "image_pull_policy", "source_defaults", "template_defaults"]

_REPOSITORY = re.compile(r"{0}(/{0})*".format(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"))
_NO_EXECUTE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MUTABLE_FIELDS = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)


def image_pull_policy(image: str) -> str:
    """Return ``Always`` for the tag ``latest``, which is also the default tag, and ``IfNotPresent`` otherwise.

    A reference that cannot be parsed has no tag.
    """
    name, _, digest = image.partition("@")
    domain, slash, path = name.partition("/")
    if not slash or not (domain == "localhost" or "." in domain or ":" in domain or domain != domain.lower()):
        path = name
    if not _REPOSITORY.fullmatch(path.partition(":")[0]):
        return "IfNotPresent"
    tag = name.rpartition("/")[2].partition(":")[2]
    return "IfNotPresent" if digest or (tag and tag != "latest") else "Always"


def template_defaults(spec: Object) -> None:
    """Set the defaults of a PodSpec that pods and templates share."""
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in spec.get("volumes") or ():
        _volume_defaults(volume)
    for container in _all_containers(spec):
        _container_defaults(container)


def _all_containers(spec: Mapping[str, Any]) -> Iterator[Object]:
    for name in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(name) or ()


def _volume_defaults(volume: Object) -> None:
    if len(volume) <= 1:
        volume["emptyDir"] = {}
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        if name in volume:
            volume[name].setdefault("defaultMode", 420)
    source_defaults(volume)
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _field_ref_defaults(item)
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _field_ref_defaults(item)
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim is not None:
        claim["spec"].setdefault("volumeMode", "Filesystem")
    if "image" in volume:
        volume["image"].setdefault("pullPolicy", image_pull_policy(volume["image"].get("reference") or ""))


_SOURCES: Mapping[str, Mapping[str, Any]] = {
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "kind": "Shared", "readOnly": False},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def source_defaults(volume: Object) -> None:
    """Set the defaults of the volume sources that pods and persistent volumes share."""
    for source in _SOURCES.keys() & volume.keys():
        for name, value in _SOURCES[source].items():
            volume[source].setdefault(name, value)


def _field_ref_defaults(item: Object) -> None:
    if "fieldRef" in item:
        item["fieldRef"].setdefault("apiVersion", "v1")


def _container_defaults(container: Object) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", image_pull_policy(container.get("image") or ""))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        if "valueFrom" in variable:
            _field_ref_defaults(variable["valueFrom"])
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe_defaults(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _handler_defaults(hook)


def _probe_defaults(probe: Object) -> None:
    for name, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not probe.get(name):
            probe[name] = value
    _handler_defaults(probe)


def _handler_defaults(handler: Object) -> None:
    if "httpGet" in handler:
        handler["httpGet"].setdefault("path", "/")
        handler["httpGet"].setdefault("scheme", "HTTP")
    if "grpc" in handler and handler["grpc"].get("service") is None:
        handler["grpc"]["service"] = ""


class PodStrategy(BuiltinStrategy):
    """Strategy of v1 Pod."""

    has_spec_generation = True
    metadata_kept_by_status = ("ownerReferences",)

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults of the pod spec, and the defaults that only pods have."""
        spec = obj["spec"]
        template_defaults(spec)
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            resources = container.setdefault("resources", {})
            for name, value in (resources.get("limits") or {}).items():
                resources.setdefault("requests", {}).setdefault(name, value)
            if spec.get("hostNetwork"):
                for port in container.get("ports") or ():
                    port.setdefault("hostPort", port.get("containerPort"))
        spec.setdefault("enableServiceLinks", True)
        status = obj["status"]
        if status.get("podIP") and (status.get("podIPs") or [{}])[0].get("ip") != status["podIP"]:
            status["podIPs"] = [{"ip": status["podIP"]}]
        elif status.get("podIPs") and not status.get("podIP"):
            status["podIP"] = status["podIPs"][0].get("ip")

    def grace_period(self, obj: Object, requested: int | None) -> int | None:
        """See :meth:`Strategy.grace_period`: unscheduled and finished pods are deleted immediately."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        seconds = requested if requested is not None else spec.get("terminationGracePeriodSeconds") or 0
        if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
            return 0
        return 1 if seconds < 0 else int(seconds)

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Set the phase and QoS class, and the values that kube-apiserver's default admission plugins set."""
        spec = obj["spec"]
        obj["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        tolerations = spec.get("tolerations") or []
        for taint in _NO_EXECUTE:
            if not any(_tolerates(each, taint) for each in tolerations):
                entry = {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                tolerations = [*tolerations, entry]
        spec["tolerations"] = tolerations
        if any(spec.get("schedulingGates") or ()):
            gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": None}
            gate |= {"lastTransitionTime": None, "message": "Scheduling is blocked due to non-empty scheduling gates"}
            obj["status"]["conditions"] = [gate]

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`."""
        super().prepare_update(new, old, ctx)
        if ctx.subresource == "status":
            new["status"].setdefault("qosClass", (old.get("status") or {}).get("qosClass", "BestEffort"))

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: only on creation, because pods are updated often."""
        return list(pod_warnings(obj)) if old is None else ()

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of a pod."""
        if ctx.subresource == "status":
            return
        yield from pod_spec_errors(obj["spec"], "spec")
        if old is not None and not ctx.subresource:
            yield from _change_errors(obj["spec"], old["spec"])


def _tolerates(toleration: Mapping[str, Any], taint: str) -> bool:
    key_matches = toleration.get("key") in (None, "", taint)
    return key_matches and toleration.get("effect") in (None, "", "NoExecute")


def _qos_class(spec: Mapping[str, Any]) -> str:
    """Return Guaranteed, Burstable or BestEffort, from the requests and limits of cpu and memory."""
    requests: set[str] = set()
    guaranteed = True
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        limits, container_requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            if name in container_requests or name in limits:
                requests.add(name)
            if name not in limits or container_requests.get(name, limits[name]) != limits[name]:
                guaranteed = False
    if not requests:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _change_errors(new: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of an update, which may only change images and the deadline, and add tolerations."""
    if len(new.get("containers") or ()) != len(old.get("containers") or ()):
        yield forbidden("spec.containers", "pod updates may not add or remove containers")
        return
    if len(new.get("initContainers") or ()) != len(old.get("initContainers") or ()):
        yield forbidden("spec.initContainers", "pod updates may not add or remove containers")
        return
    for name in ("containers", "initContainers"):
        for position, container in enumerate(new.get(name) or ()):
            path, image = f"spec.{name}[{position}].image", container.get("image") or ""
            if not image:
                yield required(path)
            elif image != image.strip():
                yield invalid(path, image, "must not have leading or trailing whitespace")
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if after is not None:
        if not 0 <= after <= 2**31 - 1:
            yield invalid("spec.activeDeadlineSeconds", after, "must be between 0 and 2147483647, inclusive")
            return
        if before is not None and after > before:
            text = "must be less than or equal to previous value"
            yield invalid("spec.activeDeadlineSeconds", after, text)
            return
    elif before is not None:
        yield invalid("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")
    for toleration in old.get("tolerations") or ():
        kept = any(_same_toleration(toleration, each) for each in new.get("tolerations") or ())
        if not kept:
            text = "existing toleration can not be modified except its tolerationSeconds"
            yield forbidden("spec.tolerations", text)
            break
    had_gates = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for position, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in had_gates:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name') or ''}'"
            yield forbidden(f"spec.schedulingGates[{position}].name", text)
    restored = copy_json(new)
    if had_gates:
        yield from _gated_change_errors(restored, old)
    for name in ("containers", "initContainers"):
        for container, previous in zip(restored.get(name) or (), old.get(name) or (), strict=True):
            container["image"] = previous.get("image")
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        if name in old:
            restored[name] = old[name]
        else:
            restored.pop(name, None)
    if old.get("terminationGracePeriodSeconds", 0) < 0 and new.get("terminationGracePeriodSeconds") == 1:
        restored["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"]
    if restored != old:
        yield forbidden(
            "spec", f"pod updates may not change fields other than {_MUTABLE_FIELDS}\n{difference(old, restored)}"
        )


def _gated_change_errors(new: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of the scheduling fields that a pod with scheduling gates may narrow; set them as in ``old``."""
    selector = old.get("nodeSelector") or {}
    if any((new.get("nodeSelector") or {}).get(key) != value for key, value in selector.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid("spec.nodeSelector", new.get("nodeSelector"), text)
    _restore(new, old, "nodeSelector")
    node_affinity = (old.get("affinity") or {}).get("nodeAffinity")
    affinity = new.get("affinity")
    if (affinity or {}).get("nodeAffinity") == node_affinity:
        return
    yield from _node_affinity_errors((affinity or {}).get("nodeAffinity") or {}, node_affinity or {})
    if affinity is None:
        new["affinity"] = {"nodeAffinity": node_affinity}
        return
    _restore(affinity, old.get("affinity") or {}, "nodeAffinity")
    if "affinity" not in old and not affinity:
        del new["affinity"]


def _restore(new: Object, old: Mapping[str, Any], name: str) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _node_affinity_errors(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of a changed node affinity: expressions may be added to required terms; the rest may change."""
    before = (old.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    after = (new.get(_REQUIRED) or {}).get("nodeSelectorTerms")
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if before and len(before) != len(after or ()):
        yield invalid(path, after, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        return
    for position, (term, earlier) in enumerate(zip(after or (), before, strict=False)):
        if not _only_adds(term, earlier):
            yield invalid(f"{path}[{position}]", term, "only additions are allowed (no mutations or deletions)")


def _only_adds(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    parts = [(new.get(name) or [], old.get(name) or []) for name in ("matchExpressions", "matchFields")]
    if not any(old_part for _, old_part in parts):  # an empty term matches nothing; an expression would widen it
        return not any(new_part for new_part, _ in parts)
    return all(new_part[: len(old_part)] == old_part for new_part, old_part in parts)


def _same_toleration(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return all(a.get(name) == b.get(name) for name in ("key", "operator", "value", "effect"))
