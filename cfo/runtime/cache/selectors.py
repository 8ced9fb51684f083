"""Label and field selectors: parsed once, matched often.

The grammar is apimachinery's (``a=b``, ``a!=b``, ``a in (x,y)``, ``a notin (x)``, ``a``, ``!a``, ``a>1``,
``a<1``, joined by commas, all of which must hold); the dict form is the ``LabelSelector`` of the API. As there,
``!=`` and ``notin`` choose objects that lack the label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cfo.runtime.objects import NamespacedName

__all__ = ["FieldSelector", "LabelSelector", "Operator", "Requirement", "SelectorError"]


class SelectorError(ValueError):
    """A selector that cannot be understood; the message says what is wrong with which part."""


class Operator(StrEnum):
    """How a requirement compares; the names of the API's ``LabelSelectorOperator`` where it has them."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER_THAN = "Gt"
    LESS_THAN = "Lt"


_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_TOKEN: Final = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")


def _check_key(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix))):
        raise SelectorError(
            f"{key!r} is not a label key: an optional DNS subdomain and '/', then a name of up to 63 characters"
        )
    return key


def _check_value(key: str, value: str) -> str:
    if value and not _NAME.fullmatch(value):
        raise SelectorError(f"{key}: {value!r} is not a label value: up to 63 letters, digits, '-', '_' or '.'")
    return value


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """One condition on one label; ``values`` are sorted and unique."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    @classmethod
    def make(cls, key: str, operator: Operator, values: Iterable[str] = ()) -> Requirement:
        """A checked requirement.

        Raises :class:`SelectorError` for a key, value or number of values that is not allowed.
        """
        kept = tuple(sorted({_check_value(key, value) for value in values}))
        if operator in (Operator.IN, Operator.NOT_IN) and not kept:
            raise SelectorError(f"{key}: {operator} needs at least one value")
        if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and kept:
            raise SelectorError(f"{key}: {operator} takes no values")
        if operator in (Operator.GREATER_THAN, Operator.LESS_THAN) and (len(kept) != 1 or not _is_integer(kept[0])):
            raise SelectorError(f"{key}: {operator} needs one whole number")
        return cls(_check_key(key), operator, kept)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet the requirement."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GREATER_THAN:
                return value is not None and _is_integer(value) and int(value) > int(self.values[0])
            case Operator.LESS_THAN:
                return value is not None and _is_integer(value) and int(value) < int(self.values[0])

    def __str__(self) -> str:
        joined = ",".join(self.values)
        match self.operator:
            case Operator.IN:
                return f"{self.key}={joined}" if len(self.values) == 1 else f"{self.key} in ({joined})"
            case Operator.NOT_IN:
                return f"{self.key}!={joined}" if len(self.values) == 1 else f"{self.key} notin ({joined})"
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.GREATER_THAN:
                return f"{self.key}>{joined}"
            case Operator.LESS_THAN:
                return f"{self.key}<{joined}"


def _is_integer(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdecimal()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that must all hold; ``str()`` is its canonical text. Empty, it chooses everything."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def of(cls, selector: str | Mapping[str, Any] | LabelSelector | None) -> LabelSelector:
        """The selector of a text, of the API's LabelSelector, or itself.

        Raises :class:`SelectorError`.
        """
        if selector is None or selector == "":
            return cls()
        if isinstance(selector, LabelSelector):
            return selector
        requirements = _parse(selector) if isinstance(selector, str) else _from_api(selector)
        return cls(tuple(sorted(set(requirements))))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet all requirements."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def _from_api(selector: Mapping[str, Any]) -> list[Requirement]:
    unknown = set(selector) - {"matchLabels", "matchExpressions"}
    if unknown:
        raise SelectorError(f"a label selector has matchLabels and matchExpressions, not {', '.join(sorted(unknown))}")
    requirements = [
        Requirement.make(key, Operator.IN, [value]) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression.get("key") or "", expression.get("operator") or ""
        allowed = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
        if operator not in allowed:
            raise SelectorError(f"{key}: operator {operator!r} is none of {', '.join(allowed)}")
        requirements.append(Requirement.make(key, Operator(operator), expression.get("values") or ()))
    return requirements


class _Tokens:
    """The tokens of a selector's text; the empty string is its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._next = 0

    def peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self._next += 1
        return token

    def expect(self, wanted: str) -> None:
        found = self.take()
        if found != wanted:
            raise SelectorError(f"{self._text!r}: found {found or 'the end'!r} where {wanted!r} was expected")

    def word(self, what: str) -> str:
        token = self.take()
        if not token or token[0] in "=!<>(),":
            raise SelectorError(f"{self._text!r}: found {token or 'the end'!r} where a {what} was expected")
        return token


