"""Decodes request bodies into objects of the resource's kind.

The checks follow apimachinery's codecs, in their order: media type, syntax, identity (apiVersion and kind), then the
fields, which the resource's strategy decodes.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import orjson

from envtest.apimachinery.errors import (
    StatusError,
    bad_request,
    unsupported_media_type,
)
from envtest.apimachinery.field_errors import go_quote
from envtest.apimachinery.objects import Object
from envtest.builtins.catalog import all_resources, resource_of_kind
from envtest.builtins.normalization import DecodeError, WrongTypeError, decode
from envtest.endpoints.negotiation import PROTOBUF, SERVED
from envtest.endpoints.request import Request
from envtest.formats.go_integers import as_int64, is_int64
from envtest.formats.go_json_errors import IDENTITY, json_type, syntax_error
from envtest.registry.resource import RequestContext, ResourceInfo, Strategy

__all__ = [
    "PROTOBUF",
    "JSONError",
    "check_strict",
    "decode_fields",
    "decode_object",
    "decode_typed",
    "duplicate_fields",
    "identity_problem",
    "in_document_order",
    "is_registered",
    "load_json",
    "load_protobuf",
    "load_untyped",
    "load_yaml",
    "media_type",
    "parse_object",
    "parse_typed",
    "unparsable_identity",
    "whole_numbers",
    "whole_object_problem",
]

_MISSING = "couldn't get version/kind; json parse error: "
_LONE_SURROGATE = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""An escaped backslash, a pair of surrogates, or one half."""
_LARGE_EXPONENT = re.compile(rb"[-0-9](?<![0-9.][-0-9])[0-9.]*+[eE]\+?+[0-9]{3,}+")
"""A whole number. Its digits are read once: a match begins only at the first one, and does not go back.

The class comes before the look-behind, because ``re`` skips other characters fast if a pattern begins with a class.
"""
_FRACTION = re.compile(rb"\.0\d*\s*(?:[],}]|\Z)")
_EXPONENT = re.compile(rb"0e[0+-]*\s*(?:[],}]|\Z)")
_LONG_NUMBER = b"0" * 19
"""The shape of an integer that may have more than 63 bits."""
_NUMBER_SHAPE = bytes.maketrans(b"123456789E", b"000000000e")
"""With it, both patterns begin with fixed bytes, for which ``re`` searches twenty times faster than for classes."""


class JSONError(ValueError):
    """Raised for a body that is not valid JSON (or YAML)."""


def _valid_utf8(data: bytes) -> bytes:
    """Return ``data`` with U+FFFD for each byte that is not UTF-8, as Go's decoder reads it."""
    return data.decode(errors="envtest.replace-bytes").encode()


def _replacement_of_bytes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("envtest.replace-bytes", _replacement_of_bytes)


