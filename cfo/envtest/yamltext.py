"""YAML as the API server reads and writes it: JSON in other clothes.

Imported by whoever meets the first YAML text: most requests are JSON.
"""

from __future__ import annotations

from typing import Any

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
    """Decodes one document; raises YAMLError."""
    try:
        return yaml.load(data, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YAMLError("yaml: " + " ".join(str(error).split())) from None


def dump(document: Any, *, sort_keys: bool = True) -> str:
    """Encodes one document."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=sort_keys, default_flow_style=False, allow_unicode=True)
    return text
