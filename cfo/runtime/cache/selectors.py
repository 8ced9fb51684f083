"""Label and field selectors, which are parsed once and matched often, and the selection of an informer.

The grammar is apimachinery's (``a=b``, ``a!=b``, ``a in (x,y)``, ``a notin (x)``, ``a``, ``!a``, ``a>1``, ``a<1``,
separated by commas; all of them must match). The dict form is the ``LabelSelector`` of the API. As in the API, ``!=``
and ``notin`` also match objects without the label.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from cfo.runtime.cache.entry import Entry
from cfo.runtime.objects.parsers import is_label_value
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.process.arguments import require_plain_function, require_type
from cfo.runtime.process.strings import require_list


class SelectorError(ValueError):
    """Raised for an invalid selector; the message names the invalid part and the expected syntax."""


class Operator(StrEnum):
    """The operator of a requirement, named as in the API's ``LabelSelectorOperator`` if it exists there."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER_THAN = "Gt"
    LESS_THAN = "Lt"


_PREFIX: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_TOKEN: Final = re.compile(r"==|!=|[=!<>(),]|[^\s=!<>(),]+")

_OPERATORS_OF_API: Final = (
    Operator.IN,
    Operator.NOT_IN,
    Operator.EXISTS,
    Operator.DOES_NOT_EXIST,
)


def _check_key(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    is_valid = is_label_value(name)
    if slash:
        is_valid = is_valid and len(prefix) <= 253 and _PREFIX.fullmatch(prefix) is not None
    if not is_valid:
        raise SelectorError(
            f"{key!r} is not a label key: must be an optional DNS subdomain and '/', then a name of up to 63 characters"
        )
    return key


def _check_value(key: str, value: str) -> str:
    if value and not is_label_value(value):
        raise SelectorError(
            f"{key}: {value!r} is not a label value: must be up to 63 letters, digits, '-', '_' or '.'"
        )
    return value


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """One condition on one label; ``values`` are sorted and unique."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    @classmethod
    def create(cls, key: str, operator: Operator, values: Iterable[str] = ()) -> Requirement:
        """Return a validated requirement.

        Raises :class:`SelectorError` for an invalid key, value or number of values, and :class:`TypeError` for values
        that are one string.
        """
        require_list("values", values)
        unique = tuple(sorted({_check_value(key, value) for value in values}))
        match operator:
            case Operator.IN | Operator.NOT_IN:
                if not unique:
                    raise SelectorError(f"{key}: {operator} needs at least one value")
            case Operator.EXISTS | Operator.DOES_NOT_EXIST:
                if unique:
                    raise SelectorError(f"{key}: {operator} takes no values")
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                if len(unique) != 1 or not _is_integer(unique[0]):
                    raise SelectorError(f"{key}: {operator} needs one integer")
        return cls(_check_key(key), operator, unique)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the requirement."""
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
        has_one_value = len(self.values) == 1
        match self.operator:
            case Operator.IN if has_one_value:
                return f"{self.key}={joined}"
            case Operator.IN:
                return f"{self.key} in ({joined})"
            case Operator.NOT_IN if has_one_value:
                return f"{self.key}!={joined}"
            case Operator.NOT_IN:
                return f"{self.key} notin ({joined})"
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.GREATER_THAN:
                return f"{self.key}>{joined}"
            case Operator.LESS_THAN:
                return f"{self.key}<{joined}"


def _is_integer(string: str) -> bool:
    return string.isascii() and string.removeprefix("-").isdecimal()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that must all match; ``str()`` is the canonical form. An empty selector matches everything."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def of(cls, selector: str | Mapping[str, Any] | LabelSelector | None) -> LabelSelector:
        """Parse a string or the API's LabelSelector; a :class:`LabelSelector` is returned unchanged.

        Raises :class:`SelectorError`.
        """
        if selector is None or selector == "":
            return cls()
        if isinstance(selector, LabelSelector):
            return selector
        requirements = _parse(selector) if isinstance(selector, str) else _from_api(selector)
        return cls(tuple(sorted(set(requirements))))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet all requirements."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def _from_api(selector: Mapping[str, Any]) -> list[Requirement]:
    unknown = set(selector) - {"matchLabels", "matchExpressions"}
    if unknown:
        raise SelectorError(
            f"a label selector has matchLabels and matchExpressions, not {', '.join(sorted(unknown))}; as a string, it "
            "is written app=web"
        )
    labels = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    requirements = [Requirement.create(key, Operator.IN, [value]) for key, value in labels.items()]
    for expression in expressions:
        key = expression.get("key") or ""
        operator = expression.get("operator") or ""
        values = expression.get("values") or ()
        if operator not in _OPERATORS_OF_API:
            raise SelectorError(
                f"{key}: operator {operator!r}: must be one of {', '.join(_OPERATORS_OF_API)}"
            )
        requirements.append(Requirement.create(key, Operator(operator), values))
    return requirements


class _Tokens:
    """The tokens of a selector string; the empty string marks the end."""

    def __init__(self, string: str) -> None:
        self._selector = string
        self._tokens: list[str] = _TOKEN.findall(string)
        self._next = 0

    def peek(self) -> str:
        if self._next == len(self._tokens):
            return ""
        return self._tokens[self._next]

    def take(self) -> str:
        token = self.peek()
        if token:
            self._next += 1
        return token

    def expect(self, *wanted: str) -> str:
        """Take one of the tokens ``wanted``."""
        found = self.take()
        if found not in wanted:
            expected = " or ".join(map(repr, wanted))
            raise SelectorError(
                f"{self._selector!r}: found {_token_text(found)} where {expected} was expected"
            )
        return found

    def word(self, expected: str) -> str:
        token = self.take()
        if not token or token[0] in "=!<>(),":
            raise SelectorError(
                f"{self._selector!r}: found {_token_text(token)} where a {expected} was expected"
            )
        return token


def _token_text(token: str) -> str:
    return repr(token) if token else "the end"


_SYMBOLS: Final = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
}


