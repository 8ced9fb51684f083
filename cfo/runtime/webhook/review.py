"""AdmissionReview encoding: decodes requests, encodes responses, and computes JSON patches.

Only ``admission.k8s.io/v1`` is supported; every supported API server sends it if the webhook configuration's
``admissionReviewVersions`` contain it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import orjson

from cfo.runtime.objects.unstructured import GVK, GVR, Object
from cfo.runtime.process.large_objects import count_values
from cfo.runtime.process.printable import printable
from cfo.runtime.webhook.admission import AdmissionRequest, AdmissionResponse, Operation, UserInfo

MAX_DEPTH: Final = 200
"""The maximum depth of nesting of an object. JSON encoders fail at 254 levels; a patch adds a few."""

_API_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"
_NULL: Final = msgspec.Raw(b"null")

_UID_BYTES: Final = 1024
"""The first bytes of a body, in which API servers write the uid: it is the first field of the request."""

_UID: Final = re.compile(rb'"request"\s*+:\s*+\{\s*+"uid"\s*+:\s*+("[^"\\]*+")')

_ENCODER_DEPTH: Final = 254
"""The maximum depth of nesting that orjson encodes."""

_MAX_STEPS: Final = 4
"""The maximum number of steps of a path in a message."""

_MAX_KEY: Final = 63
_MAX_MESSAGE: Final = 1 << 20
_MAX_ERROR: Final = 300
_MAX_KIND: Final = 100
"""The maximum number of characters of an unexpected kind or apiVersion in a message."""

_VALUE_BYTES: Final = 8
"""The weight of each comma, list and object: in a usual object, they have as many bytes on average."""

NamesT = TypeVar("NamesT", GVK, GVR)


class BadReview(ValueError):
    """Raised for a body that is not a review with a request; the message gives the reason."""


class RefusedObject(ValueError):
    """Raised for an object that is denied unread, with a message for the user and the uid of the request."""

    def __init__(self, message: str, uid: str = "") -> None:
        super().__init__(message)
        self.uid = uid


class NestedTooDeeply(RefusedObject):
    """Raised for an object that exceeds :data:`MAX_DEPTH`."""

    def __init__(self, path: str, uid: str = "") -> None:
        where = path or "the object"
        super().__init__(f"{where}: nested too deeply: at most {MAX_DEPTH} levels are allowed", uid)


class TooManyValues(RefusedObject):
    """Raised for an object that exceeds :data:`MAX_VALUES`."""


class IdentityTooLarge(RefusedObject):
    """Raised for a request whose user has more than :data:`MAX_OTHER_BYTES`."""


class ObjectTooLarge(RefusedObject):
    """Raised for an object that exceeds :data:`MAX_OBJECT_BYTES`."""


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, list[str]] | None = None


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    operation: Operation
    kind: dict[str, str] = {}
    resource: dict[str, str] = {}
    sub_resource: str = ""
    request_kind: dict[str, str] | None = None
    request_resource: dict[str, str] | None = None
    request_sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: _User = msgspec.field(default_factory=_User)
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL
    dry_run: bool | None = None
    options: dict[str, Any] | None = None


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


class _ObjectMeta(msgspec.Struct, rename="camel"):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[dict[str, Any]] | None = None


class _Object(msgspec.Struct, rename="camel"):
    """The types that the accessors in :mod:`cfo.runtime.objects` rely on, and that API servers guarantee."""

    api_version: str | None = None
    kind: str | None = None
    metadata: _ObjectMeta | None = None


_reviews = msgspec.json.Decoder(_Review)

MAX_VALUES: Final = 300_000
"""The maximum number of commas, lists and objects in an object that is written, without managedFields."""

MAX_OBJECT_BYTES: Final = 1280 << 10
"""The maximum size of a custom resource that is written.

API servers store it as JSON, of which etcd accepts 1,536 KiB. The rest is for its status: an operator that cannot write
the status can release nothing that the object holds.
"""

_ADMINISTRATORS: Final = "system:masters"
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"

MAX_OTHER_BYTES: Final = 64 << 10
"""The maximum size of a body without its objects: user, groups and options. Handlers send the user to the API server,
with one request for each kind of object that they check."""

_MAX_UID: Final = 256
"""The maximum number of characters of a request's uid, which is a UUID. The response repeats it."""

_NAMESPACE_FIELD: Final = b'"namespace":"'
_MAX_NAMESPACE: Final = 63
_BEGINNING: Final = 4096
"""Within how many bytes API servers send the namespace of a request."""

