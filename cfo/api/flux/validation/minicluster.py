"""Rules for MiniClusters, and for ``spec.flux`` and ``spec.pod``, which FluxJobs and FluxSetups have as well."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final

from cfo.api.container_resources import (
    container_byte_warnings,
    fractional_byte_warnings,
    negative_quantity_errors,
    resource_errors,
)
from cfo.api.flux.facts import FOLLOWED_FIELDS, controlling_job, is_true, queue_of
from cfo.api.flux.names import COMMANDS, NOTHING_RESUMES, RESUME_REMEDY, JobState
from cfo.api.flux.validation.containers import (
    MAX_CONTAINERS,
    container_errors,
    service_errors,
    service_name_errors,
)
from cfo.api.flux.validation.syntax import (
    MAX_DNS_LABEL,
    annotation_errors,
    between,
    checked_spec,
    choice,
    dns_label,
    dns_subdomain,
    environment_errors,
    label_errors,
    selector_errors,
    service_name,
)
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.pod_numbers import pod_number_warnings
from cfo.api.reading import mapping, number
from cfo.api.reading import path as value_at
from cfo.runtime import FieldError, Object, labels_of
from cfo.runtime.objects.field import (
    OMIT,
    Path,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)

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
_QUEUE: Final = ("spec", "jobLabels", QUEUE_NAME_LABEL)
_MOUNT_PATH_RULE: Final = (
    "must be an absolute path of letters, digits, '.', '_' and '-', without '..'"
)
_LOG_LEVELS: Final = (0, 7)

MAX_SIZE: Final = 100_000
"""The maximum number of pods: kube-apiserver's maximum parallelism of an Indexed Job."""

MAX_NAME: Final = MAX_DNS_LABEL - len("-entrypoint")
"""The maximum length of a name: the volume ``NAME-entrypoint`` is a DNS label.

The host names ``NAME-INDEX`` are then DNS labels, too, because an index has at most five digits.
"""

MAX_SCRIPTS: Final = 480 * 1024
"""The maximum number of bytes of all commands: the ConfigMap contains some of them twice, and has at most 1 MiB."""

_SPEC: Final = Path("spec")
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_MAX_NUMBERS: Final = {
    "tasks": _MAX_INT32,
    "backoffLimit": _MAX_INT32,
    "deadlineSeconds": _MAX_INT64,
    "ttlSecondsAfterFinished": _MAX_INT32,
}
"""The largest value of each number in the spec that must not be negative."""

_MAX_WARNINGS: Final = 10
_RANDOM_SUFFIX: Final = 5
"""The number of characters that the API server appends to ``generateName``."""


