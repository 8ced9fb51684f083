"""Validation of updates to the status of pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final

from envtest.apimachinery.field_errors import FieldError, duplicate, forbidden, invalid
from envtest.apimachinery.name_rules import dns_subdomain, qualified_name
from envtest.apimachinery.objects import Object
from envtest.builtins.ip_rules import ip_problem

__all__ = ["pod_status_errors"]

_SYSTEM_CONDITIONS: Final = ("PodScheduled", "Ready", "Initialized")


def pod_status_errors(new: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of a changed status."""
    status = new.get("status") or {}
    before = old.get("status") or {}
    spec = old["spec"]
    for position, condition in enumerate(status.get("conditions") or ()):
        kind = condition.get("type") or ""
        if kind not in _SYSTEM_CONDITIONS:
            for problem in qualified_name(kind):
                yield invalid(f"metadata.conditions[{position}].Type", kind, problem)
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != before.get("nominatedNodeName"):
        for problem in dns_subdomain(nominated):
            yield invalid("status.nominatedNodeName", nominated, problem)
    if status.get("qosClass") != before.get("qosClass"):
        yield invalid("status.qosClass", status.get("qosClass") or "", "field is immutable")
    policy = spec.get("restartPolicy") or ""
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    for kind, restart, exempt in (
        ("containerStatuses", policy, frozenset[Any]()),
        ("initContainerStatuses", policy, sidecars),
        ("ephemeralContainerStatuses", "Never", frozenset[Any]()),
    ):
        statuses = status.get(kind) or ()
        yield from _transition_errors(
            statuses, before.get(kind) or (), f"status.{kind}", restart, exempt
        )
    yield from _claim_status_errors(status, spec)
    yield from _addresses_errors(status.get("podIPs") or (), "status.podIPs")
    hosts = status.get("hostIPs") or ()
    if hosts and hosts[0].get("ip") != status.get("hostIP"):
        yield invalid("status.hostIPs[0].ip", hosts[0].get("ip") or "", "must be equal to `hostIP`")
    yield from _addresses_errors(hosts, "status.hostIPs")


def _transition_errors(
    new: Sequence[Mapping[str, Any]],
    old: Sequence[Mapping[str, Any]],
    path: str,
    restart_policy: str,
    exempt: frozenset[Any] | set[Any],
) -> Iterator[FieldError]:
    """Yield the errors of terminated containers that run again, although nothing restarts them."""
    if restart_policy == "Always":
        return
    running = {
        each.get("name") for each in new if (each.get("state") or {}).get("terminated") is None
    }
    for position, previous in enumerate(old):
        terminated = (previous.get("state") or {}).get("terminated")
        if terminated is None or previous.get("name") in exempt:
            continue
        if terminated.get("exitCode") and restart_policy == "OnFailure":
            continue
        if previous.get("name") in running:
            yield forbidden(
                f"{path}[{position}].state", "may not be transitioned to non-terminated state"
            )


def _claim_status_errors(
    status: Mapping[str, Any], spec: Mapping[str, Any]
) -> Iterator[FieldError]:
    known = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for position, claim in enumerate(status.get("resourceClaimStatuses") or ()):
        path = f"status.resourceClaimStatuses[{position}].name"
        name = claim.get("name") or ""
        if name not in known:
            yield invalid(path, name, "must match the name of an entry in `spec.resourceClaims`")
        if name in seen:
            yield duplicate(path, name)
        seen.add(name)
        created = claim.get("resourceClaimName")
        if created is not None:
            for problem in dns_subdomain(created):
                yield invalid(path, created, problem)


def _addresses_errors(addresses: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """Yield the errors in IP addresses; there may be one of each family."""
    seen: set[str] = set()
    families: set[int] = set()
    for position, each in enumerate(addresses):
        ip = each.get("ip") or ""
        problem = ip_problem(ip)
        if problem:
            yield invalid(f"{path}[{position}]", ip, problem)
            continue
        if ip in seen:
            yield duplicate(f"{path}[{position}]", {"IP": ip})
        seen.add(ip)
        families.add(ip_address(ip).version)
    if len(addresses) > 1 and (len(families) < len(addresses) or len(addresses) > 2):
        shown = [{"IP": each.get("ip") or ""} for each in addresses]
        yield invalid(path, shown, "may specify no more than one IP for each IP family")
