"""Watches: events from history, new events, bookmarks, and the end of a watch.

Each change is encoded once per output format; all watchers of that format share the encoded line.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from envtest.apimachinery.errors import StatusError, rv_too_large
from envtest.apimachinery.failure_log import log_failure
from envtest.endpoints.listing import (
    ListOptions,
    list_options,
    parse_revision,
    require_watch_cache,
    too_old_error,
)
from envtest.endpoints.negotiation import Output, streamed
from envtest.endpoints.request import Request
from envtest.endpoints.response_transform import check_include, partial_metadata
from envtest.endpoints.response_writer import warning_headers
from envtest.http_server.received import Received
from envtest.http_server.responses import StreamResponse, encode_chunk
from envtest.registry.resource import RequestContext, ResourceInfo
from envtest.registry.selectors import Selector, selector_for
from envtest.registry.storage_version import encode_internal, encode_records, selectable_records
from envtest.storage import Change, Compacted, Record, Watcher, WatcherOverflow
from envtest.storage.record import ADDED, DELETED, MODIFIED, record_of
from envtest.writes.server_core import Core

__all__ = ["watch_objects"]

BOOKMARK_SECONDS = 60.0
DEFAULT_TIMEOUT = 30 * 60
CHUNK_BYTES = 256 * 1024


class _NoListError(Exception):
    """Raised if an event cannot be sent because the client wants lists."""


class _Encoder:
    """Encodes watch events in one output format, and caches the lines of a change in the change."""

    def __init__(self, core: Core, request: Request, info: ResourceInfo, output: Output) -> None:
        self.now = core.clock.now
        self.info = info
        self.output = output
        self.include = check_include(request) if output.as_kind == "Table" else ""
        self.is_json = not (output.as_kind or output.protobuf)
        self.is_stored_form = self.is_json and info.api_version == info.storage_version
        self.cache_key = (info.api_version, output._replace(pretty=False), self.include)
        self.is_list = output.as_kind == "PartialObjectMetadataList"
        """Whether the client wants lists, which events do not contain: the first event ends its watch."""
        self.tables = 0

    def shared_chunk(self, change: Change, kind: str, record: Record) -> bytes | None:
        """Return a change as a chunk of the response, if all watchers of the stored form receive the same.

        It is encoded for the first of them.
        """
        if (
            not self.is_stored_form
            or kind != change.type
            or record is not change.record
            or self.info.read_through
        ):
            return None
        if change.chunk is None:
            change.chunk = encode_chunk(_json_line(kind, record.data))
        return change.chunk

    async def change(self, change: Change, kind: str, record: Record) -> bytes:
        """Return the line of an event of type ``kind`` about ``record``.

        The record is the record of the change, or derived from it.
        """
        if self.output.as_kind == "Table":
            return await self.line(kind, record)
        key = (*self.cache_key, kind)
        if change.lines is None:
            change.lines = {}
        line = change.lines.get(key)
        if line is None:
            line = await self.line(kind, record)
            change.lines[key] = line
        return line

    async def line(self, kind: str, record: Record) -> bytes:
        """Return the line of an event about ``record``."""
        if self.is_list:
            raise _NoListError
        is_internal = bool(self.output.as_kind) and self.include != "Object"
        encode_items = encode_internal if is_internal else encode_records
        data = (await encode_items(self.info, [record]))[0]
        if self.is_json:
            return _json_line(kind, data)
        return self._encode(kind, self._convert(orjson.loads(data)))

    def _convert(self, obj: dict[str, Any]) -> dict[str, Any]:
        version = self.output.as_version
        if self.output.as_kind == "PartialObjectMetadata":
            return partial_metadata(obj, version)
        if self.output.as_kind != "Table":
            return obj
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        self.tables += 1
        headers = self.tables == 1
        from envtest.endpoints.table_convertor import convert_to_table

        return convert_to_table(
            self.info,
            [obj],
            version=version,
            include=self.include,
            metadata=metadata,
            headers=headers,
            now=self.now(),
        )

    def _encode(self, kind: str, obj: dict[str, Any]) -> bytes:
        if self.output.protobuf:
            from envtest.endpoints.protobuf_encoder import encode_event

            return encode_event(kind, obj)
        return orjson.dumps({"type": kind, "object": obj}) + b"\n"

    def error(self, error: StatusError) -> bytes:
        """Return the line of an ERROR event, which ends the watch."""
        return self._encode("ERROR", error.status())

    def bookmark(self, revision: int, *, initial: bool) -> bytes:
        """Return the line of a BOOKMARK: all changes up to ``revision`` were sent.

        ``initial`` marks the end of the initial events.
        """
        if self.is_list:
            raise _NoListError
        empty = self.info.strategy.empty()
        metadata: dict[str, Any] = {
            **empty.pop("metadata", {}),
            "resourceVersion": str(revision),
        }
        if initial:
            annotations = metadata.setdefault("annotations", {})
            annotations["k8s.io/initial-events-end"] = "true"
        obj: dict[str, Any] = {
            "kind": self.info.kind,
            "apiVersion": self.info.api_version,
            "metadata": metadata,
            **empty,
        }
        return self._encode("BOOKMARK", self._convert(obj))


def _json_line(kind: str, data: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), data)


def _event_for(change: Change, selector: Selector) -> tuple[str, Record] | None:
    """Return the event that a watcher with a selector receives for a change, or ``None``.

    An object that starts or stops matching the selector is ADDED or DELETED for this watcher.
    """
    if selector.everything:  # by far the most watches
        return change.type, change.record
    before = change.previous is not None and selector.matches(change.previous)
    after = change.type != DELETED and selector.matches(change.record)
    if after:
        return (MODIFIED if before else ADDED), change.record
    if not before or change.previous is None:  # the watcher has never seen the object
        return None
    if change.type == DELETED:
        return DELETED, change.record
    # The event has the last state that matched, with the revision of the change, from which the client resumes.
    return DELETED, record_of(change.previous.obj(), change.revision)


async def _converted(change: Change, selector: Selector) -> Change:
    """Return the change in the version whose fields the selector names."""
    if change.previous is None:
        (record,) = await selectable_records(selector, [change.record])
        return Change(change.type, record, None)
    record, previous = await selectable_records(selector, [change.record, change.previous])
    return Change(change.type, record, previous)


class _ConnectionCut(ConnectionError):
    """Raised if an injected fault has cut the connection."""


class _Stream:
    """The response of a watch: lines are sent at the client's pace, and as far as injected faults allow."""

    def __init__(self, request: Request, output: Output, resource: str) -> None:
        self._request = request
        self._resource = resource
        content_type = output.content_type + (";stream=watch" if output.protobuf else "")
        headers = [("Content-Type", content_type), ("Cache-Control", "no-cache, private")]
        self.response = StreamResponse(
            200,
            [
                *headers,
                *request.flow_headers,
                *warning_headers(request.warnings),
            ],
        )
        self._lines_until_cut = request.fault.cut_after if request.fault is not None else None

    async def open(self) -> None:
        """Send the headers."""
        assert isinstance(self._request.raw, Received)
        await self.response.prepare(self._request.raw.connection)

    async def send(self, lines: Sequence[bytes]) -> None:
        """Send lines. Raises ConnectionError if the client has disconnected."""
        if self._request.faults is not None:
            await self._request.faults.wait_while_paused()
            await self._request.faults.wait_while_held(self._resource)
        if self._lines_until_cut is not None:
            self._lines_until_cut -= len(lines)
            if self._lines_until_cut <= 0:
                sent = len(lines) + self._lines_until_cut
                # A torn line is a part of the next one; if there is none, of the first one.
                following = lines[sent : sent + 1] or lines[:1]
                await self._cut(lines[:sent], following)
        if lines:
            await self.response.write(b"".join(lines))

    def immediate_sender(
        self, encoder: _Encoder, selector: Selector, min_revision: int
    ) -> Callable[[list[Change]], bool] | None:
        """Return a function that sends changes without the task of the watch, and returns whether it has sent them.

        It cannot wait: neither for the client, nor for a fault, nor for a webhook that converts objects. ``None`` if
        this response does not consist of chunks that watches share.
        """
        faults = self._request.faults
        resource = self._resource
        if faults is None or self._lines_until_cut is not None or not self.response.is_chunked:
            return None
        assert isinstance(self._request.raw, Received)
        send_now = self._request.raw.connection.send_now

        def send(batch: list[Change]) -> bool:
            if faults.holds(resource):
                return False
            chunks = []
            for change in batch:
                event = _event_for(change, selector) if change.revision > min_revision else None
                if event is not None:
                    chunk = encoder.shared_chunk(change, *event)
                    if chunk is None:
                        return False
                    chunks.append(chunk)
            if not chunks:
                return True
            return send_now(b"".join(chunks))

        return send

    async def _cut(self, lines: Sequence[bytes], following: Sequence[bytes]) -> None:
        truncate = self._request.fault is not None and self._request.fault.torn
        partial_line = following[0][: len(following[0]) // 2] if truncate and following else b""
        await self.response.write(b"".join(lines) + partial_line)
        self.abort()
        raise _ConnectionCut

    def abort(self) -> None:
        """Cut the connection: unsent data is lost, and the client must resume the watch."""
        transport = self._request.raw.transport
        if transport is not None:
            transport.abort()


async def watch_objects(
    core: Core, request: Request, ctx: RequestContext, output: Output
) -> StreamResponse:
    """Stream the changes of a collection.

    The watch ends when the client disconnects, the timeout expires or the watcher lags too far behind.
    """
    options = list_options(request, watch=True)
    fields = f"metadata.name={ctx.name}" if ctx.name else ""  # the legacy path /watch/.../NAME
    shards = core.shard_selector(options.shards)
    selector = selector_for(
        ctx.info, options.labels, ",".join(filter(None, (options.fields, fields))), shards
    )
    require_watch_cache(ctx.info)
    revision = parse_revision(options.resource_version)
    output = streamed(output)
    encoder = _Encoder(core, request, ctx.info, output)
    stream = _Stream(request, output, ctx.info.plural)
    watcher, initial, error = _open(core, ctx, options, revision)
    if request.fault is not None and request.fault.expired:
        error = too_old_error(Compacted(revision, core.store.revision))
    try:
        await stream.open()
        # An expired revision is an ERROR event in a response with code 200.
        if error is not None or watcher is None:
            if error is not None:
                await stream.send([encoder.error(error)])
            await stream.response.write_eof()
            return stream.response
        watcher.on_overflow = stream.abort
        core.watchers.add(watcher)
        try:
            await _send_initial(stream, encoder, core, options, initial, selector)
        except StatusError:
            # A webhook does not convert an object, so that the cache of kube-apiserver never has the state.
            await stream.send([encoder.error(rv_too_large(core.store.revision, 0))])
            await stream.response.write_eof()
            return stream.response
        await _send_changes(stream, encoder, core, watcher, options, selector, max(revision, 0))
        await stream.response.write_eof()
    except _NoListError:
        await stream.response.write_eof()
    except ConnectionError:  # the usual end of a watch: the client has disconnected
        pass
    except Exception:  # noqa: BLE001 - a bug ends only this watch
        log_failure("Watch failed", path=request.path)
        stream.abort()
    finally:
        if watcher is not None:
            core.watchers.discard(watcher)
            watcher.close()
    return stream.response


def _open(
    core: Core, ctx: RequestContext, options: ListOptions, revision: int
) -> tuple[Watcher | None, Sequence[Record] | None, StatusError | None]:
    """Return the watcher, the records of the initial events, and the error to send as ERROR event, if there is one.

    The records are ``None`` if no initial events are requested.
    """
    store = core.store
    table = ctx.info.storage
    wants_initial = options.initial_events
    # without sendInitialEvents, "0" and no resourceVersion mean: from any state, all of it
    if wants_initial is None:
        wants_initial = revision == 0
    if wants_initial:
        return store.watch(table, ctx.namespace), store.list(table, ctx.namespace), None
    # no history to send; a future revision is filtered out later
    if revision == 0 or revision >= store.revision:
        return store.watch(table, ctx.namespace), None, None
    try:
        return store.watch(table, ctx.namespace, since=revision), None, None
    except Compacted as error:
        return None, None, too_old_error(error)


async def _send_initial(
    stream: _Stream,
    encoder: _Encoder,
    core: Core,
    options: ListOptions,
    initial: Sequence[Record] | None,
    selector: Selector,
) -> None:
    if initial is None:
        return
    revision = core.store.revision
    lines: list[bytes] = []
    size = 0
    for record in await selectable_records(selector, initial):
        if selector.matches(record):
            line = await encoder.line(ADDED, record)
            lines.append(line)
            size += len(line)
            if size > CHUNK_BYTES:
                await stream.send(lines)
                lines = []
                size = 0
    if options.bookmarks:
        lines.append(encoder.bookmark(revision, initial=True))
    if lines:
        await stream.send(lines)


def _next_bookmark(now: float, deadline: float) -> float:
    """Return the time of the next bookmark: every minute, and two seconds before the end."""
    before_end = deadline - 2.0
    return min(now + BOOKMARK_SECONDS, before_end) if before_end > now else now + BOOKMARK_SECONDS


async def _send_changes(
    stream: _Stream,
    encoder: _Encoder,
    core: Core,
    watcher: Watcher,
    options: ListOptions,
    selector: Selector,
    min_revision: int,
) -> None:
    if selector.converts is None:  # a conversion waits for a webhook
        watcher.sender = stream.immediate_sender(encoder, selector, min_revision)
    loop = asyncio.get_running_loop()
    seconds = options.timeout or int(DEFAULT_TIMEOUT * (1 + secrets.randbelow(1000) / 1000))
    deadline = loop.time() + seconds
    next_bookmark = _next_bookmark(loop.time(), deadline) if options.bookmarks else deadline
    while not watcher.closed:
        if loop.time() >= deadline:
            break
        try:
            batch = await watcher.next_batch(min(deadline, next_bookmark))
        except WatcherOverflow:
            # changes are lost; the client resumes from its last resourceVersion
            break
        lines = []
        for change in batch:
            # the client asked for a revision that did not exist yet
            if change.revision <= min_revision:
                continue
            selected = change
            if selector.converts is not None:
                selected = await _converted(change, selector)
            event = _event_for(selected, selector)
            if event is not None:
                lines.append(await encoder.change(change, *event))
        if options.bookmarks and loop.time() >= next_bookmark:
            lines.append(encoder.bookmark(core.store.revision, initial=False))
            next_bookmark = _next_bookmark(loop.time(), deadline)
        if lines:
            await stream.send(lines)
