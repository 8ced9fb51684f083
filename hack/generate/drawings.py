"""The drawings of ``docs/architecture.md``: the packages of cfo, and how an event and a review pass through them.

Floors and rooms come from the import contracts in ``pyproject.toml``, kinds and features from
:data:`cfo.features.FEATURES`, and the modules of each way from traces of real runs (:mod:`hack.ways`). What each room
is for, and what each module of a way does, is written here; one without a text, and a text without one, is an error.
The SVGs have colors for light and dark themes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from cfo.cli import cli
from cfo.features import FEATURES, KINDS
from cfo.features.contract import Kind
from hack import ROOT
from hack.files import ToolError
from hack.ways import EVENT_WAY, REVIEW_WAY, read
from hack.ways import FILE as TRACE

HOUSE = "docs/images/house.svg"
WAYS = "docs/images/ways.svg"

_PURPOSES = {
    "cfo.cli": "the command line",
    "cfo.console": "commands: ",
    "cfo.manifests": "the objects of an installation",
    "cfo.operator": "configuration → manager → FEATURES",
    "cfo.features": "what the other rooms ask of a kind",
    "cfo.controllers": "reconcilers and pure decisions",
    "cfo.webhooks": "defaulting and validation",
    "cfo.checks": "what cfo doctor checks of a kind",
    "cfo.dashboard": "the page in the browser",
    "cfo.summaries": "state, problems and remedies",
    "cfo.config": "the configuration and its defaults",
    "cfo.api": "models, CRDs, names and facts",
    "cfo.runtime": "the library, below; knows no Ray",
    "cfo.startup": "memory and garbage collector",
    "cfo.version": "the version",
    "cfo.runtime.pytest_plugin": "fixtures for tests of operators",
    "cfo.runtime.manager": "start and stop, leader election, builder, Events, metrics, health",
    "cfo.runtime.webhook": "HTTPS server, reviews, defaulters and validators, certificates",
    "cfo.runtime.controller": "sources, handlers, predicates, work queue, reconciles",
    "cfo.runtime.cache": "list and watch, objects as bytes, indexes, shared informers",
    "cfo.runtime.client": "transport, verbs, apply, children, discovery, errors",
    "cfo.runtime.objects": "dicts in their wire form, conditions, field errors, typed resources",
    "cfo.runtime.pki": "private keys, certificates and their rotation, certificate requests",
    "cfo.runtime.process": "clock, logs, sockets, health of the event loop",
}

_STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }
.code { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 11.5px }
.name { font-weight: 600 }
.title { font-size: 15px; font-weight: 600 }
.step { font-size: 11px }
.small { font-size: 10.5px }
.quiet { fill: #59636e }
.page { fill: #ffffff; stroke: #d1d9e0 }
.floor { fill: #f6f8fa; stroke: #d1d9e0 }
.box { fill: #ffffff; stroke: #8c959f }
.kind { fill: #ddf4ff; stroke: #54aeff }
.line { stroke: #59636e; fill: none; stroke-width: 1.4 }
.head { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .quiet { fill: #9198a1 }
  .page { fill: #0d1117; stroke: #3d444d }
  .floor { fill: #161b22; stroke: #3d444d }
  .box { fill: #0d1117; stroke: #656c76 }
  .kind { fill: #0c2d6b; stroke: #4493f8 }
  .line { stroke: #9198a1 }
  .head { fill: #9198a1 }
}
"""


_ROOMS_OF_KINDS = frozenset(
    {"cfo.features", "cfo.controllers", "cfo.webhooks", "cfo.checks", "cfo.summaries", "cfo.api"}
)
"""The rooms that have a module or a folder for each kind."""


class _Room(NamedTuple):
    name: str
    purpose: str


class _Way(NamedTuple):
    """A way to draw: its key in the file of traces, and the texts before its first and after its last module."""

    key: str
    start: str
    end: str


_WAYS = (
    _Way(
        EVENT_WAY,
        "An event: the API server sends a line of its watch",
        "A write: the API server gets the request; its response is stored, so that we read our own writes",
    ),
    _Way(
        REVIEW_WAY,
        "A review: the API server sends an AdmissionReview",
        "The API server gets the response",
    ),
)