def load_json(data: bytes, *, exact: bool = False, overflows: bool = False) -> Any:
    """Decode JSON. Raises :class:`JSONError` with the message of Go's decoder.

    Whole floats become integers unless ``exact``: typed integers cannot be decoded from ``1.0``. With ``overflows``, a
    number that no float can hold is infinite, so that the decoder of a type rejects it.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        is_overflow = overflows and _LARGE_EXPONENT.search(data)
        value = _load_infinite(data) if is_overflow else _load_with_lone_surrogates(data)
    if exact or not _may_have_whole_float(data):
        return value
    return whole_numbers(value)


def _load_infinite(data: bytes) -> Any:
    """Decode JSON whose numbers may be infinite. Raises :class:`JSONError`."""
    try:
        return json.loads(_LONE_SURROGATE.sub(_replacement, data), parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise JSONError(syntax_error(data)) from None


def _reject_constant(word: str) -> float:
    raise ValueError(word)


def _load_custom(data: bytes, ctx: RequestContext) -> Any:
    """Decode JSON of a custom resource. Raises :class:`JSONError`, or StatusError (400) if a number overflows."""
    try:
        return load_untyped(data, ctx)
    except JSONError:
        number = _LARGE_EXPONENT.search(data)
        if number is None:
            raise
        _load_infinite(data)
        text = (
            f"json: cannot unmarshal number {number.group().decode()} into Go value of type float64"
        )
        kind = ctx.info.kind
        raise bad_request(
            f'{kind} in version "{ctx.info.version}" cannot be handled as a {kind}: {text}'
        ) from None


def load_untyped(data: bytes, ctx: RequestContext) -> Any:
    """Decode JSON of a custom resource: ``2.0`` is a float until it is stored, as ``2``. Raises :class:`JSONError`."""
    value = load_json(data, exact=True)
    if not _may_have_whole_float(data):
        return value
    ctx.has_whole_floats = True
    return _long_integers_as_floats(value)


def _load_with_lone_surrogates(data: bytes) -> Any:
    """Decode JSON in which halves of surrogate pairs, and bytes that are not UTF-8, are replaced, as by Go.

    Raises :class:`JSONError`.
    """
    replaced = _LONE_SURROGATE.sub(_replacement, _valid_utf8(data))
    if replaced != data:
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(replaced)
    raise JSONError(syntax_error(data))


def _replacement(match: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if match["lone"] else match.group()


def _may_have_whole_float(data: bytes) -> bool:
    """Return whether JSON has what looks like a whole float or a number with more than 63 bits.

    It finds whole floats in strings only if punctuation follows the digits.
    """
    if _FRACTION.search(data):
        return True
    shape = data.translate(_NUMBER_SHAPE)
    return _LONG_NUMBER in shape or bool(_EXPONENT.search(shape))


def whole_numbers(value: Any) -> Any:
    """Return ``value`` with the numbers of Go: ``2.0`` becomes ``2``, and a number with more than 64 bits a float."""
    if isinstance(value, float):
        integer = as_int64(value)
        return value if integer is None else integer
    if isinstance(value, dict):
        return {name: whole_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return _number(value)


def _long_integers_as_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _long_integers_as_floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_long_integers_as_floats(item) for item in value]
    return _number(value)


def _number(value: Any) -> Any:
    """Return an integer with more than 64 bits as a float, and any other value unchanged."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if is_integer and not is_int64(value) else value


def load_yaml(data: bytes) -> Any:
    """Decode YAML. Raises :class:`JSONError`."""
    from envtest.formats.yaml_codec import YAMLError, load

    try:
        return load(data)
    except YAMLError as error:
        raise JSONError(str(error)) from None


def media_type(request: Request) -> str:
    """Return the media type of the body, without parameters; JSON if the client sent no Content-Type."""
    return (
        request.headers.get("Content-Type", "application/json").split(";")[0].strip()
        or "application/json"
    )


async def parse_object(
    request: Request, info: ResourceInfo, ctx: RequestContext | None = None
) -> tuple[Object, bytes]:
    """Return the object of a POST or PUT, with its identity checked, and the JSON from which it was decoded.

    Both contain the identity, even if the body does not. ``ctx`` is the request if the body can be a custom resource.
    """
    media = media_type(request)
    data = await request.body()
    if media == PROTOBUF and not info.is_crd:
        return _parse_protobuf(data, info)
    if media not in {"application/json", "application/yaml"}:
        raise unsupported_media_type(SERVED)
    unrecognized = f"the object provided is unrecognized (must be of type {info.kind}): "
    sent_data = data
    try:
        is_json = media == "application/json"
        if not is_json:
            obj = load_yaml(data)
            if info.is_crd:
                obj = _long_integers_as_floats(obj)
        elif info.is_crd and ctx is not None:
            obj = _load_custom(data, ctx)
        else:
            obj = load_json(data, exact=True, overflows=True)
    except JSONError as error:
        shown = _MISSING + str(error) if media == "application/json" else str(error)
        raise bad_request(f"{unrecognized}{shown} ({_excerpt(data)})") from None
    if media == "application/yaml":
        data = orjson.dumps(obj)
    if obj is None:
        obj = {}
    if not isinstance(obj, dict):
        problem = whole_object_problem(obj)
        raise bad_request(f"{unrecognized}{problem} ({_excerpt(sent_data)})")
    sent = len(obj)
    if info.is_crd and ctx is not None and ctx.field_validation == "Ignore" and not obj.get("kind"):
        unrecognized = (
            f'{info.kind} in version "{info.version}" cannot be handled as a {info.kind}: '
        )
        text = sent_data.decode(errors="replace")
        raise bad_request(f"{unrecognized}Object 'Kind' is missing in '{text}'")
    _check_identity(obj, sent_data, info, unrecognized, ctx)
    if len(obj) != sent:  # the identity was added
        added = dict(list(obj.items())[sent:])
        data = orjson.dumps(added)[:-1] + b"," + data.lstrip()[1:] if sent else orjson.dumps(obj)
    return obj, data


