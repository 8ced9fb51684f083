"""Finds the handler of a resource request, and the error to return if there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from envtest.aggregation.api_services import APIServices
from envtest.apimachinery.errors import (
    StatusError,
    bad_request,
    method_not_allowed_here,
    method_not_supported,
    not_found,
    resource_not_found,
)
from envtest.auth.attributes import Attributes
from envtest.endpoints.negotiation import TRANSFORMED, Output, check_route, negotiate
from envtest.endpoints.request import Request, Response, not_found_page, timed_out_page
from envtest.endpoints.response_transform import error_response
from envtest.handlers.patch import check_patch_type, patch
from envtest.handlers.read import get_object, list_objects
from envtest.handlers.subresources import SUBRESOURCES
from envtest.handlers.watch import watch_objects
from envtest.handlers.write import create, delete, delete_collection, update
from envtest.http_server.responses import SentResponse
from envtest.pages.health import RequestLabels, RequestMetrics
from envtest.registry.resource import RequestContext, ResourceInfo
from envtest.writes.server_core import Core

__all__ = ["Dispatcher"]

AnyResponse = Response | SentResponse
Handler = Callable[[Core, Request, RequestContext, Output], Awaitable[AnyResponse]]

_VERBS: dict[str, Handler] = {
    "get": get_object,
    "list": list_objects,
    "watch": watch_objects,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_COLLECTION = frozenset({"list", "watch", "create", "deletecollection"})


class Dispatcher:
    """Finds and runs the handler of a request, and counts it in the request metrics."""

    def __init__(self, core: Core, metrics: RequestMetrics, api_services: APIServices) -> None:
        self._core = core
        self._metrics = metrics
        self._api_services = api_services
        self._generation = -1
        self._builtin_groups: set[str] = set()

    def _is_builtin(self, group: str) -> bool:
        registry = self._core.registry
        if self._generation != registry.generation:
            self._generation = registry.generation
            self._builtin_groups = {info.group for info in registry if not info.is_crd}
        return group in self._builtin_groups

    async def dispatch(self, request: Request, attributes: Attributes) -> AnyResponse:
        """Return the response to a request for a resource. Raises StatusError."""
        if request.path.startswith("//"):  # authorization ignores empty segments, routing does not
            return not_found_page()
        info = self._core.registry.lookup(attributes.group, attributes.version, attributes.resource)
        if info is None:
            relayed = await self._api_services.relay(request, attributes.group, attributes.version)
            if relayed is not None:
                return relayed
            if self._is_builtin(attributes.group):
                raise resource_not_found()
            return not_found_page()
        on_collection = not _path_name(attributes)
        misplaced = _misplaced(info, attributes, request.path, on_collection=on_collection)
        if misplaced is not None:
            return misplaced
        # authorized as GET, but without a route
        if request.method == "HEAD" and attributes.subresource != "proxy":
            raise method_not_allowed_here()
        if info.deprecation and info.is_crd:
            request.warnings.append(info.deprecation)
        handler = self._handler(request, info, attributes, on_collection=on_collection)
        ctx = RequestContext(
            user=request.user,
            verb=attributes.verb,
            info=info,
            namespace=attributes.namespace if info.namespaced else "",
            name=_path_name(attributes, request),
            subresource=attributes.subresource,
            warnings=request.warnings,
            deadline=request.deadline,
            moment=self._core.clock.now(),
        )
        accept = request.headers.get("Accept", "")
        is_connection = attributes.subresource in _CONNECTIONS and not info.is_crd
        if is_connection:
            accept = ""
        if not info.is_crd:
            check_route(accept, on_collection=attributes.verb in _STREAMED)
            if attributes.verb == "patch" and not is_connection:
                check_patch_type(request, info)
        request.audit["annotations"] = ctx.audit
        ctx.warn(info.deprecation)
        output = negotiate(accept, info.is_crd, _transformed(info, attributes.subresource))
        if request.flag("pretty"):
            output = output._replace(pretty=True)
        try:
            async with asyncio.timeout_at(ctx.deadline) as timer:
                response = await handler(self._core, request, ctx, output)
        except TimeoutError:
            if not timer.expired():
                raise
            response = timed_out_page()
        except StatusError as error:
            response = error_response(request, error)
        finally:
            request.audit["name"] = ctx.name
        if attributes.verb in _WRITES:  # before the response, as kube-apiserver usually does
            await self._core.store.let_watchers_send()
        return response

    def _handler(
        self, request: Request, info: ResourceInfo, attributes: Attributes, *, on_collection: bool
    ) -> Handler:
        verb = attributes.verb
        if attributes.subresource:
            subresource = info.subresources.get(attributes.subresource)
            if subresource is None:
                raise (
                    not_found(info.resource, attributes.name)
                    if info.is_crd
                    else resource_not_found()
                )
            special = SUBRESOURCES.get(
                (info.group, info.plural, attributes.subresource)
            ) or SUBRESOURCES.get(("*", "*", attributes.subresource))
            # OPTIONS has no verb, and is relayed to what a proxy subresource names
            is_relayed = not verb and subresource.name == "proxy"
            # CRDs are routed by a handler of their own, whose errors name the resource.
            if verb not in subresource.verbs and not is_relayed:
                raise (
                    method_not_supported(info.resource, verb)
                    if info.is_crd
                    else method_not_allowed_here()
                )
            if special is not None:
                return special
        elif info.is_crd and on_collection and verb in ("update", "patch"):
            if verb == "patch":
                check_patch_type(request, info)
            raise bad_request("name must be provided")
        elif info.is_crd and verb == "create":
            return _VERBS[verb]  # also at the path of an object, whose name is then ignored
        elif verb not in info.verbs or (verb in _COLLECTION) != on_collection:
            if not info.is_crd:
                has_items = bool({"get", "update", "patch", "delete"} & set(info.verbs))
                if not on_collection and not has_items:
                    raise resource_not_found()
                raise method_not_allowed_here()
            raise method_not_supported(info.resource, verb)
        elif not info.is_crd:
            special = SUBRESOURCES.get((info.group, info.plural, verb))
            if special is not None:
                return special
        try:
            return _VERBS[verb]
        except KeyError:
            raise method_not_allowed_here() from None

    def observe(self, attributes: Attributes, response: AnyResponse, seconds: float) -> None:
        """Record a finished request in the metrics."""
        code = response.code if isinstance(response, Response) else response.status
        if not attributes.is_resource_request:
            scope = ""
        elif attributes.name:
            scope = "resource"
        elif attributes.namespace:
            scope = "namespace"
        else:
            scope = "cluster"
        self._metrics.observe(
            RequestLabels(
                verb=_METRIC_VERBS.get(attributes.verb, attributes.verb.upper()),
                group=attributes.group,
                version=attributes.version,
                resource=attributes.resource,
                subresource=attributes.subresource,
                scope=scope,
                code=str(code),
            ),
            seconds,
        )


_UNTRANSFORMED = frozenset({"binding", "eviction", "token"})
_WITHOUT_TABLE = frozenset(
    {
        ("apiservices", "status"),
        ("certificatesigningrequests", "approval"),
        ("customresourcedefinitions", "status"),
        ("devicetaintrules", "status"),
        ("namespaces", "finalize"),
        ("pods", "ephemeralcontainers"),
        ("pods", "resize"),
        ("resourceclaims", "status"),
    }
)
_CONNECTIONS = frozenset({"attach", "exec", "portforward", "proxy"})
"""Subresources whose requests and responses are not objects, so that their media types are not checked."""
_METRIC_VERBS = {"create": "POST", "update": "PUT"}


def _transformed(info: ResourceInfo, subresource: str) -> frozenset[str]:
    """Return the kinds into which a resource can be transformed.

    Reviews, which are not stored, have no tables, nor have some subresources.
    """
    if subresource in _UNTRANSFORMED:
        return frozenset()
    has_no_table = info.verbs == ("create",) or (info.plural, subresource) in _WITHOUT_TABLE
    return _METADATA if has_no_table and not info.is_crd else TRANSFORMED


_NAMESPACES = "/api/v1/namespaces/"
_STREAMED = frozenset({"list", "watch"})
_METADATA = TRANSFORMED - {"Table"}


def _path_name(attributes: Attributes, request: Request | None = None) -> str:
    """Return the object name in the path; a name that is only in a field selector does not count."""
    if (
        attributes.verb == "watch"
        and request is not None
        and request.path.rstrip("/").endswith(f"/{attributes.name}")
    ):
        return attributes.name if "/watch/" in request.path else ""
    if attributes.verb in {"list", "watch", "deletecollection"}:
        return ""
    return attributes.name


def _misplaced(
    info: ResourceInfo, attributes: Attributes, path: str, *, on_collection: bool
) -> Response | None:
    """Return the response to a path whose namespace, or its absence, does not match the scope of the resource.

    The namespaces of a namespace do not exist either, nor what is below a subresource of a built-in kind.
    """
    subresource = attributes.subresource
    is_below_subresource = subresource not in ("", "proxy") and not path.rstrip("/").endswith(
        f"/{subresource}"
    )
    if not info.is_crd and (
        is_below_subresource or path.startswith(f"{_NAMESPACES}{attributes.namespace}/namespaces")
    ):
        raise resource_not_found()
    if info.namespaced and not attributes.namespace and attributes.verb not in {"list", "watch"}:
        if info.is_crd:
            return not_found_page()
        if on_collection and attributes.verb in {"create", "deletecollection", "update", "patch"}:
            raise method_not_allowed_here()
        raise resource_not_found()
    if not info.namespaced and attributes.namespace and attributes.resource != "namespaces":
        if info.is_crd:
            return not_found_page()
        raise resource_not_found()
    return None
