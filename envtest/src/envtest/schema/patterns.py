"""Go's regular expressions (RE2), translated to Python's ``re``.

Most patterns in schemas mean the same in both. The differences are translated: ``$`` and ``\\z`` match only at the
end of the string, POSIX classes and ``\\p{...}`` become Python classes. Look-around and back-references are rejected,
as RE2 rejects them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from unicodedata import category
from unicodedata import name as unicode_name

__all__ = ["PatternError", "compile_pattern"]

_UNSUPPORTED = re.compile(r"\(\?(?:[=!]|<[=!])")
_COUNTS = re.compile(r"(?<!\\)\{(\d+(?:,\d*)?)\}")
_MAX_REPEATS = 1000
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\\x00-\\x7F",
    "blank": "\\t ",
    "cntrl": "\\x00-\\x1F\\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t\\n\\v\\f\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_CATEGORY = re.compile("[CLMNPSZ][a-z]?")
_SCRIPTS = {
    "Arabic": "ARABIC",
    "Cyrillic": "CYRILLIC",
    "Devanagari": "DEVANAGARI",
    "Greek": "GREEK",
    "Han": "CJK UNIFIED",
    "Hangul": "HANGUL",
    "Hebrew": "HEBREW",
    "Hiragana": "HIRAGANA",
    "Katakana": "KATAKANA",
    "Latin": "LATIN",
    "Thai": "THAI",
}
"""The prefix of the Unicode names of a script's characters."""
_PART = re.compile(
    r"\\[pP]\{\^?(\w+)\}|\\[pP](\w)|\\[\s\S]|\[:(\^?)(\w+):\]|\(\?[a-z-]+\)|\(\?<(?=\w)|[\[\]$()|]"
)


class PatternError(ValueError):
    """Raised if a pattern is not a valid RE2 regular expression."""


@lru_cache(maxsize=2048)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile an RE2 pattern for ``search``. Raises :class:`PatternError`."""
    for count in _COUNTS.findall(pattern):
        if any(number and int(number) > _MAX_REPEATS for number in count.split(",")):
            raise PatternError(f"error parsing regexp: invalid repeat count: `{{{count}}}`")
    if _UNSUPPORTED.search(pattern):
        raise PatternError(f"error parsing regexp: invalid or unsupported Perl syntax: `{pattern}`")
    try:
        return re.compile(_translate(pattern), re.ASCII)
    except re.error as error:
        raise PatternError(f"error parsing regexp: {_go_message(error, pattern)}") from None
    except OverflowError as error:
        raise PatternError(f"error parsing regexp: {error}: `{pattern}`") from None


def _name_of(character: str) -> str:
    return unicode_name(character, "")


@lru_cache(maxsize=64)
def _character_ranges(name: str, negated: bool) -> str:
    """Return the characters of a Unicode category or script, as ranges for a character class."""
    if not _CATEGORY.fullmatch(name) and name not in _SCRIPTS:
        raise PatternError(f"error parsing regexp: invalid character class range: `\\p{{{name}}}`")
    character_property: Callable[[str], str]
    if name in _SCRIPTS:
        character_property = _name_of
        prefix = _SCRIPTS[name]
    else:
        character_property = category
        prefix = name
    ranges: list[str] = []
    start: int | None = None
    for code in range(sys.maxunicode + 2):
        inside = (
            code <= sys.maxunicode and character_property(chr(code)).startswith(prefix) != negated
        )
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(ranges)


def _go_message(error: re.error, pattern: str) -> str:
    """Return Go's message for a pattern that does not parse."""
    message = error.msg
    position = error.pos or 0
    if message.startswith("missing )"):
        return f"missing closing ): `{pattern}`"
    if message.startswith("unbalanced parenthesis"):
        return f"unexpected ): `{pattern}`"
    if message.startswith("unterminated character set"):
        return f"missing closing ]: `{pattern[pattern.find('[') :]}`"
    if message.startswith("bad character range"):
        return f"invalid character class range: `{message.rpartition(' ')[2]}`"
    if message.startswith("bad escape"):
        return f"invalid escape sequence: `{message.removeprefix('bad escape ')}`"
    source = error.pattern if isinstance(error.pattern, str) else pattern
    if message == "nothing to repeat":
        return f"missing argument to repetition operator: `{source[position]}`"
    if message == "multiple repeat":
        return f"invalid nested repetition operator: `{source[position - 1 : position + 1]}`"
    return f"{message}: `{pattern}`"


def _translate(pattern: str) -> str:
    out: list[str] = []
    flags: list[list[str]] = [[]]  # for each open group, the flags set inside it
    inside = False
    position = 0
    for match in _PART.finditer(pattern):
        out.append(pattern[position : match.start()])
        position = match.end()
        part = match.group()
        if match.group(4) and inside:
            out.append(_POSIX[match.group(4)])
        elif match.group(1) or match.group(2):
            negated = part.startswith("\\P") != ("{^" in part)
            ranges = _character_ranges(match.group(1) or match.group(2), negated)
            if not inside:
                ranges = f"[{ranges}]"
            out.append(ranges)
        elif part == "$" and inside:
            out.append("$")
        elif part in ("$", r"\z"):
            out.append(r"\Z")
        elif part == "[":
            if inside:
                out.append("\\[")
            else:
                out.append("[")
                inside = True
                head = re.match(r"\^?\]?", pattern[position:])
                if head and head.group().endswith("]"):
                    out.append(head.group()[:-1] + "\\]")
                    rest = _translate_rest(pattern[position + len(head.group()) :])
                    return "".join(out) + rest + ")" * len(flags[0])
        elif part == "]":
            inside = False
            out.append("]")
        elif part[0] in "(|)" and not inside:
            out.append(_translate_group(part, flags))
        elif len(part) == 2 and part[1] in "123456789":
            raise PatternError(f"error parsing regexp: invalid escape sequence: `{part}`")
        elif inside and (match.group(3) is not None or match.group(4)):
            out.append(part.replace("[", "\\["))
        else:
            out.append(part)
    out.append(pattern[position:])
    return "".join(out) + ")" * len(flags[0])


def _translate_group(part: str, flags: list[list[str]]) -> str:
    """Translate parentheses and alternatives.

    In RE2 a flag applies up to the end of its group; ``re`` allows flags only at the start of a group.
    """
    if part == "|":
        return ")" * len(flags[-1]) + "|" + "".join(flags[-1])
    if part == ")":
        return ")" * len(flags.pop()) + ")" if len(flags) > 1 else ")"
    if part.endswith(")"):
        flags[-1].append(f"{part[:-1]}:")
        return flags[-1][-1]
    flags.append([])
    return "(?P<" if part == "(?<" else "("


def _translate_rest(rest: str) -> str:
    """Translate the part of the pattern after a class that begins with ``]``."""
    end = re.match(r"(?:[^\]\\]|\\[\s\S])*\]", rest)
    return rest if end is None else end.group() + _translate(rest[end.end() :])
