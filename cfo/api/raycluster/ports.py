"""The ports of a RayCluster's head, read from its start parameters and from the ports of its Ray container.

Ray listens where ``rayStartParams`` say, else on its defaults. KubeRay copies the named ports of the Ray container, the
first one, to the head's Service (``getServicePorts``), and expects users to keep both consistent. So a start parameter
takes precedence over a named port, and a named port over the default.

Users write both. A number that Ray needs for something else belongs to no role: without this rule, the name ``client``
on port 6379 would open Ray's control store to all clients of the Ray client port. Ray itself refuses to start with a
number that two of its components share (``RayParams.update_pre_selected_port``), so no working cluster is affected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, Literal

import msgspec

from cfo.api.reading import mapping
from cfo.runtime import GVK, annotations_of, controller_of

CLIENT_PORT: Final = 10001
DASHBOARD_PORT: Final = 8265
METRICS_PORT: Final = 8080
SERVE_PORT: Final = 8000
"""The defaults of KubeRay, and of Ray except for the metrics."""
PROXY_PORT: Final = 8443
"""The port of the authenticating proxy that the webhook injects into head pods."""
PROXY_PORT_NAME: Final = "oauth-proxy"
"""The name of this port, on the Service and on the container."""
MAX_SERVE_PORTS: Final = 10

_MAX_REFUSALS: Final = 10
_MAX_SHOWN: Final = 40
"""The maximum number of characters of a value in a message."""

_MAX_PORT: Final = 65535
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_SERVE: Final = "serve"
_SERVE_ANNOTATION: Final = "ray.io/enable-serve-service"

Role = Literal["dashboard", "client", "metrics"]

_DASHBOARD_PARAMETER: Final = "dashboard-port"
_CLIENT_PARAMETER: Final = "ray-client-server-port"
_PARAMETERS: Final[Mapping[Role, tuple[str, int]]] = {
    "dashboard": (_DASHBOARD_PARAMETER, DASHBOARD_PORT),
    "client": (_CLIENT_PARAMETER, CLIENT_PORT),
    "metrics": ("metrics-export-port", METRICS_PORT),
}
"""The start parameter and the default of each role. The name of a role is also the name of its container port."""

_INTERNAL: Final[Mapping[str, int | None]] = {
    "port": 6379,
    "dashboard-agent-listen-port": 52365,
    "dashboard-agent-grpc-port": None,
    "dashboard-grpc-port": None,
    "runtime-env-agent-port": None,
    "node-manager-port": None,
    "object-manager-port": None,
}
"""The start parameters of the ports that only nodes of the cluster use, and their defaults (``None``: random)."""

_SERVICES: Final[Mapping[str, str]] = {
    "port": "GCS server",
    "dashboard-agent-listen-port": "dashboard agent (HTTP)",
    "dashboard-agent-grpc-port": "dashboard agent (gRPC)",
    "dashboard-grpc-port": "dashboard (gRPC)",
    "runtime-env-agent-port": "agent of runtime environments",
    "node-manager-port": "node manager",
    "object-manager-port": "object manager",
}
"""What listens on these ports."""

_MIN_WORKER_PORT: Final = 10002
_MAX_WORKER_PORT: Final = 19999


class RayPorts(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of a head that clients outside the cluster may use; ``None`` if a port is refused.

    All are TCP, and no number has two roles.
    """

    dashboard: int | None
    client: int | None
    metrics: int | None
    serve: tuple[int, ...]
    """The ports of Ray Serve on all nodes, at most :data:`MAX_SERVE_PORTS`; empty if the cluster does not serve."""
    proxy: int | None
    """:data:`PROXY_PORT`, or ``None`` if Ray may use that number for something that does not authenticate."""
    client_is_started: bool
    """Whether Ray's start parameters, or its default, put the client server on ``client``.

    The name of a container port alone does not show what listens there, so it is not sufficient to open the port to
    everyone.
    """
    dashboard_is_started: bool
    """The same for the dashboard on ``dashboard``."""
    refused: tuple[str, ...]
    """For each refused port the reason, a clause for an Event; at most ten."""
    named: Mapping[str, int]
    """The ports that the Ray container names, also those that are refused."""

    def service_port(self, role: Role) -> int:
        """Return the number of the port of ``role`` on the head's Service, which KubeRay copies from the Ray container.

        If the container does not name a port that is allowed, return the default.
        """
        number = self.named.get(role)
        if number is not None and number == getattr(self, role):
            return number
        _, default = _PARAMETERS[role]
        return default


