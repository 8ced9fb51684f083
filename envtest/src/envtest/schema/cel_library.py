"""The configuration of the CEL library: its extensions and the overloads that Kubernetes adds to standard functions.

The functions here have implementations in the library. ``cel_functions`` has those that are implemented in Python.

Reference: ``k8s.io/apiserver/pkg/cel/environment/base.go``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from cel_expr_python import cel

__all__ = ["configuration"]

_LIST_WORDS: Final = re.compile("range|slice|flatten|distinct|reverse|sort")
_COMPARISONS: Final = {
    "_<_": "less",
    "_<=_": "less_equals",
    "_>_": "greater",
    "_>=_": "greater_equals",
}
_NUMBERS: Final = ("int", "uint", "double")
_ORDERED: Final = ("bool", *_NUMBERS, "string", "bytes", "timestamp", "duration")
_LABELS: Final = {"int": "int64", "uint": "uint64"}
_ELEMENT: Final = {"type_name": "T", "is_type_param": True}
_LIST: Final = {"type_name": "list", "params": [_ELEMENT]}
_OPTIONALS: Final = {
    "type_name": "list",
    "params": [{"type_name": "optional_type", "params": [_ELEMENT]}],
}


def configuration(source: str | None = None) -> Any:
    """Return the configuration for ``cel.NewEnv``, for any expression or for ``source``.

    An expression that does not contain the names of comparisons or list functions is compiled faster without them.
    """
    if source is None:
        return _configuration(with_comparisons=True, with_lists=True)
    with_comparisons = "<" in source or ">" in source
    return _configuration(
        with_comparisons=with_comparisons, with_lists=_LIST_WORDS.search(source) is not None
    )


@cache
def _configuration(*, with_comparisons: bool, with_lists: bool) -> Any:
    comparisons = _COMPARISONS if with_comparisons else {}
    functions = [
        {"name": name, "overloads": list(_overloads(label))} for name, label in comparisons.items()
    ]
    functions += [
        {
            "name": "optional.unwrap",
            "overloads": [{"id": "optional_unwrap", "args": [_OPTIONALS], "return": _LIST}],
        },
        {
            "name": "unwrapOpt",
            "overloads": [{"id": "optional_unwrapOpt", "target": _OPTIONALS, "return": _LIST}],
        },
    ]
    extensions = [{"name": "two-var-comprehensions"}]
    if with_lists:
        extensions.append({"name": "lists"})
    content = {
        "name": "kubernetes",
        "extensions": extensions,
        # A function can be declared only once, so functions that have other overloads here are replaced.
        "stdlib": {"exclude_functions": [{"name": name} for name in (*comparisons, "string")]},
        "functions": functions,
    }
    return cel.NewEnvConfigFromYaml(json.dumps(content))


def _overloads(label: str) -> Iterator[dict[str, Any]]:
    """Yield the overloads of a comparison: values of one type, and numbers of two types."""
    for first in _ORDERED:
        for second in _ORDERED:
            if first == second or (first in _NUMBERS and second in _NUMBERS):
                parts = [
                    label,
                    *(_LABELS.get(kind, kind) for kind in dict.fromkeys((first, second))),
                ]
                yield {
                    "id": "_".join(parts),
                    "args": [{"type_name": first}, {"type_name": second}],
                    "return": {"type_name": "bool"},
                }
