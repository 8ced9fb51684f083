"""Rules for the containers of a MiniCluster, their volumes and their Services."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cfo.api.container_resources import resource_errors
from cfo.api.flux.facts import is_runner, runners
from cfo.api.flux.validation.syntax import (
    MAX_DNS_LABEL,
    between,
    choice,
    dns_label,
    dns_subdomain,
    environment_errors,
)
from cfo.runtime import FieldError
from cfo.runtime.objects import is_quantity
from cfo.runtime.objects.field import (
    OMIT,
    Path,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)

MAX_CONTAINERS: Final = 100
"""The maximum number of containers in a list."""

_MAX_PORT: Final = 65535
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_SERVICE_COMMANDS: Final = ("pre", "brokerPre", "workerPre")
_OWN_VOLUMES: Final = ("spack-software", "flux-operator-home")
_OWN_PATHS: Final = ("/flux_operator", "/home/flux-operator", "/opt/software")
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 (a mount path in a container)
_MEDIUMS: Final = ("Memory", "HugePages", "HugePages-2Mi")
_MEDIUM: Final = re.compile(r"[Mm]emory|HugePages(-[0-9]+[KMG]i)?")
_WHERE: Final = frozenset({"path", "readOnly"})
"""The fields of a volume that may differ in each container."""


def container_errors(
    containers: Sequence[Mapping[str, Any]], path: Path, cluster: str, flux: Mapping[str, Any]
) -> Iterator[FieldError]:
    """Yield the errors in the containers of the cluster's pods.

    ``cluster`` is the MiniCluster's name, which is also that of the container that runs Flux, and ``flux`` the init
    container's options (``spec.flux.container``), with which the names and paths must not collide.
    """
    if len(containers) > MAX_CONTAINERS:
        yield too_many(path, len(containers), MAX_CONTAINERS)
        return
    count = len(runners(containers))
    if not containers:
        yield required(path, "must contain the container that runs Flux")
    elif count != 1:
        yield invalid(path, OMIT, f"{count} containers have runFlux set to true; exactly one must")
    view = flux.get("name") or "flux-view"
    names = {view, cluster}
    volumes: dict[str, Mapping[str, Any]] = {}
    reserved = {*_OWN_VOLUMES, view, f"{cluster}-entrypoint"}
    mounts = {*_OWN_PATHS, _normalized(flux.get("mountPath") or "/mnt/flux")}
    for index, container in enumerate(containers):
        at = path.index(index)
        runs_flux = is_runner(container, containers)
        if not runs_flux:
            yield from _name_errors(container, at, names)
        yield from _command_errors(container, at, runs_flux=runs_flux)
        yield from _port_errors(container, at, in_service=not runs_flux)
        yield from _option_errors(container, at)
        yield from _volume_errors(container, at.child("volumes"), volumes, reserved, mounts)


def service_errors(services: Sequence[Mapping[str, Any]], path: Path) -> Iterator[FieldError]:
    """Yield the errors in the containers of the service pod."""
    if len(services) > MAX_CONTAINERS:
        yield too_many(path, len(services), MAX_CONTAINERS)
        return
    names: set[str] = set()
    volumes: dict[str, Mapping[str, Any]] = {}
    for index, container in enumerate(services):
        at = path.index(index)
        yield from _name_errors(container, at, names)
        for name in _SERVICE_COMMANDS:
            if (container.get("commands") or {}).get(name):
                yield forbidden(
                    at.child("commands", name), "containers of the service pod run no Flux broker"
                )
        yield from _port_errors(container, at, in_service=False)
        yield from _option_errors(container, at)
        yield from _volume_errors(container, at.child("volumes"), volumes, set(), set())


def _name_errors(container: Mapping[str, Any], path: Path, names: set[str]) -> Iterator[FieldError]:
    """Yield the errors in a container's name, which must not be in ``names``, and add it to them."""
    name = container.get("name") or ""
    at = path.child("name")
    if not name:
        yield required(at, "only the container that runs Flux may have no name")
        return
    yield from dns_label(at, name)
    if name in names:
        yield duplicate(at, name)
    names.add(name)


def _command_errors(
    container: Mapping[str, Any], path: Path, *, runs_flux: bool
) -> Iterator[FieldError]:
    if container.get("launcher") and container.get("batch"):
        yield forbidden(path.child("batch"), "must not be set together with launcher")
    if runs_flux and container.get("command") and (container.get("commands") or {}).get("script"):
        yield forbidden(path.child("commands", "script"), "must not be set together with command")


def _port_errors(
    container: Mapping[str, Any], path: Path, *, in_service: bool
) -> Iterator[FieldError]:
    """Yield the errors in a container's ports; those of a Service must be different."""
    seen: set[int] = set()
    for index, port in enumerate(container.get("ports") or ()):
        at = path.child("ports").index(index)
        yield from between(at, port, 1, _MAX_PORT)
        if in_service and port in seen:
            yield duplicate(at, port)
        seen.add(port)


