"""Admission requests and responses, and the protocols that admission webhooks implement.

A :class:`Defaulter` changes an object before it is stored, a :class:`Validator` accepts or denies it, and a
:class:`Handler` responds to any request. Their methods take the object and the :class:`AdmissionRequest`, and can be
sync or async. They deny a request by raising one of these exceptions:

* :class:`~cfo.runtime.objects.field.FieldErrors`: the response is 403 Forbidden with the message and the causes.
  controller-runtime responds with the same message to an error of a validator, but without the causes.
* :class:`InvalidObject`: the response is 422 Invalid, with the message of ``apierrors.NewInvalid``.
* :class:`Denied`: the response has the code and reason given.
* :class:`~cfo.runtime.client.errors.APIError`: the response has the Status of the error.

Any other exception is an error of the webhook itself: the response is 500.

Source: `AdmissionReview v1`_ and controller-runtime's ``pkg/webhook/admission``.

.. _AdmissionReview v1: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

from cfo.runtime.objects.field import FieldError, FieldErrors, go_quote
from cfo.runtime.objects.unstructured import GVK, GVR, Object
from cfo.runtime.process.arguments import require_plain_function
from cfo.runtime.process.strings import require_strings
from cfo.runtime.webhook.worker import ReviewWorker

P = ParamSpec("P")
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

Warnings: TypeAlias = Sequence[str] | None
"""Warnings for the user about a request that a validator allows; ``None`` if there are none."""


class Operation(StrEnum):
    """The operation of an admission request."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


