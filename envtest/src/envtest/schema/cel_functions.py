"""The functions that Kubernetes adds to CEL: strings, lists, sets, patterns, URLs, quantities, IPs, versions.

They are declared for the CEL library's type checker, with Python implementations. A quantity, an IP or a URL is a map
with one entry that names its type (``{"quantity": "1"}``), because the library does not support other opaque values.
The values are canonical, so that equal values are equal maps.

Reference: https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cmp_to_key, partial
from ipaddress import ip_address, ip_network
from itertools import islice, pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cel_expr_python import cel
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from envtest.apimachinery.field_errors import go_quote
from envtest.formats.go_integers import is_int64
from envtest.schema import cel_authorizer
from envtest.schema.cel_evaluator import Implementation, Implementations
from envtest.schema.cel_formats import FORMAT_NAMES, find_format, format_errors
from envtest.schema.cel_macros import limited_range, merge_entries
from envtest.schema.cel_times import as_messages, to_text
from envtest.schema.formats import FORMATS
from envtest.schema.patterns import find_all
from envtest.schema.quantity import Quantity, QuantityError, parse_quantity

__all__ = ["declarations", "implementations", "patch_declarations"]

_T = cel.Type
BOOL = _T.BOOL
INT = _T.INT
DOUBLE = _T.DOUBLE
STRING = _T.STRING
DYN = _T.DYN
LIST = _T.List(_T.DYN)
STRINGS = _T.List(_T.STRING)
OPAQUE = _T.Map(_T.STRING, _T.DYN)
_ELEMENTS = (
    BOOL,
    INT,
    _T.UINT,
    DOUBLE,
    STRING,
    _T.BYTES,
    LIST,
    _T.Map(_T.DYN, _T.DYN),
    _T.TIMESTAMP,
    _T.DURATION,
)

_PYTHON_TYPES: Mapping[str, type] = {
    "BOOL": bool,
    "BYTES": bytes,
    "DOUBLE": float,
    "DURATION": Duration,
    "INT": int,
    "LIST<DYN>": list,
    "LIST<STRING>": list,
    "MAP<DYN, DYN>": dict,
    "MAP<STRING, DYN>": dict,
    "STRING": str,
    "TIMESTAMP": Timestamp,
}
"""The types of arguments by the names that the library gives to them; any value is accepted as ``DYN``."""


class _Table:
    """The overloads declared so far, by function name."""

    def __init__(self) -> None:
        self._overloads: dict[str, list[cel.Overload]] = {}
        self.implementations: dict[str, Implementation] = {}

    def add(
        self,
        name: str,
        impl: Callable[..., Any],
        result: Any,
        *parameters: Any,
        member: bool = False,
    ) -> None:
        overloads = self._overloads.setdefault(name, [])
        label = f"k8s_{name.replace('.', '_')}_{len(overloads)}"
        overloads.append(
            cel.Overload(
                label, return_type=result, parameters=list(parameters), is_member=member, impl=impl
            )
        )
        types = tuple(_PYTHON_TYPES.get(str(parameter)) for parameter in parameters)
        self.implementations[label] = Implementation(impl, types)

    def add_standard(self, name: str, label: str, result: Any, parameter: Any) -> None:
        """Declare an overload that the library implements."""
        overload = cel.Overload(label, return_type=result, parameters=[parameter])
        self._overloads.setdefault(name, []).append(overload)

    def method(self, name: str, impl: Callable[..., Any], result: Any, *parameters: Any) -> None:
        self.add(name, impl, result, *parameters, member=True)

    def __iter__(self) -> Iterator[Any]:
        return (cel.FunctionDecl(name, overloads) for name, overloads in self._overloads.items())


def declarations() -> list[Any]:
    """Return all function declarations of the environment."""
    return list(_table())


def implementations() -> Implementations:
    """Return the functions of all declarations by the names of their overloads."""
    return {**_table().implementations, **_patch_table().implementations}


def _table() -> _Table:
    table = _Table()
    _strings(table)
    _lists(table)
    _sets(table)
    _patterns(table)
    _urls(table)
    _quantities(table)
    _addresses(table)
    _versions(table)
    _formats(table)
    cel_authorizer.declare(table.method, OPAQUE, STRING, BOOL)
    return table


def patch_declarations() -> list[Any]:
    """Return the declarations of the functions that only mutating policies have."""
    return list(_patch_table())


def _patch_table() -> _Table:
    table = _Table()
    table.add(
        "jsonpatch.escapeKey", lambda key: key.replace("~", "~0").replace("/", "~1"), STRING, STRING
    )
    return table


def _strings(table: _Table) -> None:
    table.method("charAt", _char_at, STRING, STRING, INT)
    table.method("indexOf", lambda text, part: text.find(part), INT, STRING, STRING)
    table.method(
        "indexOf", lambda text, part, start: text.find(part, start), INT, STRING, STRING, INT
    )
    table.method("lastIndexOf", lambda text, part: text.rfind(part), INT, STRING, STRING)
    table.method(
        "lastIndexOf",
        lambda text, part, end: text.rfind(part, 0, end + len(part)),
        INT,
        STRING,
        STRING,
        INT,
    )
    table.method("lowerAscii", lambda text: _ascii(text, str.lower), STRING, STRING)
    table.method("upperAscii", lambda text: _ascii(text, str.upper), STRING, STRING)
    table.method(
        "replace", lambda text, old, new: text.replace(old, new), STRING, STRING, STRING, STRING
    )
    table.method(
        "replace",
        lambda text, old, new, n: text.replace(old, new, n),
        STRING,
        STRING,
        STRING,
        STRING,
        INT,
    )
    table.method("split", _split, STRINGS, STRING, STRING)
    table.method("split", _split, STRINGS, STRING, STRING, INT)
    table.method("substring", _substring, STRING, STRING, INT)
    table.method("substring", _substring, STRING, STRING, INT, INT)
    table.method("trim", lambda text: text.strip(), STRING, STRING)
    table.method("join", lambda parts: "".join(parts), STRING, STRINGS)
    table.method("join", lambda parts, separator: separator.join(parts), STRING, STRINGS, STRING)
    table.method("format", _format, STRING, STRING, LIST)
    table.add("strings.quote", _quote, STRING, STRING)


_ESCAPES = str.maketrans(
    {
        "\a": r"\a",
        "\b": r"\b",
        "\f": r"\f",
        "\n": r"\n",
        "\r": r"\r",
        "\t": r"\t",
        "\v": r"\v",
        "\\": r"\\",
        '"': r"\"",
    }
)
"""The characters that ``strings.quote`` escapes."""


def _quote(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _ascii(text: str, change: Callable[[str], str]) -> str:
    return "".join(change(character) if character < "\x80" else character for character in text)


def _char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise ValueError(f"index out of range: {position}")
    return text[position : position + 1]


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        parts = list(text)
        if limit < 0 or len(parts) <= limit:
            return parts
        return [*parts[: limit - 1], "".join(parts[limit - 1 :])]
    if limit < 0:
        return text.split(separator)
    return text.split(separator, limit - 1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if end is not None and start > end:
        raise ValueError(f"invalid substring range. start: {start}, end: {end}")
    for position in (start, stop):
        if not 0 <= position <= len(text):
            raise ValueError(f"index out of range: {position}")
    return text[start:stop]


_CLAUSES = frozenset("sdfebxXo")
_CLAUSE = re.compile(r"%(?:%|(\.\d+)?([^.\d]))", re.DOTALL)


def _format(template: str, arguments: list[Any]) -> str:
    rest = iter(arguments)

    def clause(match: re.Match[str]) -> str:
        if match.group() == "%%":
            return "%"
        letter = match.group(2)
        if letter not in _CLAUSES:
            raise ValueError(
                f"could not parse formatting clause: unrecognized formatting clause {go_quote(letter)}"
            )
        value = next(rest)
        if letter == "d":
            return _to_decimal(value)
        precision = int((match.group(1) or ".6")[1:])
        match letter:
            case "s":
                return _to_string(value)
            case "f":
                return f"{float(value):.{precision}f}"
            case "e":
                return f"{float(value):.{precision}e}"
            case "b":
                return format(int(value), "b")
            case "o":
                return format(int(value), "o")
            case _:
                text = value.encode().hex() if isinstance(value, str) else format(int(value), "x")
                return text.upper() if letter == "X" else text

    try:
        return _CLAUSE.sub(clause, template)
    except StopIteration:
        raise ValueError(f"index {len(arguments)} out of range") from None


def _to_decimal(value: Any) -> str:
    """Format a value for ``%d``."""
    if isinstance(value, (str, bytes, bool, list, dict)) or value is None:
        raise ValueError(
            f"error during formatting: decimal clause can only be used on integers, was given {_type_name(value)}"
        )
    return str(int(value))


def _type_name(value: Any) -> str:
    names = {str: "string", bytes: "bytes", bool: "bool", list: "list", dict: "map"}
    return names.get(type(value), "null_type")


def _to_string(value: Any) -> str:
    """Format a value for ``%s``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, list):
        return "[" + ", ".join(map(_quoted, value)) + "]"
    if isinstance(value, dict):
        entries = sorted(f"{_quoted(key)}:{_quoted(item)}" for key, item in value.items())
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode()
    value = as_messages(value)
    return to_text(value) if isinstance(value, (Duration, Timestamp)) else str(value)