def flux_errors(flux: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in the installation and the configuration of Flux."""
    yield from _init_container_errors(flux.get("container") or {}, path.child("container"))
    yield from _bursting_errors(flux.get("bursting") or {}, path.child("bursting"))
    yield from between(path.child("logLevel"), flux.get("logLevel"), *_LOG_LEVELS)
    timeout = flux.get("connectTimeout") or ""
    if not _DURATION.fullmatch(timeout):
        yield invalid(
            path.child("connectTimeout"), timeout, "must be a duration such as 500ms, 5s or 1.5m"
        )
    topology = flux.get("topology") or ""
    if topology and not _TOPOLOGY.fullmatch(topology):
        yield not_supported(path.child("topology"), topology, _TOPOLOGIES)
    scheduler = flux.get("scheduler") or {}
    yield from choice(
        path.child("scheduler", "queuePolicy"), scheduler.get("queuePolicy"), _POLICIES
    )
    yield from environment_errors(
        path.child("environment"), flux.get("environment") or {}, exported=True
    )


def _init_container_errors(container: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    name = container.get("name")
    if name:
        yield from dns_label(path.child("name"), name)
        if _SCRIPT.fullmatch(name):
            yield invalid(path.child("name"), name, "the name is used by the operator")
    if "image" in container and not container["image"]:
        yield required(path.child("image"))
    mount = container.get("mountPath")
    if mount and not _is_mount_path(mount):
        yield invalid(path.child("mountPath"), mount, _MOUNT_PATH_RULE)
    pull_secret = container.get("imagePullSecret")
    if pull_secret:
        yield from dns_subdomain(path.child("imagePullSecret"), pull_secret)
    yield from resource_errors(container.get("resources") or {}, path.child("resources"))


def _is_mount_path(path: str) -> bool:
    if len(path) > _MAX_PATH or not _MOUNT_PATH.fullmatch(path):
        return False
    return ".." not in path.split("/")


def _bursting_errors(bursting: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    clusters = bursting.get("clusters") or []
    clusters_path = path.child("clusters")
    if clusters and bursting.get("hostlist"):
        yield forbidden(path.child("hostlist"), "must not be set together with clusters")
    if len(clusters) > MAX_BURSTED_CLUSTERS:
        yield too_many(clusters_path, len(clusters), MAX_BURSTED_CLUSTERS)
        return
    for index, cluster in enumerate(clusters):
        at = clusters_path.index(index)
        name = cluster.get("name")
        if name:
            yield from dns_label(at.child("name"), name)
        yield from between(at.child("size"), cluster.get("size"), 0, _MAX_BROKERS)
    hosts = bursting.get("hostlist")
    if hosts and not hosts.isprintable():
        yield invalid(path.child("hostlist"), hosts, "must be one line")
    lead = bursting.get("leadBroker")
    if lead:
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
        at = path.child("nodeAffinity").key(key)
        expression = {"key": key, "operator": "In", "values": values}
        for error in selector_errors(at, {"matchExpressions": [expression]}):
            yield replace(error, value=values)
    yield from choice(path.child("restartPolicy"), pod.get("restartPolicy"), ("OnFailure", "Never"))
    policies = ("ClusterFirst", "ClusterFirstWithHostNet", "Default")
    yield from choice(path.child("dnsPolicy"), pod.get("dnsPolicy"), policies)
    for name in ("serviceAccountName", "runtimeClassName", "schedulerName"):
        value = pod.get(name)
        if value:
            yield from dns_subdomain(path.child(name), value)
    if pod.get("resources") and not pod.get("runtimeClassName"):
        yield forbidden(
            path.child("resources"), "the overhead of pods needs a runtimeClassName that defines it"
        )
    yield from negative_quantity_errors(pod.get("resources"), path.child("resources"))
    for index, toleration in enumerate(pod.get("tolerations") or ()):
        yield from _toleration_errors(toleration, path.child("tolerations").index(index))


def _toleration_errors(toleration: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    operator = toleration.get("operator") or "Equal"
    yield from choice(path.child("operator"), operator, ("Exists", "Equal"))
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    yield from choice(path.child("effect"), toleration.get("effect"), effects)
    key = toleration.get("key")
    if key:
        yield from label_errors(path.child("key"), {key: ""})
    elif operator != "Exists":
        yield invalid(path.child("operator"), operator, "must be Exists if key is empty")
    if operator == "Exists" and toleration.get("value"):
        yield invalid(
            path.child("value"), toleration["value"], "must be empty if operator is Exists"
        )


@checked_spec
def validate_minicluster(obj: Object) -> Iterator[FieldError]:
    """Return the errors in a MiniCluster, at most one more than are reported."""
    yield from name_errors(obj)
    spec = obj.get("spec") or {}
    size = spec.get("size")
    if size is None:
        size = 1
    yield from size_errors(spec, _SPEC, size=size)
    yield from spec_errors(spec, _SPEC, cluster_name(obj))


def minicluster_warnings(obj: Object) -> list[str]:
    """Return a message for each field of a valid MiniCluster without effect, fractions of bytes, and a huge size.

    At most 22.
    """
    spec = obj.get("spec") or {}
    ignored = [
        *pod_number_warnings("spec.size", spec.get("size")),
        *ignored_fields(spec, _SPEC),
        *byte_warnings(spec, _SPEC),
    ]
    queue = labels_of(obj).get(QUEUE_NAME_LABEL)
    if queue and queue != queue_of(obj):
        path = Path("metadata", "labels").key(QUEUE_NAME_LABEL)
        own = Path("spec", "jobLabels").key(QUEUE_NAME_LABEL)
        ignored.insert(0, f"{path}: has no effect; Kueue admits the Job by the label in {own}")
    return ignored


def byte_warnings(spec: Mapping[str, Any], path: Path) -> list[str]:
    """Return the API server's warnings of fractions of bytes in the MiniCluster spec at ``path``, at most ten."""
    flux_container = mapping(mapping(spec.get("flux")).get("container"))
    flux_path = path.child("flux", "container", "resources")
    warnings = chain(
        container_byte_warnings(spec.get("containers"), path.child("containers")),
        container_byte_warnings(spec.get("services"), path.child("services")),
        fractional_byte_warnings(flux_container.get("resources"), flux_path),
    )
    return list(islice(warnings, _MAX_WARNINGS))


def change_warnings(old: Object, new: Object) -> list[str]:
    """Return messages about changes that a started Job does not follow, or about a waiting Job without a queue.

    A Job has started if it has pods, or may have some.
    """
    has_been_seen = bool(value_at(old, "status", "conditions"))
    if not has_been_seen:
        return []
    if is_true(old, JobState.WAITING):
        had_queue = bool(value_at(old, *_QUEUE))
        is_undecided = value_at(new, "spec", "suspend") is None and not value_at(new, *_QUEUE)
        return [f"{NOTHING_RESUMES}: {RESUME_REMEDY}"] if had_queue and is_undecided else []
    return list(_ignored_changes(old, new))


def _ignored_changes(old: Object, new: Object) -> Iterator[str]:
    """Yield messages about the changes that a Job does not follow because it has started."""
    before = mapping(old.get("spec"))
    after = mapping(new.get("spec"))
    effect = "has no effect until you delete the MiniCluster and create it again"
    if controlling_job(new):
        effect = "has no effect; create a new FluxJob with it"
    names = sorted({*before, *after} - FOLLOWED_FIELDS)
    changed = [name for name in names if (before.get(name) or None) != (after.get(name) or None)]
    if changed:
        paths = [str(Path("spec").child(name[:MAX_NAME])) for name in changed[:_MAX_WARNINGS]]
        yield f"{', '.join(paths)}: the Job of the MiniCluster has started, so the change {effect}"
    wanted = number(after.get("maxSize"))
    known = number(value_at(old, "status", "maximumSize"))
    if wanted != before.get("maxSize") and 0 < known < wanted:
        yield (
            "spec.maxSize: the brokers were started for a fixed number of hosts, so a maximum above it "
            f"{effect}"
        )
    if is_true(old, JobState.FINISHED) and before.get("size") != after.get("size"):
        yield f"spec.size: the MiniCluster has ended, so the change {effect}"


def ignored_fields(spec: Mapping[str, Any], path: Path) -> list[str]:
    """Return a message for each field in the ``spec`` of a MiniCluster that has no effect, at most ten."""
    return list(islice(_ignored_fields(spec, path), _MAX_WARNINGS))


def _ignored_fields(spec: Mapping[str, Any], path: Path) -> Iterator[str]:
    flux = spec.get("flux") or {}
    for name in ("arch", "mungeSecret"):
        if flux.get(name):
            yield f"{path}.flux.{name}: has no effect"
    if (flux.get("container") or {}).get("imagePullSecret"):
        yield f"{path}.flux.container.imagePullSecret: has no effect; use that of a container"
    for index, service in enumerate(spec.get("services") or ()):
        if service.get("command") or service.get("commands"):
            yield f"{path}.services[{index}]: command and commands have no effect; the image's own entrypoint runs"
    for name in (spec.get("pod") or {}).get("securityContext") or {}:
        if name != "fsGroup":
            field = path.child("pod", "securityContext", name[:MAX_NAME])
            yield f"{field}: has no effect; use the securityContext of each container"


def cluster_name(obj: Object) -> str:
    """Return the name of ``obj``, or one as the API server will generate."""
    metadata = obj.get("metadata") or {}
    if metadata.get("name"):
        return str(metadata["name"])
    prefix = metadata.get("generateName") or ""
    return f"{prefix}{'x' * _RANDOM_SUFFIX}"


def name_errors(obj: Object) -> Iterator[FieldError]:
    """Yield an error if a MiniCluster cannot have the name of ``obj``, which is one, or a FluxJob that gets one."""
    metadata = obj.get("metadata") or {}
    if metadata.get("name") or not metadata.get("generateName"):
        yield from service_name(Path("metadata", "name"), metadata.get("name") or "", MAX_NAME)
        return
    limit = MAX_NAME - _RANDOM_SUFFIX
    prefix = metadata["generateName"]
    generated_errors = list(service_name(Path(), cluster_name(obj)))
    if len(prefix) > limit or generated_errors:
        detail = (
            f"must be at most {limit} lower-case letters, digits and '-', beginning with a letter"
        )
        yield invalid(Path("metadata", "generateName"), prefix, detail)


def size_errors(spec: Mapping[str, Any], path: Path, *, size: int | None) -> Iterator[FieldError]:
    """Yield the errors in the sizes of ``spec``; ``size`` is the number of pods, if it is known.

    As in upstream, a maxSize or minSize of 0 is as if unset.
    """
    yield from between(path.child("size"), size, 1, MAX_SIZE)
    for name in ("maxSize", "minSize"):
        yield from between(path.child(name), spec.get(name), 0, MAX_SIZE)
    if size is not None and size < 1:
        return
    maximum = spec.get("maxSize") or size
    minimum = spec.get("minSize") or 0
    if maximum is not None and size is not None and 0 < maximum < size:
        yield invalid(path.child("maxSize"), maximum, f"must not be less than size ({size})")
    if maximum is not None and minimum > maximum > 0:
        yield invalid(
            path.child("minSize"), minimum, f"must not be greater than maxSize ({maximum})"
        )
    elif size is not None and minimum > size:
        yield invalid(path.child("minSize"), minimum, f"must not be greater than size ({size})")


def spec_errors(
    spec: Mapping[str, Any], path: Path, cluster: str, *, partial: bool = False
) -> Iterator[FieldError]:
    """Yield the errors in the spec of a MiniCluster with the name ``cluster``, except for its sizes.

    A ``partial`` spec need not have containers, because it is completed later.
    """
    for name, limit in _MAX_NUMBERS.items():
        yield from between(path.child(name), spec.get(name), 0, limit)
    yield from label_errors(path.child("jobLabels"), spec.get("jobLabels"))
    headless = (spec.get("network") or {}).get("headlessName")
    if headless:
        yield from service_name(path.child("network", "headlessName"), headless)
    flux = spec.get("flux") or {}
    yield from flux_errors(flux, path.child("flux"))
    if (flux.get("container") or {}).get("name") == cluster:
        detail = "must not be the name of the MiniCluster, which the container that runs Flux has"
        yield invalid(path.child("flux", "container", "name"), cluster, detail)
    yield from pod_errors(spec.get("pod") or {}, path.child("pod"))
    containers = spec.get("containers") or []
    if containers or not partial:
        yield from container_errors(
            containers, path.child("containers"), cluster, flux.get("container") or {}
        )
        if len(containers) <= MAX_CONTAINERS:
            yield from service_name_errors(spec, path, cluster)
    yield from service_errors(spec.get("services") or [], path.child("services"))
    size = _size_of_scripts(spec)
    if size > MAX_SCRIPTS:
        detail = f"all commands together have {size} bytes; at most {MAX_SCRIPTS} are allowed"
        yield invalid(path.child("containers"), OMIT, detail)


def _size_of_scripts(spec: Mapping[str, Any]) -> int:
    """Return the number of bytes of everything in ``spec`` that the scripts contain, quoted for the shell.

    In quotes, an apostrophe takes four bytes more. The environment is quoted twice, in the script of each container.
    """
    flux = spec.get("flux") or {}
    containers = spec.get("containers") or ()
    texts = [
        flux.get("brokerConfig"),
        flux.get("curveCert"),
        flux.get("optionFlags"),
        flux.get("wrap"),
        (flux.get("bursting") or {}).get("hostlist"),
    ]
    for container in containers:
        texts.append(container.get("command"))
        commands = container.get("commands") or {}
        texts += [commands.get(name) for name in COMMANDS]
    quoted = sum(len(text.encode()) + 4 * text.count("'") for text in texts if text)
    exports = (f"{name}={value}" for name, value in (flux.get("environment") or {}).items())
    exported = sum(len(text.encode()) + 16 * text.count("'") for text in exports)
    total: int = quoted + len(containers) * exported
    return total