_MAX_STORED_BYTES: Final = 2 << 20
"""The maximum size of an object that exceeds :data:`MAX_VALUES`, because it was stored without webhook."""


class _ManagedFields(msgspec.Struct, rename="camel"):
    managed_fields: msgspec.Raw = _NULL


class _Managed(msgspec.Struct):
    metadata: _ManagedFields | None = None
    status: msgspec.Raw = _NULL


class _Objects(msgspec.Struct, rename="camel"):
    uid: str = ""
    user_info: msgspec.Raw = msgspec.Raw(b"{}")
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL


class _ObjectsOfReview(msgspec.Struct):
    request: _Objects | None = None


_objects = msgspec.json.Decoder(_ObjectsOfReview)
_managed = msgspec.json.Decoder(_Managed | None)
_user = msgspec.json.Decoder(_User)


def named_namespace(body: bytes) -> str:
    """Return the first namespace that the beginning of a review names, so that it can be read in its turn; or nothing.

    API servers send the request's namespace before everything that its user determines, except the name, in which
    quotes are escaped. Other clients can send any, which has no effect outside of their share.
    """
    start = body.find(_NAMESPACE_FIELD, 0, _BEGINNING)
    if start < 0:
        return ""
    start += len(_NAMESPACE_FIELD)
    end = body.find(b'"', start, start + _MAX_NAMESPACE + 1)
    return body[start:end].decode(errors="replace") if end >= 0 else ""


def _require_few_values(body: bytes, controllers: Collection[str]) -> None:
    """Raise :class:`TooManyValues` or :class:`BadReview` for a body whose many values would take the memory.

    An update is allowed that adds none, or of a controller: otherwise an object that is stored already could not be
    changed any more, also not by the operator that suspends it.
    """
    request = _objects.decode(body).request or _Objects()
    new = bytes(request.object)
    old = bytes(request.old_object)
    _require_small_rest(len(body) - len(new) - len(old), request.uid)
    new_values = _own_values(new)
    old_values = _own_values(old)
    if old_values > MAX_VALUES and len(old) > _MAX_STORED_BYTES:
        raise BadReview(f"oldObject has about {old_values} values, and {len(old)} bytes")
    if new_values <= MAX_VALUES:
        return
    adds_values = new_values > old_values
    if adds_values and _is_controller(_user.decode(request.user_info), controllers):
        adds_values = False
    if adds_values or len(new) > _MAX_STORED_BYTES:
        message = f"the object has about {new_values} values: at most {MAX_VALUES} are allowed"
        raise TooManyValues(message, request.uid)


def _require_small_rest(size: int, uid: str) -> None:
    """Raise :class:`BadReview` or :class:`IdentityTooLarge` if a body is large without its objects.

    ``size`` is the size of the rest in bytes, and ``uid`` the request's, which is a part of it.
    """
    if len(uid) > _MAX_UID:
        raise BadReview(f"uid: {len(uid)} characters: at most {_MAX_UID} are allowed")
    if size > MAX_OTHER_BYTES:
        message = f"the user and the options of the request have {size} bytes: at most {MAX_OTHER_BYTES} are allowed"
        raise IdentityTooLarge(message, uid)


def _require_room_for_status(request: _Request, controllers: Collection[str]) -> None:
    """Raise :class:`ObjectTooLarge` if a custom resource becomes larger than :data:`MAX_OBJECT_BYTES`.

    A larger one may not grow. Its content does not grow either: managedFields and status, which reviews do not see,
    could be exchanged for it, and could then not be removed to make room. Controllers can use the room: a suspension,
    for example, adds their managedFields if a user has removed them.
    """
    new = memoryview(request.object)
    old = memoryview(request.old_object)
    size = len(new)
    if size <= MAX_OBJECT_BYTES:
        return
    if size <= len(old) and _content_bytes(new) <= _content_bytes(old):
        return
    group = request.kind.get("group", "")
    is_custom = "." in group and not group.endswith(".k8s.io")
    if not is_custom or request.sub_resource:
        return
    if not _is_controller(request.user_info, controllers):
        message = (
            f"the object has {size} bytes: at most {MAX_OBJECT_BYTES} are allowed, with metadata and status, so that "
            "its status can be written"
        )
        raise ObjectTooLarge(message, request.uid)


