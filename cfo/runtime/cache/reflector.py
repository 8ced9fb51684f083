"""List, then watch, then go on watching: the writer of an informer's store.

A reflector is a state machine with two states. *Listing* takes in the whole collection, page by page;
*watching* follows the changes from there. What can happen, and what comes next:

=====================================================  ==================================================
the server ends the watch when its time is over         watching, from the last version seen
the server ends the watch earlier                       the same, when the server was asked where it is
the connection breaks, in the middle of a line or not   the same, after a backoff; the half line is dropped
429, 5xx, 403 and other refusals                        the same state, after a backoff or Retry-After
410, as an answer or as an ERROR event                  listing, at once (after a backoff if it comes again)
any other ERROR event, or a line that is not JSON       listing, after a backoff
nothing came for ``idle_seconds``, not even a bookmark  watching, when the server was asked where it is
the server, asked where it is, is behind what was seen  listing, at once
404                                                     ``run`` returns: whoever runs it asks discovery
=====================================================  ==================================================

A list after the first asks for a state that is not older than what was seen, for there may be several
API servers, of which one lags. One that says it does not know that version yet is asked for a quorum
list. When that is older than what was seen, the database was restored from a backup, and the store
starts anew. A watch from a version that is yet to come would say nothing: so after every end that may have been the
server's own, one small list asks where it is.

Nothing here ever gives up: failures are logged with verb, resource and cause, and tried again. An object
whose metadata cannot be read is logged and left out; it does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from random import random as default_random
from typing import Any, Final

import anyio
import msgspec
import structlog

from cfo.runtime.cache.entry import EntryDecoder, version_number
from cfo.runtime.cache.store import EventType, Feed
from cfo.runtime.client.errors import APIError, Expired, Forbidden, NotFound, TransportError, error_for
from cfo.runtime.client.transport import Transport
from cfo.runtime.clock import Clock
from cfo.runtime.discovery import Resource

__all__ = ["Backoff", "Reflector", "State"]

_log = structlog.get_logger(__name__)

LONGEST_LINE: Final = 64 << 20
"""Bytes of a watch line that are taken; an object in etcd has 1.5 MB at most, JSON of it maybe thrice that."""

_EARLY_SECONDS: Final = 2.0
"""A watch that ends this much before its time was ended by something else."""

_ASK_SECONDS: Final = 10.0

_JSON: Final = "application/json"
_PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

_EVENTS: Final[Mapping[str, EventType]] = {
    "ADDED": EventType.ADDED,
    "MODIFIED": EventType.UPDATED,
    "DELETED": EventType.DELETED,
}


class State(StrEnum):
    """What a reflector is doing."""

    LISTING = "listing"
    WATCHING = "watching"


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _BookmarkObject(msgspec.Struct):
    metadata: _ListMeta


_page = msgspec.json.Decoder(_Page)
_event = msgspec.json.Decoder(_WatchEvent)
_bookmark = msgspec.json.Decoder(_BookmarkObject)
_status = msgspec.json.Decoder(dict)


class BrokenStreamError(Exception):
    """A watch that cannot be followed any further: what came is not what a watch sends."""


class Backoff:
    """Growing delays between failures: 0.8 s, doubling up to 30 s, each up to twice as long by chance.

    Two minutes without a failure start the row anew. These are the numbers of client-go's reflector.
    ``random`` returns numbers in [0, 1).
    """

    def __init__(self, clock: Clock, random: Callable[[], float] = default_random) -> None:
        self._clock = clock
        self._random = random
        self._failures = 0
        self._last = 0.0

    @property
    def fresh(self) -> bool:
        """Whether nothing failed for two minutes."""
        return self._failures == 0 or self._clock.monotonic() - self._last > 120.0

    def failed(self) -> None:
        """Counts a failure."""
        self._failures = 1 if self.fresh else self._failures + 1
        self._last = self._clock.monotonic()

    def seconds(self, at_least: float | None = None) -> float:
        """How long to wait after the failures so far; a server's Retry-After is the least."""
        delay = min(30.0, 0.8 * 2.0 ** min(self._failures - 1, 10)) * (1.0 + self._random())
        return max(delay, at_least or 0.0)


