"""Warnings about a stack that can be created, but will not work as its author expects."""

from __future__ import annotations

from collections.abc import Iterator

from cfo.api.inferencestack.kinds import OPERATOR_VERSION_LABEL, operator_version_of
from cfo.api.inferencestack.names import GATEWAY_INTERNAL_PORT
from cfo.api.inferencestack.resolution import ResolvedStack
from cfo.api.inferencestack.validation.gpus import gpu_warnings
from cfo.api.inferencestack.validation.integers import as_integer
from cfo.api.inferencestack.validation.naming import APPLICATIONS
from cfo.api.inferencestack.validation.volumes import volume_warnings
from cfo.runtime import Object

__all__ = ["label_warnings", "settings_warnings"]


def label_warnings(stack: Object) -> Iterator[str]:
    """Yield a warning if ``stack`` has no label ``operatorVersion``."""
    if not operator_version_of(stack):
        yield (
            f"metadata.labels[{OPERATOR_VERSION_LABEL}]: not set, so no operator reconciles this stack; set it to the "
            "major version of an operator, such as v2"
        )


def settings_warnings(stack: ResolvedStack) -> Iterator[str]:
    """Yield the warnings about the settings of ``stack``, whose JSON types are correct."""
    yield from _port_warnings(stack)
    for name, section in stack.applications.items():
        path = APPLICATIONS.key(name)
        yield from gpu_warnings(section, path)
        if (section.get("readerConfig") or {}).get("accessToken"):
            yield (
                f"{path}.readerConfig.accessToken: the token is in clear in this stack and in a ConfigMap; use "
                "accessTokenSecretRef"
            )
        scaling = section.get("scaling") or {}
        if "metricTarget" in (scaling.get("spec") or {}):
            yield f"{path}.scaling.spec.metricTarget: has no effect; use scaling.metricTarget"
        yield from volume_warnings(section, path)


def _port_warnings(stack: ResolvedStack) -> Iterator[str]:
    port = as_integer((stack.gateway.get("config") or {}).get("internalPort", GATEWAY_INTERNAL_PORT))
    service_ports = (stack.gateway.get("service") or {}).get("ports") or ()
    is_forwarded = any(
        service_port.get("port") == GATEWAY_INTERNAL_PORT and "targetPort" in service_port
        for service_port in service_ports
    )
    if port != GATEWAY_INTERNAL_PORT and not is_forwarded:
        yield (
            f"spec.gateway.config.internalPort: applications and KEDA use port {GATEWAY_INTERNAL_PORT} of the "
            "gateway's Service, which has no targetPort"
        )
