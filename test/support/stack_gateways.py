"""The objects of stacks that have hosts: what a stack says about them, and what the operator writes."""

from __future__ import annotations

from typing import Any

from cfo.runtime.objects.unstructured import GVK, Object
from test.support.inference_environment import InferenceEnvironment
from test.support.raycluster_environment import eventually

GATEWAY = "s-inference-stack-gateway"
"""The name that the Ingress and the HTTPRoute of stack ``s`` have."""

PARENT = {"name": "shared", "namespace": "gateways"}


def gateway(
    *, hosts: tuple[str, ...] = (), hostnames: tuple[str, ...] = (), path: str = "/"
) -> dict[str, Any]:
    """Return ``spec.gateway`` with an Ingress for ``hosts`` and an HTTPRoute for ``hostnames``."""
    matches = [{"path": {"type": "PathPrefix", "value": path}}]
    return {
        "ingress": {
            "enabled": bool(hosts),
            "hosts": [{"host": host, "paths": [{"path": "/"}]} for host in hosts],
        },
        "httpRoute": {
            "parentRefs": [PARENT],
            "hostnames": list(hostnames),
            "rules": [{"matches": matches}],
        },
    }


async def wait_for_problem(env: InferenceEnvironment, *parts: str) -> None:
    """Wait until the status of the stack contains all of ``parts``."""

    def holds(obj: Object) -> bool:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        messages = " ".join(str(condition.get("message")) for condition in conditions)
        return all(part in messages for part in parts)

    await env.wait_for(holds, f"a condition that contains {parts}")


async def hosts_of(env: InferenceEnvironment, gvk: GVK, hosts: list[str]) -> None:
    """Wait until the stack's object of this kind has exactly these hosts."""

    async def has_hosts() -> bool:
        found = await env.find(gvk, GATEWAY)
        spec = found["spec"] if found is not None else {}
        return hosts == (
            spec.get("hostnames") or [rule.get("host") for rule in spec.get("rules") or ()]
        )

    await eventually(has_hosts, f"{gvk.kind} with {hosts}")
