"""Profiles: the defaults of a release of the original operator, pinned for each stack.

A new release has new default images, which would restart all pods of all stacks at once. So the controller writes the
name of the profile with which it rendered a stack to ``status.profile``, and applies a newer one only if the stack's
``upgradePolicy`` allows it. Stacks that Helm created get the profile of their chart, so that nothing changes when they
are adopted.

Each profile is described by its differences from the one before it. The names are the major and minor version of the
operator that had these defaults; a suffix distinguishes releases with the same minor version. Source: the values and
templates of the chart ``inference-stack`` in all commits of ``titanml/helm-charts`` and ``doublewordai/helm-charts``.
The chart of ``v0.2``, which this project's seed describes, had the same version as that of ``v1.0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

from cfo.api.inferencestack.engines import default_image
from cfo.runtime import Object

_TAKEOFF: Final = "tytn/takeoff-pro"
_GATEWAY: Final = "tytn/gateway"
_ENGINE: Final = "tytn/engine"
_GATEWAY_PORTS: Final = (
    (3000, "inference"),
    (3001, "management"),
    (3003, "openai"),
    (3005, "internal"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The defaults of a release, and where its objects differ from those of other releases."""

    name: str
    chart: str
    """Version of the Helm chart; the label ``helm.sh/chart`` is ``inference-stack-<chart>``."""
    app_version: str
    """The label ``app.kubernetes.io/version`` of objects that Helm created."""
    gateway_repository: str = _TAKEOFF
    gateway_tag: str = ""
    """Default tag of the gateway's image."""
    application_tag: str = ""
    """Default tag of an application's image."""
    engine_tag: str = ""
    """Default tag of an external engine's image; empty if the release had none."""
    sidecar_tag: str = ""
    vllm_tag: str = "v0.28.0"
    """Tag of the images of vLLM, for GPUs and for CPUs."""
    onwards_tag: str = "0.38.1"
    """Tag of the gateway of the engine vllm. No profile of the original has it, so these two began with all of them."""
    shm_size: str | None = None
    """Default size of ``/dev/shm``; unlimited if not set."""
    has_pod_name: bool = True
    """Whether the environment of an application contains ``POD_NAME``."""
    has_liveness_probe: bool = False
    """Whether an application without liveness probe gets one."""
    gateway_address_first: bool = False
    """Whether ``internal_gateway_ip`` is the first key of a reader's configuration, instead of sorted."""

    @property
    def operator_version(self) -> str:
        """The major version of the operator, as in the label ``operatorVersion``."""
        return self.name.partition(".")[0]

    @property
    def is_default(self) -> bool:
        """Whether new stacks can get this profile: the last release of its minor version."""
        return "-" not in self.name

    def gateway_defaults(self) -> Object:
        """Return the defaults of ``spec.gateway``."""
        return {
            "image": default_image(self.gateway_repository, self.gateway_tag),
            "config": {"internalPort": 3005},
            "replicaCount": 1,
            "ports": [
                {"containerPort": port, "protocol": "TCP", "name": name}
                for port, name in _GATEWAY_PORTS
            ],
            "service": {
                "type": "ClusterIP",
                "ports": [
                    {"port": 80, "targetPort": "openai", "protocol": "TCP", "name": "http"},
                    {"port": 3001, "protocol": "TCP", "name": "management"},
                    {"port": 3000, "protocol": "TCP", "name": "inference"},
                    {"port": 3005, "protocol": "TCP", "name": "internal"},
                ],
            },
        }

    def application_defaults(self) -> Object:
        """Return the defaults of ``spec.applicationTemplate``."""
        defaults: Object = {
            "engine": "takeoff",
            "image": default_image(_TAKEOFF, self.application_tag),
            "readerConfig": {
                "modelName": "TitanML/dummy_model",
                "device": "cpu",
                "consumerGroup": "primary",
                "bufferRequests": True,
            },
            "replicaCount": 1,
            "scaling": {
                "enabled": False,
                "type": "KEDA",
                "metricTarget": {"name": "consumerGroupSize", "value": 10},
                "spec": {
                    "pollingInterval": 60,
                    "initialCooldownPeriod": 300,
                    "cooldownPeriod": 300,
                    "minReplicaCount": 1,
                    "maxReplicaCount": 4,
                    "advanced": {},
                },
            },
        }
        if self.engine_tag:
            defaults["externalEngineImage"] = default_image(_ENGINE, self.engine_tag)
            defaults["sidecarImage"] = default_image(_GATEWAY, self.sidecar_tag)
        if self.shm_size is not None:
            defaults["shmSize"] = self.shm_size
        return defaults


