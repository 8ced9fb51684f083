"""Mutations of JSON values: delete, replace, rename, repeat, retype or insert something at a random place.

The values are those that have broken parsers: wrong types, long strings for which a careless pattern takes quadratic
time, numbers with large exponents, times at the ends of the calendar, control characters, deep nesting, many keys.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from cfo.runtime.objects.unstructured import Object
from test.fuzz.seeds import Corpus

__all__ = ["HOSTILE", "mutate", "mutated"]

_REPEATS = (2, 9, 101, 600, 1001)
_MAX_REPEATED = 200_000
"""The maximum number of characters of a repeated item, printed, times the repetitions."""


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE: tuple[str, ...] = (
    "9" * 20_000 + "x", "1" * 30_000 + "e1.5", "1h" * 20_000 + "x", "1," * 30_000, "a." * 20_000, "-" * 40_000,
    "\n" * 60_000 + "x", " " * 60_000 + "x", "x:v" + "9" * 5000 + ".1",
    "1e999999999", "1E-999999999999999999", "+1e+10000", "1" + "0" * 60, "." + "0" * 60 + "1",
    "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00",
    "\x1b[2J\x1b]0;title\a\rforged\nline\t\x85\u202e\u2066\u2028", "\u202eabc\u2069",
)  # fmt: skip
"""Strings that a tenant can store: they are slow to match or large as a number, or change what a terminal shows."""

_SCALARS: tuple[Any, ...] = (
    *HOSTILE,
    None, True, False, 0, 1, -1, 8, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), 2**64, 10**40, 0.5, -0.0, 1e300,
    "", "x", "0", "-1", "9" * 5000, "a" * 54, "a" * 64, "a" * 300, "x" * 100_000,
    "\x00", "\ud800", "\u2028", "ü💥", "a/b~c~0",
    "oauth-proxy", "create-cert", "RAY_USE_TLS", "ca-vol", "template", "template.spec.template", "template[0]",
    "template.",
    "90s", "1e400h", "3,137,x", "$(id)", "'; id #", "2026-11-21T00:00:00Z", "+1000000-01-01T00:00:00Z",
)  # fmt: skip
_CONTAINERS: tuple[Any, ...] = (
    {}, [], [None], [[]], [{}], {"": None}, {"name": None}, {"name": 1}, [{"name": None}],
    [{"name": "x"}, {"name": "x"}],
    ["x", 1, None], _nested(40), _nested(200), _nested(300), {"a": {"b": {"c": _nested(250)}}},
    _nested(500), {f"key-{number}": "x" for number in range(2000)}, {text: text for text in HOSTILE},
    [137] * 10_000, [{"name": "same"}] * 600, list(HOSTILE),
)  # fmt: skip
_VALUES = (*_SCALARS, *_CONTAINERS)


@st.composite
def mutated(
    draw: st.DrawFn, corpus: Corpus, at_most: int = 4, *, only: Object | None = None
) -> Object:
    """Return a strategy for the objects of ``corpus``, or for the object ``only``, with up to ``at_most`` mutations."""
    obj = copy.deepcopy(draw(st.sampled_from(corpus.objects)) if only is None else only)
    for _ in range(draw(st.integers(0, at_most))):
        mutate(draw, obj, corpus)
    return obj


def mutate(draw: st.DrawFn, root: Any, corpus: Corpus) -> None:
    """Change something below ``root``, which is an object or a list, in place."""
    parent, key = _place(draw, root)
    if key is None:
        _insert(draw, parent, corpus)
        return
    match draw(st.integers(0, 6)):
        case 0 | 1:
            parent[key] = copy.deepcopy(draw(st.sampled_from(_VALUES)))
        case 2:
            del parent[key]
        case 3:
            parent[key] = _retyped(parent[key])
        case 4:
            _repeat(draw, parent, key)
        case 5:
            _, value = draw(st.sampled_from(corpus.fields))
            parent[key] = copy.deepcopy(value)
        case _:
            _insert(draw, parent[key] if isinstance(parent[key], dict | list) else parent, corpus)


def _place(draw: st.DrawFn, root: Any) -> tuple[Any, Any]:
    """Walk down from ``root``, and return a container and a key in it; ``None`` if the container is empty."""
    parent = root
    while True:
        keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        if not keys:
            return parent, None
        key = keys[draw(st.integers(0, len(keys) - 1))]
        child = parent[key]
        if not isinstance(child, dict | list) or draw(st.integers(0, 4)) == 0:
            return parent, key
        parent = child


def _insert(draw: st.DrawFn, container: Any, corpus: Corpus) -> None:
    """Insert a field that is known elsewhere, with its value there or with another one."""
    name, value = draw(st.sampled_from(corpus.fields))
    if draw(st.booleans()):
        value = draw(st.sampled_from(_VALUES))
    value = copy.deepcopy(value)
    if isinstance(container, list):
        container.append(value)
    else:
        container[name if draw(st.integers(0, 7)) else str(draw(st.sampled_from(_SCALARS)))] = value


def _retyped(value: Any) -> Any:
    match value:
        case dict():
            return list(value.values())
        case list():
            return {str(index): item for index, item in enumerate(value)}
        case bool() | None:
            return str(value)
        case int() | float():
            return str(value)
        case _:
            return [value]


def _repeat(draw: st.DrawFn, parent: Any, key: Any) -> None:
    """Repeat an item of a list, or an entry of a map under other names."""
    value = parent[key]
    count = draw(st.sampled_from(_REPEATS))
    if len(repr(value)) * count > _MAX_REPEATED:
        count = 2
    if isinstance(parent, list):
        parent[key : key + 1] = [copy.deepcopy(value) for _ in range(count)]
    elif isinstance(value, list) and value:
        value.extend(copy.deepcopy(value[0]) for _ in range(count))
    else:
        parent.update({f"{key}{number}": copy.deepcopy(value) for number in range(count)})
