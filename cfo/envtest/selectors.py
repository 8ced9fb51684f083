"""Label and field selectors of list, watch and deletecollection: parsed with the real messages, compiled once.

The grammar and the errors of label selectors are those of ``k8s.io/apimachinery/pkg/labels``; field selectors
are those of ``pkg/fields``, limited to what a kind makes selectable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from cfo.envtest.errors import GroupResource, bad_request
from cfo.envtest.field_errors import go_value
from cfo.envtest.metadata import label_value, qualified_name
from cfo.envtest.registry import ResourceInfo
from cfo.envtest.storage import Record

__all__ = ["LabelSelector", "Selector", "matches_label_selector", "parse_fields", "parse_labels", "selector_for"]

Requirement = Callable[[Mapping[str, str]], bool]
_SYMBOLS = {"(", ")", ",", "!", "=", "==", "!=", ">", "<"}
_SPECIAL = frozenset("=!(),><")
_OPERATORS = "in, notin, =, ==, !=, gt, lt"


class _SelectorError(ValueError):
    pass


def _tokens(text: str) -> list[tuple[str, str]]:
    """(kind, literal) pairs: a symbol is its own kind, ``id`` an identifier, ``in`` and ``notin`` themselves."""
    tokens: list[tuple[str, str]] = []
    position, end = 0, len(text)
    while position < end:
        character = text[position]
        if character in " \t\r\n":
            position += 1
            continue
        start = position
        if character in _SPECIAL:
            position += 1
            while position < end and text[start : position + 1] in _SYMBOLS:
                position += 1
            tokens.append((text[start:position], text[start:position]))
            continue
        while position < end and text[position] not in _SPECIAL and text[position] not in " \t\r\n":
            position += 1
        word = text[start:position]
        tokens.append((word if word in {"in", "notin"} else "id", word))
    tokens.append(("end", ""))
    return tokens


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.position = 0

    def peek(self, *, values: bool = True) -> tuple[str, str]:
        kind, literal = self.tokens[min(self.position, len(self.tokens) - 1)]
        return ("id" if values and kind in {"in", "notin"} else kind), literal

    def take(self, *, values: bool = True) -> tuple[str, str]:
        token = self.peek(values=values)
        self.position += 1
        return token

    def parse(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        while True:
            kind, literal = self.peek()
            if kind == "end":
                return requirements
            if kind not in {"id", "!"}:
                raise _SelectorError(f"found '{literal}', expected: !, identifier, or 'end of string'")
            try:
                requirements.append(self.requirement())
            except _SelectorError as error:
                raise _SelectorError(f"unable to parse requirement: {error}") from None
            kind, literal = self.take()
            if kind == "end":
                return requirements
            if kind != ",":
                raise _SelectorError(f"found '{literal}', expected: ',' or 'end of string'")
            kind, literal = self.peek()
            if kind not in {"id", "!"}:
                raise _SelectorError(f"found '{literal}', expected: identifier after ','")

    def requirement(self) -> Requirement:
        kind, key = self.take()
        absent = kind == "!"
        if absent:
            kind, key = self.take()
        if kind != "id":
            raise _SelectorError(f"found '{key}', expected: identifier")
        problems = qualified_name(key)
        if problems:
            raise _SelectorError(f"<nil>: Invalid value: {go_value(key)}: {'; '.join(problems)}")
        if absent:
            return lambda labels: key not in labels
        if self.peek()[0] in {"end", ","}:
            return lambda labels: key in labels
        operator, literal = self.take(values=False)
        if operator in {"in", "notin"}:
            values = self.value_list()
        elif operator in {"=", "==", "!=", ">", "<"}:
            values = self.exact_value()
        else:
            raise _SelectorError(f"found '{literal}', expected: {_OPERATORS}")
        return _requirement(key, operator, values)

    def value_list(self) -> list[str]:
        kind, literal = self.take()
        if kind != "(":
            raise _SelectorError(f"found '{literal}' expected: '('")
        kind, literal = self.peek()
        if kind == ")":
            self.take()
            return [""]
        if kind not in {"id", ","}:
            raise _SelectorError(f"found '{literal}', expected: ',', ')' or identifier")
        values = self.identifiers()
        if self.take()[0] != ")":
            raise _SelectorError(f"found '{literal}', expected: ')'")
        return values

    def identifiers(self) -> list[str]:
        values: set[str] = set()
        while True:
            kind, literal = self.take()
            if kind == "id":
                values.add(literal)
                kind, literal = self.peek()
                if kind == ")":
                    return sorted(values)
                if kind != ",":
                    raise _SelectorError(f"found '{literal}', expected: ',' or ')'")
            elif kind == ",":
                if not values:
                    values.add("")
                kind = self.peek()[0]
                if kind == ")":
                    return sorted(values | {""})
                if kind == ",":
                    self.take()
                    values.add("")
            else:
                raise _SelectorError(f"found '{literal}', expected: ',', or identifier")

    def exact_value(self) -> list[str]:
        if self.peek()[0] in {"end", ","}:
            return [""]
        kind, literal = self.take()
        if kind != "id":
            raise _SelectorError(f"found '{literal}', expected: identifier")
        return [literal]


def _requirement(key: str, operator: str, values: list[str]) -> Requirement:
    errors: list[str] = []
    if operator in {"in", "notin"} and not values:
        errors.append("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")
    if operator in {">", "<"}:
        errors += [
            f"values[{index}]: Invalid value: {go_value(value)}: for 'Gt', 'Lt' operators, the value must be an integer"
            for index, value in enumerate(values)
            if _integer(value) is None
        ]
    for index, value in enumerate(values):
        problems = label_value(value)
        if problems:
            errors.append(f"values[{index}][{key}]: Invalid value: {go_value(value)}: {'; '.join(problems)}")
    if errors:
        raise _SelectorError(errors[0] if len(errors) == 1 else "[" + ", ".join(errors) + "]")
    allowed = frozenset(values)
    if operator in {"in", "=", "=="}:
        return lambda labels: labels.get(key) in allowed
    if operator in {"notin", "!="}:
        return lambda labels: labels.get(key) not in allowed
    bound = int(values[0])

    def compare(labels: Mapping[str, str]) -> bool:
        number = _integer(labels.get(key, ""))
        return number is not None and (number > bound if operator == ">" else number < bound)

    return compare


def _integer(text: str) -> int | None:
    body = text[1:] if text[:1] in {"-", "+"} else text
    return int(text) if body.isascii() and body.isdigit() else None


class LabelSelector:
    """A compiled label selector; an empty one matches all."""

    __slots__ = ("_requirements", "empty")

    def __init__(self, requirements: list[Requirement]) -> None:
        self._requirements = requirements
        self.empty = not requirements

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether an object with these labels is selected."""
        found = labels or {}
        return all(requirement(found) for requirement in self._requirements)


