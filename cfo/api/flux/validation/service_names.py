"""Rules for the names of a MiniCluster's Services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cfo.api.flux.containers import is_runner
from cfo.api.flux.validation.syntax import MAX_DNS_LABEL
from cfo.runtime import FieldError
from cfo.runtime.objects.field import Path, invalid

__all__ = ["service_name_errors"]


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
    owners |= {name: f"container {name}" for _, name in sidecars if name not in owners}
    for index, name in sidecars:
        at, fallback = path.child("containers").index(index).child("name"), f"{cluster}-{name}"
        if name[:1].isdigit():
            yield invalid(at, name, "must begin with a letter, because it is the name of a Service")
        if len(fallback) > MAX_DNS_LABEL:
            limit = MAX_DNS_LABEL - len(cluster) - 1
            yield invalid(
                at, name, f"must be at most {limit} characters, because its Service may be named NAME-CONTAINER"
            )
        if name == headless:
            yield invalid(at, name, "must not equal network.headlessName, because both are names of Services")
        if fallback in owners:
            detail = f"its Service may be named {fallback}, which is the name of the Service of {owners[fallback]}"
            yield invalid(at, name, detail)