def load_protobuf(data: bytes) -> Object:
    """Decode Kubernetes' protobuf. Raises ValueError. The field tables are loaded with the first such body."""
    from envtest.endpoints.protobuf import decode_body

    return decode_body(data)


def _parse_protobuf(data: bytes, info: ResourceInfo) -> tuple[Object, bytes]:
    unrecognized = f"the object provided is unrecognized (must be of type {info.kind}): "
    try:
        obj = load_protobuf(data)
    except ValueError as error:
        raise bad_request(f"{unrecognized}{error} ({_excerpt(data)})") from None
    encoded = orjson.dumps(obj)
    _check_identity(obj, encoded, info, unrecognized)
    return obj, encoded


def _excerpt(data: bytes) -> str:
    """Return the start of a body as apiserver shows it in errors: JSON unchanged, anything else in hexadecimal."""
    if not data:
        return "<empty>"
    head = data[:30]
    shown = head.decode(errors="replace") if data.startswith(b"{") else head.hex()
    return shown + (" ..." if len(data) > 30 else "")


def _check_identity(
    obj: Object,
    data: bytes,
    info: ResourceInfo,
    unrecognized: str,
    ctx: RequestContext | None = None,
) -> None:
    version = obj.get("apiVersion")
    kind = obj.get("kind")
    problem = _identity_type_problem(obj)
    if problem:
        raise bad_request(f"{unrecognized}{problem} ({_excerpt(data)})")
    if info.is_crd and not kind:
        text = data.decode(errors="replace")
        raise bad_request(f"{unrecognized}Object 'Kind' is missing in '{text}' ({_excerpt(data)})")
    if not info.is_crd:
        version = version or info.api_version
        obj["apiVersion"] = version
        kind = kind or info.kind
        obj["kind"] = kind
    version = version or ""
    if version.count("/") > 1:
        raise bad_request(
            f"{unrecognized}unexpected GroupVersion string: {version} ({_excerpt(data)})"
        )
    if info.is_crd:  # another version is decoded before it is rejected
        return
    if (version, kind) == (info.api_version, info.kind):
        return
    same_group = version.rpartition("/")[0] == info.group
    # Events of both groups are the same objects
    is_convertible = same_group or kind == "Event"
    if kind == info.kind and is_convertible and _scheme_of(info).has(version, kind):
        if ctx is not None:
            _decode_other_version(obj, version, ctx)
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({info.api_version})"
        )
    short = version.rpartition("/")[2]
    raise bad_request(
        f'{kind} in version "{short}" cannot be handled as a {info.kind}: {identity_problem(obj, info)}'
    )


def _decode_other_version(obj: Object, api_version: str, ctx: RequestContext) -> None:
    """Report what does not fit the version that a body names. Raises StatusError (400)."""
    version = api_version.rpartition("/")[2]
    kind = ctx.info.kind
    resource = resource_of_kind(api_version, kind)
    if resource is None:
        return
    try:
        _, unknown = decode(resource.type, obj)
    except DecodeError as error:
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: {error}'
        ) from None
    problems = [f"unknown field {go_quote(path)}" for path in unknown]
    check_strict(problems, ctx, kind=kind, version=version)


