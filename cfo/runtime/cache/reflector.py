"""The reflector: lists a resource, then watches it, and writes the result to an informer's store.

A reflector is a state machine with two states. *Listing* reads the whole collection, page by page; *watching* streams
the subsequent changes. Events and next states:

=====================================================  ==================================================
the server ends the watch at its timeout               watching, from the last received version
the server ends the watch earlier                      the same, after checking the server's position
the connection breaks, within a line or between lines  the same, after a back-off; a partial line is dropped
429, 5xx, 403 and other error responses                the same state, after a back-off or Retry-After
403 in a namespace that is known not to exist          the same state, once it is created
410, as a response or as an ERROR event                listing (after a back-off if it happens again)
any other ERROR event, or a line that is not JSON      listing, after a back-off
no data for ``idle_seconds``, not even a bookmark      watching, after checking the server's position
the server's position is behind the last version       listing
a new handler needs the objects that are left out      listing
the first list skipped objects of some namespaces      listing
another reflector noticed a restored database          listing, also from a back-off
404                                                    ``run`` returns: the caller repeats discovery
=====================================================  ==================================================

Every list after the first requests a state that is not older than the known one, because one of several API servers may
lag behind. If the server does not know that version yet, a quorum list is requested. If the quorum list is older than
the known state, the database was restored from a backup, and the store is rebuilt. A watch from a future version would
never report anything. Therefore, after every unexpected end of a watch, a small list checks the server's position,
which is the resourceVersion of its collection.

The position of one collection can have passed its last version by then, although the database was restored. Therefore,
a reflector that notices a restore calls ``on_restore``, and all others list again with :meth:`Reflector.rebuild`.

A reflector never gives up: failures are logged with verb, resource and cause, and retried. An object that cannot be
decoded (its metadata is invalid, or it is nested too deeply) is logged and skipped; it does not affect the others.
If only metadata is stored, the nesting does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from enum import StrEnum
from random import random as default_random
from typing import Final, NoReturn

import anyio
import msgspec
import structlog
from anyio import to_thread
from anyio.lowlevel import checkpoint

from cfo.runtime.cache.entry import Entry, EntryDecoder, Parts, version_number
from cfo.runtime.cache.feed import Feed, Listing
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.cache.store import EventType
from cfo.runtime.cache.unavailable_namespaces import UnavailableNamespaces
from cfo.runtime.cache.wire import (
    INVALID,
    BrokenStreamError,
    ItemDecoder,
    LineSplitter,
    ListMeta,
    Page,
    SplitPage,
    decode_bookmark,
    decode_event,
    decode_page,
    decode_status,
    split_page,
)
from cfo.runtime.client.discovery import Resource
from cfo.runtime.client.errors import (
    APIError,
    Expired,
    Forbidden,
    NotFound,
    ResponseTooLarge,
    TransportError,
    error_for,
)
from cfo.runtime.client.page_size import SMALL_PAGE_SIZE, PageSize
from cfo.runtime.client.ratelimit import Backoff
from cfo.runtime.client.transport import JSON, APIRequest, Transport
from cfo.runtime.process.clock import Clock, sleep_unless
from cfo.runtime.process.nested_json import (
    UNREADABLE,
    UnreadableObject,
    decode_without_managed_fields,
    readable_object,
    split_members,
    with_reserved_depth,
)

_log = structlog.get_logger(__name__)

POSITION_CHECK_SECONDS: Final = 10.0
"""The timeout in seconds of the small list that checks the server's position."""

_MIN_WATCH_SECONDS: Final = 300
"""The minimum timeout of a watch in seconds; the maximum is twice as long, so that watches do not end together."""

_EARLY_SECONDS: Final = 2.0
"""Seconds; a watch that ends more than this before its timeout was ended by something else."""

_PARTIAL_LIST: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)
_PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

_PAGE_BYTES: Final = 8 << 20
"""The maximum size of a page that is not the smallest: more than 500 usual objects have."""

