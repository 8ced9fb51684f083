"""CEL, the expression language of validation rules, match conditions and admission policies.

:func:`compile_expression` type-checks an expression against the types of its variables and returns a :class:`Program`.
The language is the C++ reference implementation (``cel-expr-python``); the functions that Kubernetes adds are in
``cel_functions``. The library compiles all expressions. Most are evaluated by ``cel_evaluator``, which counts their
costs, and the others by the library, which stops after 10,000 iterations of loops.

Times and durations are protobuf messages (``cel_times``), in variables and in results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import Any

from envtest.schema.cel_errors import NEXT_ERROR, in_cel_go_words
from envtest.schema.cel_evaluator import (
    OPTIONAL_RESULT,
    Evaluator,
    Implementations,
    prepare_evaluator,
)
from envtest.schema.cel_frame import CostLimitError
from envtest.schema.cel_lists import plain_lists
from envtest.schema.cel_macros import COST_EXCEEDED, COST_LIMIT, begin_evaluation
from envtest.schema.cel_tokens import quoted_fields
from envtest.schema.cel_workload import Workload, workload
from envtest.schema.patterns import go_problem

__all__ = [
    "Budget",
    "BudgetError",
    "CELCompileError",
    "CELError",
    "CELProgramError",
    "CELType",
    "Program",
    "check_syntax",
    "compile_expression",
]

CELType = str
"""The static type of a variable: ``dyn``, ``bool``, ``int``, ``double``, ``string``, ``bytes``, ``timestamp``,
``duration``, ``list(type)`` or ``map(type, type)``."""

_SIMPLE = {
    "bool": "BOOL",
    "bytes": "BYTES",
    "double": "DOUBLE",
    "duration": "DURATION",
    "dyn": "DYN",
    "int": "INT",
    "string": "STRING",
    "timestamp": "TIMESTAMP",
}
_RUNTIME_MESSAGES = (
    ("Key not found in map : ", "no such key: "),
    ("No matching overloads found", "no such overload"),
    ("divide by zero", "division by zero"),
    ("index out of bounds", "index out of bounds"),
    ("double out of int64 range", "integer overflow"),
    ("double out of uint64 range", "unsigned integer overflow"),
)
_PATTERN_PROBLEM = "invalid regular expression: "
_CONVERSIONS = (
    (re.compile(r"cannot convert string to (int|uint|double)"), ""),
    (re.compile(r"Type conversion error from 'string' to '(bool)'"), ""),
    (re.compile(r"String to (Duration|Timestamp) conversion failed"), "google.protobuf."),
)
_TYPE_NAME = re.compile(
    rf"\b(?:{'|'.join([*_SIMPLE.values(), 'LIST', 'MAP', 'NULL', 'TYPE', 'UINT'])})\b"
)
_TOO_MANY_ITERATIONS = "Iteration budget exceeded"
_FUNCTION_PREFIX = re.compile(r"(?:sort|flatten)\(\): ")
_INDEX = re.compile(r"index=(-?\d+) size=")


class CELCompileError(ValueError):
    """Raised if an expression does not compile: invalid syntax, an undeclared name, or mismatched types."""


class CELProgramError(CELCompileError):
    """Raised if an expression with valid types cannot be evaluated on any value: a pattern of ``find`` is invalid."""


class CELError(ValueError):
    """Raised if the evaluation of an expression fails for the given values."""


class BudgetError(Exception):
    """Raised if expressions cost more than their budget."""


class Budget:
    """What the expressions that belong together may cost."""

    __slots__ = ("remaining",)

    def __init__(self, cost: int) -> None:
        self.remaining = cost

    def charge(self, cost: int) -> None:
        """Take a cost from the budget. If it is more than what remains, take all and raise :class:`BudgetError`."""
        if cost > self.remaining:
            self.remaining = 0
            raise BudgetError
        self.remaining -= cost


class Program:
    """A compiled expression. ``kind`` is the static type of its value."""

    __slots__ = (
        "_evaluated",
        "_evaluator",
        "_expression",
        "_variables",
        "_workload",
        "kind",
        "source",
    )

    def __init__(
        self, expression: Any, source: str, variables: Sequence[str] = (), evaluated: Any = None
    ) -> None:
        """Create a program of a checked ``expression`` over ``variables``.

        The library evaluates ``evaluated`` instead of the expression if given.
        """
        self._expression = expression
        self._evaluated = expression if evaluated is None else evaluated
        self._variables = variables
        self._workload: Workload | None = None
        self._evaluator: Evaluator | None = None
        self.source = source
        self.kind: str = str(expression.return_type()).lower()

    @property
    def type_name(self) -> str:
        """The static type of the value as cel-go prints it: ``list(dyn)``, ``map(string, int)``."""
        return _cel_go_type(str(self._expression.return_type()))

    def checked(self) -> bytes:
        """Return the checked expression as serialized by the library: a ``cel.expr.CheckedExpr`` in an ``Any``."""
        data: bytes = self._expression.serialize()
        return data

    def evaluate(self, variables: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Return the value of the expression, and take its cost from ``budget``.

        The value can contain parts of ``variables``, so callers must not modify it.
        Raises :class:`CELError`, or :class:`BudgetError`.
        """
        if self._workload is None:
            self._workload, self._evaluator = _prepare(self._expression, self._variables)
        if budget is None:
            budget = Budget(COST_LIMIT + 1)
        if self._evaluator is None:
            budget.charge(_estimated_cost(self._workload, variables))
            return self._library_value(variables)
        try:
            outcome = self._evaluator.evaluate(variables, COST_LIMIT)
        except CostLimitError:
            budget.charge(COST_LIMIT + 1)
            raise CELError(COST_EXCEEDED) from None
        budget.charge(outcome.cost)
        if not outcome.error:
            return outcome.value
        if outcome.is_exact:
            raise CELError(outcome.error)
        try:
            return self._library_value(variables)
        except CELError as error:
            if str(error) != COST_EXCEEDED:
                raise
        raise CELError(outcome.error)

    def _library_value(self, variables: Mapping[str, Any]) -> Any:
        begin_evaluation()
        try:
            plain = {name: plain_lists(value) for name, value in variables.items()}
            result = self._evaluated.eval(data=plain)
        except (RuntimeError, TypeError, ValueError) as error:
            text = str(error)
            raise CELError(COST_EXCEEDED if _TOO_MANY_ITERATIONS in text else text) from None
        try:
            if result.type() == _cel().Type.ERROR:
                raise CELError(_cel_go_message(str(result.value())))
            value = result.plain_value()
        except (SystemError, TypeError):
            raise CELError(OPTIONAL_RESULT) from None
        return value if isinstance(value, (bool, str)) else _with_messages(value)


