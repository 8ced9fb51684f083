"""The drawings of ``docs/architecture.md``: the packages of cfo, and the way of an event, a write, a read and a review.

Floors and rooms come from the import contracts in ``pyproject.toml``, kinds and features from
:data:`cfo.features.FEATURES`. What each room is for, and the steps of each way, are written here; a room without a
purpose, or a step whose module does not exist, is an error. The SVGs have colors for light and dark themes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from textwrap import wrap
from typing import NamedTuple

from cfo.cli import cli
from cfo.features import FEATURES, KINDS
from cfo.features.contract import Kind
from hack import ROOT
from hack.files import ToolError

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
.dashed { stroke-dasharray: 4 3 }
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


class Step(NamedTuple):
    """A module that takes part in a way: its package, its name (empty: the package of a kind), and what it does."""

    package: str
    name: str
    text: str

    def contains(self, module: str) -> bool:
        """Return whether a module, with dots in its name, is this one, or in the package of a kind."""
        package = self.package.replace("/", ".")
        if self.name:
            return module == f"{package}.{self.name}"
        return module.startswith(f"{package}.")


_RUNTIME = "cfo/runtime"
EVENT = (
    Step(
        f"{_RUNTIME}/cache",
        "reflector",
        "lists and watches; splits pages and lines without decoding",
    ),
    Step(f"{_RUNTIME}/cache", "store", "keeps the newest state of each object as bytes"),
    Step(
        f"{_RUNTIME}/controller", "handler", "maps the object to requests, if the predicates match"
    ),
    Step(f"{_RUNTIME}/controller", "workqueue", "holds a name once, with back-off"),
    Step(
        f"{_RUNTIME}/controller", "controller", "calls the reconciler; retries after an exception"
    ),
    Step("cfo/controllers", "", "a name in, desired objects out of pure functions"),
)
WRITE = (
    Step(
        f"{_RUNTIME}/client",
        "transport",
        "credentials, retries; the gate lets only the leader write",
    ),
    Step(
        f"{_RUNTIME}/client",
        "recorded_requests",
        "stores the response, so that we read our own writes",
    ),
    Step(f"{_RUNTIME}/client", "apply", "ends here if nothing would change"),
    Step(f"{_RUNTIME}/client", "discovery", "finds resource and path of the kind"),
    Step(f"{_RUNTIME}/client", "client", "create, apply, patch, delete"),
    Step(f"{_RUNTIME}/client", "children", "creates, or checks owner and uid before a change"),
)
_READ = (
    Step(f"{_RUNTIME}/client", "transport", "credentials, Retry-After, rate limit"),
    Step(
        f"{_RUNTIME}/client",
        "recorded_requests",
        "if no informer has the object, or with live=True",
    ),
    Step(f"{_RUNTIME}/cache", "entry", "decodes a fresh copy for each caller"),
    Step(f"{_RUNTIME}/cache", "store", "finds it by key, index or selector"),
    Step(f"{_RUNTIME}/cache", "cache", "chooses the informer that has the objects"),
    Step(f"{_RUNTIME}/client", "client", "asks the cache before the API server"),
)
REVIEW = (
    Step(f"{_RUNTIME}/process", "listener", "limits connections"),
    Step(f"{_RUNTIME}/webhook", "server", "limits bodies, and time; large reviews run in a thread"),
    Step(f"{_RUNTIME}/webhook", "review", "parses the AdmissionReview"),
    Step(f"{_RUNTIME}/webhook", "review_handlers", "calls the defaulter or the validator"),
    Step("cfo/webhooks", "", "pure rules on the facts of the object"),
    Step(f"{_RUNTIME}/webhook", "admission", "answers with a JSON patch, warnings or errors"),
)


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


_LEFT = 116
"""The left end of each lane."""

_WIDTH = 140
_HEIGHT = 100
"""The size of a step."""

_GAP = 20
"""The distance between two steps."""

_PITCH = 152
"""The distance from the top of a lane to the top of the next one."""


def ways() -> str:
    """Return the drawing of what happens between the API server and the code of a kind."""
    top = 62
    rows = [top + _PITCH * index for index in range(4)]
    bottom = rows[3] + _HEIGHT + 28
    body = [
        _rect(16, top - 26, 72, bottom - top + 34, "kind"),
        _text(52, (top + bottom) / 2 - 6, "API", "name", anchor="middle"),
        _text(52, (top + bottom) / 2 + 10, "server", "name", anchor="middle"),
    ]
    event, write, read, review = rows
    body += _lane(event, "An event", EVENT, forward=True)
    body += _lane(write, "A write", WRITE, forward=False)
    body += _lane(read, "A read", _READ, forward=False, break_before=2)
    body += _lane(review, "A review", REVIEW, forward=True)
    last = _center(5)
    body.append(_arrow((last, event + _HEIGHT), (last, write)))
    body.append(_arrow((_center(1), write), (_center(1), event + _HEIGHT), "dashed"))
    body.append(_text(_center(1) + 7, event + _HEIGHT + 17, "the response", "quiet"))
    right = _x(5) + _WIDTH
    reads_cache = [
        (right, event + 50),
        (right + 12, event + 50),
        (right + 12, read + 50),
        (right, read + 50),
    ]
    body.append(_path(reads_cache, ""))
    body.append(_head(right, read + 50, -1, 0))
    under = read + _HEIGHT + 12
    reads_server = [
        (last, read + _HEIGHT),
        (last, under),
        (_center(1), under),
        (_center(1), read + _HEIGHT),
    ]
    body.append(_path(reads_server, "dashed"))
    body.append(_head(_center(1), read + _HEIGHT, 0, -1))
    answer = review + _HEIGHT + 14
    body.append(_path([(last, review + _HEIGHT), (last, answer), (_API_SERVER + 6, answer)], ""))
    body.append(_head(_API_SERVER, answer, -1, 0))
    return _svg(
        1100, bottom + 26, "The way of an event, a write, a read and a review through cfo", body
    )


_API_SERVER = 88
"""The right end of the API server, on the left of all lanes."""


def _lane(
    y: int, title: str, steps: Sequence[Step], *, forward: bool, break_before: int = 0
) -> list[str]:
    drawn = [_text(_LEFT, y - 10, title, "name")]
    for index, step in enumerate(steps):
        path = ROOT / step.package / step.name
        if not path.is_dir() and not path.with_suffix(".py").is_file():
            raise ToolError(f"hack/generate/drawings.py: {step.package}/{step.name} does not exist")
        x = _x(index)
        style = "box" if step.name else "kind"
        package = step.package.removeprefix("cfo/").replace("/", ".")
        drawn.append(_rect(x, y, _WIDTH, _HEIGHT, style))
        drawn.append(_text(x + 8, y + 17, package, "code quiet"))
        drawn.append(_text(x + 8, y + 32, step.name or "KIND", "code name"))
        for row, line in enumerate(wrap(step.text, 21)):
            drawn.append(_text(x + 8, y + 49 + 14 * row, line, "step"))
        if index and index == break_before:
            continue
        before = x - _GAP if index else _API_SERVER
        start = (before, y + 50)
        end = (x, y + 50)
        if forward:
            drawn.append(_arrow(start, end))
        else:
            drawn.append(_arrow(end, start))
    return drawn


def _x(column: int) -> float:
    return _LEFT + column * (_WIDTH + _GAP)


def _center(column: int) -> float:
    return _x(column) + _WIDTH / 2


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


def _arrow(start: tuple[float, float], end: tuple[float, float], style: str = "") -> str:
    """Return a horizontal or vertical line with a head at ``end``."""
    x, y = end
    dx = _direction(start[0], x)
    dy = _direction(start[1], y)
    line = _path([start, (x - 6 * dx, y - 6 * dy)], style)
    return line + _head(x, y, dx, dy)


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
            "<!-- Generated by `make manifests` from pyproject.toml and cfo/features. -->",
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            _rect(0.5, 0.5, width - 1, height - 1, "page"),
            *body,
            "</svg>\n",
        ]
    )
