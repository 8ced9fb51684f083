"""Validation of the probes and lifecycle hooks of containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from envtest.builtins.string_validation import header_name, nonnegative, port_name, port_number

__all__ = ["PROBES", "lifecycle_errors", "probe_errors"]

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_SECONDS_AND_THRESHOLDS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)


def probe_errors(
    container: Mapping[str, Any], path: str, grace: int | None
) -> Iterator[FieldError]:
    """Yield the errors of the probes of a container; ``grace`` is the pod's ``terminationGracePeriodSeconds``."""
    for kind in PROBES:
        probe = container.get(kind)
        if probe is None:
            continue
        field_path = f"{path}.{kind}"
        yield from _handler_errors(probe, field_path, _HANDLERS, grace)
        for name in _SECONDS_AND_THRESHOLDS:
            yield from nonnegative(f"{field_path}.{name}", probe.get(name))
        seconds = probe.get("terminationGracePeriodSeconds")
        if seconds is not None and seconds <= 0:
            yield invalid(
                f"{field_path}.terminationGracePeriodSeconds", seconds, "must be greater than 0"
            )
        if kind != "readinessProbe":
            if probe.get("successThreshold") != 1:
                yield invalid(
                    f"{field_path}.successThreshold",
                    probe.get("successThreshold") or 0,
                    "must be 1",
                )
        elif seconds is not None:
            text = "must not be set for readinessProbes"
            yield invalid(f"{field_path}.terminationGracePeriodSeconds", seconds, text)


def lifecycle_errors(
    container: Mapping[str, Any], path: str, grace: int | None
) -> Iterator[FieldError]:
    """Yield the errors of the lifecycle hooks of a container; for ``grace`` see :func:`probe_errors`."""
    lifecycle = container.get("lifecycle") or {}
    for hook in ("postStart", "preStop"):
        if lifecycle.get(hook) is not None:
            yield from _handler_errors(
                lifecycle[hook], f"{path}.lifecycle.{hook}", _HOOK_HANDLERS, grace
            )


def _handler_errors(
    handler: Mapping[str, Any], path: str, kinds: Sequence[str], grace: int | None
) -> Iterator[FieldError]:
    """Yield the errors of the handler of a probe or hook, which has exactly one action."""
    found = [kind for kind in kinds if kind in handler]
    for extra in found[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    if not found:
        yield required(path, "must specify a handler type")
        return
    kind = found[0]
    action = handler[kind]
    field_path = f"{path}.{kind}"
    if kind == "exec" and not action.get("command"):
        yield required(f"{field_path}.command")
    if kind == "httpGet" and not action.get("path"):
        yield required(f"{field_path}.path")
    if kind in ("httpGet", "tcpSocket", "grpc"):
        port = action.get("port", 0)
        problems = port_number(port) if isinstance(port, int) else port_name(port)
        for problem in problems:
            yield invalid(f"{field_path}.port", port, problem)
    if kind == "httpGet":
        if action.get("scheme") not in ("HTTP", "HTTPS"):
            yield not_supported(
                f"{field_path}.scheme", action.get("scheme") or "", ("HTTP", "HTTPS")
            )
        for header in action.get("httpHeaders") or ():
            for problem in header_name(header.get("name") or ""):
                yield invalid(f"{field_path}.httpHeaders", header.get("name") or "", problem)
    if kind == "sleep" and grace is not None and not 0 <= (action.get("seconds") or 0) <= grace:
        text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield invalid(field_path, action.get("seconds") or 0, text)