def _with_messages(value: Any) -> Any:
    from envtest.schema.cel_times import as_messages  # lazy: needs protobuf

    return as_messages(value)


_MAX_ITERATIONS = 10_000
"""The iterations after which the library stops an evaluation."""

_UNKNOWN_WORKLOAD = Workload(parts=100, depth=1)
"""The workload of an expression that is nested too deeply to decode."""


def _prepare(expression: Any, variables: Sequence[str]) -> tuple[Workload, Evaluator | None]:
    from envtest.schema.cel_checked import checked_expression  # lazy: needs protobuf

    checked = checked_expression(expression.serialize())
    if checked is None:
        return _UNKNOWN_WORKLOAD, None
    evaluator = prepare_evaluator(checked, variables, _implementations(), _matches)
    return workload(checked), evaluator


@cache
def _implementations() -> Implementations:
    from envtest.schema.cel_functions import implementations

    return implementations()


def _matches(text: str, pattern: str) -> bool:
    """Report whether a string contains a regular expression; the library's time is linear, Python's is not."""
    # The library takes a NUL for the end of a string; another control character is in the same classes.
    text = text.replace("\0", "\1")
    result = _pattern_test().eval(data={"pattern": pattern, "text": text})
    if result.type() == _cel().Type.ERROR:
        raise ValueError(_cel_go_message(str(result.value())))
    return bool(result.plain_value())


@cache
def _pattern_test() -> Any:
    variables = (("pattern", "string"), ("text", "string"))
    return _environment(variables, False).compile("text.matches(pattern)")


def _estimated_cost(load: Workload, variables: Mapping[str, Any]) -> int:
    """Return about the most that the library evaluates: each loop runs for all values in the variables."""
    if load.depth == 0:
        return load.parts
    count = _count_values(variables, _MAX_ITERATIONS)
    return int(load.parts * min(count**load.depth, _MAX_ITERATIONS))


def _count_values(value: Any, limit: int) -> int:
    """Return how many values there are in a value, at most ``limit``."""
    count = 0
    todo = [value]
    while todo and count < limit:
        each = todo.pop()
        count += 1
        if isinstance(each, Mapping):
            todo += each.values()
        elif isinstance(each, list):
            todo += each
    return count


_OPTIONAL = re.compile(r"[.\[{,]\s*\?")
_NO_TREE = ": <<nil>> parsetree"
_ARGUMENT_TYPES = re.compile(r"(?<= applied to ')[^'\n]*(?='$)", re.MULTILINE)
_NO_FIELDS = re.compile(
    r"expression of type ('[^'\n]*') cannot be the operand of a select operation"
)
_ARGUMENT_TYPE_NAMES = (
    ("null_type", "null"),
    ("google.protobuf.Timestamp", "timestamp"),
    ("google.protobuf.Duration", "duration"),
)


