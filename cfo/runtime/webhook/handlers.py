"""From a :class:`~cfo.runtime.webhook.admission.Defaulter` or ``Validator`` to an answer, whatever happens in it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar

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

__all__ = ["DefaultingHandler", "ValidatingHandler", "answer", "refusal"]

_log = structlog.get_logger("cfo.runtime.webhook")

T = TypeVar("T")


async def _settled(value: T | Awaitable[T]) -> T:
    """The value, awaited where the function that gave it was async."""
    if inspect.isawaitable(value):
        value = await value
    return value


class DefaultingHandler:
    """Answers with the difference that ``defaulter`` makes. Deletions pass."""

    def __init__(self, defaulter: Defaulter) -> None:
        self._defaulter = defaulter

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Asks the defaulter about the object of the request."""
        if request.operation is Operation.DELETE:
            return allowed()
        if request.object is None:
            return errored(400, f"{request.operation} without an object")
        original = orjson.loads(request.raw_object or orjson.dumps(request.object))
        result: Object | None = await _settled(self._defaulter.default(request.object, request))
        return patched("", *json_patch(original, request.object if result is None else result))


class ValidatingHandler:
    """Answers what ``validator`` says."""

    def __init__(self, validator: Validator) -> None:
        self._validator = validator

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Asks the validator about the operation of the request; CONNECT passes, as in controller-runtime."""
        missing = errored(400, f"{request.operation} without the objects that it needs")
        warnings: Warnings
        match request.operation:
            case Operation.CREATE:
                if request.object is None:
                    return missing
                warnings = await _settled(self._validator.validate_create(request.object, request))
            case Operation.UPDATE:
                if request.object is None or request.old_object is None:
                    return missing
                warnings = await _settled(self._validator.validate_update(request.old_object, request.object, request))
            case Operation.DELETE:
                if request.old_object is None:
                    return missing
                warnings = await _settled(self._validator.validate_delete(request.old_object, request))
            case _:
                warnings = None
        return allowed().with_warnings(*(warnings or ()))


def refusal(error: Exception, request: AdmissionRequest) -> AdmissionResponse | None:
    """The answer that raising ``error`` stands for; ``None`` where it is an error of the webhook itself."""
    match error:
        case Denied() | InvalidObject():
            return error.response
        case FieldErrors():
            about = {"name": request.name, "group": request.kind.group, "kind": request.kind.kind}
            details = {key: value for key, value in about.items() if value}
            return denied(str(error), details={**details, "causes": error.causes})
        case APIError():
            return denied(error.message, code=error.code, reason=error.reason, details=error.details)
        case _:
            return None


async def answer(handler: Handler, request: AdmissionRequest) -> tuple[AdmissionResponse, bool]:
    """What ``handler`` answers, and whether it failed: an exception that is no refusal is a 500 and logged."""
    failed = False
    try:
        response = await handler.handle(request)
    except Exception as error:  # noqa: BLE001 - a webhook is somebody else's code; the server goes on
        refused = refusal(error, request)
        failed = refused is None
        response = refused or errored(500, f"the webhook failed: {type(error).__name__}: {error}")
        if failed:
            _log.error("a webhook failed", error=f"{type(error).__name__}: {error}", exc_info=error)
    return (
        replace(
            response,
            warnings=tuple(dict.fromkeys((*request.warnings, *response.warnings))),
            audit_annotations={**request.audit_annotations, **response.audit_annotations},
        ),
        failed,
    )
