"""Strategy of v1 Pod, with the pod spec defaults that templates share, and the rules for updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.apimachinery.field_errors import FieldError, key
from envtest.apimachinery.objects import Object
from envtest.builtins.image_names import image_pull_policy
from envtest.builtins.pod_resize import (
    ephemeral_container_change_errors,
    keep_ephemeral_containers,
    keep_resources,
    resize_errors,
)
from envtest.builtins.pod_resources import (
    qos_class,
    set_pod_resource_defaults,
    set_resource_defaults,
)
from envtest.builtins.pod_rules import pod_only_errors
from envtest.builtins.pod_status_rules import pod_status_errors
from envtest.builtins.pod_updates import APP_ARMOR, annotation_change_errors, pod_change_errors
from envtest.builtins.pod_warnings import pod_warnings
from envtest.builtins.strategy import BuiltinStrategy
from envtest.registry.resource import RequestContext

__all__ = [
    "PodStrategy",
    "merge_label_keys",
    "source_defaults",
    "template_defaults",
]

_NO_EXECUTE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))


def template_defaults(spec: Object) -> None:
    """Set the defaults of a PodSpec that pods and templates share."""
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = account
        spec["serviceAccount"] = account
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
        volume["image"].setdefault(
            "pullPolicy", image_pull_policy(volume["image"].get("reference") or "")
        )


_SOURCES: Mapping[str, Mapping[str, Any]] = {
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {
        "cachingMode": "ReadWrite",
        "fsType": "ext4",
        "kind": "Shared",
        "readOnly": False,
    },
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
    for name, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
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

    def set_defaults(self, obj: Object) -> None:
        """Set the defaults of the pod spec, and the defaults that only pods have."""
        spec = obj["spec"]
        template_defaults(spec)
        if spec["terminationGracePeriodSeconds"] < 0:
            spec["terminationGracePeriodSeconds"] = 1
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            set_resource_defaults(container.setdefault("resources", {}))
            if spec.get("hostNetwork"):
                for port in container.get("ports") or ():
                    port.setdefault("hostPort", port.get("containerPort"))
        set_pod_resource_defaults(spec)
        spec.setdefault("enableServiceLinks", True)
        status = obj["status"]
        if status.get("podIP") and (status.get("podIPs") or [{}])[0].get("ip") != status["podIP"]:
            status["podIPs"] = [{"ip": status["podIP"]}]
        elif status.get("podIPs") and not status.get("podIP"):
            status["podIP"] = status["podIPs"][0].get("ip")

    def grace_period(self, obj: Object, requested: int | None) -> int | None:
        """See :meth:`Strategy.grace_period`: unscheduled and finished pods are deleted immediately."""
        spec = obj.get("spec") or {}
        status = obj.get("status") or {}
        seconds = (
            requested if requested is not None else spec.get("terminationGracePeriodSeconds") or 0
        )
        if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
            return 0
        return 1 if seconds < 0 else int(seconds)

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Set the phase and QoS class, and the values that kube-apiserver's default admission plugins set."""
        spec = obj["spec"]
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        tolerations = spec.get("tolerations") or []
        for taint in _NO_EXECUTE:
            if not any(_tolerates(each, taint) for each in tolerations):
                entry = {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                tolerations = [*tolerations, entry]
        spec["tolerations"] = tolerations
        merge_label_keys(spec, obj["metadata"].get("labels") or {})
        if any(spec.get("schedulingGates") or ()):
            gate = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "lastProbeTime": None,
            }
            gate |= {
                "lastTransitionTime": ctx.now,
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
            obj["status"]["conditions"] = [gate]
        _set_app_armor_profiles(obj, ctx)

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`."""
        super().prepare_update(new, old, ctx)
        if ctx.subresource == "ephemeralcontainers":
            keep_ephemeral_containers(new, old)
        elif ctx.subresource == "resize":
            keep_resources(new, old)
        elif ctx.subresource == "status":
            new["status"].setdefault(
                "qosClass", (old.get("status") or {}).get("qosClass", "BestEffort")
            )

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: only on creation, because pods are updated often."""
        return list(pod_warnings(obj)) if old is None else ()

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of a pod."""
        if ctx.subresource == "status":
            assert old is not None
            yield from pod_status_errors(obj, old)
            return
        yield from pod_only_errors(obj, new=old is None)
        if old is None:
            return
        yield from annotation_change_errors(obj["metadata"], old["metadata"])
        match ctx.subresource:
            case "":
                yield from pod_change_errors(obj["spec"], old["spec"])
            case "ephemeralcontainers":
                yield from ephemeral_container_change_errors(obj, old)
            case "resize":
                yield from resize_errors(obj, old)


_APP_ARMOR_TYPES = {"unconfined": "Unconfined", "runtime/default": "RuntimeDefault"}


def _set_app_armor_profiles(pod: Object, ctx: RequestContext) -> None:
    """Set the AppArmor profiles of containers from the deprecated annotations, with a warning for each."""
    annotations = pod["metadata"].get("annotations") or {}
    spec = pod["spec"]
    if (spec.get("os") or {}).get("name") == "windows" or not any(
        name.startswith(APP_ARMOR) for name in annotations
    ):
        return
    for container in _all_containers(spec):
        name = f"{APP_ARMOR}{container.get('name')}"
        value = annotations.get(name)
        if (
            value is None
            or (container.get("securityContext") or {}).get("appArmorProfile") is not None
        ):
            continue
        if value in _APP_ARMOR_TYPES:
            profile = {"type": _APP_ARMOR_TYPES[value]}
        elif value.startswith("localhost/"):
            profile = {"type": "Localhost", "localhostProfile": value.removeprefix("localhost/")}
        else:
            continue
        container["securityContext"] = {
            **(container.get("securityContext") or {}),
            "appArmorProfile": profile,
        }
        ctx.warn(
            f'{key("metadata.annotations", name)}: deprecated since v1.30; use the "appArmorProfile" field instead'
        )


def _tolerates(toleration: Mapping[str, Any], taint: str) -> bool:
    key_matches = toleration.get("key") in (None, "", taint)
    return key_matches and toleration.get("effect") in (None, "", "NoExecute")


def merge_label_keys(spec: Object, labels: Mapping[str, str]) -> None:
    """Complete the selectors of affinity and spread constraints with the pod's ``labels`` (``matchLabelKeys``)."""
    for term in _terms(spec):
        selector = term.get("labelSelector")
        if selector is None:
            continue
        for kind, operator in _OPERATORS:
            for name in term.get(kind) or ():
                if name in labels:
                    expression = {"key": name, "operator": operator, "values": [labels[name]]}
                    selector.setdefault("matchExpressions", []).append(expression)


def _terms(spec: Object) -> Iterator[Any]:
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(kind) or {}
        yield from affinity.get(_REQUIRED) or ()
        for each in affinity.get(_PREFERRED) or ():
            yield each.get("podAffinityTerm") or {}
    yield from spec.get("topologySpreadConstraints") or ()
