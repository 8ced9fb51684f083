"""The transcripts of kubectl's commands: how they are read and compared."""

from __future__ import annotations

import pytest

from test.clients.transcript import Step, matches, parse

TEXT = """# Two commands.
$ get a
NAME   AGE
a      ...

# printed
$ get b
[1]
"""


def test_steps_have_a_command_output_and_exit_code() -> None:
    assert list(parse(TEXT)) == [
        Step("get a", ["NAME   AGE", "a      ...", "# printed"]),
        Step("get b", [], 1),
    ]


def test_output_without_a_command_is_an_error() -> None:
    with pytest.raises(ValueError, match="without a command"):
        list(parse("lost"))


@pytest.mark.parametrize(
    ("expected", "actual", "result"),
    [
        (["a  b"], ["a b", ""], True),
        (["a ... c"], ["a b c"], True),
        (["a", "...", "d"], ["a", "b", "c", "d"], True),
        (["a", "...", "d"], ["a", "d"], True),
        (["a", "..."], ["b"], False),
        (["a (b)"], ["a (b)"], True),
        (["a"], ["a", "b"], False),
        ([], [], True),
    ],
)
def test_expected_output_matches(expected: list[str], actual: list[str], result: bool) -> None:
    assert matches(expected, actual) is result