_MAX_PAGE_BYTES: Final = 32 << 20
"""The maximum size of a small page, which can contain large objects that are not stored: several of 1.5 MiB.

The JSON of one object has up to six times more than what API servers store. Only one list of all informers at a time
has such a page in memory.
"""

_LARGE_LINE: Final = 64 << 10
"""The bytes of an event after which other tasks run before the next event."""

_BYTES_AT_ONCE: Final = 1 << 20
"""How much of a page is decoded before other tasks run."""

_EVENTS: Final[Mapping[str, EventType]] = {
    "ADDED": EventType.ADDED,
    "MODIFIED": EventType.UPDATED,
    "DELETED": EventType.DELETED,
}


class ReflectorState(StrEnum):
    """The state of a reflector."""

    LISTING = "listing"
    WATCHING = "watching"


class ReflectorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of list and watch.

    ``page_size`` is the number of objects in a page of a list; ``idle_seconds`` is how long a watch may be silent (API
    servers send a bookmark about once a minute); ``random`` returns numbers in [0, 1).
    """

    page_size: int = 500
    idle_seconds: float = 75.0
    random: Callable[[], float] = default_random


class Reflector:
    """Keeps one feed of a store in sync with the API server's collection.

    ``on_change`` is called when a list is complete and when ``error`` changes, the message of the last failure (empty
    if the last attempt succeeded); ``forbidden`` is true after a missing permission, until an attempt succeeds.
    ``on_restore`` is called when a list proves that the database was restored; it calls :meth:`rebuild` of all
    reflectors. ``unavailable`` knows whether the namespace exists. ``is_one_of_many``: the informer has a reflector for
    each of several namespaces, and reports missing permissions itself.
    """

    def __init__(
        self,
        transport: Transport,
        resource: Resource,
        feed: Feed,
        decoder: EntryDecoder,
        selection: Selection,
        *,
        clock: Clock,
        options: ReflectorOptions | None = None,
        on_change: Callable[[], None] = lambda: None,
        on_restore: Callable[[], None] = lambda: None,
        unavailable: UnavailableNamespaces | None = None,
        is_one_of_many: bool = False,
    ) -> None:
        self.state = ReflectorState.LISTING
        self.error = ""
        self.forbidden = False
        self.heard_at: float | None = None
        """When the API server last sent something (monotonic time); it sends a bookmark about once a minute."""

        self._transport = transport
        self._resource = resource
        self._path = resource.path(feed.namespace)
        self._feed = feed
        self._clock = clock
        self._options = options or ReflectorOptions()
        self._on_change = on_change
        self._on_restore = on_restore
        self._unavailable = UnavailableNamespaces() if unavailable is None else unavailable
        self._is_one_of_many = is_one_of_many
        self._selectors = selection.params
        self._items = ItemDecoder(decoder, self._name, metadata_only=selection.metadata_only)
        if selection.metadata_only:
            self._accept_list = _PARTIAL_LIST
            self._accept_watch = _PARTIAL
        else:
            self._accept_list = JSON
            self._accept_watch = JSON

        self._backoff = Backoff(clock, self._options.random)
        self._expirations = Backoff(clock, self._options.random)
        self._version = ""
        self._use_quorum = True
        self._must_check_position = False
        self._must_rebuild = False
        self._watch_scope = anyio.CancelScope()
        self._woken = anyio.Event()

    @property
    def namespace(self) -> str:
        """The namespace that it lists and watches; empty: all namespaces."""
        return self._feed.namespace

    @property
    def is_listed(self) -> bool:
        """Whether a list was committed; the objects can be outdated if :attr:`forbidden` is true."""
        return self._feed.synced

    def report_left_out(self) -> None:
        """List again if objects are left out, so that handlers are called with their states.

        The store contains nothing of them, and their identities are not enough for handlers. Handlers that are added
        before the list begins share it.
        """
        if not self._feed.leaves_out:
            return
        self._feed.must_report_left_out = True
        self._watch_scope.cancel()

    def rebuild(self) -> None:
        """List again now, and discard what is known, because a reflector noticed that the database was restored.

        The position of this collection need not show it: it can have passed the last known version since.
        """
        self._must_rebuild = True
        self._watch_scope.cancel()
        self._woken.set()

    async def run(self) -> None:
        """List and watch until cancelled, or until the server responds with 404."""
        while await self._run_once():
            pass

    async def _run_once(self) -> bool:
        """Do one step, and wait if it failed; return false if the server responds with 404."""
        try:
            if self.state is ReflectorState.WATCHING:
                await self._watch()
            else:
                await self._list()
                self.state = ReflectorState.WATCHING
                self._clear_error()
        except NotFound as error:
            await self._back_off(error)
            return False
        except Expired as error:
            self.state = ReflectorState.LISTING
            _log.info("Watch expired, listing again", resource=self._name, cause=error.message)
            # Expiring is normal after a pause, but a list that expires again at once would load the server.
            # Other failures do not count: after a restart of the server, the list must not wait for their back-off.
            is_repeated = not self._expirations.has_recovered
            self._expirations.record_failure()
            if is_repeated:
                await self._clock.sleep(self._expirations.delay(error.retry_after))
        except APIError as error:
            await self._back_off(error)
        except (TransportError, BrokenStreamError) as error:
            self._must_check_position = True
            await self._back_off(error)
        return True

    @property
    def _name(self) -> str:
        namespace = self._feed.namespace
        return f"{self._resource.gvr} in {namespace}" if namespace else str(self._resource.gvr)

    @property
    def missing_rule(self) -> str:
        """The RBAC rule that it needs: missing if :attr:`forbidden` is true."""
        gvr = self._resource.gvr
        return f'{{apiGroups: ["{gvr.group}"], resources: ["{gvr.resource}"], verbs: ["list", "watch"]}}'

    def _clear_error(self) -> None:
        self.error = ""
        self.forbidden = False
        self._on_change()

    async def _back_off(self, error: Exception) -> None:
        """Record and log a failure, and wait before the next attempt."""
        verb = "list" if self.state is ReflectorState.LISTING else "watch"
        cause = str(error) or type(error).__name__
        self.error = cause if cause.startswith(f"{verb} ") else f"{verb} {self._name}: {cause}"
        was_forbidden = self.forbidden
        is_forbidden = isinstance(error, Forbidden)
        # Another failure does not show that the permission was granted.
        self.forbidden = was_forbidden or is_forbidden
        self._on_change()
        if is_forbidden and not was_forbidden:
            # The server responds again: while it starts, it denies everything until it has read the roles.
            self._backoff = Backoff(self._clock, self._options.random)
        self._backoff.record_failure()
        retry_after = error.retry_after if isinstance(error, APIError) else None
        delay = self._backoff.delay(retry_after)
        log = _log.bind(
            verb=verb,
            resource=self._name,
            error=cause,
            retry_in_seconds=round(delay, 1),
        )
        if not is_forbidden:
            log.warning("List or watch failed, will retry")
        elif not was_forbidden and not self._is_one_of_many:
            # Only once, because permissions are rarely granted soon.
            log.warning("Permission denied, will retry", missing_rule=self.missing_rule)
        self._woken = anyio.Event()
        await sleep_unless(self._clock, delay, self._woken)
        if is_forbidden and await self._unavailable.wait_until_exists(self.namespace):
            self._backoff = Backoff(self._clock, self._options.random)

    # Listing.

    async def _list(self) -> None:
        """Read the whole collection into the store.

        If the continue token expires, the list starts again. If that happens twice, the collection is requested in one
        page, because a paged list of a large collection might never finish.
        """
        limit = self._options.page_size
        expired = 0
        while True:
            try:
                if await self._list_once(limit):
                    return
            except Expired:
                self._use_quorum = True
                expired += 1
                if expired > 2:
                    raise
                if expired == 2:
                    limit = 0
            except APIError as error:
                if self._use_quorum or not _is_too_large_version(error):
                    raise
                self._use_quorum = True

    async def _list_once(self, limit: int) -> bool:
        """List once; return false if the list is older than requested and was discarded."""
        listing = self._feed.begin()
        listing.discard_known = self._must_rebuild
        try:
            return await self._read_pages(listing, PageSize(limit))
        finally:
            listing.discard()

    async def _read_pages(self, listing: Listing, size: PageSize) -> bool:
        """Read all pages and commit the list; return false if it is older than requested."""
        params = dict(self._selectors)
        quorum = self._use_quorum or listing.discard_known or not listing.known_version
        if not quorum:
            params |= {
                "resourceVersion": str(listing.known_version),
                "resourceVersionMatch": "NotOlderThan",
            }
        first = await self._read_page(listing, params, size, quorum=quorum)
        if first is None:
            return False
        token = first.continue_
        while token and self._feed.namespace not in listing.skipped:
            params = _without(listing.skipped, self._selectors)
            params["continue"] = token
            page = await self._read_page(listing, params, size)
            token = page.continue_ if page is not None else ""
        if listing.skipped:
            _log.info(
                "Listing the other objects of namespaces with large objects later",
                resource=self._name,
                namespaces=list(listing.skipped),
            )
        self._commit(listing, first.resource_version)
        return True

    async def _read_page(
        self,
        listing: Listing,
        params: dict[str, str],
        size: PageSize,
        *,
        quorum: bool | None = None,
    ) -> ListMeta | None:
        """Add the objects of a page to ``listing``; return the page's metadata.

        ``quorum`` is given for the first page, which may be older than requested: then the result is ``None``.
        """
        while True:
            one_at_a_time = self._feed.budget.large_lists if size.is_small else nullcontext()
            async with one_at_a_time:
                try:
                    page = await self._get_page(params, size.current)
                except ResponseTooLarge as error:
                    size.reduce(error)
                    continue
                metadata = page.metadata
                if quorum is not None and not self._check_version(
                    listing, metadata.resource_version, quorum=quorum
                ):
                    return None
                await self._add_items(listing, page, has_large=size.is_reduced)
                size.count_page()
                return metadata

    async def _add_items(
        self, listing: Listing, page: Page | SplitPage, *, has_large: bool
    ) -> None:
        """Decode the items of a page; other tasks run after each :data:`_BYTES_AT_ONCE`.

        ``has_large``: the page has fewer objects because some near it are large.
        """
        decoded = 0
        for raw in page.items or ():
            entry = await self._decode_item(raw)
            if entry is not None:
                unstored = len(memoryview(raw))
                if listing.add(entry):
                    unstored -= entry.size
                if has_large:
                    listing.count_unstored(entry.namespace, unstored)
                decoded += len(entry.raw)
            if decoded > _BYTES_AT_ONCE:
                await checkpoint()
                decoded = 0

    async def _decode_item(self, raw: bytes | msgspec.Raw) -> Entry | None:
        if not isinstance(raw, msgspec.Raw):
            return await self._items.decode_nested(raw)
        try:
            return self._items.decode(raw)
        except (RecursionError, UnreadableObject):
            return await self._items.decode_nested(bytes(raw))

    def _check_version(self, listing: Listing, version: str, *, quorum: bool) -> bool:
        """Return whether a list can be used: it is not older than known, or a quorum list after a restore."""
        if not 0 < version_number(version) < listing.known_version:
            return True
        if not quorum:
            # One of several API servers may lag behind; only a quorum list proves a restore.
            self._use_quorum = True
            return False
        listing.discard_known = True
        if not self._must_rebuild:
            self._on_restore()
        _log.warning(
            "Resource versions went backwards (database restored?), rebuilding the cache",
            resource=self._name,
            known_version=listing.known_version,
            listed_version=version,
        )
        return True

    def _commit(self, listing: Listing, version: str) -> None:
        listing.commit(version)
        if listing.discard_known:
            self._must_rebuild = False
        self.heard_at = self._clock.monotonic()
        self._version = version
        self._use_quorum = False
        self._must_check_position = False

    async def _get_page(
        self,
        params: dict[str, str],
        limit: int,
        *,
        timeout: float | None = None,
        new_connection: bool = False,
    ) -> Page | SplitPage:
        max_bytes = 0
        if limit:
            params["limit"] = str(limit)
            max_bytes = _PAGE_BYTES
            if limit <= SMALL_PAGE_SIZE:
                max_bytes = _MAX_PAGE_BYTES
        response = await self._transport.request(
            APIRequest(
                "GET",
                self._path,
                params=params,
                accept=self._accept_list,
                compress=True,
                timeout=timeout,
                new_connection=new_connection,
                max_response_bytes=max_bytes,
                verb="list",
                resource=str(self._resource.gvr),
            )
        )
        try:
            return with_reserved_depth(decode_page, response.body)
        except UNREADABLE as error:
            return await self._get_nested_page(response.body, error)

    @staticmethod
    async def _get_nested_page(body: bytes, error: Exception) -> Page | SplitPage:
        """Return a page that cannot be decoded as it is because of ``error``."""
        try:
            return await decode_without_managed_fields(decode_page, body)
        except RecursionError:
            if isinstance(error, RecursionError):
                return await to_thread.run_sync(split_page, body)
            raise BrokenStreamError(f"the response is not a list: {error}") from error

    # Watching.

    async def _watch(self) -> None:
        """Process the events of a watch until it ends, or until a list is required for another reason."""
        if not self._must_list:
            with anyio.CancelScope() as self._watch_scope:
                await self._watch_once()
        if self._must_list:
            self.state = ReflectorState.LISTING

    @property
    def _must_list(self) -> bool:
        """Whether a list is required: for the objects that are left out, or after a restore of the database."""
        return self._must_rebuild or self._feed.must_report_left_out

    async def _watch_once(self) -> None:
        """Process the events of a watch until it ends."""
        if self._must_check_position and not await self._check_position():
            return  # a watch from a version that the server has not reached would stay silent
        started = self._clock.monotonic()
        first_version = self._version
        seconds = int(_MIN_WATCH_SECONDS * (1 + self._options.random()))
        try:
            await self._process_stream(self._watch_request(seconds))
        except TimeoutError:
            _log.info("Watch idle timeout, reconnecting", resource=self._name)
            # The connection may be dead, or the server has not reached the version.
            self._must_check_position = True
            return
        if self._feed.has_room:
            # At most once for each watch, so that no tenant can cause many lists.
            self.state = ReflectorState.LISTING
        duration = self._clock.monotonic() - started
        # A server that ends a watch early may be another one now, or a restored one.
        self._must_check_position = duration < seconds - _EARLY_SECONDS
        if self._version == first_version and duration < 1.0:
            raise BrokenStreamError("the server closed the watch immediately")

    def _watch_request(self, seconds: int) -> APIRequest:
        return APIRequest(
            "GET",
            self._path,
            params={
                **self._selectors,
                "watch": "true",
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(seconds),
                "resourceVersion": self._version,
            },
            accept=self._accept_watch,
            verb="watch",
            resource=str(self._resource.gvr),
        )

    async def _process_stream(self, request: APIRequest) -> None:
        """Process the lines of a watch until the server ends it; raises :class:`TimeoutError` if it is silent."""
        async with self._transport.stream(request) as body:
            if self.error:
                self._clear_error()
            splitter = LineSplitter()
            with anyio.fail_after(self._options.idle_seconds) as silence:
                while chunk := await body.readany():
                    self.heard_at = self._clock.monotonic()
                    for line in splitter.split(chunk):
                        try:
                            self._process_line(line)
                        except (*UNREADABLE, UnreadableObject):
                            await self._process_nested_line(line)
                        if len(line) > _LARGE_LINE:
                            await checkpoint()  # it may have taken 40 ms, and others may wait
                    silence.deadline = anyio.current_time() + self._options.idle_seconds

    def _process_line(self, line: bytes) -> None:
        """Process an event. Raises the errors in :data:`.UNREADABLE` for a line that cannot be decoded."""
        event = with_reserved_depth(decode_event, line)
        if event.type == "ERROR":
            self._raise_status(event.object)
        if event.type == "BOOKMARK":
            self._version = decode_bookmark(event.object).resource_version or self._version
            self._feed.advance(version_number(self._version))
        event_type = _EVENTS.get(event.type)
        if event_type is None:
            return
        entry = self._items.decode(event.object)
        if entry is None:
            return  # reported; the version of an object with invalid metadata is not known
        self._version = entry.meta.resource_version or self._version
        self._feed.observe(event_type, entry)

    async def _process_nested_line(self, line: bytes) -> None:
        """Process the event of an object that cannot be decoded as it is."""
        try:
            self._process_line(await readable_object(line))
        except (RecursionError, UnreadableObject):
            await self._process_line_without_state(line)
        except INVALID as error:
            self.state = ReflectorState.LISTING
            raise BrokenStreamError(f"a line is not a watch event: {error}") from error

    async def _process_line_without_state(self, line: bytes) -> None:
        """Process the event of an object that cannot be read, also without managedFields.

        A deletion is processed. A new state is skipped, except for its version.
        """
        event = await to_thread.run_sync(split_members, line)
        type_name = event.get("type", b"").decode().strip('"')
        event_type = _EVENTS.get(type_name)
        raw = event.get("object", b"")
        identity = await self._items.decode_without_nesting(raw)
        if event_type is None or identity is None:
            return  # bookmarks and errors are never nested; invalid metadata was reported
        self._version = identity.meta.resource_version or self._version
        entry = await self._items.decode_nested(raw)
        if entry is None and event_type is EventType.DELETED:
            entry = identity
        if entry is None:
            self._feed.advance(identity.version)
        else:
            self._feed.observe(event_type, entry)

    def _raise_status(self, parts: Parts) -> NoReturn:
        """Raise the Status of an ERROR event as an :class:`APIError`."""
        status = decode_status(parts)
        code = status.get("code")
        if not isinstance(code, int):
            code = 500
        self.state = ReflectorState.LISTING
        raise error_for(code, status, verb="watch", resource=str(self._resource.gvr))

    async def _check_position(self) -> bool:
        """Return whether the server has reached the last received version; if not, a new list is required.

        After a restore from a backup, the API server knows only smaller versions. A watch from a greater version would
        stay silent.
        """
        params = dict(self._selectors)
        page = await self._get_page(params, 1, timeout=POSITION_CHECK_SECONDS, new_connection=True)
        self._must_check_position = False
        if 0 < version_number(page.metadata.resource_version) < self._feed.high_water_mark:
            self.state = ReflectorState.LISTING
            self._use_quorum = True
            return False
        return True


def _without(namespaces: Iterable[str], selectors: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a list that does not contain the objects of ``namespaces``.

    API servers accept another selector for each page of a list, and this field for all kinds.
    """
    params = dict(selectors)
    terms = [f"metadata.namespace!={namespace}" for namespace in namespaces]
    if "fieldSelector" in params:
        terms.append(params["fieldSelector"])
    if terms:
        params["fieldSelector"] = ",".join(terms)
    return params


def _is_too_large_version(error: APIError) -> bool:
    """Return whether the server does not know the requested version yet (``ResourceVersionTooLarge``)."""
    if "Too large resource version" in error.message:
        return True
    return any(cause.get("reason") == "ResourceVersionTooLarge" for cause in error.causes)
