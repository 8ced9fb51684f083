"""The rules of names, labels and annotations, with the messages of apimachinery's ``util/validation``."""

from __future__ import annotations

import re

from envtest.apimachinery.field_errors import FieldError, invalid, too_long

__all__ = [
    "annotation_errors",
    "dns_1035_label",
    "dns_label",
    "dns_subdomain",
    "label_errors",
    "label_value",
    "mask_trailing_dash",
    "path_segment",
    "qualified_name",
]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")
_ANNOTATIONS_LIMIT = 256 * 1024

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def dns_subdomain(name: str) -> list[str]:
    """Return why ``name`` is not a DNS subdomain (RFC 1123), with apimachinery's messages."""
    problems = []
    if len(name.encode()) > 253:
        problems.append("must be no more than 253 characters")
    if not _SUBDOMAIN.match(name):
        problems.append(_SUBDOMAIN_RULE)
    return problems


def dns_label(name: str) -> list[str]:
    """Return why ``name`` is not a DNS label (RFC 1123)."""
    problems = []
    if len(name.encode()) > 63:
        problems.append("must be no more than 63 characters")
    if not _LABEL.match(name):
        problem = "must not contain dots" if _SUBDOMAIN.match(name) else _LABEL_RULE
        problems.append(problem)
    return problems


def dns_1035_label(name: str) -> list[str]:
    """Return why ``name`` is not a DNS label that starts with a letter (RFC 1035)."""
    problems = []
    if len(name.encode()) > 63:
        problems.append("must be no more than 63 characters")
    if not _LABEL_1035.match(name):
        problems.append(_LABEL_1035_RULE)
    return problems


def mask_trailing_dash(prefix: str) -> str:
    """Return a ``generateName`` in the form that is validated: its last dash is replaced, as characters follow it."""
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def path_segment(name: str) -> list[str]:
    """Return why ``name`` cannot be a segment of a URL path."""
    if name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def qualified_name(name: str) -> list[str]:
    """Return why ``name`` is not a label key: ``[prefix/]name``."""
    prefix, slash, short = name.rpartition("/")
    if name.count("/") > 1:
        prefix_rule = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_QUALIFIED_RULE} {prefix_rule}"]
    problems = []
    if slash:
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {problem}" for problem in dns_subdomain(prefix)]
    if not short:
        problems.append("name part must be non-empty")
    elif len(short.encode()) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not _QUALIFIED.match(short):
        problems.append(f"name part {_QUALIFIED_RULE}")
    return problems


def label_value(value: str) -> list[str]:
    """Return why ``value`` is not a label value."""
    problems = []
    if len(value.encode()) > 63:
        problems.append("must be no more than 63 bytes")
    if not _LABEL_VALUE.match(value):
        problems.append(_VALUE_RULE)
    return problems


def label_errors(labels: dict[str, str], path: str) -> list[FieldError]:
    """Return the errors of labels."""
    errors: list[FieldError] = []
    for key, value in labels.items():
        errors += [invalid(path, key, problem) for problem in qualified_name(key)]
        errors += [invalid(path, value, problem) for problem in label_value(value or "")]
    return errors


def annotation_errors(annotations: dict[str, str], path: str) -> list[FieldError]:
    """Return the errors of annotations."""
    errors: list[FieldError] = []
    size = 0
    for key, value in annotations.items():
        errors += [invalid(path, key, problem) for problem in qualified_name(key.lower())]
        size += len(key.encode()) + len((value or "").encode())
    if size > _ANNOTATIONS_LIMIT:
        errors.append(too_long(path, "", _ANNOTATIONS_LIMIT))
    return errors