_SYMBOLS: Final = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
}


def _parse(text: str) -> list[Requirement]:
    tokens = _Tokens(text)
    requirements = [_parse_requirement(tokens)]
    while tokens.peek():
        tokens.expect(",")
        requirements.append(_parse_requirement(tokens))
    return requirements


def _parse_requirement(tokens: _Tokens) -> Requirement:
    if tokens.peek() == "!":
        tokens.take()
        return Requirement.make(tokens.word("label key"), Operator.DOES_NOT_EXIST)
    key = tokens.word("label key")
    symbol = tokens.peek()
    if symbol in ("", ","):
        return Requirement.make(key, Operator.EXISTS)
    operator = _SYMBOLS.get(tokens.take())
    if operator is None:
        raise SelectorError(f"{key}: {symbol!r} is none of {', '.join(_SYMBOLS)}")
    if symbol in ("in", "notin"):
        return Requirement.make(key, operator, _parse_set(tokens))
    value = "" if tokens.peek() in ("", ",") else tokens.word("label value")
    return Requirement.make(key, operator, [value])


def _parse_set(tokens: _Tokens) -> list[str]:
    tokens.expect("(")
    values: list[str] = []
    while True:
        values.append("" if tokens.peek() in (",", ")") else tokens.word("label value"))
        if tokens.peek() == ")":
            tokens.take()
            return values
        tokens.expect(",")


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """``field=value`` and ``field!=value`` terms that must all hold; empty, it chooses everything.

    The API server knows more fields than can be told from an object here (those of a kind are computed there):
    :meth:`matches` judges ``metadata.name`` and ``metadata.namespace``, and :attr:`decidable` says whether
    these are all.
    """

    terms: tuple[tuple[str, bool, str], ...] = ()

    @classmethod
    def of(cls, selector: str | FieldSelector | None) -> FieldSelector:
        """The selector of a text (``metadata.name=a,status.phase!=Running``), or itself.

        Raises :class:`SelectorError`.
        """
        if isinstance(selector, FieldSelector):
            return selector
        terms: set[tuple[str, bool, str]] = set()
        for part in _split_terms(selector or ""):
            matched = re.fullmatch(r"\s*([A-Za-z0-9_.\-/\[\]']+)\s*(==|=|!=)(.*)", part, re.DOTALL)
            if matched is None:
                raise SelectorError(f"{part!r} is not a field selector: 'field=value' or 'field!=value'")
            field, operator, value = matched.groups()
            terms.add((field, operator != "!=", re.sub(r"\\(.)", r"\1", value)))
        return cls(tuple(sorted(terms)))

    @property
    def decidable(self) -> bool:
        """Whether :meth:`matches` knows all its fields."""
        return all(field in ("metadata.name", "metadata.namespace") for field, _, _ in self.terms)

    def matches(self, key: NamespacedName) -> bool:
        """Whether the object of that name meets the terms on ``metadata.name`` and ``metadata.namespace``."""
        for field, equal, value in self.terms:
            if field == "metadata.name" and (key.name == value) is not equal:
                return False
            if field == "metadata.namespace" and (key.namespace == value) is not equal:
                return False
        return True

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __str__(self) -> str:
        return ",".join(
            f"{field}{'=' if equal else '!='}{_SPECIAL.sub(_ESCAPED, value)}" for field, equal, value in self.terms
        )


_SPECIAL: Final = re.compile(r"([\\,=])")
_ESCAPED: Final = r"\\\1"


def _split_terms(text: str) -> list[str]:
    """The comma-separated terms, a backslash keeping the next character (``fields.EscapeValue``)."""
    return [term for term in re.findall(r"(?:\\.|[^\\,])+", text, re.DOTALL) if term.strip()]
