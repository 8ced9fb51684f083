"""Subresources that connect to a kubelet, a pod or a Service: log, exec, attach, portforward and proxy.

Requests are validated as by kube-apiserver. If the control plane has a scenario, its pod service answers them;
otherwise they end with an error, since there is no node to connect to, and logs are empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

from envtest.admission.webhook_client import CallFailed, address_text
from envtest.apimachinery.errors import (
    GroupResource,
    bad_request,
    internal_error,
    invalid_object,
    not_found,
    service_unavailable,
)
from envtest.apimachinery.field_errors import FieldError, forbidden, go_quote, invalid
from envtest.apimachinery.objects import Object
from envtest.auth.second_check import check_connect
from envtest.endpoints.negotiation import Output
from envtest.endpoints.request import Request, Response
from envtest.formats.go_integers import parse_int64
from envtest.http_server.html_links import rewritten_url
from envtest.http_server.received import Received
from envtest.http_server.relay import relay_response, relayed_headers
from envtest.http_server.request_head import origin_form
from envtest.http_server.responses import SentResponse
from envtest.registry.resource import RequestContext
from envtest.writes.server_core import Core

__all__ = ["connect", "proxy", "read_log"]

_PODS: Final = GroupResource("", "pods")
_NODES: Final = GroupResource("", "nodes")
_SERVICES: Final = GroupResource("", "services")
_ENDPOINTS: Final = GroupResource("", "endpoints")
_CONTAINER_LISTS: Final = ("containers", "initContainers", "ephemeralContainers")
_INTEGERS: Final = ("tailLines", "sinceSeconds", "limitBytes")
_CREATE_NEEDED: Final = (1, 35)
"""Since this version, a GET of exec, attach and portforward needs the permission ``create`` as well."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NO_NODES: Final = "error dialing backend: this control plane runs no nodes"


def _stored(core: Core, resource: GroupResource, namespace: str, name: str) -> Object:
    record = core.store.get(resource, namespace, name)
    if record is None:
        raise not_found(resource, name)
    return record.obj()


async def connect(
    core: Core, request: Request, ctx: RequestContext, output: Output
) -> Response | SentResponse:
    """Handle exec, attach and portforward."""
    await _admit(core, ctx, _connect_options(request, ctx))
    if core.version >= _CREATE_NEEDED:
        check_connect(core.authorizer, ctx)
    pod = _stored(core, _PODS, ctx.namespace, ctx.name)
    if ctx.subresource != "portforward":
        _check_container(request, pod)
    node = pod["spec"].get("nodeName")
    if not node:
        raise bad_request(f"pod {ctx.name} does not have a host assigned")
    _stored(core, _NODES, "", node)
    if core.pod_service is None:
        raise internal_error(_NO_NODES)
    return await core.pod_service.connect(core, request, ctx, pod)


async def _admit(core: Core, ctx: RequestContext, options: Object) -> None:
    """Let policies and webhooks review a connection (CONNECT). Raises StatusError."""
    kind = ctx.info.subresources[ctx.subresource].kind
    ctx.operation = "CONNECT"
    await core.admission.connect(ctx, {"kind": kind, "apiVersion": ctx.info.version, **options})


def _connect_options(request: Request, ctx: RequestContext) -> Object:
    """Return the options of exec, attach or portforward in the query as fields of their kind."""
    if ctx.subresource == "portforward":
        ports = [
            _port(each) for text in request.query.getall("ports", []) for each in text.split(",")
        ]
        return {"ports": ports} if ports else {}
    options: Object = {
        name: True for name in ("stdin", "stdout", "stderr", "tty") if request.flag(name)
    }
    container = request.parameter("container")
    if container:
        options["container"] = container
    if ctx.subresource == "exec":
        options["command"] = request.query.getall("command", None)
    return options


def _port(text: str) -> int:
    """Parse a port as Go's ``strconv.ParseUint`` with 16 bits. Raises StatusError (400)."""
    problem = "" if text.isascii() and text.isdecimal() else "invalid syntax"
    if not problem and (len(text) > 20 or int(text) >= 2**16):
        problem = "value out of range"
    if problem:
        raise bad_request(
            f"cannot convert to []int32: strconv.ParseUint: parsing {go_quote(text)}: {problem}"
        )
    return int(text)


async def read_log(
    core: Core, request: Request, ctx: RequestContext, output: Output
) -> Response | SentResponse:
    """Handle GET of a log, which is empty without a scenario."""
    numbers = {name: _integer(request.parameter(name)) for name in _INTEGERS}
    errors = list(_log_errors(numbers, request))
    if errors:
        raise invalid_object("", "PodLogOptions", ctx.name, errors)
    pod = _stored(core, _PODS, ctx.namespace, ctx.name)
    _check_container(request, pod)
    node = pod["spec"].get("nodeName")
    if not node:
        return Response(b"", 204, "")
    if core.store.get(_NODES, "", node) is None:
        raise not_found(ctx.info.resource, node)
    if core.pod_service is None:
        return Response(b"", 200, "text/plain")
    return await core.pod_service.send_log(core, request, pod, numbers)


def _integer(text: str) -> int | None:
    """Parse a parameter as Go's ``strconv.ParseInt``. Raises StatusError (400)."""
    if not text:
        return None
    try:
        return parse_int64(text)
    except ValueError as error:
        raise bad_request(str(error)) from None


