"""List and watch options, continue tokens, and the pages of lists."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from envtest.apimachinery.errors import (
    StatusError,
    bad_request,
    expired,
    invalid_object,
    plain_error,
    rv_too_large,
    too_many_requests,
)
from envtest.apimachinery.field_errors import FieldError, forbidden, not_supported
from envtest.apimachinery.label_selectors import parse_labels
from envtest.endpoints.options import META_GROUP, parse_integer
from envtest.endpoints.request import Request
from envtest.formats.go_json_errors import find_syntax_error
from envtest.registry.resource import ResourceInfo
from envtest.registry.selectors import Selector, parse_fields
from envtest.registry.storage_version import selectable_records
from envtest.storage import Compacted, Record, Store
from envtest.storage.store import FutureRevision

__all__ = [
    "ListOptions",
    "Page",
    "list_options",
    "list_page",
    "parse_revision",
    "require_watch_cache",
    "too_old_error",
]

_MATCHES = ("Exact", "NotOlderThan", "")


@dataclass(frozen=True, slots=True)
class ListOptions:
    """ListOptions of the query; ``timeout`` is in seconds, ``None`` if unset."""

    resource_version: str = ""
    match: str = ""
    limit: int = 0
    token: str = ""
    labels: str = ""
    fields: str = ""
    watch: bool = False
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout: int | None = None
    shards: str = ""


@dataclass(slots=True)
class Page:
    """A page of a list: its records, their revision, and the list metadata."""

    records: Sequence[Record]
    revision: int
    token: str = ""
    remaining: int | None = None
    shards: str = ""
    """The selector of shards that was applied."""


def list_options(request: Request, *, watch: bool) -> ListOptions:
    """Parse the options. Raises StatusError: 400 for invalid values, 422 for invalid combinations."""
    limit = parse_integer(request.parameter("limit")) if "limit" in request.query else 0
    timeout = None
    if "timeoutSeconds" in request.query:
        timeout = parse_integer(request.parameter("timeoutSeconds"))
    options = ListOptions(
        resource_version=request.parameter("resourceVersion"),
        match=request.parameter("resourceVersionMatch"),
        limit=limit,
        token=request.parameter("continue"),
        labels=request.parameter("labelSelector"),
        fields=request.parameter("fieldSelector"),
        watch=watch,
        bookmarks=request.flag("allowWatchBookmarks"),
        initial_events=request.flag("sendInitialEvents")
        if "sendInitialEvents" in request.query
        else None,
        timeout=timeout,
        shards=request.parameter("shardSelector"),
    )
    errors = _watch_errors(options) if watch else _list_errors(options)
    if errors:
        # selectors that cannot be parsed are reported before
        parse_labels(options.labels)
        parse_fields(options.fields)
        raise invalid_object(META_GROUP, "ListOptions", "", errors)
    return options


def _list_errors(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    field = "resourceVersionMatch"
    if options.match:
        if not options.resource_version:
            errors.append(
                forbidden(
                    field, "resourceVersionMatch is forbidden unless resourceVersion is provided"
                )
            )
        if options.token:
            errors.append(
                forbidden(field, "resourceVersionMatch is forbidden when continue is provided")
            )
        if options.match not in _MATCHES:
            errors.append(not_supported(field, options.match, _MATCHES))
        if options.match == "Exact" and options.resource_version == "0":
            errors.append(
                forbidden(
                    field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                )
            )
    if options.initial_events is not None:
        errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _watch_errors(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    field = "resourceVersionMatch"
    match = options.match
    initial_events = options.initial_events is not None
    if not match and not initial_events and options.resource_version in ("", "0"):
        # such a watch sends initial events by default
        match = "NotOlderThan"
        initial_events = True
    if initial_events and match != "NotOlderThan":
        errors.append(
            forbidden(
                field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        )
    if match:
        if not initial_events:
            text = (
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
            errors.append(forbidden(field, text))
        if match != "NotOlderThan":
            errors.append(not_supported(field, match, ["NotOlderThan"]))
        if options.token:
            errors.append(
                forbidden(field, "resourceVersionMatch is forbidden when continue is provided")
            )
    return errors


def parse_revision(text: str) -> int:
    """Parse a resourceVersion; empty is 0. Raises StatusError, a 500 as from kube-apiserver's storage layer."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise plain_error(_unparsable(text, "invalid syntax"))
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(_LARGEST)) or int(digits) > _LARGEST:
        raise plain_error(_unparsable(text, "value out of range"))
    return int(digits)


_LARGEST = 2**64 - 1
_INITIALIZING_SECONDS = 1
_NOT_BASE64 = re.compile(r"[^-_A-Za-z0-9]")
_CONTINUE_FORMAT = "meta.k8s.io/v1"


def _unparsable(text: str, why: str) -> str:
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {why}'


def too_old_error(error: Compacted) -> StatusError:
    """Return the 410 of a list or watch from a compacted revision."""
    return expired(f"too old resource version: {error.requested} ({error.oldest})")


