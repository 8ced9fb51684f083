"""Label selectors: parsed with the error messages of ``k8s.io/apimachinery/pkg/labels``, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from envtest.apimachinery.errors import bad_request
from envtest.apimachinery.field_errors import go_value
from envtest.apimachinery.name_rules import label_value, qualified_name

__all__ = ["LabelSelector", "matches_label_selector", "parse_labels"]

Requirement = Callable[[Mapping[str, str]], bool]
_SYMBOLS = {"(", ")", ",", "!", "=", "==", "!=", ">", "<"}
_SPECIAL = frozenset("=!(),><")
_OPERATORS = "in, notin, =, ==, !=, gt, lt"


class _SelectorError(ValueError):
    pass


def _tokens(text: str) -> list[tuple[str, str]]:
    """Return (kind, literal) pairs: a symbol is its own kind, ``id`` an identifier; ``in`` and ``notin`` are kinds."""
    tokens: list[tuple[str, str]] = []
    position = 0
    end = len(text)
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
                raise _SelectorError(
                    f"found '{literal}', expected: !, identifier, or 'end of string'"
                )
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
        errors.append(
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
        )
    if operator in {">", "<"}:
        errors += [
            f"values[{index}]: Invalid value: {go_value(value)}: for 'Gt', 'Lt' operators, the value must be an integer"
            for index, value in enumerate(values)
            if _integer(value) is None
        ]
    for index, value in enumerate(values):
        problems = label_value(value)
        if problems:
            errors.append(
                f"values[{index}][{key}]: Invalid value: {go_value(value)}: {'; '.join(problems)}"
            )
    if errors:
        if len(errors) == 1:
            raise _SelectorError(errors[0])
        raise _SelectorError("[" + ", ".join(errors) + "]")
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
    """A compiled label selector; an empty selector matches everything."""

    __slots__ = ("_requirements", "empty")

    def __init__(self, requirements: list[Requirement]) -> None:
        self._requirements = requirements
        self.empty = not requirements

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object with these labels is selected."""
        found = labels or {}
        return all(requirement(found) for requirement in self._requirements)


def matches_label_selector(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels match a ``LabelSelector`` object: ``None`` matches nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        key = expression.get("key", "")
        operator = expression.get("operator")
        values = expression.get("values") or ()
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
    """Compile a label selector. Raises StatusError (400) with apimachinery's message."""
    try:
        return LabelSelector(_Parser(text).parse())
    except _SelectorError as error:
        raise bad_request(str(error)) from None
