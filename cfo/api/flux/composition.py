"""The spec of the MiniCluster of a FluxJob: a pure function.

It is the job's template, completed with the defaults of the FluxSetup. The job's own fields replace those of the
template; those of a container apply to the one that runs Flux.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cfo.api.flux.facts import runners
from cfo.api.flux.names import DEFAULT_IMAGE
from cfo.runtime import Object

_JOB_FIELDS: Final = ("size", "tasks", "deadlineSeconds", "backoffLimit")
_CONTAINER_FIELDS: Final = ("command", "workingDir", "resources")


def cluster_spec(own: Mapping[str, Any], defaults: Mapping[str, Any]) -> Object:
    """Return the spec of the MiniCluster of a FluxJob with the spec ``own``.

    ``defaults`` are ``spec.mini-cluster`` of the FluxSetup; may be empty. The result shares what is nested with both.
    """
    template: Mapping[str, Any] = own.get("template") or {}
    spec = _merged({key: defaults[key] for key in ("flux", "pod") if defaults.get(key)}, template)
    for key in ("suspend", "cleanup", "ttlSecondsAfterFinished"):
        spec.pop(key, None)  # the FluxJob's controller decides about these
    # The image contains Flux, unless the template or the FluxSetup says how it gets it.
    spec["flux"] = {"container": {"disable": True}, **(spec.get("flux") or {})}
    spec |= {key: own[key] for key in _JOB_FIELDS if own.get(key) is not None}
    spec["size"] = spec.get("size") or defaults.get("size") or 1
    containers: list[Object] = list(map(dict, spec.get("containers") or [{}]))
    spec["containers"] = containers
    for index in runners(containers)[:1]:
        runner = containers[index]
        runner["image"] = own.get("image") or runner.get("image") or defaults.get("image") or DEFAULT_IMAGE
        runner |= {key: own[key] for key in _CONTAINER_FIELDS if own.get(key)}
        if environment := own.get("environment"):
            runner["environment"] = {**(runner.get("environment") or {}), **environment}
    return spec


def _merged(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> Object:
    """Return ``values``, completed by ``defaults``; maps are merged, everything else is replaced."""
    result: Object = dict(defaults)
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = _merged(result[key], value)
        elif value is not None:
            result[key] = value
    return result
