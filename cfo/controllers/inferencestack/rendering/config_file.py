"""The configuration files of gateway and applications, and when a change of one restarts the pods.

A file is mounted by ``subPath``, so running containers never see a change. Therefore the pod template has an annotation
with the hash of the file. Pods that Helm created have no such annotation, and adding it would restart them. So the hash
of the file at that time is recorded on the ConfigMap (in the same write that changes the file, so that it cannot be
lost) and on the Deployment, and the annotation is added only when the file differs from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cfo.api.inferencestack.names import (
    ADOPTED_CONFIG_HASH,
    CONFIG_HASH,
    GATEWAY_INTERNAL_PORT,
)
from cfo.api.inferencestack.resolution import ResolvedStack
from cfo.api.inferencestack.snake_case import snake_case
from cfo.controllers.inferencestack.rendering.facts import (
    LiveDeployment,
    StoredConfig,
    config_hash,
)

_PLAIN: Final = re.compile(
    r"(?![-?:](?: |$))[^\s,\[\]{}#&*!|>'\"%@`](?:.*[^\s:])?|\[[A-Za-z0-9_./ ,-]*\]"
)
_ENDS_PLAIN: Final = re.compile(r": | #")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def gateway_file(stack: ResolvedStack) -> str:
    """Return the configuration file of the gateway."""
    config = stack.gateway.get("config") or {}
    lines = [f"    {line}" for line in _lines(config)]
    if "internalPort" not in config:
        lines.append(f"    internal_port: {GATEWAY_INTERNAL_PORT}")
    return "\n".join(["takeoff:", "  server_config:", *lines, "  readers_config:", ""])


def application_file(stack: ResolvedStack, application: str) -> str:
    """Return the configuration file of an application."""
    config = dict(stack.applications[application].get("readerConfig") or {})
    config.pop("accessTokenSecretRef", None)
    config["internalGatewayIp"] = config.get("internalGatewayIp") or stack.names.gateway
    first = "internalGatewayIp" if stack.profile.gateway_address_first else ""
    lines = [f"      {line}" for line in _lines(config, first)]
    server = ["takeoff:", "  server_config:", f"    internal_port: {GATEWAY_INTERNAL_PORT}"]
    return "\n".join([*server, "  readers_config:", f"    {application}:", *lines, ""])


def _lines(config: Mapping[str, Any], first: str = "") -> list[str]:
    """Return the lines of a map: the key ``first``, then the others, sorted as Helm does before conversion."""
    keys = sorted(config, key=lambda key: (key != first, key))
    return [f"{snake_case(key)}: {_scalar(config[key])}" for key in keys]


def _scalar(value: Any) -> str:
    """Return ``value`` as YAML on one line.

    The original prints values without quotes, and the readers depend on it: the string ``"8"`` becomes a number. So the
    result is the same, except for strings that would not be the value of their key then, which are quoted. A string
    such as ``[a, b]`` is how a list is written.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
    if not isinstance(value, str):
        return str(value)
    is_plain = (
        _PLAIN.fullmatch(value) and not _ENDS_PLAIN.search(value) and not _UNPRINTABLE.search(value)
    )
    if value == "" or is_plain:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda character: f"\\u{ord(character[0]):04x}", quoted)


class ConfigAnnotations(msgspec.Struct, frozen=True):
    """The metadata of the objects that a configuration file concerns."""

    template: dict[str, str]
    """Annotations of the pod template."""
    metadata: dict[str, str]
    """Annotations of the ConfigMap, and labels of the Deployment."""


def config_annotations(
    content: str, deployment: LiveDeployment | None, config_map: StoredConfig | None
) -> ConfigAnnotations:
    """Return the annotations for the file ``content``, given the Deployment and ConfigMap that exist."""
    current = config_hash(content)
    if deployment is None or CONFIG_HASH in deployment.template_annotations:
        return ConfigAnnotations({CONFIG_HASH: current}, {})
    adopted = deployment.labels.get(ADOPTED_CONFIG_HASH)
    if config_map is not None:
        adopted = config_map.recorded or adopted or config_map.content_hash
    kept = {ADOPTED_CONFIG_HASH: adopted} if adopted else {}
    if adopted == current:
        return ConfigAnnotations({}, kept)
    return ConfigAnnotations({CONFIG_HASH: current}, kept)
