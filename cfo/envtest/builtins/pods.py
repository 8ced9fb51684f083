"""Pods and pod templates: defaults, and the rules that workloads share.

:func:`template_defaults` and :func:`pod_spec_errors` serve all kinds that have a pod template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cfo.envtest.builtins.strategy import BuiltinStrategy
from cfo.envtest.builtins.texts import config_key, env_name, nonnegative, port_name, port_number
from cfo.envtest.context import RequestContext
from cfo.envtest.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    key,
    not_found,
    not_supported,
    required,
)
from cfo.envtest.metadata import dns_label, dns_subdomain, label_value, qualified_name
from cfo.envtest.schema.quantity import parse_quantity
from cfo.envtest.schema.shaping import copy_json
from cfo.runtime.objects import Object

__all__ = ["PodStrategy", "image_pull_policy", "pod_spec_errors", "template_defaults", "template_errors"]

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_NO_EXECUTE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MUTABLE_FIELDS = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")


def image_pull_policy(image: str) -> str:
    """``Always`` for the tag ``latest``, which is also the one that is not written."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "IfNotPresent" if digest or (tag and tag != "latest") else "Always"


def template_defaults(spec: Object) -> None:
    """The defaults of a PodSpec, in a pod and in a template."""
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
    if spec.get("hostNetwork"):
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            for port in container.get("ports") or ():
                port.setdefault("hostPort", port.get("containerPort"))
    for constraint in spec.get("topologySpreadConstraints") or ():
        constraint.setdefault("nodeAffinityPolicy", "Honor") if "nodeAffinityPolicy" in constraint else None


def _all_containers(spec: Mapping[str, Any]) -> Iterator[Object]:
    for name in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(name) or ()


