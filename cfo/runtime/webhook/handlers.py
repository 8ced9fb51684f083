"""Call a defaulter or validator for an admission request, and turn its result or exception into a response."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import orjson
import structlog

from cfo.runtime.client.errors import APIError
from cfo.runtime.field import FieldErrors
from cfo.runtime.objects import Object
from cfo.runtime.webhook.admission import (
    AdmissionRequest,
    AdmissionResponse,
    Defaulter,
    Denied,
    Handler,
    InvalidObject,
    Operation,
    Validator,
    Warnings,
    allowed,
    denied,
    errored,
    patched,
)
from cfo.runtime.webhook.review import json_patch

__all__ = ["DefaultingHandler", "ValidatingHandler", "denial", "respond"]

_log = structlog.get_logger(__name__)

T = TypeVar("T")


async def _await_if_needed(value: T | Awaitable[T]) -> T:
    """Return ``value``, awaited first if it is awaitable."""
    if inspect.isawaitable(value):
        value = await value
    return value


class DefaultingHandler:
    """Responds with a JSON patch of the changes that ``defaulter`` makes. Deletions are allowed without calling it."""

    def __init__(self, defaulter: Defaulter) -> None:
        self._defaulter = defaulter

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Call the defaulter for the object of the request."""
        if request.operation is Operation.DELETE:
            return allowed()
        if request.object is None:
            return errored(400, f"{request.operation} without object")
        raw = request.raw_object or orjson.dumps(request.object)
        result: Object | None = await _await_if_needed(self._defaulter.default(request.object, request))
        return patched("", *await request.compute(_patch, raw, request.object if result is None else result))


def _patch(raw: bytes, changed: Object) -> Sequence[Mapping[str, Any]]:
    return json_patch(orjson.loads(raw), changed)


class ValidatingHandler:
    """Responds with the result of ``validator``."""

    def __init__(self, validator: Validator) -> None:
        self._validator = validator

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Call the validator method for the operation; CONNECT is allowed without a call, as in controller-runtime."""
        missing = errored(400, f"{request.operation} without object or oldObject")
        warnings: Warnings
        match request.operation:
            case Operation.CREATE:
                if request.object is None:
                    return missing
                warnings = await _await_if_needed(self._validator.validate_create(request.object, request))
            case Operation.UPDATE:
                if request.object is None or request.old_object is None:
                    return missing
                warnings = await _await_if_needed(
                    self._validator.validate_update(request.old_object, request.object, request)
                )
            case Operation.DELETE:
                if request.old_object is None:
                    return missing
                warnings = await _await_if_needed(self._validator.validate_delete(request.old_object, request))
            case _:
                warnings = None
        return allowed().with_warnings(*(warnings or ()))


def denial(error: Exception, request: AdmissionRequest) -> AdmissionResponse | None:
    """Return the response for ``error``; ``None`` if it is an unexpected error of the webhook itself."""
    match error:
        case Denied() | InvalidObject():
            return error.response
        case FieldErrors():
            identity = {"name": request.name, "group": request.kind.group, "kind": request.kind.kind}
            details = {key: value for key, value in identity.items() if value}
            return denied(str(error), details={**details, "causes": error.causes})
        case APIError():
            return denied(error.message, code=error.code, reason=error.reason, details=error.details)
        case _:
            return None


async def respond(handler: Handler, request: AdmissionRequest) -> tuple[AdmissionResponse, bool]:
    """Return the handler's response, and whether it failed unexpectedly.

    An exception that is not a denial (see :func:`denial`) is logged, and becomes a response with code 500.
    """
    failed = False
    try:
        response = await handler.handle(request)
    except Exception as error:  # noqa: BLE001 - an error in a webhook must not stop the server
        denied_response = denial(error, request)
        failed = denied_response is None
        response = denied_response or errored(500, f"the webhook failed: {type(error).__name__}: {error}")
        if failed:
            _log.error("Webhook failed", error=f"{type(error).__name__}: {error}", exc_info=error)
    return (
        replace(
            response,
            warnings=tuple(dict.fromkeys((*request.warnings, *response.warnings))),
            audit_annotations={**request.audit_annotations, **response.audit_annotations},
        ),
        failed,
    )
