"""Write options from query parameters, and the body of a DELETE, parsed and validated as in kube-apiserver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from envtest.apimachinery.errors import StatusError, bad_request, invalid_object
from envtest.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    too_long,
)
from envtest.apimachinery.objects import Object
from envtest.endpoints.decoder import (
    PROTOBUF,
    load_json,
    load_protobuf,
    media_type,
    whole_object_problem,
)
from envtest.endpoints.request import Request
from envtest.formats.go_json_errors import json_type
from envtest.registry.resource import RequestContext

__all__ = [
    "DeleteOptions",
    "WriteOptions",
    "begin_write",
    "delete_options",
    "delete_options_of",
    "parse_integer",
    "write_options",
]

META_GROUP = "meta.k8s.io"
_LONGEST_INTEGER = 4000
"""Digits; Python refuses to parse longer integers."""
_FIELD_VALIDATION = ("", "Ignore", "Strict", "Warn")
_PROPAGATION = ("Foreground", "Background", "Orphan")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """CreateOptions, UpdateOptions or PatchOptions."""

    kind: str
    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"
    force: bool | None = None
    requested_validation: str = ""

    def document(self) -> Object:
        """Return the options in the form of admission reviews."""
        document: Object = {"kind": self.kind, "apiVersion": f"{META_GROUP}/v1"}
        if self.dry_run:
            document["dryRun"] = ["All"]
        if self.force is not None:
            document["force"] = self.force
        if self.field_manager:
            document["fieldManager"] = self.field_manager
        if self.requested_validation:
            document["fieldValidation"] = self.requested_validation
        return document


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """DeleteOptions; fields that the client did not set are ``None``. ``grace_period`` is in seconds."""

    grace_period: int | None = None
    propagation: str | None = None
    orphan_dependents: bool | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False
    document: dict[str, Any] = field(default_factory=dict)


def parse_integer(text: str) -> int:
    """Parse an integer of the query. Raises StatusError (400) with Go's message."""
    body = text[1:] if text[:1] in {"-", "+"} else text
    if not (body.isascii() and body.isdigit()):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(text) > _LONGEST_INTEGER or not -(2**63) <= int(text) < 2**63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def _dry_run_errors(values: list[str]) -> list[FieldError]:
    if all(value == "All" for value in values):
        return []
    return [not_supported("dryRun", values, ["All"])]


def _field_manager_errors(manager: str) -> list[FieldError]:
    if len(manager.encode()) > 128:
        return [too_long("fieldManager", manager, 128)]
    for position, character in enumerate(manager):
        if not character.isprintable():
            detail = f"invalid character U+{ord(character):04X} (at position {position})"
            return [invalid("fieldManager", manager, detail)]
    return []


def write_options(request: Request, kind: str, *, is_apply: bool = False) -> WriteOptions:
    """Parse the options of a write; ``kind`` is ``CreateOptions``, ``UpdateOptions`` or ``PatchOptions``.

    Raises StatusError: 422 with the causes.
    """
    manager = request.parameter("fieldManager")
    validation = request.parameter("fieldValidation")
    dry_run = request.query.getall("dryRun", [])
    force = request.flag("force") if "force" in request.query else None
    errors: list[FieldError] = []
    if kind == "PatchOptions":
        if is_apply and not manager:
            errors.append(
                FieldError("FieldValueRequired", "fieldManager", "", "is required for apply patch")
            )
        if not is_apply and force is not None:
            errors.append(forbidden("force", "may not be specified for non-apply patch"))
    errors += _field_manager_errors(manager)
    errors += _dry_run_errors(dry_run)
    if validation and validation not in _FIELD_VALIDATION:
        errors.append(not_supported("fieldValidation", validation, _FIELD_VALIDATION))
    if errors:
        raise invalid_object(META_GROUP, kind, "", errors)
    return WriteOptions(kind, bool(dry_run), manager, validation or "Warn", force, validation)


def begin_write(
    request: Request, ctx: RequestContext, operation: str, *, kind: str = "", is_apply: bool = False
) -> None:
    """Parse the options of a write into ``ctx``; ``operation`` is ``CREATE`` or ``UPDATE``, as in admission.

    Raises the same as :func:`write_options`.
    """
    options = write_options(request, kind or f"{operation.capitalize()}Options", is_apply=is_apply)
    ctx.operation = operation
    ctx.dry_run = options.dry_run
    ctx.field_validation = options.field_validation
    ctx.field_manager = _manager_name(request, options.field_manager)
    ctx.options = options.document()


