"""Checks that every regular expression of all distributions takes linear time.

    python -m hack.patterns

Each pattern is run with the methods that the code calls, on up to 100,000 characters that repeat what one of its
repetitions matches, followed by an end that does not match. It must take less than 50 ms. Patterns that are not known
before they are used are in :data:`DYNAMIC`.
"""

from __future__ import annotations

import ast
import re
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = (
    (ROOT, "cfo"),
    (ROOT / "envtest/src", "envtest"),
    (ROOT / "handlers/src", "cfo_handlers"),
)
LENGTHS: Final = (18, 21, 24, 400, 2_000, 5_000, 12_000, 30_000, 100_000)
"""Growing lengths: exponential time is found at the first ones, a cube at 400, and a square at the next ones.

The last lengths are close to each other: a square just below the limit at one would take seconds at a distant next one.
"""
_SQUARES: Final = 2_000
"""From this length on, only a square can be left."""
LIMIT_SECONDS: Final = 0.05
_REPEATS: Final = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
_MAX_PARTS: Final = 3
"""How many strings are tried for each part of a pattern."""
ENDS: Final = ("", "\x00", "\n")
METHODS: Final = frozenset(
    {"match", "fullmatch", "search", "findall", "finditer", "sub", "subn", "split"}
)
DYNAMIC: Final = {
    "cfo/config/values.py": "the argument of matching(), whose callers are checked",
    "envtest/src/envtest/schema/formats.py": "the argument of _matches(), whose callers are checked",
    "envtest/src/envtest/schema/patterns.py": "the pattern of a CRD",
    "envtest/src/envtest/chaos/normal_form.py": "names of one run, escaped",
    "envtest/src/envtest/builtins/string_validation.py": "the argument is a constant in each branch",
}
"""Files with a pattern that is not a constant, and what it is."""
_FACTORIES: Final = {"matching": "fullmatch", "_matches": "fullmatch"}
"""Functions that take a pattern as their first argument, and how they match it."""
_FACTORY_FILES: Final = {path.name for path in (ROOT / "cfo/config").glob("*.py")} | {"formats.py"}
_PATTERN_CALL: Final = re.compile(
    rf"\bre\.(?:compile|{'|'.join(sorted(METHODS))})\(|\b(?:{'|'.join(_FACTORIES)})\("
)
"""What is in the text of each module that defines a pattern. Others are not parsed, which would take seconds."""
_METHOD_CALL: Final = re.compile(rf"\b(\w+)\.({'|'.join(sorted(METHODS))})\b")
"""A method of patterns on a name, which may be imported from the module that defines the pattern."""


class Use(NamedTuple):
    """A pattern, the place where it is defined, and the methods that match it."""

    where: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


def uses(*files: str) -> Iterator[Use]:
    """Yield the patterns in ``files``, by default in all. Raises :class:`ValueError` for one that is not a constant."""
    for path in _sources():
        if files and str(path.relative_to(ROOT)) not in files:
            continue
        source = path.read_text()
        if not _PATTERN_CALL.search(source):
            continue
        tree = ast.parse(source)
        folder = next(folder for folder, package in SOURCES if folder / package in path.parents)
        parents = _parents(tree)
        here = _methods_by_name([source])
        for node in ast.walk(tree):
            name = _pattern_function(node)
            if name is None or (name in _FACTORIES and path.name not in _FACTORY_FILES):
                continue
            call: Any = node
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            try:
                pattern = _evaluate(path.relative_to(folder), call)
            except Exception as error:
                if str(path.relative_to(ROOT)) not in DYNAMIC:
                    raise ValueError(f"{where}: the pattern is not a constant: {error}") from error
                continue
            found = frozenset({_FACTORIES.get(name, name)})
            if name == "compile":
                found = _methods_of(parents[call], here)
                found = found or _methods_of(parents[call], _methods_everywhere())
            yield Use(where, pattern, found)


def _sources() -> list[Path]:
    """Return the modules of all distributions."""
    return sorted(path for folder, package in SOURCES for path in (folder / package).rglob("*.py"))


@cache
def _methods_everywhere() -> dict[str, set[str]]:
    """Return what :func:`_methods_by_name` finds in all modules."""
    return _methods_by_name(path.read_text() for path in _sources())


