"""A small renderer of Helm charts, because Helm is not always installed.

It supports only the expressions that our charts use, and rejects others.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import yaml

from cfo.version import __version__
from test.support.manifests import ROOT, load_all

CHART = ROOT / "deploy" / "charts" / "codeflare-operator"
TOKEN = re.compile(r"(\s*)\{\{-\s(.*?)\s\}\}|\{\{\s(.*?)\s\}\}", re.DOTALL)
LOOP = re.compile(r"\{\{- range (\S+) \}\}\n(.*)\{\{- end \}\}\n(?=\{\{- end \}\})", re.DOTALL)
"""A loop, which must be the only content of a condition."""


class Renderer:
    """Renders the expressions of this chart; an unknown one is an error."""

    def __init__(self, values: dict[str, Any], namespace: str) -> None:
        self.values = values
        self.namespace = namespace

    def value(self, expression: str, context: Any) -> Any:
        if expression == ".":
            return context
        if re.fullmatch(r"\.[a-z]+", expression):
            return context[expression[1:]]
        if expression in (".Release.Namespace", "$.Release.Namespace"):
            return self.namespace
        if (joined := re.fullmatch(r'join "," (\S+)', expression)) is not None:
            return ",".join(self.value(joined[1], context))
        if expression == "`{{`":
            return "{{"
        if (path := re.fullmatch(r"\(+\.Values\.config\)((\.\w+\)?)+)", expression)) is not None:
            return self.setting(path[1].replace(")", "").split(".")[1:])
        if (item := re.fullmatch(r'\(has "(\w+)" (\S+)\)', expression)) is not None:
            return item[1] in (self.value(item[2], context) or [])
        if (kind := re.fullmatch(r'\(kindIs "string" (\S+)\)', expression)) is not None:
            return isinstance(self.value(kind[1], context), str)
        if (equal := re.fullmatch(r'\(?eq "(\w+)" \(toString (\S+)\)\)', expression)) is not None:
            return str(self.value(equal[2], context)) == equal[1]
        if (equal := re.fullmatch(r'eq (\S+) "(\S+)"', expression)) is not None:
            return self.value(equal[1], context) == equal[2]
        if (hashed := re.fullmatch(r"(\S+) \| toYaml \| sha256sum", expression)) is not None:
            text = yaml.safe_dump(self.value(hashed[1], context))
            return hashlib.sha256(text.encode()).hexdigest()
        if expression == '.Values.image.tag | default (print "v" .Chart.AppVersion)':
            return self.values["image"]["tag"] or f"v{__version__}"
        value = self.values
        assert re.fullmatch(r"\.Values(\.\w+)+", expression), expression
        for part in expression.split(".")[2:]:
            value = value[part]
        return value

    def setting(self, path: list[str]) -> Any:
        """Return a setting of the configuration; ``None`` if one of its sections is missing."""
        value = self.values["config"]
        for name in path:
            value = (value or {}).get(name)
        return value

    def render(self, text: str, context: Any = None) -> str:
        if (loop := LOOP.search(text)) is not None:
            items = self.value(loop[1], context)
            text = LOOP.sub(lambda _: "".join(self.render(loop[2], item) for item in items), text)
        output, conditions, contexts = [], [True], [context]
        position = 0
        for token in TOKEN.finditer(text):
            if all(conditions):
                output.append(text[position : token.start()])
            position = token.end()
            expression = token[2] or token[3]
            if (block := re.fullmatch(r"(if|with) (not )?(.+)", expression)) is not None:
                value = self.value(block[3], contexts[-1])
                conditions.append(bool(value) is not bool(block[2]))
                contexts.append(value if block[1] == "with" else contexts[-1])
            elif expression == "end":
                conditions.pop()
                contexts.pop()
            elif (dumped := re.fullmatch(r"toYaml (\S+) \| nindent (\d+)", expression)) is not None:
                body = yaml.safe_dump(
                    self.value(dumped[1], contexts[-1]), sort_keys=False
                ).splitlines()
                if all(conditions):
                    output += [f"\n{' ' * int(dumped[2])}{line}" for line in body]
            elif all(conditions):
                output.append(str(self.value(expression, contexts[-1])))
        output.append(text[position:])
        assert len(conditions) == 1
        return "".join(output)


def render_chart(
    namespace: str, values: dict[str, Any], chart: Path = CHART
) -> list[dict[str, Any]]:
    """Return the objects of ``chart`` with these values in addition to its defaults."""
    defaults = yaml.safe_load((chart / "values.yaml").read_text())
    renderer = Renderer({**defaults, **values}, namespace)
    documents = [
        renderer.render(path.read_text()) for path in sorted((chart / "templates").glob("*.yaml"))
    ]
    return [obj for text in documents for obj in load_all(text) if obj]


JSON_TYPES: dict[str, Any] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": type(None),
    "number": (int, float),
    "object": dict,
    "string": str,
}


def refused_by_schema(schema: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """Return the paths in ``value`` that a JSON schema refuses; an unknown keyword is an error."""
    if not schema:  # any value
        return []
    known = {"$schema", "type", "enum", "pattern", "minimum", "maximum", "properties", "items"}
    assert schema.keys() <= known | {"additionalProperties"}, schema
    if "enum" in schema:
        return [] if value in schema["enum"] else [path]
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not any(isinstance(value, JSON_TYPES[name]) for name in types) or (
        isinstance(value, bool) and "boolean" not in types
    ):
        return [path]
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        return [path]
    if is_number and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return [path]
    found: list[str] = []
    if isinstance(value, list):
        for item in value:
            found += refused_by_schema(schema["items"], item, path) if schema.get("items") else []
    if isinstance(value, dict):
        others = schema.get("additionalProperties", True)
        for key, item in value.items():
            where = f"{path}.{key}".removeprefix(".")
            if key in schema.get("properties", {}):
                found += refused_by_schema(schema["properties"][key], item, where)
            elif others is False:
                found.append(where)
            elif isinstance(others, dict) and others:
                found += refused_by_schema(others, item, where)
    return found
