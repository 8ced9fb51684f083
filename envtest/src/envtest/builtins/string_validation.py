"""Validation of strings, with apimachinery's messages.

Most functions return the problems of a string, and an empty list if it is valid; the ``*_errors`` functions yield field
errors. Names, labels and qualified names are validated in :mod:`envtest.registry.object_metadata`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    duplicate,
    forbidden,
    go_json,
    invalid,
    not_supported,
    required,
    too_long,
)
from envtest.apimachinery.name_rules import dns_subdomain, label_value, path_segment, qualified_name
from envtest.apimachinery.objects import Object
from envtest.builtins.ip_rules import ip_errors, ip_warnings, is_ip
from envtest.formats.go_url import url_problem

__all__ = [
    "condition_errors",
    "config_key",
    "domain_prefixed_path_errors",
    "env_name",
    "header_name",
    "label_selector_errors",
    "load_balancer_errors",
    "load_balancer_warnings",
    "nonnegative",
    "percent_above_100_errors",
    "percent_or_int",
    "percent_or_int_errors",
    "percent_or_int_value",
    "port_name",
    "port_number",
    "selects",
    "underscore_subdomain",
    "webhook_service_errors",
    "webhook_url_errors",
    "wildcard_subdomain",
]

_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"


def _regex_message(text: str, pattern: str, *examples: str) -> str:
    rendered = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {rendered}regex used for validation is '{pattern}')"


def wildcard_subdomain(name: str) -> list[str]:
    """Validate ``*.`` followed by a DNS subdomain."""
    pattern = rf"\*\.{_LABEL}(\.{_LABEL})*"
    problems = []
    if len(name) > 253:
        problems.append("must be no more than 253 characters")
    if not re.fullmatch(pattern, name):
        text = (
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist "
            "of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character"
        )
        problems.append(_regex_message(text, pattern, "*.example.com"))
    return problems


def underscore_subdomain(name: str) -> list[str]:
    """Validate a DNS subdomain whose labels may also contain underscores, as the names of services in DNS do."""
    pattern = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
    problems = []
    if len(name) > 253:
        problems.append("must be no more than 253 characters")
    if not re.fullmatch(pattern, name):
        text = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and "
            "must start and end with an alphanumeric character"
        )
        problems.append(_regex_message(text, pattern, "example.com"))
    return problems


def port_name(name: str) -> list[str]:
    """Validate the name of a port: up to 15 characters of ``-a-z0-9``, at least one of them a letter."""
    problems = []
    if len(name) > 15:
        problems.append("must be no more than 15 characters")
    if not re.fullmatch("[-a-z0-9]+", name):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", name):
        problems.append("must contain at least one letter (a-z)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def domain_prefixed_path_errors(text: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of a path that begins with a domain: ``acme.io/foo``."""
    if not text:
        yield required(path)
        return
    host, _, rest = text.partition("/")
    if not host or not rest:
        yield invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    for problem in dns_subdomain(host):
        yield invalid(path, host, problem)
    if not re.fullmatch(_HTTP_PATH, rest):
        yield invalid(path, rest, f"Invalid path (regex used for validation is '{_HTTP_PATH}')")


def port_number(port: Any) -> list[str]:
    """Validate a port number, which is never 0."""
    if isinstance(port, int) and 1 <= port <= 65535:
        return []
    return ["must be between 1 and 65535, inclusive"]


def config_key(key: str) -> list[str]:
    """Validate a key of a ConfigMap or Secret."""
    pattern = "[-._a-zA-Z0-9]+"
    problems = []
    if len(key) > 253:
        problems.append("must be no more than 253 characters")
    if not re.fullmatch(pattern, key):
        text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        problems.append(_regex_message(text, pattern, "key.name", "KEY_NAME", "key-name"))
    if key in (".", ".."):
        problems.append(f"must not be '{key}'")
    elif key.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def env_name(name: str) -> list[str]:
    """Validate the name of an environment variable."""
    if all(" " <= character <= "~" and character != "=" for character in name):
        return []
    return [
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
    ]


def header_name(name: str) -> list[str]:
    """Validate the name of an HTTP header."""
    pattern = "[-A-Za-z0-9]+"
    if re.fullmatch(pattern, name):
        return []
    return [
        _regex_message(
            "a valid HTTP header must consist of alphanumeric characters or '-'",
            pattern,
            "X-Header-Name",
        )
    ]


