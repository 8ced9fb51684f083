"""Executes the faults of :mod:`envtest.faults`, and serves them to other programs at ``/envtest/faults``."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, fields
from http import HTTPStatus
from typing import Any

from envtest.apimachinery.errors import (
    StatusError,
    bad_request,
    error_of_code,
    expired,
    method_not_allowed_here,
)
from envtest.auth.attributes import Attributes
from envtest.endpoints.decoder import JSONError, load_json
from envtest.endpoints.request import Page, Request, Response, json_response, status_response
from envtest.faults import Fault, FaultError, Faults
from envtest.http_server.responses import SentResponse

__all__ = [
    "CONTROL_PATHS",
    "FAULTS_PATH",
    "InjectedReset",
    "faults_page",
    "inject",
    "inject_after",
]

CONTROL_PATHS = "/envtest/"
"""The prefix of pages that control the server: they have no faults, and respond while the server is paused."""

FAULTS_PATH = f"{CONTROL_PATHS}faults"


class InjectedReset(ConnectionResetError):
    """Raised when an injected fault has closed the connection."""


_FIELDS = {each.name for each in fields(Fault)} - {"injected", "since"}


async def inject(faults: Faults, request: Request, attributes: Attributes) -> Response | None:
    """Apply the fault of a request before it is processed; ``None`` means that it is processed normally."""
    fault = request.fault
    if fault is None or fault.after:
        return None
    return await _apply(faults, fault, request, attributes)


async def inject_after(
    faults: Faults, request: Request, attributes: Attributes, response: Response | SentResponse
) -> Response | SentResponse:
    """Return the response to send instead of ``response`` if the fault applies after a request was processed."""
    fault = request.fault
    if (
        fault is None
        or not fault.after
        or not isinstance(response, Response)
        or response.code >= HTTPStatus.BAD_REQUEST
    ):
        return response
    return await _apply(faults, fault, request, attributes) or response


async def _apply(
    faults: Faults, fault: Fault, request: Request, attributes: Attributes
) -> Response | None:
    fault.injected += 1
    for listener in faults.listeners:
        listener(fault)
    if fault.latency:
        await asyncio.sleep(fault.latency)
    if fault.reset:
        transport = request.raw.transport
        if transport is not None:
            transport.abort()
        raise InjectedReset("connection reset by an injected fault")
    if fault.code:
        return status_response(_error(fault))
    if fault.expired and attributes.verb != "watch":
        return status_response(expired(fault.message or "too old resource version: 1 (2)"))
    return None


def _error(fault: Fault) -> StatusError:
    error = error_of_code(fault.code, fault.message or f"injected fault: {fault.code}")
    if fault.reason:
        error.reason = fault.reason
    if fault.retry_after is not None:
        error.details = {"retryAfterSeconds": fault.retry_after}
        error.headers["Retry-After"] = str(fault.retry_after)
    return error


def _parse_rule(document: Any) -> Fault:
    if not isinstance(document, dict):
        raise bad_request("a fault must be a JSON object")
    unknown = sorted(document.keys() - _FIELDS)
    if unknown:
        raise bad_request(
            f"unknown field {unknown[0]!r}: must be one of {', '.join(sorted(_FIELDS))}"
        )
    return Fault(**document)


def _rule_document(rule: Fault) -> dict[str, Any]:
    document = asdict(rule)
    del document["since"]  # a time of this process's clock
    return document


def faults_page(faults: Faults) -> Page:
    """Return the page ``/envtest/faults``.

    GET lists the rules, POST adds one (or pauses the server, with ``?paused=true``), DELETE removes them all. The page
    has no faults and also responds while the server is paused, so that another program can end both.
    """

    async def page(request: Request) -> Response | None:
        if request.path != FAULTS_PATH:
            return None
        if request.method == "DELETE":
            faults.clear()
        elif request.method == "POST" and request.flag("paused"):
            faults.pause()
        elif request.method == "POST":
            try:
                faults.add(_parse_rule(load_json(await request.body())))
            except (JSONError, FaultError) as error:
                raise bad_request(str(error)) from None
        elif request.method != "GET":
            raise method_not_allowed_here()
        return json_response({"faults": [_rule_document(rule) for rule in faults.rules]})

    return page