def _volume_defaults(volume: Object) -> None:
    if len(volume) <= 1:
        volume["emptyDir"] = {}
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        if name in volume:
            volume[name].setdefault("defaultMode", 420)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _field_ref_defaults(item)
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _field_ref_defaults(item)
    if "iscsi" in volume:
        volume["iscsi"].setdefault("iscsiInterface", "default")
    if "rbd" in volume:
        for name, value in (("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")):
            volume["rbd"].setdefault(name, value)
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim is not None:
        claim["spec"].setdefault("volumeMode", "Filesystem")
    if "image" in volume:
        volume["image"].setdefault("pullPolicy", image_pull_policy(volume["image"].get("reference") or ""))


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
    """See :class:`~cfo.envtest.strategy.Strategy`."""

    returns_deleted_object = True
    has_spec_generation = True
    kept_by_status = ("ownerReferences",)

    def set_defaults(self, obj: Object) -> None:
        """Those of the spec, and those that a pod alone has."""
        spec = obj["spec"]
        template_defaults(spec)
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            resources = container.setdefault("resources", {})
            for name, value in (resources.get("limits") or {}).items():
                resources.setdefault("requests", {}).setdefault(name, value)
        spec.setdefault("enableServiceLinks", True)
        status = obj["status"]
        if status.get("podIP") and (status.get("podIPs") or [{}])[0].get("ip") != status["podIP"]:
            status["podIPs"] = [{"ip": status["podIP"]}]
        elif status.get("podIPs") and not status.get("podIP"):
            status["podIP"] = status["podIPs"][0].get("ip")

    def grace_period(self, obj: Object, requested: int | None) -> int | None:
        """See :meth:`Strategy.grace_period`: pods that run nowhere, or no longer, go at once."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        seconds = requested if requested is not None else spec.get("terminationGracePeriodSeconds") or 0
        if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
            return 0
        return 1 if seconds < 0 else int(seconds)

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """Phase and QoS class; what admission plugins of the real server add to every pod."""
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

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """The errors of a pod."""
        if ctx.subresource == "status":
            return
        yield from pod_spec_errors(obj["spec"], "spec")
        if old is not None and not ctx.subresource:
            yield from _change_errors(obj["spec"], old["spec"])


def _tolerates(toleration: Mapping[str, Any], taint: str) -> bool:
    key_matches = toleration.get("key") in (None, "", taint)
    return key_matches and toleration.get("effect") in (None, "", "NoExecute")


def _qos_class(spec: Mapping[str, Any]) -> str:
    """Guaranteed, Burstable or BestEffort, from the requests and limits of cpu and memory."""
    requests: set[str] = set()
    guaranteed = True
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        limits, wanted = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            if name in wanted or name in limits:
                requests.add(name)
            if name not in limits or wanted.get(name, limits[name]) != limits[name]:
                guaranteed = False
    if not requests:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _change_errors(new: Object, old: Object) -> Iterator[FieldError]:
    """What an update of a pod may change: images, the deadline, and more tolerations."""
    if len(new.get("containers") or ()) != len(old.get("containers") or ()):
        yield forbidden("spec.containers", "pod updates may not add or remove containers")
        return
    if len(new.get("initContainers") or ()) != len(old.get("initContainers") or ()):
        yield forbidden("spec.initContainers", "pod updates may not add or remove containers")
        return
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
    for position, toleration in enumerate(old.get("tolerations") or ()):
        kept = any(_same_toleration(toleration, each) for each in new.get("tolerations") or ())
        if not kept:
            text = "existing toleration can not be modified except its tolerationSeconds"
            yield forbidden("spec.tolerations", text)
            del position
            return
    restored = copy_json(new)
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
            "spec", f"pod updates may not change fields other than {_MUTABLE_FIELDS}\n{_difference(restored, old)}"
        )


def _same_toleration(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return all(a.get(name) == b.get(name) for name in ("key", "operator", "value", "effect"))


def _difference(new: Mapping[str, Any], old: Mapping[str, Any]) -> str:
    """The fields that differ, one a line."""
    names = sorted(name for name in new.keys() | old.keys() if new.get(name) != old.get(name))
    return "\n".join(f"  {name}" for name in names)


def template_errors(
    template: Mapping[str, Any], path: str, *, restart_policies: Sequence[str] = ("Always",)
) -> Iterator[FieldError]:
    """The errors of a pod template: metadata, and a spec that ends as the kind wants it to."""
    metadata = template.get("metadata") or {}
    for name, value in (metadata.get("labels") or {}).items():
        for problem in qualified_name(name):
            yield invalid(f"{path}.labels", name, problem)
        for problem in label_value(value):
            yield invalid(f"{path}.labels", value, problem)
    for name in metadata.get("annotations") or {}:
        for problem in qualified_name(name.lower()):
            yield invalid(f"{path}.annotations", name, problem)
    yield from pod_spec_errors(template.get("spec") or {}, f"{path}.spec")
    if (template.get("spec") or {}).get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        yield forbidden(f"{path}.spec.ephemeralContainers", text)
    del restart_policies


def pod_spec_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """The errors of a PodSpec."""
    volumes = [volume.get("name") or "" for volume in spec.get("volumes") or ()]
    yield from _volume_errors(spec.get("volumes") or (), f"{path}.volumes")
    containers = spec.get("containers") or ()
    if not containers:
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for name in ("containers", "initContainers"):
        for position, container in enumerate(spec.get(name) or ()):
            yield from _container_errors(container, f"{path}.{name}[{position}]", volumes, seen)
    policy = spec.get("restartPolicy") or ""
    if not policy:
        yield required(f"{path}.restartPolicy")
    elif policy not in RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, RESTART_POLICIES)
    dns = spec.get("dnsPolicy")
    if dns and dns not in _DNS_POLICIES:
        yield not_supported(f"{path}.dnsPolicy", dns, _DNS_POLICIES)
    if dns == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield required(f"{path}.dnsConfig.nameservers", text)
    yield from _reference_errors(spec, path)
    yield from _toleration_errors(spec.get("tolerations") or (), f"{path}.tolerations")
    for name, value in (spec.get("nodeSelector") or {}).items():
        for problem in qualified_name(name):
            yield invalid(f"{path}.nodeSelector", name, problem)
        for problem in label_value(value):
            yield invalid(f"{path}.nodeSelector", value, problem)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    yield from nonnegative(f"{path}.terminationGracePeriodSeconds", spec.get("terminationGracePeriodSeconds"))


def _reference_errors(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name, rule in (
        ("serviceAccountName", dns_subdomain),
        ("nodeName", dns_subdomain),
        ("priorityClassName", dns_subdomain),
        ("runtimeClassName", dns_subdomain),
        ("hostname", dns_label),
        ("subdomain", dns_label),
    ):
        for problem in rule(spec[name]) if spec.get(name) else ():
            yield invalid(f"{path}.{name}", spec[name], problem)


def _volume_errors(volumes: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, volume in enumerate(volumes):
        where, name = f"{path}[{position}]", volume.get("name") or ""
        if not name:
            yield required(f"{where}.name")
        elif problems := dns_label(name):
            for problem in problems:
                yield invalid(f"{where}.name", name, problem)
        elif name in seen:
            yield duplicate(f"{where}.name", name)
        seen.add(name)
        sources = [each for each in volume if each != "name"]
        for extra in sources[1:]:
            yield forbidden(f"{where}.{extra}", "may not specify more than 1 volume type")
        if "secret" in volume and not volume["secret"].get("secretName"):
            yield required(f"{where}.secret.secretName")
        if "configMap" in volume and not volume["configMap"].get("name"):
            yield required(f"{where}.configMap.name")
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and not claim.get("claimName"):
            yield required(f"{where}.persistentVolumeClaim.claimName")
        if "hostPath" in volume and not volume["hostPath"].get("path"):
            yield required(f"{where}.hostPath.path")


def _container_errors(
    container: Mapping[str, Any], path: str, volumes: Sequence[str], seen: set[str]
) -> Iterator[FieldError]:
    name = container.get("name") or ""
    if not name:
        yield required(f"{path}.name")
    else:
        for problem in dns_label(name):
            yield invalid(f"{path}.name", name, problem)
        if name in seen:
            yield duplicate(f"{path}.name", name)
    seen.add(name)
    image = container.get("image") or ""
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    policies = ("Always", "IfNotPresent", "Never")
    if container.get("imagePullPolicy") not in policies:
        yield not_supported(f"{path}.imagePullPolicy", container.get("imagePullPolicy") or "", policies)
    if container.get("terminationMessagePolicy") not in ("File", "FallbackToLogsOnError"):
        policy = container.get("terminationMessagePolicy") or ""
        yield not_supported(f"{path}.terminationMessagePolicy", policy, ("FallbackToLogsOnError", "File"))
    yield from _port_errors(container.get("ports") or (), f"{path}.ports")
    yield from _env_errors(container.get("env") or (), f"{path}.env")
    yield from _mount_errors(container.get("volumeMounts") or (), f"{path}.volumeMounts", volumes)
    yield from _resource_errors(container.get("resources") or {}, f"{path}.resources")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            yield from _probe_errors(container[probe], f"{path}.{probe}")


def _port_errors(ports: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for position, port in enumerate(ports):
        where, name, number = f"{path}[{position}]", port.get("name") or "", port.get("containerPort") or 0
        if name:
            problems = port_name(name)
            for problem in problems:
                yield invalid(f"{where}.name", name, problem)
            if not problems and name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
        if not number:
            yield required(f"{where}.containerPort")
        else:
            for problem in port_number(number):
                yield invalid(f"{where}.containerPort", number, problem)
        if port.get("hostPort"):
            for problem in port_number(port["hostPort"]):
                yield invalid(f"{where}.hostPort", port["hostPort"], problem)
        if not port.get("protocol"):
            yield required(f"{where}.protocol")
        elif port["protocol"] not in ("TCP", "UDP", "SCTP"):
            yield not_supported(f"{where}.protocol", port["protocol"], ("SCTP", "TCP", "UDP"))


def _env_errors(variables: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    for position, variable in enumerate(variables):
        where, name, source = f"{path}[{position}]", variable.get("name") or "", variable.get("valueFrom")
        if not name:
            yield required(f"{where}.name")
        for problem in env_name(name):
            yield invalid(f"{where}.name", name, problem)
        if source is None:
            continue
        if len(source) == 0:
            text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
            yield invalid(f"{where}.valueFrom", "", text)
        elif len(source) > 1:
            yield invalid(f"{where}.valueFrom", "", "may not have more than one field specified at a time")
        elif variable.get("value"):
            yield invalid(f"{where}.valueFrom", "", "may not be specified when `value` is not empty")
        for kind in ("configMapKeyRef", "secretKeyRef"):
            if kind in source:
                if not source[kind].get("key"):
                    yield required(f"{where}.valueFrom.{kind}.key")
                else:
                    for problem in config_key(source[kind]["key"]):
                        yield invalid(f"{where}.valueFrom.{kind}.key", source[kind]["key"], problem)


def _mount_errors(mounts: Sequence[Mapping[str, Any]], path: str, volumes: Sequence[str]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, mount in enumerate(mounts):
        where, name, target = f"{path}[{position}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{where}.name")
        if name not in volumes:
            yield not_found(f"{where}.name", name)
        if not target:
            yield required(f"{where}.mountPath")
        if target in seen:
            yield invalid(f"{where}.mountPath", target, "must be unique")
        seen.add(target)


def _resource_errors(resources: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, quantities in (("limits", limits), ("requests", requests)):
        for name, quantity in quantities.items():
            where = key(f"{path}.{kind}", name)
            yield from _resource_name_errors(name, where)
            if parse_quantity(quantity).value < 0:
                yield invalid(where, quantity, "must be greater than or equal to 0")
    for name, quantity in requests.items():
        if name not in limits:
            continue
        standard = name in _STANDARD_RESOURCES
        if standard and parse_quantity(quantity).value > parse_quantity(limits[name]).value:
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            yield invalid(f"{path}.requests", quantity, text)
        elif not standard and parse_quantity(quantity).value != parse_quantity(limits[name]).value:
            text = f"must be equal to {name} limit of {limits[name]}"
            yield invalid(f"{path}.requests", quantity, text)


def _resource_name_errors(name: str, path: str) -> Iterator[FieldError]:
    for problem in qualified_name(name):
        yield invalid(path, name, problem)
    if "/" in name or name in _STANDARD_RESOURCES or name.startswith("hugepages-"):
        return
    yield invalid(path, name, "must be a standard resource type or fully qualified")
    yield invalid(path, name, "must be a standard resource for containers")


def _probe_errors(probe: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    handlers = [name for name in _HANDLERS if name in probe]
    if not handlers:
        yield required(path, "must specify a handler type")
    for extra in handlers[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    for kind in ("httpGet", "tcpSocket"):
        if kind in probe:
            port = probe[kind].get("port", 0)
            for problem in port_number(port) if isinstance(port, int) else port_name(port):
                yield invalid(f"{path}.{kind}.port", port, problem)
    names = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    for name in names:
        yield from nonnegative(f"{path}.{name}", probe.get(name))


def _toleration_errors(tolerations: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    for position, toleration in enumerate(tolerations):
        where, operator = f"{path}[{position}]", toleration.get("operator") or ""
        if toleration.get("key"):
            for problem in qualified_name(toleration["key"]):
                yield invalid(f"{where}.key", toleration["key"], problem)
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(f"{where}.operator", operator, text)
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{where}.effect", toleration.get("effect") or "", text)
        if operator in ("", "Equal"):
            for problem in label_value(toleration.get("value") or ""):
                yield invalid(f"{where}.operator", toleration.get("value"), problem)
        elif operator == "Exists":
            if toleration.get("value"):
                text = "value must be empty when `operator` is 'Exists'"
                yield invalid(f"{where}.operator", {**toleration}, text)
        else:
            yield not_supported(f"{where}.operator", operator, ("Equal", "Exists"))
        effect = toleration.get("effect")
        if effect and effect not in _EFFECTS:
            yield not_supported(f"{where}.effect", effect, _EFFECTS)


Errors = Callable[..., Iterable[FieldError]]
