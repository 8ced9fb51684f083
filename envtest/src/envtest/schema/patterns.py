"""Regular expressions of schemas and CEL: Go's, by RE2, the C++ library with the same syntax and the same results.

RE2 is linear in the length of the string. What RE2 accepts and Go rejects is rejected here; errors have Go's texts.
Not accepted, unlike in Go: long names of Unicode classes (``\\p{Letter}`` for ``\\p{L}``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any

__all__ = ["PatternError", "compile_pattern", "find_all", "go_problem"]

_MEMORY = 8 * 2**20
"""Bytes that a pattern may take. Usual patterns take 5 kB."""
_MEMORY_OF_LARGE_PATTERN = 64 * 2**20
"""Bytes that a pattern may take that needs more, such as ``[\\p{L}\\p{N}]{500}``. Go's limit is 128 MiB."""
_TOO_LARGE = "pattern too large"
_REASONS = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
}
"""Go's reasons, by those of RE2. The others are the same."""
_LITERAL_OR_ESCAPE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)


class PatternError(ValueError):
    """Raised if a pattern is not a valid regular expression of Go."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return a function that reports whether a string contains a match. Raises :class:`PatternError`."""
    regexp = _regexp(pattern)
    re2 = _re2()
    # A set with only this pattern reports no positions, and so takes a tenth of the time that ``search`` takes.
    matcher = re2.Set.SearchSet(_options(_MEMORY))
    try:
        matcher.Add(pattern)
        matcher.Compile()
    except re2.error:  # a set needs more memory
        return lambda text: regexp.search(text) is not None

    return lambda text: matcher.Match(text) is not None


def find_all(pattern: str, text: str) -> Iterator[str]:
    """Yield the matches in ``text``, from left to right. Raises :class:`PatternError`.

    As in Go, an empty match directly behind another match does not count.
    """
    end = -1
    for match in _regexp(pattern).finditer(text):
        if match.group() or match.start() != end:
            yield match.group()
        end = match.end()


@cache
def _re2() -> Any:
    try:
        import re2  # lazy: a server without patterns does not need it
    except ImportError as error:  # on musl there is no wheel
        raise PatternError(f"patterns need the package google-re2: {error}") from error

    return re2


@cache
def _options(memory: int) -> Any:
    options = _re2().Options()
    options.max_mem = memory
    options.log_errors = False
    return options


def _regexp(pattern: str) -> Any:
    """Return the library's regular expression; the library keeps the last 128 of them."""
    re2 = _re2()
    try:
        try:
            regexp = re2.compile(pattern, _options(_MEMORY))
        except re2.error as error:
            if not _message(error).startswith(_TOO_LARGE):
                raise
            regexp = re2.compile(pattern, _options(_MEMORY_OF_LARGE_PATTERN))
    except re2.error as error:
        raise PatternError(f"error parsing regexp: {_go_message(error, pattern)}") from None
    _reject_extensions(pattern, regexp)
    return regexp


def _message(error: Exception) -> str:
    message: bytes = error.args[0]
    return message.decode(errors="replace")


def _go_message(error: Exception, pattern: str) -> str:
    reason, _, part = _message(error).partition(": ")
    if reason.startswith(_TOO_LARGE):
        return f"expression too large: `{pattern}`"
    if reason == "invalid UTF-8":  # RE2 reads behind the end of the pattern
        return "invalid escape sequence: `\\x{`"
    if reason == "trailing \\":
        return "trailing backslash at end of expression: ``"
    if part in ("(?<=", "(?<!"):  # to Go, the start of a name
        return f"invalid named capture: `{_group_start(part, pattern)}`"
    return _go_reason(reason, part)


def _go_reason(reason: str, part: str) -> str:
    return f"{_REASONS.get(reason, reason)}: `{part}`"


def go_problem(problem: str) -> str:
    """Return the error of Go for one of RE2: ``missing ]: [``."""
    reason, _, part = problem.partition(": ")
    return f"error parsing regexp: {_go_reason(reason, part)}"


def _group_start(part: str, pattern: str) -> str:
    """Return the text from the first ``part`` of a pattern to the next ``>``, or to the end."""
    group = pattern[pattern.index(part) :]
    end = group.find(">")
    return group if end < 0 else group[: end + 1]


def _reject_extensions(pattern: str, regexp: Any) -> None:
    r"""Reject what RE2 accepts and Go does not: ``\C`` (any byte), and other letters than ASCII's in names."""
    for name in regexp.groupindex:
        if not name.isascii():
            start = f"(?P<{name}>" if f"(?P<{name}>" in pattern else f"(?<{name}>"
            raise PatternError(f"error parsing regexp: invalid named capture: `{start}`")
    if any(escape == r"\C" for escape in _LITERAL_OR_ESCAPE.findall(pattern)):
        raise PatternError(r"error parsing regexp: invalid escape sequence: `\C`")
