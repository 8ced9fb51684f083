"""Parses YAML and JSON files into values that JSON can represent, as kubectl does, within limits.

YAML can represent more: dates, keys that are not strings, values that contain themselves, and a few lines that expand
to billions of values. The limits are checked before anything is computed on a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import orjson
import yaml

MAX_LEVELS: Final = 100
"""The maximum number of levels of nested values."""
MAX_VALUES: Final = 200_000
"""The maximum number of values in one object; an object of 1 MiB, the limit of API servers, has fewer."""

_SUSPICIOUS: Final = 5000
"""The parser of YAML, which is recursive, can parse this number of levels; fewer brackets, and fewer characters in each
line, cannot have more."""


class _Loader(yaml.CSafeLoader):
    """Loads dates as strings, as kubectl does."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (a class attribute of the base class)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


def parse(content: bytes) -> list[Any]:
    """Return the documents in ``content``. Raises ValueError, with a message of one line."""
    if content.lstrip()[:1] in (b"{", b"["):
        with suppress(orjson.JSONDecodeError):  # YAML in flow style
            return [orjson.loads(content)]
    try:
        if content.count(b"[") + content.count(b"{") > _SUSPICIOUS or _longest_line(content) > _SUSPICIOUS:
            _check_levels(content)
        return list(yaml.load_all(content, Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from None


def _longest_line(content: bytes) -> int:
    return max(map(len, content.splitlines()), default=0)


def _check_levels(content: bytes) -> None:
    levels = 0
    for event in yaml.parse(content, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            levels += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            levels -= 1
        if levels > MAX_LEVELS:
            raise ValueError(f"more than {MAX_LEVELS} levels")


def json_problem(value: Any) -> str:
    """Return why JSON cannot represent ``value``, or which limit it exceeds; empty if there is no such reason."""
    count = 0
    pending: list[tuple[Any, int]] = [(value, 1)]
    while pending:
        item, level = pending.pop()
        if level > MAX_LEVELS:
            return f"must have at most {MAX_LEVELS} levels"
        if isinstance(item, Mapping):
            if not all(isinstance(key, str) for key in item):
                return "keys must be strings"
        elif not isinstance(item, list):
            if item is not None and not isinstance(item, str | int | float):
                return f"must contain only JSON values, not {type(item).__name__}"
            continue
        count += len(item)
        if count > MAX_VALUES:
            return f"must have at most {MAX_VALUES} values"
        pending += [(each, level + 1) for each in (item.values() if isinstance(item, Mapping) else item)]
    return ""