def matches_label_selector(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether labels fit a ``LabelSelector`` object: ``None`` fits nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        key, operator, values = expression.get("key", ""), expression.get("operator"), expression.get("values") or ()
        fits = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not fits.get(operator, False):
            return False
    return True


@lru_cache(maxsize=512)
def parse_labels(text: str) -> LabelSelector:
    """Compiles a label selector; raises StatusError (400) in apimachinery's words."""
    try:
        return LabelSelector(_Parser(text).parse())
    except _SelectorError as error:
        raise bad_request(str(error)) from None


def parse_fields(text: str) -> list[tuple[str, str, str]]:
    """(field, operator, value) terms of a field selector, operator ``=`` or ``!=``; raises StatusError (400)."""
    terms: list[tuple[str, str, str]] = []
    for term in _split_terms(text):
        if not term:
            continue
        found = _split_term(term)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        field, operator, value = found
        terms.append((field, "!=" if operator == "!=" else "=", _unescape(value)))
    return terms


def _split_terms(text: str) -> list[str]:
    terms, start, escaped = [], 0, False
    for position, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == ",":
            terms.append(text[start:position])
            start = position + 1
    terms.append(text[start:])
    return terms


def _split_term(term: str) -> tuple[str, str, str] | None:
    for position in range(len(term)):
        for operator in ("!=", "==", "="):
            if term.startswith(operator, position):
                return term[:position], operator, term[position + len(operator) :]
    return None


def _unescape(value: str) -> str:
    out: list[str] = []
    escaped = False
    for character in value:
        if escaped:
            if character not in "\\,=":
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{character}")
            out.append(character)
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in ",=":
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(character)}")
        else:
            out.append(character)
    if escaped:
        raise bad_request("invalid field selector: invalid escape sequence: \\")
    return "".join(out)


_NAMESPACES = GroupResource("", "namespaces")
_META = ("metadata.name", "metadata.namespace")
_DEFAULTS = {
    "spec.unschedulable": "false",
    "spec.hostNetwork": "false",
    "status.successful": "0",
    "status.replicas": "0",
}


def _value_at(obj: Any, path: str) -> str:
    value = obj
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return _DEFAULTS.get(path, "")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _event_source(obj: Any) -> str:
    return (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or ""


class Selector:
    """Labels and fields together, applied to records."""

    __slots__ = ("_decoded", "_fields", "_labels", "everything")

    def __init__(self, labels: LabelSelector, fields: list[tuple[str, str, str]]) -> None:
        self._labels = labels
        self._fields = [term for term in fields if term[0] in _META]
        self._decoded = [term for term in fields if term[0] not in _META]
        self.everything = labels.empty and not fields

    def matches(self, record: Record) -> bool:
        """Whether the record is selected; decodes it only for fields outside its key."""
        if not self._labels.empty and not self._labels.matches(record.labels):
            return False
        for field, operator, value in self._fields:
            actual = record.name if field == "metadata.name" else record.namespace
            if (actual == value) != (operator == "="):
                return False
        if self._decoded:
            obj = record.obj()
            for field, operator, value in self._decoded:
                actual = _event_source(obj) if field == "source" else _value_at(obj, field)
                if (actual == value) != (operator == "="):
                    return False
        return True


EVERYTHING = Selector(LabelSelector([]), [])


def selector_for(info: ResourceInfo, labels: str, fields: str) -> Selector:
    """The selector of a request for ``info``; raises StatusError (400)."""
    if not labels and not fields:
        return EVERYTHING
    terms = parse_fields(fields) if fields else []
    own = tuple(path.removeprefix(".") for path in info.selectable_fields)
    aliases = {"name": "metadata.name"} if info.resource == _NAMESPACES else {}
    for field, _, _ in terms:
        if field not in _META and field not in own and field not in aliases:
            if info.is_crd or own:
                raise bad_request(f"field label not supported: {field}")
            raise bad_request(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')
    named = [(aliases.get(field, field), operator, value) for field, operator, value in terms]
    return Selector(parse_labels(labels), named)
