"""Keys of configuration files: ``modelName`` in a stack's spec becomes ``model_name``.

For keys with ASCII letters, digits, ``-`` and ``_`` only, the result equals that of Helm's template function
``snakecase`` (``ToSnakeCase`` in ``huandu/xstrings``), which defines the names of existing keys.
"""

from __future__ import annotations

import re
from typing import Final

_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_WORD: Final = re.compile(r"(?<=[A-Za-z0-9])(?=[A-Z][a-z])|(?<=[a-z0-9])(?=[A-Z])")
_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9])([A-Z]+[a-z]*|[a-z]+)(?=[0-9]+[a-z])")
"""Where a word begins, and a word before the number that begins the next one."""


def is_config_key(key: str) -> bool:
    """Return whether ``key`` can be a key of a configuration: at most 63 letters, digits, ``-`` and ``_``."""
    return _KEY.fullmatch(key) is not None


def snake_case(key: str) -> str:
    """Convert ``key`` to snake case.

    A word begins at an upper-case letter; a run of upper-case letters is one word, without its last letter if a
    lower-case letter follows (``HTTPServer``: ``http_server``). A number belongs to the word before it
    (``Bld4Floor``: ``bld4_floor``), unless a lower-case letter follows, which continues it (``http2xx``: ``http_2xx``).
    """
    words = _WORD.sub("_", key)
    return _NUMBER.sub(r"\1_", words).replace("-", "_").lower()