def identity_problem(obj: Object, info: ResourceInfo) -> str:
    """Return why an object, which has another ``apiVersion`` or kind than the built-in resource, does not decode."""
    problem = unparsable_identity(obj)
    if problem:
        return problem
    version = obj.get("apiVersion") or ""
    kind = obj.get("kind") or ""
    scheme = _scheme_of(info)
    if not scheme.has(version, kind):
        return f'no kind "{kind}" is registered for version "{version}" in scheme "{scheme.source}"'
    short = "v1" if kind in scheme.unversioned else version.rpartition("/")[2]
    return f"converting ({short}.{kind}) to ({info.go_package}.{info.kind}): unknown conversion"


def is_registered(api_version: str, kind: str, info: ResourceInfo) -> bool:
    """Return whether the API server of a built-in resource knows a kind."""
    return _scheme_of(info).has(api_version, kind)


def whole_object_problem(document: object) -> str:
    """Return why a JSON document cannot be an object, or an empty string."""
    if isinstance(document, dict):
        return ""
    return (
        f"{_MISSING}json: cannot unmarshal {json_type(document)} into Go value of type {IDENTITY}"
    )


def unparsable_identity(obj: Object) -> str:
    """Return why the ``apiVersion`` or the kind of an object cannot be parsed, or an empty string."""
    problem = _identity_type_problem(obj)
    if problem:
        return problem
    version = obj.get("apiVersion") or ""
    if version.count("/") > 1:
        return f"unexpected GroupVersion string: {version}"
    return ""


def _identity_type_problem(obj: Object) -> str:
    """Return the error for an ``apiVersion`` or a kind that is not a string, or an empty string."""
    for name in ("apiVersion", "kind"):
        value = obj.get(name)
        if not isinstance(value, str | None):
            return f"{_MISSING}json: cannot unmarshal {json_type(value)} into Go struct field .{name} of type string"
    return ""


class _Scheme(NamedTuple):
    """The kinds that one of the three API servers in kube-apiserver knows, and where it declares them."""

    source: str
    kinds: frozenset[tuple[str, str]]
    unversioned: frozenset[str]
    """Kinds that are known in any version."""

    def has(self, version: str, kind: str) -> bool:
        """Return whether the kind is registered for the version."""
        return kind in self.unversioned or (version, kind) in self.kinds


def _scheme_of(info: ResourceInfo) -> _Scheme:
    return _schemes().get(info.group, _builtin_scheme())


_UNVERSIONED = frozenset({"APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"})


@cache
def _schemes() -> dict[str, _Scheme]:
    """Return the schemes of the extension and aggregation API servers, by group."""
    return {
        "apiextensions.k8s.io": _Scheme(
            "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
            _own_kinds("apiextensions.k8s.io", "CustomResourceDefinition"),
            _UNVERSIONED | {"WatchEvent"},
        ),
        "apiregistration.k8s.io": _Scheme(
            "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
            _own_kinds("apiregistration.k8s.io", "APIService"),
            _UNVERSIONED,
        ),
    }


def _own_kinds(group: str, kind: str) -> frozenset[tuple[str, str]]:
    versions = (f"{group}/v1", f"{group}/v1beta1")
    own = [(version, each) for version in versions for each in (kind, f"{kind}List")]
    common = [(version, each) for version in (*versions, "v1") for each in _COMMON_KINDS]
    return frozenset([*own, *common])


@cache
def _builtin_scheme() -> _Scheme:
    resources = [
        (f"{each.group}/{each.version}" if each.group else each.version, each.kind)
        for each in all_resources()
        if each.group not in _schemes()
    ]
    lists = [(version, f"{kind}List") for version, kind in resources]
    common = [(version, kind) for version, _ in resources for kind in _COMMON_KINDS]
    kinds = frozenset([*resources, *lists, *common, *_OTHER_KINDS])
    return _Scheme("pkg/api/legacyscheme/scheme.go:30", kinds, _UNVERSIONED)


_OTHER_KINDS = (
    ("authentication.k8s.io/v1", "TokenRequest"),
    ("autoscaling/v1", "Scale"),
    ("policy/v1", "Eviction"),
    ("v1", "List"),
    ("v1", "NodeProxyOptions"),
    ("v1", "PodAttachOptions"),
    ("v1", "PodExecOptions"),
    ("v1", "PodLogOptions"),
    ("v1", "PodPortForwardOptions"),
    ("v1", "PodProxyOptions"),
    ("v1", "PodStatusResult"),
    ("v1", "RangeAllocation"),
    ("v1", "SerializedReference"),
    ("v1", "ServiceProxyOptions"),
)
"""Kinds of request bodies and options, which no resource has."""
_COMMON_KINDS = (
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "UpdateOptions",
    "WatchEvent",
)
"""The kinds that every version of a group has."""