def _quoted(value: Any) -> str:
    """Format a value inside of a list or map for ``%s``."""
    text = _to_string(value)
    match as_messages(value):
        case str():
            return go_quote(text)
        case bytes():
            return f"b{go_quote(text)}"
        case float():
            return f"{value:.6f}"
        case Timestamp():
            return f"timestamp({go_quote(text)})"
        case Duration():
            return f"duration({go_quote(text)})"
        case _:
            return text


def _lists(table: _Table) -> None:
    table.method("isSorted", _is_sorted, BOOL, LIST)
    table.method("sum", _sum, DYN, LIST)
    table.method("min", lambda items: _extreme(min, items), DYN, LIST)
    table.method("max", lambda items: _extreme(max, items), DYN, LIST)
    for element in _ELEMENTS:
        table.method("indexOf", lambda items, item: _index(items, item), INT, LIST, element)
        table.method(
            "lastIndexOf", lambda items, item: _last_index(items, item), INT, LIST, element
        )
    table.add("lists.limitedRange", limited_range, _T.List(INT), INT)
    table.method("mergeEntries", merge_entries, _T.Map(DYN, DYN), _T.List(_T.Map(DYN, DYN)))


def _is_sorted(items: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(items))


def _sum(items: list[Any]) -> Any:
    # starts with the first item, which can be a duration
    return as_messages(sum(items[1:], items[0])) if items else 0