def _is_controller(user: _User, namespaces: Collection[str]) -> bool:
    """Return whether a user is an administrator, or a ServiceAccount in one of the controllers' ``namespaces``."""
    if _ADMINISTRATORS in (user.groups or ()):
        return True
    if not user.username.startswith(_SERVICE_ACCOUNT):
        return False
    namespace, _, _ = user.username.removeprefix(_SERVICE_ACCOUNT).partition(":")
    return namespace in namespaces


def _content_bytes(encoded: memoryview) -> int:
    """Return the size of an object without managedFields and status."""
    decoded = _managed.decode(encoded) or _Managed()
    metadata = decoded.metadata or _ManagedFields()
    removable = len(memoryview(metadata.managed_fields)) + len(memoryview(decoded.status))
    return len(encoded) - removable


def _own_values(encoded: bytes) -> int:
    """Return how many values an object has, without managedFields: each client's writes add some."""
    managed = _managed.decode(encoded)
    if managed is None or managed.metadata is None:
        return count_values(encoded)
    managed_fields = bytes(managed.metadata.managed_fields)
    if managed_fields == b"null":
        return count_values(encoded)
    return count_values(encoded) - count_values(managed_fields) - 1  # and the comma before them


def read_review(body: bytes, controllers: Collection[str] = ()) -> AdmissionRequest:
    """Return the request in the body of an AdmissionReview.

    ``controllers`` are the namespaces of controllers, which can write objects beyond the limits that users have.
    Raises :class:`BadReview` if it cannot be decoded, and :class:`RefusedObject` with the uid of the request.
    """
    values = count_values(body)
    uid = ""
    try:
        try:
            if values > MAX_VALUES:
                # Before the objects are decoded: small values take up to 90 times the memory of their JSON.
                _require_few_values(body, controllers)
            review = _reviews.decode(body)
        except RecursionError:
            raise NestedTooDeeply("", _uid(body)) from None
        if (review.api_version, review.kind) != (_API_VERSION, _KIND):
            kind = printable(review.kind, _MAX_KIND) or "no kind"
            api_version = printable(review.api_version, _MAX_KIND) or "no apiVersion"
            raise BadReview(f"expected {_KIND} of {_API_VERSION}, got {kind} of {api_version}")
        request = review.request
        if request is None:
            raise BadReview("the review contains no request")
        objects = len(memoryview(request.object)) + len(memoryview(request.old_object))
        _require_small_rest(len(body) - objects, request.uid)
        uid = request.uid
        _require_room_for_status(request, controllers)
        user = request.user_info
        fields = msgspec.structs.asdict(request)
        fields |= {
            "kind": _names(GVK, request.kind),
            "resource": _names(GVR, request.resource),
            "request_kind": _names(GVK, request.request_kind or request.kind),
            "request_resource": _names(GVR, request.request_resource or request.resource),
            "user_info": UserInfo(user.username, user.uid, user.groups or (), user.extra or {}),
            "is_from_controller": _is_controller(user, controllers),
            "object": _object(request.object),
            "old_object": _object(request.old_object),
            "dry_run": bool(request.dry_run),
            "options": request.options or {},
        }
        return AdmissionRequest(
            **fields,
            raw_object=bytes(request.object),
            size=len(body),
            # Reading a value takes some time also if it is small, as in a list of empty objects.
            weight=max(len(body), values * _VALUE_BYTES),
        )
    except NestedTooDeeply as error:
        error.uid = error.uid or uid
        raise
    except (msgspec.MsgspecError, orjson.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadReview(f"cannot decode the body: {str(error)[:_MAX_ERROR]}") from None


def _names(kind: type[NamesT], given: Mapping[str, str]) -> NamesT:
    return kind(*(given.get(name, "") for name in kind._fields))


def _uid(body: bytes) -> str:
    """Return the uid of the request in a review that the decoder cannot read; empty if it is not where it should be.

    API servers reject a response without it, and so deny the request. Only the start is searched, because a search in
    all of a body takes a second of CPU time.
    """
    found = _UID.search(body, 0, _UID_BYTES)
    if found is None:
        return ""
    return msgspec.json.decode(found[1], type=str)


def _object(raw: msgspec.Raw) -> Object | None:
    try:
        value = orjson.loads(memoryview(raw))
    except orjson.JSONDecodeError as error:
        if "depth limit" in error.msg:  # at 1024 levels
            raise NestedTooDeeply("") from None
        raise
    if value is None:
        return None
    if isinstance(value, dict):
        check_nesting(value)
        msgspec.convert(value, _Object)  # any pod can send requests, so metadata can have any type
        return value
    raise BadReview("object and oldObject must be JSON objects")


def check_nesting(obj: Object) -> None:
    """Raise :class:`NestedTooDeeply`, with the start of the path, if ``obj`` exceeds :data:`MAX_DEPTH`."""
    if not _is_encodable(obj, 0):
        raise NestedTooDeeply(_path_to_nesting(obj))


def _is_encodable(value: Any, depth: int) -> bool:
    """Return whether ``value``, which is ``depth`` levels below the object, does not exceed the maximum depth."""
    for _ in range(_ENCODER_DEPTH - MAX_DEPTH + depth):
        value = [value]
    # The encoder fails at a fixed depth. It takes 3 ms for 1 MB, and a loop in Python 30 times as long.
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return False
    return True


def _path_to_nesting(obj: Object) -> str:
    """Return the first steps of the path to the first value that is nested too deeply."""
    path = ""
    value: Any = obj
    for depth in range(_MAX_STEPS):
        if isinstance(value, dict):
            key, value = _deep_member(list(value.items()), depth)
            path += f".{key[:_MAX_KEY]}"
        else:
            key, value = _deep_member(list(enumerate(value)), depth)
            path += f"[{key}]"
    return path.removeprefix(".")


def _deep_member(members: list[tuple[Any, Any]], depth: int) -> tuple[Any, Any]:
    """Return the first member that is nested too deeply, found by bisection; there must be one."""
    while len(members) > 1:
        middle = len(members) // 2
        first_half = members[:middle]
        if not _is_encodable([member for _, member in first_half], depth):
            members = first_half
            continue
        members = members[middle:]
    return members[0]


def write_review(uid: str, response: AdmissionResponse, *, mutating: bool = True) -> bytes:
    """Encode the response to the request ``uid``. A patch is left out unless ``mutating``: API servers reject it."""
    message = response.message
    if message:
        message = printable(message, _MAX_MESSAGE)
    fields = {
        "status": "" if response.allowed else "Failure",
        "message": message,
        "reason": response.reason,
        "details": response.details,
        "code": response.code,
    }
    status = {key: value for key, value in fields.items() if value}
    encoded: dict[str, Any] = {"uid": uid, "allowed": response.allowed, "status": status}
    if response.patch and response.allowed and mutating:
        encoded["patchType"] = "JSONPatch"
        encoded["patch"] = b64encode(orjson.dumps(list(response.patch))).decode()
    if response.warnings:
        encoded["warnings"] = [printable(warning, _MAX_MESSAGE) for warning in response.warnings]
    if response.audit_annotations:
        encoded["auditAnnotations"] = dict(response.audit_annotations)
    return orjson.dumps({"apiVersion": _API_VERSION, "kind": _KIND, "response": encoded})


def json_patch(original: Object, changed: Object) -> Sequence[dict[str, Any]]:
    """Return the JSON Patch from ``original`` to ``changed``; lists are compared item by item.

    Only what differs is read: values are first compared as bytes. A value is encoded once for each level above it on
    which something differs, so the work is proportional to the size of the objects and to the depth of the changes.
    """
    patch: list[dict[str, Any]] = []
    _compare(original, changed, "", patch)
    return patch


def _compare(before: Any, after: Any, path: str, patch: list[dict[str, Any]]) -> None:
    """Append the operations that turn ``before`` into ``after``, both at ``path``, to ``patch``."""
    if before is after or orjson.dumps(before) == orjson.dumps(after):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key not in after:
                patch.append({"op": "remove", "path": _pointer(path, key)})
            else:
                _compare(value, after[key], _pointer(path, key), patch)
        for key, value in after.items():
            if key not in before:
                patch.append({"op": "add", "path": _pointer(path, key), "value": value})
    elif isinstance(before, list) and isinstance(after, list):
        common = min(len(before), len(after))
        for at in range(common):
            _compare(before[at], after[at], f"{path}/{at}", patch)
        # From the end, because each removal moves the items after it.
        removed = reversed(range(common, len(before)))
        added = range(common, len(after))
        patch += [{"op": "remove", "path": f"{path}/{at}"} for at in removed]
        patch += [{"op": "add", "path": f"{path}/{at}", "value": after[at]} for at in added]
    else:
        patch.append({"op": "replace", "path": path, "value": after})


def _pointer(path: str, key: str) -> str:
    """Return the JSON Pointer (RFC 6901) of a member of the object at ``path``."""
    escaped = key.replace("~", "~0").replace("/", "~1")
    return f"{path}/{escaped}"