def _cel_go_type(name: str) -> str:
    """Translate the name of a type to cel-go's."""
    name = name.replace("<", "(").replace(">", ")")
    return _TYPE_NAME.sub(_lower_type_name, name)


def _lower_type_name(match: re.Match[str]) -> str:
    return "null_type" if match[0] == "NULL" else match[0].lower()


def _cel_go_argument_types(match: re.Match[str]) -> str:
    """Translate the types of arguments in a compile error to cel-go's names."""
    types = match[0]
    for name, go_name in _ARGUMENT_TYPE_NAMES:
        types = types.replace(name, go_name)
    return types


def _cel_go_message(message: str) -> str:
    """Translate a runtime error of the library to cel-go's message."""
    index = _INDEX.search(message)
    if index:
        return f"index out of bounds: {index.group(1)}"
    for pattern, prefix in _CONVERSIONS:
        conversion = pattern.search(message)
        if conversion:
            return f"type conversion error from 'string' to '{prefix}{conversion.group(1)}'"
    text = message.partition(": ")[2] or message
    if text.startswith(_PATTERN_PROBLEM):
        return go_problem(text.removeprefix(_PATTERN_PROBLEM))
    for library_message, go_message in _RUNTIME_MESSAGES:
        if library_message in text:
            rest = text.partition(library_message)[2].strip('"')
            return f"{go_message}{rest}" if go_message.endswith(": ") else go_message
    return _FUNCTION_PREFIX.sub("", text, count=1)


@cache
def _cel() -> Any:
    try:
        from cel_expr_python import cel  # lazy: a server without rules does not need its 14 MB
    except ImportError as error:  # on musl there is no wheel
        raise CELCompileError(f"expressions need the package cel-expr-python: {error}") from error

    return cel


def _type(name: CELType) -> Any:
    cel = _cel()
    if name in _SIMPLE:
        return getattr(cel.Type, _SIMPLE[name])
    if name.startswith("list("):
        return cel.Type.List(_type(name[5:-1]))
    if not name.startswith("map("):
        return cel.Type(name)
    key, _, value = name[4:-1].partition(", ")
    return cel.Type.Map(_type(key), _type(value))


@cache
def _environment(
    variables: tuple[tuple[str, CELType], ...], patches: bool, bindings: bool = False
) -> Any:
    return _new_environment(variables, None, patches, bindings)


def _new_environment(
    variables: tuple[tuple[str, CELType], ...],
    pool: Any,
    patches: bool,
    bindings: bool,
    source: str | None = None,
) -> Any:
    """Return an environment for any expression, or for ``source``; with ``bindings`` it has ``cel.bind``."""
    cel = _cel()
    from cel_expr_python.ext import ext_bindings, ext_optional

    from envtest.schema.cel_library import configuration

    extensions: list[Any] = [ext_optional.ExtOptional()]
    if bindings:
        extensions.append(ext_bindings.ExtBindings())
    return cel.NewEnv(
        config=configuration(source),
        descriptor_pool=pool,
        variables={name: _type(type_name) for name, type_name in variables},
        extensions=extensions,
        functions=_declarations(patches),
    )


@cache
def _declarations(patches: bool) -> list[Any]:
    from envtest.schema.cel_functions import declarations, patch_declarations

    return [*declarations(), *patch_declarations()] if patches else declarations()


@lru_cache(maxsize=4096)
def _compile(
    expression: str, variables: tuple[tuple[str, CELType], ...], patches: bool, bindings: bool
) -> Program:
    environment = _environment(variables, patches, bindings)
    source = _with_formats(expression)
    try:
        checked = environment.compile(source)
        evaluated_source = _with_macros(source)
        evaluated = None if evaluated_source == source else environment.compile(evaluated_source)
    except (RuntimeError, ValueError, TypeError) as error:
        message = _whole(error, environment, source)
        raise CELCompileError(_compile_message(message, expression)) from None
    program = Program(checked, expression, [name for name, _ in variables], evaluated)
    if "transformMap" in source and (
        _OPTIONAL.search(source) or b"optional_type" in program.checked()
    ):
        # The library ends the process when it passes an optional value in a map to a function in Python.
        raise CELCompileError("transformMap with optional values is not supported by envtest")
    return program


def _with_formats(expression: str) -> str:
    if "validate" not in expression and "named" not in expression:
        return expression
    from envtest.schema.cel_formats import rewrite_formats

    return rewrite_formats(expression)


def _with_macros(expression: str) -> str:
    if "transformMap" not in expression and "range" not in expression:
        return expression
    from envtest.schema.cel_macros import rewrite_macros

    return rewrite_macros(expression)


_EMPTY_POSITION = "<input>:1:1:"
"""Where the library reports that an empty expression ends; cel-go reports column 0."""


_POSITION = re.compile(r"<input>:(\d+):(\d+)")