def _extreme(choose: Callable[[list[Any]], Any], items: list[Any]) -> Any:
    if not items:
        raise ValueError(f"{choose.__name__} called on empty list")
    return as_messages(choose(items))


def _index(items: list[Any], item: Any) -> int:
    return items.index(item) if item in items else -1


def _last_index(items: list[Any], item: Any) -> int:
    return len(items) - 1 - items[::-1].index(item) if item in items else -1


def _sets(table: _Table) -> None:
    table.add("sets.contains", _contains_all, BOOL, LIST, LIST)
    table.add("sets.intersects", _intersects, BOOL, LIST, LIST)
    table.add("sets.equivalent", _is_equivalent, BOOL, LIST, LIST)


def _contains_all(items: list[Any], others: list[Any]) -> bool:
    return all(other in items for other in others)


def _intersects(items: list[Any], others: list[Any]) -> bool:
    return any(other in items for other in others)


def _is_equivalent(items: list[Any], others: list[Any]) -> bool:
    return _contains_all(items, others) and _contains_all(others, items)


def _patterns(table: _Table) -> None:
    table.method("find", _find, STRING, STRING, STRING)
    table.method("findAll", _find_all, STRINGS, STRING, STRING)
    table.method("findAll", _find_all, STRINGS, STRING, STRING, INT)


def _find(text: str, pattern: str) -> str:
    return next(find_all(pattern, text), "")


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return list(islice(find_all(pattern, text), None if limit < 0 else limit))


def _urls(table: _Table) -> None:
    table.add("isURL", _is_url, BOOL, STRING)
    table.add("url", _url, OPAQUE, STRING)
    table.method("getScheme", lambda url: urlsplit(url["url"]).scheme, STRING, OPAQUE)
    table.method(
        "getHost", lambda url: urlsplit(url["url"]).netloc.rpartition("@")[2], STRING, OPAQUE
    )
    table.method("getHostname", lambda url: urlsplit(url["url"]).hostname or "", STRING, OPAQUE)
    table.method("getPort", lambda url: str(urlsplit(url["url"]).port or ""), STRING, OPAQUE)
    table.method("getEscapedPath", lambda url: urlsplit(url["url"]).path, STRING, OPAQUE)
    table.method(
        "getQuery",
        lambda url: parse_qs(urlsplit(url["url"]).query, keep_blank_values=True),
        _T.Map(STRING, STRINGS),
        OPAQUE,
    )


def _is_url(text: str) -> bool:
    return FORMATS["uri"](text)


def _url(text: str) -> dict[str, str]:
    if not _is_url(text):
        raise ValueError(
            f'URL parse error during conversion from string: parse "{text}": invalid URI for request'
        )
    return {"url": text}


