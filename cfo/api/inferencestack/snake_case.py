"""Keys of configuration files: ``modelName`` in a stack's spec becomes ``model_name``.

For keys with ASCII letters, digits, ``-`` and ``_`` only, the result equals that of Helm's template function
``snakecase`` (``ToSnakeCase`` in ``huandu/xstrings``), which defines the names of existing keys.
"""

from __future__ import annotations

import re
from typing import Final

_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_WORD: Final = re.compile(r"(?P<upper>[A-Z]+(?![a-z])|[A-Z][a-z]*)|(?P<lower>[a-z]+)|(?P<number>[0-9]+)|(?P<other>.)")


def is_config_key(key: str) -> bool:
    """Return whether ``key`` can be a key of a configuration: at most 63 letters, digits, ``-`` and ``_``."""
    return _KEY.fullmatch(key) is not None


def snake_case(key: str) -> str:
    """Convert ``key`` to snake case.

    A word begins at an upper-case letter; a run of upper-case letters is one word, without its last letter if a
    lower-case letter follows (``HTTPServer``: ``http_server``). A number belongs to the word before it
    (``Bld4Floor``: ``bld4_floor``), unless a lower-case letter follows, which continues it (``http2xx``: ``http_2xx``).
    """
    words = list(_WORD.finditer(key))
    parts: list[str] = []
    at_start, in_number = True, False
    for index, word in enumerate(words):
        kind, text = word.lastgroup, word.group().lower()
        if kind == "other":
            parts.append("_" if text == "-" else text)
            at_start, in_number = True, False
            continue
        following = words[index + 1].lastgroup if index + 1 < len(words) else None
        begins = kind == "upper" or not in_number
        if kind == "number":
            begins = not in_number and (at_start or following == "lower")
            in_number = in_number or begins
        elif kind == "upper":
            in_number = False
        parts.append(f"_{text}" if begins and not at_start else text)
        at_start = False
    return "".join(parts)
