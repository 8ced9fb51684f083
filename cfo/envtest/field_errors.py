"""What is wrong with which field: the library's :mod:`cfo.runtime.webhook.field`, as the API server uses it.

Paths are plain strings here, built with :func:`child`, :func:`index` and :func:`key`: building one costs nothing until
there is an error.
"""

from cfo.runtime.webhook.field import (
    OMIT,
    FieldError,
    Verbatim,
    aggregate,
    causes,
    child,
    duplicate,
    forbidden,
    go_json,
    go_quote,
    go_value,
    index,
    internal,
    invalid,
    key,
    not_found,
    not_supported,
    required,
    too_few,
    too_long,
    too_many,
    type_invalid,
)

__all__ = [
    "OMIT",
    "FieldError",
    "Verbatim",
    "aggregate",
    "causes",
    "child",
    "duplicate",
    "forbidden",
    "go_json",
    "go_quote",
    "go_value",
    "index",
    "internal",
    "invalid",
    "key",
    "not_found",
    "not_supported",
    "required",
    "too_few",
    "too_long",
    "too_many",
    "type_invalid",
]
