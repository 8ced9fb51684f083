"""Call a defaulter or validator for an admission request, and turn its result or exception into a response."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import orjson
import structlog

from cfo.runtime.client.errors import APIError
from cfo.runtime.objects.errors import InvalidResource
from cfo.runtime.objects.field import FieldErrors, causes
from cfo.runtime.objects.unstructured import (
    NamespacedName,
    Object,
    ObjectKind,
    TypedObject,
    gvk_of,
    is_deleting,
    to_object,
)
from cfo.runtime.process import function_errors
from cfo.runtime.process.arguments import wrong_result
from cfo.runtime.process.logged_stacks import LoggedStacks
from cfo.runtime.process.printable import described, printable
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
    denied,
    errored,
)
from cfo.runtime.webhook.review import json_patch
from cfo.runtime.webhook.worker import TooManyReviews

_log = structlog.get_logger(__name__)

T = TypeVar("T")


async def _await_if_needed(value: T | Awaitable[T]) -> T:
    """Return ``value``, awaited first if it is awaitable."""
    if inspect.isawaitable(value):
        value = await value
    return value


class DefaultingHandler(Generic[T]):
    """Responds with a JSON patch of the changes that ``defaulter`` makes. Deletions are allowed without calling it.

    The defaulter receives objects as ``kind`` decodes them. An object that does not fit a class is denied, unless it is
    being deleted: it can then lose its finalizers.
    """

    def __init__(self, defaulter: Defaulter[T], kind: ObjectKind[T]) -> None:
        self._defaulter = defaulter
        self._kind = kind

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Call the defaulter for the object of the request."""
        if request.operation is Operation.DELETE:
            return AdmissionResponse(allowed=True)
        if request.object is None:
            return errored(400, f"{request.operation} without object")
        raw = request.raw_object or orjson.dumps(request.object)
        gvk = gvk_of(request.object)
        try:
            obj = self._kind.decode(request.object)
        except InvalidResource:
            if is_deleting(request.object):
                return AdmissionResponse(allowed=True)
            raise
        if isinstance(obj, TypedObject):
            # A value that the class converts (the string "1" to a number) is not a change of the defaulter.
            raw = await request.compute(_encode, obj)
        result: T | None = await _await_if_needed(self._defaulter.default(obj, request))
        changed = obj if result is None else result
        name = f"{type(self._defaulter).__name__}.default"
        if not isinstance(changed, dict | TypedObject):
            raise wrong_result(name, changed, "the changed object or None")
        changed_gvk = gvk_of(changed)
        if changed_gvk != gvk:
            raise TypeError(
                f"{name}: the changed object has apiVersion {changed_gvk.api_version!r:.100} and kind "
                f"{changed_gvk.kind!r:.100}: must have {gvk.api_version!r:.100} and {gvk.kind!r:.100}"
            )
        patch = await request.compute_next(_patch, raw, changed)
        return AdmissionResponse(allowed=True, patch=patch)


def _encode(obj: TypedObject) -> bytes:
    return orjson.dumps(obj.to_object())


def _patch(raw: bytes, changed: Any) -> Sequence[Mapping[str, Any]]:
    return json_patch(orjson.loads(raw), to_object(changed))


class ValidatingHandler(Generic[T]):
    """Responds with the result of ``validator``, which receives objects as ``kind`` decodes them.

    An object that does not fit a class is denied, unless it is deleted or being deleted. The update that repairs such
    an object is validated like a creation.
    """

    def __init__(self, validator: Validator[T], kind: ObjectKind[T]) -> None:
        self._validator = validator
        self._kind = kind

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Call the validator method for the operation; CONNECT is allowed without a call, as in controller-runtime."""
        missing = errored(400, f"{request.operation} without object or oldObject")
        validator = self._validator
        kind = self._kind
        waiting: Warnings | Awaitable[Warnings] = None
        match request.operation:
            case Operation.CREATE:
                if request.object is None:
                    return missing
                waiting = validator.validate_create(kind.decode(request.object), request)
            case Operation.UPDATE:
                if request.object is None or request.old_object is None:
                    return missing
                old = self._decode_stored(request.old_object)
                if old is not None:
                    waiting = validator.validate_update(old, kind.decode(request.object), request)
                elif not is_deleting(request.object):
                    waiting = validator.validate_create(kind.decode(request.object), request)
            case Operation.DELETE:
                if request.old_object is None:
                    return missing
                old = self._decode_stored(request.old_object)
                if old is not None:
                    waiting = validator.validate_delete(old, request)
            case _:
                pass
        warnings = await _await_if_needed(waiting)
        _require_warnings(validator, warnings)
        return AdmissionResponse(allowed=True, warnings=tuple(warnings or ()))

    def _decode_stored(self, obj: Object) -> T | None:
        """Return the stored object, or ``None`` if it does not fit the class."""
        try:
            return self._kind.decode(obj)
        except InvalidResource:
            return None


def _require_warnings(validator: object, warnings: object) -> None:
    """Raise :class:`TypeError` unless a validator returned a list of warnings or ``None``: ``False`` denies nothing."""
    if warnings is None:
        return
    if isinstance(warnings, list | tuple) and all(isinstance(text, str) for text in warnings):
        return
    allowed = "None or a list of strings, the warnings; raise Denied to reject the object"
    raise wrong_result(type(validator).__name__, warnings, allowed)


def denial(error: Exception, request: AdmissionRequest) -> AdmissionResponse | None:
    """Return the response for ``error``; ``None`` if it is an unexpected error of the webhook itself."""
    match error:
        case Denied() | InvalidObject():
            return error.response
        case FieldErrors() | InvalidResource():
            identity = {
                "name": request.name,
                "group": request.kind.group,
                "kind": request.kind.kind,
            }
            details = {key: value for key, value in identity.items() if value}
            return denied(str(error), details={**details, "causes": causes(error.errors)})
        case APIError():
            return denied(
                error.message, code=error.code, reason=error.reason, details=error.details
            )
        case _:
            return None


async def respond(
    handler: Handler, request: AdmissionRequest, stacks: LoggedStacks
) -> tuple[AdmissionResponse, bool]:
    """Return the handler's response, and whether it failed unexpectedly.

    An exception that is not a denial (see :func:`denial`) is logged, with its stack trace unless ``stacks`` has it, and
    becomes a response with code 500. Raises :class:`~cfo.runtime.webhook.worker.TooManyReviews`.
    """
    failed = False
    try:
        response = await handler.handle(request)
    except TooManyReviews:
        raise
    except Exception as error:  # noqa: BLE001 - an error in a webhook must not stop the server
        denied_response = denial(error, request)
        failed = denied_response is None
        problem = printable(described(error))
        response = denied_response or errored(500, f"the webhook failed: {problem}")
        if failed:
            _log.error(
                "Webhook failed",
                error=problem,
                exc_info=error if stacks.is_first(error) else None,
            )
            key = NamespacedName(request.namespace, request.name)
            function_errors.report(error, f"webhook for {request.kind.kind} {key}")
    warnings = dict.fromkeys((*request.warnings, *response.warnings))
    complete = replace(
        response,
        warnings=tuple(warnings),
        audit_annotations={**request.audit_annotations, **response.audit_annotations},
    )
    return complete, failed
