"""Reads and writes YAML as the API server does: only the subset that JSON can express.

Import this module only to handle YAML: most requests are JSON.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from calendar import monthrange
from collections.abc import Sequence
from typing import Any, Final

import yaml

from envtest.formats.go_format import go_float

__all__ = ["Loader", "YAMLError", "dump", "first_node", "load"]


class YAMLError(ValueError):
    """Raised for invalid YAML, in the words of go-yaml if it has some.

    ``line`` is where the problem is, from 1; it is 1 if it is unknown. ``problem`` is the message without a line.
    """

    def __init__(self, message: str, *, problem: str = "", line: int = 1) -> None:
        super().__init__(message)
        self.problem = problem or message
        self.line = line


_INTEGER: Final = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASE_60: Final = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_TIMESTAMP: Final = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"((?P<separator>[Tt]| ++)(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2}):(?P<second>[0-9]{1,2})([.,][0-9]++)?"
    r"(?P<zone>Z|[+-](?P<zone_hours>[0-9]{2}):(?P<zone_minutes>[0-9]{2}))?)?"
)
_LIMITS: Final = {"hour": 23, "minute": 59, "second": 59, "zone_hours": 24, "zone_minutes": 60}
_BASES: Final = {"0x": 16, "0b": 2, "0o": 8}


def _number(text: str) -> int | float | str:
    """Return the number that a plain scalar is, or the scalar itself.

    Octal numbers begin with ``0`` or ``0o``; there are no numbers in base 60. Underscores do not count, except in a
    number that begins with a point.
    """
    plain = text if text.startswith(".") else text.replace("_", "")
    if _INTEGER.fullmatch(plain):
        digits = plain.lstrip("+-")
        default_base = 8 if digits.startswith("0") else 10
        base = _BASES.get(digits[:2].lower(), default_base)
        number = 0 if len(digits) > _LONGEST else int(digits.lower().removeprefix("0o"), base)
        if plain.startswith("-"):
            number = -number
        if len(digits) <= _LONGEST and -(2**63) <= number < (
            2**63 if plain.startswith("+") else 2**64
        ):
            return number
    if _FLOAT.fullmatch(plain) and math.isfinite(fraction := float(plain)):
        return fraction
    return text


_LONGEST: Final = 66
"""Maximum number of characters of a 64-bit number, in base 2 with its prefix."""


class _Words:
    """Matches a fixed set of plain scalars."""

    def __init__(self, *words: str) -> None:
        self._words = frozenset(words)

    def match(self, text: str) -> bool:
        return text in self._words


class _Numbers:
    """Matches the plain scalars that are numbers."""

    def match(self, text: str) -> bool:
        return not isinstance(_number(text), str)


class _Quoted:
    """Matches the strings that are quoted although they are strings without quotes, too."""

    def match(self, text: str) -> bool:
        return _is_timestamp(text) or _BASE_60.fullmatch(text) is not None


def _is_timestamp(text: str) -> bool:
    """Return whether Go parses a text as a date, or as a time of the forms that YAML has."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return False
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(year or 4, month)[1]:
        return False
    needs_zone = match["separator"] in ("T", "t")
    if needs_zone != (match["zone"] is not None):
        return False
    return all(int(match[name] or 0) <= limit for name, limit in _LIMITS.items())