def check_strict(
    problems: list[str], ctx: RequestContext, *, kind: str = "", version: str = ""
) -> None:
    """Handle the errors of strict decoding according to ``fieldValidation``.

    Strict rejects the request, Warn adds warnings, Ignore drops the errors. ``kind`` and ``version`` describe the body
    if it is not an object of the resource.
    """
    if not problems or ctx.field_validation == "Ignore":
        return
    kind = kind or ctx.info.kind
    version = version or ctx.info.version
    if ctx.field_validation == "Strict":
        listed = ", ".join(problems)
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {listed}'
        )
    for problem in problems:
        ctx.warn(problem)


async def parse_typed(
    request: Request, *, group: str, version: str, kind: str
) -> tuple[Object, bytes]:
    """Do the same as :func:`parse_object` for a body whose built-in kind is not the resource's (a subresource)."""
    info = ResourceInfo(group, version, "", "", kind, namespaced=True, strategy=Strategy())
    return await parse_object(request, info)


async def decode_typed(
    request: Request, ctx: RequestContext, type_name: str, *, group: str, old_version: str = ""
) -> Object:
    """Return a body as :func:`parse_typed` does, pruned; ``type_name`` is the definition ``io.k8s.api.GROUP.V.KIND``.

    ``old_version`` has the same fields, and is accepted as well. Raises StatusError (400, 413, 415).
    """
    version, kind = type_name.split(".")[-2:]
    try:
        obj, data = await parse_typed(request, group=group, version=version, kind=kind)
    except StatusError as error:
        try:
            obj, data = await parse_typed(
                request, group=group, version=old_version or version, kind=kind
            )
        except StatusError:
            raise error from None
        version = old_version
    duplicates = duplicate_fields(data, obj) if ctx.field_validation != "Ignore" else []
    pruned: Object
    try:
        pruned, unknown = decode(type_name, obj)
    except DecodeError as error:
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: {error}'
        ) from None
    problems = in_document_order(
        data, duplicates, [f"unknown field {go_quote(path)}" for path in unknown]
    )
    check_strict(problems, ctx, kind=kind, version=version)
    return pruned


async def decode_object(request: Request, ctx: RequestContext) -> Object:
    """Return the object of a POST or PUT, pruned. Raises StatusError (400, 413, 415)."""
    obj, data = await parse_object(request, ctx.info, ctx)
    duplicates: list[str] = []
    is_yaml = media_type(request) == "application/yaml"
    if ctx.field_validation != "Ignore":
        duplicates = (
            yaml_problems(await request.body(), ctx) if is_yaml else duplicate_fields(data, obj)
        )
    sent_version = obj.get("apiVersion") or ""
    try:
        unknown = decode_fields(obj, ctx)
    except StatusError as error:
        raise _with_source_number(error, data) from error.__cause__
    # Custom resources are decoded as maps; their unknown fields are found later, and so are those of converted YAML.
    problems = duplicates + unknown
    if not (ctx.info.is_crd or is_yaml):
        problems = in_document_order(data, duplicates, unknown)
    check_strict(problems, ctx)
    if ctx.info.is_crd and sent_version != ctx.info.api_version:
        raise bad_request(
            f"the API version in the data ({sent_version}) does not match the expected API version "
            f"({ctx.info.api_version})"
        )
    return obj


def _with_source_number(error: StatusError, data: bytes) -> StatusError:
    """Return an error that quotes a number as the body has it: ``1e3``, where Python reads ``1000.0``."""
    cause = error.__cause__
    if not isinstance(cause, WrongTypeError) or cause.number is None:
        return error
    try:
        source = _number_at(cause.path, data)
    except RecursionError:
        return error
    return bad_request(error.message.replace(f"number {cause.number}", f"number {source}", 1))


