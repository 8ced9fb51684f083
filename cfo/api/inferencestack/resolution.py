"""A resolved stack: its spec with all defaults and with the template merged into each application.

Rendering and validation read only this, so that they agree on each value. Maps are merged, lists and scalars are
replaced, and ``null`` removes what it overrides: these are the rules of Helm values. The same rules apply between an
application and the template, where the original depends on the version of a library for ``false``, ``0`` and ``""``:
here, an explicit value always wins. No function changes its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cfo.api.inferencestack.engines import (
    VLLM,
    Engine,
    application_defaults,
    engine_of,
    gateway_defaults,
    template_defaults,
)
from cfo.api.inferencestack.names import StackNames, names_of
from cfo.api.inferencestack.profiles import Profile
from cfo.api.inferencestack.queue import queue_labels
from cfo.runtime import Object, namespace_of
from cfo.runtime.objects import merged


def merge_env(*sources: Iterable[Mapping[str, Any]]) -> list[Object]:
    """Return the environment variables of ``sources``: of those with the same name, the first.

    The order is that of the sources, the one with the highest precedence first.
    """
    result: dict[str, Object] = {}
    for source in sources:
        for variable in source:
            result.setdefault(variable.get("name") or "", dict(variable))
    return list(result.values())


@dataclass(frozen=True, slots=True)
class ResolvedStack:
    """A stack with all defaults.

    ``spec`` is the spec as written, without ``null`` values; ``service_account``, ``gateway`` and ``applications``
    contain the defaults. The ``env`` of an application contains the template's variables, and its ``modelsVolume`` is
    set unless it has a ``cache``. ``engine`` is that of the template, which determines the gateway. ``queue_labels``
    are the labels of Kueue that the stack passes on; empty if it has no queue.
    """

    names: StackNames
    namespace: str
    spec: Object
    service_account: Object
    profile: Profile
    engine: Engine
    gateway: Object
    applications: Mapping[str, Object]
    queue_labels: Mapping[str, str]


def resolve(stack: Object, profile: Profile) -> ResolvedStack:
    """Resolve ``stack`` with the defaults of ``profile``. Its JSON types must have been validated."""
    written: Mapping[str, Any] = stack.get("spec") or {}
    engine = engine_of(written.get("applicationTemplate"))
    template = profile.application_defaults()
    gateway = profile.gateway_defaults()
    if engine is VLLM:
        restricted = written.get("securityProfile") == "restricted"
        template = template_defaults(template, restricted=restricted)
        gateway = gateway_defaults(gateway, profile.onwards_tag, restricted=restricted)
    template = _with_volume(template, written.get("applicationTemplate") or {})
    applications = {}
    for name, own in (written.get("applications") or {}).items():
        application = _with_volume(template, own)
        application["env"] = merge_env(own.get("env") or (), template.get("env") or ())
        if "cache" not in application:
            application["modelsVolume"] = application.get("modelsVolume") or engine.models_volume
        if engine is VLLM:
            defaults = application_defaults(name, application, profile.vllm_tag)
            application = merged(defaults, application)
        if written.get("replicas") is not None and len(written["applications"]) == 1:
            application["replicaCount"] = written["replicas"]
        applications[name] = application
    service_account = {"create": True, "automount": True}
    return ResolvedStack(
        names=names_of(stack),
        namespace=namespace_of(stack),
        spec=merged({}, written),
        service_account=merged(service_account, written.get("serviceAccount") or {}),
        profile=profile,
        engine=engine,
        gateway=merged(gateway, written.get("gateway") or {}),
        applications=applications,
        queue_labels=queue_labels(stack),
    )


def _with_volume(base: Mapping[str, Any], own: Mapping[str, Any]) -> Object:
    """Merge ``own`` into ``base``. A models volume or cache replaces both as a whole, because parts of two volume
    sources are not a volume."""
    result = merged(base, own)
    if own.get("modelsVolume"):
        result["modelsVolume"] = own["modelsVolume"]
        if own.get("cache") is None:
            result.pop("cache", None)
    elif own.get("cache") is not None:
        result.pop("modelsVolume", None)
    return result


def is_enabled(section: Mapping[str, Any] | None) -> bool:
    """Return whether a section with the field ``enabled`` is enabled."""
    return bool((section or {}).get("enabled"))


def engine_port(application: Mapping[str, Any]) -> int:
    """Return the port of an application's engine. Only an external one has another than the default."""
    reader = application.get("readerConfig") or {}
    port: int = reader.get("enginePort") or engine_of(application).port
    return port
