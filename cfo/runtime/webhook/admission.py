"""What an admission webhook is asked, and what it may answer.

A :class:`Defaulter` changes an object that is about to be written, a :class:`Validator` refuses it; a
:class:`Handler` answers any request as it likes. They are plain functions of the object and the
:class:`AdmissionRequest` (sync, or async where they must ask somebody), and say no by raising:

* :class:`~cfo.runtime.field.FieldErrors`: what is wrong with which field. The answer is 403 Forbidden with
  their text, as controller-runtime answers what a validator returns, and with the causes, which it leaves out;
* :class:`InvalidObject`: the same as 422 Invalid, in the words of ``apierrors.NewInvalid``;
* :class:`Denied`: any other refusal;
* :class:`~cfo.runtime.client.errors.APIError`: the Status it carries is passed on.

Anything else that is raised is an error in the webhook: 500.

Source: `AdmissionReview v1`_ and controller-runtime's ``pkg/webhook/admission``.

.. _AdmissionReview v1: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, Self, TypeAlias

from cfo.runtime.field import FieldError, FieldErrors, go_quote
from cfo.runtime.objects import GVK, GVR, Object

__all__ = [
    "AdmissionRequest",
    "AdmissionResponse",
    "Defaulter",
    "Denied",
    "Handler",
    "InvalidObject",
    "Operation",
    "UserInfo",
    "Validator",
    "Warnings",
    "allowed",
    "denied",
    "errored",
    "patched",
]

Warnings: TypeAlias = Sequence[str] | None
"""What a validator tells the user although it allows the request; ``None`` for nothing."""


class Operation(StrEnum):
    """What is done to the object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


@dataclass(frozen=True, slots=True)
class UserInfo:
    """Who asks, as the API server authenticated them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


_NO_KIND = GVK("", "", "")
_NO_RESOURCE = GVR("", "", "")


@dataclass(slots=True, kw_only=True)
class AdmissionRequest:
    """One question of an API server. ``object`` and ``old_object`` belong to whoever is given the request.

    ``kind``, ``resource`` and ``sub_resource`` are those that the webhook registered for (and ``object`` is in that
    version); ``request_kind`` and its siblings are what the user sent, where a rule of another version matched it.
    ``name`` is empty on a create that leaves it to the server; ``object`` is ``None`` on a delete, ``old_object`` on a
    create. With ``dry_run`` nothing is stored, so nothing else may be changed for it either. ``options`` are the
    CreateOptions, UpdateOptions or DeleteOptions.
    """

    operation: Operation = Operation.CREATE
    uid: str = ""
    kind: GVK = _NO_KIND
    resource: GVR = _NO_RESOURCE
    sub_resource: str = ""
    request_kind: GVK = _NO_KIND
    request_resource: GVR = _NO_RESOURCE
    request_sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = field(default_factory=UserInfo)
    object: Object | None = field(default=None, repr=False)
    old_object: Object | None = field(default=None, repr=False)
    dry_run: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    audit_annotations: dict[str, str] = field(default_factory=dict)
    raw_object: bytes = field(default=b"", repr=False)
    """``object`` as it came, for the difference to what it became."""

    def warn(self, *texts: str) -> None:
        """Lets the API server tell the user ``texts``, whatever is answered; each of them once."""
        self.warnings += [text for text in dict.fromkeys(texts) if text not in self.warnings]

    def audit(self, key: str, value: str) -> None:
        """Adds an annotation to the audit event of the request (the API server puts the webhook's name before it)."""
        self.audit_annotations[key] = value


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionResponse:
    """What is answered. ``code``, ``reason``, ``message`` and ``details`` become the Status that the user is told.

    ``patch`` is a JSON Patch (RFC 6902), for mutating webhooks alone.
    """

    allowed: bool
    code: int = 200
    reason: str = ""
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    patch: Sequence[Mapping[str, Any]] = ()
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] = field(default_factory=dict)

    def with_warnings(self, *texts: str) -> Self:
        """The same, with ``texts`` for the user added."""
        return replace(self, warnings=tuple(dict.fromkeys((*self.warnings, *texts))))


def allowed(message: str = "") -> AdmissionResponse:
    """Yes."""
    return AdmissionResponse(allowed=True, message=message)


def denied(
    message: str, *, code: int = 403, reason: str = "Forbidden", details: Mapping[str, Any] | None = None
) -> AdmissionResponse:
    """No, and why. ``code`` is the HTTP status that the user gets, ``reason`` that of the Status."""
    return AdmissionResponse(allowed=False, code=code, reason=reason, message=message, details=details or {})


def errored(code: int, message: str) -> AdmissionResponse:
    """The webhook cannot tell: ``code`` is 400 when the question is wrong, 500 when the webhook is."""
    return AdmissionResponse(allowed=False, code=code, message=message)


def patched(message: str, *operations: Mapping[str, Any]) -> AdmissionResponse:
    """Yes, if the object is changed by these JSON Patch operations."""
    return AdmissionResponse(allowed=True, message=message, patch=operations)


class Denied(Exception):
    """The request is refused; raised by a defaulter or validator."""

    def __init__(
        self, message: str, *, code: int = 403, reason: str = "Forbidden", details: Mapping[str, Any] | None = None
    ) -> None:
        self.response = denied(message, code=code, reason=reason, details=details)
        super().__init__(message)


class InvalidObject(FieldErrors):
    """The object called ``name`` (empty: not named yet) is invalid: 422, as the API server says it of its own kinds."""

    def __init__(self, gvk: GVK, name: str, errors: Iterable[FieldError]) -> None:
        super().__init__(errors)
        qualified = f"{gvk.kind}.{gvk.group}" if gvk.group else gvk.kind
        details = {"name": name, "group": gvk.group, "kind": gvk.kind, "causes": self.causes}
        self.response = denied(
            f"{qualified} {go_quote(name)} is invalid: {self}",
            code=422,
            reason="Invalid",
            details={key: value for key, value in details.items() if value},
        )


class Defaulter(Protocol):
    """Completes or changes an object before it is validated and stored. It is not asked about deletions."""

    def default(self, obj: Object, request: AdmissionRequest) -> Object | Awaitable[Object | None] | None:
        """Changes ``obj`` in place, or returns what shall be stored instead.

        Must be idempotent: the API server may ask again with what came out. ``request.warn`` tells the user
        something. Raises to refuse (see the module).
        """
        ...


class Validator(Protocol):
    """Accepts or refuses what is about to be stored, after all defaulting.

    Each method returns warnings for the user, and raises to refuse (see the module).
    """

    def validate_create(self, obj: Object, request: AdmissionRequest) -> Warnings | Awaitable[Warnings]:
        """``obj`` is about to be created."""
        ...

    def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> Warnings | Awaitable[Warnings]:
        """``obj`` is about to replace ``old``."""
        ...

    def validate_delete(self, obj: Object, request: AdmissionRequest) -> Warnings | Awaitable[Warnings]:
        """``obj`` is about to be deleted (asked only where deletions are registered for)."""
        ...


class Handler(Protocol):
    """Answers admission requests of one path, whatever they are."""

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Answers; what is raised is treated as what a validator raises."""
        ...