def _number_at(path: str, data: bytes) -> str:
    """Return the text of a number in JSON that has been decoded before."""
    value = json.loads(data, parse_int=str, parse_float=str)
    for name, position in _STEP.findall(path):
        value = value[name] if name else value[int(position)]
    return str(value)


_STEP: re.Pattern[str] = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")
"""A step of a path to a field: the name of a property, or a position. No map has integers, so that no step is a key."""


def yaml_problems(data: bytes, ctx: RequestContext) -> list[str]:
    """Return the strict decoding errors for duplicate keys in YAML."""
    from envtest.formats.duplicate_keys import repeated_keys, unmarshal_errors

    lines = repeated_keys(data)
    return [unmarshal_errors(lines)] if lines and ctx.field_validation == "Strict" else lines


def decode_fields(obj: Object, ctx: RequestContext) -> list[str]:
    """Decode with the resource's strategy, but keep an empty ``managedFields``, which asks the server to reset them.

    The decoder of custom resources loses an empty list, so that only ``[{}]`` resets theirs.
    """
    metadata = obj.get("metadata")
    resets_managers = False
    if isinstance(metadata, dict) and metadata.get("managedFields") == []:
        resets_managers = not ctx.info.is_crd
        del metadata["managedFields"]
    problems = ctx.info.strategy.decode(obj, ctx)
    if resets_managers:
        obj.setdefault("metadata", {})["managedFields"] = []
    return problems


def duplicate_fields(data: bytes, obj: Any) -> list[str]:
    """Return ``duplicate field "path"`` for each key that occurs twice in an object of the JSON.

    ``obj`` is the decoded JSON, unchanged: if the JSON has as many colons as its re-encoded form, it has no duplicate
    keys.
    """
    if data.count(b":") == orjson.dumps(obj).count(b":"):
        return []
    repeated: dict[str, None] = {}

    def visit(path: str, is_repeated: bool) -> None:
        if is_repeated and len(repeated) < MAX_PROBLEMS:
            repeated[path] = None

    _visit_keys(data, visit)
    return [f"duplicate field {go_quote(path)}" for path in repeated]


def in_document_order(data: bytes, duplicates: list[str], unknown: list[str]) -> list[str]:
    """Return the errors of a typed decoder, which finds duplicate and unknown fields while it reads the JSON.

    It skips the values of unknown fields, and reports a path once.
    """
    if not duplicates or not unknown:
        problems = duplicates or unknown
        return problems[:MAX_PROBLEMS]
    left = set(unknown)
    found: dict[str, None] = {}
    skipped: tuple[str, ...] = ("", "")

    def visit(path: str, is_repeated: bool) -> None:
        nonlocal skipped
        if len(found) >= MAX_PROBLEMS:
            return
        problem = f"unknown field {go_quote(path)}"
        if problem in left:
            found[problem] = None
            skipped = (f"{path}.", f"{path}[")
        elif is_repeated and not (skipped[0] and path.startswith(skipped)):
            found[f"duplicate field {go_quote(path)}"] = None

    _visit_keys(data, visit)
    problems = list(found)
    problems += [problem for problem in unknown if problem not in found]
    return problems[:MAX_PROBLEMS]


MAX_PROBLEMS = 100
"""Maximum number of strict decoding errors that the decoder of kube-apiserver collects."""


Visit = Callable[[str, bool], None]
"""Receives the path of a key, and whether its object had the key before."""


def _visit_keys(data: bytes, visit: Visit) -> None:
    """Visit each key of the JSON, in document order. JSON that is nested too deeply for it is not visited."""
    with suppress(RecursionError):
        _walk_pairs(json.loads(data, object_pairs_hook=_Pairs, parse_int=str), "", visit)


class _Pairs(list[tuple[str, Any]]):
    """The keys and values of a JSON object."""


def _walk_pairs(value: Any, path: str, visit: Visit) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, item in value:
            below = f"{path}.{name}" if path else name
            visit(below, name in seen)
            seen.add(name)
            _walk_pairs(item, below, visit)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            _walk_pairs(item, f"{path}[{position}]", visit)