def _parse(string: str) -> list[Requirement]:
    tokens = _Tokens(string)
    requirements = [_parse_requirement(tokens)]
    while tokens.peek():
        tokens.expect(",")
        requirements.append(_parse_requirement(tokens))
    return requirements


def _parse_requirement(tokens: _Tokens) -> Requirement:
    if tokens.peek() == "!":
        tokens.take()
        return Requirement.create(tokens.word("label key"), Operator.DOES_NOT_EXIST)
    key = tokens.word("label key")
    symbol = tokens.peek()
    if symbol in ("", ","):
        return Requirement.create(key, Operator.EXISTS)
    operator = _SYMBOLS.get(tokens.take())
    if operator is None:
        raise SelectorError(f"{key}: operator {symbol!r}: must be one of {', '.join(_SYMBOLS)}")
    if symbol in ("in", "notin"):
        return Requirement.create(key, operator, _parse_set(tokens))
    value = _parse_value(tokens, ends=("", ","))
    return Requirement.create(key, operator, [value])


def _parse_set(tokens: _Tokens) -> list[str]:
    """Return the values in parentheses, as in ``(x,y)``."""
    tokens.expect("(")
    values = [_parse_value(tokens, ends=(",", ")"))]
    while tokens.expect(",", ")") == ",":
        values.append(_parse_value(tokens, ends=(",", ")")))
    return values


def _parse_value(tokens: _Tokens, ends: tuple[str, ...]) -> str:
    """Return a label value, which is empty if one of the tokens ``ends`` comes first."""
    if tokens.peek() in ends:
        return ""
    return tokens.word("label value")


_FIELD_TERM: Final = re.compile(r"\s*([A-Za-z0-9_.\-/\[\]']+)\s*(==|=|!=)(.*)", re.DOTALL)
_ESCAPABLE: Final = re.compile(r"([\\,=])")
_ESCAPE: Final = r"\\\1"


class FieldSelector(msgspec.Struct, frozen=True):
    """``field=value`` and ``field!=value`` terms that must all match; an empty selector matches everything.

    The API server computes the selectable fields of each kind, which is not possible here: :meth:`matches` evaluates
    only ``metadata.name`` and ``metadata.namespace``, and :attr:`decidable` reports whether the selector uses no other
    fields.
    """

    terms: tuple[tuple[str, bool, str], ...] = ()

    @classmethod
    def of(cls, selector: str | FieldSelector | None) -> FieldSelector:
        """Parse a string (``metadata.name=a,status.phase!=Running``); a :class:`FieldSelector` is returned unchanged.

        Raises :class:`SelectorError`.
        """
        if isinstance(selector, FieldSelector):
            return selector
        terms: set[tuple[str, bool, str]] = set()
        for part in _split_terms(selector or ""):
            matched = _FIELD_TERM.fullmatch(part)
            if matched is None:
                raise SelectorError(
                    f"{part!r} is not a field selector: must be 'field=value' or 'field!=value'"
                )
            name, operator, escaped_value = matched.groups()
            value = re.sub(r"\\(.)", r"\1", escaped_value)
            terms.add((name, operator != "!=", value))
        return cls(tuple(sorted(terms)))

    def excluding(self, namespaces: Iterable[str]) -> FieldSelector:
        """Return a selector of the same objects, except those in ``namespaces``."""
        excluded = [("metadata.namespace", False, namespace) for namespace in namespaces]
        return FieldSelector(tuple(sorted({*self.terms, *excluded})))

    @property
    def decidable(self) -> bool:
        """Whether :meth:`matches` can evaluate all fields of the selector."""
        return all(name in ("metadata.name", "metadata.namespace") for name, _, _ in self.terms)

    def matches(self, key: NamespacedName) -> bool:
        """Return whether this key meets the terms on ``metadata.name`` and ``metadata.namespace``."""
        for name, equal, value in self.terms:
            if name == "metadata.name" and (key.name == value) is not equal:
                return False
            if name == "metadata.namespace" and (key.namespace == value) is not equal:
                return False
        return True

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __str__(self) -> str:
        parts: list[str] = []
        for name, equal, value in self.terms:
            operator = "=" if equal else "!="
            escaped_value = _ESCAPABLE.sub(_ESCAPE, value)
            parts.append(f"{name}{operator}{escaped_value}")
        return ",".join(parts)


