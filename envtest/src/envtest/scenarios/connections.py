"""Serves exec, attach, port-forward and logs of pods on the simulated nodes of a scenario.

Imported with the first request that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from aiohttp import web

from envtest.apimachinery.errors import GroupResource, bad_request, internal_error
from envtest.apimachinery.objects import Object, find_condition
from envtest.endpoints.request import Request, Response
from envtest.http_server.received import Received
from envtest.http_server.responses import StreamResponse
from envtest.registry.resource import RequestContext
from envtest.scenarios.answers import forward_port, run_attach, run_command
from envtest.scenarios.logs import LogOptions, container_status, log_source, stream
from envtest.scenarios.scenario import Scenario
from envtest.simulation.node_state import internal_address
from envtest.streams.port_forward import serve_port_forward
from envtest.streams.remote_command import Options, serve_command
from envtest.writes.server_core import Core

__all__ = ["send_log", "serve"]

_PODS: Final = GroupResource("", "pods")
_NODES: Final = GroupResource("", "nodes")


def _check_node(core: Core, pod: Object) -> None:
    """Raise StatusError (500) if the kubelet of the pod's node cannot be reached."""
    record = core.store.get(_NODES, "", pod["spec"]["nodeName"])
    node = record.obj() if record is not None else {}
    ready = find_condition((node.get("status") or {}).get("conditions"), "Ready") or {}
    if ready.get("status") == "Unknown":
        address = internal_address(node) or pod["spec"]["nodeName"]
        raise internal_error(f"error dialing backend: dial tcp {address}:10250: i/o timeout")


def _container(request: Request, pod: Object) -> str:
    """Return the name of the container of a request."""
    name: str = request.parameter("container") or pod["spec"]["containers"][0]["name"]
    return name


async def serve(
    core: Core, scenario: Scenario, request: Request, ctx: RequestContext, pod: Object
) -> web.StreamResponse:
    """Answer exec, attach or port-forward. Raises StatusError if the container does not run."""
    with scenario.connected():
        return await _serve(core, scenario, request, ctx, pod)


async def _serve(
    core: Core, scenario: Scenario, request: Request, ctx: RequestContext, pod: Object
) -> web.StreamResponse:
    _check_node(core, pod)
    if ctx.subresource == "portforward":
        if (pod.get("status") or {}).get("phase") != "Running":
            phase = (pod.get("status") or {}).get("phase") or "Pending"
            raise internal_error(
                f"unable to forward port because pod is not running. Current status={phase}"
            )
        return await serve_port_forward(
            request, lambda port, connection: forward_port(scenario, pod, port, connection)
        )
    container = _container(request, pod)
    command = request.query.getall("command", [])
    if ctx.subresource == "exec" and not command:
        raise bad_request("you must specify at least 1 command for the container")
    options = Options(*(request.flag(name) for name in ("stdin", "stdout", "stderr", "tty")))
    if not (options.stdin or options.stdout or options.stderr):
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    if not (container_status(pod, container).get("state") or {}).get("running"):
        raise internal_error(f'unable to upgrade connection: container not found ("{container}")')
    if ctx.subresource == "exec":
        return await serve_command(
            request,
            options,
            lambda streams: run_command(
                scenario, core.clock, pod, container, command, streams, tty=options.tty
            ),
        )
    return await serve_command(
        request,
        options,
        lambda streams: run_attach(scenario, core.clock, pod, container, streams, tty=options.tty),
    )


async def send_log(
    core: Core, scenario: Scenario, request: Request, pod: Object, numbers: Mapping[str, int | None]
) -> Response | StreamResponse:
    """Answer GET of a log. Raises StatusError if the container has none."""
    _check_node(core, pod)
    container = _container(request, pod)
    metadata = pod["metadata"]
    options = LogOptions(
        follow=request.flag("follow"),
        previous=request.flag("previous"),
        timestamps=request.flag("timestamps"),
        tail=numbers["tailLines"],
        since=_since(core, request, numbers["sinceSeconds"]),
        limit=numbers["limitBytes"],
    )
    log_source(pod, container, previous=options.previous)

    def read() -> Object | None:
        record = core.store.get(_PODS, metadata["namespace"], metadata["name"])
        return None if record is None else record.obj()

    chunks = stream(scenario, core.clock, read, container, options)
    if not options.follow:
        return Response([chunk async for chunk in chunks] or b"", 200, "text/plain")
    assert isinstance(request.raw, Received)
    response = StreamResponse(200, [("Content-Type", "text/plain")])
    try:
        await response.prepare(request.raw.connection)
        with scenario.connected():
            async for chunk in chunks:
                await response.write(chunk)
        await response.write_eof()
    except ConnectionError:
        return response
    finally:
        await chunks.aclose()
    return response


def _since(core: Core, request: Request, seconds: int | None) -> datetime | None:
    """Return the time that ``sinceSeconds`` or ``sinceTime`` selects. Raises StatusError (400)."""
    if seconds is not None:
        return core.clock.now() - timedelta(seconds=seconds)
    text = request.parameter("sinceTime")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise bad_request(f"sinceTime: {text}: must be a time in RFC 3339 format") from None
    return moment if moment.tzinfo is not None else moment.astimezone()
