"""Reads and writes YAML as the API server does: only the subset that JSON can express.

Import this module only to handle YAML: most requests are JSON.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import yaml

__all__ = ["YAMLError", "dump", "load"]


class YAMLError(ValueError):
    """Raised for invalid YAML."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loads the JSON subset of YAML: dates remain strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes YAML in the style of sigs.k8s.io/yaml: strings that could be parsed as another type are double-quoted."""


_RESOLVER: Any = yaml.SafeLoader("")


def _represent_string(dumper: Any, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)) != "tag:yaml.org,2002:str":
        style = '"'
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


_Dumper.add_representer(str, _represent_string)


def load(data: bytes) -> Any:
    """Decode one document, limited to values that JSON can express. Raises YAMLError."""
    try:
        _check_depth(data)
        return _JSONConverter(len(data) + _ALIASED).convert(yaml.load(data, Loader=_Loader))  # noqa: S506 - a SafeLoader
    except YAMLError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise YAMLError("yaml: " + " ".join(str(error).split())) from None
    except RecursionError:
        raise YAMLError("yaml: exceeded max depth") from None


DEEPEST: Final = 400
"""Maximum nesting depth. libyaml's reader recurses for each level: thousands would crash the process."""

_INDENTED: Final = re.compile(rb"^[ \t?-]+", re.MULTILINE)


def _check_depth(data: bytes) -> None:
    """Raise YAMLError if a document is nested too deeply.

    Only a document that might be too deep is parsed event by event. The others are at most as deep as the deepest
    indentation has columns (twice, because a list can be at the column of its key) plus the number of brackets.
    """
    columns = max(map(len, _INDENTED.findall(data)), default=0)
    if 2 * columns + data.count(b"[") + data.count(b"{") < DEEPEST:
        return
    depth = 0
    for event in yaml.parse(data, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise YAMLError("yaml: exceeded max depth")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


_ALIASED: Final = 400_000
"""Maximum number of values that aliases add to the maximum for a document of this length (go-yaml's limit)."""


class _JSONConverter:
    """Converts YAML values to JSON values: keys become strings, and the expansion of aliases is limited."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._open: set[int] = set()

    def convert(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise YAMLError("yaml: document contains excessive aliasing")
        if isinstance(value, (dict, list)):
            if id(value) in self._open:
                raise YAMLError("yaml: anchor value contains itself")
            self._open.add(id(value))
            converted: Any = (
                {_key(name): self.convert(item) for name, item in value.items()}
                if isinstance(value, dict)
                else [self.convert(item) for item in value]
            )
            self._open.remove(id(value))
            return converted
        if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
            return float(value) if abs(value) < 10**308 else _unsupported(value)
        if isinstance(value, float) and not math.isfinite(value):
            return _unsupported(value)
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if value is None or isinstance(value, (str, int, float, bool)):
            return value
        return _unsupported(value)


def _key(name: Any) -> str:
    if isinstance(name, str):
        return name
    if isinstance(name, bool):
        return "true" if name else "false"
    if isinstance(name, (int, float)):
        return str(name)
    raise YAMLError(f"error converting YAML to JSON: unsupported map key: {str(name)[:100]}")


def _unsupported(value: Any) -> Any:
    raise YAMLError(f"error converting YAML to JSON: unsupported value: {str(value)[:100]}")


def dump(document: Any, *, sort_keys: bool = True) -> str:
    """Encode one document."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=sort_keys, default_flow_style=False, allow_unicode=True)
    return text