def _option_errors(container: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    if "image" in container and not container["image"]:
        yield required(path.child("image"))
    yield from choice(
        path.child("imagePullPolicy"), container.get("imagePullPolicy"), _PULL_POLICIES
    )
    pull_secret = container.get("imagePullSecret")
    if pull_secret:
        yield from dns_subdomain(path.child("imagePullSecret"), pull_secret)
    yield from resource_errors(container.get("resources") or {}, path.child("resources"))
    variables = container.get("environment") or {}
    secrets = container.get("secrets") or {}
    yield from environment_errors(path.child("environment"), variables)
    yield from environment_errors(path.child("secrets"), secrets)
    for name, reference in secrets.items():
        at = path.child("secrets").key(name)
        if name in variables:
            yield duplicate(at, name)
        yield from dns_subdomain(at.child("name"), reference.get("name") or "")
        if not reference.get("key"):
            yield required(at.child("key"))


def _volume_errors(
    container: Mapping[str, Any],
    path: Path,
    volumes: dict[str, Mapping[str, Any]],
    reserved: Iterable[str],
    taken: Iterable[str],
) -> Iterator[FieldError]:
    """Yield the errors in a container's volumes.

    ``volumes`` are those of the containers before, to which these are added: the same name means the same volume, which
    may be mounted at another path. ``reserved`` are names and ``taken`` paths that the operator uses.
    """
    mounts = set(taken)
    for name, volume in (container.get("volumes") or {}).items():
        at = path.key(name)
        if name in reserved:
            yield invalid(path, name, "the name is used by the operator")
        else:
            yield from dns_label(path, name)
        source = {key: value for key, value in volume.items() if key not in _WHERE}
        if volumes.setdefault(name, source) != source:
            yield invalid(path, name, "must have the same source in every container")
        yield from _source_errors(volume, at)
        mount = _normalized(volume.get("path") or "")
        if _is_memory(volume):
            mount = _SHARED_MEMORY
        if not mount:
            yield required(at.child("path"))
        elif mount in mounts:
            yield duplicate(at.child("path"), volume.get("path") or mount)
        mounts.add(mount)


def _is_memory(volume: Mapping[str, Any]) -> bool:
    """Return whether a volume is an emptyDir, which is mounted at /dev/shm."""
    has_other_source = volume.get("csiDriver") or volume.get("secretName")
    return bool(volume.get("emptyDir")) and not has_other_source


def _normalized(path: str) -> str:
    return path.rstrip("/") or path[:1]


def _source_errors(volume: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    for name in ("secretName", "configMapName", "claimName"):
        if volume.get(name):
            yield from dns_subdomain(path.child(name), volume[name])
    medium = volume.get("emptyDirMedium")
    if medium and not _MEDIUM.fullmatch(medium):
        yield not_supported(path.child("emptyDirMedium"), medium, _MEDIUMS)
    limit = volume.get("emptyDirSizeLimit")
    if limit and (not is_quantity(limit) or limit.startswith("-")):
        yield invalid(
            path.child("emptyDirSizeLimit"), limit, "must be a quantity such as 500Mi or 4Gi"
        )
    for key, target in (volume.get("items") or {}).items():
        at = path.child("items").key(key)
        if not target:
            yield required(at)
        elif target.startswith("/") or ".." in target.split("/"):
            yield invalid(at, target, "must be a relative path without '..'")


def service_name_errors(spec: Mapping[str, Any], path: Path, cluster: str) -> Iterator[FieldError]:
    """Yield the errors in the names of sidecars with ports; each must name a different Service.

    A MiniCluster with the name ``cluster`` has a Service with the name ``network.headlessName`` or its own, and each of
    its sidecars one with the name ``CONTAINER``, or ``CLUSTER-CONTAINER`` if another MiniCluster has the former. Linear
    in the number of containers.
    """
    headless = (spec.get("network") or {}).get("headlessName") or cluster
    owners = {cluster: "the MiniCluster", headless: "network.headlessName"}
    containers = spec.get("containers") or ()
    sidecars = [
        (index, str(container["name"]))
        for index, container in enumerate(containers)
        if container.get("ports") and container.get("name") and not is_runner(container, containers)
    ]
    for _, name in sidecars:
        owners.setdefault(name, f"container {name}")
    for index, name in sidecars:
        at = path.child("containers").index(index).child("name")
        fallback = f"{cluster}-{name}"
        if name[:1].isdigit():
            yield invalid(at, name, "must begin with a letter, because it is the name of a Service")
        if len(fallback) > MAX_DNS_LABEL:
            limit = MAX_DNS_LABEL - len(cluster) - 1
            detail = f"must be at most {limit} characters, because its Service may be named NAME-CONTAINER"
            yield invalid(at, name, detail)
        if name == headless:
            detail = "must not equal network.headlessName, because both are names of Services"
            yield invalid(at, name, detail)
        if fallback in owners:
            detail = f"its Service may be named {fallback}, which is the name of the Service of {owners[fallback]}"
            yield invalid(at, name, detail)
