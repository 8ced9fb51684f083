"""Loads documents in YAML or JSON, with limits on what a hostile document can cost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import yaml

from cfo.config.section import ConfigurationError
from cfo.runtime.objects import YAML_ERRORS, YAML_LOADER, check_levels
from cfo.runtime.process import printable

MAX_CHARACTERS: Final = 256 << 10
"""The size of a document (or a ConfigMap with it) that is parsed, which takes seconds for each MiB."""
MAX_WARNINGS: Final = 100
"""The most warnings that are shown. One more is collected, which proves that there are more."""
MAX_KEY: Final = 100
"""The characters of a key that messages show."""

_MAX_VALUES: Final = 200_000
_MAX_DIGITS: Final = 1000


def check_size(text: str) -> None:
    """Raise :class:`ConfigurationError` for a text that is longer than :data:`MAX_CHARACTERS`."""
    if len(text) > MAX_CHARACTERS:
        raise ConfigurationError(f"is longer than {MAX_CHARACTERS} characters")


def load(text: str) -> tuple[Any, list[str]]:
    """Return the value of ``text``, and a warning for each duplicate key, of which the last one is used.

    Raises :class:`ConfigurationError` for a text that is too long or no valid YAML.
    """
    check_size(text)
    try:
        return _load(text)
    except RecursionError:
        raise ConfigurationError("is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        problem = error.problem or error.context
        raise ConfigurationError(f"not valid YAML: {problem}{where}") from None
    except YAML_ERRORS as error:
        raise ConfigurationError(f"not valid YAML: {' '.join(str(error).split())}") from None


def _load(text: str) -> tuple[Any, list[str]]:
    check_levels(text)
    loader = YAML_LOADER(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, []
        _count_values(node, {})
        warnings = list(islice(_duplicate_keys(node, "", set()), MAX_WARNINGS + 1))
        return loader.construct_document(node), warnings
    finally:
        loader.dispose()


def _count_values(node: yaml.Node, counts: dict[int, int]) -> int:
    """Return how many values a node has, those of aliases included.

    Raises ValueError for too many, for a long number, and for a set, which JSON does not have.
    """
    if id(node) in counts:
        return counts[id(node)]
    if node.tag.endswith(":set"):
        raise ValueError("a set is not a value of JSON")
    if node.tag.endswith(":int") and len(node.value) > _MAX_DIGITS:
        raise ValueError(f"an integer is longer than {_MAX_DIGITS} characters")
    counts[id(node)] = 1  # for an alias inside of what it refers to
    for child in _children(node):
        counts[id(node)] += _count_values(child, counts)
    if counts[id(node)] > _MAX_VALUES:
        raise ValueError(f"aliases expand to more than {_MAX_VALUES} values")
    return counts[id(node)]


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield value


def _duplicate_keys(node: yaml.Node, path: str, seen: set[int]) -> Iterator[str]:
    if id(node) in seen:  # a YAML alias
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _duplicate_keys(item, f"{path}[{index}]", seen)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            here = f"{path}.{printable(name, MAX_KEY)}".lstrip(".")
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and name in lines:
                yield f"duplicate key {here} on lines {lines[name]} and {line}; the last one is used"
            if isinstance(key, yaml.ScalarNode):
                lines[name] = line
            yield from _duplicate_keys(value, here, seen)