def _quantities(table: _Table) -> None:
    table.add("isQuantity", _is_quantity, BOOL, STRING)
    table.add("quantity", _quantity, OPAQUE, STRING)
    table.method("sign", lambda q: (_value(q).value > 0) - (_value(q).value < 0), INT, OPAQUE)
    table.method("isInteger", _is_integer, BOOL, OPAQUE)
    table.method("asInteger", _as_integer, INT, OPAQUE)
    table.method("asApproximateFloat", lambda q: float(_value(q).value), DOUBLE, OPAQUE)
    table.method("add", lambda q, other: _add(q, other, 1), OPAQUE, OPAQUE, OPAQUE)
    table.method("add", lambda q, other: _add(q, _quantity(str(other)), 1), OPAQUE, OPAQUE, INT)
    table.method("sub", lambda q, other: _add(q, other, -1), OPAQUE, OPAQUE, OPAQUE)
    table.method("sub", lambda q, other: _add(q, _quantity(str(other)), -1), OPAQUE, OPAQUE, INT)
    table.method("isGreaterThan", lambda a, b: _compare(a, b) > 0, BOOL, OPAQUE, OPAQUE)
    table.method("isLessThan", lambda a, b: _compare(a, b) < 0, BOOL, OPAQUE, OPAQUE)
    table.method("compareTo", lambda a, b: _compare(a, b), INT, OPAQUE, OPAQUE)


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _quantity(text: str) -> dict[str, str]:
    return {"quantity": _exact(parse_quantity(text))}


def _exact(quantity: Quantity) -> str:
    return str(quantity._replace(family="decimal"))


def _value(opaque: dict[str, str]) -> Quantity:
    return parse_quantity(opaque["quantity"])


def _is_integer(opaque: dict[str, str]) -> bool:
    value = _value(opaque).value
    return value.denominator == 1 and is_int64(value.numerator)


def _as_integer(opaque: dict[str, str]) -> int:
    value = _value(opaque).value
    if value.denominator != 1 or not is_int64(value.numerator):
        raise ValueError("cannot convert value to integer")
    return value.numerator


def _add(a: dict[str, str], b: dict[str, str], sign: int) -> dict[str, str]:
    return {"quantity": _exact(Quantity(_value(a).value + sign * _value(b).value, "decimal"))}


def _compare(a: dict[str, str], b: dict[str, str]) -> int:
    """Compare two quantities or two semantic versions."""
    if "semver" in a:
        return _compare_versions(a["semver"], b["semver"])
    first = _value(a).value
    second = _value(b).value
    return (first > second) - (first < second)


_STRING_CONVERSIONS = {
    "bool_to_string": BOOL,
    "bytes_to_string": _T.BYTES,
    "double_to_string": DOUBLE,
    "duration_to_string": _T.DURATION,
    "int64_to_string": INT,
    "string_to_string": STRING,
    "timestamp_to_string": _T.TIMESTAMP,
    "uint64_to_string": _T.UINT,
}
"""The arguments of the language's overloads of ``string``, which ``cel_library`` excludes with the function."""


def _addresses(table: _Table) -> None:
    table.add("isIP", _is_ip, BOOL, STRING)
    table.add("ip", lambda text: {"ip": _strict_ip(text)}, OPAQUE, STRING)
    table.method("ip", lambda cidr: {"ip": cidr["cidr"].split("/")[0]}, OPAQUE, OPAQUE)
    for label, kind in _STRING_CONVERSIONS.items():
        table.add_standard("string", label, STRING, kind)
    table.add("string", _network_text, STRING, OPAQUE)
    table.add("ip.isCanonical", lambda text: _strict_ip(text) == text, BOOL, STRING)
    table.method("family", lambda opaque: _address(opaque).version, INT, OPAQUE)
    table.method("isUnspecified", lambda opaque: _address(opaque).is_unspecified, BOOL, OPAQUE)
    table.method("isLoopback", lambda opaque: _address(opaque).is_loopback, BOOL, OPAQUE)
    table.method("isLinkLocalMulticast", _link_local_multicast, BOOL, OPAQUE)
    table.method("isLinkLocalUnicast", lambda opaque: _address(opaque).is_link_local, BOOL, OPAQUE)
    table.method("isGlobalUnicast", _global_unicast, BOOL, OPAQUE)
    table.add("isCIDR", _is_cidr, BOOL, STRING)
    table.add("cidr", _cidr, OPAQUE, STRING)
    table.method("prefixLength", lambda cidr: int(cidr["cidr"].split("/")[1]), INT, OPAQUE)
    table.method(
        "masked", lambda cidr: {"cidr": str(ip_network(cidr["cidr"], strict=False))}, OPAQUE, OPAQUE
    )
    table.method("containsIP", _contains_ip, BOOL, OPAQUE, STRING)
    table.method("containsIP", lambda cidr, ip: _contains_ip(cidr, ip["ip"]), BOOL, OPAQUE, OPAQUE)
    table.method("containsCIDR", _contains_cidr, BOOL, OPAQUE, STRING)
    table.method(
        "containsCIDR",
        lambda cidr, other: _contains_cidr(cidr, other["cidr"]),
        BOOL,
        OPAQUE,
        OPAQUE,
    )


