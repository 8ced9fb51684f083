"""Rules for ``spec.flux`` and ``spec.pod``, which MiniClusters, FluxJobs and FluxSetups have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.flux.validation.syntax import (
    annotation_errors,
    between,
    choice,
    dns_label,
    dns_subdomain,
    environment_errors,
    label_errors,
    selector_errors,
)
from cfo.runtime import FieldError
from cfo.runtime.objects.field import Path, forbidden, invalid, not_supported, required, too_many

__all__ = ["flux_errors", "pod_errors"]

MAX_BURSTED_CLUSTERS: Final = 100
"""The maximum number of bursted clusters, which limits the host list."""

_MAX_PORT: Final = 65535
_MAX_BROKERS: Final = 1_000_000
_DURATION: Final = re.compile(r"([0-9]{1,15}(\.[0-9]{0,9})?(ms|[smhd])?)?")
_TOPOLOGIES: Final = ("flat", "kary:K", "binomial", "mincrit", "mincrit:K", "custom")
_TOPOLOGY: Final = re.compile(r"flat|kary:[0-9]{1,6}|binomial|mincrit(:[0-9]{1,6})?|custom")
_MOUNT_PATH: Final = re.compile(r"/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*/?")
_SCRIPT: Final = re.compile(r"(wait|start)-[0-9]+")
_POLICIES: Final = ("fcfs", "easy", "conservative", "hybrid")
_MAX_PATH: Final = 1024
_MOUNT_PATH_RULE: Final = "must be an absolute path of letters, digits, '.', '_' and '-', without '..'"
_LOG_LEVELS: Final = (0, 7)


def flux_errors(flux: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in the installation and the configuration of Flux."""
    yield from _init_container_errors(flux.get("container") or {}, path.child("container"))
    yield from _bursting_errors(flux.get("bursting") or {}, path.child("bursting"))
    yield from between(path.child("logLevel"), flux.get("logLevel"), *_LOG_LEVELS)
    timeout = flux.get("connectTimeout") or ""
    if not _DURATION.fullmatch(timeout):
        yield invalid(path.child("connectTimeout"), timeout, "must be a duration such as 500ms, 5s or 1.5m")
    topology = flux.get("topology") or ""
    if topology and not _TOPOLOGY.fullmatch(topology):
        yield not_supported(path.child("topology"), topology, _TOPOLOGIES)
    scheduler = flux.get("scheduler") or {}
    yield from choice(path.child("scheduler", "queuePolicy"), scheduler.get("queuePolicy"), _POLICIES)
    yield from environment_errors(path.child("environment"), flux.get("environment") or {}, exported=True)


def _init_container_errors(container: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    if name := container.get("name"):
        yield from dns_label(path.child("name"), name)
        if _SCRIPT.fullmatch(name):
            yield invalid(path.child("name"), name, "the name is used by the operator")
    if "image" in container and not container["image"]:
        yield required(path.child("image"))
    mount = container.get("mountPath")
    if mount and (len(mount) > _MAX_PATH or not _MOUNT_PATH.fullmatch(mount) or ".." in mount.split("/")):
        yield invalid(path.child("mountPath"), mount, _MOUNT_PATH_RULE)
    if secret := container.get("imagePullSecret"):
        yield from dns_subdomain(path.child("imagePullSecret"), secret)


def _bursting_errors(bursting: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    clusters, at = bursting.get("clusters") or [], path.child("clusters")
    if clusters and bursting.get("hostlist"):
        yield forbidden(path.child("hostlist"), "must not be set together with clusters")
    if len(clusters) > MAX_BURSTED_CLUSTERS:
        yield too_many(at, len(clusters), MAX_BURSTED_CLUSTERS)
        return
    for index, cluster in enumerate(clusters):
        if name := cluster.get("name"):
            yield from dns_label(at.index(index).child("name"), name)
        yield from between(at.index(index).child("size"), cluster.get("size"), 0, _MAX_BROKERS)
    if (hosts := bursting.get("hostlist") or "") and not hosts.isprintable():
        yield invalid(path.child("hostlist"), hosts, "must be one line")
    if lead := bursting.get("leadBroker"):
        at = path.child("leadBroker")
        yield from dns_subdomain(at.child("address"), lead.get("address") or "")
        yield from dns_label(at.child("name"), lead.get("name") or "")
        yield from between(at.child("size"), lead.get("size"), 1, _MAX_BROKERS)
        yield from between(at.child("port"), lead.get("port"), 1, _MAX_PORT)


def pod_errors(pod: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in the options of the pods."""
    yield from label_errors(path.child("labels"), pod.get("labels"))
    yield from annotation_errors(path.child("annotations"), pod.get("annotations"))
    yield from label_errors(path.child("nodeSelector"), pod.get("nodeSelector"))
    for key, values in (pod.get("nodeAffinity") or {}).items():
        expression = {"key": key, "operator": "In", "values": values}
        for error in selector_errors(path.child("nodeAffinity").key(key), {"matchExpressions": [expression]}):
            yield error._replace(value=values)
    yield from choice(path.child("restartPolicy"), pod.get("restartPolicy"), ("OnFailure", "Never"))
    policies = ("ClusterFirst", "ClusterFirstWithHostNet", "Default")
    yield from choice(path.child("dnsPolicy"), pod.get("dnsPolicy"), policies)
    for name in ("serviceAccountName", "runtimeClassName", "schedulerName"):
        if value := pod.get(name):
            yield from dns_subdomain(path.child(name), value)
    if pod.get("resources") and not pod.get("runtimeClassName"):
        yield forbidden(path.child("resources"), "the overhead of pods needs a runtimeClassName that defines it")
    for index, toleration in enumerate(pod.get("tolerations") or ()):
        yield from _toleration_errors(toleration, path.child("tolerations").index(index))


def _toleration_errors(toleration: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    operator = toleration.get("operator") or "Equal"
    yield from choice(path.child("operator"), operator, ("Exists", "Equal"))
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    yield from choice(path.child("effect"), toleration.get("effect"), effects)
    if key := toleration.get("key"):
        yield from label_errors(path.child("key"), {key: ""})
    elif operator != "Exists":
        yield invalid(path.child("operator"), operator, "must be Exists if key is empty")
    if operator == "Exists" and toleration.get("value"):
        yield invalid(path.child("value"), toleration["value"], "must be empty if operator is Exists")