class Reflector:
    """Keeps one feed as the API server's collection is.

    ``page_size`` is the number of objects in a page of a list; ``idle_seconds`` how long a watch may stay
    silent (API servers send bookmarks every minute or so). ``changed`` is called when a list is complete
    and when ``error``, the text of the last failure (empty when all is well), changes; ``forbidden`` says that it
    was a missing right.
    """

    def __init__(
        self,
        transport: Transport,
        resource: Resource,
        feed: Feed,
        decoder: EntryDecoder,
        *,
        clock: Clock,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        changed: Callable[[], None] = lambda: None,
        random: Callable[[], float] = default_random,
        page_size: int = 500,
        idle_seconds: float = 75.0,
    ) -> None:
        self.state = State.LISTING
        self.error = ""
        self.forbidden = False
        self._transport = transport
        self._resource = resource
        self._path = resource.path(feed.namespace)
        self._feed = feed
        self._decoder = decoder
        self._clock = clock
        self._selectors = {
            name: text for name, text in (("labelSelector", label_selector), ("fieldSelector", field_selector)) if text
        }
        self._accept_list, self._accept_watch = (_PARTIAL_LIST, _PARTIAL) if metadata_only else (_JSON, _JSON)
        self._changed = changed
        self._random = random
        self._page_size = page_size
        self._idle_seconds = idle_seconds
        self._backoff = Backoff(clock, random)
        self._version = ""
        self._quorum = True
        self._in_doubt = False

    async def run(self) -> None:
        """Lists and watches until it is cancelled, or until the server answers 404."""
        while True:
            try:
                if self.state is State.LISTING:
                    await self._list()
                    self.state = State.WATCHING
                    self._settled()
                else:
                    await self._watch()
            except NotFound as error:
                await self._failed(error)
                return
            except Expired as error:
                self.state = State.LISTING
                _log.info("watch expired, listing anew", resource=self._name, cause=error.message)
                again = not self._backoff.fresh
                self._backoff.failed()
                if again:
                    await self._clock.sleep(self._backoff.seconds(error.retry_after))
            except APIError as error:
                await self._failed(error)
            except (TransportError, BrokenStreamError) as error:
                self._in_doubt = True
                await self._failed(error)

    @property
    def _name(self) -> str:
        namespace = self._feed.namespace
        return f"{self._resource.gvr} in {namespace}" if namespace else str(self._resource.gvr)

    @property
    def _missing_rule(self) -> str:
        """What a role would have to say, told once: a missing right seldom comes soon."""
        gvr = self._resource.gvr
        return f'{{apiGroups: ["{gvr.group}"], resources: ["{gvr.resource}"], verbs: ["list", "watch"]}}'

    def _settled(self) -> None:
        self.error = ""
        self.forbidden = False
        self._changed()

    async def _failed(self, error: Exception) -> None:
        verb = "list" if self.state is State.LISTING else "watch"
        cause = str(error) or type(error).__name__
        self.error = cause if cause.startswith(f"{verb} ") else f"{verb} {self._name}: {cause}"
        known, self.forbidden = self.forbidden, isinstance(error, Forbidden)
        self._changed()
        self._backoff.failed()
        delay = self._backoff.seconds(error.retry_after if isinstance(error, APIError) else None)
        if not (known and self.forbidden):
            _log.warning(
                "a right is missing, will try again" if self.forbidden else "cannot follow a resource, will try again",
                verb=verb,
                resource=self._name,
                cause=cause,
                retry_in_seconds=round(delay, 1),
                **({"missing_rule": self._missing_rule} if self.forbidden else {}),
            )
        await self._clock.sleep(delay)

    # Listing.

    async def _list(self) -> None:
        """Takes in the whole collection.

        A continue token that expired under way starts the list anew; when that happens twice, the collection is asked
        for in one piece, or a big one might never be finished.
        """
        limit = self._page_size
        expired = 0
        while True:
            try:
                if await self._list_once(limit):
                    return
            except Expired:
                self._quorum = True
                expired += 1
                if expired > 2:
                    raise
                if expired == 2:
                    limit = 0
            except APIError as error:
                if self._quorum or not _is_too_large(error):
                    raise
                self._quorum = True

    async def _list_once(self, limit: int) -> bool:
        """Whether the list was taken in; it is not when it was older than had been asked for."""
        feed = self._feed
        listing = feed.begin()
        params = dict(self._selectors)
        quorum = self._quorum or not listing.seen_before
        if not quorum:
            params |= {"resourceVersion": str(listing.seen_before), "resourceVersionMatch": "NotOlderThan"}
        page = await self._get_page(params, limit)
        version = page.metadata.resource_version
        if 0 < version_number(version) < listing.seen_before:
            if not quorum:
                self._quorum = True
                return False
            listing.anew = True
            _log.warning(
                "the API server's versions went back (a restored database?), starting anew",
                resource=self._name,
                seen=listing.seen_before,
                now=version,
            )
        while True:
            for raw in page.items or ():
                try:
                    listing.add(self._decoder.decode(raw))
                except msgspec.DecodeError as error:
                    _log.error("an object cannot be read and is left out", resource=self._name, cause=str(error))
            if not page.metadata.continue_:
                break
            page = await self._get_page({**self._selectors, "continue": page.metadata.continue_}, limit)
        listing.commit(version)
        self._version = version
        self._quorum = self._in_doubt = False
        return True

    async def _get_page(self, params: dict[str, str], limit: int, **how: Any) -> _Page:
        if limit:
            params["limit"] = str(limit)
        response = await self._transport.request(
            "GET",
            self._path,
            params=params,
            accept=self._accept_list,
            compress=True,
            verb="list",
            resource=str(self._resource.gvr),
            **how,
        )
        try:
            return _page.decode(response.body)
        except msgspec.DecodeError as error:
            raise BrokenStreamError(f"the answer is no list: {error}") from error

    # Watching.

    async def _watch(self) -> None:
        if self._in_doubt and not await self._is_where_it_was():
            return
        began = self._clock.monotonic()
        version = self._version
        seconds = int(300 * (1 + self._random()))
        params = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        try:
            async with self._transport.stream(
                self._path,
                params=params,
                accept=self._accept_watch,
                verb="watch",
                resource=str(self._resource.gvr),
            ) as body:
                if self.error:
                    self._settled()
                lines = _Lines()
                with anyio.fail_after(self._idle_seconds) as silence:
                    while chunk := await body.readany():
                        silence.deadline = anyio.current_time() + self._idle_seconds
                        for line in lines.cut(chunk):
                            self._take(line)
        except TimeoutError:
            _log.info("nothing came on a watch, beginning another", resource=self._name)
            self._in_doubt = True
            return
        lasted = self._clock.monotonic() - began
        self._in_doubt = lasted < seconds - _EARLY_SECONDS
        if self._version == version and lasted < 1.0:
            raise BrokenStreamError("the server ended the watch at once")

    def _take(self, line: bytes) -> None:
        try:
            event = _event.decode(line)
        except msgspec.DecodeError as error:
            self.state = State.LISTING
            raise BrokenStreamError(f"a line is no watch event: {error}") from error
        kind = _EVENTS.get(event.type)
        if kind is not None:
            try:
                entry = self._decoder.decode(event.object)
            except msgspec.DecodeError as error:
                _log.error("an object cannot be read and is left out", resource=self._name, cause=str(error))
                return
            self._version = entry.meta.resource_version or self._version
            self._feed.observe(kind, entry)
        elif event.type == "BOOKMARK":
            self._version = _bookmark.decode(event.object).metadata.resource_version or self._version
            self._feed.passed(version_number(self._version))
        elif event.type == "ERROR":
            self._refused(event.object)

    def _refused(self, raw: msgspec.Raw) -> None:
        status = _status.decode(raw)
        code = status.get("code")
        self.state = State.LISTING
        raise error_for(code if isinstance(code, int) else 500, status, verb="watch", resource=str(self._resource.gvr))

    async def _is_where_it_was(self) -> bool:
        """Whether the server is at least where it was seen; if not, everything is to be listed anew.

        After a restore from a backup the API server knows only smaller versions; a watch from a greater one stays
        silent.
        """
        page = await self._get_page(dict(self._selectors), 1, timeout=_ASK_SECONDS, fresh=True)
        self._in_doubt = False
        if 0 < version_number(page.metadata.resource_version) < self._feed.high_water:
            self.state = State.LISTING
            self._quorum = True
            return False
        return True


class _Lines:
    """Cuts a stream into lines, however long they are and however cut into chunks.

    What follows the last line break is half an event, and dropped at the end: the next watch sends it again.
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._size = 0

    def cut(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, but for empty ones."""
        *complete, rest = chunk.split(b"\n")
        if complete:
            complete[0] = b"".join((*self._pending, complete[0]))
            self._pending, self._size = [], 0
        if rest:
            self._pending.append(rest)
            self._size += len(rest)
            if self._size > LONGEST_LINE:
                raise BrokenStreamError(f"a watch line has more than {LONGEST_LINE} bytes")
        return [line for line in complete if line.strip()]


def _is_too_large(error: APIError) -> bool:
    """Whether the server does not know the version yet that was asked for (``ResourceVersionTooLarge``)."""
    return "Too large resource version" in error.message or any(
        cause.get("reason") == "ResourceVersionTooLarge" for cause in error.causes
    )
