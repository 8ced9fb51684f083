"""The debug server: what a running operator does, as text and as JSON.

``/debug/queue`` shows the queues of all controllers and what queued each request, ``/debug/informers`` the informers
with their size and lag, ``/debug/leases`` the leader elections, ``/debug/tasks`` the event loop's tasks with their
stacks, ``/debug/objects`` the largest cached objects, and ``/debug`` all of these. The reports contain names,
sizes and times, and never the content of an object; each has a limited number of rows.

The server listens on a loopback address only, or is a part of the metrics server that authenticates its clients
(:mod:`cfo.runtime.manager.metrics_server`).
"""

from __future__ import annotations

import asyncio
import heapq
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import anyio.lowlevel
import orjson
from aiohttp import web

from cfo.runtime.cache.cache import Cache
from cfo.runtime.controller.cause import Cause, CauseType
from cfo.runtime.controller.controller import Controller
from cfo.runtime.controller.reconcile import Request
from cfo.runtime.controller.workqueue import QueuedItem, WorkQueue
from cfo.runtime.manager.leadership import Leadership
from cfo.runtime.process.endpoint import Endpoint, parse_bind_address

METRICS_SERVER: Final = "metrics"
"""The bind address that makes the reports a part of the metrics server."""

MAX_ITEMS: Final = 100
"""The maximum number of requests in the report of a queue."""

MAX_OBJECTS: Final = 50
"""The maximum number of objects in the report of objects."""

MAX_TASKS: Final = 500
"""The maximum number of tasks in the report of tasks."""

MAX_FRAMES: Final = 30
"""The maximum number of frames in the stack of a task."""

_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9.-]{1,253}))(?::[0-9]{1,5})?")
"""A Host header: an IPv6 address in brackets, or a name or an IPv4 address, and a port."""

Row = dict[str, Any]
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class DebugReports:
    """The reports about a manager: its controllers, informers and leader elections, each as they are at the time."""

    controllers: Mapping[str, Controller]
    cache: Cache
    leadership: Leadership

    def routes(self) -> list[web.RouteDef]:
        """Return the routes ``/debug`` and ``/debug/NAME``; ``?format=json`` selects JSON."""
        return [web.get("/debug", self._serve), web.get("/debug/{name}", self._serve)]

    async def report(self, name: str) -> list[Row]:
        """Return the rows of a report; raises :class:`KeyError` for an unknown name."""
        return await self._reports[name]()

    @property
    def _reports(self) -> Mapping[str, Callable[[], Awaitable[list[Row]]]]:
        return {
            "queue": self._queues,
            "informers": self._informers,
            "leases": self._leases,
            "tasks": self._tasks,
            "objects": self._objects,
        }

    async def _serve(self, request: web.Request) -> web.Response:
        reports = self._reports
        requested = request.match_info.get("name", "")
        if requested and requested not in reports:
            return web.Response(status=404, text=f"must be one of {', '.join(reports)}\n")

        names = [requested] if requested else list(reports)
        found = {name: await self.report(name) for name in names}

        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        if _wants_json(request):
            content = found[requested] if requested else found
            body = orjson.dumps(content)
            return web.Response(body=body, content_type="application/json", headers=headers)
        text = "\n".join(f"# {name}\n{render_table(rows)}" for name, rows in found.items())
        return web.Response(text=text, headers=headers)

    async def _queues(self) -> list[Row]:
        rows = []
        for controller in tuple(self.controllers.values()):
            queue = controller.queue
            items = heapq.nlargest(
                MAX_ITEMS, queue.items(), key=lambda item: (item.running, item.seconds)
            )
            ready = [item.seconds for item in items if _state(item) == "ready"]
            rows.append(
                {
                    "controller": controller.name,
                    "ready": len(queue),
                    "delayed": queue.waiting,
                    "running": queue.processing,
                    "oldest_seconds": _rounded(max(ready, default=0.0)),
                    "items": [_describe_item(queue, item) for item in items],
                }
            )
            await anyio.lowlevel.checkpoint()
        return rows

    async def _informers(self) -> list[Row]:
        rows = []
        for informer in self.cache.informers:
            selection = informer.selection
            lag = informer.lag
            rows.append(
                {
                    "kind": str(informer.gvk),
                    "objects": len(informer.reader),
                    "bytes": informer.reader.size,
                    "synced": informer.has_synced,
                    "lag_seconds": _rounded(lag) if lag is not None else None,
                    "namespaces": ",".join(selection.namespaces),
                    "label_selector": str(selection.label_selector),
                    "field_selector": str(selection.field_selector),
                    "metadata_only": selection.metadata_only,
                    "problem": informer.problem,
                }
            )
            await anyio.lowlevel.checkpoint()
        return rows

    async def _leases(self) -> list[Row]:
        return [
            {
                "lease": f"{elector.options.namespace}/{elector.options.name}",
                "holder": elector.leader,
                "identity": elector.options.identity,
                "leader": elector.is_leader,
                "expires_in_seconds": _rounded(elector.lease_seconds),
            }
            for elector in self.leadership.electors
        ]

    async def _tasks(self) -> list[Row]:
        rows: dict[tuple[str, ...], Row] = {}
        tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
        for task in tasks[:MAX_TASKS]:
            coroutine = task.get_coro()
            stack = [_location(frame) for frame in _frames(coroutine)]
            name = getattr(coroutine, "__qualname__", "")
            # One row for all tasks with the same stack, such as the idle workers of all controllers.
            row: Row = {"task": task.get_name(), "count": 0, "coroutine": name, "stack": stack}
            rows.setdefault((name, *stack), row)["count"] += 1
        return list(rows.values())

    async def _objects(self) -> list[Row]:
        largest: list[tuple[int, str, str]] = []
        for informer in self.cache.informers:
            kind = str(informer.gvk)
            sizes = ((len(entry.raw), kind, str(entry.key)) for entry in informer.reader.entries())
            largest += heapq.nlargest(MAX_OBJECTS, sizes)
            largest = heapq.nlargest(MAX_OBJECTS, largest)
            await anyio.lowlevel.checkpoint()
        return [{"bytes": size, "kind": kind, "object": key} for size, kind, key in largest]