def ports_of(cluster: Mapping[str, Any]) -> RayPorts:
    """Return the ports of the head of ``cluster``.

    The work is linear in the container's ports and independent of the values. Values of a wrong type are ignored.
    """
    head = _head_group(cluster)
    params = _start_parameters(cluster)
    named = _named_ports(head)
    refused: list[str] = []
    wanted: dict[str, int] = {}
    # Where Ray listens for a role. Without a start parameter, this is the default, whatever the container names.
    started: set[tuple[int, str]] = set()
    for role, (parameter, default) in _PARAMETERS.items():
        value = params.get(parameter)
        if value is None:
            wanted[role] = named.get(role, default)
            started.add((default, role))
            continue
        number = _number(value)
        if number is None:
            shown = str(value)[:_MAX_SHOWN]
            refused.append(f"{parameter} of the head is {shown!r}, which is not a port number")
        else:
            wanted[role] = number
            started.add((number, role))
    # After an invalid parameter, Ray listens on a port that is not known, which can be any.
    is_known = not refused
    serve = _serve_ports(cluster, named)
    if len(serve) > MAX_SERVE_PORTS:
        refused.append(
            f"the head has {len(serve)} ports for Serve; the first {MAX_SERVE_PORTS} are used"
        )
    wanted |= dict(islice(serve.items(), MAX_SERVE_PORTS))
    internal_use = _internal_uses(params)
    claims = started | {(number, name) for name, number in wanted.items()}
    claimants: dict[int, list[str]] = {}
    for number, name in sorted(claims):
        claimants.setdefault(number, []).append(name)
    granted: dict[str, int] = {}
    for name, number in wanted.items():
        reason = internal_use(number)
        if not reason:
            others = [other for other in claimants[number] if other != name]
            reason = f"so has {others[0]}" if others else ""
        if not reason and number == PROXY_PORT:
            reason = "the proxy that authenticates users of the dashboard listens there"
        if reason:
            refused.append(f"{name} has port {number}, but {reason}")
        else:
            granted[name] = number
    proxy = None
    use_of_proxy_port = internal_use(PROXY_PORT)
    if use_of_proxy_port:
        refused.append(f"the dashboard's proxy has port {PROXY_PORT}, but {use_of_proxy_port}")
    elif is_known and PROXY_PORT not in claimants:
        proxy = PROXY_PORT

    def is_started(role: Role) -> bool:
        return is_known and role in granted and (granted[role], role) in started

    serve_ports = sorted(number for name, number in granted.items() if name not in _PARAMETERS)
    return RayPorts(
        dashboard=granted.get("dashboard"),
        client=granted.get("client"),
        metrics=granted.get("metrics"),
        serve=tuple(serve_ports),
        proxy=proxy,
        client_is_started=is_started("client"),
        dashboard_is_started=is_started("dashboard"),
        refused=tuple(refused[:_MAX_REFUSALS]),
        named=named,
    )


class UnservedPort(msgspec.Struct, frozen=True):
    """A port on which Ray listens because of a start ``parameter``, and which the head's Service does not have."""

    name: str
    parameter: str
    number: int


def unserved_ports(cluster: Mapping[str, Any]) -> Iterator[UnservedPort]:
    """Yield the ports of the dashboard and of clients that a start parameter sets, but the Service does not have."""
    params = _start_parameters(cluster)
    if _DASHBOARD_PARAMETER not in params and _CLIENT_PARAMETER not in params:
        return  # the defaults of Ray are also those of the Service
    ports = ports_of(cluster)
    if ports.dashboard is not None and ports.dashboard_is_started:
        yield from _unserved_port(ports, "dashboard", ports.dashboard)
    if ports.client is not None and ports.client_is_started:
        yield from _unserved_port(ports, "client", ports.client)


def _unserved_port(ports: RayPorts, role: Role, number: int) -> Iterator[UnservedPort]:
    if ports.service_port(role) != number:
        parameter, _ = _PARAMETERS[role]
        yield UnservedPort(role, parameter, number)


def _serve_ports(cluster: Mapping[str, Any], named: Mapping[str, int]) -> dict[str, int]:
    """Return the ports of Serve by name: those called ``serve`` or ``serve-*`` (KubeRay's ``isServingPort``).

    A RayService, and a cluster with KubeRay's annotation for a Serve Service, has Ray's default if it names none.
    """
    found = {
        name: number
        for name, number in named.items()
        if name == _SERVE or name.startswith(f"{_SERVE}-")
    }
    if found:
        return found
    if _belongs_to_service(cluster) or annotations_of(cluster).get(_SERVE_ANNOTATION) == "true":
        return {_SERVE: SERVE_PORT}
    return {}


def _belongs_to_service(cluster: Mapping[str, Any]) -> bool:
    """Return whether a RayService controls ``cluster``."""
    owner = controller_of(cluster) or {}
    if owner.get("kind") != "RayService":
        return False
    return GVK.parse(str(owner.get("apiVersion")), "RayService").group == "ray.io"


def _internal_uses(params: Mapping[str, Any]) -> Callable[[int], str]:
    """Return a function from a port to a clause that says for what Ray itself uses it; empty if for nothing."""
    parameters: dict[int, str] = {}
    for parameter, default in _INTERNAL.items():
        port = default
        if parameter in params:
            port = _number(params[parameter])
        if port is not None:
            parameters.setdefault(port, parameter)
    lowest = _number(params.get("min-worker-port")) or _MIN_WORKER_PORT
    highest = _number(params.get("max-worker-port")) or _MAX_WORKER_PORT

    def use(number: int) -> str:
        if number in parameters:
            parameter = parameters[number]
            return f"Ray's {_SERVICES[parameter]} listens there (start parameter {parameter})"
        if lowest <= number <= highest:
            return f"Ray's worker processes listen on {lowest} to {highest} (min-worker-port, max-worker-port)"
        return ""

    return use


def _number(value: object) -> int | None:
    """Return the port number that a start parameter contains; ``None`` if it is not exactly one."""
    if not isinstance(value, str) or not _PORT.fullmatch(value):
        return None
    number = int(value)
    return number if number <= _MAX_PORT else None


def _head_group(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(cluster.get("spec")).get("headGroupSpec"))


def _start_parameters(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(_head_group(cluster).get("rayStartParams"))


def _named_ports(head: Mapping[str, Any]) -> dict[str, int]:
    """Return the named TCP ports of the Ray container; of several with one name the first, as KubeRay does."""
    found: dict[str, int] = {}
    pod = mapping(mapping(head.get("template")).get("spec"))
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers:
        return found
    ports = mapping(containers[0]).get("ports")
    if not isinstance(ports, list):
        return found
    for port in ports:
        entry = mapping(port)
        name = entry.get("name")
        number = entry.get("containerPort")
        if not isinstance(name, str) or not isinstance(number, int) or isinstance(number, bool):
            continue
        if 1 <= number <= _MAX_PORT and entry.get("protocol", "TCP") == "TCP":
            found.setdefault(name, number)
    return found
