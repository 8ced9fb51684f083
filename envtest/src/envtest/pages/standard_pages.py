"""The paths that are not resources: health, version, metrics, discovery, OpenAPI and the issuer of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import orjson

from envtest.apimachinery.errors import (
    method_not_allowed_here,
    not_acceptable_here,
    resource_not_found,
)
from envtest.endpoints.request import Page, PageResponse, Request, Response, json_response
from envtest.pages.health import HealthChecks, RequestMetrics, version_response
from envtest.pages.zpages import ServerPages
from envtest.writes.server_core import Core

if TYPE_CHECKING:
    from envtest.aggregation.api_services import APIServices
    from envtest.pages.api_discovery import Discovery
    from envtest.pages.openapi import OpenAPI

__all__ = ["object_counts", "standard_pages"]

_KEY_SET = "application/jwk-set+json"


def object_counts(core: Core) -> Iterator[tuple[str, int]]:
    """Iterate over the resources and how many objects each has."""
    for resource in core.store.resources():
        yield str(resource), core.store.count(resource)


def _response(response: PageResponse) -> Response:
    headers = dict(response.headers)
    content_type = headers.pop("Content-Type", "application/json")
    return Response(response.body, response.code, content_type, headers)


def standard_pages(
    core: Core, health: HealthChecks, metrics: RequestMetrics, api_services: APIServices
) -> list[Page]:
    """Return the pages of an API server; each returns ``None`` for a path that it does not serve."""

    @cache
    def discovery() -> Discovery:
        from envtest.pages.api_discovery import Discovery

        return Discovery(core.registry, health.paths(), api_services)

    @cache
    def openapi() -> OpenAPI:
        from envtest.pages.openapi import OpenAPI

        return OpenAPI(core.registry, core.version)

    async def documents(request: Request) -> Response | None:
        headers = request.headers
        accept = headers.get("Accept", "")
        known = headers.get("If-None-Match", "")
        if request.path.startswith("/openapi/v"):
            response = openapi().respond(request.path, accept, known, request.query.get("hash", ""))
        else:
            response = discovery().respond(
                request.path, accept, known, address=headers.get("Host", "")
            )
        if response is None:
            return None
        if request.method not in {"GET", "HEAD"}:
            raise method_not_allowed_here()
        return _response(response)

    server = ServerPages(core.version, {"authorization-mode": "RBAC"})

    async def status(request: Request) -> Response | None:
        if request.path.rstrip("/") == "/version":
            if request.method != "GET":
                raise method_not_allowed_here()
            return _response(version_response(core.version))
        if request.path.startswith("/version/"):
            raise resource_not_found()
        page = server.respond(request.path, request.headers.get("Accept", ""))
        if page:
            return page
        if request.path == "/metrics":
            return _response(metrics.respond())
        if request.path == "/metrics/slis":
            return _response(health.indicators())
        response = health.respond(
            request.path,
            verbose="verbose" in request.query,
            exclude=request.query.getall("exclude", []),
        )
        return None if response is None else _response(response)

    async def issuer(request: Request) -> Response | None:
        if request.path == "/.well-known/openid-configuration":
            return json_response(core.tokens.configuration(request.headers.get("Host", "")))
        if request.path == "/openid/v1/jwks":
            accept = request.headers.get("Accept", "")
            if accept and not any(each in accept for each in ("*/*", "application/*", _KEY_SET)):
                raise not_acceptable_here((_KEY_SET,))
            return Response(orjson.dumps(core.tokens.key_set()), content_type=_KEY_SET)
        return None

    return [status, issuer, documents]
