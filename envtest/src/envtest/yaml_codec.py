"""YAML as the API server reads and writes it: JSON in other clothes.

Imported by whoever meets the first YAML text: most requests are JSON.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import yaml

__all__ = ["YAMLError", "dump", "load"]


class YAMLError(ValueError):
    """The text is no YAML."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as far as it is JSON: dates stay texts."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """YAML in the style of sigs.k8s.io/yaml: what could be read as something else is in double quotes."""


_RESOLVER: Any = yaml.SafeLoader("")


def _represent_text(dumper: Any, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)) != "tag:yaml.org,2002:str":
        style = '"'
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


_Dumper.add_representer(str, _represent_text)


def load(data: bytes) -> Any:
    """Decodes one document as far as JSON has words for it; raises YAMLError."""
    try:
        _check_depth(data)
        return _Plain(len(data) + _ALIASED).plain(yaml.load(data, Loader=_Loader))  # noqa: S506 - a SafeLoader
    except YAMLError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise YAMLError("yaml: " + " ".join(str(error).split())) from None
    except RecursionError:
        raise YAMLError("yaml: exceeded max depth") from None


DEEPEST: Final = 400
"""Levels of nesting. libyaml's reader calls itself for each: thousands would end the process, not the request."""

_INDENTED: Final = re.compile(rb"^[ \t?-]+", re.MULTILINE)


def _check_depth(data: bytes) -> None:
    """Raises YAMLError where a text is nested too deeply.

    Only one that might be is looked at event by event: blocks go deeper by columns (twice where a list stands below
    its key), the rest by brackets.
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
"""Values that may come from aliases, over those that a text of this length can spell out (go-yaml's bound)."""


class _Plain:
    """Makes JSON values of YAML ones: keys become texts, and aliases must not blow up the document."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._open: set[int] = set()

    def plain(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise YAMLError("yaml: document contains excessive aliasing")
        if isinstance(value, (dict, list)):
            if id(value) in self._open:
                raise YAMLError("yaml: anchor value contains itself")
            self._open.add(id(value))
            made: Any = (
                {_key(name): self.plain(item) for name, item in value.items()}
                if isinstance(value, dict)
                else [self.plain(item) for item in value]
            )
            self._open.remove(id(value))
            return made
        if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
            return float(value) if abs(value) < 10**308 else _refuse(value)
        if isinstance(value, float) and not math.isfinite(value):
            return _refuse(value)
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if value is None or isinstance(value, (str, int, float, bool)):
            return value
        return _refuse(value)


def _key(name: Any) -> str:
    if isinstance(name, str):
        return name
    if isinstance(name, bool):
        return "true" if name else "false"
    if isinstance(name, (int, float)):
        return str(name)
    raise YAMLError(f"error converting YAML to JSON: unsupported map key: {str(name)[:100]}")


def _refuse(value: Any) -> Any:
    raise YAMLError(f"error converting YAML to JSON: unsupported value: {str(value)[:100]}")


def dump(document: Any, *, sort_keys: bool = True) -> str:
    """Encodes one document."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=sort_keys, default_flow_style=False, allow_unicode=True)
    return text