_STEPS = {
    "cfo.runtime.cache.reflector": "lists and watches; splits pages and lines without decoding",
    "cfo.runtime.cache.wire": "decodes what a line is, and limits its nesting",
    "cfo.runtime.cache.entry": "keeps an object as bytes, with its metadata",
    "cfo.runtime.cache.feed": "drops what is older than what is known",
    "cfo.runtime.cache.store": "holds the newest state of each object",
    "cfo.runtime.cache.budget": "limits the bytes of a namespace",
    "cfo.runtime.cache.unavailable_namespaces": "knows which namespaces are left out",
    "cfo.runtime.cache.index": "finds objects by a value of theirs",
    "cfo.runtime.process.strings": "refuses one string in place of a list",
    "cfo.runtime.process.arguments": "refuses an async function in place of a plain one",
    "cfo.runtime.process.byte_budget": "gives up the slowest transfers if all are too large",
    "cfo.runtime.process.large_responses": "limits the responses that no client reads",
    "cfo.runtime.process.nested_json": "reads objects without managedFields that no decoder reads",
    "cfo.runtime.process.large_objects": "lets one reconcile at a time have large objects",
    "cfo.runtime.cache.informer": "delivers the event; serves reads",
    "cfo.runtime.cache.cache": "chooses the informer that has the object to read",
    "cfo.runtime.controller.source": "connects informer, predicates and handler",
    "cfo.runtime.controller.predicate": "ends the way of an event that matters to no one",
    "cfo.runtime.controller.handler": "maps the object to requests: names",
    "cfo.runtime.controller.cause": "remembers the event, for logs",
    "cfo.runtime.controller.workqueue": "holds a name once, with back-off",
    "cfo.runtime.controller.controller": "calls the reconciler; retries after an exception",
    "cfo.runtime.client.client": "create, apply, patch, delete; asks the cache before the API server",
    "cfo.runtime.client.recorded_requests": "sends requests, and stores the responses in the cache",
    "cfo.runtime.client.discovery": "finds resource and path of the kind",
    "cfo.runtime.client.child": "describes an object that should exist",
    "cfo.runtime.client.child_checks": "refuses wrong descriptions",
    "cfo.runtime.client.child_results": "collects what became of each object",
    "cfo.runtime.client.children": "creates, or checks owner and uid before a change",
    "cfo.runtime.client.unread_errors": "collects errors of children, to report those that nothing reads",
    "cfo.runtime.client.apply": "ends the way if nothing would change",
    "cfo.runtime.client.transport": "credentials, retries; lets only the leader write",
    "cfo.runtime.objects.unstructured": "reads metadata of plain dicts",
    "cfo.runtime.objects.parsers": "parses bounded text",
    "cfo.runtime.process.listener": "accepts and limits connections",
    "cfo.runtime.webhook.server": "limits time; runs large reviews in a thread",
    "cfo.runtime.webhook.registration": "finds the webhook of the path",
    "cfo.runtime.webhook.metrics": "counts and measures reviews",
    "cfo.runtime.webhook.request_bodies": "reads the body, and limits all bodies together",
    "cfo.runtime.webhook.shares": "divides the reviews in flight among clients and namespaces",
    "cfo.runtime.webhook.worker": "runs a large review in a thread",
    "cfo.runtime.webhook.review": "parses the AdmissionReview; writes the response",
    "cfo.runtime.webhook.admission": "what a handler gets and returns",
    "cfo.runtime.webhook.review_handlers": "calls the defaulter or the validator",
    "cfo.controllers.raycluster.watches": "indexes RayClusters with shortened names",
    "cfo.controllers.raycluster.reconciler": "a name in; each concern observes and decides, then writes",
    "cfo.controllers.raycluster.environment": "the settings of the namespace",
    "cfo.controllers.raycluster.concern": "what was observed, and what is decided, as data",
    "cfo.controllers.raycluster.networkpolicy": "decides which policies should exist",
    "cfo.controllers.raycluster.operator_namespaces": "finds the namespaces of the KubeRay operator",
    "cfo.controllers.raycluster.platform": "whether the cluster is OpenShift",
    "cfo.controllers.raycluster.dashboard_access": "who authenticates users of the dashboard",
    "cfo.controllers.raycluster.policies": "writes the policies: pure functions",
    "cfo.controllers.raycluster.responsibility": "records in an Event that another actor acts",
    "cfo.api.raycluster.names": "names of all that belongs to a RayCluster",
    "cfo.api.raycluster.facts": "derives facts once; who provides what",
    "cfo.api.raycluster.cluster": "reads fields of a RayCluster",
    "cfo.api.raycluster.ports": "the ports of a head that are open",
    "cfo.api.reading": "reads fields of any JSON type",
    "cfo.webhooks.shapes": "compares with the JSON types",
    "cfo.webhooks.raycluster.webhook": "reads settings; passes them to the rules",
    "cfo.webhooks.raycluster.defaulting": "applies the plan to a copy",
    "cfo.webhooks.raycluster.json_types": "which JSON types and how many entries are allowed",
    "cfo.webhooks.raycluster.injection_plan": "plans what is injected into each pod template",
    "cfo.webhooks.raycluster.proxies": "the parts of the proxies",
    "cfo.webhooks.raycluster.mtls": "the parts of mutual TLS",
    "cfo.webhooks.raycluster.pod_additions": "adds parts to a pod template",
}
"""What each module of a way does there."""