def _split_terms(string: str) -> list[str]:
    """Split at commas that are not escaped by a backslash (``fields.EscapeValue``)."""
    terms = re.findall(r"(?:\\.|[^\\,])+", string, re.DOTALL)
    return [term for term in terms if term.strip()]


MAX_BYTES: Final = 3 << 20
"""The default maximum size of a cached object: more than etcd stores, and as much as kube-apiserver accepts."""

MAX_OBJECTS: Final = 10_000
"""The maximum number of cached objects of one namespace, if their size is limited because any user can create them."""


BudgetFunction: TypeAlias = Callable[[Entry], str]
"""Returns the namespace in whose budget of bytes an object counts; empty if it counts in none."""


def require_budget_function(function: BudgetFunction) -> None:
    """Raise :class:`TypeError` if ``budget_of`` is an async function, or no function."""
    require_plain_function("budget_of", function, "a function that returns a namespace", "entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The objects of a kind that an informer lists and watches, and whether it stores only their metadata.

    ``namespaces`` are listed and watched separately; ``("",)`` means all namespaces in one list and watch.
    ``metadata_only`` fetches and stores only the metadata. With ``fields``, dotted paths as ``spec.parallelism``, only
    the metadata and these fields are stored. Objects of which more than ``max_bytes`` bytes of JSON would be stored are
    not in the selection; there is always a limit. ``budget_of`` is for cluster-scoped objects that users of a namespace
    can create; other objects count in the budget of their own namespace.
    """

    label_selector: LabelSelector = field(default_factory=LabelSelector)
    field_selector: FieldSelector = field(default_factory=FieldSelector)
    namespaces: tuple[str, ...] = ("",)
    metadata_only: bool = False
    fields: tuple[str, ...] = ()
    max_bytes: int = MAX_BYTES
    budget_of: BudgetFunction | None = None

    def __post_init__(self) -> None:
        if self.budget_of is not None:
            require_budget_function(self.budget_of)

    @classmethod
    def of(
        cls,
        *,
        label_selector: str | Mapping[str, Any] | LabelSelector = "",
        field_selector: str | FieldSelector = "",
        namespaces: Iterable[str] = ("",),
        metadata_only: bool = False,
        fields: Iterable[str] = (),
        max_bytes: int = MAX_BYTES,
        budget_of: BudgetFunction | None = None,
    ) -> Selection:
        """Parse the selectors.

        Raises :class:`SelectorError`, :class:`TypeError` for namespaces or fields that are one string, and
        :class:`ValueError` for a field that is no dotted path.
        """
        require_list("namespaces", namespaces)
        require_list("fields", fields)
        for path in fields:
            _require_path(path)
        return cls(
            label_selector=LabelSelector.of(label_selector),
            field_selector=FieldSelector.of(field_selector),
            namespaces=tuple(namespaces),
            metadata_only=metadata_only,
            fields=tuple(sorted(set(fields))),
            max_bytes=max_bytes,
            budget_of=budget_of,
        )

    def matches(self, key: NamespacedName, labels: Mapping[str, str]) -> bool:
        """Return whether the selectors match an object; field selectors only as far as they are decidable."""
        return self.label_selector.matches(labels) and self.field_selector.matches(key)

    def covers(self, key: NamespacedName, labels: Mapping[str, str]) -> bool:
        """Return whether an object is in one of the namespaces, and :meth:`matches`."""
        is_watched = "" in (*self.namespaces, key.namespace) or key.namespace in self.namespaces
        return is_watched and self.matches(key, labels)

    @property
    def limits(self) -> str:
        """The selectors and namespaces, for people; empty if there are none."""
        parts = [f"{name} {text!r}" for name, text in self.params.items()]
        if "" not in self.namespaces:
            parts.append(f"namespaces {', '.join(self.namespaces)}")
        return ", ".join(parts)

    @property
    def max_objects(self) -> int:
        """The maximum number of objects of one namespace; there is none for kinds without a limit of their own."""
        if self.max_bytes < MAX_BYTES:
            return MAX_OBJECTS
        return sys.maxsize

    @property
    def params(self) -> dict[str, str]:
        """The query parameters for the selectors that are not empty."""
        selectors = {
            "labelSelector": str(self.label_selector),
            "fieldSelector": str(self.field_selector),
        }
        return {name: value for name, value in selectors.items() if value}


def _require_path(path: object) -> None:
    """Raise :class:`TypeError` or :class:`ValueError` for what is no path of a field: nothing would be stored."""
    require_type("fields", path, str, "a string, such as spec.replicas")
    text = str(path)
    if not all(text.split(".")) or any(character in text for character in "[]/$ "):
        raise ValueError(f"fields: {text!r:.200}: must be names of fields, as in spec.replicas")
