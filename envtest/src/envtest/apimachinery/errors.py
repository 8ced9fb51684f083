"""The errors of kube-apiserver: a ``Status`` with code, reason, message and details.

The request pipeline reports errors by raising :class:`StatusError`; the server converts it to the response. The
constructors mirror apimachinery's ``api/errors`` package and have its messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from envtest.apimachinery.field_errors import FieldError, aggregate, go_quote

__all__ = [
    "GroupResource",
    "StatusError",
    "already_exists",
    "apply_conflict",
    "bad_request",
    "conflict",
    "error_of_code",
    "expired",
    "forbidden",
    "forbidden_path",
    "internal_error",
    "invalid_object",
    "method_not_allowed_here",
    "method_not_supported",
    "not_acceptable",
    "not_acceptable_here",
    "not_found",
    "plain_error",
    "request_entity_too_large",
    "resource_not_found",
    "rv_too_large",
    "service_unavailable",
    "too_many_requests",
    "unauthorized",
    "unsupported_media_type",
    "unsupported_media_type_here",
]


class GroupResource(NamedTuple):
    """A resource without its version, as messages and storage keys name it."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class StatusError(Exception):
    """An error response: HTTP ``code``, ``reason``, ``message``, ``details`` and headers.

    ``details=None`` omits the details; an empty dict is written as ``{}``, as in the errors that kube-apiserver returns
    before it knows the resource.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = dict(headers or {})
        self.list_meta: Mapping[str, Any] = {}

    def status(self) -> dict[str, Any]:
        """Return the ``Status`` object of the response."""
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
        body["metadata"].update(self.list_meta)
        body["status"] = "Failure"
        if self.message:
            body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        body["code"] = self.code
        return body


def _details(resource: GroupResource, name: str = "", **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.resource
    details.update({key: value for key, value in more.items() if value})
    return details


def bad_request(message: str) -> StatusError:
    """Return a 400 ``BadRequest``."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """Return a 401: missing or invalid credentials."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(
    resource: GroupResource,
    name: str,
    why: str,
    *,
    causes: Sequence[Mapping[str, Any]] | None = None,
) -> StatusError:
    """Return a 403 for a resource; ``why`` is the text after ``is forbidden:``. ``name`` may be empty."""
    description = f'{resource} "{name}"' if name else str(resource)
    if not resource.resource:
        return StatusError(403, "Forbidden", f"forbidden: {why}", {})
    return StatusError(
        403,
        "Forbidden",
        f"{description} is forbidden: {why}",
        _details(resource, name, causes=list(causes or ())),
    )


def forbidden_path(why: str) -> StatusError:
    """Return a 403 for a path that is not a resource."""
    return StatusError(403, "Forbidden", f"forbidden: {why}", {})


def not_found(resource: GroupResource, name: str) -> StatusError:
    """Return a 404 for an object."""
    return StatusError(404, "NotFound", f'{resource} "{name}" not found', _details(resource, name))


def resource_not_found() -> StatusError:
    """Return a 404 for a resource that does not exist in a known group version."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_supported(resource: GroupResource, verb: str) -> StatusError:
    """Return a 405 from the resource's storage: ``delete is not supported on resources of kind "x"``."""
    message = f'{verb} is not supported on resources of kind "{resource}"'
    return StatusError(405, "MethodNotAllowed", message, _details(resource))


def method_not_allowed_here(allowed: Iterable[str] = ()) -> StatusError:
    """Return a 405 from routing: the path does not have this method. ``allowed`` is the ``Allow`` header."""
    allow = ", ".join(allowed)
    return StatusError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        {},
        headers={"Allow": allow} if allow else None,
    )


def not_acceptable(message: str) -> StatusError:
    """Return a 406 from content negotiation; ``message`` is the whole message."""
    return StatusError(406, "NotAcceptable", message)