def _parents(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """Return the parent of each node below ``tree``."""
    parents: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            parents[child] = node
    return parents


def _pattern_function(node: ast.AST) -> str | None:
    """Return ``compile`` or the method if ``node`` is a call that takes a pattern."""
    if not isinstance(node, ast.Call) or not node.args:
        return None
    match node.func:
        case ast.Name(id=name) if name in _FACTORIES:
            return name
        case ast.Attribute(attr=name, value=ast.Name(id="re")) if name in {"compile", *METHODS}:
            return name
    return None


def _evaluate(path: Path, call: ast.Call) -> re.Pattern[Any]:
    """Compile the pattern of ``call`` with the constants of its module."""
    module = import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    names = {**vars(module), "re": re}
    flags = 0
    for argument in [*call.args[1:], *(each.value for each in call.keywords)]:
        if ast.unparse(argument).startswith("re."):
            flags = int(eval(compile(ast.Expression(argument), "flags", "eval"), names))
    found = eval(compile(ast.Expression(call.args[0]), "pattern", "eval"), names)
    return found if isinstance(found, re.Pattern) else re.compile(found, flags)


def _methods_by_name(sources: Iterable[str]) -> dict[str, set[str]]:
    """Return the methods that the code calls on each name."""
    found: dict[str, set[str]] = {}
    for source in sources:
        for name, method in _METHOD_CALL.findall(source):
            found.setdefault(name, set()).add(method)
    return found


def _methods_of(parent: ast.AST, methods: dict[str, set[str]]) -> frozenset[str]:
    match parent:
        case ast.Attribute(attr=method):
            return frozenset({method})
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name), *_]):
            return frozenset(methods.get(name, ()))
    return frozenset()