def _position(problem: str) -> tuple[int, int]:
    """Return the line and column of a compile error; cel-go reports errors by position."""
    found = _POSITION.search(problem)
    return (int(found[1]), int(found[2])) if found else (0, 0)


_UNDECLARED_PATH = re.compile(
    r"(?P<head>ERROR: <input>:\d+:)(?P<column>\d+)(?P<text>: undeclared reference to ')(?P<root>\w+)\.(?P<path>[\w.]+)'"
)


def _without_undeclared_path(problem: str) -> str:
    """Return an error about an undeclared ``a.b`` as one about ``a``, at its position, as cel-go reports it."""
    found = _UNDECLARED_PATH.match(problem)
    if found is None:
        return problem
    parents = f"{found['root']}.{found['path']}".rpartition(".")[0]
    column = int(found["column"]) - len(parents)
    lines = problem.split("\n")
    if column < 1 or len(lines) < 3 or not lines[1].startswith(found["root"], column + 2):
        return problem  # blanks are between the names
    lines[0] = f"{found['head']}{column}{found['text']}{found['root']}'{lines[0][found.end() :]}"
    lines[2] = f" | {'.' * (column - 1)}^"
    return "\n".join(lines)


_SUBSTITUTES = "\1\2\3\4\5\6\7"
"""Characters that are as invalid as NUL in an expression outside of strings."""


def _whole(error: Exception, environment: Any, source: str) -> str:
    """Return the message of a compile error of ``source``; the library ends its own at the first NUL."""
    substitute = next((each for each in _SUBSTITUTES if each not in source), "")
    if "\0" not in source or not substitute:
        return str(error)
    try:
        environment.compile(source.replace("\0", substitute))
    except (RuntimeError, ValueError, TypeError) as whole:
        return str(whole).replace(substitute, "\0")
    return str(error)


def _compile_message(message: str, expression: str) -> str:
    """Return a compile error without those that only follow from another one, which cel-go does not report."""
    text = message.removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
    problems = sorted(map(_without_undeclared_path, NEXT_ERROR.split(text)), key=_position)
    if len(problems) > 1:  # the library also reports the part that a syntax error left out
        problems = [each for each in problems if not each.endswith(_NO_TREE)] or problems
    if not expression:
        problems[0] = problems[0].replace(_EMPTY_POSITION, "<input>:1:0:", 1)
    problems = [
        _NO_FIELDS.sub(r"type \1 does not support field selection", each) for each in problems
    ]
    problems = [_ARGUMENT_TYPES.sub(_cel_go_argument_types, each, count=1) for each in problems]
    problems = [in_cel_go_words(each) for each in problems]
    return "\n".join([problems[0], *(each for each in problems[1:] if "'*error*'" not in each)])


_MAX_SYNTAX_ERRORS = 10
_MAX_LINE = 16_384
"""The longest line that cel-go shows in an error."""


def check_syntax(expression: str) -> None:
    """Refuse fields in backticks, which kube-apiserver does not enable. Raises :class:`CELCompileError`."""
    if "`" not in expression:
        return
    positions = islice(quoted_fields(expression), _MAX_SYNTAX_ERRORS)
    problems = [_unsupported(expression, position) for position in positions]
    if problems:
        raise CELCompileError("\n".join(problems))


def _unsupported(expression: str, position: int) -> str:
    """Return cel-go's error about a backtick."""
    before = expression[:position].split("\n")
    line = expression.split("\n")[len(before) - 1]
    column = len(before[-1])
    error = f"ERROR: <input>:{len(before)}:{column + 1}: unsupported syntax: '`'"
    return error if len(line) > _MAX_LINE else f"{error}\n | {line}\n | {'.' * column}^"


def type_check(
    expression: str,
    variables: Mapping[str, CELType],
    pool: Any,
    *,
    patches: bool = False,
    bindings: bool = False,
) -> Program:
    """Return the program of an expression; the types of ``variables`` can name messages of a descriptor ``pool``.

    The program has types and cannot be evaluated on plain objects. Raises :class:`CELCompileError`.
    """
    environment = _new_environment(tuple(variables.items()), pool, patches, bindings, expression)
    source = _with_formats(expression)
    try:
        return Program(environment.compile(source), expression)
    except (RuntimeError, ValueError, TypeError) as error:
        message = _whole(error, environment, source)
        raise CELCompileError(_compile_message(message, expression)) from None


def compile_expression(
    expression: str,
    variables: Mapping[str, CELType],
    *,
    patches: bool = False,
    bindings: bool = False,
) -> Program:
    """Compile ``expression`` over ``variables``. Raises :class:`CELCompileError`.

    ``patches`` adds the functions of mutating policies, ``bindings`` the macro ``cel.bind``. Programs are cached: the
    same expression over the same variables returns the same program.
    """
    return _compile(expression, tuple(sorted(variables.items())), patches, bindings)