def _wants_json(request: web.Request) -> bool:
    if request.query.get("format") == "json":
        return True
    return "application/json" in request.headers.get("Accept", "")


def _describe_item(queue: WorkQueue[Request], item: QueuedItem[Request]) -> Row:
    retries = [cause.detail for cause in item.causes if cause.type is CauseType.RETRY]
    return {
        "request": str(item.item),
        "state": _state(item),
        "seconds": _rounded(abs(item.seconds)),
        "priority": item.priority,
        "failures": queue.num_requeues(item.item),
        "last_error": retries[0] if retries else "",
        "causes": [_describe_cause(cause) for cause in item.causes],
        "omitted_causes": item.causes.omitted,
    }


def _state(item: QueuedItem[Request]) -> str:
    if item.running:
        return "running"
    if item.seconds >= 0:
        return "ready"
    return "delayed"


def _describe_cause(cause: Cause) -> Row:
    return {
        "type": str(cause.type),
        "kind": str(cause.gvk) if cause.gvk is not None else "",
        "object": str(cause.key) if cause.key is not None else "",
        "changed": list(cause.changed),
        "detail": cause.detail,
    }


def loopback_endpoint(bind_address: str, reports: DebugReports) -> Endpoint:
    """Return the server of ``reports`` on a loopback address.

    Clients that send another host name are rejected, because a web page can let its name resolve to the loopback
    address. Raises :class:`ValueError` for any other address.
    """
    address = parse_bind_address(bind_address)
    if address is not None and not _is_loopback(address[0] or ""):
        raise ValueError(
            f"debug_bind_address: {bind_address!r}: must be a loopback address, or {METRICS_SERVER!r} for the metrics "
            "server, which authenticates its clients"
        )
    return Endpoint("debug", bind_address, reports.routes(), middlewares=[_require_loopback_host])


@web.middleware
async def _require_loopback_host(request: web.Request, handler: _Handler) -> web.StreamResponse:
    host = _HOST.fullmatch(request.headers.get("Host", ""))
    if host is None or not _is_loopback((host[1] or host[2]).lower()):
        return web.Response(
            status=403, text="the Host header must be localhost or a loopback address\n"
        )
    return await handler(request)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_FRAME_ATTRIBUTES: Final = (
    ("cr_frame", "cr_await"),
    ("gi_frame", "gi_yieldfrom"),
    ("ag_frame", "ag_await"),
)
"""The attributes of coroutines, generators and asynchronous generators: the frame, and what it waits for."""


def _frames(coroutine: Any) -> Iterator[FrameType]:
    """Yield the frames of a suspended coroutine from the outermost to the innermost; a Task knows only the first."""
    for _ in range(MAX_FRAMES):
        for frame_name, awaited_name in _FRAME_ATTRIBUTES:
            frame = getattr(coroutine, frame_name, None)
            if frame is not None:
                yield frame
                coroutine = getattr(coroutine, awaited_name)
                break
        else:
            return


def _location(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}"


def _rounded(seconds: float) -> float:
    return round(seconds, 3)


def render_table(rows: list[Row]) -> str:
    """Return rows as aligned columns; columns that are lists follow their row, one line for each element."""
    if not rows:
        return "none\n"
    columns = [name for name, value in rows[0].items() if not isinstance(value, list)]
    cells = [_cells(row, columns) for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = [_line(columns, widths)]
    for row, values in zip(rows, cells, strict=True):
        lines.append(_line(values, widths))
        for value in row.values():
            if isinstance(value, list):
                lines += [f"    {_inline(element)}" for element in value]
    return "\n".join([*lines, ""])


def _line(values: Iterable[str], widths: Iterable[int]) -> str:
    padded = [value.ljust(width) for value, width in zip(values, widths, strict=True)]
    return "  ".join(padded).rstrip()


def _cells(row: Row, columns: Iterable[str]) -> list[str]:
    return [_cell(row[name]) for name in columns]


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).replace("\n", " ")


def _inline(element: Any) -> str:
    """Return one line for an element: the values that are not empty, with their names."""
    if isinstance(element, Mapping):
        fields = []
        for name, value in element.items():
            if value not in ("", [], 0):
                fields.append(f"{name}={_inline(value)}")
        return " ".join(fields)
    if isinstance(element, list):
        return "[" + "; ".join(map(_inline, element)) + "]"
    return str(element).replace("\n", " ")