def attacks(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """Yield prefixes and units for texts that repeat the unit: what ``pattern`` repeats, and what its parts match.

    The square of the length needs two repetitions that match the same text. The second one can be the search itself,
    which begins again at each character: its unit is the beginning of the pattern (``foo.*bar`` on ``foofoofoo``).
    Otherwise, the unit is what is between the two, as the first also matches that (``.*foo.*bar``).
    """
    source = pattern.pattern
    if isinstance(source, bytes):
        source = source.decode("latin-1")
    tree = sre_parser.parse(source)
    repetitions = _repetitions(tree, "")
    yield from dict.fromkeys((prefix[-200:], unit) for prefix, unit in repetitions if unit)
    for unit in sorted({*_alphabet(tree), *_parts(tree)}):
        yield "", unit


def _parts(tree: Any) -> Iterator[str]:
    """Yield short strings that consecutive items of ``tree``, and of each sequence in it, match."""
    items = list(tree)
    for first in range(len(items)):
        if first and not _is_repetition(items[first - 1]):
            continue
        for last in range(first + 1, len(items) + 1):
            if last == len(items) or _is_repetition(items[last]):
                yield from filter(None, _samples(items[first:last])[:_MAX_PARTS])
    for operator, argument in items:
        for body in _bodies(operator, argument):
            yield from _parts(body)
        if operator in _REPEATS:
            yield from _parts(argument[2])


def _is_repetition(item: tuple[Any, Any]) -> bool:
    """Return whether an item of a pattern is, or contains, an unbounded repetition."""
    operator, argument = item
    return operator in _REPEATS or any(
        _is_repetition(each) for body in _bodies(operator, argument) for each in body
    )


def _repetitions(tree: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for operator, argument in tree:
        if operator in _REPEATS:
            _, most, body = argument
            if most is sre.MAXREPEAT or most > 100:
                yield from ((prefix, unit) for unit in _samples(body))
            yield from _repetitions(body, prefix)
        for body in _bodies(operator, argument):
            yield from _repetitions(body, prefix)
        prefix += next(iter(_samples([(operator, argument)])), "")


def _bodies(operator: Any, argument: Any) -> list[Any]:
    if operator is sre.BRANCH:
        return list(argument[1])
    if operator is sre.SUBPATTERN:
        return [argument[3]]
    if operator is sre.ATOMIC_GROUP:
        return [argument]
    if operator in (sre.ASSERT, sre.ASSERT_NOT):
        return [argument[1]]
    return []


def _samples(tree: Any) -> list[str]:
    """Return a few strings that ``tree`` matches."""
    found = [""]
    for operator, argument in tree:
        if operator in (sre.ASSERT, sre.ASSERT_NOT, sre.AT, sre.GROUPREF):
            continue
        if operator in _REPEATS:
            least, most, body = argument
            parts = [part * max(least, 1) for part in _samples(body)]
            if least == 0 and most:
                parts.append("")
        else:
            parts = []
            bodies = _bodies(operator, argument)
            for body in bodies:
                parts += _samples(body)
            if not bodies:
                parts = _characters(operator, argument)
        found = [before + part for before, part in product(found[:4], parts[:6])]
    return found[:12]


_CATEGORIES: Final = {
    sre.CATEGORY_DIGIT: "1",
    sre.CATEGORY_SPACE: " \n\t",
    sre.CATEGORY_WORD: "a1_",
    sre.CATEGORY_NOT_DIGIT: "a",
    sre.CATEGORY_NOT_SPACE: "a",
    sre.CATEGORY_NOT_WORD: "-",
}


def _characters(operator: Any, argument: Any) -> list[str]:
    """Return characters that one item of a pattern matches."""
    if operator is sre.LITERAL:
        return [chr(argument)]
    if operator is sre.NOT_LITERAL:
        return [character for character in "a \n" if ord(character) != argument]
    if operator is sre.ANY:
        return ["a", " "]
    if operator is sre.RANGE:
        return [chr(argument[0]), chr(argument[1])]
    if operator is sre.CATEGORY:
        return list(_CATEGORIES[argument])
    if operator is not sre.IN:
        return []
    found: list[str] = []
    for item in argument:
        found += _characters(*item)
    if argument[0][0] is sre.NEGATE:
        return [character for character in "a1 \n-\\" if character not in found]
    return found


def _alphabet(tree: Any) -> Iterator[str]:
    for operator, argument in tree:
        yield from _characters(operator, argument)
        if operator in _REPEATS:
            yield from _alphabet(argument[2])
        for body in _bodies(operator, argument):
            yield from _alphabet(body)


def slowest(pattern: re.Pattern[Any], method: str) -> tuple[float, str]:
    """Return the seconds of the slowest attack on ``pattern``, and its description; ends at the first slow one."""
    worst = (0.0, "")
    for prefix, unit in attacks(pattern):
        for end in ENDS:
            for length in LENGTHS:
                text = prefix + (unit * (length // len(unit) + 1))[:length] + end
                seconds = _seconds(pattern, method, text)
                if seconds > LIMIT_SECONDS:
                    # Another process may have interrupted it.
                    again = [_seconds(pattern, method, text) for _ in range(2)]
                    seconds = min(seconds, *again)
                attack = f"{len(text)} characters: {prefix!r} + {unit!r}... + {end!r}"
                worst = max(worst, (seconds, attack))
                if seconds > LIMIT_SECONDS:
                    return worst
                if length >= _SQUARES and seconds * (LENGTHS[-1] / length) ** 2 < LIMIT_SECONDS:
                    break  # also if its time grows with the square, the last length stays below the limit
    return worst


def _seconds(pattern: re.Pattern[Any], method: str, text: str) -> float:
    subject: Any = text if isinstance(pattern.pattern, str) else text.encode()
    arguments = [subject[:0], subject] if method in ("sub", "subn") else [subject]
    began = time.thread_time()
    result = getattr(pattern, method)(*arguments)
    if method == "finditer":
        for _ in result:
            pass
    return time.thread_time() - began


def problems() -> Iterator[str]:
    """Yield a line for each pattern and method that is too slow."""
    for use in uses():
        for method in sorted(use.methods or {"fullmatch", "search"}):
            seconds, attack = slowest(use.pattern, method)
            if seconds > LIMIT_SECONDS:
                yield f"{use.where}: {method}() took {seconds * 1000:.0f} ms for {attack}"


def main() -> None:
    """Print the problems; exit with 1 if there are any."""
    failed = False
    for problem in problems():
        print(problem, flush=True)
        failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