def _strict_ip(text: str) -> str:
    try:
        address = ip_address(text)
    except ValueError:
        message = f"IP Address {go_quote(text)} parse error during conversion from string: {_address_problem(text)}"
        raise ValueError(message) from None
    if "%" in text:
        raise ValueError(f"IP address {go_quote(text)} with zone value is not allowed")
    if address.version == 6 and address.ipv4_mapped is not None:
        raise ValueError(f"IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return str(address)


def _is_ip(text: str) -> bool:
    try:
        _strict_ip(text)
    except ValueError:
        return False
    return True


def _address(opaque: dict[str, str]) -> Any:
    if "ip" in opaque:
        return ip_address(opaque["ip"])
    return ip_address(opaque["cidr"].split("/")[0])


def _network_text(opaque: dict[str, str]) -> str:
    """Return an IP or a CIDR as a string; the other maps have no conversion."""
    for kind in ("ip", "cidr"):
        if opaque.keys() == {kind}:
            return opaque[kind]
    raise ValueError("no such overload")


def _address_problem(text: str) -> str:
    """Return why Go does not parse a string as an IP address."""
    if ":" in text:
        why = "unexpected character"
    elif "." in text:
        why = _ipv4_problem(text)
    else:
        why = "unable to parse IP"
    return f"ParseAddr({go_quote(text)}): {why}"


def _ipv4_problem(text: str) -> str:
    fields = text.split(".")
    for position, field in enumerate(fields):
        if not field:
            return "IPv4 field must have at least one digit"
        if not field.isascii() or not field.isdigit():
            return "unexpected character"
        if len(field) > 1 and field[0] == "0":
            return "IPv4 field has octet with leading zero"
        if len(field) > 3 or int(field) > 255:
            return "IPv4 field has value >255"
        if position == 4:
            return "IPv4 address too long"
    return "IPv4 address too short" if len(fields) < 4 else "unexpected character"


def _link_local_multicast(opaque: dict[str, str]) -> bool:
    address = _address(opaque)
    scope = "224.0.0.0/24" if address.version == 4 else "ff02::/16"
    return address in ip_network(scope)


def _global_unicast(opaque: dict[str, str]) -> bool:
    address = _address(opaque)
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or str(address) == "255.255.255.255"
    )


def _is_cidr(text: str) -> bool:
    return FORMATS["cidr"](text) and not re.search(r"(^|[./])0\d", text)


def _cidr(text: str) -> dict[str, str]:
    if not _is_cidr(text):
        problem = "network address parse error during conversion from string"
        raise ValueError(
            f"{problem}: {problem}: netip.ParsePrefix({go_quote(text)}): {_cidr_problem(text)}"
        )
    address, _, bits = text.partition("/")
    return {"cidr": f"{ip_address(address)}/{bits}"}


def _cidr_problem(text: str) -> str:
    """Return why Go does not parse a string as a CIDR."""
    address, slash, bits = text.rpartition("/")
    if not slash:
        return "no '/'"
    try:
        version = ip_address(address).version
    except ValueError:
        return _address_problem(address)
    is_plain = bits.isascii() and bits.isdigit() and (bits == "0" or bits[0] != "0")
    if not is_plain:
        return f"bad bits after slash: {go_quote(bits)}"
    largest = 32 if version == 4 else 128
    return "prefix length out of range" if len(bits) > 3 or int(bits) > largest else "invalid"


def _contains_ip(cidr: dict[str, str], text: str) -> bool:
    return ip_address(text) in ip_network(cidr["cidr"], strict=False)