def _takeoff(version: str) -> dict[str, Any]:
    return {
        "app_version": version,
        "gateway_tag": f"{version}-cpu",
        "application_tag": f"{version}-gpu",
    }


_FIRST: Final = Profile(name="v0.2", chart="0.3.0", has_pod_name=False, **_takeoff("0.22.0-rc19"))
_CHANGES: Final[tuple[dict[str, Any], ...]] = (
    {"name": "v1.0", "has_pod_name": True},
    {"name": "v2.0", "chart": "1.0.0"},
    {"name": "v2.1", **_takeoff("0.22.0-rc20")},
    {"name": "v2.2-0", "chart": "1.1.0", "shm_size": "2Gi"},
    {"name": "v2.2-2", **_takeoff("0.22.0-rc21")},
    {"name": "v2.2-3", **_takeoff("0.22.0-rc22")},
    {"name": "v2.2", **_takeoff("0.22.0-rc23")},
    {"name": "v2.3", "chart": "1.2.0", "gateway_address_first": True},
    {
        "name": "v2.4",
        "chart": "1.3.0",
        "app_version": "1.0.0",
        "gateway_repository": _GATEWAY,
        "gateway_tag": "0.0.1",
        "engine_tag": "1.0.14-sglang",
        "sidecar_tag": "0.0.1",
    },
    {"name": "v2.6", "sidecar_tag": "0.0.9-py"},
    {"name": "v2.7", "chart": "1.4.0"},
    {"name": "v2.8", "chart": "1.5.0", "gateway_tag": "0.1.0"},
    {"name": "v2.9", "chart": "1.6.0", "has_liveness_probe": True},
    {"name": "v2.10", "chart": "1.7.0", "gateway_tag": "0.2.0"},
    {"name": "v2.11-0", "chart": "1.8.0", "gateway_tag": "0.3.0"},
    {"name": "v2.11", "sidecar_tag": "0.3.0-py"},
    {"name": "v2.12", "chart": "1.8.1", "gateway_tag": "0.3.1", "sidecar_tag": "0.3.1-py"},
    {
        "name": "v2.13-0",
        "chart": "1.8.2",
        "gateway_tag": "0.3.4",
        "engine_tag": "1.1.4-sglang",
        "sidecar_tag": "0.3.4-py",
    },
    {"name": "v2.13", "gateway_tag": "0.3.5"},
)
"""The differences of each further profile from the one before it."""

PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in accumulate(_CHANGES, lambda at, changes: replace(at, **changes), initial=_FIRST)
}
"""All profiles by name, from the oldest to the newest."""


def newest_profile(operator_version: str) -> Profile:
    """Return the profile of new stacks of a major version.

    A major version without profiles of its own, which only we release, uses the newest one of all.
    """
    defaults = [profile for profile in PROFILES.values() if profile.is_default]
    return next(
        (profile for profile in reversed(defaults) if profile.operator_version == operator_version),
        defaults[-1],
    )


def pinned_profile(stack: Object) -> Profile | None:
    """Return the profile in the status of ``stack``; ``None`` if it has none, or one that does not exist."""
    status = stack.get("status")
    name = status.get("profile") if isinstance(status, Mapping) else None
    return PROFILES.get(name) if isinstance(name, str) else None


def profiles_of_chart(chart_label: str, app_version: str = "") -> list[Profile]:
    """Return the profiles of objects with these values of the labels ``helm.sh/chart`` and version, newest first.

    If no profile has this version, those of the chart are returned; there are none for an unknown chart.
    """
    of_chart = [
        profile
        for profile in reversed(list(PROFILES.values()))
        if f"inference-stack-{profile.chart}" == chart_label
    ]
    return [profile for profile in of_chart if profile.app_version == app_version] or of_chart