@dataclass(frozen=True, slots=True)
class UserInfo:
    """The user who sent the request, as authenticated by the API server."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


_NO_KIND = GVK("", "", "")
_NO_RESOURCE = GVR("", "", "")


@dataclass(slots=True, kw_only=True)
class AdmissionRequest:
    """An admission request. The handler owns ``object`` and ``old_object`` and may modify them.

    ``kind``, ``resource`` and ``sub_resource`` identify the resource for which the webhook is registered, and
    ``object`` has that version; ``request_kind``, ``request_resource`` and ``request_sub_resource`` identify the
    resource of the user's request, which may have another version. ``name`` is empty on a create for which the API
    server generates the name. ``object`` is ``None`` on a delete, ``old_object`` on a create. With ``dry_run`` nothing
    is stored, so the webhook must not have side effects either. ``options`` are the CreateOptions, UpdateOptions or
    DeleteOptions.
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
    is_from_controller: bool = False
    """Whether the user is an administrator, or a ServiceAccount in one of the controllers' namespaces."""
    object: Object | None = field(default=None, repr=False)
    old_object: Object | None = field(default=None, repr=False)
    dry_run: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    audit_annotations: dict[str, str] = field(default_factory=dict)
    raw_object: bytes = field(default=b"", repr=False)
    """``object`` as received, from which a JSON patch to the defaulted object is computed."""
    client: str = ""
    """The address of the client: an API server, or any pod that reaches the port and names any user and namespace."""
    size: int = 0
    """The size of the request body in bytes."""
    weight: int = 0
    """An estimate of the CPU-bound work in bytes of JSON; see :meth:`weigh`."""
    memo: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What handlers remember for this review only, such as the answers of the API server; none of it is sent."""
    worker: ReviewWorker | None = field(default=None, repr=False)
    """Runs the CPU-bound work; ``None`` to run it in the event loop."""

    def weigh(self, size: int) -> None:
        """Make :meth:`compute` expect the work for ``size`` bytes of JSON, unless the body causes more.

        For handlers that compute far more than the body contains, such as a template that is applied to each item.
        """
        self.weight = max(self.weight, size)

    async def compute(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``function(*args, **kwargs)``, computed in a thread if the work is large.

        For CPU-bound work that ends soon for any input, because a thread that is still running at the API server's
        timeout is abandoned (:mod:`~cfo.runtime.webhook.worker`). The function must change nothing that others use.
        """
        require_plain_function("compute", function, "a function", can_be_class=True)
        if self.worker is None:
            return function(*args, **kwargs)
        client = (self.client, self.namespace)
        return await self.worker.run(client, self.weight, function, *args, **kwargs)

    async def compute_next(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like :meth:`compute`, but before the requests that wait: for the last step of one with a large result."""
        require_plain_function("compute_next", function, "a function", can_be_class=True)
        if self.worker is None:
            return function(*args, **kwargs)
        return await self.worker.run_next(self.weight, function, *args, **kwargs)

    def warn(self, *warnings: str) -> None:
        """Add warnings for the user, which are returned with allowed and denied responses; duplicates are dropped."""
        self.warnings += [text for text in dict.fromkeys(warnings) if text not in self.warnings]

    def audit(self, key: str, value: str) -> None:
        """Add an annotation to the audit event; the API server prefixes ``key`` with the webhook's name."""
        self.audit_annotations[key] = value


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionResponse:
    """An admission response. ``code``, ``reason``, ``message`` and ``details`` form the Status that the user gets.

    ``patch`` is a JSON Patch (RFC 6902), only for mutating webhooks.
    """

    allowed: bool
    code: int = 200
    reason: str = ""
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    patch: Sequence[Mapping[str, Any]] = ()
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_strings("warnings", self.warnings)


def denied(
    message: str,
    *,
    code: int = 403,
    reason: str = "Forbidden",
    details: Mapping[str, Any] | None = None,
) -> AdmissionResponse:
    """Return a response that denies the request. ``code`` is the HTTP status, ``reason`` the reason in the Status."""
    return AdmissionResponse(
        allowed=False, code=code, reason=reason, message=message, details=details or {}
    )


def errored(code: int, message: str) -> AdmissionResponse:
    """Return the response to a failed review; ``code`` is 400 for an invalid request, 500 for a webhook error."""
    return AdmissionResponse(allowed=False, code=code, message=message)


class Denied(Exception):
    """Raised by a defaulter or validator to deny the request."""

    def __init__(self, message: str, *, code: int = 403, reason: str = "Forbidden") -> None:
        self.response = denied(message, code=code, reason=reason)
        super().__init__(message)


class InvalidObject(FieldErrors):
    """Raised to deny an invalid object with 422 and the API server's message for built-in kinds.

    ``name`` is the object's name; empty if it has none yet.
    """

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


class Defaulter(Protocol[T]):
    """Sets defaults in an object before it is validated and stored. It is not called for deletions.

    ``T`` is the type of the objects of the registered kind: a dict, or an instance of the class.
    """

    def default(self, obj: T, request: AdmissionRequest) -> T | Awaitable[T | None] | None:
        """Modify ``obj`` in place, or return the object to store instead.

        Must be idempotent, because the API server may call it again with the result. ``request.warn`` adds warnings
        for the user. Raises to deny the request (see the module).
        """
        ...


class Validator(Protocol[T_contra]):
    """Validates an object before it is stored, after all defaulters have run; ``T_contra`` is the type of its objects.

    Each method returns warnings for the user, and raises to deny the request (see the module).
    """

    def validate_create(
        self, obj: T_contra, request: AdmissionRequest
    ) -> Warnings | Awaitable[Warnings]:
        """Validate the creation of ``obj``."""
        ...

    def validate_update(
        self, old: T_contra, obj: T_contra, request: AdmissionRequest
    ) -> Warnings | Awaitable[Warnings]:
        """Validate the update of ``old`` to ``obj``."""
        ...

    def validate_delete(
        self, obj: T_contra, request: AdmissionRequest
    ) -> Warnings | Awaitable[Warnings]:
        """Validate the deletion of ``obj``. Called only if the webhook is registered for deletions.

        A class that inherits from this one allows every deletion, unless it overrides this method.
        """
        return None


class Handler(Protocol):
    """Responds to all admission requests of one path."""

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Respond to the request; exceptions have the same meaning as in a validator (see the module)."""
        ...