def _contains_cidr(cidr: dict[str, str], text: str) -> bool:
    outer = ip_network(cidr["cidr"], strict=False)
    inner = ip_network(text, strict=False)
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def _formats(table: _Table) -> None:
    for name in FORMAT_NAMES:
        table.add(f"format.{name}", partial(find_format, name), OPAQUE)
    table.add("format.named", find_format, OPAQUE, STRING)
    table.method("validate", format_errors, STRINGS, OPAQUE, STRING)


_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)
_LABEL = re.compile(r"[0-9A-Za-z-]+")


def _versions(table: _Table) -> None:
    table.add("isSemver", lambda text: _is_semver(text, False), BOOL, STRING)
    table.add("isSemver", _is_semver, BOOL, STRING, BOOL)
    table.add("semver", lambda text: _semver(text, False), OPAQUE, STRING)
    table.add("semver", _semver, OPAQUE, STRING, BOOL)
    for position, name in enumerate(("major", "minor", "patch")):
        table.method(name, lambda opaque, at=position: _numbers(opaque["semver"])[at], INT, OPAQUE)


def _semver_text(text: str, lax: bool) -> str:
    """Return a version, completed if it may be lax: ``v1.02`` becomes ``1.2.0``."""
    if lax:
        core, mark, tail = re.fullmatch(
            r"([^-+]*)([-+]?)(.*)", text.removeprefix("v"), re.DOTALL
        ).groups()  # type: ignore[union-attr]
        numbers = [part.lstrip("0") or "0" for part in core.split(".")]
        while len(numbers) < 3:
            numbers.append("0")
        text = ".".join(numbers) + mark + tail
    return text


def _is_semver(text: str, lax: bool) -> bool:
    return not _semver_problem(_semver_text(text, lax))


def _semver(text: str, lax: bool) -> dict[str, str]:
    version = _semver_text(text, lax)
    problem = _semver_problem(version)
    if problem:
        raise ValueError(problem)
    return {"semver": version}


def _semver_problem(text: str) -> str:
    """Return why the library of kube-apiserver does not parse a string as a semantic version."""
    if not text:
        return "Version string empty"
    parts = text.split(".", 2)
    if len(parts) != 3:
        return "No Major.Minor.Patch elements found"
    parts[2] = re.split(r"[-+]", parts[2], maxsplit=1)[0]
    core, build_mark, build = text.partition("+")
    prerelease_mark, prerelease = core.partition("-")[1:]
    for name, number in zip(("Major", "Minor", "Patch"), parts, strict=True):
        if not number.isascii() or not number.isdigit():
            return f"Invalid character(s) found in {name.lower()} number {go_quote(number)}"
        if len(number) > 1 and number[0] == "0":
            return f"{name} number must not contain leading zeroes {go_quote(number)}"
    for label in prerelease.split(".") if prerelease_mark else ():
        if not label:
            return "Prerelease is empty"
        if not _LABEL.fullmatch(label):
            return f"Invalid character(s) found in prerelease {go_quote(label)}"
        if label.isdigit() and len(label) > 1 and label[0] == "0":
            return f"Numeric PreRelease version must not contain leading zeroes {go_quote(label)}"
    for label in build.split(".") if build_mark else ():
        if not label:
            return "Build meta data is empty"
        if not _LABEL.fullmatch(label):
            return f"Invalid character(s) found in build meta data {go_quote(label)}"
    return ""


def _numbers(version: str) -> list[int]:
    match = _SEMVER.fullmatch(version)
    return [int(part) for part in match.groups()[:3]] if match else [0, 0, 0]


def _compare_versions(a: str, b: str) -> int:
    if _numbers(a) != _numbers(b):
        return 1 if _numbers(a) > _numbers(b) else -1
    first = _prerelease(a)
    second = _prerelease(b)
    if not first or not second:
        return bool(second) - bool(first)
    return _compare_labels(first.split("."), second.split("."))


def _prerelease(version: str) -> str:
    """Return the part after the hyphen of a valid version, or an empty string."""
    match = _SEMVER.fullmatch(version)
    if match is None:
        return ""
    return match.group(4) or ""


def _compare_labels(first: list[str], second: list[str]) -> int:
    def order(a: str, b: str) -> int:
        if a.isdigit() and b.isdigit():
            return (int(a) > int(b)) - (int(a) < int(b))
        if a.isdigit() != b.isdigit():
            return -1 if a.isdigit() else 1
        return (a > b) - (a < b)

    key = cmp_to_key(order)
    keyed = [key(label) for label in first], [key(label) for label in second]
    return (keyed[0] > keyed[1]) - (keyed[0] < keyed[1])
