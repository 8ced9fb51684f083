"""Errors of requests to the API server.

A response with HTTP status 400 or above raises an :class:`APIError` that contains the server's ``Status``. Its
subclasses correspond to the common reasons, like apimachinery's ``errors.IsNotFound`` and similar functions. A request
that gets no response raises a :class:`TransportError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_TYPED_PATCH: Final = "failed to create typed patch object"
_DENIED: Final = re.compile(
    r' cannot ([a-z]{1,63}) resource "([a-z0-9./-]{1,253})" in API group "([a-z0-9.-]{0,253})"'
)
"""What RBAC denies, in the message of kube-apiserver."""
_MAX_DENIAL: Final = 2000
_ETCD_LIMIT: Final = "etcdserver: request is too large"


def _request_text(verb: str, resource: str) -> str:
    """Return how a message names a request; discovery is to GET a path, as kubectl calls it."""
    return f"{'get' if verb == 'discover' else verb} {resource}"


class APIError(Exception):
    """An error response of the API server.

    ``status`` is the unmodified Status object (empty if the response was not a Status); ``code`` is the HTTP status;
    ``retry_after`` is the delay in seconds that the server requested, or ``None``; ``verb`` and ``resource`` name the
    request in the message.
    """

    def __init__(
        self,
        code: int,
        status: Mapping[str, Any] | None = None,
        *,
        message: str = "",
        retry_after: float | None = None,
        verb: str = "",
        resource: str = "",
    ) -> None:
        self.code = code
        self.status: Mapping[str, Any] = status or {}
        self.reason: str = self.status.get("reason") or ""
        self.message: str = (
            self.status.get("message") or message or f"the server responded with {code}"
        )
        self.retry_after = retry_after
        self.verb = verb
        self.resource = resource
        super().__init__(self.message)

    @property
    def details(self) -> Mapping[str, Any]:
        """``status.details``: name, kind, uid, causes and retryAfterSeconds, if the server sent them."""
        return self.status.get("details") or {}

    @property
    def causes(self) -> list[Mapping[str, Any]]:
        """``status.details.causes``: for an invalid object, one entry for each field."""
        return self.details.get("causes") or []

    @property
    def is_from_terminating_namespace(self) -> bool:
        """Whether nothing can be created because the namespace is being deleted."""
        return any(cause.get("reason") == "NamespaceTerminating" for cause in self.causes)

    def __str__(self) -> str:
        where = f"{_request_text(self.verb, self.resource)}: " if self.verb else ""
        return f"{where}{self.message}"


class BadRequest(APIError):
    """400."""


class Unauthorized(APIError):
    """401: the credentials are missing or invalid."""


class Forbidden(APIError):
    """403: the request is not permitted (RBAC, quota or admission)."""


class NotFound(APIError):
    """404."""


class Conflict(APIError):
    """409: the object was modified concurrently, or another field manager owns a field."""


class AlreadyExists(Conflict):
    """409 on create: an object of this name exists."""


class Expired(APIError):
    """410: the resourceVersion or continue token is too old; a new list is required."""


class Invalid(APIError):
    """422: the object failed validation; ``causes`` lists the invalid fields."""


class TooManyRequests(APIError):
    """429: retry after ``retry_after`` seconds."""


class InternalError(APIError):
    """500."""


def is_schema_mismatch(error: BaseException) -> bool:
    """Return whether an applied manifest does not fit the schema of its kind, which a retry does not change.

    kube-apiserver reports an unknown field of an apply, and a value of another type, as an internal error (500).
    """
    return isinstance(error, InternalError) and _TYPED_PATCH in error.message


def is_too_large(error: BaseException) -> bool:
    """Return whether a write was refused because the object would be larger than etcd accepts (1.5 MiB).

    kube-apiserver reports it as an internal error (500).
    """
    return isinstance(error, InternalError) and _ETCD_LIMIT in error.message


def missing_rule(error: BaseException) -> str:
    """Return the RBAC rule whose absence caused a 403, according to its message; empty for any other error.

    Admission and quotas cause a 403, too.
    """
    if not isinstance(error, Forbidden):
        return ""
    denied = _DENIED.search(error.message[:_MAX_DENIAL])
    if denied is None:
        return ""
    verb, resource, group = denied.groups()
    return f'{{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]}}'


class ServiceUnavailable(APIError):
    """503."""


class TransportError(Exception):
    """Raised when a request gets no response, because the connection failed, broke or timed out.

    ``outcome_unknown`` is true if the request may have reached the server, so that a write may have been executed;
    ``verb`` and ``resource`` name the request in the message. ``refused`` is true if no program listens at the address
    of the server.
    """

    def __init__(
        self,
        message: str,
        *,
        outcome_unknown: bool,
        verb: str = "",
        resource: str = "",
        refused: bool = False,
    ) -> None:
        self.outcome_unknown = outcome_unknown
        self.refused = refused
        self.verb = verb
        self.resource = resource
        if verb:
            message = f"{_request_text(verb, resource)}: {message}"
        super().__init__(message)


class ResponseTooLarge(TransportError):
    """Raised when a response exceeds ``max_response_bytes`` of its request; the rest of it is not read."""


class UnknownKind(LookupError):
    """Raised if the API server does not serve a kind (yet): its CRD is missing or not established."""


class UnknownSubresource(UnknownKind):
    """Raised if the API server does not serve this subresource of a kind (yet), such as the status of a CRD."""


class OwnerDeleted(Exception):
    """Raised instead of recreating an object whose controller was deleted, or is being deleted.

    The cache did not know this yet; it contains the controller's current state when this is raised.
    """


_BY_CODE: dict[int, type[APIError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
    500: InternalError,
    503: ServiceUnavailable,
}
_BY_REASON: dict[str, type[APIError]] = {
    "AlreadyExists": AlreadyExists,
    "BadRequest": BadRequest,
    "Conflict": Conflict,
    "Expired": Expired,
    "Forbidden": Forbidden,
    "Gone": Expired,
    "InternalError": InternalError,
    "Invalid": Invalid,
    "NotFound": NotFound,
    "ServiceUnavailable": ServiceUnavailable,
    "TooManyRequests": TooManyRequests,
    "Unauthorized": Unauthorized,
}


def error_for(
    code: int,
    status: Mapping[str, Any] | None,
    *,
    message: str = "",
    retry_after: float | None = None,
    verb: str = "",
    resource: str = "",
) -> APIError:
    """Return the exception for a response: by the reason of the Status, otherwise by the HTTP status ``code``."""
    reason = (status or {}).get("reason") or ""
    kind: type[APIError] = _BY_REASON.get(reason) or _BY_CODE.get(code, APIError)
    return kind(
        code, status, message=message, retry_after=retry_after, verb=verb, resource=resource
    )