def not_acceptable_here(served: Iterable[str]) -> StatusError:
    """Return a 406 from routing: ``Accept`` has none of the media types that are served."""
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(served)}"
    return StatusError(406, "NotAcceptable", message, {})


def already_exists(
    resource: GroupResource, name: str, *, terminating: bool = False, generated: bool = False
) -> StatusError:
    """Return a 409 ``AlreadyExists``.

    ``terminating`` means that the existing object is being deleted, ``generated`` that the request has a
    ``generateName``, also with a name.
    """
    message = f'{resource} "{name}" already exists'
    details = _details(resource, name)
    if terminating:
        message = f"object is being deleted: {message}"
    if generated:
        message += ", the server was not able to generate a unique name for the object"
        details["retryAfterSeconds"] = 1
    return StatusError(409, "AlreadyExists", message, details)


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(resource: GroupResource, name: str, why: str = MODIFIED) -> StatusError:
    """Return a 409 ``Conflict``: ``Operation cannot be fulfilled on ...``."""
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name))


def apply_conflict(message: str, causes: Sequence[tuple[str, str]]) -> StatusError:
    """Return a 409 of a server-side apply; ``causes`` are (message, field path) pairs."""
    listed = [
        {"reason": "FieldManagerConflict", "message": text, "field": path} for text, path in causes
    ]
    return StatusError(409, "Conflict", message, {"causes": listed})


def expired(message: str) -> StatusError:
    """Return a 410 ``Expired``: the resource version or the continue token is too old."""
    return StatusError(410, "Expired", message)


def request_entity_too_large(limit: int) -> StatusError:
    """Return a 413; ``limit`` in bytes."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported_media_type(accepted: Iterable[str]) -> StatusError:
    """Return a 415 from the resource's handler, with the accepted media types."""
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
    return StatusError(415, "UnsupportedMediaType", message)


def unsupported_media_type_here() -> StatusError:
    """Return a 415 from routing."""
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def invalid_object(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """Return a 422 ``Invalid`` with one cause for each field error; joined as in apimachinery."""
    qualified_kind = f"{kind}.{group}" if group else kind
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    if errors:
        details["causes"] = [error.cause() for error in errors]
    return StatusError(
        422,
        "Invalid",
        f"{qualified_kind} {go_quote(name)} is invalid: {aggregate(errors)}",
        details,
    )


def too_many_requests(
    message: str, retry_after: int, *, details: Mapping[str, Any] | None = None
) -> StatusError:
    """Return a 429; ``retry_after`` in seconds, 0 if the client cannot know when to try again."""
    if not retry_after:
        return StatusError(429, "TooManyRequests", message, dict(details or {}))
    body = {"retryAfterSeconds": retry_after, **(details or {})}
    return StatusError(
        429, "TooManyRequests", message, body, headers={"Retry-After": str(retry_after)}
    )


def internal_error(message: str) -> StatusError:
    """Return a 500 ``InternalError``: ``Internal error occurred: message``."""
    return StatusError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}]},
    )


def service_unavailable(message: str) -> StatusError:
    """Return a 503."""
    return StatusError(503, "ServiceUnavailable", message, None)


def plain_error(message: str) -> StatusError:
    """Return a 500 without a reason, as kube-apiserver reports errors that are not a ``Status``."""
    return StatusError(500, "", message)


def rv_too_large(requested: int, current: int, *, from_cache: bool = True) -> StatusError:
    """Return a 504: the resourceVersion is newer than the server's.

    A client can try again if kube-apiserver reads the state from its cache rather than from etcd.
    """
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    if not from_cache:
        return StatusError(504, "Timeout", message, {"causes": causes})
    details = {"causes": causes, "retryAfterSeconds": 1}
    return StatusError(504, "Timeout", message, details, headers={"Retry-After": "1"})


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Gone",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def error_of_code(code: int, message: str) -> StatusError:
    """Return an error with the default reason of apimachinery for ``code``."""
    return StatusError(code, _REASONS.get(code, ""), message)