def _manager_name(request: Request, requested: str) -> str:
    """Return the field manager: the requested one, or the first part of the User-Agent."""
    if requested:
        return requested
    agent = request.headers.get("User-Agent", "").split("/", 1)[0][:128]
    return (
        agent
        if agent.isprintable()
        else "".join(character for character in agent if character.isprintable())
    )


async def delete_options(request: Request) -> DeleteOptions:
    """Parse the options of a deletion from the body, or from the query if there is no body.

    Raises StatusError: 400 for a body that cannot be decoded, 422 for invalid options.
    """
    body = await request.body()
    document = _decode_delete_options(request, body) if body else _query_delete_options(request)
    return delete_options_of(document)


def delete_options_of(document: dict[str, Any]) -> DeleteOptions:
    """Return the options in a document. Raises StatusError (422) for invalid options."""
    dry_run = document.get("dryRun") or []
    propagation = document.get("propagationPolicy")
    orphan = document.get("orphanDependents")
    errors: list[FieldError] = []
    if propagation is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", propagation, detail))
    if propagation is not None and propagation not in _PROPAGATION:
        supported = ("Foreground", "Background", "Orphan", "nil")
        errors.append(not_supported("propagationPolicy", propagation, supported))
    errors += _dry_run_errors(dry_run)
    if errors:
        raise invalid_object(META_GROUP, "DeleteOptions", "", errors)
    preconditions = document.get("preconditions") or {}
    return DeleteOptions(
        grace_period=document.get("gracePeriodSeconds"),
        propagation=propagation,
        orphan_dependents=orphan,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        dry_run=bool(dry_run),
        document={
            "kind": "DeleteOptions",
            "apiVersion": f"{META_GROUP}/v1",
            **_without_identity(document),
        },
    )


def _without_identity(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in {"apiVersion", "kind"}}


def _query_delete_options(request: Request) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if "gracePeriodSeconds" in request.query:
        document["gracePeriodSeconds"] = parse_integer(request.parameter("gracePeriodSeconds"))
    if request.parameter("propagationPolicy"):
        document["propagationPolicy"] = request.parameter("propagationPolicy")
    if request.parameter("orphanDependents"):
        document["orphanDependents"] = request.flag("orphanDependents")
    if "dryRun" in request.query:
        document["dryRun"] = request.query.getall("dryRun")
    return document


_TYPES: dict[str, tuple[type, str]] = {
    "gracePeriodSeconds": (int, "int64"),
    "propagationPolicy": (str, "v1.DeletionPropagation"),
    "orphanDependents": (bool, "bool"),
    "preconditions": (dict, "v1.Preconditions"),
    "dryRun": (list, "[]string"),
}
_PRECONDITIONS = {"uid": "types.UID", "resourceVersion": "string"}


def _decode_delete_options(request: Request, body: bytes) -> dict[str, Any]:
    try:
        document = load_protobuf(body) if media_type(request) == PROTOBUF else load_json(body)
    except ValueError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise bad_request(whole_object_problem(document))
    _check_delete_identity(document)
    for name, (kind, go_type) in _TYPES.items():
        value = document.get(name)
        if value is not None and (
            not isinstance(value, kind) or (kind is int and isinstance(value, bool))
        ):
            raise _undecodable(name, value, go_type)
    for name, value in (document.get("preconditions") or {}).items():
        if name in _PRECONDITIONS and value is not None and not isinstance(value, str):
            raise _undecodable(f"preconditions.{name}", value, _PRECONDITIONS[name])
    for value in document.get("dryRun") or ():
        if value is not None and not isinstance(value, str):
            raise _undecodable("dryRun", value, "string")
    return document


def _check_delete_identity(document: dict[str, Any]) -> None:
    """Raise StatusError (400) unless a body is DeleteOptions, of any version that is registered."""
    kind = document.get("kind") or "DeleteOptions"
    version = document.get("apiVersion") or f"{META_GROUP}/v1"
    for value, name in ((version, "apiVersion"), (kind, "kind")):
        if not isinstance(value, str):
            problem = f"json: cannot unmarshal {json_type(value)} into Go struct field .{name} of type string"
            raise bad_request(f"couldn't get version/kind; json parse error: {problem}")
    if kind != "DeleteOptions":
        raise bad_request(
            f'no kind "{kind}" is registered for version "{version}" in scheme "{_OPTIONS_SCHEME}"'
        )


_OPTIONS_SCHEME = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"


def _undecodable(name: str, value: Any, go_type: str) -> StatusError:
    return bad_request(
        f"json: cannot unmarshal {json_type(value)} into Go struct field DeleteOptions.{name} of type {go_type}"
    )