def _log_errors(numbers: Mapping[str, int | None], request: Request) -> Iterator[FieldError]:
    lines = numbers["tailLines"]
    size = numbers["limitBytes"]
    seconds = numbers["sinceSeconds"]
    if lines is not None and lines < 0:
        yield invalid("tailLines", lines, "must be greater than or equal to 0")
    if size is not None and size < 1:
        yield invalid("limitBytes", size, "must be greater than 0")
    if seconds is not None and request.parameter("sinceTime"):
        yield forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified")
    elif seconds is not None and seconds < 1:
        yield invalid("sinceSeconds", seconds, "must be greater than 0")
    if request.parameter("stream"):
        yield forbidden("stream", "may not be specified")


def _check_container(request: Request, pod: Object) -> None:
    """Raise StatusError (400) unless the request names a container, or the pod has only one."""
    name = pod["metadata"]["name"]
    wanted = request.parameter("container")
    names: dict[str, list[str]] = {}
    for kind in _CONTAINER_LISTS:
        names[kind] = [each.get("name", "") for each in pod["spec"].get(kind) or ()]
    if wanted:
        if not any(wanted in each for each in names.values()):
            raise bad_request(f"container {wanted} is not valid for pod {name}")
    elif len(names["containers"]) > 1:
        choice = f"choose one of: [{' '.join(names['containers'])}]"
        if names["initContainers"]:
            choice += f" or one of the init containers: [{' '.join(names['initContainers'])}]"
        raise bad_request(f"a container name must be specified for pod {name}, {choice}")


async def proxy(
    core: Core, request: Request, ctx: RequestContext, output: Output
) -> Response | SentResponse:
    """Handle the proxy of a pod, Service or node, named as ``name``, ``name:port`` or ``scheme:name:port``.

    A scenario has the address of this machine to which requests for a port of a pod are relayed.
    """
    path = request.path.partition(f"/{ctx.info.plural}/{ctx.name}/proxy")[2]
    options = {"path": path} if path else {}
    await _admit(core, ctx, options)
    resource = ctx.info.resource
    parts = ctx.name.split(":")
    scheme, name, port = {1: ("", *parts, ""), 2: ("", *parts), 3: tuple(parts)}.get(
        len(parts), ("", "", "")
    )
    if not name or scheme not in ("", "http", "https"):
        raise bad_request(f"invalid {ctx.info.singular} request {go_quote(ctx.name)}")
    address = ""
    if resource == _SERVICES:
        names = _check_endpoints(core, ctx.namespace, name, port)
        if core.client is not None:
            address = next(core.client.endpoints.addresses(ctx.namespace, name, names), "")
    else:
        namespace = ctx.namespace if ctx.info.namespaced else ""
        found = _stored(core, resource, namespace, name)
        if resource == _PODS:
            if not _is_global((found.get("status") or {}).get("podIP") or ""):
                raise bad_request("address not allowed")
            address = _pod_address(core, found, port, scheme)
    if (
        core.client is None
        or core.scenario is None
        or not isinstance(request.raw, Received)
        or resource == _NODES
    ):
        raise internal_error(_NO_NODES)
    prefix = request.path.removesuffix(path)
    raw_path, mark, query = origin_form(request.raw.rel_url).partition("?")
    # names can be escaped, so the prefix is not compared
    rest = raw_path.split("/")[prefix.count("/") + 1 :]
    target = f"/{'/'.join(rest)}" if rest else ""
    target += mark + query
    if not path and request.method in ("GET", "HEAD"):
        return Response(b"", 301, "", {"Location": f"{request.path}/{target}"})
    if not address:
        raise service_unavailable(
            "error trying to reach service: dial tcp: connect: connection refused"
        )
    url = f"{scheme or 'http'}://{address}{target}"
    rewrite = partial(
        rewritten_url, prefix=prefix, hosts=(address, request.headers.get("Host", ""))
    )
    headers = relayed_headers(request.headers.items())
    opened = core.client.send(url, request.method, headers, await request.body() or None)
    try:
        return await relay_response(opened, request.raw.connection, CallFailed, rewrite)
    except CallFailed as error:
        raise service_unavailable(f"error trying to reach service: {error}") from error


def _pod_address(core: Core, pod: Object, port: str, scheme: str) -> str:
    """Return the local address of a pod's port, by default of its first one; empty if the scenario has none."""
    ports = [
        each["containerPort"]
        for container in pod["spec"]["containers"]
        for each in container.get("ports") or ()
    ]
    if port:
        number = port
    elif ports:
        number = str(ports[0])
    else:
        number = "443" if scheme == "https" else "80"
    local = core.scenario.ports_of(pod) if core.scenario is not None else {}
    return next(
        (address_text(*address) for each, address in local.items() if str(each) == number), ""
    )


def _check_endpoints(core: Core, namespace: str, name: str, port: str) -> set[str]:
    """Return the names of a Service's port. Raises StatusError (404, 503) unless it has the port and endpoints."""
    names = {port}
    if _INTEGER.fullmatch(port):
        ports: list[dict[str, Any]] = (
            _stored(core, _SERVICES, namespace, name)["spec"].get("ports") or []
        )
        names = {each.get("name") or "" for each in ports if str(each.get("port")) == port}
        if not names:
            raise service_unavailable(f"no service port {port} found for service {go_quote(name)}")
    record = core.store.get(_ENDPOINTS, namespace, name)
    if record is None:
        raise not_found(_SERVICES, name)
    if not record.obj().get("subsets"):
        raise service_unavailable(f"no endpoints available for service {go_quote(name)}")
    return names


def _is_global(text: str) -> bool:
    """Return whether an address is global unicast (``net.IP.IsGlobalUnicast``, which includes private addresses)."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    is_broadcast = text == "255.255.255.255"
    special = (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )
    return not (special or is_broadcast)