_TRUE: Final = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE: Final = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
_TAG: Final = "tag:yaml.org,2002:"
_FLOATS: Final = tuple(sign + word for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF"))
_RULES: Final[Sequence[tuple[str, Any, str]]] = (
    (_TAG + "bool", _Words(*_TRUE, *_FALSE), "yYtToOnNfF"),
    (_TAG + "null", _Words("", "~", "null", "Null", "NULL"), "~nN"),
    (_TAG + "merge", _Words("<<"), "<"),
    (_TAG + "float", _Words(*_FLOATS, ".nan", ".NaN", ".NAN"), "+-."),
    (_TAG + "int", _Numbers(), "+-.0123456789"),
)
"""How sigs.k8s.io/yaml resolves plain scalars: tag, what it matches, and the first characters of all that matches."""


def _resolvers(*rules: tuple[str, Any, str]) -> dict[str, list[tuple[str, Any]]]:
    resolvers: dict[str, list[tuple[str, Any]]] = {"": [(_TAG + "null", _Words(""))]}
    for tag, matcher, first in rules:
        for character in first:
            resolvers.setdefault(character, []).append((tag, matcher))
    return resolvers


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loads the JSON subset of YAML, with the scalars of sigs.k8s.io/yaml: dates remain strings."""

    yaml_implicit_resolvers = _resolvers(*_RULES)


def _construct_bool(loader: Any, node: yaml.ScalarNode) -> bool:
    if node.value not in {*_TRUE, *_FALSE}:
        raise YAMLError(f"yaml: cannot decode !!str `{node.value[:100]}` as a !!bool")
    return node.value in _TRUE


def _construct_number(loader: Any, node: yaml.ScalarNode) -> int | float:
    text = node.value
    if text.lower() in {".nan", *_FLOATS}:
        return float(text.replace(".", ""))
    number = _number(text)
    if isinstance(number, str):
        raise YAMLError(
            f"yaml: cannot decode !!str `{text[:100]}` as a {node.tag.replace(_TAG, '!!')}"
        )
    return float(number) if node.tag == _TAG + "float" else number


Loader.add_constructor(_TAG + "bool", _construct_bool)
Loader.add_constructor(_TAG + "int", _construct_number)


def _construct_binary(loader: Any, node: yaml.ScalarNode) -> str:
    try:
        content = base64.b64decode("".join(node.value.split()), validate=True)
    except (binascii.Error, ValueError):
        raise YAMLError("yaml: !!binary value contains invalid base64 data") from None
    return content.decode(errors="replace")


def _construct_unknown(loader: Any, node: yaml.Node) -> Any:
    """Return a value without its tag, as go-yaml does if the tag means nothing to it."""
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return node.value


Loader.add_constructor(_TAG + "float", _construct_number)
Loader.add_constructor(_TAG + "binary", _construct_binary)
for _tag in (None, _TAG + "set", _TAG + "omap", _TAG + "pairs", _TAG + "timestamp"):
    Loader.add_constructor(_tag, _construct_unknown)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes YAML in the style of sigs.k8s.io/yaml: strings that could be parsed as another type are double-quoted."""

    yaml_implicit_resolvers = _resolvers(*_RULES, (_TAG + "timestamp", _Quoted(), "+-0123456789"))

    def ignore_aliases(self, data: Any) -> bool:
        """Write a value that occurs twice in full each time."""
        return True


def _represent_string(dumper: Any, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif dumper.resolve(yaml.ScalarNode, text, (True, False)) != _TAG + "str":
        style = '"'
    node: yaml.ScalarNode = dumper.represent_scalar(_TAG + "str", text, style=style)
    return node


def _represent_float(dumper: Any, number: float) -> yaml.ScalarNode:
    # with the tag of all plain numbers, so that it needs none
    node: yaml.ScalarNode = dumper.represent_scalar(_TAG + "int", go_float(number))
    return node


_Dumper.add_representer(str, _represent_string)
_Dumper.add_representer(float, _represent_float)


def load(data: bytes) -> Any:
    """Decode the first document, limited to values that JSON can express. Raises YAMLError."""
    try:
        _check_depth(data)
        return _JSONConverter(len(data) + _ALIASED).convert(_first_document(data))
    except YAMLError:
        raise
    except yaml.reader.ReaderError as error:
        raise YAMLError(f"yaml: {error.reason}") from None
    except yaml.MarkedYAMLError as error:
        raise _go_error(error, data) from None
    except (yaml.YAMLError, ValueError) as error:
        raise YAMLError("yaml: " + " ".join(str(error).split())) from None
    except RecursionError:
        raise YAMLError("yaml: exceeded max depth") from None


_ALIAS: Final = re.compile(r"\*([-\w]+)")
_KEY_PROBLEM: Final = "found unhashable key"


def _go_error(error: yaml.MarkedYAMLError, data: bytes) -> YAMLError:
    """Return an error of libyaml, which is also the origin of go-yaml, as go-yaml prints it.

    go-yaml names no line for the first one, and the line before for errors of the parser.
    """
    mark = error.problem_mark
    if mark is None:
        return YAMLError(f"yaml: {error.problem}")
    if isinstance(error, yaml.composer.ComposerError):
        # the library's message does not contain the name
        alias = _ALIAS.match(data.decode(errors="replace"), mark.index)
        name = alias[1] if alias else ""
        return YAMLError(f"yaml: unknown anchor {name!r} referenced", line=mark.line + 1)
    if isinstance(error, yaml.constructor.ConstructorError):
        problem = str(error.problem)
        if problem == _KEY_PROBLEM:
            problem = "invalid map key: must not be a list or a map"
        return YAMLError(f"yaml: {problem}", line=mark.line + 1)
    number = mark.line
    if number and isinstance(error, yaml.scanner.ScannerError):
        number += 1
    where = f"line {number}: " if number else ""
    problem = f"yaml: {error.problem}"
    return YAMLError(f"yaml: {where}{error.problem}", problem=problem, line=mark.line + 1)


def _first_document(data: bytes) -> Any:
    loader = Loader(data)
    try:
        return loader.get_data() if loader.check_data() else None
    finally:
        loader.dispose()


def first_node(data: bytes) -> yaml.Node | None:
    """Return the first document as it was written. Raises yaml.YAMLError."""
    loader = Loader(data)
    try:
        node: yaml.Node | None = loader.get_node() if loader.check_node() else None
        return node
    finally:
        loader.dispose()


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
    for event in yaml.parse(data, Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise YAMLError("yaml: exceeded max depth")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentEndEvent):
            return


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
        if isinstance(value, float):
            if not math.isfinite(value):
                raise YAMLError(f"json: unsupported value: {_INFINITE[str(value)]}")
            return int(value) if value.is_integer() and abs(value) < 2**53 else value
        return value


def _key(name: Any) -> str:
    if isinstance(name, str):
        return name
    if isinstance(name, bool):
        return "true" if name else "false"
    if isinstance(name, (int, float)):
        return f"{name:g}" if isinstance(name, float) else str(name)
    raise YAMLError(f"yaml: invalid map key: {name!r}")


_INFINITE: Final = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
"""How Go prints the numbers that JSON does not have."""


def dump(document: Any, *, sort_keys: bool = True) -> str:
    """Encode one document."""
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=sort_keys, default_flow_style=False, allow_unicode=True
    )
    return text