def _decode_token(token: str) -> tuple[int, tuple[str, str]]:
    """Return the revision and the key after which the list continues. Raises StatusError (400)."""
    illegal = _NOT_BASE64.search(token)
    if illegal:
        raise _invalid_token(f"illegal base64 data at input byte {illegal.start()}")
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except binascii.Error:
        raise _invalid_token(f"illegal base64 data at input byte {len(token) - 1}") from None
    try:
        document = orjson.loads(raw)
        version = str(document.get("v") or "")
        start = str(document.get("start") or "")
        revision = int(document.get("rv") or 0)
    except (ValueError, TypeError, AttributeError):
        why = find_syntax_error(raw) or "it is not a token of this server"
        raise _invalid_token(why) from None
    if version != _CONTINUE_FORMAT:
        raise _invalid_token(f"server does not recognize this encoded version {version}")
    if not revision:
        raise _invalid_token(
            f"incorrect encoded start resourceVersion (version {_CONTINUE_FORMAT})"
        )
    if not start:
        raise _invalid_token(f"encoded start key empty (version {_CONTINUE_FORMAT})")
    if posixpath.normpath("/" + start.removeprefix("/")) != "/" + start.removeprefix("/"):
        raise _invalid_token(start)
    namespace, _, name = start.rstrip("\0").rpartition("/")
    return revision, (namespace, name)


def _invalid_token(why: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


def _encode_token(revision: int, last: Record) -> str:
    start = f"{last.namespace}/{last.name}\0" if last.namespace else f"{last.name}\0"
    document = {"v": _CONTINUE_FORMAT, "rv": revision, "start": start}
    return base64.urlsafe_b64encode(orjson.dumps(document)).rstrip(b"=").decode()


def require_watch_cache(info: ResourceInfo) -> None:
    """Raise the 429 of lists and watches that kube-apiserver serves from its watch cache.

    The cache contains all objects of a resource, so it has none if one of them cannot be read.
    """
    if info.unreadable:
        raise too_many_requests(
            f"storage is (re)initializing: failed to list {info.api_version}, Kind={info.kind}: {info.unreadable}",
            _INITIALIZING_SECONDS,
        )


async def list_page(
    store: Store,
    info: ResourceInfo,
    namespace: str,
    options: ListOptions,
    selector: Selector,
    now: float,
    *,
    in_pages: bool = False,
) -> Page:
    """Return a page of the snapshot that the continue token or the resourceVersion names.

    ``now`` is the time in seconds; ``in_pages`` is for a caller that reads pages in kube-apiserver.
    Raises StatusError: 400, 410, 429 or 504.
    """
    after: tuple[str, str] | None = None
    revision: int | None = None
    # kube-apiserver reads the key of the object, so that there are no pages
    reads_key = selector.names_one_object(in_all_namespaces=info.namespaced and not namespace)
    if options.token:
        revision, after = _decode_token(options.token)
        if options.resource_version and options.resource_version != "0":
            raise bad_request("specifying resource version is not allowed when using continue")
        if revision < 0:
            revision = None
        elif revision <= store.pages.check(now):
            store.skip_to_after(revision)
            raise _expired_token(after)
    elif options.resource_version:
        try:
            wanted = parse_revision(options.resource_version)
        except StatusError as error:
            raise bad_request(f"invalid resource version: {error.message}") from None
        is_exact = options.match == "Exact"
        is_page = bool(wanted) and options.limit > 0 and not options.match
        if wanted > store.revision:
            from_cache = not (reads_key and (is_exact or is_page))
            raise rv_too_large(wanted, store.revision, from_cache=from_cache)
        if is_exact or (is_page and not reads_key):
            revision = wanted
    reads_page = selector.everything and (in_pages or options.limit > 0)
    if revision is None and not options.token and not reads_page:
        require_watch_cache(info)
    try:
        records = store.list(info.storage, namespace, after=after, revision=revision)
    except Compacted:
        if options.token:
            raise _expired_token(after) from None
        raise expired("The resourceVersion for the provided list is too old.") from None
    except FutureRevision:
        raise rv_too_large(revision or 0, store.revision) from None
    records = await selectable_records(selector, records)
    if revision is None:
        revision = store.revision
    if reads_key:
        options = replace(options, limit=0)
    page = _cut(records, revision, options, selector)
    page.shards = selector.shards.text if selector.shards is not None else ""
    if page.token and after is None:
        store.pages.begin(page.revision, now)
    return page


def _expired_token(after: tuple[str, str] | None) -> StatusError:
    error = expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    namespace, name = after or ("", "")
    start = f"{namespace}/{name}\0" if namespace else f"{name}\0"
    document = {"v": _CONTINUE_FORMAT, "rv": -1, "start": start}
    token = base64.urlsafe_b64encode(orjson.dumps(document)).rstrip(b"=").decode()
    error.list_meta = {"continue": token}
    return error


def _cut(
    records: Sequence[Record], revision: int, options: ListOptions, selector: Selector
) -> Page:
    from_cache = options.resource_version == "0" and not options.token
    if options.limit <= 0 or from_cache:  # kube-apiserver's watch cache ignores the limit
        chosen = (
            records if selector.everything else [each for each in records if selector.matches(each)]
        )
        return Page(chosen, revision)
    if selector.everything:
        chosen = records[: options.limit]
        remaining = len(records) - len(chosen)
        if remaining <= 0:
            return Page(chosen, revision)
        return Page(chosen, revision, _encode_token(revision, chosen[-1]), remaining)
    found: list[Record] = []
    for position, record in enumerate(records):
        if selector.matches(record):
            found.append(record)
            if len(found) == options.limit:
                is_last = position + 1 == len(records)
                if is_last:
                    break
                return Page(found, revision, _encode_token(revision, record))
    return Page(found, revision)