def load_balancer_errors(status: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of the addresses in the status of a load balancer."""
    for position, ingress in enumerate((status.get("loadBalancer") or {}).get("ingress") or ()):
        path = f"status.loadBalancer.ingress[{position}]"
        if ingress.get("ip"):
            yield from ip_errors(f"{path}.ip", ingress["ip"])
        if ingress.get("hostname"):
            for problem in dns_subdomain(ingress["hostname"]):
                yield invalid(f"{path}.hostname", ingress["hostname"], problem)
            if is_ip(ingress["hostname"]):
                yield invalid(
                    f"{path}.hostname", ingress["hostname"], "must be a DNS name, not an IP address"
                )


def load_balancer_warnings(obj: Object) -> Iterator[str]:
    """Yield the warnings about the form of the addresses in the status of a load balancer."""
    load_balancer = (obj.get("status") or {}).get("loadBalancer") or {}
    for position, ingress in enumerate(load_balancer.get("ingress") or ()):
        yield from ip_warnings(f"status.loadBalancer.ingress[{position}]", ingress.get("ip") or "")


def nonnegative(path: str, value: Any) -> Iterator[FieldError]:
    """Yield an error if ``value`` is set and negative."""
    if isinstance(value, int) and value < 0:
        yield invalid(path, value, "must be greater than or equal to 0")


def percent_or_int(value: Any) -> Verbatim:
    """Return an IntOrString as errors show it: as JSON."""
    return Verbatim(go_json(value))


def percent_or_int_errors(path: str, value: Any) -> Iterator[FieldError]:
    """Yield an error unless ``value`` is a non-negative integer or a percentage."""
    if isinstance(value, str):
        if not re.fullmatch("[0-9]+%", value):
            text = "a valid percent string must be a numeric string followed by an ending '%'"
            message = _regex_message(text, "[0-9]+%", "1%", "93%")
            yield invalid(path, percent_or_int(value), message)
    else:
        yield from nonnegative(path, value)


def percent_above_100_errors(path: str, value: Any) -> Iterator[FieldError]:
    """Yield an error if ``value`` is a percentage above 100 %."""
    if (
        isinstance(value, str)
        and re.fullmatch("[0-9]+%", value)
        and percent_or_int_value(value) > 100
    ):
        yield invalid(path, value, "must not be greater than 100%")


_NUMBER = re.compile(r"([+-]?)([0-9]+)|([0-9]+)%")


def percent_or_int_value(value: Any) -> int:
    """Return the number in an integer, a percentage or a string of digits; any other value is 0.

    Only the first digits of a very long number are returned: callers compare with small numbers.
    """
    if isinstance(value, int):
        return value
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return 0
    digits = (match[2] or match[3]).lstrip("0")[:19]
    return int((match[1] or "") + (digits or "0"))


def label_selector_errors(selector: Mapping[str, Any] | None, path: str) -> Iterator[FieldError]:
    """Yield the errors of a LabelSelector."""
    for name, value in ((selector or {}).get("matchLabels") or {}).items():
        for problem in qualified_name(name):
            yield invalid(f"{path}.matchLabels", name, problem)
        for problem in label_value(value):
            yield invalid(f"{path}.matchLabels", value, problem)
    for position, requirement in enumerate((selector or {}).get("matchExpressions") or ()):
        field_path = f"{path}.matchExpressions[{position}]"
        operator = requirement.get("operator") or ""
        values = requirement.get("values") or ()
        if operator in ("In", "NotIn"):
            if not values:
                yield required(
                    f"{field_path}.values", "must be specified when `operator` is 'In' or 'NotIn'"
                )
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden(f"{field_path}.values", text)
        else:
            shown = Verbatim(go_json(operator))  # a named string type
            yield invalid(f"{field_path}.operator", shown, "not a valid selector operator")
        for problem in qualified_name(requirement.get("key") or ""):
            yield invalid(f"{field_path}.key", requirement.get("key") or "", problem)
        for number, value in enumerate(values):
            for problem in label_value(value):
                yield invalid(f"{field_path}.values[{number}]", value, problem)


_REASON_EXAMPLES = ("my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")
_CONDITION_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def condition_errors(conditions: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """Yield the errors of a list of ``metav1.Condition``."""
    seen: set[str] = set()
    for position, condition in enumerate(conditions):
        field_path = f"{path}[{position}]"
        kind = condition.get("type") or ""
        if kind in seen:
            yield duplicate(f"{field_path}.type", kind)
        seen.add(kind)
        for problem in qualified_name(kind):
            yield invalid(f"{field_path}.type", kind, problem)
        status = condition.get("status") or ""
        if status not in ("False", "True", "Unknown"):
            yield not_supported(f"{field_path}.status", status, ("False", "True", "Unknown"))
        if (condition.get("observedGeneration") or 0) < 0:
            text = "must be greater than or equal to zero"
            yield invalid(f"{field_path}.observedGeneration", condition["observedGeneration"], text)
        if not condition.get("lastTransitionTime"):
            yield required(f"{field_path}.lastTransitionTime")
        reason = condition.get("reason") or ""
        if not reason:
            yield required(f"{field_path}.reason")
        elif not _CONDITION_REASON.fullmatch(reason):
            text = (
                "a condition reason must start with alphabetic character, optionally followed by a string of "
                "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'"
            )
            pattern = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
            yield invalid(
                f"{field_path}.reason",
                reason,
                _regex_message(text, pattern, *_REASON_EXAMPLES),
            )
        if len(reason) > 1024:
            yield too_long(f"{field_path}.reason", reason, 1024)
        if len(condition.get("message") or "") > 32 * 1024:
            yield too_long(f"{field_path}.message", condition["message"], 32 * 1024)


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a LabelSelector matches ``labels``; ``None`` matches nothing."""
    if selector is None:
        return False
    for name, value in (selector.get("matchLabels") or {}).items():
        if labels.get(name) != value:
            return False
    for requirement in selector.get("matchExpressions") or ():
        name = requirement.get("key")
        values = requirement.get("values") or ()
        match requirement.get("operator"):
            case "In":
                holds = labels.get(name) in values if name in labels else False
            case "NotIn":
                holds = labels.get(name) not in values
            case "Exists":
                holds = name in labels
            case _:
                holds = name not in labels
        if not holds:
            return False
    return True


_URL_FORMAT = "; desired format: https://host[/path]"


def webhook_url_errors(path: str, text: str) -> Iterator[FieldError]:
    """Yield the errors of a webhook URL: https, with a host, and without user, query or fragment."""
    problem = url_problem(text)
    if problem:
        yield required(path, f"url must be a valid URL: {problem}{_URL_FORMAT}")
        return
    url = urlsplit(text)
    if url.scheme != "https":
        yield invalid(path, url.scheme, f"'https' is the only allowed URL scheme{_URL_FORMAT}")
    if not url.netloc:
        yield invalid(path, url.netloc, f"host must be specified{_URL_FORMAT}")
    if url.username is not None:
        shown = _user_in_url(url.netloc.rpartition("@")[0])
        yield invalid(path, shown, "user information is not permitted in the URL")
    if url.fragment:
        yield invalid(path, url.fragment, "fragments are not permitted in the URL")
    if url.query:
        yield invalid(path, url.query, "query parameters are not permitted in the URL")


def _user_in_url(text: str) -> str:
    """Return a user and a password as Go writes them."""
    parts = text.split(":", maxsplit=1)
    return ":".join(quote(unquote(part), safe="$&+,;=") for part in parts)


def webhook_service_errors(path: str, service: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of the service reference of a webhook.

    kube-apiserver swaps the two names: it reports the name if the namespace is missing.
    """
    if not service.get("namespace"):
        yield required(f"{path}.name")
    if not service.get("name"):
        yield required(f"{path}.namespace")
    port = service.get("port", 443)
    if port_number(port):
        yield invalid(
            f"{path}.port", port, "port is not valid: must be between 1 and 65535, inclusive"
        )
    url_path = service.get("path")
    if url_path in (None, "", "/"):
        return
    if not url_path.startswith("/"):
        yield invalid(f"{path}.path", url_path, "must start with a '/'")
    segments = url_path[1:].removesuffix("/").split("/")
    for number, segment in enumerate(segments):
        if not segment:
            yield invalid(f"{path}.path", url_path, f"segment[{number}] may not be empty")
            continue
        for problem in path_segment(segment) or _segment_problems(segment):
            yield invalid(f"{path}.path", url_path, f"segment[{number}]: {problem}")


def _segment_problems(segment: str) -> list[str]:
    return dns_subdomain(segment.lower())