def files() -> dict[str, str]:
    """Return the content of every generated file, by its path from the root of the repository."""
    return {HOUSE: house(), WAYS: ways()}


def floors(contract: str) -> list[list[str]]:
    """Return the full names of the modules on each floor of an import contract, from the top."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (found,) = [each for each in contracts if each["name"] == contract]
    prefix = "".join(f"{container}." for container in found.get("containers", ()))
    result: list[list[str]] = []
    for layer in found["layers"]:
        result.append([prefix + name.strip() for name in re.split("[:|]", layer)])
    return result


def kinds() -> list[str]:
    """Return the names of the kinds; their folders have the same names."""
    return [kind.name for kind in KINDS]


def house() -> str:
    """Draw the packages of cfo, and below them those of ``cfo.runtime``."""
    y = 62
    body = [
        _text(24, 32, "cfo", "title"),
        _text(24, 50, "A floor imports only from the floors below it.", "quiet"),
    ]
    upper = floors("the floors of cfo")
    for index, floor in enumerate(upper):
        drawn, y = _floor(y, len(upper) - index, list(_rooms(floor)))
        body += drawn
    y += 34
    body += [_text(24, y, "cfo.runtime", "title")]
    y += 12
    lower = floors("the floors of cfo.runtime")
    for index, floor in enumerate(lower):
        drawn, y = _floor(y, len(lower) - index, list(_rooms(floor)))
        body += drawn
    unused = set(_PURPOSES)
    for floor in [*upper, *lower]:
        for name in floor:
            unused -= {name, _room_of(name)}
    if unused:
        raise ToolError(
            f"hack/generate/drawings.py: not in an import contract: {', '.join(sorted(unused))}"
        )
    return _svg(
        _WIDTH_OF_FLOORS + 64, y + 14, "The packages in cfo and cfo.runtime, by import floors", body
    )


def _room_of(module: str) -> str:
    """Return the room in which to draw a module: itself, or the command line for ``__main__``."""
    return "cfo.cli" if module == "cfo.__main__" else module


def _rooms(floor: list[str]) -> Iterator[_Room]:
    for room in dict.fromkeys(map(_room_of, floor)):
        if room not in _PURPOSES:
            raise ToolError(
                f"hack/generate/drawings.py: no purpose of {room}, which is in an import contract"
            )
        purpose = _PURPOSES[room]
        if room == "cfo.console":
            modules = cli.lazy_commands.items()
            names = [name for name, (module, _) in modules if module.startswith(f"{room}.")]
            purpose += ", ".join(sorted(names))
        yield _Room(room, purpose)
        if room == "cfo.features":
            roles = [feature.name for feature in FEATURES if not isinstance(feature, Kind)]
            yield _Room("", f"optional roles: {', '.join(roles)}")


_WIDTH_OF_FLOORS = 496 + 110 * max(4, len(kinds()))


def _floor(y: int, number: int, rooms: list[_Room]) -> tuple[list[str], int]:
    """Draw a floor at ``y``; return it and the start of the next one."""
    height = 10 + 24 * len(rooms)
    drawn = [
        _rect(48, y, _WIDTH_OF_FLOORS, height, "floor"),
        _text(24, y + height / 2 + 4, str(number), "quiet"),
    ]
    for index, room in enumerate(rooms):
        base = y + 22 + 24 * index
        drawn.append(_text(62, base, room.name, "code name"))
        drawn.append(_text(262, base, room.purpose, "quiet"))
        if room.name not in _ROOMS_OF_KINDS:
            continue
        folder = ROOT / room.name.replace(".", "/")
        for column, kind in enumerate(kinds()):
            if not (folder / kind).is_dir() and not (folder / f"{kind}.py").is_file():
                continue  # for example a kind without webhooks
            drawn.append(_rect(540 + 110 * column, base - 15, 104, 20, "kind"))
            drawn.append(_text(592 + 110 * column, base - 1, kind, "code small", anchor="middle"))
    return drawn, y + height + 4


_LEFT = 52
"""The left end of the first column of a way."""

_COLUMN = 172
_BOX = 162
"""The distance between two columns, and the width of a box."""

_ROW = 24
_HEIGHT = 19
"""The distance between two rows, and the height of a box."""

_TEXT_WIDTH = 460
"""The width of the texts on the right of the columns."""


def ways() -> str:
    """Draw each way: a row for each module, from top to bottom, in the column of its room."""
    traced = read()
    drawn_ways = [(way, traced.get(way.key, [])) for way in _WAYS]
    entered: set[str] = set()
    for _, modules in drawn_ways:
        entered.update(modules)
    _check_steps(entered)
    most = max(len(_columns(modules)) for _, modules in drawn_ways)
    y = 34
    body = [
        _text(24, y, "Ways through cfo", "title"),
        _text(
            24,
            y + 18,
            "Each module in the order in which a real run first enters it; blue: in the folder of its kind",
            "quiet",
        ),
    ]
    y += 52
    for way, modules in drawn_ways:
        drawn, y = _draw_way(y, way, modules)
        body += drawn
        y += 44
    width = _LEFT + most * _COLUMN + _TEXT_WIDTH
    return _svg(width, y - 24, "The ways of an event and of a review through cfo", body)


def _check_steps(entered: set[str]) -> None:
    """Raise an error if an entered module has no text, or a text no module."""
    for problem, names in (
        (f"_STEPS does not say what they do in {TRACE}", entered - set(_STEPS)),
        (f"_STEPS has them, but not {TRACE}", set(_STEPS) - entered),
    ):
        if names:
            raise ToolError(f"hack/generate/drawings.py: {problem}: {', '.join(sorted(names))}")


def _columns(modules: Sequence[str]) -> list[str]:
    """Return the rooms of modules: those of the library, then those above it, each from the lowest floor."""
    rooms = {_room_of_step(module) for module in modules}
    ordered = [*_from_below("the floors of cfo.runtime"), *_from_below("the floors of cfo")]
    return [room for room in ordered if room in rooms]


def _from_below(contract: str) -> list[str]:
    rooms: list[str] = []
    for floor in reversed(floors(contract)):
        rooms += floor
    return rooms


def _room_of_step(module: str) -> str:
    """Return the package that is a room of the house: that of the library, or of cfo."""
    depth = 3 if module.startswith("cfo.runtime.") else 2
    return ".".join(module.split(".")[:depth])


def _draw_way(y: int, way: _Way, modules: Sequence[str]) -> tuple[list[str], int]:
    """Draw one way at ``y``; return it and where it ends."""
    columns = _columns(modules)
    drawn = [_text(24, y, way.start, "name")]
    y += 24
    for index, room in enumerate(columns):
        x = _LEFT + index * _COLUMN + _BOX / 2
        drawn.append(_text(x, y, room.removeprefix("cfo."), "code quiet", anchor="middle"))
    y += 10
    before = 0.0
    right = _LEFT + len(columns) * _COLUMN + 10
    for number, module in enumerate(modules, start=1):
        room = _room_of_step(module)
        x = _LEFT + columns.index(room) * _COLUMN
        middle = x + _BOX / 2
        style = "kind" if _is_of_kind(module) else "box"
        base = y + 13
        drawn.append(_text(_LEFT - 10, base, str(number), "quiet small", anchor="end"))
        drawn.append(_rect(x, y, _BOX, _HEIGHT, style))
        drawn.append(_text(middle, base, module.rpartition(".")[2], "code small", anchor="middle"))
        drawn.append(_text(right, base, _STEPS[module], "step"))
        if number > 1:
            drawn.append(_connection(before, middle, y))
        before = middle
        y += _ROW
    drawn.append(_text(24, y + 14, way.end, "name"))
    return drawn, y + 14


def _is_of_kind(module: str) -> bool:
    parts = module.split(".")
    return any(kind in parts for kind in kinds())


def _connection(before: float, middle: float, y: float) -> str:
    """Return the arrow from the box above ``y`` with its middle at ``before`` to the box at ``y``."""
    above = y - _ROW
    if before == middle:
        return _path([(middle, above + _HEIGHT), (middle, y)], "")
    edge = before + _direction(before, middle) * _BOX / 2
    center = above + _HEIGHT / 2
    line = _path([(edge, center), (middle, center), (middle, y - 5)], "")
    return line + _head(middle, y, 0, 1)


def _rect(x: float, y: float, width: float, height: float, style: str) -> str:
    return (
        f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'
    )


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _path(points: Sequence[tuple[float, float]], style: str) -> str:
    return f'<polyline class="line {style}" points="{_coordinates(points)}"/>'


def _coordinates(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _direction(start: float, end: float) -> int:
    """Return 1 if ``end`` is greater than ``start``, -1 if it is less, and 0 if both are equal."""
    if end == start:
        return 0
    return 1 if end > start else -1


def _head(x: float, y: float, dx: int, dy: int) -> str:
    """Return the head of an arrow at a point, in the direction of ``dx`` and ``dy``."""
    corners = [
        (x, y),
        (x - 8 * dx + 4 * dy, y - 8 * dy + 4 * dx),
        (x - 8 * dx - 4 * dy, y - 8 * dy - 4 * dx),
    ]
    return f'<polygon class="head" points="{_coordinates(corners)}"/>'


def _svg(width: int, height: float, title: str, body: Sequence[str]) -> str:
    return "\n".join(
        [
            "<!-- Generated by `make manifests` from pyproject.toml, cfo/features and hack/generate/ways.json. -->",
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            _rect(0.5, 0.5, width - 1, height - 1, "page"),
            *body,
            "</svg>\n",
        ]
    )
